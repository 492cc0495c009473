//! A shard driven with the bytes of clients and with transactions applied to a real state.

mod backpressure;
mod connections;
mod events;
mod fan_out;
mod long_reads;
mod order;
mod request_throttle;
mod requests;
mod slow;
mod tenants;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use ringkeeper_wire::frame::{framed, next_frame};
use ringkeeper_wire::{
    AclEntry, ConnectRequest, ConnectResponse, EXTENDED_PROTOCOL, ErrorCode, EventType, OpCode,
    PathWatchRequest, Perms, Record, ReplyHeader, Request, RequestHeader, Response, SessionId,
    SetDataRequest, SyncRequest, WatcherEvent, Xid, Zxid, xid,
};

use super::{AfterWrite, CloseReason, Effect, Memory, Settings, Shard};
use crate::acl::Acl;
use crate::message::{
    Committed, ConnId, Origin, Published, PublishedGroup, Serving, ShardId, Submission, Submitted, ToShard,
};
use crate::state::State;
use crate::txn::{Create, SetData, Txn, TxnOp, Update};

const SHARD: ShardId = ShardId(3);
const PASSWORD: [u8; 16] = [7; 16];

/// What a client reads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Frame {
    Reply { xid: i32, zxid: i64, code: ErrorCode, body: Vec<u8> },
    Event { zxid: i64, event: EventType, path: String },
}

fn event(zxid: i64, event: EventType, path: &str) -> Frame {
    Frame::Event { zxid, event, path: path.to_owned() }
}

fn reply(xid: i32, zxid: i64, body: Option<Response<'_>>) -> Frame {
    let mut bytes = Vec::new();
    if let Some(body) = body {
        body.encode(&mut bytes);
    }
    Frame::Reply { xid, zxid, code: ErrorCode::Ok, body: bytes }
}

fn failure(xid: i32, zxid: i64, code: ErrorCode) -> Frame {
    Frame::Reply { xid, zxid, code, body: Vec::new() }
}

/// A shard, the state that its core would have, and a clock.
struct World {
    shard: Shard,
    state: State,
    now_us: u64,
}

impl World {
    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn with(settings: Settings) -> Self {
        let state = State::new(1);
        let mut shard = Shard::new(SHARD, settings, Arc::new(state.clone()));
        shard.deliver(0, ToShard::Serving(Serving::Yes));
        Self { shard, state, now_us: 0 }
    }

    /// A world with two clients, 1 and 2, and the znodes `paths`.
    fn with_znodes(paths: &[&str]) -> Self {
        let mut world = Self::new();
        for path in paths {
            world.commit([creates(path)]);
        }
        world.client(1);
        world.client(2);
        world
    }

    /// A client with a session of its own number.
    fn client(&mut self, number: u64) -> ConnId {
        let conn = ConnId(number);
        self.shard.connected(self.now_us, conn, peer(number));
        self.receive(number, &connect_request(0, 10_000, 0, Some(false)));
        self.shard.take_requests();
        self.attach(number);
        self.bytes(number);
        conn
    }

    fn attach(&mut self, number: u64) {
        let session = session(number);
        let message =
            ToShard::Attached { conn: ConnId(number), session, password: PASSWORD, timeout_ms: 10_000 };
        self.shard.deliver(self.now_us, message);
    }

    fn receive(&mut self, number: u64, bytes: &[u8]) {
        self.shard.received(self.now_us, ConnId(number), bytes);
    }

    fn send(&mut self, number: u64, xid: i32, request: &Request<'_>) {
        self.receive(number, &request_bytes(xid, request));
    }

    /// Commits one group of transactions whose writers are not on this shard.
    fn commit<const N: usize>(&mut self, ops: [TxnOp; N]) {
        let group = self.group(ops.map(|op| (None, op)).to_vec());
        self.publish(vec![group]);
    }

    /// Commits one group with the write `xid` of client `number`.
    fn commit_of(&mut self, number: u64, xid: i32, op: TxnOp) {
        let group = self.group(vec![(Some((number, xid)), op)]);
        self.publish(vec![group]);
    }

    fn group(&mut self, ops: Vec<(Option<(u64, i32)>, TxnOp)>) -> PublishedGroup {
        let txns = ops.into_iter().map(|(origin, op)| self.apply(origin, op)).collect();
        PublishedGroup { txns, view: Arc::new(self.state.clone()) }
    }

    fn apply(&mut self, origin: Option<(u64, i32)>, op: TxnOp) -> Committed {
        let (number, xid) = origin.unwrap_or((99, 0));
        let txn = Txn {
            zxid: Zxid(self.state.last_zxid().0 + 1),
            session: session(number),
            xid: Xid(xid),
            time_ms: 1_000,
            op,
        };
        let outcome = self.state.apply(&txn);
        let origin = origin.map(|(number, _)| Origin { shard: SHARD, conn: ConnId(number) });
        Committed { txn, outcome, authorisation: self.state.authorisation().clone(), origin }
    }

    fn publish(&mut self, groups: Vec<PublishedGroup>) {
        self.shard.deliver(self.now_us, ToShard::Published(Arc::new(Published { groups })));
    }

    /// Everything written to the client since the last call, and whether the connection is then closed.
    fn take(&mut self, number: u64) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        let after = self.shard.take_output(ConnId(number), &mut bytes);
        self.shard.written(self.now_us, ConnId(number), bytes.len());
        (bytes, after != AfterWrite::Continue)
    }

    fn bytes(&mut self, number: u64) -> Vec<u8> {
        self.take(number).0
    }

    fn frames(&mut self, number: u64) -> Vec<Frame> {
        frames(&self.bytes(number))
    }

    fn is_closed(&mut self, number: u64) -> bool {
        self.take(number).1
    }

    fn submissions(&mut self) -> Vec<Submission> {
        self.shard.take_requests().submissions
    }

    fn close_reasons(&mut self) -> Vec<CloseReason> {
        let effects = std::iter::from_fn(|| self.shard.next_effect());
        let reasons = effects.filter_map(|effect| match effect {
            Effect::Closing { reason, .. } => Some(reason),
            _ => None,
        });
        reasons.collect()
    }
}

fn session(number: u64) -> SessionId {
    SessionId(0x0100_0000_0000_0000 + number.cast_signed())
}

fn peer(number: u64) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], u16::try_from(number).expect("a small number")))
}

fn connect_request(last_zxid_seen: i64, timeout_ms: i32, session: i64, read_only: Option<bool>) -> Vec<u8> {
    connect_request_of(0, last_zxid_seen, timeout_ms, session, read_only)
}

fn connect_request_of(
    protocol_version: i32,
    last_zxid_seen: i64,
    timeout_ms: i32,
    session: i64,
    read_only: Option<bool>,
) -> Vec<u8> {
    framed(|out| {
        let request = ConnectRequest {
            protocol_version,
            last_zxid_seen,
            timeout_ms,
            session_id: SessionId(session),
            password: Some(&PASSWORD),
            read_only,
        };
        request.encode(out);
    })
}

fn request_bytes(xid: i32, request: &Request<'_>) -> Vec<u8> {
    framed(|out| {
        RequestHeader { xid: Xid(xid), op: request.op().to_wire() }.encode(out);
        request.encode(out);
    })
}

fn raw_request(xid: i32, op: i32, body: &[u8]) -> Vec<u8> {
    framed(|out| {
        RequestHeader { xid: Xid(xid), op }.encode(out);
        out.extend_from_slice(body);
    })
}

fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let (payload, len) = next_frame(bytes, usize::MAX).expect("well formed").expect("whole frames");
        frames.push(frame(payload));
        bytes = &bytes[len..];
    }
    frames
}

fn frame(payload: &[u8]) -> Frame {
    let header = ReplyHeader::from_bytes(payload).expect("a reply begins with a header");
    let body = &payload[ReplyHeader::LEN..];
    if header.xid == xid::NOTIFICATION {
        let event = WatcherEvent::from_bytes(body).expect("an event");
        let kind = EventType::from_wire(event.event_type).expect("a known event");
        return Frame::Event { zxid: header.zxid, event: kind, path: event.path.into_owned() };
    }
    let code = ErrorCode::from_wire(header.err).expect("a known code");
    Frame::Reply { xid: header.xid.0, zxid: header.zxid, code, body: body.to_vec() }
}

/// Xid, zxid and code of a reply; the event of a notification.
fn outline(frames: &[Frame]) -> Vec<String> {
    let line = |frame: &Frame| match frame {
        Frame::Reply { xid, zxid, code, .. } => format!("reply {xid} at {zxid}: {code:?}"),
        Frame::Event { zxid, event, path } => format!("{event:?} {path} at {zxid}"),
    };
    frames.iter().map(line).collect()
}

fn get_data(path: &str, watch: bool) -> Request<'_> {
    Request::GetData(PathWatchRequest { path: path.into(), watch })
}

fn exists(path: &str, watch: bool) -> Request<'_> {
    Request::Exists(PathWatchRequest { path: path.into(), watch })
}

fn get_children(path: &str, watch: bool) -> Request<'_> {
    Request::GetChildren(PathWatchRequest { path: path.into(), watch })
}

fn set_data<'a>(path: &'a str, data: &'a [u8]) -> Request<'a> {
    Request::SetData(SetDataRequest { path: path.into(), data: Some(data), version: -1 })
}

fn sync(path: &str) -> Request<'_> {
    Request::Sync(SyncRequest { path: Some(path.into()) })
}

fn creates(path: &str) -> TxnOp {
    creates_with(path, Acl::OPEN)
}

fn creates_with(path: &str, acl: Acl) -> TxnOp {
    TxnOp::Update(create_update(path, acl))
}

fn create_update(path: &str, acl: Acl) -> Update {
    Update::Create(Create {
        path: path.into(),
        data: Some(Bytes::new()),
        acl,
        raw_owner: 0,
        parent_cversion: -1,
        reply_with_stat: false,
    })
}

fn deletes(path: &str) -> TxnOp {
    TxnOp::Update(Update::Delete(path.into()))
}

fn sets(path: &str, data: &[u8]) -> TxnOp {
    TxnOp::Update(Update::SetData(SetData {
        path: path.into(),
        data: Some(Bytes::copy_from_slice(data)),
        version: 1,
    }))
}

/// An ACL that lets only this digest identity in.
fn only(id: &str) -> Acl {
    Acl::new(vec![AclEntry { perms: Perms::ALL, scheme: "digest".to_owned(), id: id.to_owned() }])
}
