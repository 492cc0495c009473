//! Auth and sasl packets: they are answered at once, ahead of earlier requests, with zxid 0
//! (docs/protocol.md, 1.3 and 7.3).

use std::sync::Arc;

use ringkeeper_wire::frame::put_frame;
use ringkeeper_wire::jute::Reader;
use ringkeeper_wire::{
    AuthRequest, ErrorCode, Identity, OpCode, Record, ReplyHeader, SaslRequest, SetSaslResponse, Xid,
};

use super::connection::Phase;
use super::{CloseReason, Effect, Shard, Slot};
use crate::acl::{self, authenticate, certified_identities};
use crate::limits::Limit;
use crate::message::ConnId;
use crate::sasl::{Answer, Login, LoginError, ScramUsers};

/// Zxid of replies that depend on no state.
const NO_ZXID: i64 = 0;

impl Shard {
    pub(super) fn authenticate(&mut self, slot: Slot, xid: Xid, body: &[u8]) {
        let Ok(request) = AuthRequest::decode(&mut Reader::new(body)) else {
            self.abort(slot, Some(CloseReason::MalformedHeader));
            return;
        };
        let scheme = request.scheme.as_deref();
        let identities =
            scheme.and_then(|scheme| authenticate(scheme, request.auth, &self.settings.rules).ok());
        let Some(identities) = identities else {
            self.audit_refused_login(slot, scheme.unwrap_or_default());
            return self.refuse(slot, xid, ErrorCode::AuthFailed, CloseReason::AuthFailed);
        };
        match self.add_identities(slot, identities) {
            Ok(()) => self.write_reply(slot, xid, NO_ZXID, ErrorCode::Ok, |_| {}),
            Err(limit) => self.refuse(slot, xid, limit.code(), CloseReason::Limit(limit)),
        }
    }

    /// The client of a connection has proved by a certificate who it is, before its first request.
    pub fn certified(&mut self, conn: ConnId, id: String) {
        let identities = certified_identities(id, &self.settings.rules);
        if let Some(slot) = self.connections.slot(conn)
            && let Err(limit) = self.add_identities(slot, identities)
        {
            self.abort(slot, Some(CloseReason::Limit(limit)));
        }
    }

    /// The users of SCRAM-SHA-256 have changed, for the logins that begin from now on.
    pub fn set_scram_users(&mut self, users: Arc<ScramUsers>) {
        self.settings.sasl.scram = Some(users);
    }

    /// Handles one token of a login by SASL.
    pub(super) fn sasl(&mut self, slot: Slot, xid: Xid, body: &[u8]) {
        let Ok(SaslRequest { token: Some(token) }) = SaslRequest::from_bytes(body) else {
            self.abort(slot, Some(CloseReason::MalformedHeader));
            return;
        };
        let settings = &self.settings.sasl;
        if !settings.is_on() {
            return self.login_failed(slot, xid, None);
        }
        let connection =
            self.connections.get_mut(slot).expect("the connection was looked up in this very call");
        match connection.login.get_or_insert_default().answer(token, settings, &mut self.nonces).transpose() {
            Some(answer) => self.answer_token(slot, xid, answer),
            None => {
                connection.phase = Phase::LoggingIn(xid);
                let conn = connection.id;
                self.effects.push_back(Effect::Token { conn, token: token.to_vec() });
            }
        }
    }

    /// Answers the token of [`Effect::Token`], and goes on with the client's requests.
    pub fn token_evaluated(&mut self, now_us: u64, conn: ConnId, answer: Result<Answer, LoginError>) {
        let Some(slot) = self.connections.slot(conn) else { return };
        let connection = self.connection(slot);
        let Phase::LoggingIn(xid) = connection.phase else { return };
        connection.phase = Phase::Attached;
        if answer.as_ref().map_or(true, |answer| answer.user.is_some()) {
            connection.login = Some(Box::new(Login::Ended));
        }
        self.answer_token(slot, xid, answer);
        self.pump(now_us, slot);
    }

    fn answer_token(&mut self, slot: Slot, xid: Xid, answer: Result<Answer, LoginError>) {
        let Answer { token, user } = match answer {
            Ok(answer) => answer,
            Err(error) => return self.login_failed(slot, xid, Some(error)),
        };
        let identities = user.map(|user| self.settings.sasl.identities(user));
        if let Err(limit) = self.add_identities(slot, identities.unwrap_or_default()) {
            return self.refuse(slot, xid, limit.code(), CloseReason::Limit(limit));
        }
        let response = SetSaslResponse { token: token.as_deref() };
        self.write_reply(slot, xid, NO_ZXID, ErrorCode::Ok, |out| response.encode(out));
    }

    /// A login failed. Without an error, this server has no users: it answers with success and no token, as
    /// ZooKeeper does, and clients go on without the identity.
    fn login_failed(&mut self, slot: Slot, xid: Xid, error: Option<LoginError>) {
        if error.is_some() {
            self.audit_refused_login(slot, acl::SASL);
        }
        let is_required = self.settings.enforced_auth_schemes.iter().any(|scheme| scheme == acl::SASL);
        let response = SetSaslResponse { token: None };
        match error {
            Some(error) if is_required || !self.settings.sasl.failed_clients_stay => {
                let code =
                    if is_required { ErrorCode::SessionClosedRequireSaslAuth } else { ErrorCode::AuthFailed };
                // Of all failures, this one alone has a body.
                let reply = |out: &mut Vec<u8>| {
                    ReplyHeader::new(xid, NO_ZXID, code).encode(out);
                    response.encode(out);
                };
                self.write(slot, |out| put_frame(out, reply));
                self.close_after_reply(slot, CloseReason::LoginFailed(error));
            }
            _ => {
                let conn = self.connection(slot).id;
                self.counters.auth_failed += u64::from(error.is_some());
                self.effects.push_back(Effect::LoginIgnored { conn, error });
                self.write_reply(slot, xid, NO_ZXID, ErrorCode::Ok, |out| response.encode(out));
            }
        }
    }

    /// Whether authentication is not enforced, or the connection has one of the schemes. If not, the request
    /// is answered and the connection closed.
    pub(super) fn is_authenticated(&mut self, slot: Slot, xid: Xid) -> bool {
        let schemes = &self.settings.enforced_auth_schemes;
        if schemes.is_empty() {
            return true;
        }
        let connection = self.connections.get(slot).expect("the connection was looked up in this very call");
        let authenticated = connection.identities.iter().any(|identity| schemes.contains(&identity.scheme));
        if !authenticated {
            self.refuse(slot, xid, ErrorCode::SessionClosedRequireSaslAuth, CloseReason::AuthRequired);
        }
        authenticated
    }

    fn refuse(&mut self, slot: Slot, xid: Xid, code: ErrorCode, reason: CloseReason) {
        self.write_reply(slot, xid, NO_ZXID, code, |_| {});
        self.close_after_reply(slot, reason);
    }

    fn close_after_reply(&mut self, slot: Slot, reason: CloseReason) {
        let conn = self.connection(slot).id;
        self.note_close(conn, reason);
        self.end(slot);
    }

    /// Adds identities within the bounds: every ACL check compares all of them, and the leader keeps them,
    /// too.
    fn add_identities(&mut self, slot: Slot, identities: Vec<Identity>) -> Result<(), Limit> {
        let limits = self.settings.rules.limits.clone();
        let known = &mut self.connection(slot).identities;
        let new: Vec<Identity> =
            identities.into_iter().filter(|identity| !known.contains(identity)).collect();
        if new.is_empty() {
            return Ok(());
        }
        if !limits.allow(Limit::Identities, known.len() + new.len()) {
            return Err(Limit::Identities);
        }
        let bytes = known.iter().chain(&new).map(|identity| identity.scheme.len() + identity.id.len()).sum();
        if !limits.allow(Limit::IdentityBytes, bytes) {
            return Err(Limit::IdentityBytes);
        }
        *known = Arc::from_iter(known.iter().cloned().chain(new));
        Ok(())
    }
}

/// Whether a request is answered at once, ahead of earlier requests.
pub(super) fn is_out_of_order(op: OpCode) -> bool {
    matches!(op, OpCode::Auth | OpCode::Sasl)
}
