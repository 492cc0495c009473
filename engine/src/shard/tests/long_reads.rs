//! Reads of very many znodes, carried out beside the shard.

use ringkeeper_wire::{GetAllChildrenNumberResponse, MultiReadOp, PathRequest};

use super::*;
use crate::limits::{Limit, Limits};

/// A world in which a read of more than two znodes is long, with `/p` and three children.
fn world() -> World {
    let mut world = World::with(Settings { slice_visits_max: 2, ..Settings::default() });
    for path in ["/p", "/p/a", "/p/b", "/p/c"] {
        world.commit([creates(path)]);
    }
    world.client(1);
    world.client(2);
    world
}

/// Carries out the read that is waiting for it.
fn carry_out(world: &mut World) {
    let read = world.shard.next_long_read().expect("a long read");
    assert!(world.shard.next_long_read().is_none(), "one at a time");
    world.shard.long_read_done(world.now_us, read.carry_out());
}

#[test]
fn a_long_read_is_answered_from_the_state_that_it_was_due_on() {
    let mut world = world();
    world.send(1, 1, &get_children("/p", true));
    world.send(1, 2, &exists("/p/d", false));
    assert_eq!(world.frames(1), []);
    world.commit([creates("/p/d")]);
    // Who has asked for little is not held up, and its answer is of the new state.
    world.send(2, 1, &exists("/p/d", false));
    assert_eq!(outline(&world.frames(2)), ["reply 1 at 5: Ok"]);
    carry_out(&mut world);
    let frames = world.frames(1);
    let expected = ["reply 1 at 4: Ok", "NodeChildrenChanged /p at 5", "reply 2 at 5: Ok"];
    assert_eq!(outline(&frames), expected);
    let Frame::Reply { body, .. } = &frames[0] else { unreachable!("seen to be a reply") };
    assert_eq!(body[..4], [0, 0, 0, 3], "three children and not four");
    assert_eq!(world.shard.report().outstanding, 0);
}

#[test]
fn a_count_of_a_subtree_is_long_when_more_is_below_it_than_may_be_visited() {
    let mut world = world();
    let count = |path| Request::GetAllChildrenNumber(PathRequest { path });
    world.send(1, 1, &count("/p".into()));
    assert_eq!(world.frames(1), []);
    carry_out(&mut world);
    let three = GetAllChildrenNumberResponse { total_number: 3 };
    assert_eq!(world.frames(1), [reply(1, 4, Some(Response::GetAllChildrenNumber(three)))]);
}

#[test]
fn a_write_behind_a_long_read_waits_for_it() {
    let mut world = world();
    world.send(1, 1, &set_data("/p", b"x"));
    world.send(1, 2, &get_children("/p", false));
    world.send(1, 3, &set_data("/p", b"y"));
    assert_eq!(world.submissions().len(), 1);
    world.commit_of(1, 1, sets("/p", b"x"));
    assert!(world.submissions().is_empty(), "the read between the two is long");
    carry_out(&mut world);
    assert_eq!(outline(&world.frames(1)), ["reply 1 at 5: Ok", "reply 2 at 5: Ok"]);
    assert_eq!(world.submissions().len(), 1);
}

#[test]
fn a_long_read_of_a_client_that_went_away_is_not_carried_out() {
    let mut world = world();
    world.send(1, 1, &get_children("/p", true));
    world.send(2, 1, &get_children("/p", true));
    let read = world.shard.next_long_read().expect("that of client 1");
    world.shard.disconnected(0, ConnId(1));
    world.shard.disconnected(0, ConnId(2));
    world.shard.long_read_done(0, read.carry_out());
    assert!(world.shard.next_long_read().is_none());
    let report = world.shard.report();
    assert_eq!((report.outstanding, report.output_bytes, report.connection_count), (0, 0, 0));
}

#[test]
fn long_reads_wait_while_clients_leave_too_much_unread() {
    let mut world =
        World::with(Settings { slice_visits_max: 0, output_total_max_bytes: 1, ..Settings::default() });
    world.commit([creates("/p"), creates("/p/a")]);
    world.client(1);
    world.client(2);
    world.send(2, 1, &exists("/p", false));
    world.send(1, 1, &get_children("/p", false));
    assert!(world.shard.next_long_read().is_none());
    world.frames(2);
    carry_out(&mut world);
    assert_eq!(outline(&world.frames(1)), ["reply 1 at 2: Ok"]);
}

#[test]
fn notifications_held_for_a_long_read_are_bounded_like_others() {
    let limits = Limits::default().with(Limit::UnreadNotificationBytes, 100);
    let rules = crate::settings::Settings { limits, ..crate::settings::Settings::default() };
    let mut world = World::with(Settings { slice_visits_max: 0, rules, ..Settings::default() });
    world.commit([creates("/p"), creates("/p/a")]);
    world.client(1);
    let mode = ringkeeper_wire::AddWatchMode::Persistent;
    world.send(1, 1, &Request::AddWatch(ringkeeper_wire::AddWatchRequest { path: "/p".into(), mode }));
    world.frames(1);
    world.send(1, 2, &get_children("/p", false));
    world.commit([sets("/p", b"x"), sets("/p", b"y"), sets("/p", b"z")]);
    assert!(world.is_closed(1));
    let read = world.shard.next_long_read().expect("it was asked before");
    world.shard.long_read_done(0, read.carry_out());
    assert_eq!(world.shard.report().output_bytes, 0);
}

#[test]
fn a_multi_read_of_very_much_data_is_long() {
    let mut world = World::with(Settings { slice_visits_max: 100, ..Settings::default() });
    world.commit([creates("/p"), sets("/p", &[7; 60_000])]);
    world.client(1);
    let read = || MultiReadOp::GetData(PathWatchRequest { path: "/p".into(), watch: false });
    world.send(1, 1, &Request::MultiRead([read()].as_slice().into()));
    assert_eq!(outline(&world.frames(1)), ["reply 1 at 2: Ok"]);
    world.send(1, 2, &Request::MultiRead([read(), read()].as_slice().into()));
    assert_eq!(world.frames(1), []);
    carry_out(&mut world);
    assert_eq!(outline(&world.frames(1)), ["reply 2 at 2: Ok"]);
}
