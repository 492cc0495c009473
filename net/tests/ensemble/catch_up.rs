//! A follower that was away comes back while the load goes on.

use ringkeeper_wire::{CreateMode, Request, SetDataRequest};

use crate::cluster::Ensemble;
use crate::load::{Load, assert_nothing_lost};
use crate::support::Client;

/// Set to run the long variant: a million transactions.
const LONG: &str = "RINGKEEPER_LONG_TESTS";

/// Requests that are on their way at a time.
const OUTSTANDING: usize = 500;

fn comes_back_after(txns: usize) {
    let mut ensemble = Ensemble::start();
    let away = ensemble.others(ensemble.leader())[0];
    let mut client = ensemble.connect(ensemble.leader());
    (0..100).for_each(|number| drop(client.create(&format!("/{number}"), b"", CreateMode::Persistent)));
    ensemble.kill(away);
    let zxid = write(&mut client, txns);
    let addresses: Vec<_> =
        ensemble.others(away).into_iter().map(|server| ensemble.address(server)).collect();
    let load = Load::start(&ensemble, &addresses);
    load.wait_for_writes(10);
    ensemble.run(away);
    ensemble.leader();
    load.wait_for_writes(10);
    assert_eq!(load.broken(), 0, "clients of the others noticed");
    assert_nothing_lost(&ensemble, &load.stop());
    ensemble.assert_equal_trees(zxid);
}

/// Changes the 100 znodes in turn, many at a time; the zxid of the last change.
fn write(client: &mut Client, txns: usize) -> i64 {
    let (mut sent, mut zxid) = (0, 0);
    for answered in 0..txns {
        while sent < txns.min(answered + OUTSTANDING) {
            let data = sent.to_string();
            let path = format!("/{}", sent % 100).into();
            client.send(&Request::SetData(SetDataRequest { path, data: Some(data.as_bytes()), version: -1 }));
            sent += 1;
        }
        let reply = client.reply().expect("a reply");
        assert_eq!(reply.error, 0);
        zxid = reply.zxid;
    }
    zxid
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
