//! How connections begin and end.

use ringkeeper_wire::ConnectResponse;
use ringkeeper_wire::frame::FrameError;

use super::*;
use crate::fourletter::{Command, Whitelist, Word};

fn connect_response(bytes: &[u8]) -> ConnectResponse<'_> {
    let (payload, len) = next_frame(bytes, usize::MAX).expect("well formed").expect("whole");
    assert_eq!(len, bytes.len());
    ConnectResponse::from_bytes(payload).expect("a ConnectResponse")
}

fn connecting(world: &mut World, number: u64, request: &[u8]) {
    world.shard.connected(world.now_us, ConnId(number), peer(number));
    world.receive(number, request);
}

#[test]
fn a_new_session_is_opened_and_told_to_the_client() {
    let mut world = World::new();
    connecting(&mut world, 1, &connect_request(0, 10_000, 0, Some(false)));
    let submissions = world.submissions();
    assert!(matches!(submissions[..], [Submission { what: Submitted::Open { timeout_ms: 10_000 }, .. }]));
    assert!(!world.shard.wants_read(ConnId(1)));
    world.attach(1);
    assert_eq!(world.shard.next_readable(), Some(ConnId(1)));
    let bytes = world.bytes(1);
    let expected = ConnectResponse {
        protocol_version: 0,
        timeout_ms: 10_000,
        session_id: session(1),
        password: Some(&PASSWORD),
        read_only: Some(false),
    };
    assert_eq!(connect_response(&bytes), expected);
}

#[test]
fn a_client_without_the_read_only_byte_gets_none_back() {
    let mut world = World::new();
    connecting(&mut world, 1, &connect_request(0, 10_000, 0, None));
    world.attach(1);
    assert_eq!(connect_response(&world.bytes(1)).read_only, None);
}

#[test]
fn timeouts_are_clamped_to_the_settings() {
    for (asked, granted) in [(-5, 4_000), (0, 4_000), (20_000, 20_000), (i32::MAX, 40_000)] {
        let mut world = World::new();
        connecting(&mut world, 1, &connect_request(0, asked, 0, None));
        let submissions = world.submissions();
        let Submitted::Open { timeout_ms } = submissions[0].what else { panic!("{submissions:?}") };
        assert_eq!(timeout_ms, granted, "asked {asked}");
    }
}

#[test]
fn a_session_is_resumed_with_its_password() {
    let mut world = World::new();
    connecting(&mut world, 1, &connect_request(0, 10_000, 77, None));
    let submissions = world.submissions();
    assert_eq!(submissions[0].session, SessionId(77));
    assert!(matches!(submissions[0].what, Submitted::Reattach { password: PASSWORD, timeout_ms: 10_000 }));
}

#[test]
fn a_rejected_session_is_told_that_it_has_expired() {
    let mut world = World::new();
    connecting(&mut world, 1, &connect_request(0, 10_000, 77, Some(false)));
    world.shard.deliver(0, ToShard::Rejected { conn: ConnId(1) });
    let (bytes, closed) = world.take(1);
    assert_eq!(connect_response(&bytes), ConnectResponse::expired(Some(false)));
    assert!(closed);
}

#[test]
fn a_client_that_is_ahead_is_closed_silently_unless_this_server_catches_up_in_a_moment() {
    let mut world = World::with_znodes(&["/a"]);
    let before = world.shard.report().counters.connection_requests;
    connecting(&mut world, 4, &connect_request(2, 10_000, 0, None));
    connecting(&mut world, 5, &connect_request(3, 10_000, 0, None));
    connecting(&mut world, 6, &connect_request(1, 10_000, 0, None));
    assert_eq!(world.submissions().len(), 1, "that of the one who is not ahead");
    world.commit([creates("/b")]);
    assert_eq!(world.submissions().len(), 1);
    world.shard.tick(249_999);
    assert_eq!(world.take(5), (Vec::new(), false));
    world.shard.tick(250_000);
    assert_eq!(world.take(5), (Vec::new(), true));
    assert_eq!(world.close_reasons(), [CloseReason::ClientAhead { seen: 3, ours: 2 }]);
    assert!(world.submissions().is_empty());
    assert_eq!(world.shard.report().counters.connection_requests - before, 3);
}

#[test]
fn of_very_many_clients_that_are_ahead_some_are_turned_away_at_once() {
    let mut world = World::with_znodes(&["/a"]);
    for number in 10..10 + 1024 {
        connecting(&mut world, number, &connect_request(2, 10_000, 0, None));
        assert!(!world.is_closed(number));
    }
    connecting(&mut world, 5, &connect_request(2, 10_000, 0, None));
    assert!(world.is_closed(5));
}

#[test]
fn requests_behind_the_connect_request_wait_for_the_session() {
    let mut world = World::with_znodes(&["/a"]);
    let mut bytes = connect_request(0, 10_000, 0, Some(false));
    bytes.extend(request_bytes(1, &get_data("/a", false)));
    connecting(&mut world, 5, &bytes);
    assert_eq!(world.bytes(5), []);
    world.attach(5);
    let bytes = world.bytes(5);
    let (_, handshake_len) = next_frame(&bytes, usize::MAX).expect("well formed").expect("whole");
    assert_eq!(outline(&frames(&bytes[handshake_len..])), ["reply 1 at 1: Ok"]);
}

#[test]
fn bytes_may_come_one_by_one() {
    let mut world = World::with_znodes(&["/a"]);
    world.shard.connected(0, ConnId(5), peer(5));
    for byte in connect_request(0, 10_000, 0, Some(false)) {
        world.receive(5, &[byte]);
    }
    world.attach(5);
    world.bytes(5);
    let mut bytes = request_bytes(1, &get_data("/a", false));
    bytes.extend(request_bytes(2, &exists("/b", false)));
    for byte in bytes {
        world.receive(5, &[byte]);
    }
    assert_eq!(outline(&world.frames(5)), ["reply 1 at 1: Ok", "reply 2 at 1: NoNode"]);
}

#[test]
fn hostile_lengths_close_the_connection_at_once() {
    let max = Settings::default().frame_len_max;
    let too_long = i32::try_from(max + 1).expect("fits");
    for (length, error) in [
        (-1, FrameError::Negative(-1)),
        (i32::MIN, FrameError::Negative(i32::MIN)),
        (too_long, FrameError::TooLong { len: max + 1, max }),
    ] {
        let mut world = World::with_znodes(&[]);
        world.receive(1, &length.to_be_bytes());
        assert_eq!(world.take(1), (Vec::new(), true));
        assert_eq!(world.close_reasons(), [CloseReason::Frame(error)]);
    }
}

#[test]
fn a_first_frame_is_small() {
    let mut world = World::new();
    connecting(&mut world, 1, &100_000_i32.to_be_bytes());
    assert!(world.is_closed(1));
}

#[test]
fn a_cut_connect_request_or_header_closes() {
    let mut world = World::with_znodes(&[]);
    connecting(&mut world, 5, &framed(|out| out.extend([0; 10])));
    assert!(world.is_closed(5));
    world.receive(1, &framed(|out| out.extend([0; 7])));
    assert!(world.is_closed(1));
    assert_eq!(world.close_reasons(), [CloseReason::MalformedConnect, CloseReason::MalformedHeader]);
}

#[test]
fn an_evicted_connection_is_closed_without_a_word_and_not_detached() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &get_data("/a", false));
    world.shard.deliver(0, ToShard::Evict { conn: ConnId(1) });
    assert_eq!(world.take(1), (Vec::new(), true));
    world.shard.disconnected(0, ConnId(1));
    assert!(world.submissions().is_empty());
}

#[test]
fn a_lost_connection_is_detached() {
    let mut world = World::with_znodes(&[]);
    world.shard.disconnected(0, ConnId(1));
    let submissions = world.submissions();
    assert!(matches!(submissions[..], [Submission { what: Submitted::Detach, .. }]));
    assert_eq!(submissions[0].session, session(1));
}

#[test]
fn a_connection_lost_before_its_session_came_is_detached_when_it_comes() {
    let mut world = World::new();
    connecting(&mut world, 1, &connect_request(0, 10_000, 0, None));
    world.shard.disconnected(0, ConnId(1));
    world.submissions();
    world.attach(1);
    assert!(matches!(world.submissions()[..], [Submission { what: Submitted::Detach, .. }]));
}

#[test]
fn replies_to_a_lost_connection_are_dropped() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &set_data("/a", b"x"));
    world.shard.disconnected(0, ConnId(1));
    world.commit_of(1, 1, sets("/a", b"x"));
    assert_eq!(world.shard.report().outstanding, 0);
}

#[test]
fn a_connection_without_a_session_is_closed_after_ten_seconds() {
    let mut world = World::new();
    world.client(2);
    world.shard.connected(0, ConnId(1), peer(1));
    world.shard.tick(9_999_000);
    assert!(!world.is_closed(1));
    world.shard.tick(10_000_000);
    assert!(world.is_closed(1));
    assert!(!world.is_closed(2));
    assert_eq!(world.close_reasons(), [CloseReason::Sessionless]);
}

#[test]
fn sessions_heard_from_are_reported_once_an_interval() {
    let mut world = World::with_znodes(&["/a"]);
    world.shard.tick(600_000);
    world.shard.take_requests();
    world.send(1, -2, &Request::Ping);
    world.send(1, 1, &get_data("/a", false));
    assert!(world.shard.take_requests().is_empty());
    world.shard.tick(700_000);
    assert!(world.shard.take_requests().is_empty());
    world.shard.tick(1_100_000);
    assert_eq!(world.shard.take_requests().touched, [session(1)]);
    world.shard.tick(1_700_000);
    assert!(world.shard.take_requests().is_empty());
}

#[test]
fn nobody_is_served_while_the_server_does_not() {
    let mut world = World::with_znodes(&[]);
    world.shard.deliver(0, ToShard::Serving(Serving::No));
    assert!(world.is_closed(1) && world.is_closed(2));
    connecting(&mut world, 5, &connect_request(0, 10_000, 0, None));
    assert_eq!(world.take(5), (Vec::new(), true));
    assert_eq!(world.close_reasons(), [CloseReason::NotServing]);
}

#[test]
fn a_leader_that_leaves_clients_to_the_others_says_so_and_still_answers_words() {
    let mut world = World::with_znodes(&[]);
    world.shard.deliver(0, ToShard::Serving(Serving::Leads));
    assert!(world.is_closed(1) && world.is_closed(2));
    connecting(&mut world, 5, &connect_request(0, 10_000, 0, None));
    assert_eq!(world.take(5), (Vec::new(), true));
    assert_eq!(world.close_reasons(), [CloseReason::Leads]);
    connecting(&mut world, 6, b"ruok");
    assert!(!world.is_closed(6), "the answer is being made");
}

#[test]
fn a_client_that_speaks_tls_is_named_as_such() {
    let mut world = World::new();
    connecting(&mut world, 1, &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00]);
    assert!(world.is_closed(1));
    assert_eq!(world.close_reasons(), [CloseReason::Tls]);
}

/// Left open, such a connection was never answered nor closed, and its client waited for its own timeout.
#[test]
fn a_session_that_is_closing_is_sent_away_with_the_others_when_the_server_stops_serving() {
    let mut world = World::with_znodes(&[]);
    world.send(1, 1, &Request::CloseSession);
    world.shard.deliver(0, ToShard::Serving(Serving::No));
    assert_eq!(world.take(1), (Vec::new(), true));
    assert_eq!(world.shard.report().outstanding, 0);
}

#[test]
fn a_read_only_server_takes_those_who_ask_for_it_and_no_writes() {
    let mut world = World::new();
    world.shard.deliver(0, ToShard::Serving(Serving::ReadOnly));
    connecting(&mut world, 1, &connect_request(0, 10_000, 0, Some(false)));
    assert!(world.is_closed(1));
    connecting(&mut world, 2, &connect_request(0, 10_000, 0, Some(true)));
    world.submissions();
    world.attach(2);
    assert_eq!(connect_response(&world.bytes(2)).read_only, Some(true));
    world.send(2, 1, &set_data("/", b"x"));
    world.send(2, 2, &sync("/"));
    world.send(2, 3, &exists("/", false));
    let expected = ["reply 1 at 0: NotReadOnly", "reply 2 at 0: NotReadOnly", "reply 3 at 0: Ok"];
    assert_eq!(outline(&world.frames(2)), expected);
    assert!(world.submissions().is_empty());
}

#[test]
fn without_room_for_writes_they_are_refused_in_their_place_and_reads_go_on() {
    let mut world = World::new();
    world.client(1);
    world.send(1, 1, &set_data("/", b"x"));
    world.submissions();
    world.shard.deliver(0, ToShard::DiskFull(true));
    world.send(1, 2, &set_data("/", b"y"));
    world.send(1, 3, &exists("/", false));
    assert_eq!(outline(&world.frames(1)), [""; 0], "the first one is on its way");
    world.commit_of(1, 1, sets("/", b"x"));
    let expected = ["reply 1 at 1: Ok", "reply 2 at 1: NotReadOnly", "reply 3 at 1: Ok"];
    assert_eq!(outline(&world.frames(1)), expected);
    world.shard.deliver(0, ToShard::DiskFull(false));
    world.send(1, 4, &set_data("/", b"z"));
    assert_eq!(world.submissions().len(), 1);
}

#[test]
fn a_four_letter_word_is_handed_to_the_shell_and_its_answer_closes() {
    let mut world = World::new();
    world.shard.deliver(0, ToShard::Serving(Serving::No));
    world.shard.connected(0, ConnId(1), peer(1));
    world.receive(1, b"ru");
    assert_eq!(world.shard.next_effect(), None);
    world.receive(1, b"ok\n");
    let command = Command { word: Word::Ruok, trace_mask: 0 };
    assert_eq!(world.shard.next_effect(), Some(Effect::FourLetter { conn: ConnId(1), command }));
    world.shard.answer(ConnId(1), "imok");
    assert_eq!(world.take(1), (b"imok".to_vec(), true));
}

#[test]
fn a_word_outside_the_whitelist_is_answered_so() {
    let mut world = World::new();
    world.shard.connected(0, ConnId(1), peer(1));
    world.receive(1, b"wchp");
    let expected = b"wchp is not executed because it is not in the whitelist.\n".to_vec();
    assert_eq!(world.take(1), (expected, true));
}

#[test]
fn stmk_waits_for_its_mask() {
    let mut world = World::with(Settings { four_letter_words: Whitelist::parse("*"), ..Settings::default() });
    world.shard.connected(0, ConnId(1), peer(1));
    world.receive(1, b"stmk\0\0\0\0");
    assert_eq!(world.shard.next_effect(), None);
    world.receive(1, &[0, 0, 1, 2]);
    let command = Command { word: Word::Stmk, trace_mask: 0x102 };
    assert_eq!(world.shard.next_effect(), Some(Effect::FourLetter { conn: ConnId(1), command }));
}

#[test]
fn words_are_only_recognised_before_the_handshake() {
    let mut world = World::with_znodes(&[]);
    world.receive(1, b"ruok");
    assert_eq!(world.take(1), (Vec::new(), true));
}

#[test]
fn a_server_short_of_memory_says_so_to_the_leader_core_and_then_takes_no_new_sessions() {
    let mut world = World::with_znodes(&[]);
    world.shard.set_memory(Memory::Short);
    assert_eq!(world.shard.take_requests().short_of_memory, Some(true));
    connecting(&mut world, 3, &connect_request(0, 10_000, 0, Some(false)));
    assert_eq!(world.submissions().len(), 1);
    world.shard.set_memory(Memory::Scarce);
    connecting(&mut world, 4, &connect_request(0, 10_000, 0, Some(false)));
    assert!(world.is_closed(4));
    assert_eq!(world.close_reasons(), [CloseReason::NoMemory]);
    connecting(&mut world, 5, &connect_request(0, 10_000, 77, Some(false)));
    let batch = world.shard.take_requests();
    assert_eq!((batch.submissions.len(), batch.short_of_memory), (1, None));
    world.shard.set_memory(Memory::Ample);
    assert_eq!(world.shard.take_requests().short_of_memory, Some(false));
}
