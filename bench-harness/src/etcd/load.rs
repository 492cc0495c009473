//! Connections under load: all are made, each with what it needs laid out through it, before the window
//! begins.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use prost::bytes::Bytes;
use ringkeeper_testkit::interrupt;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};

use super::client::Client;
use super::pipeline::{pipeline, untold};
use super::runtime;
use crate::driver::{CpuWindow, SILENCE_MAX, Schedule, Tally};
use crate::fault::Fault;
use crate::measure::{Measurement, deal, judge};
use crate::open_loop::{Alarm, Arrivals, Dues, LATE};
use crate::window::{Surroundings, on_threads};

/// How often it is looked for an interrupt and for silence.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Requests outstanding while keys are laid out.
const LAYOUT_OUTSTANDING: usize = 500;

/// What a connection is used for.
pub(super) trait User: Send {
    /// Keys and values that must be there before it begins; at least one, so that the connection is known to
    /// serve.
    fn layout(&self) -> Vec<(Bytes, Bytes)>;

    /// They are there, each since its revision.
    fn laid_out(&mut self, revisions: &[i64]);
}

/// A user whose requests are all alike to those who send them.
pub(super) trait Asker: User {
    /// Sends one request, awaits its answer, and checks it.
    fn ask(&self, client: &Client) -> impl Future<Output = Result<()>>;
}

/// A connection and its user.
pub(super) struct Link<U> {
    pub(super) client: Client,
    pub(super) user: U,
}

/// The connections of one thread, and the runtime that their sockets belong to.
pub(super) struct Hand<U> {
    runtime: Runtime,
    links: Vec<Link<U>>,
}

/// Makes a connection for every user, spread evenly over `members`, and lays out what each needs.
pub(super) fn connect<U: User>(
    members: &[SocketAddr],
    users: Vec<U>,
    threads: usize,
) -> Result<Vec<Hand<U>>> {
    let hand = |share: Vec<(U, &SocketAddr)>| {
        let runtime = runtime()?;
        let links = runtime.block_on(link_all(share))?;
        Ok(Hand { runtime, links })
    };
    deal(users.into_iter().zip(members.iter().cycle()), threads).into_iter().map(hand).collect()
}

async fn link_all<U: User>(share: Vec<(U, &SocketAddr)>) -> Result<Vec<Link<U>>> {
    let mut links = Vec::with_capacity(share.len());
    for (user, member) in share {
        interrupt::check()?;
        links.push(Link { client: Client::connect(*member).await?, user });
    }
    let layouts: Vec<_> = links.iter().map(|link| link.user.layout()).collect();
    let mut revisions: Vec<_> = layouts.iter().map(|layout| vec![0; layout.len()]).collect();
    let puts = links.iter().zip(layouts).enumerate().flat_map(|(index, (link, layout))| {
        layout.into_iter().enumerate().map(move |(place, (key, value))| {
            let client = link.client.clone();
            async move { Ok((index, place, client.put(key, value).await?)) }
        })
    });
    for (index, place, revision) in
        pipeline(puts, LAYOUT_OUTSTANDING, &mut untold()).await.context("laying out keys")?
    {
        revisions[index][place] = revision;
    }
    links.iter_mut().zip(&revisions).for_each(|(link, revisions)| link.user.laid_out(revisions));
    Ok(links)
}

/// Removes everything below `root`.
pub(super) fn sweep(members: &[SocketAddr], root: &str) -> Result<()> {
    let swept = async {
        let client = Client::connect(*members.first().context("no members")?).await?;
        client.sweep(root).await
    };
    runtime()?.block_on(swept).context("removing the keys")
}

/// What all tasks of a thread share.
pub(super) struct Shared {
    schedule: Schedule,
    tally: RefCell<Tally>,
    cpu: RefCell<CpuWindow>,
    replies: Cell<u64>,
}

impl Shared {
    /// When requests are due, in an open loop.
    pub(super) const fn arrivals(&self) -> Option<Arrivals> {
        self.schedule.arrivals
    }

    /// A request that was due at that moment leaves.
    fn leaves(&self, due: Instant) {
        if due >= self.schedule.from && due.elapsed() > LATE {
            self.tally.borrow_mut().late += 1;
        }
    }

    /// An answer has come to what was sent, or was due, at that moment.
    pub(super) fn answered(&self, sent: Instant) {
        let at = Instant::now();
        self.replies.set(self.replies.get() + 1);
        self.cpu.borrow_mut().observe(at);
        // An open loop counts what was due in the window, however late the answer.
        let counted_at = if self.schedule.arrivals.is_some() { sent } else { at };
        if (self.schedule.from..self.schedule.to).contains(&counted_at) {
            self.tally.borrow_mut().record(at, at - sent);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.schedule.to
    }
}

/// The tasks of one thread, which end when the window has.
pub(super) type Tasks = JoinSet<Result<()>>;

/// Puts the connections under load, a thread for each hand; `start` starts the tasks of one of them.
pub(super) fn run<U: User>(
    hands: Vec<Hand<U>>,
    (warmup, window): (Duration, Duration),
    arrivals: Option<Arrivals>,
    around: Surroundings<'_>,
    start: impl Fn(&Rc<Shared>, &mut Tasks, Vec<Link<U>>) + Sync,
) -> Result<Measurement> {
    around.begin_together()?;
    let from = Instant::now() + warmup;
    let schedule = Schedule { outstanding: 1, from, to: from + window, arrivals };
    let start = &start;
    let work = (0..).zip(hands).map(|(thread, Hand { runtime, links })| {
        let arrivals = arrivals.map(|arrivals| arrivals.of_thread(thread));
        let start = |shared: &Rc<Shared>, tasks: &mut Tasks| start(shared, tasks, links);
        move |replies: &AtomicU64| {
            LocalSet::new().block_on(&runtime, drive(Schedule { arrivals, ..schedule }, replies, start))
        }
    });
    let (tallies, seen) = on_threads(work.collect(), schedule, around)?;
    let mut tally = Tally::new();
    tallies.iter().for_each(|other| tally.add(other));
    judge(tally, seen, schedule, around)
}

async fn drive(
    schedule: Schedule,
    replies: &AtomicU64,
    start: impl FnOnce(&Rc<Shared>, &mut Tasks),
) -> Result<Tally> {
    let shared = Rc::new(Shared {
        schedule,
        tally: RefCell::new(Tally::new()),
        cpu: RefCell::new(CpuWindow::new(schedule)),
        replies: Cell::new(0),
    });
    let mut tasks = JoinSet::new();
    start(&shared, &mut tasks);
    let mut last_progress = (Instant::now(), 0);
    loop {
        match tokio::time::timeout(LOOK_EVERY, tasks.join_next()).await {
            Ok(None) => break,
            Ok(Some(ended)) => ended.context("a task of the load panicked")??,
            Err(_) => {}
        }
        interrupt::check()?;
        let came = shared.replies.get();
        replies.store(came, Ordering::Relaxed);
        if came != last_progress.1 {
            last_progress = (Instant::now(), came);
        }
        let silence = last_progress.0.elapsed();
        if silence > SILENCE_MAX {
            return Err(Fault::Missing { outstanding: tasks.len(), silence }.into());
        }
    }
    let mut tally = shared.tally.replace(Tally::new());
    tally.add_cpu(shared.cpu.replace(CpuWindow::new(schedule)).finish());
    Ok(tally)
}

/// A closed loop: `outstanding` requests on every connection, the next one when one is answered.
pub(super) fn ask_again_and_again<A: Asker + 'static>(
    shared: &Rc<Shared>,
    tasks: &mut Tasks,
    links: Vec<Link<A>>,
    outstanding: usize,
) {
    for link in links.into_iter().map(Rc::new) {
        for _ in 0..outstanding {
            let (shared, link) = (Rc::clone(shared), Rc::clone(&link));
            tasks.spawn_local(async move {
                while !shared.is_over() {
                    let sent = Instant::now();
                    link.user.ask(&link.client).await?;
                    shared.answered(sent);
                }
                Ok(())
            });
        }
    }
}

/// An open loop: requests leave when they are due, on the connections in turn.
pub(super) async fn ask_when_due<A: Asker + 'static>(
    shared: Rc<Shared>,
    links: Vec<Link<A>>,
    arrivals: Arrivals,
) -> Result<()> {
    let links: Vec<_> = links.into_iter().map(Rc::new).collect();
    let mut turns = links.iter().cycle();
    let mut dues = Dues::new(arrivals);
    #[expect(
        deprecated,
        reason = "it is unsound for types whose descriptor changes, and an alarm's never does; what replaces it is unsafe"
    )]
    let alarm = AsyncFd::with_interest(Alarm::new()?, Interest::READABLE)?;
    let mut outstanding = Tasks::new();
    while !shared.is_over() {
        let now = Instant::now();
        while let Some(due) = dues.take(now) {
            let (shared, link) = (Rc::clone(&shared), Rc::clone(turns.next().context("no connections")?));
            outstanding.spawn_local(async move {
                shared.leaves(due);
                link.user.ask(&link.client).await?;
                shared.answered(due);
                Ok(())
            });
        }
        while let Some(ended) = outstanding.try_join_next() {
            ended.context("a request panicked")??;
        }
        alarm.get_ref().set(dues.next())?;
        alarm.readable().await?.clear_ready();
    }
    while let Some(ended) = outstanding.join_next().await {
        ended.context("a request panicked")??;
    }
    Ok(())
}
