//! The event loop of a run.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use ringkeeper_engine::zab::{
    Batch, Checksum, Config, Effect, Effects, Epochs, Input, LogPosition, Majority, Message, Mutation,
    ServerSet, Status, Zab,
};
use ringkeeper_wire::{Epoch, ServerId, Zxid};

use crate::checker::{Checker, Violation};
use crate::disk::{Disk, Operation, Snapshot};
use crate::faults::Faults;
use crate::network::Network;
use crate::node::Node;
use crate::random::Random;

const TICK_US: u64 = 10_000;
const FAULTS_UNTIL_US: u64 = 3_000_000;
const HEALED_UNTIL_US: u64 = FAULTS_UNTIL_US + 20_000_000;
const PEER_TIMEOUT_MS: u64 = 100;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Batches committed.
    pub committed: usize,
    /// Events handled.
    pub events: u64,
    /// Leaderships that became active.
    pub leaderships: u64,
    /// Servers that crashed.
    pub crashes: u64,
    /// Disks that were lost.
    pub wipes: u64,
    /// Logs that were found damaged at a start.
    pub damaged: u64,
    /// Snapshots installed from a leader.
    pub installs: u64,
    /// Logs cut.
    pub truncations: u64,
    /// Time from the end of the faults until everyone was up to date, in simulated microseconds.
    pub recovery_us: u64,
}

/// Runs one seed.
///
/// # Errors
/// The first invariant that broke.
pub fn run(seed: u64, mutation: Mutation) -> Result<Outcome, Violation> {
    World::new(seed, mutation).run()
}

/// Runs one seed like [`run`] and prints all that goes in and out of every server.
///
/// # Errors
/// Like [`run`].
pub fn trace(seed: u64, mutation: Mutation) -> Result<Outcome, Violation> {
    let mut world = World::new(seed, mutation);
    world.tracing = true;
    eprintln!("{:?}", world.faults);
    world.run()
}

#[derive(Debug)]
enum Event {
    Tick { node: usize },
    Deliver { from: usize, to: usize, connection: u64, message: Message },
    Synced { node: usize },
    EpochsWritten { node: usize },
    Answer { node: usize, input: Input },
    Transferred { node: usize },
    SnapshotWritten { node: usize, snapshot: Snapshot },
    Connect { a: usize, b: usize },
    Broken { node: usize, peer: usize },
    Start { node: usize },
    Unblock { from: usize, to: usize },
    Fault,
    Work,
}

#[derive(Debug)]
struct Scheduled {
    at_us: u64,
    number: u64,
    incarnation: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at_us, self.number) == (other.at_us, other.number)
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_us, self.number).cmp(&(other.at_us, other.number))
    }
}

struct World {
    now_us: u64,
    random: Random,
    faults: Faults,
    mutation: Mutation,
    voters: ServerSet,
    observers: ServerSet,
    quorum: Majority,
    nodes: Vec<Node>,
    network: Network,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    snapshots: HashMap<Zxid, Snapshot>,
    checker: Checker,
    outcome: Outcome,
    effects: Effects,
    tokens: u64,
    tracing: bool,
    healed: bool,
    /// Batches committed when the faults ended.
    healed_at: usize,
}

impl World {
    fn new(seed: u64, mutation: Mutation) -> Self {
        let mut random = Random::new(seed);
        let faults = Faults::draw(&mut random);
        let servers = faults.voters + faults.observers;
        let voters: ServerSet = (1..=faults.voters).map(ServerId).collect();
        let nodes: Vec<Node> = (1..=servers).map(|id| Node::new(ServerId(id))).collect();
        Self {
            now_us: 0,
            observers: (faults.voters + 1..=servers).map(ServerId).collect(),
            quorum: Majority::new(voters),
            voters,
            network: Network::new(nodes.len()),
            nodes,
            queue: BinaryHeap::new(),
            scheduled: 0,
            snapshots: HashMap::new(),
            checker: Checker::default(),
            outcome: Outcome::default(),
            effects: Effects::new(),
            tokens: 0,
            tracing: false,
            healed: false,
            healed_at: 0,
            random,
            faults,
            mutation,
        }
    }

    fn run(mut self) -> Result<Outcome, Violation> {
        if self.faults.forked {
            self.fork();
        }
        for node in 0..self.nodes.len() {
            self.nodes[node].disk.epochs.initialized |= self.faults.known_new;
            self.nodes[node].clock_per_mille += self.random.below(self.faults.drift + 1);
            let at = self.random.below(if self.faults.forked { 1_000_000 } else { 100_000 });
            self.at(at, Event::Start { node });
        }
        // What a fork does wrong is healed by the first proposal that comes through: give it time.
        self.at(if self.faults.forked { 1_500_000 } else { 1000 }, Event::Work);
        self.at(50_000, Event::Fault);
        while let Some(Reverse(next)) = self.queue.pop() {
            self.now_us = next.at_us;
            self.outcome.events += 1;
            self.handle(next)?;
            if self.healed && self.all_caught_up() {
                self.outcome.recovery_us = self.now_us - FAULTS_UNTIL_US;
                self.outcome.committed = self.checker.committed().len();
                return Ok(self.outcome);
            }
            if self.now_us > HEALED_UNTIL_US {
                break;
            }
        }
        let state =
            |node: &Node| node.zab.as_ref().map(|zab| (zab.status(), zab.committed(), *zab.durable_epochs()));
        let states: Vec<_> = self.nodes.iter().map(|node| (node.id.0, state(node))).collect();
        Err(Violation::Stuck(format!("{} committed, {states:?}", self.checker.committed().len())))
    }

    /// Disks of three voters that two leaders have left without finishing: server `a` led epoch 2 and logged
    /// a proposal alone; `c` adopted epoch 2 and saw none; `b` never heard of it, and holds proposals of
    /// epoch 1 that nobody else has.
    fn fork(&mut self) {
        let (a, b) = (self.random.index(3), self.random.index(2));
        let b = (a + 1 + b) % 3;
        let mut log: Vec<Batch> = Vec::new();
        for counter in 1..=7 {
            let prev = log.last().map_or(LogPosition::START, Batch::end);
            log.push(self.batch(prev, Zxid::new(Epoch(1), counter), 1));
        }
        let alone = self.batch(log[4].end(), Zxid::new(Epoch(2), 1), 1);
        for node in 0..3 {
            let kept = if node == b { 7 } else { 5 };
            let extra = (node == a).then(|| alone.clone());
            let epoch = Epoch(if node == b { 1 } else { 2 });
            let id = self.nodes[node].id;
            let disk = &mut self.nodes[node].disk;
            disk.epochs = Epochs {
                accepted: epoch,
                current: epoch,
                cluster: 7,
                initialized: true,
                ..Epochs::default()
            };
            for batch in log[..kept].iter().cloned().chain(extra) {
                self.checker.durable(id, batch.end());
                disk.push(Operation::Append(batch));
            }
            disk.start();
            disk.finish();
        }
    }

    fn at(&mut self, after_us: u64, event: Event) {
        let node = match event {
            Event::Tick { node }
            | Event::Synced { node }
            | Event::EpochsWritten { node }
            | Event::Answer { node, .. }
            | Event::Transferred { node }
            | Event::SnapshotWritten { node, .. }
            | Event::Broken { node, .. } => node,
            Event::Deliver { to, .. } => to,
            _ => 0,
        };
        let incarnation = self.nodes[node].incarnation;
        self.scheduled += 1;
        let at_us = self.now_us + after_us;
        self.queue.push(Reverse(Scheduled { at_us, number: self.scheduled, incarnation, event }));
    }

    fn handle(&mut self, mut next: Scheduled) -> Result<(), Violation> {
        let target = match next.event {
            Event::Tick { node }
            | Event::Synced { node }
            | Event::EpochsWritten { node }
            | Event::Answer { node, .. }
            | Event::Transferred { node }
            | Event::SnapshotWritten { node, .. }
            | Event::Broken { node, .. } => Some(node),
            Event::Deliver { to, .. } => Some(to),
            _ => None,
        };
        if let Some(node) = target {
            if self.nodes[node].incarnation != next.incarnation || self.nodes[node].zab.is_none() {
                return Ok(());
            }
            if self.nodes[node].paused_until_us > self.now_us {
                next.at_us = self.nodes[node].paused_until_us;
                self.queue.push(Reverse(next));
                return Ok(());
            }
        }
        match next.event {
            Event::Tick { node } => {
                self.at(TICK_US, Event::Tick { node });
                self.input(node, Input::Tick)
            }
            Event::Deliver { from, to, connection, message } => {
                if self.network.direction(from, to).connection != Some(connection) {
                    return Ok(());
                }
                let from = self.nodes[from].id;
                self.input(to, Input::Message { from, message })
            }
            Event::Synced { node } => self.synced(node),
            Event::EpochsWritten { node } => {
                let disk = &mut self.nodes[node].disk;
                if let Some(epochs) = disk.writing_epochs.take() {
                    let (before, after) = (epochs.accepted, disk.epochs.accepted);
                    if before < after {
                        let server = self.nodes[node].id;
                        return Err(Violation::PromiseBroken { server, before, after });
                    }
                    disk.epochs = epochs;
                }
                self.input(node, Input::EpochsDurable)
            }
            Event::Answer { node, input } => self.input(node, input),
            Event::Transferred { node } => {
                if let Some(snapshot) = self.nodes[node].installing.take() {
                    self.nodes[node].disk.push(Operation::Install(snapshot));
                    self.start_disk(node);
                }
                Ok(())
            }
            Event::SnapshotWritten { node, snapshot } => self.snapshot_written(node, snapshot),
            Event::Connect { a, b } => self.connect(a, b),
            Event::Broken { node, peer } => {
                let peer = self.nodes[peer].id;
                self.input(node, Input::PeerDisconnected(peer))
            }
            Event::Start { node } => self.start(node),
            Event::Unblock { from, to } => {
                self.unblock(from, to);
                Ok(())
            }
            Event::Fault => self.fault(),
            Event::Work => self.work(),
        }
    }

    // The shell: inputs in, effects out.

    fn input(&mut self, node: usize, input: Input) -> Result<(), Violation> {
        let now_ms = self.nodes[node].clock_ms(self.now_us);
        let Some(zab) = &mut self.nodes[node].zab else { return Ok(()) };
        if self.tracing && !matches!(input, Input::Tick) {
            eprintln!("{:>9} {} << {input:?}", self.now_us, node + 1);
        }
        let mut effects = std::mem::take(&mut self.effects);
        zab.handle(now_ms, input, &mut effects);
        zab.handle(now_ms, Input::Flush, &mut effects);
        let done = effects.drain().try_for_each(|effect| self.carry_out(node, effect));
        self.effects = effects;
        done
    }

    fn carry_out(&mut self, node: usize, effect: Effect) -> Result<(), Violation> {
        let server = self.nodes[node].id;
        if self.tracing {
            eprintln!("{:>9} {} >> {effect:?}", self.now_us, node + 1);
        }
        match effect {
            Effect::Send { to, message } => {
                let incarnation = self.nodes[node].incarnation;
                self.checker.says(server, incarnation, to, &message, &self.nodes[node].disk)?;
                self.send(node, index_of(to), message);
            }
            Effect::Append(batch) => {
                self.nodes[node].append(batch.clone())?;
                self.nodes[node].disk.push(Operation::Append(batch));
                self.start_disk(node);
            }
            Effect::Truncate { after } => {
                self.outcome.truncations += 1;
                self.nodes[node].truncate(after)?;
                self.nodes[node].disk.push(Operation::Truncate(after));
                self.start_disk(node);
            }
            Effect::PersistEpochs(epochs) => {
                self.nodes[node].disk.writing_epochs = Some(epochs);
                let delay = self.fsync_us();
                self.at(delay, Event::EpochsWritten { node });
            }
            Effect::Commit { upto } => self.deliver(node, upto)?,
            Effect::ReadLog { peer, after, bytes_max } => {
                let batches = self.nodes[node].read(after, bytes_max.min(200));
                let delay = self.fsync_us();
                self.at(delay, Event::Answer { node, input: Input::LogRead { peer, after, batches } });
            }
            Effect::SendSnapshot { to } => {
                let snapshot = Snapshot { delivered: Arc::new(self.nodes[node].delivered.clone()) };
                let last = snapshot.last();
                self.snapshots.insert(last.zxid, snapshot);
                let delay = self.fsync_us();
                self.at(delay, Event::Answer { node, input: Input::SnapshotReady { peer: to, last } });
            }
            Effect::InstallSnapshot { last, .. } => {
                self.nodes[node].installing = self.snapshots.get(&last.zxid).cloned();
                let delay = 3 * self.fsync_us();
                self.at(delay, Event::Transferred { node });
            }
            Effect::AbortSnapshot => {
                if self.nodes[node].installing.take().is_some() {
                    self.at(0, Event::Answer { node, input: Input::SnapshotAborted });
                }
            }
            Effect::Status(Status::Leading { epoch }) => {
                self.outcome.leaderships += 1;
                let leader = &self.nodes[node];
                self.checker.leads(server, leader.incarnation, epoch, leader.history())?;
            }
            Effect::LeadershipConfirmed { token, commit } => {
                self.checker.confirmed(server, token, commit)?;
            }
            Effect::Disconnect { peer } => self.break_connection(node, index_of(peer)),
            Effect::Status(_)
            | Effect::Departed(_)
            | Effect::Reset
            | Effect::Repaired { .. }
            | Effect::SnapshotChunk { .. }
            | Effect::Forwarded { .. }
            | Effect::FromLeader { .. }
            | Effect::Alarm(_) => {}
        }
        Ok(())
    }

    fn deliver(&mut self, node: usize, upto: Zxid) -> Result<(), Violation> {
        let server = &mut self.nodes[node];
        let first = server.log.partition_point(|batch| batch.last() <= server.delivered_last().zxid);
        for batch in server.log.iter().skip(first).take_while(|batch| batch.last() <= upto) {
            self.checker.deliver(server.id, server.delivered.len(), batch.end(), &self.quorum)?;
            server.delivered.push(batch.end());
        }
        if server.delivered_last().zxid < upto {
            return Err(Violation::DeliveredUnknown { server: server.id, upto });
        }
        Ok(())
    }

    // Disks.

    fn fsync_us(&mut self) -> u64 {
        let max = if self.healed { 1000 } else { self.faults.fsync_us };
        self.random.between(max / 10, max)
    }

    fn start_disk(&mut self, node: usize) {
        if self.nodes[node].disk.start() {
            let delay = self.fsync_us();
            self.at(delay, Event::Synced { node });
        }
    }

    fn synced(&mut self, node: usize) -> Result<(), Violation> {
        let done = self.nodes[node].disk.finish();
        self.note_durable(node, &done);
        self.start_disk(node);
        let Some(last) = done.last() else { return Ok(()) };
        match last {
            Operation::Append(batch) => self.input(node, Input::Durable { upto: batch.last() }),
            Operation::Truncate(_) => {
                let last = self.nodes[node].disk.last();
                self.input(node, Input::Truncated { last })
            }
            Operation::Install(snapshot) => {
                self.outcome.installs += 1;
                let server = &mut self.nodes[node];
                server.base = snapshot.last();
                server.log.clear();
                server.delivered = snapshot.delivered.to_vec();
                let last = snapshot.last();
                self.input(node, Input::SnapshotInstalled { last })
            }
        }
    }

    fn note_durable(&mut self, node: usize, done: &[Operation]) {
        for operation in done {
            if let Operation::Append(batch) = operation {
                self.checker.durable(self.nodes[node].id, batch.end());
            }
        }
    }

    fn snapshot_written(&mut self, node: usize, snapshot: Snapshot) -> Result<(), Violation> {
        let server = &mut self.nodes[node];
        let zxid = snapshot.last().zxid;
        if zxid <= server.disk.snapshot.last().zxid {
            return Ok(());
        }
        server.disk.snapshot = snapshot;
        self.input(node, Input::SnapshotTaken { zxid })?;
        if self.random.chance(500) {
            return Ok(());
        }
        let server = &mut self.nodes[node];
        let base = server.disk.purge(zxid);
        if base.zxid > server.base.zxid {
            server.base = base;
            server.log.retain(|batch| batch.last() > base.zxid);
            return self.input(node, Input::LogPurged { base });
        }
        Ok(())
    }

    // Servers.

    fn start(&mut self, node: usize) -> Result<(), Violation> {
        if self.nodes[node].zab.is_some() {
            return Ok(());
        }
        let seed = self.random.next();
        let config = self.config(node);
        let server = &mut self.nodes[node];
        let (durable, log) = server.disk.recover();
        server.base = server.disk.base();
        server.log = log;
        server.delivered = server.disk.snapshot.delivered.to_vec();
        server.installing = None;
        server.zab = Some(Zab::new(config, durable, seed));
        self.input(node, Input::Start)?;
        self.at(TICK_US, Event::Tick { node });
        for peer in 0..self.nodes.len() {
            if peer != node {
                self.reconnect_later(node, peer);
            }
        }
        Ok(())
    }

    fn config(&self, node: usize) -> Config {
        let mut config = Config::new(self.nodes[node].id, self.voters, self.observers);
        config.peer_timeout_ms = PEER_TIMEOUT_MS;
        config.finalize_wait_ms = 20;
        config.init_limit_ms = 1000;
        config.sync_limit_ms = 500;
        config.mutation = self.mutation;
        if self.faults.small_buffers {
            config.tail_bytes_min = 30;
            config.tail_bytes_max = 100;
            config.window_bytes_max = 200;
            config.catch_up_bytes_max = 70;
        }
        if self.faults.short_epochs {
            config.epoch_txns_max = 40;
        }
        config
    }

    fn crash(&mut self, node: usize) {
        if self.nodes[node].zab.take().is_none() {
            return;
        }
        self.outcome.crashes += 1;
        self.nodes[node].incarnation += 1;
        let survived = self.nodes[node].disk.crash(&mut self.random);
        self.note_durable(node, &survived);
        for peer in 0..self.nodes.len() {
            if peer != node {
                self.break_connection(node, peer);
            }
        }
        if self.random.chance(self.faults.wipe) && self.may_wipe(node) {
            self.outcome.wipes += 1;
            self.nodes[node].disk = Disk::default();
            self.checker.wiped(self.nodes[node].id);
        }
        if self.random.chance(self.faults.rot) && self.may_wipe(node) {
            self.outcome.damaged += u64::from(self.nodes[node].disk.rot(&mut self.random));
        }
        let down_us = self.random.between(1000, 400_000);
        self.at(down_us, Event::Start { node });
    }

    /// A quorum of disks must be left that remember everything, and have it.
    fn may_wipe(&self, node: usize) -> bool {
        let others = self.nodes.iter().filter(|other| other.id != self.nodes[node].id);
        let left: ServerSet = others.filter(|other| other.disk.remembers()).map(|n| n.id).collect();
        ringkeeper_engine::zab::Quorum::is_quorum(&self.quorum, &left)
    }

    // Connections.

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let (latency_us, datagrams) = match self.healed {
            true => (1000, false),
            false => (self.faults.latency_us, self.faults.datagrams),
        };
        let delay = self.random.between(latency_us / 10, latency_us);
        let mut mishap = || datagrams && self.random.chance(20);
        let (lost, repeated, late) = (mishap(), mishap(), mishap());
        let now_us = self.now_us;
        let direction = self.network.direction(from, to);
        let Some(connection) = direction.connection else { return };
        if direction.blocked {
            direction.stalled.push_back(message);
            return;
        }
        if lost {
            return;
        }
        let mut at_us = now_us + delay;
        if late {
            at_us += 3 * delay;
        } else {
            at_us = at_us.max(direction.busy_until_us);
            direction.busy_until_us = at_us;
        }
        if repeated {
            let again = message.clone();
            self.at(3 * delay, Event::Deliver { from, to, connection, message: again });
        }
        self.at(at_us - now_us, Event::Deliver { from, to, connection, message });
    }

    fn connect(&mut self, a: usize, b: usize) -> Result<(), Violation> {
        let (x, y) = (&self.nodes[a], &self.nodes[b]);
        let reachable = x.zab.is_some() && y.zab.is_some() && !self.network.is_blocked(a, b);
        let paused = x.paused_until_us.max(y.paused_until_us) > self.now_us;
        let both_down = self.network.direction(a, b).connection.is_none()
            && self.network.direction(b, a).connection.is_none();
        if !reachable || paused {
            if self.nodes[a].zab.is_some() && self.nodes[b].zab.is_some() {
                self.reconnect_later(a, b);
            }
            return Ok(());
        }
        if !both_down {
            return Ok(());
        }
        self.network.connections += 1;
        let connection = Some(self.network.connections);
        self.network.direction(a, b).connection = connection;
        self.network.direction(b, a).connection = connection;
        let (a_id, b_id) = (self.nodes[a].id, self.nodes[b].id);
        self.input(a, Input::PeerConnected(b_id))?;
        self.input(b, Input::PeerConnected(a_id))
    }

    fn reconnect_later(&mut self, a: usize, b: usize) {
        let delay = self.random.between(1000, 30_000);
        self.at(delay, Event::Connect { a, b });
    }

    fn break_connection(&mut self, a: usize, b: usize) {
        if self.network.direction(a, b).connection.is_none() {
            return;
        }
        for (node, peer) in [(a, b), (b, a)] {
            let direction = self.network.direction(node, peer);
            direction.connection = None;
            direction.stalled.clear();
            self.at(0, Event::Broken { node, peer });
        }
        self.reconnect_later(a, b);
    }

    fn unblock(&mut self, from: usize, to: usize) {
        let direction = self.network.direction(from, to);
        direction.blocked = false;
        for message in std::mem::take(&mut direction.stalled) {
            self.send(from, to, message);
        }
    }

    // What goes wrong.

    fn fault(&mut self) -> Result<(), Violation> {
        if self.now_us >= FAULTS_UNTIL_US {
            return self.heal();
        }
        self.at(10_000, Event::Fault);
        let node = self.random.index(self.nodes.len());
        let peer = self.random.index(self.nodes.len());
        if self.random.chance(self.faults.crash) {
            self.crash(node);
        }
        if self.random.chance(self.faults.pause) {
            let pause_us = self.random.between(1000, 500_000);
            let until_us = &mut self.nodes[node].paused_until_us;
            *until_us = (*until_us).max(self.now_us + pause_us);
        }
        if node != peer && self.random.chance(self.faults.disconnect) {
            self.break_connection(node, peer);
        }
        if self.random.chance(self.faults.partition) {
            self.partition();
        }
        if self.random.chance(self.faults.clock_jump) {
            let clock = &mut self.nodes[node].clock_offset_ms;
            *clock = if self.random.chance(500) { *clock + 700 } else { clock.saturating_sub(700) };
        }
        if self.random.chance(self.faults.snapshot) && self.nodes[node].zab.is_some() {
            let snapshot = Snapshot { delivered: Arc::new(self.nodes[node].delivered.clone()) };
            let delay = 2 * self.fsync_us();
            self.at(delay, Event::SnapshotWritten { node, snapshot });
        }
        Ok(())
    }

    /// Blocks some directions for a while: one server off, two halves, one way only, or halves with a bridge.
    fn partition(&mut self) {
        let servers = self.nodes.len();
        let (kind, pivot) = (self.random.below(4), self.random.index(servers));
        let side = self.random.next();
        let until_us = self.random.between(10_000, 800_000);
        let breaks = self.random.chance(500);
        let on_side = |node: usize| side >> (node % 64) & 1 == 1;
        for from in 0..servers {
            for to in 0..servers {
                let cut = match kind {
                    0 => (from == pivot) != (to == pivot),
                    1 => on_side(from) != on_side(to),
                    2 => on_side(from) && !on_side(to),
                    _ => from != pivot && to != pivot && on_side(from) != on_side(to),
                };
                if from == to || !cut {
                    continue;
                }
                self.network.direction(from, to).blocked = true;
                self.at(until_us, Event::Unblock { from, to });
                if breaks {
                    self.break_connection(from, to);
                }
            }
        }
    }

    fn heal(&mut self) -> Result<(), Violation> {
        self.healed = true;
        self.healed_at = self.checker.committed().len();
        for node in 0..self.nodes.len() {
            for peer in 0..self.nodes.len() {
                if node != peer {
                    self.unblock(node, peer);
                }
            }
            self.start(node)?;
        }
        Ok(())
    }

    fn all_caught_up(&self) -> bool {
        let committed = self.checker.committed().len();
        let caught_up = |node: &Node| {
            let serves = node.zab.as_ref().is_some_and(|zab| zab.status() != Status::Looking);
            serves && node.delivered.len() == committed
        };
        committed >= self.healed_at + 3 && self.nodes.iter().all(caught_up)
    }

    // What the ensemble is used for.

    fn work(&mut self) -> Result<(), Violation> {
        let pause = if self.healed { 20_000 } else { self.faults.proposal_us };
        let delay = self.random.between(pause / 2, pause);
        self.at(delay, Event::Work);
        for node in 0..self.nodes.len() {
            if self.nodes[node].paused_until_us > self.now_us {
                continue;
            }
            let next = self.nodes[node].zab.as_ref().and_then(Zab::next_zxid);
            if let Some(first) = next {
                let txns = self.random.between(1, 4);
                let batch = self.batch(self.nodes[node].last(), first, txns);
                self.input(node, Input::Propose(batch))?;
                if self.random.chance(100) {
                    self.tokens += 1;
                    self.checker.asks_confirmation(self.tokens);
                    self.input(node, Input::ConfirmLeadership { token: self.tokens })?;
                }
            }
        }
        Ok(())
    }

    /// A batch that names its predecessor, with a payload that no other batch has.
    fn batch(&mut self, prev: LogPosition, first: Zxid, txns: u64) -> Batch {
        let mut last = first;
        for _ in 1..txns {
            last = last.next().unwrap_or(last);
        }
        let mut bytes = prev.checksum.0.to_le_bytes().to_vec();
        bytes.extend(self.random.next().to_le_bytes());
        let checksum = u32::try_from(self.random.between(1, u64::from(u32::MAX))).unwrap_or(1);
        // `first..=last` is a range of one epoch by construction.
        Batch::new(first, last, Checksum(checksum), Arc::from(bytes))
            .unwrap_or_else(|error| unreachable!("{error}"))
    }
}

fn index_of(id: ServerId) -> usize {
    usize::try_from(id.0 - 1).unwrap_or(usize::MAX)
}
