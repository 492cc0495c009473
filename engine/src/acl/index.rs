//! An index of a long ACL: the cost of a check depends on the caller's identities, not on the entries.

use ringkeeper_wire::{AclEntry, Identity, Perms};

use super::scheme::{self, Network};
use crate::steps;

/// ACLs of at most this many entries are scanned, which is faster than an index.
const READ_ENTRIES_MAX: usize = 16;

/// The permissions of a long ACL by identity. Entries with the same id are merged, so a look-up finds all
/// permissions of an identity.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Permissions of `world:anyone`.
    world: Perms,
    /// Permissions by scheme and id, sorted by these, without repetitions. The number is the index of an
    /// entry.
    exact: Vec<(u32, Perms)>,
    networks: Vec<(Network, Perms)>,
}

impl Index {
    /// `None` for an ACL that is short enough to be scanned.
    pub(super) fn of(entries: &[AclEntry]) -> Option<Self> {
        if entries.len() <= READ_ENTRIES_MAX {
            return None;
        }
        let mut index = Self { world: Perms(0), exact: Vec::new(), networks: Vec::new() };
        for (number, entry) in (0..).zip(entries) {
            if scheme::is_world(entry) {
                index.world.0 |= entry.perms.0;
            } else if entry.scheme == scheme::IP {
                index.networks.extend(Network::parse(&entry.id).map(|network| (network, entry.perms)));
            } else {
                index.exact.push((number, entry.perms));
            }
        }
        index.exact.sort_by_key(|(number, _)| key(&entries[*number as usize]));
        index.exact.dedup_by(|next, kept| {
            let same = key(&entries[next.0 as usize]) == key(&entries[kept.0 as usize]);
            if same {
                kept.1.0 |= next.1.0;
            }
            same
        });
        Some(index)
    }

    /// Whether `entries`, of which this is the index, grant any of `wanted`.
    pub(super) fn grants(&self, entries: &[AclEntry], wanted: Perms, identities: &[Identity]) -> bool {
        self.world.intersects(wanted)
            || identities.iter().any(|who| self.permits(entries, who).intersects(wanted))
    }

    fn permits(&self, entries: &[AclEntry], who: &Identity) -> Perms {
        if who.scheme == scheme::IP {
            let Some(address) = scheme::parse_address(&who.id) else { return Perms(0) };
            steps::count(self.networks.len());
            let matching = self.networks.iter().filter(|(network, _)| network.contains(address));
            return Perms(matching.fold(0, |all, (_, perms)| all | perms.0));
        }
        if scheme::matches_all(who) {
            steps::count(self.exact.len());
            let same_scheme = self.exact.iter().filter(|(at, _)| entries[*at as usize].scheme == who.scheme);
            return Perms(same_scheme.fold(0, |all, (_, perms)| all | perms.0));
        }
        steps::count(1);
        let wanted = (&*who.scheme, &*who.id);
        let found = self.exact.binary_search_by_key(&wanted, |(number, _)| key(&entries[*number as usize]));
        found.map_or(Perms(0), |at| self.exact[at].1)
    }
}

fn key(entry: &AclEntry) -> (&str, &str) {
    (&entry.scheme, &entry.id)
}
