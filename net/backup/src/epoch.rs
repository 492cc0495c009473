//! A rebuilt state becomes the beginning of a new history, by transactions like any others.

use ringkeeper_engine::state::State;
use ringkeeper_engine::txn::{Txn, TxnOp};
use ringkeeper_wire::{Epoch, ErrorCode, SessionId, Xid, Zxid};

/// Moves a state to an epoch above its own. Its sessions go on, or end now with their ephemerals.
pub fn begin_epoch(state: &mut State, epoch: Epoch, keeps_sessions: bool) {
    let ended: Vec<SessionId> = match keeps_sessions {
        true => Vec::new(),
        false => state.sessions().map(|(id, _)| id).collect(),
    };
    let time_ms = state.last_time_ms();
    let close = ended.into_iter().map(|id| (id, TxnOp::CloseSession));
    // The last one changes nothing: whatever clients have seen, the state is ahead of it.
    let ops = close.chain(std::iter::once((SessionId(0), TxnOp::Error(ErrorCode::NoNode))));
    for (counter, (session, op)) in (1..).zip(ops) {
        let zxid = Zxid::new(epoch, counter);
        let _ = state.apply(&Txn { zxid, session, xid: Xid(0), time_ms, op });
    }
}
