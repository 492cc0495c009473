//! Servers that are killed or stand still while clients write.

use std::thread::sleep;
use std::time::Duration;

use ringkeeper_wire::CreateMode;

use crate::cluster::{Ensemble, SESSION_MS};
use crate::load::{Load, assert_nothing_lost};
use crate::support::{Client, wait_for};

#[test]
fn a_killed_leader_is_replaced_and_every_acknowledged_write_is_kept() {
    kill_leaders(&Ensemble::start());
}

#[test]
fn a_killed_leader_is_replaced_when_its_lease_is_over() {
    kill_leaders(&Ensemble::start_with("ringkeeper.leaderLeaseMs=500\n"));
}

fn kill_leaders(ensemble: &Ensemble) {
    let load = Load::start(&ensemble.addresses());
    for _ in 0..3 {
        load.wait_for_writes(100);
        let leader = ensemble.leader();
        ensemble.kill(leader);
        load.wait_for_writes(100);
        ensemble.run(leader);
        ensemble.leader();
    }
    assert_nothing_lost(ensemble, &load.stop());
}

#[test]
fn no_client_of_another_server_notices_that_a_follower_is_killed() {
    let ensemble = Ensemble::start();
    let follower = ensemble.others(ensemble.leader())[0];
    let others: Vec<_> =
        ensemble.others(follower).into_iter().map(|server| ensemble.address(server)).collect();
    let load = Load::start(&others);
    for _ in 0..3 {
        load.wait_for_writes(50);
        ensemble.kill(follower);
        load.wait_for_writes(50);
        ensemble.run(follower);
        ensemble.leader();
    }
    assert_eq!(load.broken(), 0, "connections were closed");
    assert_nothing_lost(&ensemble, &load.stop());
}

#[test]
fn a_follower_that_stands_still_for_a_moment_keeps_its_leader_and_its_clients() {
    let ensemble = Ensemble::start();
    let leader = ensemble.leader();
    let load = Load::start(&ensemble.addresses());
    for follower in ensemble.others(leader).into_iter().cycle().take(6) {
        load.wait_for_writes(50);
        ensemble.pause(follower);
        // Longer than the peer timeout: what it finds first when it goes on is that its leader has been
        // silent.
        sleep(Duration::from_millis(700));
        ensemble.resume(follower);
    }
    load.wait_for_writes(50);
    assert_eq!(load.broken(), 0, "connections were closed");
    assert_eq!(ensemble.leader(), leader);
    assert_nothing_lost(&ensemble, &load.stop());
}

#[test]
fn all_killed_at_once_come_back_with_every_acknowledged_write_and_the_ephemerals_of_live_sessions() {
    let ensemble = Ensemble::start();
    let mut owner = ensemble.connect(1);
    owner.create("/alive", b"", CreateMode::Ephemeral);
    let load = Load::start(&ensemble.addresses());
    for _ in 0..2 {
        load.wait_for_writes(100);
        ensemble.kill_all();
        ensemble.servers().for_each(|server| ensemble.run(server));
        ensemble.leader();
    }
    load.wait_for_writes(10);
    let acknowledged = load.stop();
    assert!(ensemble.connect(2).exists("/alive", false), "its session has not expired");
    let mut owner =
        Client::resume(ensemble.address(0), SESSION_MS, owner.session).expect("the session lives");
    owner.delete("/alive");
    assert_nothing_lost(&ensemble, &acknowledged);
}

#[test]
fn a_leader_that_stands_still_is_replaced_and_steps_down_when_it_goes_on() {
    let ensemble = Ensemble::start();
    let old = ensemble.leader();
    let others = ensemble.others(old);
    let load = Load::start(&ensemble.addresses_of(&others));
    let mut client = ensemble.connect(old);
    load.wait_for_writes(50);
    ensemble.pause(old);
    // The old leader finds it in its socket when it goes on, after the new one has served: it must not
    // acknowledge it.
    client.send_create("/too-late", b"", CreateMode::Persistent);
    let new = ensemble.leader_among(&others);
    let mut witness = ensemble.connect(new);
    witness.create("/meanwhile", b"", CreateMode::Persistent);
    load.wait_for_writes(50);
    ensemble.resume(old);
    let late = client.reply();
    assert!(late.is_err(), "the old leader answered {late:?}");
    ensemble.leader();
    assert_eq!(ensemble.server(old).mode().as_deref(), Some("follower"));
    let mut client = ensemble.connect_synced(old);
    assert!(client.exists("/meanwhile", false));
    assert!(!client.exists("/too-late", false));
    load.wait_for_writes(50);
    assert_nothing_lost(&ensemble, &load.stop());
}

#[test]
fn without_a_quorum_nothing_is_acknowledged_and_nothing_is_lost() {
    let ensemble = Ensemble::start();
    let load = Load::start(&ensemble.addresses());
    load.wait_for_writes(100);
    let left = ensemble.leader();
    let others = ensemble.others(left);
    others.iter().for_each(|&server| ensemble.kill(server));
    wait_for("the last server to give up", || {
        let answer = ensemble.server(left).ask("srvr").ok()?;
        answer.contains("not currently serving requests").then_some(())
    });
    let before = load.acknowledged();
    sleep(Duration::from_secs(1));
    assert_eq!(load.acknowledged(), before, "writes were acknowledged by one server of three");
    let refused = Client::try_attach(ensemble.address(left), SESSION_MS, None, 0);
    assert!(refused.is_err(), "clients are sent to other servers");
    others.iter().for_each(|&server| ensemble.run(server));
    load.wait_for_writes(100);
    assert_nothing_lost(&ensemble, &load.stop());
}
