//! From prepared transactions to published state: what is speculative, what is sealed, what is committed.
//!
//! ```text
//! execute -> open batch --seal--> sealed batches (in the log, with the peers) --commit--> Published
//!            head moves                                                                   committed moves
//! ```
//!
//! `head` is the state after everything executed; each transaction is applied to it once, when it is prepared (on
//! the leader) or appended (on a follower). Committing publishes states that exist already. Losing leadership drops
//! what is not sealed, truncating the log drops the batches that were cut off.
//!
//! Positions: committed <= last sealed <= last executed.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ringkeeper_wire::{SessionId, Zxid};

use super::digests::DigestHistory;
use crate::message::{Committed, Origin, Published, Step};
use crate::state::State;
use crate::txn::{Outcome, Txn};

/// The outstanding part of the log, as states.
#[derive(Debug)]
pub(crate) struct Pipeline {
    head: State,
    committed: Arc<State>,
    open: Vec<Step>,
    /// Transactions after the last step of `open`.
    step: Vec<Committed>,
    /// The local sessions that wrote in `step`: a fenced write of one of them ends the step.
    writers: BTreeSet<SessionId>,
    /// Encoded size of the open batch's transactions, roughly, in bytes.
    open_bytes: usize,
    sealed: VecDeque<Sealed>,
    digests: DigestHistory,
}

#[derive(Debug)]
struct Sealed {
    last: Zxid,
    steps: Vec<Step>,
}

impl Pipeline {
    /// Starts with a state of which everything is committed.
    pub(crate) fn new(state: State) -> Self {
        Self {
            committed: Arc::new(state.clone()),
            head: state,
            open: Vec::new(),
            step: Vec::new(),
            writers: BTreeSet::new(),
            open_bytes: 0,
            sealed: VecDeque::new(),
            digests: DigestHistory::default(),
        }
    }

    /// The state after everything executed.
    pub(crate) fn head(&self) -> &State {
        &self.head
    }

    /// The state after everything committed.
    pub(crate) fn committed(&self) -> &Arc<State> {
        &self.committed
    }

    /// Digests of committed states, every 128th zxid.
    pub(crate) fn digests(&self) -> impl Iterator<Item = (Zxid, u64)> {
        self.digests.up_to(self.committed.last_zxid())
    }

    /// The newest of them.
    pub(crate) fn newest_digest(&self) -> Option<(Zxid, u64)> {
        self.digests.newest_up_to(self.committed.last_zxid())
    }

    /// Whether nothing waits to be sealed.
    pub(crate) fn is_open_empty(&self) -> bool {
        self.step.is_empty() && self.open.is_empty()
    }

    /// Bytes of payload waiting to be sealed, roughly.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    /// Zxid of the last transaction executed.
    pub(crate) fn last_executed(&self) -> Zxid {
        self.head.last_zxid()
    }

    /// Reads of `session` wait between its previous write and the next: they must find a step end there.
    pub(crate) fn fence(&mut self, session: SessionId) {
        if self.writers.contains(&session) {
            self.end_step();
        }
    }

    /// Applies a transaction to the head. `size` is its share of the open batch in bytes.
    pub(crate) fn execute(&mut self, txn: Txn, origin: Option<Origin>, size: usize) {
        let outcome = self.head.apply(&txn);
        self.admit(txn, outcome, origin, size);
    }

    /// The state that a transaction is executed on; [`Self::admit`] must follow.
    pub(crate) fn head_mut(&mut self) -> &mut State {
        &mut self.head
    }

    /// Takes over a transaction that was applied to the head already.
    pub(crate) fn admit(&mut self, txn: Txn, outcome: Outcome, origin: Option<Origin>, size: usize) {
        if origin.is_some() {
            self.writers.insert(txn.session);
        }
        self.open_bytes += size;
        self.digests.note(txn.zxid, self.head.digest());
        self.step.push(Committed { txn, outcome, origin });
    }

    /// Closes the open batch and gives its transactions in order, to be encoded; nothing if it is empty.
    pub(crate) fn seal(&mut self) -> Option<Vec<&Txn>> {
        self.end_step();
        let last = self.open.last()?.txns.last()?.zxid();
        self.open_bytes = 0;
        self.sealed.push_back(Sealed { last, steps: std::mem::take(&mut self.open) });
        let sealed = &self.sealed[self.sealed.len() - 1];
        Some(sealed.steps.iter().flat_map(|step| step.txns.iter().map(|committed| &committed.txn)).collect())
    }

    /// Everything up to `upto` is committed: the batches that end there or before, to be published.
    pub(crate) fn commit(&mut self, upto: Zxid) -> Option<Published> {
        let mut steps = Vec::new();
        while let Some(batch) = self.sealed.pop_front_if(|batch| batch.last <= upto) {
            steps.extend(batch.steps);
        }
        self.committed = Arc::clone(&steps.last()?.view);
        Some(Published { steps })
    }

    /// Forgets what is executed and not sealed: it was never proposed.
    pub(crate) fn abandon_unsealed(&mut self) {
        self.open.clear();
        self.step.clear();
        self.writers.clear();
        self.open_bytes = 0;
        let last = self
            .sealed
            .back()
            .and_then(|batch| batch.steps.last())
            .map_or(&self.committed, |step| &step.view);
        self.head = State::clone(last);
        self.digests.forget_after(self.head.last_zxid());
    }

    /// The log was cut after `after`: forgets every batch behind it. False if what is committed here reaches
    /// further, as it does after a restart, when everything in the log was taken for committed: then the state has to
    /// be rebuilt from the log.
    #[must_use]
    pub(crate) fn truncate(&mut self, after: Zxid) -> bool {
        self.sealed.retain(|batch| batch.last <= after);
        self.abandon_unsealed();
        self.committed.last_zxid() <= after
    }

    fn end_step(&mut self) {
        self.writers.clear();
        if !self.step.is_empty() {
            let txns = std::mem::take(&mut self.step);
            self.open.push(Step { txns, view: Arc::new(self.head.clone()) });
        }
    }
}
