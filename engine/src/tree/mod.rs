//! The znodes, as a persistent value: cloning a [`Tree`] is one reference count, and a clone never changes
//! when the other does.
//!
//! All znodes lie in one copy-on-write B+tree, ordered by a key of which the upper half is a hash of the
//! parent's path and the lower half of the whole path (`key.rs`). So the children of a znode lie side by
//! side: a listing is a scan, there is no index of children to keep, and a lookup costs the same at any
//! depth. A znode is one allocation (`znode.rs`); the full path of a directory is held once, shared by its
//! children.
//!
//! The tree applies what it is told. Path, ACL and version are checked before a transaction is made.

mod btree;
mod cursor;
mod entries;
mod key;
mod load;
mod owner;
mod walk;
mod znode;

#[cfg(test)]
mod tests;

pub(crate) use entries::IntoEntries;
pub use load::Misplaced;
pub(crate) use load::{Loader, Run, RunMaker};
pub use owner::Owner;
pub use walk::{Children, Descendants, Nodes};
pub use znode::{AclId, Znode, ZnodeMeta};

use btree::{BTree, Position, Vacancy};
use key::Keys;
use ringkeeper_wire::Zxid;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use znode::Directory;

/// Znodes that exist from the beginning, parents first, each with its number of children.
const BUILT_IN: [(&str, u32); 4] =
    [("/", 1), ("/zookeeper", 2), ("/zookeeper/quota", 0), ("/zookeeper/config", 0)];

/// A znode to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewZnode<'a> {
    /// Its data; `None` is null, which clients can tell from empty.
    pub data: Option<&'a [u8]>,
    /// Its ACL.
    pub acl: AclId,
    /// What keeps it alive.
    pub owner: Owner,
    /// The creating transaction.
    pub zxid: Zxid,
    /// The transaction's time, milliseconds since the Unix epoch.
    pub time: i64,
    /// The parent's persisted cversion after this creation; -1 (logs before ZooKeeper 3.4) means one more
    /// than now. If the parent's cversion is as high already (in a replay), the parent's cversion and pzxid
    /// stay.
    pub parent_cversion: i32,
}

/// Result of a creation. It contains everything that the caller needs, since on a big tree each further
/// look-up waits for memory.
#[derive(Clone, Copy, Debug)]
pub struct Inserted {
    /// The new znode's metadata.
    pub meta: ZnodeMeta,
    /// Its parent's as it was.
    pub parent_before: ZnodeMeta,
    /// Its parent's now.
    pub parent_now: ZnodeMeta,
}

/// Result of a deletion.
#[derive(Clone, Debug)]
pub struct Removed {
    /// The znode that was deleted.
    pub znode: Znode,
    /// Its parent's metadata as it was.
    pub parent_before: ZnodeMeta,
    /// Its parent's now.
    pub parent_now: ZnodeMeta,
}

/// Why a znode was not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// Its parent does not exist.
    #[error("the parent does not exist")]
    NoParent,
    /// There is a znode of this path.
    #[error("the znode exists already")]
    NodeExists,
}

/// Why a znode was not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoveError {
    /// There is none of this path.
    #[error("the znode does not exist")]
    NoNode,
    /// It has children.
    #[error("the znode has children")]
    NotEmpty,
}

/// The znode does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the znode does not exist")]
pub struct NoNode;

/// A znode whose parent does not exist, found by [`Tree::recount_children`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} has no parent")]
pub struct Orphan {
    /// The path of one such znode.
    pub path: String,
}

/// All znodes at one moment.
#[derive(Clone)]
pub struct Tree {
    nodes: BTree<Znode>,
    keys: Keys,
    data_size: u64,
}

impl Tree {
    /// The tree of a new ensemble: only the built-in znodes, whose Stats are all zero. Their creation was
    /// never counted, so "/" shows clients the cversion -1 and "/zookeeper" -2, as in ZooKeeper.
    ///
    /// `seed` keys the hash that orders the tree; clients should not be able to guess it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut tree = Self::empty(seed);
        for (path, num_children) in BUILT_IN {
            let meta =
                ZnodeMeta { num_children, ..ZnodeMeta::fresh(Zxid::ZERO, 0, AclId::OPEN, Owner::None) };
            tree.restore(path, &meta, Some(&[])).expect("the built-in paths are distinct");
        }
        tree
    }

    /// A tree without even a root, to be filled by [`Self::restore`].
    #[must_use]
    pub fn empty(seed: u64) -> Self {
        Self { nodes: BTree::new(), keys: Keys::new(seed), data_size: 0 }
    }

    /// A tree in whose keys only the bits of `mask` differ.
    #[cfg(test)]
    fn with_collisions(seed: u64, mask: u64) -> Self {
        let mut tree = Self { keys: Keys::degenerate(seed, mask), ..Self::empty(seed) };
        for znode in Self::new(seed).nodes() {
            tree.restore(&znode.path(), &znode.meta(), znode.data()).expect("taken from a tree");
        }
        tree
    }

    /// The znode `path`.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Znode> {
        let (parent, name) = key::split(path)?;
        self.nodes.find(self.keys.of(path, parent), |znode| znode.is_at(parent, name))
    }

    /// Prefetches the znodes of `paths`, so that the writes that follow do not wait for memory one by one. If
    /// this tree is `shared` with clones, it prefetches what a change copies, too. Changes nothing.
    pub(crate) fn prefetch<'p>(&self, paths: impl Iterator<Item = &'p str>, shared: bool) {
        let key = |path| key::split(path).map(|(parent, _)| self.keys.of(path, parent));
        let keys: SmallVec<[u64; 64]> = paths.filter_map(key).collect();
        self.nodes.visit(&keys, shared, |znode| {
            std::hint::black_box(znode.references());
        });
    }

    /// The children of `path` with their names, in an order that depends on the seed alone. Empty if it does
    /// not exist. Costs a scan of the children, allocates nothing.
    #[must_use]
    pub fn children(&self, path: &str) -> Children<'_> {
        Children::new(self, path)
    }

    /// Everything below `path`, without itself, each parent before its children.
    #[must_use]
    pub fn descendants(&self, path: &str) -> Descendants<'_> {
        Descendants::new(self, path)
    }

    /// Every znode, in an order that depends on the seed alone; a parent may come after its children.
    #[must_use]
    pub fn nodes(&self) -> Nodes<'_> {
        Nodes::new(self)
    }

    /// Every znode with its key, in the order of the keys. What was returned is no longer held, so clones of
    /// this tree that change need not copy it.
    pub(crate) fn into_entries(self) -> IntoEntries<Znode> {
        IntoEntries::new(self.nodes.root)
    }

    /// What orders the tree, see [`Self::new`].
    pub(crate) const fn seed(&self) -> u64 {
        self.keys.seed()
    }

    /// Number of znodes, the built-in ones included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is not even a root.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all paths and data: ZooKeeper's `approximate_data_size`.
    #[must_use]
    pub const fn data_size(&self) -> u64 {
        self.data_size
    }

    /// Creates a znode and counts it in its parent.
    ///
    /// # Errors
    /// If the parent is missing or the znode exists; nothing is changed then.
    pub fn insert(&mut self, path: &str, new: &NewZnode<'_>) -> Result<Inserted, InsertError> {
        let (parent, name) = key::split(path).ok_or(InsertError::NoParent)?;
        let key = self.keys.of(path, parent);
        let (vacancy, directory) = self.vacancy(key, parent, name)?;
        let parent_position = self.locate(parent).ok_or(InsertError::NoParent)?;
        let parent_znode = self.nodes.value_mut(&parent_position);
        let parent_before = parent_znode.meta();
        let parent_now = count_created(parent_before, new);
        parent_znode.set_meta(&parent_now);
        let had_children = parent_before.num_children > 0;
        let directory = directory
            .or_else(|| if had_children { self.directory_of_children(parent) } else { None })
            .unwrap_or_else(|| Directory::new(parent));
        let meta = ZnodeMeta::fresh(new.zxid, new.time, new.acl, new.owner);
        // Only a value has changed since the vacancy was found, so it is still valid.
        self.add(&vacancy, key, Znode::new(directory, name, &meta, new.data));
        Ok(Inserted { meta, parent_before, parent_now })
    }

    /// Inserts a znode as it is in a snapshot, in any order, and leaves its parent's metadata unchanged.
    ///
    /// # Errors
    /// If the znode exists. A path without a slash has no parent.
    pub fn restore(&mut self, path: &str, meta: &ZnodeMeta, data: Option<&[u8]>) -> Result<(), InsertError> {
        let (parent, name) = key::split(path).ok_or(InsertError::NoParent)?;
        let key = self.keys.of(path, parent);
        let (vacancy, directory) = self.vacancy(key, parent, name)?;
        let directory = directory
            .or_else(|| self.directory_of_children(parent))
            .unwrap_or_else(|| Directory::new(parent));
        self.add(&vacancy, key, Znode::new(directory, name, meta, data));
        Ok(())
    }

    /// Deletes a childless znode, decrements its parent's number of children, and raises the parent's pzxid
    /// to `zxid`.
    ///
    /// # Errors
    /// If it does not exist, has children or is the root; nothing is changed then.
    pub fn remove(&mut self, path: &str, zxid: Zxid) -> Result<Removed, RemoveError> {
        let (parent, _) = key::split(path).ok_or(RemoveError::NoNode)?;
        let position = self.locate(path).ok_or(RemoveError::NoNode)?;
        if self.nodes.value(&position).num_children() > 0 {
            return Err(RemoveError::NotEmpty);
        }
        let parent_position = self.locate(parent).ok_or(RemoveError::NoNode)?;
        let parent_znode = self.nodes.value_mut(&parent_position);
        let parent_before = parent_znode.meta();
        let num_children = parent_before.num_children.saturating_sub(1);
        let parent_now = ZnodeMeta { num_children, pzxid: parent_before.pzxid.max(zxid), ..parent_before };
        parent_znode.set_meta(&parent_now);
        let znode = self.nodes.remove(&position);
        self.data_size -= size_of_contents(&znode);
        Ok(Removed { znode, parent_before, parent_now })
    }

    /// Replaces the data; `version` is the new one, `time` in milliseconds since the Unix epoch. Calls
    /// `before` with the old znode and returns the new one.
    ///
    /// # Errors
    /// If the znode does not exist.
    pub fn set_data(
        &mut self,
        path: &str,
        data: Option<&[u8]>,
        version: i32,
        zxid: Zxid,
        time: i64,
        before: impl FnOnce(&Znode),
    ) -> Result<&Znode, NoNode> {
        self.replace_data(path, data, before, |meta| {
            meta.version = version;
            meta.mzxid = zxid;
            meta.mtime = time;
        })
    }

    /// Replaces the data, and of the Stat only its length: for the server's own bookkeeping (quota).
    ///
    /// # Errors
    /// If the znode does not exist.
    pub fn overwrite_data_quietly(&mut self, path: &str, data: Option<&[u8]>) -> Result<(), NoNode> {
        self.replace_data(path, data, |_| (), |_| ()).map(|_| ())
    }

    /// Replaces the ACL; `aversion` is the new one.
    ///
    /// # Errors
    /// If the znode does not exist.
    pub fn set_acl(&mut self, path: &str, acl: AclId, aversion: i32) -> Result<(), NoNode> {
        self.change_meta(path, |meta| {
            meta.acl = acl;
            meta.aversion = aversion;
        })
    }

    /// Raises cversion to `cversion` and pzxid to `zxid`, unless cversion is as high already: the replay of a
    /// creation that the snapshot contains. -1 means one more than now.
    ///
    /// # Errors
    /// If the znode does not exist.
    pub fn raise_cversion(&mut self, path: &str, cversion: i32, zxid: Zxid) -> Result<(), NoNode> {
        self.change_meta(path, |meta| raise_cversion(meta, cversion, zxid))
    }

    /// Recounts the children of every znode, after [`Self::restore`] from a source without these numbers.
    ///
    /// # Errors
    /// If a parent is missing; counts are unchanged then.
    pub fn recount_children(&mut self) -> Result<(), Orphan> {
        let mut counts = BTreeMap::<&str, (u32, &Znode)>::new();
        for znode in self.nodes().filter(|znode| !znode.parent_path().is_empty()) {
            counts.entry(znode.parent_path()).or_insert((0, znode)).0 += 1;
        }
        if let Some((_, (_, child))) = counts.iter().find(|(parent, _)| self.get(parent).is_none()) {
            return Err(Orphan { path: child.path() });
        }
        let mut path = String::new();
        let mut wrong = Vec::new();
        for znode in self.nodes() {
            znode.write_path(&mut path);
            let count = counts.get(path.as_str()).map_or(0, |&(count, _)| count);
            if count != znode.num_children() {
                wrong.push((path.clone(), count));
            }
        }
        for (path, count) in wrong {
            self.change_meta(&path, |meta| meta.num_children = count).expect("seen a moment ago");
        }
        Ok(())
    }

    /// Checks that the znode does not exist, and returns its place, with its directory if a neighbour in the
    /// tree's order is a sibling (in a large directory nearly always).
    fn vacancy(
        &self,
        key: u64,
        parent: &str,
        name: &str,
    ) -> Result<(Position, Option<Directory>), InsertError> {
        let Vacancy { position, neighbours } =
            self.nodes.vacancy(key, |znode| znode.is_at(parent, name)).ok_or(InsertError::NodeExists)?;
        let sibling = neighbours.into_iter().flatten().find(|znode| znode.is_child_of(parent));
        Ok((position, sibling.map(|znode| znode.directory().clone())))
    }

    fn directory_of_children(&self, parent: &str) -> Option<Directory> {
        self.children(parent).next().map(|(_, child)| child.directory().clone())
    }

    fn locate(&self, path: &str) -> Option<Position> {
        let (parent, name) = key::split(path)?;
        self.nodes.locate(self.keys.of(path, parent), |znode| znode.is_at(parent, name))
    }

    fn add(&mut self, vacancy: &Position, key: u64, znode: Znode) {
        self.data_size += size_of_contents(&znode);
        self.nodes.insert(vacancy, key, znode);
    }

    fn change_meta(&mut self, path: &str, change: impl FnOnce(&mut ZnodeMeta)) -> Result<(), NoNode> {
        let position = self.locate(path).ok_or(NoNode)?;
        let znode = self.nodes.value_mut(&position);
        let mut meta = znode.meta();
        change(&mut meta);
        znode.set_meta(&meta);
        Ok(())
    }

    fn replace_data(
        &mut self,
        path: &str,
        data: Option<&[u8]>,
        was: impl FnOnce(&Znode),
        change: impl FnOnce(&mut ZnodeMeta),
    ) -> Result<&Znode, NoNode> {
        let position = self.locate(path).ok_or(NoNode)?;
        let znode = self.nodes.value_mut(&position);
        was(znode);
        let before = size_of_contents(znode);
        let mut meta = znode.meta();
        change(&mut meta);
        znode.set_data(&meta, data);
        self.data_size = self.data_size - before + size_of_contents(znode);
        Ok(znode)
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("len", &self.len()).field("data_size", &self.data_size).finish()
    }
}

/// The parent's metadata when it has one child more.
fn count_created(parent: ZnodeMeta, new: &NewZnode<'_>) -> ZnodeMeta {
    let mut now = ZnodeMeta { num_children: parent.num_children + 1, ..parent };
    raise_cversion(&mut now, new.parent_cversion, new.zxid);
    now
}

fn raise_cversion(meta: &mut ZnodeMeta, cversion: i32, zxid: Zxid) {
    let cversion = if cversion == -1 { meta.cversion.wrapping_add(1) } else { cversion };
    if cversion.wrapping_sub(meta.cversion) > 0 {
        meta.cversion = cversion;
        meta.pzxid = zxid;
    }
}

/// The contribution of a znode to [`Tree::data_size`].
fn size_of_contents(znode: &Znode) -> u64 {
    u64::try_from(znode.path_len() + znode.data_len()).expect("usize fits u64")
}
