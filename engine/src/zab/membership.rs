//! The voters and observers that the log names, when it names any.
//!
//! A server starts with the lists of its configuration. A transaction may replace them
//! ([`Membership::since`]). Which quorums decide depends on what a server knows of that transaction:
//!
//! - It does not have it: those before.
//! - It has it, and does not know whether it is committed: sets that are quorums before and after.
//! - It is committed: those after.
//!
//! The leader counts acks, promises and confirmations by the quorums of its own log, a candidate votes by
//! those of its own. Why that is safe: the transaction is committed once a quorum before and a quorum after
//! hold it durably. Whoever does not have it needs a quorum before, and finds a member with a newer history
//! in it. Who has it uncommitted needs both. Who knows it committed shares a quorum after with the latter.
//! Only one change may be uncommitted at a time, so the quorums of neighbours in the chain of memberships
//! meet, and histories decide between the others.
//!
//! Servers with the same ensemble's log do not compare lists: each decides by the quorums of its own log, and
//! whoever belongs to them counts.

use ringkeeper_wire::{ServerId, Zxid};

use super::quorum::{QuorumSystem, ServerSet};

/// Stands among voters, in [`super::Epochs::voters`] and in messages, when the log names them, so that no
/// list of a configuration is held against them. No server has this id.
pub const NAMED_BY_LOG: ServerId = ServerId(ServerSet::ID_MAX);

/// Voters and observers by a transaction of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The transaction.
    pub since: Zxid,
    /// The voters from there on, and which of their sets are quorums.
    pub voters: QuorumSystem,
    /// Servers that learn without a vote: observers, and participants of weight 0.
    pub observers: ServerSet,
    /// The same before; `None` for those of the server's configuration.
    pub before: Option<QuorumSystem>,
    /// Whether some server has several addresses, of which older builds know nothing.
    pub several_addresses: bool,
}
