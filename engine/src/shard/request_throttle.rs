//! ZooKeeper's throttles of requests, off by default.
//!
//! - Beyond `request_throttle_max_requests` unanswered requests, every further one waits, also those of
//!   connections without an unanswered request, which `globalOutstandingLimit` lets through. Connections go
//!   on in the order in which they began to wait.
//! - Who waited for longer than `throttled_op_wait_time` is answered with THROTTLEDOP; who waited for longer
//!   than the session lasts is disconnected (`request_stale_latency_check`).
//! - A request longer than `largeRequestThreshold` is refused if there would be more than
//!   `largeRequestMaxBytes` of such requests; its connection is closed before its bytes are read.

use ringkeeper_wire::frame::FRAME_HEADER_LEN;
use ringkeeper_wire::{ErrorCode, OpCode, Xid};

use super::{CloseReason, Shard, Slot, US_PER_MS};
use crate::metrics::Samples;
use crate::samples;

/// Settings of the throttles. Bounds are the server's, divided by the number of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestThrottle {
    /// Unanswered requests of this shard, above which all others wait (`request_throttle_max_requests`).
    pub outstanding_max: usize,
    /// How long a request may wait to be executed, in milliseconds (`throttled_op_wait_time`).
    pub wait_max_ms: u64,
    /// Whether a request is stale that waited for longer than its session lasts
    /// (`request_stale_latency_check`).
    pub checks_latency: bool,
    /// Whether the connections of stale requests are closed; if not, the requests are only counted
    /// (`request_throttle_drop_stale`).
    pub drops_stale: bool,
    /// Length in bytes above which a request is large (`largeRequestThreshold`).
    pub large_above_bytes: usize,
    /// Bytes of unanswered large requests of this shard (`largeRequestMaxBytes`).
    pub large_max_bytes: usize,
}

impl Default for RequestThrottle {
    fn default() -> Self {
        Self {
            outstanding_max: usize::MAX,
            wait_max_ms: u64::MAX,
            checks_latency: false,
            drops_stale: true,
            large_above_bytes: usize::MAX,
            large_max_bytes: 100 << 20,
        }
    }
}

impl RequestThrottle {
    /// Whether requests may have to wait.
    pub(super) const fn is_on(&self) -> bool {
        self.outstanding_max != usize::MAX
    }
}

/// What the throttles did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThrottleCounts {
    /// How often a connection began to wait.
    pub(super) waits: u64,
    /// Requests answered with THROTTLEDOP.
    pub(super) ops: u64,
    /// Requests that were executed although they were stale.
    pub(super) stale: u64,
    /// Connections closed, by either side, with a request that waited.
    pub(super) stale_dropped: u64,
    /// Connections closed because of a large request.
    pub(super) large_rejected: u64,
}

impl ThrottleCounts {
    pub(super) fn sample(&self, out: &mut Samples) {
        samples!(out, {
            "request_throttle_wait_count": self.waits,
            "throttled_ops": self.ops,
            "stale_requests": self.stale,
            "stale_requests_dropped": self.stale_dropped,
            "large_requests_rejected": self.large_rejected,
        });
    }

    pub(super) const fn merge(&mut self, other: &Self) {
        self.waits += other.waits;
        self.ops += other.ops;
        self.stale += other.stale;
        self.stale_dropped += other.stale_dropped;
        self.large_rejected += other.large_rejected;
    }
}

impl Shard {
    /// Whether a request waited for longer than it may. If so, it is answered, or its connection closed.
    pub(super) fn waited_too_long(&mut self, now_us: u64, slot: Slot, xid: Xid, op: OpCode) -> bool {
        let connection = self.connection(slot);
        let Some(since_us) = connection.throttled_since_us else { return false };
        let (waited_us, timeout_ms) = (now_us.saturating_sub(since_us), connection.stats.timeout_ms);
        let waited_ms = waited_us / US_PER_MS;
        let RequestThrottle { wait_max_ms, checks_latency, drops_stale, .. } = self.settings.throttle;
        if checks_latency && waited_ms > u64::from(timeout_ms) && op != OpCode::CloseSession {
            if drops_stale {
                self.abort(slot, Some(CloseReason::Stale));
                return true;
            }
            self.counters.throttled.stale += 1;
        }
        let is_exempt = matches!(op, OpCode::Ping | OpCode::CloseSession);
        if is_exempt || waited_ms <= wait_max_ms {
            return false;
        }
        self.counters.throttled.ops += 1;
        self.fail(now_us, slot, xid, op, ErrorCode::ThrottledOp);
        true
    }

    /// Whether there is no room for the request at the front of `input`, which may not be complete. Its
    /// connection is closed then.
    pub(super) fn refuses_large(&mut self, slot: Slot, input: &[u8]) -> bool {
        let throttle = &self.settings.throttle;
        let Some(&header) = input.first_chunk::<FRAME_HEADER_LEN>() else { return false };
        let (len, unanswered) = (u32::from_be_bytes(header) as usize, self.outstanding.large_bytes);
        let refused = len > throttle.large_above_bytes && len + unanswered > throttle.large_max_bytes;
        if refused {
            self.abort(slot, Some(CloseReason::LargeRequests { len, unanswered }));
        }
        refused
    }
}
