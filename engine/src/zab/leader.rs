//! A server that leads: discovery, synchronization and broadcast from the leader's side.
//!
//! ```text
//! Discovery --joined--> Promising --promised--> Verifying --pong--> Synchronizing --adopted--> Active
//!                           ^                                                                    |
//!                           +-------- the epoch's counter is used up, or a learner <-------------+
//!                                     has promised itself to a newer epoch
//! ```
//!
//! Each arrow needs a quorum. A leader that has to change its epoch does so in place: learners stay connected
//! and serve reads, writes wait for three round trips.
//!
//! Why `Verifying`, which the Zab paper does not have: a promise that was in flight while its sender lost its
//! disk must not count. A member that answers a heartbeat sent after the whole quorum had promised proves
//! that all promises were on disks at one moment. So a server that loses its disk later finds a quorum that
//! knows of its promise.

use std::collections::BTreeMap;

use ringkeeper_frame::{Batch, LogPosition};
use ringkeeper_wire::{Epoch, ServerId, Zxid};

use super::abandonment::UnderWay;
use super::core::{Core, Decision, NO_STREAMING_LEARNER, Next};
use super::effects::{Alarm, Departure, Effect, Effects, Learners, Status, SyncedLearner};
use super::handover::HandOver;
use super::lease::Lease;
use super::message::{AckEpoch, EnsembleId, HandOverStep, Message, ObserverStep, PeerState, Pong, Standing};
use super::observer_master::go_over;
use super::peer::{EpochContext, Peer};
use super::quorum::{Quorum, ServerSet};
use crate::mutation::planted;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Waiting for a quorum to join.
    Discovery,
    /// Waiting for a quorum to promise itself to the epoch.
    Promising,
    /// Waiting for proof that the quorum still holds its promises.
    Verifying { round: u64 },
    /// Waiting for a quorum to adopt the leader's history.
    Synchronizing,
    /// Broadcasting.
    Active,
}

#[derive(Debug)]
pub(super) struct Leader {
    phase: Phase,
    context: EpochContext,
    /// The rule by which the history was chosen. Under any rule but [`Decision::Quorum`], the members with
    /// new disks need no confirmation by others.
    chosen_by: Decision,
    pub(super) peers: Vec<Peer>,
    /// The observers that are heard through followers, with these: see `observer_master.rs`.
    pub(super) masters: BTreeMap<ServerId, ServerId>,
    pub(super) hand_over: Option<HandOver>,
    /// A change of the members.
    pub(super) change: Option<UnderWay>,
    adopted: bool,
    /// The last confirmation round that was sent.
    pub(super) round: u64,
    /// A round is to be sent.
    pub(super) round_wanted: bool,
    confirmations: Vec<Confirmation>,
    pub(super) lease: Lease,
    deadline_ms: u64,
    ping_at_ms: u64,
    /// [`Core::weighed`] when it was last looked at which learners count.
    weighed: u64,
    /// What was said last of those that are up to date.
    up_to_date: ServerSet,
    /// This server is no voter any more, and tries to hand over.
    retire_at_ms: u64,
    /// What was committed at the last tick.
    pub(super) committed_before: Zxid,
    /// How long a preferred voter has to keep up before this server hands over to it.
    pub(super) gives_way_after_ms: u64,
    /// The epoch whose leader told this server to lead, while that one may still call the hand-over off.
    unreleased: Option<Epoch>,
    /// The observers that this server has fed, who wait for that, too.
    pub(super) staying: Vec<ServerId>,
}

#[derive(Clone, Copy, Debug)]
struct Confirmation {
    token: u64,
    commit: Zxid,
    round: u64,
}

impl Leader {
    pub(super) fn start(
        core: &mut Core,
        joined: Vec<(ServerId, Standing)>,
        staying: Vec<ServerId>,
        out: &mut Effects,
    ) -> Self {
        let patience_ms = match core.moved {
            // By then the leader before this one has called the hand-over off.
            true => core.config.hand_over_limit_ms,
            false => 2 * core.config.peer_timeout_ms + core.jitter_ms(),
        };
        let deadline_ms = core.now_ms + patience_ms;
        let mut leader = Self {
            phase: Phase::Discovery,
            context: EpochContext {
                epoch: Epoch(0),
                history: Zxid::ZERO,
                ensemble: core.ensemble(),
                committed_only: false,
            },
            chosen_by: Decision::No,
            peers: Vec::new(),
            masters: BTreeMap::new(),
            hand_over: None,
            change: None,
            adopted: false,
            round: 0,
            round_wanted: false,
            confirmations: Vec::new(),
            lease: Lease::default(),
            deadline_ms,
            ping_at_ms: 0,
            weighed: core.weighed,
            up_to_date: ServerSet::EMPTY,
            retire_at_ms: 0,
            committed_before: Zxid::ZERO,
            gives_way_after_ms: core.config.prefer_after_ms,
            unreleased: core.moved.then_some(core.epochs.current),
            staying,
        };
        for (id, join) in joined {
            leader.on_join(core, id, join, out);
        }
        leader
    }

    /// Whether batches may be proposed.
    pub(super) fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }

    /// Whether batches may be proposed, and leadership is not as good as handed over.
    pub(super) fn may_propose(&self) -> bool {
        self.is_active() && self.hand_over.as_ref().is_none_or(HandOver::proposes)
    }

    pub(super) const fn epoch(&self) -> Epoch {
        self.context.epoch
    }

    /// The learners that have adopted the leader's history.
    pub(super) fn synced(&self) -> Vec<SyncedLearner> {
        self.peers.iter().filter(|peer| peer.adopted).map(Peer::as_synced).collect()
    }

    /// Number of learners, and how many voters and observers have adopted the leader's history.
    pub(super) fn learners(&self) -> Learners {
        let synced = |voter| self.peers.iter().filter(|peer| peer.adopted && peer.voter == voter).count();
        Learners { all: self.peers.len(), synced_followers: synced(true), synced_observers: synced(false) }
    }

    fn peer(&mut self, id: ServerId) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.id == id)
    }

    pub(super) fn on_disconnected(&mut self, core: &mut Core, id: ServerId, out: &mut Effects) {
        self.staying.retain(|observer| *observer != id);
        self.remember_acks(core, |peer| peer.id == id);
        self.forget_observers_of(id, out);
        if self.peers.iter().any(|peer| peer.id == id) {
            self.forget_learner(id, out);
        }
    }

    /// Notes what learners have acknowledged, before it is forgotten.
    pub(super) fn remember_acks(&self, core: &mut Core, of: impl Fn(&Peer) -> bool) {
        for peer in self.peers.iter().filter(|peer| peer.voter && peer.adopted && of(peer)) {
            core.note_acknowledged(peer.id, self.context.epoch, peer.acked);
        }
    }

    /// Handles a message from a learner, or from a server that asks to become one.
    pub(super) fn on_message(
        &mut self,
        core: &mut Core,
        from: ServerId,
        message: Message,
        out: &mut Effects,
    ) {
        if let Message::FollowerInfo(join) = message {
            return self.on_join(core, from, join, out);
        }
        if let Message::HandOver { epoch, step: HandOverStep::Follow(leader) } = message {
            if self.unreleased == Some(epoch) && leader == core.me() {
                self.unreleased = None;
                go_over(std::mem::take(&mut self.staying), leader, epoch, out);
            }
            return;
        }
        let (epoch, context, active) = (self.context.epoch, self.context, self.is_active());
        let established = self.phase >= Phase::Synchronizing;
        let over = self.hand_over.as_ref().is_some_and(HandOver::is_told);
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == from) else { return };
        peer.hear(core);
        match message {
            Message::AckEpoch(ask) if ask.epoch == epoch => Self::on_ack_epoch(core, peer, ask, established),
            Message::Ack(ack) if ack.epoch == epoch => {
                let counts = ack.adopted || planted!(core.config, CountAcksBeforeAdoption);
                let newly = counts && !peer.adopted;
                peer.on_ack(core, ack, counts);
                peer.pump(core, &context, out);
                if newly && active {
                    peer.ping(core, epoch, self.round, true, out);
                }
            }
            Message::Pong(pong) if pong.ack.epoch == epoch => {
                let Pong { round, ack, lease_ms } = pong;
                let asked_ms = peer.on_round(round);
                peer.lease_ms = lease_ms;
                peer.on_ack(core, ack, ack.adopted);
                peer.pump(core, &context, out);
                if let Some(asked_ms) = asked_ms {
                    for learner in with_observers(&self.masters, from) {
                        out.push(Effect::LearnerAnswered { learner, asked_ms });
                    }
                }
            }
            // Where this server's requests go is decided: the successor must not miss what becomes of these.
            Message::Forward(_) | Message::Observer { step: ObserverStep::Forward(_), .. }
                if over && !peer.paused =>
            {
                out.push(Effect::Disconnect { peer: from });
            }
            Message::Observer { epoch: of, observer, step } if of == epoch && peer.adopted => {
                self.on_observer(core, from, observer, step, out);
            }
            Message::Forward(bytes) => out.push(Effect::Forwarded { from, bytes }),
            Message::HandOver { epoch: of, step: HandOverStep::Paused } if of == epoch => peer.paused = true,
            _ => {}
        }
    }

    fn on_join(&mut self, core: &mut Core, from: ServerId, join: Standing, out: &mut Effects) {
        core.note(from, join);
        if core.refuses(from, &join, out) {
            out.send(from, core.notification(PeerState::Leading, core.own_vote(), from));
            return;
        }
        if core.is_foreign(&join.ensemble) && !join.is_blank() {
            if !core.is_left_over() {
                let EnsembleId { cluster, .. } = join.ensemble;
                out.push(Effect::Alarm(Alarm::ForeignCluster { peer: from, cluster }));
            }
            return;
        }
        // A learner that was told that its folder is an old copy joins again as one with a new disk: what it
        // said before does not count.
        let initialized = join.initialized && !core.is_foreign(&join.ensemble);
        if self.peer(from).is_some_and(|peer| peer.adopted) {
            // It has left this server meanwhile, and what it had forwarded last was not sent.
            out.push(Effect::LearnerLeft(from));
        }
        self.peers.retain(|peer| peer.id != from || !peer.initialized || initialized);
        self.forget_observers_of(from, out);
        if self.masters.contains_key(&from) {
            self.forget_learner(from, out);
        }
        let epoch = self.context.epoch;
        match self.peer(from) {
            // The learner has sent its FollowerInfo again, since no answer came.
            Some(peer) if !peer.promised && peer.ask.is_none() => {
                peer.accepted = join.accepted;
                peer.hear(core);
            }
            Some(peer) => peer.hear(core),
            None => {
                let peer = Peer::new(core, from, &join);
                self.peers.push(peer);
            }
        }
        if self.phase == Phase::Discovery {
            return;
        }
        // The voter may have promised this very epoch to another candidate. Such a promise cannot count
        // before the epoch is established; afterwards it does not matter.
        let established = self.phase >= Phase::Synchronizing;
        let voter = self.peers.iter().any(|peer| peer.id == from && peer.voter);
        if join.accepted > epoch || (join.accepted == epoch && voter && !established) {
            return self.begin_epoch(core, Epoch(join.accepted.0.saturating_add(1)), out);
        }
        out.send(from, Message::NewEpoch(epoch));
    }

    fn on_ack_epoch(core: &Core, peer: &mut Peer, ask: AckEpoch, established: bool) {
        let own = core.own_vote();
        peer.accepted = ask.epoch;
        peer.newer = match planted!(core.config, IgnoreHistory) {
            true => false,
            false if planted!(core.config, CompareWithoutEpoch) => ask.last() > own.zxid,
            false => (ask.current, ask.last()) > (own.epoch, own.zxid),
        };
        // A server with a lost part of its log cannot lead, so its newer history is no reason to resign.
        peer.log_damaged = peer.newer && ask.end_before_damage > Zxid::ZERO;
        peer.newer &= !peer.log_damaged;
        // Once the epoch is established, no quorum has the newer history: it will be truncated.
        peer.promised = ask.promise && (established || !peer.newer);
        peer.asks(ask);
    }

    /// Moves to an epoch that none of these servers has promised, and keeps the learners.
    fn begin_epoch(&mut self, core: &mut Core, epoch: Epoch, out: &mut Effects) {
        self.call_off(core, out);
        if self.phase > Phase::Promising {
            self.deadline_ms = core.now_ms + core.config.init_limit_ms;
        }
        self.phase = Phase::Promising;
        self.remember_acks(core, |_| true);
        self.lease = Lease::default();
        self.masters.clear();
        self.context.epoch = epoch;
        self.adopted = false;
        core.epochs.accepted = epoch;
        for peer in &mut self.peers {
            peer.begin_epoch();
            out.send(peer.id, Message::NewEpoch(epoch));
        }
    }

    pub(super) fn on_propose(&mut self, core: &mut Core, batch: Batch, out: &mut Effects) {
        if !self.may_propose() || batch.epoch() != self.context.epoch || !batch.follows(core.log.last().zxid)
        {
            return;
        }
        let used_up = batch.last().counter() >= core.config.epoch_txns_max;
        core.append(batch, out);
        for peer in &mut self.peers {
            peer.pump(core, &self.context, out);
        }
        if used_up {
            self.begin_epoch(core, Epoch(self.context.epoch.0.saturating_add(1)), out);
        }
    }

    pub(super) fn on_log_read(
        &mut self,
        core: &Core,
        id: ServerId,
        after: Zxid,
        batches: Vec<Batch>,
        out: &mut Effects,
    ) {
        let context = self.context;
        if let Some(peer) = self.peer(id) {
            peer.on_log_read(core, after, batches, &context, out);
        }
    }

    pub(super) fn on_snapshot_ready(
        &mut self,
        core: &Core,
        id: ServerId,
        last: LogPosition,
        out: &mut Effects,
    ) {
        let context = self.context;
        if let Some(peer) = self.peer(id) {
            peer.on_snapshot_ready(core, last, &context, out);
        }
    }

    /// Asks a quorum at the next flush whether this server leads; a lease that it holds by then answers, too.
    pub(super) fn confirm(&mut self, core: &Core, token: u64) {
        self.confirmations.push(Confirmation { token, commit: core.commit, round: self.round + 1 });
    }

    pub(super) fn on_tick(&mut self, core: &mut Core, out: &mut Effects) -> Next {
        let (limit_ms, now_ms) = (core.config.sync_limit_ms, core.now_ms);
        let silent = self.peers.iter().filter(|peer| now_ms > peer.heard_at_ms + limit_ms);
        for peer in silent.map(|peer| peer.id).collect::<Vec<_>>() {
            out.push(Effect::Disconnect { peer });
            self.on_disconnected(core, peer, out);
        }
        for peer in self.peers.iter_mut().filter(|peer| !peer.silent && peer.has_left(core)) {
            peer.silent = true;
            for learner in with_observers(&self.masters, peer.id) {
                out.push(Effect::LearnerSilent(learner));
            }
        }
        if self.phase != Phase::Active && core.now_ms >= self.deadline_ms {
            return Next::Look(Departure::QuorumLate, None);
        }
        if self.phase != Phase::Discovery && !self.hears_quorum(core) {
            return Next::Look(Departure::QuorumSilent, None);
        }
        if let next @ Next::Look(..) = self.watch_change(core, out) {
            return next;
        }
        self.watch_hand_over(core, out);
        self.retire(core, out);
        self.give_way(core, out);
        self.round_wanted |= core.now_ms >= self.ping_at_ms;
        self.flush(core, out);
        self.send_commits(core, |_| true, out);
        Next::Stay
    }

    /// A leader that is no voter any more hands over. Until then it leads on: its own acks do not count.
    fn retire(&mut self, core: &mut Core, out: &mut Effects) {
        if self.is_active() && !core.votes() && self.hand_over.is_none() && core.now_ms >= self.retire_at_ms {
            self.retire_at_ms = core.now_ms + core.config.peer_timeout_ms;
            self.begin_hand_over(core, None, out);
        }
    }

    /// The voters that were heard within the peer timeout, with this server.
    pub(super) fn heard(&self, core: &Core) -> ServerSet {
        let since_ms = core.now_ms.saturating_sub(core.config.peer_timeout_ms);
        let heard = self.peers.iter().filter(|peer| peer.voter && peer.heard_at_ms >= since_ms);
        heard.map(|peer| peer.id).chain([core.me()]).collect()
    }

    /// Whether an active leader's quorum is heard. Without one of the new voters of a change under way the
    /// leader does not resign: it alone can give the change up.
    fn hears_quorum(&self, core: &Core) -> bool {
        match core.pending_change().filter(|_| self.is_active()) {
            Some(pending) => pending.before.is_quorum(&self.heard(core)),
            None => core.quorum.is_quorum(&self.heard(core)),
        }
    }

    /// Sends heartbeats that are due, and learners with users the commits. A lease answers who asks whether
    /// this server leads.
    pub(super) fn flush(&mut self, core: &Core, out: &mut Effects) {
        let (epoch, active) = (self.context.epoch, self.is_active());
        if active && self.hand_over.is_none() && self.lease.is_held(core) {
            self.answer_confirmations(u64::MAX, out);
        }
        self.round_wanted |= self.owes_confirmation();
        if self.round_wanted {
            self.round_wanted = false;
            self.round += 1;
            self.lease.ask(core, self.round);
            self.ping_at_ms = core.now_ms + core.config.heartbeat_ms();
            self.peers.iter_mut().for_each(|peer| peer.ping(core, epoch, self.round, active, out));
        }
        if active {
            self.send_commits(core, |peer| peer.has_users, out);
            self.tell_who_is_up_to_date(out);
        }
    }

    /// Whether somebody has asked whether this server leads, and no round was begun since.
    pub(super) fn owes_confirmation(&self) -> bool {
        self.confirmations.last().is_some_and(|asked| asked.round > self.round)
    }

    /// Sends the commits that no proposal has carried.
    pub(super) fn send_commits(&mut self, core: &Core, to: impl Fn(&Peer) -> bool, out: &mut Effects) {
        if self.is_active() {
            let epoch = self.epoch();
            self.peers.iter_mut().filter(|peer| to(peer)).for_each(|peer| peer.send_commit(core, epoch, out));
        }
    }

    fn tell_who_is_up_to_date(&mut self, out: &mut Effects) {
        let direct = self.peers.iter().filter(|peer| peer.is_up_to_date()).map(|peer| peer.id);
        let direct: ServerSet = direct.collect();
        // They have what their masters know to be committed.
        let others = self.masters.iter().filter(|(_, master)| direct.contains(**master)).map(|(id, _)| *id);
        let up_to_date = direct.iter().chain(others).collect();
        if up_to_date != self.up_to_date {
            self.up_to_date = up_to_date;
            out.push(Effect::UpToDate(up_to_date));
        }
    }

    /// Makes all transitions for which quorums and the disk are ready.
    pub(super) fn advance(&mut self, core: &mut Core, out: &mut Effects) -> Next {
        loop {
            if std::mem::replace(&mut self.weighed, core.weighed) != core.weighed {
                self.peers.iter_mut().for_each(|peer| peer.weigh(core));
                self.lease = Lease::default();
            }
            let before = self.phase;
            let next = match self.phase {
                Phase::Discovery => self.discover(core, out),
                Phase::Promising => self.gather_promises(core, out),
                Phase::Verifying { round } => self.verify(core, round, out),
                Phase::Synchronizing => self.synchronize(core, out),
                Phase::Active => self.broadcast(core, out),
            };
            if next != Next::Stay || self.phase == before {
                return next;
            }
        }
    }

    fn decide(&self, core: &Core, taking_part: impl Fn(&Peer) -> bool) -> Decision {
        if core.is_damaged() {
            return Decision::No;
        }
        let peers = self.peers.iter().filter(|peer| peer.voter && taking_part(peer));
        core.may_decide(peers.map(Peer::member).chain([core.member()]))
    }

    fn discover(&mut self, core: &mut Core, out: &mut Effects) -> Next {
        if self.decide(core, |_| true) != Decision::No {
            let promised = self.peers.iter().map(|peer| peer.accepted).chain([core.epochs.accepted]);
            let newest = promised.max().unwrap_or_default();
            let reuse = planted!(core.config, ReuseEpoch) && newest != Epoch(0);
            let epoch = if reuse { newest } else { Epoch(newest.0.saturating_add(1)) };
            self.deadline_ms = core.now_ms + core.config.init_limit_ms;
            self.begin_epoch(core, epoch, out);
        }
        Next::Stay
    }

    fn gather_promises(&mut self, core: &Core, out: &mut Effects) -> Next {
        let decision = self.decide(core, |peer| peer.promised);
        if decision == Decision::No {
            let all_answered = self.peers.iter().all(|peer| !peer.voter || peer.promised || peer.newer);
            let someone_newer = self.peers.iter().any(|peer| peer.voter && peer.newer);
            return match all_answered && someone_newer {
                true => Next::Look(Departure::NewerEpoch, None),
                false => Next::Stay,
            };
        }
        if core.promise_durable() && core.log.operation().is_none() {
            self.chosen_by = decision;
            self.round_wanted = true;
            self.phase = Phase::Verifying { round: self.round + 1 };
            self.flush(core, out);
        }
        Next::Stay
    }

    fn verify(&mut self, core: &mut Core, round: u64, out: &mut Effects) -> Next {
        if self.decide(core, |peer| peer.promised && peer.round >= round) == Decision::No {
            return Next::Stay;
        }
        self.context.history = core.log.last().zxid;
        self.context.ensemble = core.ensemble();
        if self.context.ensemble.cluster == 0 {
            self.context.ensemble.cluster = core.random().max(1);
        }
        self.phase = Phase::Synchronizing;
        for peer in &mut self.peers {
            peer.vouched |= self.chosen_by != Decision::Quorum && peer.promised;
            if peer.vouched {
                peer.synchronize(core, &self.context, out);
            }
        }
        if planted!(core.config, DeliverUncommitted) {
            core.commit_upto(self.context.history, self.sent_to_all(), out);
        }
        Next::Stay
    }

    /// The leader adopts its own epoch under the same conditions as its learners.
    fn adopt(&mut self, core: &mut Core) {
        let early = planted!(core.config, LeaderVoteBeforeDurable);
        if core.epochs.current < self.context.epoch && (early || core.log.durable() >= self.context.history) {
            let me = core.me();
            core.adopt(self.context.epoch, me, &self.context.ensemble);
        }
        if core.epochs.current == self.context.epoch {
            let adopted = self.peers.iter().filter(|peer| peer.voter && peer.adopted);
            adopted.for_each(|peer| core.epochs.members.insert(peer.id));
        }
        self.adopted = core.persisted.current == self.context.epoch;
    }

    fn answer_asks(&mut self, core: &Core, out: &mut Effects) {
        for peer in self.peers.iter_mut().filter(|peer| peer.vouched && peer.ask.is_some()) {
            peer.synchronize(core, &self.context, out);
        }
    }

    fn synchronize(&mut self, core: &mut Core, out: &mut Effects) -> Next {
        self.adopt(core);
        self.answer_asks(core, out);
        let adopted = self.peers.iter().filter(|peer| peer.voter && peer.adopted).map(|peer| peer.id);
        let adopted: ServerSet = adopted.chain(self.adopted.then(|| core.me())).collect();
        if core.quorum.is_quorum(&adopted) {
            self.phase = Phase::Active;
            self.commit_acked(core, out);
            core.settle_voters();
            if self.unreleased.take().is_some() {
                self.part_with_staying(out);
                // The leader before this one may have led on, and let a session move away from this server.
                out.push(Effect::NotReleased);
                core.set_status(Status::Looking, out);
            }
            core.set_status(Status::Leading { epoch: self.context.epoch }, out);
            if self.chosen_by == Decision::Founding {
                let without = core.quorum.voters().difference(&adopted);
                out.push(Effect::Alarm(Alarm::Founded { without }));
            }
            self.round_wanted = true;
            self.flush(core, out);
        }
        Next::Stay
    }

    fn broadcast(&mut self, core: &mut Core, out: &mut Effects) -> Next {
        self.adopt(core);
        self.commit_acked(core, out);
        if self.holds_others_up(core) {
            return Next::Look(Departure::DiskFull, Some(core.me()));
        }
        self.vouch(core);
        self.answer_asks(core, out);
        let confirmed = match planted!(core.config, ConfirmWithoutQuorum) {
            true => Some(u64::MAX),
            false => self.confirmed_round(core, |_| true),
        };
        self.answer_confirmations(confirmed.unwrap_or_default(), out);
        let leases = |peer: &Peer| peer.lease_ms >= core.config.lease_ms;
        if core.config.lease_ms > 0
            && let Some(round) = self.confirmed_round(core, leases)
        {
            self.lease.renew(core, round);
        }
        Next::Stay
    }

    /// Whether a quorum of others has acknowledged what this server cannot append for want of room, or has
    /// adopted the epoch that it cannot, so that one of them would be a better leader. Without such a quorum
    /// an election gains nothing; and if the disk is full for less than the peer timeout, waiting costs less
    /// than an election.
    fn holds_others_up(&self, core: &Core) -> bool {
        let timeout_ms = core.config.peer_timeout_ms;
        let full = core.full_since_ms.is_some_and(|since_ms| core.now_ms >= since_ms + timeout_ms);
        if !full || !core.is_stuck() || planted!(core.config, FullLeaderStays) {
            return false;
        }
        let heard_since_ms = core.now_ms.saturating_sub(timeout_ms);
        let ahead = |peer: &&Peer| {
            peer.voter
                && peer.adopted
                && (!self.adopted || peer.acked > core.log.durable())
                && peer.heard_at_ms >= heard_since_ms
        };
        core.quorum.is_quorum(&self.peers.iter().filter(ahead).map(|peer| peer.id).collect())
    }

    /// Commits what a quorum of servers that have adopted the epoch holds durably.
    fn commit_acked(&self, core: &mut Core, out: &mut Effects) {
        let early = planted!(core.config, LeaderVoteBeforeDurable);
        let own = if early { core.log.last().zxid } else { core.log.durable() };
        let own = (self.adopted || early).then_some((own.0, core.me()));
        let counted = self.peers.iter().filter(|peer| peer.voter && peer.adopted);
        let acked = counted.map(|peer| (peer.acked.0, peer.id));
        let upto = if planted!(core.config, CommitWithoutQuorum) {
            acked.chain(own).max().map(|(zxid, _)| zxid)
        } else {
            reached_by_quorum(core, acked.chain(own))
        };
        if let Some(upto) = upto {
            core.commit_upto(Zxid(upto), self.sent_to_all(), out);
        }
    }

    /// The lowest position up to which all learners fed from the log were sent the log.
    fn sent_to_all(&self) -> Zxid {
        self.peers.iter().filter_map(Peer::sent_upto).min().unwrap_or(NO_STREAMING_LEARNER)
    }

    /// The newest round that a quorum of such learners and this server has answered.
    fn confirmed_round(&self, core: &Core, counts: impl Fn(&Peer) -> bool) -> Option<u64> {
        let rounds = self.peers.iter().filter(|peer| peer.voter && peer.adopted && counts(peer));
        let own = self.adopted.then_some((u64::MAX, core.me()));
        reached_by_quorum(core, rounds.map(|peer| (peer.round, peer.id)).chain(own))
    }

    /// Admits servers with new disks, once a quorum without them has confirmed this leader.
    fn vouch(&mut self, core: &Core) {
        for index in 0..self.peers.len() {
            let peer = &self.peers[index];
            if peer.vouched || peer.ask.is_none() {
                continue;
            }
            let confirmed = self.confirmed_round(core, |other| other.id != peer.id);
            let next_round = self.round + 1;
            let peer = &mut self.peers[index];
            match peer.vouch_round {
                Some(round) => peer.vouched = confirmed >= Some(round),
                None => {
                    peer.vouch_round = Some(next_round);
                    self.round_wanted = true;
                }
            }
        }
    }

    /// Answers who has asked for rounds up to this one.
    fn answer_confirmations(&mut self, confirmed: u64, out: &mut Effects) {
        self.confirmations.retain(|asked| {
            let done = confirmed >= asked.round;
            if done {
                let Confirmation { token, commit, .. } = *asked;
                out.push(Effect::LeadershipConfirmed { token, commit });
            }
            !done
        });
    }
}

/// A learner, and the observers that are heard through it.
fn with_observers(
    masters: &BTreeMap<ServerId, ServerId>,
    learner: ServerId,
) -> impl Iterator<Item = ServerId> + '_ {
    let through = masters.iter().filter(move |(_, master)| **master == learner);
    through.map(|(observer, _)| *observer).chain([learner])
}

/// The greatest value that every member of some quorum has reached.
fn reached_by_quorum(core: &Core, values: impl Iterator<Item = (u64, ServerId)>) -> Option<u64> {
    let mut values: smallvec::SmallVec<[(u64, ServerId); 8]> = values.collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    let mut reached = ServerSet::EMPTY;
    values.into_iter().find_map(|(value, id)| {
        reached.insert(id);
        core.quorum.is_quorum(&reached).then_some(value)
    })
}
