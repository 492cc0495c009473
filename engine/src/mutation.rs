//! Faults of a server's decisions that can be planted, one at a time, to prove that the simulator finds them.
//!
//! Each one is a mistake that an implementation has made or could make. Without the feature `mutations` only
//! the zero-sized `None` exists, and the checks compile to nothing.

ringkeeper_frame::mutations! {
    /// A read is answered before the writes that its session sent before it.
    ReorderReplies,
    /// A write does not wait for the reads of its session that were sent before it.
    DropReadBarriers,
    /// setWatches2 registers watches and reports none of the missed events.
    ForgetMissedEvents,
    /// The event of a write comes after its reply.
    EventAfterReply,
    /// exists leaves no watch if the znode is missing.
    ForgetExistWatches,
    /// An expired session leaves its ephemerals behind.
    KeepEphemerals,
    /// An ephemeral is created without its owner.
    DisownEphemerals,
    /// A write is taken from a connection that has lost its session to another.
    IgnoreOwner,
    /// A session that moves leaves its old connection open.
    EvictNobody,
    /// The leader publishes, and so answers, what it has only proposed.
    ReplyBeforeCommit,
    /// A follower publishes what it has only appended.
    PublishOnAppend,
    /// A sync is answered without asking anyone whether the leader still leads.
    SyncAlone,
    /// A session is resumed with any password.
    AcceptAnyPassword,
    /// A session that has ended is resumed.
    ReviveSessions,
    /// The leader ends sessions whose server it has not heard since their time was over.
    EndUnheardSessions,
    /// The leader ignores which sessions its followers heard from.
    IgnoreTouches,
    /// A new leader stamps its own clock's time, even if it is behind times already delivered.
    TimeRunsBackwards,
    /// A follower forwards each request batch twice.
    ForwardTwice,
    /// The state is not rebuilt after a truncation of transactions that it contains.
    KeepCutState,
    /// The leader lets a session own as many ephemerals as it likes.
    IgnoreLimits,
    /// A read is answered while the events of a published group are being sent.
    ReadInsideGroup,
    /// A notification does not wait for the answer of a long read that was due before it.
    NotifyPastLongReads,
    /// The leader prepares multis however many operations are not committed yet.
    PrepareAhead,
    /// After a hand-over, a server's old connection takes a session back that has moved on.
    TakeOverMovedSessions,
    /// A server takes a session that is being upgraded for a local one on: it answers a close by itself, and
    /// lets the session expire by itself.
    KeepUpgradedLocally,
    /// A session is upgraded although its client was told elsewhere that it has expired.
    UpgradeEndedSessions,
    /// A server without a leader tells all clients but its own that their sessions have ended.
    EndForeignSessions,
    /// A client's watches are all restored in one slice.
    RestoreAtOnce,
    /// All events of a publication are sent in one slice.
    NotifyAtOnce,
    /// A state that comes from a disk or from a peer has no rules of authorisation.
    LoseRules,
    /// A connection's reads are judged by the rules of its first request.
    KeepBounds,
    /// Writes are judged by the rules that are committed, without those of the writes before them.
    JudgeByCommittedRules,
    /// Events are judged by the rules before the transactions that cause them.
    NotifyByOldRules,
    /// The leader raises the feature level although a member cannot do it.
    RaiseWhileOneCannot,
    /// The leader makes members of the ensemble that its feature level does not allow.
    IgnoreLevel,

    // Of the broadcast.
    /// A follower acknowledges what it has appended, before the fsync.
    AckBeforeFsync,
    /// The leader commits what one server has acknowledged.
    CommitWithoutQuorum,
    /// A diverged learner is sent the missing batches without a truncation of its own.
    SkipTruncate,
    /// A promise is sent before it is durable.
    PromiseBeforeDurable,
    /// A learner adopts the epoch before the leader's history is durable (ZOOKEEPER-4643, 4646, 3911).
    AdoptBeforeHistoryDurable,
    /// The leader counts its own vote before its own log is durable.
    LeaderVoteBeforeDurable,
    /// Histories are compared by zxid and id, not by the epoch that was adopted.
    CompareWithoutEpoch,
    /// A new leader delivers its whole log before a quorum has it.
    DeliverUncommitted,
    /// A leader reuses the epoch it has promised already.
    ReuseEpoch,
    /// A server promises itself to older epochs too.
    PromiseOlderEpoch,
    /// The server with the highest id leads, whatever its history.
    IgnoreHistory,
    /// A server with a new disk votes as if it remembered (ZOOKEEPER-2832, 1549).
    WipedServerVotes,
    /// A server whose damaged log was cut votes as if its log had never been longer.
    DamagedServerVotes,
    /// Leadership is confirmed to a reader without asking anyone.
    ConfirmWithoutQuorum,
    /// The leader commits with acks of servers that have not adopted its epoch.
    CountAcksBeforeAdoption,
    /// An uncommitted proposal is delivered by a follower when it arrives.
    DeliverOnAppend,
    /// A leader whose disk is full does not resign, even if a quorum of others has room.
    FullLeaderStays,
    /// A server left over from a founding logs another ensemble's proposals before its disk has that number.
    TakeOverLate,
    /// A server with an old copy of its folder votes as if it had all that it has acknowledged.
    OldCopyVotes,
    /// A leader hands over before it has all that its learners have forwarded.
    HandOverEarly,
    /// A leader goes on to propose after it has told its successor to lead.
    ProposeAfterHandOver,
    /// From a change of the members on, the new quorum decides alone.
    NewQuorumAlone,
    /// Until a change of the members is committed, the old quorum decides alone.
    OldQuorumAlone,
    /// What a leader has given up is cut off by servers that have gone on in a newer epoch, too.
    AbandonAnyEpoch,
    /// From a change between majorities and groups on, the new quorum decides alone.
    NewKindAlone,
    /// A follower feeds its observers what is not committed, as if it were.
    FeedUncommitted,
    /// A follower says that it forwards no more while its observers do.
    PauseWithoutObservers,
    /// A learner takes part in an election while a lease that it has granted lasts.
    ElectDuringLease,
    /// A learner forgets at a restart that it may have granted a lease.
    ForgetLease,
    /// The leader uses the whole lease, as if all clocks ran at the same speed.
    WholeLease,
    /// The leader's lease does not go on while the leader's process stands still.
    LeaseOutlastsPause,
    /// A learner appends whatever proposal comes. No ensemble shows it, since its links keep their order.
    SkipContiguityCheck,
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
