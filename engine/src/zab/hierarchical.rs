//! Quorums of voters that stand in groups and have weights, by the rules of ZooKeeper's `QuorumHierarchical`.
//!
//! A set is a quorum if it has more than half of the groups, and it has a group if it has more than half of
//! that group's weight. So a group can be a machine room: of three rooms with three servers each, four
//! servers of two rooms are enough, where a majority would need five.
//!
//! Two quorums share a group, since both have more than half of the groups. Both have more than half of the
//! weight of that group, so they share a server of it.
//!
//! A server of weight 0 adds nothing to any quorum. It is no voter, and learns as an observer does. A group
//! without weight does not count among the groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringkeeper_wire::ServerId;
use xxhash_rust::xxh3::xxh3_64;

use super::quorum::{Quorum, ServerSet};

/// Voters in groups, with weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchical {
    voters: ServerSet,
    /// Those with a weight, by their members. The numbers by which a configuration calls them say nothing.
    groups: Arc<[Group]>,
    /// A number for them that is never 0.
    fingerprint: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    /// The weight of each voter, by rising id; none is 0.
    weights: Vec<(ServerId, u64)>,
    /// Their sum, and the weights of servers that are no voters.
    total: u128,
}

/// One server's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The server.
    pub server: ServerId,
    /// Its group.
    pub group: i64,
    /// What it weighs there.
    pub weight: u64,
    /// Whether it may vote. In ZooKeeper the weight of an observer counts in its group, and nothing that the
    /// observer does.
    pub participates: bool,
}

impl Hierarchical {
    /// The quorums of servers that each have one place.
    #[must_use]
    pub fn new(places: impl IntoIterator<Item = Placed>) -> Self {
        let mut groups: BTreeMap<i64, Group> = BTreeMap::new();
        for Placed { server, group, weight, participates } in places {
            let group = groups.entry(group).or_default();
            group.total += u128::from(weight);
            if participates && weight > 0 {
                group.weights.push((server, weight));
            }
        }
        let mut groups: Vec<Group> = groups.into_values().filter(|group| group.total > 0).collect();
        groups.iter_mut().for_each(|group| group.weights.sort_unstable());
        groups.sort_unstable();
        let voters = groups.iter().flat_map(|group| &group.weights).map(|(server, _)| *server).collect();
        let fingerprint = fingerprint(&groups);
        Self { voters, groups: groups.into(), fingerprint }
    }

    /// A number for the groups and their weights that is never 0. It is kept in folders.
    pub(super) const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

fn fingerprint(groups: &[Group]) -> u64 {
    let mut bytes = Vec::new();
    for group in groups {
        bytes.extend_from_slice(&group.total.to_le_bytes());
        bytes.extend_from_slice(&(group.weights.len() as u64).to_le_bytes());
        for (server, weight) in &group.weights {
            bytes.extend([server.0, *weight].into_iter().flat_map(u64::to_le_bytes));
        }
    }
    xxh3_64(&bytes).max(1)
}

impl Quorum for Hierarchical {
    fn voters(&self) -> &ServerSet {
        &self.voters
    }

    fn is_quorum(&self, set: &ServerSet) -> bool {
        let has = |group: &&Group| {
            let present = group.weights.iter().filter(|(server, _)| set.contains(*server));
            2 * present.map(|(_, weight)| u128::from(*weight)).sum::<u128>() > group.total
        };
        2 * self.groups.iter().filter(has).count() > self.groups.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Server 1 has the first group and weight, server 2 the next, and so on.
    fn system(places: &[(i64, u64)]) -> Hierarchical {
        let numbered = (1..).map(ServerId).zip(places);
        Hierarchical::new(numbered.map(|(server, &(group, weight))| Placed {
            server,
            group,
            weight,
            participates: true,
        }))
    }

    fn set(ids: &[u64]) -> ServerSet {
        ids.iter().copied().map(ServerId).collect()
    }

    const ROOMS: [(i64, u64); 9] = [(1, 1), (1, 1), (1, 1), (2, 1), (2, 1), (2, 1), (3, 1), (3, 1), (3, 1)];

    #[test]
    fn two_servers_of_two_of_three_groups_are_a_quorum() {
        let rooms = system(&ROOMS);
        assert!(rooms.is_quorum(&set(&[1, 2, 4, 5])));
        assert!(!rooms.is_quorum(&set(&[1, 2, 3, 4, 7])), "five of nine, and one group");
        assert!(rooms.is_blocking(&set(&[1, 2, 4, 5])));
        assert!(!rooms.is_blocking(&set(&[1, 2, 4])), "two groups are left");
    }

    #[test]
    fn weight_0_counts_for_nothing_and_a_group_without_weight_is_none() {
        let odd = system(&[(1, 3), (1, 1), (1, 1), (2, 0), (2, 0)]);
        assert_eq!(*odd.voters(), set(&[1, 2, 3]));
        assert!(odd.is_quorum(&set(&[1])), "three of five, in the only group");
        assert!(!odd.is_quorum(&set(&[2, 3, 4, 5])));
        let nobody = system(&[(1, 0), (1, 0)]);
        assert!(nobody.voters().is_empty() && !nobody.is_quorum(&set(&[1, 2])));
        let half = system(&[(1, 2), (1, 1), (1, 1)]);
        assert!(!half.is_quorum(&set(&[1])) && !half.is_quorum(&set(&[2, 3])), "half is not enough");
    }

    #[test]
    fn the_weight_of_an_observer_counts_in_its_group_as_in_zookeeper() {
        let place = |id, participates| Placed { server: ServerId(id), group: 1, weight: 1, participates };
        let with_observer =
            Hierarchical::new([place(1, true), place(2, true), place(3, false), place(4, false)]);
        assert_eq!(*with_observer.voters(), set(&[1, 2]));
        assert!(!with_observer.is_quorum(&set(&[1, 2, 3, 4])), "two of four");
    }

    #[test]
    fn the_fingerprint_tells_groups_and_weights_apart_and_not_the_names_of_groups() {
        let fingerprint = |places: &[(i64, u64)]| system(places).fingerprint();
        let two = fingerprint(&[(1, 1), (1, 1), (2, 1)]);
        assert_eq!(two, fingerprint(&[(7, 1), (7, 1), (-3, 1)]));
        for other in [[(1, 1), (2, 1), (2, 1)], [(1, 1), (1, 2), (2, 1)], [(1, 1), (1, 1), (1, 1)]] {
            assert_ne!(two, fingerprint(&other), "{other:?}");
        }
    }

    /// All systems of up to four servers in up to three groups, with weights up to three.
    fn small_systems() -> impl Iterator<Item = Vec<(i64, u64)>> {
        const PLACES: u32 = 3 * 4;
        (1..=4u32).flat_map(|servers| {
            (0..PLACES.pow(servers)).map(move |number| {
                let place = |server| number / PLACES.pow(server) % PLACES;
                (0..servers)
                    .map(|server| (i64::from(place(server) / 4), u64::from(place(server) % 4)))
                    .collect()
            })
        })
    }

    #[test]
    fn any_two_quorums_share_a_voter_and_a_blocking_set_is_one_that_all_of_them_meet() {
        let mut quorums_seen = 0;
        for places in small_systems() {
            let system = system(&places);
            let sets: Vec<_> =
                (0..1u64 << places.len()).map(|bits| ServerSet::from_words([bits << 1, 0, 0, 0])).collect();
            let quorums: Vec<_> = sets.iter().filter(|set| system.is_quorum(set)).collect();
            quorums_seen += quorums.len();
            let meet = |one: &ServerSet, other: &ServerSet| {
                !one.intersection(other).intersection(system.voters()).is_empty()
            };
            for one in &quorums {
                assert!(quorums.iter().all(|other| meet(one, other)), "{places:?}: {quorums:?}");
            }
            for set in &sets {
                let all_meet = quorums.iter().all(|quorum| meet(quorum, set));
                assert_eq!(system.is_blocking(set), all_meet, "{places:?}: {set:?}");
            }
        }
        assert!(quorums_seen > 100_000, "{quorums_seen}");
    }

    #[test]
    fn one_group_of_equal_weights_has_the_quorums_of_a_majority() {
        for voters in 1..=6u64 {
            let grouped = system(&vec![(1, 2); usize::try_from(voters).expect("few")]);
            let majority = super::super::Majority::new((1..=voters).map(ServerId).collect());
            for bits in 0..1u64 << voters {
                let set = ServerSet::from_words([bits << 1, 0, 0, 0]);
                assert_eq!(grouped.is_quorum(&set), majority.is_quorum(&set), "{voters}: {set:?}");
            }
        }
    }
}
