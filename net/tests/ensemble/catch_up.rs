//! A follower that was away comes back while the load goes on.

use ringkeeper_wire::CreateMode;

use crate::cluster::Ensemble;
use crate::load::{Load, assert_nothing_lost, change, create_hundred};
use crate::support::{Client, wait_for};
use crate::tls;

/// Set to run the long variant: a million transactions.
const LONG: &str = "RINGKEEPER_LONG_TESTS";

/// Requests that are on their way at a time.
const OUTSTANDING: usize = 500;

fn comes_back_after(txns: usize) {
    let ensemble = Ensemble::start();
    let away = ensemble.others(ensemble.leader())[0];
    let mut client = ensemble.connect(ensemble.leader());
    create_hundred(&mut client);
    ensemble.kill(away);
    let zxid = change(&mut client, txns, OUTSTANDING);
    let load = Load::start(&ensemble.addresses_of(&ensemble.others(away)));
    load.wait_for_writes(10);
    ensemble.run(away);
    ensemble.leader();
    load.wait_for_writes(10);
    assert_eq!(load.broken(), 0, "clients of the others noticed");
    assert_nothing_lost(&ensemble, &load.stop());
    ensemble.assert_equal_trees(zxid);
}

/// A snapshot every 100 to 200 transactions, segments of 64 KiB: what is older than the third one is purged
/// soon.
pub(crate) const SMALL: &str = "snapCount=200\npreAllocSize=64";

/// Znodes that make a snapshot long.
fn create_large(client: &mut Client, count: usize) {
    client.create("/large", b"", CreateMode::Persistent);
    for number in 0..count {
        client.create(&format!("/large/{number}"), &vec![7; 200_000], CreateMode::Persistent);
    }
}

/// Writes until the log begins with what was written here; the zxid of the last change.
pub(crate) fn write_until_purged(ensemble: &Ensemble, leader: usize, client: &mut Client) -> i64 {
    let purged = ensemble.count_in_log(leader, "old segments of the log were purged");
    wait_for("a purged log", || {
        let zxid = change(client, 200, OUTSTANDING);
        (ensemble.count_in_log(leader, "old segments of the log were purged") > purged + 3).then_some(zxid)
    })
}

/// Starts a server of an ensemble with [`SMALL`] again, under load, which has to be sent a snapshot;
/// `meanwhile` gets it while that is coming in.
fn comes_back_by_a_snapshot(
    mut ensemble: Ensemble,
    large: usize,
    while_away: impl FnOnce(&Ensemble, usize),
    meanwhile: impl FnOnce(&mut Ensemble, usize),
) {
    let away = ensemble.others(ensemble.leader())[0];
    let mut client = ensemble.connect(ensemble.leader());
    create_hundred(&mut client);
    create_large(&mut client, large);
    client.create("/mine", b"", CreateMode::Ephemeral);
    ensemble.kill(away);
    let received = ensemble.count_in_log(away, "snapshot received");
    let leader = ensemble.leader();
    let zxid = write_until_purged(&ensemble, leader, &mut client);
    while_away(&ensemble, away);
    let load = Load::start(&ensemble.addresses_of(&ensemble.others(away)));
    load.wait_for_writes(10);
    ensemble.run(away);
    meanwhile(&mut ensemble, away);
    ensemble.leader();
    load.wait_for_writes(10);
    assert_eq!(load.broken(), 0, "clients of the others noticed");
    assert_nothing_lost(&ensemble, &load.stop());
    ensemble.assert_equal_trees(zxid);
    assert!(ensemble.count_in_log(away, "snapshot received") > received, "it came back without a snapshot");
    // What it has received is its own from now on.
    ensemble.kill(away);
    ensemble.run(away);
    ensemble.leader();
    ensemble.assert_equal_trees(zxid);
    assert!(ensemble.connect(away).exists("/mine", false), "the session lives");
}

fn wait_for_one_more(ensemble: &Ensemble, server: usize, text: &str, before: usize) {
    wait_for(text, || (ensemble.count_in_log(server, text) > before).then_some(()));
}

#[test]
fn a_follower_that_missed_what_is_purged_comes_back_by_a_snapshot_under_load() {
    comes_back_by_a_snapshot(Ensemble::start_with(SMALL), 0, |_, _| {}, |_, _| {});
}

#[test]
fn a_follower_killed_again_and_again_while_a_snapshot_comes_in_has_it_in_the_end() {
    comes_back_by_a_snapshot(
        Ensemble::start_with(SMALL),
        100,
        |_, _| {},
        |ensemble, away| {
            let received = ensemble.count_in_log(away, "snapshot received");
            for killed in 0..3 {
                // The rest of it may be there before it can be killed again.
                wait_for("a transfer", || {
                    let begun = ensemble.count_in_log(away, "a snapshot leader=") > killed;
                    (begun || ensemble.count_in_log(away, "snapshot received") > received).then_some(())
                });
                ensemble.kill(away);
                ensemble.run(away);
            }
        },
    );
}

/// A follower that is being sent a snapshot: `break_off` comes when it has a part, and it is sent the rest.
fn is_sent_the_rest(break_off: impl FnOnce(&Ensemble, usize, usize)) {
    // 8 MB at 2 MiB/s: time enough for a part of it, and for it to break off.
    let ensemble = Ensemble::start_with(&format!("{SMALL}\nringkeeper.snapshotKbPerSecond=2048"));
    let leader = ensemble.leader();
    let away = ensemble.others(leader)[0];
    let mut client = ensemble.connect(leader);
    create_hundred(&mut client);
    create_large(&mut client, 40);
    ensemble.kill(away);
    let zxid = write_until_purged(&ensemble, leader, &mut client);
    ensemble.run(away);
    wait_for("a part of the snapshot", || {
        (ensemble.data_file_len(away, "install.part.") > 1 << 20).then_some(())
    });
    break_off(&ensemble, leader, away);
    wait_for_one_more(&ensemble, away, "receiving the rest of a snapshot", 0);
    wait_for_one_more(&ensemble, away, "snapshot received", 0);
    assert_eq!(ensemble.count_in_log(leader, "the peer has a part of the snapshot"), 1);
    ensemble.leader();
    ensemble.assert_equal_trees(zxid);
}

#[test]
fn a_follower_whose_transfer_broke_off_is_sent_the_rest() {
    is_sent_the_rest(|ensemble, leader, away| {
        let disconnected = ensemble.count_in_log(leader, "peer disconnected");
        ensemble.pause(away);
        wait_for_one_more(ensemble, leader, "peer disconnected", disconnected);
        ensemble.resume(away);
    });
}

/// It was sent all of it again.
#[test]
fn a_follower_that_was_killed_in_the_middle_of_a_transfer_is_sent_the_rest() {
    is_sent_the_rest(|ensemble, _, away| {
        ensemble.kill(away);
        ensemble.run(away);
    });
}

#[test]
fn a_leader_killed_while_it_sends_a_snapshot_leaves_the_sending_to_the_next() {
    let ensemble = Ensemble::start_with(SMALL);
    let leader = ensemble.leader();
    let away = ensemble.others(leader)[0];
    let mut client = ensemble.connect(leader);
    create_hundred(&mut client);
    create_large(&mut client, 100);
    ensemble.kill(away);
    let zxid = write_until_purged(&ensemble, leader, &mut client);
    ensemble.run(away);
    wait_for_one_more(&ensemble, away, "receiving a snapshot", 0);
    ensemble.kill(leader);
    ensemble.leader();
    ensemble.run(leader);
    ensemble.leader();
    ensemble.assert_equal_trees(zxid);
}

#[test]
fn a_follower_with_a_new_disk_is_filled_by_a_snapshot() {
    comes_back_by_a_snapshot(Ensemble::start_with(SMALL), 5, Ensemble::wipe, |_, _| {});
}

#[test]
fn a_follower_with_a_new_disk_is_filled_over_tls() {
    comes_back_by_a_snapshot(tls::start_with(SMALL), 5, Ensemble::wipe, |_, _| {});
}

#[test]
fn a_follower_that_missed_10_transactions_catches_up_under_load() {
    comes_back_after(10);
}

#[test]
fn a_follower_that_missed_10000_transactions_catches_up_under_load() {
    comes_back_after(10_000);
}

#[test]
fn a_follower_that_missed_1000000_transactions_catches_up_under_load() {
    if std::env::var_os(LONG).is_none() {
        return eprintln!("skipped: takes minutes; set {LONG}=1 to run it");
    }
    comes_back_after(1_000_000);
}
