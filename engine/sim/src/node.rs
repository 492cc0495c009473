//! One simulated server: the machine, its disk, its clock, and the smallest state machine there is.

use ringkeeper_engine::zab::{Batch, LogPosition, Zab};
use ringkeeper_wire::{ServerId, Zxid};

use crate::checker::Violation;
use crate::disk::{Disk, Snapshot};

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: ServerId,
    /// `None` while the server is down.
    pub(crate) zab: Option<Zab>,
    pub(crate) incarnation: u64,
    pub(crate) disk: Disk,
    /// Log as the server sees it, durable or not, after what it has been told to forget.
    pub(crate) log: Vec<Batch>,
    pub(crate) base: LogPosition,
    /// State of the state machine.
    pub(crate) delivered: Vec<LogPosition>,
    pub(crate) paused_until_us: u64,
    pub(crate) clock_offset_ms: u64,
    pub(crate) clock_per_mille: u64,
    /// A snapshot is on its way from the leader.
    pub(crate) installing: Option<Snapshot>,
}

impl Node {
    pub(crate) fn new(id: ServerId) -> Self {
        Self {
            id,
            zab: None,
            incarnation: 0,
            disk: Disk::default(),
            log: Vec::new(),
            base: LogPosition::START,
            delivered: Vec::new(),
            paused_until_us: 0,
            clock_offset_ms: 1_000_000,
            clock_per_mille: 1000,
            installing: None,
        }
    }

    pub(crate) const fn clock_ms(&self, now_us: u64) -> u64 {
        self.clock_offset_ms + now_us * self.clock_per_mille / 1_000_000
    }

    pub(crate) fn last(&self) -> LogPosition {
        self.log.last().map_or(self.base, Batch::end)
    }

    pub(crate) fn delivered_last(&self) -> LogPosition {
        self.delivered.last().copied().unwrap_or(LogPosition::START)
    }

    /// The whole history: the state, then the log after it.
    pub(crate) fn history(&self) -> impl Iterator<Item = LogPosition> {
        let delivered = self.delivered_last().zxid;
        let after = self.log.iter().map(Batch::end).filter(move |mark| mark.zxid > delivered);
        self.delivered.iter().copied().chain(after)
    }

    /// Appends, and checks what production trusts the log for: the batch names its predecessor's checksum.
    pub(crate) fn append(&mut self, batch: Batch) -> Result<(), Violation> {
        let last = self.last();
        let chained = batch.bytes().first_chunk::<4>() == Some(&last.checksum.0.to_le_bytes());
        if !chained || !batch.follows(last.zxid) {
            return Err(Violation::Gap { server: self.id, last, next: batch.first() });
        }
        self.log.push(batch);
        Ok(())
    }

    pub(crate) fn truncate(&mut self, after: Zxid) -> Result<(), Violation> {
        let delivered = self.delivered_last().zxid;
        if after < delivered {
            return Err(Violation::DeliveredCut { server: self.id, after, delivered });
        }
        self.log.retain(|batch| batch.last() <= after);
        Ok(())
    }

    /// Batches after a position, some of them.
    pub(crate) fn read(&self, after: Zxid, bytes_max: usize) -> Vec<Batch> {
        if after < self.base.zxid {
            return Vec::new();
        }
        let first = self.log.partition_point(|batch| batch.last() <= after);
        let mut left = bytes_max.max(1);
        let fits = |batch: &&Batch| {
            let fits = left > 0;
            left = left.saturating_sub(batch.bytes().len());
            fits
        };
        self.log.iter().skip(first).take_while(fits).cloned().collect()
    }
}
