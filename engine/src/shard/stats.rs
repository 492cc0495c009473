//! A shard's statistics.

use std::net::SocketAddr;

use ringkeeper_wire::{EventType, SessionId, Xid};

use super::ThrottleCounts;
use super::latency::Unwritten;
use crate::limits::{Limit, LimitCounts};
use crate::message::ShardId;
use crate::metrics::{Distribution, Metric, Samples, Sizes, Summary, Totals, Value, four_places};
use crate::samples;

/// Statistics of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionStats {
    pub(super) received: u64,
    pub(super) sent: u64,
    /// Microseconds.
    pub(super) latency: Totals,
    pub(super) last_latency_us: u64,
    pub(super) unwritten: Unwritten,
    pub(super) last_response_ms: u64,
    pub(super) last_op: Option<i32>,
    pub(super) last_xid: Xid,
    pub(super) last_zxid: i64,
    pub(super) timeout_ms: u32,
}

impl ConnectionStats {
    pub(super) fn new(now_us: u64) -> Self {
        Self {
            received: 0,
            sent: 0,
            latency: Totals::default(),
            last_latency_us: 0,
            unwritten: Unwritten::default(),
            last_response_ms: now_us / super::US_PER_MS,
            last_op: None,
            last_xid: Xid(0),
            last_zxid: 0,
            timeout_ms: 0,
        }
    }

    /// Forgets what happened so far, as `crst` asks.
    pub(super) fn reset(&mut self, now_us: u64) {
        *self = Self { timeout_ms: self.timeout_ms, ..Self::new(now_us) };
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
    /// Sizes of replies.
    pub replies: Sizes,
    /// Notifications sent.
    pub notifications: u64,
    /// Bytes of them.
    pub notification_bytes: u64,
    /// How many connections were notified of one event.
    pub fired: Fired,
    /// Sessions asked for, new and resumed.
    pub connection_requests: u64,
    /// Sessions that clients asked to resume.
    pub sessions_resumed: u64,
    /// Writes whose client was gone when they were committed.
    pub stale_replies: u64,
    /// Sessions refused: expired, moved to another server, or this server is behind the client.
    pub connections_rejected: u64,
    /// Connections closed since the server did not serve.
    pub not_serving: u64,
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
    /// Requests refused by a rule of authorisation.
    pub forbidden: u64,
    /// Requests that were slow.
    pub slow_requests: u64,
    /// Sampled requests that are not told of, since there were too many.
    pub untraced: u64,
    /// What the throttle of requests did.
    pub throttled: ThrottleCounts,
}

impl Counters {
    /// Adds the statistics of another shard.
    pub fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.sent += other.sent;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.replies.merge(&other.replies);
        self.notifications += other.notifications;
        self.notification_bytes += other.notification_bytes;
        self.fired.merge(&other.fired);
        self.connection_requests += other.connection_requests;
        self.sessions_resumed += other.sessions_resumed;
        self.stale_replies += other.stale_replies;
        self.connections_rejected += other.connections_rejected;
        self.not_serving += other.not_serving;
        self.sessionless_expired += other.sessionless_expired;
        self.auth_failed += other.auth_failed;
        self.malformed += other.malformed;
        self.slow_readers += other.slow_readers;
        self.limits.merge(&other.limits);
        self.forbidden += other.forbidden;
        self.slow_requests += other.slow_requests;
        self.untraced += other.untraced;
        self.throttled.merge(&other.throttled);
    }

    fn sample(&self, out: &mut Samples) {
        samples!(out, {
            "packets_received": self.received,
            "packets_sent": self.sent,
            "bytes_received_count": self.received_bytes,
            "response_bytes": self.sent_bytes,
            "watch_bytes": self.notification_bytes,
            "last_client_response_size": self.replies.last,
            "max_client_response_size": self.replies.max,
            "min_client_response_size": self.replies.min,
            "stale_replies": self.stale_replies,
            "connection_request_count": self.connection_requests,
            "connection_revalidate_count": self.sessions_resumed,
            "connection_rejected": self.connections_rejected,
            "cnxn_closed_without_zk_server_running": self.not_serving,
            "sessionless_connections_expired": self.sessionless_expired,
            "auth_failed_count": self.auth_failed,
            "connection_drop_count": self.malformed + self.slow_readers,
            "malformed_connections": self.malformed,
            "slow_reader_connections": self.slow_readers,
            "node_created_watch_count": Summary::amounts(self.fired.created),
            "node_deleted_watch_count": Summary::amounts(self.fired.deleted),
            "node_changed_watch_count": Summary::amounts(self.fired.changed),
            "node_children_watch_count": Summary::amounts(self.fired.children),
            "notifications_sent": self.notifications,
            "rule_refusals": self.forbidden,
            "slow_requests": self.slow_requests,
        });
        self.throttled.sample(out);
        let refused = const { Metric::named("limit_exceeded") };
        for &limit in Limit::ALL {
            out.add_labelled(refused, vec![("key", limit.metric().to_owned())], self.limits.of(limit));
        }
    }
}

/// How many connections were notified of one event, by the kind of event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    created: Totals,
    deleted: Totals,
    changed: Totals,
    children: Totals,
}

impl Fired {
    pub(super) fn record(&mut self, event: EventType, watchers: usize) {
        let totals = match event {
            EventType::NodeCreated => &mut self.created,
            EventType::NodeDeleted => &mut self.deleted,
            EventType::NodeDataChanged => &mut self.changed,
            _ => &mut self.children,
        };
        totals.record(watchers as u64);
    }

    fn merge(&mut self, other: &Self) {
        self.created.merge(&other.created);
        self.deleted.merge(&other.deleted);
        self.changed.merge(&other.changed);
        self.children.merge(&other.children);
    }
}

/// Times of a shard, microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Timings {
    shard: ShardId,
    /// Latencies of requests answered without a transaction.
    pub(super) reads: Distribution,
    /// Latencies of those answered by one.
    pub(super) updates: Distribution,
    /// Of committed groups on their way from the leader core.
    pub(super) deliveries: Distribution,
    /// Of requests in the input, until there was room for them.
    pub(super) inputs: Distribution,
    /// Of replies, until the socket took them.
    pub(super) outputs: Distribution,
}

impl Timings {
    pub(super) fn new(shard: ShardId) -> Self {
        let [reads, updates, deliveries, inputs, outputs] = Default::default();
        Self { shard, reads, updates, deliveries, inputs, outputs }
    }

    /// Of all requests.
    pub(super) fn all(&self) -> Totals {
        let mut all = self.reads.totals();
        all.merge(&self.updates.totals());
        all
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
    /// Latency of the last reply in microseconds.
    pub last_latency_us: u64,
    /// Latencies of all replies in microseconds.
    pub latency: Totals,
}

/// What a shard knows about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShardReport {
    /// Counters since the start, or since `srst`.
    pub counters: Counters,
    /// Latencies of all requests in microseconds.
    pub latency: Totals,
    /// Latencies of each shard, if asked for.
    pub timings: Vec<Timings>,
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
        self.latency.merge(&other.latency);
        self.timings.extend(other.timings);
        self.outstanding += other.outstanding;
        self.output_bytes += other.output_bytes;
        self.watches.connections += other.watches.connections;
        self.watches.paths += other.watches.paths;
        self.watches.watches += other.watches.watches;
        self.watches.child_watches += other.watches.child_watches;
        self.connection_count += other.connection_count;
        self.connections.extend(other.connections);
    }

    /// Adds the metrics of the shards.
    pub fn sample(&self, out: &mut Samples) {
        samples!(out, {
            "avg_latency": four_places(self.latency.average() / 1000.0),
            "max_latency": Value::Time(self.latency.max),
            "min_latency": Value::Time(self.latency.min),
            "num_alive_connections": self.connection_count,
            "outstanding_requests": self.outstanding,
            "watch_count": self.watches.watches + self.watches.child_watches,
            "output_queue_bytes": self.output_bytes,
        });
        self.counters.sample(out);
        let (mut reads, mut updates) = (Distribution::default(), Distribution::default());
        let request_seconds = const { Metric::named("request_seconds") };
        let stage_seconds = const { Metric::named("stage_seconds") };
        for timings in &self.timings {
            reads.merge(&timings.reads);
            updates.merge(&timings.updates);
            for (family, label, kind, times) in [
                (request_seconds, "kind", "read", &timings.reads),
                (request_seconds, "kind", "update", &timings.updates),
                (stage_seconds, "stage", "delivery", &timings.deliveries),
                (stage_seconds, "stage", "input", &timings.inputs),
                (stage_seconds, "stage", "output", &timings.outputs),
            ] {
                let labels = vec![(label, kind.to_owned()), ("shard", timings.shard.0.to_string())];
                out.add_labelled(family, labels, Value::Histogram(times.clone()));
            }
        }
        samples!(out, {
            "readlatency": Summary::times(&reads),
            "updatelatency": Summary::times(&updates),
        });
    }
}

/// Numbers of watches. Those of exists, getData and addWatch are in the data table, which `wchs` shows alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchCounts {
    /// Connections with watches in the data table.
    pub connections: usize,
    /// Paths that are watched there.
    pub paths: usize,
    /// Pairs of the two.
    pub watches: usize,
    /// Pairs in the child table; persistent watches are in both, recursive ones in the data table alone.
    pub child_watches: usize,
}
