//! The single-server variant: the same interface, nobody else.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use ringkeeper_broadcast::{
    Broadcast, Config, Failure, ProposeError, StartError, StateError, StateMachine, Status, Zxid,
};

use crate::support::{Server, files, wait_for};

fn text(number: u32) -> Vec<u8> {
    format!("proposal {number}").into_bytes()
}

#[test]
fn what_was_acknowledged_survives_restarts_in_order() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut expected = Vec::new();
    for round in 0..3 {
        let server = Server::start(Config::single(folder.path()));
        wait_for("it leads itself", || server.leads().then_some(()));
        server.sync();
        assert_eq!(server.delivered(), expected, "before round {round}");
        let handle = server.broadcast.handle();
        let outcomes: Vec<_> = (0..100).map(|n| (text(n), handle.propose(text(n)))).collect();
        for (proposal, outcome) in outcomes {
            expected.push((outcome.wait().expect("delivered"), proposal));
        }
        assert_eq!(server.delivered(), expected);
        server.stop();
    }
    assert!(expected.is_sorted_by(|one, next| one.0 < next.0), "rising zxids");
}

#[test]
fn snapshots_take_the_place_of_the_log_and_bring_the_state_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = || Config::single(folder.path()).snapshot_after(100, u64::MAX).segment_size_bytes(64 << 10);
    let server = Server::start(config());
    for number in 0..1000 {
        server.propose(&[text(number), vec![b'.'; 500]].concat());
    }
    let expected = server.delivered();
    assert_eq!(expected.len(), 1000);
    wait_for("the log is purged", || (files(folder.path(), "log.").len() < 32).then_some(()));
    wait_for("the newest snapshot and one to fall back on are there, and none is being written", || {
        let (whole, all) = (files(folder.path(), "snapshot.0"), files(folder.path(), "snapshot."));
        (whole.len() == 2 && all.len() == 2).then_some(())
    });
    server.stop();

    let server = Server::start(config());
    server.sync();
    assert_eq!(server.delivered(), expected);
    let set = server.told(|told| told.states_set.clone());
    assert_eq!(set.len(), 1, "once, by the newest snapshot");
    assert!(set[0] > expected[500].0, "{set:?}");
    server.stop();

    // The newest snapshot is damaged: the one before it and the log do as well. Which they are may have
    // changed since.
    let mut snapshots = files(folder.path(), "snapshot.0");
    snapshots.sort_unstable();
    let [.., before, newest] = snapshots.as_slice() else { panic!("{snapshots:?}") };
    let before = Zxid(u64::from_str_radix(before.trim_start_matches("snapshot."), 16).expect("a zxid"));
    let path = folder.path().join(newest);
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[5000] ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let server = Server::start(config());
    server.sync();
    assert_eq!(server.delivered(), expected);
    assert_eq!(server.told(|told| told.states_set.clone()), [before]);
}

#[test]
fn damage_to_the_files_of_a_running_server_is_found_and_repaired() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = || Config::single(folder.path()).scrub(Duration::from_millis(50), 1 << 30);
    let server = Server::start(config());
    for number in 0..200 {
        server.propose(&text(number));
    }
    let expected = server.delivered();
    let first = files(folder.path(), "log.0").into_iter().min().expect("a log");
    let file = File::options().write(true).open(folder.path().join(&first)).expect("open");
    file.write_all_at(&[0xee; 512], 5 * 4096).expect("written");
    wait_for("a snapshot takes the place of the damaged log", || {
        let replaced =
            files(folder.path(), "snapshot.0").len() == 1 && !files(folder.path(), "log.").contains(&first);
        replaced.then_some(())
    });
    server.stop();

    let server = Server::start(config());
    server.sync();
    assert_eq!(server.delivered(), expected);
}

#[test]
fn a_sync_is_told_to_the_machine_behind_what_was_proposed_before() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start(Config::single(folder.path()));
    let zxid = server.propose(b"one");
    assert_eq!(server.sync(), zxid);
    assert_eq!(server.told(|told| told.syncs.last().copied()), Some(zxid));
    assert!(matches!(server.told(|told| told.statuses[0]), Status::Leading { .. }));
}

#[test]
fn what_is_not_answered_when_the_server_ends_has_an_unknown_outcome() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start(Config::single(folder.path()));
    server.propose(b"it leads");
    let handle = server.broadcast.handle();
    handle.shutdown();
    let late: Vec<_> = (0..100).map(|n| handle.propose(text(n))).collect();
    server.broadcast.join().expect("a clean end");
    for outcome in late {
        assert!(matches!(outcome.wait(), Err(ProposeError::Unknown | ProposeError::Ended)));
    }
    assert_eq!(handle.propose(text(1)).wait(), Err(ProposeError::Ended));
}

/// Takes no state.
struct Stubborn;

impl StateMachine for Stubborn {
    fn deliver(&mut self, _: Zxid, _: &[u8]) {}

    fn get_state(&mut self) -> Vec<u8> {
        vec![1]
    }

    fn set_state(&mut self, _: Zxid, _: &[u8]) -> Result<(), StateError> {
        Err("of another version".into())
    }
}

#[test]
fn a_machine_that_refuses_its_snapshot_is_not_started() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = || Config::single(folder.path()).snapshot_after(1, 1);
    let broadcast = Broadcast::start(config(), Stubborn).expect("nothing to refuse yet");
    wait_for("a proposal is delivered", || broadcast.handle().propose(vec![1]).wait().ok());
    wait_for("a snapshot is taken", || files(folder.path(), "snapshot.0").pop());
    drop(broadcast);
    let error = Broadcast::start(config(), Stubborn).expect_err("refused");
    assert!(matches!(error, StartError::State(_)), "{error}");
    assert!(error.to_string().contains("of another version"), "{error}");
}

/// Panics at its first proposal.
struct Fragile;

impl StateMachine for Fragile {
    fn deliver(&mut self, _: Zxid, _: &[u8]) {
        panic!("as the test wants it");
    }

    fn get_state(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn set_state(&mut self, _: Zxid, _: &[u8]) -> Result<(), StateError> {
        Ok(())
    }
}

#[test]
fn a_machine_that_panics_ends_its_server_and_nobody_waits_for_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broadcast = Broadcast::start(Config::single(folder.path()), Fragile).expect("it starts");
    let handle = broadcast.handle();
    let refused = wait_for("the proposal is taken", || {
        Some(handle.propose(vec![1]).wait()).filter(|outcome| *outcome != Err(ProposeError::NoLeader))
    });
    assert_eq!(refused, Err(ProposeError::Unknown));
    assert_eq!(broadcast.join(), Err(Failure::Panicked));
    assert_eq!(handle.propose(vec![1]).wait(), Err(ProposeError::Ended));
}
