//! Building a state from its parts: out of a snapshot.

use ringkeeper_wire::{SessionId, Zxid};

use super::State;
use super::acls::AclTable;
use super::digest::{Digest, PathHash};
use super::quotas::Quotas;
use super::sessions::Sessions;
use crate::acl::Acl;
use crate::path;
use crate::tree::{Tree, ZnodeMeta};
use crate::txn::Session;

/// Why parts do not make a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// A znode comes twice, or its path has no slash.
    #[error("{0:?} comes twice or is no path")]
    UnexpectedPath(String),
    /// There is no root.
    #[error("there is no root znode")]
    NoRoot,
}

/// Takes the parts of a state in any order.
///
/// Whoever has the digest of the state that the parts come from compares it with [`State::digest`]: that also
/// tells whether all znodes came.
#[derive(Debug)]
pub struct StateBuilder(pub(super) State);

impl StateBuilder {
    /// Nothing yet, not even the built-in znodes. `seed` as for [`State::new`].
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(State {
            tree: Tree::empty(seed),
            acls: AclTable::default(),
            sessions: Sessions::default(),
            reapable: imbl::OrdSet::new(),
            quotas: Quotas::default(),
            digest: Digest::default(),
            last_zxid: Zxid::ZERO,
            last_time_ms: 0,
        })
    }

    /// Adds a session.
    pub fn session(&mut self, id: SessionId, session: Session) {
        self.0.sessions.open(id, session);
    }

    /// Adds a znode. `meta` is complete, its number of children too, but for the ACL's id: that of another
    /// state means nothing here.
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
        self.0.last_zxid = last_zxid;
        self.0.last_time_ms = last_time_ms;
        Ok(self.0)
    }
}
