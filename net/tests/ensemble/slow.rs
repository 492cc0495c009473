//! Slow requests, and what their servers say they waited for.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use ringkeeper_wire::{CreateMode, Request, SetDataRequest};

use crate::cluster::Ensemble;
use crate::support::{Client, wait_for};

/// Servers stand still for longer than requests may take, and are not taken for gone.
const SETTINGS: &str = "ringkeeper.slowRequestMs=50\nringkeeper.peerTimeoutMs=20000\n";

/// The last line of the server's log about a slow request to this path.
fn line(ensemble: &Ensemble, server: usize, path: &str) -> String {
    let about = format!("path={path:?}");
    wait_for("a line about the slow request", || {
        let log = ensemble.server(server).log();
        let mut lines =
            log.lines().filter(|line| line.contains("a request was slow") && line.contains(&about));
        lines.next_back().map(str::to_owned)
    })
}

/// Writes while a server stands still.
fn write_while_paused(ensemble: &Ensemble, client: &mut Client, path: &str, paused: usize) {
    ensemble.pause(paused);
    client.send(&Request::SetData(SetDataRequest { path: path.into(), data: Some(b"secret"), version: -1 }));
    sleep(Duration::from_millis(200));
    ensemble.resume(paused);
    client.reply().expect("a reply").ok(path).expect("a write that succeeds");
}

#[test]
fn a_slow_write_says_which_peer_its_quorum_waited_for() {
    let ensemble = Ensemble::start_with(SETTINGS);
    let leader = ensemble.leader();
    let [slow, gone] = ensemble.others(leader)[..] else { panic!("three servers") };
    let mut client = ensemble.connect(leader);
    client.create("/slow", b"", CreateMode::Persistent);
    ensemble.kill(gone);
    write_while_paused(&ensemble, &mut client, "/slow", slow);
    let line = line(&ensemble, leader, "/slow");
    let peer = format!("peer={}", ensemble.seats()[slow].id);
    for part in ["operation=\"SETD\"", "mostly=\"quorum\"", &peer, "zxid=", "log ", "quorum "] {
        assert!(line.contains(part), "no {part} in {line}");
    }
    assert!(!line.contains("secret"), "{line}");
    let mntr = ensemble.server(leader).ask("mntr").expect("an answer");
    assert!(!mntr.contains("zk_slow_requests\t0"), "{mntr}");
    let admin = format!("{}:8080", ensemble.address(leader).ip());
    let mut why_slow = Command::new(env!("CARGO_BIN_EXE_ringkeeper"));
    let told = why_slow.args(["admin", "why-slow", "--server", &admin]).output().expect("it runs");
    let text = String::from_utf8(told.stdout).expect("UTF-8");
    for part in ["SETD /slow of session 0x", "Other servers are slow", &format!("peers:    {}", &peer[5..])] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn a_slow_write_through_a_follower_says_that_it_waited_for_the_leader() {
    let ensemble = Ensemble::start_with(SETTINGS);
    let leader = ensemble.leader();
    let follower = ensemble.others(leader)[0];
    let mut client = ensemble.connect(follower);
    client.create("/slow", b"", CreateMode::Persistent);
    write_while_paused(&ensemble, &mut client, "/slow", leader);
    let line = line(&ensemble, follower, "/slow");
    assert!(line.contains("mostly=\"leader\""), "{line}");
}
