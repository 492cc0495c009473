//! How much a client may ask for at once, and have kept for it: one table of bounds, each with a setting and
//! a metric.
//!
//! What a client chooses the number, length or list of decides about time and memory of everybody else. So
//! each such thing has a bound here. The shard compares a request with the bounds before it passes the
//! request on, and names the bound in the log; the leader compares again, since its own bounds count and not
//! those of the server that forwards.

mod request;

use ringkeeper_wire::ErrorCode;

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $setting:literal, $metric:literal, $default:expr, $code:ident;)*) => {
        /// A bound on what a client may ask for or have kept. Of bytes unless its name says otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Limit {
            $($(#[$doc])* $name,)*
        }

        impl Limit {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The setting that changes it.
            #[must_use]
            pub const fn setting(self) -> &'static str {
                match self { $(Self::$name => $setting,)* }
            }

            /// The metric that counts what it refused, as `mntr` shows it.
            #[must_use]
            pub const fn metric(self) -> &'static str {
                match self { $(Self::$name => $metric,)* }
            }

            /// What a request above it is answered with, where it is answered and the connection not closed.
            #[must_use]
            pub const fn code(self) -> ErrorCode {
                match self { $(Self::$name => ErrorCode::$code,)* }
            }

            const fn default(self) -> u64 {
                match self { $(Self::$name => $default,)* }
            }
        }
    };
}

limits! {
    /// Operations of one multi or multiRead.
    MultiOperations: "ringkeeper.multiOperationsMax", "multi_operations_limit_exceeded", 10_000, BadArguments;
    /// What a multiRead answers.
    MultiReadBytes: "ringkeeper.multiReadBytesMax", "multi_read_bytes_limit_exceeded", 8 << 20, BadArguments;
    /// What a transaction takes in the log.
    TransactionBytes: "ringkeeper.transactionBytesMax",
        "transaction_bytes_limit_exceeded", 16 << 20, BadArguments;
    /// Entries of a znode's ACL.
    AclEntries: "ringkeeper.aclEntriesMax", "acl_entries_limit_exceeded", 1_000, InvalidAcl;
    /// Schemes and ids of a znode's ACL.
    AclBytes: "ringkeeper.aclBytesMax", "acl_bytes_limit_exceeded", 64 << 10, InvalidAcl;
    /// Identities of a connection.
    Identities: "ringkeeper.identitiesMax", "identities_limit_exceeded", 100, AuthFailed;
    /// Schemes and ids of a connection's identities.
    IdentityBytes: "ringkeeper.identityBytesMax", "identity_bytes_limit_exceeded", 64 << 10, AuthFailed;
    /// Ephemeral znodes of a session.
    Ephemerals: "ringkeeper.ephemeralsMax", "ephemerals_limit_exceeded", 20_000, QuotaExceeded;
    /// Paths of a session's ephemeral znodes.
    EphemeralBytes: "ringkeeper.ephemeralBytesMax", "ephemeral_bytes_limit_exceeded", 16 << 20, QuotaExceeded;
    /// Paths that a connection watches.
    Watches: "ringkeeper.watchesMax", "watches_limit_exceeded", 1_000_000, QuotaExceeded;
    /// The bytes of these paths, each counted for each connection that watches it.
    WatchBytes: "ringkeeper.watchBytesMax", "watch_bytes_limit_exceeded", 128 << 20, QuotaExceeded;
    /// Notifications that wait for a client which does not read.
    UnreadNotificationBytes: "ringkeeper.unreadNotificationBytesMax",
        "unread_notification_bytes_limit_exceeded", 16 << 20, QuotaExceeded;
    /// Znodes under a path whose use is counted, when the znode that shows it is created.
    QuotaZnodes: "ringkeeper.quotaZnodesMax", "quota_znodes_limit_exceeded", 500_000, QuotaExceeded;
    /// Sessions of the ensemble.
    Sessions: "ringkeeper.sessionsMax", "sessions_limit_exceeded", 1_000_000, QuotaExceeded;
}

/// The value of each bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits([u64; Limit::ALL.len()]);

impl Default for Limits {
    fn default() -> Self {
        Self(std::array::from_fn(|index| Limit::ALL[index].default()))
    }
}

impl Limits {
    /// The bound.
    #[must_use]
    pub const fn of(&self, limit: Limit) -> u64 {
        self.0[limit as usize]
    }

    /// These bounds with another one for `limit`.
    #[must_use]
    pub const fn with(mut self, limit: Limit, bound: u64) -> Self {
        self.0[limit as usize] = bound;
        self
    }

    /// Whether so many are within the bound.
    pub(crate) fn allow(&self, limit: Limit, amount: usize) -> bool {
        u64::try_from(amount).is_ok_and(|amount| amount <= self.of(limit))
    }
}

/// Why the leader refuses a request that every server would pass on: it depends on what is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It goes beyond a bound.
    Limit(Limit),
    /// The tree is not to grow while memory is short.
    Memory,
}

impl Refusal {
    /// The setting that decides about it.
    #[must_use]
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Limit(limit) => limit.setting(),
            Self::Memory => "ringkeeper.memoryLimit",
        }
    }

    pub(crate) const fn code(self) -> ErrorCode {
        match self {
            Self::Limit(limit) => limit.code(),
            Self::Memory => ErrorCode::QuotaExceeded,
        }
    }
}

/// How often a leader refused something, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// For a bound.
    pub limits: LimitCounts,
    /// For want of memory.
    pub memory: u64,
}

impl Refusals {
    pub(crate) const fn count(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Limit(limit) => self.limits.count(limit),
            Refusal::Memory => self.memory += 1,
        }
    }
}

/// How often each bound was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitCounts([u64; Limit::ALL.len()]);

impl LimitCounts {
    /// How often `limit` was.
    #[must_use]
    pub const fn of(&self, limit: Limit) -> u64 {
        self.0[limit as usize]
    }

    pub(crate) const fn count(&mut self, limit: Limit) {
        self.0[limit as usize] += 1;
    }

    /// Adds those of another shard.
    pub fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }
}
