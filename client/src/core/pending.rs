//! Requests from the call to the reply: a queue of encoded frames, first in, first out.

use std::collections::VecDeque;

use ringkeeper_wire::frame::FRAME_HEADER_LEN;
use ringkeeper_wire::{OpCode, Record, RequestHeader, Xid};

use super::WatchRequest;

/// Where a request's body begins in its frame.
const BODY_AT: usize = FRAME_HEADER_LEN + RequestHeader::LEN;

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
    /// Its share of [`PendingQueue::paths`].
    path_len: usize,
}

/// A request that will have no reply.
pub(super) struct Failed<R> {
    pub(super) request: R,
    pub(super) op: OpCode,
    pub(super) path: Vec<u8>,
    pub(super) was_sent: bool,
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
    /// The paths of `pending`, one after the other, for the errors that name them: the frames themselves
    /// are gone once sent. One buffer for all, so that a request costs no allocation.
    paths: VecDeque<u8>,
    waiting: VecDeque<Waiting<R, W>>,
    next_ticket: u64,
    next_xid: Xid,
    requests_max: usize,
    bytes_max: usize,
    /// Reads are asked for as linearizable ones.
    linearizable: bool,
    /// The last request sent when nothing else was measured, counted from the front: its reply proves
    /// that the server heard from us after the time at which it was sent.
    marked: Option<usize>,
}

impl<R, W> PendingQueue<R, W> {
    pub(super) const fn new(requests_max: usize, bytes_max: usize, linearizable: bool) -> Self {
        Self {
            pending: VecDeque::new(),
            sent: 0,
            output: Vec::new(),
            paths: VecDeque::new(),
            waiting: VecDeque::new(),
            next_ticket: 0,
            next_xid: Xid(1),
            requests_max,
            bytes_max,
            linearizable,
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
        let flag = if self.linearizable && is_read(op) { RequestHeader::LINEARIZABLE } else { 0 };
        let asked = op.to_wire() | flag;
        if self.waiting.is_empty() && self.has_room() {
            let start = self.output.len();
            let header = RequestHeader { xid: self.next_xid, op: asked };
            if let Err(len) = encode_frame(&mut self.output, header, len_max, encode) {
                self.output.truncate(start);
                return Err((request, len));
            }
            let xid = self.take_xid();
            let path = path_in(op, &self.output[start + BODY_AT..]);
            self.paths.extend(path);
            self.pending.push_back(Pending { xid, op, request, watch, path_len: path.len() });
            return Ok(Admission::Queued);
        }
        let mut frame = Vec::new();
        if let Err(len) = encode_frame(&mut frame, RequestHeader { xid: Xid(0), op: asked }, len_max, encode)
        {
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
            let Waiting { op, request, watch, frame, .. } = waiting;
            let path = path_in(op, &frame[BODY_AT..]);
            self.paths.extend(path);
            self.pending.push_back(Pending { xid, op, request, watch, path_len: path.len() });
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

    /// The oldest request sent, to which the next reply belongs; its path, if it `fails`; and whether it
    /// was the marked one.
    pub(super) fn answered(
        &mut self,
        fails: impl FnOnce(Xid, OpCode) -> bool,
    ) -> Option<(Pending<R, W>, Vec<u8>, bool)> {
        if self.sent == 0 {
            return None;
        }
        let pending = self.pending.pop_front()?;
        let drained = self.paths.drain(..pending.path_len);
        let path = match fails(pending.xid, pending.op) {
            true => drained.collect(),
            false => {
                drop(drained);
                Vec::new()
            }
        };
        self.sent -= 1;
        let was_marked = self.marked == Some(0);
        self.marked = self.marked.and_then(|at| at.checked_sub(1));
        self.admit();
        Some((pending, path, was_marked))
    }

    /// Empties the queue, oldest first.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Failed<R>> {
        let sent = std::mem::take(&mut self.sent);
        self.marked = None;
        self.output.clear();
        let mut paths = std::mem::take(&mut self.paths).into_iter();
        let queued =
            self.pending.drain(..).enumerate().map(move |(at, Pending { op, request, path_len, .. })| {
                let path = paths.by_ref().take(path_len).collect();
                Failed { request, op, path, was_sent: at < sent }
            });
        queued.chain(self.waiting.drain(..).map(|Waiting { op, request, frame, .. }| {
            let path = path_in(op, &frame[BODY_AT..]).to_vec();
            Failed { request, op, path, was_sent: false }
        }))
    }
}

/// The path that a request's body begins with; empty if it has none.
pub(super) fn path_in(op: OpCode, body: &[u8]) -> &[u8] {
    if matches!(op, OpCode::Multi | OpCode::MultiRead | OpCode::Reconfig) {
        return &[];
    }
    let Some((len, rest)) = body.split_first_chunk() else { return &[] };
    usize::try_from(i32::from_be_bytes(*len)).ok().and_then(|len| rest.get(..len)).unwrap_or_default()
}

/// Whether the answer depends on how much a server has of what was committed, and on nothing else.
const fn is_read(op: OpCode) -> bool {
    matches!(
        op,
        OpCode::Exists
            | OpCode::GetData
            | OpCode::GetAcl
            | OpCode::GetChildren
            | OpCode::GetChildren2
            | OpCode::GetAllChildrenNumber
            | OpCode::GetEphemerals
            | OpCode::MultiRead
    )
}

fn encode_frame(
    out: &mut Vec<u8>,
    header: RequestHeader,
    len_max: usize,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Result<(), usize> {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_LEN]);
    header.encode(out);
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
