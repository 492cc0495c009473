//! Applying transactions: the same on the leader, on followers and at recovery.

use std::sync::Arc;

use ringkeeper_wire::{ErrorCode, SessionId, Zxid};

use crate::members::Membership;
use crate::path;
use crate::prefetch::PREFETCHED_WRITES;
use crate::quota::{self, Figures};
use crate::state::State;
use crate::state::digest::PathHash;
use crate::tree::{InsertError, Inserted, NewZnode, Owner, RemoveError, Removed, ZnodeMeta};
use crate::txn::{Create, Effect, Outcome, SetAcl, SetData, Txn, TxnOp, Update};

/// The zxid and time that a transaction writes into the Stats of the znodes that it changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) zxid: Zxid,
    /// Milliseconds since the Unix epoch.
    pub(crate) time_ms: i64,
}

impl State {
    /// Applies transactions without outcomes: for recovery, where no client waits for a reply.
    pub fn replay(&mut self, txns: &[Txn]) {
        for txns in txns.chunks(PREFETCHED_WRITES) {
            // A state that is being recovered has no clones, so a change copies nothing.
            self.prefetch_txns(txns, false);
            for txn in txns {
                let _ = self.apply(txn);
            }
        }
    }

    /// Applies a transaction, unless the state already contains it (its zxid is not greater than the last
    /// one).
    pub fn apply(&mut self, txn: &Txn) -> Outcome {
        if txn.zxid <= self.last_zxid {
            return Outcome::Replayed;
        }
        let stamp = Stamp { zxid: txn.zxid, time_ms: txn.time_ms };
        self.advance(stamp);
        match &txn.op {
            TxnOp::Update(update) | TxnOp::Reconfig(update) => {
                let effect = self.update(stamp, update);
                if let (TxnOp::Reconfig(_), Update::SetData(set)) = (&txn.op, update) {
                    self.set_members(stamp, set);
                }
                match effect {
                    Effect::Missed(code) => Outcome::Failed(code),
                    effect => Outcome::Done(effect),
                }
            }
            TxnOp::Multi(updates) => Outcome::Multi(self.multi(stamp, updates)),
            TxnOp::FailedMulti(failed) => Outcome::MultiFailed(*failed),
            TxnOp::Error(code) => Outcome::Failed(*code),
            TxnOp::CreateSession(session) => {
                self.sessions.open(txn.session, *session);
                Outcome::SessionCreated
            }
            TxnOp::CloseSession => {
                let ephemerals = self.sessions.ephemerals(txn.session).map(Arc::clone).collect();
                self.close_session(stamp, txn.session, ephemerals)
            }
            TxnOp::CloseSessionListed(ephemerals) => {
                let ephemerals = ephemerals.iter().map(|path| Arc::from(&**path)).collect();
                self.close_session(stamp, txn.session, ephemerals)
            }
        }
    }

    fn multi(&mut self, stamp: Stamp, updates: &[Update]) -> Box<[Effect]> {
        let mut effects = Vec::with_capacity(updates.len());
        for group in updates.chunks(PREFETCHED_WRITES) {
            // Those of a short multi are prefetched already.
            if updates.len() > PREFETCHED_WRITES {
                self.prefetch_updates(group);
            }
            effects.extend(group.iter().map(|update| self.update(stamp, update)));
        }
        effects.into()
    }

    /// Records the zxid and time of a transaction as the last ones.
    pub(crate) fn advance(&mut self, stamp: Stamp) {
        self.last_zxid = stamp.zxid;
        self.last_time_ms = self.last_time_ms.max(stamp.time_ms);
    }

    pub(crate) fn update(&mut self, stamp: Stamp, update: &Update) -> Effect {
        let effect = match update {
            Update::Create(create) => self.create(stamp, create),
            Update::Delete(path) => self.delete(stamp, path),
            Update::SetData(set) => self.set_data(stamp, set),
            Update::SetAcl(set) => self.set_acl(set),
            Update::Check(_) => Some(Effect::Checked),
        };
        if update.path() == path::FEATURE_LEVEL {
            self.read_feature_level();
        }
        effect.unwrap_or(Effect::Missed(ErrorCode::NoNode))
    }

    fn close_session(&mut self, stamp: Stamp, session: SessionId, ephemerals: Vec<Arc<str>>) -> Outcome {
        let mut gone = Vec::with_capacity(ephemerals.len());
        for paths in ephemerals.chunks(PREFETCHED_WRITES) {
            self.tree.prefetch(paths.iter().map(|path| &**path), true);
            for path in paths {
                let effect = self.delete(stamp, path).unwrap_or(Effect::Missed(ErrorCode::NoNode));
                gone.push((Arc::clone(path), effect));
            }
        }
        self.sessions.close(session);
        Outcome::SessionClosed(gone.into())
    }

    fn create(&mut self, stamp: Stamp, create: &Create) -> Option<Effect> {
        let owner = Owner::from_raw(create.raw_owner);
        let acl = self.acls.acquire(&create.acl);
        let new = NewZnode {
            data: create.data.as_deref(),
            acl,
            owner,
            zxid: stamp.zxid,
            time: stamp.time_ms,
            parent_cversion: create.parent_cversion,
        };
        let Inserted { meta, parent_before, parent_now } = match self.tree.insert(&create.path, &new) {
            Ok(inserted) => inserted,
            Err(error) => {
                self.acls.release(acl);
                return match error {
                    InsertError::NoParent => None,
                    InsertError::NodeExists => Some(Effect::Missed(ErrorCode::NodeExists)),
                };
            }
        };
        self.parent_changed(&create.path, &parent_before, &parent_now);
        let hash = PathHash::of(&create.path);
        self.digest.add(hash.meta_term(&meta, self.acls.fingerprint(acl)));
        self.digest.add(hash.data_term(new.data));
        self.enlist(&create.path, owner);
        self.authorisation.put(&create.path, new.data);
        self.tenants.put(&self.tree, &create.path, new.data);
        self.count_anew(&create.path);
        self.charge(&create.path, 1, signed_len(new.data));
        let stat = meta.stat(new.data.map_or(0, <[u8]>::len));
        let parent_acl = self.acls.get(parent_now.acl).clone();
        Some(Effect::Created { stat, acl: create.acl.clone(), parent_acl })
    }

    fn delete(&mut self, stamp: Stamp, path: &str) -> Option<Effect> {
        let Removed { znode, parent_before, parent_now } = match self.tree.remove(path, stamp.zxid) {
            Ok(removed) => removed,
            Err(RemoveError::NoNode) => return None,
            Err(RemoveError::NotEmpty) => return Some(Effect::Missed(ErrorCode::NotEmpty)),
        };
        self.parent_changed(path, &parent_before, &parent_now);
        let parent_acl = self.acls.get(parent_now.acl).clone();
        let acl = self.acl_of(&znode).clone();
        let hash = PathHash::of(path);
        self.digest.subtract(hash.meta_term(&znode.meta(), self.acls.fingerprint(znode.acl())));
        self.digest.subtract(hash.data_term(znode.data()));
        self.acls.release(znode.acl());
        self.delist(path, znode.owner());
        self.charge(path, -1, -signed_len(znode.data()));
        Some(Effect::Deleted { acl, parent_acl })
    }

    fn set_data(&mut self, stamp: Stamp, set: &SetData) -> Option<Effect> {
        let Self { tree, acls, digest, .. } = self;
        let hash = PathHash::of(&set.path);
        let data = set.data.as_deref();
        let mut bytes_before = 0;
        // One look-up gives both the old and the new terms of the digest: on a big tree the look-up dominates
        // a write.
        let znode = tree.set_data(&set.path, data, set.version, stamp.zxid, stamp.time_ms, |before| {
            bytes_before = signed_len(before.data());
            digest.subtract(hash.data_term(before.data()));
            digest.subtract(hash.meta_term(&before.meta(), acls.fingerprint(before.acl())));
        });
        let znode = znode.ok()?;
        digest.add(hash.data_term(data));
        digest.add(hash.meta_term(&znode.meta(), acls.fingerprint(znode.acl())));
        let effect = Effect::DataSet { stat: znode.stat(), acl: acls.get(znode.acl()).clone() };
        self.charge(&set.path, 0, signed_len(data) - bytes_before);
        self.tenants.put(&self.tree, &set.path, data);
        if self.authorisation.is_active() {
            self.authorisation.put(&set.path, data);
        }
        Some(effect)
    }

    fn set_members(&mut self, stamp: Stamp, set: &SetData) {
        let text = set.data.as_deref().unwrap_or_default();
        self.membership = Membership::read(text, stamp.zxid, self.membership.as_deref()).map(Arc::new);
    }

    fn set_acl(&mut self, set: &SetAcl) -> Option<Effect> {
        let before = self.tree.get(&set.path)?.meta();
        let acl = self.acls.acquire(&set.acl);
        self.tree.set_acl(&set.path, acl, set.aversion).ok()?;
        let znode = self.tree.get(&set.path)?;
        let (now, stat) = (znode.meta(), znode.stat());
        self.meta_changed(&set.path, &before, &now);
        self.acls.release(before.acl);
        Some(Effect::AclSet { stat })
    }

    fn parent_changed(&mut self, child: &str, before: &ZnodeMeta, now: &ZnodeMeta) {
        let parent = path::parent(child).expect("a znode that has a parent has a slash");
        self.meta_changed(parent, before, now);
    }

    /// Updates the digest after a change of a znode's metadata; both ACLs are still in the table.
    fn meta_changed(&mut self, path: &str, before: &ZnodeMeta, now: &ZnodeMeta) {
        let hash = PathHash::of(path);
        self.digest.subtract(hash.meta_term(before, self.acls.fingerprint(before.acl)));
        self.digest.add(hash.meta_term(now, self.acls.fingerprint(now.acl)));
    }

    /// If the new znode `path` shows the use of a quota: counts that use.
    fn count_anew(&mut self, path: &str) {
        let Some(subject) = quota::counted_by(path) else { return };
        let znodes = self.tree.get(subject).into_iter().chain(self.tree.descendants(subject));
        let nothing = Figures { count: Some(0), bytes: Some(0), ..Figures::default() };
        let used = znodes.fold(nothing, |used, znode| used.plus(1, signed_len(znode.data())));
        self.overwrite_quietly(path, &used);
    }

    /// Adds to the use of the tenant and of the quota that apply to `path`.
    fn charge(&mut self, path: &str, count: i64, bytes: i64) {
        self.tenants.charge(path, count, bytes);
        if self.quotas.is_empty() || (count, bytes) == (0, 0) {
            return;
        }
        let Some(subject) = self.quotas.covering(path) else { return };
        let stats = quota::stats_path(subject);
        let used = self.tree.get(&stats).and_then(|znode| Figures::parse(znode.data().unwrap_or_default()));
        if let Some(used) = used {
            self.overwrite_quietly(&stats, &used.plus(count, bytes));
        }
    }

    /// The server's bookkeeping, not a client's write: no new version, time or event.
    fn overwrite_quietly(&mut self, path: &str, used: &Figures) {
        let Some(znode) = self.tree.get(path) else { return };
        let hash = PathHash::of(path);
        let text = used.to_string();
        self.digest.subtract(hash.data_term(znode.data()));
        self.digest.add(hash.data_term(Some(text.as_bytes())));
        self.tree.overwrite_data_quietly(path, Some(text.as_bytes())).expect("seen a moment ago");
    }
}

fn signed_len(data: Option<&[u8]>) -> i64 {
    data.map_or(0, <[u8]>::len).try_into().expect("data is shorter than a frame")
}
