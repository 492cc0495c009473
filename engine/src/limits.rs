//! Bounds on what a client may request at once and have stored: one table, each with a setting and a metric.
//!
//! A number or length that a client chooses costs time and memory that everybody shares, so each has a bound
//! here. The shard checks a request before it forwards the request, and logs the bound that was exceeded. The
//! leader checks again, since the bounds of the leader apply, not those of the server that forwards.

mod request;

use ringkeeper_wire::ErrorCode;

use crate::authorisation::InvalidRuleZnode;
use crate::level::{FeatureLevel, Level};
use crate::tenants::{InvalidLimits, Resource};

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $setting:literal, $metric:literal, $default:expr, $code:ident;)*) => {
        /// A bound on what a client may request or have stored, in bytes unless the name says otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Limit {
            $($(#[$doc])* $name,)*
        }

        impl Limit {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The setting that changes the bound.
            #[must_use]
            pub const fn setting(self) -> &'static str {
                match self { $(Self::$name => $setting,)* }
            }

            /// Its name in the metric `limit_exceeded`, which counts the requests refused for this bound.
            #[must_use]
            pub const fn metric(self) -> &'static str {
                match self { $(Self::$name => $metric,)* }
            }

            /// The error code of a request that exceeds the bound, where the connection is not closed
            /// instead.
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
    MultiOperations: "ringkeeper.multiOperationsMax", "multi_operations", 10_000, BadArguments;
    /// The reply to a multiRead.
    MultiReadBytes: "ringkeeper.multiReadBytesMax", "multi_read_bytes", 8 << 20, BadArguments;
    /// A transaction in the log.
    TransactionBytes: "ringkeeper.transactionBytesMax",
        "transaction_bytes", 16 << 20, BadArguments;
    /// Entries of a znode's ACL.
    AclEntries: "ringkeeper.aclEntriesMax", "acl_entries", 1_000, InvalidAcl;
    /// Schemes and ids of a znode's ACL.
    AclBytes: "ringkeeper.aclBytesMax", "acl_bytes", 64 << 10, InvalidAcl;
    /// Identities of a connection.
    Identities: "ringkeeper.identitiesMax", "identities", 100, AuthFailed;
    /// Schemes and ids of a connection's identities.
    IdentityBytes: "ringkeeper.identityBytesMax", "identity_bytes", 64 << 10, AuthFailed;
    /// Ephemeral znodes of a session.
    Ephemerals: "ringkeeper.ephemeralsMax", "ephemerals", 20_000, QuotaExceeded;
    /// Paths of a session's ephemeral znodes.
    EphemeralBytes: "ringkeeper.ephemeralBytesMax", "ephemeral_bytes", 16 << 20, QuotaExceeded;
    /// Paths that a connection watches.
    Watches: "ringkeeper.watchesMax", "watches", 1_000_000, QuotaExceeded;
    /// The bytes of these paths, each counted for each connection that watches it.
    WatchBytes: "ringkeeper.watchBytesMax", "watch_bytes", 128 << 20, QuotaExceeded;
    /// Notifications that wait for a client which does not read.
    UnreadNotificationBytes: "ringkeeper.unreadNotificationBytesMax",
        "unread_notification_bytes", 16 << 20, QuotaExceeded;
    /// Memory of these for all clients together; shared bytes count once. Those with most are disconnected.
    UnreadNotificationBytesTotal: "ringkeeper.unreadNotificationBytesTotalMax",
        "unread_notification_bytes_total", 64 << 20, QuotaExceeded;
    /// Znodes below a path that are visited to count its use, when the znode that shows the use is created.
    QuotaZnodes: "ringkeeper.quotaZnodesMax", "quota_znodes", 500_000, QuotaExceeded;
    /// Rules of authorisation.
    Rules: "ringkeeper.rulesMax", "rules", 100_000, QuotaExceeded;
    /// The text of a rule.
    RuleBytes: "ringkeeper.ruleBytesMax", "rule_bytes", 64 << 10, BadArguments;
    /// Subtrees with limits.
    Tenants: "ringkeeper.tenantsMax", "tenants", 10_000, QuotaExceeded;
    /// Sessions of the ensemble.
    Sessions: "ringkeeper.sessionsMax", "sessions", 1_000_000, QuotaExceeded;
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

    /// Whether `amount` is within the bound.
    pub(crate) fn allow(&self, limit: Limit, amount: usize) -> bool {
        u64::try_from(amount).is_ok_and(|amount| amount <= self.of(limit))
    }
}

/// Why the leader refuses a request that passed the checks of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It exceeds a bound.
    #[error("it would go beyond what {} allows", .0.setting())]
    Limit(Limit),
    /// Memory is short, and the request would make the tree grow.
    #[error("memory is short, see ringkeeper.memoryLimit")]
    Memory,
    /// It would make a znode a rule of authorisation that is none.
    #[error("the znode would hold no valid rule: {0}")]
    Rule(InvalidRuleZnode),
    /// It would set limits for a tenant that cannot be set.
    #[error("these limits cannot be set: {0}")]
    TenantLimits(InvalidLimits),
    /// It goes beyond a limit of its tenant.
    #[error("its tenant would have more {0} than it may")]
    Tenant(Resource),
    /// The members would use what not all of them may know.
    #[error(
        "{} need feature level {needed}, and the ensemble has {level} (ringkeeper admin feature-level)",
        .needed.feature().map_or_else(String::new, |feature| feature.to_string())
    )]
    Level {
        /// The level from which on the change is allowed.
        needed: Level,
        /// That of the ensemble.
        level: FeatureLevel,
    },
}

impl Refusal {
    pub(crate) const fn code(self) -> ErrorCode {
        match self {
            Self::Limit(limit) => limit.code(),
            Self::Memory | Self::Tenant(_) => ErrorCode::QuotaExceeded,
            Self::Rule(_) | Self::TenantLimits(_) | Self::Level { .. } => ErrorCode::BadArguments,
        }
    }
}

/// Number of refusals by a leader, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Because of a bound.
    pub limits: LimitCounts,
    /// Because memory was short.
    pub memory: u64,
}

impl Refusals {
    pub(crate) const fn count(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Limit(limit) => self.limits.count(limit),
            Refusal::Memory => self.memory += 1,
            // Those of a tenant are counted by its meter.
            Refusal::Rule(_) | Refusal::TenantLimits(_) | Refusal::Tenant(_) | Refusal::Level { .. } => {}
        }
    }
}

/// How often each bound was exceeded.
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
