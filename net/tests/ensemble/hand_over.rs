//! Leadership that is handed over, while clients write.

use std::process::{Command, Output};

use ringkeeper_wire::CreateMode;

use crate::cluster::{Ensemble, SESSION_MS};
use crate::load::{Load, assert_nothing_lost};
use crate::support::{Client, wait_for};

/// `ringkeeper admin lead`, asked of a server.
pub(crate) fn lead(ensemble: &Ensemble, asked: usize, id: usize) -> Output {
    let admin = format!("{}:8080", ensemble.address(asked).ip());
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringkeeper"));
    command.args(["admin", "lead", &id.to_string(), "--server", &admin]).output().expect("it runs")
}

#[test]
fn no_client_notices_that_another_server_leads() {
    let ensemble = Ensemble::start();
    let mut clients: Vec<_> = ensemble.servers().map(|server| ensemble.connect(server)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.create(&format!("/client-{number}"), b"", CreateMode::Ephemeral);
    }
    let load = Load::start(&ensemble.addresses());
    for next in ensemble.servers().cycle().skip(1).take(6) {
        load.wait_for_writes(30);
        let id = ensemble.seats()[next].id;
        // A server without CPU time for long may not take over in time.
        wait_for("the hand-over", || {
            let leader = ensemble.leader();
            (leader == next || lead(&ensemble, leader, id).status.success()).then_some(())
        });
        assert_eq!(ensemble.leader(), next);
    }
    load.wait_for_writes(30);
    for (number, client) in clients.iter_mut().enumerate() {
        client.set(&format!("/client-{number}"), b"still connected");
    }
    assert_eq!(load.broken(), 0, "connections were closed");
    assert_nothing_lost(&ensemble, &load.stop());
}

#[test]
fn a_leader_that_is_told_to_stop_is_missed_by_its_own_clients_alone() {
    let ensemble = Ensemble::start();
    let leader = ensemble.leader();
    let others: Vec<_> = ensemble.others(leader).into_iter().map(|server| ensemble.address(server)).collect();
    let load = Load::start(&others);
    load.wait_for_writes(50);
    ensemble.stop(leader);
    load.wait_for_writes(50);
    assert_eq!(load.broken(), 0, "connections to the other servers were closed");
    ensemble.run(leader);
    assert_nothing_lost(&ensemble, &load.stop());
}

#[test]
fn a_rolling_restart_loses_no_session_and_no_acknowledged_write() {
    let ensemble = Ensemble::start();
    let mut owner = ensemble.connect(0);
    owner.create("/mine", b"", CreateMode::Ephemeral);
    let load = Load::start(&ensemble.addresses());
    for server in ensemble.servers() {
        load.wait_for_writes(50);
        ensemble.stop(server);
        assert_eq!(ensemble.count_in_log(server, "could not be accepted"), 0, "a stop is no failure");
        let next = ensemble.address(ensemble.others(server)[0]);
        owner = Client::resume(next, SESSION_MS, owner.session).expect("the session lives");
        owner.set("/mine", b"still mine");
        ensemble.run(server);
        ensemble.leader();
    }
    assert_nothing_lost(&ensemble, &load.stop());
}

#[test]
fn what_cannot_be_done_is_refused_with_the_reason() {
    let ensemble = Ensemble::start();
    let leader = ensemble.leader();
    let [follower, gone] = ensemble.others(leader)[..] else { panic!("three servers") };
    ensemble.kill(gone);
    let id = |server: usize| ensemble.seats()[server].id;
    for (asked, named, reason) in [
        (leader, id(leader), "leads already"),
        (leader, 99, "server 99 is no voter"),
        (follower, id(follower), &*format!("ask server {}", id(leader))),
    ] {
        let refused = lead(&ensemble, asked, named);
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && text.contains(reason), "{text}");
    }
    wait_for("the leader to miss the killed server", || {
        let refused = lead(&ensemble, leader, id(gone));
        let text = String::from_utf8_lossy(&refused.stderr);
        text.contains("is not synchronized").then_some(())
    });
    assert_eq!(ensemble.leader(), leader);
}

#[test]
fn a_preferred_server_leads_whenever_it_keeps_up_and_no_client_of_the_others_notices() {
    let ensemble =
        Ensemble::start_with("ringkeeper.preferredLeaders=1\nringkeeper.preferLeaderAfterMs=1000\n");
    let preferred = ensemble.servers().find(|server| ensemble.seats()[*server].id == 1).expect("server 1");
    let leads = || wait_for("its turn", || (ensemble.leader() == preferred).then_some(()));
    leads();
    let others =
        ensemble.others(preferred).into_iter().map(|server| ensemble.address(server)).collect::<Vec<_>>();
    let load = Load::start(&others);
    load.wait_for_writes(30);
    ensemble.stop(preferred);
    load.wait_for_writes(30);
    assert_ne!(ensemble.leader(), preferred);
    ensemble.run(preferred);
    leads();
    load.wait_for_writes(30);
    assert_eq!(load.broken(), 0, "connections to the other servers were closed");
    assert_nothing_lost(&ensemble, &load.stop());
}
