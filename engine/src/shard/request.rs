//! Requests of a session: answered at once, queued in the backlog, or submitted to the core.

use std::sync::Arc;

use ringkeeper_wire::{
    ErrorCode, MultiReadOp, OpCode, Record, Request, RequestHeader, SyncRequest, SyncResponse, Xid,
};

use super::auth::is_out_of_order;
use super::backlog::{Backlog, What, reads_state};
use super::connection::Phase;
use super::latency::{About, Answered};
use super::read::Read;
use super::tenants::Admission;
use super::{CloseReason, Shard, Slot};
use crate::message::{ConnId, Serving, Submitted};
use crate::mutation::planted;

/// Number of reads that may wait between two writes of a connection. They all run at once, on the state
/// between the two, even if the client is not reading their replies.
const WAITING_READS_MAX: usize = 1024;

/// Zxid of the reply to an opcode that no client may send.
const UNPROCESSED_ZXID: i64 = -1;

/// The size in bytes of a request's header.
pub(super) const HEADER_LEN: usize = 8;

impl Shard {
    /// Handles one request. False if it has to wait until the backlog has shrunk.
    pub(super) fn request(&mut self, now_us: u64, slot: Slot, frame: &[u8]) -> bool {
        let Ok(header) = RequestHeader::from_bytes(frame) else {
            self.abort(slot, Some(CloseReason::MalformedHeader));
            return true;
        };
        let (xid, body) = (header.xid, &frame[HEADER_LEN..]);
        // The numbers of closeSession and the like are negative, so they have this bit in any case.
        let extended = self.connection(slot).extended && header.op > 0;
        let flag = if extended { RequestHeader::LINEARIZABLE } else { 0 };
        let linearizable = header.op & flag != 0;
        let Some(op) = OpCode::from_wire(header.op & !flag).filter(|op| op.is_client_request()) else {
            let what = What::Fail { code: ErrorCode::Unimplemented, op: header.op, close: true };
            let connection = self.connection(slot);
            let conn = connection.id;
            connection.phase = Phase::Ending;
            self.note_close(conn, CloseReason::OpCode(header.op));
            self.enqueue(now_us, slot, xid, what, &[]);
            return true;
        };
        if is_out_of_order(op) {
            match op {
                OpCode::Auth => self.authenticate(slot, xid, body),
                _ => self.sasl(slot, xid, body),
            }
            return true;
        }
        if !self.is_authenticated(slot, xid) || self.waited_too_long(now_us, slot, xid, op) {
            return true;
        }
        if is_write(op) && self.holds_back_write(slot) {
            return false;
        }
        let admission = self.admit_request(now_us, slot, op, body);
        if admission == Admission::Muted {
            return false;
        }
        self.connection(slot).muted_since_us = None;
        if let Admission::Refused(code) = admission {
            self.fail(now_us, slot, xid, op, code);
            return true;
        }
        match op {
            OpCode::Sync => self.sync(now_us, slot, xid, body),
            op if is_write(op) => self.write_request(now_us, slot, xid, op, body),
            op if linearizable && reads_state(op) => self.linearizable_read(now_us, slot, xid, op, body),
            op => self.read(now_us, slot, xid, op, body),
        }
        true
    }

    /// Records that the session is alive.
    pub(super) fn touch(&mut self, slot: Slot) {
        let connection = self.connection(slot);
        if !std::mem::replace(&mut connection.touched, true) {
            self.touched.push(slot);
        }
    }

    fn read(&mut self, now_us: u64, slot: Slot, xid: Xid, op: OpCode, body: &[u8]) {
        let connection = self.connection(slot);
        let identities = connection.identities.len();
        let read = Read { xid, op, identities, arrival: connection.arrival(now_us), began_us: now_us };
        let due = connection.backlog.is_empty() || planted!(self.settings.rules, ReorderReplies);
        let due = due && (!self.must_wait(slot, op, body) || planted!(self.settings.rules, ReadInsideGroup));
        if !(due && self.execute(now_us, slot, read, body)) {
            self.enqueue(now_us, slot, xid, What::Read { op, identities }, body);
        }
    }

    /// A read that waits, like the answer to a sync, until this server has all that was committed before.
    fn linearizable_read(&mut self, now_us: u64, slot: Slot, xid: Xid, op: OpCode, body: &[u8]) {
        if self.serving == Serving::ReadOnly {
            return self.fail(now_us, slot, xid, op, ErrorCode::NotReadOnly);
        }
        self.confirm(now_us, slot, xid, What::Confirm { due: false }, &[]);
        self.read(now_us, slot, xid, op, body);
    }

    /// Asks the core to say when this server has all that was committed before.
    fn confirm(&mut self, now_us: u64, slot: Slot, xid: Xid, what: What, body: &[u8]) {
        let connection = self.connection(slot);
        let (conn, session) = (connection.id, connection.session);
        self.submit(conn, session, Submitted::Sync);
        self.enqueue(now_us, slot, xid, what, body);
    }

    fn sync(&mut self, now_us: u64, slot: Slot, xid: Xid, body: &[u8]) {
        if self.serving == Serving::ReadOnly {
            return self.fail(now_us, slot, xid, OpCode::Sync, ErrorCode::NotReadOnly);
        }
        if SyncRequest::from_bytes(body).is_err() {
            return self.fail(now_us, slot, xid, OpCode::Sync, ErrorCode::MarshallingError);
        }
        self.confirm(now_us, slot, xid, What::Sync { due: false }, body);
    }

    /// Whether a write has to be handled again later.
    ///
    /// A write behind an unanswered sync or linearizable read is held back: once both were on their way, the
    /// core could publish the write before it says that the sync is due, and reads between the two would have
    /// no state to run on. So is a write behind a read that may be long: its answer comes first, and is of a
    /// state without the write.
    fn holds_back_write(&mut self, slot: Slot) -> bool {
        let high_water = self.settings.output_high_water_bytes;
        let connection = self.connection(slot);
        let waiting_reads_max =
            (high_water / connection.reply_len_hint.max(1) as usize).clamp(1, WAITING_READS_MAX);
        let backlog = &connection.backlog;
        backlog.awaits_sync() || backlog.awaits_long_read() || backlog.reads_since_write() > waiting_reads_max
    }

    /// Submits a write.
    fn write_request(&mut self, now_us: u64, slot: Slot, xid: Xid, op: OpCode, body: &[u8]) {
        if op == OpCode::CloseSession && self.serving == Serving::ReadOnly {
            // Of this connection alone, or a local one, whose end the core has to hear of.
            let connection = self.connection(slot);
            connection.phase = Phase::Ending;
            let (conn, session, identities) = (connection.id, connection.session, None);
            let body_range = self.bodies.len()..self.bodies.len();
            let what = Submitted::Write { xid, op, body: body_range, identities, read_barrier: false };
            self.submit(conn, session, what);
            let end = What::Fail { code: ErrorCode::Ok, op: op.to_wire(), close: true };
            return self.enqueue(now_us, slot, xid, end, body);
        }
        let code = if self.serving == Serving::ReadOnly || self.disk_full {
            Some(ErrorCode::NotReadOnly)
        } else {
            self.refusal(slot, op, body)
        };
        if let Some(code) = code {
            self.audit_refusal(slot, op, body);
            return self.fail(now_us, slot, xid, op, code);
        }
        let connection = self.connection(slot);
        let (conn, session) = (connection.id, connection.session);
        let identities = Some(Arc::clone(&connection.identities));
        // A closeSession has nothing to say.
        let body = if op == OpCode::CloseSession { &[][..] } else { body };
        if op == OpCode::CloseSession {
            connection.phase = Phase::Ending;
        }
        let read_barrier = connection.backlog.reads_since_write() > 0;
        let start = self.bodies.len();
        self.bodies.extend_from_slice(body);
        let range = start..self.bodies.len();
        self.submit(conn, session, Submitted::Write { xid, op, body: range, identities, read_barrier });
        self.enqueue(now_us, slot, xid, What::Write(op), body);
    }

    /// The error of a write that is refused whatever the state is.
    fn refusal(&mut self, slot: Slot, op: OpCode, body: &[u8]) -> Option<ErrorCode> {
        let Ok(request) = Request::decode(op, body) else { return Some(ErrorCode::MarshallingError) };
        let connection = self.connections.get(slot)?;
        let limit = self.settings.rules.limits.exceeded_by(&request, &connection.identities)?;
        self.note_limit(slot, limit);
        Some(limit.code())
    }

    pub(super) fn fail(&mut self, now_us: u64, slot: Slot, xid: Xid, op: OpCode, code: ErrorCode) {
        self.enqueue(now_us, slot, xid, What::Fail { code, op: op.to_wire(), close: false }, &[]);
    }

    /// Appends a request to the backlog. If it is the first one there, it is answered as far as possible.
    fn enqueue(&mut self, now_us: u64, slot: Slot, xid: Xid, what: What, body: &[u8]) {
        let connection = self.connection(slot);
        let first = connection.backlog.is_empty();
        let load = connection.backlog.push(connection.arrival(now_us), xid, what, body);
        self.outstanding += load;
        if first {
            self.advance(now_us, slot);
        }
    }

    pub(super) fn synced(&mut self, now_us: u64, conn: ConnId) {
        let Some(slot) = self.connections.slot(conn) else { return };
        if self.connection(slot).backlog.sync_is_due() {
            self.drain(now_us, slot);
        }
    }

    /// The local session of a connection is closed: its last request is answered behind those before it.
    pub(super) fn closed(&mut self, now_us: u64, conn: ConnId) {
        let Some(slot) = self.connections.slot(conn) else { return };
        let connection = self.connection(slot);
        connection.attached = false;
        if connection.backlog.close_is_due() {
            self.drain(now_us, slot);
        }
    }

    /// Answers the requests at the front of the backlog that can be answered on the current view, then
    /// handles the input that waited for it.
    pub(super) fn drain(&mut self, now_us: u64, slot: Slot) {
        self.advance(now_us, slot);
        self.pump(now_us, slot);
    }

    /// Whether a read has to wait for the end of the group that is being published. Its connection may go on
    /// with the state before the group until it is sent something of the group. But it cannot leave a watch
    /// on that state, since the event for the watch may have been sent already.
    fn must_wait(&self, slot: Slot, op: OpCode, body: &[u8]) -> bool {
        if self.is_between_slices(slot) {
            return true;
        }
        self.in_group
            && reads_state(op)
            && (self.has_seen_group(slot) || Request::decode(op, body).is_ok_and(|it| concerns_watches(&it)))
    }

    /// Whether the connection may have some events of a transaction and lack others, so that no zxid would be
    /// right for a reply.
    fn is_between_slices(&self, slot: Slot) -> bool {
        self.publication.is_some() && self.has_seen_group(slot)
    }

    fn has_seen_group(&self, slot: Slot) -> bool {
        self.connections.get(slot).is_some_and(|connection| connection.seen_group == self.group)
    }

    /// The connection was sent an event or a reply of the group that is being published.
    pub(super) fn see_group(&mut self, slot: Slot) {
        self.connection(slot).seen_group = self.group;
    }

    /// The last transaction whose events, if there are any for the connection, are sent to it.
    pub(super) fn zxid_for(&self, slot: Slot) -> i64 {
        let inside = !self.in_group || self.has_seen_group(slot);
        if inside { self.zxid.to_wire() } else { self.view.last_zxid().to_wire() }
    }

    pub(super) fn advance(&mut self, now_us: u64, slot: Slot) {
        let connection = self.connection(slot);
        if connection.backlog.is_empty() {
            return;
        }
        // Taken out of the connection while replies are written; no request is appended meanwhile.
        let mut backlog = std::mem::take(&mut connection.backlog);
        while self.answer_one(now_us, slot, &backlog) {
            self.outstanding -= backlog.pop();
        }
        let connection = self.connection(slot);
        if connection.phase == Phase::Closed {
            self.outstanding -= backlog.load();
        } else {
            connection.backlog = backlog;
        }
    }

    /// Answers the oldest request, if it need not wait any more.
    fn answer_one(&mut self, now_us: u64, slot: Slot, backlog: &Backlog) -> bool {
        let Some(&pending) = backlog.front() else { return false };
        let (xid, zxid, arrival) = (pending.xid, self.zxid_for(slot), pending.arrival);
        let answered = |op| {
            let (body_len, about) = (pending.body_len(), About::Body(backlog.front_body()));
            Answered { xid, op, arrival, began_us: now_us, body_len, about }
        };
        if self.is_between_slices(slot) {
            self.drain_after_group(slot);
            return false;
        }
        match pending.what {
            What::Write(_) | What::Sync { due: false } | What::Confirm { due: false } => return false,
            What::Confirm { due: true } => {}
            What::Read { .. } if self.connection(slot).has_unfinished_read() => return false,
            What::Read { op, .. } if self.must_wait(slot, op, backlog.front_body()) => {
                self.drain_after_group(slot);
                return false;
            }
            What::Sync { due: true } => {
                let request = SyncRequest::from_bytes(backlog.front_body()).expect("decoded when it came in");
                let response = SyncResponse { path: request.path };
                self.write_reply(slot, xid, zxid, ErrorCode::Ok, |out| response.encode(out));
                self.count_reply(now_us, slot, answered(OpCode::Sync.to_wire()));
            }
            What::Fail { code, op, close } => {
                // ZooKeeper answers an opcode that it does not know before it assigns any zxid.
                let unknown = close && code == ErrorCode::Unimplemented;
                let zxid = if unknown { UNPROCESSED_ZXID } else { zxid };
                self.write_reply(slot, xid, zxid, code, |_| {});
                self.count_reply(now_us, slot, answered(op));
                if close {
                    self.end(slot);
                }
            }
            What::Read { op, identities } => {
                // Replies wait while the client does not read. But a read before a submitted write is
                // answered now, since it must not see that write.
                let full = self.connection(slot).outbox.len() >= self.settings.output_high_water_bytes;
                if full && !backlog.awaits_write() {
                    return false;
                }
                if full && self.output_bytes >= self.settings.output_total_max_bytes {
                    let unread = self.connection(slot).outbox.len();
                    self.abort(slot, Some(CloseReason::SlowReader(unread)));
                    return false;
                }
                let read = Read { xid, op, identities, arrival, began_us: now_us };
                if !self.execute(now_us, slot, read, backlog.front_body()) {
                    return false;
                }
            }
        }
        self.connection(slot).phase != Phase::Closed
    }
}

/// Whether a read leaves or removes watches, or looks for them.
fn concerns_watches(request: &Request<'_>) -> bool {
    match request {
        Request::GetData(read)
        | Request::Exists(read)
        | Request::GetChildren(read)
        | Request::GetChildren2(read) => read.watch,
        Request::AddWatch(_)
        | Request::CheckWatches(_)
        | Request::RemoveWatches(_)
        | Request::SetWatches(_)
        | Request::SetWatches2(_) => true,
        _ => false,
    }
}

/// What `of` makes of the first path that a request names.
pub(super) fn first_path<R>(request: &Request<'_>, of: impl FnOnce(&str) -> R) -> Option<R> {
    let path: &str = match request {
        Request::Create(it) | Request::Create2(it) | Request::CreateContainer(it) => &it.path,
        Request::CreateTtl(it) => &it.path,
        Request::Delete(it) => &it.path,
        Request::SetData(it) => &it.path,
        Request::SetAcl(it) => &it.path,
        Request::GetData(it) | Request::Exists(it) | Request::GetChildren(it) | Request::GetChildren2(it) => {
            &it.path
        }
        Request::GetAcl(it) | Request::GetAllChildrenNumber(it) => &it.path,
        Request::Sync(it) => it.path.as_deref()?,
        Request::CheckWatches(it) | Request::RemoveWatches(it) => &it.path,
        Request::AddWatch(it) => &it.path,
        Request::Multi(it) => return it.iter().next().map(|op| of(op.path())),
        Request::MultiRead(it) => {
            return it.into_iter().next().map(|op| match op {
                MultiReadOp::GetData(it) | MultiReadOp::GetChildren(it) => of(&it.path),
            });
        }
        Request::SetWatches(it) | Request::SetWatches2(it) => {
            let lists = [
                it.data_watches,
                it.exist_watches,
                it.child_watches,
                it.persistent_watches,
                it.persistent_recursive_watches,
            ];
            return lists.into_iter().find_map(|paths| paths.into_iter().next()).map(|path| of(&path));
        }
        _ => return None,
    };
    Some(of(path))
}

/// Whether the core orders the request as a transaction. A sync changes nothing and is none.
const fn is_write(op: OpCode) -> bool {
    matches!(
        op,
        OpCode::Create
            | OpCode::Create2
            | OpCode::CreateContainer
            | OpCode::CreateTtl
            | OpCode::Delete
            | OpCode::SetData
            | OpCode::SetAcl
            | OpCode::Multi
            | OpCode::Reconfig
            | OpCode::CloseSession
    )
}
