//! The test kit's client, every failure of which ends the test.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};

use anyhow::Result;
use ringkeeper_testkit::{Connection, Event, OPEN_ACL, Reply, Session, append_request, connect_frame};
use ringkeeper_wire::{CreateMode, CreateRequest, Request, SyncRequest, Xid};

use super::PATIENCE;

/// One connection to a server. It never pings, and reads only when it is told to.
pub(crate) struct Client(ringkeeper_testkit::Client);

impl Deref for Client {
    type Target = ringkeeper_testkit::Client;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// One request as it goes over the wire.
pub(crate) fn request_frame(xid: Xid, request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_request(&mut bytes, xid, request);
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
        Self::resume(address, timeout_ms, Session::default()).expect("a new session")
    }

    /// A client that comes back to its session; `None` if the server says that it has expired.
    pub(crate) fn resume(address: SocketAddr, timeout_ms: i32, session: Session) -> Option<Self> {
        Self::try_attach(address, timeout_ms, Some(session), 0).expect("an answer to the ConnectRequest")
    }

    /// A client of a server that may not be there, or not let it in: a new session, or one that comes back
    /// having seen `last_zxid_seen`. `None` if the server says that the session has expired.
    ///
    /// # Errors
    /// The server cannot be reached, or closes the connection.
    pub(crate) fn try_attach(
        address: SocketAddr,
        timeout_ms: i32,
        session: Option<Session>,
        last_zxid_seen: i64,
    ) -> Result<Option<Self>> {
        let session = session.unwrap_or_default();
        let mut connection = Connection::open(address)?;
        connection.set_patience(PATIENCE)?;
        connection.send(&connect_frame(&session.connect_request(timeout_ms, last_zxid_seen)))?;
        Ok(ringkeeper_testkit::Client::accepted(connection)?.map(Self))
    }

    /// Takes over a connection that asked for a session.
    pub(crate) fn accepted(stream: TcpStream) -> Option<Self> {
        let mut connection = Connection::of(stream).expect("a connection");
        connection.set_patience(PATIENCE).expect("a timeout");
        ringkeeper_testkit::Client::accepted(connection).expect("an answer to the ConnectRequest").map(Self)
    }

    /// The connection itself.
    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        self.connection.stream()
    }

    /// Sends a request without waiting.
    pub(crate) fn send(&mut self, request: &Request<'_>) -> Xid {
        self.0.send(request).expect("sent")
    }

    /// The next event.
    pub(crate) fn event(&mut self) -> Event {
        self.0.event().expect("an event")
    }

    /// Sends a request to a server that may be gone, and waits for its reply.
    ///
    /// # Errors
    /// The connection ends, or nothing comes.
    pub(crate) fn try_call(&mut self, request: &Request<'_>) -> Result<Reply> {
        self.0.call(request)
    }

    /// Sends a request and waits for its reply.
    pub(crate) fn call(&mut self, request: &Request<'_>) -> Reply {
        self.0.call(request).expect("a reply")
    }

    /// As [`Self::call`] for a request that succeeds; the reply's body.
    pub(crate) fn call_ok(&mut self, request: &Request<'_>) -> Vec<u8> {
        self.0.call_ok(request).expect("a request that succeeds")
    }

    /// Sends a create without waiting.
    pub(crate) fn send_create(&mut self, path: &str, data: &[u8], mode: CreateMode) -> Xid {
        let (acl, flags) = (Some(OPEN_ACL.as_slice().into()), mode.to_wire());
        self.send(&Request::Create(CreateRequest { path: path.into(), data: Some(data), acl, flags }))
    }

    /// Creates a znode; its path.
    pub(crate) fn create(&mut self, path: &str, data: &[u8], mode: CreateMode) -> String {
        self.0.create(path, data, mode.to_wire()).expect("a znode that can be created")
    }

    /// A znode's data; `None` if there is no such znode.
    pub(crate) fn get(&mut self, path: &str, watch: bool) -> Option<Vec<u8>> {
        Some(self.0.get(path, watch).expect("an answer to getData")?.0)
    }

    pub(crate) fn set(&mut self, path: &str, data: &[u8]) {
        self.0.set(path, data).expect("a znode that can be written");
    }

    pub(crate) fn delete(&mut self, path: &str) {
        self.0.delete(path).expect("a znode that can be deleted");
    }

    /// Whether the znode exists.
    pub(crate) fn exists(&mut self, path: &str, watch: bool) -> bool {
        self.0.exists(path, watch).expect("an answer to exists")
    }

    /// Names of the children, sorted.
    pub(crate) fn children(&mut self, path: &str, watch: bool) -> Vec<String> {
        self.0.children(path, watch).expect("an answer to getChildren")
    }

    /// Waits until everything that was committed before is seen here.
    pub(crate) fn sync(&mut self) {
        self.call_ok(&Request::Sync(SyncRequest { path: Some("/".into()) }));
    }

    /// Ends the session, in order.
    pub(crate) fn close(self) {
        self.0.close().expect("a session that can be closed");
    }
}
