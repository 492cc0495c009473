//! Members restored from a backup.

use std::fs;
use std::path::Path;
use std::process::Command;

use ringkeeper_wire::CreateMode;

use crate::cluster::Ensemble;
use crate::support::wait_for;

fn ringkeeper(arguments: &[&str]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_ringkeeper")).args(arguments).output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("UTF-8")
}

/// Puts a restored folder in the place of a member's.
fn replace(ensemble: &Ensemble, server: usize, by: &Path) {
    fs::remove_dir_all(ensemble.data(server)).expect("removed");
    fs::rename(by, ensemble.data(server)).expect("moved");
}

#[test]
fn restored_members_serve_together_and_a_member_of_the_old_history_stays_out() {
    let ensemble = Ensemble::start();
    let leader = ensemble.leader();
    let mut client = ensemble.connect(leader);
    client.create("/a", b"kept", CreateMode::Persistent);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    // Of a follower, as well as of the leader.
    for server in ensemble.servers() {
        let admin = format!("{}:8080", ensemble.address(server).ip());
        ringkeeper(&["backup", "--server", &admin, "--to", &path("store"), "--once"]);
    }
    client.create("/lost", b"", CreateMode::Persistent);
    ensemble.kill_all();
    let said = ringkeeper(&["restore", "--from", &path("store"), "--to", &path("new"), "--members", "1,2,3"]);
    assert!(said.contains("restored"), "{said}");
    // The disk of one member comes back after all.
    for server in [0, 1] {
        replace(&ensemble, server, &folder.path().join("new").join((server + 1).to_string()));
    }
    ensemble.servers().for_each(|server| ensemble.run(server));
    let leader = ensemble.leader_among(&[0, 1]);
    let mut client = ensemble.connect(leader);
    assert_eq!(client.get("/a", false).as_deref(), Some(&b"kept"[..]));
    assert!(!client.exists("/lost", false));
    wait_for("the refusal", || (ensemble.count_in_log(2, "RK0310") > 0).then_some(()));
    client.create("/new", b"", CreateMode::Persistent);
    // With its own restored folder the third one is a member.
    ensemble.kill(2);
    replace(&ensemble, 2, &folder.path().join("new/3"));
    ensemble.run(2);
    ensemble.leader();
    let mut third = ensemble.connect_synced(2);
    assert!(third.exists("/new", false) && third.exists("/a", false));
}

#[test]
fn members_restored_apart_are_one_ensemble_if_they_are_given_one_number() {
    let ensemble = Ensemble::start();
    ensemble.connect(0).create("/a", b"", CreateMode::Persistent);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let admin = format!("{}:8080", ensemble.address(0).ip());
    ringkeeper(&["backup", "--server", &admin, "--to", &path("store"), "--once"]);
    ensemble.kill_all();
    // The third one belongs to another restore of the same moment.
    for (server, number) in ["17", "17", "18"].iter().enumerate() {
        let (id, to) = ((server + 1).to_string(), path(&format!("new{server}")));
        let store = path("store");
        ringkeeper(&["restore", "--from", &store, "--to", &to, "--myid", &id, "--ensemble", number]);
        replace(&ensemble, server, Path::new(&to));
    }
    ensemble.servers().for_each(|server| ensemble.run(server));
    let leader = ensemble.leader_among(&[0, 1]);
    ensemble.connect(leader).create("/b", b"", CreateMode::Persistent);
    wait_for("the refusal", || (ensemble.count_in_log(2, "RK0310") > 0).then_some(()));
}
