//! The interface of the application: a deterministic state machine.

use ringkeeper_engine::zab::Status;
use ringkeeper_wire::Zxid;

/// A deterministic state machine, replicated on every server of the ensemble.
///
/// All calls come from the server's own thread, one at a time. [`Self::deliver`] is called with the same
/// proposals in the same order on every server, each once in the life of a process. A machine must decide by
/// them alone (no clock, no random number, no iteration in a random order), so that all machines decide the
/// same. After a start, the machine is set to the newest snapshot of the folder, if there is one, and is told
/// again what was committed after it.
///
/// The server does nothing else during a call. A call longer than the peer timeout
/// ([`crate::Config::peer_timeout`]) makes a leader lose its leadership.
pub trait StateMachine: Send + 'static {
    /// A proposal is committed: apply it. `zxid` names it, greater than all delivered before it.
    fn deliver(&mut self, zxid: Zxid, proposal: &[u8]);

    /// A [`crate::Handle::sync`] of this server is complete: everything that any server had acknowledged when
    /// it was called has been delivered. `zxid` is the last one delivered, zero if there was none.
    fn deliver_sync(&mut self, zxid: Zxid) {
        let _ = zxid;
    }

    /// The server's status has changed. Before the first call the server is looking for a leader.
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

/// Why a machine refuses a state.
pub type StateError = Box<dyn std::error::Error + Send + Sync>;
