//! The log makes the state: whoever applies the same transactions has the same, however often they come.

use ringkeeper_engine::state::{RestoreError, State, StateBuilder};
use ringkeeper_engine::txn::{Outcome, Session, TxnOp, decode_batch, encode_batch};
use ringkeeper_wire::{Request, Zxid};
use rkyv::util::AlignedVec;

use crate::fixture::*;
use crate::snapshot::assert_survives_snapshots;

/// Replays a server's log through its archive, on servers with other seeds, whole and with a part repeated,
/// and rebuilds its state from its parts.
pub(crate) fn assert_replays(server: &Server) {
    let mut bytes = AlignedVec::new();
    encode_batch(&server.log, &mut bytes);
    let log = decode_batch(&bytes).expect("just encoded");
    assert_eq!(log, server.log);
    let mut once = State::new(2);
    let mut twice = State::new(3);
    for txn in &log {
        once.apply(txn);
    }
    for txn in log[..log.len() / 2].iter().chain(&log) {
        let known = txn.zxid <= twice.last_zxid();
        assert_eq!(twice.apply(txn) == Outcome::Replayed, known);
    }
    let mut at_once = State::new(5);
    at_once.replay(&log);
    assert_same(&once, &server.state);
    assert_same(&at_once, &server.state);
    assert_same(&twice, &server.state);
    assert_same(&rebuilt(&server.state), &server.state);
    assert_survives_snapshots(&log, &server.state);
}

fn rebuilt(state: &State) -> State {
    let mut builder = StateBuilder::new(4);
    for (id, session) in state.sessions() {
        builder.session(id, *session);
    }
    for znode in state.tree().nodes() {
        let added = builder.znode(&znode.path(), &znode.meta(), state.acl_of(znode), znode.data());
        assert_eq!(added, Ok(()));
    }
    builder.finish(state.last_zxid(), state.last_time_ms()).expect("has a root")
}

/// One of everything that can be in a log.
pub(crate) fn busy_server() -> Server {
    let mut server = Server::new();
    server.identities = vec![identity("digest", "me:hash")];
    for path in ["/a", "/a/b", "/zookeeper/quota/a", "/zookeeper/quota/a/zookeeper_limits"] {
        server.create(path, 0);
    }
    server.create("/zookeeper/quota/a/zookeeper_stats", 0);
    server.create("/a/e", 1);
    server.create("/a/s", 2);
    server.ask(&Request::CreateContainer(create_request("/a/c", 4)));
    server.ask(&create_ttl("/a/t", 5, 99));
    server.ask(&set_data("/a/b", &[1; 2000], -1));
    let own = [entry(31, "auth", "")];
    server.ask(&set_acl("/a/b", Some((&own[..]).into()), -1));
    server.ask(&set_data("/missing", b"", -1));
    server.multi(&[check("/a", 0), check("/a", 1)]);
    server.multi(&[check("/a", 0), ringkeeper_wire::MultiOp::Create(create_request("/a/m", 0))]);
    server.ask(&delete("/a/s0000000002", -1));
    assert!(server.reap("/a/t"));
    server
}

#[test]
fn replicas_that_apply_the_same_log_are_equal() {
    assert_replays(&busy_server());
}

#[test]
fn the_digest_tells_states_apart() {
    let reference = busy_server().state.digest();
    for request in
        [set_data("/a", b"data", -1), set_acl("/a", Some(list(1)), -1), delete("/a/m", -1), create("/x", 0)]
    {
        let mut server = busy_server();
        server.ask(&request);
        assert_ne!(server.state.digest(), reference, "{request:?}");
    }
}

#[test]
fn a_clone_stays_as_it_was() {
    let mut server = busy_server();
    let (kept, before) = (server.state.clone(), contents(&server.state));
    server.ask(&set_data("/a", b"changed", -1));
    server.close(ALICE);
    assert_eq!(contents(&kept), before);
    assert_eq!(kept.ephemeral_count(), 1);
}

#[test]
fn a_transaction_of_a_zxid_already_seen_changes_nothing() {
    let mut server = Server::new();
    let zxid = server.state.last_zxid();
    let txn = ringkeeper_engine::txn::Txn {
        zxid,
        session: BOB,
        xid: ringkeeper_wire::Xid(1),
        time_ms: i64::MAX,
        op: TxnOp::CreateSession(Session { timeout_ms: 1, password: [0; 16] }),
    };
    assert_eq!(server.state.apply(&txn), Outcome::Replayed);
    assert_eq!(server.state.session(BOB).expect("open").timeout_ms, 10_000);
    assert_ne!(server.state.last_time_ms(), i64::MAX);
}

#[test]
fn parts_that_make_no_state_are_refused() {
    assert_eq!(StateBuilder::new(1).finish(Zxid::ZERO, 0).err(), Some(RestoreError::NoRoot));
    let state = State::new(1);
    let root = state.znode("/").expect("built in");
    let mut builder = StateBuilder::new(1);
    let mut add = |path: &str| builder.znode(path, &root.meta(), state.acl_of(root), None);
    assert_eq!(add("/"), Ok(()));
    assert_eq!(add("/"), Err(RestoreError::UnexpectedPath("/".to_owned())));
    assert_eq!(add("none"), Err(RestoreError::UnexpectedPath("none".to_owned())));
}
