//! When the last batches were made, durable, acknowledged and committed, by their zxids: so that nothing has
//! to be carried with each request.

use std::collections::VecDeque;

use ringkeeper_wire::{ServerId, Zxid};

use crate::newest::count_while;
use crate::zab::Batch;

/// Committed batches whose times are kept.
const COMMITTED_MAX: usize = 4096;

/// The times of a batch, microseconds on the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTimes {
    /// Its first transaction.
    pub first: Zxid,
    /// Its last one.
    pub last: Zxid,
    /// Whether this server proposed it as the leader.
    pub leads: bool,
    /// The requests that this server made it of, if it is of any.
    pub requests: Option<Requests>,
    /// When the leader got the first of the writes that other servers forwarded, if that was noted.
    pub forwarded_us: Option<u64>,
    /// When it was proposed, or came from the leader.
    pub appended_us: u64,
    /// When it was durable in this server's log, if it is.
    pub durable_us: Option<u64>,
    /// When it was committed, if it is.
    pub committed_us: Option<u64>,
    /// The peer whose acknowledgement came last before that.
    pub last_ack: Option<ServerId>,
}

impl BatchTimes {
    /// Number of its transactions.
    #[must_use]
    pub fn txns(&self) -> u64 {
        u64::from(self.last.counter() - self.first.counter()) + 1
    }
}

/// The requests of a batch, microseconds on the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests {
    /// When the oldest one left its shard.
    pub sent_us: u64,
    /// When the leader core took that one.
    pub taken_us: u64,
    /// How long all of them were executed.
    pub preparing_us: u64,
}

/// The times of the last batches.
#[derive(Debug, Default)]
pub struct Batches {
    /// In the order of the log. Those not committed are bounded by what the node lets wait.
    times: VecDeque<BatchTimes>,
    /// Requests that are in no batch yet.
    unbatched: Option<Requests>,
    forwarded_us: Option<u64>,
    /// What each peer has acknowledged.
    acknowledged: Vec<(ServerId, Zxid)>,
}

impl Batches {
    /// The core took requests that left their shard at `sent_us`.
    pub fn took(&mut self, now_us: u64, sent_us: u64) {
        self.unbatched.get_or_insert(Requests { sent_us, taken_us: now_us, preparing_us: 0 });
    }

    /// The leader got writes of another server.
    pub fn forwarded(&mut self, now_us: u64) {
        self.forwarded_us.get_or_insert(now_us);
    }

    /// They were executed, or passed on.
    pub fn prepared(&mut self, took_us: u64) {
        if let Some(requests) = &mut self.unbatched {
            requests.preparing_us += took_us;
        }
    }

    /// A batch is given to the log. What was there from its first transaction on is cut off.
    pub fn appended(&mut self, now_us: u64, leads: bool, batch: &Batch) -> BatchTimes {
        let (first, last) = (batch.first(), batch.last());
        self.times.truncate(count_while(&self.times, |before| before.last < first));
        let requests = self.unbatched.take().filter(|_| leads);
        let times = BatchTimes {
            first,
            last,
            leads,
            requests,
            forwarded_us: self.forwarded_us.take().filter(|_| leads),
            appended_us: now_us,
            durable_us: None,
            committed_us: None,
            last_ack: None,
        };
        self.times.push_back(times);
        times
    }

    /// Everything up to `upto` is durable in this server's log: the batches that were not before.
    pub fn durable(&mut self, now_us: u64, upto: Zxid) -> impl Iterator<Item = &BatchTimes> {
        let until = count_while(&self.times, |batch| batch.last <= upto);
        let from = count_while(&self.times, |batch| batch.durable_us.is_some()).min(until);
        self.times.range_mut(from..until).for_each(|batch| batch.durable_us = Some(now_us));
        self.times.range(from..until)
    }

    /// When the oldest batch was appended that is not durable in this server's log.
    #[must_use]
    pub fn undurable_since_us(&self) -> Option<u64> {
        let from = count_while(&self.times, |batch| batch.durable_us.is_some());
        self.times.get(from).map(|batch| batch.appended_us)
    }

    /// When the oldest batch was proposed that a peer, which has acknowledged some, has not.
    #[must_use]
    pub fn unacknowledged_since_us(&self, peer: ServerId) -> Option<u64> {
        let (_, upto) = self.acknowledged.iter().find(|(known, _)| *known == peer)?;
        let from = count_while(&self.times, |batch| batch.last <= *upto);
        self.times.get(from).map(|batch| batch.appended_us)
    }

    /// A peer has acknowledged everything up to `upto`: the batches that are new in it.
    pub fn acknowledge(&mut self, peer: ServerId, upto: Zxid) -> impl Iterator<Item = &BatchTimes> {
        let place = match self.acknowledged.iter().position(|(known, _)| *known == peer) {
            Some(place) => place,
            None => {
                self.acknowledged.push((peer, Zxid::ZERO));
                self.acknowledged.len() - 1
            }
        };
        let acknowledged = &mut self.acknowledged[place].1;
        let before = std::mem::replace(acknowledged, upto.max(*acknowledged));
        let from = count_while(&self.times, |batch| batch.last <= before);
        let until = count_while(&self.times, |batch| batch.last <= upto).max(from);
        for batch in self.times.range_mut(from..until).filter(|batch| batch.committed_us.is_none()) {
            batch.last_ack = Some(peer);
        }
        self.times.range(from..until)
    }

    /// Everything up to `upto` is committed: the batches that were not before.
    pub fn commit(&mut self, now_us: u64, upto: Zxid) -> impl Iterator<Item = &BatchTimes> {
        let until = count_while(&self.times, |batch| batch.last <= upto);
        let from = count_while(&self.times, |batch| batch.committed_us.is_some()).min(until);
        let surplus = until.saturating_sub(COMMITTED_MAX).min(from);
        self.times.drain(..surplus);
        let (from, until) = (from - surplus, until - surplus);
        for batch in self.times.range_mut(from..until) {
            batch.committed_us = Some(now_us);
        }
        self.times.range(from..until)
    }

    /// The batch of a transaction, if its times are still known.
    #[must_use]
    pub fn of(&self, zxid: Zxid) -> Option<&BatchTimes> {
        let place = count_while(&self.times, |batch| batch.last < zxid);
        self.times.get(place).filter(|batch| batch.first <= zxid)
    }

    /// Forgets all of them: leadership has changed.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use ringkeeper_wire::Epoch;

    use super::*;
    use crate::zab::Checksum;

    const fn zxid(counter: u32) -> Zxid {
        Zxid::new(Epoch(1), counter)
    }

    fn append(batches: &mut Batches, now_us: u64, first: u32, last: u32) {
        let batch = Batch::seal(zxid(first), zxid(last), Checksum::NONE, ringkeeper_frame::begin(0));
        batches.appended(now_us, true, &batch);
    }

    fn lasts<'a>(batches: impl Iterator<Item = &'a BatchTimes>) -> Vec<u32> {
        batches.map(|batch| batch.last.counter()).collect()
    }

    #[test]
    fn a_transaction_is_found_in_its_batch() {
        let mut batches = Batches::default();
        batches.took(10, 5);
        batches.prepared(2);
        batches.took(20, 15);
        batches.prepared(3);
        append(&mut batches, 30, 1, 4);
        append(&mut batches, 40, 5, 5);
        let first = batches.of(zxid(3)).expect("it is known");
        assert_eq!(first.requests, Some(Requests { sent_us: 5, taken_us: 10, preparing_us: 5 }));
        assert_eq!((first.txns(), batches.of(zxid(5)).and_then(|batch| batch.requests)), (4, None));
        assert_eq!(batches.of(zxid(6)), None);
    }

    #[test]
    fn each_batch_is_acknowledged_by_a_peer_and_committed_once() {
        let mut batches = Batches::default();
        (1..=3).for_each(|counter| append(&mut batches, 0, counter, counter));
        let (slow, quick) = (ServerId(2), ServerId(3));
        assert_eq!(lasts(batches.acknowledge(quick, zxid(2))), [1, 2]);
        assert_eq!(lasts(batches.commit(50, zxid(1))), [1]);
        assert_eq!(lasts(batches.acknowledge(slow, zxid(3))), [1, 2, 3]);
        assert_eq!(lasts(batches.acknowledge(quick, zxid(3))), [3]);
        assert_eq!(lasts(batches.acknowledge(quick, zxid(3))), [0_u32; 0]);
        assert_eq!(lasts(batches.commit(60, zxid(3))), [2, 3]);
        append(&mut batches, 70, 4, 4);
        assert_eq!(lasts(batches.acknowledge(quick, zxid(4))), [4]);
        let since_us = [slow, quick, ServerId(9)].map(|peer| batches.unacknowledged_since_us(peer));
        assert_eq!(since_us, [Some(70), None, None]);
        let last_acks = [1, 2, 3].map(|counter| batches.of(zxid(counter)).and_then(|batch| batch.last_ack));
        assert_eq!(last_acks, [Some(quick), Some(slow), Some(quick)]);
    }

    #[test]
    fn each_batch_is_durable_once() {
        let mut batches = Batches::default();
        (1..=3).for_each(|counter| append(&mut batches, 0, counter, counter));
        assert_eq!(lasts(batches.durable(10, zxid(2))), [1, 2]);
        assert_eq!(batches.undurable_since_us(), Some(0));
        assert_eq!(lasts(batches.durable(20, zxid(3))), [3]);
        assert_eq!(batches.undurable_since_us(), None);
        let durable = [1, 2, 3].map(|counter| batches.of(zxid(counter)).and_then(|batch| batch.durable_us));
        assert_eq!(durable, [Some(10), Some(10), Some(20)]);
    }

    #[test]
    fn what_is_cut_off_the_log_is_forgotten() {
        let mut batches = Batches::default();
        (1..=3).for_each(|counter| append(&mut batches, 0, counter, counter));
        append(&mut batches, 9, 2, 2);
        assert_eq!(batches.of(zxid(2)).map(|batch| batch.appended_us), Some(9));
        assert_eq!(batches.of(zxid(3)), None);
    }

    #[test]
    fn only_the_last_committed_batches_are_kept() {
        let mut batches = Batches::default();
        for counter in 1..=3 * u32::try_from(COMMITTED_MAX).expect("a small number") {
            append(&mut batches, 0, counter, counter);
            assert_eq!(lasts(batches.commit(1, zxid(counter))), [counter]);
        }
        assert_eq!(batches.times.len(), COMMITTED_MAX);
    }
}
