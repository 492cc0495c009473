//! Placement of roles on cores. A role is a task; the placement maps roles to executors, one for each core.

use core_affinity::CoreId;

/// The executors of this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// All roles on one executor. Best up to two cores, since a hop between two parked executors costs more
    /// than the rest of a write.
    Shared {
        /// Shards, as tasks of the executor.
        shards: u16,
    },
    /// The leader core and each shard on a core of its own.
    Pinned { core: CoreId, shards: Vec<CoreId> },
}

impl Placement {
    /// The placement for this machine, with `shards` shards if a number is wanted.
    pub(crate) fn choose(cores: &[CoreId], shards: Option<u16>) -> Self {
        let spare = cores.len().saturating_sub(1);
        match shards {
            _ if cores.len() <= 2 => Self::Shared { shards: shards.unwrap_or(1) },
            Some(wanted) if usize::from(wanted) > spare => Self::Shared { shards: wanted },
            wanted => {
                let count = wanted.map_or(spare, usize::from);
                Self::Pinned { core: cores[0], shards: cores[1..=count].to_vec() }
            }
        }
    }

    /// The number of shards.
    pub(crate) fn shards(&self) -> u16 {
        match self {
            Self::Shared { shards } => *shards,
            Self::Pinned { shards, .. } => u16::try_from(shards.len()).unwrap_or(u16::MAX),
        }
    }
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shared { shards } => write!(f, "one executor for the leader core and {shards} shard(s)"),
            Self::Pinned { core, shards } => {
                write!(f, "leader core on CPU {}, shards on CPUs", core.id)?;
                shards.iter().try_for_each(|shard| write!(f, " {}", shard.id))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(count: usize) -> Vec<CoreId> {
        (0..count).map(|id| CoreId { id }).collect()
    }

    #[test]
    fn up_to_two_cores_everything_shares_one_executor() {
        for count in 0..=2 {
            assert_eq!(Placement::choose(&cores(count), None), Placement::Shared { shards: 1 });
        }
        assert_eq!(Placement::choose(&cores(2), Some(3)), Placement::Shared { shards: 3 });
    }

    #[test]
    fn from_three_cores_up_the_leader_core_and_every_shard_have_their_own() {
        let placement = Placement::choose(&cores(4), None);
        let expected = Placement::Pinned { core: CoreId { id: 0 }, shards: cores(4)[1..].to_vec() };
        assert_eq!(placement, expected);
        assert_eq!(Placement::choose(&cores(4), Some(2)).shards(), 2);
    }

    #[test]
    fn more_shards_than_cores_share_one_executor() {
        assert_eq!(Placement::choose(&cores(3), Some(8)), Placement::Shared { shards: 8 });
    }
}
