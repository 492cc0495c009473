//! The time of a run, and the servers in it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringkeeper_engine::level::Level;
use ringkeeper_engine::limits::{Limit, Limits};
use ringkeeper_engine::members::Members;
use ringkeeper_engine::message::{ConnId, ShardId};
use ringkeeper_engine::node::{Effect, Node};
use ringkeeper_engine::replica::{Output, Replica, ReplicaSettings};
use ringkeeper_engine::settings::Settings;
use ringkeeper_engine::shard::{self, Shard};
use ringkeeper_engine::steps;
use ringkeeper_engine::zab::{self, Config, Message, ObserverStep, ServerSet};
use ringkeeper_host::env::{Class, Env, PeerAddress};
use ringkeeper_host::links::{Links, Redial};
use ringkeeper_host::snapshots::{Policy, Trigger};
use ringkeeper_log::storage::WriteMode;
use ringkeeper_wire::ServerId;

use super::client::Client;
use super::faults::{FaultMix, Keeping};
use super::founding::Founding;
use super::frontend::{Mail, Sender, Told};
use super::handing_over::Trial;
use super::judge::Judge;
use super::links::Link;
use super::medium::Medium;
use super::planted::Planted;
use super::reconfiguring::configured;
use super::recovery::{How, Recovered, Stopped, recover};
use super::report::Report;
use super::rules::{self, Who};
use super::server::{Outward, Parts, Process, Server};
use super::strangers::Intruder;
use super::violation::{Oracle, Violation};
use super::workers::{self, Examiner, Stage, Worker};
use crate::env::{Executor, Hardware, LANS, Lan, Machine, Machines, Quality};
use crate::random::Random;

pub(super) const TICK_US: u64 = 20_000;
pub(super) const FAULTS_FROM_US: u64 = 300_000;
pub(super) const FAULTS_UNTIL_US: u64 = 3_000_000;
const HEALED_UNTIL_US: u64 = FAULTS_UNTIL_US + 40_000_000;
/// Longer than every session's timeout, twice.
pub(super) const LINGER_US: u64 = 4_000_000;
const SHARDS: u16 = 2;

/// Ephemerals of a session in the runs whose clients meet the bound.
const FEW_EPHEMERALS: usize = 2;
/// The longest time that a core's other tasks take before a shard goes on: a request of many slices must be
/// done within the shortest session timeout.
const TURN_MAX_US: u64 = 300;
/// Entries that one slice of a shard may visit.
const SLICE_VISITS: usize = 20;
/// The most steps of one turn of a server's task: such as the leader's, which prepares the longest multis.
const TURN_STEPS_MAX: u64 = 10_000;
/// How much faster than the slowest clock the fastest one is, per mille, where that breaks what leases
/// assume.
const UNEVEN_DRIFT: u64 = 1000;
/// How long a machine is off after a power failure during a start.
const HALTED_US: u64 = 300_000;
/// Where a server listens for others.
pub(super) const PEER_PORT: u16 = 2888;
/// What the servers prove who they are with.
const SECRET: &[u8] = b"known to the servers of this ensemble";

/// Runs one seed with a fault planted.
///
/// # Errors
/// The first promise that was broken.
pub fn run(seed: u64, planted: Planted) -> Result<Report, Violation> {
    World::new(seed, planted, false).run()
}

/// Runs one seed with a fault planted, and with workers, which have the client library and do ordinary
/// recipes.
///
/// # Errors
/// The first promise that was broken.
pub fn run_recipes(seed: u64, planted: Planted) -> Result<Report, Violation> {
    World::new(seed, planted, true).run()
}

/// Runs one seed like [`run`] and prints what happens.
///
/// # Errors
/// Like [`run`].
pub fn trace(seed: u64, planted: Planted) -> Result<Report, Violation> {
    World::new(seed, planted, false).run_tracing()
}

/// Runs one seed like [`run_recipes`] and prints what happens.
///
/// # Errors
/// Like [`run_recipes`].
pub fn trace_recipes(seed: u64, planted: Planted) -> Result<Report, Violation> {
    World::new(seed, planted, true).run_tracing()
}

#[derive(Debug)]
pub(super) enum Event {
    Tick {
        server: usize,
    },
    PumpShard {
        server: usize,
        shard: usize,
    },
    Start {
        server: usize,
    },
    /// The power may have failed during a start.
    Halted {
        server: usize,
        life: u64,
    },
    Unblock {
        from: usize,
        to: usize,
    },
    CatchUp {
        from: usize,
        to: usize,
    },
    /// Interfaces are up again: one machine's, or all in a network.
    Up {
        machine: Option<usize>,
        lan: Lan,
    },
    /// Bytes from a client; none mean that its end is closed.
    ToServer {
        link: u64,
        server: usize,
        bytes: Vec<u8>,
    },
    /// Bytes for a client; none mean that the server's end is closed.
    ToClient {
        link: u64,
        bytes: Vec<u8>,
    },
    Act {
        client: usize,
    },
    /// A worker goes on.
    Turn {
        worker: usize,
    },
    /// A worker's dial has reached a server.
    Dialed {
        worker: usize,
        attempt: u64,
        server: usize,
    },
    /// A disk that was full has room again.
    Room {
        disk: usize,
    },
    Fault,
}

impl Event {
    /// The process that has to be there, and awake.
    const fn server(&self) -> Option<usize> {
        match self {
            Self::Tick { server } | Self::PumpShard { server, .. } | Self::ToServer { server, .. } => {
                Some(*server)
            }
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Scheduled {
    at_us: u64,
    number: u64,
    life: u64,
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

pub(super) struct World {
    pub(super) now_us: u64,
    pub(super) random: Random,
    pub(super) faults: FaultMix,
    planted: Planted,
    pub(super) voters: ServerSet,
    /// What all servers' configurations say of the members.
    pub(super) configured: Members,
    pub(super) observers: ServerSet,
    pub(super) executor: Executor,
    pub(super) machines: Machines,
    /// What the servers' tasks have told.
    mail: Mail,
    pub(super) servers: Vec<Server>,
    pub(super) intruder: Intruder,
    pub(super) clients: Vec<Client>,
    /// Connections that a client's session has left and that are still open.
    pub(super) ghosts: Vec<(usize, u64)>,
    /// Clients that have done all they had to do; those that keep their sessions.
    pub(super) finished: Vec<Option<bool>>,
    pub(super) workers: Vec<Worker>,
    pub(super) stage: Rc<Stage>,
    pub(super) examiner: Examiner,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) next_link: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    pub(super) judge: Judge,
    /// How many ephemerals a session may own.
    shard_settings: shard::Settings,
    pub(super) report: Report,
    pub(super) tracing: bool,
    pub(super) healed: bool,
    pub(super) outlasting: Outlasting,
    pub(super) trial: Trial,
}

/// The last condition of a run: a leader whose disk is full for good is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlasting {
    /// Pending, until some server leads.
    Due,
    /// The disk of this server is full.
    Full(usize),
    /// Another server leads, and the disk has room again; or the run has no such condition.
    Over,
}

impl World {
    /// `recipes`: workers come on.
    fn new(seed: u64, planted: Planted, recipes: bool) -> Self {
        let mut random = Random::new(seed);
        let faults = match recipes {
            false => FaultMix::draw(&mut random),
            true => FaultMix::draw_with_workers(&mut random),
        };
        Self::with(random, faults, planted, recipes)
    }

    /// The same with faults that are drawn already.
    pub(super) fn with(mut random: Random, faults: FaultMix, planted: Planted, recipes: bool) -> Self {
        let drift = match planted {
            Planted::UnevenClocks if faults.leases => UNEVEN_DRIFT,
            _ => faults.drift,
        };
        let voters: ServerSet = (1..=faults.voters).map(ServerId).collect();
        let all = faults.voters + faults.observers;
        let observers: ServerSet = (faults.voters + 1..=all).map(ServerId).collect();
        // The last machine is none of the ensemble's.
        let hardware: Vec<Hardware> = (0..=all)
            .map(|_| Hardware {
                clock_error_ms: random.between(0, 2000).cast_signed() - 1000,
                clock_rate: match faults.leases {
                    true => [1000, 1000 + drift][random.index(2)],
                    false => 1000 + random.below(drift + 1),
                },
                medium_us: faults.fsync_us,
                writes_through: faults.write_mode != WriteMode::Synced,
            })
            .collect();
        let executor = Executor::new(random.next(), faults.ring_us);
        let quality = Quality {
            latency_us: faults.latency_us,
            loss: faults.loss,
            window_bytes: 1 << 20,
            bytes_per_ms: 100_000,
            pieces: faults.pieces,
            cut: faults.cut,
        };
        let machines = Machines::new(&executor, quality, &hardware);
        // Strangers come without a certificate.
        for number in 0..hardware.len() - 1 {
            (0..LANS).for_each(|lan| machines.network().certify(number, &Machines::name_in(number, lan)));
        }
        let server = |(id, machine): (u64, Rc<Machine>)| Server {
            id: ServerId(id),
            disk: machine.disk(),
            machine,
            struck: 0,
            remembers: None,
            starting: false,
            copy: None,
            forgot: None,
            build: faults.older.map_or(Level::NEWEST, |(index, older)| {
                if index_of(ServerId(id)) == index { older } else { Level::NEWEST }
            }),
            slip: None,
            damaged: None,
            damages: 0,
            process: None,
            life: 0,
            paused_until_us: 0,
            isolated_until_us: 0,
        };
        let servers: Vec<Server> = (1..=all)
            .zip(0..)
            .map(|(id, number)| (id, Rc::clone(machines.machine(number))))
            .map(server)
            .collect();
        let clients: Vec<Client> = (0..faults.clients)
            .map(|number| {
                let who = if faults.rules { Who::of(number, faults.clients) } else { Who::default() };
                let mut client = Client::new(number, [300, 600, 1500][random.index(3)], who);
                client.takes_read_only = number == 1;
                client
            })
            .collect();
        let stage = Rc::default();
        // Recipes count on their ephemerals.
        let few = faults.small_buffers && !recipes;
        let ephemerals_max = if few { FEW_EPHEMERALS } else { 100_000 };
        let limits = Limits::default().with(Limit::Ephemerals, ephemerals_max as u64);
        let super_digest = Some(rules::super_digest());
        let rules = Settings { mutation: planted.engine(), limits, super_digest, ..Settings::default() };
        let shard_settings = shard_settings(&faults, rules);
        let workers = match recipes {
            false => Vec::new(),
            true => workers::cast(&mut random, servers.len(), planted.client(), &stage),
        };
        let configured = configured(&voters, &observers, &faults);
        Self {
            now_us: 0,
            planted,
            voters,
            observers,
            intruder: Intruder::new(&machines, servers.len()),
            executor,
            machines,
            mail: Mail::default(),
            servers,
            finished: vec![None; clients.len()],
            clients,
            ghosts: Vec::new(),
            workers,
            stage,
            examiner: Examiner::new(faults.drift > 0),
            links: BTreeMap::new(),
            next_link: 1,
            queue: BinaryHeap::new(),
            scheduled: 0,
            judge: Judge::new(configured.clone(), ephemerals_max, shard_settings.watches_of_slice() as usize),
            configured,
            shard_settings,
            report: Report { seeds: 1, ..Report::default() },
            tracing: false,
            healed: false,
            outlasting: if faults.full_leader && faults.voters > 2 {
                Outlasting::Due
            } else {
                Outlasting::Over
            },
            // A new epoch may come at any time where epochs are short, and costs clients their connections.
            // So does a leader that parts from its clients.
            trial: match faults.hands_over
                && faults.voters > 1
                && !faults.short_epochs
                && faults.leader_serves()
            {
                true => Trial::Due,
                false => Trial::Over,
            },
            random,
            faults,
        }
    }

    fn run(self) -> Result<Report, Violation> {
        let before = self.planted.log().plant();
        let report = self.run_planted();
        before.plant();
        report
    }

    fn run_planted(mut self) -> Result<Report, Violation> {
        let folders: Vec<_> = self.servers.iter().map(|server| (server.id, server.disk.clone())).collect();
        self.faults.founding.prepare(&folders, self.faults.segment_size_bytes, &mut self.random);
        // The first proposal that reaches all servers repairs the effects of a fork, so that needs time.
        let (starts_us, clients_us) = match self.faults.founding {
            Founding::Forked => (1_000_000, 1_500_000),
            _ => (50_000, 50_000),
        };
        for server in 0..self.servers.len() {
            let at = self.random.below(starts_us);
            self.at(at, Event::Start { server });
        }
        for client in 0..self.clients.len() {
            let at = self.random.between(clients_us, clients_us + 100_000);
            self.at(at, Event::Act { client });
        }
        for worker in 0..self.workers.len() {
            let at = self.random.between(50_000, 150_000);
            self.at(at, Event::Turn { worker });
        }
        self.at(FAULTS_FROM_US, Event::Fault);
        while let Some(ticks) = self.step()? {
            self.report.events += 1;
            if ticks && self.healed && !self.outlasts() && !self.tries_hand_over()? && self.is_done()? {
                return self.finish();
            }
            if self.now_us > HEALED_UNTIL_US {
                break;
            }
        }
        Err(Oracle::Progress.broken(self.describe()))
    }

    /// Executes the next event, in the world or on a machine; whether it was a server's tick.
    pub(super) fn step(&mut self) -> Result<Option<bool>, Violation> {
        let world_us = self.queue.peek().map(|Reverse(next)| next.at_us);
        let machines_us = self.executor.next_us();
        if machines_us.is_some_and(|at_us| world_us.is_none_or(|world_us| at_us <= world_us)) {
            let (_, steps) = steps::of(|| self.executor.step());
            Oracle::Slice
                .check(steps <= TURN_STEPS_MAX, || format!("a turn of a server takes {steps} steps"))?;
            self.now_us = self.executor.now_us();
            self.read_mail()?;
            self.examine_leases()?;
            return Ok(Some(false));
        }
        let Some(Reverse(next)) = self.queue.pop() else { return Ok(None) };
        self.now_us = next.at_us;
        self.executor.advance(self.now_us);
        let ticks = matches!(next.event, Event::Tick { .. });
        self.handle(next)?;
        self.examine_leases()?;
        Ok(Some(ticks))
    }

    /// Does what the servers' tasks want.
    fn read_mail(&mut self) -> Result<(), Violation> {
        loop {
            let told = self.mail.borrow_mut().pop_front();
            let Some((index, life, told)) = told else { return Ok(()) };
            let server = &mut self.servers[index];
            let current = server.life == life;
            if let Told::Recovered(recovered) = told {
                if current {
                    self.recovered(index, recovered)?;
                }
                continue;
            }
            let Some((id, _, process)) = server.running().filter(|_| current) else { continue };
            let mut out = Vec::new();
            match told {
                Told::Recovered(_) => {}
                Told::Decided { effect, leading, executed } => {
                    self.note(index, &effect);
                    let Some((_, _, process)) = self.servers[index].running() else { continue };
                    process.decided((id, life), effect, (leading, executed), &mut self.judge, &mut out)?;
                }
                Told::Turn => {
                    // A file of a batch may be gone, behind a snapshot, when the server next says something.
                    process.look_for_durable(id, &mut self.judge);
                    process.check_work(id)?;
                }
                Told::Installed(last) => process.installed(id, last, &mut self.judge)?,
                Told::DiskFull(full) => process.disk_full(full, &mut out),
                // A file that rots at its sender is sent as it is, and a new disk may have another one in its
                // place.
                Told::Unchanged(error) => {
                    self.say(&format!("server {} does not change the members: {error:?}", index + 1));
                    self.report.unchanged += 1;
                }
                Told::Mangled(_) if self.judge.has_losses || self.faults.wipe > 0 => {}
                Told::Mangled(reason) => {
                    return Err(Oracle::Sound.broken(format!("server {id} was sent a snapshot: {reason}")));
                }
                Told::Failed(reason) => self.disk_failed(index, &reason)?,
            }
            self.carry_out(index, out)?;
        }
    }

    fn run_tracing(mut self) -> Result<Report, Violation> {
        self.tracing = true;
        eprintln!("{:?}", self.faults);
        self.run()
    }

    pub(super) fn describe(&self) -> String {
        let workers = self.unfinished();
        if !workers.is_empty() {
            return format!("workers are stuck: {workers:#?}");
        }
        let servers: Vec<_> = self
            .servers
            .iter()
            .map(|server| {
                server.process.as_ref().map(|process| {
                    (
                        process.node().status(),
                        process.view().last_zxid(),
                        process.node().application().last_executed(),
                        server.damaged.map(|_| process.scrub()),
                    )
                })
            })
            .collect();
        format!("{servers:?}, {:?}, ghosts {:?}, {:#?}", self.finished, self.ghosts, self.clients)
    }

    pub(super) fn at(&mut self, after_us: u64, event: Event) {
        let life = event.server().map_or(0, |server| self.servers[server].life);
        self.scheduled += 1;
        let at_us = self.now_us + after_us;
        self.queue.push(Reverse(Scheduled { at_us, number: self.scheduled, life, event }));
    }

    fn handle(&mut self, mut next: Scheduled) -> Result<(), Violation> {
        if let Some(server) = next.event.server() {
            let server = &self.servers[server];
            if server.life != next.life || server.process.is_none() {
                return Ok(());
            }
            if server.paused_until_us > self.now_us {
                next.at_us = server.paused_until_us;
                self.queue.push(Reverse(next));
                return Ok(());
            }
        }
        if let Some(paused_until_us) = self.worker_pause(&next.event) {
            next.at_us = paused_until_us;
            self.queue.push(Reverse(next));
            return Ok(());
        }
        if self.tracing
            && !matches!(next.event, Event::Turn { .. } | Event::Tick { .. } | Event::PumpShard { .. })
        {
            self.say(&format!("{:?}", next.event));
        }
        match next.event {
            Event::Tick { server } => self.tick(server)?,
            Event::PumpShard { server, shard } => self.pump_shard(server, shard)?,
            Event::Start { server } => self.start(server),
            Event::Halted { server, life } => self.halted(server, life),
            Event::Unblock { from, to } => self.machines.network().unblock(from, to),
            Event::CatchUp { from, to } => self.machines.network().catch_up(from, to),
            Event::Up { machine, lan } => self.bring_up(machine, lan),
            Event::ToServer { link, server, bytes } => self.deliver_to_server(link, server, bytes),
            Event::ToClient { link, bytes } => self.deliver_to_client(link, &bytes)?,
            Event::Act { client } => self.act(client),
            Event::Room { disk } if self.outlasting == Outlasting::Full(disk) => {}
            Event::Turn { worker } => self.turn(worker)?,
            Event::Dialed { worker, attempt, server } => self.dialed(worker, attempt, server)?,
            Event::Room { disk } => self.servers[disk].disk.set_capacity_bytes(None),
            Event::Fault => self.fault()?,
        }
        Ok(())
    }

    pub(super) fn say(&self, what: &str) {
        if self.tracing {
            eprintln!("{:>9} {what}", self.now_us);
        }
    }

    // Servers.

    pub(super) fn start(&mut self, index: usize) {
        let server = &mut self.servers[index];
        if server.starting || server.process.is_some() {
            return;
        }
        server.starting = true;
        let (id, life, seed) = (server.id, server.life, self.random.next());
        if !self.healed && self.random.chance(self.faults.crash_in_recovery) {
            let changes = self.random.below(12);
            self.servers[index].disk.halt_after_changes(changes);
            self.at(HALTED_US, Event::Halted { server: index, life });
        }
        let wanted = self.wanted(index);
        let how = How {
            server: id,
            wanted,
            write_mode: self.faults.write_mode,
            segment_size_bytes: self.faults.segment_size_bytes,
            has_peers: wanted.voters.iter().any(|voter| voter != id),
            seed,
            newest: self.servers[index].build,
        };
        let (env, listener) = self.machines.begin(index, PEER_PORT);
        let port = (!self.runs_alone(index)).then(|| Machines::port(index, PEER_PORT, listener));
        let (own, mail) = (env.clone(), Rc::clone(&self.mail));
        let recovery = async move {
            let recovered = recover(own, port, how).await.map(Box::new);
            mail.borrow_mut().push_back((index, life, Told::Recovered(recovered)));
        };
        env.spawn(Class::Requests, recovery).detach();
    }

    /// Recovery of a server has ended.
    fn recovered(
        &mut self,
        index: usize,
        recovered: Result<Box<Recovered>, Stopped>,
    ) -> Result<(), Violation> {
        let (id, disk) = (self.servers[index].id, self.servers[index].disk.clone());
        let recovered = match recovered {
            Ok(recovered) => *recovered,
            Err(Stopped::Refused(mismatch)) => return self.refused(index, mismatch),
            Err(Stopped::TooNew(reason)) => return self.too_new(index, &reason),
            // There is not even room for a first segment, or a sync has failed: the start is tried again.
            Err(reason) if disk.struck() > self.servers[index].struck => {
                self.say(&format!("server {id} does not start: {reason}"));
                self.servers[index].struck = disk.struck();
                self.fall(index);
                disk.end_process();
                self.start_later(index);
                return Ok(());
            }
            Err(error) => return Err(Oracle::Log.broken(format!("server {id} cannot start: {error}"))),
        };
        self.servers[index].starting = false;
        self.look_at_damage(index);
        let Recovered { host, batches, port } = recovered;
        disk.run_on();
        let view = Arc::new(host.state.clone());
        let build = self.servers[index].build;
        self.judge.levels.begins(id, build);
        let mut random_seed = [0; 32];
        random_seed[..8].copy_from_slice(&self.random.next().to_le_bytes());
        let settings = ReplicaSettings {
            tick_ms: 100,
            // Small, so that runs reach the bounds for proposing while the log is busy.
            batch_bytes_max: if self.faults.small_buffers { 1 << 6 } else { 1 << 12 },
            // So small that multis wait for their turn.
            uncommitted_operations_max: 2,
            // A tick and a stall that counts on top of the shards' interval.
            reported_within_ms: 170,
            ensemble: self.configured.describe(0).into(),
            requests: Settings {
                reconfig_enabled: self.reconfigures(),
                standalone_enabled: false,
                multi_address_enabled: self.faults.two_networks,
                ..self.shard_settings.rules.clone()
            },
            // One of the clients accepts that; the others have to be as well off beside it.
            read_only_after_ms: (self.faults.clients == 3).then_some(150),
            leader_serves: self.faults.leader_serves(),
            local_sessions: match self.faults.local_sessions {
                Keeping::Nobody => false,
                Keeping::Some => id.0 % 2 == 1,
                Keeping::All => true,
            },
            local_sessions_upgrading: self.faults.upgrades,
            newest_level: build,
            ..ReplicaSettings::new(id, random_seed)
        };
        let seed = self.random.next();
        let node = Node::new(Replica::new(settings, host.state), self.config(index), host.durable, seed);
        let shards = (0..SHARDS).map(|shard| {
            let shard = Shard::new(ShardId(shard), self.shard_settings.clone(), Arc::clone(&view));
            (shard, self.random.next() >> 1)
        });
        let shards: Vec<(Shard, u64)> = shards.collect();
        let trigger = Trigger::new(self.snapshot_policy(), host.txns, host.bytes, self.random.next());
        let (log, damage, medium) = (host.log, host.damage, Medium::new(&disk));
        let links = Links::new(log.env.clone(), id, self.ensemble(index), SECRET, redial(&self.faults));
        if self.reconfigures() {
            links.admit_joiners();
        }
        links.watch_for_silence(&self.configured);
        links.speak_at_most(build.last_version());
        links.require(node.application().required_level());
        let parts = Parts { shards, node, links, port, trigger, log, batches, medium, damage };
        let world = Sender::new(&self.mail, index, self.servers[index].life);
        self.servers[index].process = Some(Process::start(parts, world));
        self.at(TICK_US, Event::Tick { server: index });
        Ok(())
    }

    /// Whether the log names the members.
    pub(super) const fn reconfigures(&self) -> bool {
        self.faults.reconfigure > 0
    }

    /// The servers that a server knows of.
    fn ensemble(&self, index: usize) -> Vec<PeerAddress> {
        let lans = 0..if self.faults.two_networks { LANS } else { 1 };
        let addresses = |id| {
            let name = move |lan| Machines::name_in(index_of(id), lan);
            lans.clone().map(move |lan| PeerAddress { id, host: name(lan), port: PEER_PORT })
        };
        let observers = if self.runs_alone(index) { ServerSet::EMPTY } else { self.observers };
        self.wanted(index).voters.iter().chain(observers.iter()).flat_map(addresses).collect()
    }

    /// Snapshots are taken when the faults' draw says so.
    const fn snapshot_policy(&self) -> Policy {
        Policy {
            txns_max: u64::MAX,
            bytes_max: u64::MAX,
            log_percent: 50,
            kept: self.faults.snapshots_kept,
            bytes_per_second: u64::MAX,
            compressed: self.faults.pieces,
        }
    }

    fn config(&self, index: usize) -> Config {
        let id = self.servers[index].id;
        let wanted = self.wanted(index).voters;
        let voters = if self.runs_alone(index) { [id].into_iter().collect() } else { wanted };
        let observers = if self.runs_alone(index) { ServerSet::EMPTY } else { self.observers };
        let mut config = Config::new(id, voters, observers);
        if self.has_own_list(index) {
            config.quorum = self.quorums();
        }
        if self.reconfigures() {
            config = config.admitting_joiners();
        }
        config.peer_timeout_ms = self.faults.peer_timeout_ms;
        config.finalize_wait_ms = 20;
        config.init_limit_ms = config.peer_timeout_ms.max(1000);
        config.sync_limit_ms = config.peer_timeout_ms.max(if self.faults.behind > 0 { 3000 } else { 500 });
        config.commit_record_ms = 200;
        config.hand_over_limit_ms = 400;
        if self.faults.small_buffers {
            config.tail_bytes_min = 300;
            config.tail_bytes_max = 1000;
            config.window_bytes_max = 2000;
            config.catch_up_bytes_max = 700;
        }
        if self.faults.prefers {
            config.preferred = vec![ServerId(2), ServerId(1)];
            config.prefer_after_ms = 300;
        }
        if self.faults.leases {
            config.lease_ms = config.peer_timeout_ms;
        }
        config.observer_masters = self.faults.observer_masters;
        if self.faults.short_epochs {
            config.epoch_txns_max = 40;
        }
        config.mutation = self.planted.engine();
        config
    }

    fn tick(&mut self, index: usize) -> Result<(), Violation> {
        self.at(TICK_US, Event::Tick { server: index });
        self.check_repair(index)?;
        let Some((_, now, process)) = self.servers[index].running() else { return Ok(()) };
        process.shards.iter_mut().for_each(|host| host.call(|shard| shard.tick(now.monotonic_ms * 1000)));
        let shards = process.shards.len();
        (0..shards).for_each(|shard| self.wake_shard(index, shard));
        Ok(())
    }

    /// Notes what a server has decided, in the report and the trace.
    fn note(&mut self, index: usize, effect: &Effect<Output>) {
        if let Effect::Zab(zab::Effect::Send { message: Message::Observer { step, .. }, .. }) = effect {
            self.report.observers_joined += u64::from(matches!(step, ObserverStep::Joined { .. }));
            self.report.passed_on += u64::from(matches!(step, ObserverStep::Forward(_)));
        }
        match effect {
            Effect::Zab(zab::Effect::Send { to, message }) if self.tracing => {
                self.say(&format!("server {} to {to}: {message:?}", index + 1));
            }
            Effect::Zab(zab::Effect::Truncate { .. }) => self.report.truncations += 1,
            Effect::Zab(zab::Effect::Departed(zab::Departure::ChangeAbandoned { by, .. }))
                if by.0 == index as u64 + 1 =>
            {
                self.report.abandoned += 1;
                self.say(&format!("server {} gives a change of the members up", index + 1));
            }
            Effect::Zab(zab::Effect::HandOverFailed(why)) => {
                self.say(&format!("server {}: {why}", index + 1))
            }
            Effect::Zab(zab::Effect::HandedOver) => {
                self.report.handed_over += 1;
                self.say(&format!("server {} goes over", index + 1));
            }
            Effect::Zab(zab::Effect::Status(status)) => {
                self.say(&format!("server {} is {status:?}", index + 1));
            }
            _ => {}
        }
    }

    pub(super) fn wake_shard(&mut self, index: usize, shard: usize) {
        self.turn_of_shard(index, shard, self.faults.ring_us);
    }

    fn turn_of_shard(&mut self, index: usize, shard: usize, delay_max_us: u64) {
        let delay = self.random.below(delay_max_us);
        if let Some(process) = &mut self.servers[index].process
            && !std::mem::replace(&mut process.shards[shard].pump_due, true)
        {
            self.at(delay, Event::PumpShard { server: index, shard });
        }
    }

    fn pump_shard(&mut self, index: usize, shard: usize) -> Result<(), Violation> {
        let Some((id, now, process)) = self.servers[index].running() else { return Ok(()) };
        process.shards[shard].pump_due = false;
        let mut out = Vec::new();
        process.pump_shard(id, now.monotonic_ms * 1000, shard, &mut out)?;
        self.carry_out(index, out)
    }

    fn carry_out(&mut self, index: usize, out: Vec<Outward>) -> Result<(), Violation> {
        for outward in out {
            match outward {
                Outward::Write { link, bytes, close } => {
                    if close {
                        self.check_hang_up(link)?;
                    }
                    self.write_to_client(link, bytes, close);
                }
                Outward::WakeShard(shard) => self.wake_shard(index, shard),
                Outward::NextTurn(shard) => {
                    self.turn_of_shard(index, shard, self.faults.ring_us.min(TURN_MAX_US));
                }
            }
        }
        Ok(())
    }

    pub(super) fn connection_of(&mut self, server: usize, shard: usize, link: u64) -> Option<ConnId> {
        let (_, now, process) = self.servers[server].running()?;
        Some(process.shards[shard].connected(now.monotonic_ms * 1000, link))
    }
}

/// Short, so that many connections begin and end in a run.
const fn redial(faults: &FaultMix) -> Redial {
    Redial {
        first: Duration::from_millis(2),
        last: Duration::from_millis(30),
        silence: Duration::from_millis(faults.peer_timeout_ms),
    }
}

/// Slices are so small that long work takes many of them.
fn shard_settings(faults: &FaultMix, rules: Settings) -> shard::Settings {
    let small = faults.small_buffers;
    let slice_visits_max = if small { 1 } else { SLICE_VISITS };
    let defaults = shard::Settings::default();
    shard::Settings {
        session_timeout_min_ms: 200,
        touch_interval_ms: 40,
        sessionless_timeout_ms: 500,
        outstanding_max: if small { 4 } else { 1000 },
        slice_visits_max,
        notification_copies_max: if small { 1 } else { defaults.notification_copies_max },
        notifications_max: slice_visits_max,
        rules,
        ..defaults
    }
}

pub(super) fn index_of(id: ServerId) -> usize {
    usize::try_from(id.0 - 1).unwrap_or(usize::MAX)
}
