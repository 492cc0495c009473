//! Tenants: who waits, for how long, who is refused, and that nobody else notices.

use super::*;
use crate::authorisation::{PLACE, Subject, rule_path};
use crate::tenants::{Measured, Resource, limits_path};
use ringkeeper_wire::{AddWatchMode, AddWatchRequest, CheckRequest, MultiOp, SetWatchesRequest};

/// Clients 1 to 4, the tenant `/t` with these limits, and `/u`, which is nobody's.
fn world(limits: &str) -> World {
    let mut world = World::with(Settings { tenant_delay_max_ms: 1_000, ..Settings::default() });
    world.commit(["/t", "/t/a", "/u", "/zookeeper/quota/t", &limits_path("/t")].map(creates));
    set_limits(&mut world, limits);
    (1..=4).for_each(|number| _ = world.client(number));
    world
}

fn set_limits(world: &mut World, limits: &str) {
    world.commit([sets(&limits_path("/t"), limits.as_bytes())]);
    while world.shard.next_slice(world.now_us) {}
}

fn measured(world: &World) -> Measured {
    world.shard.view.tenants().get("/t").expect("it has limits").meter().measured()
}

/// Time passes in ticks.
fn wait(world: &mut World, ms: u64) {
    for _ in 0..ms / 50 {
        world.now_us += 50_000;
        world.shard.tick(world.now_us);
        while world.shard.next_slice(world.now_us) {}
    }
}

/// As many reads at once, with xids from `first` on.
fn reads(world: &mut World, number: u64, first: i32, count: i32, path: &str) {
    let bytes: Vec<u8> =
        (first..first + count).flat_map(|xid| request_bytes(xid, &get_data(path, false))).collect();
    world.receive(number, &bytes);
}

/// What a client is sent that waits, twice a second.
fn unasked() -> Frame {
    reply(xid::PING.0, 0, None)
}

/// The codes of the replies to requests that have come.
fn codes(world: &mut World, number: u64) -> Vec<ErrorCode> {
    let code = |frame| match frame {
        Frame::Reply { code, .. } => (frame != unasked()).then_some(code),
        Frame::Event { .. } => None,
    };
    world.frames(number).into_iter().filter_map(code).collect()
}

#[test]
fn a_burst_passes_and_then_the_rate_holds() {
    let mut world = world("ops=20 burst=2");
    reads(&mut world, 1, 1, 200, "/t");
    assert_eq!(codes(&mut world, 1).len(), 40, "two seconds' worth");
    assert!(!world.shard.wants_read(ConnId(1)));
    for _ in 0..3 {
        wait(&mut world, 1_000);
        assert_eq!(codes(&mut world, 1), [ErrorCode::Ok; 20]);
    }
    assert_eq!(measured(&world).operations, 100);
    assert!(measured(&world).delayed_us > 0);
}

#[test]
fn bytes_of_requests_and_replies_count() {
    let mut world = world("bytes=1000");
    world.commit([sets("/t/a", &[7; 2_500])]);
    reads(&mut world, 1, 1, 2, "/t/a");
    assert_eq!(codes(&mut world, 1).len(), 1, "the first is larger than all that is allowed");
    assert!(measured(&world).bytes > 2_500);
    wait(&mut world, 900);
    assert_eq!(codes(&mut world, 1), []);
    set_limits(&mut world, "bytes=100000");
    wait(&mut world, 2_000);
    assert_eq!(codes(&mut world, 1).len(), 1);
}

#[test]
fn others_are_served_while_a_tenant_waits() {
    let mut world = world("ops=1");
    reads(&mut world, 1, 1, 5, "/t");
    for number in [2, 3] {
        reads(&mut world, number, 1, 50, "/u");
        assert_eq!(codes(&mut world, number).len(), 50);
    }
    assert_eq!(codes(&mut world, 1).len(), 1);
}

#[test]
fn connections_of_a_tenant_take_turns() {
    let mut world = world("ops=20");
    (1..=4).for_each(|number| reads(&mut world, number, 1, 100, "/t/a"));
    assert_eq!([1, 2, 3, 4].map(|number| codes(&mut world, number).len()), [20, 0, 0, 0]);
    wait(&mut world, 2_000);
    assert_eq!([1, 2, 3, 4].map(|number| codes(&mut world, number).len()), [10; 4]);
    assert_eq!(measured(&world).refused(Resource::Operations), 0);
}

#[test]
fn who_waits_too_long_is_told_and_waits_anew() {
    let mut world = world("ops=1 burst=1");
    (1..=4).for_each(|number| reads(&mut world, number, 1, 2, "/t"));
    assert_eq!(codes(&mut world, 1), [ErrorCode::Ok]);
    wait(&mut world, 1_000);
    let answers = [1, 2, 3, 4].map(|number| codes(&mut world, number));
    let throttled = answers.iter().filter(|codes| **codes == [ErrorCode::ThrottledOp]).count();
    assert_eq!(throttled, 3, "{answers:?}");
    assert_eq!(measured(&world).refused(Resource::Operations), 3);
    // Those behind them have only begun to wait.
    wait(&mut world, 950);
    let later: Vec<_> = (1..=4).flat_map(|number| codes(&mut world, number)).collect();
    assert_eq!(later, [ErrorCode::Ok], "the one that there was a token for");
}

#[test]
fn pings_and_close_session_do_not_wait() {
    let mut world = world("ops=1");
    reads(&mut world, 1, 1, 1, "/t");
    world.send(1, -2, &Request::Ping);
    world.send(1, 3, &Request::CloseSession);
    assert_eq!(codes(&mut world, 1).len(), 2);
    assert_eq!(world.submissions().len(), 1);
}

#[test]
fn a_muted_session_is_reported_as_alive() {
    let mut world = world("ops=1");
    reads(&mut world, 1, 1, 9, "/t");
    wait(&mut world, 500);
    world.shard.take_requests();
    wait(&mut world, 1_500);
    assert!(world.shard.take_requests().touched.contains(&session(1)));
    assert!(!world.shard.take_requests().touched.contains(&session(2)));
}

#[test]
fn a_muted_client_is_sent_replies_to_the_pings_that_wait_unread_as_long_as_it_reads() {
    let mut world = world("ops=1");
    reads(&mut world, 1, 1, 9, "/t");
    wait(&mut world, 100);
    codes(&mut world, 1);
    wait(&mut world, 450);
    assert_eq!(world.frames(1), [unasked()]);
    assert_eq!(world.frames(2), [], "nobody else is sent any");
    wait(&mut world, 2_000);
    let frames = world.frames(1);
    let unasked = frames.iter().filter(|frame| **frame == unasked()).count();
    assert!(unasked <= 1, "a client that does not read is sent no second one: {frames:?}");
}

#[test]
fn the_operations_of_a_multi_count_one_by_one() {
    let mut world = world("ops=10");
    let check = |path: &'static str| MultiOp::Check(CheckRequest { path: path.into(), version: -1 });
    let ops: Vec<_> = ["/t/a", "/u", "/u"].into_iter().cycle().take(12).map(check).collect();
    world.send(1, 1, &Request::Multi((&*ops).into()));
    world.send(1, 2, &set_data("/t", b""));
    assert_eq!(world.submissions().len(), 1, "all of a multi belong to the tenant of its first path");
    assert_eq!(measured(&world).operations, 12);
    wait(&mut world, 250);
    assert_eq!(world.submissions().len(), 1);
}

#[test]
fn watches_beyond_the_limit_are_refused_unless_they_are_there_already() {
    let mut world = world("watches=2");
    let add = |path: &'static str| {
        Request::AddWatch(AddWatchRequest { path: path.into(), mode: AddWatchMode::Persistent })
    };
    world.send(1, 1, &get_data("/t", true));
    world.send(1, 2, &add("/t/a"));
    world.send(1, 3, &add("/t"));
    world.send(2, 1, &add("/t/b"));
    world.send(2, 2, &get_data("/t/a", true));
    world.send(2, 3, &get_data("/t/a", false));
    world.send(2, 4, &get_data("/u", true));
    assert_eq!(codes(&mut world, 1), [ErrorCode::Ok; 3]);
    let refused = ErrorCode::QuotaExceeded;
    assert_eq!(codes(&mut world, 2), [refused, refused, ErrorCode::Ok, ErrorCode::Ok]);
    assert_eq!((measured(&world).watches, measured(&world).refused(Resource::Watches)), (2, 2));
    // One that comes back has all of its watches.
    let (none, gone) = (Vec::new(), vec!["/t/x".to_owned(), "/t/y".to_owned()]);
    let watches = SetWatchesRequest {
        relative_zxid: 0,
        data_watches: none.as_slice().into(),
        exist_watches: gone.as_slice().into(),
        child_watches: none.as_slice().into(),
        persistent_watches: none.as_slice().into(),
        persistent_recursive_watches: none.as_slice().into(),
    };
    world.send(3, 1, &Request::SetWatches(watches));
    assert_eq!(measured(&world).watches, 4);
    world.shard.disconnected(0, ConnId(3));
    world.shard.disconnected(0, ConnId(1));
    assert_eq!(measured(&world).watches, 0);
    world.send(2, 5, &add("/t/b"));
    assert_eq!(codes(&mut world, 2), [ErrorCode::Ok]);
}

#[test]
fn watches_from_before_the_limits_count() {
    let mut world = World::with(Settings { slice_visits_max: 8, ..Settings::default() });
    world.commit(["/t", "/zookeeper/quota/t"].map(creates));
    world.client(1);
    let paths: Vec<String> = (0..50).map(|number| format!("/t/{number}")).collect();
    (1..).zip(&paths).for_each(|(xid, path)| world.send(1, xid, &exists(path, true)));
    world.send(1, 100, &exists("/u", true));
    world.commit([creates(&limits_path("/t"))]);
    assert!(world.shard.has_work() && world.shard.next_slice(0), "they are counted in slices");
    // Meanwhile some come and go.
    world.commit([creates("/t/49"), creates("/t/0")]);
    world.send(1, 101, &exists("/t/new", true));
    while world.shard.next_slice(0) {}
    assert_eq!(measured(&world).watches, 49);
    world.commit([sets(&limits_path("/t"), b"ops=100000")]);
    while world.shard.next_slice(0) {}
    assert_eq!(measured(&world).watches, 49);
}

#[test]
fn a_session_counts_for_the_first_tenant_that_it_uses() {
    let mut world = world("sessions=2");
    world.send(1, 1, &get_data("/u", false));
    for number in [2, 3, 1] {
        world.send(number, 2, &get_data("/t", false));
        world.send(number, 3, &set_data("/t/a", b""));
        world.send(number, 4, &get_data("/u", false));
    }
    assert_eq!(measured(&world).sessions, 2);
    assert_eq!(codes(&mut world, 2).len(), 1, "the write is on its way");
    let refused = ErrorCode::QuotaExceeded;
    assert_eq!(codes(&mut world, 1), [ErrorCode::Ok, refused, refused, ErrorCode::Ok]);
    assert_eq!(measured(&world).refused(Resource::Sessions), 2);
    world.shard.disconnected(0, ConnId(2));
    world.send(1, 5, &get_data("/t", false));
    assert_eq!(codes(&mut world, 1), [ErrorCode::Ok]);
    assert_eq!(measured(&world).sessions, 2);
}

#[test]
fn who_waits_goes_on_when_the_limits_go() {
    let mut world = world("ops=1");
    reads(&mut world, 1, 1, 20, "/t");
    world.commit([deletes(&limits_path("/t"))]);
    wait(&mut world, 50);
    assert_eq!(codes(&mut world, 1), [ErrorCode::Ok; 20]);
    assert!(world.shard.muted.is_empty());
    world.client(9);
    reads(&mut world, 9, 1, 20, "/t");
    assert_eq!(codes(&mut world, 9).len(), 20);
}

#[test]
fn a_connection_that_ends_while_it_waits_leaves_its_turn_to_others() {
    let mut world = world("ops=1");
    (1..=3).for_each(|number| reads(&mut world, number, 1, 2, "/t"));
    world.shard.disconnected(0, ConnId(1));
    world.shard.disconnected(0, ConnId(2));
    world.client(8);
    wait(&mut world, 1_000);
    assert_eq!(codes(&mut world, 3), [ErrorCode::Ok]);
}

#[test]
fn what_a_rule_forbids_uses_up_nothing() {
    let mut world = world("ops=1");
    let rule = rule_path(&Subject::Others);
    world.commit([creates(PLACE), creates(&rule), sets(&rule, b"acl /u")]);
    reads(&mut world, 1, 1, 5, "/t");
    assert_eq!(codes(&mut world, 1), [ErrorCode::NoAuth; 5]);
    assert_eq!(measured(&world).operations, 0);
}

#[test]
fn a_slice_has_few_turns_and_the_next_one_begins_with_the_next_tenant() {
    let mut world = world("ops=20");
    world.commit(["/v", "/zookeeper/quota/v", &limits_path("/v")].map(creates));
    world.commit([sets(&limits_path("/v"), b"ops=20")]);
    (5..40).for_each(|number| _ = world.client(number));
    for number in 1..40 {
        reads(&mut world, number, 1, 2, ["/t", "/v"][usize::from(number >= 20)]);
    }
    let executed = |world: &World| {
        ["/t", "/v"].map(|path| {
            let tenant = world.shard.view.tenants().get(path).expect("it has limits");
            tenant.meter().measured().operations
        })
    };
    assert_eq!(executed(&world), [20, 20]);
    world.now_us += 1_000_000;
    world.shard.tick(world.now_us);
    let mut after_slices = Vec::new();
    while world.shard.has_work() && world.shard.next_slice(world.now_us) {
        after_slices.push(executed(&world));
    }
    assert_eq!(after_slices, [[28, 20], [28, 28], [36, 28], [36, 36]]);
    assert_eq!(executed(&world), [38, 40], "all of them, as there are tokens for twenty of each");
}
