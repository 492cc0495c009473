//! What a shard notes for the audit log.

use std::sync::Arc;

use ringkeeper_wire::OpCode;

use super::connection::Connection;
use super::{Shard, Slot};
use crate::audit::{self, Client, Entry};
use crate::message::{Committed, Published, ShardId};
use crate::txn::Outcome;

impl Shard {
    /// Notes the oldest request of a connection, a write, with its outcome.
    pub(super) fn audit_outcome(&mut self, slot: Slot, op: OpCode, committed: &Committed) {
        let Some(connection) = self.connections.get(slot).filter(|_| self.settings.audits) else { return };
        let outcome = Some((&committed.outcome, committed.txn.op.updates()));
        let body = connection.backlog.front_body();
        let records = audit::of_request(client(connection), op, body, outcome);
        self.audited.extend(records.into_iter().map(Entry::Record));
    }

    /// Notes a write that is refused before the core has seen it.
    pub(super) fn audit_refusal(&mut self, slot: Slot, op: OpCode, body: &[u8]) {
        let Some(connection) = self.connections.get(slot).filter(|_| self.settings.audits) else { return };
        let records = audit::of_request(client(connection), op, body, None);
        self.audited.extend(records.into_iter().map(Entry::Record));
    }

    /// Notes a login that is refused.
    pub(super) fn audit_refused_login(&mut self, slot: Slot, scheme: &str) {
        let Some(connection) = self.connections.get(slot).filter(|_| self.settings.audits) else { return };
        self.audited.push(Entry::Record(audit::of_refused_login(client(connection), scheme)));
    }

    /// Notes that a session has ended; one shard does so for the server.
    pub(super) fn audit_ended_session(&mut self, published: &Arc<Published>, group: usize, txn: usize) {
        let outcome = &published.groups[group].txns[txn].outcome;
        let ends = matches!(outcome, Outcome::SessionClosed(ephemerals) if !ephemerals.is_empty());
        if self.settings.audits && self.id == ShardId(0) && ends {
            self.audited.push(Entry::SessionEnded { published: Arc::clone(published), group, txn });
        }
    }
}

fn client(connection: &Connection) -> Client<'_> {
    Client {
        session: connection.session,
        identities: &connection.identities,
        ip: connection.peer.ip().to_canonical(),
    }
}
