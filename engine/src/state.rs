//! The replicated state: a value that every server computes from the log, with the same result.
//!
//! All its tables are persistent data structures: a clone costs a few reference counts and never changes when
//! the original does. So the leader keeps a state for each proposal, shards read the committed one, and a
//! snapshot task holds one while the service goes on.

mod acls;
pub(crate) mod digest;
mod load;
mod quotas;
mod restore;
mod sessions;

pub(crate) use load::{StateLoader, Unreadable, ZnodeReader, ZnodeRun};
pub use restore::{RestoreError, StateBuilder};

use std::sync::Arc;

use imbl::OrdSet;
use ringkeeper_wire::{SessionId, Zxid};

use crate::acl::Acl;
use crate::authorisation::Authorisation;
use crate::level::FeatureLevel;
use crate::members::Membership;
use crate::path;
use crate::tenants::Tenants;
use crate::tree::{Owner, Tree, Znode};
use crate::txn::Session;
use acls::AclTable;
use digest::Digest;
use quotas::Quotas;
use sessions::Sessions;

/// Everything that transactions change. Cloning it shares its structure.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) tree: Tree,
    pub(crate) acls: AclTable,
    pub(crate) sessions: Sessions,
    /// Container and TTL znodes, which the leader deletes when their time has come.
    pub(crate) reapable: OrdSet<Arc<str>>,
    pub(crate) quotas: Quotas,
    pub(crate) authorisation: Authorisation,
    pub(crate) tenants: Tenants,
    pub(crate) membership: Option<Arc<Membership>>,
    pub(crate) feature_level: FeatureLevel,
    pub(crate) digest: Digest,
    pub(crate) last_zxid: Zxid,
    pub(crate) last_time_ms: i64,
}

impl State {
    /// The state of a new ensemble. `seed` orders znodes inside this server and is not part of the value; it
    /// must be unknown to clients.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let tree = Tree::new(seed);
        let mut builder = StateBuilder::new(seed);
        for znode in tree.nodes() {
            let (mut meta, mut acl) = (znode.meta(), Acl::OPEN);
            if znode.path() == path::CONFIG {
                // ZooKeeper sets this ACL with version -1 ("any"), and stores that number as the ACL's
                // version.
                (meta.aversion, acl) = (-1, Acl::read_only());
            }
            builder.znode(&znode.path(), &meta, &acl, znode.data()).expect("built-in paths are distinct");
        }
        builder.finish(Zxid::ZERO, 0).expect("the built-in znodes are a tree")
    }

    /// Zxid of the last transaction applied.
    #[must_use]
    pub const fn last_zxid(&self) -> Zxid {
        self.last_zxid
    }

    /// Largest time of a transaction applied, milliseconds since the Unix epoch.
    #[must_use]
    pub const fn last_time_ms(&self) -> i64 {
        self.last_time_ms
    }

    /// A fingerprint of the tree: servers at the same zxid have the same one.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// The znodes.
    #[must_use]
    pub const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The znode `path`.
    #[must_use]
    pub fn znode(&self, path: &str) -> Option<&Znode> {
        self.tree.get(path)
    }

    /// A znode's ACL.
    ///
    /// # Panics
    /// The znode is of another state.
    #[must_use]
    pub fn acl_of(&self, znode: &Znode) -> &Acl {
        self.acls.get(znode.acl())
    }

    /// The rules that bind clients.
    #[must_use]
    pub const fn authorisation(&self) -> &Authorisation {
        &self.authorisation
    }

    /// The subtrees with limits.
    #[must_use]
    pub const fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// The members of the ensemble, if the log names them.
    #[must_use]
    pub const fn membership(&self) -> Option<&Arc<Membership>> {
        self.membership.as_ref()
    }

    /// The ensemble's feature level.
    #[must_use]
    pub const fn feature_level(&self) -> FeatureLevel {
        self.feature_level
    }

    /// Reads the feature level from its znode, which has changed.
    pub(crate) fn read_feature_level(&mut self) {
        let znode = self.tree.get(path::FEATURE_LEVEL);
        self.feature_level =
            znode.map_or_else(FeatureLevel::default, |znode| FeatureLevel::read(znode.data()));
    }

    /// A session, if it exists.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(id)
    }

    /// All sessions, by id.
    pub fn sessions(&self) -> impl ExactSizeIterator<Item = (SessionId, &Session)> {
        self.sessions.iter()
    }

    /// A session's ephemeral znodes, in the order of their paths.
    pub fn ephemerals(&self, session: SessionId) -> impl Iterator<Item = &str> {
        self.sessions.ephemerals(session).map(|path| &**path)
    }

    /// Number of ephemeral znodes of all sessions.
    #[must_use]
    pub fn ephemeral_count(&self) -> usize {
        self.sessions.ephemeral_count()
    }

    /// Container and TTL znodes after `after` in the order of their paths, so that a scan can continue.
    pub fn reapable<'a>(
        &'a self,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a str, &'a Znode)> + use<'a> {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(Arc::from(after)));
        self.reapable.range((from, Bound::Unbounded)).filter_map(|path| Some((&**path, self.tree.get(path)?)))
    }

    /// Number of distinct ACLs other than the open one.
    #[must_use]
    pub fn acl_count(&self) -> usize {
        self.acls.len()
    }

    /// Adds a new znode to all tables except the tree.
    pub(crate) fn enlist(&mut self, path: &str, owner: Owner) {
        match owner {
            Owner::None => {}
            Owner::Session(session) => self.sessions.add_ephemeral(session, path),
            Owner::Container | Owner::Ttl(_) => {
                self.reapable.insert(path.into());
            }
        }
        self.quotas.created(path);
    }

    /// Removes a znode from all tables except the tree.
    pub(crate) fn delist(&mut self, path: &str, owner: Owner) {
        match owner {
            Owner::None => {}
            Owner::Session(session) => self.sessions.remove_ephemeral(session, path),
            Owner::Container | Owner::Ttl(_) => {
                self.reapable.remove(path);
            }
        }
        self.quotas.deleted(path);
        self.authorisation.remove(path);
        self.tenants.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_shared_between_threads() {
        fn shared<T: Send + Sync>(_: &T) {}
        shared(&State::new(1));
    }

    #[test]
    fn the_seed_is_no_part_of_the_value() {
        assert_eq!(State::new(1).digest(), State::new(2).digest());
    }
}
