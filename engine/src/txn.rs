//! Transactions: what is logged, replicated and applied, and what applying one gives.
//!
//! A transaction is idempotent and complete: it carries the leader's time, resulting versions and owners, so that
//! applying it needs no clock, no check and no knowledge of the request.

use ringkeeper_wire::{ErrorCode, SessionId, Stat, Xid, Zxid};

/// Who a client is: an authentication scheme and an id in it (`zookeeper.jute`, Id).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// `ip`, `digest`, ...
    pub scheme: String,
    /// The id in the scheme.
    pub id: String,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Txn {
    /// Its place in the order of everything.
    pub zxid: Zxid,
    /// The session that asked; 0 for the server itself.
    pub session: SessionId,
    /// The session's number of the request.
    pub xid: Xid,
    /// The leader's time, milliseconds since the Unix epoch.
    pub time_ms: i64,
}

/// What applying a transaction gave: all that a reply needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It failed; nothing changed.
    Failed(ErrorCode),
    /// A znode was created.
    Created {
        /// Its Stat.
        stat: Stat,
    },
}
