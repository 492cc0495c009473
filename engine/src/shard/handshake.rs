//! Establishing and ending sessions (docs/protocol.md, 2 and 5).

use std::sync::Arc;

use ringkeeper_wire::frame::put_frame;
use ringkeeper_wire::{ConnectRequest, ConnectResponse, EXTENDED_PROTOCOL, PASSWORD_LEN, Record, SessionId};

use super::connection::Phase;
use super::{CloseReason, Memory, Shard, Slot};
use crate::message::{ConnId, Serving, Submitted};
use crate::state::State;

/// How long a client that is ahead of this server may wait, from when it has connected.
const CATCH_UP_MS: u64 = 250;

/// How many such clients may wait, so that looking at them again delays nobody for long.
const AHEAD_MAX: usize = 1024;

impl Shard {
    /// Handles the first frame of a connection. False if it must be handled again later.
    pub(super) fn connect(&mut self, slot: Slot, frame: &[u8]) -> bool {
        let Ok(request) = ConnectRequest::from_bytes(frame) else {
            self.abort(slot, Some(CloseReason::MalformedConnect));
            return true;
        };
        if let Err(reason) = self.admit(&request) {
            return self.turn_away(slot, reason);
        }
        let timeout_ms = self.negotiate(request.timeout_ms);
        let connection = self.connection(slot);
        let conn = connection.id;
        connection.phase = Phase::Establishing;
        connection.read_only = request.read_only;
        connection.extended = request.protocol_version == EXTENDED_PROTOCOL;
        if request.session_id == SessionId(0) {
            if self.memory == Memory::Scarce {
                return self.refuse_session(slot);
            }
            self.submit(conn, SessionId(0), Submitted::Open { timeout_ms });
            return true;
        }
        match request.password.and_then(|password| password.try_into().ok()) {
            Some(password) => {
                self.counters.sessions_resumed += 1;
                self.submit(conn, request.session_id, Submitted::Reattach { password, timeout_ms });
            }
            // Passwords have one length, so this one is wrong.
            None => self.reject(conn),
        }
        true
    }

    /// Closes the connection without a reply, so that the client tries another server.
    fn refuse_session(&mut self, slot: Slot) -> bool {
        self.abort(slot, Some(CloseReason::NoMemory));
        true
    }

    /// Closes the connection, but lets a client that is ahead of this server wait a moment: this server may
    /// hear of the last commits any time. Returns whether the client's frame is consumed.
    fn turn_away(&mut self, slot: Slot, reason: CloseReason) -> bool {
        let waits_until_ms = self.connection(slot).connected_ms + CATCH_UP_MS;
        if let CloseReason::ClientAhead { seen, .. } = reason
            && self.serving == Serving::Yes
            && self.ticked_ms < waits_until_ms
            && self.ahead.len() < AHEAD_MAX
        {
            let conn = self.connection(slot).id;
            self.ahead.insert((seen, conn));
            return false;
        }
        self.abort(slot, Some(reason));
        true
    }

    /// Looks again at clients that were ahead of this server, up to those who have seen this zxid.
    pub(super) fn welcome_ahead(&mut self, now_us: u64, upto: i64) {
        let later = self.ahead.split_off(&(upto, ConnId(u64::MAX)));
        for (_, conn) in std::mem::replace(&mut self.ahead, later) {
            if let Some(slot) = self.connections.slot(conn) {
                self.pump(now_us, slot);
            }
        }
    }

    /// Whether this server may serve the client. If not, the connection is closed without a reply, so that
    /// the client tries another server.
    fn admit(&self, request: &ConnectRequest<'_>) -> Result<(), CloseReason> {
        match self.serving {
            Serving::No => return Err(CloseReason::NotServing),
            Serving::Leads => return Err(CloseReason::Leads),
            Serving::ReadOnly if request.read_only != Some(true) => return Err(CloseReason::ReadOnlyRefused),
            Serving::ReadOnly | Serving::Yes => {}
        }
        let (seen, ours) = (request.last_zxid_seen, self.zxid.to_wire());
        if seen > ours { Err(CloseReason::ClientAhead { seen, ours }) } else { Ok(()) }
    }

    fn negotiate(&self, requested_ms: i32) -> u32 {
        let (min, max) = (self.settings.session_timeout_min_ms, self.settings.session_timeout_max_ms);
        u32::try_from(requested_ms).unwrap_or(0).min(max).max(min)
    }

    pub(super) fn attach(
        &mut self,
        now_us: u64,
        conn: ConnId,
        session: SessionId,
        password: [u8; PASSWORD_LEN],
        timeout_ms: u32,
    ) {
        let Some(slot) = self.connections.slot(conn) else {
            // The connection ended before the core answered.
            self.submit(conn, session, Submitted::Detach);
            return;
        };
        let read_only_server = self.serving == Serving::ReadOnly;
        let connection = self.connection(slot);
        connection.session = session;
        connection.attached = true;
        if connection.phase != Phase::Establishing {
            return;
        }
        connection.phase = Phase::Attached;
        connection.stats.timeout_ms = timeout_ms;
        let response = ConnectResponse {
            protocol_version: if connection.extended { EXTENDED_PROTOCOL } else { 0 },
            timeout_ms: i32::try_from(timeout_ms).unwrap_or(i32::MAX),
            session_id: session,
            password: Some(&password),
            read_only: connection.read_only.map(|_| read_only_server),
        };
        self.write_connect_response(slot, &response);
        self.pump(now_us, slot);
    }

    /// Refuses the session: the client is told that it has expired.
    pub(super) fn reject(&mut self, conn: ConnId) {
        let Some(slot) = self.connections.slot(conn) else { return };
        let connection = self.connection(slot);
        if connection.phase != Phase::Establishing {
            return;
        }
        let response = ConnectResponse::expired(connection.read_only.map(|_| false));
        self.counters.connections_rejected += 1;
        self.write_connect_response(slot, &response);
        self.end(slot);
    }

    fn write_connect_response(&mut self, slot: Slot, response: &ConnectResponse<'_>) {
        self.write(slot, |out| put_frame(out, |out| response.encode(out)));
    }

    /// Begins or ends serving clients. Connected clients are disconnected; they resume their sessions on
    /// another server.
    pub(super) fn set_serving(&mut self, serving: Serving) {
        let before = std::mem::replace(&mut self.serving, serving);
        if before == serving {
            return;
        }
        let slots: Vec<Slot> = self.connections.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            // A pending four-letter word is answered in any case. A session that is ending is disconnected,
            // too: the reply to its closeSession will not come any more.
            let connection = self.connection(slot);
            if connection.attached || (connection.takes_input() && connection.phase != Phase::Fresh) {
                self.abort(slot, None);
            }
        }
    }

    /// Serves from a state that was not reached by transactions published to this shard.
    pub(super) fn replace_view(&mut self, view: Arc<State>) {
        self.zxid = view.last_zxid();
        let before = std::mem::replace(&mut self.view, view);
        self.take_tenants(before.tenants());
    }
}
