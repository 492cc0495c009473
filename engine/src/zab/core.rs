//! What every role of a server works on: its promises, its log, its clock and its connections.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use ringkeeper_frame::Batch;
use ringkeeper_wire::{Epoch, ServerId, Zxid};

use super::config::{Config, Durable, Epochs, Founding};
use super::effects::{Departure, Effect, Effects, Status};
use super::history::History;
use super::message::{EnsembleId, Message, Notification, PeerState, Vote};
use super::mutation::planted;
use super::quorum::ServerSet;

/// Where no learner is fed from the log, none lacks any of it.
pub(super) const NOBODY_IS_FED: Zxid = Zxid(u64::MAX);

/// What the role wants to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    /// Search a leader, passing one over for a round when that makes sense.
    Look(Departure, Option<ServerId>),
    Follow(ServerId),
    Lead,
}

/// A voter that takes part in a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) id: ServerId,
    /// Its disk remembers everything it has promised.
    pub(super) initialized: bool,
    /// Its log is empty.
    pub(super) blank: bool,
    /// It may be one of those who found an ensemble.
    pub(super) founds: bool,
    /// It belongs to an ensemble, this one or another.
    pub(super) belongs: bool,
}

/// What a peer has said of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) ensemble: EnsembleId,
    /// It has logged nothing, ever.
    pub(super) blank: bool,
    /// See [`Epochs::initialized`].
    pub(super) initialized: bool,
}

#[derive(Debug)]
pub(super) struct Core {
    pub(super) config: Config,
    /// Time since the start in which this server was there to listen. It does not run backwards, whatever the
    /// shell's clock does.
    pub(super) now_ms: u64,
    shell_ms: Option<u64>,
    rng: ChaCha8Rng,
    pub(super) connected: ServerSet,
    /// Since when a quorum of voters, with this server, is connected.
    quorum_since_ms: Option<u64>,
    /// Some voter belongs to an ensemble already, so no other one is to be founded.
    ensemble_seen: bool,
    /// What those who are connected have said of themselves.
    pub(super) heard: BTreeMap<ServerId, Heard>,
    /// The promises as they shall be.
    pub(super) epochs: Epochs,
    /// The promises on disk.
    pub(super) persisted: Epochs,
    persisting: Option<Epochs>,
    pub(super) log: History,
    /// Everything up to here is committed and handed up.
    pub(super) commit: Zxid,
    /// End of the log that this server's state was recovered from. What it serves holds everything up to
    /// here, so nobody may see it before that is committed.
    pub(super) recovered: Zxid,
    /// Since when what is appended waits for room on the disk, if it does.
    pub(super) full_since_ms: Option<u64>,
    /// Number of the last election.
    pub(super) round: u64,
    pub(super) status: Status,
}

impl Core {
    pub(super) fn new(config: Config, durable: Durable, seed: u64) -> Self {
        let mut epochs = durable.epochs;
        epochs.initialized |= planted!(config, WipedServerVotes);
        if planted!(config, DamagedServerVotes) {
            epochs.claim = Zxid::ZERO;
        }
        let persisted = epochs;
        // A claim speaks to the other voters. Where there are none, nobody has what it stands for.
        if config.quorum.voters().iter().eq([config.id]) {
            epochs.claim = Zxid::ZERO;
        }
        let (commit, recovered) = (durable.log.snapshot(), durable.log.last().zxid);
        Self {
            log: History::new(durable.log, &config),
            config,
            now_ms: 0,
            shell_ms: None,
            rng: ChaCha8Rng::seed_from_u64(seed),
            connected: ServerSet::EMPTY,
            quorum_since_ms: None,
            ensemble_seen: false,
            heard: BTreeMap::new(),
            epochs,
            persisted,
            persisting: None,
            commit,
            recovered,
            full_since_ms: None,
            round: 0,
            status: Status::Looking,
        }
    }

    pub(super) const fn me(&self) -> ServerId {
        self.config.id
    }

    pub(super) fn is_voter(&self) -> bool {
        self.config.is_voter(self.me())
    }

    /// Advances the clock. A step backwards counts as no time, a long one as [`Config::step_max_ms`]: a
    /// server that stood still, for want of a CPU perhaps, must read what its peers have sent meanwhile
    /// before it calls them silent. Otherwise a crowded machine would make followers leave a leader that is
    /// well, and close their clients' connections. Nothing but patience rests on this clock.
    pub(super) fn advance_clock(&mut self, shell_ms: u64) {
        let before = self.shell_ms.replace(shell_ms).unwrap_or(shell_ms);
        self.now_ms += shell_ms.saturating_sub(before).min(self.config.step_max_ms());
    }

    pub(super) fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// Up to half a peer timeout, so that servers do not keep acting at the same time.
    pub(super) fn jitter_ms(&mut self) -> u64 {
        self.random() % (self.config.peer_timeout_ms / 2 + 1)
    }

    pub(super) fn set_status(&mut self, status: Status, out: &mut Effects) {
        if self.status != status {
            self.status = status;
            out.push(Effect::Status(status));
        }
    }

    /// Writes the promises when they have changed. One write is under way at a time.
    pub(super) fn persist(&mut self, out: &mut Effects) {
        if self.persisting.is_none() && self.epochs != self.persisted {
            self.persisting = Some(self.epochs);
            out.push(Effect::PersistEpochs(self.epochs));
        }
    }

    pub(super) fn epochs_durable(&mut self) {
        if let Some(written) = self.persisting.take() {
            self.persisted = written;
        }
    }

    /// Whether the promise of at least `epochs.accepted` may be answered for.
    pub(super) fn promise_durable(&self) -> bool {
        self.persisted.accepted >= self.epochs.accepted || planted!(self.config, PromiseBeforeDurable)
    }

    /// Whether the disk says which ensemble the log belongs to.
    pub(super) fn ensemble_durable(&self) -> bool {
        let ensemble = |epochs: &Epochs| (epochs.cluster, epochs.fork);
        ensemble(&self.persisted) == ensemble(&self.epochs)
    }

    /// Becomes a new server of another ensemble, one that has not logged anything: see "New ensembles" in
    /// [`super`].
    pub(super) fn take_over(&mut self, ensemble: &EnsembleId) {
        debug_assert!(self.is_blank());
        let EnsembleId { cluster, fork, .. } = *ensemble;
        self.epochs = Epochs { cluster, fork, current: Epoch(0), initialized: false, ..self.epochs };
    }

    pub(super) fn append(&mut self, batch: Batch, out: &mut Effects) {
        self.log.append(&batch);
        out.push(Effect::Append(batch));
    }

    /// Commits; all learners that this server feeds have been sent everything up to `sent_to_all`.
    pub(super) fn commit_upto(&mut self, upto: Zxid, sent_to_all: Zxid, out: &mut Effects) {
        if upto > self.commit {
            self.commit = upto;
            self.log.trim(upto, sent_to_all);
            out.push(Effect::Commit { upto });
        }
    }

    /// The disk has run full, or has room again.
    pub(super) fn set_room(&mut self, room: bool) {
        self.full_since_ms = if room { None } else { self.full_since_ms.or(Some(self.now_ms)) };
    }

    /// Whether a part of the log waits for room on the disk: this server could adopt no epoch now that begins
    /// with it.
    pub(super) fn is_stuck(&self) -> bool {
        self.full_since_ms.is_some() && self.log.durable() < self.log.last().zxid
    }

    /// Any candidate is better.
    pub(super) fn blank_vote(&self) -> Vote {
        Vote { epoch: Epoch(0), zxid: Zxid::ZERO, leader: self.me() }
    }

    /// The server's own history. One that has lost a part of it stands for nothing: see "Damaged logs" in
    /// [`super`].
    pub(super) fn own_vote(&self) -> Vote {
        if self.is_damaged() {
            return self.blank_vote();
        }
        Vote { epoch: self.epochs.current, zxid: self.log.last().zxid, leader: self.me() }
    }

    /// Whether a part of the log was lost that this server may have acknowledged.
    pub(super) fn is_damaged(&self) -> bool {
        self.epochs.claim > Zxid::ZERO
    }

    /// The end of what this server has ever logged and not cut on a leader's word, whether it still has it or
    /// not.
    pub(super) fn claimed(&self) -> Zxid {
        self.log.last().zxid.max(self.epochs.claim)
    }

    /// Nothing has ever been logged here.
    pub(super) fn is_blank(&self) -> bool {
        self.claimed() == Zxid::ZERO
    }

    pub(super) fn notification(&self, state: PeerState, vote: Vote) -> Message {
        Message::Notification(Notification {
            state,
            round: self.round,
            vote,
            own: Vote { epoch: self.epochs.current, zxid: self.claimed(), leader: self.me() },
            ensemble: self.ensemble(),
            initialized: self.epochs.initialized,
            founds: self.founds(),
        })
    }

    /// The ensemble that this server belongs to.
    pub(super) fn ensemble(&self) -> EnsembleId {
        let Epochs { cluster, fork, .. } = self.epochs;
        EnsembleId { cluster, fork, voters: *self.config.quorum.voters() }
    }

    /// Whether this server may be one of those who found an ensemble: it has nothing, and never had an
    /// ensemble.
    pub(super) fn founds(&self) -> bool {
        let new = !self.epochs.initialized && self.epochs.cluster == 0 && self.is_blank();
        new && self.config.founding != Founding::Never
    }

    /// A connection came or went.
    pub(super) fn connections_changed(&mut self) {
        let present = self.connected.iter().chain([self.me()]).collect();
        let quorum = self.config.quorum.is_quorum(&present);
        self.heard.retain(|peer, _| self.connected.contains(*peer));
        self.quorum_since_ms = quorum.then(|| self.quorum_since_ms.unwrap_or(self.now_ms));
    }

    /// Notes what a peer says of itself.
    pub(super) fn note(&mut self, peer: ServerId, heard: Heard) {
        self.ensemble_seen |= self.config.is_voter(peer) && (heard.ensemble.cluster != 0 || !heard.blank);
        self.heard.insert(peer, heard);
    }

    /// Whether a voter goes by the same list of voters, so that it and this server may count on each other.
    pub(super) fn agrees_with(&self, ensemble: &EnsembleId) -> bool {
        ensemble.voters == *self.config.quorum.voters()
    }

    /// This server serves under its list of voters, which a quorum shares: from now on it is the folder's.
    pub(super) fn settle_voters(&mut self) {
        self.epochs.voters = *self.config.quorum.voters();
    }

    /// This server's own part in a decision.
    pub(super) fn member(&self) -> Member {
        let Epochs { initialized, cluster, .. } = self.epochs;
        let (blank, founds) = (self.is_blank(), self.founds());
        Member { id: self.me(), initialized, blank, founds, belongs: cluster != 0 }
    }

    /// Whether a server belongs to another ensemble, or to another fork of this one.
    ///
    /// A first election that was interrupted may leave several ensembles behind, of which nothing is known
    /// but their names. So a server without data that belongs to another one is a server with a new disk, not
    /// a stranger.
    pub(super) fn is_elsewhere(&self, ensemble: &EnsembleId) -> bool {
        let EnsembleId { cluster, fork, .. } = *ensemble;
        let own = (self.epochs.cluster, self.epochs.fork);
        cluster != 0 && own.0 != 0 && (cluster, fork) != own
    }

    /// Whether these voters may decide on a leader and its history; see "New disks" and "New ensembles" in
    /// [`super`].
    pub(super) fn may_decide(&self, members: impl Iterator<Item = Member>) -> Decision {
        let (mut all, mut initialized) = (ServerSet::EMPTY, ServerSet::EMPTY);
        let (mut blank, mut founders) = (true, true);
        for member in members {
            all.insert(member.id);
            if member.initialized {
                initialized.insert(member.id);
            }
            // One that neither founds nor belongs to an ensemble may have lost what it had: it waits for one.
            blank &= member.blank && (member.initialized || member.founds || member.belongs);
            founders &= member.founds;
        }
        let quorum = &self.config.quorum;
        if quorum.is_quorum(&initialized) {
            return Decision::Quorum;
        }
        let everyone = quorum.voters().is_subset(&all);
        if everyone && (blank || quorum.is_blocking(&initialized)) {
            return Decision::Everyone;
        }
        if founders && quorum.is_quorum(&all) && self.may_found_with(&all) {
            return Decision::Founding;
        }
        Decision::No
    }

    /// Whether a majority of new servers may do without the voters that are not among them.
    fn may_found_with(&self, founders: &ServerSet) -> bool {
        let voters = self.config.quorum.voters();
        let all_connected_agree = self.connected.intersection(voters).is_subset(founders);
        let waited_ms = self.quorum_since_ms.map_or(0, |since_ms| self.now_ms - since_ms);
        let patient = self.config.founding == Founding::AtOnce || waited_ms >= self.config.init_limit_ms;
        all_connected_agree && patient && !self.ensemble_seen
    }
}

/// Outcome of [`Core::may_decide`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    No,
    /// Servers that remember everything form a quorum.
    Quorum,
    /// All voters are here, and nothing committed can be on a lost disk alone.
    Everyone,
    /// A majority of new servers, when nobody else is to be heard.
    Founding,
}
