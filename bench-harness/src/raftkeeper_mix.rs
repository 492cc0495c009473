//! The mixed workload of RaftKeeper's published benchmark: of a hundred requests, 1 creates, 8 set, 45 get,
//! 45 list and 1 deletes, on 100 children of 50 B.

use rand::Rng;

/// Children that each client has when it begins.
pub(crate) const CHILDREN: u32 = 100;

/// Size of a value, in bytes.
pub(crate) const VALUE_LEN: usize = 50;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    Set,
    Get,
    List,
    Delete,
}

impl Kind {
    /// Any, as often as published.
    pub(crate) fn any(rng: &mut impl Rng) -> Self {
        match rng.random_range(0..100) {
            0 => Self::Create,
            1 => Self::Delete,
            2..10 => Self::Set,
            10..55 => Self::Get,
            _ => Self::List,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn the_requests_are_mixed_as_published() {
        let mut rng = StdRng::seed_from_u64(1);
        let drawn: Vec<Kind> = (0..100_000).map(|_| Kind::any(&mut rng)).collect();
        let published = [
            (Kind::Create, 1000),
            (Kind::Set, 8000),
            (Kind::Get, 45_000),
            (Kind::List, 45_000),
            (Kind::Delete, 1000),
        ];
        for (kind, expected) in published {
            let count = drawn.iter().filter(|drawn| **drawn == kind).count();
            assert!(count.abs_diff(expected) < expected / 5, "{kind:?}: {count}");
        }
    }
}
