//! The operator's settings for connections.

use super::RequestThrottle;
use crate::fourletter::Whitelist;

/// Settings of a shard. Bounds marked "of this shard" are the server's, divided by the number of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Shortest session timeout granted, in milliseconds (`minSessionTimeout`).
    pub session_timeout_min_ms: u32,
    /// Longest session timeout granted, in milliseconds (`maxSessionTimeout`).
    pub session_timeout_max_ms: u32,
    /// Longest request frame accepted, in bytes (`jute.maxbuffer`).
    pub frame_len_max: usize,
    /// Unanswered requests of this shard, above which a connection that has any of them is not read
    /// (`globalOutstandingLimit`).
    pub outstanding_max: usize,
    /// Bytes of unanswered writes of this shard, above which a connection that has any of them is not read.
    pub outstanding_max_bytes: usize,
    /// ZooKeeper's throttle of requests, with this shard's part of its bounds.
    pub throttle: RequestThrottle,
    /// Output of one connection in bytes, not yet taken by its socket, above which none of its requests is
    /// executed.
    pub output_high_water_bytes: usize,
    /// Output of all connections of this shard in bytes, above which a connection that has some is not
    /// served.
    pub output_total_max_bytes: usize,
    /// Entries that one slice may visit: znodes of its reads, of which longer ones are executed beside the
    /// shard; requests of one connection and the identities that they show; watches of ended connections.
    pub slice_visits_max: usize,
    /// An event for more watchers than this is shared by them; for fewer it is copied, which is cheaper.
    pub notification_copies_max: usize,
    /// Notifications of one slice, and paths whose watches are looked up, above which the publication of
    /// transactions continues in the next one.
    pub notifications_max: usize,
    /// How long a connection may take to present a session, in milliseconds (`nio.sessionlessCnxnTimeout`).
    pub sessionless_timeout_ms: u64,
    /// How often the sessions heard from are reported to the core, in milliseconds.
    pub touch_interval_ms: u64,
    /// Four-letter words that are answered (`4lw.commands.whitelist`).
    pub four_letter_words: Whitelist,
    /// Authentication schemes of which a connection needs one before any request but auth and sasl; empty if
    /// authentication is not enforced (`enforce.auth.enabled` and `enforce.auth.schemes`).
    pub enforced_auth_schemes: Vec<String>,
    /// Logins by SASL.
    pub sasl: crate::sasl::Settings,
    /// Time in microseconds above which a request is slow; 0 for never (`ringkeeper.slowRequestMs`).
    pub slow_above_us: u64,
    /// One request in so many is traced; 0 for none (`ringkeeper.traceSampleRate`).
    pub trace_one_in: u32,
    /// Whether an audit log is kept (`audit.enable`).
    pub audits: bool,
    /// How long a request may wait for its tenant, in milliseconds (`ringkeeper.tenantDelayMaxMs`).
    pub tenant_delay_max_ms: u64,
    /// What requests may do.
    pub rules: crate::settings::Settings,
    /// Seed of the hash functions whose keys clients choose; secret and random in production.
    pub hash_seed: u64,
}

impl Settings {
    /// Watches that setWatches sets in one slice. To set one costs about as much as to visit four znodes.
    #[must_use]
    pub fn watches_of_slice(&self) -> u32 {
        u32::try_from(self.slice_visits_max / 4).unwrap_or(u32::MAX).max(1)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            session_timeout_min_ms: 4_000,
            session_timeout_max_ms: 40_000,
            frame_len_max: ringkeeper_wire::frame::DEFAULT_FRAME_LEN_MAX,
            outstanding_max: 1_000,
            outstanding_max_bytes: 64 << 20,
            throttle: RequestThrottle::default(),
            output_high_water_bytes: 1 << 20,
            output_total_max_bytes: 256 << 20,
            slice_visits_max: 4_000,
            notification_copies_max: 8,
            notifications_max: 20_000,
            sessionless_timeout_ms: 10_000,
            touch_interval_ms: 500,
            four_letter_words: Whitelist::default(),
            enforced_auth_schemes: Vec::new(),
            sasl: crate::sasl::Settings::default(),
            slow_above_us: 100_000,
            trace_one_in: 0,
            audits: false,
            tenant_delay_max_ms: 1_000,
            rules: crate::settings::Settings::default(),
            hash_seed: 0,
        }
    }
}
