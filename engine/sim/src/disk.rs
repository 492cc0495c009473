//! A disk that forgets what was not synced.

use std::collections::VecDeque;
use std::sync::Arc;

use ringkeeper_engine::zab::{Batch, Durable, Epochs, LogPosition, LogSummary};
use ringkeeper_wire::Zxid;

use crate::random::Random;

/// Something the log was asked to do.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Append(Batch),
    Truncate(Zxid),
    Install(Snapshot),
}

/// The state of a server: what it has delivered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) delivered: Arc<Vec<LogPosition>>,
}

impl Snapshot {
    pub(crate) fn last(&self) -> LogPosition {
        self.delivered.last().copied().unwrap_or(LogPosition::START)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) epochs: Epochs,
    pub(crate) snapshot: Snapshot,
    base: LogPosition,
    log: Vec<Batch>,
    /// Operations not yet synced; the first `syncing` of them are under way.
    queue: VecDeque<Operation>,
    syncing: usize,
    pub(crate) writing_epochs: Option<Epochs>,
}

impl Disk {
    pub(crate) fn push(&mut self, operation: Operation) {
        self.queue.push_back(operation);
    }

    /// Starts the next sync if the disk is idle: all appends at hand go together.
    pub(crate) fn start(&mut self) -> bool {
        if self.syncing > 0 || self.queue.is_empty() {
            return false;
        }
        let appends = self.queue.iter().take_while(|op| matches!(op, Operation::Append(_))).count();
        self.syncing = appends.max(1);
        true
    }

    /// The sync is done. Returns what is durable now.
    pub(crate) fn finish(&mut self) -> Vec<Operation> {
        let done: Vec<Operation> = self.queue.drain(..self.syncing).collect();
        self.syncing = 0;
        done.iter().for_each(|operation| self.apply(operation));
        done
    }

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Append(batch) => self.log.push(batch.clone()),
            Operation::Truncate(after) => self.log.retain(|batch| batch.last() <= *after),
            Operation::Install(snapshot) => {
                self.base = snapshot.last();
                self.snapshot = snapshot.clone();
                self.log.clear();
            }
        }
    }

    pub(crate) fn last(&self) -> LogPosition {
        self.log.last().map_or(self.base, Batch::end)
    }

    /// Power is lost: some of what was under way is on the medium, in order. Returns that.
    pub(crate) fn crash(&mut self, random: &mut Random) -> Vec<Operation> {
        let survived = random.index(self.queue.len() + 1);
        let done: Vec<Operation> = self.queue.drain(..survived).collect();
        done.iter().for_each(|operation| self.apply(operation));
        self.queue.clear();
        self.syncing = 0;
        if let Some(epochs) = self.writing_epochs.take()
            && random.chance(500)
        {
            self.epochs = epochs;
        }
        done
    }

    /// Whether the disk has everything that the server has promised and acknowledged.
    pub(crate) fn remembers(&self) -> bool {
        self.epochs.initialized && self.epochs.claim == Zxid::ZERO
    }

    /// A part of the log is damaged, and sometimes the snapshot as well, which a start will find: it keeps what is
    /// before the damage, and the claim on what is behind. Returns whether there was anything to damage.
    pub(crate) fn rot(&mut self, random: &mut Random) -> bool {
        let last = self.last().zxid;
        let sound = random.index(self.log.len() + 1);
        if sound == self.log.len() {
            return false;
        }
        self.log.truncate(sound);
        if random.chance(200) {
            (self.log, self.base, self.snapshot) = (Vec::new(), LogPosition::START, Snapshot::default());
        }
        self.epochs.claim = self.epochs.claim.max(last);
        true
    }

    /// Removes batches that the snapshot covers, up to `upto`, and returns the new base.
    pub(crate) fn purge(&mut self, upto: Zxid) -> LogPosition {
        let upto = upto.min(self.snapshot.last().zxid);
        let purged = self.log.partition_point(|batch| batch.last() <= upto);
        if let Some(batch) = purged.checked_sub(1).and_then(|index| self.log.get(index)) {
            self.base = batch.end();
            self.log.drain(..purged);
        }
        self.base
    }

    /// Recovery: what a server finds at its start.
    pub(crate) fn recover(&mut self) -> (Durable, Vec<Batch>) {
        let snapshot = self.snapshot.last();
        if self.last().zxid < snapshot.zxid {
            self.log.clear();
            self.base = snapshot;
        }
        let mut summary = LogSummary::new(self.base, snapshot.zxid);
        self.log.iter().for_each(|batch| summary.push(batch.end()));
        (Durable { epochs: self.epochs, log: summary }, self.log.clone())
    }

    pub(crate) const fn base(&self) -> LogPosition {
        self.base
    }
}
