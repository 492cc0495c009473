//! When a connection stops being read, and when it continues.

use super::*;
use crate::limits::{Limit, Limits};
use crate::shard::backlog::Load;

/// Sends without taking output, as a client that does not read.
fn settings() -> Settings {
    Settings { output_high_water_bytes: 100, ..Settings::default() }
}

fn world(settings: Settings) -> World {
    let mut world = World::with(settings);
    world.commit([creates("/a")]);
    world.commit([sets("/a", &[9; 200])]);
    world.client(1);
    world.client(2);
    world
}

fn reply_count(bytes: &[u8]) -> usize {
    frames(bytes).len()
}

#[test]
fn a_client_that_does_not_read_is_not_served() {
    let mut world = world(settings());
    for xid in 1..=3 {
        world.send(1, xid, &get_data("/a", false));
    }
    assert!(!world.shard.wants_read(ConnId(1)));
    let mut bytes = Vec::new();
    let _ = world.shard.take_output(ConnId(1), &mut bytes);
    assert_eq!(reply_count(&bytes), 1);
    // Taken by the shell is not yet taken by the socket.
    world.shard.written(0, ConnId(1), bytes.len() - 100);
    assert!(!world.shard.wants_read(ConnId(1)));
    world.shard.written(0, ConnId(1), 100);
    assert_eq!(outline(&world.frames(1)), ["reply 2 at 2: Ok"]);
    assert_eq!(outline(&world.frames(1)), ["reply 3 at 2: Ok"]);
    assert!(world.shard.wants_read(ConnId(1)));
    let readable: Vec<ConnId> = std::iter::from_fn(|| world.shard.next_readable()).collect();
    assert_eq!(readable.last(), Some(&ConnId(1)));
    assert_eq!(world.shard.report().output_bytes, 0);
}

#[test]
fn a_client_that_is_not_read_is_heard_as_long_as_it_takes_its_replies() {
    let mut world = world(Settings { outstanding_max: 2, ..Settings::default() });
    for xid in 1..=4 {
        world.send(1, xid, &set_data("/a", b"x"));
    }
    assert!(!world.shard.wants_read(ConnId(1)));
    let heard = |world: &mut World, at_us| {
        world.shard.tick(at_us);
        world.shard.take_requests().touched.contains(&session(1))
    };
    assert!(heard(&mut world, 600_000));
    assert!(!heard(&mut world, 1_200_000));
    world.commit_of(1, 1, sets("/a", b"x"));
    assert_eq!(world.frames(1).len(), 1);
    assert!(!world.shard.wants_read(ConnId(1)));
    assert!(heard(&mut world, 1_800_000));
    assert!(!heard(&mut world, 2_400_000));
}

#[test]
fn waiting_reads_of_a_client_that_does_not_read_wait_on() {
    let mut world = world(settings());
    world.send(1, 1, &set_data("/a", b""));
    for xid in 2..=4 {
        world.send(1, xid, &get_data("/a", false));
    }
    let write = world.group(vec![(Some((1, 1)), sets("/a", &[9; 200]))]);
    world.publish(vec![write]);
    assert_eq!(outline(&world.frames(1)), ["reply 1 at 3: Ok", "reply 2 at 3: Ok"]);
    assert_eq!(outline(&world.frames(1)), ["reply 3 at 3: Ok"]);
}

#[test]
fn reads_before_a_submitted_write_run_on_its_predecessors_state_in_any_case() {
    let mut world = world(settings());
    world.send(1, 1, &set_data("/a", b""));
    world.send(1, 2, &get_data("/a", false));
    world.send(1, 3, &set_data("/a", b""));
    let first = world.group(vec![(Some((1, 1)), sets("/a", &[9; 200]))]);
    let second = world.group(vec![(Some((1, 3)), sets("/a", b"short"))]);
    world.publish(vec![first, second]);
    let expected = ["reply 1 at 3: Ok", "reply 2 at 3: Ok", "reply 3 at 4: Ok"];
    assert_eq!(outline(&world.frames(1)), expected);
}

#[test]
fn few_reads_of_large_replies_may_wait_between_writes() {
    let mut world = world(settings());
    // The shard learns that replies are large.
    world.send(1, 1, &get_data("/a", false));
    world.frames(1);
    world.send(1, 2, &set_data("/a", b""));
    world.send(1, 3, &get_data("/a", false));
    world.send(1, 4, &get_data("/a", false));
    world.send(1, 5, &set_data("/a", b""));
    assert_eq!(world.submissions().len(), 1);
    world.commit_of(1, 2, sets("/a", b"short"));
    assert!(world.submissions().is_empty());
    assert_eq!(outline(&world.frames(1)), ["reply 2 at 3: Ok", "reply 3 at 3: Ok"]);
    // With the output taken there is room for the last read, and then for the write.
    assert_eq!(world.submissions().len(), 1);
    assert_eq!(outline(&world.frames(1)), ["reply 4 at 3: Ok"]);
}

#[test]
fn above_the_limit_of_outstanding_requests_only_those_without_any_go_on() {
    let mut world = world(Settings { outstanding_max: 2, ..Settings::default() });
    for xid in 1..=3 {
        world.send(1, xid, &set_data("/a", b"x"));
    }
    assert_eq!(world.submissions().len(), 2);
    assert!(!world.shard.wants_read(ConnId(1)));
    world.send(2, 1, &set_data("/a", b"x"));
    assert_eq!(world.submissions().len(), 1);
    for xid in [1, 2] {
        world.commit_of(1, xid, sets("/a", b"x"));
    }
    assert_eq!(world.frames(1).len(), 2);
    assert_eq!(world.submissions().len(), 1);
    assert!(world.shard.wants_read(ConnId(1)));
}

#[test]
fn a_stalled_connection_goes_on_when_another_makes_room() {
    let mut world = world(Settings { outstanding_max: 3, ..Settings::default() });
    world.send(2, 1, &set_data("/a", b"x"));
    world.send(2, 2, &set_data("/a", b"x"));
    for xid in 1..=2 {
        world.send(1, xid, &set_data("/a", b"x"));
    }
    assert_eq!(world.submissions().len(), 3);
    world.commit_of(2, 1, sets("/a", b"x"));
    assert_eq!(world.submissions().len(), 1);
    assert_eq!(world.shard.next_readable(), Some(ConnId(1)));
}

#[test]
fn a_place_goes_to_the_connection_that_has_waited_longest_and_not_to_the_one_that_made_it() {
    let mut world = world(Settings { outstanding_max: 3, ..Settings::default() });
    for xid in 1..=3 {
        world.send(1, xid, &set_data("/a", b"x"));
    }
    for xid in 1..=2 {
        world.send(2, xid, &set_data("/a", b"x"));
    }
    world.send(1, 4, &set_data("/a", b"x"));
    assert_eq!(world.submissions().len(), 4);
    for xid in 1..=2 {
        world.commit_of(1, xid, sets("/a", b"x"));
    }
    // One place: the second request of connection 2 came before the fourth of connection 1.
    let taken = world.submissions();
    assert!(matches!(taken[..], [Submission { conn: ConnId(2), .. }]), "{taken:?}");
    world.commit_of(2, 1, sets("/a", b"x"));
    let taken = world.submissions();
    assert!(matches!(taken[..], [Submission { conn: ConnId(1), .. }]), "{taken:?}");
}

#[test]
fn the_output_of_all_connections_is_bounded() {
    let mut world = world(Settings { output_total_max_bytes: 100, ..Settings::default() });
    world.send(1, 1, &get_data("/a", false));
    world.send(1, 2, &get_data("/a", false));
    // One with nothing to read is served, however full the others are.
    world.send(2, 1, &exists("/a", false));
    world.send(2, 2, &exists("/a", false));
    assert_eq!(world.frames(2).len(), 1);
    assert_eq!(world.frames(1).len(), 1);
    assert_eq!(world.frames(1).len(), 1);
}

#[test]
fn notifications_for_a_client_that_does_not_read_end_its_connection() {
    let mut world = world(unread_notifications_limited_to(100));
    let mode = ringkeeper_wire::AddWatchMode::Persistent;
    let request = ringkeeper_wire::AddWatchRequest { path: "/a".into(), mode };
    world.send(1, 1, &Request::AddWatch(request));
    world.frames(1);
    for _ in 0..20 {
        world.commit([sets("/a", b"x")]);
        world.frames(1);
    }
    assert!(!world.is_closed(1), "it reads");
    for _ in 0..3 {
        world.commit([sets("/a", b"x")]);
    }
    assert_eq!(world.take(1), (Vec::new(), true));
    assert!(matches!(world.close_reasons()[..], [CloseReason::SlowReader(_)]));
    world.shard.disconnected(world.now_us, ConnId(1));
    assert_eq!(world.shard.report().watches.watches, 0);
}

#[test]
fn of_many_clients_that_do_not_read_the_one_with_most_notifications_is_disconnected() {
    let limits = Limits::default().with(Limit::UnreadNotificationBytesTotal, 1_000);
    let rules = crate::settings::Settings { limits, ..crate::settings::Settings::default() };
    let mut world = world(Settings { rules, ..Settings::default() });
    let mode = ringkeeper_wire::AddWatchMode::Persistent;
    for conn in 3..=9 {
        world.client(conn);
        for path in ["/a", "/b"].into_iter().take(if conn == 7 { 2 } else { 1 }) {
            let request = ringkeeper_wire::AddWatchRequest { path: path.into(), mode };
            world.send(conn, 1, &Request::AddWatch(request));
        }
        world.frames(conn);
    }
    world.commit([creates("/b")]);
    world.commit([sets("/b", b"x")]);
    let closed =
        |world: &World| (3..=9).filter(|conn| world.shard.is_aborted(ConnId(*conn))).collect::<Vec<_>>();
    while closed(&world).is_empty() {
        assert!(world.shard.notification_bytes <= 1_000);
        world.commit([sets("/a", b"x")]);
        world.frames(3);
    }
    assert_eq!(closed(&world), [7], "the others have less");
    assert!(matches!(world.close_reasons()[..], [CloseReason::SlowReader(_)]));
    assert_eq!(world.shard.report().counters.limits.of(Limit::UnreadNotificationBytesTotal), 1);
    (3..=9).for_each(|conn| world.shard.disconnected(0, ConnId(conn)));
    assert_eq!(world.shard.notification_bytes, 0);
}

#[test]
fn a_buffer_that_was_written_is_filled_for_another_connection() {
    let mut world = world(settings());
    world.client(3);
    let buffer = Vec::with_capacity(100_000);
    let spare = buffer.as_ptr();
    world.shard.reuse(buffer);
    world.send(3, 1, &get_data("/a", false));
    let mut taken = Vec::new();
    let _ = world.shard.take_output(ConnId(3), &mut taken);
    assert_eq!((reply_count(&taken), taken.as_ptr()), (1, spare));
    // One that is larger than all output should be is freed.
    world.shard.reuse(Vec::with_capacity(10 << 20));
    world.client(4);
    world.send(4, 1, &get_data("/a", false));
    let _ = world.shard.take_output(ConnId(4), &mut taken);
    assert!(taken.capacity() < 10 << 20);
}

#[test]
fn the_bytes_of_writes_without_an_answer_are_bounded() {
    let mut world = world(Settings { outstanding_max_bytes: 1_000, ..Settings::default() });
    for xid in 1..=4 {
        world.send(1, xid, &set_data("/a", &[7; 400]));
    }
    assert_eq!(world.submissions().len(), 3);
    assert!(!world.shard.wants_read(ConnId(1)));
    world.commit_of(1, 1, sets("/a", b"x"));
    assert_eq!(world.submissions().len(), 1);
    world.shard.disconnected(0, ConnId(1));
    assert_eq!(world.shard.outstanding, Load::default());
}

#[test]
fn a_connection_that_ends_waits_only_so_long_for_its_last_bytes_to_be_taken() {
    let mut world = world(Settings::default());
    world.send(1, 1, &get_data("/a", false));
    world.send(1, 2, &Request::CloseSession);
    world.commit_of(1, 2, TxnOp::CloseSession);
    let mut taken = Vec::new();
    assert_eq!(world.shard.take_output(ConnId(1), &mut taken), AfterWrite::Close);
    world.shard.tick(4_999_000);
    assert!(!world.shard.is_aborted(ConnId(1)));
    world.shard.tick(5_000_000);
    assert!(world.shard.is_aborted(ConnId(1)));
    assert_eq!(world.shard.take_output(ConnId(1), &mut taken), AfterWrite::Abort);
    assert_eq!((taken.len(), world.shard.report().output_bytes), (0, 0));
}

#[test]
fn the_watches_of_a_connection_that_is_gone_are_removed_a_part_at_a_time() {
    let mut world = world(Settings::default());
    for number in 0..5_000 {
        let path = format!("/a/{number}");
        world.send(1, number, &exists(&path, true));
        world.bytes(1);
    }
    let watches = |world: &World| world.shard.report().watches.watches;
    world.shard.disconnected(0, ConnId(1));
    assert_eq!((watches(&world), world.shard.has_work()), (3_000, true));
    // Its place is not given to another while any of them is left.
    world.client(3);
    world.send(3, 1, &exists("/a/4999", false));
    world.commit([creates("/a/4999")]);
    assert_eq!(world.frames(3).len(), 1);
    assert!(world.shard.next_slice(0) && !world.shard.next_slice(0));
    assert_eq!(watches(&world), 0);
}

#[test]
fn a_connection_that_ends_gives_back_its_share_of_the_bounds() {
    let mut world = world(Settings::default());
    world.send(1, 1, &get_data("/a", true));
    world.send(1, 2, &set_data("/a", b"x"));
    world.send(1, 3, &get_data("/a", false));
    world.send(1, 4, &sync("/"));
    world.shard.disconnected(0, ConnId(1));
    let report = world.shard.report();
    assert_eq!((report.outstanding, report.output_bytes, report.watches.watches), (0, 0, 0));
}

fn unread_notifications_limited_to(bytes: u64) -> Settings {
    let limits = Limits::default().with(Limit::UnreadNotificationBytes, bytes);
    let rules = crate::settings::Settings { limits, ..crate::settings::Settings::default() };
    Settings { rules, ..Settings::default() }
}

#[test]
fn input_beyond_a_turns_share_is_handled_in_later_slices_and_in_order() {
    const REQUESTS: i32 = 6_000;
    let mut world = World::with_znodes(&["/a"]);
    let requests = (1..=REQUESTS).flat_map(|xid| request_bytes(xid, &exists("/a", false)));
    world.receive(1, &requests.collect::<Vec<u8>>());
    assert!(!world.shard.wants_read(ConnId(1)), "the client has sent more than its share");
    let mut bytes = Vec::new();
    let _ = world.shard.take_output(ConnId(1), &mut bytes);
    let mut replies = frames(&bytes);
    assert!(replies.len() < REQUESTS as usize, "{} at once", replies.len());
    while world.shard.next_slice(0) {}
    replies.extend(world.frames(1));
    let xids = replies.iter().map(|frame| if let Frame::Reply { xid, .. } = frame { *xid } else { 0 });
    assert!(xids.eq(1..=REQUESTS), "{} replies", replies.len());
    assert!(world.shard.wants_read(ConnId(1)));
}
