//! Latencies of requests: from the pass over the socket that received them until the socket took the reply.
//!
//! Reading the clock for each request would cost as much as a good part of a read. So requests bear the time
//! of the pass in which they were received, and replies are counted until the shell reports a write, which
//! bears the time, too.

use ringkeeper_wire::{Xid, Zxid};

use super::{Shard, Slot};

/// What ZooKeeper's `readlatency` and `updatelatency` tell apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Answered without a transaction: a read, a ping, a sync, a request that is refused.
    #[default]
    Read,
    /// Answered by a transaction.
    Update,
}

/// When a request came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    /// When it was decoded, microseconds.
    pub(super) decoded_us: u64,
    /// How long it had waited in the connection's input before, microseconds.
    pub(super) input_us: u32,
    /// Its connection had no room meanwhile, since replies were not read.
    pub(super) unread: bool,
}

impl Arrival {
    /// When it was received, microseconds.
    pub(super) const fn received_us(self) -> u64 {
        self.decoded_us.saturating_sub(self.input_us as u64)
    }
}

/// A request to which the reply was just made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered<'a> {
    pub(super) xid: Xid,
    /// The opcode as received.
    pub(super) op: i32,
    pub(super) arrival: Arrival,
    /// When its turn came, microseconds.
    pub(super) began_us: u64,
    /// Its length without the header, in bytes.
    pub(super) body_len: usize,
    pub(super) about: About<'a>,
}

/// Where a request says what it is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum About<'a> {
    /// In its body.
    Body(&'a [u8]),
    /// In its transaction: the path of the first change, if there is one.
    Txn(Zxid, Option<&'a str>),
}

impl Answered<'_> {
    /// Of its transaction, if it has one.
    pub(super) const fn zxid(&self) -> Option<Zxid> {
        match self.about {
            About::Body(_) => None,
            About::Txn(zxid, _) => Some(zxid),
        }
    }

    const fn kind(&self) -> Kind {
        match self.about {
            About::Body(_) => Kind::Read,
            About::Txn(..) => Kind::Update,
        }
    }
}

/// Replies that are not written yet, to requests of one kind that came at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unwritten {
    kind: Kind,
    pub(super) arrival: Arrival,
    /// When the first of the replies was made.
    pub(super) answered_us: u64,
    replies: u32,
}

impl Shard {
    /// Counts the reply just made to a request.
    pub(super) fn count_reply(&mut self, now_us: u64, slot: Slot, answered: Answered<'_>) {
        self.charge_reply(now_us, &answered);
        let (kind, arrival) = (answered.kind(), answered.arrival);
        let zxid = self.zxid_for(slot);
        let unwritten = self.connection(slot).stats.unwritten;
        if (unwritten.kind, unwritten.arrival) != (kind, arrival) {
            self.record_latency(now_us, slot);
            let unwritten = Unwritten { kind, arrival, answered_us: now_us, replies: 0 };
            self.connection(slot).stats.unwritten = unwritten;
        }
        let stats = &mut self.connection(slot).stats;
        if stats.unwritten.replies == 0 {
            stats.unwritten.answered_us = now_us;
        }
        stats.unwritten.replies += 1;
        stats.last_response_ms = now_us / super::US_PER_MS;
        stats.last_op = Some(answered.op);
        stats.last_xid = answered.xid;
        stats.last_zxid = zxid;
        if self.slow.is_slow(arrival, now_us) {
            self.note_slow(now_us, slot, answered);
        } else if self.slow.samples() {
            self.note_sampled(now_us, slot, answered);
        }
    }

    /// Records the latency of the replies that the socket has just taken.
    pub(super) fn record_latency(&mut self, now_us: u64, slot: Slot) {
        let stats = &mut self.connection(slot).stats;
        let unwritten = stats.unwritten;
        let Unwritten { kind, arrival, answered_us, replies } = unwritten;
        if replies == 0 {
            return;
        }
        let replies = u64::from(replies);
        stats.unwritten.replies = 0;
        let latency_us = now_us.saturating_sub(arrival.decoded_us);
        stats.latency.record_n(latency_us, replies);
        stats.last_latency_us = latency_us;
        match kind {
            Kind::Read => self.timings.reads.record_n(latency_us, replies),
            Kind::Update => self.timings.updates.record_n(latency_us, replies),
        }
        self.timings.outputs.record_n(now_us.saturating_sub(answered_us), replies);
        if self.slow.is_slow(arrival, now_us) {
            self.counters.slow_requests += replies;
            self.note_unread(slot, unwritten);
        }
    }
}
