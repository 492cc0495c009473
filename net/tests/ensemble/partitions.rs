//! Networks that come apart: each server in a network namespace of its own, all on one bridge. Needs root.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};

use ringkeeper_wire::CreateMode;

use crate::cluster::Ensemble;
use crate::load::{Load, assert_nothing_lost};
use crate::support::wait_for;

const SERVERS: usize = 3;

/// One network at a time: interfaces have short names.
static NETWORK: Mutex<()> = Mutex::new(());

/// Namespaces that are joined by a bridge; this process is on it as well.
struct Network {
    name: String,
    /// The first three bytes of all addresses.
    subnet: [u8; 3],
    _only: MutexGuard<'static, ()>,
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).stdin(Stdio::null()).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

impl Network {
    /// A network, or why there is none.
    fn make() -> Result<Self, String> {
        let only = NETWORK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        // 198.18.0.0/15 is set aside for tests of networks.
        let network =
            Self { name: format!("rk{high:02x}{low:02x}"), subnet: [198, 18 + (high & 1), low], _only: only };
        let name = &network.name;
        ip(&format!("link add {name} type bridge"))?;
        ip(&format!("addr add {}/24 dev {name}", network.address_of(254)))?;
        ip(&format!("link set {name} up"))?;
        for server in 0..SERVERS {
            let (place, outer) = (network.place(server), network.cable(server));
            ip(&format!("netns add {place}"))?;
            ip(&format!("link add {outer} type veth peer name eth0 netns {place}"))?;
            ip(&format!("link set {outer} master {name} up"))?;
            ip(&format!("-n {place} addr add {}/24 dev eth0", network.address(server)))?;
            ip(&format!("-n {place} link set eth0 up"))?;
            ip(&format!("-n {place} link set lo up"))?;
        }
        Ok(network)
    }

    fn place(&self, server: usize) -> String {
        format!("{}-{server}", self.name)
    }

    fn cable(&self, server: usize) -> String {
        format!("{}v{server}", self.name)
    }

    fn address_of(&self, host: u8) -> Ipv4Addr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::new(a, b, c, host)
    }

    fn address(&self, server: usize) -> Ipv4Addr {
        self.address_of(1 + u8::try_from(server).expect("few servers"))
    }

    /// Everything that `from` sends to `to` is lost.
    fn cut(&self, from: usize, to: usize) {
        ip(&format!("-n {} route add blackhole {}", self.place(from), self.address(to))).expect("cut");
    }

    fn cut_both_ways(&self, one: usize, other: usize) {
        self.cut(one, other);
        self.cut(other, one);
    }

    fn heal(&self) {
        for from in 0..SERVERS {
            for to in 0..SERVERS {
                // Most of them were never cut.
                let _ = ip(&format!("-n {} route del blackhole {}", self.place(from), self.address(to)));
            }
        }
    }

    fn ensemble(&self) -> Ensemble {
        let words = |server| ["ip", "netns", "exec", &self.place(server)].map(OsString::from).to_vec();
        let places = (0..SERVERS).map(|server| (IpAddr::from(self.address(server)), words(server)));
        let mut ensemble = Ensemble::prepare_at(places.collect(), "");
        ensemble.servers().for_each(|server| ensemble.run(server));
        ensemble.leader();
        ensemble
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for server in 0..SERVERS {
            let _ = ip(&format!("netns del {}", self.place(server)));
        }
        let _ = ip(&format!("link del {}", self.name));
    }
}

/// Runs a test on a network, or says why it cannot.
fn on_a_network(test: impl FnOnce(&Network)) {
    match Network::make() {
        Ok(network) => test(&network),
        Err(reason) => {
            eprintln!("skipped: no network namespaces here ({reason}); run as root, with iproute2")
        }
    }
}

fn does_not_serve(ensemble: &Ensemble, server: usize) {
    wait_for("the server to give up", || {
        let answer = ensemble.ask(server, "srvr").ok()?;
        answer.contains("not currently serving requests").then_some(())
    });
}

#[test]
fn a_leader_alone_gives_up_and_the_others_go_on_without_it() {
    on_a_network(|network| {
        let ensemble = network.ensemble();
        let load = Load::start(&ensemble, &ensemble.addresses());
        load.wait_for_writes(50);
        let old = ensemble.leader();
        let others = ensemble.others(old);
        others.iter().for_each(|&other| network.cut_both_ways(old, other));
        does_not_serve(&ensemble, old);
        ensemble.leader_among(&others);
        load.wait_for_writes(50);
        network.heal();
        ensemble.leader();
        load.wait_for_writes(50);
        assert_nothing_lost(&ensemble, &load.stop());
    });
}

#[test]
fn a_follower_alone_gives_up_and_no_other_client_notices() {
    on_a_network(|network| {
        let ensemble = network.ensemble();
        let leader = ensemble.leader();
        let alone = ensemble.others(leader)[0];
        let others = ensemble.others(alone);
        let addresses: Vec<_> = others.iter().map(|&server| ensemble.address(server)).collect();
        let load = Load::start(&ensemble, &addresses);
        load.wait_for_writes(50);
        others.iter().for_each(|&other| network.cut_both_ways(alone, other));
        does_not_serve(&ensemble, alone);
        load.wait_for_writes(50);
        network.heal();
        assert_eq!(ensemble.leader(), leader, "its return deposes nobody");
        load.wait_for_writes(50);
        assert_eq!(load.broken(), 0, "connections were closed");
        assert_nothing_lost(&ensemble, &load.stop());
    });
}

#[test]
fn a_leader_that_hears_and_is_not_heard_is_replaced() {
    on_a_network(|network| {
        let ensemble = network.ensemble();
        let load = Load::start(&ensemble, &ensemble.addresses());
        load.wait_for_writes(50);
        let old = ensemble.leader();
        let others = ensemble.others(old);
        others.iter().for_each(|&other| network.cut(old, other));
        ensemble.leader_among(&others);
        does_not_serve(&ensemble, old);
        load.wait_for_writes(50);
        network.heal();
        ensemble.leader();
        assert_nothing_lost(&ensemble, &load.stop());
    });
}

#[test]
fn a_leader_that_is_heard_and_does_not_hear_is_replaced() {
    on_a_network(|network| {
        let ensemble = network.ensemble();
        let load = Load::start(&ensemble, &ensemble.addresses());
        load.wait_for_writes(50);
        let old = ensemble.leader();
        let others = ensemble.others(old);
        others.iter().for_each(|&other| network.cut(other, old));
        ensemble.leader_among(&others);
        does_not_serve(&ensemble, old);
        load.wait_for_writes(50);
        network.heal();
        ensemble.leader();
        assert_nothing_lost(&ensemble, &load.stop());
    });
}

#[test]
fn servers_that_are_all_apart_acknowledge_nothing_and_find_together_again() {
    on_a_network(|network| {
        let ensemble = network.ensemble();
        let mut before = ensemble.connect(0);
        before.create("/before", b"", CreateMode::Persistent);
        let load = Load::start(&ensemble, &ensemble.addresses());
        load.wait_for_writes(50);
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            network.cut_both_ways(one, other);
        }
        ensemble.servers().for_each(|server| does_not_serve(&ensemble, server));
        network.heal();
        load.wait_for_writes(50);
        assert_nothing_lost(&ensemble, &load.stop());
        assert!(ensemble.connect(1).exists("/before", false));
    });
}

#[test]
fn two_followers_that_cannot_reach_each_other_disturb_nobody() {
    on_a_network(|network| {
        let ensemble = network.ensemble();
        let leader = ensemble.leader();
        let others = ensemble.others(leader);
        let load = Load::start(&ensemble, &ensemble.addresses());
        load.wait_for_writes(50);
        network.cut_both_ways(others[0], others[1]);
        load.wait_for_writes(500);
        network.heal();
        assert_eq!((ensemble.leader(), load.broken()), (leader, 0));
        assert_nothing_lost(&ensemble, &load.stop());
    });
}
