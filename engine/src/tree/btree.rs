//! A persistent B+tree from 64-bit keys to values, where several values may share a key.
//!
//! Nodes are copied on write: in place when this tree alone holds them, so a batch of changes copies each node
//! once. Cloning a tree shares all of it.
//!
//! Order: every key under child `i` <= separator `i` <= every key under child `i + 1`. Not strict on either
//! side, since a run of equal keys may cross a boundary. Inserts and lookups go to the right of an equal
//! separator; a lookup turns to the left only when it met its key among the separators and missed.
//!
//! Every node but the root holds at least a third of its capacity. A node that falls below takes entries from
//! a sibling or joins it; the room left after joining keeps a churn of inserts and removals at the boundary
//! from splitting and joining over and over.

use super::cursor::Cursor;
use arrayvec::ArrayVec;
use triomphe::Arc;

/// Entries in a leaf. With a reference count and two lengths, 31 fill a 512-byte size class.
pub(super) const LEAF_MAX: usize = 31;
/// Children of an inner node.
pub(super) const INNER_MAX: usize = 31;
/// Levels of inner nodes; 2^40 entries in nodes filled to a third need 12.
pub(super) const DEPTH_MAX: usize = 16;

const LEAF_MIN: usize = LEAF_MAX / 3;
const INNER_MIN: usize = INNER_MAX / 3;
/// Siblings that together hold no more than this are joined.
const LEAF_JOINED_MAX: usize = LEAF_MAX * 3 / 4;
const INNER_JOINED_MAX: usize = INNER_MAX * 3 / 4;

// Halves of what is too much to join must not be underfull, nor may a split's smaller part.
const _: () = assert!(LEAF_JOINED_MAX.div_ceil(2) >= LEAF_MIN && INNER_JOINED_MAX.div_ceil(2) >= INNER_MIN);
const _: () = assert!(LEAF_MIN >= 2 && INNER_MIN >= 2);

#[derive(Clone)]
pub(super) struct Leaf<V> {
    pub(super) keys: ArrayVec<u64, LEAF_MAX>,
    pub(super) values: ArrayVec<V, LEAF_MAX>,
}

#[derive(Clone)]
pub(super) struct Inner<V> {
    pub(super) separators: ArrayVec<u64, INNER_MAX>,
    pub(super) children: ArrayVec<Node<V>, INNER_MAX>,
}

pub(super) enum Node<V> {
    Leaf(Arc<Leaf<V>>),
    Inner(Arc<Inner<V>>),
}

impl<V> Clone for Node<V> {
    fn clone(&self) -> Self {
        match self {
            Self::Leaf(leaf) => Self::Leaf(leaf.clone()),
            Self::Inner(inner) => Self::Inner(inner.clone()),
        }
    }
}

/// Where an entry is: the child taken at each inner node, then the slot in the leaf. Valid until the next
/// insert or removal.
pub(super) struct Position {
    pub(super) children: ArrayVec<usize, DEPTH_MAX>,
    pub(super) slot: usize,
}

/// A node's right part after a split, and the separator before it.
struct Split<V> {
    separator: u64,
    right: Node<V>,
}

/// The tree.
pub(super) struct BTree<V> {
    pub(super) root: Node<V>,
    len: usize,
}

impl<V> Clone for BTree<V> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len }
    }
}

impl<V: Clone> BTree<V> {
    pub(super) fn new() -> Self {
        Self { root: Node::leaf(ArrayVec::new(), ArrayVec::new()), len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The entry with `key` that `matches`.
    pub(super) fn find(&self, key: u64, matches: impl Fn(&V) -> bool) -> Option<&V> {
        let mut node = &self.root;
        let mut met_separator = false;
        let leaf = loop {
            match node {
                Node::Leaf(leaf) => break leaf,
                Node::Inner(inner) => {
                    let child = upper_bound(&inner.separators, key);
                    met_separator |= child > 0 && inner.separators[child - 1] == key;
                    node = &inner.children[child];
                }
            }
        };
        let end = upper_bound(&leaf.keys, key);
        let run = leaf.keys[..end].iter().rev().take_while(|&&other| other == key).count();
        let found = leaf.values[end - run..end].iter().find(|value| matches(value));
        if found.is_some() || !met_separator {
            return found;
        }
        self.cursor(key).take_while(|&(other, _)| other == key).map(|(_, value)| value).find(|v| matches(v))
    }

    /// Where the entry with `key` is that `matches`.
    pub(super) fn locate(&self, key: u64, matches: impl Fn(&V) -> bool) -> Option<Position> {
        let mut cursor = self.cursor(key);
        while let Some((other, value)) = cursor.peek() {
            if other != key {
                return None;
            }
            if matches(value) {
                return Some(cursor.position());
            }
            cursor.next();
        }
        None
    }

    /// A cursor before the first entry whose key is not below `key`.
    pub(super) fn cursor(&self, key: u64) -> Cursor<'_, V> {
        Cursor::seek(&self.root, key)
    }

    /// The value at `position`, with every node on the way made our own.
    pub(super) fn value_mut(&mut self, position: &Position) -> &mut V {
        let mut node = &mut self.root;
        for &child in &position.children {
            let Node::Inner(inner) = node else { unreachable!("a position is as deep as the tree") };
            node = &mut Arc::make_mut(inner).children[child];
        }
        let Node::Leaf(leaf) = node else { unreachable!("a position is as deep as the tree") };
        &mut Arc::make_mut(leaf).values[position.slot]
    }

    /// Adds an entry after those of the same key.
    pub(super) fn insert(&mut self, key: u64, value: V) {
        self.len += 1;
        if let Some(Split { separator, right }) = self.root.insert(key, value) {
            let mut root = Inner { separators: ArrayVec::new(), children: ArrayVec::new() };
            root.separators.push(separator);
            root.children.push(self.root.clone());
            root.children.push(right);
            self.root = Node::Inner(Arc::new(root));
        }
    }

    /// Takes the entry at `position` out.
    pub(super) fn remove(&mut self, position: &Position) -> V {
        self.len -= 1;
        let value = self.root.remove(&position.children, position.slot);
        while let Node::Inner(inner) = &self.root
            && let [only] = inner.children.as_slice()
        {
            self.root = only.clone();
        }
        value
    }
}

impl<V: Clone> Node<V> {
    fn leaf(keys: ArrayVec<u64, LEAF_MAX>, values: ArrayVec<V, LEAF_MAX>) -> Self {
        Self::Leaf(Arc::new(Leaf { keys, values }))
    }

    fn insert(&mut self, key: u64, value: V) -> Option<Split<V>> {
        match self {
            Self::Leaf(leaf) => Arc::make_mut(leaf).insert(key, value),
            Self::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let child = upper_bound(&inner.separators, key);
                let split = inner.children[child].insert(key, value)?;
                inner.insert_child(child, split)
            }
        }
    }

    fn remove(&mut self, children: &[usize], slot: usize) -> V {
        match self {
            Self::Leaf(leaf) => Arc::make_mut(leaf).remove(slot),
            Self::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let (&child, below) = children.split_first().expect("a position is as deep as the tree");
                let value = inner.children[child].remove(below, slot);
                if inner.children[child].is_underfull() {
                    inner.refill(child);
                }
                value
            }
        }
    }

    fn is_underfull(&self) -> bool {
        match self {
            Self::Leaf(leaf) => leaf.keys.len() < LEAF_MIN,
            Self::Inner(inner) => inner.children.len() < INNER_MIN,
        }
    }
}

impl<V: Clone> Leaf<V> {
    fn insert(&mut self, key: u64, value: V) -> Option<Split<V>> {
        let slot = upper_bound(&self.keys, key);
        if self.keys.len() < LEAF_MAX {
            self.put(slot, key, value);
            return None;
        }
        let at = split_point(slot, LEAF_MAX, LEAF_MIN);
        let mut right =
            Self { keys: self.keys.drain(at..).collect(), values: self.values.drain(at..).collect() };
        if slot <= at {
            self.put(slot, key, value);
        } else {
            right.put(slot - at, key, value);
        }
        Some(Split { separator: right.keys[0], right: Node::Leaf(Arc::new(right)) })
    }

    fn put(&mut self, slot: usize, key: u64, value: V) {
        self.keys.insert(slot, key);
        self.values.insert(slot, value);
    }

    fn remove(&mut self, slot: usize) -> V {
        self.keys.remove(slot);
        self.values.remove(slot)
    }

    /// Moves entries between neighbours until `self` has `target`; returns the separator between them.
    fn balance(&mut self, right: &mut Self, target: usize) -> Option<u64> {
        while self.keys.len() < target {
            self.keys.push(right.keys.remove(0));
            self.values.push(right.values.remove(0));
        }
        while self.keys.len() > target {
            right.keys.insert(0, self.keys.pop()?);
            right.values.insert(0, self.values.pop()?);
        }
        right.keys.first().copied()
    }
}

impl<V: Clone> Inner<V> {
    /// Puts the right part of a split child behind it.
    fn insert_child(&mut self, child: usize, split: Split<V>) -> Option<Split<V>> {
        if self.children.len() < INNER_MAX {
            self.put(child, split);
            return None;
        }
        let at = split_point(child + 1, INNER_MAX, INNER_MIN);
        let mut right = Self {
            separators: self.separators.drain(at..).collect(),
            children: self.children.drain(at..).collect(),
        };
        // The separator between the two parts moves up.
        let separator = self.separators.pop().expect("both parts have children");
        if child < at {
            self.put(child, split);
        } else {
            right.put(child - at, split);
        }
        Some(Split { separator, right: Node::Inner(Arc::new(right)) })
    }

    fn put(&mut self, child: usize, split: Split<V>) {
        self.separators.insert(child, split.separator);
        self.children.insert(child + 1, split.right);
    }

    /// Joins an underfull child with a sibling, or levels the two.
    fn refill(&mut self, child: usize) {
        let left = child.saturating_sub(1);
        let Some((below, above)) = self.children.split_at_mut_checked(left + 1) else { return };
        let (Some(a), Some(b)) = (below.last_mut(), above.first_mut()) else { return };
        let separator = &mut self.separators[left];
        let joined = match (a, b) {
            (Node::Leaf(a), Node::Leaf(b)) => {
                let total = a.keys.len() + b.keys.len();
                let target = if total <= LEAF_JOINED_MAX { total } else { total / 2 };
                match Arc::make_mut(a).balance(Arc::make_mut(b), target) {
                    Some(between) => {
                        *separator = between;
                        false
                    }
                    None => true,
                }
            }
            (Node::Inner(a), Node::Inner(b)) => {
                let total = a.children.len() + b.children.len();
                let target = if total <= INNER_JOINED_MAX { total } else { total / 2 };
                Arc::make_mut(a).balance(Arc::make_mut(b), separator, target);
                target == total
            }
            _ => unreachable!("siblings are on one level"),
        };
        if joined {
            self.separators.remove(left);
            self.children.remove(left + 1);
        }
    }

    /// Moves children between neighbours, through the separator between them, until `self` has `target`.
    fn balance(&mut self, right: &mut Self, separator: &mut u64, target: usize) {
        while self.children.len() < target {
            self.separators.push(*separator);
            self.children.push(right.children.remove(0));
            if !right.separators.is_empty() {
                *separator = right.separators.remove(0);
            }
        }
        while self.children.len() > target {
            let (Some(between), Some(child)) = (self.separators.pop(), self.children.pop()) else { return };
            right.separators.insert(0, std::mem::replace(separator, between));
            right.children.insert(0, child);
        }
    }
}

/// Index of the first key above `key`.
pub(super) fn upper_bound(keys: &[u64], key: u64) -> usize {
    keys.partition_point(|&other| other <= key)
}

/// Index of the first key not below `key`.
pub(super) fn lower_bound(keys: &[u64], key: u64) -> usize {
    keys.partition_point(|&other| other < key)
}

/// Where to split a full node of `max` that wants one more at `slot`: in the middle, but unevenly at the right
/// end, so that loading in key order (a snapshot) leaves nodes fuller than half.
const fn split_point(slot: usize, max: usize, min: usize) -> usize {
    if slot == max { max - min } else { max / 2 }
}
