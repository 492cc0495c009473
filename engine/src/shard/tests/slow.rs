//! Requests that take long, and what is told of them.

use super::*;
use crate::slow::SlowRequest;

const MS: u64 = 1_000;

/// A world in which requests of more than 100 ms are slow.
fn world() -> World {
    World::with_znodes(&["/a", "/b"])
}

fn told(world: &mut World) -> Vec<SlowRequest> {
    let effects = std::iter::from_fn(|| world.shard.next_effect());
    let slow =
        effects.filter_map(|effect| if let Effect::Slow(request) = effect { Some(*request) } else { None });
    slow.collect()
}

#[test]
fn a_slow_write_and_the_read_behind_it_are_told_of_when_they_are_written() {
    let mut world = world();
    world.send(1, 1, &set_data("/a", b"secret"));
    world.send(1, 2, &get_data("/b", false));
    world.now_us = 101 * MS;
    world.commit_of(1, 1, sets("/a", b"secret"));
    assert_eq!(told(&mut world), [], "not written yet");
    world.now_us = 103 * MS;
    world.frames(1);
    let write = SlowRequest {
        session: session(1),
        client: peer(1),
        xid: Xid(1),
        op: OpCode::SetData.to_wire(),
        path: Some("/a".to_owned()),
        bytes: request_bytes(1, &set_data("/a", b"secret")).len() - 4,
        zxid: Some(Zxid(3)),
        received_us: 0,
        decoded_us: 0,
        unread: false,
        began_us: 101 * MS,
        answered_us: 101 * MS,
        written_us: 103 * MS,
        untold: 0,
        sampled: false,
    };
    let read = SlowRequest {
        xid: Xid(2),
        op: OpCode::GetData.to_wire(),
        path: Some("/b".to_owned()),
        bytes: request_bytes(2, &get_data("/b", false)).len() - 4,
        zxid: None,
        ..write.clone()
    };
    assert_eq!(told(&mut world), [write, read]);
    assert_eq!(world.shard.report().counters.slow_requests, 2);
}

#[test]
fn what_is_quick_is_not_told_of_nor_counted() {
    let mut world = world();
    world.send(1, 1, &set_data("/a", b""));
    world.now_us = 100 * MS;
    world.commit_of(1, 1, sets("/a", b""));
    world.frames(1);
    assert_eq!((told(&mut world), world.shard.report().counters.slow_requests), (Vec::new(), 0));
}

#[test]
fn nothing_is_slow_without_a_bound() {
    let mut world = World::with(Settings { slow_above_us: 0, ..Settings::default() });
    world.client(1);
    world.send(1, 1, &exists("/a", false));
    world.now_us = 60_000 * MS;
    world.frames(1);
    assert_eq!((told(&mut world), world.shard.report().counters.slow_requests), (Vec::new(), 0));
}

#[test]
fn a_client_that_does_not_read_its_reply_makes_its_request_slow() {
    let mut world = world();
    world.send(1, 7, &exists("/a", false));
    world.now_us = 200 * MS;
    world.frames(1);
    let [request] = &told(&mut world)[..] else { panic!("one slow request") };
    assert_eq!((request.xid, request.answered_us, request.written_us), (Xid(7), 0, 200 * MS));
}

#[test]
fn a_request_waits_in_the_input_while_its_connection_has_no_room() {
    let mut world = World::with(Settings { outstanding_max: 1, ..Settings::default() });
    world.commit([creates("/a")]);
    world.client(1);
    world.send(1, 1, &set_data("/a", b""));
    world.send(1, 2, &set_data("/a", b""));
    world.now_us = 90 * MS;
    world.commit_of(1, 1, sets("/a", b""));
    world.frames(1);
    assert_eq!(told(&mut world), []);
    world.now_us = 150 * MS;
    world.commit_of(1, 2, sets("/a", b""));
    world.frames(1);
    let [request] = &told(&mut world)[..] else { panic!("one slow request") };
    assert_eq!((request.xid, request.received_us, request.decoded_us), (Xid(2), 0, 90 * MS));
}

#[test]
fn a_request_behind_replies_that_its_client_does_not_read_waits_for_the_client() {
    let mut world = World::with(Settings { output_high_water_bytes: 100, ..Settings::default() });
    world.commit([creates("/a")]);
    world.commit([sets("/a", &[9; 200])]);
    world.client(1);
    world.send(1, 1, &get_data("/a", false));
    world.send(1, 2, &exists("/a", false));
    world.now_us = 200 * MS;
    world.frames(1);
    world.frames(1);
    let requests = told(&mut world);
    let last = requests.last().expect("slow requests");
    assert_eq!((last.xid, last.unread, last.decoded_us), (Xid(2), true, 200 * MS));
}

#[test]
fn a_slow_request_is_told_of_even_if_its_client_is_gone() {
    let mut world = world();
    world.send(1, 1, &set_data("/a", b""));
    world.now_us = 200 * MS;
    world.commit_of(1, 1, sets("/a", b""));
    world.shard.disconnected(world.now_us, ConnId(1));
    assert_eq!(told(&mut world).len(), 1);
}

#[test]
fn few_of_many_slow_requests_are_told_of_and_all_are_counted() {
    let mut world = world();
    for xid in 1..=25 {
        world.send(1, xid, &set_data("/a", b""));
    }
    world.now_us = 200 * MS;
    for xid in 1..=25 {
        world.commit_of(1, xid, sets("/a", b""));
    }
    world.frames(1);
    assert_eq!(told(&mut world).len(), 10);
    assert_eq!(world.shard.report().counters.slow_requests, 25);
    world.send(1, 26, &set_data("/a", b""));
    world.now_us = 1_500 * MS;
    world.commit_of(1, 26, sets("/a", b""));
    world.frames(1);
    let [later] = &told(&mut world)[..] else { panic!("one slow request") };
    assert_eq!((later.xid, later.untold), (Xid(26), 15));
}

#[test]
fn long_paths_are_cut() {
    let mut world = world();
    let path = format!("/{}", "\u{e4}".repeat(300));
    world.send(1, 1, &set_data("/a", b""));
    world.send(1, 2, &exists(&path, false));
    world.now_us = 200 * MS;
    world.commit_of(1, 1, sets("/a", b""));
    world.frames(1);
    let requests = told(&mut world);
    let path = requests[1].path.as_deref().expect("a path");
    assert!(path.len() <= 203 && path.ends_with("..."), "{path}");
}

#[test]
fn a_sampled_request_is_told_of_though_it_is_quick_and_is_not_counted_as_slow() {
    let mut world = World::with(Settings { trace_one_in: 1, ..Settings::default() });
    world.client(1);
    told(&mut world);
    world.send(1, 1, &exists("/a", false));
    world.frames(1);
    let [request] = &told(&mut world)[..] else { panic!("one request") };
    assert_eq!((request.xid, request.sampled, request.path.as_deref()), (Xid(1), true, Some("/a")));
    world.send(1, -2, &Request::Ping);
    world.frames(1);
    assert_eq!(told(&mut world), [], "all pings of a session have one number");
    world.send(1, 2, &exists("/a", false));
    world.now_us = 200 * MS;
    world.frames(1);
    let [request] = &told(&mut world)[..] else { panic!("one request") };
    assert_eq!((request.xid, request.sampled, request.written_us), (Xid(2), false, 200 * MS), "slow at last");
    assert_eq!(world.shard.report().counters.slow_requests, 1);
}

#[test]
fn sampled_requests_beyond_the_bound_are_counted_and_not_told_of() {
    let mut world = World::with(Settings { trace_one_in: 1, ..Settings::default() });
    world.client(1);
    told(&mut world);
    let mut all = 0;
    for xid in 1..=1100 {
        world.send(1, xid, &exists("/a", false));
        world.frames(1);
        all += told(&mut world).len();
    }
    let untraced = world.shard.report().counters.untraced;
    assert!(untraced >= 100 && all + usize::try_from(untraced).expect("few") >= 1100, "{all} {untraced}");
}
