//! From prepared transactions to published state: what is speculative, what is sealed, what is committed.
//!
//! ```text
//! execute -> open batch --seal--> sealed batches (in the log, with the peers) --commit--> Published
//!            head moves                                                                   committed moves
//! ```
//!
//! `head` is the state after everything executed; each transaction is applied to it once, when it is prepared
//! (on the leader) or appended (on a follower). Committing publishes states that exist already. Losing
//! leadership drops what is not sealed, truncating the log drops the batches that were cut off.
//!
//! Positions: committed <= last sealed <= last executed.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ringkeeper_wire::{SessionId, Zxid};

use super::digests::DigestHistory;
use crate::message::{Committed, Origin, Published, Step};
use crate::state::State;
use crate::txn::{Outcome, Txn};

/// A step ends when it has this much, so that a batch can end there.
const STEP_BYTES_MAX: usize = 1 << 20;

/// The outstanding part of the log, as states.
#[derive(Debug)]
pub(crate) struct Pipeline {
    head: State,
    committed: Arc<State>,
    /// Each with the size of its transactions, roughly, in bytes.
    open: VecDeque<(Step, usize)>,
    /// Transactions after the last step of `open`.
    step: Vec<Committed>,
    /// Their size.
    step_bytes: usize,
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
            open: VecDeque::new(),
            step: Vec::new(),
            step_bytes: 0,
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
        self.step_bytes += size;
        self.digests.note(txn.zxid, self.head.digest());
        self.step.push(Committed { txn, outcome, origin });
        if self.step_bytes >= STEP_BYTES_MAX {
            self.end_step();
        }
    }

    /// Closes the open batch and gives its transactions in order, to be encoded, with their size, roughly, in
    /// bytes; nothing if it is empty. What would make it longer than `bytes_max` stays for the next one.
    pub(crate) fn seal(&mut self, bytes_max: usize) -> Option<(Vec<&Txn>, usize)> {
        self.end_step();
        let (first, mut bytes) = self.open.pop_front()?;
        let mut steps = vec![first];
        while let Some((step, size)) = self.open.pop_front_if(|(_, size)| bytes + *size <= bytes_max) {
            bytes += size;
            steps.push(step);
        }
        self.open_bytes -= bytes;
        let last = steps.last()?.txns.last()?.zxid();
        self.sealed.push_back(Sealed { last, steps });
        let sealed = &self.sealed[self.sealed.len() - 1];
        let txns = sealed.steps.iter().flat_map(|step| step.txns.iter().map(|committed| &committed.txn));
        Some((txns.collect(), bytes))
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
        self.step_bytes = 0;
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
    /// further, as it does after a restart, when everything in the log was taken for committed: then the
    /// state has to be rebuilt from the log.
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
            let step = Step { txns, view: Arc::new(self.head.clone()) };
            self.open.push_back((step, std::mem::take(&mut self.step_bytes)));
        }
    }
}
