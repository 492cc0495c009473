//! The program's side: requests in, bytes out.

use ringkeeper_wire::frame::put_frame;
use ringkeeper_wire::{
    AddWatchMode, AuthRequest, ConnectRequest, EXTENDED_PROTOCOL, OpCode, Record, RequestHeader, SessionId,
    Xid, xid,
};

use super::pending::path_in;
use super::{Admission, Core, Credential, Millis, Phase, Sink, WatchId, WatchRequest};
use crate::mutation::planted;
use crate::{Call, Error, SessionState};

impl<S: Sink> Core<S> {
    /// Queues a request; `encode` appends its body. `watch` is registered with the reply.
    ///
    /// # Errors
    /// The session has ended or has lapsed, or the request is too long; it is handed back.
    pub fn submit(
        &mut self,
        op: OpCode,
        request: S::Request,
        watch: Option<WatchRequest<S::Watcher>>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Admission, (S::Request, Error)> {
        if let Some(error) = self.end_reason() {
            return Err((request, error));
        }
        if self.state == SessionState::Lapsed {
            let mut body = Vec::new();
            encode(&mut body);
            return Err((request, Error::NotSent(self.call(op, path_in(op, &body)))));
        }
        let max = self.config.request_len_max;
        self.pending
            .push(op, request, watch, max, encode)
            .map_err(|(request, len)| (request, Error::RequestTooLong { len, max }))
    }

    /// Takes a request back that is still waiting for room in the queue.
    pub fn withdraw(&mut self, ticket: u64) -> Option<S::Request> {
        self.pending.withdraw(ticket)
    }

    /// Shows a further credential, on this connection and every later one.
    ///
    /// # Errors
    /// The session has ended; the request is handed back.
    pub fn add_credential(
        &mut self,
        credential: Credential,
        request: S::Request,
    ) -> Result<(), (S::Request, Error)> {
        if let Some(error) = self.end_reason() {
            return Err((request, error));
        }
        if self.phase == Phase::Up {
            encode_auth(&credential, &mut self.prelude);
        }
        self.config.credentials.push(credential);
        // While there is no connection, the handshake of the next one will send it: see `replay`.
        self.auths.push_back(Some(request));
        Ok(())
    }

    /// Ends the session: its ephemeral znodes go at once. The answer, or the end of the connection,
    /// moves the state to [`SessionState::Closed`]; without a connection that happens right away, and
    /// the servers find out by the session's timeout.
    pub fn close(&mut self, now: Millis, request: S::Request, sink: &mut S) {
        match self.phase {
            Phase::Up => {
                let max = self.config.request_len_max;
                // Behind a full queue, the requests before it are answered first all the same.
                let pushed = self.pending.push(OpCode::CloseSession, request, None, max, |_| {});
                assert!(pushed.is_ok(), "a request without a body fits into a frame");
                self.phase = Phase::Closing { deadline: now.plus(self.session.timeout_ms * 2 / 3) };
            }
            Phase::Closing { .. } | Phase::Ended => sink.reply(request, Ok(&[])),
            Phase::Waiting { .. }
            | Phase::Dialing { .. }
            | Phase::Handshaking { .. }
            | Phase::LoggingIn { .. } => {
                self.end(SessionState::Closed, sink);
                sink.reply(request, Ok(&[]));
            }
        }
    }

    /// Forgets a one-shot watch that has not fired: nobody waits for it any more.
    pub fn forget_watch(&mut self, path: &str, id: WatchId) {
        self.watches.forget(path, id);
    }

    /// Forgets a persistent watch. `true` if it was the last of its kind on `path`, so that the server
    /// should be asked to remove its own.
    pub fn forget_persistent(&mut self, path: &str, mode: AddWatchMode, id: WatchId) -> bool {
        self.watches.forget_persistent(path, mode, id)
    }

    /// A number for a new watch.
    pub fn new_watch_id(&mut self) -> WatchId {
        self.watches.new_id()
    }

    /// Whether [`Core::take_output`] has something to give.
    pub fn has_output(&self) -> bool {
        match self.phase {
            Phase::Handshaking { .. } | Phase::LoggingIn { .. } => !self.prelude.is_empty(),
            Phase::Up | Phase::Closing { .. } => !self.prelude.is_empty() || self.pending.has_output(),
            _ => false,
        }
    }

    /// Appends the bytes to send on the current connection. They count as sent from then on, so call it
    /// when the socket can take more, not before. Handing in an empty buffer avoids a copy.
    pub fn take_output(&mut self, now: Millis, into: &mut Vec<u8>) {
        if !self.has_output() {
            return;
        }
        self.last_sent = now;
        into.append(&mut self.prelude);
        if matches!(self.phase, Phase::Up | Phase::Closing { .. }) && self.pending.take_output(into) {
            self.marked_sent = now;
        }
    }

    /// The first bytes of a connection.
    pub(super) fn greet(&mut self) {
        // A session that only a read-only server knows is nobody else's: another server gets a new one.
        let is_known = self.session.is_global;
        let request = ConnectRequest {
            protocol_version: if self.config.linearizable_reads { EXTENDED_PROTOCOL } else { 0 },
            last_zxid_seen: self.session.last_zxid.to_wire(),
            timeout_ms: i32::try_from(self.config.session_timeout_ms).unwrap_or(i32::MAX),
            session_id: if is_known { self.session.id } else { SessionId::default() },
            password: Some(if is_known { &self.session.password } else { &[0; 16] }),
            read_only: Some(self.config.read_only),
        };
        self.prelude.clear();
        put_frame(&mut self.prelude, |out| request.encode(out));
    }

    /// Shows the credentials again, and restores the watches; they come before any request.
    pub(super) fn replay(&mut self) {
        // Those not yet answered were added last.
        let unanswered = self.auths.iter().flatten().count();
        let replayed = self.config.credentials.len() - unanswered;
        self.auths.retain(Option::is_some);
        for _ in 0..replayed {
            self.auths.push_front(None);
        }
        for credential in &self.config.credentials {
            encode_auth(credential, &mut self.prelude);
        }
        if !planted!(self, ForgetWatches) {
            self.watches.note_gap();
            self.restores_left = self.watches.encode_restore(self.session.last_zxid, &mut self.prelude);
        }
    }

    pub(super) fn ping(&mut self, now: Millis) {
        encode_header(xid::PING, OpCode::Ping, &mut self.prelude);
        self.ping_sent = Some(now);
    }

    /// Fails all requests: those that were not sent for `reason`, or for the want of a connection.
    pub(super) fn fail_requests(&mut self, reason: Option<&Error>, sink: &mut S) {
        let denies = planted!(self, DenyUncertainty);
        for failed in self.pending.drain() {
            let call = call_of(&self.config.chroot, failed.op, &failed.path);
            let error = match reason {
                _ if failed.was_sent && !denies => Error::ConnectionLoss(call),
                Some(reason) => reason.clone(),
                None => Error::NotSent(call),
            };
            sink.reply(failed.request, Err(error));
        }
    }

    /// The call that sent this request, as the program made it.
    pub(super) fn call(&self, op: OpCode, path: &[u8]) -> Call {
        call_of(&self.config.chroot, op, path)
    }
}

fn call_of(chroot: &str, op: OpCode, path: &[u8]) -> Call {
    let path = String::from_utf8_lossy(path);
    match path.strip_prefix(chroot) {
        Some("") if !path.is_empty() => Call::of(op, "/"),
        Some(path) => Call::of(op, path),
        None => Call::of(op, path),
    }
}

fn encode_header(xid: Xid, op: OpCode, out: &mut Vec<u8>) {
    put_frame(out, |out| RequestHeader { xid, op: op.to_wire() }.encode(out));
}

fn encode_auth(credential: &Credential, out: &mut Vec<u8>) {
    let scheme = Some(credential.scheme.as_str().into());
    let request = AuthRequest { auth_type: 0, scheme, auth: Some(&credential.auth) };
    put_frame(out, |out| {
        RequestHeader { xid: xid::AUTH, op: OpCode::Auth.to_wire() }.encode(out);
        request.encode(out);
    });
}
