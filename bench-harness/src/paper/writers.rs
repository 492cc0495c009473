//! Writers that remember when each of their writes was acknowledged.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ringkeeper_testkit::interrupt;

use crate::fault::Fault;
use crate::request;
use crate::session::Session;

/// Between two attempts to open a session, so that clients of a server that has gone do not take the CPU time
/// that the others need to elect a leader.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Size of a value, in bytes.
const PAYLOAD: [u8; 100] = [b'x'; 100];

/// Writers at work, one for each server.
pub(super) struct Writers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<(), Fault>>>,
}

struct Shared {
    stop: AtomicBool,
    /// When each writer's writes were acknowledged, oldest first.
    acknowledged: Vec<Mutex<Vec<Instant>>>,
}

impl Writers {
    /// Starts a writer on each server; each goes to the next one when its connection ends.
    pub(super) fn start(servers: &[SocketAddr]) -> Result<Self> {
        let acknowledged = servers.iter().map(|_| Mutex::default()).collect();
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), acknowledged });
        let thread = |writer: usize| {
            let (shared, mut servers) = (Arc::clone(&shared), servers.to_vec());
            servers.rotate_left(writer);
            std::thread::spawn(move || shared.write(writer, &servers))
        };
        Ok(Self { threads: (0..servers.len()).map(thread).collect(), shared })
    }

    /// Waits until every writer has had a write acknowledged after `since`; when the last of them had.
    pub(super) fn wait_for_all(&self, since: Instant, patience: Duration) -> Result<Instant> {
        let first_after = |writer: &Mutex<Vec<Instant>>| {
            let acknowledged = lock(writer);
            acknowledged.get(acknowledged.partition_point(|at| *at <= since)).copied()
        };
        let deadline = Instant::now() + patience;
        loop {
            let all: Option<Vec<_>> = self.shared.acknowledged.iter().map(first_after).collect();
            if let Some(last) = all.and_then(|all| all.into_iter().max()) {
                return Ok(last);
            }
            if Instant::now() > deadline || self.threads.iter().any(JoinHandle::is_finished) {
                bail!("not all writers write again after {} s", since.elapsed().as_secs());
            }
            interrupt::sleep_until(Instant::now() + RETRY_PAUSE, || false)?;
        }
    }

    /// The longest time between two acknowledged writes of all writers together, from the last before `from`
    /// to the first that is not before `to`.
    pub(super) fn longest_gap(&self, from: Instant, to: Instant) -> Duration {
        let mut all: Vec<_> =
            self.shared.acknowledged.iter().flat_map(|writer| lock(writer).clone()).collect();
        all.sort_unstable();
        longest_gap(&all, from, to)
    }

    /// Ends the writers.
    pub(super) fn stop(mut self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            match thread.join() {
                Ok(ended) => ended?,
                Err(_) => bail!("a writer has failed"),
            }
        }
        Ok(())
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn write(&self, writer: usize, servers: &[SocketAddr]) -> Result<(), Fault> {
        for server in servers.iter().cycle() {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            match Session::open(*server) {
                Ok(session) => match self.write_on(session, writer) {
                    // What a killed server does to its clients.
                    Ok(()) | Err(Fault::Closed | Fault::Io(_) | Fault::Missing { .. }) => {}
                    Err(fault) => return Err(fault),
                },
                Err(_) => sleep(RETRY_PAUSE),
            }
        }
        Ok(())
    }

    fn write_on(&self, mut session: Session, writer: usize) -> Result<(), Fault> {
        let path = format!("/failover-{writer}");
        match session.call(|out, xid| request::create(out, xid, &path, b"")) {
            Ok(_) | Err(Fault::Refused { err: NODE_EXISTS, .. }) => {}
            Err(fault) => return Err(fault),
        }
        while !self.stop.load(Ordering::Relaxed) {
            session.call(|out, xid| request::set_data(out, xid, &path, &PAYLOAD))?;
            lock(&self.acknowledged[writer]).push(Instant::now());
        }
        Ok(())
    }
}

/// ZooKeeper's error code of a create where there is a znode already.
const NODE_EXISTS: i32 = -110;

fn lock(times: &Mutex<Vec<Instant>>) -> std::sync::MutexGuard<'_, Vec<Instant>> {
    times.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn longest_gap(sorted: &[Instant], from: Instant, to: Instant) -> Duration {
    let first = sorted.partition_point(|at| *at < from).saturating_sub(1);
    let last = sorted.partition_point(|at| *at < to);
    let concerned = sorted.get(first..=last.min(sorted.len().saturating_sub(1))).unwrap_or_default();
    concerned.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_begins_with_the_last_write_before_and_ends_with_the_first_after() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let writes = [0, 500, 510, 530, 700, 705, 2000].map(at);
        assert_eq!(longest_gap(&writes, at(520), at(705)), Duration::from_millis(170));
        assert_eq!(longest_gap(&writes, at(520), at(530)), Duration::from_millis(20));
        assert_eq!(longest_gap(&[], at(0), at(1)), Duration::ZERO);
    }
}
