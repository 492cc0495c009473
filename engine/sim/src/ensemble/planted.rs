//! All faults that can be planted, one at a time, to prove that a run detects them.

use std::fmt;

use ringkeeper_client::mutation as client;
use ringkeeper_engine::mutation as engine;
use ringkeeper_log::mutation as log;

/// A planted fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// No fault.
    #[default]
    Nothing,
    /// In a server's decisions.
    Engine(engine::Mutation),
    /// In the client library, which only workers have.
    Client(client::Mutation),
    /// In the log, the snapshots, and their host.
    Log(log::Mutation),
    /// In the machines: beside leases, clocks run at speeds that are further apart than leases assume.
    UnevenClocks,
}

impl Planted {
    /// Every fault that an ensemble with plain clients shows.
    pub fn shown_by_plain_clients() -> impl Iterator<Item = Self> {
        use engine::Mutation::{EndUnheardSessions, SkipContiguityCheck};
        let shows = |fault: &&engine::Mutation| !matches!(fault, SkipContiguityCheck | EndUnheardSessions);
        let engine = engine::Mutation::ALL.iter().filter(shows).copied().map(Self::Engine);
        let log = log::Mutation::ALL.iter().copied().map(Self::Log);
        engine.chain(log).chain([Self::UnevenClocks])
    }

    /// Every fault that workers show: those of their library, and what breaks a lease of theirs alone.
    pub fn shown_by_workers() -> impl Iterator<Item = Self> {
        let of_library = client::Mutation::ALL.into_iter().map(Self::Client);
        of_library.chain([Self::Engine(engine::Mutation::EndUnheardSessions)])
    }

    pub(crate) const fn client(self) -> client::Mutation {
        if let Self::Client(mutation) = self { mutation } else { client::Mutation::None }
    }

    pub(crate) const fn engine(self) -> engine::Mutation {
        if let Self::Engine(mutation) = self { mutation } else { engine::Mutation::None }
    }

    pub(crate) const fn log(self) -> log::Mutation {
        if let Self::Log(mutation) = self { mutation } else { log::Mutation::None }
    }
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("None"),
            Self::Engine(mutation) => write!(f, "{mutation:?}"),
            Self::Client(mutation) => write!(f, "{mutation:?}"),
            Self::Log(mutation) => write!(f, "{mutation:?}"),
            Self::UnevenClocks => f.write_str("UnevenClocks"),
        }
    }
}
