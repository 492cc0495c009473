//! A session on a blocking socket, for everything outside a measurement: opening sessions, laying out the
//! znodes, cleaning up.
//!
//! Requests of many sessions are sent before the first reply is awaited, so that a server can commit them
//! as one group; a thousand sessions are open after a few forced writes instead of a thousand.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ringkeeper_client::core::Login;
use ringkeeper_testkit::{Connection, Received, Socket};
use ringkeeper_wire::{ConnectResponse, ErrorCode, Record, WatcherEvent, xid};

use crate::fault::Fault;
use crate::window::Rate;
use crate::{login, reply, request, tls};

/// Session timeout asked for, in milliseconds. ZooKeeper grants at most 20 ticks, 40 s by default.
pub(crate) const SESSION_TIMEOUT_MS: i32 = 40_000;

/// How long a session that waits for others, or for its next request, goes without a ping: a quarter of its
/// time-out.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(10);

/// How long a server may take to accept a connection, and to answer outside a measurement.
const PATIENCE: Duration = Duration::from_secs(30);

/// An open session with nothing outstanding.
pub(crate) struct Session {
    connection: Connection,
    server: SocketAddr,
    next_xid: i32,
    out: Vec<u8>,
    /// Received last.
    frame: Vec<u8>,
}

impl Session {
    /// Opens one session.
    pub(crate) fn open(server: SocketAddr) -> Result<Self> {
        let mut sessions = Self::open_all(&[server], 1)?;
        Ok(sessions.pop().expect("as many sessions as asked for"))
    }

    /// Opens `count` sessions, spread evenly over `servers`.
    pub(crate) fn open_all(servers: &[SocketAddr], count: usize) -> Result<Vec<Self>> {
        Self::open_all_told(servers, count, &mut Rate::new(None, "sessions"))
    }

    /// The same; `rate` is told of those that are open.
    pub(crate) fn open_all_told(
        servers: &[SocketAddr],
        count: usize,
        rate: &mut Rate<'_>,
    ) -> Result<Vec<Self>> {
        let mut sessions = Vec::with_capacity(count);
        for server in servers.iter().cycle().take(count) {
            sessions.push(Self::greet(*server).with_context(|| format!("cannot reach server {server}"))?);
        }
        for (opened, session) in (1..).zip(&mut sessions) {
            session.finish_handshake().with_context(|| format!("no session on server {}", session.server))?;
            rate.look(opened);
        }
        Ok(sessions)
    }

    fn greet(server: SocketAddr) -> io::Result<Self> {
        let mut session = Self::on(dial(server)?, server, 1)?;
        request::connect(&mut session.out, SESSION_TIMEOUT_MS);
        session.flush()?;
        Ok(session)
    }

    fn finish_handshake(&mut self) -> Result<(), Fault> {
        let granted = ConnectResponse::from_bytes(self.read_frame()?)?;
        if granted.timeout_ms <= 0 {
            return Err(Fault::SessionRefused);
        }
        login::next().map_or(Ok(()), |login| self.log_in(login))
    }

    fn log_in(&mut self, mut login: Login) -> Result<(), Fault> {
        login.begin(&mut self.out)?;
        loop {
            self.flush()?;
            self.read_frame()?;
            if login.handle_reply(&self.frame, &mut self.out)? {
                login::remember(login);
                return Ok(());
            }
        }
    }

    /// A session around a socket on which nothing is outstanding, and the xid to go on with.
    pub(crate) fn resume(mut socket: Socket, next_xid: i32) -> io::Result<Self> {
        socket.tcp().set_nonblocking(false)?;
        let server = socket.tcp().peer_addr()?;
        Self::on(socket, server, next_xid)
    }

    fn on(socket: Socket, server: SocketAddr, next_xid: i32) -> io::Result<Self> {
        let mut connection = Connection::of(socket)?;
        connection.set_patience(PATIENCE)?;
        Ok(Self { connection, server, next_xid, out: Vec::new(), frame: Vec::new() })
    }

    /// The socket and the xid to go on with.
    ///
    /// # Panics
    /// The server has sent more than was asked of it.
    pub(crate) fn into_parts(self) -> (Socket, i32) {
        let (socket, received) = self.connection.into_parts();
        assert!(received == 0, "{received} bytes that nobody asked for from {}", self.server);
        (socket, self.next_xid)
    }

    /// The one that it is on.
    pub(crate) const fn server(&self) -> SocketAddr {
        self.server
    }

    /// Sends the request that `encode` appends under the xid it is given. Await it with
    /// [`Session::receive`], in the order of sending.
    pub(crate) fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>, i32)) -> io::Result<()> {
        encode(&mut self.out, self.next_xid);
        self.next_xid += 1;
        self.flush()
    }

    /// Awaits the reply to the last request, the only one outstanding, and returns its body.
    pub(crate) fn receive(&mut self) -> Result<&[u8], Fault> {
        let xid = self.next_xid - 1;
        // A client that is made to wait is sent signs of life, unasked, which look like replies to pings.
        while reply::split(self.read_frame()?)?.0.xid == xid::PING {}
        reply::body_of(&self.frame, xid)
    }

    /// Awaits a watch notification, with nothing outstanding.
    pub(crate) fn receive_event(&mut self) -> Result<WatcherEvent<'_>, Fault> {
        let body = reply::body_of(self.read_frame()?, xid::NOTIFICATION.0)?;
        Ok(WatcherEvent::from_bytes(body)?)
    }

    /// Whether a notification comes within `patience`. If none does, the session is kept alive meanwhile.
    pub(crate) fn is_notified_within(&mut self, patience: Duration) -> Result<bool, Fault> {
        request::ping(&mut self.out);
        self.flush()?;
        let began = Instant::now();
        self.connection.set_patience(patience)?;
        // The answer to the ping must not be left for whoever reads next.
        let (mut notified, mut answered) = (false, false);
        while !(notified && answered) {
            match self.read_frame().and_then(reply::split) {
                Ok((header, _)) if header.xid == xid::NOTIFICATION => notified = true,
                Ok((header, _)) if header.xid == xid::PING => answered = true,
                Ok((header, _)) => return Err(Fault::Unasked(header.xid.0)),
                Err(Fault::Missing { .. }) if answered => break,
                Err(Fault::Missing { .. }) if began.elapsed() < PATIENCE => {}
                Err(fault) => return Err(fault),
            }
        }
        self.connection.set_patience(PATIENCE)?;
        Ok(notified)
    }

    /// Sends a request and awaits its reply.
    pub(crate) fn call(&mut self, encode: impl FnOnce(&mut Vec<u8>, i32)) -> Result<&[u8], Fault> {
        self.send(encode)?;
        self.receive()
    }

    /// Whether a znode exists; leaves a one-shot watch for its creation, change or end.
    pub(crate) fn exists(&mut self, path: &str) -> Result<bool, Fault> {
        match self.call(|out, xid| request::watch_existence(out, xid, path)) {
            Ok(_) => Ok(true),
            Err(Fault::Refused { err, .. }) if err == ErrorCode::NoNode.to_wire() => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let sent = self.connection.send(&self.out);
        self.out.clear();
        sent
    }

    /// The next frame's payload.
    fn read_frame(&mut self) -> Result<&[u8], Fault> {
        self.frame = match self.connection.receive()? {
            Received::Frame(frame) => frame,
            Received::Closed => return Err(Fault::Closed),
            Received::Silent => return Err(Fault::Missing { outstanding: 1, silence: PATIENCE }),
        };
        Ok(&self.frame)
    }
}

/// A connection to a server, with TLS if that is what it speaks.
pub(crate) fn dial(server: SocketAddr) -> io::Result<Socket> {
    tls::on(TcpStream::connect_timeout(&server, PATIENCE)?, server)
}

/// Sends one request on each session and awaits all replies. `encode` gets the index of the session.
pub(crate) fn call_each(
    sessions: &mut [Session],
    mut encode: impl FnMut(usize, &mut Vec<u8>, i32),
) -> Result<()> {
    for (index, session) in sessions.iter_mut().enumerate() {
        session.send(|out, xid| encode(index, out, xid)).with_context(|| context(index, session))?;
    }
    for (index, session) in sessions.iter_mut().enumerate() {
        if let Err(fault) = session.receive() {
            return Err(fault).with_context(|| context(index, session));
        }
    }
    Ok(())
}

/// Lets the servers know that the clients of these sessions are there.
pub(crate) fn ping_all(sessions: &mut [Session]) -> Result<()> {
    let sent = sessions.iter_mut().enumerate().map(|(index, session)| {
        request::ping(&mut session.out);
        session.flush().with_context(|| context(index, session))
    });
    sent.collect::<Result<()>>()?;
    for (index, session) in sessions.iter_mut().enumerate() {
        let answered = session.read_frame().and_then(|frame| reply::body_of(frame, xid::PING.0).map(drop));
        answered.with_context(|| context(index, session))?;
    }
    Ok(())
}

fn context(index: usize, session: &Session) -> String {
    format!("session {index} on server {}", session.server)
}

/// Closes all sessions.
pub(crate) fn close_all(mut sessions: Vec<Session>) -> Result<()> {
    call_each(&mut sessions, |_, out, xid| request::close_session(out, xid)).context("closing the sessions")
}
