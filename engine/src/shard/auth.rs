//! Who a client is: auth and sasl packets, which are answered at once, out of the order of other replies, and
//! under the zxid 0 (docs/protocol.md, 1.3 and 7.3).

use std::sync::Arc;

use ringkeeper_wire::jute::Reader;
use ringkeeper_wire::{AuthRequest, ErrorCode, Identity, OpCode, Record, SaslRequest, SetSaslResponse, Xid};

use super::{CloseReason, Shard, Slot};
use crate::acl::authenticate;

/// More identities than any client has: every check of an ACL looks at all of them.
const IDENTITIES_MAX: usize = 256;

/// Zxid of replies that look at no state.
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
        if identities.is_some_and(|identities| self.add_identities(slot, identities)) {
            self.write_reply(slot, xid, NO_ZXID, ErrorCode::Ok, |_| {});
        } else {
            self.refuse(slot, xid, ErrorCode::AuthFailed, CloseReason::AuthFailed);
        }
    }

    /// Answers like a ZooKeeper without a SASL login: success without a token, and nobody new.
    pub(super) fn sasl(&mut self, slot: Slot, xid: Xid, body: &[u8]) {
        if !matches!(SaslRequest::from_bytes(body), Ok(SaslRequest { token: Some(_) })) {
            self.abort(slot, Some(CloseReason::MalformedHeader));
            return;
        }
        let response = SetSaslResponse { token: None };
        self.write_reply(slot, xid, NO_ZXID, ErrorCode::Ok, |out| response.encode(out));
    }

    /// Whether authentication is not enforced, or the connection has one of the schemes. If not, the request is
    /// answered and the connection closed.
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
        let conn = self.connection(slot).id;
        self.note_close(conn, reason);
        self.end(slot);
    }

    /// False if there would be too many.
    fn add_identities(&mut self, slot: Slot, identities: Vec<Identity>) -> bool {
        let known = &mut self.connection(slot).identities;
        let new: Vec<Identity> =
            identities.into_iter().filter(|identity| !known.contains(identity)).collect();
        let fits = known.len() + new.len() <= IDENTITIES_MAX;
        if fits && !new.is_empty() {
            *known = Arc::from_iter(known.iter().cloned().chain(new));
        }
        fits
    }
}

/// Whether a request is handled before and beside all others.
pub(super) fn is_out_of_order(op: OpCode) -> bool {
    matches!(op, OpCode::Auth | OpCode::Sasl)
}
