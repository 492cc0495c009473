//! Builds a state from the parts in a snapshot.

use ringkeeper_wire::{SessionId, Zxid};

use super::State;
use super::acls::AclTable;
use super::digest::{Digest, PathHash};
use super::quotas::Quotas;
use super::sessions::Sessions;
use std::sync::Arc;

use crate::acl::Acl;
use crate::authorisation::Authorisation;
use crate::level::FeatureLevel;
use crate::members::Membership;
use crate::path;
use crate::tenants::Tenants;
use crate::tree::{Tree, ZnodeMeta};
use crate::txn::Session;

/// Why parts do not form a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A znode comes twice, or its path has no slash.
    #[error("{0:?} comes twice or is no path")]
    UnexpectedPath(String),
    /// There is no root.
    #[error("there is no root znode")]
    NoRoot,
}

/// Builds a state from parts in any order.
///
/// To find out whether all znodes came, compare [`State::digest`] with the digest of the source.
/// tells whether all znodes came.
#[derive(Debug)]
pub struct StateBuilder(pub(super) State);

impl StateBuilder {
    /// An empty builder, even without the built-in znodes. `seed` as for [`State::new`].
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(State {
            tree: Tree::empty(seed),
            acls: AclTable::default(),
            sessions: Sessions::default(),
            reapable: imbl::OrdSet::new(),
            quotas: Quotas::default(),
            authorisation: Authorisation::default(),
            tenants: Tenants::default(),
            membership: None,
            feature_level: FeatureLevel::default(),
            digest: Digest::default(),
            last_zxid: Zxid::ZERO,
            last_time_ms: 0,
        })
    }

    /// Adds a session.
    pub fn session(&mut self, id: SessionId, session: Session) {
        self.0.sessions.open(id, session);
    }

    /// Adds a znode. `meta` has to be complete, with the number of children, except for the ACL's id, which
    /// is replaced: ids differ between states.
    ///
    /// # Errors
    /// See [`RestoreError::UnexpectedPath`].
    pub fn znode(
        &mut self,
        path: &str,
        meta: &ZnodeMeta,
        acl: &Acl,
        data: Option<&[u8]>,
    ) -> Result<(), RestoreError> {
        let state = &mut self.0;
        let meta = ZnodeMeta { acl: state.acls.acquire(acl), ..*meta };
        if state.tree.restore(path, &meta, data).is_err() {
            state.acls.release(meta.acl);
            return Err(RestoreError::UnexpectedPath(path.to_owned()));
        }
        let hash = PathHash::of(path);
        state.digest.add(hash.meta_term(&meta, state.acls.fingerprint(meta.acl)));
        state.digest.add(hash.data_term(data));
        state.enlist(path, crate::tree::Owner::from_raw(meta.raw_owner));
        Ok(())
    }

    /// The state, as it was after the transaction `last_zxid`.
    ///
    /// # Errors
    /// See [`RestoreError::NoRoot`].
    pub fn finish(mut self, last_zxid: Zxid, last_time_ms: i64) -> Result<State, RestoreError> {
        self.0.tree.get(path::ROOT).ok_or(RestoreError::NoRoot)?;
        self.0.authorisation = Authorisation::of(&self.0.tree);
        self.0.tenants = Tenants::of(&self.0.tree);
        self.0.membership = self.0.tree.get(path::CONFIG).and_then(|config| {
            // A snapshot holds what is committed.
            Membership::read_committed(config.data()?, Zxid(config.stat().mzxid.cast_unsigned()))
                .map(Arc::new)
        });
        self.0.read_feature_level();
        self.0.last_zxid = last_zxid;
        self.0.last_time_ms = last_time_ms;
        Ok(self.0)
    }
}
