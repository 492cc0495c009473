//! What clients of Apache ZooKeeper saw is what the state shows.

use std::fs;

use ringkeeper_apache::{Note, session_password, snapshot};
use ringkeeper_engine::tree::Owner;

use crate::fixture::{self, Fixture, NAMES, described};

fn assert_same(expected: &[String], state: &ringkeeper_engine::state::State, what: &str) {
    let described = described(state);
    let mut expected = expected.to_vec();
    expected.sort();
    for (ours, theirs) in described.iter().zip(&expected) {
        assert_eq!(ours, theirs, "{what}");
    }
    assert_eq!(described.len(), expected.len(), "{what}");
}

#[test]
fn every_folder_shows_what_clients_saw() {
    for name in NAMES {
        let fixture = Fixture::unpack(name);
        let loaded = fixture.load();
        assert!(loaded.transactions > 0, "{name}: there is a log after the snapshot");
        let zxid = loaded.zxid;
        let converted = loaded.into_state(1).expect("a tree");
        assert_same(&fixture.expected(), &converted.state, name);
        assert!(converted.notes.is_empty(), "{name}: {:?}", converted.notes);
        assert_eq!((converted.state.last_zxid().to_wire(), converted.dead_ephemerals), (zxid, 0), "{name}");
        let newest = converted.state.tree().nodes().map(|znode| znode.meta().mtime).max();
        assert!(Some(converted.state.last_time_ms()) >= newest, "{name}");
    }
}

/// The fixtures would prove little otherwise.
#[test]
fn some_snapshots_of_the_fixtures_are_fuzzy() {
    let ahead = |file: &std::path::PathBuf| {
        let (zxid, packing) = fixture::name_of(file);
        let tree = snapshot::read(file, packing).expect("sound").tree;
        tree.iter().filter(|(_, znode)| znode.stat.mzxid.max(znode.stat.pzxid) > zxid).count()
    };
    let counts: Vec<_> = NAMES
        .map(|name| Fixture::unpack(name).files("snapshot.").iter().map(ahead).collect::<Vec<_>>())
        .to_vec();
    assert!(counts.iter().flatten().any(|&count| count > 0), "{counts:?}");
}

#[test]
fn sessions_come_with_their_ephemerals_timeouts_and_passwords() {
    for name in NAMES {
        let state = Fixture::unpack(name).load().into_state(1).expect("a tree").state;
        let mut owners: Vec<_> =
            state.sessions().filter(|&(id, _)| state.ephemerals(id).next().is_some()).collect();
        owners.sort_by_key(|(_, session)| session.timeout_ms);
        let timeouts: Vec<_> = owners.iter().map(|(_, session)| session.timeout_ms).collect();
        assert_eq!(timeouts, [25_000, 40_000], "{name}");
        let counts: Vec<_> = owners.iter().map(|&(id, _)| state.ephemerals(id).count()).collect();
        assert_eq!(counts, [3, 4], "{name}");
        for (id, session) in owners {
            assert_eq!(session.password, session_password(id), "{name}");
        }
    }
}

#[test]
fn containers_and_znodes_with_a_time_to_live_stay_what_they_are() {
    for name in NAMES {
        let state = Fixture::unpack(name).load().into_state(1).expect("a tree").state;
        let reapable: Vec<_> = state.reapable(None).map(|(path, znode)| (path, znode.owner())).collect();
        let expected = [
            ("/container", Owner::Container),
            ("/container-without-children", Owner::Container),
            ("/ttl", Owner::Ttl(30_000_000)),
            ("/ttl/child", Owner::Ttl(40_000_000)),
        ];
        assert_eq!(reapable, expected, "{name}");
    }
}

#[test]
fn apaches_own_digests_are_equal_after_every_transaction() {
    for name in NAMES {
        let loaded = Fixture::unpack(name).load();
        if name.ends_with("without-digests") {
            assert_eq!(loaded.digests_equal, 0);
        } else {
            // Those after a fuzzy snapshot's end; a difference would be a note.
            assert!(loaded.digests_equal > 0, "{name}");
            assert!(loaded.notes.is_empty(), "{name}: {:?}", loaded.notes);
        }
    }
}

#[test]
fn an_older_snapshot_and_more_of_the_log_come_to_the_same() {
    for name in NAMES {
        let fixture = Fixture::unpack(name);
        let direct = fixture.load();
        let newest = fixture.files("snapshot.").pop().expect("there are two");
        let bytes = fs::read(&newest).expect("readable");
        fs::write(&newest, &bytes[..bytes.len() / 2]).expect("writable");
        let loaded = fixture.load();
        assert!(loaded.transactions > direct.transactions, "{name}");
        let [Note::SnapshotPassedOver(error)] = &loaded.notes[..] else {
            panic!("{name}: {:?}", loaded.notes);
        };
        assert_eq!(error.file, newest, "{name}");
        assert_same(&fixture.expected(), &loaded.into_state(1).expect("a tree").state, name);
    }
}

#[test]
fn ephemerals_of_dead_sessions_end() {
    let mut loaded = Fixture::unpack("zookeeper-3.9").load();
    loaded.sessions.clear();
    let zxid = loaded.zxid;
    let converted = loaded.into_state(1).expect("a tree");
    assert_eq!(converted.dead_ephemerals, 7);
    assert_eq!(converted.state.ephemeral_count(), 0);
    let parent = converted.state.znode("/multi").expect("persistent").stat();
    assert_eq!((parent.pzxid, parent.num_children), (zxid, 0));
}
