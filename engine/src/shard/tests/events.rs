//! Which events a client gets: the rows of the trigger table, and the catch-up after a change of servers.

use ringkeeper_wire::{
    AddWatchMode, AddWatchRequest, AddWatchResponse, AuthRequest, SetWatchesRequest, WatcherType,
    WatchesRequest,
};

use super::*;
use crate::acl::DigestAlgorithm;
use crate::authorisation::{PLACE, Subject, rule_path};

fn add_watch(path: &str, mode: AddWatchMode) -> Request<'_> {
    Request::AddWatch(AddWatchRequest { path: path.into(), mode })
}

fn check_watches(path: &str, watcher_type: WatcherType) -> Request<'_> {
    Request::CheckWatches(WatchesRequest { path: path.into(), watcher_type })
}

fn remove_watches(path: &str, watcher_type: WatcherType) -> Request<'_> {
    Request::RemoveWatches(WatchesRequest { path: path.into(), watcher_type })
}

/// Client 1 sets watches by `requests`, then one transaction is committed: the events that follow.
fn events_after(paths: &[&str], requests: &[Request<'_>], op: TxnOp) -> Vec<String> {
    let mut world = World::with_znodes(paths);
    for request in requests {
        world.send(1, 1, request);
    }
    world.frames(1);
    world.commit([op]);
    outline(&world.frames(1))
        .iter()
        .map(|line| line.split(" at ").next().expect("a line").to_owned())
        .collect()
}

const PERSISTENT: AddWatchMode = AddWatchMode::Persistent;
const RECURSIVE: AddWatchMode = AddWatchMode::PersistentRecursive;

#[test]
fn a_data_watch_sees_data_changes_and_deletion() {
    let watch = [get_data("/a", true)];
    assert_eq!(events_after(&["/a"], &watch, sets("/a", b"x")), ["NodeDataChanged /a"]);
    assert_eq!(events_after(&["/a"], &watch, deletes("/a")), ["NodeDeleted /a"]);
    assert_eq!(events_after(&["/a"], &watch, creates("/a/b")), [""; 0]);
}

#[test]
fn an_exists_watch_on_a_missing_znode_sees_its_creation() {
    assert_eq!(events_after(&[], &[exists("/a", true)], creates("/a")), ["NodeCreated /a"]);
}

#[test]
fn get_data_and_get_children_leave_no_watch_on_a_missing_znode() {
    let watches = [get_data("/a", true), get_children("/a", true)];
    assert_eq!(events_after(&[], &watches, creates("/a")), [""; 0]);
}

#[test]
fn a_child_watch_sees_children_come_and_go_and_its_own_deletion() {
    let watch = [get_children("/a", true)];
    assert_eq!(events_after(&["/a"], &watch, creates("/a/b")), ["NodeChildrenChanged /a"]);
    assert_eq!(events_after(&["/a", "/a/b"], &watch, deletes("/a/b")), ["NodeChildrenChanged /a"]);
    assert_eq!(events_after(&["/a"], &watch, deletes("/a")), ["NodeDeleted /a"]);
    assert_eq!(events_after(&["/a"], &watch, sets("/a", b"x")), [""; 0]);
}

#[test]
fn data_and_child_watch_together_see_one_deletion() {
    let watches = [get_data("/a", true), get_children("/a", true)];
    assert_eq!(events_after(&["/a"], &watches, deletes("/a")), ["NodeDeleted /a"]);
}

#[test]
fn a_deletion_consumes_the_child_watch_that_it_did_not_report() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &get_data("/a", true));
    world.send(1, 2, &get_children("/a", true));
    world.commit([deletes("/a")]);
    world.frames(1);
    world.commit([creates("/a"), creates("/a/b")]);
    assert_eq!(world.frames(1), []);
}

#[test]
fn a_deletion_is_reported_to_the_znodes_watchers_before_the_parents() {
    let watches = [get_children("/", true), get_data("/a", true)];
    assert_eq!(events_after(&["/a"], &watches, deletes("/a")), ["NodeDeleted /a", "NodeChildrenChanged /"]);
}

#[test]
fn an_acl_change_fires_nothing() {
    let set = crate::txn::SetAcl { path: "/a".into(), acl: Acl::OPEN, aversion: 1 };
    let watches = [get_data("/a", true), add_watch("/", RECURSIVE)];
    assert_eq!(events_after(&["/a"], &watches, TxnOp::Update(Update::SetAcl(set))), [""; 0]);
}

#[test]
fn a_standard_watch_fires_once() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &get_data("/a", true));
    world.send(1, 2, &get_data("/a", true));
    world.frames(1);
    world.commit([sets("/a", b"x"), sets("/a", b"y")]);
    assert_eq!(world.frames(1), [event(2, EventType::NodeDataChanged, "/a")]);
}

#[test]
fn a_persistent_watch_sees_data_and_children_and_stays() {
    let mut world = World::with_znodes(&[]);
    world.send(1, 1, &add_watch("/a", PERSISTENT));
    assert_eq!(world.frames(1), [reply(1, 0, Some(Response::AddWatch(AddWatchResponse { err: 0 })))]);
    world.commit([
        creates("/a"),
        sets("/a", b"x"),
        creates("/a/b"),
        deletes("/a/b"),
        deletes("/a"),
        creates("/a"),
    ]);
    let expected = [
        "NodeCreated /a at 1",
        "NodeDataChanged /a at 2",
        "NodeChildrenChanged /a at 3",
        "NodeChildrenChanged /a at 4",
        "NodeDeleted /a at 5",
        "NodeCreated /a at 6",
    ];
    assert_eq!(outline(&world.frames(1)), expected);
}

#[test]
fn a_recursive_watch_sees_the_subtree_and_no_child_events() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &add_watch("/a", RECURSIVE));
    world.frames(1);
    world.commit([creates("/a/b"), creates("/a/b/c"), sets("/a", b"x"), deletes("/a/b/c"), creates("/ab")]);
    let expected = [
        "NodeCreated /a/b at 2",
        "NodeCreated /a/b/c at 3",
        "NodeDataChanged /a at 4",
        "NodeDeleted /a/b/c at 5",
    ];
    assert_eq!(outline(&world.frames(1)), expected);
}

#[test]
fn a_recursive_watch_on_the_root_sees_everything() {
    let events = events_after(&["/a"], &[add_watch("/", RECURSIVE)], creates("/a/b"));
    assert_eq!(events, ["NodeCreated /a/b"]);
}

#[test]
fn several_modes_of_one_client_make_one_event_a_table() {
    let watches = [
        get_data("/a", true),
        add_watch("/a", PERSISTENT),
        add_watch("/a", RECURSIVE),
        add_watch("/", RECURSIVE),
    ];
    assert_eq!(events_after(&["/a"], &watches, sets("/a", b"x")), ["NodeDataChanged /a"]);
    assert_eq!(events_after(&["/a"], &watches, deletes("/a")), ["NodeDeleted /a"]);
}

#[test]
fn a_multi_fires_in_the_order_of_its_operations_before_its_reply() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &get_data("/a", true));
    world.send(1, 2, &exists("/b", true));
    world.frames(1);
    world.send(1, 3, &Request::Multi(ringkeeper_wire::MultiRequest::from(&[][..])));
    let update = SetData { path: "/a".into(), data: None, version: 1 };
    let op = TxnOp::Multi(vec![create_update("/b", Acl::OPEN), Update::SetData(update)]);
    world.commit_of(1, 3, op);
    let expected = ["NodeCreated /b at 2", "NodeDataChanged /a at 2", "reply 3 at 2: Ok"];
    assert_eq!(outline(&world.frames(1)), expected);
}

#[test]
fn only_those_who_may_read_a_znode_get_its_events() {
    let mut world = World::with_znodes(&[]);
    let auth = AuthRequest { auth_type: 0, scheme: Some("digest".into()), auth: Some(b"u:p") };
    world.send(2, -4, &Request::Auth(auth));
    for number in [1, 2] {
        world.send(number, 1, &exists("/a", true));
        world.frames(number);
    }
    world.commit([creates_with("/a", only(&DigestAlgorithm::default().id("u:p")))]);
    assert_eq!(world.frames(1), []);
    assert_eq!(world.frames(2), [event(1, EventType::NodeCreated, "/a")]);
    world.commit([deletes("/a"), creates("/a")]);
    assert_eq!(world.frames(1), [], "the watch was consumed by the event that was kept from it");
}

/// Sets the rule of client 2, who has logged in.
fn rule(text: &str) -> TxnOp {
    let mut ops = Vec::new();
    for (path, data) in [
        (PLACE.to_owned(), String::new()),
        (rule_path(&Subject::parse(&format!("digest:{}", user())).expect("an identity")), text.to_owned()),
    ] {
        let Update::Create(create) = create_update(&path, Acl::OPEN) else { unreachable!("it creates") };
        ops.push(Update::Create(Create { data: Some(data.clone().into()), ..create.clone() }));
        let set = SetData { path: path.into(), data: Some(data.clone().into()), version: 1 };
        // Of the two, the one that fits has an effect.
        ops.push(Update::SetData(set));
    }
    TxnOp::Multi(ops)
}

fn user() -> String {
    DigestAlgorithm::default().id("u:p")
}

/// A world whose client 2 has logged in, with the znodes /a and /b.
fn world_with_a_user() -> World {
    let mut world = World::with_znodes(&["/a", "/b"]);
    let auth = AuthRequest { auth_type: 0, scheme: Some("digest".into()), auth: Some(b"u:p") };
    world.send(2, -4, &Request::Auth(auth));
    world.frames(2);
    world
}

#[test]
fn a_new_rule_binds_live_sessions_and_the_watches_that_they_left() {
    let mut world = world_with_a_user();
    for number in [1, 2] {
        world.send(number, 1, &get_data("/b", true));
        world.send(number, 2, &add_watch("/", RECURSIVE));
        world.frames(number);
    }
    // In one group: the change before the rule is seen, the one behind it is not.
    world.commit([sets("/b", b"1"), rule("acl /a"), sets("/b", b"2"), sets("/a", b"3")]);
    let at = |event, path, zxid| format!("{event} {path} at {zxid}");
    assert_eq!(outline(&world.frames(2)), [at("NodeDataChanged", "/b", 3), at("NodeDataChanged", "/a", 6)]);
    let others = outline(&world.frames(1));
    assert_eq!(others.len(), 3, "rules are hidden from those without one, too: {others:?}");
    world.send(2, 3, &get_data("/b", false));
    world.send(1, 3, &get_data("/b", false));
    assert_eq!(world.frames(2), [failure(3, 6, ErrorCode::NoAuth)]);
    assert!(matches!(&world.frames(1)[..], [Frame::Reply { code: ErrorCode::Ok, .. }]));
    let forbidden = std::iter::from_fn(|| world.shard.next_effect()).filter(
        |effect| matches!(effect, Effect::Forbidden { rule, .. } if *rule == format!("digest:{}", user())),
    );
    assert_eq!(forbidden.count(), 1);
    assert_eq!(world.shard.report().counters.forbidden, 1);
    world.commit([rule("acl /a\nread /b")]);
    world.send(2, 4, &get_data("/b", false));
    assert!(matches!(&world.frames(2)[..], [Frame::Reply { code: ErrorCode::Ok, .. }]));
}

#[test]
fn a_client_that_reconnects_misses_nothing_that_it_may_see_and_is_told_nothing_else() {
    let mut world = world_with_a_user();
    world.commit([creates_with("/c", only("other:h")), rule("acl /a\nacl /c")]);
    world.commit([sets("/a", b"1"), sets("/b", b"1"), sets("/c", b"1")]);
    let own = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<String>>();
    let (data, exist, child) = (own(&["/a", "/b", "/c", "/b/gone"]), own(&["/b"]), own(&["/b", "/b/gone"]));
    let none = own(&[]);
    let watches = SetWatchesRequest {
        relative_zxid: 3,
        data_watches: data.as_slice().into(),
        exist_watches: exist.as_slice().into(),
        child_watches: child.as_slice().into(),
        persistent_watches: none.as_slice().into(),
        persistent_recursive_watches: none.as_slice().into(),
    };
    world.send(2, -8, &Request::SetWatches2(watches));
    assert_eq!(outline(&world.frames(2)), ["NodeDataChanged /a at -1", "reply -8 at 7: Ok"]);
    world.commit([sets("/b", b"2"), deletes("/b"), rule("acl /"), creates("/b")]);
    assert_eq!(outline(&world.frames(2)), [""; 0], "the events that it could not see used the watches up");
}

#[test]
fn a_session_is_not_shown_its_ephemerals_in_a_subtree_that_was_closed() {
    let mut world = world_with_a_user();
    for path in ["/a/e", "/b/e"] {
        let Update::Create(create) = create_update(path, Acl::OPEN) else { unreachable!("it creates") };
        let owned = Create { raw_owner: session(2).0, ..create };
        world.commit([TxnOp::Update(Update::Create(owned))]);
    }
    world.commit([rule("acl /a")]);
    let request = ringkeeper_wire::GetEphemeralsRequest { prefix_path: Some("/".into()) };
    world.send(2, 1, &Request::GetEphemerals(request));
    let Frame::Reply { body, .. } = &world.frames(2)[0] else { panic!("a reply") };
    let Ok(Response::GetEphemerals(shown)) = Response::decode(OpCode::GetEphemerals, body) else {
        panic!("a list")
    };
    assert_eq!(shown.ephemerals.iter().collect::<Vec<_>>(), ["/a/e"]);
}

#[test]
fn exists_leaves_no_watch_on_what_it_may_not_read() {
    let mut world = World::with_znodes(&[]);
    world.commit([creates_with("/a", only("u:h"))]);
    world.send(1, 1, &exists("/a", true));
    assert_eq!(world.frames(1), [failure(1, 1, ErrorCode::NoAuth)]);
    assert_eq!(world.shard.report().watches.watches, 0);
}

#[test]
fn watches_are_checked_and_removed_by_kind() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &get_data("/a", true));
    world.send(1, 2, &get_children("/a", true));
    world.send(1, 3, &add_watch("/a", PERSISTENT));
    world.frames(1);
    let steps = [
        (check_watches("/a", WatcherType::Data), ErrorCode::Ok),
        (check_watches("/a", WatcherType::PersistentRecursive), ErrorCode::NoWatcher),
        (check_watches("/b", WatcherType::Any), ErrorCode::NoWatcher),
        (remove_watches("/a", WatcherType::Data), ErrorCode::Ok),
        (remove_watches("/a", WatcherType::Data), ErrorCode::NoWatcher),
        (check_watches("/a", WatcherType::Children), ErrorCode::Ok),
        (remove_watches("/a", WatcherType::Persistent), ErrorCode::Ok),
        (check_watches("/a", WatcherType::Persistent), ErrorCode::NoWatcher),
        (remove_watches("/a", WatcherType::Any), ErrorCode::Ok),
        (check_watches("/a", WatcherType::Any), ErrorCode::NoWatcher),
    ];
    for (number, (request, code)) in steps.iter().enumerate() {
        world.send(1, 10, request);
        assert_eq!(world.frames(1), [failure(10, 1, *code)], "step {number}");
    }
}

#[test]
fn set_watches_tells_what_was_missed_and_registers_the_rest() {
    // At zxid 6: /changed was set, /parent got a child, /gone never was; the client saw 3.
    let mut world = World::with_znodes(&["/same", "/changed", "/parent"]);
    world.commit([sets("/changed", b"x"), creates("/parent/c"), creates("/exists")]);
    world.frames(1);
    let own = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<String>>();
    let data = own(&["/same", "/changed", "/gone"]);
    let exist = own(&["/never", "/exists"]);
    let child = own(&["/same", "/parent", "/gone"]);
    let (persistent, recursive) = (own(&["/changed"]), own(&["/parent"]));
    let watches = SetWatchesRequest {
        relative_zxid: 3,
        data_watches: data.as_slice().into(),
        exist_watches: exist.as_slice().into(),
        child_watches: child.as_slice().into(),
        persistent_watches: persistent.as_slice().into(),
        persistent_recursive_watches: recursive.as_slice().into(),
    };
    world.send(1, -8, &Request::SetWatches2(watches));
    let expected = [
        "NodeDataChanged /changed at -1",
        "NodeDeleted /gone at -1",
        "NodeCreated /exists at -1",
        "NodeChildrenChanged /parent at -1",
        "NodeDeleted /gone at -1",
        "reply -8 at 6: Ok",
    ];
    assert_eq!(outline(&world.frames(1)), expected);
    world.commit([
        sets("/same", b"y"),
        creates("/never"),
        creates("/same/c"),
        sets("/changed", b"z"),
        sets("/parent/c", b""),
    ]);
    let expected = [
        "NodeDataChanged /same at 7",
        "NodeCreated /never at 8",
        "NodeChildrenChanged /same at 9",
        "NodeDataChanged /changed at 10",
        "NodeDataChanged /parent/c at 11",
    ];
    assert_eq!(outline(&world.frames(1)), expected);
}

#[test]
fn watches_end_with_their_connection() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &get_data("/a", true));
    world.send(2, 1, &get_data("/a", true));
    assert_eq!(world.shard.report().watches.watches, 2);
    world.shard.disconnected(0, ConnId(1));
    assert_eq!(world.shard.report().watches.watches, 1);
    world.commit([sets("/a", b"x")]);
    assert_eq!(outline(&world.frames(2)), ["reply 1 at 1: Ok", "NodeDataChanged /a at 2"]);
    assert_eq!(world.shard.report().watches.watches, 0);
}

#[test]
fn many_watches_are_set_in_slices_and_miss_nothing_in_between() {
    let mut world = World::with_znodes(&["/a"]);
    let paths: Vec<String> = (0..2_500).map(|number| format!("/n{number:04}")).collect();
    let (exist, none): (&[String], &[String]) = (&paths, &[]);
    let watches = SetWatchesRequest {
        relative_zxid: 1,
        data_watches: none.into(),
        exist_watches: exist.into(),
        child_watches: none.into(),
        ..SetWatchesRequest::default()
    };
    world.send(1, -8, &Request::SetWatches(watches));
    // A write behind the setWatches waits: its reply would overtake the other one.
    world.send(1, 1, &set_data("/a", b"x"));
    assert_eq!(world.shard.report().watches.watches, 1_000);
    assert!(world.submissions().is_empty());
    // One path that is watched already, and one that a later slice will watch.
    world.commit([creates("/n0000"), creates("/n2400")]);
    assert!(world.shard.next_slice(0));
    assert_eq!(outline(&world.frames(1)), ["NodeCreated /n0000 at 2"]);
    assert!(!world.shard.next_slice(0));
    assert_eq!(outline(&world.frames(1)), ["NodeCreated /n2400 at -1", "reply -8 at 3: Ok"]);
    assert_eq!(world.shard.report().watches.watches, 2_498);
    assert_eq!(world.submissions().len(), 1);
}
