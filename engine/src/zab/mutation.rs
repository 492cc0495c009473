//! Faults that can be planted, one at a time, to prove that the simulator detects them.
//!
//! Each one is a mistake that an implementation of Zab has made or could make. Without the feature
//! `mutations` none of them can be switched on, and the checks for them compile to nothing.

/// A planted fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// The real protocol.
    #[default]
    None,
    /// A follower acknowledges what it has appended, before the fsync.
    #[cfg(feature = "mutations")]
    AckBeforeFsync,
    /// The leader commits what one server has acknowledged.
    #[cfg(feature = "mutations")]
    CommitWithoutQuorum,
    /// A diverged learner is sent the missing batches without a truncation of its own.
    #[cfg(feature = "mutations")]
    SkipTruncate,
    /// A promise is sent before it is durable.
    #[cfg(feature = "mutations")]
    PromiseBeforeDurable,
    /// A learner adopts the epoch before the leader's history is durable (ZOOKEEPER-4643, 4646, 3911).
    #[cfg(feature = "mutations")]
    AdoptBeforeHistoryDurable,
    /// The leader counts its own vote before its own log is durable.
    #[cfg(feature = "mutations")]
    LeaderVoteBeforeDurable,
    /// Histories are compared by zxid and id, not by the epoch that was adopted.
    #[cfg(feature = "mutations")]
    CompareWithoutEpoch,
    /// A new leader delivers its whole log before a quorum has it.
    #[cfg(feature = "mutations")]
    DeliverUncommitted,
    /// A leader reuses the epoch it has promised already.
    #[cfg(feature = "mutations")]
    ReuseEpoch,
    /// A learner appends whatever proposal comes. Not one of [`Self::ALL`]: a link that keeps its order never
    /// shows it.
    #[cfg(feature = "mutations")]
    SkipContiguityCheck,
    /// A server promises itself to older epochs too.
    #[cfg(feature = "mutations")]
    PromiseOlderEpoch,
    /// The server with the highest id leads, whatever its history.
    #[cfg(feature = "mutations")]
    IgnoreHistory,
    /// A server with a new disk votes as if it remembered (ZOOKEEPER-2832, 1549).
    #[cfg(feature = "mutations")]
    WipedServerVotes,
    /// A server whose damaged log was cut votes as if its log had never been longer.
    #[cfg(feature = "mutations")]
    DamagedServerVotes,
    /// Leadership is confirmed to a reader without asking anyone.
    #[cfg(feature = "mutations")]
    ConfirmWithoutQuorum,
    /// The leader commits with acks of servers that have not adopted its epoch.
    #[cfg(feature = "mutations")]
    CountAcksBeforeAdoption,
    /// A leader whose disk is full does not resign, even if a quorum of others has room.
    #[cfg(feature = "mutations")]
    FullLeaderStays,
    /// A server left over from a founding logs another ensemble's proposals before its disk has that number.
    #[cfg(feature = "mutations")]
    TakeOverLate,
    /// A server with an old copy of its folder votes as if it had all that it has acknowledged.
    #[cfg(feature = "mutations")]
    OldCopyVotes,
    /// A leader hands over before it has all that its learners have forwarded.
    #[cfg(feature = "mutations")]
    HandOverEarly,
    /// A leader goes on to propose after it has told its successor to lead.
    #[cfg(feature = "mutations")]
    ProposeAfterHandOver,
    /// From a change of the members on, the new quorum decides alone.
    #[cfg(feature = "mutations")]
    NewQuorumAlone,
    /// Until a change of the members is committed, the old quorum decides alone.
    #[cfg(feature = "mutations")]
    OldQuorumAlone,
    /// What a leader has given up is cut off by servers that have gone on in a newer epoch, too.
    #[cfg(feature = "mutations")]
    AbandonAnyEpoch,
    /// From a change between majorities and groups on, the new quorum decides alone.
    #[cfg(feature = "mutations")]
    NewKindAlone,
    /// An uncommitted proposal is delivered by a follower when it arrives.
    #[cfg(feature = "mutations")]
    DeliverOnAppend,
    /// A follower feeds its observers what is not committed, as if it were.
    #[cfg(feature = "mutations")]
    FeedUncommitted,
    /// A follower says that it forwards no more while its observers do.
    #[cfg(feature = "mutations")]
    PauseWithoutObservers,
    /// A learner takes part in an election while a lease that it has granted lasts.
    #[cfg(feature = "mutations")]
    ElectDuringLease,
    /// A learner forgets at a restart that it may have granted a lease.
    #[cfg(feature = "mutations")]
    ForgetLease,
    /// The leader uses the whole lease, as if all clocks ran at the same speed.
    #[cfg(feature = "mutations")]
    WholeLease,
    /// The leader's lease does not go on while the leader's process stands still.
    #[cfg(feature = "mutations")]
    LeaseOutlastsPause,
}

#[cfg(feature = "mutations")]
impl Mutation {
    /// Every fault that an ensemble shows.
    pub const ALL: [Self; 31] = [
        Self::AckBeforeFsync,
        Self::CommitWithoutQuorum,
        Self::SkipTruncate,
        Self::PromiseBeforeDurable,
        Self::AdoptBeforeHistoryDurable,
        Self::LeaderVoteBeforeDurable,
        Self::CompareWithoutEpoch,
        Self::DeliverUncommitted,
        Self::ReuseEpoch,
        Self::PromiseOlderEpoch,
        Self::IgnoreHistory,
        Self::WipedServerVotes,
        Self::DamagedServerVotes,
        Self::ConfirmWithoutQuorum,
        Self::CountAcksBeforeAdoption,
        Self::DeliverOnAppend,
        Self::FullLeaderStays,
        Self::TakeOverLate,
        Self::OldCopyVotes,
        Self::HandOverEarly,
        Self::ProposeAfterHandOver,
        Self::NewQuorumAlone,
        Self::OldQuorumAlone,
        Self::AbandonAnyEpoch,
        Self::NewKindAlone,
        Self::FeedUncommitted,
        Self::PauseWithoutObservers,
        Self::ElectDuringLease,
        Self::ForgetLease,
        Self::WholeLease,
        Self::LeaseOutlastsPause,
    ];
}

/// Whether the fault `$name` is planted in `$config`; plain `false` in production builds.
macro_rules! planted {
    ($config:expr, $name:ident) => {{
        #[cfg(feature = "mutations")]
        let planted = $config.mutation == $crate::zab::Mutation::$name;
        #[cfg(not(feature = "mutations"))]
        let planted = {
            let _ = &$config;
            false
        };
        planted
    }};
}
pub(super) use planted;
