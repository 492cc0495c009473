//! Networks that come apart. Needs root.

use std::sync::{Mutex, PoisonError};

use ringkeeper_testkit::{Cut, Network, Place};
use ringkeeper_wire::{CreateMode, ReconfigRequest, Request};

use crate::cluster::Ensemble;
use crate::load::{Load, assert_nothing_lost};
use crate::support::wait_for;

/// One network at a time: three servers on each are enough for the machine.
static ONLY: Mutex<()> = Mutex::new(());

/// Everything that `from` sends to `to` is lost.
fn cut(network: &Network, from: usize, to: usize) {
    network.cut(Cut::Route(from, Place::Server(to))).expect("cut");
}

fn cut_both_ways(network: &Network, one: usize, other: usize) {
    cut(network, one, other);
    cut(network, other, one);
}

/// Runs a test on a network, or says why it cannot.
fn on_a_network(test: impl FnOnce(&Network)) {
    on(|| Network::make(3), test);
}

/// Runs a test on a network that is made so, or says why it cannot.
pub(crate) fn on(make: impl FnOnce() -> anyhow::Result<Network>, test: impl FnOnce(&Network)) {
    let _only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
    match make() {
        Ok(network) => test(&network),
        Err(reason) => {
            eprintln!("skipped: no network namespaces here ({reason:#}); run as root, with iproute2");
        }
    }
}

fn does_not_serve(ensemble: &Ensemble, server: usize) {
    wait_for("the server to give up", || {
        let answer = ensemble.server(server).ask("srvr").ok()?;
        answer.contains("not currently serving requests").then_some(())
    });
}

#[test]
fn a_leader_alone_gives_up_and_the_others_go_on_without_it() {
    on_a_network(|network| {
        let ensemble = Ensemble::on(network);
        let load = Load::start(&ensemble.addresses());
        load.wait_for_writes(50);
        let old = ensemble.leader();
        let others = ensemble.others(old);
        others.iter().for_each(|&other| cut_both_ways(network, old, other));
        does_not_serve(&ensemble, old);
        ensemble.leader_among(&others);
        load.wait_for_writes(50);
        network.heal().expect("healed");
        ensemble.leader();
        load.wait_for_writes(50);
        assert_nothing_lost(&ensemble, &load.stop());
    });
}

#[test]
fn a_follower_alone_gives_up_and_no_other_client_notices() {
    on_a_network(|network| {
        let ensemble = Ensemble::on(network);
        let leader = ensemble.leader();
        let alone = ensemble.others(leader)[0];
        let others = ensemble.others(alone);
        let load = Load::start(&ensemble.addresses_of(&others));
        load.wait_for_writes(50);
        others.iter().for_each(|&other| cut_both_ways(network, alone, other));
        does_not_serve(&ensemble, alone);
        load.wait_for_writes(50);
        network.heal().expect("healed");
        assert_eq!(ensemble.leader(), leader, "its return deposes nobody");
        load.wait_for_writes(50);
        assert_eq!(load.broken(), 0, "connections were closed");
        assert_nothing_lost(&ensemble, &load.stop());
    });
}

/// A leader of whose connections one direction is lost, by `cut` of the leader and another server, is
/// replaced.
fn leader_is_replaced(cut: impl Fn(&Network, usize, usize)) {
    on_a_network(|network| {
        let ensemble = Ensemble::on(network);
        let load = Load::start(&ensemble.addresses());
        load.wait_for_writes(50);
        let old = ensemble.leader();
        let others = ensemble.others(old);
        others.iter().for_each(|&other| cut(network, old, other));
        ensemble.leader_among(&others);
        does_not_serve(&ensemble, old);
        load.wait_for_writes(50);
        network.heal().expect("healed");
        ensemble.leader();
        assert_nothing_lost(&ensemble, &load.stop());
    });
}

#[test]
fn a_leader_that_hears_and_is_not_heard_is_replaced() {
    leader_is_replaced(cut);
}

#[test]
fn a_leader_that_is_heard_and_does_not_hear_is_replaced() {
    leader_is_replaced(|network, leader, other| cut(network, other, leader));
}

#[test]
fn servers_that_are_all_apart_acknowledge_nothing_and_find_together_again() {
    on_a_network(|network| {
        let ensemble = Ensemble::on(network);
        let mut before = ensemble.connect(0);
        before.create("/before", b"", CreateMode::Persistent);
        let load = Load::start(&ensemble.addresses());
        load.wait_for_writes(50);
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            cut_both_ways(network, one, other);
        }
        ensemble.servers().for_each(|server| does_not_serve(&ensemble, server));
        network.heal().expect("healed");
        load.wait_for_writes(50);
        assert_nothing_lost(&ensemble, &load.stop());
        assert!(ensemble.connect(1).exists("/before", false));
    });
}

#[test]
fn two_followers_that_cannot_reach_each_other_disturb_nobody() {
    on_a_network(|network| {
        let ensemble = Ensemble::on(network);
        let leader = ensemble.leader();
        let others = ensemble.others(leader);
        let load = Load::start(&ensemble.addresses());
        load.wait_for_writes(50);
        cut_both_ways(network, others[0], others[1]);
        load.wait_for_writes(500);
        network.heal().expect("healed");
        assert_eq!((ensemble.leader(), load.broken()), (leader, 0));
        assert_nothing_lost(&ensemble, &load.stop());
    });
}

/// The servers find one another in a network of their own, and clients find them in another one. A second
/// network is added for all of them while they run, and the first one is taken away.
#[test]
fn an_ensemble_in_two_networks_outlasts_the_loss_of_either_and_gets_and_leaves_them_while_it_runs() {
    on(
        || Network::make_with_lans(3, 2),
        |network| {
            let ensemble = Ensemble::prepare_on(
                network,
                "reconfigEnabled=true\nskipACL=yes\nmultiAddress.enabled=true\nringkeeper.trustedNetwork=yes",
            );
            let address = |lan, server| format!("{}:2888:3888", network.lan_address(lan, server));
            for server in ensemble.servers() {
                for other in ensemble.servers() {
                    let seat = ensemble.quorum_address(other);
                    ensemble.reconfigure(
                        server,
                        &format!("={seat}:3888"),
                        &format!("={}", address(0, other)),
                    );
                }
            }
            let ensemble = ensemble.started();
            let load = Load::start(&ensemble.addresses());
            let change_to = |lans: &[usize]| {
                for server in ensemble.servers() {
                    let at: Vec<_> = lans.iter().map(|lan| address(*lan, server)).collect();
                    let line = format!("server.{}={};2181", server + 1, at.join("|"));
                    let request = ReconfigRequest {
                        joining_servers: Some(line.into()),
                        leaving_servers: None,
                        new_members: None,
                        cur_config_id: -1,
                    };
                    wait_for("the change", || {
                        let mut client = ensemble.connect(ensemble.leader());
                        let reply = client.try_call(&Request::Reconfig(request.clone())).ok()?;
                        (reply.err == 0).then_some(())
                    });
                }
            };
            change_to(&[0, 1]);
            load.wait_for_writes(50);
            for lan in [0, 1] {
                network.cut(Cut::Lan(lan)).expect("cut");
                ensemble.leader();
                load.wait_for_writes(200);
                network.heal().expect("healed");
                load.wait_for_writes(50);
            }
            change_to(&[1]);
            network.cut(Cut::Lan(0)).expect("cut");
            ensemble.leader();
            load.wait_for_writes(200);
            assert_nothing_lost(&ensemble, &load.stop());
        },
    );
}
