//! What the fields of a Stat say, and how create modes differ (docs/protocol.md, 3.2 and 3.3).

use ringkeeper_engine::state::State;
use ringkeeper_engine::tree::Owner;
use ringkeeper_engine::txn::{Effect, Outcome};
use ringkeeper_wire::{ErrorCode, Request, Stat};

use crate::fixture::*;

#[test]
fn built_in_znodes_have_an_empty_stat_and_uncounted_children() {
    let state = State::new(1);
    let stat = |path: &str| state.znode(path).expect(path).stat();
    assert_eq!(stat("/"), Stat { cversion: -1, num_children: 1, ..Stat::default() });
    assert_eq!(stat("/zookeeper"), Stat { cversion: -2, num_children: 2, ..Stat::default() });
    assert_eq!(stat("/zookeeper/quota"), Stat::default());
    assert_eq!(stat("/zookeeper/config"), Stat { aversion: -1, ..Stat::default() });
    let config = state.znode("/zookeeper/config").expect("built in");
    assert_eq!(state.acl_of(config).entries(), [entry(1, "world", "anyone")]);
}

#[test]
fn a_new_znode_carries_the_zxid_and_time_of_its_transaction() {
    let mut server = Server::new();
    let zxid = server.next_zxid().to_wire();
    server.create("/a", 0);
    let time = server.state.last_time_ms();
    let expected = Stat {
        czxid: zxid,
        mzxid: zxid,
        pzxid: zxid,
        ctime: time,
        mtime: time,
        data_length: 4,
        ..Stat::default()
    };
    assert_eq!(server.stat("/a"), expected);
}

#[test]
fn set_data_alone_moves_version_mzxid_and_mtime() {
    let mut server = Server::new();
    server.create("/a", 0);
    let before = server.stat("/a");
    server.ask(&set_acl("/a", Some(list(31)), -1));
    server.create("/a/b", 0);
    let expected = Stat { aversion: 1, cversion: 1, num_children: 1, pzxid: before.pzxid + 2, ..before };
    assert_eq!(server.stat("/a"), expected);
    let zxid = server.next_zxid().to_wire();
    let outcome = server.ask(&set_data("/a", b"longer", 0));
    let now = server.stat("/a");
    let mtime = server.state.last_time_ms();
    assert_eq!(now, Stat { version: 1, mzxid: zxid, mtime, data_length: 6, ..expected });
    assert!(matches!(outcome, Outcome::Done(Effect::DataSet { stat, .. }) if stat == now));
}

#[test]
fn cversion_counts_creations_and_deletions_and_pzxid_is_the_last_of_them() {
    let mut server = Server::new();
    server.create("/a", 0);
    server.create("/a/b", 0);
    server.create("/a/c", 0);
    assert_eq!((server.stat("/a").cversion, server.stat("/a").num_children), (2, 2));
    let zxid = server.next_zxid().to_wire();
    server.ask(&delete("/a/b", -1));
    let stat = server.stat("/a");
    assert_eq!((stat.cversion, stat.num_children, stat.pzxid), (3, 1, zxid));
}

#[test]
fn the_sequence_counts_all_creations_and_no_deletions() {
    let mut server = Server::new();
    server.create("/q", 0);
    assert_eq!(server.create("/q/n-", 2), "/q/n-0000000000");
    server.create("/q/other", 0);
    assert_eq!(server.create("/q/n-", 2), "/q/n-0000000002");
    server.ask(&delete("/q/n-0000000002", -1));
    assert_eq!(server.create("/q/", 3), "/q/0000000003");
    assert_eq!(server.stat("/q/0000000003").ephemeral_owner, ALICE.0);
    assert_eq!(server.create("/q/n-0000000001", 0), "/q/n-0000000001");
}

#[test]
fn the_sequence_wraps_at_32_bits() {
    use ringkeeper_engine::state::StateBuilder;
    use ringkeeper_engine::tree::ZnodeMeta;
    let mut server = Server::new();
    let mut builder = StateBuilder::new(1);
    for (session, kept) in server.state.sessions() {
        builder.session(session, *kept);
    }
    for znode in server.state.tree().nodes() {
        let mut meta = znode.meta();
        if znode.path() == "/" {
            meta = ZnodeMeta { cversion: i32::MAX, ..meta };
        }
        builder
            .znode(&znode.path(), &meta, server.state.acl_of(znode), znode.data())
            .expect("distinct paths");
    }
    server.state = builder.finish(server.state.last_zxid(), 0).expect("has a root");
    assert_eq!(server.create("/n", 2), "/n2147483647");
    assert_eq!(server.create("/n", 2), "/n-2147483648");
    assert_eq!(server.create("/n", 2), "/n-2147483647");
}

#[test]
fn null_and_empty_data_are_kept_apart() {
    let mut server = Server::new();
    for (path, data) in [("/null", None), ("/empty", Some(&b""[..]))] {
        server.ask(&Request::Create(ringkeeper_wire::CreateRequest { data, ..create_request(path, 0) }));
        assert_eq!(server.data(path), data);
        assert_eq!(server.stat(path).data_length, 0);
    }
}

#[test]
fn only_ephemerals_show_an_owner() {
    let mut server = Server::new();
    server.create("/e", 1);
    server.ask(&Request::CreateContainer(create_request("/c", 4)));
    server.ask(&create_ttl("/t", 5, 1234));
    let owner = |path: &str| server.state.znode(path).expect(path).owner();
    assert_eq!(owner("/e"), Owner::Session(ALICE));
    assert_eq!(owner("/c"), Owner::Container);
    assert_eq!(owner("/t"), Owner::Ttl(1234));
    assert_eq!(server.stat("/e").ephemeral_owner, ALICE.0);
    assert_eq!((server.stat("/c").ephemeral_owner, server.stat("/t").ephemeral_owner), (0, 0));
}

#[test]
fn containers_and_ttl_znodes_have_children_and_are_reaped_without() {
    let mut server = Server::new();
    server.ask(&Request::CreateContainer(create_request("/c", 4)));
    server.ask(&create_ttl("/t", 5, 1));
    server.create("/plain", 0);
    server.create("/e", 1);
    server.create("/c/child", 0);
    server.create("/t/child", 0);
    let reapable = |server: &Server, after| {
        server.state.reapable(after).map(|(path, _)| path.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(reapable(&server, None), ["/c", "/t"]);
    assert_eq!(reapable(&server, Some("/c")), ["/t"]);
    for path in ["/c", "/t", "/plain", "/e", "/missing"] {
        assert!(!server.reap(path), "{path}");
    }
    server.ask(&delete("/c/child", -1));
    assert!(server.reap("/c"));
    assert_eq!(reapable(&server, None), ["/t"]);
}

#[test]
fn minus_one_expects_any_version() {
    let mut server = Server::new();
    server.create("/a", 0);
    assert_eq!(code(&server.ask(&set_data("/a", b"x", -1))), ErrorCode::Ok);
    assert_eq!(code(&server.ask(&set_data("/a", b"x", 0))), ErrorCode::BadVersion);
    assert_eq!(code(&server.ask(&set_data("/a", b"x", 1))), ErrorCode::Ok);
}

#[test]
fn an_acl_lives_as_long_as_a_znode_has_it() {
    let mut server = Server::new();
    let built_in = server.state.acl_count();
    for n in 0..50 {
        server.create("/a", 0);
        let own = [entry(31, "world", "anyone"), entry(1, "digest", &format!("user{n}:hash"))];
        server.ask(&set_acl("/a", Some((&own[..]).into()), -1));
        assert_eq!(server.state.acl_count(), built_in + 1);
        server.ask(&delete("/a", -1));
    }
    assert_eq!(server.state.acl_count(), built_in);
}
