//! All faults that can be planted, one at a time, to prove that a run detects them.

use std::fmt;

use ringkeeper_engine::{mutation, zab};
use ringkeeper_log::mutation as log;

/// A planted fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// No fault.
    #[default]
    Nothing,
    /// In the service.
    Service(mutation::Mutation),
    /// In the broadcast.
    Broadcast(zab::Mutation),
    /// In the log, the snapshots, and their host.
    Log(log::Mutation),
    /// In the machines: beside leases, clocks run at speeds that are further apart than leases assume.
    UnevenClocks,
}

impl Planted {
    /// Every fault there is.
    pub fn all() -> impl Iterator<Item = Self> {
        let service = mutation::Mutation::ALL.into_iter().map(Self::Service);
        let broadcast = zab::Mutation::ALL.into_iter().map(Self::Broadcast);
        let log = log::Mutation::ALL.into_iter().map(Self::Log);
        service.chain(broadcast).chain(log).chain([Self::UnevenClocks])
    }

    pub(crate) const fn service(self) -> mutation::Mutation {
        if let Self::Service(mutation) = self { mutation } else { mutation::Mutation::None }
    }

    pub(crate) const fn log(self) -> log::Mutation {
        if let Self::Log(mutation) = self { mutation } else { log::Mutation::None }
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
            Self::Log(mutation) => write!(f, "{mutation:?}"),
            Self::UnevenClocks => f.write_str("UnevenClocks"),
        }
    }
}
