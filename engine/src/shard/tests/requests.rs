//! What reads and writes are answered with.

use ringkeeper_wire::{
    AclEntry, AuthRequest, CheckRequest, ClientInfo, Create2Response, CreateRequest, CreateResponse,
    GetChildren2Response, GetEphemeralsRequest, GetEphemeralsResponse, MultiOp, MultiReadOp,
    MultiReadRequest, MultiRequest, MultiResponse, MultiResult, PathWatchRequest, Perms, SaslRequest,
    SetSaslResponse, WhoAmIResponse,
};

use ringkeeper_wire::digest_md5::{DIGEST_URI, Proof, REALM, Secret};

use super::*;
use crate::limits::{Limit, Limits};
use crate::metrics::Totals;
use crate::sasl::{Answer, LoginError, Users};
use crate::txn::FailedMulti;

fn body(frame: &Frame) -> &[u8] {
    let Frame::Reply { body, code: ErrorCode::Ok, .. } = frame else { panic!("{frame:?} is no success") };
    body
}

fn auth<'a>(scheme: &'a str, data: &'a [u8]) -> Request<'a> {
    Request::Auth(AuthRequest { auth_type: 0, scheme: Some(scheme.into()), auth: Some(data) })
}

#[test]
fn children_come_with_the_stat_of_their_parent() {
    let mut world = World::with_znodes(&["/a", "/a/b"]);
    let request = PathWatchRequest { path: "/a".into(), watch: false };
    world.send(1, 1, &Request::GetChildren2(request));
    let stat = world.state.znode("/a").expect("created").stat();
    let children = ["b".to_owned()];
    let expected = GetChildren2Response { children: children.as_slice().into(), stat };
    assert_eq!(world.frames(1), [reply(1, 2, Some(Response::GetChildren2(expected)))]);
}

#[test]
fn reads_of_what_is_not_there_say_so() {
    let mut world = World::with_znodes(&[]);
    for request in
        [get_data("/a", false), get_children("/a/", false), exists("a", false), get_data("", false)]
    {
        world.send(1, 1, &request);
        assert_eq!(world.frames(1), [failure(1, 0, ErrorCode::NoNode)], "{request:?}");
    }
    world.send(1, 2, &exists("/a\0", false));
    assert_eq!(world.frames(1), [failure(2, 0, ErrorCode::BadArguments)]);
}

#[test]
fn a_read_runs_under_the_identities_of_its_time() {
    let mut world = World::with_znodes(&["/b"]);
    world.commit([creates_with("/a", only(&crate::acl::DigestAlgorithm::default().id("u:p")))]);
    world.send(1, 1, &set_data("/b", b"x"));
    world.send(1, 2, &get_data("/a", false));
    world.send(1, -4, &auth("digest", b"u:p"));
    world.send(1, 3, &get_data("/a", false));
    world.frames(1);
    world.commit_of(1, 1, sets("/b", b"x"));
    let expected = ["reply 1 at 3: Ok", "reply 2 at 3: NoAuth", "reply 3 at 3: Ok"];
    assert_eq!(outline(&world.frames(1)), expected);
}

#[test]
fn a_multi_read_answers_each_operation_by_itself() {
    let mut world = World::with_znodes(&["/a", "/a/b"]);
    let read = |path| PathWatchRequest { path, watch: true };
    let ops = [
        MultiReadOp::GetData(read("/a/b".into())),
        MultiReadOp::GetData(read("/none".into())),
        MultiReadOp::GetChildren(read("/a".into())),
    ];
    world.send(1, 1, &Request::MultiRead(MultiReadRequest::from(&ops[..])));
    let stat = world.state.znode("/a/b").expect("created").stat();
    let children = ["b".to_owned()];
    let results = [
        MultiResult::Data(Some(&[]), stat),
        MultiResult::Error(ErrorCode::NoNode.to_wire()),
        MultiResult::Children(children.as_slice().into()),
    ];
    let expected = Response::Multi(MultiResponse::from(&results[..]));
    assert_eq!(world.frames(1), [reply(1, 2, Some(expected))]);
    assert_eq!(world.shard.report().watches.watches, 0);
}

#[test]
fn who_am_i_shows_users_and_no_secrets() {
    let mut world = World::with_znodes(&[]);
    world.send(1, -4, &auth("digest", b"user:secret"));
    world.frames(1);
    world.send(1, 1, &Request::WhoAmI);
    let frames = world.frames(1);
    let response = WhoAmIResponse::from_bytes(body(&frames[0])).expect("a WhoAmIResponse");
    let infos: Vec<ClientInfo<'_>> = response.client_info.iter().collect();
    let info = |scheme: &'static str, user: &'static str| ClientInfo {
        auth_scheme: scheme.into(),
        user: user.into(),
    };
    assert_eq!(infos, [info("ip", "10.0.0.1"), info("digest", "user")]);
}

#[test]
fn ephemerals_are_those_of_the_own_session() {
    let mut world = World::with_znodes(&[]);
    let owned = |path: &str, number| {
        let Update::Create(create) = create_update(path, Acl::OPEN) else { unreachable!("made so") };
        TxnOp::Update(Update::Create(Create { raw_owner: session(number).0, ..create }))
    };
    world.commit([owned("/mine", 1), owned("/my", 1), owned("/theirs", 2)]);
    world.send(1, 1, &Request::GetEphemerals(GetEphemeralsRequest { prefix_path: Some("/mi".into()) }));
    let paths = ["/mine".to_owned()];
    let expected = GetEphemeralsResponse { ephemerals: paths.as_slice().into() };
    assert_eq!(world.frames(1), [reply(1, 3, Some(Response::GetEphemerals(expected)))]);
}

#[test]
fn refused_credentials_are_answered_and_close() {
    for (scheme, data) in [("nonsense", &b"u:p"[..]), ("world", b"anyone")] {
        let mut world = World::with_znodes(&[]);
        world.send(1, -4, &auth(scheme, data));
        let (bytes, closed) = world.take(1);
        assert_eq!(frames(&bytes), [failure(-4, 0, ErrorCode::AuthFailed)]);
        assert!(closed);
    }
}

#[test]
fn a_connection_has_only_so_many_identities() {
    let mut world = World::with_znodes(&[]);
    for number in 1..Limits::default().of(Limit::Identities) {
        world.send(1, -4, &auth("digest", format!("u{number}:p").as_bytes()));
    }
    world.send(1, -4, &auth("digest", b"u1:p"));
    assert!(!world.is_closed(1));
    world.send(1, -4, &auth("digest", b"another:p"));
    assert!(world.is_closed(1));
}

#[test]
fn the_identities_of_a_connection_have_only_so_many_bytes() {
    let mut world = World::with_znodes(&[]);
    for number in 0..7 {
        world.send(1, -4, &auth("digest", format!("{number}{}:p", "u".repeat(10_000)).as_bytes()));
    }
    assert!(world.is_closed(1));
    assert_eq!(world.close_reasons(), [CloseReason::Limit(Limit::IdentityBytes)]);
}

#[test]
fn requests_beyond_a_bound_are_refused_here_and_counted_and_named() {
    let open = [AclEntry { perms: Perms::ALL, scheme: "world".into(), id: "anyone".into() }];
    let auth_entries: Vec<_> = (0..460)
        .map(|n| AclEntry { perms: Perms(1 + n % 30), scheme: "auth".into(), id: n.to_string() })
        .collect();
    let create = |acl| CreateRequest { path: "/x".into(), data: None, acl: Some(acl), flags: 0 };
    let ops = vec![MultiOp::Check(CheckRequest { path: "/a".into(), version: -1 }); 10_001];
    let mut world = World::with_znodes(&["/a"]);
    for number in 0..40 {
        world.send(1, -4, &auth("digest", format!("u{number}:p").as_bytes()));
    }
    world.bytes(1);
    for (xid, request, code, limit) in [
        (1, Request::Multi((&*ops).into()), ErrorCode::BadArguments, Limit::MultiOperations),
        (2, Request::Create(create((&*auth_entries).into())), ErrorCode::InvalidAcl, Limit::AclEntries),
    ] {
        world.send(1, xid, &request);
        assert_eq!(world.frames(1), [failure(xid, 1, code)]);
        assert!(world.submissions().is_empty());
        let conn = ConnId(1);
        assert_eq!(world.shard.next_effect(), Some(Effect::Limited { conn, limit }));
        assert_eq!(world.shard.report().counters.limits.of(limit), 1);
    }
    world.send(1, 3, &Request::Create(create((&open[..]).into())));
    assert_eq!(world.submissions().len(), 1);
}

#[test]
fn a_multi_read_answers_no_more_bytes_than_the_bound() {
    let mut world = World::with(Settings { slice_visits_max: 100_000, ..Settings::default() });
    world.commit([creates("/a")]);
    world.client(1);
    world.commit([sets("/a", &[1; 500_000])]);
    let read =
        |path: &'static str| MultiReadOp::GetData(PathWatchRequest { path: path.into(), watch: false });
    let (few, many) = (vec![read("/a"); 16], vec![read("/a"); 17]);
    world.send(1, 1, &Request::MultiRead((&*many).into()));
    assert_eq!(world.frames(1), [failure(1, 2, ErrorCode::BadArguments)]);
    world.send(1, 2, &Request::MultiRead((&*few).into()));
    assert!(world.bytes(1).len() > 8_000_000);
    assert_eq!(world.shard.report().counters.limits.of(Limit::MultiReadBytes), 1);
}

#[test]
fn enforced_authentication_comes_before_anything_else() {
    let schemes = vec!["digest".to_owned()];
    let mut world = World::with(Settings { enforced_auth_schemes: schemes, ..Settings::default() });
    world.client(1);
    world.client(2);
    world.send(1, -4, &auth("digest", b"u:p"));
    world.send(1, 1, &exists("/", false));
    assert_eq!(outline(&world.frames(1)), ["reply -4 at 0: Ok", "reply 1 at 0: Ok"]);
    world.send(2, 1, &exists("/", false));
    let (bytes, closed) = world.take(2);
    assert_eq!(frames(&bytes), [failure(1, 0, ErrorCode::SessionClosedRequireSaslAuth)]);
    assert!(closed);
}

/// The server's token in the answer to a token; an empty one of the client begins a login.
fn sasl(world: &mut World, client: u64, token: &[u8]) -> Option<String> {
    world.send(client, 5, &Request::Sasl(SaslRequest { token: Some(token) }));
    let frames = world.frames(client);
    let [frame] = &*frames else { panic!("{frames:?} is not one answer") };
    let response = SetSaslResponse::from_bytes(body(frame)).expect("well formed");
    response.token.map(|token| String::from_utf8(token.to_vec()).expect("text"))
}

/// A client's response to the server's challenge.
fn response(challenge: &str, user: &str, password: &str) -> String {
    let nonce = challenge.split('"').nth(3).expect("the second quoted value");
    let secret = &Secret::new(user, REALM, password);
    let (nonce_bytes, digest_uri) = (nonce.as_bytes(), DIGEST_URI.as_bytes());
    let proof = Proof { secret, nonce: nonce_bytes, cnonce: b"c", authzid: None, digest_uri }.response();
    format!(
        "username={user},realm={REALM},nonce=\"{nonce}\",cnonce=c,digest-uri=\"{DIGEST_URI}\",\
         response={proof}"
    )
}

fn world_of_bob(change: impl FnOnce(&mut Settings)) -> World {
    let mut users = Users::default();
    users.insert("bob", "pw");
    let super_users = std::collections::BTreeSet::from(["bob".to_owned()]);
    let sasl = crate::sasl::Settings { users: Some(users), super_users, ..Default::default() };
    let mut settings = Settings { sasl, ..Settings::default() };
    change(&mut settings);
    let mut world = World::with(settings);
    world.client(1);
    world
}

#[test]
fn sasl_succeeds_without_a_token_where_nobody_can_log_in() {
    let mut world = World::with_znodes(&[]);
    assert_eq!(sasl(&mut world, 1, b"token"), None);
    let ignored = Effect::LoginIgnored { conn: ConnId(1), error: None };
    assert_eq!(world.shard.next_effect(), Some(ignored));
}

#[test]
fn who_logs_in_has_the_identities_of_the_user() {
    let mut world = world_of_bob(|settings| settings.enforced_auth_schemes = vec!["sasl".to_owned()]);
    let challenge = sasl(&mut world, 1, b"").expect("a challenge");
    let last = sasl(&mut world, 1, response(&challenge, "bob", "pw").as_bytes());
    assert!(last.expect("a proof of the server").starts_with("rspauth="));
    world.send(1, 6, &Request::WhoAmI);
    let frames = world.frames(1);
    let identities = WhoAmIResponse::from_bytes(body(&frames[0])).expect("well formed").client_info;
    let schemes: Vec<_> = identities.iter().map(|info| info.auth_scheme).collect();
    assert_eq!(schemes, ["ip", "sasl", "super"]);
}

#[test]
fn a_login_that_fails_closes_the_connection_unless_such_clients_may_stay() {
    let fail = |world: &mut World| {
        let challenge = sasl(world, 1, b"").expect("a challenge");
        let token = response(&challenge, "bob", "guess");
        world.send(1, 6, &Request::Sasl(SaslRequest { token: Some(token.as_bytes()) }));
        let (bytes, closed) = world.take(1);
        assert_eq!(world.shard.report().counters.auth_failed, 1);
        (frames(&bytes), closed)
    };
    let no_token = (-1_i32).to_be_bytes().to_vec();
    let answer = |code| vec![Frame::Reply { xid: 6, zxid: 0, code, body: no_token.clone() }];
    assert_eq!(fail(&mut world_of_bob(|_| ())), (answer(ErrorCode::AuthFailed), true));
    let stays = |settings: &mut Settings| settings.sasl.failed_clients_stay = true;
    let mut world = world_of_bob(stays);
    assert_eq!(fail(&mut world), (answer(ErrorCode::Ok), false));
    assert_eq!(sasl(&mut world, 1, b""), None);
    let required = world_of_bob(|settings| {
        stays(settings);
        settings.enforced_auth_schemes = vec!["digest".to_owned(), "sasl".to_owned()];
    });
    assert_eq!(fail(&mut { required }), (answer(ErrorCode::SessionClosedRequireSaslAuth), true));
}

/// A world with a client that has sent a ticket of Kerberos, and a request behind it.
fn world_with_a_ticket() -> World {
    let mut world = world_of_bob(|settings| {
        settings.sasl.kerberos = true;
        settings.enforced_auth_schemes = vec!["sasl".to_owned()];
    });
    world.send(1, 5, &Request::Sasl(SaslRequest { token: Some(b"ticket") }));
    world.send(1, 6, &exists("/", false));
    let token = Effect::Token { conn: ConnId(1), token: b"ticket".to_vec() };
    assert_eq!((world.shard.next_effect(), world.shard.next_effect()), (Some(token), None));
    world
}

#[test]
fn requests_wait_for_a_token_that_is_evaluated_beside_the_shard() {
    let mut world = world_with_a_ticket();
    assert_eq!((world.frames(1), world.shard.wants_read(ConnId(1))), (vec![], false));
    let answer = |token: &[u8], user: Option<&str>| {
        Ok(Answer { token: Some(token.to_vec()), user: user.map(str::to_owned) })
    };
    // For another connection, or for one that has ended.
    world.shard.token_evaluated(0, ConnId(2), answer(b"", Some("bob")));
    world.shard.token_evaluated(0, ConnId(1), answer(b"", Some("bob@R")));
    assert_eq!(outline(&world.frames(1)), ["reply 5 at 0: Ok", "reply 6 at 0: Ok"]);
    assert!(world.shard.wants_read(ConnId(1)));
    // Nobody waits for this one.
    world.shard.token_evaluated(0, ConnId(1), answer(b"", None));
    assert_eq!(world.frames(1), []);
    world.send(1, 7, &Request::WhoAmI);
    let frames = world.frames(1);
    let identities = WhoAmIResponse::from_bytes(body(&frames[0])).expect("well formed").client_info;
    let users: Vec<_> = identities.iter().map(|info| info.user).collect();
    assert_eq!(users, ["10.0.0.1", "bob@R"]);
}

#[test]
fn a_ticket_that_is_refused_closes_the_connection_before_the_requests_behind_it() {
    let mut world = world_with_a_ticket();
    world.shard.token_evaluated(0, ConnId(1), Err(LoginError::Kerberos("expired".into())));
    let (bytes, closed) = world.take(1);
    assert_eq!(outline(&frames(&bytes)), ["reply 5 at 0: SessionClosedRequireSaslAuth"]);
    assert!(closed);
}

#[test]
fn passwords_are_taken_beside_tickets() {
    let mut world = world_of_bob(|settings| settings.sasl.kerberos = true);
    let challenge = sasl(&mut world, 1, b"").expect("a challenge");
    assert!(sasl(&mut world, 1, response(&challenge, "bob", "pw").as_bytes()).is_some());
}

#[test]
fn creates_are_answered_with_the_path_or_with_the_stat_too() {
    let mut world = World::with_znodes(&[]);
    let request = ringkeeper_wire::CreateRequest { path: "/a".into(), data: None, acl: None, flags: 2 };
    world.send(1, 1, &Request::Create(request.clone()));
    world.commit_of(1, 1, creates("/a0000000000"));
    world.send(1, 2, &Request::Create2(request));
    world.commit_of(1, 2, creates("/a0000000001"));
    let stat = world.state.znode("/a0000000001").expect("created").stat();
    let expected = [
        reply(1, 1, Some(Response::Create(CreateResponse { path: "/a0000000000".into() }))),
        reply(2, 2, Some(Response::Create2(Create2Response { path: "/a0000000001".into(), stat }))),
    ];
    assert_eq!(world.frames(1), expected);
}

#[test]
fn failed_writes_are_answered_with_their_code() {
    let mut world = World::with_znodes(&[]);
    world.send(1, 1, &set_data("/a", b""));
    world.commit_of(1, 1, TxnOp::Error(ErrorCode::BadVersion));
    assert_eq!(world.frames(1), [failure(1, 1, ErrorCode::BadVersion)]);
}

#[test]
fn a_failed_multi_is_a_success_full_of_failures() {
    let mut world = World::with_znodes(&[]);
    world.send(1, 1, &Request::Multi(MultiRequest::from(&[][..])));
    world.commit_of(1, 1, TxnOp::FailedMulti(FailedMulti { ops: 3, failed: 1, code: ErrorCode::NoNode }));
    let results = [MultiResult::Error(0), MultiResult::Error(-101), MultiResult::Error(-2)];
    let expected = Response::Multi(MultiResponse::from(&results[..]));
    assert_eq!(world.frames(1), [reply(1, 1, Some(expected))]);
}

#[test]
fn a_write_is_submitted_with_its_body_and_its_senders_identities() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 7, &set_data("/a", b"new"));
    let requests = world.shard.take_requests();
    let Submitted::Write { xid, op, body, identities, read_barrier } = &requests.submissions[0].what else {
        panic!("{requests:?}");
    };
    assert_eq!((*xid, *op, *read_barrier), (Xid(7), OpCode::SetData, false));
    assert_eq!(Request::decode(*op, &requests.bytes[body.clone()]), Ok(set_data("/a", b"new")));
    assert_eq!(identities.as_ref().expect("named")[0].scheme, "ip");
}

#[test]
fn pings_are_answered_under_their_own_xid() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 5, &Request::Ping);
    assert_eq!(world.frames(1), [reply(-2, 1, None)]);
}

#[test]
fn a_latency_ends_when_the_socket_has_taken_the_reply() {
    let mut world = World::with_znodes(&["/a"]);
    world.now_us = 10;
    world.send(1, 1, &get_data("/a", false));
    world.now_us = 25;
    world.frames(1);
    let times = |world: &World| {
        let connection = world.shard.detailed_report().connections[0].clone();
        let Totals { count, sum, min, max } = connection.latency;
        (count, sum, min, max, connection.last_latency_us)
    };
    assert_eq!(times(&world), (1, 15, 15, 15, 15));

    // Two requests of one pass, of which one waits for the other: each counts from the pass on.
    world.now_us = 100;
    world.send(1, 2, &set_data("/a", b""));
    world.send(1, 3, &get_data("/a", false));
    world.now_us = 140;
    world.commit_of(1, 2, sets("/a", b""));
    world.now_us = 150;
    world.frames(1);
    assert_eq!(times(&world), (3, 15 + 40 + 50, 15, 50, 50));
    assert_eq!(world.shard.report().latency, world.shard.detailed_report().connections[0].latency);
}

#[test]
fn statistics_count_frames_and_the_last_request() {
    let mut world = World::with_znodes(&["/a"]);
    world.send(1, 9, &get_data("/a", false));
    let report = world.shard.detailed_report();
    assert_eq!((report.connections.len(), report.counters.received, report.counters.sent), (2, 3, 3));
    let connection = &report.connections[0];
    assert_eq!((connection.received, connection.sent), (2, 2));
    assert_eq!((connection.last_op, connection.last_xid, connection.last_zxid), (Some(4), Xid(9), 1));
    world.shard.reset_counters();
    world.shard.reset_connections(0);
    let report = world.shard.detailed_report();
    assert_eq!((report.counters.received, report.connections[0].received), (0, 0));
    assert_eq!(report.connections[0].timeout_ms, 10_000);
}
