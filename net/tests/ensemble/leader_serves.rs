//! A leader that leaves clients to the others (`leaderServes=no`).

use ringkeeper_wire::{CreateMode, OpCode};

use crate::cluster::{Ensemble, SESSION_MS};
use crate::hand_over::lead;
use crate::load::Load;
use crate::support::{Client, get, wait_for};

/// The server that takes no clients is the leader, and is monitored like the others.
fn assert_only_the_leader_takes_none(ensemble: &Ensemble) {
    let leader = ensemble.leader();
    for server in ensemble.servers() {
        let admin = (ensemble.address(server).ip(), 8080).into();
        wait_for("its clients", || {
            let taken = Client::try_attach(ensemble.address(server), SESSION_MS, None, 0);
            (taken.is_ok() == (server != leader)).then_some(())
        });
        let expected = if server == leader { 503 } else { 200 };
        assert_eq!(get(admin, "/readyz/clients").status, expected);
        assert_eq!(get(admin, "/readyz").status, 200);
        assert_eq!(ensemble.server(server).ask("ruok").expect("an answer"), "imok");
        let stat = ensemble.server(server).ask("stat").expect("an answer");
        assert_eq!(stat.contains("Mode: leader"), server == leader, "{stat}");
    }
}

#[test]
fn clients_never_end_on_the_leader_whoever_leads() {
    let ensemble = Ensemble::start_with("leaderServes=no\n");
    assert_only_the_leader_takes_none(&ensemble);
    let load = Load::start(&ensemble.addresses());
    for _ in 0..2 {
        load.wait_for_writes(30);
        let before = ensemble.leader();
        let [next, _] = ensemble.others(before)[..] else { panic!("three servers") };
        let mut owner = ensemble.connect(next);
        owner.create("/mine", b"", CreateMode::Ephemeral);
        let id = ensemble.seats()[next].id;
        wait_for("the hand-over", || {
            (ensemble.leader() == next || lead(&ensemble, before, id).status.success()).then_some(())
        });
        assert_only_the_leader_takes_none(&ensemble);
        assert!(owner.request(OpCode::Ping, &[]).is_err(), "its server leads, and parts from its clients");
        let mut owner =
            Client::resume(ensemble.address(before), SESSION_MS, owner.session).expect("it lives");
        owner.delete("/mine");
    }
    let leader = ensemble.leader();
    ensemble.kill(leader);
    load.wait_for_writes(30);
    ensemble.run(leader);
    assert_only_the_leader_takes_none(&ensemble);
    let acknowledged = load.stop();
    let mut client = ensemble.connect_synced(ensemble.others(ensemble.leader())[0]);
    let found = client.children("/load", false);
    assert!(acknowledged.iter().all(|name| found.contains(name)), "an acknowledged write is lost");
}

#[test]
fn a_server_alone_takes_clients_all_the_same() {
    let ensemble = Ensemble::prepare(1, "leaderServes=no\n").started();
    ensemble.connect(0).create("/a", b"", CreateMode::Persistent);
}
