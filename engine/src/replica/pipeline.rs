//! From prepared transactions to published state: open, sealed and committed batches.
//!
//! ```text
//! execute -> open batch --seal--> sealed batches (in the log, with the peers) --commit--> Published
//!            head moves                                                                   committed moves
//! ```
//!
//! `head` is the state after everything executed. Each transaction is applied to it once: on the leader when
//! it is prepared, on a follower when it is appended. A commit publishes states that exist already. The loss
//! of leadership drops the open batch, a truncation drops the batches after its position.
//!
//! Positions: committed <= last sealed <= last executed.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ringkeeper_wire::{SessionId, Zxid};

use super::digests::DigestHistory;
use crate::message::{Committed, Origin, Published, PublishedGroup};
use crate::state::State;
use crate::txn::{Outcome, Txn};

/// Bytes at which a group ends, since a batch ends only where a group does.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// The uncommitted part of the log, as states.
#[derive(Debug)]
pub(crate) struct Pipeline {
    head: State,
    committed: Arc<State>,
    /// Each group with the approximate size of its transactions in bytes.
    open: VecDeque<(PublishedGroup, usize)>,
    /// Transactions after the last group of `open`.
    group: Vec<Committed>,
    /// Their size.
    group_bytes: usize,
    /// The local sessions that wrote in `group`: a read barrier of one of them ends the group.
    writers: BTreeSet<SessionId>,
    /// Encoded size of the open batch's transactions, roughly, in bytes.
    open_bytes: usize,
    sealed: VecDeque<Sealed>,
    digests: DigestHistory,
}

#[derive(Debug)]
struct Sealed {
    last: Zxid,
    groups: Vec<PublishedGroup>,
}

impl Pipeline {
    /// Starts with a state of which everything is committed.
    pub(crate) fn new(state: State) -> Self {
        Self {
            committed: Arc::new(state.clone()),
            head: state,
            open: VecDeque::new(),
            group: Vec::new(),
            group_bytes: 0,
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

    /// The newest of these digests.
    pub(crate) fn newest_digest(&self) -> Option<(Zxid, u64)> {
        self.digests.newest_up_to(self.committed.last_zxid())
    }

    /// Whether nothing waits to be sealed.
    pub(crate) fn is_open_empty(&self) -> bool {
        self.group.is_empty() && self.open.is_empty()
    }

    /// Bytes of payload waiting to be sealed, roughly.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    /// What is executed and not committed, in order.
    pub(crate) fn uncommitted(&self) -> impl Iterator<Item = &Txn> {
        let sealed = self.sealed.iter().flat_map(|batch| &batch.groups);
        let groups = sealed.chain(self.open.iter().map(|(group, _)| group));
        groups.flat_map(|group| &group.txns).chain(&self.group).map(|committed| &committed.txn)
    }

    /// Zxid of the last transaction executed.
    pub(crate) fn last_executed(&self) -> Zxid {
        self.head.last_zxid()
    }

    /// A read barrier: reads of `session` wait behind its previous write, so the group that has that write
    /// ends here.
    pub(crate) fn read_barrier(&mut self, session: SessionId) {
        if self.writers.contains(&session) {
            self.end_group();
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

    /// Adds a transaction that was applied to the head already.
    pub(crate) fn admit(&mut self, txn: Txn, outcome: Outcome, origin: Option<Origin>, size: usize) {
        if origin.is_some() {
            self.writers.insert(txn.session);
        }
        self.open_bytes += size;
        self.group_bytes += size;
        self.digests.note(txn.zxid, self.head.digest());
        let authorisation = self.head.authorisation().clone();
        self.group.push(Committed { txn, outcome, authorisation, origin });
        if self.group_bytes >= GROUP_BYTES_MAX {
            self.end_group();
        }
    }

    /// Closes the open batch. Returns its transactions in order, to be encoded, and their approximate size in
    /// bytes; `None` if there are none. Steps that would exceed `bytes_max` stay for the next batch.
    pub(crate) fn seal(&mut self, bytes_max: usize) -> Option<(Vec<&Txn>, usize)> {
        self.end_group();
        let (first, mut bytes) = self.open.pop_front()?;
        let mut groups = vec![first];
        while let Some((group, size)) = self.open.pop_front_if(|(_, size)| bytes + *size <= bytes_max) {
            bytes += size;
            groups.push(group);
        }
        self.open_bytes -= bytes;
        let last = groups.last()?.txns.last()?.zxid();
        self.sealed.push_back(Sealed { last, groups });
        let sealed = &self.sealed[self.sealed.len() - 1];
        let txns = sealed.groups.iter().flat_map(|group| group.txns.iter().map(|committed| &committed.txn));
        Some((txns.collect(), bytes))
    }

    /// Takes the batches that end at `upto` or before: they are committed, and to be published.
    pub(crate) fn commit(&mut self, upto: Zxid) -> Option<Published> {
        let mut groups = Vec::new();
        while let Some(batch) = self.sealed.pop_front_if(|batch| batch.last <= upto) {
            groups.extend(batch.groups);
        }
        self.committed = Arc::clone(&groups.last()?.view);
        Some(Published { groups })
    }

    /// Drops the transactions that were executed and never proposed.
    pub(crate) fn abandon_unsealed(&mut self) {
        self.open.clear();
        self.group.clear();
        self.group_bytes = 0;
        self.writers.clear();
        self.open_bytes = 0;
        let last = self
            .sealed
            .back()
            .and_then(|batch| batch.groups.last())
            .map_or(&self.committed, |group| &group.view);
        self.head = State::clone(last);
        self.digests.forget_after(self.head.last_zxid());
    }

    /// Drops every batch behind `after`, where the log was truncated. False if the committed state here
    /// contains transactions behind `after`: a restart takes the whole log for committed. Then the state has
    /// to be rebuilt from the log.
    #[must_use]
    pub(crate) fn truncate(&mut self, after: Zxid) -> bool {
        self.sealed.retain(|batch| batch.last <= after);
        self.abandon_unsealed();
        self.committed.last_zxid() <= after
    }

    fn end_group(&mut self) {
        self.writers.clear();
        if !self.group.is_empty() {
            let txns = std::mem::take(&mut self.group);
            let group = PublishedGroup { txns, view: Arc::new(self.head.clone()) };
            self.open.push_back((group, std::mem::take(&mut self.group_bytes)));
        }
    }
}
