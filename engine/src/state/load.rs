//! Building a state from znodes in the tree's order, which is how a snapshot has them.
//!
//! [`super::StateBuilder`] takes znodes in any order and searches a place for each one. Here they come in the
//! order of the tree, and the costly part, from a row to a znode, is done by any number of [`ZnodeReader`]s
//! at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringkeeper_wire::{SessionId, Zxid};

use super::digest::{Digest, PathHash};
use super::{RestoreError, State, StateBuilder};
use crate::acl::Acl;
use crate::quota;
use crate::tree::{AclId, Loader, Misplaced, Owner, Run, RunMaker, ZnodeMeta};
use crate::txn::Session;

/// A list of the state to come.
#[derive(Clone, Copy, Debug)]
struct KnownAcl {
    id: AclId,
    fingerprint: u64,
}

/// Makes znodes out of their parts, apart from the state that they are for.
#[derive(Clone, Debug)]
pub(crate) struct ZnodeReader {
    /// By their ids in the source.
    acls: Arc<BTreeMap<u32, KnownAcl>>,
    maker: RunMaker,
}

/// Znodes that follow each other in the tree, and what the other tables have to know of them.
#[derive(Debug, Default)]
pub(crate) struct ZnodeRun {
    run: Run,
    digest: Digest,
    acl_users: BTreeMap<u32, (AclId, u64)>,
    /// Those with an owner, and those that hold limits of a quota.
    enlisted: Vec<(Box<str>, Owner)>,
}

/// Why a znode cannot be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// It names a list that was not announced.
    UnknownAcl,
    Misplaced(Misplaced),
}

impl ZnodeReader {
    /// Puts a znode behind those that the run has. The ACL in `meta` is the id in the source.
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

/// Takes sessions and lists, then runs of znodes in their order.
pub(crate) struct StateLoader {
    seed: u64,
    /// Everything but the tree.
    builder: StateBuilder,
    tree: Loader,
    acls: BTreeMap<u32, KnownAcl>,
}

impl StateLoader {
    /// `seed` as for [`State::new`]: the one that decided the order of the znodes.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, builder: StateBuilder::new(seed), tree: Loader::new(seed), acls: BTreeMap::new() }
    }

    pub(crate) fn session(&mut self, id: SessionId, session: Session) {
        self.builder.session(id, session);
    }

    /// A list that znodes have; `id` is its id in the source.
    pub(crate) fn acl(&mut self, id: u32, acl: &Acl) {
        let table = &mut self.builder.0.acls;
        let own = table.announce(acl);
        self.acls.insert(id, KnownAcl { id: own, fingerprint: table.fingerprint(own) });
    }

    /// What makes runs of znodes that have the lists announced so far.
    pub(crate) fn reader(&self) -> ZnodeReader {
        ZnodeReader { acls: Arc::new(self.acls.clone()), maker: RunMaker::new(self.seed) }
    }

    /// Puts a run behind the others.
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
