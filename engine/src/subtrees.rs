//! A map from paths to what holds for everything below them, where the longest path counts.

use std::cmp::Ordering;
use std::sync::Arc;

use equivalent::{Comparable, Equivalent};
use imbl::OrdMap;

use crate::{path, steps};

/// Values by path, ordered so that everything below a path follows it directly. Cloning shares the structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subtrees<V: Clone>(OrdMap<Key, V>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key(Arc<str>);

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A path to search for.
struct Wanted<'a>(&'a str);

impl Equivalent<Key> for Wanted<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self.0 == *key.0
    }
}

impl Comparable<Key> for Wanted<'_> {
    fn compare(&self, key: &Key) -> Ordering {
        compare(self.0, &key.0)
    }
}

/// Byte order with the slash below every other byte of a path, so that "/a/b" comes before "/a-".
fn compare(a: &str, b: &str) -> Ordering {
    let common = common_len(a, b);
    let next = |path: &str| path.as_bytes().get(common).map(|&byte| if byte == b'/' { 0 } else { byte });
    next(a).cmp(&next(b))
}

fn common_len(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

impl<V: Clone> Default for Subtrees<V> {
    fn default() -> Self {
        Self(OrdMap::new())
    }
}

impl<V: Clone> Subtrees<V> {
    /// Sets the value of a path; returns the one it had.
    pub(crate) fn insert(&mut self, path: &str, value: V) -> Option<V> {
        self.0.insert(Key(path.into()), value)
    }

    /// Removes a path.
    pub(crate) fn remove(&mut self, path: &str) {
        self.0.remove(&Wanted(path));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The value of this very path.
    pub(crate) fn get(&self, path: &str) -> Option<&V> {
        self.0.get(&Wanted(path))
    }

    pub(crate) fn get_mut(&mut self, path: &str) -> Option<&mut V> {
        self.0.get_mut(&Wanted(path))
    }

    /// Whether neither has changed since one was cloned from the other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }

    /// All, those with the same first element one after the other.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.0.iter().map(|(Key(path), value)| (&**path, value))
    }

    /// The longest path in the map that is `path` or above it.
    ///
    /// The greatest key that is not greater than `path` in the order is the answer if it is an ancestor. If
    /// not, each ancestor in the map is also an ancestor of the common prefix, where the search continues.
    pub(crate) fn covering(&self, path: &str) -> Option<(&str, &V)> {
        let mut probe = path;
        loop {
            steps::count(1);
            let (Key(candidate), value) = self.0.get_prev(&Wanted(probe))?;
            if path::is_self_or_ancestor(candidate, probe) {
                return Some((candidate, value));
            }
            let common = common_len(candidate, probe);
            probe = match probe.as_bytes()[..common].iter().rposition(|&byte| byte == b'/')? {
                0 => path::ROOT,
                slash => &probe[..slash],
            };
        }
    }

    /// The paths in the map that are below `path`, itself excluded.
    pub(crate) fn below(&self, path: &str) -> impl Iterator<Item = (&str, &V)> {
        use std::ops::Bound;
        let after = self.0.range((Bound::Excluded(Wanted(path)), Bound::Unbounded));
        let after = after.map(|(Key(path), value)| (&**path, value));
        after.take_while(move |(below, _)| path::is_self_or_ancestor(path, below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some_path() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "a-", "ä", "a/b"]), 0..5)
            .prop_map(|names| format!("/{}", names.join("/")))
    }

    proptest! {
        #[test]
        fn the_longest_ancestor_counts_and_all_below_are_found(
            paths in prop::collection::vec(some_path(), 0..12),
            path in some_path(),
        ) {
            let mut subtrees = Subtrees::default();
            paths.iter().for_each(|path| _ = subtrees.insert(path, path.len()));
            let ancestors = paths.iter().filter(|other| path::is_self_or_ancestor(other, &path));
            let longest = ancestors.max_by_key(|ancestor| ancestor.len());
            prop_assert_eq!(subtrees.covering(&path).map(|(path, _)| path), longest.map(String::as_str));
            let below: Vec<_> = subtrees.below(&path).map(|(path, _)| path.to_owned()).collect();
            let is_below = |other: &String| *other != path && path::is_self_or_ancestor(&path, other);
            let expected: Vec<_> =
                subtrees.iter().map(|(path, _)| path.to_owned()).filter(is_below).collect();
            prop_assert_eq!(below, expected);
        }
    }

    #[test]
    fn texts_that_are_no_paths_are_covered_by_no_more_than_their_beginning_says() {
        let mut subtrees = Subtrees::default();
        for path in ["/a", "/a/b"] {
            subtrees.insert(path, ());
        }
        for (text, covered) in
            [("", None), ("a", None), ("//a", None), ("/a/", Some("/a")), ("/a//b", Some("/a"))]
        {
            assert_eq!(subtrees.covering(text).map(|(path, ())| path), covered, "{text:?}");
        }
    }
}
