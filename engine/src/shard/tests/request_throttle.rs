//! The throttles of requests: who waits, for how long, and which requests are too large.

use super::*;
use crate::shard::{RequestThrottle, ThrottleCounts};
use ringkeeper_wire::frame::FRAME_HEADER_LEN;

fn world(throttle: RequestThrottle) -> World {
    let mut world = World::with(Settings { throttle, ..Settings::default() });
    world.commit([creates("/a")]);
    (1..=3).for_each(|number| _ = world.client(number));
    world
}

/// What the throttles have done.
fn counted(world: &World) -> ThrottleCounts {
    world.shard.report().counters.throttled
}

/// Client 1 has sent a write, which makes the others wait; client 2 has sent `requests` at time 0.
fn waiting(throttle: RequestThrottle, requests: &[Request<'_>]) -> World {
    let mut world = world(RequestThrottle { outstanding_max: 1, ..throttle });
    world.send(1, 1, &set_data("/a", b"x"));
    let bytes: Vec<u8> = (1..).zip(requests).flat_map(|(xid, request)| request_bytes(xid, request)).collect();
    world.receive(2, &bytes);
    assert!(!world.shard.wants_read(ConnId(2)));
    world
}

#[test]
fn beyond_the_limit_a_connection_without_any_unanswered_request_waits_too() {
    let mut world = waiting(RequestThrottle::default(), &[get_data("/a", false), get_data("/b", false)]);
    assert_eq!(world.frames(2), []);
    world.commit_of(1, 1, sets("/a", b"x"));
    assert_eq!(outline(&world.frames(2)), ["reply 1 at 2: Ok", "reply 2 at 2: NoNode"]);
    assert_eq!(counted(&world), ThrottleCounts { waits: 1, ..ThrottleCounts::default() });
    assert!(world.shard.wants_read(ConnId(2)));
}

#[test]
fn those_who_wait_go_on_in_the_order_in_which_they_began_to() {
    let mut world = waiting(RequestThrottle::default(), &[set_data("/a", b"2")]);
    world.send(3, 1, &set_data("/a", b"3"));
    world.submissions();
    for (answered, next) in [(1, 2), (2, 3)] {
        // The one that makes room does not overtake those who wait.
        world.send(answered, 2, &set_data("/a", b"again"));
        world.commit_of(answered, 1, sets("/a", b"x"));
        let taken: Vec<u64> = world.submissions().iter().map(|submission| submission.conn.0).collect();
        assert_eq!(taken, [next]);
    }
}

#[test]
fn requests_that_waited_too_long_are_answered_so_except_pings_and_close_session() {
    let requests = [get_data("/a", false), Request::Ping, set_data("/a", b"y"), Request::CloseSession];
    let throttle = RequestThrottle { wait_max_ms: 100, ..RequestThrottle::default() };
    for (waited_ms, expected) in [
        (100, vec!["reply 1 at 2: Ok", "reply -2 at 2: Ok"]),
        (101, vec!["reply 1 at 2: ThrottledOp", "reply -2 at 2: Ok", "reply 3 at 2: ThrottledOp"]),
    ] {
        let mut world = waiting(throttle.clone(), &requests);
        world.submissions();
        world.now_us = waited_ms * 1_000;
        world.commit_of(1, 1, sets("/a", b"x"));
        assert_eq!(outline(&world.frames(2)), expected, "after {waited_ms} ms");
        assert_eq!(world.submissions().len(), 1, "a write, or closeSession");
    }
}

#[test]
fn the_time_that_a_request_waited_does_not_count_for_those_behind_it() {
    let throttle = RequestThrottle { wait_max_ms: 100, ..RequestThrottle::default() };
    let mut world = waiting(throttle, &[get_data("/a", false)]);
    world.now_us = 90_000;
    world.commit_of(1, 1, sets("/a", b"x"));
    world.send(1, 2, &set_data("/a", b"x"));
    world.send(2, 2, &get_data("/a", false));
    world.now_us = 180_000;
    world.commit_of(1, 2, sets("/a", b"x"));
    assert_eq!(outline(&world.frames(2)), ["reply 1 at 2: Ok", "reply 2 at 3: Ok"]);
    assert_eq!(counted(&world).waits, 2);
}

#[test]
fn a_request_that_waited_for_longer_than_its_session_lasts_is_stale() {
    let checks = RequestThrottle { checks_latency: true, ..RequestThrottle::default() };
    for (drops_stale, stale, stale_dropped) in [(true, 0, 1), (false, 1, 0)] {
        let mut world = waiting(RequestThrottle { drops_stale, ..checks.clone() }, &[get_data("/a", false)]);
        world.now_us = 10_001_000;
        world.commit_of(1, 1, sets("/a", b"x"));
        assert_eq!(world.is_closed(2), drops_stale);
        world.shard.disconnected(10_001_000, ConnId(2));
        let expected = ThrottleCounts { waits: 1, stale, stale_dropped, ..ThrottleCounts::default() };
        assert_eq!(counted(&world), expected);
    }
}

#[test]
fn a_large_request_is_refused_before_its_bytes_come_if_there_are_too_many_of_them() {
    let large = request_bytes(1, &set_data("/a", &[7; 400]));
    let len = large.len() - FRAME_HEADER_LEN;
    let throttle = RequestThrottle {
        large_above_bytes: len - 1,
        large_max_bytes: 2 * len,
        ..RequestThrottle::default()
    };
    let mut world = world(throttle);
    world.receive(1, &large);
    world.receive(2, &large);
    world.receive(3, &request_bytes(1, &set_data("/a", &[7; 399])));
    assert_eq!(world.submissions().len(), 3, "what is not large is not counted");
    world.receive(3, &large[..FRAME_HEADER_LEN]);
    assert!(world.is_closed(3));
    let unanswered = 2 * len;
    assert_eq!(world.close_reasons(), [CloseReason::LargeRequests { len, unanswered }]);
    assert_eq!(counted(&world).large_rejected, 1);
    world.commit_of(1, 1, sets("/a", b"x"));
    world.receive(1, &large);
    assert_eq!(world.submissions().len(), 1, "there is room again");
    world.shard.disconnected(0, ConnId(1));
    world.shard.disconnected(0, ConnId(2));
    assert_eq!(world.shard.outstanding.large_bytes, 0);
}
