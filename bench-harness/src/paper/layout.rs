//! Znodes for an experiment, and their end.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ringkeeper_wire::{GetChildrenResponse, Record};

use super::bench::PAYLOAD_LEN;
use crate::creates::Creates;
use crate::driver::{Schedule, drive};
use crate::lane::Source;
use crate::measure::run_id;
use crate::request;
use crate::session::{self, Session};
use crate::window::Rate;

/// Requests outstanding while znodes are laid out or removed: below what servers throttle.
const OUTSTANDING: usize = 500;

/// An end that no layout should come near.
const PATIENCE: Duration = Duration::from_secs(3600);

/// All that `source` has, on one session with many outstanding; the time from the first request to the last
/// reply.
pub(crate) fn pipeline<S: Source>(
    session: Session,
    source: S,
    outstanding: usize,
) -> Result<(Session, Duration)> {
    let (mut sessions, elapsed) = pipeline_all(vec![(session, source)], outstanding)?;
    Ok((sessions.pop().context("the session is given back")?, elapsed))
}

/// The same on several sessions. One whose source has nothing is kept alive meanwhile.
pub(crate) fn pipeline_all<S: Source>(
    sessions: Vec<(Session, S)>,
    outstanding: usize,
) -> Result<(Vec<Session>, Duration)> {
    let from = Instant::now();
    let schedule = Schedule { outstanding, from, to: from + PATIENCE, arrivals: None };
    let (sessions, tally) = drive(sessions, schedule, &AtomicU64::new(0))?;
    let elapsed = tally.last_reply.map_or(Duration::ZERO, |last| last.saturating_duration_since(from));
    Ok((sessions, elapsed))
}

/// The same; `rate` is told of replies.
pub(crate) fn pipeline_told<S: Source>(
    sessions: Vec<(Session, S)>,
    outstanding: usize,
    rate: &mut Rate<'_>,
) -> Result<(Vec<Session>, Duration)> {
    let teller = Teller { so_far: Cell::new(0), rate: RefCell::new(rate) };
    let told = |(session, source)| (session, Told { source, teller: &teller });
    pipeline_all(sessions.into_iter().map(told).collect(), outstanding)
}

/// Of the replies of several sources.
struct Teller<'r, 's> {
    so_far: Cell<u64>,
    rate: RefCell<&'r mut Rate<'s>>,
}

/// A source that tells of its replies.
struct Told<'t, 'r, 's, S> {
    source: S,
    teller: &'t Teller<'r, 's>,
}

impl<S: Source> Source for Told<'_, '_, '_, S> {
    type Expected = S::Expected;

    fn issue(&mut self, out: &mut Vec<u8>, xid: i32) -> Option<S::Expected> {
        self.source.issue(out, xid)
    }

    fn counts(&self, expected: &S::Expected) -> bool {
        self.source.counts(expected)
    }

    fn check(&self, expected: &S::Expected, body: &[u8]) -> Result<(), String> {
        let Teller { so_far, rate } = self.teller;
        so_far.set(so_far.get() + 1);
        rate.borrow_mut().look(so_far.get());
        self.source.check(expected, body)
    }
}

/// Creates `root` and, below it, `n0000000` and so on, of 1 KiB each.
pub(crate) fn create_many(servers: &[SocketAddr], root: &str, count: usize) -> Result<()> {
    let mut session = Session::open(*servers.first().context("no servers")?)?;
    session.call(|out, xid| request::create(out, xid, root, b""))?;
    let creates = Creates::new(root, u32::try_from(count)?, PAYLOAD_LEN);
    let (session, _) = pipeline(session, creates, OUTSTANDING)?;
    session::close_all(vec![session])
}

/// Removes what this process has laid out on servers that are not its own.
pub(crate) fn sweep(servers: &[SocketAddr]) -> Result<()> {
    let mut session = Session::open(*servers.first().context("no servers")?)?;
    let own = format!("-{:x}", run_id());
    for name in children(&mut session, "/")? {
        if name.starts_with("bench-") && name.ends_with(&own) {
            session = remove(session, format!("/{name}"))?;
        }
    }
    session::close_all(vec![session])
}

fn children(session: &mut Session, path: &str) -> Result<Vec<String>> {
    let body = session.call(|out, xid| request::get_children(out, xid, path))?;
    let children = GetChildrenResponse::from_bytes(body)?.children;
    Ok(children.iter().map(|name| name.into_owned()).collect())
}

/// Removes a znode and all below it.
pub(crate) fn remove(mut session: Session, root: String) -> Result<Session> {
    let mut paths = vec![root];
    let mut next = 0;
    while let Some(path) = paths.get(next).cloned() {
        let names = children(&mut session, &path)?;
        paths.extend(names.into_iter().map(|name| format!("{path}/{name}")));
        next += 1;
    }
    let count = paths.len();
    ensure!(count < 1_000_000, "{count} znodes are too many to be of this run");
    // From the end of the list: children come before their parents.
    Ok(pipeline(session, Deletes { paths }, OUTSTANDING)?.0)
}

/// Deletes of these paths, the last one first.
struct Deletes {
    paths: Vec<String>,
}

impl Source for Deletes {
    type Expected = ();

    fn issue(&mut self, out: &mut Vec<u8>, xid: i32) -> Option<()> {
        let path = self.paths.pop()?;
        request::delete(out, xid, &path);
        Some(())
    }

    fn check(&self, (): &(), body: &[u8]) -> Result<(), String> {
        if body.is_empty() { Ok(()) } else { Err(format!("{} bytes after a delete", body.len())) }
    }
}
