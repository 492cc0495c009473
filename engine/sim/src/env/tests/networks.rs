//! Links between servers that are in two networks.

use ringkeeper_engine::members::Members;
use ringkeeper_engine::zab::Message;
use ringkeeper_host::links::{Links, Redial, Secrets};
use ringkeeper_wire::Epoch;

use super::strangers::Server;
use super::*;

const SECOND: u64 = 1_000_000;

/// Server 1 on machine 0 and server 2 on machine 1, in these networks.
fn lines(lans: &[Lan]) -> String {
    let line = |number: usize| {
        let at = |lan: &Lan| format!("{}:{PORT}:3888", Machines::name_in(number, *lan));
        format!("server.{}={}", number + 1, lans.iter().map(at).collect::<Vec<_>>().join("|"))
    };
    [0, 1].map(line).join(",")
}

fn members(lans: &[Lan]) -> Members {
    Members::parse(&lines(lans)).expect("valid").0
}

struct Pair {
    machines: Machines,
    servers: [Server; 2],
    epoch: Cell<u32>,
}

impl Pair {
    fn start(seed: u64, lans: &[Lan], secrets: impl Into<Secrets>, down: &[Lan]) -> Self {
        let machines = machines(seed);
        down.iter().for_each(|lan| machines.network().take_down(0, *lan));
        let (members, secrets) = (members(lans), secrets.into());
        let servers = [0, 1].map(|number| {
            let ensemble = members.iter().flat_map(PeerAddress::of);
            let id = number as u64 + 1;
            let server = Server::start_in(&machines, number, id, secrets.clone(), ensemble);
            server.links.watch_for_silence(&members);
            server
        });
        Self { machines, servers, epoch: Cell::new(0) }
    }

    fn run(&self, us: u64) {
        run_until(&self.machines, self.machines.executor.now_us() + us);
    }

    /// Sends a message in each direction, and runs for a while; what was sent.
    fn say(&self, us: u64) -> u32 {
        let number = self.epoch.replace(self.epoch.get() + 1) + 1;
        for (server, to) in self.servers.iter().zip([2, 1]) {
            server.links.send(ServerId(to), &Message::NewEpoch(Epoch(number)));
        }
        self.run(us);
        number
    }

    /// Whether a message passes in each direction.
    fn speak(&self) -> bool {
        let heard = format!("epoch {}", self.say(SECOND / 10));
        self.servers.iter().all(|server| server.names().last() == Some(&heard))
    }

    /// How often both have connected and disconnected, together.
    fn turns(&self) -> usize {
        let heard = self.servers.iter().flat_map(Server::names);
        heard.filter(|name| name.ends_with("connected")).count()
    }
}

#[test]
fn of_two_addresses_the_one_that_answers_carries_the_link_and_it_begins_once() {
    for seed in 0..100 {
        for down in [&[][..], &[0], &[1]] {
            let pair = Pair::start(seed, &[0, 1], "secret", down);
            pair.run(SECOND / 2);
            assert!(pair.speak(), "seed {seed}, {down:?} down");
            pair.run(2 * SECOND);
            assert_eq!(pair.turns(), 2, "seed {seed}, {down:?} down");
        }
    }
}

#[test]
fn an_idle_link_stays_and_moves_only_when_its_network_is_lost() {
    for seed in 0..20 {
        let pair = Pair::start(seed, &[0, 1], "secret", &[]);
        pair.run(20 * SECOND);
        assert_eq!(pair.turns(), 2, "seed {seed}");
        let mut turns = 2;
        for lan in [0, 1, 0] {
            pair.machines.network().take_down(0, lan);
            pair.run(SECOND);
            assert!(pair.speak(), "seed {seed}, network {lan} down");
            // It was the network of the link, or the other one.
            assert!([turns, turns + 4].contains(&pair.turns()), "seed {seed}: {}", pair.turns());
            turns = pair.turns();
            pair.machines.network().bring_up(0, lan);
            pair.run(5 * SECOND);
            assert_eq!(pair.turns(), turns, "seed {seed}: it stays where it is");
        }
        assert!(turns > 2, "seed {seed}: it has moved");
    }
}

#[test]
fn a_server_that_stands_still_is_silent_and_one_that_only_looks_late_is_not() {
    let pair = Pair::start(1, &[0, 1], "secret", &[]);
    pair.run(SECOND);
    pair.machines.pause(1, pair.machines.executor.now_us() + 300_000);
    pair.run(SECOND);
    assert_eq!(pair.turns(), 2, "shorter than the peer timeout");
    let until_us = pair.machines.executor.now_us() + 5 * SECOND;
    (0..2).for_each(|machine| pair.machines.pause(machine, until_us));
    pair.run(6 * SECOND);
    assert_eq!(pair.turns(), 2, "both have yet to read what the other one has sent");
    pair.machines.pause(1, pair.machines.executor.now_us() + 2 * SECOND);
    pair.run(SECOND);
    assert_eq!(pair.servers[0].names().last().map(String::as_str), Some("2 disconnected"));
    pair.run(5 * SECOND);
    assert!(pair.speak());
}

#[test]
fn a_port_whose_network_is_down_at_the_start_is_opened_later() {
    let pair = Pair::start(1, &[0, 1], "secret", &[1]);
    pair.run(3 * SECOND);
    pair.machines.network().bring_up(0, 1);
    pair.run(2 * SECOND);
    pair.machines.network().take_down(0, 0);
    pair.run(2 * SECOND);
    assert!(pair.speak());
}

#[test]
fn a_second_network_is_added_and_the_first_one_removed_while_servers_run() {
    for seed in 0..20 {
        let pair = Pair::start(seed, &[0], "secret", &[]);
        let name = |lans: &[Lan]| pair.servers.iter().for_each(|it| it.links.set_members(&members(lans)));
        pair.run(SECOND);
        name(&[0, 1]);
        pair.run(3 * SECOND);
        assert!(pair.speak() && pair.turns() == 2, "seed {seed}: what stands is not broken");
        name(&[1]);
        pair.run(SECOND);
        pair.machines.network().take_down(0, 0);
        pair.run(SECOND / 100);
        assert!(pair.speak() && pair.turns() == 6, "seed {seed}: it has moved before");
    }
}

#[test]
fn a_member_that_moves_keeps_its_link_and_is_reached_at_the_new_place_once_that_breaks() {
    for seed in 0..20 {
        let pair = Pair::start(seed, &[0], "secret", &[]);
        let [one, two] = &pair.servers;
        pair.run(SECOND);
        // Server 2 dials, and knows of the change before server 1 listens there.
        two.links.set_members(&members(&[1]));
        pair.run(2 * SECOND);
        assert!(pair.speak() && pair.turns() == 2, "seed {seed}: server 1 is still to hear of it");
        // A second time, for a change that moves nobody.
        [one, two].iter().for_each(|server| server.links.set_members(&members(&[1])));
        pair.run(2 * SECOND);
        assert!(pair.speak() && pair.turns() == 2, "seed {seed}: what stands is not broken");
        pair.machines.network().take_down(0, 0);
        two.links.disconnect(ServerId(1));
        pair.run(3 * SECOND);
        assert!(pair.speak(), "seed {seed}");
    }
}

#[test]
fn a_member_that_is_removed_and_comes_back_by_another_name_keeps_its_link() {
    let pair = Pair::start(1, &[0], "secret", &[]);
    pair.run(SECOND);
    let two = &pair.servers[1];
    let alone = lines(&[0]).split_once(',').expect("two lines").1.to_owned();
    for listed in [Members::parse(&alone).expect("valid").0, members(&[1])] {
        two.links.set_members(&listed);
        pair.run(SECOND);
        assert!(pair.speak() && pair.turns() == 2);
    }
}

#[test]
fn a_member_that_moved_while_it_was_away_is_let_in_by_who_finds_nobody_at_the_new_place_alone() {
    let right: Box<[u8]> = (*b"secret").into();
    let refused = Secrets { own: (*b"wrong").into(), accepted: vec![right.clone()], kerberos: None };
    // Server 2 looks for server 1 in the second network, or is refused there where it is.
    for (moved_to, secrets, is_let_in) in [(1, (&right).into(), true), (0, refused, false)] {
        let machines = machines(1);
        let start = |number: usize, secrets: Secrets, lan| {
            let (env, listener) = machines.begin(number, PORT);
            let ensemble = members(&[0]).iter().flat_map(PeerAddress::of).collect::<Vec<_>>();
            let links = Links::new(env, ServerId(number as u64 + 1), ensemble, secrets, Redial::REAL);
            links.admit_joiners();
            links.start([Machines::port(number, PORT, listener)], |_| {});
            links.set_members(&members(&[lan]));
            links
        };
        let servers = [start(0, (&right).into(), 0), start(1, secrets, moved_to)];
        run_until(&machines, 6 * SECOND);
        assert_eq!(servers.each_ref().map(|links| links.connected() == 1), [is_let_in; 2]);
    }
}

#[test]
fn a_busy_link_moves_when_its_network_is_lost_right_after_another_one_was_added() {
    for seed in 0..20 {
        let pair = Pair::start(seed, &[0], "secret", &[]);
        pair.run(SECOND);
        pair.servers.iter().for_each(|it| it.links.set_members(&members(&[0, 1])));
        // No end has time for a sign of life.
        for _ in 0..100 {
            pair.say(SECOND / 100);
        }
        pair.machines.network().take_down(0, 0);
        // What is sent does not arrive, and still is no reason to wait.
        for _ in 0..300 {
            pair.say(SECOND / 100);
        }
        assert!(pair.speak(), "seed {seed}");
    }
}

#[test]
fn a_server_that_has_left_an_address_is_not_reached_there() {
    let pair = Pair::start(1, &[0], "secret", &[]);
    let name = |lans: &[Lan]| pair.servers.iter().for_each(|it| it.links.set_members(&members(lans)));
    name(&[0, 1]);
    pair.run(2 * SECOND);
    let reaches = |lan| {
        let (env, reached) = (pair.machines.machine(1).process().expect("it runs"), Rc::new(Cell::new(None)));
        let (network, seen) = (pair.machines.network().clone(), Rc::clone(&reached));
        let process = Rc::clone(&env);
        let dial = async move {
            seen.set(Some(network.dial(1, &process, (0, lan, PORT), SECOND).await.is_ok()));
        };
        pair.machines.executor.spawn(&env, 1, dial).detach();
        pair.run(SECOND);
        reached.get()
    };
    assert_eq!([0, 1].map(&reaches), [Some(true); 2]);
    name(&[0]);
    assert_eq!([0, 1].map(&reaches), [Some(true), Some(false)]);
    name(&[1]);
    pair.run(2 * SECOND);
    assert_eq!([0, 1].map(&reaches), [Some(true); 2], "the configuration's stays");
}

#[test]
fn a_certificate_may_bear_the_name_of_any_address_of_the_member() {
    for (lan, name, accepted) in [
        (0, Machines::name_in(1, 0), true),
        (1, Machines::name_in(1, 1), true),
        (0, Machines::name_in(0, 1), false),
    ] {
        for down in [0, 1] {
            let machines = machines(1);
            machines.network().certify(0, &Machines::name_in(0, lan));
            machines.network().certify(1, &name);
            machines.network().take_down(0, down);
            let members = members(&[0, 1]);
            let servers = [0, 1].map(|number| {
                let ensemble = members.iter().flat_map(PeerAddress::of);
                Server::start_in(&machines, number, number as u64 + 1, b"secret", ensemble)
            });
            run_until(&machines, 5 * SECOND);
            let trouble = servers[1].links.trouble(ServerId(1));
            assert_eq!(trouble.is_empty(), accepted, "{name}, {down}: {trouble}");
            assert_eq!(servers[0].names().is_empty(), !accepted, "{name}, {down}");
        }
    }
}

#[test]
fn what_fails_at_each_address_is_told() {
    let machines = machines(1);
    let ensemble = || members(&[0, 1]).iter().flat_map(PeerAddress::of).collect::<Vec<_>>();
    let one = Server::start_in(&machines, 0, 1, b"right", ensemble());
    let two = Server::start_in(&machines, 1, 2, b"wrong", ensemble());
    machines.network().take_down(0, 1);
    run_until(&machines, 5 * SECOND);
    assert!(one.names().is_empty() && two.names().is_empty());
    let trouble = two.links.trouble(ServerId(1));
    let both =
        trouble.contains("machine-0:2888: server 1: ") && trouble.contains("machine-0-b:2888: timed out");
    assert!(both && trouble.contains("ringkeeper.peerSecretFile"), "{trouble}");
}
