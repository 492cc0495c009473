//! The paths that have a quota, and which of these quotas applies to a path.

use std::cmp::Ordering;
use std::sync::Arc;

use equivalent::{Comparable, Equivalent};
use imbl::OrdSet;

use crate::{path, quota};

/// The paths that have a quota, ordered so that everything below a path follows it directly.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quotas(OrdSet<QuotaPath>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct QuotaPath(Arc<str>);

impl Ord for QuotaPath {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

impl PartialOrd for QuotaPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A path to search for.
struct Wanted<'a>(&'a str);

impl Equivalent<QuotaPath> for Wanted<'_> {
    fn equivalent(&self, key: &QuotaPath) -> bool {
        *self.0 == *key.0
    }
}

impl Comparable<QuotaPath> for Wanted<'_> {
    fn compare(&self, key: &QuotaPath) -> Ordering {
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

impl Quotas {
    /// All paths that have a quota: those with the same first element one after the other.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|QuotaPath(path)| &**path)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records a new znode: if it holds limits, its path has a quota now.
    pub(super) fn created(&mut self, path: &str) {
        if let Some(limited) = quota::limited_by(path) {
            self.0.insert(QuotaPath(limited.into()));
        }
    }

    /// Records the deletion of a znode.
    pub(super) fn deleted(&mut self, path: &str) {
        if let Some(limited) = quota::limited_by(path) {
            self.0.remove(&Wanted(limited));
        }
    }

    /// The longest path with a quota that is `path` or above it.
    ///
    /// The greatest quota path that is not greater than `path` in the order is the answer if it is an
    /// ancestor. If not, each ancestor with a quota is also an ancestor of the common prefix, where the
    /// search continues.
    pub(crate) fn covering(&self, path: &str) -> Option<&str> {
        let mut probe = path;
        loop {
            let candidate = &*self.0.get_prev(&Wanted(probe))?.0;
            if path::is_self_or_ancestor(candidate, probe) {
                return Some(candidate);
            }
            let common = common_len(candidate, probe);
            probe = &probe[..probe.as_bytes()[..common].iter().rposition(|&byte| byte == b'/')?];
            if probe.is_empty() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quotas(paths: &[String]) -> Quotas {
        let mut quotas = Quotas::default();
        for path in paths {
            quotas.created(&format!("/zookeeper/quota{path}/zookeeper_limits"));
        }
        quotas
    }

    fn some_path() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "a-", "ä", "a/b"]), 1..5)
            .prop_map(|names| format!("/{}", names.join("/")))
    }

    proptest! {
        #[test]
        fn the_longest_ancestor_with_a_quota_counts(
            limited in prop::collection::vec(some_path(), 0..12),
            path in some_path(),
        ) {
            let expected = limited
                .iter()
                .filter(|limited| path::is_self_or_ancestor(limited, &path))
                .max_by_key(|limited| limited.len());
            let quotas = quotas(&limited);
            prop_assert_eq!(quotas.covering(&path), expected.map(String::as_str));
        }
    }

    #[test]
    fn a_deleted_limit_counts_no_more() {
        let mut quotas = quotas(&["/a".to_owned()]);
        assert_eq!(quotas.covering("/a/b"), Some("/a"));
        quotas.deleted("/zookeeper/quota/a/zookeeper_limits");
        assert!(quotas.is_empty());
    }
}
