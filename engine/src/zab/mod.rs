//! Zab: a totally ordered broadcast of opaque batches, without I/O.
//!
//! [`Zab`] is one server's part in it. [`Input`]s go in with the time, [`Effect`]s come out; nothing else
//! happens. It knows batches by their zxids, so that any deterministic state machine can stand on it; it is
//! complete with one voter as well, which elects itself.
//!
//! The protocol is the one of "Zab: High-performance broadcast for primary-backup systems" (DSN 2011):
//! election, discovery, synchronization, broadcast. Positions in a log, with their order:
//!
//! ```text
//! snapshot, base <= commit <= last        durable <= last        acked <= durable
//! ```
//!
//! `last` is the end of what is appended, `durable` what an fsync has covered, `acked` what the leader was
//! told, `commit` what a quorum holds durably. A learner may know that something is committed before its own
//! disk has it, never the other way round.
//!
//! # Rules that keep it safe
//!
//! 1. A promise ([`Epochs::accepted`]) is durable before it is answered for, and is given to one leader.
//! 2. A leader is established when a quorum has promised itself to its epoch, no member with a newer history.
//! 3. A server adopts an epoch ([`Epochs::current`]) when the leader's initial history is durable there, and
//!    its acks count only once the adoption is durable. What a quorum has acked is committed.
//! 4. The last common position of two logs is computed, not guessed (`History::common`), a proposal is
//!    appended only where its predecessor stands, and nothing committed is ever cut.
//! 5. What a server has delivered is committed; nothing that is not is ever delivered.
//!
//! # New disks
//!
//! A server whose disk is new has forgotten its promises and acks, if there were any, so it must not vote as
//! if it remembered. [`Epochs::initialized`] says whether a disk remembers. The rules:
//!
//! - Decisions need a quorum of initialized voters.
//! - Or all voters without exception, if no log holds anything. No history can be lost, and no other leader
//!   can exist.
//! - Or a majority of new servers: see "New ensembles".
//! - Or all voters, if the initialized ones are in every quorum (one of two, two of four): what was committed
//!   is on one of their disks.
//! - A server with a new disk that finds an active leader is synchronized only after a quorum *without it*
//!   has confirmed the leader, since it may have promised itself to a newer one. It adopts the epoch, and is
//!   initialized, once it has everything that was proposed until then, since it may have acked that.
//!
//! # New ensembles
//!
//! A majority of servers with empty folders, which never had an ensemble, founds one. Nothing tells them from
//! servers that have lost their disks, so they wait until nobody else was to be heard for
//! [`Config::init_limit_ms`], unless the operator has said that they are new ([`Founding`]). A voter that has
//! data, or belongs to an ensemble, keeps them from it; a new server among servers with data has no vote
//! before it has learned. Two majorities share a server, and who has adopted an epoch founds nothing any
//! more, so two ensembles cannot both begin with the same voters.
//!
//! An ensemble has a number, drawn by its first leader. A first leader that fails may leave its number behind
//! on a few servers while the others begin under another one. Such a server has logged nothing, so it takes
//! over the number of the leader that a quorum follows. That is durable before it logs anything, and it counts
//! as a server with a new disk: another ensemble's promises say nothing in this one. Nothing is lost: had
//! anything been committed under its own number, a majority would have that number, and would have kept the
//! other from beginning. A server with data never takes over a number.
//!
//! If a majority lost its disks while the only server
//! with data was away, that server returns with another number: it is refused, loudly on both sides, and
//! keeps what it has. What an operator takes out of its ensemble with `folder adopt` has a fork's number
//! besides, to the same effect.
//!
//! # Old copies of folders
//!
//! A server whose folder was replaced by an older copy has forgotten promises and acks, and does not know it.
//! Others do:
//!
//! - A leader tells its learners which voters have adopted the epoch, and everyone keeps that with the epoch
//!   ([`Epochs::members`]). One of them that comes back without the epoch has an old copy.
//! - A leader remembers, as long as its process runs, how far each learner has acknowledged. One that comes
//!   back in the same epoch with less has an old copy.
//!
//! Who knows so does not listen to the server and tells it. The server is like one with a damaged log and a
//! new disk from then on: it has no vote, leads nobody, and counts again when it has learned all that was
//! proposed until then. Any quorum with a member that adopted the last epoch of the server is safe that way; a
//! member that adopted a newer one has everything that the server ever acknowledged.
//!
//! If nobody else in a quorum was ever in that epoch, nobody can know. The ensemble then goes on without what
//! was acknowledged, but not in silence: a server that knows what was committed ([`Epochs::committed`])
//! follows no leader without it, and two leaders of one epoch ([`Epochs::leader`]) are told from each other.
//!
//! Two machines with one id and copies of one folder are the same case. Besides, each process draws a number:
//! one that comes back after another one with its id is refused, loudly on both sides.
//!
//! # Lists of voters
//!
//! Servers whose configurations name different voters do not count for one another's decisions: each decides
//! with those that go by its own list, and any other one only learns. A server remembers the list that it has
//! served under ([`Epochs::voters`]), and the shell refuses a start with one whose majorities could do
//! without all of those before.
//!
//! # Damaged logs
//!
//! A server that finds a part of its log damaged when it starts cuts the log there, so that what is left is
//! sound. It keeps its promises, and it knows how far its log went: later groups of the log, which are sound
//! or at least begin soundly, tell. Before it cuts, it writes that down as its [`Epochs::claim`]. Until the
//! claim is met:
//!
//! - In all comparisons of histories it stands where the log ended before the damage. So its promise counts
//!   for a leader whose history goes at least that far, and for no other: just as if its log were whole. A
//!   history that is as new as one's own, by epoch adopted and by length, holds everything committed that
//!   one's own holds, so it does not matter to an election that the server cannot show its own. Rule 2
//!   stands, and with it: nothing committed is lost because someone voted who had forgotten it.
//! - It never leads, and nobody votes for it, since it can show less than it stands for.
//! - It acknowledges what is durable, but adopts nothing (rule 3), so its acks commit nothing.
//! - It is a learner like any other: it asks from where its log ends, and is sent what it lacks (or a
//!   snapshot, if the leader's log does not reach back that far).
//! - The claim is met when the server adopts an epoch newer than its current one, whose history was chosen by
//!   a quorum and replaces the server's own; or when it has, from the leader of its current epoch, everything
//!   up to the claim, since all that it ever acknowledged in that epoch came from that leader.
//! - To a leader whose history does not reach its claim, it is a server with a new disk: a quorum of others
//!   decides, or all voters (two servers: the one that is left has everything committed).
//! - A server that is the only voter has nobody to be answerable to: it drops its claim when it starts.
//!
//! So with a damaged minority the others go on as they would with those servers down, and one damaged server
//! does not keep the rest from electing someone up to date with its help.
//!
//! If a majority of the disks is lost, the ensemble waits for the operator.
//!
//! # Full disks
//!
//! A server whose disk is full acknowledges nothing new, and everyone else goes on. If it leads, it is in
//! their way: it proposes little while its own append waits. So it resigns when that has lasted for the peer
//! timeout and a quorum of others has acknowledged what it cannot append itself. Nobody has to say who has
//! room: their acks prove it, and where no such quorum is, an election would win nothing. It stands in no
//! election while a part of its log waits, except now and then, since it may be the only one that reaches a
//! quorum. Its in-memory history counts as ever.

pub mod codec;
mod config;
mod core;
mod effects;
mod election;
mod history;
mod leader;
mod learner;
mod message;
mod mutation;
mod peer;
mod presence;
mod quorum;
#[cfg(test)]
mod tests;

pub use self::core::leaves_epochs;
pub use config::{Config, Durable, Epochs, Founding, LogSummary};
pub use effects::{Alarm, Departure, Effect, Effects, Input, Learners, Status};
pub use message::{
    Ack, AckEpoch, Doubt, EnsembleId, Known, LogOutline, Message, Notification, PeerState, Ping, Pong,
    Propose, Standing, Sync, SyncPlan, Vote,
};
pub use mutation::Mutation;
pub use presence::Absence;
pub use quorum::{Majority, Quorum, ServerSet, majorities_meet};
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
    /// Servers that want to follow this one before it knows that it leads.
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
    Leading(Leader),
}

impl Zab {
    /// A server as its disk remembers it. `seed` decides its random choices. It does nothing before
    /// [`Input::Start`].
    #[must_use]
    pub fn new(config: Config, durable: Durable, seed: u64) -> Self {
        let core = Core::new(config, durable, seed);
        Self { core, role: Role::Resting { passed_over: None }, joins: Vec::new() }
    }

    /// What the server is to its clients.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.core.status
    }

    /// Who follows this server; nobody unless it leads.
    #[must_use]
    pub fn learners(&self) -> Learners {
        match &self.role {
            Role::Leading(leader) => leader.learners(),
            _ => Learners::default(),
        }
    }

    /// The voters that are of no help to this server, and why.
    #[must_use]
    pub fn absences(&self) -> Vec<(ServerId, Absence)> {
        presence::absences(&self.core)
    }

    /// The end of the log, durable or not.
    #[must_use]
    pub fn last(&self) -> LogPosition {
        self.core.log.last()
    }

    /// Bytes at the end of the log that are not durable here, whoever else has them on its disk.
    #[must_use]
    pub fn unforced_bytes(&self) -> usize {
        self.core.log.unforced_bytes()
    }

    /// Everything up to here is committed and was handed up.
    #[must_use]
    pub const fn committed(&self) -> Zxid {
        self.core.commit
    }

    /// The position `zxid` of the log, if a snapshot may hold everything up to it: it is committed, so that
    /// it is never cut off, and durable here, so that the log goes on after it whatever happens. `None` as
    /// well if the position is not known without reading.
    #[must_use]
    pub fn snapshot_mark(&self, zxid: Zxid) -> Option<LogPosition> {
        self.core.log.mark_at(zxid).filter(|_| self.is_settled(zxid))
    }

    /// Whether everything up to `zxid` is committed and durable here, and nothing is about to replace the log.
    #[must_use]
    pub fn is_settled(&self, zxid: Zxid) -> bool {
        let durable = zxid <= self.core.commit && zxid <= self.core.log.durable();
        zxid > Zxid::ZERO && durable && self.core.log.operation().is_none()
    }

    /// The promises on disk.
    #[must_use]
    pub const fn durable_epochs(&self) -> &Epochs {
        &self.core.persisted
    }

    /// The first zxid of the next batch to propose, while this server can take one: it leads an active epoch
    /// whose counter is not used up.
    #[must_use]
    pub fn next_zxid(&self) -> Option<Zxid> {
        let Role::Leading(leader) = &self.role else { return None };
        if !leader.is_active() {
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
            Input::Flush => {
                if let Role::Leading(leader) = &mut self.role {
                    leader.flush(&self.core, out);
                }
            }
            Input::PeerConnected(peer) => self.on_connected(peer, out),
            Input::PeerDisconnected(peer) => return self.on_disconnected(peer, out),
            Input::Message { from, message } => return self.on_message(from, message, out),
            Input::Forward(bytes) => {
                if let Role::Following(learner) = &self.role {
                    out.send(learner.leader(), Message::Forward(bytes));
                }
            }
            Input::EpochsDurable => self.core.epochs_durable(),
            Input::Room(room) => self.core.set_room(room),
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
                self.core.commit = self.core.commit.max(last.zxid);
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

    /// Inputs that only a leader can do something with.
    fn on_leading(&mut self, input: Input, out: &mut Effects) {
        let Role::Leading(leader) = &mut self.role else { return };
        let core = &mut self.core;
        match input {
            Input::Propose(batch) => leader.on_propose(core, batch, out),
            Input::LogRead { peer, after, batches } => leader.on_log_read(core, peer, after, batches, out),
            Input::SnapshotReady { peer, last } => leader.on_snapshot_ready(core, peer, last, out),
            Input::ConfirmLeadership { token } => leader.confirm(core, token),
            Input::ToLearner { to, bytes } => leader.pass_on(to, Message::ToLearner(bytes), out),
            _ => {}
        }
    }

    fn on_tick(&mut self, out: &mut Effects) -> Next {
        match &mut self.role {
            Role::Following(learner) => learner.on_tick(&self.core, out),
            Role::Leading(leader) => leader.on_tick(&mut self.core, out),
            Role::Resting { .. } | Role::Looking(_) => Next::Stay,
        }
    }

    fn on_connected(&mut self, peer: ServerId, out: &mut Effects) {
        if !self.core.config.knows(peer) {
            return;
        }
        self.core.connected.insert(peer);
        self.core.connections_changed();
        self.joins.retain(|(id, _)| *id != peer);
        match &mut self.role {
            Role::Resting { .. } => {}
            Role::Looking(election) => election.on_connected(&self.core, peer, out),
            Role::Following(learner) => learner.on_connected(&self.core, peer, out),
            Role::Leading(leader) => {
                leader.on_disconnected(&mut self.core, peer);
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
            Role::Following(learner) if learner.leader() == peer => {
                return Next::Look(Departure::LeaderGone(peer), None);
            }
            Role::Following(_) => {}
            Role::Leading(leader) => leader.on_disconnected(&mut self.core, peer),
        }
        Next::Stay
    }

    fn on_message(&mut self, from: ServerId, message: Message, out: &mut Effects) -> Next {
        if !self.core.connected.contains(from) {
            return Next::Stay;
        }
        match message {
            Message::Notification(heard) => self.on_notification(from, heard, out),
            message => {
                match (&mut self.role, message) {
                    (Role::Leading(leader), message) => {
                        leader.on_message(&mut self.core, from, message, out);
                    }
                    (_, Message::Join(join)) => {
                        self.joins.retain(|(id, _)| *id != from);
                        self.joins.push((from, join));
                    }
                    (Role::Following(learner), message) if learner.leader() == from => {
                        return learner.on_message(&mut self.core, message, out);
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
        // One that looks for a leader has its history to offer, one that has found it somebody else's. Without
        // data and service, it may be left over from a founding that came to nothing, whatever it tries.
        let began = heard.serves || !blank;
        let offers = if heard.state == PeerState::Looking { !blank } else { began && !self.core.is_blank() };
        if offers && self.core.is_elsewhere(&ensemble) {
            // So may this one: it waits for a leader that a quorum follows, whose ensemble is the one that
            // began.
            let left_over = self.core.is_blank() && self.core.status == Status::Looking;
            if !left_over {
                let EnsembleId { cluster, .. } = ensemble;
                out.push(Effect::Alarm(Alarm::ForeignCluster { peer: from, cluster }));
            }
            return Next::Stay;
        }
        if self.core.config.is_voter(from) && !self.core.agrees_with(&ensemble) {
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
                election.leader_heard(from, &heard)
            }
            Role::Following(learner) if learner.leader() == from => {
                let message = Message::Notification(heard);
                learner.on_message(&mut self.core, message, out)
            }
            Role::Following(_) | Role::Leading(_) => {
                if heard.state == PeerState::Looking {
                    self.say_state(from, out);
                }
                Next::Stay
            }
        }
    }

    /// Tells a peer whom this server follows, or votes for.
    fn say_state(&self, peer: ServerId, out: &mut Effects) {
        let (state, vote) = match &self.role {
            Role::Looking(election) => return election.notify(&self.core, peer, out),
            Role::Following(learner) => (PeerState::Following, learner.vote(&self.core)),
            Role::Leading(_) => (PeerState::Leading, self.core.own_vote()),
            Role::Resting { .. } => return,
        };
        out.send(peer, self.core.notification(state, vote, peer));
    }

    /// Moves on as far as everything known allows.
    fn advance(&mut self, out: &mut Effects) {
        // A role change can make the next one possible at once: one voter alone goes from its start to
        // discovery without another input. Each step leads away from where it came from, so few are enough.
        for _ in 0..4 {
            let next = match &mut self.role {
                Role::Resting { passed_over } => {
                    if self.core.log.operation().is_some() {
                        break;
                    }
                    let passed_over = *passed_over;
                    self.role = Role::Looking(Election::start(&mut self.core, passed_over, out));
                    continue;
                }
                Role::Looking(election) => election.advance(&mut self.core, out),
                Role::Following(learner) => {
                    learner.advance(&mut self.core, out);
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
                self.role = Role::Following(Learner::start(&mut self.core, leader, out));
            }
            Next::Lead => {
                let joined = std::mem::take(&mut self.joins);
                self.role = Role::Leading(Leader::start(&mut self.core, joined, out));
                for peer in self.core.connected.iter() {
                    self.say_state(peer, out);
                }
            }
        }
    }

    fn look(&mut self, why: Departure, passed_over: Option<ServerId>, out: &mut Effects) {
        if let Role::Leading(leader) = &self.role {
            leader.remember_acks(&mut self.core, |_| true);
            out.push(Effect::Reset);
        }
        if self.core.log.operation() == Some(LogOperation::Install) {
            out.push(Effect::AbortSnapshot);
        }
        if self.core.status != Status::Looking {
            out.push(Effect::Departed(why));
        }
        self.core.set_status(Status::Looking, out);
        self.role = Role::Resting { passed_over };
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
