//! One connection to a server. It never pings, and reads only when it is told to.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use ringkeeper_wire::frame::{begin_frame, end_frame, next_frame};
use ringkeeper_wire::{
    AclEntry, ConnectRequest, ConnectResponse, CreateMode, CreateRequest, CreateResponse, DeleteRequest,
    ErrorCode, GetChildrenResponse, GetDataResponse, PASSWORD_LEN, PathWatchRequest, Perms, Record,
    ReplyHeader, Request, RequestHeader, SessionId, SetDataRequest, SyncRequest, WatcherEvent, Xid, xid,
};

use super::PATIENCE;

/// What a client needs to resume its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) session: SessionId,
    pub(crate) password: [u8; PASSWORD_LEN],
}

impl Credentials {
    /// Whoever wants a new session.
    pub(crate) const NOBODY: Self = Self { session: SessionId(0), password: [0; PASSWORD_LEN] };
}

/// A reply: the header's fields and the body's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) xid: Xid,
    pub(crate) zxid: i64,
    pub(crate) error: i32,
    pub(crate) body: Vec<u8>,
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) event_type: i32,
    pub(crate) path: String,
}

pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    last_xid: i32,
    events: VecDeque<Event>,
    pub(crate) credentials: Credentials,
    pub(crate) timeout_ms: i32,
}

/// What a znode of these tests permits.
pub(crate) fn anybody() -> [AclEntry; 1] {
    [AclEntry { perms: Perms::ALL, scheme: "world".to_owned(), id: "anyone".to_owned() }]
}

/// One request as it goes over the wire.
pub(crate) fn request_frame(xid: Xid, request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let start = begin_frame(&mut bytes);
    RequestHeader { xid, op: request.op().to_wire() }.encode(&mut bytes);
    request.encode(&mut bytes);
    end_frame(&mut bytes, start).expect("short");
    bytes
}

/// Whether the other side closes the connection, whatever it says before.
pub(crate) fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    match io::copy(stream, &mut io::sink()) {
        Ok(_) => true,
        Err(error) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
    }
}

impl Client {
    /// A client with a new session.
    pub(crate) fn connect(address: SocketAddr, timeout_ms: i32) -> Self {
        Self::attach(address, timeout_ms, Credentials::NOBODY).expect("a new session")
    }

    /// A client that comes back to its session; `None` if the server says that it has expired.
    pub(crate) fn resume(address: SocketAddr, timeout_ms: i32, credentials: Credentials) -> Option<Self> {
        Self::attach(address, timeout_ms, credentials)
    }

    /// A client of a server that may not be there, or not let it in: a new session, or one that comes back having
    /// seen `last_zxid_seen`. `None` if the server says that the session has expired.
    ///
    /// # Errors
    /// The server cannot be reached, or closes the connection.
    pub(crate) fn try_attach(
        address: SocketAddr,
        timeout_ms: i32,
        credentials: Option<Credentials>,
        last_zxid_seen: i64,
    ) -> io::Result<Option<Self>> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        let credentials = credentials.unwrap_or(Credentials::NOBODY);
        stream.write_all(&Self::connect_frame_after(timeout_ms, credentials, last_zxid_seen))?;
        Self::try_accepted(stream)
    }

    /// The frame that asks for a session.
    pub(crate) fn connect_frame(timeout_ms: i32, credentials: Credentials) -> Vec<u8> {
        Self::connect_frame_after(timeout_ms, credentials, 0)
    }

    fn connect_frame_after(timeout_ms: i32, credentials: Credentials, last_zxid_seen: i64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let start = begin_frame(&mut bytes);
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen,
            timeout_ms,
            session_id: credentials.session,
            password: Some(&credentials.password),
            read_only: Some(false),
        };
        request.encode(&mut bytes);
        end_frame(&mut bytes, start).expect("short");
        bytes
    }

    fn attach(address: SocketAddr, timeout_ms: i32, credentials: Credentials) -> Option<Self> {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.write_all(&Self::connect_frame(timeout_ms, credentials)).expect("sent");
        Self::accepted(stream)
    }

    /// Takes over a connection that asked for a session.
    pub(crate) fn accepted(stream: TcpStream) -> Option<Self> {
        Self::try_accepted(stream).expect("an answer to the ConnectRequest")
    }

    fn try_accepted(stream: TcpStream) -> io::Result<Option<Self>> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut client = Self {
            stream,
            input: Vec::new(),
            last_xid: 0,
            events: VecDeque::new(),
            credentials: Credentials::NOBODY,
            timeout_ms: 0,
        };
        let frame = client.frame()?;
        let response = ConnectResponse::from_bytes(&frame).expect("a ConnectResponse");
        client.timeout_ms = response.timeout_ms;
        client.credentials.session = response.session_id;
        client.credentials.password = response.password.expect("a password").try_into().expect("16 bytes");
        Ok((response.timeout_ms > 0).then_some(client))
    }

    /// The connection itself.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends a request without waiting.
    pub(crate) fn send(&mut self, request: &Request<'_>) -> Xid {
        self.last_xid += 1;
        let xid = Xid(self.last_xid);
        self.stream.write_all(&request_frame(xid, request)).expect("sent");
        xid
    }

    /// The next reply; events that come first are kept.
    ///
    /// # Errors
    /// The connection ends, or nothing comes.
    pub(crate) fn reply(&mut self) -> io::Result<Reply> {
        loop {
            if let Some(reply) = self.message()? {
                return Ok(reply);
            }
        }
    }

    /// The next event.
    pub(crate) fn event(&mut self) -> Event {
        while self.events.is_empty() {
            let reply = self.message().expect("an event");
            assert_eq!(reply, None, "a reply that was not asked for");
        }
        self.events.pop_front().expect("not empty")
    }

    /// Events that came before the replies read so far.
    pub(crate) fn events_so_far(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    /// Sends a request to a server that may be gone, and waits for its reply.
    ///
    /// # Errors
    /// The connection ends, or nothing comes.
    pub(crate) fn try_call(&mut self, request: &Request<'_>) -> io::Result<Reply> {
        self.last_xid += 1;
        let xid = Xid(self.last_xid);
        self.stream.write_all(&request_frame(xid, request))?;
        let reply = self.reply()?;
        assert_eq!(reply.xid, xid, "replies come in the order of the requests");
        Ok(reply)
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn call(&mut self, request: &Request<'_>) -> Reply {
        let xid = self.send(request);
        let reply = self.reply().expect("a reply");
        assert_eq!(reply.xid, xid, "replies come in the order of the requests");
        reply
    }

    /// As [`Self::call`] for a request that succeeds; the reply's body.
    pub(crate) fn call_ok(&mut self, request: &Request<'_>) -> Vec<u8> {
        let reply = self.call(request);
        assert_eq!(reply.error, ErrorCode::Ok.to_wire(), "{request:?}");
        reply.body
    }

    /// Sends a create without waiting.
    pub(crate) fn send_create(&mut self, path: &str, data: &[u8], mode: CreateMode) -> Xid {
        let acl = anybody();
        self.send(&Request::Create(CreateRequest {
            path: path.into(),
            data: Some(data),
            acl: Some(acl[..].into()),
            flags: mode.to_wire(),
        }))
    }

    /// Creates a znode; its path.
    pub(crate) fn create(&mut self, path: &str, data: &[u8], mode: CreateMode) -> String {
        let xid = self.send_create(path, data, mode);
        let reply = self.reply().expect("a reply");
        assert_eq!((reply.xid, reply.error), (xid, ErrorCode::Ok.to_wire()), "create {path}");
        CreateResponse::from_bytes(&reply.body).expect("a CreateResponse").path.into_owned()
    }

    /// A znode's data; `None` if there is no such znode.
    pub(crate) fn get(&mut self, path: &str, watch: bool) -> Option<Vec<u8>> {
        let reply = self.call(&Request::GetData(PathWatchRequest { path: path.into(), watch }));
        if reply.error == ErrorCode::NoNode.to_wire() {
            return None;
        }
        assert_eq!(reply.error, ErrorCode::Ok.to_wire(), "getData {path}");
        let response = GetDataResponse::from_bytes(&reply.body).expect("a GetDataResponse");
        Some(response.data.unwrap_or_default().to_vec())
    }

    pub(crate) fn set(&mut self, path: &str, data: &[u8]) {
        self.call_ok(&Request::SetData(SetDataRequest { path: path.into(), data: Some(data), version: -1 }));
    }

    pub(crate) fn delete(&mut self, path: &str) {
        self.call_ok(&Request::Delete(DeleteRequest { path: path.into(), version: -1 }));
    }

    /// Whether the znode exists.
    pub(crate) fn exists(&mut self, path: &str, watch: bool) -> bool {
        let reply = self.call(&Request::Exists(PathWatchRequest { path: path.into(), watch }));
        let (ok, missing) = (ErrorCode::Ok.to_wire(), ErrorCode::NoNode.to_wire());
        assert!(reply.error == ok || reply.error == missing, "exists {path}: {}", reply.error);
        reply.error == ok
    }

    /// Names of the children, sorted.
    pub(crate) fn children(&mut self, path: &str, watch: bool) -> Vec<String> {
        let body = self.call_ok(&Request::GetChildren(PathWatchRequest { path: path.into(), watch }));
        let response = GetChildrenResponse::from_bytes(&body).expect("a GetChildrenResponse");
        let mut names: Vec<String> = response.children.iter().map(Cow::into_owned).collect();
        names.sort();
        names
    }

    /// Waits until everything that was committed before is seen here.
    pub(crate) fn sync(&mut self) {
        self.call_ok(&Request::Sync(SyncRequest { path: Some("/".into()) }));
    }

    /// Ends the session, in order.
    pub(crate) fn close(mut self) {
        self.call_ok(&Request::CloseSession);
    }

    /// Reads one message: a reply, or `None` for an event, which is kept.
    fn message(&mut self) -> io::Result<Option<Reply>> {
        let frame = self.frame()?;
        let header = ReplyHeader::from_bytes(&frame).expect("a ReplyHeader");
        let body = &frame[ReplyHeader::LEN..];
        if header.xid == xid::NOTIFICATION {
            let event = WatcherEvent::from_bytes(body).expect("a WatcherEvent");
            self.events.push_back(Event { event_type: event.event_type, path: event.path.into_owned() });
            return Ok(None);
        }
        Ok(Some(Reply { xid: header.xid, zxid: header.zxid, error: header.err, body: body.to_vec() }))
    }

    fn frame(&mut self) -> io::Result<Vec<u8>> {
        let mut chunk = [0; 64 * 1024];
        loop {
            if let Some((frame, len)) = next_frame(&self.input, usize::MAX).expect("a length") {
                let frame = frame.to_vec();
                self.input.drain(..len);
                return Ok(frame);
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                bytes => self.input.extend_from_slice(&chunk[..bytes]),
            }
        }
    }
}
