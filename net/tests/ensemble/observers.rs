//! Observers that learn from followers (`observerMasterPort`), so that the leader has no work with them.

use ringkeeper_testkit::{self as testkit, Seat};
use ringkeeper_wire::CreateMode;

use crate::cluster::{Ensemble, SESSION_MS};
use crate::hand_over::lead;
use crate::load::{Load, assert_nothing_lost};
use crate::support::{Client, wait_for};

const VOTERS: [usize; 3] = [0, 1, 2];
const OBSERVERS: [usize; 2] = [3, 4];

/// Three voters and two observers that serve.
fn start() -> Ensemble {
    let mut seats = Seat::on_own_addresses(VOTERS.len() + OBSERVERS.len());
    OBSERVERS.iter().for_each(|server| seats[*server].observer = true);
    Ensemble::prepare_at(seats, "observerMasterPort=2191\n").started()
}

/// How many observers a server feeds.
fn feeds(ensemble: &Ensemble, server: usize) -> usize {
    let count = testkit::metric(ensemble.address(server), "zk_synced_observers").expect("a metric");
    (0..=2).find(|n| f64::from(u8::try_from(*n).expect("small")) == count).expect("a small number")
}

/// Waits until followers feed the observers.
fn wait_until_fed(ensemble: &Ensemble) -> (usize, [usize; 2]) {
    wait_for("observers that followers feed", || {
        let leader = ensemble.leader();
        let followers = VOTERS.into_iter().filter(|server| *server != leader);
        let followers: [usize; 2] = followers.collect::<Vec<_>>().try_into().expect("two of three");
        let fed: usize = followers.iter().map(|server| feeds(ensemble, *server)).sum();
        (fed == 2).then_some((leader, followers))
    })
}

#[test]
fn observers_learn_from_the_followers_and_their_clients_do_everything_through_them() {
    let ensemble = start();
    let (leader, followers) = wait_until_fed(&ensemble);
    assert_eq!(followers.map(|server| feeds(&ensemble, server)), [1, 1], "they spread");
    let of_leader = ensemble.address(leader);
    assert_eq!(testkit::metric(of_leader, "zk_synced_observers"), Some(0.0));
    assert_eq!(testkit::metric(of_leader, "zk_learners"), Some(2.0));

    let [mut one, mut other] = OBSERVERS.map(|server| ensemble.connect(server));
    one.create("/a", b"1", CreateMode::Ephemeral);
    other.sync();
    assert_eq!(other.get("/a", true).expect("created"), b"1");
    ensemble.connect(leader).set("/a", b"2");
    assert_eq!(other.event().path, "/a");
    one.sync();
    assert_eq!(one.get("/a", false).expect("created"), b"2");
    let session = one.session;
    drop(one);
    let mut one = Client::resume(ensemble.address(4), SESSION_MS, session).expect("the session moves");
    assert_eq!(one.get("/a", false).expect("still there"), b"2");
    ensemble.assert_equal_trees(1);
}

#[test]
fn observers_whose_follower_dies_go_to_others_and_their_clients_keep_their_sessions() {
    let ensemble = start();
    let (leader, followers) = wait_until_fed(&ensemble);
    let mut clients = OBSERVERS.map(|server| ensemble.connect(server));
    for (number, client) in clients.iter_mut().enumerate() {
        client.create(&format!("/client-{number}"), b"", CreateMode::Ephemeral);
    }
    let sessions = clients.map(|client| client.session);
    let load = Load::start(&ensemble.addresses_of(&OBSERVERS));
    load.wait_for_writes(50);
    ensemble.kill(followers[0]);
    wait_for("the other follower to feed both", || (feeds(&ensemble, followers[1]) == 2).then_some(()));
    load.wait_for_writes(50);
    ensemble.run(followers[0]);
    ensemble.leader();
    ensemble.kill(leader);
    load.wait_for_writes(50);
    ensemble.run(leader);
    wait_until_fed(&ensemble);
    load.wait_for_writes(50);
    for (number, session) in sessions.into_iter().enumerate() {
        let observer = ensemble.address(OBSERVERS[number]);
        let mut client = Client::resume(observer, SESSION_MS, session).expect("the session lives");
        client.set(&format!("/client-{number}"), b"still there");
    }
    assert_nothing_lost(&ensemble, &load.stop());
}

#[test]
fn no_client_of_an_observer_notices_that_another_server_leads() {
    let ensemble = start();
    wait_until_fed(&ensemble);
    let load = Load::start(&ensemble.addresses_of(&OBSERVERS));
    for next in [1, 2, 0, 1] {
        load.wait_for_writes(30);
        wait_for("the hand-over", || {
            let leader = ensemble.leader();
            (leader == next || lead(&ensemble, leader, next + 1).status.success()).then_some(())
        });
        assert_eq!(ensemble.leader(), next);
    }
    load.wait_for_writes(30);
    assert_eq!(load.broken(), 0, "connections were closed");
    assert_nothing_lost(&ensemble, &load.stop());
}

#[test]
fn an_observer_that_was_away_is_fed_what_it_missed_or_a_snapshot() {
    let ensemble = start();
    wait_until_fed(&ensemble);
    let load = Load::start(&ensemble.addresses_of(&VOTERS));
    for away in OBSERVERS {
        load.wait_for_writes(50);
        ensemble.stop(away);
        if away == OBSERVERS[1] {
            ensemble.wipe(away);
        }
        load.wait_for_writes(200);
        ensemble.run(away);
        ensemble.leader();
    }
    let (leader, _) = wait_until_fed(&ensemble);
    assert_eq!(feeds(&ensemble, leader), 0);
    assert_nothing_lost(&ensemble, &load.stop());
}
