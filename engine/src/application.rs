//! The application of a server: what stands above the broadcast in a [`Node`](crate::node::Node), and decides
//! what the batches say.
//!
//! The znode service is one ([`crate::replica::Replica`]), a state machine of the broadcast library another.

use std::fmt;

use bytes::Bytes;
use ringkeeper_frame::{Batch, Checksum, LogPosition};
use ringkeeper_wire::{ServerId, Zxid};

use crate::replica::Now;
use crate::zab::{Membership, ServerSet, Status, Zab};

/// What an application wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<O> {
    /// For its users on this server.
    Output(O),
    /// Send this to the leader, in order with everything else sent to it ([`Application::forwarded`] there).
    ToLeader(Bytes),
    /// Send this to a learner, after all commits so far ([`Application::directed`] there).
    ToLearner(ServerId, Bytes),
    /// Ask a quorum whether this server still leads, and call [`Application::leadership_confirmed`] with this
    /// number.
    ConfirmLeadership(u64),
    /// This server cannot go on: what is committed is not what this application wrote.
    Broken(String),
}

/// An application.
pub trait Application: 'static {
    /// Its state, as snapshots and the log give it.
    type State: 'static;
    /// A committed state, held for a snapshot.
    type Image: 'static;
    /// What its users on this server are told.
    type Output: fmt::Debug;
    /// Why bytes of a peer are no message of this application.
    type MessageError: fmt::Display;

    /// Version of its state in snapshots; different for every application.
    const STATE_VERSION: u32;

    /// Takes what is to be done, in order.
    fn take_effects(&mut self) -> std::vec::Drain<'_, Effect<Self::Output>>;

    /// The server's status has changed. It is [`Status::Looking`] before the first call. With a change, the
    /// requests that were not proposed are dropped.
    fn status(&mut self, now: Now, status: Status);

    /// As [`Self::status`], after a hand-over: all that this server's users had asked is answered, so nobody
    /// needs to be told.
    fn handed_over(&mut self, now: Now, status: Status) {
        self.status(now, status);
    }

    /// On a leader that is settled: `successor` leads next, unless the hand-over is called off. What it is
    /// sent now reaches it before it leads.
    fn handing_over(&mut self, successor: ServerId) {
        let _ = successor;
    }

    /// This server leads no more. What it had not proposed is dropped.
    fn leadership_ended(&mut self) {}

    /// A server is connected, and the messages to and from it are of this version.
    fn peer_speaks(&mut self, peer: ServerId, version: u8) {
        let _ = (peer, version);
    }

    /// A server is not connected any more.
    fn peer_disconnected(&mut self, peer: ServerId) {
        let _ = peer;
    }

    /// Time has passed.
    fn tick(&mut self, now: Now) {
        let _ = now;
    }

    /// Time has passed in which no user was heard, since leadership is being handed over.
    fn paused(&mut self) {}

    /// Prepares requests that waited until others were committed, as many as are due.
    fn lead_waiting(&mut self, now: Now) {
        let _ = now;
    }

    /// Whether [`Self::lead_waiting`] would prepare a request.
    fn has_due(&self) -> bool {
        false
    }

    /// On a leader: a server is not heard any more, or in another way.
    fn server_left(&mut self, now: Now, server: ServerId) {
        let _ = (now, server);
    }

    /// On a leader: a server was not heard for so long that it serves its users no more, if it still runs.
    fn server_silent(&mut self, now: Now, server: ServerId) {
        let _ = (now, server);
    }

    /// On a leader: a server has answered what was sent to it at this time (of [`Now::monotonic_ms`]), so all
    /// that it had sent to the leader until then has come.
    fn server_answered(&mut self, server: ServerId, asked_ms: u64) {
        let _ = (server, asked_ms);
    }

    /// All events are handled: what was gathered for the leader is sent.
    fn flush(&mut self) {}

    /// Whether users of this server wait to hear of commits. Without any, a learner hears of them later:
    /// with the next batch, or at the leader's next tick.
    fn has_users(&self) -> bool {
        true
    }

    /// Whether [`Self::next_batch`] would give a batch.
    fn has_unsealed(&self) -> bool;

    /// Whether all that a leader was asked is proposed, and answered as far as no commit is needed.
    fn is_settled(&self) -> bool {
        !self.has_unsealed()
    }

    /// Whether that batch is proposed even while the log is busy, since larger ones are not faster.
    fn has_full_batch(&self) -> bool;

    /// Bytes of a full batch.
    fn batch_bytes_max(&self) -> usize;

    /// The requests since the last batch as a batch that begins at `first` and continues the frame with
    /// checksum `previous`. `None` without requests, or if this server does not lead.
    fn next_batch(&mut self, first: Zxid, previous: Checksum) -> Option<Batch>;

    /// A batch is appended to the log: one of this server as a leader, or of another. Not committed yet.
    ///
    /// # Errors
    /// It is not one of this application, which its checksum should have shown.
    fn append(&mut self, batch: &Batch) -> Result<(), String>;

    /// Everything up to `upto` is committed.
    fn commit(&mut self, now: Now, upto: Zxid);

    /// The log is truncated after `after`. False if the state contains truncated transactions, and has to be
    /// rebuilt from the log ([`Self::restored`]).
    #[must_use]
    fn truncate(&mut self, after: Zxid) -> bool;

    /// Replaces the state by one that was rebuilt from the log, or received from the leader as a snapshot.
    fn restored(&mut self, state: Self::State);

    /// A quorum has confirmed, in answer to [`Effect::ConfirmLeadership`] with this number, that this server
    /// leads. Everything that any server had acknowledged when it was asked ends at `commit`.
    fn leadership_confirmed(&mut self, number: u64, commit: Zxid);

    /// Who votes and who learns, by everything appended; `None` while the log does not say, so that the
    /// configuration does.
    fn membership(&self) -> Option<&Membership> {
        None
    }

    /// On a leader: these learners have its whole log, but for what is under way.
    fn up_to_date(&mut self, learners: ServerSet) {
        let _ = learners;
    }

    /// A learner's [`Effect::ToLeader`].
    ///
    /// # Errors
    /// The bytes are not a message of this version: the peer has to be disconnected.
    fn forwarded(&mut self, now: Now, from: ServerId, bytes: &Bytes) -> Result<(), Self::MessageError>;

    /// The leader's [`Effect::ToLearner`].
    ///
    /// # Errors
    /// As [`Self::forwarded`].
    fn directed(&mut self, bytes: &[u8]) -> Result<(), Self::MessageError>;

    /// A committed state for a snapshot, so that it is never truncated, and its log position. The log here
    /// may not be durable so far, see [`Zab::is_settled`]: with a disk slower than the quorum's, it never is
    /// as far as the newest committed state while writes go on.
    fn hold(&mut self, zab: &Zab) -> Option<(Self::Image, LogPosition)>;
}
