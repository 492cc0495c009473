//! What the application brings: a deterministic state machine.

use ringkeeper_engine::zab::Status;
use ringkeeper_wire::Zxid;

/// A deterministic state machine, replicated on every server of the ensemble.
///
/// All calls come from the broadcast's own thread, one at a time. [`Self::deliver`] is called for the same
/// proposals in the same order on every server, each once in a process's life: what a machine decides from
/// them, and from nothing else (no clock, no random number, no iteration in a random order), is the same
/// everywhere. After a start, the machine is set to the newest snapshot of the folder, if there is one, and
/// hears again what was committed after it.
///
/// While a call runs, the server does nothing else: one that takes longer than the peer timeout
/// ([`crate::Config::peer_timeout`]) costs a leader its office.
pub trait StateMachine: Send + 'static {
    /// A proposal is committed: apply it. `zxid` names it, greater than all delivered before it.
    fn deliver(&mut self, zxid: Zxid, proposal: &[u8]);

    /// A [`crate::Handle::sync`] of this server is done: everything that any server had acknowledged when it
    /// was asked for has been delivered. `zxid` is the last one delivered, zero if there was none.
    fn deliver_sync(&mut self, zxid: Zxid) {
        let _ = zxid;
    }

    /// The server's part in the ensemble has changed. It is looking for a leader until it is told otherwise.
    fn status(&mut self, status: Status) {
        let _ = status;
    }

    /// The state after everything delivered so far, for snapshots and for servers that were away for too
    /// long.
    fn get_state(&mut self) -> Vec<u8>;

    /// Replaces the state by one that [`Self::get_state`] returned, here or on another server, after `zxid`
    /// was delivered there.
    ///
    /// # Errors
    /// The bytes are no state of this machine. The broadcast ends: it must not go on without it.
    fn set_state(&mut self, zxid: Zxid, state: &[u8]) -> Result<(), StateError>;
}

/// A machine's reason to refuse a state.
pub type StateError = Box<dyn std::error::Error + Send + Sync>;
