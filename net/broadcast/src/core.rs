//! Every decision of the library, without I/O, between the broadcast below and the application's machine
//! above.
//!
//! ```text
//! propose ─▶ waiting ─▶ seal ─▶ Zab ─▶ Append ─▶ uncommitted ─ Commit ─▶ upcalls ─▶ deliver ─▶ machine, Answer
//!               └─ on a follower: Forward to the leader ─▲
//! ```
//!
//! Upcalls to the machine wait in one queue, in order, so that a slow machine delays nothing else: a status
//! comes after what was committed before it, a sync after the transactions it waits for, a snapshot at
//! exactly the zxid that it names.

use std::collections::{BTreeMap, VecDeque};

use ringkeeper_engine::zab::{self, Batch, Effect, Effects, Input, LogPosition, Status, Zab};
use ringkeeper_log::frame;
use ringkeeper_wire::{ServerId, Zxid};

use crate::entry::{self, Entries, Entry, EntryError};
use crate::machine::StateMachine;
use crate::message::{ToLeader, ToLearner};

/// Bytes of a batch, at most: larger ones are not faster.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Bytes of batches waiting for a leader's own log, at which it proposes no more. They wait in memory, while
/// a quorum of others commits without this server's log.
const UNFORCED_BYTES_MAX: usize = 8 * BATCH_BYTES_MAX;

/// The part of recovery's result that the broadcast is not told.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// Position of the newest snapshot, to which the machine is set.
    pub(crate) snapshot: LogPosition,
    /// The log behind it. Only a quorum knows whether it is committed.
    pub(crate) batches: Vec<Batch>,
}

/// The outcome of a proposal or a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Delivered here, with this zxid.
    Delivered(Zxid),
    /// There was no leader: nothing was proposed.
    NoLeader,
    /// The leader was lost: the proposal may have been delivered, may be later, or never.
    Unknown,
}

/// An action for the shell; in order.
#[derive(Debug)]
pub(crate) enum Output {
    /// Carry this out; the answer comes back as the [`Input`] that it names.
    Zab(Effect),
    /// Report an outcome to the waiting caller.
    Answer { number: u64, answer: Answer },
    /// The machine was told this status.
    Status(Status),
    /// A peer sent an invalid message: its connection is to be closed.
    InvalidPeerMessage { peer: ServerId, reason: String },
    /// The server cannot go on.
    Broken(String),
}

/// A call of the machine.
enum Upcall {
    Deliver(Batch),
    /// Outstanding proposals up to `handed_on` have an unknown outcome by then.
    Status {
        status: Status,
        handed_on: u64,
    },
    Synced {
        number: u64,
    },
    Install {
        last: LogPosition,
        state: Vec<u8>,
    },
}

/// Entries to be proposed or forwarded, and the greatest own number among them.
#[derive(Default)]
struct Waiting {
    entries: Entries,
    last_own: u64,
}

/// Who asked for a confirmation of leadership.
enum Asker {
    Own { number: u64 },
    Learner { id: ServerId, number: u64 },
}

/// The core of one server.
pub(crate) struct Core<M> {
    /// Identifies this start of the server, see [`crate::entry`].
    origin: u64,
    zab: Zab,
    effects: Effects,
    machine: M,
    waiting: VecDeque<Waiting>,
    /// This server's own proposals without a reported outcome, in order.
    outstanding: VecDeque<u64>,
    /// The last own proposal that was proposed or forwarded.
    handed_on: u64,
    /// This server's own syncs, each with the zxid it waits for, once that is known.
    syncs: BTreeMap<u64, Option<Zxid>>,
    questions: BTreeMap<u64, Asker>,
    questions_asked: u64,
    /// Batches in the log that are not known to be committed, in order.
    uncommitted: VecDeque<Batch>,
    upcalls: VecDeque<Upcall>,
    upcall_bytes: usize,
    /// The position of the machine's state.
    delivered: LogPosition,
    outputs: Vec<Output>,
}

impl<M: StateMachine> Core<M> {
    /// A core with the state of its folder; the machine was set to the snapshot. It does nothing before
    /// [`Input::Start`].
    pub(crate) fn new(origin: u64, zab: Zab, machine: M, recovered: Recovered) -> Self {
        Self {
            origin,
            zab,
            effects: Effects::new(),
            machine,
            waiting: VecDeque::new(),
            outstanding: VecDeque::new(),
            handed_on: 0,
            syncs: BTreeMap::new(),
            questions: BTreeMap::new(),
            questions_asked: 0,
            uncommitted: recovered.batches.into(),
            upcalls: VecDeque::new(),
            upcall_bytes: 0,
            delivered: recovered.snapshot,
            outputs: Vec::new(),
        }
    }

    /// Takes what is to be done, in order.
    pub(crate) fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Zxid of the last transaction delivered to the machine.
    pub(crate) const fn delivered(&self) -> Zxid {
        self.delivered.zxid
    }

    /// The ensemble, 0 while not known.
    pub(crate) const fn cluster(&self) -> u64 {
        self.zab.durable_epochs().cluster
    }

    /// Bytes that are committed and not delivered to the machine.
    pub(crate) const fn undelivered_bytes(&self) -> usize {
        self.upcall_bytes
    }

    /// Handles an event of the log, of a peer, or of the clock.
    pub(crate) fn input(&mut self, now_ms: u64, input: Input) {
        self.zab.handle(now_ms, input, &mut self.effects);
        self.settle(now_ms);
    }

    /// A proposal made here. Numbers of proposals and syncs rise.
    pub(crate) fn propose(&mut self, number: u64, proposal: &[u8]) {
        if self.zab.status() == Status::Looking {
            return self.answer(number, Answer::NoLeader);
        }
        self.outstanding.push_back(number);
        self.wait(Entry { origin: self.origin, number, proposal });
    }

    fn wait(&mut self, entry: Entry<'_>) {
        let room = |waiting: &Waiting| waiting.entries.has_room(entry.proposal.len(), BATCH_BYTES_MAX);
        if !self.waiting.back().is_some_and(room) {
            self.waiting.push_back(Waiting::default());
        }
        let Some(waiting) = self.waiting.back_mut() else { return };
        waiting.entries.push(entry);
        if entry.origin == self.origin {
            waiting.last_own = entry.number;
        }
    }

    /// A sync asked for here.
    pub(crate) fn sync(&mut self, now_ms: u64, number: u64) {
        match self.zab.status() {
            Status::Looking => return self.answer(number, Answer::NoLeader),
            Status::Leading { .. } => self.ask(now_ms, Asker::Own { number }),
            Status::Following { .. } => {
                let message = ToLeader::Sync { number }.encode();
                self.zab.handle(now_ms, Input::Forward(message.into()), &mut self.effects);
            }
        }
        self.syncs.insert(number, None);
        self.settle(now_ms);
    }

    fn ask(&mut self, now_ms: u64, asker: Asker) {
        self.questions_asked += 1;
        let token = self.questions_asked;
        self.questions.insert(token, asker);
        self.zab.handle(now_ms, Input::ConfirmLeadership { token }, &mut self.effects);
    }

    /// Proposes or forwards the waiting entries: the log is idle, or a full batch waits.
    pub(crate) fn seal(&mut self, now_ms: u64) {
        match self.zab.status() {
            Status::Looking => {}
            Status::Following { .. } => {
                while let Some(waiting) = self.waiting.pop_front() {
                    self.handed_on = self.handed_on.max(waiting.last_own);
                    let message = ToLeader::Proposals(waiting.entries.bytes()).encode();
                    self.zab.handle(now_ms, Input::Forward(message.into()), &mut self.effects);
                }
            }
            Status::Leading { .. } => self.propose_waiting(now_ms),
        }
        self.settle(now_ms);
    }

    fn propose_waiting(&mut self, now_ms: u64) {
        while self.zab.undurable_bytes() < UNFORCED_BYTES_MAX
            && let Some(first) = self.zab.next_zxid()
        {
            let Some(waiting) = self.waiting.pop_front() else { return };
            self.handed_on = self.handed_on.max(waiting.last_own);
            // The broadcast begins a new epoch long before its counter could overflow inside a batch.
            let last = Zxid(first.0 + u64::from(waiting.entries.count()) - 1);
            let previous = self.zab.last().checksum;
            let batch = Batch::of(first, last, previous, &waiting.entries.payload());
            self.zab.handle(now_ms, Input::Propose(batch), &mut self.effects);
        }
    }

    /// Whether a full batch waits.
    pub(crate) fn has_full_batch(&self) -> bool {
        self.waiting.len() > 1
    }

    /// Sends the commits that no proposal has carried, when all events are handled.
    pub(crate) fn flush(&mut self, now_ms: u64) {
        self.input(now_ms, Input::Flush);
    }

    /// The machine's state and its log position, if a snapshot may be taken now. The log has to continue
    /// behind it, and committed batches need not be in this server's own log yet.
    pub(crate) fn hold(&mut self) -> Option<(Vec<u8>, LogPosition)> {
        let replaced = self.upcalls.iter().any(|upcall| matches!(upcall, Upcall::Install { .. }));
        if replaced || !self.zab.is_settled(self.delivered.zxid) {
            return None;
        }
        Some((self.machine.get_state(), self.delivered))
    }

    /// Everything up to here is committed.
    pub(crate) fn committed(&self) -> Zxid {
        self.zab.committed()
    }

    /// A snapshot from the leader has replaced the log.
    pub(crate) fn installed(&mut self, now_ms: u64, last: LogPosition, state: Vec<u8>) {
        self.uncommitted.clear();
        self.upcalls.push_back(Upcall::Install { last, state });
        self.input(now_ms, Input::SnapshotInstalled { last });
    }

    /// Delivers about `bytes` of the queued upcalls to the machine. Returns whether more are queued.
    pub(crate) fn deliver(&mut self, bytes: usize) -> bool {
        let mut heard = 0;
        while heard < bytes {
            let Some(upcall) = self.upcalls.pop_front() else { return false };
            match upcall {
                Upcall::Deliver(batch) => {
                    let len = batch.bytes().len();
                    self.upcall_bytes -= len;
                    heard += len;
                    self.deliver_batch(&batch);
                }
                Upcall::Status { status, handed_on } => {
                    self.give_up(handed_on);
                    self.machine.status(status);
                    self.outputs.push(Output::Status(status));
                }
                Upcall::Synced { number } => {
                    self.machine.deliver_sync(self.delivered.zxid);
                    self.answer(number, Answer::Delivered(self.delivered.zxid));
                }
                Upcall::Install { last, state } => {
                    heard += state.len();
                    self.set_state(last, &state);
                }
            }
        }
        !self.upcalls.is_empty()
    }

    fn deliver_batch(&mut self, batch: &Batch) {
        // The batch was validated when it was received.
        let frame = frame::parse_trusted(batch.bytes()).map_err(|error| error.to_string());
        let entries = frame.and_then(|frame| {
            entry::read_payload(frame.payload(), batch.txns()).map_err(|error| error.to_string())
        });
        let entries = match entries {
            Ok(entries) => entries,
            Err(reason) => return self.outputs.push(Output::Broken(format!("{batch:?}: {reason}"))),
        };
        for (zxid, entry) in (batch.first().0..).map(Zxid).zip(entries) {
            self.machine.deliver(zxid, entry.proposal);
            if entry.origin == self.origin {
                self.delivered_own(entry.number, zxid);
            }
        }
        self.delivered = batch.end();
    }

    fn delivered_own(&mut self, number: u64, zxid: Zxid) {
        // The outstanding proposals are in order; the caller may have lost interest.
        if self.outstanding.front() == Some(&number) {
            self.outstanding.pop_front();
            self.answer(number, Answer::Delivered(zxid));
        }
    }

    fn give_up(&mut self, handed_on: u64) {
        while let Some(number) = self.outstanding.pop_front_if(|number| *number <= handed_on) {
            self.answer(number, Answer::Unknown);
        }
    }

    fn set_state(&mut self, last: LogPosition, state: &[u8]) {
        if let Err(error) = self.machine.set_state(last.zxid, state) {
            let reason = format!("the machine refuses the state at {}: {error}", last.zxid);
            return self.outputs.push(Output::Broken(reason));
        }
        self.delivered = last;
    }

    fn answer(&mut self, number: u64, answer: Answer) {
        self.outputs.push(Output::Answer { number, answer });
    }

    /// Handles effects of the broadcast until there are none left.
    fn settle(&mut self, now_ms: u64) {
        loop {
            let effects: Vec<_> = self.effects.drain().collect();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.on_effect(now_ms, effect);
            }
        }
    }

    fn on_effect(&mut self, now_ms: u64, effect: Effect) {
        match effect {
            Effect::Append(batch) => self.on_append(batch),
            Effect::Commit { upto } => self.on_commit(upto),
            Effect::Truncate { after } => {
                self.uncommitted.retain(|batch| batch.last() <= after);
                self.outputs.push(Output::Zab(effect));
            }
            Effect::Status(status) => self.on_status(status),
            Effect::LeadershipConfirmed { token, commit } => self.on_confirmed(now_ms, token, commit),
            Effect::Forwarded { from, bytes } => {
                if let Err(reason) = self.on_forwarded(now_ms, from, &bytes) {
                    self.outputs.push(Output::InvalidPeerMessage { peer: from, reason });
                }
            }
            Effect::FromLeader { bytes } => self.on_leader(&bytes),
            effect => self.outputs.push(Output::Zab(effect)),
        }
    }

    fn on_append(&mut self, batch: Batch) {
        let own = matches!(self.zab.status(), Status::Leading { epoch } if epoch == batch.epoch());
        if !own && let Err(reason) = check(&batch) {
            return self.outputs.push(Output::Broken(format!("{batch:?}: {reason}")));
        }
        self.uncommitted.push_back(batch.clone());
        self.outputs.push(Output::Zab(Effect::Append(batch)));
    }

    fn on_commit(&mut self, upto: Zxid) {
        while let Some(batch) = self.uncommitted.pop_front_if(|batch| batch.last() <= upto) {
            self.upcall_bytes += batch.bytes().len();
            self.upcalls.push_back(Upcall::Deliver(batch));
        }
        self.release_syncs();
    }

    /// Queues the syncs whose transactions are queued or delivered.
    fn release_syncs(&mut self) {
        let committed = self.zab.committed();
        let due = self.syncs.extract_if(.., |_, upto| upto.is_some_and(|upto| upto <= committed));
        self.upcalls.extend(due.map(|(number, _)| Upcall::Synced { number }));
    }

    fn on_status(&mut self, status: Status) {
        // Waiting entries were sent to nobody; those handed on have an unknown outcome.
        self.waiting.clear();
        while let Some(number) = self.outstanding.pop_back_if(|number| *number > self.handed_on) {
            self.answer(number, Answer::NoLeader);
        }
        for (number, _) in std::mem::take(&mut self.syncs) {
            self.answer(number, Answer::NoLeader);
        }
        self.questions.clear();
        self.upcalls.push_back(Upcall::Status { status, handed_on: self.handed_on });
    }

    fn on_confirmed(&mut self, now_ms: u64, token: u64, commit: Zxid) {
        match self.questions.remove(&token) {
            Some(Asker::Own { number }) => {
                self.syncs.insert(number, Some(commit));
                self.release_syncs();
            }
            Some(Asker::Learner { id, number }) => {
                // The learner must learn of the commits first.
                self.zab.handle(now_ms, Input::Flush, &mut self.effects);
                let bytes = ToLearner::Synced { number, upto: commit }.encode().into();
                self.zab.handle(now_ms, Input::ToLearner { to: id, bytes }, &mut self.effects);
            }
            None => {}
        }
    }

    fn on_forwarded(&mut self, now_ms: u64, from: ServerId, bytes: &[u8]) -> Result<(), String> {
        let message = ToLeader::decode(bytes).map_err(|error| error.to_string())?;
        let leading = matches!(self.zab.status(), Status::Leading { .. });
        match message {
            ToLeader::Proposals(bytes) => {
                let entries: Result<Vec<_>, EntryError> = entry::read(bytes).collect();
                let entries = entries.map_err(|error| error.to_string())?;
                // Otherwise the learner learns of the new status, and gives up its requests.
                if leading {
                    entries.into_iter().for_each(|entry| self.wait(entry));
                }
            }
            ToLeader::Sync { number } => {
                if leading {
                    self.ask(now_ms, Asker::Learner { id: from, number });
                }
            }
        }
        Ok(())
    }

    fn on_leader(&mut self, bytes: &[u8]) {
        match ToLearner::decode(bytes) {
            Ok(ToLearner::Synced { number, upto }) => {
                if let Some(sync) = self.syncs.get_mut(&number) {
                    *sync = Some(upto);
                    self.release_syncs();
                }
            }
            Err(error) => {
                if let Status::Following { leader, .. } = self.zab.status() {
                    self.outputs.push(Output::InvalidPeerMessage { peer: leader, reason: error.to_string() });
                }
            }
        }
    }
}

/// Validates a batch from elsewhere: one of this library, complete and undamaged.
fn check(batch: &Batch) -> Result<(), String> {
    let payload = batch.payload().map_err(|error| error.to_string())?;
    entry::read_payload(payload, batch.txns()).map(drop).map_err(|error| error.to_string())
}

impl<M> std::fmt::Debug for Core<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let status: zab::Status = self.zab.status();
        f.debug_struct("Core")
            .field("status", &status)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
