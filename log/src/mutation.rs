//! Faults of the log and its host that can be planted, one at a time, to prove that the simulator detects
//! them.
//!
//! Without the feature `mutations` the checks compile to nothing. With it, a fault is planted for all logs of
//! the thread, since files are accessed by many types that have no settings in production.

/// A planted fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// The real log.
    #[default]
    None,
    /// An append is said to be durable without a sync.
    #[cfg(feature = "mutations")]
    AppendUnsynced,
    /// Recovery does not read the newest segment.
    #[cfg(feature = "mutations")]
    SkipNewestSegment,
    /// Recovery takes damage to durable data for a torn append.
    #[cfg(feature = "mutations")]
    TakeDamageForTear,
    /// A purge removes every segment but the newest, whether or not a snapshot covers them.
    #[cfg(feature = "mutations")]
    PurgeEverything,
    /// Promised epochs are not written: the file stays as it was.
    #[cfg(feature = "mutations")]
    StaleEpochs,
    /// An append that finds the disk full is said to have succeeded.
    #[cfg(feature = "mutations")]
    FullDiskSucceeds,
    /// A truncation is reported as done, but becomes durable only with the next append.
    #[cfg(feature = "mutations")]
    CutUnwritten,
    /// A snapshot has its name before its contents are durable.
    #[cfg(feature = "mutations")]
    SnapshotUnsynced,
    /// A transfer that was broken off goes on at the wrong offset.
    #[cfg(feature = "mutations")]
    ResumeBehindGap,
    /// A link sends a message before those that wait for the same write.
    #[cfg(feature = "mutations")]
    ReorderMessages,
    /// A peer's proof of who it is is not checked.
    #[cfg(feature = "mutations")]
    AcceptAnyProof,
    /// A new connection of a peer does not wait for the end of the old one.
    #[cfg(feature = "mutations")]
    KeepOldConnection,
    /// A link does not notice that nothing comes in any more.
    #[cfg(feature = "mutations")]
    TakeSilence,
    /// Of a peer's addresses only the first one is dialed.
    #[cfg(feature = "mutations")]
    DialFirstAddress,
    /// A member with a smaller id is never let in where it dials.
    #[cfg(feature = "mutations")]
    RefuseSmallerIds,
    /// The scrub finds nothing, whatever it reads.
    #[cfg(feature = "mutations")]
    ScrubBlind,
    /// The scrub reports damage as repaired, and has done nothing.
    #[cfg(feature = "mutations")]
    RepairUnwritten,
    /// The scrub purges the damaged part of the log, and no snapshot takes its place.
    #[cfg(feature = "mutations")]
    RepairFromNothing,
    /// A server starts on the folder of another one.
    #[cfg(feature = "mutations")]
    OtherMemberUnchecked,
    /// A member of an ensemble starts as a server alone.
    #[cfg(feature = "mutations")]
    AloneUnchecked,
    /// A server starts with a list of voters that its folder's ensemble does not meet.
    #[cfg(feature = "mutations")]
    OtherVotersUnchecked,
}

#[cfg(feature = "mutations")]
impl Mutation {
    /// Every fault there is.
    pub const ALL: [Self; 21] = [
        Self::AppendUnsynced,
        Self::SkipNewestSegment,
        Self::TakeDamageForTear,
        Self::PurgeEverything,
        Self::StaleEpochs,
        Self::FullDiskSucceeds,
        Self::CutUnwritten,
        Self::SnapshotUnsynced,
        Self::ResumeBehindGap,
        Self::ReorderMessages,
        Self::AcceptAnyProof,
        Self::KeepOldConnection,
        Self::TakeSilence,
        Self::DialFirstAddress,
        Self::RefuseSmallerIds,
        Self::ScrubBlind,
        Self::RepairUnwritten,
        Self::RepairFromNothing,
        Self::OtherMemberUnchecked,
        Self::AloneUnchecked,
        Self::OtherVotersUnchecked,
    ];

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
