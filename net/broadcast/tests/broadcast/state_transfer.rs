//! Members that were away for longer than the log reaches back.

use ringkeeper_broadcast::Config;

use crate::support::{Ensemble, Server, files, wait_for};

fn config(ensemble: &Ensemble, id: u64) -> Config {
    ensemble.config(id).snapshot_after(200, u64::MAX).segment_size_bytes(64 << 10)
}

/// Proposes until the log of a member no longer begins at the beginning.
fn outgrow_the_log(ensemble: &Ensemble, servers: &[Server], name: u8) {
    let first = ensemble.data(1).join(files(&ensemble.data(1), "log.").into_iter().min().expect("a log"));
    let mut proposed = 0_u32;
    wait_for("the oldest part of the log is gone", || {
        for _ in 0..100 {
            servers[0].propose(&[&[name][..], &proposed.to_le_bytes(), &[0; 2000]].concat());
            proposed += 1;
        }
        let gone = servers.iter().all(|server| server.told(|told| told.states_got >= 3));
        (gone && !first.exists() || proposed > 2000).then_some(())
    });
}

#[test]
fn a_member_that_was_away_past_the_log_is_given_the_state() {
    let ensemble = Ensemble::new();
    let mut servers: Vec<_> = (1..=3).map(|id| Server::start(config(&ensemble, id))).collect();
    servers[0].propose(b"all are here");
    servers.pop().expect("three").stop();
    outgrow_the_log(&ensemble, &servers, b'a');

    let back = Server::start(config(&ensemble, 3));
    // While the others go on.
    for number in 0..100_u8 {
        servers[1].propose(&[b'b', number]);
    }
    back.sync();
    servers[0].sync();
    assert!(back.told(|told| !told.states_set.is_empty()), "by a snapshot, not by the log alone");
    assert_eq!(back.delivered(), servers[0].delivered());

    // What it was given is durable, and it is a member like the others.
    back.stop();
    let back = Server::start(config(&ensemble, 3));
    servers.remove(0).stop();
    let zxid = back.propose(b"without the first");
    servers[0].sync();
    assert_eq!(back.delivered(), servers[0].delivered());
    assert_eq!(back.delivered().last().map(|last| last.0), Some(zxid));
}

#[test]
fn a_member_with_a_new_disk_is_given_the_state() {
    let ensemble = Ensemble::new();
    let mut servers: Vec<_> = (1..=3).map(|id| Server::start(config(&ensemble, id))).collect();
    servers[0].propose(b"all are here");
    outgrow_the_log(&ensemble, &servers, b'a');
    servers.pop().expect("three").stop();
    std::fs::remove_dir_all(ensemble.data(3)).expect("wiped");
    let back = Server::start(config(&ensemble, 3));
    back.sync();
    servers[0].sync();
    assert_eq!(back.told(|told| told.states_set.len()), 1);
    assert_eq!(back.delivered(), servers[0].delivered());
}
