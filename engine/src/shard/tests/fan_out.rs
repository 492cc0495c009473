//! Events for very many watchers: their bytes are shared, and they are sent in slices.

use ringkeeper_wire::{AddWatchMode, AddWatchRequest};

use super::*;
use crate::limits::{Limit, Limits};

/// So many that they share the bytes of an event.
const MANY: u64 = 20;

/// A world in which clients 1 to [`MANY`] watch `/a`.
fn world(settings: Settings) -> World {
    let mut world = World::with(settings);
    world.commit([creates("/a"), creates("/p"), creates("/p/a")]);
    (1..=MANY).for_each(|number| watcher(&mut world, number));
    world
}

fn watcher(world: &mut World, number: u64) {
    world.client(number);
    let mode = AddWatchMode::Persistent;
    world.send(number, 1, &Request::AddWatch(AddWatchRequest { path: "/a".into(), mode }));
    world.frames(number);
}

/// Everything for a client, in as many pieces as it takes.
fn all_frames(world: &mut World, number: u64) -> Vec<Frame> {
    let pieces = std::iter::from_fn(|| Some(world.bytes(number)).filter(|bytes| !bytes.is_empty()));
    frames(&pieces.collect::<Vec<_>>().concat())
}

fn changes(zxids: std::ops::RangeInclusive<i64>) -> Vec<Frame> {
    zxids.map(|zxid| event(zxid, EventType::NodeDataChanged, "/a")).collect()
}

/// Memory of unread notifications: of each connection, and shared.
fn unread(world: &World) -> (usize, usize) {
    (world.shard.notification_bytes, world.shard.blocks.bytes())
}

#[test]
fn many_watchers_share_the_bytes_of_their_events_and_read_all_of_them() {
    let mut world = world(Settings::default());
    let txns = (0..5_000).map(|_| (None, sets("/a", b"x"))).collect();
    let group = world.group(txns);
    world.publish(vec![group]);
    while world.shard.next_slice(0) {}
    let (own, shared) = unread(&world);
    assert!(own < 10_000 && (100_000..1_000_000).contains(&shared), "{own} and {shared} bytes");
    for number in 2..=MANY {
        assert_eq!(all_frames(&mut world, number), changes(4..=5_003), "client {number}");
    }
    assert_eq!(unread(&world).1, shared, "one has not read");
    world.shard.disconnected(0, ConnId(1));
    assert_eq!((unread(&world), world.shard.report().output_bytes), ((0, 0), 0));
}

#[test]
fn shared_events_keep_their_order_among_other_output() {
    let mut world = world(Settings { slice_visits_max: 0, ..Settings::default() });
    world.commit([sets("/a", b"x")]);
    world.send(1, 2, &exists("/a", false));
    world.commit([sets("/a", b"y")]);
    world.send(1, 3, &get_children("/p", false));
    world.commit([sets("/a", b"z")]);
    let read = world.shard.next_long_read().expect("a listing");
    world.shard.long_read_done(0, read.carry_out());
    world.commit([sets("/a", b"z")]);
    world.send(1, 4, &exists("/a", false));
    let expected = [
        "NodeDataChanged /a at 4",
        "reply 2 at 4: Ok",
        "NodeDataChanged /a at 5",
        "reply 3 at 5: Ok",
        "NodeDataChanged /a at 6",
        "NodeDataChanged /a at 7",
        "reply 4 at 7: Ok",
    ];
    assert_eq!(outline(&all_frames(&mut world, 1)), expected);
    (1..=MANY).for_each(|number| drop(all_frames(&mut world, number)));
    assert_eq!((unread(&world), world.shard.report().output_bytes), ((0, 0), 0));
}

#[test]
fn clients_that_keep_too_much_shared_memory_are_disconnected() {
    let limits = Limits::default().with(Limit::UnreadNotificationBytesTotal, 10_000);
    let rules = crate::settings::Settings { limits, ..crate::settings::Settings::default() };
    let mut world = world(Settings { rules, ..Settings::default() });
    for _ in 0..1_000 {
        world.commit([sets("/a", b"x")]);
        all_frames(&mut world, 1);
        all_frames(&mut world, 2);
        let (own, shared) = unread(&world);
        assert!(own + shared <= 10_000);
    }
    let closed = (1..=MANY).filter(|number| world.shard.is_aborted(ConnId(*number)));
    assert_eq!(closed.collect::<Vec<_>>(), (3..=MANY).collect::<Vec<_>>(), "the others read");
}

#[test]
fn while_events_are_sent_in_slices_no_client_sees_two_states_mixed() {
    let mut world = world(Settings { notifications_max: 1, ..Settings::default() });
    watcher(&mut world, 30);
    world.client(40);
    let first = world.group(vec![
        (None, sets("/a", b"x")),
        (None, sets("/a", b"y")),
        (None, sets("/p", b"y")),
        (None, sets("/a", b"z")),
    ]);
    let second = world.group(vec![(None, sets("/a", b"later"))]);
    world.shard.next_slice(0);
    world.publish(vec![first]);
    world.publish(vec![second]);
    let before = world.shard.report().outstanding;
    // Client 40 was sent nothing of the new state, so it may see the old one, but leave no watch on it.
    world.send(40, -2, &Request::Ping);
    world.send(40, 0, &get_data("/a", false));
    assert_eq!(outline(&world.frames(40)), ["reply -2 at 3: Ok", "reply 0 at 3: Ok"]);
    world.send(40, 1, &get_data("/a", true));
    // Client 30 was sent an event of the new state.
    world.send(30, 1, &get_data("/a", false));
    for client in [30, 40] {
        world.send(client, 2, &exists("/p", false));
        world.send(client, -2, &Request::Ping);
    }
    world.send(1, -2, &Request::Ping);
    assert_eq!(outline(&world.frames(1)), ["NodeDataChanged /a at 4"], "it may lack another event at 5");
    assert_eq!(outline(&world.frames(40)), [""; 0]);
    assert!(world.shard.next_slice(0) && world.shard.has_work());
    assert_eq!(outline(&world.frames(30)), ["NodeDataChanged /a at 4", "NodeDataChanged /a at 5"]);
    assert!(world.shard.next_slice(0));
    assert_eq!(outline(&world.frames(40)), [""; 0], "nobody watches /p, but the look-up is counted");
    assert!(world.shard.next_slice(0));
    let answers = ["reply 1 at 7: Ok", "reply 2 at 7: Ok", "reply -2 at 7: Ok"];
    assert_eq!(outline(&world.frames(40)), answers);
    let frames = outline(&world.frames(30));
    assert_eq!((&frames[0][..], &frames[1..]), ("NodeDataChanged /a at 7", &answers.map(str::to_owned)[..]));
    assert!(!world.shard.next_slice(0));
    for client in [1, 30, 40] {
        let frames = outline(&world.frames(client));
        assert_eq!(frames.last().map(String::as_str), Some("NodeDataChanged /a at 8"), "client {client}");
    }
    assert_eq!(world.shard.report().outstanding, before);
}
