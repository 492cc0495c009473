//! Sets of servers, and which of them are quorums.

use std::fmt;

use ringkeeper_wire::ServerId;

use super::hierarchical::Hierarchical;

/// A set of servers with ids 0 to 255.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerSet([u64; 4]);

impl ServerSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; 4]);

    /// The largest id a set can hold; `myid` goes up to 254.
    pub const ID_MAX: u64 = 255;

    /// The set with these bits, that of server 0 first.
    #[must_use]
    pub const fn from_words(words: [u64; 4]) -> Self {
        Self(words)
    }

    /// One bit for each server, that of server 0 first.
    #[must_use]
    pub const fn words(&self) -> [u64; 4] {
        self.0
    }

    fn slot(id: ServerId) -> Option<(usize, u64)> {
        let id = u8::try_from(id.0).ok()?;
        Some((usize::from(id / 64), 1 << (id % 64)))
    }

    /// Adds a server; ids over [`Self::ID_MAX`] belong to no ensemble and are left out.
    pub fn insert(&mut self, id: ServerId) {
        if let Some((word, bit)) = Self::slot(id) {
            self.0[word] |= bit;
        }
    }

    /// Removes a server.
    pub fn remove(&mut self, id: ServerId) {
        if let Some((word, bit)) = Self::slot(id) {
            self.0[word] &= !bit;
        }
    }

    /// Whether the server is in the set.
    #[must_use]
    pub fn contains(&self, id: ServerId) -> bool {
        Self::slot(id).is_some_and(|(word, bit)| self.0[word] & bit != 0)
    }

    /// How many servers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Servers of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Servers of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Servers of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// Whether all servers of this set are in the other.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// The servers by rising id.
    pub fn iter(&self) -> impl Iterator<Item = ServerId> + use<> {
        let words = self.0;
        (0..=Self::ID_MAX).map(ServerId).filter(move |id| Self(words).contains(*id))
    }
}

impl FromIterator<ServerId> for ServerSet {
    fn from_iter<I: IntoIterator<Item = ServerId>>(ids: I) -> Self {
        let mut set = Self::EMPTY;
        ids.into_iter().for_each(|id| set.insert(id));
        set
    }
}

impl fmt::Debug for ServerSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|id| id.0)).finish()
    }
}

/// Which sets of voters are quorums. Any two quorums share a server: the safety of Zab depends on it.
pub trait Quorum: fmt::Debug + Send + Sync {
    /// Everyone who may be part of a quorum.
    fn voters(&self) -> &ServerSet;

    /// Whether `set` holds a quorum. Servers that are no voters are ignored.
    fn is_quorum(&self, set: &ServerSet) -> bool;

    /// Whether every quorum contains a server of `set`.
    fn is_blocking(&self, set: &ServerSet) -> bool {
        !self.is_quorum(&self.voters().difference(set))
    }
}

/// Quorums of both of two systems: in force while it is not known whether the change from one to the other is
/// committed.
#[derive(Debug)]
pub(super) struct Joint {
    voters: ServerSet,
    systems: [QuorumSystem; 2],
}

impl Joint {
    /// Quorums of `one` that are quorums of `other` as well.
    pub(super) fn new(one: QuorumSystem, other: QuorumSystem) -> Self {
        Self { voters: one.voters().union(other.voters()), systems: [one, other] }
    }
}

impl Quorum for Joint {
    fn voters(&self) -> &ServerSet {
        &self.voters
    }

    fn is_quorum(&self, set: &ServerSet) -> bool {
        self.systems.iter().all(|system| system.is_quorum(set))
    }
}

/// The quorums that a configuration, or the log, asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuorumSystem {
    /// More than half of the voters.
    Majority(Majority),
    /// Voters in groups, with weights.
    Hierarchical(Hierarchical),
}

impl QuorumSystem {
    /// Majorities of these voters.
    #[must_use]
    pub fn majorities(voters: ServerSet) -> Self {
        Self::Majority(Majority::new(voters))
    }

    /// A number that tells groups and weights apart; 0 for majorities, which have none. With the voters, it
    /// says whether two systems are the same.
    #[must_use]
    pub const fn groups(&self) -> u64 {
        match self {
            Self::Majority(_) => 0,
            Self::Hierarchical(groups) => groups.fingerprint(),
        }
    }
}

impl Quorum for QuorumSystem {
    fn voters(&self) -> &ServerSet {
        match self {
            Self::Majority(system) => system.voters(),
            Self::Hierarchical(system) => system.voters(),
        }
    }

    fn is_quorum(&self, set: &ServerSet) -> bool {
        match self {
            Self::Majority(system) => system.is_quorum(set),
            Self::Hierarchical(system) => system.is_quorum(set),
        }
    }
}

/// More than half of the voters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Majority {
    voters: ServerSet,
    needed: usize,
}

impl Majority {
    /// Majorities of these voters.
    #[must_use]
    pub fn new(voters: ServerSet) -> Self {
        Self { voters, needed: voters.len() / 2 + 1 }
    }
}

impl Quorum for Majority {
    fn voters(&self) -> &ServerSet {
        &self.voters
    }

    fn is_quorum(&self, set: &ServerSet) -> bool {
        set.intersection(&self.voters).len() >= self.needed
    }
}

/// Whether every majority of `before` shares a server with every majority of `after`. If so, no two sets
/// of servers can decide independently while some have the one list of voters and some the other.
#[must_use]
pub fn majorities_meet(before: &ServerSet, after: &ServerSet) -> bool {
    let both = before.intersection(after).len();
    // The least number of shared servers in a majority of `of`, which may contain all its unshared ones.
    let from_both = |of: &ServerSet| (of.len() / 2 + 1).saturating_sub(of.len() - both);
    from_both(before) + from_both(after) > both
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[u64]) -> ServerSet {
        ids.iter().copied().map(ServerId).collect()
    }

    #[test]
    fn a_set_holds_exactly_what_was_inserted() {
        let mut servers = set(&[1, 64, 255, 256]);
        assert_eq!(servers.iter().map(|id| id.0).collect::<Vec<_>>(), [1, 64, 255]);
        servers.remove(ServerId(64));
        assert_eq!(servers.len(), 2);
        assert!(!servers.contains(ServerId(64)) && servers.contains(ServerId(255)));
    }

    #[test]
    fn a_majority_is_more_than_half_of_the_voters() {
        let four = Majority::new(set(&[1, 2, 3, 4]));
        assert!(!four.is_quorum(&set(&[1, 2])));
        assert!(!four.is_quorum(&set(&[1, 2, 9])), "an observer does not count");
        assert!(four.is_quorum(&set(&[1, 2, 4])));
        assert!(four.is_blocking(&set(&[1, 2])));
        assert!(!Majority::new(set(&[1, 2, 3])).is_blocking(&set(&[1])));
    }

    #[test]
    fn a_change_needs_quorums_before_and_after() {
        let list = |ids: &[u64]| QuorumSystem::majorities(set(ids));
        let joint = Joint::new(list(&[1, 2, 3]), list(&[3, 4, 5]));
        assert_eq!(*joint.voters(), set(&[1, 2, 3, 4, 5]));
        assert!(joint.is_quorum(&set(&[1, 3, 4])));
        assert!(!joint.is_quorum(&set(&[1, 2, 3])), "no majority after");
        assert!(!joint.is_quorum(&set(&[3, 4, 5])), "no majority before");
        assert!(joint.is_blocking(&set(&[4, 5])));
    }

    #[test]
    fn majorities_of_two_lists_meet_exactly_if_none_of_their_majorities_are_disjoint() {
        let subsets = |of: u64| (0..1u64 << 5).filter(move |bits| bits & !of == 0);
        let majority = |of: u64, bits: u64| bits.count_ones() > of.count_ones() / 2;
        for before in 1..1u64 << 5 {
            for after in 1..1u64 << 5 {
                let disjoint = subsets(before)
                    .filter(|bits| majority(before, *bits))
                    .any(|one| subsets(after).any(|other| majority(after, other) && one & other == 0));
                let words = |bits| ServerSet::from_words([bits, 0, 0, 0]);
                assert_eq!(
                    majorities_meet(&words(before), &words(after)),
                    !disjoint,
                    "{:?} and {:?}",
                    words(before),
                    words(after)
                );
            }
        }
    }
}
