//! Prefetches what a group of writes will look up.
//!
//! On a tree that no cache holds, a write waits for memory: once for each level of its look-up, and once more
//! for the reference counts in the nodes that it copies. If the znodes of several writes are looked up
//! together beforehand, these waits overlap. A prefetch changes nothing, and nothing depends on it
//! (docs/decisions/0003-prefetch-before-writes.md).

use ringkeeper_wire::{MultiOp, Request};

use crate::path;
use crate::state::State;
use crate::txn::{Txn, Update};

/// Number of writes whose znodes are prefetched together; what they need fits the fastest cache.
pub(crate) const PREFETCHED_WRITES: usize = 16;

/// The znodes that a write changes: the path's, and the parent's (`true`) if the znode is created or deleted.
type Changed<'a> = (&'a str, bool);

impl State {
    /// Prefetches what applying `txns` will change. `shared` says whether there are clones of this state.
    /// Updates of long multis are not among them, see [`Self::prefetch_updates`].
    pub(crate) fn prefetch_txns(&self, txns: &[Txn], shared: bool) {
        let updates = txns.iter().map(|txn| txn.op.updates()).filter(|it| it.len() <= PREFETCHED_WRITES);
        self.prefetch(updates.flatten().map(changed_by_update), shared);
    }

    /// Prefetches what applying updates of a multi will change, on a state of which there are clones.
    pub(crate) fn prefetch_updates(&self, updates: &[Update]) {
        self.prefetch(updates.iter().map(changed_by_update), true);
    }

    /// Prefetches what executing `requests` will change, on a state of which there are clones. Operations of
    /// multis are not among them, see [`Self::prefetch_operations`].
    pub(crate) fn prefetch_requests<'r, 'b: 'r>(&self, requests: impl Iterator<Item = &'r Request<'b>>) {
        self.prefetch(requests.filter_map(changed_by_request), true);
    }

    /// Prefetches what executing operations of a multi will change, on a state of which there are clones.
    pub(crate) fn prefetch_operations(&self, operations: &[MultiOp<'_>]) {
        let changed = operations.iter().map(|op| {
            let op_changes_parent = !matches!(op, MultiOp::SetData(_) | MultiOp::Check(_));
            (op.path(), op_changes_parent)
        });
        self.prefetch(changed, true);
    }

    fn prefetch<'p>(&self, writes: impl Iterator<Item = Changed<'p>>, shared: bool) {
        let paths = writes.flat_map(|(path, and_parent)| {
            let parent = if and_parent { path::parent(path) } else { None };
            parent.into_iter().chain([path])
        });
        self.tree.prefetch(paths, shared);
    }
}

fn changed_by_update(update: &Update) -> Changed<'_> {
    (update.path(), matches!(update, Update::Create(_) | Update::Delete(_)))
}

fn changed_by_request<'r>(request: &'r Request<'_>) -> Option<Changed<'r>> {
    match request {
        Request::Create(request) | Request::Create2(request) | Request::CreateContainer(request) => {
            Some((&request.path, true))
        }
        Request::CreateTtl(request) => Some((&request.path, true)),
        Request::Delete(request) => Some((&request.path, true)),
        Request::SetData(request) => Some((&request.path, false)),
        Request::SetAcl(request) => Some((&request.path, false)),
        _ => None,
    }
}
