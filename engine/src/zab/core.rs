//! The state that every role of a server uses: its promises, its log, its clock and its connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use ringkeeper_frame::Batch;
use ringkeeper_wire::{Epoch, ServerId, Zxid};

use super::abandonment::Abandoned;
use super::config::{Config, Durable, Epochs, Founding};
use super::effects::{Alarm, Departure, Effect, Effects, Status};
use super::history::History;
use super::membership::{Membership, NAMED_BY_LOG};
use super::message::{Doubt, EnsembleId, Known, Message, Notification, PeerState, Standing, Vote};
use super::quorum::{Joint, Quorum, QuorumSystem, ServerSet};
use crate::mutation::planted;

/// The position that all learners were sent, when none is fed from the log.
pub(super) const NO_STREAMING_LEARNER: Zxid = Zxid(u64::MAX);

/// How long a server without clients is still told of each commit at once: clients come and go.
const USERS_LINGER_MS: u64 = 1000;

/// Epochs that elections may have used up while a server was away.
const EPOCHS_SKIPPED_MAX: u32 = 1 << 20;
/// The last epoch that a peer may name: far enough from the sign bit of a zxid.
const EPOCH_MAX: u32 = i32::MAX.cast_unsigned() - EPOCHS_SKIPPED_MAX;

/// Whether there are elections left, as many as a server may miss, for an ensemble that has come to `epoch`.
#[must_use]
pub const fn leaves_epochs(epoch: Epoch) -> bool {
    epoch.0 < EPOCH_MAX - EPOCHS_SKIPPED_MAX
}

/// Earlier processes of a peer that are remembered.
const PROCESSES_MAX: usize = 8;
/// How long a process is told of another one with its id that was heard of. Two that run take each other's
/// connections, so both are heard of again within seconds.
const RIVAL_MS: u64 = 60_000;

/// A role change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    /// Look for a leader, excluding one candidate for a round where that helps.
    Look(Departure, Option<ServerId>),
    Follow(ServerId),
    Lead,
}

/// A voter that counts in a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) id: ServerId,
    /// See [`Epochs::initialized`].
    pub(super) initialized: bool,
    /// Its log is empty.
    pub(super) blank: bool,
    /// It may found an ensemble.
    pub(super) founds: bool,
    /// It belongs to an ensemble, this one or another.
    pub(super) belongs: bool,
}

/// The processes that have run with one id.
#[derive(Debug, Default)]
struct Processes {
    /// Their numbers, the latest last.
    numbers: Vec<u64>,
    /// Since when the latest is known.
    since_ms: u64,
    /// When one that is not the latest was heard last, later than what it had under way when it ended: two
    /// run at the same time.
    rival_ms: Option<u64>,
}

impl Processes {
    /// A process is heard, which may have been under way for `way_max_ms`.
    fn heard(&mut self, process: u64, now_ms: u64, way_max_ms: u64) {
        if !self.numbers.contains(&process) {
            self.numbers.push(process);
            let before = self.numbers.len().saturating_sub(PROCESSES_MAX);
            self.numbers.drain(..before);
            self.since_ms = now_ms;
        }
        if !self.is_latest(process) && now_ms > self.since_ms + way_max_ms {
            self.rival_ms = Some(now_ms);
        }
    }

    fn is_latest(&self, process: u64) -> bool {
        self.numbers.last() == Some(&process)
    }
}

/// A change of the members that this server has in its log, and does not know to be committed.
#[derive(Clone, Debug)]
pub(super) struct PendingChange {
    /// Its transaction.
    pub(super) since: Zxid,
    /// The quorums before it.
    pub(super) before: QuorumSystem,
    /// Those after it.
    pub(super) after: QuorumSystem,
}

#[derive(Debug)]
pub(super) struct Core {
    pub(super) config: Config,
    /// Time since the start, without pauses of this process. Never decreases, whatever the shell's clock
    /// does.
    pub(super) now_ms: u64,
    shell_ms: Option<u64>,
    rng: ChaCha8Rng,
    pub(super) connected: ServerSet,
    /// Since when a quorum of voters, with this server, is connected.
    quorum_since_ms: Option<u64>,
    /// Some voter belongs to an ensemble, so no new one may be founded.
    ensemble_seen: bool,
    /// What the connected peers have reported about themselves.
    pub(super) heard: BTreeMap<ServerId, Standing>,
    /// Those among them that do not count, and why.
    doubts: BTreeMap<ServerId, Doubt>,
    /// What learners have acknowledged to this process while it led, when they were last heard.
    acknowledged: BTreeMap<ServerId, Known>,
    /// The processes that each peer was.
    processes: BTreeMap<ServerId, Processes>,
    /// Tells this process from others with the same id.
    process: u64,
    /// The current promises, perhaps not durable yet.
    pub(super) epochs: Epochs,
    /// The promises on disk.
    pub(super) persisted: Epochs,
    persisting: Option<Epochs>,
    pub(super) log: History,
    /// What the log says of members, as far as this server has it.
    membership: Option<Membership>,
    /// Whether that is known. A server decides nothing without.
    membership_known: bool,
    /// The quorums that decide, by this server's log.
    pub(super) quorum: Arc<dyn Quorum>,
    /// The change of the members that is not known to be committed.
    pending: Option<PendingChange>,
    /// What this server has given up as a leader.
    pub(super) abandoned: Option<Abandoned>,
    /// How often they were found anew.
    pub(super) weighed: u64,
    /// Everything up to here is committed and was delivered.
    pub(super) commit: Zxid,
    /// The same, as peers have told this server: it delivers nothing because of that.
    committed_elsewhere: Zxid,
    commit_recorded_ms: u64,
    /// End of the log from which this server's state was recovered. The state contains everything up to here,
    /// so it must not be served before that is committed.
    pub(super) recovered: Zxid,
    /// Time since which an append waits for room on the disk, if one does.
    pub(super) full_since_ms: Option<u64>,
    /// Number of the last election.
    pub(super) round: u64,
    pub(super) status: Status,
    /// Requests of this server wait for the end of a hand-over. Until then all that it has passed on is
    /// answered.
    pub(super) paused: bool,
    /// This server goes over to the successor of a hand-over, or is it.
    pub(super) moved: bool,
    /// Until then it takes part in no election: see `lease.rs`.
    pub(super) leased_until_ms: u64,
    /// The versions of the messages that peers speak.
    pub(super) versions: BTreeMap<ServerId, u8>,
    /// When clients of this server last waited to hear of commits.
    pub(super) users_at_ms: u64,
    /// How many masters this observer has tried since it last served: see `observer_master.rs`.
    pub(super) masters_tried: usize,
    /// When this observer heard of the first one since then.
    pub(super) masters_since_ms: Option<u64>,
}

impl Core {
    pub(super) fn new(config: Config, durable: Durable, seed: u64) -> Self {
        let mut epochs = durable.epochs;
        epochs.initialized |= planted!(config, WipedServerVotes);
        if planted!(config, DamagedServerVotes) {
            epochs.end_before_damage = Zxid::ZERO;
        }
        let persisted = epochs;
        let leased_until_ms = if planted!(config, ForgetLease) { 0 } else { epochs.lease_ms };
        let (commit, recovered) = (durable.log.snapshot(), durable.log.last().zxid);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut core = Self {
            process: rng.next_u64(),
            rng,
            log: History::new(durable.log, &config),
            membership: config.membership.clone(),
            membership_known: true,
            quorum: Arc::new(config.quorum.clone()),
            pending: None,
            abandoned: None,
            weighed: 0,
            config,
            now_ms: 0,
            shell_ms: None,
            connected: ServerSet::EMPTY,
            quorum_since_ms: None,
            ensemble_seen: false,
            heard: BTreeMap::new(),
            doubts: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            processes: BTreeMap::new(),
            epochs,
            persisted,
            persisting: None,
            commit,
            committed_elsewhere: Zxid::ZERO,
            commit_recorded_ms: 0,
            recovered,
            full_since_ms: None,
            round: 0,
            status: Status::Looking,
            paused: false,
            moved: false,
            leased_until_ms,
            versions: BTreeMap::new(),
            users_at_ms: 0,
            masters_tried: 0,
            masters_since_ms: None,
        };
        core.weigh();
        // What is lost matters to the other voters only. Without any, nobody has the lost part.
        if core.quorum.voters().iter().eq([core.me()]) {
            core.epochs.end_before_damage = Zxid::ZERO;
        }
        core
    }

    pub(super) const fn me(&self) -> ServerId {
        self.config.id
    }

    /// Whether clients of this server wait to hear of commits, or did a moment ago: another may come.
    pub(super) const fn has_users(&self) -> bool {
        self.now_ms < self.users_at_ms + USERS_LINGER_MS
    }

    /// Whether a peer speaks this version of the messages, or a newer one.
    pub(super) fn speaks(&self, peer: ServerId, since: u8) -> bool {
        self.versions.get(&peer).is_some_and(|version| *version >= since)
    }

    /// Whether a server's acks and promises count here.
    pub(super) fn is_voter(&self, id: ServerId) -> bool {
        self.quorum.voters().contains(id)
    }

    /// Whether a server may be a candidate: also one that has become a voter by a change that this server has
    /// yet to learn. Without this server's promise it may be unable to lead, and to let it learn.
    pub(super) fn takes_part(&self, id: ServerId) -> bool {
        let claims = |heard: &Standing| {
            let voters = heard.ensemble.voters;
            voters.contains(NAMED_BY_LOG) && voters.contains(id) && !self.is_foreign(&heard.ensemble)
        };
        self.is_voter(id) || (self.config.admits_joiners && self.heard.get(&id).is_some_and(claims))
    }

    /// Whether this server has a vote.
    pub(super) fn votes(&self) -> bool {
        self.is_voter(self.me())
    }

    fn is_observer(&self, id: ServerId) -> bool {
        self.membership.as_ref().map_or(self.config.observers, |logged| logged.observers).contains(id)
    }

    /// Whether this server is to learn from a follower rather than from the leader.
    pub(super) fn prefers_masters(&self) -> bool {
        self.config.observer_masters && self.is_observer(self.me()) && !self.votes()
    }

    /// Whether a peer may talk to this server.
    pub(super) fn knows(&self, peer: ServerId) -> bool {
        let member = self.is_voter(peer) || self.is_observer(peer) || self.config.admits_joiners;
        peer != self.me() && member && peer.0 <= ServerSet::ID_MAX
    }

    /// The log names these members from now on, or none any more; `None` while that is not known, since the
    /// state is read anew.
    pub(super) fn set_membership(&mut self, known: Option<Option<Membership>>) {
        self.membership_known = known.is_some();
        if let Some(membership) = known {
            self.membership = membership;
            self.weigh();
        }
    }

    /// Finds the quorums that decide: see `membership.rs`.
    fn weigh(&mut self) {
        self.weighed += 1;
        self.pending = None;
        let (now, before) = self.systems();
        let (now, before) = (now.clone(), before.cloned());
        let of_one_kind = |before: &QuorumSystem| (before.groups() == 0) == (now.groups() == 0);
        self.quorum = match before {
            Some(before) if planted!(self.config, OldQuorumAlone) => Arc::new(before),
            Some(_) if planted!(self.config, NewQuorumAlone) => Arc::new(now),
            Some(before) if planted!(self.config, NewKindAlone) && !of_one_kind(&before) => Arc::new(now),
            Some(before) => {
                let since = self.membership.as_ref().map_or(Zxid::ZERO, |membership| membership.since);
                self.pending = Some(PendingChange { since, before: before.clone(), after: now.clone() });
                Arc::new(Joint::new(before, now))
            }
            None => Arc::new(now),
        };
        // Once the log names the members for good, the configuration does so no more at the next start. And a
        // build that knows no groups must not take the folder for one of majorities.
        let for_good = self.pending.is_none() && !self.epochs.voters.contains(NAMED_BY_LOG);
        if self.membership.is_some() && (for_good || self.groups() > 0 || self.epochs.groups > 0) {
            self.settle_voters();
        }
        // Nor must one that cannot read several addresses go by its configuration instead.
        if let Some(logged) = &self.membership {
            let pending = logged.since > self.known_committed();
            let before = self.epochs.several_addresses && pending;
            self.epochs.several_addresses = logged.several_addresses || before;
        }
        self.connections_changed();
    }

    /// The change of the members that is not known to be committed.
    pub(super) fn pending_change(&self) -> Option<PendingChange> {
        self.pending.clone()
    }

    /// The voters and their quorums by this server's log, or else by its configuration; and those before, as
    /// long as it does not know that the change is committed.
    pub(super) fn systems(&self) -> (&QuorumSystem, Option<&QuorumSystem>) {
        match &self.membership {
            None => (&self.config.quorum, None),
            Some(Membership { since, voters, before, .. }) => {
                let before = before.as_ref().unwrap_or(&self.config.quorum);
                (voters, Some(before).filter(|_| *since > self.known_committed()))
            }
        }
    }

    /// Tells groups and weights apart that decide, see [`QuorumSystem::groups`].
    fn groups(&self) -> u64 {
        let (now, before) = self.systems();
        if now.groups() > 0 { now.groups() } else { before.map_or(0, QuorumSystem::groups) }
    }

    /// Everything up to here is committed, of what this server has.
    fn known_committed(&self) -> Zxid {
        self.commit.max(self.epochs.committed).max(self.committed_elsewhere)
    }

    /// A peer knows that everything up to `upto` is committed. What this server has of the epoch it is in is
    /// a part of that, since it came from the same leader; of other epochs nothing is known here.
    pub(super) fn hear_committed(&mut self, upto: Zxid) {
        let own = self.log.end_of(upto.epoch()).map(|end| end.zxid.min(upto));
        if let Some(own) = own.filter(|own| *own > self.committed_elsewhere) {
            self.committed_elsewhere = own;
            self.weigh();
        }
    }

    /// The state up to here was handed up, or is committed.
    pub(super) fn set_commit(&mut self, upto: Zxid) {
        let crosses =
            self.membership.as_ref().is_some_and(|logged| self.commit < logged.since && logged.since <= upto);
        self.commit = self.commit.max(upto);
        if crosses {
            self.weigh();
        }
    }

    /// Advances the clock. A step backwards counts as no time, a long one as [`Config::step_max_ms`]: after a
    /// pause, for want of a CPU perhaps, this server must first read what its peers have sent before it
    /// considers them silent. Otherwise followers on an overloaded machine would leave a healthy leader and
    /// disconnect their clients. Only timeouts depend on this clock.
    pub(super) fn advance_clock(&mut self, shell_ms: u64) {
        let before = self.shell_ms.replace(shell_ms).unwrap_or(shell_ms);
        self.now_ms += shell_ms.saturating_sub(before).min(self.config.step_max_ms());
    }

    /// The time by the shell's clock, pauses included.
    pub(super) const fn shell_ms(&self) -> u64 {
        match self.shell_ms {
            Some(shell_ms) => shell_ms,
            None => 0,
        }
    }

    pub(super) fn random(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// Random delay of up to half a peer timeout, so that servers do not stay in step with each other.
    pub(super) fn jitter_ms(&mut self) -> u64 {
        self.random() % (self.config.peer_timeout_ms / 2 + 1)
    }

    pub(super) fn set_status(&mut self, status: Status, out: &mut Effects) {
        if self.status != status {
            self.status = status;
            self.paused = false;
            if status != Status::Looking {
                (self.masters_tried, self.masters_since_ms) = (0, None);
            }
            if std::mem::take(&mut self.moved) && status != Status::Looking {
                out.push(Effect::HandedOver);
            }
            out.push(Effect::Status(status));
        }
    }

    /// Writes the promises when they have changed. One write is under way at a time.
    pub(super) fn persist(&mut self, out: &mut Effects) {
        let due_ms = self.commit_recorded_ms + self.config.commit_record_ms;
        let commit_due = self.now_ms >= due_ms && self.commit > self.epochs.committed;
        if self.persisting.is_none() && (commit_due || self.epochs != self.persisted) {
            self.commit_recorded_ms = self.now_ms;
            self.epochs.committed = self.commit.min(self.log.durable()).max(self.epochs.committed);
            self.persisting = Some(self.epochs);
            out.push(Effect::PersistEpochs(self.epochs));
        }
    }

    pub(super) fn epochs_durable(&mut self) {
        if let Some(written) = self.persisting.take() {
            self.persisted = written;
        }
    }

    /// Whether the promise of `epochs.accepted` is durable, so that it may be sent.
    pub(super) fn promise_durable(&self) -> bool {
        self.persisted.accepted >= self.epochs.accepted || planted!(self.config, PromiseBeforeDurable)
    }

    /// Whether the ensemble's number and fork are durable.
    pub(super) fn ensemble_durable(&self) -> bool {
        let ensemble = |epochs: &Epochs| (epochs.cluster, epochs.fork);
        ensemble(&self.persisted) == ensemble(&self.epochs)
    }

    /// The log is not cut before this. A damaged log may show again what was cut off before something later
    /// was committed.
    pub(super) fn never_cut(&self) -> Zxid {
        let recorded = if self.is_damaged() { Zxid::ZERO } else { self.epochs.committed };
        self.commit.max(recorded).max(self.log.floor())
    }

    /// Joins another ensemble as a server with a new disk. Only for a server that has logged nothing: see
    /// "New ensembles" in [`super`].
    pub(super) fn take_over(&mut self, ensemble: &EnsembleId) {
        debug_assert!(self.is_blank());
        let EnsembleId { cluster, fork, .. } = *ensemble;
        let Epochs { accepted, voters, groups, several_addresses, .. } = self.epochs;
        let Epochs { end_before_damage, lease_ms, .. } = self.epochs;
        let kept = Epochs { accepted, voters, groups, several_addresses, ..Epochs::default() };
        let kept = Epochs { end_before_damage, lease_ms, ..kept };
        self.epochs = Epochs { cluster, fork, ..kept };
    }

    pub(super) fn append(&mut self, batch: Batch, out: &mut Effects) {
        self.log.append(&batch);
        out.push(Effect::Append(batch));
    }

    /// Advances the committed position. All learners fed from the log were sent everything up to
    /// `sent_to_all`.
    pub(super) fn commit_upto(&mut self, upto: Zxid, sent_to_all: Zxid, out: &mut Effects) {
        if upto > self.commit {
            self.set_commit(upto);
            self.log.trim(upto, sent_to_all);
            out.push(Effect::Commit { upto });
        }
    }

    /// The disk has run full, or has room again.
    pub(super) fn set_disk_full(&mut self, full: bool) {
        self.full_since_ms = if full { self.full_since_ms.or(Some(self.now_ms)) } else { None };
    }

    /// Whether a part of the log, or the server's epochs, wait for room on the disk. Until they are durable,
    /// this server cannot adopt an epoch whose history contains that part, or lead one.
    pub(super) fn is_stuck(&self) -> bool {
        let epochs = |epochs: &Epochs| (epochs.accepted, epochs.current);
        self.full_since_ms.is_some()
            && (self.log.durable() < self.log.last().zxid || epochs(&self.persisted) != epochs(&self.epochs))
    }

    /// A vote that loses to every candidate.
    pub(super) fn blank_vote(&self) -> Vote {
        Vote { epoch: Epoch(0), zxid: Zxid::ZERO, leader: self.me() }
    }

    /// A vote for this server with its own history. A server that has lost a part of its log is no candidate:
    /// see "Damaged logs" in [`super`].
    pub(super) fn own_vote(&self) -> Vote {
        if self.is_damaged() {
            return self.blank_vote();
        }
        Vote { epoch: self.epochs.current, zxid: self.log.last().zxid, leader: self.me() }
    }

    /// Whether a part of the log is lost that this server may have acknowledged.
    pub(super) fn is_damaged(&self) -> bool {
        self.epochs.end_before_damage > Zxid::ZERO
    }

    /// The end of everything that this server has logged and no leader has truncated, even if it is lost
    /// since.
    pub(super) fn last_logged(&self) -> Zxid {
        self.log.last().zxid.max(self.epochs.end_before_damage)
    }

    /// Whether this server may be left over from a founding that came to nothing: it has no data, and serves
    /// nobody.
    pub(super) fn is_left_over(&self) -> bool {
        self.is_blank() && self.status == Status::Looking
    }

    /// Whether this server has never logged anything.
    pub(super) fn is_blank(&self) -> bool {
        self.last_logged() == Zxid::ZERO
    }

    pub(super) fn notification(&self, state: PeerState, vote: Vote, to: ServerId) -> Message {
        let (round, own, doubt) = (self.round, self.standing(), self.doubt(to));
        let serves = self.status != Status::Looking;
        let committed = self.known_committed();
        Message::Notification(Notification { state, round, vote, own, serves, committed, doubt })
    }

    /// What this server says of itself.
    pub(super) fn standing(&self) -> Standing {
        let Epochs { accepted, current, leader, initialized, .. } = self.epochs;
        Standing {
            accepted,
            current,
            led_by: leader,
            last: self.last_logged(),
            ensemble: self.ensemble(),
            initialized,
            founds: self.founds(),
            process: self.process,
        }
    }

    /// The ensemble that this server belongs to.
    pub(super) fn ensemble(&self) -> EnsembleId {
        let Epochs { cluster, fork, .. } = self.epochs;
        EnsembleId { cluster, fork, voters: self.named_voters(), groups: self.groups() }
    }

    /// Whether this server may found an ensemble: it has no data and never belonged to one.
    pub(super) fn founds(&self) -> bool {
        let new = !self.epochs.initialized && self.epochs.cluster == 0 && self.is_blank();
        new && self.config.founding != Founding::Never
    }

    /// A connection came or went.
    pub(super) fn connections_changed(&mut self) {
        let present = self.connected.iter().chain([self.me()]).collect();
        let quorum = self.quorum.is_quorum(&present);
        self.heard.retain(|peer, _| self.connected.contains(*peer));
        self.doubts.retain(|peer, _| self.connected.contains(*peer));
        self.quorum_since_ms = quorum.then(|| self.quorum_since_ms.unwrap_or(self.now_ms));
    }

    /// Records what a peer reports about itself.
    pub(super) fn note(&mut self, peer: ServerId, heard: Standing) {
        self.ensemble_seen |= self.is_voter(peer) && (heard.ensemble.cluster != 0 || !heard.is_blank());
        let way_max_ms = self.config.peer_timeout_ms;
        self.processes.entry(peer).or_default().heard(heard.process, self.now_ms, way_max_ms);
        self.heard.insert(peer, heard);
        // Not later: this server may hear of what the peer does before it hears from the peer again.
        match self.find_doubt(peer, &heard) {
            Some(doubt) => self.doubts.insert(peer, doubt),
            None => self.doubts.remove(&peer),
        };
    }

    /// Whether what a peer says of itself keeps it from being listened to. It is told. One with an old copy
    /// of its folder tells the operator itself: what it said may be from before it did what is known. So may
    /// what a process said that another one has replaced.
    pub(super) fn refuses(&self, peer: ServerId, heard: &Standing, out: &mut Effects) -> bool {
        let epoch = heard.current;
        let same = epoch > Epoch(0) && epoch == self.epochs.current && !self.is_foreign(&heard.ensemble);
        let led = heard.led_by.zip(self.epochs.leader);
        let alarm = match self.doubt(peer) {
            Some(Doubt::Replaced) if self.are_two(peer) => Alarm::SecondProcess { server: peer },
            Some(Doubt::OldCopy(_) | Doubt::Replaced) => return true,
            Some(Doubt::Contested) | None if self.is_beyond_reason(heard.accepted) => {
                Alarm::EpochBeyondReason { peer, epoch: heard.accepted }
            }
            Some(Doubt::Contested) | None if same && led.is_some_and(|(theirs, ours)| theirs != ours) => {
                Alarm::EpochLedTwice { peer, epoch }
            }
            Some(Doubt::Contested) | None => return false,
        };
        out.push(Effect::Alarm(alarm));
        true
    }

    /// What this server knows of a peer that the peer does not know.
    pub(super) fn doubt(&self, peer: ServerId) -> Option<Doubt> {
        self.doubts.get(&peer).copied()
    }

    fn find_doubt(&self, peer: ServerId, heard: &Standing) -> Option<Doubt> {
        let processes = self.processes.get(&peer)?;
        if !processes.is_latest(heard.process) {
            return Some(Doubt::Replaced);
        }
        let contested = || self.are_two(peer).then_some(Doubt::Contested);
        self.find_old_copy(peer, heard).map(Doubt::OldCopy).or_else(contested)
    }

    /// Whether two processes with the peer's id were heard of late.
    fn are_two(&self, peer: ServerId) -> bool {
        let rival_ms = self.processes.get(&peer).and_then(|processes| processes.rival_ms);
        rival_ms.is_some_and(|heard_ms| self.now_ms <= heard_ms + RIVAL_MS)
    }

    /// What a peer is known to have had on its disk, if it lacks that.
    fn find_old_copy(&self, peer: ServerId, heard: &Standing) -> Option<Known> {
        if !heard.initialized || self.is_foreign(&heard.ensemble) || planted!(self.config, OldCopyVotes) {
            return None;
        }
        let adopted = Known { epoch: self.epochs.current, zxid: Zxid::ZERO };
        let adopted = Some(adopted).filter(|_| self.epochs.members.contains(peer));
        let former = Known { epoch: self.epochs.former, zxid: Zxid::ZERO };
        let former = Some(former).filter(|_| self.epochs.former_members.contains(peer));
        let mut known = self.acknowledged.get(&peer).copied().into_iter().chain(adopted).chain(former);
        known.find(|known| heard.lacks(*known))
    }

    /// A peer knows something of this server. If its folder is an old copy, this server is from now on like
    /// one with a damaged log, and like one with a new disk. `None` if the server counts for the peer all the
    /// same.
    pub(super) fn take_doubt(&mut self, peer: ServerId, doubt: Doubt, out: &mut Effects) -> Option<Next> {
        match doubt {
            Doubt::Replaced => out.push(Effect::Alarm(Alarm::SecondProcess { server: self.me() })),
            Doubt::Contested => {
                out.push(Effect::Alarm(Alarm::SecondProcess { server: self.me() }));
                return None;
            }
            Doubt::OldCopy(known) if self.epochs.initialized && self.standing().lacks(known) => {
                out.push(Effect::Alarm(Alarm::OldCopy { told_by: peer, known }));
                self.epochs.initialized = false;
                self.epochs.end_before_damage = self.last_logged().max(known.zxid).max(Zxid(1));
                return Some(Next::Look(Departure::OldCopy(peer), None));
            }
            Doubt::OldCopy(_) => return None,
        }
        Some(Next::Stay)
    }

    /// A learner that had adopted `epoch` is gone, or its leader leads no more.
    pub(super) fn note_acknowledged(&mut self, peer: ServerId, epoch: Epoch, upto: Zxid) {
        self.acknowledged.insert(peer, Known { epoch, zxid: upto });
    }

    /// What comes behind `after` in the epoch was given up: a server that lacks it has no old copy.
    pub(super) fn lower_acknowledged(&mut self, epoch: Epoch, after: Zxid) {
        let of_epoch = self.acknowledged.values_mut().filter(|known| known.epoch == epoch);
        of_epoch.for_each(|known| known.zxid = known.zxid.min(after));
    }

    /// Whether an epoch cannot come from any number of elections: it would use up those that are left.
    pub(super) fn is_beyond_reason(&self, epoch: Epoch) -> bool {
        let accepted = self.epochs.accepted;
        let jumps = accepted > Epoch(0) && epoch.0 > accepted.0.saturating_add(EPOCHS_SKIPPED_MAX);
        jumps || epoch.0 > EPOCH_MAX
    }

    /// Adopts an epoch.
    pub(super) fn adopt(&mut self, epoch: Epoch, leader: ServerId, ensemble: &EnsembleId) {
        let members: ServerSet = [self.me()].into_iter().collect();
        if !self.epochs.members.is_subset(&members) {
            (self.epochs.former, self.epochs.former_members) = (self.epochs.current, self.epochs.members);
        }
        let EnsembleId { cluster, fork, .. } = *ensemble;
        let adopted = Epochs { current: epoch, leader: Some(leader), members, cluster, fork, ..self.epochs };
        self.epochs = Epochs { initialized: true, end_before_damage: Zxid::ZERO, ..adopted };
    }

    /// Whether a peer has the same list of voters, in the same groups, so that the two may count in each
    /// other's decisions.
    ///
    /// Members that the log names are the same for all who have the log: see `membership.rs`.
    pub(super) fn agrees_with(&self, ensemble: &EnsembleId) -> bool {
        let mut theirs = ensemble.voters;
        theirs.remove(NAMED_BY_LOG);
        let same = theirs == *self.quorum.voters() && ensemble.groups == self.groups();
        self.membership.is_some() || same
    }

    /// Whether a vote of a member of this ensemble counts in an election here. Also if only its log names the
    /// members: they may need this server's vote for the change by which it becomes a voter, which it has yet
    /// to learn.
    pub(super) fn heeds(&self, ensemble: &EnsembleId) -> bool {
        let by_log = ensemble.voters.contains(NAMED_BY_LOG) && !self.is_foreign(ensemble);
        self.agrees_with(ensemble) || (self.config.admits_joiners && by_log)
    }

    /// The voters, and whether the log names them.
    fn named_voters(&self) -> ServerSet {
        let mut voters = *self.quorum.voters();
        if self.membership.is_some() {
            voters.insert(NAMED_BY_LOG);
        }
        voters
    }

    /// Records the configured voters as those of the folder, since this server serves and a quorum has the
    /// same list.
    pub(super) fn settle_voters(&mut self) {
        self.epochs.voters = self.named_voters();
        self.epochs.groups = self.groups();
    }

    /// This server as a member of a decision.
    pub(super) fn member(&self) -> Member {
        let Epochs { initialized, cluster, .. } = self.epochs;
        let (blank, founds) = (self.is_blank(), self.founds());
        Member { id: self.me(), initialized, blank, founds, belongs: cluster != 0 }
    }

    /// Whether a server belongs to another ensemble, or to another fork of this one.
    ///
    /// An interrupted founding may leave several ensemble numbers behind, without data. So a server without
    /// data that has another number is treated as one with a new disk, not as a foreign one.
    pub(super) fn is_foreign(&self, ensemble: &EnsembleId) -> bool {
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
            // A blank server that neither founds nor belongs to an ensemble may have lost its data: it has to
            // wait.
            blank &= member.blank && (member.initialized || member.founds || member.belongs);
            founders &= member.founds;
        }
        let quorum = &self.quorum;
        if !self.membership_known {
            return Decision::No;
        }
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

    /// Whether a majority of new servers may found an ensemble without the other voters.
    fn may_found_with(&self, founders: &ServerSet) -> bool {
        let voters = self.quorum.voters();
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
    /// A quorum of initialized servers.
    Quorum,
    /// All voters: nothing committed can have been on a lost disk alone.
    Everyone,
    /// A majority of new servers, with no other voter heard from.
    Founding,
}
