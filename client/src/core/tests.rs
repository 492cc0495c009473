//! The core without sockets: a scripted server on the other side, time as the tests say.

use proptest::prelude::*;
use ringkeeper_wire::digest_md5::{self, Directives, Proof, REALM, Secret};
use ringkeeper_wire::frame::{framed, next_frame};
use ringkeeper_wire::scram;
use ringkeeper_wire::{
    AddWatchMode, ConnectRequest, ConnectResponse, EXTENDED_PROTOCOL, ErrorCode, EventType, OpCode,
    PathWatchRequest, Record, ReplyHeader, Request, RequestHeader, SaslRequest, SessionId, SetSaslResponse,
    SyncRequest, Xid, Zxid, encode_notification, xid,
};

use super::{
    Admission, Config, Core, Credential, Link, Login, Loss, Mechanism, Millis, Sink, User, WatchId,
    WatchRequest,
};
use crate::{Call, Error, EventKind, SessionState, WatchEvent};

/// What the program was told, in order.
#[derive(Debug, PartialEq)]
enum Told {
    Reply(u32, Result<usize, Error>),
    Fired(&'static str, EventKind),
    Seen(&'static str, EventKind, String),
    Ended(&'static str, Error),
    State(SessionState),
}

#[derive(Default)]
struct Program {
    told: Vec<Told>,
    /// Watches that it has given up.
    unwanted: Vec<&'static str>,
}

impl Sink for Program {
    type Request = u32;
    type Watcher = &'static str;

    fn reply(&mut self, request: u32, outcome: Result<&[u8], Error>) {
        self.told.push(Told::Reply(request, outcome.map(<[u8]>::len)));
    }

    fn wants(&self, watcher: &&'static str) -> bool {
        !self.unwanted.contains(watcher)
    }

    fn fired(&mut self, watcher: &'static str, event: WatchEvent) {
        self.told.push(Told::Fired(watcher, event.kind));
    }

    fn seen(&mut self, watcher: &&'static str, event: WatchEvent) {
        self.told.push(Told::Seen(watcher, event.kind, event.path));
    }

    fn ended(&mut self, watcher: &'static str, reason: Error) {
        self.told.push(Told::Ended(watcher, reason));
    }

    fn state(&mut self, state: SessionState) {
        self.told.push(Told::State(state));
    }
}

const TIMEOUT_MS: u64 = 3_000;
const SESSION: SessionId = SessionId(0x17);

fn config() -> Config {
    Config {
        session_timeout_ms: 3_000,
        connect_timeout_ms: Some(10_000),
        server_count: 2,
        read_only: false,
        linearizable_reads: false,
        user: None,
        credentials: Vec::new(),
        requests_max: 100,
        bytes_max: 1 << 20,
        request_len_max: 1 << 20,
        reply_len_max: 1 << 20,
        seed: 1,
        chroot: String::new(),
        resume: None,
        #[cfg(feature = "mutations")]
        mutation: crate::mutation::Mutation::None,
    }
}

fn path_of(number: u32) -> String {
    format!("/{number}")
}

/// What [`Bench::request`] asks.
fn call(number: u32) -> Call {
    Call::new("get_data", path_of(number))
}

/// A core, its program, and the scripted other end of its connection.
struct Bench {
    core: Core<Program>,
    program: Program,
    now: Millis,
    zxid: i64,
}

impl Bench {
    fn new(config: Config) -> Self {
        let now = Millis(1_000);
        Self { core: Core::new(config, now), program: Program::default(), now, zxid: 0 }
    }

    /// Connected, with an empty record of what the program was told.
    fn connected(config: Config) -> Self {
        let mut bench = Self::new(config);
        bench.connect();
        assert_eq!(bench.told(), [Told::State(SessionState::Connected)]);
        bench
    }

    fn attempt(&self) -> u64 {
        match self.core.link() {
            Link::Open { attempt, .. } => attempt,
            Link::Down => panic!("no connection is wanted"),
        }
    }

    fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.program.told)
    }

    /// Lets time pass up to the core's own deadlines, and no further than `ms`.
    fn pass(&mut self, ms: u64) {
        let end = self.now.plus(ms);
        while let Some(deadline) = self.core.deadline().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            self.core.handle_timeout(self.now, &mut self.program);
        }
        self.now = end;
    }

    /// Everything the core wants to send, as frames.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        let (mut bytes, mut frames) = (Vec::new(), Vec::new());
        self.core.take_output(self.now, &mut bytes);
        let mut rest = bytes.as_slice();
        while let Some((payload, len)) = next_frame(rest, usize::MAX).expect("well-formed frames") {
            frames.push(payload.to_vec());
            rest = &rest[len..];
        }
        assert_eq!(rest, b"", "whole frames alone");
        frames
    }

    fn sent_ops(&mut self) -> Vec<(Xid, OpCode)> {
        let header = |frame: Vec<u8>| {
            let RequestHeader { xid, op } = RequestHeader::from_bytes(&frame).expect("a header");
            (xid, OpCode::from_wire(op).expect("an opcode"))
        };
        self.sent().into_iter().map(header).collect()
    }

    fn receive(&mut self, bytes: &[u8]) -> usize {
        let attempt = self.attempt();
        self.core.handle_input(self.now, attempt, bytes, &mut self.program)
    }

    fn handshake(&mut self) -> Vec<u8> {
        let attempt = self.attempt();
        self.core.handle_connected(attempt);
        let mut frames = self.sent();
        assert_eq!(frames.len(), 1, "nothing before the session is served");
        frames.remove(0)
    }

    fn grant(&mut self, timeout_ms: i32, read_only: bool) {
        self.grant_by(0, timeout_ms, read_only);
    }

    fn grant_by(&mut self, protocol_version: i32, timeout_ms: i32, read_only: bool) {
        let response = ConnectResponse {
            protocol_version,
            timeout_ms,
            session_id: SESSION,
            password: Some(&[7; 16]),
            read_only: Some(read_only),
        };
        let bytes = framed(|out| response.encode(out));
        assert_eq!(self.receive(&bytes), bytes.len());
    }

    fn connect(&mut self) {
        self.handshake();
        self.grant(3_000, false);
    }

    fn request(&mut self, number: u32) {
        let submitted = self.core.submit(OpCode::GetData, number, None, |out| {
            PathWatchRequest { path: path_of(number).into(), watch: false }.encode(out);
        });
        assert_eq!(submitted, Ok(Admission::Queued));
    }

    fn watch(&mut self, op: OpCode, path: &str, watcher: &'static str) -> WatchId {
        let id = self.core.new_watch_id();
        let mode = (op == OpCode::AddWatch).then_some(AddWatchMode::PersistentRecursive);
        let watch = WatchRequest { id, path: path.to_owned(), watcher, mode };
        let body = PathWatchRequest { path: path.into(), watch: true };
        let submitted = self.core.submit(op, 0, Some(watch), |out| body.encode(out));
        assert_eq!(submitted, Ok(Admission::Queued));
        id
    }

    fn reply(&mut self, xid: Xid, err: ErrorCode) {
        self.zxid += 1;
        self.reply_with(xid, self.zxid, err);
    }

    fn reply_with(&mut self, xid: Xid, zxid: i64, err: ErrorCode) {
        let header = ReplyHeader::new(xid, zxid, err);
        let bytes = framed(|out| header.encode(out));
        self.receive(&bytes);
    }

    /// Answers everything that is sent.
    fn answer_all(&mut self) {
        for (xid, _) in self.sent_ops() {
            self.reply(xid, ErrorCode::Ok);
        }
    }

    fn notify(&mut self, event: EventType, path: &str) {
        let mut bytes = Vec::new();
        encode_notification(&mut bytes, self.zxid + 1, event, path);
        self.receive(&bytes);
    }

    fn lose(&mut self) {
        let attempt = self.attempt();
        let loss = Loss::Broken("cut".to_owned());
        self.core.handle_lost(self.now, attempt, loss, &mut self.program);
    }
}

#[test]
fn requests_made_before_the_session_wait_for_it() {
    let mut bench = Bench::new(config());
    bench.request(1);
    let handshake = bench.handshake();
    let request = ConnectRequest::from_bytes(&handshake).expect("a handshake");
    assert_eq!((request.session_id, request.timeout_ms, request.last_zxid_seen), (SessionId(0), 3_000, 0));
    bench.grant(3_000, false);
    assert_eq!(bench.sent_ops(), [(Xid(1), OpCode::GetData)]);
}

#[test]
fn linearizable_reads_are_asked_of_a_server_that_has_them() {
    let mut bench = Bench::new(Config { linearizable_reads: true, ..config() });
    let handshake = bench.handshake();
    let request = ConnectRequest::from_bytes(&handshake).expect("a handshake");
    assert_eq!(request.protocol_version, EXTENDED_PROTOCOL);
    let first = bench.attempt();
    bench.grant(3_000, false);
    assert_ne!(bench.attempt(), first, "a server without them is passed over");
    assert_eq!(bench.core.state(), SessionState::Connecting);
    bench.handshake();
    bench.grant_by(EXTENDED_PROTOCOL, 3_000, false);
    bench.request(1);
    let submitted = bench.core.submit(OpCode::Sync, 2, None, |out| {
        SyncRequest { path: Some("/".into()) }.encode(out);
    });
    assert_eq!(submitted, Ok(Admission::Queued));
    let ops: Vec<i32> =
        bench.sent().iter().map(|frame| RequestHeader::from_bytes(frame).expect("a header").op).collect();
    let read = OpCode::GetData.to_wire() | RequestHeader::LINEARIZABLE;
    assert_eq!(ops, [read, OpCode::Sync.to_wire()]);
}

#[test]
fn what_was_sent_is_uncertain_and_what_was_not_is_not_executed() {
    let mut bench = Bench::connected(config());
    bench.request(1);
    bench.request(2);
    assert_eq!(bench.sent_ops().len(), 2);
    bench.request(3);
    bench.lose();
    assert_eq!(
        bench.told(),
        [
            Told::Reply(1, Err(Error::ConnectionLoss(call(1)))),
            Told::Reply(2, Err(Error::ConnectionLoss(call(2)))),
            Told::Reply(3, Err(Error::NotSent(call(3)))),
            Told::State(SessionState::Disconnected),
        ]
    );
    bench.connect();
    assert_eq!(bench.sent_ops(), [], "nothing is sent twice");
}

#[test]
fn a_reconnect_shows_session_password_and_last_zxid_to_another_server() {
    let mut bench = Bench::connected(config());
    let Link::Open { server: first, .. } = bench.core.link() else { panic!("connected") };
    bench.request(1);
    bench.answer_all();
    bench.lose();
    let Link::Open { server, .. } = bench.core.link() else { panic!("the next server at once") };
    assert_ne!(server, first);
    let handshake = bench.handshake();
    let request = ConnectRequest::from_bytes(&handshake).expect("a handshake");
    assert_eq!((request.session_id, request.last_zxid_seen), (SESSION, 1));
    assert_eq!(request.password, Some(&[7; 16][..]));
}

#[test]
fn events_do_not_move_the_last_zxid() {
    let mut bench = Bench::connected(config());
    bench.watch(OpCode::Exists, "/a", "watch");
    bench.answer_all();
    bench.notify(EventType::NodeDataChanged, "/a");
    assert_eq!(bench.core.last_zxid(), Zxid(1));
}

#[test]
fn a_client_pings_after_a_third_of_idleness_and_leaves_after_two() {
    let mut bench = Bench::connected(config());
    assert_eq!(bench.core.deadline(), Some(bench.now.plus(TIMEOUT_MS / 3)));
    bench.pass(TIMEOUT_MS / 3);
    assert_eq!(bench.sent_ops(), [(xid::PING, OpCode::Ping)]);
    bench.pass(TIMEOUT_MS / 3 - 1);
    assert_eq!(bench.core.state(), SessionState::Connected);
    bench.pass(1);
    assert_eq!(bench.told(), [Told::State(SessionState::Disconnected)]);
}

#[test]
fn answered_pings_keep_the_lease() {
    let mut bench = Bench::connected(config());
    for _ in 0..10 {
        let due = bench.core.deadline().expect("a ping is due");
        bench.pass(due.0 - bench.now.0);
        let sent = bench.now;
        assert_eq!(bench.sent_ops(), [(xid::PING, OpCode::Ping)]);
        bench.pass(10);
        bench.reply(xid::PING, ErrorCode::Ok);
        assert_eq!(bench.core.lease_until(), sent.plus(TIMEOUT_MS), "counted from the sending");
    }
    assert_eq!(bench.told(), []);
}

#[test]
fn replies_to_pings_that_wait_unread_are_a_sign_of_life_and_no_lease() {
    let mut bench = Bench::connected(config());
    let lease = bench.core.lease_until();
    bench.pass(TIMEOUT_MS / 3);
    assert_eq!(bench.sent_ops(), [(xid::PING, OpCode::Ping)]);
    for _ in 0..10 {
        bench.pass(TIMEOUT_MS / 6);
        bench.reply_with(xid::PING, 0, ErrorCode::Ok);
    }
    assert_eq!(bench.core.state(), SessionState::Connected);
    assert_eq!(bench.core.lease_until(), lease);
    bench.reply(xid::PING, ErrorCode::Ok);
    assert!(bench.core.lease_until() > lease);
}

#[test]
fn the_lease_is_counted_from_a_request_that_was_answered() {
    let mut bench = Bench::connected(config());
    bench.pass(100);
    let sent = bench.now;
    bench.request(1);
    assert_eq!(bench.sent_ops().len(), 1);
    bench.pass(100);
    bench.request(2);
    assert_eq!(bench.sent_ops().len(), 1);
    bench.pass(100);
    bench.reply(Xid(1), ErrorCode::Ok);
    assert_eq!(bench.core.lease_until(), sent.plus(TIMEOUT_MS));
}

#[test]
fn a_session_lapses_when_nobody_confirms_it_and_may_come_back() {
    let mut bench = Bench::connected(config());
    let until = bench.core.lease_until();
    bench.lose();
    bench.request(1);
    bench.told();
    while bench.now < until {
        if bench.core.link() != Link::Down {
            bench.lose();
        }
        bench.pass(50);
        assert_eq!(bench.core.state() == SessionState::Lapsed, bench.now >= until);
    }
    assert!(bench.told().contains(&Told::Reply(1, Err(Error::NotSent(call(1))))));
    let refused = bench.core.submit(OpCode::GetData, 2, None, |_| {});
    assert_eq!(refused, Err((2, Error::NotSent(Call::new("get_data", "")))));
    while bench.core.link() == Link::Down {
        bench.pass(10);
    }
    bench.connect();
    assert_eq!(bench.told(), [Told::State(SessionState::Connected)]);
}

#[test]
fn an_expired_session_ends_everything() {
    let mut bench = Bench::connected(config());
    bench.watch(OpCode::Exists, "/a", "watch");
    bench.answer_all();
    bench.lose();
    bench.request(2);
    bench.told();
    bench.handshake();
    bench.grant(0, false);
    assert_eq!(
        bench.told(),
        [
            Told::State(SessionState::Expired),
            Told::Reply(2, Err(Error::SessionExpired)),
            Told::Ended("watch", Error::SessionExpired),
        ]
    );
    assert_eq!((bench.core.link(), bench.core.deadline()), (Link::Down, None));
}

#[test]
fn without_a_session_in_time_the_client_gives_up_and_says_why() {
    let mut bench = Bench::new(config());
    bench.request(1);
    for _ in 0..1_000 {
        if bench.core.link() != Link::Down {
            bench.lose();
        }
        bench.pass(10);
    }
    let why = Error::Unreachable("cut".to_owned());
    assert_eq!(bench.told(), [Told::State(SessionState::Unreachable), Told::Reply(1, Err(why))]);
}

#[test]
fn one_shot_watches_fire_once_before_the_reply_that_shows_the_change() {
    let mut bench = Bench::connected(config());
    bench.watch(OpCode::GetData, "/a", "data");
    bench.watch(OpCode::GetChildren2, "/a", "children");
    bench.answer_all();
    bench.request(1);
    assert_eq!(bench.sent_ops().len(), 1);
    bench.told();
    bench.notify(EventType::NodeDeleted, "/a");
    bench.notify(EventType::NodeCreated, "/a");
    bench.reply(Xid(3), ErrorCode::Ok);
    assert_eq!(
        bench.told(),
        [
            Told::Fired("data", EventKind::Deleted),
            Told::Fired("children", EventKind::Deleted),
            Told::Reply(1, Ok(0)),
        ]
    );
}

#[test]
fn a_watch_is_registered_only_where_the_server_has_one() {
    let mut bench = Bench::connected(config());
    bench.watch(OpCode::Exists, "/missing", "exists");
    bench.watch(OpCode::GetData, "/missing", "data");
    for (xid, _) in bench.sent_ops() {
        bench.reply(xid, ErrorCode::NoNode);
    }
    bench.told();
    bench.notify(EventType::NodeCreated, "/missing");
    assert_eq!(bench.told(), [Told::Fired("exists", EventKind::Created)]);
}

#[test]
fn a_forgotten_watch_is_not_told_and_not_restored() {
    let mut bench = Bench::connected(config());
    let id = bench.watch(OpCode::GetData, "/a", "watch");
    bench.answer_all();
    bench.told();
    bench.core.forget_watch("/a", id);
    bench.notify(EventType::NodeDataChanged, "/a");
    bench.lose();
    bench.connect();
    assert_eq!(bench.sent_ops(), []);
    assert_eq!(bench.told(), [Told::State(SessionState::Disconnected), Told::State(SessionState::Connected)]);
}

#[test]
fn a_watch_given_up_before_its_reply_is_not_registered() {
    let mut bench = Bench::connected(config());
    bench.watch(OpCode::GetData, "/a", "one-shot");
    bench.watch(OpCode::AddWatch, "/a", "tree");
    bench.program.unwanted = vec!["one-shot", "tree"];
    bench.answer_all();
    bench.told();
    bench.notify(EventType::NodeDataChanged, "/a");
    bench.lose();
    bench.connect();
    assert_eq!(bench.sent_ops(), []);
}

#[test]
fn recursive_watches_see_the_subtree_but_no_changed_children() {
    let mut bench = Bench::connected(config());
    bench.watch(OpCode::AddWatch, "/a", "tree");
    bench.answer_all();
    bench.told();
    for path in ["/a", "/a/b/c", "/ab", "/"] {
        bench.notify(EventType::NodeCreated, path);
    }
    bench.notify(EventType::NodeChildrenChanged, "/a");
    let seen = |path: &str| Told::Seen("tree", EventKind::Created, path.to_owned());
    assert_eq!(bench.told(), [seen("/a"), seen("/a/b/c")]);
}

#[test]
fn credentials_and_watches_are_restored_before_any_request() {
    let mut bench = Bench::connected(config());
    let credential = Credential { scheme: "digest".to_owned(), auth: b"u:p".to_vec() };
    assert_eq!(bench.core.add_credential(credential, 9), Ok(()));
    bench.watch(OpCode::GetData, "/d", "data");
    bench.watch(OpCode::GetChildren2, "/c", "child");
    bench.watch(OpCode::AddWatch, "/p", "tree");
    bench.answer_all();
    bench.lose();
    bench.request(1);
    bench.told();
    bench.connect();
    let frames = bench.sent();
    let ops: Vec<_> =
        frames.iter().map(|frame| RequestHeader::from_bytes(frame).expect("a header").xid).collect();
    assert_eq!(ops, [xid::AUTH, xid::SET_WATCHES, Xid(4)]);
    let body = Request::decode(OpCode::SetWatches2, &frames[1][RequestHeader::LEN..]).expect("decodes");
    let Request::SetWatches2(lists) = body else { panic!("setWatches2") };
    let paths = |list: ringkeeper_wire::StringList<'_>| list.iter().map(String::from).collect::<Vec<_>>();
    assert_eq!(paths(lists.data_watches), ["/d"]);
    assert_eq!(paths(lists.child_watches), ["/c"]);
    assert_eq!(paths(lists.persistent_recursive_watches), ["/p"]);
    assert_eq!(lists.relative_zxid, bench.core.last_zxid().to_wire());

    bench.reply(xid::AUTH, ErrorCode::Ok);
    bench.notify(EventType::NodeDataChanged, "/d");
    bench.notify(EventType::NodeCreated, "/p/a");
    bench.notify(EventType::NodeCreated, "/p/b");
    bench.reply(xid::SET_WATCHES, ErrorCode::Ok);
    let seen = |kind, path: &str| Told::Seen("tree", kind, path.to_owned());
    assert_eq!(
        bench.told(),
        [
            Told::State(SessionState::Connected),
            Told::Fired("data", EventKind::DataChanged),
            seen(EventKind::Restored, "/p"),
            seen(EventKind::Created, "/p/a"),
            seen(EventKind::Created, "/p/b"),
            // All watches are there, also those that had another request.
            seen(EventKind::Restored, "/p"),
        ]
    );
}

#[test]
fn many_watches_are_restored_in_requests_of_bounded_length() {
    let mut bench = Bench::connected(Config { requests_max: 10_000, ..config() });
    for number in 0..3_000 {
        bench.watch(OpCode::GetData, &format!("/{number:0>99}"), "watch");
    }
    bench.answer_all();
    bench.lose();
    bench.connect();
    let frames = bench.sent();
    let mut restored = 0;
    for frame in &frames {
        assert!(frame.len() < 160 * 1024, "{}", frame.len());
        let body = Request::decode(OpCode::SetWatches, &frame[RequestHeader::LEN..]).expect("decodes");
        let Request::SetWatches(lists) = body else { panic!("setWatches, as old servers know it") };
        restored += lists.data_watches.len();
    }
    assert_eq!((frames.len(), restored), (3, 3_000));
}

#[test]
fn a_credential_given_without_a_connection_is_shown_on_the_next() {
    let mut bench = Bench::connected(config());
    bench.lose();
    bench.told();
    let credential = Credential { scheme: "digest".to_owned(), auth: b"u:p".to_vec() };
    assert_eq!(bench.core.add_credential(credential, 5), Ok(()));
    bench.connect();
    assert_eq!(bench.sent_ops(), [(xid::AUTH, OpCode::Auth)]);
    bench.reply(xid::AUTH, ErrorCode::Ok);
    assert_eq!(bench.told(), [Told::State(SessionState::Connected), Told::Reply(5, Ok(0))]);
}

#[test]
fn a_refused_credential_ends_the_session() {
    let mut bench = Bench::connected(config());
    let credential = Credential { scheme: "digest".to_owned(), auth: b"?".to_vec() };
    assert_eq!(bench.core.add_credential(credential, 5), Ok(()));
    bench.request(1);
    bench.sent();
    bench.reply(xid::AUTH, ErrorCode::AuthFailed);
    assert_eq!(
        bench.told(),
        [
            Told::Reply(5, Err(Error::AuthFailed)),
            Told::State(SessionState::AuthFailed),
            Told::Reply(1, Err(Error::ConnectionLoss(call(1)))),
        ]
    );
}

#[test]
fn beyond_the_limit_requests_wait_in_their_turn_and_can_be_withdrawn() {
    let mut bench = Bench::connected(Config { requests_max: 2, ..config() });
    bench.request(1);
    bench.request(2);
    let submit = |bench: &mut Bench, number| match bench.core.submit(OpCode::Sync, number, None, |_| {}) {
        Ok(Admission::Waiting(ticket)) => ticket,
        other => panic!("{other:?}"),
    };
    submit(&mut bench, 3);
    let withdrawn = submit(&mut bench, 4);
    submit(&mut bench, 5);
    assert_eq!(bench.core.withdraw(withdrawn), Some(4));
    assert_eq!(bench.core.withdraw(withdrawn), None);
    let mut xids = Vec::new();
    for _ in 0..4 {
        for (xid, _) in bench.sent_ops() {
            xids.push(xid);
            bench.reply(xid, ErrorCode::Ok);
        }
    }
    assert_eq!(xids, [Xid(1), Xid(2), Xid(3), Xid(4)]);
    assert_eq!(bench.told(), [1, 2, 3, 5].map(|number| Told::Reply(number, Ok(0))));
}

#[test]
fn a_request_that_is_too_long_is_handed_back_alone() {
    let mut bench = Bench::connected(Config { request_len_max: 100, ..config() });
    bench.request(1);
    let refused = bench.core.submit(OpCode::SetData, 2, None, |out| out.resize(out.len() + 93, 0));
    assert_eq!(refused, Err((2, Error::RequestTooLong { len: 101, max: 100 })));
    assert_eq!(bench.sent_ops(), [(Xid(1), OpCode::GetData)]);
}

#[test]
fn an_error_names_the_call_below_the_chroot() {
    let mut bench = Bench::connected(Config { chroot: "/app".to_owned(), requests_max: 2, ..config() });
    let queued = Ok(Admission::Queued);
    for (number, path) in [(1, "/app/a"), (2, "/app"), (3, "/app/waits")] {
        let body = PathWatchRequest { path: path.into(), watch: false };
        let submitted = bench.core.submit(OpCode::GetData, number, None, |out| body.encode(out));
        assert_eq!(submitted == queued, number < 3);
    }
    bench.sent();
    bench.reply(Xid(1), ErrorCode::Ok);
    bench.reply(Xid(2), ErrorCode::NoNode);
    bench.sent();
    bench.reply(Xid(3), ErrorCode::NoAuth);
    let told = bench.told();
    let root = Error::NoNode(Call::new("get_data", "/"));
    let waited = Error::NoAuth(Call::new("get_data", "/waits"));
    assert_eq!(waited.to_string(), "get_data /waits: not permitted by the ACL");
    assert_eq!(told, [Told::Reply(1, Ok(0)), Told::Reply(2, Err(root)), Told::Reply(3, Err(waited))]);
}

#[test]
fn a_reply_out_of_order_breaks_the_connection() {
    let mut bench = Bench::connected(config());
    bench.request(1);
    bench.request(2);
    bench.sent();
    bench.reply(Xid(2), ErrorCode::Ok);
    assert_eq!(
        bench.told(),
        [
            Told::Reply(1, Err(Error::ConnectionLoss(call(1)))),
            Told::Reply(2, Err(Error::ConnectionLoss(call(2)))),
            Told::State(SessionState::Disconnected),
        ]
    );
}

#[test]
fn a_reply_to_a_request_that_was_not_sent_breaks_the_connection() {
    let mut bench = Bench::connected(config());
    bench.request(1);
    bench.reply(Xid(1), ErrorCode::Ok);
    assert_eq!(
        bench.told(),
        [Told::Reply(1, Err(Error::NotSent(call(1)))), Told::State(SessionState::Disconnected)]
    );
}

#[test]
fn closing_answers_what_was_asked_before() {
    let mut bench = Bench::connected(config());
    bench.request(1);
    bench.core.close(bench.now, 2, &mut bench.program);
    let refused = bench.core.submit(OpCode::GetData, 3, None, |_| {});
    assert_eq!(refused, Err((3, Error::Closed)));
    bench.answer_all();
    assert_eq!(
        bench.told(),
        [Told::Reply(1, Ok(0)), Told::Reply(2, Ok(0)), Told::State(SessionState::Closed)]
    );
    assert_eq!(bench.core.link(), Link::Down);
}

#[test]
fn closing_without_an_answer_ends_in_time() {
    let mut bench = Bench::connected(config());
    bench.core.close(bench.now, 1, &mut bench.program);
    bench.sent();
    bench.pass(TIMEOUT_MS);
    assert_eq!(
        bench.told(),
        [
            Told::State(SessionState::Closed),
            Told::Reply(1, Err(Error::ConnectionLoss(Call::new("close", ""))))
        ]
    );
}

#[test]
fn a_read_only_session_is_left_for_a_server_with_a_quorum() {
    let mut bench = Bench::new(Config { read_only: true, ..config() });
    bench.handshake();
    bench.grant(3_000, true);
    assert_eq!(bench.told(), [Told::State(SessionState::ReadOnly)]);
    let Link::Open { server: serving, .. } = bench.core.link() else { panic!("connected") };
    assert_eq!(bench.core.take_probe(bench.now), None);
    bench.now = bench.now.plus(100);
    let probed = bench.core.take_probe(bench.now).expect("due");
    assert_ne!(probed, serving);
    assert_eq!(bench.core.take_probe(bench.now), None, "one at a time");
    bench.core.handle_read_write_server(bench.now, probed, &mut bench.program);
    assert!(matches!(bench.core.link(), Link::Open { server, .. } if server == probed));
    let handshake = bench.handshake();
    let request = ConnectRequest::from_bytes(&handshake).expect("a handshake");
    assert_eq!(request.session_id, SessionId(0), "a server with a quorum does not know that session");
    bench.grant(3_000, false);
    assert_eq!(bench.told(), [Told::State(SessionState::Disconnected), Told::State(SessionState::Connected)]);
}

#[test]
fn what_an_abandoned_connection_says_is_ignored() {
    let mut bench = Bench::connected(config());
    let old = bench.attempt();
    bench.lose();
    bench.told();
    let reply = framed(|out| ReplyHeader::new(Xid(1), 99, ErrorCode::Ok).encode(out));
    assert_eq!(bench.core.handle_input(bench.now, old, &reply, &mut bench.program), reply.len());
    bench.core.handle_connected(old);
    bench.core.handle_lost(bench.now, old, Loss::Silent, &mut bench.program);
    assert_eq!(bench.told(), []);
    bench.connect();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the order of calls, sends, replies and losses: each request is answered once, in the
    /// order of the calls, and those that were not sent are told so.
    #[test]
    fn every_request_is_answered_once_in_order(steps in prop::collection::vec(0_u8..10, 1..200), cut in 1..40_usize) {
        let mut bench = Bench::connected(Config { requests_max: 5, connect_timeout_ms: None, ..config() });
        let (mut requests, mut on_server) = (0, Vec::new());
        for step in steps {
            match step {
                0..4 => {
                    requests += 1;
                    let submitted = bench.core.submit(OpCode::GetData, requests, None, |out| out.push(1));
                    prop_assert!(submitted.is_ok());
                }
                4..6 => on_server.extend(bench.sent_ops()),
                6..9 => {
                    // Replies arrive in pieces.
                    let mut bytes = Vec::new();
                    for (xid, _) in on_server.drain(..) {
                        bytes.extend(framed(|out| ReplyHeader::new(xid, 1, ErrorCode::Ok).encode(out)));
                    }
                    let (mut received, mut given) = (Vec::new(), 0);
                    while given < bytes.len() {
                        let end = (given + cut).min(bytes.len());
                        received.extend_from_slice(&bytes[given..end]);
                        given = end;
                        let used = bench.receive(&received);
                        received.drain(..used);
                    }
                    prop_assert!(received.is_empty());
                }
                _ => {
                    bench.lose();
                    on_server.clear();
                    while bench.core.link() == Link::Down {
                        bench.pass(10);
                    }
                    bench.connect();
                }
            }
        }
        bench.lose();
        let mut answered = Vec::new();
        for told in bench.told() {
            match told {
                Told::Reply(request, Ok(_) | Err(Error::ConnectionLoss(_) | Error::NotSent(_))) => answered.push(request),
                Told::Reply(request, outcome) => prop_assert!(false, "{request}: {outcome:?}"),
                _ => {}
            }
        }
        prop_assert_eq!(answered, (1..=requests).collect::<Vec<_>>());
    }

    /// No bytes make the core panic, or answer a request twice.
    #[test]
    fn hostile_bytes_break_the_connection_at_worst(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bench = Bench::connected(config());
        bench.request(1);
        bench.sent();
        let mut framed_bytes = framed(|out| out.extend_from_slice(&bytes));
        framed_bytes.extend_from_slice(&bytes);
        bench.receive(&framed_bytes);
        let answers = bench.told().into_iter().filter(|told| matches!(told, Told::Reply(..))).count();
        prop_assert!(answers <= 1);
    }
}

/// A bench whose session is granted to a user who has to log in, and the tokens that it sent.
fn logging_in() -> Bench {
    logging_in_by(Mechanism::DigestMd5)
}

fn logging_in_by(mechanism: Mechanism) -> Bench {
    let user = Some(User { name: "b\"ob".to_owned(), password: "pw".to_owned(), mechanism });
    let mut bench = Bench::new(Config { user, ..config() });
    bench.request(1);
    bench.connect();
    bench
}

impl Bench {
    /// The one token that the core wants to send.
    fn token(&mut self) -> Vec<u8> {
        let frames = self.sent();
        let [frame] = &*frames else { panic!("one request, not {frames:?}") };
        let request = Request::decode(OpCode::Sasl, &frame[RequestHeader::LEN..]).expect("decodes");
        let Request::Sasl(SaslRequest { token: Some(token) }) = request else { panic!("{request:?}") };
        token.to_vec()
    }

    fn answer_token(&mut self, token: Option<&[u8]>, code: ErrorCode) {
        let bytes = framed(|out| {
            ReplyHeader::new(xid::AUTH, 0, code).encode(out);
            SetSaslResponse { token }.encode(out);
        });
        self.receive(&bytes);
    }
}

#[test]
fn a_login_comes_before_any_request_on_each_connection() {
    let mut bench = logging_in();
    let mut cnonces = Vec::new();
    for _ in 0..2 {
        assert_eq!(bench.token(), b"");
        bench.answer_token(Some(digest_md5::challenge("nonce").as_bytes()), ErrorCode::Ok);
        let response = bench.token();
        let directives = Directives::parse(&response).expect("well formed");
        let directive = |name| directives.expect(name).expect("there");
        assert_eq!((directive("username"), directive("nonce")), (&b"b\"ob"[..], &b"nonce"[..]));
        let proof = Proof {
            secret: &Secret::new("b\"ob", REALM, "pw"),
            nonce: b"nonce",
            cnonce: directive("cnonce"),
            authzid: None,
            digest_uri: directive("digest-uri"),
        };
        assert!(proof.has_response(directive("response")));
        bench.answer_token(Some(proof.rspauth().as_bytes()), ErrorCode::Ok);
        assert_eq!(bench.told().pop(), Some(Told::State(SessionState::Connected)));
        cnonces.push(proof.cnonce.to_vec());
        assert_eq!(bench.sent_ops().len(), 1, "the request that waited");
        bench.lose();
        bench.request(2);
        bench.connect();
    }
    assert_ne!(cnonces[0], cnonces[1]);
}

#[test]
fn a_login_by_scram_begins_with_the_user_and_ends_with_the_servers_proof() {
    let mut bench = logging_in_by(Mechanism::ScramSha256);
    let keys = scram::Keys::derive("pw", b"12345678", 4096).expect("suitable");
    let mut nonces = Vec::new();
    for _ in 0..2 {
        let first = bench.token();
        let first = scram::ClientFirst::parse(&first).expect("a message");
        assert_eq!(first.user, "b\"ob");
        let nonce = format!("{}server", first.nonce);
        let server_first = scram::ServerFirst { nonce: &nonce, salt: b"12345678".into(), iterations: 4096 };
        bench.answer_token(Some(server_first.to_string().as_bytes()), ErrorCode::Ok);
        let (last, server_final) = keys.respond(first.bare, &server_first.to_string(), &nonce);
        assert_eq!(bench.token(), last.as_bytes());
        bench.answer_token(Some(server_final.as_bytes()), ErrorCode::Ok);
        assert_eq!(bench.told().pop(), Some(Told::State(SessionState::Connected)));
        nonces.push(nonce);
        bench.lose();
        bench.request(2);
        bench.connect();
    }
    assert_ne!(nonces[0], nonces[1]);
}

#[test]
fn an_answer_to_another_login_by_scram_is_not_trusted() {
    let mut bench = logging_in_by(Mechanism::ScramSha256);
    let first = bench.attempt();
    bench.answer_token(Some(b"r=other,s=MTIzNDU2Nzg=,i=4096"), ErrorCode::Ok);
    assert_ne!(bench.attempt(), first);
}

#[test]
fn a_server_that_takes_connections_and_says_nothing_leaves_time_for_the_others() {
    let mut bench = Bench::new(Config { session_timeout_ms: 30_000, server_count: 3, ..config() });
    for _ in 0..2 {
        let silent = bench.attempt();
        bench.handshake();
        bench.pass(10_000 / 3);
        assert_ne!(bench.attempt(), silent);
    }
    bench.connect();
    assert_eq!(bench.told(), [Told::State(SessionState::Connected)]);
}

#[test]
fn a_login_that_is_refused_ends_the_session() {
    for (token, code) in [(None, ErrorCode::AuthFailed), (None, ErrorCode::Ok)] {
        let mut bench = logging_in();
        bench.answer_token(token, code);
        let told = [Told::State(SessionState::AuthFailed), Told::Reply(1, Err(Error::AuthFailed))];
        assert_eq!(bench.told(), told);
    }
}

#[test]
fn a_users_password_is_not_shown() {
    let user =
        User { name: "bob".to_owned(), password: "secret".to_owned(), mechanism: Mechanism::DigestMd5 };
    assert!(!format!("{user:?}").contains("secret"));
}

#[test]
fn logins_beside_each_other_have_nonces_of_their_own() {
    let user = User { name: "bob".to_owned(), password: "pw".to_owned(), mechanism: Mechanism::ScramSha256 };
    let mut login = Login::new(user, 1);
    let first = |login: &mut Login| {
        let mut out = Vec::new();
        login.begin(&mut out).expect("suitable");
        out
    };
    let (mut one, mut other) = (login.fork(), login.fork());
    let mut firsts = [first(&mut login), first(&mut one), first(&mut other)];
    firsts.sort_unstable();
    assert!(firsts.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn a_server_that_does_not_know_the_password_is_left() {
    for last in ["rspauth=00", ""] {
        let mut bench = logging_in();
        let first = bench.attempt();
        bench.answer_token(Some(digest_md5::challenge("nonce").as_bytes()), ErrorCode::Ok);
        bench.answer_token(Some(last.as_bytes()), ErrorCode::Ok);
        assert_ne!((bench.attempt(), bench.told()), (first, vec![Told::State(SessionState::Connected)]));
    }
}
