//! A server that follows a leader: discovery, synchronization and broadcast from the learner's side.
//!
//! Everything here waits for the disk before it is sent: the promise is durable before AckEpoch, the leader's
//! history before the epoch is adopted, the adoption before the first ack that counts.

use ringkeeper_wire::{Epoch, ServerId, Zxid};

use super::core::{Core, Next};
use super::effects::{Alarm, Departure, Effect, Effects, Input, Status};
use super::history::LogOperation;
use super::message::{
    Ack, AckEpoch, Doubt, EnsembleId, HandOverStep, Message, Notification, PeerState, Ping, Pong, Propose,
    Standing, Sync, SyncPlan, Vote,
};
use super::observer_master::{Following, OBSERVER_MASTERS_SINCE, ObserverMaster, go_over};
use super::peer::{EpochContext, USERS_SINCE};
use crate::mutation::planted;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for the leader's epoch.
    Joining,
    /// Will ask for synchronization once the promise is durable and no log operation is pending.
    Asking,
    /// Waiting for the answer.
    Waiting,
    /// The log is being truncated or replaced; the learner asks again afterwards.
    Repairing,
    /// The log is a prefix of the leader's and grows with it.
    Streaming,
}

#[derive(Debug)]
pub(super) struct Learner {
    /// Whom this server learns from: the leader, or an observer from a follower.
    master: ServerId,
    leader: ServerId,
    epoch: Epoch,
    /// The epoch was new to this server when this leader proposed it.
    promised: bool,
    phase: Phase,
    serial: u64,
    snapshot_wanted: bool,
    /// End of the leader's initial history.
    history: Zxid,
    ensemble: EnsembleId,
    commit_known: Zxid,
    /// The leader's committed position when it first reported that a quorum follows.
    active_from: Option<Zxid>,
    acked: Option<Ack>,
    heard_at_ms: u64,
    retry_at_ms: u64,
    /// Until then clients may wait for the end of a hand-over.
    serves_by_ms: u64,
    /// The leader waits to hear that nothing more is forwarded.
    pause_due: bool,
    /// Whom this server feeds.
    pub(super) observers: ObserverMaster,
}

impl Learner {
    pub(super) fn start(core: &mut Core, master: ServerId, out: &mut Effects) -> Self {
        let mut learner = Self {
            master,
            leader: master,
            epoch: Epoch(0),
            promised: false,
            phase: Phase::Joining,
            serial: core.random(),
            snapshot_wanted: false,
            history: Zxid::ZERO,
            ensemble: EnsembleId::default(),
            commit_known: Zxid::ZERO,
            active_from: None,
            acked: None,
            heard_at_ms: core.now_ms,
            retry_at_ms: 0,
            serves_by_ms: core.now_ms + core.config.move_max_ms(),
            pause_due: false,
            observers: ObserverMaster::default(),
        };
        learner.retry(core, out);
        learner
    }

    /// Whom this server learns from.
    pub(super) const fn master(&self) -> ServerId {
        self.master
    }

    /// The leader and its epoch, as this server's observers are to know them.
    const fn following(&self) -> Following {
        let Self { leader, epoch, history, ensemble, .. } = *self;
        Following { leader, context: EpochContext { epoch, history, ensemble, committed_only: true } }
    }

    /// Whether this server may feed observers: it serves clients, and has a vote.
    fn is_master(&self, core: &Core) -> bool {
        let Self { leader, epoch, .. } = *self;
        let serves = core.status == Status::Following { leader, epoch } && !core.moved;
        serves && core.votes() && core.speaks(leader, OBSERVER_MASTERS_SINCE)
    }

    /// Whether this server would feed a peer that looks for a leader.
    pub(super) fn feeds(&self, core: &Core, peer: ServerId) -> bool {
        let welcome = |heard: &Standing| {
            heard.accepted <= self.epoch && (heard.is_blank() || !core.is_foreign(&heard.ensemble))
        };
        // A peer that has just connected has yet to say what it is.
        let heard = core.heard.get(&peer).is_none_or(welcome);
        let known = matches!(core.doubt(peer), None | Some(Doubt::Contested));
        let speaks = core.speaks(peer, OBSERVER_MASTERS_SINCE);
        heard && known && speaks && !core.is_voter(peer) && self.is_master(core)
    }

    /// A message of a server that may learn from this one.
    pub(super) fn on_observer(&mut self, core: &Core, from: ServerId, message: Message, out: &mut Effects) {
        self.observers.on_message(core, from, message, &self.following(), out);
    }

    /// A server learns from this one no more.
    pub(super) fn on_observer_left(&mut self, observer: ServerId, out: &mut Effects) {
        self.observers.leave(|peer| peer.id == observer, &self.following(), out);
    }

    /// This server feeds nobody any more.
    pub(super) fn end_feeding(&mut self, out: &mut Effects) {
        self.observers.leave(|_| true, &self.following(), out);
    }

    /// What was asked for is there to be sent to an observer.
    pub(super) fn on_feeding(&mut self, core: &Core, input: Input, out: &mut Effects) {
        let context = self.following().context;
        match input {
            Input::LogRead { peer, after, batches } => {
                self.observers.on_log_read(core, (peer, after), batches, &context, out);
            }
            Input::SnapshotReady { peer, last } => {
                self.observers.on_snapshot_ready(core, peer, last, &context, out);
            }
            _ => {}
        }
    }

    /// The vote that this server reports in notifications.
    pub(super) fn vote(&self, core: &Core) -> Vote {
        Vote { leader: self.leader, ..core.own_vote() }
    }

    /// Sends again what the leader has not answered.
    pub(super) fn retry(&mut self, core: &Core, out: &mut Effects) {
        self.retry_at_ms = core.now_ms + core.config.heartbeat_ms();
        match self.phase {
            Phase::Joining if core.connected.contains(self.master) => {
                out.send(self.master, Message::FollowerInfo(core.standing()));
            }
            // The leader answers only when it has a quorum; asking again is harmless.
            Phase::Waiting => self.phase = Phase::Asking,
            _ => {}
        }
    }

    pub(super) fn on_tick(&mut self, core: &mut Core, out: &mut Effects) -> Next {
        if core.moved && core.now_ms >= self.serves_by_ms {
            // Its clients are to look for another server: they have waited for this one long enough.
            core.set_status(Status::Looking, out);
        }
        if core.now_ms > self.heard_at_ms + core.config.peer_timeout_ms {
            let never_answered = self.phase == Phase::Joining;
            let passed_over = Some(self.master).filter(|_| never_answered);
            return Next::Look(Departure::LeaderSilent(self.master), passed_over);
        }
        self.observers.on_tick(core, &self.following(), out);
        if core.now_ms >= self.retry_at_ms {
            self.retry(core, out);
        }
        Next::Stay
    }

    /// Handles the leader's own report on whether it leads. A leader that is still in the election that chose
    /// it gets the peer timeout to learn of its result.
    fn on_notification(&mut self, core: &mut Core, heard: &Notification) -> Next {
        let is_master = match heard.state {
            PeerState::Leading => true,
            PeerState::ObserverMaster => core.prefers_masters(),
            // It goes over to another leader, as this server does with it.
            PeerState::Following => core.prefers_masters() && core.moved,
            PeerState::Looking => false,
        };
        if self.phase == Phase::Joining && is_master {
            self.leader = heard.vote.leader;
        }
        // A leader that follows another one meanwhile, and feeds observers, is not the master that was asked.
        // One that feeds this server already names another leader in a hand-over alone.
        if is_master && (self.leader == heard.vote.leader || self.phase == Phase::Streaming) {
            self.heard_at_ms = core.now_ms;
            return Next::Stay;
        }
        let same_election = heard.round <= core.round && heard.vote.leader == self.master;
        match self.phase == Phase::Joining && same_election {
            true => Next::Stay,
            false => {
                core.release_lease();
                Next::Look(Departure::LeaderResigned(self.master), None)
            }
        }
    }

    /// A message from the leader.
    pub(super) fn on_message(&mut self, core: &mut Core, message: Message, out: &mut Effects) -> Next {
        if let Message::Notification(heard) = message {
            return self.on_notification(core, &heard);
        }
        // A leader that does not hear this server may still answer its users.
        if !matches!(message, Message::ToLearner(_) | Message::Observer { .. }) {
            self.heard_at_ms = core.now_ms;
        }
        match message {
            Message::NewEpoch(epoch) => {
                // What was heard before may be from before this server asked.
                self.active_from = None;
                return self.on_new_epoch(core, epoch, out);
            }
            Message::Sync(sync) if sync.epoch == self.epoch => return self.on_sync(core, sync, out),
            Message::Propose(propose) if propose.epoch == self.epoch => {
                self.on_propose(core, propose, out);
            }
            Message::Commit { epoch, upto } if epoch == self.epoch => self.learn_commit(upto),
            Message::Ping(ping) => return self.on_ping(core, ping, out),
            // Also if the leader has begun another epoch meanwhile: this server asks for synchronization in
            // that epoch after the installation.
            Message::SnapshotChunk(bytes) if core.log.operation() == Some(LogOperation::Install) => {
                out.push(Effect::SnapshotChunk { from: self.master, bytes });
            }
            Message::ToLearner(bytes) => out.push(Effect::FromLeader { bytes }),
            Message::HandOver { epoch, step } if epoch == self.epoch => {
                return self.on_hand_over(core, step, out);
            }
            Message::Observer { epoch, observer, step } if epoch == self.epoch => {
                self.observers.on_step(observer, step, &self.following(), out);
            }
            _ => {}
        }
        Next::Stay
    }

    fn on_hand_over(&mut self, core: &mut Core, step: HandOverStep, out: &mut Effects) -> Next {
        let streams = self.phase == Phase::Streaming;
        match step {
            HandOverStep::Pause | HandOverStep::Resume => {
                let serves = core.status == Status::Following { leader: self.leader, epoch: self.epoch };
                core.paused = serves && step == HandOverStep::Pause;
                self.pause_due = core.paused;
                if serves {
                    self.observers.pause(self.epoch, step, out);
                }
                Next::Stay
            }
            HandOverStep::Lead { upto } if streams && Self::may_lead(core, upto) => {
                core.moved = true;
                core.release_lease();
                Next::Lead
            }
            // Also if it is not connected at the moment: it has the peer timeout to be.
            HandOverStep::Follow(leader) if streams && core.paused => {
                core.moved = true;
                core.release_lease();
                go_over(self.observers.take_paused(), core.me(), self.epoch, out);
                Next::Follow(leader)
            }
            HandOverStep::Follow(_) => {
                core.release_lease();
                Next::Look(Departure::LeaderResigned(self.master), None)
            }
            HandOverStep::Lead { .. } | HandOverStep::Paused => Next::Stay,
        }
    }

    /// Whether this server has everything that the leader has, and can lead. Otherwise the leader calls the
    /// hand-over off.
    fn may_lead(core: &Core, upto: Zxid) -> bool {
        let whole = core.votes() && core.epochs.initialized && !core.is_damaged() && !core.is_stuck();
        let has_all = core.log.last().zxid == upto && core.log.durable() == upto && core.commit == upto;
        core.paused && whole && has_all
    }

    /// All events are handled: what was gathered is sent. For a hand-over, everything was forwarded that will
    /// be, but for what the observers still forward.
    pub(super) fn flush(&mut self, core: &Core, out: &mut Effects) {
        self.observers.flush(core, self.epoch, out);
        if self.pause_due && self.observers.is_paused(core) {
            self.pause_due = false;
            self.observers.leave(|peer| !peer.paused, &self.following(), out);
            out.send(self.master, Message::HandOver { epoch: self.epoch, step: HandOverStep::Paused });
        }
    }

    fn learn_commit(&mut self, commit: Zxid) {
        self.commit_known = self.commit_known.max(commit);
    }

    fn on_new_epoch(&mut self, core: &mut Core, epoch: Epoch, out: &mut Effects) -> Next {
        if core.is_beyond_reason(epoch) {
            out.push(Effect::Alarm(Alarm::EpochBeyondReason { peer: self.master, epoch }));
            return Next::Look(Departure::EpochBeyondReason(self.master), Some(self.master));
        }
        if epoch < core.epochs.accepted && !planted!(core.config, PromiseOlderEpoch) {
            return Next::Look(Departure::EpochPassed(self.master), None);
        }
        if epoch == self.epoch {
            return Next::Stay;
        }
        self.promised = epoch > core.epochs.accepted || planted!(core.config, PromiseOlderEpoch);
        core.epochs.accepted = core.epochs.accepted.max(epoch);
        self.epoch = epoch;
        self.active_from = None;
        self.ask_again(false);
        Next::Stay
    }

    fn ask_again(&mut self, snapshot: bool) {
        self.phase = Phase::Asking;
        self.snapshot_wanted = snapshot;
        self.acked = None;
    }

    fn on_sync(&mut self, core: &mut Core, sync: Sync, out: &mut Effects) -> Next {
        // The leader also sends a snapshot unasked, when its log does not reach back to a slow learner any
        // more.
        let unasked = self.phase == Phase::Streaming && matches!(sync.plan, SyncPlan::Snapshot(_));
        if sync.serial != self.serial || !(self.phase == Phase::Waiting || unasked) {
            return Next::Stay;
        }
        let last = core.log.last().zxid;
        let late = core.is_blank() && planted!(core.config, TakeOverLate);
        if core.is_foreign(&sync.ensemble) && !late {
            let EnsembleId { cluster, .. } = sync.ensemble;
            if core.is_blank() {
                core.take_over(&sync.ensemble);
                self.ask_again(false);
                return Next::Stay;
            }
            out.push(Effect::Alarm(Alarm::ForeignCluster { peer: self.master, cluster }));
            return Next::Look(Departure::WouldTruncate(self.master), Some(self.master));
        }
        let committed = core.epochs.committed;
        if committed.epoch() < sync.epoch && sync.history < committed {
            out.push(Effect::Alarm(Alarm::CommittedTruncation { after: sync.history }));
            return Next::Look(Departure::WouldTruncate(self.master), Some(self.master));
        }
        self.ensemble = sync.ensemble;
        self.history = sync.history;
        match sync.plan {
            SyncPlan::Diff => self.phase = Phase::Streaming,
            SyncPlan::Truncate(after) if after < core.never_cut() => {
                out.push(Effect::Alarm(Alarm::CommittedTruncation { after }));
                return Next::Look(Departure::WouldTruncate(self.master), Some(self.master));
            }
            SyncPlan::Truncate(after) if after >= last => self.ask_again(false),
            SyncPlan::Truncate(after) if planted!(core.config, SkipTruncate) => {
                core.log.forget_after(after);
                self.ask_again(false);
            }
            SyncPlan::Truncate(after) => {
                self.phase = Phase::Repairing;
                // Clients wait for what is cut off.
                core.moved = false;
                core.log.truncate(after);
                core.recovered = core.recovered.min(after);
                out.push(Effect::Truncate { after });
            }
            SyncPlan::Snapshot(last) if last.zxid < core.commit => {
                out.push(Effect::Alarm(Alarm::CommittedTruncation { after: last.zxid }));
                return Next::Look(Departure::WouldTruncate(self.master), Some(self.master));
            }
            SyncPlan::Snapshot(last) => {
                self.phase = Phase::Repairing;
                // The snapshot skips transactions, so clients have to reconnect and restore their watches.
                core.set_status(Status::Looking, out);
                core.log.install();
                out.push(Effect::InstallSnapshot { from: self.master, last });
            }
        }
        Next::Stay
    }

    /// The truncation or installation has ended, successfully or not.
    pub(super) fn on_repaired(&mut self) {
        if self.phase == Phase::Repairing {
            self.ask_again(false);
        }
    }

    fn on_propose(&mut self, core: &mut Core, propose: Propose, out: &mut Effects) {
        if self.phase != Phase::Streaming {
            return;
        }
        let last = core.log.last();
        let Propose { prev, commit, batch, .. } = propose;
        if planted!(core.config, SkipContiguityCheck) && batch.last() > last.zxid {
            self.learn_commit(commit);
            core.append(batch, out);
            return;
        }
        if batch.last() <= last.zxid {
            return self.learn_commit(commit);
        }
        if prev.zxid != last.zxid || !batch.follows(last.zxid) {
            return self.ask_again(false);
        }
        if !prev.agrees(last) {
            out.push(Effect::Alarm(Alarm::LogDiverged { at: last.zxid }));
            return self.ask_again(true);
        }
        self.learn_commit(commit);
        // Before the append: to execute a large batch takes long.
        self.deliver(core, out);
        core.append(batch, out);
    }

    /// Delivers what is known to be committed, as far as the log has it.
    fn deliver(&self, core: &mut Core, out: &mut Effects) {
        let committed = self.commit_known.min(core.log.last().zxid);
        let upto = if planted!(core.config, DeliverOnAppend) { core.log.last().zxid } else { committed };
        core.commit_upto(upto, self.observers.sent_to_all(), out);
    }

    fn on_ping(&mut self, core: &mut Core, ping: Ping, out: &mut Effects) -> Next {
        if ping.epoch > self.epoch {
            // The NewEpoch message was lost.
            return self.on_new_epoch(core, ping.epoch, out);
        }
        if ping.epoch == self.epoch {
            self.learn_commit(ping.commit);
            if core.persisted.current == self.epoch {
                core.epochs.members = core.epochs.members.union(&ping.members);
            }
            if ping.active && self.active_from.is_none() {
                self.active_from = Some(ping.commit);
            }
            if self.phase == Phase::Streaming && ping.sent > core.log.last().zxid {
                self.ask_again(false);
            }
        }
        let (ack, leads) = (self.ack(core), ping.active && ping.epoch == self.epoch);
        let grants = leads && ack.adopted && self.master == self.leader;
        let lease_ms = if grants { core.grant_lease() } else { 0 };
        let pong = Pong { round: ping.round, ack, lease_ms };
        out.send(self.master, Message::Pong(pong));
        Next::Stay
    }

    /// The durable state that the leader may rely on.
    fn ack(&self, core: &Core) -> Ack {
        let promised = core.promise_durable();
        let epoch = if promised { self.epoch } else { Epoch(0) };
        let streaming = promised && self.phase == Phase::Streaming;
        let upto = match streaming {
            true if planted!(core.config, AckBeforeFsync) => core.log.last().zxid,
            true => core.log.durable(),
            false => Zxid::ZERO,
        };
        let adopted = core.persisted.current == self.epoch && core.persisted.end_before_damage == Zxid::ZERO;
        let has_users =
            core.has_users() || !self.observers.is_empty() || !core.speaks(self.master, USERS_SINCE);
        Ack { epoch, upto, adopted: streaming && adopted, has_users }
    }

    /// Makes all progress that the disk allows.
    pub(super) fn advance(&mut self, core: &mut Core, out: &mut Effects) {
        let durable = core.promise_durable() && core.ensemble_durable();
        if self.phase == Phase::Asking && durable && core.log.operation().is_none() {
            self.ask(core, out);
        }
        if self.phase != Phase::Streaming {
            return;
        }
        self.adopt(core, out);
        let ack = self.ack(core);
        if self.acked != Some(ack) {
            self.acked = Some(ack);
            out.send(self.master, Message::Ack(ack));
        }
        self.deliver(core, out);
        let caught_up = self.active_from.is_some_and(|commit| core.commit >= commit.max(core.recovered));
        if ack.adopted && caught_up {
            let status = Status::Following { leader: self.leader, epoch: self.epoch };
            if core.agrees_with(&self.ensemble) {
                core.settle_voters();
            }
            core.set_status(status, out);
        }
    }

    /// Feeds observers what is committed by now, those among `joins` as well; or nobody any more.
    pub(super) fn feed(&mut self, core: &Core, joins: &mut Vec<(ServerId, Standing)>, out: &mut Effects) {
        if !self.is_master(core) {
            return self.end_feeding(out);
        }
        let following = self.following();
        let joined: Vec<_> = joins.extract_if(.., |(from, _)| self.feeds(core, *from)).collect();
        for (from, join) in joined {
            // It has to know the leader before it promises itself to the epoch.
            out.send(from, core.notification(PeerState::ObserverMaster, self.vote(core), from));
            self.observers.on_join(core, (from, join), following.context.epoch, out);
        }
        self.observers.feed(core, &following, out);
    }

    fn ask(&mut self, core: &Core, out: &mut Effects) {
        self.phase = Phase::Waiting;
        self.retry_at_ms = core.now_ms + core.config.peer_timeout_ms;
        self.serial = self.serial.wrapping_add(1);
        let ask = AckEpoch {
            epoch: self.epoch,
            promise: self.promised,
            current: core.epochs.current,
            end_before_damage: core.epochs.end_before_damage,
            log: core.log.outline(),
            serial: self.serial,
            snapshot: self.snapshot_wanted,
        };
        out.send(self.master, Message::AckEpoch(ask));
    }

    fn adopt(&self, core: &mut Core, out: &mut Effects) {
        let end_before_damage = core.epochs.end_before_damage;
        let early = planted!(core.config, AdoptBeforeHistoryDurable);
        if core.epochs.current < self.epoch && (early || core.log.durable() >= self.history) {
            core.adopt(self.epoch, self.leader, &self.ensemble);
        }
        // The server holds everything again that it acknowledged to this leader.
        if core.epochs.current == self.epoch
            && core.log.durable() >= core.epochs.end_before_damage.max(self.history)
        {
            // A server that lost its whole log, and so does not know its end, has everything that it may have
            // acknowledged, too.
            core.epochs.initialized |= core.epochs.end_before_damage > Zxid::ZERO;
            core.epochs.end_before_damage = Zxid::ZERO;
        }
        if core.epochs.end_before_damage != end_before_damage {
            out.push(Effect::Repaired { from: self.leader, end_before_damage });
        }
    }
}
