//! What the servers of an ensemble say to one another. [`super::codec`] gives the bytes.

use bytes::Bytes;

use ringkeeper_frame::{Batch, LogPosition};
use ringkeeper_wire::{Epoch, ServerId, Zxid};

use super::quorum::ServerSet;

/// A candidate and its history. The order is the order of preference: newest epoch adopted, then longest
/// log, then highest id (Zab, DSN 2011; fast leader election).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vote {
    /// `currentEpoch` of the candidate.
    pub epoch: Epoch,
    /// End of the candidate's log.
    pub zxid: Zxid,
    /// The candidate.
    pub leader: ServerId,
}

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// Searching a leader.
    Looking,
    /// Learning from the leader it names.
    Following,
    /// Leading, or about to.
    Leading,
}

/// The ensemble that a server belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnsembleId {
    /// See [`super::Epochs::cluster`]; 0 while not known.
    pub cluster: u64,
    /// See [`super::Epochs::fork`].
    pub fork: u64,
    /// The voters as the server's configuration has them.
    pub voters: ServerSet,
}

/// What a server says of itself and of its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// `acceptedEpoch`.
    pub accepted: Epoch,
    /// `currentEpoch`.
    pub current: Epoch,
    /// See [`super::Epochs::leader`].
    pub led_by: Option<ServerId>,
    /// End of the log, or of what it was before it was damaged.
    pub last: Zxid,
    /// The server's ensemble.
    pub ensemble: EnsembleId,
    /// See [`super::Epochs::initialized`].
    pub initialized: bool,
    /// See "New ensembles" in [`super`].
    pub founds: bool,
    /// Drawn at the start of the process.
    pub process: u64,
}

impl Standing {
    /// Nothing has ever been logged.
    pub(super) fn is_blank(&self) -> bool {
        self.last == Zxid::ZERO
    }

    /// Whether the folder lacks what its server is known to have had on its disk.
    ///
    /// A log that ends earlier in the same epoch may have been cut by the leader of a newer one, which the
    /// server has promised itself to then.
    pub(super) fn lacks(&self, known: Known) -> bool {
        let cut_by_nobody = self.current == known.epoch && self.accepted == known.epoch;
        self.current < known.epoch || (cut_by_nobody && self.last < known.zxid)
    }
}

/// What somebody else remembers of a server: it had adopted the epoch, and acknowledged everything up to the
/// zxid in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The epoch.
    pub epoch: Epoch,
    /// Everything up to here was durable.
    pub zxid: Zxid,
}

/// Why a server does not count for another one: see "Old copies of folders" in [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Its folder is older than what it is known to have had.
    OldCopy(Known),
    /// A process that was started later has the same id, and this one still runs.
    Replaced,
}

/// A server's part in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// What the sender is doing.
    pub state: PeerState,
    /// The election it is in; votes count within one round.
    pub round: u64,
    /// Whom it votes for, or follows.
    pub vote: Vote,
    /// The sender's own history, with what it has lost of it.
    pub own: Standing,
    /// Whether it serves clients, so that a quorum follows its leader.
    pub serves: bool,
    /// Why the receiver does not count for the sender, if so.
    pub doubt: Option<Doubt>,
}

/// A learner's log, as far as a leader needs it to find the last common position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOutline {
    /// The log cannot be cut before this zxid.
    pub floor: Zxid,
    /// Last position of each epoch, rising; never empty.
    pub ends: Vec<LogPosition>,
}

impl LogOutline {
    /// Epochs described at most; a log with more of them has its floor raised.
    pub const ENDS_MAX: usize = 256;

    /// The end of the log.
    #[must_use]
    pub fn last(&self) -> Zxid {
        self.ends.last().map_or(Zxid::ZERO, |end| end.zxid)
    }
}

/// A learner's promise and history (ACKEPOCH); sent again whenever it needs to be synchronized anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckEpoch {
    /// The epoch of the session.
    pub epoch: Epoch,
    /// Whether the epoch was new to the learner: only then is it a promise to this leader.
    pub promise: bool,
    /// `currentEpoch`.
    pub current: Epoch,
    /// See [`super::Epochs::claim`].
    pub claim: Zxid,
    /// The learner's log.
    pub log: LogOutline,
    /// Chosen anew by the learner each time; the answer repeats it.
    pub serial: u64,
    /// The log is not to be trusted: only a snapshot helps.
    pub snapshot: bool,
}

impl AckEpoch {
    /// The end of the learner's history, whether it still has all of it or not.
    pub(super) fn last(&self) -> Zxid {
        self.log.last().max(self.claim)
    }
}

/// How a learner's log becomes a prefix of the leader's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPlan {
    /// It is one already: what it lacks follows (DIFF).
    Diff,
    /// Cut everything after this zxid, then ask again (TRUNC).
    Truncate(Zxid),
    /// Replace everything by the snapshot that ends here, then ask again (SNAP).
    Snapshot(LogPosition),
}

/// Answer to [`AckEpoch`]: begins synchronization and, with it, carries NEWLEADER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// The leader's epoch.
    pub epoch: Epoch,
    /// [`AckEpoch::serial`] of the request.
    pub serial: u64,
    /// What to do.
    pub plan: SyncPlan,
    /// End of the leader's initial history: with that durable, the learner may adopt the epoch.
    pub history: Zxid,
    /// The leader's ensemble.
    pub ensemble: EnsembleId,
}

/// A batch for the end of the learner's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Propose {
    /// The leader's epoch (not that of the batch, which may be older).
    pub epoch: Epoch,
    /// Where the batch stands.
    pub prev: LogPosition,
    /// Everything up to here is committed.
    pub commit: Zxid,
    /// The batch.
    pub batch: Batch,
}

/// What a learner's disk holds. All acknowledgments of an epoch form one ordered stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The leader's epoch.
    pub epoch: Epoch,
    /// Everything up to here is durable.
    pub upto: Zxid,
    /// The epoch is adopted (NEWLEADER acknowledged); without that the ack moves the window and no commit.
    pub adopted: bool,
}

/// The leader's heartbeat. It repeats everything a learner must know, so that it repairs any loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// The leader's epoch; 0 before it has one.
    pub epoch: Epoch,
    /// Number of the confirmation round.
    pub round: u64,
    /// Everything up to here is committed.
    pub commit: Zxid,
    /// Everything up to here has been sent to this learner.
    pub sent: Zxid,
    /// A quorum has adopted the epoch (UPTODATE).
    pub active: bool,
    /// The voters that have adopted the epoch, as far as the leader knows.
    pub members: ServerSet,
}

/// A learner's answer to [`Ping`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// The round answered.
    pub round: u64,
    /// The learner's durable state.
    pub ack: Ack,
}

/// A message between two servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Election.
    Notification(Notification),
    /// Learner to leader: discovery begins (FOLLOWERINFO, OBSERVERINFO).
    Join(Standing),
    /// Leader to learner: promise this epoch (LEADERINFO).
    NewEpoch(Epoch),
    /// Learner to leader: promised; my history.
    AckEpoch(AckEpoch),
    /// Leader to learner: how to synchronize.
    Sync(Sync),
    /// Leader to learner: a piece of the snapshot announced, passed through in order.
    SnapshotChunk(Bytes),
    /// Learner to leader: so much of the snapshot is written. Between the shells, which decide how much is
    /// under way; Zab takes it for a sign of life.
    SnapshotReceived {
        /// Which snapshot.
        zxid: Zxid,
        /// Bytes.
        upto: u64,
    },
    /// Leader to learner: append.
    Propose(Propose),
    /// Learner to leader: durable.
    Ack(Ack),
    /// Leader to learner: committed, when no proposal carries it.
    Commit {
        /// The leader's epoch.
        epoch: Epoch,
        /// Everything up to here is committed.
        upto: Zxid,
    },
    /// Leader to learner: heartbeat.
    Ping(Ping),
    /// Learner to leader: alive.
    Pong(Pong),
    /// Learner to leader, opaque to Zab, in order with everything else on the link.
    Forward(Bytes),
    /// Leader to learner, opaque to Zab, in order with everything else on the link.
    ToLearner(Bytes),
}
