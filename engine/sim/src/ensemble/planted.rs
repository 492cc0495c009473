//! Faults that can be planted in what a run tests, one at a time, so that it proves that it would see them.

use std::fmt;

use ringkeeper_engine::{mutation, zab};

/// A planted fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// The real thing.
    #[default]
    Nothing,
    /// In the service.
    Service(mutation::Mutation),
    /// In the broadcast.
    Broadcast(zab::Mutation),
}

impl Planted {
    /// Every fault there is.
    pub fn all() -> impl Iterator<Item = Self> {
        let service = mutation::Mutation::ALL.into_iter().map(Self::Service);
        service.chain(zab::Mutation::ALL.into_iter().map(Self::Broadcast))
    }

    pub(crate) const fn service(self) -> mutation::Mutation {
        if let Self::Service(mutation) = self { mutation } else { mutation::Mutation::None }
    }

    pub(crate) const fn broadcast(self) -> zab::Mutation {
        if let Self::Broadcast(mutation) = self { mutation } else { zab::Mutation::None }
    }
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("None"),
            Self::Service(mutation) => write!(f, "{mutation:?}"),
            Self::Broadcast(mutation) => write!(f, "{mutation:?}"),
        }
    }
}
