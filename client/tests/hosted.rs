//! The client in a host of the test's own: what is sent and when follows from what the host says.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use ringkeeper_client::core::{Link, Loss, Millis};
use ringkeeper_client::hosted::Host;
use ringkeeper_client::recipes::Lock;
use ringkeeper_client::{Client, SessionState};
use ringkeeper_wire::frame::{framed, next_frame};
use ringkeeper_wire::{
    ConnectResponse, Create2Response, ErrorCode, GetChildren2Response, OpCode, Record, ReplyHeader, Request,
    RequestHeader, SessionId, Stat, Xid,
};

const SESSION: SessionId = SessionId(0x17);

/// A client, its host, and a server that the test plays.
struct Bench {
    client: Client,
    host: Host,
    now: Millis,
    zxid: i64,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let builder = Client::builder("a:2181,b:2181").seed(seed);
        let (client, host) = builder.host(Millis(0)).expect("settings");
        Self { client, host, now: Millis(0), zxid: 0 }
    }

    fn connected(seed: u64) -> Self {
        let mut bench = Self::new(seed);
        bench.host.connected(bench.now, bench.attempt());
        assert_eq!(bench.frames().len(), 1, "the handshake");
        let welcome = ConnectResponse {
            protocol_version: 0,
            timeout_ms: 3_000,
            session_id: SESSION,
            password: Some(&[7; 16]),
            read_only: Some(false),
        };
        let bytes = framed(|out| welcome.encode(out));
        // In two pieces, as the network may deliver it.
        let (front, back) = bytes.split_at(5);
        bench.host.received(bench.now, bench.attempt(), front);
        bench.host.received(bench.now, bench.attempt(), back);
        assert_eq!(bench.host.state(), SessionState::Connected);
        bench
    }

    fn attempt(&self) -> u64 {
        match self.host.link() {
            Link::Open { attempt, .. } => attempt,
            Link::Down => panic!("no connection is wanted"),
        }
    }

    /// What the client sends, frame by frame.
    fn frames(&mut self) -> Vec<Vec<u8>> {
        self.host.advance(self.now);
        let (mut bytes, mut frames) = (Vec::new(), Vec::new());
        self.host.take_output(self.now, &mut bytes);
        let mut rest = bytes.as_slice();
        while let Some((payload, len)) = next_frame(rest, usize::MAX).expect("well-formed frames") {
            frames.push(payload.to_vec());
            rest = &rest[len..];
        }
        frames
    }

    fn requests(&mut self) -> Vec<(Xid, OpCode, Vec<u8>)> {
        let parts = |frame: Vec<u8>| {
            let RequestHeader { xid, op } = RequestHeader::from_bytes(&frame).expect("a header");
            (xid, OpCode::from_wire(op).expect("an opcode"), frame[RequestHeader::LEN..].to_vec())
        };
        self.frames().into_iter().map(parts).collect()
    }

    fn reply(&mut self, xid: Xid, err: ErrorCode, body: impl FnOnce(&mut Vec<u8>)) {
        self.zxid += 1;
        let header = ReplyHeader::new(xid, self.zxid, err);
        let bytes = framed(|out| {
            header.encode(out);
            body(out);
        });
        self.host.received(self.now, self.attempt(), &bytes);
    }

    /// The name that a lock gives its znode, once that is asked for.
    fn name_of_a_lock(&mut self) -> String {
        let lock = Lock::new(&self.client, "/lock");
        let mut acquiring = Box::pin(async move { lock.acquire().await });
        assert!(poll(acquiring.as_mut()).is_pending());
        let requests = self.requests();
        let (_, _, body) = &requests[0];
        let Ok(Request::Create2(create)) = Request::decode(OpCode::Create2, body) else { panic!("a create") };
        create.path.into_owned()
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_call_is_answered_by_what_the_host_receives() {
    let mut bench = Bench::connected(1);
    let mut call = pin!(bench.client.exists("/greeting"));
    assert!(poll(call.as_mut()).is_pending());
    let requests = bench.requests();
    assert_eq!(requests.len(), 1);
    bench.reply(requests[0].0, ErrorCode::NoNode, |_| {});
    assert_eq!(poll(call.as_mut()), Poll::Ready(Ok(None)));
}

#[test]
fn the_seed_decides_the_names_of_znodes() {
    let name = |seed| Bench::connected(seed).name_of_a_lock();
    assert_eq!(name(1), name(1));
    assert_ne!(name(1), name(2));
}

#[test]
fn time_passes_when_the_host_says_so() {
    let mut bench = Bench::connected(1);
    assert_eq!(bench.client.lease().as_millis(), 3_000);
    assert_eq!(bench.host.deadline(), Some(Millis(1_000)), "a ping after a third of the timeout");
    bench.now = Millis(1_000);
    assert_eq!(bench.requests()[0].1, OpCode::Ping);
    bench.host.lost(bench.now, bench.attempt(), Loss::Broken("cut".to_owned()));
    assert_eq!(bench.host.state(), SessionState::Disconnected);
    // Dials are given up at their deadlines, again and again, until the session is not certain any more.
    while let Some(at) = bench.host.deadline().filter(|at| *at <= Millis(3_000)) {
        bench.now = at;
        bench.host.advance(at);
    }
    assert_eq!(bench.host.state(), SessionState::Lapsed);
    assert!(bench.client.lease().is_zero());
}

#[test]
fn what_was_given_up_is_deleted_before_the_session_is_closed() {
    let mut bench = Bench::connected(1);
    let lock = Lock::new(&bench.client, "/lock");
    let mut acquiring = Box::pin(async move { lock.acquire().await });
    assert!(poll(acquiring.as_mut()).is_pending());
    let requests = bench.requests();
    let [(create, OpCode::Create2, _), (list, OpCode::GetChildren2, _)] = &requests[..] else {
        panic!("{requests:?}")
    };
    let own = "/lock/mine__lock__0000000001";
    let stat = Stat { ephemeral_owner: SESSION.0, ..Stat::default() };
    bench.reply(*create, ErrorCode::Ok, |out| Create2Response { path: own.into(), stat }.encode(out));
    let names = ["mine__lock__0000000001".to_owned(), "other__lock__0000000000".to_owned()];
    bench.reply(*list, ErrorCode::Ok, |out| {
        GetChildren2Response { children: (&names[..]).into(), stat: Stat::default() }.encode(out);
    });
    assert!(poll(acquiring.as_mut()).is_pending(), "behind the other");
    assert_eq!(bench.requests().len(), 1, "a watch on the other");
    drop(acquiring);
    let Bench { client, mut host, now, zxid } = bench;
    drop(client);
    assert_eq!(host.deadline(), Some(now), "there is something to do at once");
    assert!(!host.is_over());
    host.advance(now);
    let mut bytes = Vec::new();
    host.take_output(now, &mut bytes);
    let (frame, _) = next_frame(&bytes, usize::MAX).expect("a frame").expect("whole");
    let header = RequestHeader::from_bytes(frame).expect("a header");
    assert_eq!(OpCode::from_wire(header.op), Some(OpCode::Delete));
    let Link::Open { attempt, .. } = host.link() else { panic!("connected") };
    for xid in [Xid(header.xid.0 - 1), header.xid] {
        let reply = ReplyHeader::new(xid, zxid + 1, ErrorCode::NoNode);
        host.received(now, attempt, &framed(|out| reply.encode(out)));
    }
    host.advance(now);
    bytes.clear();
    host.take_output(now, &mut bytes);
    let (frame, _) = next_frame(&bytes, usize::MAX).expect("a frame").expect("whole");
    let header = RequestHeader::from_bytes(frame).expect("a header");
    assert_eq!(OpCode::from_wire(header.op), Some(OpCode::CloseSession), "nobody holds the client any more");
    let reply = ReplyHeader::new(header.xid, zxid + 2, ErrorCode::Ok);
    host.received(now, attempt, &framed(|out| reply.encode(out)));
    assert!(host.is_over());
}
