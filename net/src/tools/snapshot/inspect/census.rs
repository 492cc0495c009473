//! Counting a tree.

use std::collections::HashMap;

use ringkeeper_engine::state::State;
use ringkeeper_engine::tree::Owner;

/// A znode and everything below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Subtree {
    pub(super) znodes: u64,
    /// Of paths and data.
    pub(super) bytes: u64,
    pub(super) data_bytes: u64,
}

/// What a tree is made of.
pub(super) struct Census {
    /// By path, only of znodes with children, and of the root.
    subtrees: HashMap<String, Subtree>,
    children: HashMap<String, u32>,
    pub(super) containers: u64,
    pub(super) ttls: u64,
}

impl Census {
    /// Counts. Costs a look-up for each ancestor of each znode.
    pub(super) fn take(state: &State) -> Self {
        let mut census = Self { subtrees: HashMap::new(), children: HashMap::new(), containers: 0, ttls: 0 };
        let mut path = String::new();
        for znode in state.tree().nodes() {
            znode.write_path(&mut path);
            let data_bytes = znode.data_len() as u64;
            let own = Subtree { znodes: 1, bytes: path.len() as u64 + data_bytes, data_bytes };
            match znode.owner() {
                Owner::Container => census.containers += 1,
                Owner::Ttl(_) => census.ttls += 1,
                Owner::None | Owner::Session(_) => {}
            }
            let children = znode.num_children();
            if children > 0 || path == "/" {
                census.add(&path, own);
                census.children.insert(path.clone(), children);
            }
            let mut rest = path.as_str();
            while rest != "/"
                && let Some(slash) = rest.rfind('/')
            {
                rest = if slash == 0 { "/" } else { &rest[..slash] };
                census.add(rest, own);
            }
        }
        census
    }

    fn add(&mut self, path: &str, znode: Subtree) {
        if !self.subtrees.contains_key(path) {
            self.subtrees.insert(path.to_owned(), Subtree::default());
        }
        if let Some(subtree) = self.subtrees.get_mut(path) {
            subtree.znodes += znode.znodes;
            subtree.bytes += znode.bytes;
            subtree.data_bytes += znode.data_bytes;
        }
    }

    /// The whole tree.
    pub(super) fn total(&self) -> Subtree {
        self.subtrees.get("/").copied().unwrap_or_default()
    }

    /// The largest subtrees below the root, the largest first.
    pub(super) fn largest(&self, top: usize) -> Vec<(&str, Subtree)> {
        let subtrees = self.subtrees.iter().filter(|(path, _)| *path != "/");
        let mut subtrees: Vec<_> = subtrees.map(|(path, subtree)| (path.as_str(), *subtree)).collect();
        subtrees.sort_unstable_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then(a.0.cmp(b.0)));
        subtrees.truncate(top);
        subtrees
    }

    /// The znodes with the most children, the widest first.
    pub(super) fn widest(&self, top: usize) -> Vec<(&str, u32)> {
        let mut parents: Vec<_> =
            self.children.iter().map(|(path, children)| (path.as_str(), *children)).collect();
        parents.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        parents.truncate(top);
        parents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_state_has_its_built_in_znodes() {
        let census = Census::take(&State::new(1));
        assert_eq!(census.total().znodes, 4);
        assert_eq!(census.total().data_bytes, 0);
        assert_eq!(census.largest(1), [("/zookeeper", census.subtrees["/zookeeper"])]);
        assert_eq!(census.subtrees["/zookeeper"].znodes, 3);
        assert_eq!(census.widest(1), [("/zookeeper", 2)]);
    }
}
