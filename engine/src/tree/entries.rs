//! Walking a B+tree in key order while giving it up.

use arrayvec::{ArrayVec, IntoIter};
use triomphe::Arc;

use super::btree::{DEPTH_MAX, INNER_MAX, LEAF_MAX, Node};
use crate::steps;

/// All entries of a tree. What it has passed, it no longer holds: another tree that shared those nodes has
/// them alone from then on, and changes them without a copy.
pub(crate) struct IntoEntries<V> {
    /// What is left of the nodes on the way from the root, the root's children first.
    way: ArrayVec<IntoIter<Node<V>, INNER_MAX>, DEPTH_MAX>,
    keys: IntoIter<u64, LEAF_MAX>,
    values: IntoIter<V, LEAF_MAX>,
}

impl<V: Clone> IntoEntries<V> {
    pub(super) fn new(root: Node<V>) -> Self {
        let (keys, values) = (ArrayVec::new().into_iter(), ArrayVec::new().into_iter());
        let mut entries = Self { way: ArrayVec::new(), keys, values };
        entries.enter(root);
        entries
    }

    fn enter(&mut self, node: Node<V>) {
        match node {
            Node::Inner(inner) => {
                let children = Arc::try_unwrap(inner).map_or_else(|it| it.children.clone(), |it| it.children);
                self.way.push(children.into_iter());
            }
            Node::Leaf(leaf) => {
                let leaf = Arc::try_unwrap(leaf).unwrap_or_else(|leaf| (*leaf).clone());
                (self.keys, self.values) = (leaf.keys.into_iter(), leaf.values.into_iter());
            }
        }
    }
}

impl<V: Clone> Iterator for IntoEntries<V> {
    type Item = (u64, V);

    fn next(&mut self) -> Option<(u64, V)> {
        steps::count(1);
        loop {
            if let Some(entry) = self.keys.next().zip(self.values.next()) {
                return Some(entry);
            }
            match self.way.last_mut()?.next() {
                Some(node) => self.enter(node),
                None => _ = self.way.pop(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::btree::BTree;
    use super::*;

    thread_local! {
        static COPIES: Cell<usize> = const { Cell::new(0) };
    }

    struct Value(u64);

    impl Clone for Value {
        fn clone(&self) -> Self {
            COPIES.set(COPIES.get() + 1);
            Self(self.0)
        }
    }

    /// Sets each of the values to 1, and returns how many were copied for that.
    fn copied(tree: &mut BTree<Value>, keys: std::ops::Range<u64>) -> usize {
        COPIES.set(0);
        for key in keys {
            let position = tree.locate(key, |_| true).expect("added");
            tree.value_mut(&position).0 = 1;
        }
        COPIES.get()
    }

    #[test]
    fn a_change_copies_only_what_is_still_to_be_passed() {
        let mut tree = BTree::new();
        (0..5_000).for_each(|key| tree.add(key, Value(0)));
        let mut entries = IntoEntries::new(tree.root.clone());
        assert!(entries.by_ref().take(2_500).map(|(key, _)| key).eq(0..2_500));
        assert_eq!(copied(&mut tree, 0..2_500), 0);
        assert!(copied(&mut tree, 2_600..5_000) >= 2_400);
        assert!(entries.map(|(key, value)| (key, value.0)).eq((2_500..5_000).map(|key| (key, 0))));
    }
}
