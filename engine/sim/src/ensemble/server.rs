//! One server: the node, its shards and its log, in a shell without threads and sockets.
//!
//! The host's tasks run on the server's machine. The shards follow `net/src/server/shard_host.rs`: the same
//! rings, the same order of calls. In place of an executor's turn, the world calls a pump here.

use std::cell::Ref;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringkeeper_engine::level::Level;
use ringkeeper_engine::message::{ConnId, Serving, ToShard};
use ringkeeper_engine::node::{Effect, Node};
use ringkeeper_engine::replica::{Now, Output, Replica};
use ringkeeper_engine::shard::{self, AfterWrite, LongRead, Shard};
use ringkeeper_engine::state::State;
use ringkeeper_engine::steps;
use ringkeeper_engine::zab::{self, Batch, LogPosition, Message};
use ringkeeper_host::env::{Class, Env};
use ringkeeper_host::links::{Links, Port};
use ringkeeper_host::log_task::{LogQueue, LogTask};
use ringkeeper_host::pump::Pump;
use ringkeeper_host::scrub::{Findings, Integrity, Pace};
use ringkeeper_host::snapshots::Trigger;
use ringkeeper_host::tasks::{Settings, Tasks};
use ringkeeper_host::transfer::Limits;
use ringkeeper_log::memory::MemoryDisk;
use ringkeeper_log::meta::PersistedEpochs;
use ringkeeper_log::storage::BLOCK_LEN;
use ringkeeper_wire::{Epoch, ServerId, Zxid};

use super::frontend::{Frontend, Sender, Told};
use super::judge::Judge;
use super::medium::Medium;
use super::recovery::TreeFormat;
use super::slips::Slip;
use super::violation::{Oracle, Violation};
use super::world::TICK_US;
use crate::env::{Machine, SimEnv, SimListener};

/// Messages of the core handled before sockets have their turn again, as in the shell.
const MESSAGES_PER_TURN: usize = 64;

/// The most steps of one call of a shard: those of a slice, and of the reads that wait for a group, which are
/// bounded by the number of requests that a client may have outstanding.
const SHARD_STEPS_MAX: u64 = 1_000;

/// Small, so that a transfer has several pieces and breaks off between them.
const TRANSFER: Limits = Limits {
    bytes_per_second: u64::MAX,
    window_bytes: 2 * BLOCK_LEN,
    window_bytes_max: 8 * BLOCK_LEN,
    piece_bytes: BLOCK_LEN,
};

/// So often that passes meet truncations, purges and full disks.
const SCRUB: Pace = Pace { bytes_per_second: u64::MAX, rest: Duration::from_millis(100) };

/// A machine, which outlives the processes on it.
pub(crate) struct Server {
    pub(crate) id: ServerId,
    pub(crate) machine: Rc<Machine>,
    pub(crate) disk: MemoryDisk,
    /// Number of disk operations that known faults have struck.
    pub(crate) struck: u64,
    /// The ensemble of which the disk had everything promised and acknowledged, at the last crash.
    pub(crate) remembers: Option<u64>,
    /// Recovery is running.
    pub(crate) starting: bool,
    /// A copy of the folder as it was at some time.
    pub(crate) copy: Option<MemoryDisk>,
    /// The epoch that the server had adopted when an old copy was put back: it lacks nothing when it has
    /// adopted a newer one.
    pub(crate) forgot: Option<Epoch>,
    /// What the build can do that it runs, or is started with next.
    pub(super) build: Level,
    /// What is wrong with its next or present start.
    pub(super) slip: Option<Slip>,
    /// Its files were damaged when its scrub had completed so many passes, and were not found whole since.
    pub(crate) damaged: Option<u64>,
    /// How often its files were damaged.
    pub(crate) damages: u64,
    /// `None` while it is down.
    pub(crate) process: Option<Process>,
    pub(crate) life: u64,
    pub(crate) paused_until_us: u64,
    /// No packet passes between this server and the others until then.
    pub(crate) isolated_until_us: u64,
}

/// A running server.
pub(crate) struct Process {
    pub(crate) shards: Vec<ShardHost>,
    pub(crate) pump: Rc<Pump<SimEnv, Frontend>>,
    /// The log as the server sees it, durable or not.
    pub(crate) batches: Vec<Batch>,
    /// How many of `batches` are known to be durable.
    durable: usize,
    medium: Medium,
    integrity: Rc<Integrity>,
    /// Damages that recovery has found.
    found_by_start: u64,
    /// Snapshots that were received and put in the place of everything.
    pub(crate) installs: u64,
    /// The state that its shards serve once all messages to them have arrived.
    view: Arc<State>,
    /// How many transactions of the committed order that view holds.
    position: usize,
    serving: Serving,
    /// Has served with a leader since its start.
    has_served: bool,
    /// Connections whose sessions it has called ended while it served reads without a leader.
    rejected_alone: BTreeSet<ConnId>,
}

/// A shard with its sockets and rings.
pub(crate) struct ShardHost {
    pub(crate) shard: Shard,
    pub(crate) inbox: VecDeque<ToShard>,
    next_conn: u64,
    links: BTreeMap<ConnId, Socket>,
    /// A long read, executed before the shard's next turn.
    long_read: Option<LongRead>,
    /// The most steps of one call of the shard.
    steps_max: u64,
    pub(crate) pump_due: bool,
}

/// The server's end of a client's connection.
struct Socket {
    link: u64,
    /// Received by the kernel while the shard did not read.
    unread: Vec<u8>,
}

/// An action of the world for a server.
pub(crate) enum Outward {
    /// Bytes for a client; then the end of the connection, if it ends.
    Write { link: u64, bytes: Vec<u8>, close: bool },
    /// A shard has got something to do.
    WakeShard(usize),
    /// A shard has more to do, and goes on after its core's other tasks.
    NextTurn(usize),
}

impl Server {
    /// The process and its clock, if it runs.
    pub(crate) fn running(&mut self) -> Option<(ServerId, Now, &mut Process)> {
        let (id, now) = (self.id, self.machine.now());
        self.process.as_mut().map(|process| (id, now, process))
    }

    /// The ensemble in which the disk has all that was promised and acknowledged, if it has.
    pub(crate) fn remembered(&self) -> Option<u64> {
        let Some(process) = &self.process else { return self.remembers };
        let node = process.node();
        let epochs = node.zab().durable_epochs();
        let forgot = self.forgot.is_some_and(|epoch| epochs.current <= epoch);
        let whole = self.damaged.is_none() && epochs.initialized && epochs.end_before_damage == Zxid::ZERO;
        (whole && !forgot).then_some(epochs.cluster)
    }
}

/// What a process is made of.
pub(crate) struct Parts {
    /// Each shard, and the number of its first connection.
    pub(crate) shards: Vec<(Shard, u64)>,
    pub(crate) node: Node<Replica>,
    pub(crate) links: Rc<Links<SimEnv>>,
    pub(crate) port: Option<Port<SimListener>>,
    pub(crate) trigger: Trigger,
    pub(crate) log: LogTask<SimEnv, TreeFormat>,
    pub(crate) batches: Vec<Batch>,
    pub(crate) medium: Medium,
    pub(crate) damage: u64,
}

impl Process {
    /// Starts the tasks of the host.
    pub(crate) fn start(parts: Parts, world: Sender) -> Self {
        let Parts { shards, node, links, port, trigger, log, batches, medium, damage } = parts;
        let env = log.env.clone();
        let view = Arc::clone(node.application().committed());
        let frontend = Frontend::new(world.clone(), shards.len());
        let pump = Pump::new(env.clone(), frontend, links, node, LogQueue::new(Duration::MAX), trigger);
        let settings =
            Settings { tick: Duration::from_micros(TICK_US), transfer: TRANSFER, scrub: Some(SCRUB) };
        let integrity = Integrity::new(damage);
        let tasks = Tasks::start(&pump, log, Rc::clone(&integrity), settings);
        pump.start_links(port);
        let ended = async move {
            if let Err(failure) = tasks.ended().await {
                world.tell(Told::Failed(failure.to_string()));
            }
        };
        env.spawn(Class::Requests, ended).detach();
        let hosts = shards.into_iter().map(|(shard, first_conn)| ShardHost {
            shard,
            inbox: VecDeque::new(),
            next_conn: first_conn,
            links: BTreeMap::new(),
            long_read: None,
            steps_max: 0,
            pump_due: false,
        });
        Self {
            view,
            shards: hosts.collect(),
            pump,
            integrity,
            found_by_start: damage,
            durable: 0,
            medium,
            installs: 0,
            batches,
            position: 0,
            serving: Serving::No,
            has_served: false,
            rejected_alone: BTreeSet::new(),
        }
    }

    pub(crate) fn node(&self) -> Ref<'_, Node<Replica>> {
        self.pump.node()
    }

    /// What the scrub has done and found.
    pub(crate) fn scrub(&self) -> Findings {
        self.integrity.findings()
    }

    /// Damages that the scrub has found.
    pub(crate) fn found_by_scrub(&self) -> u64 {
        self.scrub().damage - self.found_by_start
    }

    /// The batches that were durable, and so may have been acknowledged.
    pub(crate) fn acknowledged(&self) -> &[Batch] {
        &self.batches[..self.durable]
    }

    pub(crate) const fn is_serving(&self) -> bool {
        matches!(self.serving, Serving::Yes | Serving::Leads)
    }

    pub(crate) const fn has_served(&self) -> bool {
        self.has_served
    }

    /// Whether it has called the session of a connection ended while it had no leader.
    pub(crate) fn has_rejected_alone(&self, conn: ConnId) -> bool {
        self.rejected_alone.contains(&conn)
    }

    pub(crate) const fn view(&self) -> &Arc<State> {
        &self.view
    }

    /// A snapshot has replaced the log.
    pub(crate) fn installed(
        &mut self,
        server: ServerId,
        last: LogPosition,
        judge: &mut Judge,
    ) -> Result<(), Violation> {
        judge.replaced(server, &self.batches, last)?;
        self.batches.clear();
        self.durable = 0;
        self.installs += 1;
        Ok(())
    }

    /// The disk has run full, or has room again.
    pub(crate) fn disk_full(&mut self, full: bool, out: &mut Vec<Outward>) {
        (0..self.shards.len()).for_each(|shard| self.tell(shard, ToShard::DiskFull(full), out));
    }

    /// Finds the batches that have become durable.
    pub(super) fn look_for_durable(&mut self, server: ServerId, judge: &mut Judge) {
        while let Some(batch) = self.batches.get(self.durable).filter(|batch| self.medium.has(batch.end())) {
            judge.durable(server, batch.end());
            self.durable += 1;
        }
    }

    /// Checks a message of the server against its disk, before it is sent.
    fn says(
        &mut self,
        (server, life): (ServerId, u64),
        to: ServerId,
        message: &Message,
        judge: &mut Judge,
    ) -> Result<(), Violation> {
        let (accepted, ack) = match message {
            Message::AckEpoch(ack) => (ack.epoch, None),
            Message::Ack(ack) => (ack.epoch, Some(ack)),
            Message::Pong(pong) => (pong.ack.epoch, Some(&pong.ack)),
            _ => return Ok(()),
        };
        let adopted = ack.filter(|ack| ack.adopted).map_or(Epoch(0), |ack| ack.epoch);
        let enough = |promises: &PersistedEpochs| {
            promises.accepted_epoch >= accepted && promises.current_epoch >= adopted
        };
        let promises = self.medium.promises(enough);
        Oracle::Said.check(enough(&promises), || {
            format!("server {server} says {message:?} to {to}, and its disk has {promises:?}")
        })?;
        if let Message::AckEpoch(ack) = message
            && ack.promise
        {
            judge.promises(server, life, to, ack.epoch)?;
        }
        let Some(ack) = ack else { return Ok(()) };
        self.look_for_durable(server, judge);
        let missing = self.batches.get(self.durable).filter(|batch| batch.last() <= ack.upto);
        Oracle::Said.check(missing.is_none(), || {
            format!("server {server} says {message:?} to {to}, and its disk has no {missing:?}")
        })
    }

    /// Judges what the node has decided, and gives shards what is for them.
    pub(crate) fn decided(
        &mut self,
        (server, life): (ServerId, u64),
        effect: Effect<Output>,
        (leading, executed): (bool, Zxid),
        judge: &mut Judge,
        out: &mut Vec<Outward>,
    ) -> Result<(), Violation> {
        match effect {
            Effect::Output(Output::Shard(shard, message)) => {
                if let ToShard::Rejected { conn } = message
                    && self.serving == Serving::ReadOnly
                {
                    self.rejected_alone.insert(conn);
                }
                self.tell(usize::from(shard.0), message, out);
            }
            Effect::Output(Output::AllShards(message)) => {
                self.judge_message(server, &message, judge)?;
                (0..self.shards.len()).for_each(|shard| self.tell(shard, message.clone(), out));
            }
            Effect::Output(Output::Level { required, .. }) => self.pump.links().require(required),
            Effect::Output(Output::Members(membership)) => {
                self.pump.links().set_members(&membership.members);
            }
            Effect::Output(Output::DigestMismatch { peer, zxid }) => {
                return Err(Oracle::Tree.broken(format!("server {server}: server {peer} differs at {zxid}")));
            }
            Effect::InvalidPeerMessage { peer, reason } => {
                return Err(Oracle::Sound.broken(format!("server {server} distrusts {peer}: {reason}")));
            }
            Effect::Broken(reason) => {
                return Err(Oracle::Sound.broken(format!("server {server} cannot go on: {reason}")));
            }
            Effect::Zab(zab::Effect::Append(batch)) => {
                if leading {
                    self.check_backlog(server, judge)?;
                }
                self.batches.push(batch);
            }
            Effect::Zab(zab::Effect::Truncate { after }) => {
                let kept = self.batches.partition_point(|batch| batch.last() <= after);
                let cut = self.batches.split_off(kept);
                self.durable = self.durable.min(kept);
                judge.cut(server, &cut)?;
            }
            Effect::Zab(zab::Effect::Send { to, message }) => {
                self.says((server, life), to, &message, judge)?;
            }
            Effect::Zab(zab::Effect::Status(zab::Status::Leading { epoch })) => {
                judge.leads(server, life, epoch, executed, &self.batches)?;
            }
            // A majority of new servers may found an ensemble without the others; the judge knows what must
            // not be lost.
            Effect::Zab(zab::Effect::Alarm(zab::Alarm::Founded { .. })) => {}
            Effect::Zab(zab::Effect::Alarm(zab::Alarm::OldCopy { .. })) if judge.has_losses => {}
            Effect::Zab(zab::Effect::Alarm(zab::Alarm::OtherVoters { .. })) if judge.lists_differ => {}
            Effect::Zab(zab::Effect::Alarm(alarm)) => {
                return Err(Oracle::Sound.broken(format!("server {server}: {alarm:?}")));
            }
            Effect::Output(Output::Refused { .. } | Output::Forbidden { .. })
            | Effect::Rebuild
            | Effect::Zab(_) => {}
        }
        Ok(())
    }

    /// A leader is about to append: the bytes that wait must be within their bound, except for the newest
    /// batch, which may have been proposed because nothing else waited.
    fn check_backlog(&mut self, server: ServerId, judge: &mut Judge) -> Result<(), Violation> {
        self.look_for_durable(server, judge);
        let waiting = &self.batches[self.durable..];
        let older = &waiting[..waiting.len().saturating_sub(1)];
        let bytes: usize = older.iter().map(|batch| batch.bytes().len()).sum();
        let max = self.node().undurable_bytes_max();
        Oracle::Backlog.check(bytes < max, || {
            format!("server {server} proposes while {bytes} bytes wait for its log, of {max} at most")
        })
    }

    /// On a leader, the operations of its multis that are not committed must be within their bound, except
    /// for the newest multi, which may have been prepared because others were few.
    pub(super) fn check_work(&self, server: ServerId) -> Result<(), Violation> {
        let node = self.node();
        let zab::Status::Leading { epoch } = node.status() else { return Ok(()) };
        let own = node.application().uncommitted().filter(|txn| txn.zxid.epoch() == epoch);
        let sizes: Vec<_> = own.map(|txn| txn.op.multi_operations()).filter(|size| *size > 0).collect();
        let operations: usize = sizes.iter().take(sizes.len().saturating_sub(1)).sum();
        let max = node.application().settings().uncommitted_operations_max;
        Oracle::Work.check(operations < max, || {
            format!("server {server} prepares a multi while {operations} operations wait, of {max} at most")
        })
    }

    fn judge_message(
        &mut self,
        server: ServerId,
        message: &ToShard,
        judge: &mut Judge,
    ) -> Result<(), Violation> {
        self.look_for_durable(server, judge);
        match message {
            ToShard::View(view) => self.view = Arc::clone(view),
            ToShard::Serving(serving) => {
                self.serving = *serving;
                if self.is_serving() {
                    self.has_served = true;
                    self.position = judge.serves(server, &self.view, &self.batches)?;
                }
            }
            ToShard::Published(published) => {
                if self.is_serving() {
                    self.position = judge.published(server, self.position, published, &self.batches)?;
                }
                if let Some(group) = published.groups.last() {
                    self.view = Arc::clone(&group.view);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn tell(&mut self, shard: usize, message: ToShard, out: &mut Vec<Outward>) {
        if let Some(host) = self.shards.get_mut(shard) {
            host.inbox.push_back(message);
            out.push(Outward::WakeShard(shard));
        }
    }

    /// One turn of a shard.
    pub(crate) fn pump_shard(
        &mut self,
        server: ServerId,
        now_us: u64,
        index: usize,
        out: &mut Vec<Outward>,
    ) -> Result<(), Violation> {
        let host = &mut self.shards[index];
        for _ in 0..MESSAGES_PER_TURN {
            let Some(message) = host.inbox.pop_front() else { break };
            host.call(|shard| shard.deliver(now_us, message));
        }
        if let Some(read) = host.long_read.take() {
            let done = read.carry_out();
            host.call(|shard| shard.long_read_done(now_us, done));
        }
        if host.call(|shard| shard.next_slice(now_us)) || !host.inbox.is_empty() {
            out.push(Outward::NextTurn(index));
        }
        while let Some(effect) = host.shard.next_effect() {
            if let shard::Effect::Closing { conn, reason } = effect
                && let shard::CloseReason::OutOfOrder
                | shard::CloseReason::MalformedConnect
                | shard::CloseReason::MalformedHeader
                | shard::CloseReason::Frame(_) = reason
            {
                return Err(Oracle::Sound.broken(format!("server {server} closes {conn:?}: {reason}")));
            }
        }
        host.write_outputs(now_us, out);
        host.long_read = host.shard.next_long_read();
        if host.long_read.is_some() {
            out.push(Outward::WakeShard(index));
        }
        let requests = host.shard.take_requests();
        if !requests.is_empty() {
            self.pump.frontend().push(index, requests);
            self.pump.wake();
        }
        while let Some(conn) = host.shard.next_readable() {
            if let Some(socket) = host.links.get_mut(&conn) {
                let bytes = std::mem::take(&mut socket.unread);
                host.receive(now_us, conn, bytes);
                out.push(Outward::WakeShard(index));
            }
        }
        Oracle::Slice.check(host.steps_max <= SHARD_STEPS_MAX, || {
            format!("server {server}: a call of a shard takes {} steps", host.steps_max)
        })
    }
}

impl ShardHost {
    /// Calls the shard, and counts the steps of the call.
    pub(crate) fn call<T>(&mut self, call: impl FnOnce(&mut Shard) -> T) -> T {
        let (returned, steps) = steps::of(|| call(&mut self.shard));
        self.steps_max = self.steps_max.max(steps);
        returned
    }

    pub(crate) fn connected(&mut self, now_us: u64, link: u64) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        self.links.insert(conn, Socket { link, unread: Vec::new() });
        self.call(|shard| shard.connected(now_us, conn, SocketAddr::from((Ipv4Addr::LOCALHOST, 1))));
        conn
    }

    /// Passes received bytes on if the shard reads, or keeps them.
    pub(crate) fn receive(&mut self, now_us: u64, conn: ConnId, bytes: Vec<u8>) {
        let Some(socket) = self.links.get_mut(&conn) else { return };
        socket.unread.extend(bytes);
        if self.shard.wants_read(conn) && !socket.unread.is_empty() {
            let bytes = std::mem::take(&mut socket.unread);
            self.call(|shard| shard.received(now_us, conn, &bytes));
        }
    }

    /// The client's end is closed.
    pub(crate) fn disconnected(&mut self, now_us: u64, conn: ConnId) {
        if self.links.remove(&conn).is_some() {
            self.call(|shard| shard.disconnected(now_us, conn));
        }
    }

    fn write_outputs(&mut self, now_us: u64, out: &mut Vec<Outward>) {
        while let Some(conn) = self.shard.next_dirty().or_else(|| self.shard.next_notified()) {
            let mut all = Vec::new();
            let close = loop {
                let mut bytes = Vec::new();
                let after = self.call(|shard| shard.take_output(conn, &mut bytes));
                if bytes.is_empty() {
                    break after != AfterWrite::Continue;
                }
                self.shard.written(now_us, conn, bytes.len());
                all.extend(bytes);
            };
            let Some(link) = self.links.get(&conn).map(|socket| socket.link) else { continue };
            if close {
                self.disconnected(now_us, conn);
            }
            out.push(Outward::Write { link, bytes: all, close });
        }
    }
}
