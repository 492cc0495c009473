//! Local sessions: kept by the server that their client is connected to, until they need to be the
//! ensemble's.

use std::net::SocketAddr;

use ringkeeper_testkit as testkit;
use ringkeeper_wire::{CreateMode, CreateRequest, ErrorCode, Request};

use crate::cluster::{Ensemble, SESSION_MS};
use crate::feature_level::wait_for_level;
use crate::support::{Client, wait_for};

const LOCAL: &str = "localSessionsEnabled=true\n";
const UPGRADED: &str = "localSessionsEnabled=true\nlocalSessionsUpgradingEnabled=true\n";

fn metric(address: SocketAddr, name: &str) -> f64 {
    testkit::metric(address, name).expect("a metric")
}

/// A leader and a server that follows it.
fn leader_and_follower(ensemble: &Ensemble) -> (usize, usize) {
    let leader = ensemble.leader();
    (leader, ensemble.others(leader)[0])
}

fn ephemeral(path: &str) -> Request<'_> {
    let (acl, flags) = (Some(testkit::OPEN_ACL.as_slice().into()), CreateMode::Ephemeral.to_wire());
    Request::Create(CreateRequest { path: path.into(), data: Some(b""), acl, flags })
}

#[test]
fn idle_local_sessions_cost_no_transaction() {
    let ensemble = Ensemble::start_with(UPGRADED);
    wait_for_level(&ensemble, "feature level 2");
    let (leader, follower) = leader_and_follower(&ensemble);
    let (of_leader, of_follower) = (ensemble.address(leader), ensemble.address(follower));
    let before = metric(of_leader, "zk_proposal_count");
    let clients: Vec<_> = (0..200).map(|_| Client::connect(of_follower, SESSION_MS)).collect();
    for client in &clients {
        assert_eq!(client.session.id.0 >> 56, i64::try_from(follower + 1).expect("small"));
    }
    // Sessions outlive their connections, as ever.
    drop(clients);
    assert_eq!(metric(of_follower, "zk_local_sessions"), 200.0);
    assert_eq!(metric(of_follower, "zk_global_sessions"), 0.0);
    assert_eq!(metric(of_leader, "zk_local_sessions"), 0.0);
    assert_eq!(metric(of_leader, "zk_proposal_count"), before);
    let dump = ensemble.server(follower).ask("dump").expect("an answer");
    assert!(dump.contains("Local Sessions(200):\n") && dump.contains("Global Sessions(0):\n"), "{dump}");
}

#[test]
fn a_local_session_reads_writes_and_watches_and_lives_on_its_server_alone() {
    let ensemble = Ensemble::start_with(UPGRADED);
    let (leader, follower) = leader_and_follower(&ensemble);
    let mut client = ensemble.connect(follower);
    client.create("/a", b"1", CreateMode::Persistent);
    assert_eq!(client.get("/a", true).expect("created"), b"1");
    ensemble.connect(leader).set("/a", b"2");
    assert_eq!(client.event().path, "/a");
    client.sync();
    assert_eq!(client.get("/a", false).expect("created"), b"2");

    let session = client.session;
    drop(client);
    let here = ensemble.address(follower);
    let mut wrong = session;
    wrong.password[0] ^= 1;
    assert!(Client::resume(here, SESSION_MS, wrong).is_none(), "another password");
    let mut client = Client::resume(here, SESSION_MS, session).expect("the session lives");
    client.set("/a", b"3");
    drop(client);
    let elsewhere = ensemble.address(leader);
    assert!(Client::resume(elsewhere, SESSION_MS, session).is_none(), "another server");
    ensemble.stop(follower);
    ensemble.run(follower);
    ensemble.leader();
    assert!(Client::resume(here, SESSION_MS, session).is_none(), "after a restart");
}

#[test]
fn a_local_session_outlives_its_leader() {
    let ensemble = Ensemble::start_with(UPGRADED);
    let (leader, follower) = leader_and_follower(&ensemble);
    let session = ensemble.connect(follower).session;
    ensemble.kill(leader);
    ensemble.leader_among(&ensemble.others(leader));
    let resumed = wait_for("a served client", || {
        Client::try_attach(ensemble.address(follower), SESSION_MS, Some(session), 0).ok()
    });
    assert!(resumed.is_some(), "the session lives");
}

#[test]
fn the_first_ephemeral_upgrades_a_session_which_then_moves_and_ends_like_any_other() {
    let ensemble = Ensemble::start_with(UPGRADED);
    let (leader, follower) = leader_and_follower(&ensemble);
    for server in [follower, leader] {
        let mut client = ensemble.connect(server);
        let session = client.session;
        client.create("/mine", b"", CreateMode::Ephemeral);
        assert_eq!(metric(ensemble.address(server), "zk_local_sessions"), 0.0);
        assert_eq!(metric(ensemble.address(server), "zk_global_sessions"), 1.0);
        drop(client);
        let elsewhere = ensemble.address(ensemble.others(server)[0]);
        let mut client = Client::resume(elsewhere, SESSION_MS, session).expect("it is the ensemble's");
        assert!(client.exists("/mine", false));
        client.close();
        let mut other = ensemble.connect(leader);
        assert!(!other.exists("/mine", false), "its ephemeral has ended with it");
        other.close();
    }
}

#[test]
fn without_upgrades_a_local_session_owns_no_ephemeral() {
    let ensemble = Ensemble::start_with(LOCAL);
    let (leader, follower) = leader_and_follower(&ensemble);
    for server in [leader, follower] {
        let mut client = ensemble.connect(server);
        let refused = client.call(&ephemeral("/mine"));
        assert_eq!(refused.err, ErrorCode::EphemeralOnLocalSession.to_wire());
        assert!(!client.exists("/mine", false));
        client.close();
        assert_eq!(metric(ensemble.address(server), "zk_local_sessions"), 0.0);
    }
}

#[test]
fn a_silent_local_session_expires_on_its_server() {
    let ensemble = Ensemble::start_with(&format!("{UPGRADED}minSessionTimeout=500\n"));
    let (_, follower) = leader_and_follower(&ensemble);
    let address = ensemble.address(follower);
    drop(Client::connect(address, 500));
    wait_for("its end", || (metric(address, "zk_local_sessions") == 0.0).then_some(()));
    assert_eq!(metric(address, "zk_stale_sessions_expired"), 1.0);
}

/// Only one server has the setting: its clients' sessions are its own, those of the others the ensemble's.
#[test]
fn servers_with_and_without_local_sessions_serve_side_by_side() {
    let ensemble = Ensemble::prepare(3, "");
    ensemble.configure(0, UPGRADED);
    let ensemble = ensemble.started();
    let (mut local, mut global) = (ensemble.connect(0), ensemble.connect(1));
    assert_eq!(metric(ensemble.address(0), "zk_local_sessions"), 1.0);
    assert_eq!(metric(ensemble.address(0), "zk_global_sessions"), 1.0);
    global.create("/a", b"1", CreateMode::Ephemeral);
    local.sync();
    local.set("/a", b"2");
    local.create("/b", b"", CreateMode::Ephemeral);
    assert_eq!(metric(ensemble.address(0), "zk_global_sessions"), 2.0);
    local.close();
    global.sync();
    assert!(!global.exists("/b", false));
    assert_eq!(global.get("/a", false).expect("its own"), b"2");
}
