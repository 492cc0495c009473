//! A shard's statistics.

use std::net::SocketAddr;

use ringkeeper_wire::{SessionId, Xid};

use crate::limits::LimitCounts;

/// Latencies in milliseconds, from the arrival of a request to its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Number of replies.
    pub count: u64,
    /// Sum of the latencies.
    pub sum_ms: u64,
    /// The shortest; 0 without replies.
    pub min_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

impl Latency {
    /// Counts one more.
    pub fn record(&mut self, latency_ms: u64) {
        self.min_ms = if self.count == 0 { latency_ms } else { self.min_ms.min(latency_ms) };
        self.max_ms = self.max_ms.max(latency_ms);
        self.sum_ms += latency_ms;
        self.count += 1;
    }

    /// The average, rounded to four places; 0 without replies.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an average of milliseconds, shown with four places")]
    pub fn average_ms(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        (self.sum_ms as f64 / self.count as f64 * 10_000.0).round() / 10_000.0
    }

    /// Counts all of `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min_ms = if self.count == 0 { other.min_ms } else { self.min_ms.min(other.min_ms) };
        self.max_ms = self.max_ms.max(other.max_ms);
        self.sum_ms += other.sum_ms;
        self.count += other.count;
    }
}

/// Statistics of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionStats {
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) latency: Latency,
    pub(super) last_latency_ms: u64,
    pub(super) last_response_ms: u64,
    pub(super) last_op: Option<i32>,
    pub(super) last_xid: Xid,
    pub(super) last_zxid: i64,
    pub(super) timeout_ms: u32,
}

impl ConnectionStats {
    pub(super) fn new(now_ms: u64) -> Self {
        Self {
            received: 0,
            sent: 0,
            latency: Latency::default(),
            last_latency_ms: 0,
            last_response_ms: now_ms,
            last_op: None,
            last_xid: Xid(0),
            last_zxid: 0,
            timeout_ms: 0,
        }
    }

    /// Forgets what happened so far, as `crst` asks.
    pub(super) fn reset(&mut self, now_ms: u64) {
        *self = Self { timeout_ms: self.timeout_ms, ..Self::new(now_ms) };
    }
}

/// Statistics of a shard over all its connections, the closed ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes of replies and notifications encoded.
    pub sent_bytes: u64,
    /// Notifications sent.
    pub notifications: u64,
    /// Latencies of requests.
    pub latency: Latency,
    /// Sessions asked for, new and resumed.
    pub connection_requests: u64,
    /// Sessions refused: expired, moved to another server, or this server is behind the client.
    pub connections_rejected: u64,
    /// Connections that presented no session in time.
    pub sessionless_expired: u64,
    /// Credentials refused.
    pub auth_failed: u64,
    /// Connections closed for malformed input.
    pub malformed: u64,
    /// Connections closed because their client did not read.
    pub slow_readers: u64,
    /// Requests and connections refused because they exceeded a bound.
    pub limits: LimitCounts,
}

impl Counters {
    /// Adds the statistics of another shard.
    pub fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.sent += other.sent;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.notifications += other.notifications;
        self.latency.merge(&other.latency);
        self.connection_requests += other.connection_requests;
        self.connections_rejected += other.connections_rejected;
        self.sessionless_expired += other.sessionless_expired;
        self.auth_failed += other.auth_failed;
        self.malformed += other.malformed;
        self.slow_readers += other.slow_readers;
        self.limits.merge(&other.limits);
    }
}

/// One connection, for `stat` and `cons`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionReport {
    /// The client's address.
    pub peer: SocketAddr,
    /// Its session; 0 if it has none yet.
    pub session: SessionId,
    /// Session timeout in milliseconds; 0 if it has none yet.
    pub timeout_ms: u32,
    /// Requests taken and not yet answered.
    pub outstanding: usize,
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// When it was established, milliseconds on the shell's clock.
    pub established_ms: u64,
    /// Opcode of the last request answered.
    pub last_op: Option<i32>,
    /// Xid of the last request answered.
    pub last_xid: Xid,
    /// Zxid of the last reply.
    pub last_zxid: i64,
    /// When the last reply was made, milliseconds on the shell's clock.
    pub last_response_ms: u64,
    /// Latency of the last reply in milliseconds.
    pub last_latency_ms: u64,
    /// Latencies of all replies.
    pub latency: Latency,
}

/// What a shard knows about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardReport {
    /// Counters since the start, or since `srst`.
    pub counters: Counters,
    /// Requests taken and not yet answered.
    pub outstanding: usize,
    /// Output in bytes that sockets have not yet taken.
    pub output_bytes: usize,
    /// Numbers of watches.
    pub watches: WatchCounts,
    /// Number of connections.
    pub connection_count: usize,
    /// Their reports, if asked for, in the order of their slots.
    pub connections: Vec<ConnectionReport>,
}

impl ShardReport {
    /// Adds another shard of the same server. A path that both watch counts twice.
    pub fn merge(&mut self, other: Self) {
        self.counters.merge(&other.counters);
        self.outstanding += other.outstanding;
        self.output_bytes += other.output_bytes;
        self.watches.connections += other.watches.connections;
        self.watches.paths += other.watches.paths;
        self.watches.watches += other.watches.watches;
        self.connection_count += other.connection_count;
        self.connections.extend(other.connections);
    }
}

/// Numbers of watches, as `wchs` and `mntr` count them: those of exists, getData and addWatch alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchCounts {
    /// Connections that watch something.
    pub connections: usize,
    /// Paths that are watched.
    pub paths: usize,
    /// Pairs of the two.
    pub watches: usize,
}
