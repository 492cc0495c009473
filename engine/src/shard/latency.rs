//! Latencies of requests: from the pass over the socket that received them until the socket took the reply.
//!
//! Reading the clock for each request would cost as much as a good part of a read. So requests bear the time
//! of the pass in which they were received, and replies are counted until the shell reports a write, which
//! bears the time, too.

use ringkeeper_wire::Xid;

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

/// Replies that are not written yet, to requests of one kind that were received at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unwritten {
    kind: Kind,
    received_us: u64,
    replies: u64,
}

impl Shard {
    /// Counts the reply just made to a request.
    pub(super) fn count_reply(
        &mut self,
        now_us: u64,
        slot: Slot,
        xid: Xid,
        op: i32,
        received_us: u64,
        kind: Kind,
    ) {
        let zxid = self.zxid_for(slot);
        let unwritten = self.connection(slot).stats.unwritten;
        if (unwritten.kind, unwritten.received_us) != (kind, received_us) {
            self.record_latency(now_us, slot);
            self.connection(slot).stats.unwritten = Unwritten { kind, received_us, replies: 0 };
        }
        let stats = &mut self.connection(slot).stats;
        stats.unwritten.replies += 1;
        stats.last_response_ms = now_us / super::US_PER_MS;
        stats.last_op = Some(op);
        stats.last_xid = xid;
        stats.last_zxid = zxid;
    }

    /// Records the latency of the replies that the socket has just taken.
    pub(super) fn record_latency(&mut self, now_us: u64, slot: Slot) {
        let stats = &mut self.connection(slot).stats;
        let Unwritten { kind, received_us, replies } = stats.unwritten;
        if replies == 0 {
            return;
        }
        stats.unwritten.replies = 0;
        let latency_us = now_us.saturating_sub(received_us);
        stats.latency.record_n(latency_us, replies);
        stats.last_latency_us = latency_us;
        match kind {
            Kind::Read => self.timings.reads.record_n(latency_us, replies),
            Kind::Update => self.timings.updates.record_n(latency_us, replies),
        }
    }
}
