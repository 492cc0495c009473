//! Faults of the client that can be planted, one at a time, so that the simulator proves that it would see
//! them.
//!
//! Without the feature `mutations` the checks compile to nothing.

/// A planted fault.
#[cfg(feature = "mutations")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// The real client.
    #[default]
    None,
    /// Watches are not restored on a new connection.
    ForgetWatches,
    /// Events move the zxid up to which a new connection is told that everything was seen.
    CountEventsAsSeen,
    /// Of a request that was sent on a connection that broke, it is said that it was not.
    DenyUncertainty,
    /// A session is certain to live for twice its timeout.
    DoubleLease,
    /// A create whose outcome is unknown is made again, without a look for its znode.
    CreateBlindly,
    /// Who waits in a line takes its turn when the znode before it goes, without a look at the others.
    TakeTurnWhenWoken,
    /// A reader in a line waits for nobody.
    ReadersDoNotWait,
    /// What was given up before it was had leaves its znode behind.
    KeepAbandonedClaims,
    /// A write whose outcome is unknown is repeated.
    RepeatUncertainWrites,
    /// A write whose outcome is unknown counts as made.
    TrustUncertainWrites,
    /// A holder is not told that its znode is gone.
    KeepLossQuiet,
    /// Who reads a configuration does not mind that a change has begun meanwhile.
    ReadHalfChanges,
    /// Who leaves a barrier leaves it ready.
    KeepBarrierReady,
}

#[cfg(feature = "mutations")]
impl Mutation {
    /// Every fault there is.
    pub const ALL: [Self; 13] = [
        Self::ForgetWatches,
        Self::CountEventsAsSeen,
        Self::DenyUncertainty,
        Self::DoubleLease,
        Self::CreateBlindly,
        Self::TakeTurnWhenWoken,
        Self::ReadersDoNotWait,
        Self::KeepAbandonedClaims,
        Self::RepeatUncertainWrites,
        Self::TrustUncertainWrites,
        Self::KeepLossQuiet,
        Self::ReadHalfChanges,
        Self::KeepBarrierReady,
    ];
}

/// Whether the fault `$name` is planted in `$holder`, a client or its core; plain `false` in production
/// builds.
macro_rules! planted {
    ($holder:expr, $name:ident) => {{
        #[cfg(feature = "mutations")]
        let planted = $holder.mutation() == $crate::mutation::Mutation::$name;
        #[cfg(not(feature = "mutations"))]
        let planted = {
            let _ = &$holder;
            false
        };
        planted
    }};
}
pub(crate) use planted;
