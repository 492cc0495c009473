//! What a server knows at its start: the ensemble, its limits, and the persisted state.

use ringkeeper_frame::LogPosition;
use ringkeeper_wire::{Epoch, ServerId, Zxid};

use super::membership::Membership;
use super::quorum::{QuorumSystem, ServerSet};
use crate::mutation::Mutation;

const TAIL_BYTES_MIN: usize = 8 << 20;
const TAIL_BYTES_MAX: usize = 64 << 20;

/// The ensemble and the limits of one server.
#[derive(Debug)]
pub struct Config {
    /// This server.
    pub id: ServerId,
    /// The voters, and which sets of them are quorums, while the log names none ([`Self::membership`]).
    pub quorum: QuorumSystem,
    /// Servers that learn without a vote, likewise.
    pub observers: ServerSet,
    /// What the log says instead of [`Self::quorum`] and [`Self::observers`], as recovered.
    pub membership: Option<Membership>,
    /// Whether servers that are no members may learn, to become members later.
    pub admits_joiners: bool,
    /// Silence after which a peer is considered dead. A broken connection takes effect at once; a pause of
    /// this server itself does not count as silence.
    pub peer_timeout_ms: u64,
    /// How long a candidate with a quorum of votes waits for connected voters that have not voted yet.
    pub finalize_wait_ms: u64,
    /// Time a leader has to synchronize with a quorum (`initLimit * tickTime`).
    pub init_limit_ms: u64,
    /// Silence after which a leader gives up a learner's connection (`syncLimit * tickTime`).
    pub sync_limit_ms: u64,
    /// Recent batches kept in memory for learners that come back after a moment.
    pub tail_bytes_min: usize,
    /// Recent batches kept in memory, at most, while a learner has not been sent them all.
    pub tail_bytes_max: usize,
    /// Bytes sent to one learner and not yet acknowledged as durable; above it, the learner is sent no more.
    pub window_bytes_max: usize,
    /// The same for a learner that has not received the whole log, on a short line: see
    /// [`SendWindow`](crate::send_window::SendWindow). Smaller, so that reading the log and sending take
    /// little time from the learners that keep up.
    pub catch_up_bytes_max: usize,
    /// Counter at which a leader moves to a new epoch, well before the 32 bits are used up.
    pub epoch_txns_max: u32,
    /// How long what is committed may be known in memory alone: after a restart the server tells by what its
    /// disk says whether its history is contradicted.
    pub commit_record_ms: u64,
    /// How long a leader tries to hand over before it leads on; writes wait meanwhile.
    pub hand_over_limit_ms: u64,
    /// Voters in the order in which they are to lead, the first one above all; who is not named comes last. A
    /// leader hands over to one that comes before it. The same list on all servers.
    pub preferred: Vec<ServerId>,
    /// How long such a voter has to keep up before, so that one that comes and goes is left alone.
    pub prefer_after_ms: u64,
    /// How long a learner that has answered a heartbeat takes part in no election, so that the leader may
    /// answer readers without asking a quorum; 0 for not at all. One that is longer than
    /// [`Self::peer_timeout_ms`] delays the election after a leader that falls silent.
    pub lease_ms: u64,
    /// Whether this server, if it is an observer, learns from a follower if it finds one.
    pub observer_masters: bool,
    /// Whether this server may found an ensemble with others that are new, too.
    pub founding: Founding,
    /// Planted fault for the simulator's canary runs; never set in production.
    pub mutation: Mutation,
}

impl Config {
    /// Majorities of `voters`, the design's default limits.
    #[must_use]
    pub fn new(id: ServerId, voters: ServerSet, observers: ServerSet) -> Self {
        // A server alone has no learner to keep batches for.
        let alone = voters.len() == 1 && observers.is_empty();
        Self {
            id,
            quorum: QuorumSystem::majorities(voters),
            observers,
            membership: None,
            admits_joiners: false,
            peer_timeout_ms: 500,
            finalize_wait_ms: 50,
            init_limit_ms: 20_000,
            sync_limit_ms: 10_000,
            tail_bytes_min: if alone { 0 } else { TAIL_BYTES_MIN },
            tail_bytes_max: if alone { 0 } else { TAIL_BYTES_MAX },
            window_bytes_max: 64 << 20,
            catch_up_bytes_max: 4 << 20,
            epoch_txns_max: u32::MAX - (1 << 24),
            commit_record_ms: 60_000,
            hand_over_limit_ms: 200,
            preferred: Vec::new(),
            prefer_after_ms: 10_000,
            lease_ms: 0,
            observer_masters: false,
            founding: Founding::WhenOthersAreSilent,
            mutation: Mutation::None,
        }
    }

    /// The same, and servers that are no members may learn, to become members later.
    #[must_use]
    pub fn admitting_joiners(self) -> Self {
        let (tail_bytes_min, tail_bytes_max) = (TAIL_BYTES_MIN, TAIL_BYTES_MAX);
        Self { admits_joiners: true, tail_bytes_min, tail_bytes_max, ..self }
    }

    /// The same, for servers so far apart that silence counts after this time only. What takes several
    /// messages each way takes longer with it.
    #[must_use]
    pub fn with_peer_timeout(self, peer_timeout_ms: u64) -> Self {
        Self {
            peer_timeout_ms,
            finalize_wait_ms: self.finalize_wait_ms.max(peer_timeout_ms / 10),
            hand_over_limit_ms: self.hand_over_limit_ms.max(peer_timeout_ms * 2 / 5),
            ..self
        }
    }

    /// How often heartbeats and unanswered election messages go out.
    pub(super) const fn heartbeat_ms(&self) -> u64 {
        self.peer_timeout_ms / 4
    }

    /// How long clients wait for their server to follow a leader that leadership was handed over to: the
    /// promise and the synchronization take several messages each way, and writes.
    pub(super) const fn move_max_ms(&self) -> u64 {
        self.peer_timeout_ms * 2
    }

    /// The longest time between two inputs that counts in full. The shell ticks at least twice as often, so a
    /// longer one means that the shell was paused.
    pub(super) const fn step_max_ms(&self) -> u64 {
        let heartbeat_ms = self.heartbeat_ms();
        if heartbeat_ms > 100 { heartbeat_ms } else { 100 }
    }
}

/// Whether a server whose folder is empty may found an ensemble: see "New ensembles" in [`super`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Founding {
    /// Never: it may have lost its data, and waits for an ensemble (`zookeeper.db.autocreate=false`).
    Never,
    /// With a majority of new servers, when no other voter was heard from for [`Config::init_limit_ms`].
    #[default]
    WhenOthersAreSilent,
    /// With a majority of new servers: the operator has declared the ensemble new (a file `initialize`).
    AtOnce,
}

/// The promises of a server: kept on disk apart from the log, and replaced atomically.
///
/// Invariant: `current <= accepted`; both only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    /// `acceptedEpoch`: the newest epoch this server has promised itself to. It takes part in no older one.
    pub accepted: Epoch,
    /// `currentEpoch`: the newest epoch whose leader's whole history this server has made durable.
    pub current: Epoch,
    /// Who led it; `None` while not known.
    pub leader: Option<ServerId>,
    /// The voters that are known to have adopted it: one that comes back without it has an old copy of its
    /// folder.
    pub members: ServerSet,
    /// The last epoch before it that others are known to have adopted. They are remembered, since it takes a
    /// moment until this server hears who has adopted the current one.
    pub former: Epoch,
    /// Those voters, and this server.
    pub former_members: ServerSet,
    /// Everything up to here was committed and durable here when this was written. More may be by now.
    pub committed: Zxid,
    /// Identity of the ensemble, drawn at its first election; 0 while not known.
    pub cluster: u64,
    /// Drawn when an operator took the folder out of its ensemble; 0 before. Members of different forks of
    /// one history refuse each other.
    pub fork: u64,
    /// The voters of the ensemble that the folder belongs to; none while not known.
    pub voters: ServerSet,
    /// Their groups and weights, see [`QuorumSystem::groups`].
    pub groups: u64,
    /// Whether the log may name servers with several addresses, so that older builds cannot read it.
    pub several_addresses: bool,
    /// Whether this disk has everything that the server ever promised and acknowledged.
    ///
    /// A new disk has not. Its server has no vote until a leader that a quorum of *other* servers confirms
    /// has synchronized it, or until a new ensemble forms: see [`super`]. The shell may set it before the
    /// first start when the operator declares the server new.
    pub initialized: bool,
    /// Where the log ended before a damaged part was cut off; [`Zxid::ZERO`] if the log is whole.
    ///
    /// The server may have acknowledged everything up to here, so its history counts as this long in all
    /// comparisons, although its log is shorter: see "Damaged logs" in [`super`]. The shell makes it durable
    /// before it cuts a damaged log.
    pub end_before_damage: Zxid,
    /// The longest lease that this server may have granted a leader, 0 for none: see `lease.rs`.
    pub lease_ms: u64,
}

/// What recovery found in the log: enough to compare two logs without reading them.
///
/// Build it with [`LogSummary::new`] and one [`LogSummary::push`] for each frame scanned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSummary {
    base: LogPosition,
    snapshot: Zxid,
    ends: Vec<LogPosition>,
}

impl LogSummary {
    /// A log whose first frame comes right after `base`, beside a newest snapshot of `snapshot`.
    ///
    /// If the log ends before the snapshot or is empty, the snapshot's position is the base.
    #[must_use]
    pub const fn new(base: LogPosition, snapshot: Zxid) -> Self {
        Self { base, snapshot, ends: Vec::new() }
    }

    /// Adds the frame that ends at `end`. Only the last one of each epoch is remembered.
    pub fn push(&mut self, end: LogPosition) {
        debug_assert!(end.zxid > self.last().zxid, "{} after {}", end.zxid, self.last().zxid);
        match self.ends.last_mut() {
            Some(last) if last.zxid.epoch() == end.zxid.epoch() => *last = end,
            _ => self.ends.push(end),
        }
    }

    /// The position right before the first frame.
    #[must_use]
    pub const fn base(&self) -> LogPosition {
        self.base
    }

    /// The newest snapshot: no position before it can be restored.
    #[must_use]
    pub const fn snapshot(&self) -> Zxid {
        self.snapshot
    }

    /// The end of the log.
    #[must_use]
    pub fn last(&self) -> LogPosition {
        self.ends.last().copied().unwrap_or(self.base)
    }

    /// The last position of each epoch in the log, rising.
    #[must_use]
    pub fn ends(&self) -> &[LogPosition] {
        &self.ends
    }

    /// Forgets everything after `mark`, which is a position of this log.
    pub(super) fn truncate(&mut self, mark: LogPosition) {
        self.ends.retain(|end| end.zxid < mark.zxid);
        if mark.zxid > self.base.zxid {
            self.push(mark);
        }
    }

    /// Notes that frames up to `base` are gone from the log.
    pub(super) fn purge(&mut self, base: LogPosition) {
        if base.zxid > self.base.zxid {
            self.ends.retain(|end| end.zxid > base.zxid);
            self.base = base;
        }
    }

    /// Notes a newer snapshot.
    pub(super) fn snapshot_taken(&mut self, zxid: Zxid) {
        self.snapshot = self.snapshot.max(zxid);
    }
}

/// The persisted state with which a server starts.
#[derive(Clone, Debug, Default)]
pub struct Durable {
    /// The promises.
    pub epochs: Epochs,
    /// The log; everything in it is durable.
    pub log: LogSummary,
}
