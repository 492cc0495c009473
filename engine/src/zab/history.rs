//! The log from Zab's point of view: what is appended, what is durable, and how two logs are compared.

use std::collections::VecDeque;

use ringkeeper_frame::{Batch, Checksum, LogPosition};
use ringkeeper_wire::{Epoch, Zxid};

use super::config::{Config, LogSummary};
use super::message::LogOutline;
use crate::newest::count_while;

/// A batch and the position before it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) prev: LogPosition,
    pub(super) batch: Batch,
}

/// An operation that replaces a part of the log. While one is pending, no other changes the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogOperation {
    Truncate,
    Install,
}

/// Two logs have different frames with the same zxid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Diverged(pub(super) Zxid);

/// The outline of the log and its newest batches.
///
/// Invariant: `durable <= last`; the tail is contiguous and ends at `last`.
#[derive(Debug)]
pub(super) struct History {
    summary: LogSummary,
    durable: Zxid,
    tail: VecDeque<Entry>,
    tail_bytes: usize,
    tail_bytes_min: usize,
    tail_bytes_max: usize,
    operation: Option<LogOperation>,
}

impl History {
    pub(super) fn new(summary: LogSummary, config: &Config) -> Self {
        Self {
            durable: summary.last().zxid,
            summary,
            tail: VecDeque::new(),
            tail_bytes: 0,
            tail_bytes_min: config.tail_bytes_min,
            tail_bytes_max: config.tail_bytes_max,
            operation: None,
        }
    }

    /// The end of the log, durable or not.
    pub(super) fn last(&self) -> LogPosition {
        self.summary.last()
    }

    /// Everything up to here is on the medium.
    pub(super) const fn durable(&self) -> Zxid {
        self.durable
    }

    /// Where the log begins.
    pub(super) const fn base(&self) -> Zxid {
        self.summary.base().zxid
    }

    /// The earliest position to which the log can be truncated.
    pub(super) fn floor(&self) -> Zxid {
        self.summary.snapshot().max(self.base())
    }

    pub(super) const fn operation(&self) -> Option<LogOperation> {
        self.operation
    }

    /// Bytes of the batches that are not durable yet.
    pub(super) fn undurable_bytes(&self) -> usize {
        let unforced = self.tail.iter().rev().take_while(|entry| entry.batch.last() > self.durable);
        unforced.map(|entry| entry.batch.bytes().len()).sum()
    }

    /// Takes a batch that follows the end of the log.
    pub(super) fn append(&mut self, batch: &Batch) {
        let prev = self.last();
        self.summary.push(batch.end());
        self.tail_bytes += batch.bytes().len();
        self.tail.push_back(Entry { prev, batch: batch.clone() });
    }

    /// Frees batches that can be read back from disk, oldest first: above the lower limit those that all
    /// learners have been sent, above the upper one any. So the memory in use stays the same and is reused
    /// while it is in the cache.
    pub(super) fn trim(&mut self, committed: Zxid, sent_to_all: Zxid) {
        let readable = committed.min(self.durable);
        while let Some(entry) = self.tail.front() {
            let last = entry.batch.last();
            let bytes_max = if last <= sent_to_all { self.tail_bytes_min } else { self.tail_bytes_max };
            if self.tail_bytes <= bytes_max || last > readable {
                return;
            }
            self.tail_bytes -= entry.batch.bytes().len();
            self.tail.pop_front();
        }
    }

    /// Records progress of the log. Ignored while a truncation is pending, since it was reported before it.
    pub(super) fn durable_upto(&mut self, upto: Zxid) {
        if self.operation.is_none() {
            self.durable = self.durable.max(upto.min(self.last().zxid));
        }
    }

    /// The position before the batch with this transaction; `None` if the batch is not in memory.
    pub(super) fn before(&self, zxid: Zxid) -> Option<Zxid> {
        let index = count_while(&self.tail, |entry| entry.batch.last() < zxid);
        self.tail.get(index).filter(|entry| entry.batch.first() <= zxid).map(|entry| entry.prev.zxid)
    }

    /// Begins a truncation after a position of the log; [`Self::truncated`] ends it.
    pub(super) fn truncate(&mut self, after: Zxid) {
        self.forget_after(after);
        self.operation = Some(LogOperation::Truncate);
    }

    /// Truncates the outline, not the log.
    pub(super) fn forget_after(&mut self, after: Zxid) {
        while self.tail.back().is_some_and(|entry| entry.batch.last() > after) {
            if let Some(entry) = self.tail.pop_back() {
                self.tail_bytes -= entry.batch.bytes().len();
            }
        }
        let mark = self.mark_at(after).unwrap_or(LogPosition { zxid: after, checksum: Checksum::NONE });
        self.summary.truncate(mark);
        self.durable = self.durable.min(after);
    }

    /// The truncation is durable, and so is the rest of the log.
    pub(super) fn truncated(&mut self, last: LogPosition) {
        if self.operation == Some(LogOperation::Truncate) {
            self.operation = None;
            self.summary.truncate(last);
            self.durable = self.last().zxid;
        }
    }

    /// A snapshot is about to replace the log.
    pub(super) const fn install(&mut self) {
        self.operation = Some(LogOperation::Install);
    }

    /// The log begins at `base` now; `None` if the installation failed.
    pub(super) fn installed(&mut self, base: Option<LogPosition>) {
        if self.operation != Some(LogOperation::Install) {
            return;
        }
        self.operation = None;
        if let Some(base) = base {
            self.summary = LogSummary::new(base, base.zxid);
            self.durable = base.zxid;
            self.tail.clear();
            self.tail_bytes = 0;
        }
    }

    pub(super) fn snapshot_taken(&mut self, zxid: Zxid) {
        self.summary.snapshot_taken(zxid);
    }

    pub(super) fn purged(&mut self, base: LogPosition) {
        self.summary.purge(base);
    }

    /// The position at `zxid` with its checksum, as far as it is known without reading.
    pub(super) fn mark_at(&self, zxid: Zxid) -> Option<LogPosition> {
        if self.summary.base().zxid == zxid {
            return Some(self.summary.base());
        }
        if let Some(end) = self.summary.ends().iter().rev().find(|end| end.zxid == zxid) {
            return Some(*end);
        }
        self.after(zxid).and_then(|index| self.tail.get(index)).map(|entry| entry.prev)
    }

    /// Index in the tail of the batch right after `zxid`.
    pub(super) fn after(&self, zxid: Zxid) -> Option<usize> {
        let index = count_while(&self.tail, |entry| entry.prev.zxid < zxid);
        self.tail.get(index).filter(|entry| entry.prev.zxid == zxid).map(|_| index)
    }

    pub(super) fn entry(&self, index: usize) -> Option<&Entry> {
        self.tail.get(index)
    }

    /// The outline of the log that a leader needs for synchronization.
    pub(super) fn outline(&self) -> LogOutline {
        let mut ends = Vec::with_capacity(self.summary.ends().len() + 1);
        ends.push(self.summary.base());
        ends.extend_from_slice(self.summary.ends());
        let mut floor = self.floor();
        if ends.len() > LogOutline::ENDS_MAX {
            ends.drain(..ends.len() - LogOutline::ENDS_MAX);
            floor = floor.max(ends.first().map_or(Zxid::ZERO, |end| end.zxid));
        }
        LogOutline { floor, ends }
    }

    /// The last position that both logs have.
    ///
    /// Logs that have transactions of the same epoch agree up to the shorter one's end of that epoch (see
    /// [`LogPosition`]). So the newest common epoch decides, without reading any transaction.
    pub(super) fn common(&self, other: &LogOutline) -> Result<Zxid, Diverged> {
        for theirs in other.ends.iter().rev() {
            let Some(ours) = self.end_of(theirs.zxid.epoch()) else { continue };
            if ours.zxid == theirs.zxid && !ours.agrees(*theirs) {
                return Err(Diverged(ours.zxid));
            }
            return Ok(ours.zxid.min(theirs.zxid));
        }
        Ok(Zxid::ZERO)
    }

    pub(super) fn end_of(&self, epoch: Epoch) -> Option<LogPosition> {
        let ends = self.summary.ends();
        let index = ends.partition_point(|end| end.zxid.epoch() < epoch);
        ends.get(index)
            .copied()
            .filter(|end| end.zxid.epoch() == epoch)
            .or_else(|| Some(self.summary.base()).filter(|base| base.zxid.epoch() == epoch))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use ringkeeper_wire::ServerId;

    use super::super::quorum::ServerSet;
    use super::*;

    fn zxid(epoch: u32, counter: u32) -> Zxid {
        Zxid::new(Epoch(epoch), counter)
    }

    fn mark(epoch: u32, counter: u32) -> LogPosition {
        LogPosition { zxid: zxid(epoch, counter), checksum: Checksum(epoch * 1000 + counter) }
    }

    fn history(lasts: &[(u32, u32)]) -> History {
        let config = Config::new(ServerId(1), (1..=3).map(ServerId).collect(), ServerSet::EMPTY);
        let mut history = History::new(LogSummary::default(), &config);
        for &(epoch, count) in lasts {
            for counter in 1..=count {
                let end = mark(epoch, counter);
                let bytes = Bytes::from_static(&[0; 10]);
                history.append(&Batch::new(end.zxid, end.zxid, end.checksum, bytes).unwrap());
            }
        }
        history
    }

    #[test]
    fn the_newest_shared_epoch_decides_where_logs_part() {
        let ours = history(&[(1, 5), (3, 2)]);
        assert_eq!(ours.common(&history(&[(1, 5), (2, 9)]).outline()), Ok(zxid(1, 5)));
        assert_eq!(ours.common(&history(&[(1, 3), (2, 9)]).outline()), Ok(zxid(1, 3)));
        assert_eq!(ours.common(&history(&[(1, 5), (3, 1)]).outline()), Ok(zxid(3, 1)));
        assert_eq!(ours.common(&history(&[(1, 5), (3, 7)]).outline()), Ok(zxid(3, 2)));
        assert_eq!(ours.common(&history(&[]).outline()), Ok(Zxid::ZERO));
    }

    #[test]
    fn different_frames_with_one_zxid_are_a_divergence() {
        let mut outline = history(&[(1, 5)]).outline();
        outline.ends.last_mut().unwrap().checksum.0 ^= 1;
        assert_eq!(history(&[(1, 5)]).common(&outline), Err(Diverged(zxid(1, 5))));
    }

    #[test]
    fn durability_reported_during_a_truncation_is_about_what_is_gone() {
        let mut history = history(&[(1, 5)]);
        history.durable_upto(zxid(1, 4));
        history.truncate(zxid(1, 3));
        history.durable_upto(zxid(1, 5));
        assert_eq!(history.durable(), zxid(1, 3));
        history.truncated(mark(1, 3));
        assert_eq!((history.durable(), history.last()), (zxid(1, 3), mark(1, 3)));
    }

    #[test]
    fn the_tail_keeps_what_cannot_be_read_back() {
        let mut history = history(&[(1, 5)]);
        (history.tail_bytes_min, history.tail_bytes_max) = (20, 20);
        history.durable_upto(zxid(1, 2));
        history.trim(zxid(1, 5), Zxid(u64::MAX));
        assert_eq!(history.after(zxid(1, 1)), None);
        assert_eq!(history.after(zxid(1, 2)), Some(0));
        assert_eq!(history.mark_at(zxid(1, 3)), Some(mark(1, 3)));
    }

    #[test]
    fn the_tail_keeps_what_a_learner_has_not_been_sent_up_to_its_upper_limit() {
        let mut history = history(&[(1, 9)]);
        let batch_bytes = history.tail_bytes / 9;
        (history.tail_bytes_min, history.tail_bytes_max) = (batch_bytes, 5 * batch_bytes);
        history.durable_upto(zxid(1, 9));
        history.trim(zxid(1, 9), zxid(1, 2));
        assert_eq!((history.after(zxid(1, 3)), history.after(zxid(1, 4))), (None, Some(0)));
        history.trim(zxid(1, 9), zxid(1, 6));
        assert_eq!((history.after(zxid(1, 5)), history.after(zxid(1, 6))), (None, Some(0)));
        history.trim(zxid(1, 9), zxid(1, 9));
        assert_eq!((history.after(zxid(1, 7)), history.after(zxid(1, 8))), (None, Some(0)));
    }

    #[test]
    fn what_waits_for_the_medium_is_counted() {
        let mut history = history(&[(1, 9)]);
        history.durable_upto(zxid(1, 9));
        assert_eq!(history.undurable_bytes(), 0);
        let batch_bytes = history.tail_bytes / 9;
        history.forget_after(zxid(1, 3));
        assert_eq!(history.undurable_bytes(), 0, "what is gone waits for nothing");
        history.durable = zxid(1, 1);
        assert_eq!(history.undurable_bytes(), 2 * batch_bytes);
    }

    #[test]
    fn a_purged_epoch_is_still_known_by_the_base() {
        let mut ours = history(&[(1, 5), (2, 2)]);
        ours.purged(mark(1, 5));
        assert_eq!(ours.common(&history(&[(1, 4)]).outline()), Ok(zxid(1, 4)));
        assert_eq!(ours.base(), zxid(1, 5));
    }
}
