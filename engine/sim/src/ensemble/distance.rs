//! Servers at fixed distances, without faults: what a write takes, and how fast a server far away catches up.
//!
//! Server 3 is elected, since it has the highest id. The client is beside it.

use std::collections::VecDeque;

use ringkeeper_log::storage::WriteMode;
use ringkeeper_wire::CreateMode;

use super::ask::Ask;
use super::client::Phase;
use super::faults::{FaultMix, Keeping};
use super::founding::Founding;
use super::links::Party;
use super::planted::Planted;
use super::world::{Event, World};
use crate::env::Quality;
use crate::random::Random;

const LEADER: usize = 2;
const PATH: &str = "/a";
/// What a line carries in a millisecond.
const BYTES_PER_MS: u64 = 40_000;
/// As operators set it: ten round trips.
const PEER_TIMEOUT_MS: u64 = 2000;

/// Three servers, of which nobody runs yet. A packet takes so long from the leader to the nearer server, and
/// to the farther one, which is as far from the other.
fn servers(nearer_us: u64, farther_us: u64) -> World {
    let mut random = Random::new(1);
    let faults = FaultMix {
        voters: 3,
        observers: 0,
        observer_masters: false,
        founding: Founding::KnownNew,
        clients: 1,
        peer_timeout_ms: PEER_TIMEOUT_MS,
        two_networks: false,
        drift: 0,
        loss: 0,
        cut: 0,
        pieces: false,
        client_latency_us: 0,
        fsync_us: 50,
        ring_us: 1,
        write_mode: WriteMode::Synced,
        small_buffers: false,
        short_epochs: false,
        segment_size_bytes: 16 << 20,
        crash_in_recovery: 0,
        prefers: false,
        reconfigure: 0,
        older: None,
        rules: false,
        local_sessions: Keeping::Nobody,
        leases: false,
        grouped: false,
        ..FaultMix::draw(&mut random)
    };
    let mut world = World::with(random, faults, Planted::Nothing, false);
    let network = world.machines.network();
    network.set_quality(Quality { window_bytes: 64 << 20, bytes_per_ms: BYTES_PER_MS, ..network.quality() });
    network.set_distance((LEADER, 1), nearer_us);
    network.set_distance((LEADER, 0), farther_us);
    network.set_distance((1, 0), farther_us);
    let folders: Vec<_> = world.servers.iter().map(|server| (server.id, server.disk.clone())).collect();
    world.faults.founding.prepare(&folders, world.faults.segment_size_bytes, &mut world.random);
    world
}

impl World {
    fn start_servers(&mut self, which: impl IntoIterator<Item = usize>) {
        which.into_iter().for_each(|server| self.at(0, Event::Start { server }));
    }

    fn step_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let until_us = self.now_us + 60_000_000;
        while !done(self) {
            assert!(self.now_us < until_us, "no {what}: {}", self.describe());
            self.step().unwrap_or_else(|violation| panic!("{violation}"));
        }
    }

    /// Connects the client to the leader.
    fn connect(&mut self) {
        self.step_until("leader", |world| world.leader() == Some(LEADER));
        let link = self.open(Party::Client(0), LEADER).expect("the leader runs");
        let bytes = self.clients[0].greet(self.now_us, link, false);
        self.write_to_server(link, bytes);
        self.step_until("session", |world| world.clients[0].phase == Phase::Up);
        let (path, data) = (PATH.into(), [].into());
        self.send(Ask::Create { path, data, mode: CreateMode::Persistent, stat: false, closed: false });
        self.step_until("reply", |world| world.clients[0].pending() == 0);
    }

    fn send(&mut self, ask: Ask) {
        let mut bytes = Vec::new();
        self.clients[0].ask(self.now_us, ask, &mut self.judge, &mut bytes);
        let link = self.clients[0].link;
        self.write_to_server(link, bytes);
    }

    fn send_write(&mut self, bytes: usize) {
        self.send(Ask::Set { path: PATH.into(), data: vec![7; bytes].into(), version: -1 });
    }

    /// Sends a write each millisecond, whatever is unanswered; the longest time that one of them takes.
    fn write_each_ms(&mut self, writes: u64) -> u64 {
        let began_us = self.now_us;
        (0..writes).for_each(|write| self.executor.call_after(write * 1000, || {}));
        let (mut sent, mut waiting, mut longest_us) = (0, VecDeque::new(), 0);
        while sent < writes || !waiting.is_empty() {
            if sent < writes && self.now_us >= began_us + sent * 1000 {
                self.send_write(100);
                waiting.push_back(self.now_us);
                sent += 1;
            }
            self.step().unwrap_or_else(|violation| panic!("{violation}"));
            while waiting.len() > self.clients[0].pending() {
                longest_us = longest_us.max(self.now_us - waiting.pop_front().unwrap_or_default());
            }
        }
        longest_us
    }

    /// Whether a server has so many per mille of what is committed.
    fn has(&self, server: usize, per_mille: u64) -> bool {
        let newest = self.judge.newest().cast_unsigned() & 0xffff_ffff;
        let process = self.servers[server].process.as_ref();
        process.is_some_and(|process| {
            let executed = process.node().application().last_executed();
            u64::from(executed.counter()) * 1000 >= newest * per_mille
        })
    }
}

#[test]
fn a_write_takes_a_round_trip_to_the_nearest_quorum_and_a_tenth_of_it_at_most() {
    for (nearer_us, farther_us) in [(5000, 5000), (5000, 100_000), (50_000, 100_000), (100_000, 100_000)] {
        let mut world = servers(nearer_us, farther_us);
        world.start_servers(0..3);
        world.connect();
        for _ in 0..5 {
            let longest_us = world.write_each_ms(1);
            let round_trip_us = 2 * nearer_us;
            let within_us = round_trip_us..=round_trip_us * 11 / 10;
            assert!(within_us.contains(&longest_us), "{longest_us} us, {nearer_us} us away");
        }
    }
}

#[test]
fn as_many_writes_a_second_are_as_fast_at_any_distance() {
    for nearer_us in [5000, 100_000] {
        let mut world = servers(nearer_us, 100_000);
        world.start_servers(0..3);
        world.connect();
        let longest_us = world.write_each_ms(1000);
        assert!(longest_us <= 2 * nearer_us * 11 / 10, "{longest_us} us, {nearer_us} us away");
    }
}

#[test]
fn a_server_far_away_catches_up_as_fast_as_its_line_carries() {
    const WRITES: u64 = 128;
    const WRITE_BYTES: usize = 500_000;
    let mut world = servers(5000, 100_000);
    world.start_servers([1, LEADER]);
    world.connect();
    for _ in 0..WRITES {
        world.send_write(WRITE_BYTES);
        world.step_until("reply", |world| world.clients[0].pending() == 0);
    }
    world.start_servers([0]);
    // By then the window has grown to what the line holds, twice the constant.
    world.step_until("quarter", |world| world.has(0, 250));
    let began_us = world.now_us;
    world.step_until("end", |world| world.has(0, 1000));
    let took_ms = (world.now_us - began_us) / 1000;
    let carried_ms = WRITES * WRITE_BYTES as u64 * 3 / 4 / BYTES_PER_MS;
    assert!(took_ms <= carried_ms * 11 / 10, "{took_ms} ms for what the line carries in {carried_ms} ms");
}
