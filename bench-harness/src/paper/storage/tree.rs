//! The tree whose storage is measured, and the load on it: every znode may be read or written, so that what a
//! snapshot has to keep beside the live state is not a few leaves.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ringkeeper_wire::{GetDataResponse, Record, Stat};

use crate::creates::Creates;
use crate::driver::{Schedule, Tally};
use crate::lane::Source;
use crate::measure::{Loaded, under_load};
use crate::session::{self, Session};
use crate::window::Surroundings;
use crate::{payload, request};

/// Parents of the znodes, and sessions that fill them.
const PARENTS: u32 = 64;

/// Requests outstanding on each session while the tree is filled or written to as fast as it goes.
const OUTSTANDING: usize = 200;

/// An end that no such run should come near.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The mark of every value's znode: the number is in the sequence.
const MARK: u32 = 0;

/// Where the number of the write begins in a value's sequence; below it is the znode's number.
const ROUND_SHIFT: u32 = 32;

const ROOT: &str = "/tree";

/// Decides what a mix reads and writes.
const SEED: u64 = 1;

/// A tree of a given size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tree {
    /// Znodes under each parent.
    each: u32,
    payload_len: usize,
}

impl Tree {
    /// `znodes` are rounded down to the same number under each parent.
    pub(super) const fn new(znodes: u32, payload_len: usize) -> Self {
        Self { each: znodes / PARENTS, payload_len }
    }

    /// How many znodes hold a value.
    pub(super) const fn znodes(&self) -> u32 {
        self.each * PARENTS
    }

    /// Creates all of it.
    pub(super) fn create(&self, server: SocketAddr, around: Surroundings<'_>) -> Result<()> {
        let mut sessions = Session::open_all(&[server], PARENTS as usize)?;
        sessions[0].call(|out, xid| request::create(out, xid, ROOT, b""))?;
        session::call_each(&mut sessions, |index, out, xid| request::create(out, xid, &parent(index), b""))?;
        let sources: Vec<_> = (0..PARENTS as usize)
            .map(|index| Creates::new(&parent(index), self.each, self.payload_len))
            .collect();
        self.exhaust(sessions, sources, u64::from(self.znodes()), around)
    }

    /// Writes `count` values to znodes anywhere in it. `seed` decides which.
    pub(super) fn update(
        &self,
        server: SocketAddr,
        count: u32,
        seed: u64,
        around: Surroundings<'_>,
    ) -> Result<()> {
        let sessions = Session::open_all(&[server], PARENTS as usize)?;
        let shares = (0..PARENTS).map(|index| count / PARENTS + u32::from(index < count % PARENTS));
        let sources = (0..).zip(shares).map(|(index, share)| self.load(index, 0, seed).ending_after(share));
        let sources: Vec<_> = sources.collect();
        self.exhaust(sessions, sources, count.into(), around)
    }

    fn exhaust<S: Source + Send>(
        &self,
        sessions: Vec<Session>,
        sources: Vec<S>,
        count: u64,
        around: Surroundings<'_>,
    ) -> Result<()> {
        let from = Instant::now();
        let schedule = Schedule { outstanding: OUTSTANDING, from, to: from + PATIENCE, arrivals: None };
        let Loaded { sessions, tally, .. } = under_load(sessions, sources, 1, schedule, around)?;
        ensure!(tally.operations == count, "{} of {count} writes were answered", tally.operations);
        session::close_all(sessions)
    }

    /// A mix of reads and writes from `sessions` sessions, one after the other on each or `outstanding` at a
    /// time.
    pub(super) fn mix(
        &self,
        server: SocketAddr,
        sessions: usize,
        reads_percent: u8,
        schedule: Schedule,
        around: Surroundings<'_>,
    ) -> Result<Tally> {
        let sources = (0..sessions).map(|index| self.load(index, reads_percent, SEED)).collect();
        let sessions = Session::open_all(&[server], sessions)?;
        let Loaded { sessions, tally, .. } = under_load(sessions, sources, 1, schedule, around)?;
        session::close_all(sessions)?;
        Ok(tally)
    }

    fn load(&self, index: usize, reads_percent: u8, seed: u64) -> Load {
        Load {
            tree: *self,
            path: parent(index % PARENTS as usize),
            parent_len: parent(0).len(),
            reads_percent,
            left: u32::MAX,
            round: 0,
            value: payload::first(MARK, self.payload_len),
            rng: StdRng::seed_from_u64(seed ^ (index as u64).rotate_left(32)),
        }
    }

    /// Writes `value` where nothing else does, and awaits that it is durable.
    pub(super) fn set_last(&self, server: SocketAddr, value: &str) -> Result<()> {
        let mut session = Session::open(server)?;
        session.call(|out, xid| request::set_data(out, xid, ROOT, value.as_bytes()))?;
        session::close_all(vec![session])
    }

    /// Whether the server has `value` as [`Self::set_last`] wrote it.
    pub(super) fn check_last(&self, session: &mut Session, value: &str) -> Result<()> {
        let body = session.call(|out, xid| request::get_data(out, xid, ROOT, false))?;
        let reply = GetDataResponse::from_bytes(body)?;
        let found = reply.data.context("the last value written is gone")?;
        ensure!(found == value.as_bytes(), "an older value instead of the last one written");
        Ok(())
    }
}

fn parent(index: usize) -> String {
    format!("{ROOT}/{index:02}")
}

/// Reads and writes of one session, of znodes under one parent.
struct Load {
    tree: Tree,
    /// Of the parent; a znode's name behind it is overwritten.
    path: String,
    parent_len: usize,
    reads_percent: u8,
    left: u32,
    /// Writes so far.
    round: u64,
    value: Vec<u8>,
    rng: StdRng,
}

/// What was asked for.
enum Asked {
    /// The value of the znode of this number.
    Value(u32),
    Write,
}

impl Load {
    fn ending_after(self, left: u32) -> Self {
        Self { left, ..self }
    }
}

impl Source for Load {
    type Expected = Asked;

    fn issue(&mut self, out: &mut Vec<u8>, xid: i32) -> Option<Asked> {
        self.left = self.left.checked_sub(1)?;
        let number = self.rng.random_range(0..self.tree.each);
        self.path.truncate(self.parent_len);
        write!(self.path, "/n{number:07}").expect("a string takes what memory holds");
        if self.rng.random_range(0..100) < self.reads_percent {
            request::get_data(out, xid, &self.path, false);
            return Some(Asked::Value(number));
        }
        self.round += 1;
        payload::stamp(&mut self.value, self.round << ROUND_SHIFT | u64::from(number));
        request::set_data(out, xid, &self.path, &self.value);
        Some(Asked::Write)
    }

    fn check(&self, asked: &Asked, body: &[u8]) -> Result<(), String> {
        let Asked::Value(number) = asked else {
            let stat = Stat::from_bytes(body).map_err(|error| error.to_string())?;
            let whole = usize::try_from(stat.data_length) == Ok(self.tree.payload_len);
            return if whole { Ok(()) } else { Err(format!("a Stat with dataLength {}", stat.data_length)) };
        };
        let reply = GetDataResponse::from_bytes(body).map_err(|error| error.to_string())?;
        let sequence = payload::sequence_of(reply.data.unwrap_or_default(), MARK);
        match sequence.map(|sequence| sequence & ((1 << ROUND_SHIFT) - 1)) {
            Some(found) if found == u64::from(*number) => Ok(()),
            found => Err(format!("a value of znode {found:?} instead of {number}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_ends_after_as_many_requests_as_asked_for() {
        let mut load = Tree::new(640, 100).load(3, 50, 1).ending_after(5);
        let issued = std::iter::from_fn(|| load.issue(&mut Vec::new(), 1)).count();
        assert_eq!(issued, 5);
    }

    #[test]
    fn a_read_must_return_a_value_of_its_own_znode() {
        let load = Tree::new(640, 100).load(0, 100, 1);
        let mut value = payload::first(MARK, 100);
        payload::stamp(&mut value, 7 << ROUND_SHIFT | 5);
        let mut body = Vec::new();
        GetDataResponse { data: Some(&value), stat: Stat::default() }.encode(&mut body);
        assert_eq!(load.check(&Asked::Value(5), &body), Ok(()));
        assert!(load.check(&Asked::Value(6), &body).is_err());
    }
}
