//! Requests of one connection that were taken and not yet answered, in the order of their answers.
//!
//! Writes, syncs and linearizable reads are gaps that the core's answers fill. A read behind a gap waits,
//! with its body kept here. All bodies share one buffer, oldest first, so that a client that mixes reads and
//! writes costs no allocation for each request.

use std::collections::VecDeque;
use std::ops::{AddAssign, SubAssign};

use ringkeeper_wire::{ErrorCode, OpCode, Xid};

use super::latency::Arrival;
use super::request::HEADER_LEN;

/// A request that was taken and not yet answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) xid: Xid,
    pub(super) what: What,
    pub(super) arrival: Arrival,
    /// Length of its body in bytes. The body is in [`Backlog::bodies`], except for a write, whose body the
    /// core has, unless they are kept.
    body_len: u32,
}

impl Pending {
    pub(super) const fn body_len(&self) -> usize {
        self.body_len as usize
    }
}

/// What the request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The core's answer to a write.
    Write(OpCode),
    /// The core's message that the sync is due. The body is the request's.
    Sync {
        /// Whether that message has come.
        due: bool,
    },
    /// The same for the linearizable read behind it. Answered by that read alone.
    Confirm {
        /// Whether the message has come.
        due: bool,
    },
    /// A read, which waits only for the requests before it.
    Read {
        /// Which read; its body is the request's.
        op: OpCode,
        /// How many of the connection's identities were known when it was received.
        identities: usize,
    },
    /// An error reply that is known already, which waits only for the requests before it.
    Fail {
        /// The answer.
        code: ErrorCode,
        /// The opcode as received.
        op: i32,
        /// Whether the connection ends with it.
        close: bool,
    },
}

/// What requests take up that were taken and not yet answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) requests: usize,
    /// Bytes of the writes among them.
    pub(super) write_bytes: usize,
    /// Bytes of those that are large.
    pub(super) large_bytes: usize,
}

impl AddAssign for Load {
    fn add_assign(&mut self, more: Self) {
        self.requests += more.requests;
        self.write_bytes += more.write_bytes;
        self.large_bytes += more.large_bytes;
    }
}

impl SubAssign for Load {
    fn sub_assign(&mut self, less: Self) {
        self.requests -= less.requests;
        self.write_bytes -= less.write_bytes;
        self.large_bytes -= less.large_bytes;
    }
}

/// Requests of one connection that were taken and not yet answered.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    pending: VecDeque<Pending>,
    /// Bodies of all pending requests that have one, oldest first, from `bodies_start`.
    bodies: Vec<u8>,
    bodies_start: usize,
    /// Reads of the state since the last write, or since nothing waited. If there are any, the next write
    /// needs a read barrier.
    reads_since_write: u32,
    /// Reads that may be long.
    long_reads: u32,
    /// Syncs that the core has not reported as due, those for linearizable reads included.
    syncs: u32,
    /// Writes not yet answered.
    writes: u32,
    load: Load,
    /// Whether the bodies of writes are kept, too.
    keeps_writes: bool,
    /// Length of a request in bytes above which it is large.
    large_above_bytes: u32,
}

/// A buffer that grew beyond this is given back when the backlog is empty.
const IDLE_CAPACITY_MAX: usize = 4096;

impl Backlog {
    /// An empty one that keeps the bodies of writes, if `keeps_writes`. Requests of more than
    /// `large_above_bytes` are large.
    pub(super) fn new(keeps_writes: bool, large_above_bytes: usize) -> Self {
        let large_above_bytes = u32::try_from(large_above_bytes).unwrap_or(u32::MAX);
        Self { keeps_writes, large_above_bytes, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Number of reads of the state since the last write, or since nothing waited.
    pub(super) fn reads_since_write(&self) -> usize {
        self.reads_since_write as usize
    }

    /// Whether a sync waits for the core.
    pub(super) fn awaits_sync(&self) -> bool {
        self.syncs > 0
    }

    /// Whether there is a read that may be long.
    pub(super) fn awaits_long_read(&self) -> bool {
        self.long_reads > 0
    }

    /// Whether a write waits for the core.
    pub(super) fn awaits_write(&self) -> bool {
        self.writes > 0
    }

    /// What the requests take up.
    pub(super) fn load(&self) -> Load {
        self.load
    }

    fn load_of(&self, what: What, body_len: usize) -> Load {
        let len = HEADER_LEN + body_len;
        Load {
            requests: usize::from(!matches!(what, What::Confirm { .. })),
            write_bytes: if matches!(what, What::Write(_)) { body_len } else { 0 },
            large_bytes: if len > self.large_above_bytes as usize { len } else { 0 },
        }
    }

    /// Appends a request, and returns what it takes up.
    pub(super) fn push(&mut self, arrival: Arrival, xid: Xid, what: What, body: &[u8]) -> Load {
        match what {
            What::Write(_) => {
                self.reads_since_write = 0;
                self.writes += 1;
            }
            What::Sync { .. } | What::Confirm { .. } => self.syncs += 1,
            What::Read { op, .. } => {
                self.reads_since_write = self.reads_since_write.saturating_add(u32::from(reads_state(op)));
                self.long_reads += u32::from(may_be_long(op));
            }
            What::Fail { .. } => {}
        }
        let body_len = u32::try_from(body.len()).expect("a frame is shorter than 2^31 bytes");
        if self.keeps_body(what) {
            self.bodies.extend_from_slice(body);
        }
        self.pending.push_back(Pending { xid, what, arrival, body_len });
        let load = self.load_of(what, body.len());
        self.load += load;
        load
    }

    fn keeps_body(&self, what: What) -> bool {
        self.keeps_writes || !matches!(what, What::Write(_))
    }

    pub(super) fn front(&self) -> Option<&Pending> {
        self.pending.front()
    }

    /// Body of the oldest, which must be one that is kept.
    pub(super) fn front_body(&self) -> &[u8] {
        let len = self.pending.front().map_or(0, |pending| pending.body_len as usize);
        &self.bodies[self.bodies_start..self.bodies_start + len]
    }

    /// Removes the oldest and its body, and returns what they took up.
    pub(super) fn pop(&mut self) -> Load {
        let Some(pending) = self.pending.pop_front() else { return Load::default() };
        let body_len = pending.body_len as usize;
        let load = self.load_of(pending.what, body_len);
        self.load -= load;
        self.writes -= u32::from(matches!(pending.what, What::Write(_)));
        if self.keeps_body(pending.what) {
            self.bodies_start += body_len;
        }
        if let What::Read { op, .. } = pending.what {
            self.long_reads -= u32::from(may_be_long(op));
        }
        if self.pending.is_empty() {
            self.reset();
        } else if self.bodies_start >= IDLE_CAPACITY_MAX && self.bodies_start * 2 >= self.bodies.len() {
            // Each byte is moved at most once for every byte that was consumed before it.
            self.bodies.drain(..self.bodies_start);
            self.bodies_start = 0;
        }
        load
    }

    fn reset(&mut self) {
        self.reads_since_write = 0;
        self.bodies_start = 0;
        self.bodies.clear();
        if self.bodies.capacity() > IDLE_CAPACITY_MAX {
            self.bodies = Vec::new();
        }
    }

    /// Marks the oldest waiting sync as due. False if there is none.
    pub(super) fn sync_is_due(&mut self) -> bool {
        let waiting = self.pending.iter_mut().find_map(|pending| match &mut pending.what {
            What::Sync { due } | What::Confirm { due } if !*due => Some(due),
            _ => None,
        });
        let Some(due) = waiting else { return false };
        *due = true;
        self.syncs -= 1;
        true
    }

    /// The closeSession, which is the last request of a connection, is answered without a transaction;
    /// whether there is one.
    pub(super) fn close_is_due(&mut self) -> bool {
        let closes = |pending: &&mut Pending| pending.what == What::Write(OpCode::CloseSession);
        let Some(close) = self.pending.back_mut().filter(closes) else { return false };
        debug_assert_eq!(close.body_len, 0, "what it takes up stays the same");
        let op = OpCode::CloseSession.to_wire();
        close.what = What::Fail { code: ErrorCode::Ok, op, close: true };
        self.writes -= 1;
        true
    }
}

/// Whether a read may take several slices, or be executed beside the shard.
const fn may_be_long(op: OpCode) -> bool {
    matches!(
        op,
        OpCode::SetWatches
            | OpCode::SetWatches2
            | OpCode::GetChildren
            | OpCode::GetChildren2
            | OpCode::GetAllChildrenNumber
            | OpCode::GetEphemerals
            | OpCode::MultiRead
    )
}

/// Whether a read depends on the tree or on watches, so that it must not run inside a group.
pub(super) fn reads_state(op: OpCode) -> bool {
    !matches!(op, OpCode::Ping | OpCode::WhoAmI)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_reads_is_too_great_for_the_barrier_of_the_next_write() {
        let mut backlog = Backlog { reads_since_write: u32::MAX, ..Backlog::default() };
        let read = What::Read { op: OpCode::GetData, identities: 1 };
        backlog.push(Arrival::default(), Xid(1), read, b"");
        assert!(backlog.reads_since_write() > 0);
        backlog.push(Arrival::default(), Xid(2), What::Write(OpCode::SetData), b"");
        assert_eq!(backlog.reads_since_write(), 0);
    }
}
