//! A rebuilt state becomes the beginning of a new history, by transactions like any others.

use bytes::Bytes;
use ringkeeper_engine::path;
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn::{SetData, Txn, TxnOp, Update};
use ringkeeper_wire::{Epoch, ErrorCode, SessionId, Xid, Zxid};

/// Moves a state to an epoch above its own. Its sessions go on, or end now with their ephemerals.
pub fn begin_epoch(state: &mut State, epoch: Epoch, keeps_sessions: bool) {
    let ended: Vec<SessionId> = match keeps_sessions {
        true => Vec::new(),
        false => state.sessions().map(|(id, _)| id).collect(),
    };
    let time_ms = state.last_time_ms();
    let close = ended.into_iter().map(|id| (id, TxnOp::CloseSession));
    // The members are those of the new servers' configurations.
    let nobody = SetData { path: path::CONFIG.into(), data: Some(Bytes::new()), version: -1 };
    let members = state.membership().map(|_| (SessionId(0), TxnOp::Reconfig(Update::SetData(nobody))));
    // The last one changes nothing: whatever clients have seen, the state is ahead of it.
    let last = (SessionId(0), TxnOp::Error(ErrorCode::NoNode));
    let ops = close.chain(members).chain(std::iter::once(last));
    for (counter, (session, op)) in (1..).zip(ops) {
        let zxid = Zxid::new(epoch, counter);
        let _ = state.apply(&Txn { zxid, session, xid: Xid(0), time_ms, op });
    }
}
