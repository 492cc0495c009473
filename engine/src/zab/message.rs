//! Messages between the servers of an ensemble; [`super::codec`] has their encoding.

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

/// The role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// Looking for a leader.
    Looking,
    /// Following the leader that it names.
    Following,
    /// Leading, or about to.
    Leading,
    /// Following the leader that it names, and ready to feed the receiver: see `observer_master.rs`. Up to
    /// version 10 of the messages it is [`Self::Following`].
    ObserverMaster,
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
    /// Their groups and weights, see [`super::QuorumSystem::groups`]; 0 for majorities.
    pub groups: u64,
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

/// What a server knows of another one, which that one does not know: see "Old copies of folders" in
/// [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Its folder is older than what it is known to have had: it does not count.
    OldCopy(Known),
    /// A process that was started later has the same id, and this one still runs: it does not count.
    Replaced,
    /// A process that was started earlier has the same id and still runs. This one counts.
    Contested,
}

/// A server's part in an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// What the sender is doing.
    pub state: PeerState,
    /// The sender's election round; only votes of one round count together.
    pub round: u64,
    /// Whom it votes for, or follows.
    pub vote: Vote,
    /// The sender's own history, including what it has lost.
    pub own: Standing,
    /// Whether it serves clients, so that a quorum follows its leader.
    pub serves: bool,
    /// Everything up to here is committed, as far as the sender knows.
    pub committed: Zxid,
    /// What the sender knows of the receiver.
    pub doubt: Option<Doubt>,
}

/// The outline of a learner's log, from which a leader finds the last common position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOutline {
    /// The log cannot be truncated to a position before this zxid.
    pub floor: Zxid,
    /// Last position of each epoch, rising; never empty.
    pub ends: Vec<LogPosition>,
}

impl LogOutline {
    /// Greatest number of epochs described; for a log with more the floor is raised.
    pub const ENDS_MAX: usize = 256;

    /// The end of the log.
    #[must_use]
    pub fn last(&self) -> Zxid {
        self.ends.last().map_or(Zxid::ZERO, |end| end.zxid)
    }
}

/// A learner's promise and history (ACKEPOCH); sent again whenever the learner has to be synchronized anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckEpoch {
    /// The epoch of the session.
    pub epoch: Epoch,
    /// Whether the epoch was new to the learner: only then is it a promise to this leader.
    pub promise: bool,
    /// `currentEpoch`.
    pub current: Epoch,
    /// See [`super::Epochs::end_before_damage`].
    pub end_before_damage: Zxid,
    /// The learner's log.
    pub log: LogOutline,
    /// Chosen by the learner for each request, and repeated in the answer.
    pub serial: u64,
    /// Whether the log is corrupt, so that only a snapshot helps.
    pub snapshot: bool,
}

impl AckEpoch {
    /// The end of the learner's history, including what it has lost.
    pub(super) fn last(&self) -> Zxid {
        self.log.last().max(self.end_before_damage)
    }
}

/// How a learner's log is made a prefix of the leader's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPlan {
    /// It is a prefix already; the missing batches follow (DIFF).
    Diff,
    /// Truncate everything after this zxid, then ask again (TRUNC).
    Truncate(Zxid),
    /// Replace log and state by the snapshot that ends here, then ask again (SNAP).
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
    /// End of the leader's initial history: a learner that holds it durably may adopt the epoch.
    pub history: Zxid,
    /// The leader's ensemble.
    pub ensemble: EnsembleId,
}

/// A batch for the end of the learner's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Propose {
    /// The leader's epoch (not that of the batch, which may be older).
    pub epoch: Epoch,
    /// The position before the batch.
    pub prev: LogPosition,
    /// Everything up to here is committed.
    pub commit: Zxid,
    /// The batch.
    pub batch: Batch,
}

/// The durable position of a learner. The acks of an epoch form one ordered stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The leader's epoch.
    pub epoch: Epoch,
    /// Everything up to here is durable.
    pub upto: Zxid,
    /// Whether the epoch is adopted (NEWLEADER acknowledged). Otherwise the ack moves the send window, and
    /// does not count for commits.
    pub adopted: bool,
    /// Clients of the learner, or observers that it feeds, wait to hear of commits. Without any, the leader
    /// tells of a commit with the next proposal, or at its next tick. Always true to a leader that speaks a
    /// version of the messages below [`super::USERS_SINCE`].
    pub has_users: bool,
}

/// The leader's heartbeat. It repeats all state that a learner needs, so that a lost message does no lasting
/// harm.
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
    /// How long from now on the learner takes part in no election, see [`Config::lease_ms`]; 0 if it grants
    /// the leader no lease, as in version 9 of the messages and before.
    ///
    /// [`Config::lease_ms`]: super::Config::lease_ms
    pub lease_ms: u64,
}

/// A step of a hand-over of leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOverStep {
    /// Leader to learner: forward no more.
    Pause,
    /// Learner to leader: everything that it forwards is in front of this.
    Paused,
    /// Leader to learner: the hand-over is called off.
    Resume,
    /// Leader to its successor, which has everything: lead.
    Lead {
        /// The end of the leader's log, all of it committed.
        upto: Zxid,
    },
    /// Leader to learner: follow this server, which leads.
    Follow(ServerId),
}

/// What a follower and the leader tell each other of an observer that learns from the follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObserverStep {
    /// Follower to leader: the observer has what is committed, and is to be heard through this follower.
    Join,
    /// Leader to follower: it is, from now on.
    Joined {
        /// Everything up to here is committed.
        commit: Zxid,
    },
    /// It is not any more, as the sender of this has it.
    Left,
    /// Follower to leader: what the observer forwards.
    Forward(Bytes),
    /// Leader to follower: the answer to that.
    ToLearner(Bytes),
}

/// A message between two servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Election.
    Notification(Notification),
    /// Learner to leader: discovery begins (FOLLOWERINFO, OBSERVERINFO).
    FollowerInfo(Standing),
    /// Leader to learner: promise this epoch (LEADERINFO).
    NewEpoch(Epoch),
    /// Learner to leader: promised; my history.
    AckEpoch(AckEpoch),
    /// Leader to learner: how to synchronize.
    Sync(Sync),
    /// Leader to learner: a piece of the snapshot announced, passed through in order.
    SnapshotChunk(Bytes),
    /// Learner to leader: this many bytes of the snapshot are written. For the shell, which bounds the bytes
    /// in flight; to Zab it is a sign of life.
    SnapshotReceived {
        /// Which snapshot.
        zxid: Zxid,
        /// Bytes.
        upto: u64,
    },
    /// Leader to learner: append.
    Propose(Propose),
    /// Learner to leader: durable, or whether it has users has changed.
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
    /// The leader of this epoch has given up everything behind a position in it, none of which is committed.
    Abandoned {
        /// The epoch.
        epoch: Epoch,
        /// The position.
        after: Zxid,
    },
    /// Between the leader and its learners: leadership is handed over.
    HandOver {
        /// The leader's epoch.
        epoch: Epoch,
        /// What comes next.
        step: HandOverStep,
    },
    /// Between the leader and a follower that feeds observers; version 10 has none.
    Observer {
        /// The leader's epoch.
        epoch: Epoch,
        /// One of the observers.
        observer: ServerId,
        /// What there is about it.
        step: ObserverStep,
    },
}
