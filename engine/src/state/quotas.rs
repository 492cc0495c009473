//! The paths that have a quota.

use crate::quota;
use crate::subtrees::Subtrees;

/// The paths that have a quota, where the longest one that covers a path applies to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quotas(Subtrees<()>);

impl Quotas {
    /// All paths that have a quota: those with the same first element one after the other.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(path, ())| path)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records a new znode: if it holds limits, its path has a quota now.
    pub(super) fn created(&mut self, path: &str) {
        if let Some(limited) = quota::limited_by(path) {
            self.0.insert(limited, ());
        }
    }

    /// Records the deletion of a znode.
    pub(super) fn deleted(&mut self, path: &str) {
        if let Some(limited) = quota::limited_by(path) {
            self.0.remove(limited);
        }
    }

    /// The longest path with a quota that is `path` or above it.
    pub(crate) fn covering(&self, path: &str) -> Option<&str> {
        self.0.covering(path).map(|(path, ())| path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_limit_counts_no_more() {
        let mut quotas = Quotas::default();
        quotas.created("/zookeeper/quota/a/zookeeper_limits");
        assert_eq!(quotas.covering("/a/b"), Some("/a"));
        quotas.deleted("/zookeeper/quota/a/zookeeper_limits");
        assert!(quotas.is_empty());
    }
}
