//! Fault injection, its end, and the workload of the clients meanwhile.

use std::collections::BTreeMap;

use ringkeeper_engine::zab::{Quorum, ServerSet, Status};
use ringkeeper_log::memory::{CrashMode, Effect, Fault, MemoryDisk, OpKind};
use ringkeeper_log::meta::{MetaStore, PersistedEpochs};
use ringkeeper_wire::Zxid;

use super::ask::Ask;
use super::client::Phase;
use super::handing_over::Trial;
use super::recovery::at_once;
use super::rules::Who;
use super::server::Process;
use super::spoil::{self, spoil};
use super::violation::{Oracle, Violation};
use super::workers::Worker;
use super::workload;
use super::world::{Event, FAULTS_UNTIL_US, LINGER_US, Outlasting, World};
use crate::env::{LANS, Lan, Quality};

/// Time within which a server must accept a client, or the client tries another one.
const PATIENCE_US: u64 = 200_000;
/// Requests of a client without a reply.
const PENDING_MAX: usize = 12;

impl World {
    pub(super) fn fault(&mut self) -> Result<(), Violation> {
        if self.now_us >= FAULTS_UNTIL_US {
            return self.heal();
        }
        self.at(10_000, Event::Fault);
        let server = self.random.index(self.servers.len());
        let peer = self.random.index(self.servers.len());
        if self.random.chance(self.faults.crash) {
            self.crash(server);
        }
        if let Some(learner) = self.receiving()
            && self.random.chance(self.faults.crash_in_transfer)
        {
            self.crash(learner);
        }
        if self.random.chance(self.faults.pause) {
            let isolates = self.random.chance(self.faults.isolation);
            // Cut off for so long, another one leads, and its clients have not left it yet.
            let (least_us, most_us) = match isolates {
                // Another one leads soon, unless a lease keeps it from that.
                true if self.faults.leases => (1000, 500_000),
                true => (200_000, 500_000),
                false => (1000, self.faults.pause_max_us),
            };
            let pause_us = self.random.between(least_us, most_us);
            // Isolation matters for leaders, so one is chosen if there is one.
            let server = self.leader().filter(|_| isolates).unwrap_or(server);
            let until_us = &mut self.servers[server].paused_until_us;
            *until_us = (*until_us).max(self.now_us + pause_us);
            self.machines.pause(server, *until_us);
            self.report.pauses += 1;
            if isolates {
                self.isolate(server, pause_us);
            }
        }
        if server != peer && self.random.chance(self.faults.disconnect) {
            self.report.disconnects += 1;
            self.machines.network().break_off(server, peer);
        }
        if self.random.chance(self.faults.stranger) {
            self.intrude(server);
        }
        if self.random.chance(self.faults.partition) && self.servers.len() > 1 {
            self.report.partitions += 1;
            self.partition();
        }
        if self.faults.behind > 0 && self.random.chance(self.faults.behind) && self.servers.len() > 1 {
            self.fall_behind(server);
        }
        if self.faults.two_networks && self.random.chance(self.faults.network_down) {
            self.lose_network();
        }
        if self.random.chance(self.faults.clock_jump) {
            self.report.clock_jumps += 1;
            let jump = self.random.between(0, 20_000).cast_signed() - 10_000;
            self.servers[server].machine.jump_clock(jump);
        }
        if self.random.chance(self.faults.snapshot)
            && let Some(process) = &self.servers[server].process
        {
            process.pump.trigger().demand();
        }
        let whole = self.servers[server].slip.is_none() && self.servers[server].damaged.is_none();
        if self.faults.old_copy > 0 && self.random.chance(50) && whole {
            self.servers[server].copy = Some(durable_copy(&self.servers[server].disk));
        }
        if self.random.chance(self.faults.sync_error) && !self.is_shielded(peer) {
            let kind = [OpKind::Sync, OpKind::Sync, OpKind::SyncDir][self.random.index(3)];
            let effect = Effect::Drop { cached: self.random.chance(500) };
            let skip = self.random.below(4);
            self.servers[peer].disk.inject(Fault { kind, prefix: String::new(), skip, times: 1, effect });
        }
        if self.random.chance(self.faults.disk_full) && !self.servers[peer].disk.is_limited() {
            self.report.disks_full += 1;
            self.judge.was_full = true;
            let disk = &self.servers[peer].disk;
            // Sometimes a little space is left, but not enough for a segment.
            let limit = disk.used_bytes() + self.random.below(3) * 16 * 1024;
            disk.set_capacity_bytes(Some(limit));
            let full_us = self.random.between(10_000, 700_000);
            self.at(full_us, Event::Room { disk: peer });
        }
        if self.random.chance(self.faults.hand_over) {
            self.hand_over(server);
        }
        if self.random.chance(self.faults.reconfigure) {
            self.reconfigure();
            // The voters of before, or those of after, are lost while the change is under way.
            if self.servers.len() > 1 && self.random.chance(300) {
                self.report.partitions += 1;
                self.partition();
            }
        }
        if self.faults.older.is_some() && self.random.chance(self.faults.replace_build) {
            self.replace_build();
        }
        if self.faults.change_level > 0 && self.random.chance(self.faults.change_level) {
            self.change_level();
        }
        if self.random.chance(self.faults.rot_running) {
            self.damage_running(server);
        }
        self.trouble_a_client();
        self.trouble_a_worker()
    }

    /// A server that is being sent a snapshot.
    fn receiving(&self) -> Option<usize> {
        self.servers.iter().position(|server| {
            server.process.is_some()
                && server.disk.names().iter().any(|name| name.starts_with("install.part."))
        })
    }

    fn trouble_a_client(&mut self) {
        let client = self.random.index(self.clients.len());
        let link = self.clients[client].link;
        if self.random.chance(self.faults.client_break) && link != 0 {
            self.report.client_breaks += 1;
            self.clients[client].lost();
            self.hang_up(link, true);
        } else if self.random.chance(self.faults.client_silence) && link != 0 {
            self.report.client_silences += 1;
            if let Some(link) = self.links.get_mut(&link) {
                link.silent = true;
            }
        } else if self.random.chance(self.faults.client_move) && self.clients[client].phase == Phase::Up {
            self.report.client_moves += 1;
            self.clients[client].lost();
            self.ghosts.push((client, link));
        }
    }

    fn crash(&mut self, index: usize) {
        if self.servers[index].starting {
            self.report.crashes_in_recovery += 1;
            self.say(&format!("server {} crashes in recovery", index + 1));
            let mode = self.crash_mode();
            self.fall(index);
            self.servers[index].disk.crash(mode);
            self.correct(index);
            return self.start_later(index);
        }
        if self.servers[index].process.is_none() || self.is_shielded(index) {
            return;
        }
        self.report.crashes += 1;
        self.say(&format!("server {} crashes", index + 1));
        let mode = self.crash_mode();
        self.fall(index);
        self.servers[index].disk.crash(mode);
        self.correct(index);
        if self.random.chance(self.faults.wipe) && self.may_wipe(index) {
            self.report.wipes += 1;
            self.servers[index].disk = MemoryDisk::new();
            self.servers[index].machine.replace_disk(self.servers[index].disk.clone());
            self.servers[index].struck = 0;
            self.servers[index].remembers = None;
            self.servers[index].damaged = None;
            self.judge.wiped(self.servers[index].id);
        }
        if self.random.chance(self.faults.old_copy) {
            self.put_back(index);
        }
        let size = self.faults.segment_size_bytes;
        if self.random.chance(self.faults.rot)
            && self.may_wipe(index)
            && let Some(damage) =
                spoil(&self.servers[index].disk, spoil::Server::Down, size, &mut self.random)
        {
            self.say(&format!("server {}: {damage}", index + 1));
            self.report.damaged += 1;
            self.damaged(index);
        }
        if self.random.chance(self.faults.slip) {
            self.slip(index);
        }
        self.start_later(index);
    }

    /// If the server is still starting, the power has failed in the middle of it.
    pub(super) fn halted(&mut self, index: usize, life: u64) {
        if self.servers[index].starting && self.servers[index].life == life {
            self.crash(index);
        }
    }

    pub(super) fn crash_mode(&mut self) -> CrashMode {
        match self.random.below(3) {
            0 => CrashMode::LoseUnsynced,
            1 => CrashMode::KeepAll,
            _ => CrashMode::Tear { seed: self.random.next() },
        }
    }

    pub(super) fn start_later(&mut self, index: usize) {
        let down_us = self.random.between(1000, 400_000);
        self.at(down_us, Event::Start { server: index });
    }

    /// Ends the process of a server.
    pub(super) fn fall(&mut self, index: usize) {
        let server = &mut self.servers[index];
        let remembers = server.remembered();
        server.life += 1;
        server.starting = false;
        let silence_us = if self.healed { 0 } else { self.random.below(self.faults.silence_us + 1) };
        let server = &mut self.servers[index];
        let Some(process) = server.process.take() else { return self.machines.end(index, silence_us) };
        server.remembers = remembers;
        self.report.snapshots += process.pump.trigger().taken().times.count;
        self.report.installs += process.installs;
        self.report.scrubs += process.scrub().passes;
        drop(process);
        self.machines.end(index, silence_us);
        self.reset_links(index);
    }

    /// The log has failed because of the disk: the process ends, and sometimes the machine with it.
    pub(super) fn disk_failed(&mut self, index: usize, reason: &str) -> Result<(), Violation> {
        let struck = self.servers[index].disk.struck();
        // What is damaged may have been read for more than the scrub.
        let damaged = self.servers[index].damaged.is_some() && !self.is_shielded(index);
        if struck == self.servers[index].struck && !damaged {
            return Err(Oracle::Log.broken(format!("the log of server {} fails: {reason}", index + 1)));
        }
        self.say(&format!("server {} ends: {reason}", index + 1));
        self.report.sync_errors += 1;
        self.servers[index].struck = struck;
        self.fall(index);
        if self.random.chance(700) {
            self.servers[index].disk.end_process();
        } else {
            let mode = self.crash_mode();
            self.servers[index].disk.crash(mode);
        }
        self.start_later(index);
        Ok(())
    }

    /// Whether a disk may be wiped. A quorum of other disks must have everything of one ensemble; and the
    /// disk must not belong to another ensemble, since without its log nobody knows that it held nothing.
    pub(super) fn may_wipe(&self, index: usize) -> bool {
        let mut left: BTreeMap<u64, ServerSet> = BTreeMap::new();
        for (_, server) in self.servers.iter().enumerate().filter(|(other, _)| *other != index) {
            if let Some(ensemble) = server.remembered() {
                left.entry(ensemble).or_default().insert(server.id);
            }
        }
        let Some(systems) = self.quorum_systems() else { return false };
        let is_quorum = |servers: &ServerSet| systems.iter().all(|system| system.is_quorum(servers));
        let of_quorum = left.iter().find(|(_, servers)| is_quorum(servers));
        let of_quorum = of_quorum.map(|(number, _)| *number);
        of_quorum.is_some() && self.servers[index].remembered().is_none_or(|number| Some(number) == of_quorum)
    }

    /// Puts an old copy of a folder back, if the server can be told from what it was by everyone whom it
    /// would make a quorum with: by those who know that it had adopted an epoch that the copy lacks, and by
    /// those who have adopted a newer one than the server ever has, and lack nothing. What nobody can know,
    /// nothing can keep from happening.
    fn put_back(&mut self, index: usize) {
        let server = &self.servers[index];
        let (id, now) = (server.id, promises_on(&durable_copy(&server.disk)));
        let Some(copy) = server.copy.clone().filter(|_| self.may_wipe(index)) else { return };
        let then = promises_on(&copy);
        let tells = |promises: &PersistedEpochs| {
            let members = ServerSet::from_words(promises.members);
            let former = ServerSet::from_words(promises.former_members);
            let knows = (members.contains(id) && promises.current_epoch > then.current_epoch)
                || (former.contains(id) && promises.former_epoch > then.current_epoch);
            let remembers = promises.initialized
                && promises.end_before_damage == Zxid::ZERO
                && promises.cluster == now.cluster;
            let newer = promises.current_epoch > now.current_epoch;
            remembers && promises.accepted_epoch >= now.accepted_epoch && (knows || newer)
        };
        let others = self.servers.iter().filter(|other| other.id != id);
        let fooled = others.filter(|other| !tells(&promises_on(&durable_copy(&other.disk))));
        if then.cluster != now.cluster
            || self.quorums().is_quorum(&fooled.map(|other| other.id).chain([id]).collect())
        {
            return;
        }
        self.say(&format!(
            "server {id}: an old copy of its folder is put back, of epoch {}",
            then.current_epoch.0
        ));
        self.report.old_copies += 1;
        self.judge.wiped(id);
        self.judge.has_losses = true;
        let server = &mut self.servers[index];
        server.disk = durable_copy(&copy);
        server.machine.replace_disk(server.disk.clone());
        server.struck = 0;
        server.remembers = None;
        server.damaged = None;
        server.forgot = Some(now.current_epoch);
    }

    /// Blocks some directions for a while: of one server, between two halves, one way only, or between halves
    /// with a bridge.
    fn partition(&mut self) {
        let servers = self.servers.len();
        let (kind, pivot, side) = (self.random.below(4), self.random.index(servers), self.random.next());
        let until_us = self.random.between(10_000, 800_000);
        let breaks = self.random.chance(500);
        let on_side = |server: usize| side >> (server % 64) & 1 == 1;
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
                self.machines.network().block(from, to);
                self.at(until_us, Event::Unblock { from, to });
                if breaks {
                    self.machines.network().break_off(from, to);
                }
            }
        }
    }

    /// The leader, or any other server, hears later and later from one of its peers, which hears from it as
    /// ever.
    fn fall_behind(&mut self, from: usize) {
        let to = self.leader().unwrap_or_else(|| self.random.index(self.servers.len()));
        if from == to {
            return;
        }
        self.report.fallen_behind += 1;
        let (times, until_us) = (self.random.between(3, 8), self.random.between(100_000, 1_500_000));
        self.machines.network().fall_behind(from, to, times);
        self.at(until_us, Event::CatchUp { from, to });
    }

    /// One of two networks is down for a while, or one server's interface to it; the other network is not.
    fn lose_network(&mut self) {
        let (machine, lan) = (self.random.index(2 * self.servers.len()), self.random.index(LANS));
        let machine = Some(machine).filter(|machine| *machine < self.servers.len());
        let machines = 0..self.servers.len();
        if machines.clone().any(|machine| (0..LANS).any(|lan| self.machines.network().is_down(machine, lan)))
        {
            return;
        }
        self.report.networks_lost += 1;
        machines
            .filter(|number| machine.is_none_or(|machine| machine == *number))
            .for_each(|number| self.machines.network().take_down(number, lan));
        let until_us = self.random.between(10_000, 1_500_000);
        self.at(until_us, Event::Up { machine, lan });
    }

    /// Interfaces are up again, unless the network is lost for good.
    pub(super) fn bring_up(&self, machine: Option<usize>, lan: Lan) {
        let machines = (0..self.servers.len()).filter(|_| !self.healed);
        machines
            .filter(|number| machine.is_none_or(|machine| machine == *number))
            .for_each(|number| self.machines.network().bring_up(number, lan));
    }

    /// Isolates a server while it is paused, and for up to a leader's patience longer.
    fn isolate(&mut self, index: usize, pause_us: u64) {
        self.report.partitions += 1;
        let until_us = pause_us + self.random.between(10_000, 600_000);
        self.servers[index].isolated_until_us = self.now_us + until_us;
        for peer in (0..self.servers.len()).filter(|peer| *peer != index) {
            for (from, to) in [(index, peer), (peer, index)] {
                self.machines.network().block(from, to);
                self.at(until_us, Event::Unblock { from, to });
            }
        }
        if self.faults.leases {
            self.lose_leader(index);
        }
    }

    /// The others lose an isolated leader at once, which does not hear of that, and at times begin anew. Only
    /// what they have granted keeps them from an election while it may use its lease.
    fn lose_leader(&mut self, index: usize) {
        let crashes = self.random.chance(300);
        for peer in (0..self.servers.len()).filter(|peer| *peer != index) {
            self.machines.network().break_end(peer, index);
            if crashes {
                self.crash(peer);
                // Before the leader's lease is over.
                let down_us = self.random.between(1000, 60_000);
                self.at(down_us, Event::Start { server: peer });
            }
        }
    }

    fn heal(&mut self) -> Result<(), Violation> {
        self.say("healed");
        self.healed = true;
        self.intruder.check()?;
        let latency_us = self.faults.latency_us.min(1000);
        let network = self.machines.network();
        network.set_quality(Quality { latency_us, loss: 0, cut: 0, ..network.quality() });
        (0..self.servers.len()).for_each(|server| self.correct_at_once(server));
        self.upgrade();
        for server in &self.servers {
            server.machine.set_medium_us(self.faults.fsync_us.min(1000));
            server.disk.clear_faults();
            server.disk.set_capacity_bytes(None);
        }
        for from in 0..self.servers.len() {
            for to in 0..self.servers.len() {
                if from != to {
                    self.machines.network().unblock(from, to);
                    self.machines.network().catch_up(from, to);
                }
            }
            self.start(from);
        }
        if self.faults.two_networks {
            self.lose_network_for_good();
        }
        let silent: Vec<u64> = self.links.iter().filter(|(_, link)| link.silent).map(|(id, _)| *id).collect();
        for id in silent {
            if let Some(link) = self.links.get_mut(&id) {
                link.silent = false;
            }
            if let Some(client) = self.clients.iter_mut().find(|client| client.link == id) {
                client.lost();
            }
            self.hang_up(id, true);
            self.reset_worker(id)?;
        }
        self.stage.heal();
        Ok(())
    }

    /// Both networks are whole again, but one of them is lost from now on, if all members are in both.
    fn lose_network_for_good(&mut self) {
        let lost = (!self.reconfigures()).then(|| self.random.index(LANS));
        for machine in 0..self.servers.len() {
            (0..LANS).for_each(|lan| self.machines.network().bring_up(machine, lan));
            lost.into_iter().for_each(|lan| self.machines.network().take_down(machine, lan));
        }
    }

    /// A server that leads and serves.
    pub(super) fn leader(&self) -> Option<usize> {
        self.servers.iter().position(|server| {
            server.process.as_ref().is_some_and(|process| {
                process.is_serving() && matches!(process.node().status(), Status::Leading { .. })
            })
        })
    }

    /// Fills the disk of the leader for good, and waits until another server leads. Returns whether this is
    /// still pending. It begins when a quorum of the others has votes: a server that has yet to learn what
    /// its disk lost could not help another one to lead.
    pub(super) fn outlasts(&mut self) -> bool {
        match (self.outlasting, self.leader()) {
            (Outlasting::Due, Some(leader)) if self.others_vote(leader) => {
                self.say(&format!("the disk of server {} runs full for good", leader + 1));
                self.report.disks_full += 1;
                self.judge.was_full = true;
                let disk = &self.servers[leader].disk;
                disk.set_capacity_bytes(Some(disk.used_bytes()));
                self.outlasting = Outlasting::Full(leader);
            }
            (Outlasting::Full(full), Some(leader)) if leader != full => {
                self.say(&format!("server {} leads in the place of one without room", leader + 1));
                self.report.full_leaders += 1;
                self.servers[full].disk.set_capacity_bytes(None);
                self.outlasting = Outlasting::Over;
            }
            _ => {}
        }
        self.outlasting != Outlasting::Over
    }

    /// Whether a quorum of the servers except this one serves and has lost nothing.
    fn others_vote(&self, index: usize) -> bool {
        let votes = |process: &Process| {
            let node = process.node();
            let epochs = node.zab().durable_epochs();
            process.is_serving() && epochs.initialized && epochs.end_before_damage == Zxid::ZERO
        };
        let others = self.servers.iter().enumerate().filter(|(other, _)| *other != index);
        let voting = others.filter(|(_, server)| server.process.as_ref().is_some_and(votes));
        self.quorums().is_quorum(&voting.map(|(_, server)| server.id).collect())
    }

    // Clients.

    pub(super) fn act(&mut self, index: usize) {
        let pause = self.random.between(self.faults.burst_us / 4, self.faults.burst_us);
        self.at(pause, Event::Act { client: index });
        if self.finished[index] == Some(false) {
            return;
        }
        self.haunt(index);
        match self.clients[index].phase {
            Phase::Down => {
                let impostor = !self.healed && self.random.chance(self.faults.impostor);
                if self.dial(index, impostor) {
                    self.report.impostors += u64::from(self.clients[index].impostor);
                }
            }
            Phase::Greeting if self.now_us > self.clients[index].sent_us + PATIENCE_US => self.give_up(index),
            Phase::Greeting => {}
            Phase::Up => self.work(index),
        }
    }

    fn give_up(&mut self, index: usize) {
        let link = self.clients[index].link;
        self.clients[index].lost();
        self.hang_up(link, true);
    }

    fn work(&mut self, index: usize) {
        let client = &self.clients[index];
        let timeout_us = client.session.map_or(0, |session| session.timeout_ms * 1000);
        if self.now_us > client.heard_us + timeout_us * 2 / 3 && client.pending() > 0 {
            return self.give_up(index);
        }
        let mut asks = Vec::new();
        if self.now_us > client.sent_us + timeout_us / 4 {
            asks.push(Ask::Ping);
        }
        if self.healed && self.outlasting == Outlasting::Over && self.trial == Trial::Over {
            if self.finished[index].is_none() && client.pending() == 0 && asks.is_empty() {
                asks = workload::finale(&mut self.random);
                let stays = index.is_multiple_of(2);
                if stays {
                    self.finished[index] = Some(true);
                } else {
                    asks.push(Ask::Close);
                }
            }
        } else if let Some(server) = self.doubts(index) {
            if self.servers[server].paused_until_us <= self.now_us {
                asks.extend([Ask::Sync, workload::draw_read(&mut self.random)]);
            }
        } else if client.pending() < PENDING_MAX && !self.clients_rest() {
            let greedy = self.faults.greedy && !self.healed;
            let burst = self.random.between(0, if greedy { 100 } else { 4 });
            // Only writes reveal that a leader's disk is full, so clients that write stay until then.
            let is_administrator = client.who == Who::Administrator;
            let reads = !self.healed && (index as u64) < self.faults.readers && !is_administrator;
            let draw = match reads {
                true => workload::draw_read,
                false if is_administrator => workload::draw_administration,
                false if greedy => workload::draw_greedy,
                false => workload::draw,
            };
            asks.extend((0..burst).map(|_| draw(&mut self.random)));
            if self.faults.rules && self.random.chance(100) {
                asks.push(workload::draw_about_rules(&mut self.random, reads));
            }
            if !self.healed && self.random.chance(3) {
                asks.push(Ask::Close);
            }
        }
        let mut bytes = Vec::new();
        for ask in asks {
            let last = matches!(ask, Ask::Close);
            self.clients[index].ask(self.now_us, ask, &mut self.judge, &mut bytes);
            if last {
                break;
            }
        }
        let link = self.clients[index].link;
        self.write_to_server(link, bytes);
    }

    /// The isolated server that a client is connected to. The client keeps quiet until that server is awake.
    /// Then it asks for what others have written meanwhile, and writes nothing: a reply to sync would wait
    /// for that.
    fn doubts(&self, index: usize) -> Option<usize> {
        let server = self.links.get(&self.clients[index].link)?.server;
        (!self.healed && self.now_us < self.servers[server].isolated_until_us).then_some(server)
    }

    /// Sends on connections whose session has moved away.
    fn haunt(&mut self, index: usize) {
        let ghosts: Vec<u64> =
            self.ghosts.iter().filter(|(client, _)| *client == index).map(|(_, link)| *link).collect();
        if self.clients[index].phase != Phase::Up {
            return;
        }
        for link in ghosts {
            let mut bytes = Vec::new();
            if self.random.chance(500) {
                let ask = Ask::Set { path: "/a".into(), data: [6; 6].into(), version: -1 };
                bytes = self.clients[index].haunt(&ask, link, &mut self.judge);
            } else {
                Ask::Ping.encode(ringkeeper_wire::xid::PING, &mut bytes);
            }
            self.write_to_server(link, bytes);
        }
    }

    // The end.

    /// Whether all servers agree and every client has finished its work.
    pub(super) fn is_done(&mut self) -> Result<bool, Violation> {
        let settled_us = FAULTS_UNTIL_US + LINGER_US;
        let mut staying = Vec::new();
        for client in &self.clients {
            let Some(session) = client.session else { continue };
            let steady = client.phase == Phase::Up
                && self.now_us > client.attached_us.max(FAULTS_UNTIL_US) + LINGER_US / 2;
            let is_local = self.judge.is_local(session.id);
            let lives = is_local || self.judge.tree().sessions.contains(&session.id);
            let closing = client.closes();
            Oracle::Session.check(lives || closing || !steady, || {
                format!("session {:#x} has expired, and client {} is there", session.id, client.number)
            })?;
            if !is_local {
                staying.push(session.id);
            }
        }
        let done = self.finished.iter().zip(&self.clients).all(|(finished, client)| match finished {
            None => false,
            Some(false) => true,
            Some(true) => client.phase == Phase::Up && client.pending() == 0,
        });
        let worked = self.workers.iter().all(Worker::is_done);
        if !done || !worked || !self.ghosts.is_empty() || (self.faults.linger && self.now_us < settled_us) {
            return Ok(false);
        }
        staying.sort_unstable();
        let newest = self.judge.newest();
        let everywhere = self.servers.iter().all(|server| {
            server.process.as_ref().is_some_and(|process| {
                process.is_serving()
                    && server.damaged.is_none()
                    && process.view().last_zxid().to_wire() == newest
                    && process.node().application().last_executed().to_wire() == newest
            })
        });
        Ok(everywhere && self.judge.tree().sessions.iter().eq(staying.iter()))
    }

    pub(super) fn finish(mut self) -> Result<super::report::Report, Violation> {
        for server in &self.servers {
            if let Some(process) = &server.process {
                self.report.snapshots += process.pump.trigger().taken().times.count;
                self.report.installs += process.installs;
                self.report.scrubs += process.scrub().passes;
                self.judge.compare_all(server.id, process.view())?;
            }
        }
        self.intruder.check()?;
        self.examiner.finish(&self.judge)?;
        self.report.packets_lost = self.machines.network().lost();
        self.report.workers = self.workers.len() as u64;
        (self.report.rounds, self.report.facts) = (self.stage.deeds(), self.examiner.facts);
        self.report.refusals = self.judge.refusals;
        self.report.read_only_sessions = self.clients.iter().map(|client| client.read_only_sessions).sum();
        self.report.resumed_read_only = self.clients.iter().map(|client| client.resumed_read_only).sum();
        self.report.simulated_us = self.now_us;
        self.report.recovery_max_us = self.now_us - FAULTS_UNTIL_US;
        self.report.leaderships = self.judge.leaderships();
        self.report.transactions = self.judge.history().len() as u64;
        self.report.writes_checked = self.judge.writes_checked;
        self.report.reads_checked = self.judge.reads_checked;
        self.report.rules_changed = self.judge.rules_changed;
        self.report.forbidden = self.judge.forbidden;
        self.report.watch_events_checked = self.judge.events_checked;
        self.report.restores_unexplained = self.judge.restores_unexplained;
        self.report.regroupings = self.judge.regroupings;
        self.report.level_changes = self.judge.levels.changes;
        Ok(self.report)
    }
}

/// What is durable on a disk, on another one.
pub(super) fn durable_copy(disk: &MemoryDisk) -> MemoryDisk {
    let copy = disk.fork();
    copy.crash(CrashMode::LoseUnsynced);
    copy.set_capacity_bytes(None);
    copy
}

/// What a folder says that its server has promised.
pub(super) fn promises_on(disk: &MemoryDisk) -> PersistedEpochs {
    disk.hold(false);
    let meta = at_once(MetaStore::peek(&disk.storage())).and_then(Result::ok).flatten();
    meta.map_or_else(PersistedEpochs::default, |meta| meta.promises)
}
