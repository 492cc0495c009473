//! Fair queueing of multis.
//!
//! A multi may have thousands of operations, and everything that is done with a transaction is done in order:
//! it is prepared, logged, applied by followers, published. So the multis of a few clients would delay
//! everybody else's writes by their sum. Therefore a leader prepares multis only while those that are not
//! committed yet have fewer operations than a bound. Further ones wait here, in one queue for each client,
//! and the clients are served in turn (round robin). Other requests pass, unless their client has a request
//! here: the requests of one client stay in order.
//!
//! The queues are bounded, since shards bound the requests that are unanswered.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use ringkeeper_wire::{ServerId, Zxid};

use super::leading::Client;
use crate::message::Submission;

#[cfg(test)]
mod tests;

/// A request that waits, with the bytes of its body.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) submission: Submission,
    pub(super) body: Bytes,
}

/// The multis that wait, with what their clients sent after them.
#[derive(Debug)]
pub(super) struct FairQueue {
    /// Never an empty queue.
    clients: BTreeMap<Client, VecDeque<Waiting>>,
    /// The clients of `clients`, the next one first.
    turns: VecDeque<Client>,
    /// The multis that are prepared and not committed, with their numbers of operations.
    uncommitted: VecDeque<(Zxid, usize)>,
    /// Operations of `uncommitted`.
    operations: usize,
    /// The bound on `operations`; one multi may exceed it.
    operations_max: usize,
}

impl FairQueue {
    pub(super) fn new(operations_max: usize) -> Self {
        Self {
            clients: BTreeMap::new(),
            turns: VecDeque::new(),
            uncommitted: VecDeque::new(),
            operations: 0,
            operations_max,
        }
    }

    /// Whether a client's new request is prepared at once.
    pub(super) fn admits(&self, client: Client, is_multi: bool) -> bool {
        !self.clients.contains_key(&client) && (!is_multi || self.operations < self.operations_max)
    }

    /// Adds a request that was not admitted; its `body` is a part of `batch`.
    ///
    /// The body is copied if it is the smaller part. Otherwise a small body would keep a large batch in
    /// memory, of which the shards count only what is unanswered.
    pub(super) fn push(&mut self, client: Client, submission: Submission, body: &[u8], batch: &Bytes) {
        let whole = body.len() * 2 >= batch.len();
        let body = if whole { batch.slice_ref(body) } else { Bytes::copy_from_slice(body) };
        let queue = self.clients.entry(client).or_default();
        if queue.is_empty() {
            self.turns.push_back(client);
        }
        queue.push_back(Waiting { submission, body });
    }

    /// Drops what waits for the clients of a server.
    pub(super) fn forget(&mut self, server: ServerId) {
        self.clients.retain(|client, _| client.server != server);
        self.turns.retain(|client| client.server != server);
    }

    /// Whether [`Self::pop`] gives a request.
    pub(super) fn is_due(&self) -> bool {
        !self.turns.is_empty() && self.operations < self.operations_max
    }

    /// Whether no request waits.
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The next request to be prepared, if it is time for one.
    pub(super) fn pop(&mut self) -> Option<(Client, Waiting)> {
        if !self.is_due() {
            return None;
        }
        let client = self.turns.pop_front()?;
        let queue = self.clients.get_mut(&client)?;
        let waiting = queue.pop_front()?;
        if queue.is_empty() {
            self.clients.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        Some((client, waiting))
    }

    /// A multi was prepared.
    pub(super) fn prepared(&mut self, zxid: Zxid, operations: usize) {
        self.uncommitted.push_back((zxid, operations));
        self.operations += operations;
    }

    /// Everything up to `upto` is committed.
    pub(super) fn committed(&mut self, upto: Zxid) {
        while let Some((_, operations)) = self.uncommitted.pop_front_if(|(zxid, _)| *zxid <= upto) {
            self.operations -= operations;
        }
    }
}
