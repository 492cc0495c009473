//! Sessions across servers.

use ringkeeper_wire::CreateMode;

use crate::cluster::{Ensemble, SESSION_MS};
use crate::support::{Client, is_closed, wait_for};

#[test]
fn a_session_moves_to_another_server_with_its_ephemerals_and_its_old_connection_is_closed() {
    let ensemble = Ensemble::start();
    let mut old = ensemble.connect(0);
    old.create("/mine", b"", CreateMode::Ephemeral);
    for to in [1, 2, 0] {
        let mut new =
            Client::resume(ensemble.address(to), SESSION_MS, old.session).expect("the session lives");
        assert!(is_closed(old.stream()), "the session is elsewhere");
        new.sync();
        assert!(new.exists("/mine", false));
        new.set("/mine", b"moved");
        old = new;
    }
    old.close();
    assert!(!ensemble.connect_synced(1).exists("/mine", false), "its session was closed");
}

#[test]
fn a_session_survives_its_server_and_the_leader() {
    let ensemble = Ensemble::start();
    let leader = ensemble.leader();
    let mut client = ensemble.connect(leader);
    client.create("/mine", b"", CreateMode::Ephemeral);
    ensemble.kill(leader);
    let others = ensemble.others(leader);
    ensemble.leader_among(&others);
    let mut client =
        Client::resume(ensemble.address(others[0]), SESSION_MS, client.session).expect("the session lives");
    client.sync();
    assert!(client.exists("/mine", false));
    client.set("/mine", b"still mine");
}

#[test]
fn a_session_that_nobody_hears_of_expires_on_all_servers() {
    let ensemble = Ensemble::start_with("minSessionTimeout=500");
    let mut silent =
        Client::try_attach(ensemble.address(0), 500, None, 0).expect("reached").expect("a session");
    silent.create("/silent", b"", CreateMode::Ephemeral);
    for server in ensemble.servers() {
        let mut witness = ensemble.connect(server);
        wait_for("the expiry", || {
            witness.sync();
            (!witness.exists("/silent", false)).then_some(())
        });
    }
    let back = Client::try_attach(ensemble.address(1), 500, Some(silent.session), 0).expect("an answer");
    assert!(back.is_none(), "the session has expired");
    assert!(is_closed(silent.stream()));
}

#[test]
fn a_session_is_kept_alive_by_pings_to_a_follower() {
    let ensemble = Ensemble::start_with("minSessionTimeout=500");
    let follower = ensemble.others(ensemble.leader())[0];
    let mut busy =
        Client::try_attach(ensemble.address(follower), 4000, None, 0).expect("reached").expect("a session");
    busy.create("/busy", b"", CreateMode::Ephemeral);
    let mut silent =
        Client::try_attach(ensemble.address(follower), 4000, None, 0).expect("reached").expect("a session");
    silent.create("/silent", b"", CreateMode::Ephemeral);
    // Reads are answered by the follower alone: the leader hears of the session by what the follower reports.
    wait_for("the other's expiry", || (!busy.exists("/silent", false)).then_some(()));
    assert!(busy.exists("/busy", false));
    busy.set("/busy", b"alive");
}

#[test]
fn a_client_that_has_seen_more_than_a_server_is_sent_away() {
    let ensemble = Ensemble::start();
    let client = ensemble.connect(0);
    for server in ensemble.servers() {
        let refused =
            Client::try_attach(ensemble.address(server), SESSION_MS, Some(client.session), i64::MAX);
        assert!(refused.is_err(), "server {} knows less", server + 1);
    }
    let seen =
        Client::try_attach(ensemble.address(1), SESSION_MS, Some(client.session), 1).expect("an answer");
    assert!(seen.is_some(), "the session goes on where its client can see on");
}

#[test]
fn a_server_that_loses_its_leader_closes_its_clients_and_keeps_their_sessions() {
    let ensemble = Ensemble::start();
    let leader = ensemble.leader();
    let follower = ensemble.others(leader)[0];
    let mut client = ensemble.connect(follower);
    ensemble.kill(leader);
    assert!(is_closed(client.stream()));
    let back = wait_for("a new leader", || {
        Client::try_attach(ensemble.address(follower), SESSION_MS, Some(client.session), 0).ok()
    });
    assert!(back.is_some(), "the session lives");
}
