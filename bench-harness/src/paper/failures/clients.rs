//! Clients that go to another server when theirs is gone.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ringkeeper_testkit::interrupt;

use super::super::bench::{PAYLOAD_LEN, Saturation};
use super::super::layout;
use crate::driver::{Schedule, Tally, drive_into};
use crate::fault::Fault;
use crate::measure::fresh_root;
use crate::mix::Mix;
use crate::request;
use crate::session::{self, Session};
use crate::timeline::Timeline;

/// Between two attempts to open sessions, so that they do not take the CPU time that an election needs.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// One group of sessions for each server: what happens to a server happens to all of its sessions.
pub(super) struct Clients {
    servers: Vec<SocketAddr>,
    root: String,
    sessions_each: usize,
    outstanding: usize,
}

impl Clients {
    /// Creates a znode for each session.
    pub(super) fn lay_out(servers: &[SocketAddr], saturation: Saturation) -> Result<Self> {
        let sessions_each = (saturation.sessions / servers.len()).max(1);
        let clients = Self {
            servers: servers.to_vec(),
            root: fresh_root(),
            sessions_each,
            outstanding: saturation.outstanding_each(),
        };
        layout::create_many(servers, &clients.root, sessions_each * servers.len())?;
        Ok(clients)
    }

    /// Keeps the servers busy until `to`; what all of them have counted.
    ///
    /// # Panics
    /// There is not one of `replies` for each server.
    pub(super) fn run(
        &self,
        reads_percent: u8,
        timeline: Timeline,
        to: Instant,
        replies: &[AtomicU64],
    ) -> Result<Tally> {
        thread::scope(|scope| {
            let groups: Vec<_> = (0..self.servers.len())
                .map(|group| {
                    let tally = Tally::with_timeline(timeline.clone());
                    scope.spawn(move || self.keep_busy(group, reads_percent, tally, to, &replies[group]))
                })
                .collect();
            let mut all = Tally::with_timeline(timeline);
            for group in groups {
                all.add(&group.join().map_err(|_| anyhow!("a load thread panicked"))??);
            }
            Ok(all)
        })
    }

    fn keep_busy(
        &self,
        group: usize,
        reads_percent: u8,
        mut tally: Tally,
        to: Instant,
        replies: &AtomicU64,
    ) -> Result<Tally> {
        let mut servers = self.servers.iter().cycle().skip(group);
        while Instant::now() < to {
            interrupt::check()?;
            let server = servers.next().context("a cycle has no end")?;
            let Ok(sessions) = self.open(*server) else {
                thread::sleep(RETRY_PAUSE);
                continue;
            };
            let loaded = sessions.into_iter().zip(self.sources(group, reads_percent)).collect();
            let schedule =
                Schedule { outstanding: self.outstanding, from: Instant::now(), to, arrivals: None };
            match drive_into(loaded, schedule, &mut tally, replies) {
                Ok(sessions) => session::close_all(sessions)?,
                Err(error) if is_loss(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(tally)
    }

    /// Sessions on a server that knows of the znodes.
    fn open(&self, server: SocketAddr) -> Result<Vec<Session>> {
        let mut sessions = Session::open_all(&[server], self.sessions_each)?;
        session::call_each(&mut sessions, |_, out, xid| request::sync(out, xid, &self.root))?;
        Ok(sessions)
    }

    /// The requests of a group's sessions. Which writes were carried out before a connection was lost nobody
    /// knows, so values are checked to be whole and of their znode, not which one they are.
    fn sources(&self, group: usize, reads_percent: u8) -> impl Iterator<Item = Mix> {
        let first = group * self.sessions_each;
        (first..first + self.sessions_each).map(move |znode| {
            let path = format!("{}/n{znode:07}", self.root);
            Mix::new([(0, path)], false, reads_percent, PAYLOAD_LEN, znode as u64)
        })
    }
}

/// Whether it is what the end of a server does to its clients.
fn is_loss(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Fault::Closed | Fault::Io(_)))
}
