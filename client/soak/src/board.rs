//! Where everyone tells what it is doing, for the watchdog and for whoever asks who waits for what.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringkeeper_client::{Client, SessionId, SessionState};

/// Everyone's posts.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Vec<Arc<Post>>>);

/// One worker's place on the board.
#[derive(Debug)]
pub(crate) struct Post {
    name: String,
    note: Mutex<Note>,
}

#[derive(Clone, Debug)]
struct Note {
    doing: String,
    since: Instant,
    client: Option<Client>,
    is_over: bool,
}

impl Board {
    /// A new worker.
    pub(crate) fn post(&self, name: &str) -> Arc<Post> {
        let note = Note { doing: "starts".to_owned(), since: Instant::now(), client: None, is_over: false };
        let post = Arc::new(Post { name: name.to_owned(), note: Mutex::new(note) });
        self.posts().push(Arc::clone(&post));
        post
    }

    fn posts(&self) -> MutexGuard<'_, Vec<Arc<Post>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who has been at one thing for longer than `patience`.
    pub(crate) fn stuck(&self, patience: Duration) -> Vec<String> {
        let is_stuck = |note: &Note| !note.is_over && note.since.elapsed() > patience;
        let posts = self.posts();
        posts.iter().filter(|post| is_stuck(&post.note())).map(|post| post.line()).collect()
    }

    /// How many are still at work.
    pub(crate) fn unfinished(&self) -> usize {
        self.posts().iter().filter(|post| !post.note().is_over).count()
    }

    /// What everyone is doing.
    pub(crate) fn lines(&self) -> String {
        self.posts().iter().fold(String::new(), |mut text, post| {
            let _ = writeln!(text, "  {}", post.line());
            text
        })
    }

    /// The name of the worker with this session.
    pub(crate) fn owner(&self, session: SessionId) -> Option<String> {
        let has_it =
            |post: &&Arc<Post>| post.note().client.is_some_and(|client| client.session_id() == session);
        self.posts().iter().find(has_it).map(|post| post.name.clone())
    }

    /// Some worker's client, by a number that chooses one.
    pub(crate) fn client(&self, number: usize) -> Option<Client> {
        let posts = self.posts();
        posts.get(number % posts.len().max(1))?.note().client
    }
}

impl Post {
    /// What the worker begins to do.
    pub(crate) fn at(&self, doing: String) {
        let mut note = self.lock();
        note.doing = doing;
        note.since = Instant::now();
    }

    /// The worker's session, from now on.
    pub(crate) fn has_session(&self, client: &Client) {
        self.lock().client = Some(client.clone());
    }

    /// The worker has nothing to do any more.
    pub(crate) fn over(&self) {
        let mut note = self.lock();
        note.is_over = true;
        // The board's handle would keep the session.
        note.client = None;
    }

    fn lock(&self) -> MutexGuard<'_, Note> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self) -> Note {
        self.lock().clone()
    }

    fn line(&self) -> String {
        let Note { doing, since, client, is_over } = self.note();
        if is_over {
            return format!("{}: done", self.name);
        }
        let session = client.map_or_else(String::new, |client| {
            let state: SessionState = client.state();
            format!(", session {} {state:?}", client.session_id())
        });
        format!("{}: {doing} for {:.1} s{session}", self.name, since.elapsed().as_secs_f32())
    }
}
