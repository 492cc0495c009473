//! The table of ACLs in use, each stored once.
//!
//! An ACL is stored as long as a znode has it. Entries are counted and removed, since clients can make up
//! ACLs without end. Ids are assigned in the order of transactions, the smallest free one first.

use std::ops::Bound;

use imbl::{OrdMap, OrdSet};
use xxhash_rust::xxh3::Xxh3;

use crate::acl::Acl;
use crate::tree::AclId;

#[derive(Clone, Debug, Default)]
pub(crate) struct AclTable {
    rows: OrdMap<u32, Row>,
    ids: OrdMap<Acl, u32>,
    /// Invariant: the keys of `rows` and these are the numbers from 0 upwards, each once.
    free: OrdSet<u32>,
}

#[derive(Clone, Debug)]
struct Row {
    acl: Acl,
    /// Number of znodes with this ACL; never 0.
    users: u64,
    fingerprint: u64,
}

impl AclTable {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn get(&self, id: AclId) -> &Acl {
        if id == AclId::OPEN { &Acl::OPEN } else { &self.row(id).acl }
    }

    /// A hash of the ACL's entries; the id does not count.
    pub(crate) fn fingerprint(&self, id: AclId) -> u64 {
        if id == AclId::OPEN { 0 } else { self.row(id).fingerprint }
    }

    /// The lists after `after` in the order of their ids.
    pub(crate) fn after(&self, after: Option<u32>) -> impl Iterator<Item = (u32, &Acl)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.rows.range((from, Bound::Unbounded)).map(|(&id, row)| (id, &row.acl))
    }

    fn row(&self, id: AclId) -> &Row {
        self.rows.get(&id.0).expect("a znode's ACL is in the table")
    }

    /// Counts one more znode with this ACL.
    pub(crate) fn acquire(&mut self, acl: &Acl) -> AclId {
        if acl.is_open() {
            return AclId::OPEN;
        }
        if let Some(&id) = self.ids.get(acl) {
            self.rows.get_mut(&id).expect("ids name rows").users += 1;
            return AclId(id);
        }
        let id = self.take_free_id();
        self.ids.insert(acl.clone(), id);
        self.rows.insert(id, Row { acl: acl.clone(), users: 1, fingerprint: fingerprint(acl) });
        AclId(id)
    }

    /// Adds an ACL before its znodes, which [`Self::add_users`] counts.
    pub(super) fn announce(&mut self, acl: &Acl) -> AclId {
        let id = self.acquire(acl);
        if id != AclId::OPEN {
            self.row_mut(id).users -= 1;
        }
        id
    }

    /// Counts this many more znodes with the ACL.
    pub(super) fn add_users(&mut self, id: AclId, users: u64) {
        if id != AclId::OPEN {
            self.row_mut(id).users += users;
        }
    }

    /// Removes the announced ACLs that no znode has.
    pub(super) fn forget_unused(&mut self) {
        let unused: Vec<_> = self.rows.iter().filter(|(_, row)| row.users == 0).map(|(id, _)| *id).collect();
        unused.into_iter().for_each(|id| self.remove(id));
    }

    fn row_mut(&mut self, id: AclId) -> &mut Row {
        self.rows.get_mut(&id.0).expect("a znode's ACL is in the table")
    }

    fn remove(&mut self, id: u32) {
        let row = self.rows.remove(&id).expect("was there a moment ago");
        self.ids.remove(&row.acl);
        self.free.insert(id);
    }

    /// Counts one znode less with this ACL.
    pub(crate) fn release(&mut self, id: AclId) {
        if id == AclId::OPEN {
            return;
        }
        let row = self.row_mut(id);
        row.users -= 1;
        if row.users == 0 {
            self.remove(id.0);
        }
    }

    fn take_free_id(&mut self) -> u32 {
        match self.free.remove_min() {
            Some(id) => id,
            None => u32::try_from(self.rows.len()).expect("lists are fewer than znodes, which fit memory"),
        }
    }
}

fn fingerprint(acl: &Acl) -> u64 {
    let mut hasher = Xxh3::new();
    for entry in acl.entries() {
        hasher.update(&entry.perms.0.to_le_bytes());
        for text in [&entry.scheme, &entry.id] {
            hasher.update(&text.len().to_le_bytes());
            hasher.update(text.as_bytes());
        }
    }
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringkeeper_wire::{AclEntry, Perms};

    fn list(user: &str) -> Acl {
        Acl::new(vec![AclEntry { perms: Perms::ALL, scheme: "digest".to_owned(), id: format!("{user}:h") }])
    }

    #[test]
    fn equal_lists_share_an_id() {
        let mut table = AclTable::default();
        let id = table.acquire(&list("a"));
        assert_eq!(table.acquire(&list("a")), id);
        assert_ne!(table.acquire(&list("b")), id);
        assert_eq!(*table.get(id), list("a"));
        assert_eq!(table.acquire(&Acl::OPEN), AclId::OPEN);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn a_list_without_users_is_forgotten_and_its_id_used_again() {
        let mut table = AclTable::default();
        let a = table.acquire(&list("a"));
        let b = table.acquire(&list("b"));
        table.acquire(&list("a"));
        table.release(a);
        assert_eq!(table.len(), 2);
        table.release(a);
        assert_eq!(table.len(), 1);
        assert_eq!(table.acquire(&list("c")), a);
        assert_eq!(*table.get(b), list("b"));
    }

    #[test]
    fn a_clone_keeps_what_the_original_forgets() {
        let mut table = AclTable::default();
        let id = table.acquire(&list("a"));
        let before = table.clone();
        table.release(id);
        assert_eq!(*before.get(id), list("a"));
    }
}
