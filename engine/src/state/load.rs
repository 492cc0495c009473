//! Builds a state from znodes in the tree's order, which is the order of a snapshot.
//!
//! [`super::StateBuilder`] takes znodes in any order and searches a place for each. Here they come in order,
//! so none is searched for, and any number of [`ZnodeReader`]s do the expensive part in parallel: making
//! znodes from rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringkeeper_wire::{SessionId, Zxid};

use super::digest::{Digest, PathHash};
use super::{RestoreError, State, StateBuilder};
use crate::acl::Acl;
use crate::quota;
use crate::tree::{AclId, Loader, Misplaced, Owner, Run, RunMaker, ZnodeMeta};
use crate::txn::Session;

/// An ACL in the table of the new state.
#[derive(Clone, Copy, Debug)]
struct KnownAcl {
    id: AclId,
    fingerprint: u64,
}

/// Makes znodes from rows, independently of the state that will hold them.
#[derive(Clone, Debug)]
pub(crate) struct ZnodeReader {
    /// ACLs by their ids in the source.
    acls: Arc<BTreeMap<u32, KnownAcl>>,
    maker: RunMaker,
}

/// Consecutive znodes of the tree, and what the other tables need from them.
#[derive(Debug, Default)]
pub(crate) struct ZnodeRun {
    run: Run,
    digest: Digest,
    acl_users: BTreeMap<u32, (AclId, u64)>,
    /// Paths with an owner, and paths of quota limits.
    enlisted: Vec<(Box<str>, Owner)>,
}

/// Why a znode cannot be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// It names an ACL that was not announced.
    UnknownAcl,
    Misplaced(Misplaced),
}

impl ZnodeReader {
    /// Appends a znode to the run. The ACL in `meta` is the id in the source.
    pub(crate) fn push(
        &self,
        run: &mut ZnodeRun,
        path: &str,
        meta: &ZnodeMeta,
        data: Option<&[u8]>,
    ) -> Result<(), Unreadable> {
        let known = match meta.acl {
            AclId::OPEN => KnownAcl { id: AclId::OPEN, fingerprint: 0 },
            AclId(id) => *self.acls.get(&id).ok_or(Unreadable::UnknownAcl)?,
        };
        let meta = ZnodeMeta { acl: known.id, ..*meta };
        self.maker.push(&mut run.run, path, &meta, data).map_err(Unreadable::Misplaced)?;
        let hash = PathHash::of(path);
        run.digest.add(hash.meta_term(&meta, known.fingerprint));
        run.digest.add(hash.data_term(data));
        if known.id != AclId::OPEN {
            run.acl_users.entry(known.id.0).or_insert((known.id, 0)).1 += 1;
        }
        let owner = Owner::from_raw(meta.raw_owner);
        if owner != Owner::None || quota::limited_by(path).is_some() {
            run.enlisted.push((path.into(), owner));
        }
        Ok(())
    }
}

impl ZnodeRun {
    pub(crate) fn len(&self) -> usize {
        self.run.len()
    }
}

/// Takes sessions and ACLs, then runs of znodes in order.
pub(crate) struct StateLoader {
    seed: u64,
    /// Everything but the tree.
    builder: StateBuilder,
    tree: Loader,
    acls: BTreeMap<u32, KnownAcl>,
}

impl StateLoader {
    /// `seed` is that of the tree whose order the znodes have, see [`State::new`].
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, builder: StateBuilder::new(seed), tree: Loader::new(seed), acls: BTreeMap::new() }
    }

    pub(crate) fn session(&mut self, id: SessionId, session: Session) {
        self.builder.session(id, session);
    }

    /// Announces an ACL of later znodes; `id` is its id in the source.
    pub(crate) fn acl(&mut self, id: u32, acl: &Acl) {
        let table = &mut self.builder.0.acls;
        let own = table.announce(acl);
        self.acls.insert(id, KnownAcl { id: own, fingerprint: table.fingerprint(own) });
    }

    /// A reader for znodes that have the ACLs announced so far.
    pub(crate) fn reader(&self) -> ZnodeReader {
        ZnodeReader { acls: Arc::new(self.acls.clone()), maker: RunMaker::new(self.seed) }
    }

    /// Appends a run to those before it.
    pub(crate) fn append(&mut self, run: ZnodeRun) -> Result<(), Misplaced> {
        self.tree.append(run.run)?;
        let state = &mut self.builder.0;
        state.digest.join(run.digest);
        for (id, users) in run.acl_users.into_values() {
            state.acls.add_users(id, users);
        }
        for (path, owner) in run.enlisted {
            state.enlist(&path, owner);
        }
        Ok(())
    }

    /// The state, as it was after the transaction `last_zxid`.
    pub(crate) fn finish(self, last_zxid: Zxid, last_time_ms: i64) -> Result<State, RestoreError> {
        let mut builder = self.builder;
        builder.0.tree = self.tree.finish();
        builder.0.acls.forget_unused();
        builder.finish(last_zxid, last_time_ms)
    }
}
