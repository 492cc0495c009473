//! Committed transactions: their events, their replies, and the reads that waited for them.

use std::sync::Arc;

use ringkeeper_wire::{
    Create2Response, CreateResponse, ErrorCode, GetDataResponse, MultiEntry, MultiResult, OpCode, Record,
    Xid, end_multi,
};

use super::backlog::What;
use super::connection::Phase;
use super::latency::{About, Answered};
use super::read::encode_reply;
use super::{CloseReason, Shard, Slot};
use crate::message::{Committed, ConnId, Published, PublishedGroup};
use crate::mutation::planted;
use crate::txn::{Create, Effect, Outcome, SetData, TxnOp, Update};

/// A message that is being published, and how far that has come.
#[derive(Debug)]
pub(super) struct Publication {
    published: Arc<Published>,
    group: usize,
    txn: usize,
    /// Changes of that transaction whose events are sent.
    changes: usize,
}

impl Publication {
    pub(super) fn new(published: Arc<Published>) -> Self {
        Self { published, group: 0, txn: 0, changes: 0 }
    }
}

impl Shard {
    /// Publishes in the order that all guarantees rest on: the events of each transaction, then its reply;
    /// after the last transaction of a group, the reads that waited for the state.
    ///
    /// If there are very many notifications, it stops after a slice of them. Until the rest is sent, later
    /// messages of the core wait, and reads go on with the state before the group as long as their client has
    /// seen nothing of the group.
    pub(super) fn continue_publication(&mut self, now_us: u64) {
        while let Some(publication) = self.publication.take() {
            self.publication = self.publish_slice(now_us, publication);
            self.blocks.complete();
            if self.publication.is_some() {
                return;
            }
            self.welcome_ahead(now_us, self.zxid.to_wire());
            while self.publication.is_none()
                && let Some(message) = self.undelivered.pop_front()
            {
                self.handle(now_us, message);
            }
        }
    }

    /// Returns what is left.
    fn publish_slice(&mut self, now_us: u64, mut at: Publication) -> Option<Publication> {
        let published = Arc::clone(&at.published);
        for group in published.groups.get(at.group..)? {
            if !std::mem::replace(&mut self.in_group, true) {
                self.group += 1;
            }
            for committed in group.txns.get(at.txn..)? {
                if at.changes == 0 {
                    self.audit_ended_session(&published, at.group, at.txn);
                }
                let late = planted!(self.settings.rules, EventAfterReply);
                if !late && !self.fire(committed, &mut at.changes) {
                    return Some(at);
                }
                self.zxid = committed.zxid();
                if let Some(origin) = committed.origin
                    && origin.shard == self.id
                {
                    self.answer_write(now_us, origin.conn, committed);
                }
                if late {
                    self.fire(committed, &mut at.changes);
                }
                (at.txn, at.changes) = (at.txn + 1, 0);
            }
            self.end_group(now_us, group);
            (at.group, at.txn) = (at.group + 1, 0);
        }
        None
    }

    fn end_group(&mut self, now_us: u64, group: &PublishedGroup) {
        self.in_group = false;
        let before = std::mem::replace(&mut self.view, group.view.clone());
        self.take_tenants(before.tenants());
        self.zxid = self.view.last_zxid();
        let mut waiting = std::mem::take(&mut self.to_drain);
        for slot in waiting.drain(..) {
            if let Some(connection) = self.connections.get_mut(slot) {
                connection.awaits_group = false;
                self.drain(now_us, slot);
            }
        }
        self.to_drain = waiting;
    }

    /// Continues with the connection's requests after the group that is being published.
    pub(super) fn drain_after_group(&mut self, slot: Slot) {
        if !std::mem::replace(&mut self.connection(slot).awaits_group, true) {
            self.to_drain.push(slot);
        }
    }

    fn answer_write(&mut self, now_us: u64, conn: ConnId, committed: &Committed) {
        // The reply to an Open is `Attached`, which has the session's password and timeout.
        if committed.outcome == Outcome::SessionCreated {
            return;
        }
        let slot = self.connections.slot(conn);
        let Some(slot) = slot.filter(|&slot| self.connection(slot).phase != Phase::Closed) else {
            self.counters.stale_replies += 1;
            return;
        };
        let connection = self.connection(slot);
        let xid = committed.txn.xid;
        let Some(front) = connection.backlog.front().filter(|front| front.xid == xid) else {
            return self.abort(slot, Some(CloseReason::OutOfOrder));
        };
        let (front, What::Write(op)) = (*front, front.what) else {
            return self.abort(slot, Some(CloseReason::OutOfOrder));
        };
        self.audit_outcome(slot, op, committed);
        let answered = self.connection(slot).backlog.pop();
        self.outstanding -= answered;
        // The connection is closed without a reply, so that the client looks for its session.
        if committed.outcome == Outcome::Failed(ErrorCode::SessionMoved) {
            return self.abort(slot, Some(CloseReason::Evicted));
        }
        self.see_group(slot);
        self.write_outcome(slot, xid, op, committed);
        let path = committed.txn.op.updates().first().map(Update::path);
        let answered = Answered {
            xid,
            op: op.to_wire(),
            arrival: front.arrival,
            began_us: now_us,
            body_len: front.body_len(),
            about: About::Txn(committed.zxid(), path),
        };
        self.count_reply(now_us, slot, answered);
        if op == OpCode::CloseSession {
            let connection = self.connection(slot);
            connection.attached = false;
            self.end(slot);
            return;
        }
        self.advance(now_us, slot);
        self.drain_after_group(slot);
    }

    fn write_outcome(&mut self, slot: Slot, xid: Xid, op: OpCode, committed: &Committed) {
        let zxid = committed.zxid().to_wire();
        let out = self.output(slot);
        let before = out.len();
        let written = encode_reply(out, xid, zxid, |out| encode_outcome(op, committed, out));
        self.wrote(slot, before);
        if written.is_none() {
            self.abort(slot, Some(CloseReason::ReplyTooLong));
        }
    }
}

fn encode_outcome(op: OpCode, committed: &Committed, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
    let updates = committed.txn.op.updates();
    match &committed.outcome {
        Outcome::Failed(code) => return Err(*code),
        Outcome::Done(effect) => {
            let update = updates.first().expect("a change of the tree has an update");
            encode_effect(op, &committed.txn.op, update, effect, out)?;
        }
        Outcome::Multi(effects) => {
            for (update, effect) in updates.iter().zip(effects) {
                multi_result(update, effect).encode_entry(out);
            }
            end_multi(out);
        }
        Outcome::MultiFailed(failed) => {
            for code in failed.codes() {
                MultiResult::Error(code.to_wire()).encode_entry(out);
            }
            end_multi(out);
        }
        Outcome::SessionClosed(_) | Outcome::SessionCreated | Outcome::Replayed => {}
    }
    Ok(())
}

fn encode_effect(
    op: OpCode,
    txn_op: &TxnOp,
    update: &Update,
    effect: &Effect,
    out: &mut Vec<u8>,
) -> Result<(), ErrorCode> {
    match effect {
        Effect::Created { .. } if op == OpCode::Create => {
            CreateResponse { path: update.path().into() }.encode(out);
        }
        Effect::Created { stat, .. } => {
            Create2Response { path: update.path().into(), stat: *stat }.encode(out);
        }
        Effect::DataSet { stat, .. } => match (txn_op, update) {
            (TxnOp::Reconfig { .. }, Update::SetData(SetData { data, .. })) => {
                GetDataResponse { data: data.as_deref(), stat: *stat }.encode(out);
            }
            _ => stat.encode(out),
        },
        Effect::AclSet { stat } => stat.encode(out),
        Effect::Deleted { .. } | Effect::Checked => {}
        Effect::Missed(code) => return Err(*code),
    }
    Ok(())
}

fn multi_result<'a>(update: &'a Update, effect: &Effect) -> MultiResult<'a> {
    match (effect, update) {
        (Effect::Created { stat, .. }, Update::Create(Create { path, reply_with_stat: true, .. })) => {
            MultiResult::Created2((&**path).into(), *stat)
        }
        (Effect::Created { .. }, update) => MultiResult::Created(update.path().into()),
        (Effect::Deleted { .. }, _) => MultiResult::Deleted,
        (Effect::DataSet { stat, .. } | Effect::AclSet { stat }, _) => MultiResult::DataSet(*stat),
        (Effect::Checked, _) => MultiResult::Checked,
        (Effect::Missed(code), _) => MultiResult::Error(code.to_wire()),
    }
}
