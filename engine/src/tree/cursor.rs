//! Walking the B+tree in key order.

use super::btree::{DEPTH_MAX, Inner, Leaf, Node, Position, lower_bound};
use crate::steps;
use arrayvec::ArrayVec;

/// Entries from a key upwards. A cursor keeps the path from the root, since leaves are not linked: with
/// links, copying a leaf would force copying its neighbour, too.
pub(super) struct Cursor<'a, V> {
    /// Inner nodes from the root, each with the child taken.
    way: ArrayVec<(&'a Inner<V>, usize), DEPTH_MAX>,
    leaf: &'a Leaf<V>,
    slot: usize,
}

impl<'a, V> Cursor<'a, V> {
    /// Stands before the first entry whose key is not below `key`.
    pub(super) fn seek(root: &'a Node<V>, key: u64) -> Self {
        let mut way = ArrayVec::new();
        let mut node = root;
        loop {
            match node {
                Node::Inner(inner) => {
                    let child = lower_bound(&inner.separators, key);
                    way.push((&**inner, child));
                    node = &inner.children[child];
                }
                Node::Leaf(leaf) => {
                    let slot = lower_bound(&leaf.keys, key);
                    let mut cursor = Self { way, leaf, slot };
                    cursor.settle();
                    return cursor;
                }
            }
        }
    }

    /// The entry ahead.
    pub(super) fn peek(&self) -> Option<(u64, &'a V)> {
        Some((*self.leaf.keys.get(self.slot)?, self.leaf.values.get(self.slot)?))
    }

    /// Where the entry ahead is.
    pub(super) fn position(&self) -> Position {
        Position { children: self.way.iter().map(|&(_, child)| child).collect(), slot: self.slot }
    }

    /// Moves to the next leaf if this one is used up; stays at the end after the last.
    fn settle(&mut self) {
        if self.slot < self.leaf.keys.len() {
            return;
        }
        let Some(turn) = self.way.iter().rposition(|(inner, child)| child + 1 < inner.children.len()) else {
            return;
        };
        self.way.truncate(turn + 1);
        let (inner, child) = &mut self.way[turn];
        *child += 1;
        let mut node = &inner.children[*child];
        while let Node::Inner(inner) = node {
            self.way.push((&**inner, 0));
            node = &inner.children[0];
        }
        let Node::Leaf(leaf) = node else { unreachable!("the loop ends at a leaf") };
        self.leaf = leaf;
        self.slot = 0;
    }
}

impl<'a, V> Iterator for Cursor<'a, V> {
    type Item = (u64, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.peek()?;
        steps::count(1);
        self.slot += 1;
        self.settle();
        Some(entry)
    }
}
