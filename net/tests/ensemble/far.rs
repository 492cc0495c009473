//! Servers that are far apart. Needs root.

use std::time::Duration;

use ringkeeper_testkit::{Network, OPEN_ACL};
use ringkeeper_wire::{CreateMode, CreateRequest, Request};

use crate::catch_up::{SMALL, write_until_purged};
use crate::cluster::Ensemble;
use crate::load::{Load, assert_nothing_lost};
use crate::partitions::on;
use crate::support::Client;

/// What a packet takes from one server to another.
const DELAY: Duration = Duration::from_millis(50);

/// Ten round trips.
const SETTINGS: &str = "ringkeeper.trustedNetwork=yes\nringkeeper.peerTimeoutMs=1000";

fn on_servers_far_apart(settings: &str, test: impl FnOnce(&Ensemble)) {
    on(
        || Network::make_far(3, DELAY),
        |network| test(&Ensemble::prepare_on(network, &format!("{SETTINGS}\n{settings}")).started()),
    );
}

#[test]
fn a_leader_that_is_told_to_stop_hands_over_to_a_server_far_away() {
    on_servers_far_apart("", |ensemble| {
        let leader = ensemble.leader();
        let others: Vec<_> =
            ensemble.others(leader).into_iter().map(|other| ensemble.address(other)).collect();
        let load = Load::start(&others);
        load.wait_for_writes(20);
        ensemble.stop(leader);
        load.wait_for_writes(20);
        assert_eq!(load.broken(), 0, "connections to the other servers were closed");
        ensemble.run(leader);
        ensemble.leader();
        assert_nothing_lost(ensemble, &load.stop());
    });
}

/// Creates znodes of 200 kB, then many small ones, all at once; the zxid of the last change.
fn create_all_at_once(client: &mut Client) -> i64 {
    let large = (0..60).map(|number| (format!("/large-{number}"), 200_000));
    let small = (0..100).map(|number| (format!("/{number}"), 10));
    let mut sent = 0;
    for (path, size) in large.chain(small) {
        let (path, acl) = (path.into(), Some(OPEN_ACL.as_slice().into()));
        let (data, flags) = (vec![7; size], CreateMode::Persistent.to_wire());
        client.send(&Request::Create(CreateRequest { path, data: Some(&data), acl, flags }));
        sent += 1;
    }
    let replies = (0..sent).map(|_| client.reply().expect("a reply"));
    replies.inspect(|reply| assert_eq!(reply.err, 0)).map(|reply| reply.zxid).max().expect("some")
}

fn catches_up(settings: &str, by_snapshot: bool) {
    on_servers_far_apart(settings, |ensemble| {
        let leader = ensemble.leader();
        let away = ensemble.others(leader)[0];
        ensemble.kill(away);
        let mut client = ensemble.connect(leader);
        let mut zxid = create_all_at_once(&mut client);
        if by_snapshot {
            zxid = write_until_purged(ensemble, leader, &mut client);
        }
        ensemble.run(away);
        ensemble.leader();
        ensemble.assert_equal_trees(zxid);
        assert_eq!(ensemble.count_in_log(away, "snapshot received"), usize::from(by_snapshot));
    });
}

#[test]
fn a_server_far_away_catches_up_from_the_log() {
    catches_up("", false);
}

#[test]
fn a_server_far_away_catches_up_by_a_snapshot() {
    catches_up(SMALL, true);
}
