//! Every decision of the library, without I/O, between the broadcast below and the user's machine above.
//!
//! ```text
//! propose -> waiting -> batch -> Zab -> append -> uncommitted -commit-> upcalls -> deliver -> machine
//!               +- on a follower: to the leader -^
//! ```
//!
//! Upcalls to the machine wait in one queue, in order, so that a slow machine delays nothing else: a status
//! comes after what was committed before it, a sync after the transactions it waits for, a snapshot at
//! exactly the zxid that it names.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use ringkeeper_engine::application::{Application, Effect};
use ringkeeper_engine::replica::Now;
use ringkeeper_engine::zab::{Batch, Checksum, LogPosition, Status, Zab};
use ringkeeper_log::frame;
use ringkeeper_wire::{ServerId, Zxid};

use crate::entry::{self, Entries, Entry, EntryError};
use crate::machine::{StateError, StateMachine};
use crate::message::{ToLeader, ToLearner, Unknown};
use crate::recovery::MachineState;
use crate::snapshots::{MachineImage, STATE_VERSION};

/// Bytes of a batch, at most: larger ones are not faster.
const BATCH_BYTES_MAX: usize = 1 << 20;

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

/// What the library's users are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Report an outcome to the waiting caller.
    Answer { number: u64, answer: Answer },
    /// The machine was told this status.
    Status(Status),
}

/// Why bytes are no message of this library.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MessageError {
    #[error(transparent)]
    Unknown(#[from] Unknown),
    #[error(transparent)]
    Entries(#[from] EntryError),
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

/// The library's application: one server's requests, and its machine.
pub(crate) struct Replica<M> {
    /// Identifies this start of the server, see [`crate::entry`].
    origin: u64,
    machine: M,
    status: Status,
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
    committed: Zxid,
    upcalls: VecDeque<Upcall>,
    upcall_bytes: usize,
    /// The position of the machine's state.
    delivered: LogPosition,
    effects: Vec<Effect<Output>>,
}

impl<M: StateMachine> Replica<M> {
    /// A replica with what its folder holds, to which it sets the machine.
    ///
    /// # Errors
    /// The machine refuses its snapshot.
    pub(crate) fn new(origin: u64, mut machine: M, recovered: MachineState) -> Result<Self, StateError> {
        let MachineState { snapshot, bytes, batches } = recovered;
        if let Some(bytes) = bytes {
            machine.set_state(snapshot.zxid, &bytes)?;
        }
        Ok(Self {
            origin,
            machine,
            status: Status::Looking,
            waiting: VecDeque::new(),
            outstanding: VecDeque::new(),
            handed_on: 0,
            syncs: BTreeMap::new(),
            questions: BTreeMap::new(),
            questions_asked: 0,
            uncommitted: batches.into(),
            committed: snapshot.zxid,
            upcalls: VecDeque::new(),
            upcall_bytes: 0,
            delivered: snapshot,
            effects: Vec::new(),
        })
    }

    /// Zxid of the last transaction delivered to the machine.
    pub(crate) const fn delivered(&self) -> Zxid {
        self.delivered.zxid
    }

    /// Bytes that are committed and not delivered to the machine.
    pub(crate) const fn undelivered_bytes(&self) -> usize {
        self.upcall_bytes
    }

    /// A proposal made here. Numbers of proposals and syncs rise.
    pub(crate) fn propose(&mut self, number: u64, proposal: &[u8]) {
        if self.status == Status::Looking {
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
    pub(crate) fn sync(&mut self, number: u64) {
        match self.status {
            Status::Looking => return self.answer(number, Answer::NoLeader),
            Status::Leading { .. } => self.ask(Asker::Own { number }),
            Status::Following { .. } => {
                self.effects.push(Effect::ToLeader(ToLeader::Sync { number }.encode().into()));
            }
        }
        self.syncs.insert(number, None);
    }

    fn ask(&mut self, asker: Asker) {
        self.questions_asked += 1;
        self.questions.insert(self.questions_asked, asker);
        self.effects.push(Effect::ConfirmLeadership(self.questions_asked));
    }

    fn next_waiting(&mut self) -> Option<Entries> {
        let waiting = self.waiting.pop_front()?;
        self.handed_on = self.handed_on.max(waiting.last_own);
        Some(waiting.entries)
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
                    self.output(Output::Status(status));
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
            Err(reason) => return self.effects.push(Effect::Broken(format!("{batch:?}: {reason}"))),
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
            return self.effects.push(Effect::Broken(reason));
        }
        self.delivered = last;
    }

    fn answer(&mut self, number: u64, answer: Answer) {
        self.output(Output::Answer { number, answer });
    }

    fn output(&mut self, output: Output) {
        self.effects.push(Effect::Output(output));
    }

    /// Queues the syncs whose transactions are queued or delivered.
    fn release_syncs(&mut self) {
        let committed = self.committed;
        let due = self.syncs.extract_if(.., |_, upto| upto.is_some_and(|upto| upto <= committed));
        self.upcalls.extend(due.map(|(number, _)| Upcall::Synced { number }));
    }
}

impl<M: StateMachine> Application for Replica<M> {
    type State = MachineState;
    type Image = MachineImage;
    type Output = Output;
    type MessageError = MessageError;

    const STATE_VERSION: u32 = STATE_VERSION;

    fn take_effects(&mut self) -> std::vec::Drain<'_, Effect<Output>> {
        self.effects.drain(..)
    }

    fn status(&mut self, _: Now, status: Status) {
        self.status = status;
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

    /// On a follower, forwards the waiting entries.
    fn flush(&mut self) {
        while matches!(self.status, Status::Following { .. })
            && let Some(entries) = self.next_waiting()
        {
            self.effects.push(Effect::ToLeader(ToLeader::Proposals(entries.bytes()).encode().into()));
        }
    }

    fn has_unsealed(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.questions.is_empty()
    }

    fn has_full_batch(&self) -> bool {
        self.waiting.len() > 1
    }

    fn batch_bytes_max(&self) -> usize {
        BATCH_BYTES_MAX
    }

    fn next_batch(&mut self, first: Zxid, previous: Checksum) -> Option<Batch> {
        let entries = self.next_waiting()?;
        // The broadcast begins a new epoch long before its counter could overflow inside a batch.
        let last = Zxid(first.0 + u64::from(entries.count()) - 1);
        Some(Batch::of(first, last, previous, &entries.payload()))
    }

    fn append(&mut self, batch: &Batch) -> Result<(), String> {
        let own = matches!(self.status, Status::Leading { epoch } if epoch == batch.epoch());
        if !own {
            check(batch)?;
        }
        self.uncommitted.push_back(batch.clone());
        Ok(())
    }

    fn commit(&mut self, _: Now, upto: Zxid) {
        self.committed = upto;
        while let Some(batch) = self.uncommitted.pop_front_if(|batch| batch.last() <= upto) {
            self.upcall_bytes += batch.bytes().len();
            self.upcalls.push_back(Upcall::Deliver(batch));
        }
        self.release_syncs();
    }

    /// The machine was told only what is committed, which is never truncated.
    fn truncate(&mut self, after: Zxid) -> bool {
        self.uncommitted.retain(|batch| batch.last() <= after);
        true
    }

    fn restored(&mut self, state: MachineState) {
        let MachineState { snapshot, bytes, batches } = state;
        self.uncommitted = batches.into();
        self.committed = self.committed.max(snapshot.zxid);
        self.upcalls.push_back(Upcall::Install { last: snapshot, state: bytes.unwrap_or_default() });
    }

    fn leadership_confirmed(&mut self, number: u64, commit: Zxid) {
        match self.questions.remove(&number) {
            Some(Asker::Own { number }) => {
                self.syncs.insert(number, Some(commit));
                self.release_syncs();
            }
            Some(Asker::Learner { id, number }) => {
                let bytes = ToLearner::Synced { number, upto: commit }.encode().into();
                self.effects.push(Effect::ToLearner(id, bytes));
            }
            None => {}
        }
    }

    fn forwarded(&mut self, _: Now, from: ServerId, bytes: &Bytes) -> Result<(), MessageError> {
        let leading = matches!(self.status, Status::Leading { .. });
        match ToLeader::decode(bytes)? {
            ToLeader::Proposals(bytes) => {
                let entries = entry::read(bytes).collect::<Result<Vec<_>, EntryError>>()?;
                // Otherwise the learner learns of the new status, and gives up its requests.
                if leading {
                    entries.into_iter().for_each(|entry| self.wait(entry));
                }
            }
            ToLeader::Sync { number } => {
                if leading {
                    self.ask(Asker::Learner { id: from, number });
                }
            }
        }
        Ok(())
    }

    fn directed(&mut self, bytes: &[u8]) -> Result<(), MessageError> {
        let ToLearner::Synced { number, upto } = ToLearner::decode(bytes)?;
        if let Some(sync) = self.syncs.get_mut(&number) {
            *sync = Some(upto);
            self.release_syncs();
        }
        Ok(())
    }

    fn hold(&mut self, zab: &Zab) -> Option<(MachineImage, LogPosition)> {
        let replaced = self.upcalls.iter().any(|upcall| matches!(upcall, Upcall::Install { .. }));
        let zxid = self.delivered.zxid;
        if replaced || zxid == Zxid::ZERO || zxid > zab.committed() {
            return None;
        }
        Some((MachineImage::new(self.machine.get_state()), self.delivered))
    }
}

/// Validates a batch from elsewhere: one of this library, complete and undamaged.
fn check(batch: &Batch) -> Result<(), String> {
    let payload = batch.payload().map_err(|error| error.to_string())?;
    entry::read_payload(payload, batch.txns()).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
