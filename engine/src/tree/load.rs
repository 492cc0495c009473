//! Builds a whole tree in the order of its keys, from left to right, without a search for each znode.
//!
//! The work has two parts, so that several cores can do most of it. [`Run`]s are made independently of each
//! other: paths are hashed and znodes allocated. A [`Loader`] takes the runs in order and fills the leaves.
//! leaves.

use super::btree::{BTree, Builder};
use super::key::{self, Keys};
use super::znode::{Directory, Znode};
use super::{Tree, ZnodeMeta, size_of_contents};

/// A znode that is out of order in a tree that is loaded in key order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} comes twice, out of order, or is no path")]
pub struct Misplaced {
    /// Its path.
    pub path: String,
}

/// Neighbours in the order of the keys.
#[derive(Debug, Default)]
pub(crate) struct Run {
    entries: Vec<(u64, Znode)>,
    data_size: u64,
}

impl Run {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// Makes the runs of one tree.
#[derive(Clone, Debug)]
pub(crate) struct RunMaker {
    keys: Keys,
}

impl RunMaker {
    /// `seed` as for [`Tree::new`].
    pub(crate) fn new(seed: u64) -> Self {
        Self { keys: Keys::new(seed) }
    }

    /// Appends a znode to the run.
    pub(crate) fn push(
        &self,
        run: &mut Run,
        path: &str,
        meta: &ZnodeMeta,
        data: Option<&[u8]>,
    ) -> Result<(), Misplaced> {
        let misplaced = || Misplaced { path: path.to_owned() };
        let (parent, name) = key::split(path).ok_or_else(misplaced)?;
        let key = self.keys.of(path, parent);
        let last = run.entries.last();
        if last.is_some_and(|(last, _)| *last > key) {
            return Err(misplaced());
        }
        let mut same_key = run.entries.iter().rev().take_while(|(other, _)| *other == key);
        if same_key.any(|(_, znode)| znode.is_at(parent, name)) {
            return Err(misplaced());
        }
        // Siblings are consecutive, except where their parents' hashes collide.
        let sibling = last.map(|(_, znode)| znode).filter(|znode| znode.is_child_of(parent));
        let directory = sibling.map_or_else(|| Directory::new(parent), |znode| znode.directory().clone());
        let znode = Znode::new(directory, name, meta, data);
        run.data_size += size_of_contents(&znode);
        run.entries.push((key, znode));
        Ok(())
    }
}

/// Puts runs together.
pub(crate) struct Loader {
    keys: Keys,
    nodes: Builder<Znode>,
    last_key: Option<u64>,
    data_size: u64,
}

impl Loader {
    /// `seed` as for [`Tree::new`].
    pub(crate) fn new(seed: u64) -> Self {
        Self { keys: Keys::new(seed), nodes: Builder::new(), last_key: None, data_size: 0 }
    }

    /// Appends a run to those before it. Znodes with equal keys must be in one run.
    pub(crate) fn append(&mut self, run: Run) -> Result<(), Misplaced> {
        if let (Some(last), Some((first, znode))) = (self.last_key, run.entries.first())
            && *first <= last
        {
            return Err(Misplaced { path: znode.path() });
        }
        self.last_key = run.entries.last().map(|(key, _)| *key).or(self.last_key);
        self.data_size += run.data_size;
        run.entries.into_iter().for_each(|(key, znode)| self.nodes.push(key, znode));
        Ok(())
    }

    /// The tree.
    pub(crate) fn finish(self) -> Tree {
        let nodes: BTree<Znode> = self.nodes.finish();
        Tree { nodes, keys: self.keys, data_size: self.data_size }
    }
}
