//! Building a B+tree from entries in the order of their keys, level by level.

use arrayvec::ArrayVec;
use triomphe::Arc;

use super::{BTree, INNER_MAX, INNER_MIN, Inner, LEAF_MAX, LEAF_MIN, Leaf, Node};

/// Entries of a new leaf, and children of a new inner node: fewer than fit, so that the first inserts after a
/// start do not split every node.
const LEAF_FILL: usize = LEAF_MAX - 2;
const INNER_FILL: usize = INNER_MAX - 2;

// Two neighbours, one full and one short, have enough entries for both.
const _: () = assert!(LEAF_FILL > 2 * LEAF_MIN && INNER_FILL > 2 * INNER_MIN);

/// Takes entries in the order of their keys.
pub(in crate::tree) struct Builder<V> {
    /// Full leaves, each with its first key.
    leaves: Vec<(u64, Node<V>)>,
    /// The leaf to come.
    last: Leaf<V>,
    len: usize,
}

impl<V: Clone> Builder<V> {
    pub(in crate::tree) const fn new() -> Self {
        let last = Leaf { keys: ArrayVec::new_const(), values: ArrayVec::new_const() };
        Self { leaves: Vec::new(), last, len: 0 }
    }

    /// Puts an entry behind all others; its key is not below theirs.
    pub(in crate::tree) fn push(&mut self, key: u64, value: V) {
        debug_assert!(self.last.keys.last().is_none_or(|last| *last <= key), "keys come in order");
        if self.last.keys.len() == LEAF_FILL {
            self.end_leaf();
        }
        self.last.keys.push(key);
        self.last.values.push(value);
        self.len += 1;
    }

    fn end_leaf(&mut self) {
        let leaf = Leaf { keys: self.last.keys.take(), values: self.last.values.take() };
        self.leaves.push((leaf.keys[0], Node::Leaf(Arc::new(leaf))));
    }

    /// The tree of all entries.
    pub(in crate::tree) fn finish(mut self) -> BTree<V> {
        let len = self.len;
        self.level_last_leaves();
        if !self.last.keys.is_empty() || self.leaves.is_empty() {
            let first_key = self.last.keys.first().copied().unwrap_or_default();
            self.leaves.push((first_key, Node::Leaf(Arc::new(self.last))));
        }
        let mut level = self.leaves;
        while level.len() > 1 {
            level = parents(level);
        }
        let (_, root) = level.pop().expect("a level has a node");
        BTree { root, len }
    }

    /// Moves entries from the second to last leaf to the last one, until that is not underfull.
    fn level_last_leaves(&mut self) {
        let missing = LEAF_MIN.saturating_sub(self.last.keys.len());
        if let Some((_, Node::Leaf(before))) = self.leaves.last_mut()
            && !self.last.keys.is_empty()
        {
            let before = Arc::make_mut(before);
            let at = before.keys.len() - missing;
            self.last.keys = before.keys.drain(at..).chain(self.last.keys.take()).collect();
            self.last.values = before.values.drain(at..).chain(self.last.values.take()).collect();
        }
    }
}

/// The level above.
fn parents<V: Clone>(level: Vec<(u64, Node<V>)>) -> Vec<(u64, Node<V>)> {
    let mut left = level.len();
    let mut nodes = level.into_iter();
    let mut parents = Vec::with_capacity(left.div_ceil(INNER_FILL));
    while left > 0 {
        // The nodes that remain after this one must not make an underfull node.
        let take = match left {
            all if all <= INNER_FILL => all,
            rest if rest < INNER_FILL + INNER_MIN => rest - INNER_MIN,
            _ => INNER_FILL,
        };
        left -= take;
        let mut inner = Inner { separators: ArrayVec::new(), children: ArrayVec::new() };
        let mut first_key = None;
        for (key, child) in nodes.by_ref().take(take) {
            match first_key {
                None => first_key = Some(key),
                Some(_) => inner.separators.push(key),
            }
            inner.children.push(child);
        }
        parents.push((first_key.expect("a node has children"), Node::Inner(Arc::new(inner))));
    }
    parents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_entries_makes_a_sound_tree() {
        for len in (0..600).chain([2_000, 10_000, 30_001]) {
            let mut builder = Builder::new();
            (0..len).for_each(|value| builder.push(value / 3, value));
            let mut tree: BTree<u64> = builder.finish();
            tree.check();
            assert!(tree.cursor(0).map(|(_, value)| *value).eq(0..len), "{len} entries");
            tree.add(u64::MAX, len);
            tree.add(len / 7, len + 1);
            tree.check();
        }
    }
}
