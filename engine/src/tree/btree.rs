//! A persistent B+tree from 64-bit keys to values, where several values may share a key.
//!
//! Nodes are copied on write: in place when this tree alone holds them, so a batch of changes copies each
//! node once. Cloning a tree shares all of it.
//!
//! Order: every key under child `i` <= separator `i` <= every key under child `i + 1`. Not strict on either
//! side, since a run of equal keys may cross a boundary. Inserts and lookups go to the right of an equal
//! separator; a lookup turns to the left only when it met its key among the separators and missed.
//!
//! Every node but the root holds at least a third of its capacity. A node that falls below takes entries from
//! a sibling or joins it; the room left after joining keeps a churn of inserts and removals at the boundary
//! from splitting and joining over and over.

mod bulk;

pub(super) use bulk::Builder;

use super::cursor::Cursor;
use crate::steps;
use arrayvec::ArrayVec;
use triomphe::Arc;

/// Entries in a leaf: as many as fit into 256 bytes, a size class of the allocator.
pub(super) const LEAF_MAX: usize = 14;
/// Children of an inner node.
pub(super) const INNER_MAX: usize = 15;
/// Levels of inner nodes; enough for 2^39 entries in nodes filled to a third.
pub(super) const DEPTH_MAX: usize = 16;

/// Keys that are looked up together: about as many as a core can have cache misses in flight.
const VISITED_MAX: usize = 16;

const LEAF_MIN: usize = LEAF_MAX / 3;
const INNER_MIN: usize = INNER_MAX / 3;
/// Siblings that together hold no more than this are joined.
const LEAF_JOINED_MAX: usize = LEAF_MAX * 3 / 4;
const INNER_JOINED_MAX: usize = INNER_MAX * 3 / 4;

// Invariant: balancing two nodes too full to be joined leaves neither underfull, nor does a split.
const _: () = assert!(LEAF_JOINED_MAX.div_ceil(2) >= LEAF_MIN && INNER_JOINED_MAX.div_ceil(2) >= INNER_MIN);
const _: () = assert!(LEAF_MIN >= 2 && INNER_MIN >= 2);
// A value is a pointer, and beside the leaf lies its reference count.
const _: () = assert!(size_of::<Leaf<usize>>() + size_of::<usize>() <= 256);

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

impl<V> Node<V> {
    fn references(&self) -> usize {
        match self {
            Self::Leaf(leaf) => Arc::count(leaf),
            Self::Inner(inner) => Arc::count(inner),
        }
    }
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

/// A free place for an entry.
pub(super) struct Vacancy<'a, V> {
    pub(super) position: Position,
    pub(super) neighbours: [Option<&'a V>; 2],
}

/// The right part of a node that was split, and the separator before it.
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
        let (leaf, complete) = self.descend(key, |_| ());
        let found = leaf.find(key, &matches).map(|slot| &leaf.values[slot]);
        if found.is_some() || complete {
            return found;
        }
        self.cursor(key).take_while(|&(other, _)| other == key).map(|(_, value)| value).find(|v| matches(v))
    }

    /// Where the entry with `key` is that `matches`.
    pub(super) fn locate(&self, key: u64, matches: impl Fn(&V) -> bool) -> Option<Position> {
        let mut children = ArrayVec::new();
        let (leaf, complete) = self.descend(key, |child| children.push(child));
        match leaf.find(key, &matches) {
            Some(slot) => Some(Position { children, slot }),
            None if complete => None,
            None => self.locate_in_run(key, matches),
        }
    }

    /// [`Self::locate`] for a run of equal keys that may cross leaves.
    fn locate_in_run(&self, key: u64, matches: impl Fn(&V) -> bool) -> Option<Position> {
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

    /// The last leaf that may hold `key`, and whether no other leaf may. Calls `took` with each child on the
    /// way.
    fn descend(&self, key: u64, mut took: impl FnMut(usize)) -> (&Leaf<V>, bool) {
        steps::count(1);
        let mut node = &self.root;
        let mut complete = true;
        loop {
            match node {
                Node::Leaf(leaf) => return (leaf, complete),
                Node::Inner(inner) => {
                    let child = upper_bound(&inner.separators, key);
                    complete &= child == 0 || inner.separators[child - 1] != key;
                    took(child);
                    node = &inner.children[child];
                }
            }
        }
    }

    /// Looks up all `keys` together, level by level, and calls `seen` with the entry that each leads to. A
    /// single look-up waits for memory at every level; here the waits overlap.
    ///
    /// A change copies each shared node on its path and increments the reference counts of all that the node
    /// holds. With `copying` these counts are read, too, and `seen` is called with all entries of a leaf.
    /// Whether a node is shared is not tested: such a branch waits for memory, and its misprediction costs
    /// more than it saves.
    pub(super) fn visit(&self, keys: &[u64], copying: bool, mut seen: impl FnMut(&V)) {
        steps::count(keys.len());
        let mut ways: ArrayVec<(u64, &Node<V>), VISITED_MAX> = ArrayVec::new();
        for keys in keys.chunks(VISITED_MAX) {
            ways.clear();
            ways.extend(keys.iter().map(|&key| (key, &self.root)));
            // All leaves are on one level.
            while let Some((_, Node::Inner(_))) = ways.first() {
                for (key, node) in &mut ways {
                    let Node::Inner(inner) = *node else { unreachable!("all leaves are on one level") };
                    if copying {
                        std::hint::black_box(inner.children.iter().map(Node::references).sum::<usize>());
                    }
                    *node = &inner.children[upper_bound(&inner.separators, *key)];
                }
            }
            for (key, node) in &ways {
                let Node::Leaf(leaf) = *node else { unreachable!("the loop ends at the leaves") };
                if copying {
                    leaf.values.iter().for_each(&mut seen);
                } else if let Some(value) = leaf.values.get(lower_bound(&leaf.keys, *key)) {
                    seen(value);
                }
            }
        }
    }

    /// A cursor before the first entry whose key is not below `key`.
    pub(super) fn cursor(&self, key: u64) -> Cursor<'_, V> {
        Cursor::seek(&self.root, key)
    }

    /// The value at `position`.
    pub(super) fn value(&self, position: &Position) -> &V {
        let mut node = &self.root;
        for &child in &position.children {
            let Node::Inner(inner) = node else { unreachable!("a position is as deep as the tree") };
            node = &inner.children[child];
        }
        let Node::Leaf(leaf) = node else { unreachable!("a position is as deep as the tree") };
        &leaf.values[position.slot]
    }

    /// The value at `position`, after copying each shared node on the way.
    pub(super) fn value_mut(&mut self, position: &Position) -> &mut V {
        let mut node = &mut self.root;
        for &child in &position.children {
            let Node::Inner(inner) = node else { unreachable!("a position is as deep as the tree") };
            node = &mut Arc::make_mut(inner).children[child];
        }
        let Node::Leaf(leaf) = node else { unreachable!("a position is as deep as the tree") };
        &mut Arc::make_mut(leaf).values[position.slot]
    }

    /// Where an entry with `key` would be inserted, behind those of the same key, and the neighbours of that
    /// place within the leaf, first the one that [`Self::visit`] has seen; `None` if an entry of this key
    /// `matches`.
    pub(super) fn vacancy(&self, key: u64, matches: impl Fn(&V) -> bool) -> Option<Vacancy<'_, V>> {
        let mut children = ArrayVec::new();
        let (leaf, complete) = self.descend(key, |child| children.push(child));
        let taken =
            leaf.find(key, &matches).is_some() || !complete && self.locate_in_run(key, &matches).is_some();
        let slot = upper_bound(&leaf.keys, key);
        let neighbours = [Some(slot), slot.checked_sub(1)].map(|slot| leaf.values.get(slot?));
        (!taken).then_some(Vacancy { position: Position { children, slot }, neighbours })
    }

    /// Adds an entry where [`Self::vacancy`] said.
    pub(super) fn insert(&mut self, position: &Position, key: u64, value: V) {
        self.len += 1;
        if let Some(Split { separator, right }) =
            self.root.insert(&position.children, position.slot, key, value)
        {
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

    fn insert(&mut self, children: &[usize], slot: usize, key: u64, value: V) -> Option<Split<V>> {
        match self {
            Self::Leaf(leaf) => Arc::make_mut(leaf).insert(slot, key, value),
            Self::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let (&child, below) = children.split_first().expect("a position is as deep as the tree");
                let split = inner.children[child].insert(below, slot, key, value)?;
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
    /// The slot of the entry with `key` that `matches`.
    fn find(&self, key: u64, matches: impl Fn(&V) -> bool) -> Option<usize> {
        let end = upper_bound(&self.keys, key);
        (0..end).rev().take_while(|&slot| self.keys[slot] == key).find(|&slot| matches(&self.values[slot]))
    }

    fn insert(&mut self, slot: usize, key: u64, value: V) -> Option<Split<V>> {
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

    /// Moves entries between neighbours until `self` has `target`; returns the new separator between them.
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

    /// Joins an underfull child with a sibling, or moves entries from that sibling.
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

/// Where to split a full node of `max` entries that gets another at `slot`: in the middle; but near the right
/// end if the new entry is the last, so that loading in key order (a snapshot) leaves nodes fuller than half.
const fn split_point(slot: usize, max: usize, min: usize) -> usize {
    if slot == max { max - min } else { max / 2 }
}

#[cfg(test)]
impl<V: Clone> BTree<V> {
    /// Asserts order, separators, fill, equal depth and the count.
    pub(super) fn check(&self) {
        let mut depths = std::collections::BTreeSet::new();
        let len = self.root.check(u64::MIN, u64::MAX, true, 0, &mut depths);
        assert_eq!(len, self.len, "entries counted");
        assert_eq!(depths.len(), 1, "leaves are on one level: {depths:?}");
    }

    /// Leaves and inner nodes.
    pub(super) fn node_counts(&self) -> (usize, usize) {
        self.root.node_counts()
    }

    /// Adds an entry, whatever is there.
    pub(super) fn add(&mut self, key: u64, value: V) {
        let position = self.vacancy(key, |_| false).expect("nothing matches").position;
        self.insert(&position, key, value);
    }
}

#[cfg(test)]
impl<V: Clone> Node<V> {
    fn check(
        &self,
        low: u64,
        high: u64,
        is_root: bool,
        depth: usize,
        depths: &mut std::collections::BTreeSet<usize>,
    ) -> usize {
        assert!(is_root || !self.is_underfull(), "underfull node at depth {depth}");
        match self {
            Self::Leaf(leaf) => {
                depths.insert(depth);
                assert_eq!(leaf.keys.len(), leaf.values.len());
                assert!(leaf.keys.is_sorted(), "keys of a leaf are in order");
                assert!(
                    leaf.keys.iter().all(|key| (low..=high).contains(key)),
                    "keys are between separators"
                );
                leaf.keys.len()
            }
            Self::Inner(inner) => {
                assert!(inner.children.len() >= 2, "an inner node has two children at least");
                assert_eq!(inner.separators.len() + 1, inner.children.len());
                assert!(inner.separators.is_sorted());
                assert!(inner.separators.iter().all(|key| (low..=high).contains(key)));
                let lows = std::iter::once(low).chain(inner.separators.iter().copied());
                let highs = inner.separators.iter().copied().chain([high]);
                let bounds = lows.zip(highs);
                inner
                    .children
                    .iter()
                    .zip(bounds)
                    .map(|(c, (l, h))| c.check(l, h, false, depth + 1, depths))
                    .sum()
            }
        }
    }

    fn node_counts(&self) -> (usize, usize) {
        match self {
            Self::Leaf(_) => (1, 0),
            Self::Inner(inner) => inner
                .children
                .iter()
                .map(Self::node_counts)
                .fold((0, 1), |(leaves, inners), (l, i)| (leaves + l, inners + i)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Inserts the value or removes it if it is there; the key is `value % keys`, so few keys make long runs.
    fn toggle(tree: &mut BTree<u64>, model: &mut BTreeSet<(u64, u64)>, value: u64, keys: u64) {
        let key = value % keys;
        if model.remove(&(key, value)) {
            let position = tree.locate(key, |&v| v == value).expect("the model has it");
            assert_eq!(tree.remove(&position), value);
        } else {
            model.insert((key, value));
            tree.add(key, value);
        }
    }

    fn assert_same(tree: &BTree<u64>, model: &BTreeSet<(u64, u64)>) {
        tree.check();
        let entries: BTreeSet<_> = tree.cursor(0).map(|(key, &value)| (key, value)).collect();
        assert_eq!(&entries, model);
        for &(key, value) in model {
            assert_eq!(tree.find(key, |&v| v == value), Some(&value));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn holds_what_an_ordered_set_holds(
            keys in prop_oneof![Just(1u64), Just(3), Just(40), Just(u64::MAX)],
            values in prop::collection::vec(0..600u64, 0..1500),
        ) {
            let (mut tree, mut model) = (BTree::new(), BTreeSet::new());
            let mut old = None;
            for (step, &value) in values.iter().enumerate() {
                toggle(&mut tree, &mut model, value, keys);
                tree.check();
                if step == values.len() / 2 {
                    old = Some((tree.clone(), model.clone()));
                }
            }
            assert_same(&tree, &model);
            if let Some((tree, model)) = old {
                assert_same(&tree, &model);
            }
        }

        #[test]
        fn a_cursor_starts_at_its_key(
            values in prop::collection::btree_set(0..5000u64, 0..800),
            from in 0..5000u64,
        ) {
            let mut tree = BTree::new();
            for &value in &values {
                tree.add(value / 3, value);
            }
            let found: BTreeSet<_> = tree.cursor(from / 3).map(|(_, &value)| value).collect();
            let expected: BTreeSet<_> = values.iter().copied().filter(|value| value / 3 >= from / 3).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn keys_looked_up_at_once_lead_to_their_entries() {
        let mut tree = BTree::new();
        (0..5_000u64).for_each(|value| tree.add(value * 7, value));
        for count in [0, 1, 15, 16, 17, 100] {
            let values: Vec<u64> = (0..count).map(|n| n * 48 + 1).collect();
            let keys: Vec<u64> = values.iter().map(|value| value * 7).collect();
            let mut seen = Vec::new();
            tree.visit(&keys, false, |value| seen.push(*value));
            assert_eq!(seen, values);
        }
        tree.visit(&[u64::MAX], false, |value| panic!("{value} is of no such key"));
    }

    #[test]
    fn before_a_change_all_of_a_leaf_is_seen() {
        let mut tree = BTree::new();
        (0..100u64).for_each(|value| tree.add(value, value));
        let mut seen = Vec::new();
        tree.visit(&[50], true, |value| seen.push(*value));
        assert!(seen.contains(&50) && seen.len() >= LEAF_MIN, "{seen:?}");
    }

    #[test]
    fn an_emptied_tree_is_one_leaf_again() {
        let mut tree = BTree::new();
        for value in 0..10_000u64 {
            tree.add(value.wrapping_mul(0x9e37_79b9_7f4a_7c15), value);
        }
        tree.check();
        for value in 0..10_000u64 {
            let position = tree.locate(value.wrapping_mul(0x9e37_79b9_7f4a_7c15), |&v| v == value);
            tree.remove(&position.expect("was inserted"));
        }
        tree.check();
        assert_eq!(tree.node_counts(), (1, 0));
    }

    #[test]
    fn loading_in_key_order_fills_leaves_two_thirds() {
        let mut tree = BTree::new();
        for value in 0..30_000u64 {
            tree.add(value, value);
        }
        tree.check();
        let (leaves, _) = tree.node_counts();
        assert!(tree.len() * 3 >= leaves * (LEAF_MAX - 1) * 2, "{leaves} leaves for {}", tree.len());
    }

    #[test]
    fn churn_does_not_decay_the_fill() {
        let mut tree = BTree::new();
        let key = |value: u64| value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for value in 0..100_000u64 {
            tree.add(key(value), value);
            if let Some(gone) = value.checked_sub(2_000) {
                let position = tree.locate(key(gone), |&v| v == gone).expect("was inserted");
                tree.remove(&position);
            }
        }
        tree.check();
        let (leaves, _) = tree.node_counts();
        assert!(tree.len() * 2 >= leaves * LEAF_MAX, "{leaves} leaves for {} entries", tree.len());
    }
}
