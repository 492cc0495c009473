//! A client that does what it is told and no more: it never pings, and reads only when it waits for
//! something.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use ringkeeper_tls::rustls::ClientConfig;
use ringkeeper_wire::{
    ErrorCode, GetChildrenResponse, GetDataResponse, OpCode, PathWatchRequest, Record, ReplyHeader, Request,
    SetDataRequest, SetSaslResponse, Stat, WatcherEvent, Xid, digest_md5, xid,
};

use crate::bodies::{auth_body, create_request, delete_request, sasl_body};
use crate::connection::{
    Connection, Received, Session, append_request, connect_frame, granted_session, request_frame,
};
use crate::{SERVER_NAME, Socket};

/// A session and its connection. Every call fails if the connection ends, if nothing comes, or if something
/// else comes than the reply; those that are named after an operation fail if the server refuses it, too.
pub struct Client {
    /// What bytes can be sent on, and frames received from, past the client.
    pub connection: Connection,
    /// The session.
    pub session: Session,
    /// Its timeout as the server has granted it, in milliseconds.
    pub timeout_ms: i32,
    last_xid: i32,
    events: VecDeque<Event>,
    unasked: usize,
}

/// A reply: the fields of its header that are not always the same, and the body's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Of the request.
    pub xid: Xid,
    /// The newest zxid that the server has applied.
    pub zxid: i64,
    /// 0, or why the request was refused.
    pub err: i32,
    /// Empty if it was refused.
    pub body: Vec<u8>,
}

/// A notification of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened, as ZooKeeper numbers it.
    pub event_type: i32,
    /// To which znode.
    pub path: String,
}

/// Data and Stat of a znode.
pub type Node = (Vec<u8>, Stat);

/// Requests that are sent before the first reply is read, in calls with many paths.
const AT_ONCE: usize = 256;

impl Client {
    /// Opens a new session.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn connect(server: SocketAddr, timeout_ms: i32) -> Result<Self> {
        let client = Self::resume(server, timeout_ms, &Session::default(), 0)?;
        client.with_context(|| format!("{server} opens no session"))
    }

    /// Comes back to a session, having seen `last_zxid_seen`. `None` if the server says that the session has
    /// expired.
    ///
    /// # Errors
    /// The server cannot be reached, or closes the connection.
    pub fn resume(
        server: SocketAddr,
        timeout_ms: i32,
        session: &Session,
        last_zxid_seen: i64,
    ) -> Result<Option<Self>> {
        Self::resume_on(Connection::open(server)?, timeout_ms, session, last_zxid_seen)
    }

    /// Opens a new session, with TLS.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn connect_secured(server: SocketAddr, timeout_ms: i32, config: Arc<ClientConfig>) -> Result<Self> {
        let socket = Socket::secured(TcpStream::connect(server)?, config, SERVER_NAME)?;
        let client = Self::resume_on(Connection::of(socket)?, timeout_ms, &Session::default(), 0)?;
        client.with_context(|| format!("{server} opens no session"))
    }

    fn resume_on(
        mut connection: Connection,
        timeout_ms: i32,
        session: &Session,
        last_zxid_seen: i64,
    ) -> Result<Option<Self>> {
        connection.send(&connect_frame(&session.connect_request(timeout_ms, last_zxid_seen)))?;
        Self::accepted(connection)
    }

    /// Takes over a connection that has asked for a session. `None` if the server says that the session has
    /// expired.
    ///
    /// # Errors
    /// The server closes the connection, or is silent.
    pub fn accepted(mut connection: Connection) -> Result<Option<Self>> {
        let Received::Frame(answer) = connection.receive()? else { bail!("no answer to the ConnectRequest") };
        Ok(granted_session(&answer).map(|(session, timeout_ms)| Self {
            connection,
            session,
            timeout_ms,
            last_xid: 0,
            events: VecDeque::new(),
            unasked: 0,
        }))
    }

    fn next_xid(&mut self) -> Xid {
        self.last_xid += 1;
        Xid(self.last_xid)
    }

    /// Sends a request without waiting.
    ///
    /// # Errors
    /// The server does not take it.
    pub fn send(&mut self, request: &Request<'_>) -> Result<Xid> {
        let (xid, mut bytes) = (self.next_xid(), Vec::new());
        append_request(&mut bytes, xid, request);
        self.connection.send(&bytes)?;
        Ok(xid)
    }

    /// The next reply; events that come first are kept.
    ///
    /// # Errors
    /// The connection ends, or nothing comes.
    pub fn reply(&mut self) -> Result<Reply> {
        loop {
            if let Some(reply) = self.message()? {
                return Ok(reply);
            }
        }
    }

    /// The next event.
    ///
    /// # Errors
    /// The connection ends, nothing comes, or a reply comes first.
    pub fn event(&mut self) -> Result<Event> {
        while self.events.is_empty() {
            let reply = self.message()?;
            ensure!(reply.is_none(), "a reply that was not asked for: {reply:?}");
        }
        self.events.pop_front().context("the loop has found one")
    }

    /// Events that came before the replies read so far.
    pub fn events_so_far(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    /// How many replies to pings came that were not sent: what a server tells a client that it lets wait.
    #[must_use]
    pub const fn unasked(&self) -> usize {
        self.unasked
    }

    /// Reads one message: a reply, or `None` for an event, which is kept, and for what was not asked for.
    fn message(&mut self) -> Result<Option<Reply>> {
        let received = self.connection.receive()?;
        let reply = parse_reply(&received)?;
        if reply.as_ref().is_some_and(|reply| reply.xid == xid::PING && reply.zxid == 0) {
            self.unasked += 1;
            return Ok(None);
        }
        if let (None, Received::Frame(frame)) = (&reply, &received) {
            let event = WatcherEvent::from_bytes(&frame[ReplyHeader::LEN..])?;
            self.events.push_back(Event { event_type: event.event_type, path: event.path.into_owned() });
        }
        Ok(reply)
    }

    fn reply_to(&mut self, xid: Xid) -> Result<Reply> {
        let reply = self.reply()?;
        ensure!(reply.xid == xid, "a reply to {} where that to {} was due", reply.xid.0, xid.0);
        Ok(reply)
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// The connection ends, nothing comes, or something else comes.
    pub fn call(&mut self, request: &Request<'_>) -> Result<Reply> {
        let xid = self.send(request)?;
        self.reply_to(xid).with_context(|| format!("{:?}", request.op()))
    }

    /// As [`Self::call`], with a body that may be anything.
    pub fn request(&mut self, op: OpCode, body: &[u8]) -> Result<Reply> {
        let xid = self.next_xid();
        self.connection.send(&request_frame(xid.0, op.to_wire(), body))?;
        self.reply_to(xid).with_context(|| format!("{op:?}"))
    }

    /// Adds an identity to the connection.
    ///
    /// # Errors
    /// The connection ends, or the server refuses the credentials.
    pub fn authenticate(&mut self, scheme: &str, credentials: &[u8]) -> Result<()> {
        let body = auth_body(scheme, credentials);
        self.connection.send(&request_frame(xid::AUTH.0, OpCode::Auth.to_wire(), &body))?;
        self.reply_to(xid::AUTH)?.ok(scheme).map(drop)
    }

    /// Logs in by SASL with DIGEST-MD5.
    ///
    /// # Errors
    /// The connection ends, the server refuses the login, or does not know the password.
    pub fn login(&mut self, user: &str, password: &str) -> Result<()> {
        let challenge = self.answer_to(b"")?;
        let (response, proof) = digest_md5::respond(&challenge, user, password, "cnonce")?;
        ensure!(self.answer_to(&response)? == proof.as_bytes(), "the server does not know the password");
        Ok(())
    }

    /// The server's answer to one token of a login.
    fn answer_to(&mut self, token: &[u8]) -> Result<Vec<u8>> {
        let body = self.request(OpCode::Sasl, &sasl_body(token))?.ok("sasl")?;
        SetSaslResponse::from_bytes(&body)?.token.map(<[u8]>::to_vec).context("the server has no users")
    }

    /// As [`Self::call`] for a request that succeeds; the reply's body.
    ///
    /// # Errors
    /// Those of [`Self::call`], and a refusal.
    pub fn call_ok(&mut self, request: &Request<'_>) -> Result<Vec<u8>> {
        self.call(request)?.ok(&format!("{request:?}"))
    }

    /// Creates a znode that everybody may use. Returns its path.
    pub fn create(&mut self, path: &str, data: &[u8], flags: i32) -> Result<String> {
        let body = self.call_ok(&create_request(path, data, flags))?;
        Ok(ringkeeper_wire::CreateResponse::from_bytes(&body)?.path.into_owned())
    }

    /// Data and Stat of a znode, `None` if it does not exist.
    pub fn get(&mut self, path: &str, watch: bool) -> Result<Option<Node>> {
        let reply = self.call(&Request::GetData(PathWatchRequest { path: path.into(), watch }))?;
        decode_node(reply, path)
    }

    /// The same for many znodes.
    pub fn get_all(&mut self, paths: &[String]) -> Result<Vec<Option<Node>>> {
        let replies = self
            .call_all(paths, |path| Request::GetData(PathWatchRequest { path: path.into(), watch: false }))?;
        replies.into_iter().zip(paths).map(|(reply, path)| decode_node(reply, path)).collect()
    }

    /// A request about each of many paths, a few hundred at a time; the replies in their order.
    fn call_all<'p>(
        &mut self,
        paths: &'p [String],
        request: impl Fn(&'p str) -> Request<'p>,
    ) -> Result<Vec<Reply>> {
        let mut replies = Vec::with_capacity(paths.len());
        for paths in paths.chunks(AT_ONCE) {
            let mut bytes = Vec::new();
            let xids: Vec<Xid> = paths.iter().map(|_| self.next_xid()).collect();
            xids.iter().zip(paths).for_each(|(xid, path)| append_request(&mut bytes, *xid, &request(path)));
            self.connection.send(&bytes)?;
            for xid in xids {
                replies.push(self.reply_to(xid)?);
            }
        }
        Ok(replies)
    }

    /// Replaces a znode's data, whatever its version.
    pub fn set(&mut self, path: &str, data: &[u8]) -> Result<()> {
        let request = SetDataRequest { path: path.into(), data: Some(data), version: -1 };
        self.call_ok(&Request::SetData(request)).map(drop)
    }

    /// Whether the znode exists.
    pub fn exists(&mut self, path: &str, watch: bool) -> Result<bool> {
        let reply = self.call(&Request::Exists(PathWatchRequest { path: path.into(), watch }))?;
        if reply.err == ErrorCode::NoNode.to_wire() {
            return Ok(false);
        }
        reply.ok(path).map(|_| true)
    }

    /// Names of the children, sorted.
    pub fn children(&mut self, path: &str, watch: bool) -> Result<Vec<String>> {
        let body = self.call_ok(&Request::GetChildren(PathWatchRequest { path: path.into(), watch }))?;
        let response = GetChildrenResponse::from_bytes(&body)?;
        let mut names: Vec<String> = response.children.iter().map(|name| name.into_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// Deletes a znode of any version.
    pub fn delete(&mut self, path: &str) -> Result<()> {
        self.call_ok(&delete_request(path)).map(drop)
    }

    /// The same for many znodes.
    pub fn delete_all(&mut self, paths: &[String]) -> Result<()> {
        let replies = self.call_all(paths, delete_request)?;
        replies.into_iter().zip(paths).try_for_each(|(reply, path)| reply.ok(path).map(drop))
    }

    /// Ends the session.
    pub fn close(mut self) -> Result<()> {
        self.call_ok(&Request::CloseSession).map(drop)
    }
}

impl Reply {
    /// The body, if the request was granted. `about`: what an error names.
    ///
    /// # Errors
    /// It was refused.
    pub fn ok(self, about: &str) -> Result<Vec<u8>> {
        let about = || about.chars().take(200).collect::<String>();
        ensure!(self.err == ErrorCode::Ok.to_wire(), "error {} about {}", self.err, about());
        Ok(self.body)
    }
}

fn decode_node(reply: Reply, path: &str) -> Result<Option<Node>> {
    if reply.err == ErrorCode::NoNode.to_wire() {
        return Ok(None);
    }
    let body = reply.ok(path)?;
    let response = GetDataResponse::from_bytes(&body)?;
    Ok(Some((response.data.unwrap_or_default().to_vec(), response.stat)))
}

/// A reply; `None` for an event.
///
/// # Errors
/// It is no frame, or too short.
pub fn parse_reply(received: &Received) -> Result<Option<Reply>> {
    let Received::Frame(frame) = received else { bail!("the connection is {received:?}") };
    let ReplyHeader { xid, zxid, err } = ReplyHeader::from_bytes(frame)?;
    let body = || frame[ReplyHeader::LEN..].to_vec();
    Ok((xid != xid::NOTIFICATION).then(|| Reply { xid, zxid, err, body: body() }))
}
