//! Zab: a totally ordered broadcast of opaque batches, without I/O.
//!
//! [`Zab`] is one server's part in it. [`Input`]s go in with the time, [`Effect`]s come out; there are no
//! other effects. Zab knows batches by their zxids only, so it can carry any deterministic state machine. It
//! also works with a single voter, which elects itself.
//!
//! The protocol is the one of "Zab: High-performance broadcast for primary-backup systems" (DSN 2011):
//! election, discovery, synchronization, broadcast. Positions in a log, with their order:
//!
//! ```text
//! snapshot, base <= commit <= last        durable <= last        acked <= durable
//! ```
//!
//! `last` is the end of what was appended, `durable` what an fsync has covered, `acked` what was acknowledged
//! to the leader, `commit` what a quorum holds durably. A learner may know that a transaction is committed
//! before its own disk holds it.
//!
//! # Safety rules
//!
//! 1. A promise ([`Epochs::accepted`]) is durable before it is sent, and each epoch is promised to one
//!    leader.
//! 2. A leader is established when a quorum has promised its epoch and no member of that quorum has a newer
//!    history.
//! 3. A server adopts an epoch ([`Epochs::current`]) when it holds the leader's initial history durably. Its
//!    acks count only once the adoption is durable. What a quorum has acked is committed.
//! 4. The last common position of two logs is computed from both (`History::common`), a proposal is appended
//!    only behind its predecessor, and no committed transaction is truncated.
//! 5. Only committed transactions are delivered.
//!
//! # New disks
//!
//! A server with a new disk has lost the promises and acks that it may have made, so it must not vote as if
//! it had made none. [`Epochs::initialized`] says whether the disk has all of them. A decision on a leader
//! needs one of these sets of voters:
//!
//! - A quorum of initialized voters.
//! - All voters, if every log is empty. Then no history can be lost, and no other leader can exist.
//! - A majority of new servers: see "New ensembles".
//! - All voters, if every quorum has an initialized one (one of two, two of four): what was committed is on
//!   one of their disks.
//!
//! A server with a new disk that finds an active leader is synchronized only after a quorum *without it* has
//! confirmed that leader, since it may have promised a newer epoch before. It adopts the epoch and is
//! initialized once it holds everything proposed until then, since it may have acked any of that.
//!
//! # New ensembles
//!
//! A majority of servers with empty folders, which never belonged to an ensemble, founds one. Such servers
//! cannot be told from servers that have lost their disks. So they wait until no other voter was heard from
//! for [`Config::init_limit_ms`], unless the operator declares them new ([`Founding`]). A voter that has
//! data, or belongs to an ensemble, prevents a founding; a new server among servers with data has no vote
//! before it is synchronized. Two majorities share a server, and a server that has adopted an epoch founds no
//! ensemble, so two ensembles cannot both begin with the same voters.
//!
//! An ensemble has a number, drawn by its first leader. A first leader that fails may leave its number on a
//! few servers while the others begin under another one. Such a server has logged nothing, so it takes over
//! the number of the leader that a quorum follows. It makes that durable before it logs anything, and counts
//! as a server with a new disk, since promises to another ensemble mean nothing here. Nothing is lost: if
//! anything had been committed under the old number, a majority would have that number and would have
//! prevented the other ensemble. A server with data never takes over a number.
//!
//! If a majority lost its disks while the only server with data was away, that server returns with another
//! number. Both sides refuse each other with an alarm, and the server keeps its data. `folder adopt`, by
//! which an operator takes a folder out of its ensemble, has the same effect by the number of a fork.
//!
//! # Old copies of folders
//!
//! A server whose folder was replaced by an older copy has forgotten promises and acks, and does not know it.
//! Others do:
//!
//! - A leader tells its learners which voters have adopted the epoch, and everyone keeps that with the epoch
//!   ([`Epochs::members`]), beside those of the epoch before. One of them that comes back without the epoch
//!   has an old copy.
//! - A leader remembers, as long as its process runs, how far each learner has acknowledged. One that comes
//!   back in the same epoch with less has an old copy.
//!
//! Who knows so does not listen to the server and tells it. The server is like one with a damaged log and a
//! new disk from then on: it has no vote, leads nobody, and counts again when it has learned all that was
//! proposed until then. Any quorum with a member that adopted the last epoch of the server is safe that way;
//! a member that adopted a newer one has everything that the server ever acknowledged.
//!
//! If nobody else in a quorum was ever in that epoch, nobody can know. The ensemble then goes on without what
//! was acknowledged, but not in silence: a server that knows what was committed ([`Epochs::committed`])
//! follows no leader without it, and two leaders of one epoch ([`Epochs::leader`]) are told from each other.
//!
//! Two machines with one id and copies of one folder are the same case. Besides, each process draws a number:
//! one that comes back after another one with its id is refused, loudly on both sides. The other one is told,
//! too, since either may be the one that the operator looks at.
//!
//! # Lists of voters
//!
//! Servers whose configurations name different voters do not count for each other's decisions: each decides
//! with the servers that have the same list, and the others only learn. A folder remembers the list under
//! which its server has served ([`Epochs::voters`]). The shell refuses to start with a list that has a
//! majority without a server in common with some majority of the remembered list.
//!
//! A list that the log names replaces that of the configuration: see `membership.rs`. A change of it that
//! cannot finish is given up: see `abandonment.rs`.
//!
//! # Damaged logs
//!
//! A server that finds damage in its log at a start cuts the log in front of the damage. It keeps its
//! promises, and it knows how far its log went from later groups of the log, which are at least partly sound.
//! Before it cuts the log, it writes that position to disk ([`Epochs::end_before_damage`]). Until the log is
//! repaired:
//!
//! - In all comparisons of histories the server counts with the log that it had. So its promise counts only
//!   for a leader whose history goes at least as far, as if its log were whole. Such a history contains
//!   everything committed that the server's own log contained, so the missing part does not matter to the
//!   election: rule 2 holds, and no committed transaction is lost by the server's vote.
//! - The server never leads, and nobody votes for it, since a part of its log is missing.
//! - It acknowledges what is durable, but adopts no epoch (rule 3), so its acks commit nothing.
//! - It learns like any other server: from the end of its log, or by a snapshot if the leader's log does not
//!   reach back that far.
//! - The log is repaired when the server adopts an epoch newer than its current one, since the history of
//!   that epoch was chosen by a quorum and replaces its own. It is also repaired when the server has received
//!   everything up to the former end from the leader of its current epoch, since all that it ever
//!   acknowledged in that epoch came from that leader.
//! - For a leader whose history is shorter than the log was, the server counts as one with a new disk: a
//!   quorum of others decides, or all voters (of two servers, the other one has everything committed).
//! - A server that is the only voter counts its log as whole when it starts, since no other server
//!   relies on its acks.
//!
//! So with a damaged minority the others go on as if those servers were down, and with the help of one
//! damaged server they can still elect a leader that is up to date.
//!
//! If a majority of the disks is lost, the ensemble waits for the operator.
//!
//! # Handing over
//!
//! A leader that is asked to, or is about to stop, hands leadership over to a voter that has everything: see
//! `handover.rs`.
//!
//! # Observer masters
//!
//! A follower may feed observers with what is committed: see `observer_master.rs`.
//!
//! # Leases
//!
//! A leader may answer readers without a round of confirmation while a quorum takes part in no election: see
//! `lease.rs`.
//!
//! # Full disks
//!
//! A server whose disk is full acknowledges nothing new; the others go on. A full leader slows them down,
//! since it proposes little while its own append waits. It resigns when its disk has been full for the peer
//! timeout and a quorum of others has acknowledged what it cannot append. Those acks prove that the others
//! have room; without such a quorum an election would gain nothing. While a part of its log waits for room,
//! the server is no candidate in elections, except now and then, since it may be the only one that reaches a
//! quorum. Its in-memory history counts as before.

mod abandonment;
pub mod codec;
mod config;
mod core;
mod effects;
mod election;
mod handover;
mod hierarchical;
mod history;
mod leader;
mod learner;
mod lease;
mod membership;
mod message;
mod observer_master;
mod peer;
mod presence;
mod quorum;
#[cfg(test)]
mod tests;

pub use self::core::leaves_epochs;
pub use config::{Config, Durable, Epochs, Founding, LogSummary};
pub use effects::{Alarm, Departure, Effect, Effects, Input, Learners, Status, SyncedLearner};
pub use handover::HandOverError;
pub use hierarchical::{Hierarchical, Placed};
pub use membership::{Membership, NAMED_BY_LOG};
pub use message::{
    Ack, AckEpoch, Doubt, EnsembleId, HandOverStep, Known, LogOutline, Message, Notification, ObserverStep,
    PeerState, Ping, Pong, Propose, Standing, Sync, SyncPlan, Vote,
};
pub use observer_master::OBSERVER_MASTERS_SINCE;
pub use peer::USERS_SINCE;
pub use presence::Absence;
pub use quorum::{Majority, Quorum, QuorumSystem, ServerSet, majorities_meet};
pub use ringkeeper_frame::{Batch, BatchError, Checksum, LogPosition};

use self::core::{Core, Next};
use election::Election;
use history::LogOperation;
use leader::Leader;
use learner::Learner;
use ringkeeper_wire::{Epoch, ServerId, Zxid};

/// One server of an ensemble.
#[derive(Debug)]
pub struct Zab {
    core: Core,
    role: Role,
    /// Joins of learners that came before this server knew that it leads, or of observers before it serves.
    joins: Vec<(ServerId, Standing)>,
}

#[derive(Debug)]
enum Role {
    /// Not started, or waiting for the log before the next election.
    Resting {
        passed_over: Option<ServerId>,
    },
    Looking(Election),
    Following(Learner),
    Leading(Box<Leader>),
}

impl Zab {
    /// A server with the state that its disk holds. `seed` decides its random choices. It does nothing before
    /// [`Input::Start`].
    #[must_use]
    pub fn new(config: Config, durable: Durable, seed: u64) -> Self {
        let core = Core::new(config, durable, seed);
        Self { core, role: Role::Resting { passed_over: None }, joins: Vec::new() }
    }

    /// The server's status, as its clients see it.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.core.status
    }

    /// The number of those that learn from this server: it leads, or feeds observers.
    #[must_use]
    pub fn learners(&self) -> Learners {
        match &self.role {
            Role::Leading(leader) => leader.learners(),
            Role::Following(learner) => {
                let (all, synced_observers) = learner.observers.count();
                Learners { all, synced_followers: 0, synced_observers }
            }
            Role::Resting { .. } | Role::Looking(_) => Learners::default(),
        }
    }

    /// Those among them that have adopted the history of the leader.
    #[must_use]
    pub fn synced(&self) -> Vec<SyncedLearner> {
        match &self.role {
            Role::Leading(leader) => leader.synced(),
            Role::Following(learner) => learner.observers.synced(),
            Role::Resting { .. } | Role::Looking(_) => Vec::new(),
        }
    }

    /// Whom this server learns from: its leader, or an observer from a follower.
    #[must_use]
    pub const fn master(&self) -> Option<ServerId> {
        match &self.role {
            Role::Following(learner) => Some(learner.master()),
            Role::Resting { .. } | Role::Looking(_) | Role::Leading(_) => None,
        }
    }

    /// A server is about to be reported as connected, and speaks this version of the messages.
    pub fn peer_speaks(&mut self, peer: ServerId, version: u8) {
        self.core.versions.insert(peer, version);
    }

    /// Clients of this server wait to hear of commits. To be said before each [`Input::Flush`] while they do.
    pub fn note_users(&mut self, now_ms: u64) {
        self.core.advance_clock(now_ms);
        self.core.users_at_ms = self.core.now_ms;
    }

    /// Whether somebody has asked since the last [`Input::Flush`] whether this server leads.
    #[must_use]
    pub fn owes_confirmation(&self) -> bool {
        matches!(&self.role, Role::Leading(leader) if leader.owes_confirmation())
    }

    /// The voters that cannot help this server to a quorum, and why.
    #[must_use]
    pub fn absences(&self) -> Vec<(ServerId, Absence)> {
        presence::absences(&self.core)
    }

    /// The voters and their quorums by this server's log, or else by its configuration; and those before,
    /// which decide as well as long as it does not know that the change is committed.
    #[must_use]
    pub fn quorum_systems(&self) -> (&QuorumSystem, Option<&QuorumSystem>) {
        self.core.systems()
    }

    /// Whether no more requests are to be taken, since leadership is handed over: they wait for the end of
    /// that.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.core.paused
    }

    /// To whom this server is about to hand over, once it hears [`Input::Settled`].
    #[must_use]
    pub fn successor_due(&self) -> Option<ServerId> {
        let Role::Leading(leader) = &self.role else { return None };
        leader.successor_due(&self.core)
    }

    /// The end of the log, durable or not.
    #[must_use]
    pub fn last(&self) -> LogPosition {
        self.core.log.last()
    }

    /// Bytes at the end of the log that are not durable on this server, even if they are on others.
    #[must_use]
    pub fn undurable_bytes(&self) -> usize {
        self.core.log.undurable_bytes()
    }

    /// Everything up to here is committed and was handed up.
    #[must_use]
    pub const fn committed(&self) -> Zxid {
        self.core.commit
    }

    /// Everything up to here is gone from the log.
    #[must_use]
    pub const fn log_base(&self) -> Zxid {
        self.core.log.base()
    }

    /// The log position at `zxid`, if it is committed, so that it is never truncated, and no log operation is
    /// pending. `None` also if its checksum is not in memory.
    #[must_use]
    pub fn committed_mark(&self, zxid: Zxid) -> Option<LogPosition> {
        let committed = zxid > Zxid::ZERO && zxid <= self.core.commit;
        self.core.log.mark_at(zxid).filter(|_| committed && self.core.log.operation().is_none())
    }

    /// Whether a snapshot may end at this committed position: the log is durable here so far, so that it
    /// continues behind the snapshot.
    #[must_use]
    pub fn is_settled(&self, zxid: Zxid) -> bool {
        let durable = self.log_base() <= zxid && zxid <= self.core.log.durable();
        durable && self.core.log.operation().is_none()
    }

    /// The promises on disk.
    #[must_use]
    pub const fn durable_epochs(&self) -> &Epochs {
        &self.core.persisted
    }

    /// The first zxid of the next batch to propose; `None` unless this server leads an active epoch whose
    /// counter is not used up.
    #[must_use]
    pub fn next_zxid(&self) -> Option<Zxid> {
        let Role::Leading(leader) = &self.role else { return None };
        if !leader.may_propose() {
            return None;
        }
        let last = self.last().zxid;
        if last.epoch() == leader.epoch() { last.next() } else { Some(Zxid::new(leader.epoch(), 1)) }
    }

    /// Handles one input. `now_ms` is the time of a monotonic clock; a step backwards counts as no time.
    pub fn handle(&mut self, now_ms: u64, input: Input, out: &mut Effects) {
        self.core.advance_clock(now_ms);
        let next = self.take(input, out);
        self.transition(next, out);
        self.advance(out);
    }

    fn take(&mut self, input: Input, out: &mut Effects) -> Next {
        match input {
            Input::Start => {}
            Input::Tick => return self.on_tick(out),
            Input::Flush => match &mut self.role {
                Role::Leading(leader) => leader.flush(&self.core, out),
                Role::Following(learner) => learner.flush(&self.core, out),
                Role::Resting { .. } | Role::Looking(_) => {}
            },
            Input::HandOver(wanted) => match &mut self.role {
                Role::Leading(leader) => leader.begin_hand_over(&mut self.core, wanted, out),
                _ => out.push(Effect::HandOverFailed(HandOverError::NotLeading)),
            },
            Input::PeerConnected(peer) => self.on_connected(peer, out),
            Input::PeerDisconnected(peer) => return self.on_disconnected(peer, out),
            Input::Message { from, message } => return self.on_message(from, message, out),
            Input::Forward(bytes) => {
                if let Role::Following(learner) = &self.role {
                    out.send(learner.master(), Message::Forward(bytes));
                }
            }
            Input::EpochsDurable => self.core.epochs_durable(),
            Input::Members(known) => self.core.set_membership(known),
            Input::DiskFull(full) => self.core.set_disk_full(full),
            Input::Durable { .. }
            | Input::Truncated { .. }
            | Input::SnapshotInstalled { .. }
            | Input::SnapshotAborted
            | Input::SnapshotTaken { .. }
            | Input::LogPurged { .. } => self.on_log(input),
            leading => self.on_leading(leading, out),
        }
        Next::Stay
    }

    /// The log reports.
    fn on_log(&mut self, input: Input) {
        let log = &mut self.core.log;
        match input {
            Input::Durable { upto } => log.durable_upto(upto),
            Input::SnapshotTaken { zxid } => log.snapshot_taken(zxid),
            Input::LogPurged { base } => log.purged(base),
            Input::Truncated { last } => log.truncated(last),
            Input::SnapshotAborted => log.installed(None),
            Input::SnapshotInstalled { last } => {
                log.installed(Some(last));
                // The snapshot is committed state and was handed up as a whole.
                self.core.set_commit(last.zxid);
                self.core.recovered = Zxid::ZERO;
            }
            _ => {}
        }
        if let Role::Following(learner) = &mut self.role
            && self.core.log.operation().is_none()
        {
            learner.on_repaired();
        }
    }

    /// Handles the inputs that only a leader can use, or a follower that feeds observers.
    fn on_leading(&mut self, input: Input, out: &mut Effects) {
        let core = &mut self.core;
        let leader = match &mut self.role {
            Role::Leading(leader) => leader,
            Role::Following(learner) => return learner.on_feeding(core, input, out),
            Role::Resting { .. } | Role::Looking(_) => return,
        };
        match input {
            Input::Propose(batch) => leader.on_propose(core, batch, out),
            Input::LogRead { peer, after, batches } => leader.on_log_read(core, peer, after, batches, out),
            Input::SnapshotReady { peer, last } => leader.on_snapshot_ready(core, peer, last, out),
            Input::ConfirmLeadership { token } => leader.confirm(core, token),
            Input::Settled => leader.on_settled(core, out),
            Input::ToLearner { to, bytes } => leader.answer(core, to, bytes, out),
            _ => {}
        }
    }

    fn on_tick(&mut self, out: &mut Effects) -> Next {
        match &mut self.role {
            Role::Following(learner) => learner.on_tick(&mut self.core, out),
            Role::Leading(leader) => leader.on_tick(&mut self.core, out),
            Role::Resting { .. } | Role::Looking(_) => Next::Stay,
        }
    }

    fn on_connected(&mut self, peer: ServerId, out: &mut Effects) {
        if !self.core.knows(peer) {
            return;
        }
        self.core.connected.insert(peer);
        self.core.connections_changed();
        self.joins.retain(|(id, _)| *id != peer);
        match &mut self.role {
            Role::Resting { .. } => {}
            Role::Looking(election) => election.on_connected(&self.core, peer, out),
            Role::Following(learner) if learner.master() == peer => learner.retry(&self.core, out),
            // Every server hears at once which process it is connected to, even if the two have nothing else
            // to say to each other.
            Role::Following(_) => self.say_state(peer, out),
            Role::Leading(leader) => {
                leader.on_disconnected(&mut self.core, peer, out);
                self.say_state(peer, out);
            }
        }
    }

    fn on_disconnected(&mut self, peer: ServerId, out: &mut Effects) -> Next {
        self.core.connected.remove(peer);
        self.core.connections_changed();
        self.joins.retain(|(id, _)| *id != peer);
        match &mut self.role {
            Role::Resting { .. } => {}
            Role::Looking(election) => election.on_disconnected(&mut self.core, peer, out),
            Role::Following(learner) if learner.master() == peer => {
                return Next::Look(Departure::LeaderGone(peer), None);
            }
            Role::Following(learner) => learner.on_observer_left(peer, out),
            Role::Leading(leader) => leader.on_disconnected(&mut self.core, peer, out),
        }
        Next::Stay
    }

    fn on_message(&mut self, from: ServerId, message: Message, out: &mut Effects) -> Next {
        if !self.core.connected.contains(from) {
            return Next::Stay;
        }
        match message {
            Message::Notification(heard) => self.on_notification(from, heard, out),
            Message::Abandoned { epoch, after } => self.core.on_abandoned(from, epoch, after),
            message => {
                match (&mut self.role, message) {
                    (Role::Leading(leader), message) => {
                        leader.on_message(&mut self.core, from, message, out);
                    }
                    (_, Message::FollowerInfo(join)) => {
                        self.joins.retain(|(id, _)| *id != from);
                        self.joins.push((from, join));
                        if let Role::Following(learner) = &self.role
                            && !self.core.is_voter(from)
                        {
                            self.core.note(from, join);
                            if !learner.feeds(&self.core, from) {
                                self.say_state(from, out);
                            }
                        }
                    }
                    (Role::Following(learner), message) if learner.master() == from => {
                        return learner.on_message(&mut self.core, message, out);
                    }
                    (Role::Following(learner), message) => {
                        learner.on_observer(&self.core, from, message, out);
                    }
                    _ => {}
                }
                Next::Stay
            }
        }
    }

    fn on_notification(&mut self, from: ServerId, heard: Notification, out: &mut Effects) -> Next {
        let (blank, ensemble) = (heard.own.is_blank(), heard.own.ensemble);
        self.core.note(from, heard.own);
        if let Some(next) = heard.doubt.and_then(|doubt| self.core.take_doubt(from, doubt, out)) {
            return next;
        }
        if self.core.refuses(from, &heard.own, out) {
            self.say_state(from, out);
            return Next::Stay;
        }
        if !self.core.is_foreign(&ensemble) {
            self.core.hear_committed(heard.committed);
            if let Some(reminder) = self.core.reminder(&heard) {
                out.send(from, reminder);
            }
        }
        if self.core.doubt(from) == Some(Doubt::Contested) && heard.doubt.is_none() {
            self.say_state(from, out);
        }
        // One that looks for a leader has its history to offer, one that has found it somebody else's.
        // Without data and service, it may be left over from a founding that came to nothing, whatever it
        // tries.
        let began = heard.serves || !blank;
        let offers = if heard.state == PeerState::Looking { !blank } else { began && !self.core.is_blank() };
        if offers && self.core.is_foreign(&ensemble) {
            // This server may be left over, too. It waits for a leader that a quorum follows, and joins that
            // ensemble.
            if !self.core.is_left_over() {
                let EnsembleId { cluster, .. } = ensemble;
                out.push(Effect::Alarm(Alarm::ForeignCluster { peer: from, cluster }));
            }
            return Next::Stay;
        }
        let listed = !ensemble.voters.contains(NAMED_BY_LOG);
        if self.core.is_voter(from) && listed && !self.core.agrees_with(&ensemble) {
            let EnsembleId { voters, .. } = ensemble;
            out.push(Effect::Alarm(Alarm::OtherVoters { peer: from, voters }));
        }
        if heard.state == PeerState::Looking {
            self.joins.retain(|(id, _)| *id != from);
        }
        match &mut self.role {
            Role::Resting { .. } => Next::Stay,
            Role::Looking(election) => {
                election.on_notification(&mut self.core, from, heard, out);
                election.leader_heard(&mut self.core, from, &heard)
            }
            Role::Following(learner) if learner.master() == from => {
                let message = Message::Notification(heard);
                learner.on_message(&mut self.core, message, out)
            }
            Role::Leading(leader) if heard.state == PeerState::Leading && heard.vote.leader == from => {
                leader.on_successor(&mut self.core, from, out)
            }
            Role::Following(_) | Role::Leading(_) if heard.state != PeerState::Looking => Next::Stay,
            Role::Following(learner) => {
                learner.on_observer_left(from, out);
                self.say_state(from, out);
                Next::Stay
            }
            Role::Leading(_) => {
                self.say_state(from, out);
                Next::Stay
            }
        }
    }

    /// Tells a peer whom this server follows, or votes for.
    fn say_state(&self, peer: ServerId, out: &mut Effects) {
        let (state, vote) = match &self.role {
            Role::Looking(election) => return election.notify(&self.core, peer, out),
            Role::Following(learner) => {
                let feeds = learner.feeds(&self.core, peer);
                let state = if feeds { PeerState::ObserverMaster } else { PeerState::Following };
                (state, learner.vote(&self.core))
            }
            Role::Leading(_) => (PeerState::Leading, self.core.own_vote()),
            Role::Resting { .. } => return,
        };
        out.send(peer, self.core.notification(state, vote, peer));
    }

    /// Makes every transition that is possible in the current state.
    fn advance(&mut self, out: &mut Effects) {
        // A role change may enable the next one at once: a single voter goes from its start to discovery
        // without another input. No transition leads back, so a few are enough.
        for _ in 0..4 {
            let next = match &mut self.role {
                Role::Resting { passed_over } => {
                    if self.core.log.operation().is_some() || self.core.owes_lease() {
                        break;
                    }
                    let passed_over = *passed_over;
                    self.role = Role::Looking(Election::start(&mut self.core, passed_over, out));
                    continue;
                }
                Role::Looking(election) => election.advance(&mut self.core, out),
                Role::Following(learner) => {
                    let status = self.core.status;
                    learner.advance(&mut self.core, out);
                    learner.feed(&self.core, &mut self.joins, out);
                    if self.core.status != status {
                        // Observers that look for a master need not ask again.
                        let welcome = self.core.connected.iter().filter(|id| learner.feeds(&self.core, *id));
                        welcome.collect::<Vec<_>>().into_iter().for_each(|id| self.say_state(id, out));
                    }
                    Next::Stay
                }
                Role::Leading(leader) => leader.advance(&mut self.core, out),
            };
            if next == Next::Stay {
                break;
            }
            self.transition(next, out);
        }
        self.core.persist(out);
    }

    fn transition(&mut self, next: Next, out: &mut Effects) {
        match next {
            Next::Stay => {}
            Next::Look(why, passed_over) => self.look(why, passed_over, out),
            Next::Follow(leader) => {
                self.end_leading(out);
                self.role = Role::Following(Learner::start(&mut self.core, leader, out));
            }
            Next::Lead => {
                let staying = match &mut self.role {
                    Role::Following(learner) => learner.observers.take_paused(),
                    Role::Resting { .. } | Role::Looking(_) | Role::Leading(_) => Vec::new(),
                };
                self.end_leading(out);
                let joined = std::mem::take(&mut self.joins);
                let leader = Leader::start(&mut self.core, joined, staying, out);
                self.role = Role::Leading(Box::new(leader));
                for peer in self.core.connected.iter() {
                    self.say_state(peer, out);
                }
            }
        }
    }

    fn end_leading(&mut self, out: &mut Effects) {
        match &mut self.role {
            Role::Leading(leader) => {
                leader.remember_acks(&mut self.core, |_| true);
                leader.part_with_staying(out);
                out.push(Effect::Reset);
            }
            Role::Following(learner) => learner.end_feeding(out),
            Role::Resting { .. } | Role::Looking(_) => {}
        }
    }

    fn look(&mut self, why: Departure, passed_over: Option<ServerId>, out: &mut Effects) {
        self.end_leading(out);
        if self.core.log.operation() == Some(LogOperation::Install) {
            out.push(Effect::AbortSnapshot);
        }
        if self.core.status != Status::Looking {
            out.push(Effect::Departed(why));
        }
        self.core.set_status(Status::Looking, out);
        self.role = Role::Resting { passed_over };
        if let Departure::ChangeAbandoned { after, .. } = why {
            self.core.cut_abandoned(after, out);
        }
    }

    /// The epoch this server leads or follows in, once it serves.
    #[must_use]
    pub const fn epoch(&self) -> Option<Epoch> {
        match self.core.status {
            Status::Looking => None,
            Status::Following { epoch, .. } | Status::Leading { epoch } => Some(epoch),
        }
    }
}
