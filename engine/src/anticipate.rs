//! What writes are about to look up, looked up for several of them at once.
//!
//! On a big tree a write waits for memory: level by level, and then once more for everything whose references
//! a copied node counts. Looked up together beforehand, the waits of several writes overlap, and each finds
//! what it needs in the processor's cache. Changes nothing, and nothing depends on it.

use ringkeeper_wire::Request;

use crate::path;
use crate::state::State;
use crate::txn::{Txn, Update};

/// Writes that are anticipated together: what they need fits the fastest cache.
pub(crate) const ANTICIPATED: usize = 16;

/// The znodes that a write changes: the one of a path, and its parent if it is created or deleted.
type Changed<'a> = (&'a str, bool);

impl State {
    /// Transactions are about to be applied to this state, of which there are clones or not (`shared`).
    pub(crate) fn anticipate_txns(&self, txns: &[Txn], shared: bool) {
        self.anticipate(txns.iter().flat_map(|txn| txn.op.updates()).map(changed_by_update), shared);
    }

    /// Requests are about to be prepared on this state and applied to it; there are clones of it. The
    /// operations of a multi have to wait.
    pub(crate) fn anticipate_requests<'r, 'b: 'r>(&self, requests: impl Iterator<Item = &'r Request<'b>>) {
        self.anticipate(requests.filter_map(changed_by_request), true);
    }

    fn anticipate<'p>(&self, writes: impl Iterator<Item = Changed<'p>>, shared: bool) {
        let paths = writes.flat_map(|(path, and_parent)| {
            let parent = if and_parent { path::parent(path) } else { None };
            parent.into_iter().chain([path])
        });
        self.tree.anticipate(paths, shared);
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
