//! Requests from the call to the reply: a queue of encoded frames, first in, first out.

use std::collections::VecDeque;

use ringkeeper_wire::frame::FRAME_HEADER_LEN;
use ringkeeper_wire::{OpCode, Record, RequestHeader, Xid};

use super::WatchRequest;

/// What became of a request that was handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Admission {
    /// It is in the queue.
    Queued,
    /// The queue is full: it waits for room, in its turn. The number serves to withdraw it.
    Waiting(u64),
}

/// A request in the queue or on its way.
pub(super) struct Pending<R, W> {
    pub(super) xid: Xid,
    pub(super) op: OpCode,
    pub(super) request: R,
    pub(super) watch: Option<WatchRequest<W>>,
}

struct Waiting<R, W> {
    ticket: u64,
    frame: Vec<u8>,
    op: OpCode,
    request: R,
    watch: Option<WatchRequest<W>>,
}

/// Requests in the order of the calls.
///
/// ```text
///  pending: [ sent, awaiting replies | in `output`, not sent ]   waiting: [ beyond the limits ]
///             `sent` of them
/// ```
/// Invariant: `output` holds exactly the frames of `pending[sent..]`.
pub(super) struct PendingQueue<R, W> {
    pending: VecDeque<Pending<R, W>>,
    sent: usize,
    output: Vec<u8>,
    waiting: VecDeque<Waiting<R, W>>,
    next_ticket: u64,
    next_xid: Xid,
    requests_max: usize,
    bytes_max: usize,
    /// The last request sent when nothing else was measured, counted from the front: its reply proves
    /// that the server heard from us after the time at which it was sent.
    marked: Option<usize>,
}

impl<R, W> PendingQueue<R, W> {
    pub(super) const fn new(requests_max: usize, bytes_max: usize) -> Self {
        Self {
            pending: VecDeque::new(),
            sent: 0,
            output: Vec::new(),
            waiting: VecDeque::new(),
            next_ticket: 0,
            next_xid: Xid(1),
            requests_max,
            bytes_max,
            marked: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len() + self.waiting.len()
    }

    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    fn has_room(&self) -> bool {
        self.pending.len() < self.requests_max && self.output.len() < self.bytes_max
    }

    fn take_xid(&mut self) -> Xid {
        let xid = self.next_xid;
        // Negative xids are special (docs/protocol.md, 1.3).
        self.next_xid = Xid(if xid.0 == i32::MAX { 1 } else { xid.0 + 1 });
        xid
    }

    /// Adds a request whose body `encode` appends. On failure, its length is returned with it, and
    /// nothing was added.
    pub(super) fn push(
        &mut self,
        op: OpCode,
        request: R,
        watch: Option<WatchRequest<W>>,
        len_max: usize,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Admission, (R, usize)> {
        if self.waiting.is_empty() && self.has_room() {
            let start = self.output.len();
            let xid = self.next_xid;
            if let Err(len) = encode_frame(&mut self.output, xid, op, len_max, encode) {
                self.output.truncate(start);
                return Err((request, len));
            }
            let xid = self.take_xid();
            self.pending.push_back(Pending { xid, op, request, watch });
            return Ok(Admission::Queued);
        }
        let mut frame = Vec::new();
        if let Err(len) = encode_frame(&mut frame, Xid(0), op, len_max, encode) {
            return Err((request, len));
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.push_back(Waiting { ticket, frame, op, request, watch });
        Ok(Admission::Waiting(ticket))
    }

    /// Takes a request back that waits for room; nothing if it does not wait any more.
    pub(super) fn withdraw(&mut self, ticket: u64) -> Option<R> {
        let at = self.waiting.binary_search_by_key(&ticket, |waiting| waiting.ticket).ok()?;
        self.waiting.remove(at).map(|waiting| waiting.request)
    }

    /// Moves those in that there is room for.
    pub(super) fn admit(&mut self) {
        while self.has_room() {
            let Some(mut waiting) = self.waiting.pop_front() else { return };
            let xid = self.take_xid();
            waiting.frame[FRAME_HEADER_LEN..FRAME_HEADER_LEN + 4].copy_from_slice(&xid.0.to_be_bytes());
            self.output.extend_from_slice(&waiting.frame);
            let Waiting { op, request, watch, .. } = waiting;
            self.pending.push_back(Pending { xid, op, request, watch });
        }
    }

    /// Hands the unsent frames out: they count as sent. `into` is empty, and its room is kept for the
    /// next ones. Whether a request was marked whose reply will prove when the server heard from us.
    pub(super) fn take_output(&mut self, into: &mut Vec<u8>) -> bool {
        if into.is_empty() {
            std::mem::swap(into, &mut self.output);
        } else {
            into.append(&mut self.output);
        }
        self.sent = self.pending.len();
        self.admit();
        if self.marked.is_none() && self.sent > 0 {
            self.marked = Some(self.sent - 1);
            return true;
        }
        false
    }

    /// The oldest request sent, to which the next reply belongs; and whether it was the marked one.
    pub(super) fn answered(&mut self) -> Option<(Pending<R, W>, bool)> {
        if self.sent == 0 {
            return None;
        }
        let pending = self.pending.pop_front()?;
        self.sent -= 1;
        let was_marked = self.marked == Some(0);
        self.marked = self.marked.and_then(|at| at.checked_sub(1));
        self.admit();
        Some((pending, was_marked))
    }

    /// Empties the queue: each request, oldest first, and whether it was sent.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (R, bool)> {
        let sent = std::mem::take(&mut self.sent);
        self.marked = None;
        self.output.clear();
        let queued = self.pending.drain(..).enumerate().map(move |(at, p)| (p.request, at < sent));
        queued.chain(self.waiting.drain(..).map(|waiting| (waiting.request, false)))
    }
}

fn encode_frame(
    out: &mut Vec<u8>,
    xid: Xid,
    op: OpCode,
    len_max: usize,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Result<(), usize> {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_LEN]);
    RequestHeader { xid, op: op.to_wire() }.encode(out);
    encode(out);
    let len = out.len() - start - FRAME_HEADER_LEN;
    match i32::try_from(len) {
        Ok(claimed) if len <= len_max => {
            out[start..start + FRAME_HEADER_LEN].copy_from_slice(&claimed.to_be_bytes());
            Ok(())
        }
        _ => Err(len),
    }
}
