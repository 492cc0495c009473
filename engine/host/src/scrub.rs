//! The background scrub, and the damage that a server finds in its own files.
//!
//! A pass reads the whole log and all snapshots at a bounded rate, in a task queue with few shares of the
//! CPU. Damage found while the server runs is on the medium only: the state in memory is complete. So even a
//! server alone repairs it without help: the log continues in another segment if the damaged one is in use, a
//! snapshot of the committed state is written, and the log before it is purged, with the damage. If the
//! server ends before that, its next start finds the damage again (see `ringkeeper_log::salvage`).

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::time::Duration;

use ringkeeper_log::error::{Corruption, ReadError};
use ringkeeper_log::mutation::planted;
use ringkeeper_log::snapshot::{SnapshotError, Snapshots, file_name};
use ringkeeper_wire::Zxid;

use crate::env::Env;
use crate::log_task::{Command, Verification};
use crate::pump::{Frontend, Pump};

/// How often the scrub checks for the snapshot that it has asked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Pause before a full disk is tried again.
const ROOM_EVERY: Duration = Duration::from_secs(1);

/// Pause after a pass that ended with an I/O error.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Statistics of damage, its repair, and the scrub.
#[derive(Debug, Default)]
pub struct Integrity {
    scrubbed_bytes: Rc<Cell<u64>>,
    passes: Cell<u64>,
    last_pass_ms: Cell<Option<u64>>,
    damage: Cell<u64>,
    pending: Cell<u64>,
}

/// The values of an [`Integrity`].
#[derive(Clone, Copy, Debug)]
pub struct Findings {
    /// Bytes verified.
    pub scrubbed_bytes: u64,
    /// Complete passes.
    pub passes: u64,
    /// When the last complete pass ended, on the machine's monotonic clock.
    pub last_pass_ms: Option<u64>,
    /// Damaged files and places found by recovery and by the scrub.
    pub damage: u64,
    /// Number of those found by the scrub that are not repaired yet: at most one, which ends the pass.
    pub pending: u64,
}

impl Integrity {
    /// Begins with the damage that recovery has found.
    #[must_use]
    pub fn new(damage: u64) -> Rc<Self> {
        Rc::new(Self { damage: Cell::new(damage), ..Self::default() })
    }

    /// The current values.
    #[must_use]
    pub fn findings(&self) -> Findings {
        Findings {
            scrubbed_bytes: self.scrubbed_bytes.get(),
            passes: self.passes.get(),
            last_pass_ms: self.last_pass_ms.get(),
            damage: self.damage.get(),
            pending: self.pending.get(),
        }
    }

    fn found(&self) {
        // Damage whose repair has failed is found again.
        if self.pending.replace(1) == 0 {
            self.damage.set(self.damage.get() + 1);
        }
    }

    fn repaired(&self) {
        self.pending.set(0);
    }
}

/// Interval and rate of the scrub.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Greatest rate of reading.
    pub bytes_per_second: u64,
    /// Time between two passes.
    pub rest: Duration,
}

/// The background scrub of one server.
pub(crate) struct Scrubber<E: Env, F: Frontend> {
    /// Where the log is, and where a snapshot is asked for that replaces what is damaged.
    pub(crate) pump: Rc<Pump<E, F>>,
    pub(crate) pace: Pace,
    pub(crate) snapshots: Snapshots<E::Storage>,
    /// What it reports damage to.
    pub(crate) integrity: Rc<Integrity>,
}

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error(transparent)]
    Log(#[from] ReadError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

impl<E: Env, F: Frontend> Scrubber<E, F> {
    /// Runs one pass after another, for as long as the server runs. To be spawned in the background.
    pub(crate) async fn run(self) {
        loop {
            self.pump.env().sleep(self.pace.rest).await;
            loop {
                match self.pass().await {
                    Ok(true) => break,
                    // Another pass follows at once, which checks the repair and the files behind the damage.
                    Ok(false) => {}
                    Err(error) => {
                        tracing::error!(code = "RK0509", %error, "the scrub could not go on");
                        self.pump.env().sleep(AGAIN_AFTER).await;
                    }
                }
            }
        }
    }

    /// Reads all files, or up to the first damage, which it repairs. Returns whether there was none.
    async fn pass(&self) -> Result<bool, PassError> {
        let started = self.pump.env().elapsed();
        let before = self.integrity.scrubbed_bytes.get();
        let verification =
            Verification::new(self.pace.bytes_per_second, Rc::clone(&self.integrity.scrubbed_bytes));
        self.pump.log().push(Command::Verify(Rc::clone(&verification)));
        match poll_fn(|cx| verification.poll_done(cx)).await {
            Ok(()) => {}
            Err(ReadError::Corrupt(damage)) => return self.repair(self.repair_log(&damage)).await,
            Err(error) => return Err(error.into()),
        }
        for zxid in self.snapshots.list().await? {
            if let Err(error) = self.read_snapshot(zxid).await {
                let gone = !self.snapshots.list().await?.contains(&zxid);
                if gone {
                    // Removed meanwhile, since there are newer snapshots.
                    continue;
                }
                if !error.is_damage() {
                    return Err(error.into());
                }
                return self.repair(self.repair_snapshot(zxid, &error)).await;
            }
        }
        // Damage whose repair has failed may be gone with the file that had it.
        self.integrity.repaired();
        self.integrity.passes.set(self.integrity.passes.get() + 1);
        self.integrity.last_pass_ms.set(Some(self.pump.env().now().monotonic_ms));
        let bytes = self.integrity.scrubbed_bytes.get() - before;
        let took_ms = self.pump.env().elapsed().saturating_sub(started).as_millis();
        tracing::debug!(bytes, took_ms, "log and snapshots are sound");
        Ok(true)
    }

    async fn read_snapshot(&self, zxid: Zxid) -> Result<(), SnapshotError> {
        let mut reader = self.snapshots.open(zxid).await?;
        loop {
            let began = self.pump.env().elapsed();
            let Some(bytes) = reader.next().await?.map(|block| block.len() as u64) else { return Ok(()) };
            self.integrity.scrubbed_bytes.set(self.integrity.scrubbed_bytes.get() + bytes);
            let due = Duration::from_nanos(bytes * 1_000_000_000 / self.pace.bytes_per_second.max(1));
            self.pump.env().sleep(due.saturating_sub(self.pump.env().elapsed().saturating_sub(began))).await;
        }
    }

    /// Counts damage, and carries out its repair. The pass is over: there was damage.
    async fn repair(
        &self,
        repair: impl Future<Output = Result<(), SnapshotError>>,
    ) -> Result<bool, PassError> {
        self.integrity.found();
        if !planted!(RepairUnwritten) {
            repair.await?;
        }
        self.integrity.repaired();
        Ok(false)
    }

    /// Takes a snapshot that covers the damage, then purges the log before it.
    async fn repair_log(&self, damage: &Corruption) -> Result<(), SnapshotError> {
        let (file, offset) = (&damage.file, damage.offset);
        let (after, until) = (damage.after_zxid, damage.until_zxid);
        tracing::error!(
            code = "RK0504",
            file,
            offset,
            %after,
            %until,
            "the log is damaged: a snapshot of the state in memory replaces it"
        );
        let end = self.leave(file).await;
        let snapshot = if planted!(RepairFromNothing) { end } else { self.take_snapshot(end).await };
        // Older snapshots cannot be used without the purged log; newer ones will displace them.
        self.pump.log().push(Command::Purge { upto: snapshot });
        // The log answers when the purge is carried out. Until then the next pass would find the damage
        // again, and so would a start.
        self.leave(file).await;
        tracing::info!(file, snapshot = %snapshot, "the damaged part of the log is repaired");
        Ok(())
    }

    /// Has the log append to another file than this one, as soon as the disk has room for one; returns the
    /// end of this one.
    async fn leave(&self, file: &str) -> Zxid {
        loop {
            let end = Rc::new(Cell::new(None));
            self.pump.log().push(Command::Leave { file: file.to_owned(), end: Rc::clone(&end) });
            let left = loop {
                self.pump.env().sleep(LOOK_EVERY).await;
                if let Some(left) = end.get() {
                    break left;
                }
            };
            if let Some(end) = left {
                return end;
            }
            self.pump.env().sleep(ROOM_EVERY).await;
        }
    }

    /// Writes another snapshot in the place of a damaged one, which stays until then: it may only have been
    /// misread, and the log may begin behind it.
    async fn repair_snapshot(&self, zxid: Zxid, error: &SnapshotError) -> Result<(), SnapshotError> {
        tracing::error!(code = "RK0510", %error, "a snapshot is damaged: another one replaces it");
        let snapshot = self.take_snapshot(zxid).await;
        // With the same zxid, the new file has taken its name.
        if snapshot != zxid && self.snapshots.list().await?.contains(&zxid) {
            self.snapshots.remove(zxid).await?;
        }
        tracing::info!(file = file_name(zxid), snapshot = %snapshot, "a damaged snapshot is replaced");
        Ok(())
    }

    /// Has a snapshot of at least `zxid` taken, and waits for it. None that was begun before is relied on: it
    /// may be damaged, too.
    async fn take_snapshot(&self, zxid: Zxid) -> Zxid {
        let trigger = self.pump.trigger();
        let begun = trigger.begun();
        loop {
            if let Some(taken) = trigger.taken_since(begun).filter(|taken| *taken >= zxid) {
                return taken;
            }
            trigger.demand_new_file();
            self.pump.env().sleep(LOOK_EVERY).await;
        }
    }
}
