//! The leader core on its executor: it takes the shards' request batches, appends to the log, and publishes
//! states to the shards.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use ringkeeper_engine::message::{ShardId, ToShard, Turn};
use ringkeeper_engine::node::{Effect, Node};
use ringkeeper_engine::snapshot::{Encoder, STATE_VERSION};
use ringkeeper_engine::state::State;
use ringkeeper_engine::zab::{self, Input, LogPosition, Message, Status};
use ringkeeper_host::alarms::Alarms;
use ringkeeper_host::transfer::{Receiving, Sending};
use ringkeeper_wire::{ServerId, Zxid};

use super::clock::Clock;
use super::log_task::{Answer, Command, LogHost, LogQueue};
use super::peers::{PeerHost, Peers};
use super::rate_limiter::RateLimiter;
use super::report::{CoreCounters, CoreReport};
use super::ring::{Consumer, Producer};
use super::scrub::Integrity;
use super::snapshots::{SnapshotHost, Trigger};
use super::wake::WakeFlag;

/// The leader core, with its log, links and shards.
pub(crate) struct CoreHost {
    node: RefCell<Node>,
    shards: Vec<ShardLink>,
    log: Rc<LogQueue<State>>,
    peers: Peers,
    clock: Clock,
    counters: CoreCounters,
    /// Told of each append, to trigger snapshots.
    trigger: Trigger,
    /// Number of peers' digests that differed from this server's.
    digest_mismatches: Cell<u64>,
    integrity: Rc<Integrity>,
    sending: Sending,
    receiving: Receiving,
    /// Whether the disk has room for writes, as the shards were last told.
    room: Cell<bool>,
    alarms: Alarms,
    refusals: RateLimiter,
    /// Why the server cannot go on.
    broken: RefCell<Option<String>>,
    /// The pump has something to do.
    work: WakeFlag,
}

/// The channel to one shard.
struct ShardLink {
    ring: Producer<ToShard>,
    /// Messages for which the ring had no room; bounded by the outstanding requests of the shards.
    waiting: RefCell<VecDeque<ToShard>>,
}

impl CoreHost {
    pub(crate) fn new(
        node: Node,
        shards: Vec<Producer<ToShard>>,
        log: Rc<LogQueue<State>>,
        peers: Peers,
        trigger: Trigger,
        integrity: Rc<Integrity>,
        clock: Clock,
    ) -> Rc<Self> {
        let shards = shards.into_iter().map(|ring| ShardLink { ring, waiting: RefCell::default() }).collect();
        Rc::new(Self {
            node: RefCell::new(node),
            shards,
            log,
            peers,
            clock,
            trigger,
            digest_mismatches: Cell::new(0),
            integrity,
            sending: Sending::default(),
            receiving: Receiving::default(),
            room: Cell::new(true),
            counters: CoreCounters::default(),
            alarms: Alarms::default(),
            refusals: RateLimiter::default(),
            broken: RefCell::default(),
            work: WakeFlag::default(),
        })
    }

    /// Calls `look` with the node.
    pub(crate) fn with_node<T>(&self, look: impl FnOnce(&Node) -> T) -> T {
        look(&self.node.borrow())
    }

    /// The core's statistics.
    pub(crate) fn counters(&self) -> &CoreCounters {
        &self.counters
    }

    /// Whether two processes run with this id, as far as is known.
    pub(crate) fn runs_twice(&self, server: ServerId) -> bool {
        let twice = zab::Alarm::SecondProcess { server };
        self.alarms.lasts(self.clock.monotonic_ms(), |alarm| *alarm == twice)
    }

    /// The core's report; `missing` says why the server does not serve.
    pub(crate) fn report(&self, missing: String) -> CoreReport {
        let node = self.node.borrow();
        let now_ms = self.clock.monotonic_ms();
        CoreReport {
            state: Arc::clone(node.committed()),
            status: node.status(),
            missing,
            learners: node.zab().learners(),
            digests: node.digests().collect(),
            peers_connected: self.peers.connected(),
            forced: self.log.forced(),
            snapshots: self.trigger.taken(),
            has_room: !self.log.disk_is_full(),
            findings: self.integrity.findings(),
            digest_mismatches: self.digest_mismatches.get(),
            lacks_log: node.zab().durable_epochs().claim > Zxid::ZERO,
            history_conflict: self.alarms.lasts(now_ms, zab::Alarm::is_conflict),
            id_conflict: self.alarms.lasts(now_ms, zab::Alarm::is_id_conflict),
            proposals: self.counters.proposals(),
            refusals: *node.refusals(),
            looking: self.counters.looking(),
            status_since_ms: self.counters.status_since_ms(),
        }
    }

    /// Handles an event, later its effects.
    pub(crate) fn input(&self, input: Input) {
        self.node.borrow_mut().input(self.clock.now(), input);
        self.work.raise();
    }

    /// Ends the server with a reason.
    pub(crate) fn fail(&self, reason: String) {
        *self.broken.borrow_mut() = Some(reason);
        self.work.raise();
    }

    /// Handles request batches, answers of the log and all other events until the server cannot go on;
    /// returns the reason.
    pub(crate) async fn pump(self: Rc<Self>, inboxes: Vec<Consumer<Turn>>) -> String {
        self.node.borrow_mut().input(self.clock.now(), Input::Start);
        loop {
            let unfinished = self.handle(&inboxes);
            self.carry_out_effects();
            if let Some(reason) = self.broken.take() {
                return reason;
            }
            if unfinished {
                self.work.raise();
                glommio::executor().yield_task_queue_now().await;
            }
            poll_fn(|cx| self.poll_work(&inboxes, cx)).await;
        }
    }

    /// One pass. Returns whether another is to follow.
    fn handle(&self, inboxes: &[Consumer<Turn>]) -> bool {
        let now = self.clock.now();
        let mut node = self.node.borrow_mut();
        node.lead_waiting(now);
        while let Some(answer) = self.log.next_answer() {
            match answer {
                Answer::Input(input) => node.input(now, input),
                Answer::Rebuilt(state) => node.rebuilt(now, *state),
                Answer::Installed(state, last) => {
                    node.rebuilt(now, *state);
                    node.input(now, Input::SnapshotInstalled { last });
                }
            }
        }
        for (shard, inbox) in (0..).map(ShardId).zip(inboxes) {
            while let Some(turn) = inbox.pop() {
                node.turn(now, shard, turn);
            }
        }
        // Group commit: requests that arrive during an fsync form the next batch.
        if self.log.is_idle() {
            node.propose(now);
        }
        node.flush(now);
        node.has_due()
    }

    fn poll_work(&self, inboxes: &[Consumer<Turn>], cx: &mut Context<'_>) -> Poll<()> {
        let mut ready = self.work.poll_lower(cx).is_ready();
        for inbox in inboxes {
            ready |= inbox.poll_ready(cx).is_ready();
        }
        for shard in &self.shards {
            ready |= !shard.waiting.borrow().is_empty() && shard.ring.poll_space(cx).is_ready();
        }
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    fn carry_out_effects(&self) {
        self.tell_room();
        let effects = self.node.borrow_mut().take_effects();
        for effect in effects {
            match effect {
                Effect::Shard(shard, message) => self.tell_shard(usize::from(shard.0), message),
                Effect::AllShards(message) => {
                    (0..self.shards.len()).for_each(|shard| self.tell_shard(shard, message.clone()));
                }
                Effect::Zab(effect) => self.carry_out(effect),
                Effect::Rebuild => self.log.push(Command::Rebuild),
                Effect::InvalidPeerMessage { peer, reason } => {
                    tracing::warn!(%peer, reason, "a peer sent an invalid message, it is disconnected");
                    self.peers.disconnect(peer);
                }
                Effect::DigestMismatch { peer, zxid } => {
                    self.digest_mismatches.set(self.digest_mismatches.get() + 1);
                    tracing::error!(
                        %peer,
                        %zxid,
                        "the peer's tree is not this one's after the same transactions: stop it, keep its folder, and let \
                         an empty one be filled by the ensemble; compare the word hash on all servers to see who is alone"
                    );
                }
                Effect::Refused { session, refusal } => {
                    if self.refusals.admit(self.clock.monotonic_ms()) {
                        let bound = refusal.setting();
                        tracing::warn!(%session, bound, "refused: it would go beyond what the bound allows");
                    }
                }
                Effect::Broken(reason) => *self.broken.borrow_mut() = Some(reason),
            }
        }
        for shard in &self.shards {
            shard.drain();
        }
    }

    fn carry_out(&self, effect: zab::Effect) {
        match effect {
            zab::Effect::Send { to, message } => self.peers.send(to, &message),
            zab::Effect::Append(batch) => {
                self.counters.appended(batch.bytes().len());
                let txns = 1 + batch.last().0 - batch.first().0;
                self.trigger.appended(txns, batch.bytes().len() as u64);
                self.log.push(Command::Append(batch));
            }
            zab::Effect::Truncate { after } => self.log.push(Command::Truncate { after }),
            zab::Effect::PersistEpochs(epochs) => self.log.push(Command::Promise(epochs)),
            zab::Effect::ReadLog { peer, after, bytes_max } => {
                self.log.push(Command::Read { peer, after, bytes_max });
            }
            zab::Effect::Disconnect { peer } => self.peers.disconnect(peer),
            zab::Effect::Departed(why) => tracing::warn!(%why, "leaving the ensemble for a new election"),
            zab::Effect::Status(status) => {
                self.counters.changed(self.clock.monotonic_ms(), status);
                report(status);
            }
            zab::Effect::Alarm(alarm) => self.alarms.raise(self.clock.monotonic_ms(), alarm),
            zab::Effect::Repaired { from, claim } => {
                tracing::info!(leader = %from, upto = %claim, "what was damaged here is repaired from the leader");
            }
            zab::Effect::Reset => self.sending.cancel_all(),
            zab::Effect::SendSnapshot { to } => self.sending.ask(to),
            zab::Effect::InstallSnapshot { from, last } => self.receiving.begin(from, last),
            zab::Effect::SnapshotChunk { from, bytes } => self.receive_piece(from, bytes),
            zab::Effect::AbortSnapshot => self.receiving.abort(),
            // The node handles the other effects itself, between broadcast and replica.
            _ => {}
        }
    }

    fn receive_piece(&self, from: ServerId, bytes: Bytes) {
        if !self.receiving.piece(bytes) {
            tracing::warn!(peer = %from, "a snapshot is sent faster than it is written, disconnecting");
            self.peers.disconnect(from);
        }
    }

    /// Tells the broadcast and the shards when the disk has run full, and when it has room again.
    fn tell_room(&self) {
        let room = !self.log.disk_is_full();
        if self.room.replace(room) != room {
            self.node.borrow_mut().input(self.clock.now(), Input::Room(room));
            (0..self.shards.len()).for_each(|shard| self.tell_shard(shard, ToShard::Room(room)));
        }
    }

    fn tell_shard(&self, shard: usize, message: ToShard) {
        if let Some(shard) = self.shards.get(shard) {
            shard.waiting.borrow_mut().push_back(message);
        }
    }

    /// Passes the time to the node and carries out its effects at once: if heartbeats waited behind the
    /// clients' requests, they would be late just when the CPU is overloaded.
    pub(crate) fn tick(&self) {
        self.node.borrow_mut().tick(self.clock.now());
        self.carry_out_effects();
        self.work.raise();
    }
}

impl LogHost for CoreHost {
    fn wake(&self) {
        self.work.raise();
    }
}

impl SnapshotHost for CoreHost {
    type Image = Encoder;

    fn hold(&self) -> Option<(Encoder, LogPosition)> {
        let (state, position) = self.node.borrow().snapshot()?;
        Some((Encoder::new(state), position))
    }

    fn trigger(&self) -> &Trigger {
        &self.trigger
    }

    fn sending(&self) -> &Sending {
        &self.sending
    }

    fn receiving(&self) -> &Receiving {
        &self.receiving
    }

    fn committed(&self) -> Zxid {
        self.node.borrow().zab().committed()
    }

    fn cluster(&self) -> u64 {
        self.node.borrow().zab().durable_epochs().cluster
    }

    fn state_version(&self) -> u32 {
        STATE_VERSION
    }

    fn input(&self, input: Input) {
        Self::input(self, input);
    }

    fn input_now(&self, input: Input) {
        self.input(input);
        self.carry_out_effects();
    }

    fn send(&self, to: ServerId, message: &Message) {
        self.peers.send(to, message);
    }

    fn disconnect(&self, peer: ServerId) {
        self.peers.disconnect(peer);
    }

    fn fail(&self, reason: String) {
        Self::fail(self, reason);
    }
}

impl PeerHost for CoreHost {
    fn peers(&self) -> &Peers {
        &self.peers
    }

    fn peer_input(&self, input: Input) {
        match &input {
            Input::Message { from, message: Message::SnapshotReceived { zxid, upto } } => {
                self.sending.received(*from, *zxid, *upto);
            }
            Input::PeerDisconnected(peer) => self.sending.cancel(*peer),
            _ => {}
        }
        self.input(input);
    }
}

impl ShardLink {
    fn drain(&self) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(message) = waiting.pop_front() {
            if let Err(message) = self.ring.push(message) {
                waiting.push_front(message);
                break;
            }
        }
    }
}

fn report(status: Status) {
    match status {
        Status::Looking => tracing::info!("looking for a leader"),
        Status::Following { leader, epoch } => tracing::info!(%leader, epoch = epoch.0, "following"),
        Status::Leading { epoch } => tracing::info!(epoch = epoch.0, "leading"),
    }
}
