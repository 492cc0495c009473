//! Applying logged transactions to a tree that may have seen them, wholly or in part.
//!
//! A fuzzy snapshot holds each znode as it was at some moment after the snapshot began, so a transaction
//! finds its znode before, in or after the state it was made for. The rules are Apache's
//! (`DataTree.processTxn`): what exists is not created, what is missing is not deleted or set, and in all
//! cases the parent's counters end where the transaction says, never lower. The transactions that follow
//! bring the rest.

use std::collections::BTreeMap;

use crate::tree::{Stat, Tree, Znode, parent};
use crate::txnlog::{Create, Txn, TxnHeader};

/// Applies one transaction; `sessions` are the timeouts in milliseconds.
pub(crate) fn apply(tree: &mut Tree, sessions: &mut BTreeMap<i64, i32>, header: &TxnHeader, txn: &Txn) {
    match txn {
        Txn::Create(create) => tree.create(header, create),
        Txn::Delete(path) => tree.delete(header.zxid, path),
        Txn::SetData { path, data, version } => {
            tree.change(path, |znode| {
                znode.data.clone_from(data);
                znode.stat.version = *version;
                znode.stat.mzxid = header.zxid;
                znode.stat.mtime = header.time;
            });
        }
        Txn::SetAcl { path, acl, aversion } => {
            tree.change(path, |znode| {
                znode.acl = Some(acl.clone());
                znode.stat.aversion = *aversion;
            });
        }
        Txn::Nothing => {}
        Txn::CreateSession { timeout_ms } => {
            sessions.insert(header.session, *timeout_ms);
        }
        Txn::CloseSession { paths } => {
            sessions.remove(&header.session);
            // The leader's list counts whoever owns those znodes here; what it does not name and the session
            // owns here ends as well.
            for path in paths.iter().flatten() {
                tree.delete(header.zxid, path);
            }
            tree.end_ephemerals(header.session, header.zxid);
        }
        Txn::Multi(changes) => changes.iter().for_each(|change| apply(tree, sessions, header, change)),
    }
}

impl Tree {
    fn create(&mut self, header: &TxnHeader, create: &Create) {
        let Some(parent) = parent(&create.path).filter(|parent| self.get(parent).is_some()) else { return };
        // Where the znode exists, Apache does this for plain creations alone; the number is right for all of
        // them, and never goes down.
        self.change(parent, |znode| raise_cversion(&mut znode.stat, create.parent_cversion, header.zxid));
        if self.change(&create.path, |znode| znode.acl = Some(create.acl.clone())) {
            return;
        }
        let stat = Stat {
            czxid: header.zxid,
            mzxid: header.zxid,
            pzxid: header.zxid,
            ctime: header.time,
            mtime: header.time,
            owner: create.owner,
            ..Stat::default()
        };
        let znode = Znode { data: create.data.clone(), acl: Some(create.acl.clone()), stat };
        self.add(&create.path, znode).expect("looked for a moment ago");
    }

    /// Deletes a znode, whether or not it has children: those are of its next life, which comes later in the
    /// log.
    pub(crate) fn delete(&mut self, zxid: i64, path: &str) {
        let Some(parent) = parent(path) else { return };
        self.change(parent, |znode| znode.stat.pzxid = znode.stat.pzxid.max(zxid));
        self.take(path);
    }

    /// Deletes what a session owns.
    pub(crate) fn end_ephemerals(&mut self, session: i64, zxid: i64) {
        for path in self.ephemerals(session) {
            self.delete(zxid, &path);
        }
    }
}

/// -1 stands for one more than now.
fn raise_cversion(stat: &mut Stat, cversion: i32, zxid: i64) {
    let cversion = if cversion == -1 { stat.cversion.wrapping_add(1) } else { cversion };
    if cversion > stat.cversion {
        stat.cversion = cversion;
        stat.pzxid = zxid;
    }
}

#[cfg(test)]
mod tests;
