//! Inputs and effects of the broadcast, as plain data.

use bytes::Bytes;
use std::fmt;

use ringkeeper_frame::{Batch, LogPosition};
use ringkeeper_wire::{Epoch, ServerId, Zxid};

use super::config::Epochs;
use super::handover::HandOverError;
use super::membership::Membership;
use super::message::{Known, Message};
use super::quorum::ServerSet;

/// Something that happened.
///
/// Answers of the log come in the order of the effects that asked for them.
#[derive(Clone, Debug)]
pub enum Input {
    /// The server starts: once, first.
    Start,
    /// Time has passed. A tick every few milliseconds is enough; the heartbeat is a quarter of the peer
    /// timeout.
    Tick,
    /// The shell has handled all its events: learners with users are sent the commits that no proposal has
    /// carried.
    Flush,
    /// A connection to a peer stands. Messages on it arrive in order or it breaks.
    PeerConnected(ServerId),
    /// The connection to a peer is gone, with everything that was under way on it.
    PeerDisconnected(ServerId),
    /// A peer's message.
    Message {
        /// The sender, authenticated by the connection.
        from: ServerId,
        /// What it says.
        message: Message,
    },
    /// A batch to broadcast, beginning at [`super::Zab::next_zxid`]. Ignored unless this server leads.
    Propose(Batch),
    /// Appended batches up to here are on the medium.
    Durable {
        /// Last zxid of the last durable batch.
        upto: Zxid,
    },
    /// The last [`Effect::PersistEpochs`] is on the medium.
    EpochsDurable,
    /// [`Effect::Truncate`] is done and durable; the log now ends here.
    Truncated {
        /// End of the log.
        last: LogPosition,
    },
    /// Answer to [`Effect::ReadLog`].
    LogRead {
        /// The learner it is for.
        peer: ServerId,
        /// As asked.
        after: Zxid,
        /// The batches right after it, in order. Empty when the log does not reach back that far.
        batches: Vec<Batch>,
    },
    /// Answer to [`Effect::SendSnapshot`]: a snapshot of committed state is ready. Its bytes are sent as
    /// [`Message::SnapshotChunk`] after the resulting messages.
    SnapshotReady {
        /// The learner it is for.
        peer: ServerId,
        /// What it holds.
        last: LogPosition,
    },
    /// The snapshot of [`Effect::InstallSnapshot`] is durable, has replaced log and state, and ends here.
    SnapshotInstalled {
        /// Base of the new, empty log.
        last: LogPosition,
    },
    /// The snapshot was not installed; log and state are as before.
    SnapshotAborted,
    /// The server's own snapshot of committed state is durable.
    SnapshotTaken {
        /// What it holds.
        zxid: Zxid,
    },
    /// The log names other members, or none any more; the outer `None` while that is not known, since the
    /// state is read anew. Before any input that comes after the batch that changes them was appended.
    Members(Option<Option<Membership>>),
    /// The disk has run full, so that appends or epochs wait (`true`), or has room again (`false`).
    DiskFull(bool),
    /// The oldest log segments are gone; the log begins after this.
    LogPurged {
        /// The new base.
        base: LogPosition,
    },
    /// Ask a quorum whether this server still leads. Ignored unless it leads.
    ConfirmLeadership {
        /// Comes back in [`Effect::LeadershipConfirmed`].
        token: u64,
    },
    /// Hand leadership over to this server, or to the first preferred one that is caught up, or to the one
    /// that has most; answered by [`Effect::HandingOver`]
    /// or [`Effect::HandOverFailed`].
    HandOver(Option<ServerId>),
    /// While [`super::Zab::successor_due`] names one: the application has proposed and answered all that it
    /// was asked.
    Settled,
    /// Opaque bytes for the leader; dropped without one.
    Forward(Bytes),
    /// Opaque bytes for a learner, behind all commits so far; dropped if it is not connected as one.
    ToLearner {
        /// The learner.
        to: ServerId,
        /// The bytes.
        bytes: Bytes,
    },
}

/// A server's status, as its clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No leader, or not yet synchronized with one.
    Looking,
    /// Synchronized with a leader that a quorum follows. Everything that the leader had committed by then is
    /// committed here, too.
    Following {
        /// The leader.
        leader: ServerId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// Leading a quorum; may propose.
    Leading {
        /// The epoch.
        epoch: Epoch,
    },
}

/// How many servers learn from a server: from a leader, or from a follower that feeds observers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learners {
    /// All that have joined.
    pub all: usize,
    /// Voters among them that have adopted the leader's history.
    pub synced_followers: usize,
    /// Observers among them that have adopted the leader's history.
    pub synced_observers: usize,
}

/// A learner that has adopted the history of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncedLearner {
    /// Which server.
    pub server: ServerId,
    /// Whether its acknowledgements count for a quorum.
    pub voter: bool,
    /// Everything up to here is durable there.
    pub last_zxid: Zxid,
    /// Batches that were sent and are not durable there.
    pub batches: usize,
    /// Bytes of them.
    pub bytes: usize,
}

/// Why a server leaves its leader, or gives up its own leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Nothing came from the leader, or from an observer's master, for the peer timeout.
    LeaderSilent(ServerId),
    /// The connection to it broke.
    LeaderGone(ServerId),
    /// It says that it does not lead any more, or does not feed this server.
    LeaderResigned(ServerId),
    /// The leader's epoch is older than one that this server has accepted.
    EpochPassed(ServerId),
    /// The leader asked to truncate committed transactions, see [`Alarm::CommittedTruncation`].
    WouldTruncate(ServerId),
    /// A peer knows that this server's folder is an old copy, see [`Alarm::OldCopy`].
    OldCopy(ServerId),
    /// The leader names an epoch that no number of elections can have led to.
    EpochBeyondReason(ServerId),
    /// This server led, and heard of no quorum for the peer timeout.
    QuorumSilent,
    /// A change of the members could not finish: see `abandonment.rs`.
    ChangeAbandoned {
        /// The leader that gave it up.
        by: ServerId,
        /// What comes behind this is cut off.
        after: Zxid,
    },
    /// This server led, and its disk is full while a quorum of others has room.
    DiskFull,
    /// This server was elected, and no quorum was synchronized in time.
    QuorumLate,
    /// This server was elected, and a voter has a newer history.
    NewerEpoch,
    /// An election took too long and begins anew.
    ElectionStuck,
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaderSilent(id) => {
                write!(
                    f,
                    "nothing was heard from server {id}, whom this one follows, for ringkeeper.peerTimeoutMs"
                )
            }
            Self::LeaderGone(id) => write!(f, "the connection to server {id}, whom this one follows, broke"),
            Self::LeaderResigned(id) => {
                write!(f, "server {id} does not lead any more, or feeds no observers")
            }
            Self::EpochPassed(id) => write!(f, "the epoch of server {id} has passed"),
            Self::WouldTruncate(id) => write!(f, "server {id} wanted committed transactions cut off"),
            Self::OldCopy(id) => write!(f, "server {id} knows that this server's folder is an old copy"),
            Self::EpochBeyondReason(id) => write!(f, "the epoch that server {id} names is beyond reason"),
            Self::QuorumSilent => {
                f.write_str("fewer than a quorum are connected, or were heard for ringkeeper.peerTimeoutMs")
            }
            Self::ChangeAbandoned { by, after } => write!(
                f,
                "server {by} has given up a change of the members, since a quorum of the new voters was lost or did \
                 not acknowledge it: the members are those of before, and what was proposed behind {after} is not \
                 carried out; ask for the change again when the new voters are there"
            ),
            Self::DiskFull => f.write_str("the disk is full, and a quorum of others has room"),
            Self::QuorumLate => f.write_str("no quorum was synchronized within initLimit"),
            Self::NewerEpoch => f.write_str("another server has accepted a newer epoch"),
            Self::ElectionStuck => f.write_str("the election came to no end"),
        }
    }
}

/// A condition that the operator should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The peer belongs to another ensemble; its messages are ignored.
    ForeignCluster {
        /// The peer.
        peer: ServerId,
        /// Its ensemble.
        cluster: u64,
    },
    /// The peer has another list of voters, or other groups of them: it does not count in decisions, and only
    /// learns.
    OtherVoters {
        /// The peer.
        peer: ServerId,
        /// Its list.
        voters: ServerSet,
    },
    /// A new ensemble was founded while some voters were missing. If one of them has older data, it will be
    /// refused.
    Founded {
        /// Who was not there.
        without: ServerSet,
    },
    /// This server's log and the leader's have different frames with the same zxid: one log is corrupt. The
    /// server fetches a snapshot.
    LogDiverged {
        /// Where.
        at: Zxid,
    },
    /// This server's folder is an old copy: it has no vote before it has learned what it acknowledged.
    OldCopy {
        /// Who knows it.
        told_by: ServerId,
        /// What is known to have been in it.
        known: Known,
    },
    /// Two processes run with the same id, and the one that was started first is refused.
    SecondProcess {
        /// The id of both.
        server: ServerId,
    },
    /// The peer has promised itself to an epoch that no number of elections can have led to; it is refused.
    EpochBeyondReason {
        /// The peer.
        peer: ServerId,
        /// Its epoch.
        epoch: Epoch,
    },
    /// The peer's epoch is this server's, and had another leader there: the ensemble went on twice.
    EpochLedTwice {
        /// The peer.
        peer: ServerId,
        /// The epoch.
        epoch: Epoch,
    },
    /// The leader asked to truncate committed transactions. The server leaves that leader.
    CommittedTruncation {
        /// The position it named.
        after: Zxid,
    },
}

impl Alarm {
    /// Whether the two servers have histories that cannot be merged.
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(
            self,
            Self::ForeignCluster { .. } | Self::CommittedTruncation { .. } | Self::EpochLedTwice { .. }
        )
    }

    /// Whether two processes run with one id.
    #[must_use]
    pub const fn is_id_conflict(&self) -> bool {
        matches!(self, Self::SecondProcess { .. })
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignCluster { peer, .. } => write!(
                f,
                "server {peer} has another history than this one, of another ensemble or of a fork of this one \
                 (`ringkeeper folder show` tells which), and is refused: both are kept as they are; if the ensemble \
                 is to go on with one of them, stop the servers that have the other, keep a copy of their folders \
                 (`ringkeeper log compare` lists the differences), and start them with empty ones"
            ),
            Self::OtherVoters { peer, voters } => write!(
                f,
                "server {peer} goes by another list of voters ({voters:?}), or by other groups or weights of them: it \
                 counts for no decision of this one; give all servers the same server.N, group.N and weight.N lines"
            ),
            Self::Founded { without } => write!(
                f,
                "a new, empty ensemble was founded without the servers {without:?}, which did not answer; if one of \
                 them has data of before, it is refused when it comes back, and nothing of its data is in this one"
            ),
            Self::LogDiverged { at } => write!(
                f,
                "this server's log and the leader's hold different transactions at {at}: one of the two is damaged; \
                 this one fetches a snapshot of the leader"
            ),
            Self::OldCopy { told_by, known: Known { epoch, zxid } } => write!(
                f,
                "this server's folder is an old copy: server {told_by} knows that it had adopted epoch {} and \
                 acknowledged everything up to {zxid} in it; it has no vote before it has learned from a leader what it lacks; if \
                 no leader is elected without it, start the other servers, or put back the folder as it was last",
                epoch.0
            ),
            Self::SecondProcess { server } => write!(
                f,
                "two processes run as server {server}, most likely on two machines: who hears both refuses the one that \
                 was started first, and they take each other's connections; stop the one that is not to be, start the \
                 other one anew, and give each machine a number (myid) and a folder of its own, an empty one, not a copy"
            ),
            Self::EpochBeyondReason { peer, epoch } => write!(
                f,
                "server {peer} is refused: its epoch is {}, which no number of elections can have led to; a damaged or \
                 foreign folder, or a stranger at the quorum port; start the server with an empty folder",
                epoch.0
            ),
            Self::EpochLedTwice { peer, epoch } => write!(
                f,
                "server {peer} has the history of another leader of epoch {}: an old copy of a folder was put back, or \
                 two machines ran as one server, and the ensemble went on twice; the server is refused and both \
                 histories are kept (`ringkeeper log compare` lists the differences); stop the servers that have the \
                 one which is to go, keep a copy of their folders, and start them with empty ones",
                epoch.0
            ),
            Self::CommittedTruncation { after } => write!(
                f,
                "the leader has not got what is committed here after {after}: an old copy of a folder was put back, \
                 or a member ran alone, and the others elected it; this server stays out and keeps its history; stop \
                 all servers, see with `ringkeeper log compare` what each folder has, and let the others begin with \
                 empty folders if this one is to win, or this one if they are"
            ),
        }
    }
}

/// An action for the shell. Effects are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send on the connection to a peer.
    Send {
        /// The peer.
        to: ServerId,
        /// The message.
        message: Message,
    },
    /// Append to the log; answered by [`Input::Durable`].
    Append(Batch),
    /// Truncate the log; answered by [`Input::Truncated`]. No append follows before the answer. A state that
    /// contains truncated transactions has to be rebuilt from what is durable.
    Truncate {
        /// The last zxid that stays.
        after: Zxid,
    },
    /// Write and fsync the promises; answered by [`Input::EpochsDurable`]. At most one is pending.
    PersistEpochs(Epochs),
    /// Everything appended up to here is committed: deliver it, in order, each batch once.
    Commit {
        /// Last zxid of the last committed batch.
        upto: Zxid,
    },
    /// Read batches for a learner; answered by [`Input::LogRead`].
    ReadLog {
        /// The learner.
        peer: ServerId,
        /// Read what comes right after it.
        after: Zxid,
        /// About how much.
        bytes_max: usize,
    },
    /// Get a snapshot ready for a learner; answered by [`Input::SnapshotReady`].
    SendSnapshot {
        /// The learner.
        to: ServerId,
        /// It has to end behind this.
        after: Zxid,
    },
    /// Receive a snapshot from the leader and install it atomically, in place of log and state; answered by
    /// [`Input::SnapshotInstalled`] or [`Input::SnapshotAborted`].
    InstallSnapshot {
        /// The leader.
        from: ServerId,
        /// What it holds.
        last: LogPosition,
    },
    /// A piece of that snapshot.
    SnapshotChunk {
        /// The leader.
        from: ServerId,
        /// The piece.
        bytes: Bytes,
    },
    /// Stop receiving the snapshot unless it is installed already; answered like the above.
    AbortSnapshot,
    /// The server leaves its leader, or its leadership; [`Status::Looking`] follows. To be logged.
    Departed(Departure),
    /// The server's status changed.
    Status(Status),
    /// The change of status that follows is a hand-over: all that the server's clients had asked is answered,
    /// and they keep their connections.
    HandedOver,
    /// This server was told to lead, and leads without having heard that the leader before it has let go: its
    /// clients have to connect anew.
    NotReleased,
    /// On a leader: these learners have its whole log, but for what is under way.
    UpToDate(ServerSet),
    /// Leadership is being handed over: [`Self::HandedOver`] or [`Self::HandOverFailed`] follows, or
    /// [`Self::Departed`] if this server fails to follow the successor.
    HandingOver {
        /// The successor.
        to: ServerId,
    },
    /// Leadership is not handed over: this server is what it was.
    HandOverFailed(HandOverError),
    /// Leadership, or the attempt at it, has ended: drop what was built on uncommitted proposals, and stop
    /// sending snapshots. The proposals stay in the log; the next leader commits or truncates them.
    Reset,
    /// A quorum has confirmed, after the request, that no newer leader is active.
    LeadershipConfirmed {
        /// As asked.
        token: u64,
        /// Everything committed when it was asked is at or before this.
        commit: Zxid,
    },
    /// A learner's opaque bytes.
    Forwarded {
        /// The learner.
        from: ServerId,
        /// The bytes.
        bytes: Bytes,
    },
    /// On a leader: this learner is not heard any more, or in another way.
    LearnerLeft(ServerId),
    /// On a leader: this learner was not heard for so long that it has left the leader, if it still runs.
    LearnerSilent(ServerId),
    /// On a leader: this learner has answered a heartbeat, so all has come that it had forwarded when the
    /// heartbeat was sent.
    LearnerAnswered {
        /// The learner.
        learner: ServerId,
        /// When the heartbeat was sent, milliseconds by the shell's clock.
        asked_ms: u64,
    },
    /// The leader's opaque bytes.
    FromLeader {
        /// The bytes.
        bytes: Bytes,
    },
    /// Close the connection to a peer that has been silent for too long.
    Disconnect {
        /// The peer.
        peer: ServerId,
    },
    /// The damaged log is whole again: its lost part is back, or was never part of the history.
    Repaired {
        /// The leader that had it.
        from: ServerId,
        /// Where the log had ended before the damage.
        end_before_damage: Zxid,
    },
    /// Tell the operator.
    Alarm(Alarm),
}

/// Effects of some inputs, in order. The caller drains and reuses it.
#[derive(Debug, Default)]
pub struct Effects {
    queue: Vec<Effect>,
}

impl Effects {
    /// No effects.
    #[must_use]
    pub const fn new() -> Self {
        Self { queue: Vec::new() }
    }

    pub(super) fn push(&mut self, effect: Effect) {
        self.queue.push(effect);
    }

    pub(super) fn send(&mut self, to: ServerId, message: Message) {
        self.queue.push(Effect::Send { to, message });
    }

    /// Takes the effects out, in order, and keeps the memory.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Effect> {
        self.queue.drain(..)
    }

    /// The effects not yet taken out.
    #[must_use]
    pub fn as_slice(&self) -> &[Effect] {
        &self.queue
    }
}
