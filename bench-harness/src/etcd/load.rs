//! The load: the same mixes and creates as the others have.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use prost::bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::{JoinSet, LocalSet};

use super::client::{Client, Method};
use super::message::{
    DeleteRangeRequest, DeleteRangeResponse, Header, PutRequest, PutResponse, RangeRequest, RangeResponse,
};
use super::runtime;
use crate::driver::{CpuWindow, SILENCE_MAX, Schedule, Tally};
use crate::fault::Fault;
use crate::interrupt;
use crate::measure::{Load, Measurement, deal, fresh_root, judge};
use crate::payload;
use crate::window::{Surroundings, on_threads};

/// How often it is looked for an interrupt and for silence.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs `load` against `members` once: `reads_percent` ranges, the rest puts, each connection with a key of its own.
pub(crate) fn measure(members: &[SocketAddr], around: Surroundings<'_>, load: &Load) -> Result<Measurement> {
    let root = fresh_root();
    let connections = connections(members, load.sessions, &root);
    for_each(&connections, |client, own| {
        let load = load.clone();
        async move { put(&client, own.key(), payload::first(own.number, load.payload_len).into()).await }
    })?;
    let started = |shared: Rc<Shared>, tasks: &mut JoinSet<Result<()>>, client: Client, own: &Connection| {
        let mix = Rc::new(Mix {
            key: own.key(),
            number: own.number,
            sent: Cell::new(0),
            rng: RefCell::new(StdRng::seed_from_u64(load.seed ^ u64::from(own.number).rotate_left(32))),
            reads_percent: load.reads_percent,
            payload_len: load.payload_len,
        });
        for _ in 0..load.outstanding {
            let (shared, client, mix) = (Rc::clone(&shared), client.clone(), Rc::clone(&mix));
            tasks.spawn_local(async move { mix.keep_going(&client, &shared).await });
        }
    };
    let measured = run(&connections, load.threads, (load.warmup, load.window), around, started)?;
    sweep(members, &root)?;
    Ok(measured)
}

/// `clients` connections, each putting new keys one after the other; if `delete`, each is deleted while the next one is
/// put. Only the puts count.
pub(crate) fn create(
    members: &[SocketAddr],
    around: Surroundings<'_>,
    (clients, payload_len, delete): (usize, usize, bool),
    lengths: (Duration, Duration),
) -> Result<Measurement> {
    let root = fresh_root();
    let connections = connections(members, clients, &root);
    let started = |shared: Rc<Shared>, tasks: &mut JoinSet<Result<()>>, client: Client, own: &Connection| {
        let key = own.key();
        tasks.spawn_local(async move { keep_creating(&client, &shared, &key, payload_len, delete).await });
    };
    let measured = run(&connections, 1, lengths, around, started)?;
    sweep(members, &root)?;
    Ok(measured)
}

/// A connection and the key that is its own.
#[derive(Clone, Debug)]
struct Connection {
    member: SocketAddr,
    number: u32,
    root: String,
}

impl Connection {
    fn key(&self) -> Bytes {
        format!("{}/{:05}", self.root, self.number).into()
    }
}

fn connections(members: &[SocketAddr], count: usize, root: &str) -> Vec<Connection> {
    let members = members.iter().cycle().take(count);
    (0..)
        .zip(members)
        .map(|(number, member)| Connection { member: *member, number, root: root.to_owned() })
        .collect()
}

/// What all tasks of a thread share.
struct Shared {
    schedule: Schedule,
    tally: RefCell<Tally>,
    cpu: RefCell<CpuWindow>,
    replies: Cell<u64>,
}

impl Shared {
    /// An answer has come to what was sent at that moment.
    fn answered(&self, sent: Instant) {
        let at = Instant::now();
        self.replies.set(self.replies.get() + 1);
        self.cpu.borrow_mut().observe(at);
        if (self.schedule.from..self.schedule.to).contains(&at) {
            self.tally.borrow_mut().record(at, at - sent);
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.schedule.to
    }
}

/// Puts the connections under load from several threads; `start` starts the tasks of one of them.
fn run(
    connections: &[Connection],
    threads: usize,
    (warmup, window): (Duration, Duration),
    around: Surroundings<'_>,
    start: impl Fn(Rc<Shared>, &mut JoinSet<Result<()>>, Client, &Connection) + Sync,
) -> Result<Measurement> {
    around.begin_together()?;
    let from = Instant::now() + warmup;
    let schedule = Schedule { outstanding: 1, from, to: from + window, arrivals: None };
    let start = &start;
    let work = deal(connections.iter(), threads).into_iter().map(|share| {
        move |replies: &AtomicU64| {
            LocalSet::new().block_on(&runtime()?, drive(share, schedule, replies, start))
        }
    });
    let (tallies, seen) = on_threads(work.collect(), schedule, around)?;
    let mut tally = Tally::new();
    tallies.iter().for_each(|other| tally.add(other));
    judge(tally, seen, schedule, around)
}

async fn drive(
    connections: Vec<&Connection>,
    schedule: Schedule,
    replies: &AtomicU64,
    start: impl Fn(Rc<Shared>, &mut JoinSet<Result<()>>, Client, &Connection),
) -> Result<Tally> {
    let shared = Rc::new(Shared {
        schedule,
        tally: RefCell::new(Tally::new()),
        cpu: RefCell::new(CpuWindow::new(schedule)),
        replies: Cell::new(0),
    });
    let mut tasks = JoinSet::new();
    for connection in connections {
        let client = Client::connect(connection.member).await?;
        start(Rc::clone(&shared), &mut tasks, client, connection);
    }
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

/// What the tasks of one connection share: its key, and how many values of it were sent.
struct Mix {
    key: Bytes,
    number: u32,
    sent: Cell<u64>,
    rng: RefCell<StdRng>,
    reads_percent: u8,
    payload_len: usize,
}

impl Mix {
    async fn keep_going(&self, client: &Client, shared: &Shared) -> Result<()> {
        let mut value = payload::first(self.number, self.payload_len);
        while !shared.is_over() {
            let sent = Instant::now();
            if self.next_is_read() {
                let request = RangeRequest { key: self.key.clone(), serializable: true };
                let answer: RangeResponse = client.call(Method::Range, &request).await?;
                self.check(&answer)?;
            } else {
                self.sent.set(self.sent.get() + 1);
                payload::stamp(&mut value, self.sent.get());
                put(client, self.key.clone(), Bytes::copy_from_slice(&value)).await?;
            }
            shared.answered(sent);
        }
        Ok(())
    }

    fn next_is_read(&self) -> bool {
        match self.reads_percent {
            0 => false,
            100 => true,
            percent => self.rng.borrow_mut().random_range(0..100) < percent,
        }
    }

    fn check(&self, answer: &RangeResponse) -> Result<()> {
        check_header(answer.header.as_ref())?;
        let [found] = answer.kvs.as_slice() else {
            anyhow::bail!("{} keys instead of one", answer.kvs.len());
        };
        ensure!(found.key == self.key, "key {:?} instead of {:?}", found.key, self.key);
        let len = found.value.len();
        ensure!(len == self.payload_len, "a value of {len} bytes instead of {}", self.payload_len);
        let sequence =
            payload::sequence_of(&found.value, self.number).context("no whole value of its key")?;
        ensure!(sequence <= self.sent.get(), "value {sequence} of {} that were sent", self.sent.get());
        Ok(())
    }
}

async fn keep_creating(
    client: &Client,
    shared: &Shared,
    key: &[u8],
    payload_len: usize,
    delete: bool,
) -> Result<()> {
    let mut value = payload::first(0, payload_len);
    let mut deleting: Option<tokio::task::JoinHandle<Result<()>>> = None;
    let mut number = 0_u64;
    while !shared.is_over() {
        let key: Bytes = [key, format!("/n{number:07}").as_bytes()].concat().into();
        payload::stamp(&mut value, number);
        let sent = Instant::now();
        put(client, key.clone(), Bytes::copy_from_slice(&value)).await?;
        shared.answered(sent);
        number += 1;
        if delete {
            if let Some(before) = deleting.take() {
                before.await??;
            }
            let client = client.clone();
            deleting = Some(tokio::task::spawn_local(async move { delete_one(&client, key).await }));
        }
    }
    match deleting {
        None => Ok(()),
        Some(last) => last.await?,
    }
}

async fn put(client: &Client, key: Bytes, value: Bytes) -> Result<()> {
    let answer: PutResponse = client.call(Method::Put, &PutRequest { key, value }).await?;
    check_header(answer.header.as_ref())
}

async fn delete_one(client: &Client, key: Bytes) -> Result<()> {
    let request = DeleteRangeRequest { key, range_end: Bytes::new() };
    let answer: DeleteRangeResponse = client.call(Method::DeleteRange, &request).await?;
    check_header(answer.header.as_ref())?;
    ensure!(answer.deleted == 1, "{} keys deleted instead of one", answer.deleted);
    Ok(())
}

fn check_header(header: Option<&Header>) -> Result<()> {
    let revision = header.context("an answer without a header")?.revision;
    ensure!(revision > 0, "revision {revision}, which no store with keys has");
    Ok(())
}

/// Does something once for each connection, on a connection for each member.
fn for_each<F: Future<Output = Result<()>>>(
    connections: &[Connection],
    act: impl Fn(Client, Connection) -> F,
) -> Result<()> {
    let all = async {
        for connection in connections {
            interrupt::check()?;
            act(Client::connect(connection.member).await?, connection.clone()).await?;
        }
        Ok(())
    };
    LocalSet::new().block_on(&runtime()?, all)
}

/// Removes everything below `root`.
fn sweep(members: &[SocketAddr], root: &str) -> Result<()> {
    let swept = async {
        let client = Client::connect(*members.first().context("no members")?).await?;
        // Behind `/` comes `0`: the range is all keys that begin with the root.
        let (key, range_end) = (format!("{root}/").into(), format!("{root}0").into());
        let answer: DeleteRangeResponse =
            client.call(Method::DeleteRange, &DeleteRangeRequest { key, range_end }).await?;
        check_header(answer.header.as_ref())
    };
    LocalSet::new().block_on(&runtime()?, swept).context("removing the keys")
}
