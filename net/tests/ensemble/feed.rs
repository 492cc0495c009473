//! The feed of an ensemble's server.

use ringkeeper_wire::CreateMode;

use crate::cluster::Ensemble;
use crate::support::{request, wait_for};

/// What a server's feed has, from the beginning on, as far as it is text.
fn feed(ensemble: &Ensemble, server: usize) -> String {
    let address = (ensemble.address(server).ip(), 8080).into();
    let answer = request(address, "GET", "/commands/feed?after=0", "authorization: ip\r\n");
    String::from_utf8_lossy(&answer.body).into_owned()
}

#[test]
fn what_is_not_committed_is_not_in_the_feed_of_the_leader() {
    // So long that the leader keeps its office without its followers while the test looks.
    let ensemble = Ensemble::start_with("ringkeeper.peerTimeoutMs=20000");
    let leader = ensemble.leader();
    let mut client = ensemble.connect(leader);
    client.create("/committed", b"", CreateMode::Persistent);
    let followers = ensemble.others(leader);
    let has = |path: &str| feed(&ensemble, leader).contains(path);
    wait_for("the write in the feed", || has("/committed").then_some(()));
    followers.iter().for_each(|&follower| ensemble.pause(follower));
    client.send_create("/proposed", b"", CreateMode::Persistent);
    wait_for("the write in the leader's log", || {
        let files = std::fs::read_dir(ensemble.data(leader)).ok()?.flatten();
        let mut logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("log."));
        logs.any(|file| {
            let bytes = std::fs::read(file.path()).unwrap_or_default();
            bytes.windows(9).any(|window| window == b"/proposed")
        })
        .then_some(())
    });
    assert!(!has("/proposed"));
    followers.iter().for_each(|&follower| ensemble.resume(follower));
    wait_for("the write in the feed", || has("/proposed").then_some(()));
}
