//! Faults of a whole server that can be planted, one at a time, to prove that the simulator detects them.
//!
//! [`crate::zab::Mutation`] has the faults of the broadcast. Without the feature `mutations` only the
//! zero-sized `None` exists, and the checks compile to nothing.

/// A planted fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// The real server.
    #[default]
    None,
    /// A read is answered before the writes that its session sent before it.
    #[cfg(feature = "mutations")]
    ReorderReplies,
    /// A write does not wait for the reads of its session that were sent before it.
    #[cfg(feature = "mutations")]
    DropReadBarriers,
    /// setWatches2 registers watches and reports none of the missed events.
    #[cfg(feature = "mutations")]
    ForgetMissedEvents,
    /// The event of a write comes after its reply.
    #[cfg(feature = "mutations")]
    EventAfterReply,
    /// exists leaves no watch if the znode is missing.
    #[cfg(feature = "mutations")]
    ForgetExistWatches,
    /// An expired session leaves its ephemerals behind.
    #[cfg(feature = "mutations")]
    KeepEphemerals,
    /// An ephemeral is created without its owner.
    #[cfg(feature = "mutations")]
    DisownEphemerals,
    /// A write is taken from a connection that has lost its session to another.
    #[cfg(feature = "mutations")]
    IgnoreOwner,
    /// A session that moves leaves its old connection open.
    #[cfg(feature = "mutations")]
    EvictNobody,
    /// The leader publishes, and so answers, what it has only proposed.
    #[cfg(feature = "mutations")]
    ReplyBeforeCommit,
    /// A follower publishes what it has only appended.
    #[cfg(feature = "mutations")]
    PublishOnAppend,
    /// A sync is answered without asking anyone whether the leader still leads.
    #[cfg(feature = "mutations")]
    SyncAlone,
    /// A session is resumed with any password.
    #[cfg(feature = "mutations")]
    AcceptAnyPassword,
    /// A session that has ended is resumed.
    #[cfg(feature = "mutations")]
    ReviveSessions,
    /// The leader ignores which sessions its followers heard from.
    #[cfg(feature = "mutations")]
    IgnoreTouches,
    /// A new leader stamps its own clock's time, even if it is behind times already delivered.
    #[cfg(feature = "mutations")]
    TimeRunsBackwards,
    /// A follower forwards each request batch twice.
    #[cfg(feature = "mutations")]
    ForwardTwice,
    /// The state is not rebuilt after a truncation of transactions that it contains.
    #[cfg(feature = "mutations")]
    KeepCutState,
    /// The leader lets a session own as many ephemerals as it likes.
    #[cfg(feature = "mutations")]
    IgnoreLimits,
    /// A read is answered while the events of a published group are being sent.
    #[cfg(feature = "mutations")]
    ReadInsideGroup,
    /// A notification does not wait for the answer of a long read that was due before it.
    #[cfg(feature = "mutations")]
    NotifyPastLongReads,
    /// The leader prepares multis however many operations are not committed yet.
    #[cfg(feature = "mutations")]
    PrepareAhead,
    /// After a hand-over, a server's old connection takes a session back that has moved on.
    #[cfg(feature = "mutations")]
    TakeOverMovedSessions,
    /// A server takes a session that is being upgraded for a local one on: it answers a close by itself, and
    /// lets the session expire by itself.
    #[cfg(feature = "mutations")]
    KeepUpgradedLocally,
    /// A session is upgraded although its client was told elsewhere that it has expired.
    #[cfg(feature = "mutations")]
    UpgradeEndedSessions,
    /// A server without a leader tells all clients but its own that their sessions have ended.
    #[cfg(feature = "mutations")]
    EndForeignSessions,
    /// A client's watches are all restored in one slice.
    #[cfg(feature = "mutations")]
    RestoreAtOnce,
    /// All events of a publication are sent in one slice.
    #[cfg(feature = "mutations")]
    NotifyAtOnce,
    /// A state that comes from a disk or from a peer has no rules of authorisation.
    #[cfg(feature = "mutations")]
    LoseRules,
    /// A connection's reads are judged by the rules of its first request.
    #[cfg(feature = "mutations")]
    KeepBounds,
    /// Writes are judged by the rules that are committed, without those of the writes before them.
    #[cfg(feature = "mutations")]
    JudgeByCommittedRules,
    /// Events are judged by the rules before the transactions that cause them.
    #[cfg(feature = "mutations")]
    NotifyByOldRules,
    /// The leader raises the feature level although a member cannot do it.
    #[cfg(feature = "mutations")]
    RaiseWhileOneCannot,
    /// The leader makes members of the ensemble that its feature level does not allow.
    #[cfg(feature = "mutations")]
    IgnoreLevel,
}

#[cfg(feature = "mutations")]
impl Mutation {
    /// Every fault there is.
    pub const ALL: [Self; 34] = [
        Self::ReorderReplies,
        Self::DropReadBarriers,
        Self::ForgetMissedEvents,
        Self::EventAfterReply,
        Self::ForgetExistWatches,
        Self::KeepEphemerals,
        Self::DisownEphemerals,
        Self::IgnoreOwner,
        Self::EvictNobody,
        Self::ReplyBeforeCommit,
        Self::PublishOnAppend,
        Self::SyncAlone,
        Self::AcceptAnyPassword,
        Self::ReviveSessions,
        Self::IgnoreTouches,
        Self::TimeRunsBackwards,
        Self::ForwardTwice,
        Self::KeepCutState,
        Self::IgnoreLimits,
        Self::ReadInsideGroup,
        Self::NotifyPastLongReads,
        Self::PrepareAhead,
        Self::TakeOverMovedSessions,
        Self::KeepUpgradedLocally,
        Self::UpgradeEndedSessions,
        Self::EndForeignSessions,
        Self::RestoreAtOnce,
        Self::NotifyAtOnce,
        Self::LoseRules,
        Self::KeepBounds,
        Self::JudgeByCommittedRules,
        Self::NotifyByOldRules,
        Self::RaiseWhileOneCannot,
        Self::IgnoreLevel,
    ];
}

/// Whether the fault `$name` is planted in `$settings`; plain `false` in production builds.
macro_rules! planted {
    ($settings:expr, $name:ident) => {{
        #[cfg(feature = "mutations")]
        let planted = $settings.mutation == $crate::mutation::Mutation::$name;
        #[cfg(not(feature = "mutations"))]
        let planted = {
            let _ = &$settings;
            false
        };
        planted
    }};
}
pub(crate) use planted;
