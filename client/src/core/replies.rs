//! The server's side: bytes in, outcomes out.

use ringkeeper_wire::frame::next_frame;
use ringkeeper_wire::{
    AddWatchMode, ConnectResponse, EXTENDED_PROTOCOL, ErrorCode, EventType, OpCode, Record, ReplyHeader,
    WatcherEvent, Zxid, xid,
};

use super::pending::Pending;
use super::watches::WatchTable;
use super::{Core, Loss, Millis, Phase, Sink};
use crate::mutation::planted;
use crate::{Error, SessionState};

impl<S: Sink> Core<S> {
    /// Bytes have arrived on the connection of `attempt`. How many of them were used: the rest is the
    /// beginning of a frame, to be handed in again with what follows it.
    pub fn handle_input(&mut self, now: Millis, attempt: u64, bytes: &[u8], sink: &mut S) -> usize {
        let mut used = 0;
        self.last_heard = now;
        while attempt == self.attempt && self.is_reading() {
            match next_frame(&bytes[used..], self.config.reply_len_max) {
                Ok(Some((payload, len))) => {
                    used += len;
                    self.handle_frame(now, payload, sink);
                }
                Ok(None) => return used,
                Err(error) => self.lose(now, Loss::Garbled(error.to_string()), sink),
            }
        }
        // What an abandoned connection still says is nobody's.
        bytes.len()
    }

    const fn is_reading(&self) -> bool {
        matches!(
            self.phase,
            Phase::Handshaking { .. } | Phase::LoggingIn { .. } | Phase::Up | Phase::Closing { .. }
        )
    }

    fn handle_frame(&mut self, now: Millis, payload: &[u8], sink: &mut S) {
        if matches!(self.phase, Phase::Handshaking { .. }) {
            match ConnectResponse::from_bytes(payload) {
                Ok(response) => return self.handle_handshake(now, &response, sink),
                Err(error) => return self.lose(now, Loss::Garbled(error.to_string()), sink),
            }
        }
        if let Phase::LoggingIn { is_read_only, .. } = self.phase {
            return self.handle_login_reply(now, payload, is_read_only, sink);
        }
        self.servers.answered();
        let Some((header, body)) = split_header(payload) else {
            return self.lose(now, Loss::Garbled("a reply without a header".to_owned()), sink);
        };
        match header.xid {
            xid::NOTIFICATION => self.handle_event(now, header.zxid, body, sink),
            xid::PING => self.handle_ping_reply(header.zxid),
            xid::AUTH => self.handle_auth_reply(header.err, sink),
            xid::SET_WATCHES => self.handle_restore_reply(header.err, sink),
            _ => self.handle_reply(now, header, body, sink),
        }
    }

    fn handle_handshake(&mut self, now: Millis, response: &ConnectResponse<'_>, sink: &mut S) {
        let Ok(timeout_ms @ 1..) = u64::try_from(response.timeout_ms) else {
            return self.end(SessionState::Expired, sink);
        };
        if self.config.linearizable_reads && response.protocol_version != EXTENDED_PROTOCOL {
            return self.lose(now, Loss::NotExtended, sink);
        }
        let password = response.password.unwrap_or_default();
        let Ok(password) = password.try_into() else {
            return self.lose(now, Loss::Garbled("a session password of another length".to_owned()), sink);
        };
        let is_read_only = response.read_only == Some(true);
        let session = &mut self.session;
        (session.id, session.password, session.timeout_ms) = (response.session_id, password, timeout_ms);
        session.is_global |= !is_read_only;
        // The handshake was sent after `last_sent` was set.
        session.lease_until = self.last_sent.plus(timeout_ms);
        if let (Some(_), Phase::Handshaking { deadline }) = (&self.login, self.phase) {
            self.phase = Phase::LoggingIn { deadline, is_read_only };
            return self.begin_login(now, sink);
        }
        self.serve(now, is_read_only, sink);
    }

    /// The connection is ready for requests.
    pub(super) fn serve(&mut self, now: Millis, is_read_only: bool, sink: &mut S) {
        self.establish_by = None;
        self.phase = Phase::Up;
        self.replay();
        let timeout_ms = self.session.timeout_ms;
        tracing::debug!(session = %self.session.id, timeout_ms, is_read_only, "session served");
        if is_read_only {
            self.look_for_read_write_server(now);
            self.set_state(SessionState::ReadOnly, sink);
        } else {
            self.set_state(SessionState::Connected, sink);
        }
    }

    fn handle_ping_reply(&mut self, zxid: i64) {
        // A server that lets this client wait sends replies with the zxid 0 unasked (docs/tenants.md): they
        // do not say that the ping was heard.
        if zxid != 0
            && let Some(sent) = self.ping_sent.take()
        {
            self.confirm_lease(sent);
        }
    }

    /// The server heard from this session after `sent`.
    fn confirm_lease(&mut self, sent: Millis) {
        let timeouts = if planted!(self, DoubleLease) { 2 } else { 1 };
        let until = sent.plus(self.session.timeout_ms * timeouts);
        self.session.lease_until = self.session.lease_until.max(until);
    }

    fn handle_auth_reply(&mut self, err: i32, sink: &mut S) {
        let request = self.auths.pop_front().flatten();
        if err == 0 {
            if let Some(request) = request {
                sink.reply(request, Ok(&[]));
            }
            return;
        }
        // ZooKeeper closes the connection; a reconnect would only be refused again.
        if let Some(request) = request {
            sink.reply(request, Err(Error::AuthFailed));
        }
        self.end(SessionState::AuthFailed, sink);
    }

    fn handle_restore_reply(&mut self, err: i32, sink: &mut S) {
        if err != 0 {
            tracing::warn!(err, session = %self.session.id, "the server did not restore watches");
        }
        self.restores_left = self.restores_left.saturating_sub(1);
        if self.restores_left == 0 {
            self.watches.restored(sink);
        }
    }

    fn handle_event(&mut self, now: Millis, zxid: i64, body: &[u8], sink: &mut S) {
        let event = match WatcherEvent::from_bytes(body) {
            Ok(event) => event,
            Err(error) => return self.lose(now, Loss::Garbled(error.to_string()), sink),
        };
        // Kinds that later servers may add have no watch here.
        let Some(kind) = EventType::from_wire(event.event_type) else { return };
        let zxid = (zxid > 0).then(|| Zxid::from_wire(zxid));
        if planted!(self, CountEventsAsSeen) {
            self.session.last_zxid = self.session.last_zxid.max(zxid.unwrap_or_default());
        }
        self.watches.dispatch(kind, &event.path, zxid, sink);
    }

    fn handle_reply(&mut self, now: Millis, header: ReplyHeader, body: &[u8], sink: &mut S) {
        let is_missing = header.err == ErrorCode::NoNode.to_wire();
        // To `exists` a znode that is missing is an answer like others, and worth no copy of its path.
        let fails = |xid, op| xid != header.xid || header.err != 0 && !(is_missing && op == OpCode::Exists);
        let Some((pending, path, was_marked)) = self.pending.answered(fails) else {
            return self.lose(now, Loss::Garbled(format!("a reply to no request, {:?}", header.xid)), sink);
        };
        if pending.xid != header.xid {
            // Nobody knows any more which reply belongs to what.
            let call = self.call(pending.op, &path);
            sink.reply(pending.request, Err(Error::ConnectionLoss(call)));
            return self.lose(now, Loss::Garbled(format!("a reply out of order, {:?}", header.xid)), sink);
        }
        if header.zxid > 0 {
            self.session.last_zxid = self.session.last_zxid.max(Zxid::from_wire(header.zxid));
        }
        if was_marked {
            self.confirm_lease(self.marked_sent);
        }
        let Pending { op, request, watch, .. } = pending;
        if let Some(watch) = watch
            && let Some(table) = table_of(op, header.err, watch.mode)
            && sink.wants(&watch.watcher)
        {
            self.watches.add(table, watch);
        }
        let outcome = match header.err {
            0 => Ok(body),
            code => Err(Error::from_wire(code, self.call(op, &path))),
        };
        sink.reply(request, outcome);
        if op == OpCode::CloseSession {
            self.end(SessionState::Closed, sink);
        }
    }
}

pub(super) fn split_header(payload: &[u8]) -> Option<(ReplyHeader, &[u8])> {
    let (header, body) = payload.split_at_checked(ReplyHeader::LEN)?;
    Some((ReplyHeader::from_bytes(header).ok()?, body))
}

/// Where the server keeps the watch that this request left, if it did (docs/protocol.md, 6.1).
fn table_of(op: OpCode, err: i32, mode: Option<AddWatchMode>) -> Option<WatchTable> {
    let is_missing = err == ErrorCode::NoNode.to_wire();
    match op {
        OpCode::Exists if is_missing => Some(WatchTable::Exist),
        _ if err != 0 => None,
        OpCode::Exists | OpCode::GetData => Some(WatchTable::Data),
        OpCode::GetChildren | OpCode::GetChildren2 => Some(WatchTable::Child),
        _ => mode.map(WatchTable::Persistent),
    }
}
