//! Faults of the log and its host that can be planted, one at a time, to prove that the simulator detects
//! them.
//!
//! Without the feature `mutations` the checks compile to nothing. With it, a fault is planted for all logs of
//! the thread, since files are accessed by many types that have no settings in production.

ringkeeper_frame::mutations! {
    /// An append is said to be durable without a sync.
    AppendUnsynced,
    /// Recovery does not read the newest segment.
    SkipNewestSegment,
    /// Recovery takes damage to durable data for a torn append.
    TakeDamageForTear,
    /// A purge removes every segment but the newest, whether or not a snapshot covers them.
    PurgeEverything,
    /// Promised epochs are not written: the file stays as it was.
    StaleEpochs,
    /// An append that finds the disk full is said to have succeeded.
    FullDiskSucceeds,
    /// A truncation is reported as done, but becomes durable only with the next append.
    CutUnwritten,
    /// A snapshot has its name before its contents are durable.
    SnapshotUnsynced,
    /// A transfer that was broken off goes on at the wrong offset.
    ResumeBehindGap,
    /// A link sends a message before those that wait for the same write.
    ReorderMessages,
    /// A peer's proof of who it is is not checked.
    AcceptAnyProof,
    /// A new connection of a peer does not wait for the end of the old one.
    KeepOldConnection,
    /// A link does not notice that nothing comes in any more.
    TakeSilence,
    /// Of a peer's addresses only the first one is dialed.
    DialFirstAddress,
    /// A member with a smaller id is never let in where it dials.
    RefuseSmallerIds,
    /// The scrub finds nothing, whatever it reads.
    ScrubBlind,
    /// The scrub reports damage as repaired, and has done nothing.
    RepairUnwritten,
    /// The scrub purges the damaged part of the log, and no snapshot takes its place.
    RepairFromNothing,
    /// A server starts on the folder of another one.
    OtherMemberUnchecked,
    /// A member of an ensemble starts as a server alone.
    AloneUnchecked,
    /// A server starts with a list of voters that its folder's ensemble does not meet.
    OtherVotersUnchecked,
}

#[cfg(feature = "mutations")]
impl Mutation {
    /// Plants this fault in all logs of this thread; returns the one planted before.
    pub fn plant(self) -> Self {
        PLANTED.replace(self)
    }

    /// Whether this fault is planted in the logs of this thread.
    #[must_use]
    pub fn is_planted(self) -> bool {
        PLANTED.get() == self
    }
}

#[cfg(feature = "mutations")]
thread_local! {
    static PLANTED: std::cell::Cell<Mutation> = const { std::cell::Cell::new(Mutation::None) };
}

/// Whether the fault `$name` is planted; plain `false` in production builds. A crate that asks has a feature
/// `mutations` of its own, which enables the one of this crate.
#[macro_export]
macro_rules! planted {
    ($name:ident) => {{
        #[cfg(feature = "mutations")]
        let planted = $crate::mutation::Mutation::$name.is_planted();
        #[cfg(not(feature = "mutations"))]
        let planted = false;
        planted
    }};
}
pub use planted;
