//! Apache's data tree, as much of it as replaying needs: znodes by path, and the ephemerals of each session.
//!
//! A parent sorts before its children, and a znode's descendants lie side by side.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use ringkeeper_engine::acl::Acl;
use ringkeeper_engine::path;
use ringkeeper_engine::tree::Owner;
use ringkeeper_wire::record;

use crate::digest;

record! {
    /// A znode's persisted metadata (`zookeeper.jute`, StatPersisted: 60 bytes).
    #[derive(Default)]
    Stat {
        /// Zxid of its creation.
        czxid: i64,
        /// Zxid of the last setData.
        mzxid: i64,
        /// Time of its creation, milliseconds since the Unix epoch.
        ctime: i64,
        /// Time of the last setData, milliseconds since the Unix epoch.
        mtime: i64,
        /// Number of setData calls.
        version: i32,
        /// Number of children ever created.
        cversion: i32,
        /// Number of setACL calls.
        aversion: i32,
        /// What keeps it alive, see [`Owner::from_raw`].
        owner: i64,
        /// Zxid of the last change of its children.
        pzxid: i64,
    }
}

impl Stat {
    pub(crate) const LEN: usize = 60;
}

/// A znode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Znode {
    /// Its data; null and empty are different.
    pub data: Option<Box<[u8]>>,
    /// Its ACL. `None` if a fuzzy snapshot names a list that it does not hold (ZOOKEEPER-4846).
    pub acl: Option<Acl>,
    /// Its metadata.
    pub stat: Stat,
}

/// All znodes. The root is "/".
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: BTreeMap<Box<str>, Znode>,
    ephemerals: HashMap<i64, BTreeSet<Box<str>>>,
    digest: u64,
}

impl Tree {
    /// The znode `path`.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Znode> {
        self.nodes.get(path)
    }

    /// Every znode with its path, parents first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Znode)> {
        self.nodes.iter().map(|(path, znode)| (&**path, znode))
    }

    /// Everything below `path`, which is not the root.
    pub(crate) fn descendants(&self, path: &str) -> impl Iterator<Item = (&str, &Znode)> {
        let first = format!("{path}/");
        // The character after the slash: every path that begins with `first` is below it.
        let end = format!("{path}0");
        let range = self.nodes.range::<str, _>((Bound::Excluded(&*first), Bound::Excluded(&*end)));
        range.map(|(path, znode)| (&**path, znode))
    }

    /// Number of znodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is not even a root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Apache's digest, version 2.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Adds a znode; gives it back if its path is taken. The parent is the caller's affair.
    pub(crate) fn add(&mut self, path: &str, znode: Znode) -> Result<(), Znode> {
        let Entry::Vacant(vacant) = self.nodes.entry(path.into()) else { return Err(znode) };
        self.digest = self.digest.wrapping_add(digest_of(path, &znode));
        if let Owner::Session(session) = Owner::from_raw(znode.stat.owner) {
            self.ephemerals.entry(session.0).or_default().insert(path.into());
        }
        vacant.insert(znode);
        Ok(())
    }

    /// Takes a znode out.
    pub(crate) fn take(&mut self, path: &str) -> Option<Znode> {
        let znode = self.nodes.remove(path)?;
        self.digest = self.digest.wrapping_sub(digest_of(path, &znode));
        if let Owner::Session(session) = Owner::from_raw(znode.stat.owner)
            && let Some(paths) = self.ephemerals.get_mut(&session.0)
        {
            paths.remove(path);
            if paths.is_empty() {
                self.ephemerals.remove(&session.0);
            }
        }
        Some(znode)
    }

    /// Changes anything of a znode but its owner. Returns whether it is there.
    pub(crate) fn change(&mut self, path: &str, change: impl FnOnce(&mut Znode)) -> bool {
        let Some(znode) = self.nodes.get_mut(path) else { return false };
        let before = digest_of(path, znode);
        change(znode);
        self.digest = self.digest.wrapping_sub(before).wrapping_add(digest_of(path, znode));
        true
    }

    /// The ephemerals of a session.
    pub(crate) fn ephemerals(&self, session: i64) -> Vec<Box<str>> {
        self.ephemerals.get(&session).into_iter().flatten().cloned().collect()
    }

    /// The znodes with their paths, parents first.
    pub(crate) fn into_nodes(self) -> impl Iterator<Item = (Box<str>, Znode)> {
        self.nodes.into_iter()
    }

    /// Whoever owns ephemerals, in the order of their numbers.
    pub(crate) fn owners(&self) -> Vec<i64> {
        let mut owners: Vec<_> = self.ephemerals.keys().copied().collect();
        owners.sort_unstable();
        owners
    }
}

fn digest_of(path: &str, znode: &Znode) -> u64 {
    digest::of_znode(path, znode.data.as_deref(), &znode.stat)
}

/// Everything before the last slash, the root if that is nothing; the root has no parent.
pub(crate) fn parent(path: &str) -> Option<&str> {
    if path == path::ROOT { None } else { path::parent(path) }
}

/// Whether a path is made as a znode's has to be: a slash before each name, and no name empty. Which
/// characters names may have is a matter for requests.
pub(crate) fn is_path(path: &str) -> bool {
    path == path::ROOT
        || path.strip_prefix('/').is_some_and(|names| names.split('/').all(|name| !name.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned_by(owner: i64) -> Znode {
        Znode { data: None, acl: Some(Acl::OPEN), stat: Stat { owner, ..Stat::default() } }
    }

    #[test]
    fn descendants_are_those_below_and_no_others() {
        let mut tree = Tree::default();
        for path in ["/", "/a", "/a-", "/a/b", "/a/b/c", "/a0", "/ab"] {
            tree.add(path, owned_by(0)).expect("all differ");
        }
        let below: Vec<_> = tree.descendants("/a").map(|(path, _)| path).collect();
        assert_eq!(below, ["/a/b", "/a/b/c"]);
    }

    #[test]
    fn the_digest_goes_back_when_a_change_does() {
        let mut tree = Tree::default();
        tree.add("/", owned_by(0)).expect("the first");
        let before = tree.digest();
        tree.add("/a", owned_by(7)).expect("new");
        assert!(tree.change("/a", |znode| znode.stat.version = 3));
        assert_eq!(tree.ephemerals(7), ["/a".into()]);
        assert_ne!(tree.digest(), before);
        tree.take("/a");
        assert_eq!((tree.digest(), tree.owners().len()), (before, 0));
    }

    #[test]
    fn paths_have_names_between_slashes() {
        assert!(["/", "/a", "/a/b", "/ ", "/."].into_iter().all(is_path));
        assert!(!["", "a", "//", "/a/", "/a//b", "a/b"].into_iter().any(is_path));
    }
}
