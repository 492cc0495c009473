//! What every worker has: a session that is made anew when it ends, its post on the board, its dice.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ringkeeper_client::{Client, Error, Result, Wait};

use crate::board::Post;
use crate::soak::Soak;

/// Short, so that sessions do end now and then.
const SESSION_TIMEOUT: Duration = Duration::from_secs(5);

/// One of the clients.
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) soak: Arc<Soak>,
    pub(crate) client: Client,
    post: Arc<Post>,
    rng: StdRng,
}

impl Worker {
    /// A worker with its first session.
    pub(crate) fn start(soak: &Arc<Soak>, name: String, seed: u64) -> Self {
        let post = soak.board.post(&name);
        let rng = StdRng::seed_from_u64(seed);
        let client = connect(soak, &post);
        Self { name, soak: Arc::clone(soak), client, post, rng }
    }

    /// Does `work` again and again until the soak is over, with a new session whenever one has ended.
    pub(crate) fn run(mut self, mut work: impl FnMut(&mut Self) -> Result<()>) {
        while self.goes_on() {
            if let Err(error) = work(&mut self) {
                self.recover(error);
            }
            let pause = self.random(0..60);
            self.sleep(pause);
        }
        self.finish();
    }

    /// After an error: a new session if that has ended; anything else that a recipe does not deal with
    /// itself should not be.
    pub(crate) fn recover(&mut self, error: Error) {
        if self.client.end_reason().is_some() {
            self.soak.verdict.count("sessions ended, and their workers began anew");
            self.at("makes a new session");
            self.client = connect(&self.soak, &self.post);
        } else if error.is_connection() {
            self.at("waits for its connection");
            // Its error is that of the session, which the next call has as well.
            let _ = self.client.connected().wait();
        } else {
            self.violation(format!("unexpected error: {error}"));
        }
    }

    /// Closes the session.
    pub(crate) fn finish(self) {
        self.at("closes its session");
        // Without a connection the session is left to its timeout.
        let _ = self.client.close().wait();
        self.post.over();
    }

    /// Whether there is more to do.
    pub(crate) fn goes_on(&self) -> bool {
        !self.soak.is_finishing()
    }

    /// Tells what it begins to do.
    pub(crate) fn at(&self, doing: impl Display) {
        self.post.at(doing.to_string());
    }

    pub(crate) fn count(&self, what: &'static str) {
        self.soak.verdict.count(what);
    }

    pub(crate) fn violation(&self, what: impl Display) {
        self.soak.verdict.violation(format!("{}, session {}: {what}", self.name, self.client.session_id()));
    }

    /// A random number below the end of `range`.
    pub(crate) fn random(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.rng.random_range(range)
    }

    /// One of `items`, which are some.
    pub(crate) fn choose<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.rng.random_range(0..items.len())]
    }

    pub(crate) fn sleep(&self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    /// Repeats a call that does no harm twice, over lost connections.
    pub(crate) fn retried<T>(&self, call: impl Fn(&Client) -> Result<T>) -> Result<T> {
        loop {
            match call(&self.client) {
                Err(error) if error.is_connection() => self.client.connected().wait()?,
                outcome => return outcome,
            }
        }
    }
}

fn connect(soak: &Soak, post: &Post) -> Client {
    loop {
        let builder = soak.client().session_timeout(SESSION_TIMEOUT);
        // Without a quorum for a while there are no sessions; the watchdog sees one that never comes.
        if let Ok(client) = builder.connect().wait() {
            post.has_session(&client);
            return client;
        }
    }
}
