//! In which order a client gets its answers and events.

use super::*;

fn data_of(frame: &Frame) -> Vec<u8> {
    let Frame::Reply { body, .. } = frame else { panic!("{frame:?} is no reply") };
    match Response::decode(OpCode::GetData, body).expect("a getData reply") {
        Response::GetData(response) => response.data.expect("data").to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_read_with_nothing_before_it_is_answered_at_once() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &get_data("/a", false));
    assert_eq!(outline(&world.frames(1)), ["reply 1 at 1: Ok"]);
    assert!(world.submissions().is_empty());
}

#[test]
fn a_read_behind_a_write_waits_and_sees_it() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &set_data("/a", b"new"));
    world.send(1, 2, &get_data("/a", false));
    assert_eq!(world.frames(1), []);
    world.commit_of(1, 1, sets("/a", b"new"));
    let frames = world.frames(1);
    assert_eq!(outline(&frames), ["reply 1 at 2: Ok", "reply 2 at 2: Ok"]);
    assert_eq!(data_of(&frames[1]), b"new");
}

#[test]
fn another_connection_does_not_wait() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &set_data("/a", b"new"));
    world.send(2, 1, &get_data("/a", false));
    assert_eq!(outline(&world.frames(2)), ["reply 1 at 1: Ok"]);
}

#[test]
fn a_read_between_two_writes_sees_the_first_and_not_the_second() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &set_data("/a", b"one"));
    world.send(1, 2, &get_data("/a", false));
    world.send(1, 3, &set_data("/a", b"two"));
    world.send(1, 4, &get_data("/a", false));
    let barriers: Vec<bool> = world
        .submissions()
        .iter()
        .map(|submission| match submission.what {
            Submitted::Write { read_barrier, .. } => read_barrier,
            _ => panic!("{submission:?}"),
        })
        .collect();
    assert_eq!(barriers, [false, true]);
    let first = world.group(vec![(Some((1, 1)), sets("/a", b"one"))]);
    let second = world.group(vec![(Some((1, 3)), sets("/a", b"two"))]);
    world.publish(vec![first, second]);
    let frames = world.frames(1);
    let expected = ["reply 1 at 2: Ok", "reply 2 at 2: Ok", "reply 3 at 3: Ok", "reply 4 at 3: Ok"];
    assert_eq!(outline(&frames), expected);
    assert_eq!(data_of(&frames[1]), b"one");
    assert_eq!(data_of(&frames[3]), b"two");
}

#[test]
fn writes_without_a_read_between_them_share_a_step() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &set_data("/a", b"one"));
    world.send(1, -2, &Request::Ping);
    world.send(1, 2, &set_data("/a", b"two"));
    let read_barrier =
        |submission: &Submission| matches!(submission.what, Submitted::Write { read_barrier: true, .. });
    assert!(!world.submissions().iter().any(read_barrier));
    let group = world.group(vec![(Some((1, 1)), sets("/a", b"one")), (Some((1, 2)), sets("/a", b"two"))]);
    world.publish(vec![group]);
    assert_eq!(outline(&world.frames(1)), ["reply 1 at 2: Ok", "reply -2 at 2: Ok", "reply 2 at 3: Ok"]);
}

#[test]
fn a_write_that_overtakes_a_waiting_read_closes_the_connection() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &set_data("/a", b"one"));
    world.send(1, 2, &get_data("/a", false));
    world.send(1, 3, &set_data("/a", b"two"));
    let group = world.group(vec![(Some((1, 1)), sets("/a", b"one")), (Some((1, 3)), sets("/a", b"two"))]);
    world.publish(vec![group]);
    assert!(world.is_closed(1));
    assert_eq!(world.close_reasons(), [CloseReason::OutOfOrder]);
}

#[test]
fn the_event_of_an_own_write_precedes_its_reply() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &get_data("/a", true));
    world.frames(1);
    world.send(1, 2, &set_data("/a", b"new"));
    world.commit_of(1, 2, sets("/a", b"new"));
    assert_eq!(outline(&world.frames(1)), ["NodeDataChanged /a at 2", "reply 2 at 2: Ok"]);
}

#[test]
fn events_of_a_step_precede_the_reads_that_see_it() {
    let mut world = World::with_znodes(&["/a", "/b"]);
    world.send(1, 1, &get_data("/b", true));
    world.frames(1);
    world.send(1, 2, &set_data("/a", b"new"));
    world.send(1, 3, &get_data("/b", false));
    let group = world.group(vec![(Some((1, 2)), sets("/a", b"new")), (None, sets("/b", b"theirs"))]);
    world.publish(vec![group]);
    let frames = world.frames(1);
    assert_eq!(outline(&frames), ["reply 2 at 3: Ok", "NodeDataChanged /b at 4", "reply 3 at 4: Ok"]);
    assert_eq!(data_of(&frames[2]), b"theirs");
}

#[test]
fn a_reply_names_no_transaction_whose_events_are_still_to_come() {
    let mut world = World::with_znodes(&["/a", "/b"]);
    world.send(1, 1, &get_data("/b", true));
    world.send(1, 2, &set_data("/a", b"new"));
    world.frames(1);
    let group = world.group(vec![(Some((1, 2)), sets("/a", b"new")), (None, sets("/b", b"theirs"))]);
    world.publish(vec![group]);
    assert_eq!(outline(&world.frames(1)), ["reply 2 at 3: Ok", "NodeDataChanged /b at 4"]);
}

#[test]
fn a_sync_is_answered_with_its_path_when_it_is_due() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &sync("no path at all"));
    world.send(1, 2, &get_data("/a", false));
    assert!(matches!(world.submissions()[..], [Submission { what: Submitted::Sync, .. }]));
    assert_eq!(world.frames(1), []);
    world.commit([sets("/a", b"theirs")]);
    assert_eq!(world.frames(1), []);
    world.shard.deliver(0, ToShard::Synced { conn: ConnId(1) });
    let frames = world.frames(1);
    let synced = ringkeeper_wire::SyncResponse { path: Some("no path at all".into()) };
    assert_eq!(frames[0], reply(1, 2, Some(Response::Sync(synced))));
    assert_eq!(data_of(&frames[1]), b"theirs");
}

#[test]
fn a_sync_that_is_due_early_waits_for_the_writes_before_it() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &set_data("/a", b"new"));
    world.send(1, 2, &sync("/"));
    world.shard.deliver(0, ToShard::Synced { conn: ConnId(1) });
    assert_eq!(world.frames(1), []);
    world.commit_of(1, 1, sets("/a", b"new"));
    assert_eq!(outline(&world.frames(1)), ["reply 1 at 2: Ok", "reply 2 at 2: Ok"]);
}

#[test]
fn a_write_behind_a_sync_is_submitted_once_the_sync_is_due() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &sync("/"));
    world.send(1, 2, &set_data("/a", b"new"));
    assert_eq!(world.submissions().len(), 1);
    assert!(!world.shard.wants_read(ConnId(1)));
    world.shard.deliver(0, ToShard::Synced { conn: ConnId(1) });
    assert!(matches!(world.submissions()[..], [Submission { what: Submitted::Write { .. }, .. }]));
    assert_eq!(world.shard.next_readable(), Some(ConnId(1)));
    assert!(world.shard.wants_read(ConnId(1)));
}

fn linearizable(xid: i32, request: &Request<'_>) -> Vec<u8> {
    framed(|out| {
        RequestHeader { xid: Xid(xid), op: request.op().to_wire() | RequestHeader::LINEARIZABLE }.encode(out);
        request.encode(out);
    })
}

/// A world whose client 1 knows the extensions.
fn with_extensions(path: &str) -> World {
    let mut world = World::new();
    world.commit([creates(path)]);
    let conn = ConnId(1);
    world.shard.connected(0, conn, peer(1));
    world.receive(1, &connect_request_of(EXTENDED_PROTOCOL, 0, 10_000, 0, Some(false)));
    world.submissions();
    world.attach(1);
    let answer = world.bytes(1);
    let (payload, _) = next_frame(&answer, usize::MAX).expect("well formed").expect("whole");
    let response = ConnectResponse::from_bytes(payload).expect("an answer");
    assert_eq!(response.protocol_version, EXTENDED_PROTOCOL);
    world
}

#[test]
fn a_linearizable_read_waits_until_the_server_has_all_that_was_committed() {
    let mut world = with_extensions("/a");
    world.receive(1, &linearizable(1, &get_data("/a", false)));
    world.send(1, 2, &get_data("/a", false));
    assert!(matches!(world.submissions()[..], [Submission { what: Submitted::Sync, .. }]));
    world.commit([sets("/a", b"theirs")]);
    assert_eq!(world.frames(1), []);
    world.shard.deliver(0, ToShard::Synced { conn: ConnId(1) });
    let frames = world.frames(1);
    assert_eq!(outline(&frames), ["reply 1 at 2: Ok", "reply 2 at 2: Ok"]);
    assert_eq!(data_of(&frames[0]), b"theirs");
}

#[test]
fn a_write_behind_a_linearizable_read_is_not_seen_by_it() {
    let mut world = with_extensions("/a");
    world.receive(1, &linearizable(1, &get_data("/a", false)));
    world.send(1, 2, &set_data("/a", b"mine"));
    assert_eq!(world.submissions().len(), 1, "the write is held back");
    world.shard.deliver(0, ToShard::Synced { conn: ConnId(1) });
    assert_eq!(data_of(&world.frames(1)[0]), b"");
    world.shard.next_readable();
    assert!(matches!(world.submissions()[..], [Submission { what: Submitted::Write { .. }, .. }]));
}

#[test]
fn a_client_with_extensions_closes_its_session_and_pings_like_any_other() {
    let mut world = with_extensions("/a");
    world.send(1, -2, &Request::Ping);
    assert_eq!(outline(&world.frames(1)), ["reply -2 at 1: Ok"]);
    world.send(1, 1, &Request::CloseSession);
    let submissions = world.submissions();
    assert!(
        matches!(
            submissions[..],
            [Submission { what: Submitted::Write { op: OpCode::CloseSession, .. }, .. }]
        ),
        "{submissions:?}"
    );
}

#[test]
fn a_client_that_did_not_ask_for_extensions_has_none() {
    let mut world = World::with_znodes(&["/a"]);
    world.receive(1, &linearizable(1, &get_data("/a", false)));
    assert_eq!(outline(&world.frames(1)), ["reply 1 at -1: Unimplemented"]);
    assert!(world.is_closed(1));
}

#[test]
fn an_unparsable_body_is_answered_in_order_and_the_connection_stays() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &set_data("/a", b"new"));
    world.receive(1, &raw_request(2, OpCode::GetData.to_wire(), &[0, 0]));
    world.receive(1, &raw_request(3, OpCode::Create.to_wire(), &[]));
    assert_eq!(world.frames(1), []);
    world.commit_of(1, 1, sets("/a", b"new"));
    world.send(1, 4, &get_data("/a", false));
    let expected = [
        "reply 1 at 2: Ok",
        "reply 2 at 2: MarshallingError",
        "reply 3 at 2: MarshallingError",
        "reply 4 at 2: Ok",
    ];
    assert_eq!(outline(&world.frames(1)), expected);
}

#[test]
fn an_unknown_opcode_is_answered_in_order_and_closes() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &set_data("/a", b"new"));
    world.receive(1, &raw_request(2, 999, &[]));
    world.send(1, 3, &get_data("/a", false));
    assert_eq!(world.take(1), (Vec::new(), false));
    world.commit_of(1, 1, sets("/a", b"new"));
    let (bytes, closed) = world.take(1);
    assert_eq!(outline(&frames(&bytes)), ["reply 1 at 2: Ok", "reply 2 at -1: Unimplemented"]);
    assert!(closed);
}

#[test]
fn internal_opcodes_are_refused() {
    for op in [OpCode::Check, OpCode::DeleteContainer, OpCode::CreateSession, OpCode::Error] {
        let mut world = World::with_znodes(&[]);
        world.receive(1, &raw_request(1, op.to_wire(), &[]));
        let (bytes, closed) = world.take(1);
        assert_eq!(frames(&bytes), [failure(1, -1, ErrorCode::Unimplemented)], "{op:?}");
        assert!(closed);
        assert!(world.submissions().is_empty());
    }
}

#[test]
fn a_closed_session_is_answered_then_closed_and_not_detached() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &Request::CloseSession);
    world.send(1, 2, &get_data("/a", false));
    assert!(matches!(world.submissions()[..], [Submission { what: Submitted::Write { .. }, .. }]));
    world.commit_of(1, 1, TxnOp::CloseSession);
    let (bytes, closed) = world.take(1);
    assert_eq!(outline(&frames(&bytes)), ["reply 1 at 2: Ok"]);
    assert!(closed);
    world.shard.disconnected(0, ConnId(1));
    assert!(world.submissions().is_empty());
}

#[test]
fn a_write_of_a_moved_session_is_closed_without_a_word() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &set_data("/a", b"new"));
    world.commit_of(1, 1, TxnOp::Error(ErrorCode::SessionMoved));
    assert_eq!(world.take(1), (Vec::new(), true));
}

#[test]
fn an_auth_reply_overtakes_others_under_zxid_0() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &set_data("/a", b"new"));
    let auth =
        ringkeeper_wire::AuthRequest { auth_type: 0, scheme: Some("digest".into()), auth: Some(b"u:p") };
    world.send(1, -4, &Request::Auth(auth));
    assert_eq!(world.frames(1), [reply(-4, 0, None)]);
}

/// There is no transaction that would answer it.
#[test]
fn the_close_of_a_local_session_is_answered_behind_what_was_asked_before_and_not_detached() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 1, &set_data("/a", b"new"));
    world.send(1, 2, &get_data("/a", false));
    world.send(1, 3, &Request::CloseSession);
    world.submissions();
    world.shard.deliver(0, ToShard::Closed { conn: ConnId(1) });
    assert_eq!(world.frames(1), []);
    let group = world.group(vec![(Some((1, 1)), sets("/a", b"new"))]);
    world.publish(vec![group]);
    let (bytes, closed) = world.take(1);
    assert_eq!(
        outline(&frames(&bytes)),
        ["reply 1 at 2: Ok", "reply 2 at 2: Ok", "reply 3 at 2: Ok"],
        "all at the zxid of what they show"
    );
    assert!(closed);
    world.shard.disconnected(0, ConnId(1));
    assert!(world.submissions().is_empty());
    assert_eq!(world.shard.report().outstanding, 0);
}
