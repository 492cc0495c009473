//! The record of one learner, and how the learner is fed with batches: by a leader, or an observer by a
//! follower.

use ringkeeper_frame::{Batch, Checksum, LogPosition};
use ringkeeper_wire::{Epoch, ServerId, Zxid};

use super::core::{Core, Member};
use super::effects::{Alarm, Effect, Effects, SyncedLearner};
use super::message::{Ack, AckEpoch, EnsembleId, Message, Ping, Propose, Standing, Sync, SyncPlan};
use super::quorum::ServerSet;
use crate::mutation::planted;
use crate::send_window::SendWindow;

/// From this version of the messages between servers on, a learner says whether it has users.
pub const USERS_SINCE: u8 = 13;

/// The stage of a learner's synchronization in the leader's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feed {
    /// Not yet told how to synchronize.
    Idle,
    /// A snapshot is being prepared.
    SnapshotWanted,
    /// Told to truncate or replace its log; it will ask again.
    Repairing,
    /// Its log is a prefix of ours.
    Streaming,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: ServerId,
    /// It counts. A voter with another list of voters is treated like an observer.
    pub(super) voter: bool,
    ensemble: EnsembleId,
    pub(super) initialized: bool,
    blank: bool,
    founds: bool,
    belongs: bool,
    pub(super) accepted: Epoch,
    /// It has promised itself to this leader's epoch, and its history is not newer than ours.
    pub(super) promised: bool,
    /// Its history is newer than ours.
    pub(super) newer: bool,
    /// It has lost a part of its log that is newer than our history, so it counts as a server with a new
    /// disk.
    pub(super) log_damaged: bool,
    /// It may be synchronized, see "New disks" in [`super`].
    pub(super) vouched: bool,
    /// The confirmation round that must succeed without it before it is vouched for.
    pub(super) vouch_round: Option<u64>,
    /// Its request for synchronization, not yet answered.
    pub(super) ask: Option<AckEpoch>,
    feed: Feed,
    serial: u64,
    sent: LogPosition,
    /// Batches sent and not acknowledged as durable.
    window: SendWindow<Zxid>,
    /// At the last look it had been sent the whole log.
    keeps_up: bool,
    reading: bool,
    pub(super) commit_sent: Zxid,
    /// Everything up to here is durable there.
    pub(super) acked: Zxid,
    /// It has adopted the epoch: its acks count.
    pub(super) adopted: bool,
    /// Somebody there waits to hear of commits.
    pub(super) has_users: bool,
    /// The newest round it has answered in this epoch.
    pub(super) round: u64,
    /// How long a lease it grants with that answer.
    pub(super) lease_ms: u64,
    pub(super) heard_at_ms: u64,
    /// It was silent for so long that it has left this server, which was told of.
    pub(super) silent: bool,
    /// A round that it was asked to answer, and when, by the shell's clock: the last one that was sent when
    /// the one before was answered.
    asked: (u64, u64),
    /// Since when, at each tick, its disk had everything that was committed a tick before.
    pub(super) caught_up_since_ms: Option<u64>,
    /// It was asked to forward no more, for a hand-over.
    pub(super) pausing: bool,
    /// It forwards no more.
    pub(super) paused: bool,
}

impl Peer {
    pub(super) fn as_synced(&self) -> SyncedLearner {
        let (batches, bytes) = (self.window.pieces(), self.window.bytes());
        SyncedLearner { server: self.id, voter: self.voter, last_zxid: self.acked, batches, bytes }
    }

    pub(super) fn new(core: &Core, id: ServerId, join: &Standing) -> Self {
        let initialized = join.initialized && !core.is_foreign(&join.ensemble);
        let mut peer = Self {
            id,
            voter: false,
            ensemble: join.ensemble,
            initialized,
            founds: join.founds,
            belongs: join.ensemble.cluster != 0,
            blank: join.is_blank(),
            accepted: join.accepted,
            promised: false,
            newer: false,
            log_damaged: false,
            vouched: !core.is_voter(id) || initialized,
            vouch_round: None,
            ask: None,
            feed: Feed::Idle,
            serial: 0,
            sent: LogPosition::START,
            window: SendWindow::new(core.config.catch_up_bytes_max, core.config.window_bytes_max),
            keeps_up: false,
            reading: false,
            commit_sent: Zxid::ZERO,
            acked: Zxid::ZERO,
            adopted: false,
            has_users: true,
            round: 0,
            lease_ms: 0,
            heard_at_ms: core.now_ms,
            silent: false,
            asked: (0, 0),
            caught_up_since_ms: None,
            pausing: false,
            paused: false,
        };
        peer.weigh(core);
        peer
    }

    /// Finds anew whether it counts.
    pub(super) fn weigh(&mut self, core: &Core) {
        self.voter = core.is_voter(self.id) && core.agrees_with(&self.ensemble);
    }

    /// Whether it has the leader's whole log, but for what is under way.
    pub(super) const fn is_up_to_date(&self) -> bool {
        self.adopted && self.keeps_up
    }

    /// Looks at a tick whether its disk has what was committed a tick before.
    pub(super) fn look_whether_caught_up(&mut self, core: &Core, committed_before: Zxid) {
        let is_caught_up = self.adopted && self.acked >= committed_before && self.is_heard(core);
        self.caught_up_since_ms = is_caught_up.then(|| self.caught_up_since_ms.unwrap_or(core.now_ms));
    }

    /// Whether it was heard within half the peer timeout, twice the time between heartbeats.
    pub(super) const fn is_heard(&self, core: &Core) -> bool {
        core.now_ms <= self.heard_at_ms + core.config.peer_timeout_ms / 2
    }

    /// Whether it is sent nothing, since it was not heard for twice the peer timeout. So it leaves this
    /// server after one more, and serves no user for long of whom this server does not hear.
    const fn is_muted(&self, core: &Core) -> bool {
        core.now_ms > self.heard_at_ms + 2 * core.config.peer_timeout_ms
    }

    /// Whether it has left by now, since it was sent nothing for the peer timeout.
    pub(super) const fn has_left(&self, core: &Core) -> bool {
        core.now_ms > self.heard_at_ms + 3 * core.config.peer_timeout_ms
    }

    /// It says something.
    pub(super) const fn hear(&mut self, core: &Core) {
        self.heard_at_ms = core.now_ms;
        self.silent = false;
    }

    pub(super) const fn member(&self) -> Member {
        let initialized = self.initialized && !self.log_damaged;
        let Self { id, blank, founds, belongs, .. } = *self;
        Member { id, initialized, blank, founds, belongs }
    }

    /// Resets everything that belongs to the previous epoch.
    pub(super) fn begin_epoch(&mut self) {
        self.promised = false;
        self.newer = false;
        self.log_damaged = false;
        self.adopted = false;
        self.acked = Zxid::ZERO;
        self.ask = None;
        self.rest();
    }

    fn rest(&mut self) {
        self.feed = Feed::Idle;
        self.window.give_up();
        self.keeps_up = false;
        self.reading = false;
        self.has_users = true;
    }

    /// Takes a request for synchronization.
    pub(super) fn asks(&mut self, ask: AckEpoch) {
        if self.feed == Feed::SnapshotWanted {
            self.serial = ask.serial;
            return;
        }
        self.rest();
        self.ask = Some(ask);
    }

    /// Answers the request for synchronization.
    pub(super) fn synchronize(&mut self, core: &Core, context: &EpochContext, out: &mut Effects) {
        let Some(ask) = self.ask.take() else { return };
        self.serial = ask.serial;
        let common = core.log.common(&ask.log);
        if let Err(diverged) = common {
            out.push(Effect::Alarm(Alarm::LogDiverged { at: diverged.0 }));
        }
        let plan = match common {
            Ok(common) if !ask.snapshot && common >= core.log.base() && common >= ask.log.floor => {
                if common == ask.log.last() {
                    self.feed = Feed::Streaming;
                    let unknown = LogPosition { zxid: common, checksum: Checksum::NONE };
                    self.sent = core.log.mark_at(common).unwrap_or(unknown);
                    SyncPlan::Diff
                } else {
                    self.feed = Feed::Repairing;
                    SyncPlan::Truncate(common)
                }
            }
            _ => {
                self.feed = Feed::SnapshotWanted;
                out.push(Effect::SendSnapshot { to: self.id, after: Zxid::ZERO });
                return;
            }
        };
        self.send_sync(core, plan, context, out);
        self.pump(core, context, out);
    }

    fn send_sync(&self, core: &Core, plan: SyncPlan, context: &EpochContext, out: &mut Effects) {
        let EpochContext { epoch, history, ensemble, .. } = *context;
        // A server with a new disk may have acked, in this epoch, anything proposed so far. It counts as
        // initialized when it has all of that.
        let history = if self.initialized { history } else { core.log.last().zxid };
        let sync = Sync { epoch, serial: self.serial, plan, history, ensemble };
        out.send(self.id, Message::Sync(sync));
    }

    pub(super) fn on_snapshot_ready(
        &mut self,
        core: &Core,
        last: LogPosition,
        context: &EpochContext,
        out: &mut Effects,
    ) {
        if self.feed == Feed::SnapshotWanted {
            self.feed = Feed::Repairing;
            self.send_sync(core, SyncPlan::Snapshot(last), context, out);
        }
    }

    /// Batches from disk for this learner.
    pub(super) fn on_log_read(
        &mut self,
        core: &Core,
        after: Zxid,
        batches: Vec<Batch>,
        context: &EpochContext,
        out: &mut Effects,
    ) {
        if !self.reading || after != self.sent.zxid {
            return;
        }
        self.reading = false;
        if batches.is_empty() {
            // The log was purged meanwhile, or is damaged. The learner needs a snapshot that ends behind what
            // it has: from an older one it could not go on either.
            self.rest();
            self.feed = Feed::SnapshotWanted;
            out.push(Effect::SendSnapshot { to: self.id, after });
            return;
        }
        for batch in batches {
            // Checked here and by the learner, so that a gap is never sent (ZOOKEEPER-4925).
            if !batch.follows(self.sent.zxid) || batch.last() > context.end(core) {
                break;
            }
            self.send_batch(core, self.sent, &batch, context, out);
        }
        self.pump(core, context, out);
    }

    fn send_batch(
        &mut self,
        core: &Core,
        prev: LogPosition,
        batch: &Batch,
        context: &EpochContext,
        out: &mut Effects,
    ) {
        let commit = context.commit(core);
        let propose = Propose { epoch: context.epoch, prev, commit, batch: batch.clone() };
        self.commit_sent = commit;
        self.sent = batch.end();
        self.window.sent(batch.last(), batch.bytes().len(), core.now_ms);
        out.send(self.id, Message::Propose(propose));
    }

    /// Sends what the learner lacks, as far as its window allows.
    pub(super) fn pump(&mut self, core: &Core, context: &EpochContext, out: &mut Effects) {
        if self.feed != Feed::Streaming {
            return;
        }
        let last = context.end(core);
        let mut next = core.log.after(self.sent.zxid);
        let window_bytes_max = self.window_bytes_max(core);
        self.keeps_up = false;
        if self.is_muted(core) {
            return;
        }
        while self.sent.zxid < last && self.window.bytes() < window_bytes_max {
            let Some(entry) = next.and_then(|index| core.log.entry(index)) else {
                return self.read(core, window_bytes_max, out);
            };
            if !entry.prev.agrees(self.sent) || !entry.batch.follows(self.sent.zxid) {
                // Never send across a gap: the learner finds out by the next heartbeat and asks again.
                return;
            }
            self.send_batch(core, entry.prev, &entry.batch, context, out);
            next = next.map(|index| index + 1);
        }
        self.keeps_up = self.sent.zxid >= last;
    }

    /// The position up to which it was sent the log; `None` if it is not fed from the log.
    pub(super) fn sent_upto(&self) -> Option<Zxid> {
        (self.feed == Feed::Streaming).then_some(self.sent.zxid)
    }

    fn window_bytes_max(&self, core: &Core) -> usize {
        if self.keeps_up { core.config.window_bytes_max } else { self.window.size() }
    }

    fn read(&mut self, core: &Core, window_bytes_max: usize, out: &mut Effects) {
        if !self.reading {
            self.reading = true;
            let bytes_max = (window_bytes_max - self.window.bytes()).min(core.config.catch_up_bytes_max);
            out.push(Effect::ReadLog { peer: self.id, after: self.sent.zxid, bytes_max });
        }
    }

    /// It has answered a round. Returns when it was asked.
    pub(super) fn on_round(&mut self, round: u64) -> Option<u64> {
        let (asked, asked_ms) = self.asked;
        let is_new = self.round < asked && asked <= round;
        self.round = self.round.max(round);
        is_new.then_some(asked_ms)
    }

    /// Notes what is durable at the learner.
    pub(super) fn on_ack(&mut self, core: &Core, ack: Ack, counts: bool) {
        if counts {
            self.adopted = true;
            self.initialized = true;
            self.acked = self.acked.max(ack.upto);
        }
        self.has_users = ack.has_users;
        self.window.acknowledged(ack.upto, core.now_ms);
    }

    /// Sends the committed position, unless a proposal has carried it.
    pub(super) fn send_commit(&mut self, core: &Core, epoch: Epoch, out: &mut Effects) {
        if self.feed == Feed::Streaming && self.commit_sent < core.commit && !self.is_muted(core) {
            self.commit_sent = core.commit;
            out.send(self.id, Message::Commit { epoch, upto: core.commit });
        }
    }

    pub(super) fn ping(&mut self, core: &Core, epoch: Epoch, round: u64, active: bool, out: &mut Effects) {
        if self.is_muted(core) {
            return;
        }
        if self.round >= self.asked.0 {
            self.asked = (round, core.shell_ms());
        }
        let sent = if self.feed == Feed::Streaming { self.sent.zxid } else { Zxid::ZERO };
        // Not before this server's own adoption is durable: after a crash it would be taken for an old copy.
        let durable = &core.persisted;
        let members = if durable.current == epoch { durable.members } else { ServerSet::EMPTY };
        let commit = core.commit;
        out.send(self.id, Message::Ping(Ping { epoch, round, commit, sent, active, members }));
    }
}

/// The parameters of an epoch that are the same for all learners.
#[derive(Clone, Copy, Debug)]
pub(super) struct EpochContext {
    pub(super) epoch: Epoch,
    /// End of the leader's initial history.
    pub(super) history: Zxid,
    pub(super) ensemble: EnsembleId,
    /// Learners are sent nothing that is not committed.
    pub(super) committed_only: bool,
}

impl EpochContext {
    /// The end of what learners are sent.
    fn end(&self, core: &Core) -> Zxid {
        let last = core.log.last().zxid;
        if self.committed_only { last.min(self.commit(core)) } else { last }
    }

    /// What learners are told to be committed.
    fn commit(&self, core: &Core) -> Zxid {
        match self.committed_only && planted!(core.config, FeedUncommitted) {
            true => core.log.last().zxid,
            false => core.commit,
        }
    }
}
