//! Long reads: they visit so many znodes that other requests should not wait for them, such as a listing of a
//! million children or the count of a subtree. The shard passes them to the shell, with the immutable state
//! that they have to see. The shell executes them beside its other work, one at a time.
//!
//! For its connection a long read is a request like any other. Its watch is set when the read is due; later
//! requests wait for its reply. So do notifications, since they report states after the one that the reply
//! shows.

use std::collections::VecDeque;
use std::sync::Arc;

use ringkeeper_wire::{ErrorCode, Identity, Request, SessionId};

use super::connection::Phase;
use super::read::{Read, Reader, Visits, encode_reply};
use super::{CloseReason, Shard, Slot};
use crate::acl::Caller;
use crate::authorisation::Bounds;
use crate::limits::Limit;
use crate::message::ConnId;
use crate::settings::Settings;
use crate::state::State;

/// The long reads of a shard: waiting, or being executed.
#[derive(Debug, Default)]
pub(super) struct LongReads {
    waiting: VecDeque<LongRead>,
    /// The shell is executing one.
    given: bool,
}

impl LongReads {
    pub(super) fn has_next(&self) -> bool {
        !self.given && !self.waiting.is_empty()
    }
}

/// A read to be executed beside the shard.
#[derive(Debug)]
pub struct LongRead {
    conn: ConnId,
    session: SessionId,
    read: Read,
    body: Vec<u8>,
    identities: Arc<[Identity]>,
    rules: Settings,
    /// The state that it has to see, and the zxid for its reply.
    view: Arc<State>,
    zxid: i64,
}

/// The answer to a [`LongRead`].
#[derive(Debug)]
pub struct LongReadReply {
    conn: ConnId,
    read: Read,
    body: Vec<u8>,
    /// A whole frame; `None` if it would exceed 2 GiB.
    frame: Option<Vec<u8>>,
    exceeded: Option<Limit>,
}

impl LongRead {
    /// Executes the read, however long it takes.
    #[must_use]
    pub fn carry_out(self) -> LongReadReply {
        let Self { conn, session, read, body, identities, rules, view, zxid } = self;
        let identities = &identities[..read.identities];
        let bounds = Bounds::of(view.authorisation(), identities);
        let mut reader = Reader {
            view: &view,
            watches: None,
            session,
            caller: Caller { identities, skip_acl: rules.skip_acl, bounds: bounds.as_ref() },
            rules: &rules,
            visits: Visits::Unbounded,
            exceeded: None,
        };
        let mut frame = Vec::new();
        let written = encode_reply(&mut frame, read.xid, zxid, |out| match Request::decode(read.op, &body) {
            Ok(request) => reader.answer(&request, out),
            Err(_) => Err(ErrorCode::MarshallingError),
        });
        let exceeded = reader.exceeded;
        LongReadReply { conn, read, body, frame: written.map(|_| frame), exceeded }
    }
}

impl Shard {
    /// The next read to be executed beside the shard and answered with [`Self::long_read_done`]. `None` while
    /// one is being executed, or while clients leave too much output unread.
    pub fn next_long_read(&mut self) -> Option<LongRead> {
        if self.long_reads.given || self.output_bytes >= self.settings.output_total_max_bytes {
            return None;
        }
        while let Some(next) = self.long_reads.waiting.pop_front() {
            if self.connections.slot(next.conn).is_some() {
                self.long_reads.given = true;
                return Some(next);
            }
        }
        None
    }

    /// Sends the reply, and resumes the connection.
    pub fn long_read_done(&mut self, now_us: u64, reply: LongReadReply) {
        self.long_reads.given = false;
        let LongReadReply { conn, read, body, frame, exceeded } = reply;
        let Some(slot) = self.connections.slot(conn) else { return };
        let connection = self.connection(slot);
        if connection.phase == Phase::Closed {
            return;
        }
        connection.reads_beside = false;
        let answered = connection.backlog.pop();
        self.outstanding -= answered;
        let Some(frame) = frame else {
            return self.abort(slot, Some(CloseReason::ReplyTooLong));
        };
        let before = self.connection(slot).outbox.bytes.len();
        self.connection(slot).outbox.append(frame);
        self.wrote(slot, before);
        if let Some(limit) = exceeded {
            self.note_limit(slot, limit);
        }
        self.count_reply(now_us, slot, read.answered(read.xid, &body));
        self.change_output(slot, |connection| {
            let held = std::mem::take(&mut connection.held_notifications);
            connection.outbox.append_notifications(held);
        });
        self.drain(now_us, slot);
        self.resume_stalled(now_us);
    }

    /// Queues a long read that is due: the oldest request of its connection.
    pub(super) fn read_beside(&mut self, slot: Slot, read: Read, body: &[u8]) {
        let (view, zxid, rules) = (Arc::clone(&self.view), self.zxid_for(slot), self.settings.rules.clone());
        let connection = self.connection(slot);
        connection.reads_beside = true;
        let (conn, session) = (connection.id, connection.session);
        let (identities, body) = (Arc::clone(&connection.identities), body.to_vec());
        let long = LongRead { conn, session, read, body, identities, rules, view, zxid };
        self.long_reads.waiting.push_back(long);
    }
}
