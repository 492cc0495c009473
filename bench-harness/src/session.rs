//! A session on a blocking socket, for everything outside a measurement: opening sessions, laying out the
//! znodes, cleaning up.
//!
//! Requests of many sessions are sent before the first reply is awaited, so that a server can commit them
//! as one group; a thousand sessions are open after a few forced writes instead of a thousand.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use ringkeeper_wire::frame::{DEFAULT_FRAME_LEN_MAX, FRAME_HEADER_LEN, next_frame};
use ringkeeper_wire::{ConnectResponse, Record};

use crate::fault::Fault;
use crate::{request, reply};

/// Session timeout asked for, in milliseconds. Long, for the harness sends no heartbeats: a session is
/// either under load or gone. ZooKeeper grants at most 20 ticks, 40 s by default.
pub(crate) const SESSION_TIMEOUT_MS: i32 = 40_000;

/// How long a server may take to accept a connection, and to answer outside a measurement.
const PATIENCE: Duration = Duration::from_secs(30);

/// An open session with nothing outstanding.
pub(crate) struct Session {
    stream: TcpStream,
    server: SocketAddr,
    next_xid: i32,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl Session {
    /// Opens one session.
    pub(crate) fn open(server: SocketAddr) -> Result<Self> {
        let mut sessions = Self::open_all(&[server], 1)?;
        Ok(sessions.pop().expect("as many sessions as asked for"))
    }

    /// Opens `count` sessions, spread evenly over `servers`.
    pub(crate) fn open_all(servers: &[SocketAddr], count: usize) -> Result<Vec<Self>> {
        let mut sessions = Vec::with_capacity(count);
        for server in servers.iter().cycle().take(count) {
            sessions.push(Self::dial(*server).with_context(|| format!("cannot reach server {server}"))?);
        }
        for session in &mut sessions {
            session.finish_handshake().with_context(|| format!("no session on server {}", session.server))?;
        }
        Ok(sessions)
    }

    fn dial(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut session = Self { stream, server, next_xid: 1, out: Vec::new(), input: Vec::new() };
        request::connect(&mut session.out, SESSION_TIMEOUT_MS);
        session.flush()?;
        Ok(session)
    }

    fn finish_handshake(&mut self) -> Result<(), Fault> {
        self.read_frame()?;
        let granted = ConnectResponse::from_bytes(&self.input)?;
        if granted.timeout_ms <= 0 { Err(Fault::SessionRefused) } else { Ok(()) }
    }

    /// A session around a socket on which nothing is outstanding, and the xid to go on with.
    pub(crate) fn resume(stream: TcpStream, next_xid: i32) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        let server = stream.peer_addr()?;
        Ok(Self { stream, server, next_xid, out: Vec::new(), input: Vec::new() })
    }

    /// The socket and the xid to go on with.
    pub(crate) fn into_parts(self) -> (TcpStream, i32) {
        (self.stream, self.next_xid)
    }

    /// The server that this session is connected to.
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

    /// Awaits the reply to xid `next_xid - outstanding` and returns its body.
    fn receive_nth(&mut self, outstanding: i32) -> Result<&[u8], Fault> {
        self.read_frame()?;
        reply::body_of(&self.input, self.next_xid - outstanding)
    }

    /// Awaits the reply to the last request, the only one outstanding, and returns its body.
    pub(crate) fn receive(&mut self) -> Result<&[u8], Fault> {
        self.receive_nth(1)
    }

    /// Sends a request and awaits its reply.
    pub(crate) fn call(&mut self, encode: impl FnOnce(&mut Vec<u8>, i32)) -> Result<&[u8], Fault> {
        self.send(encode)?;
        self.receive()
    }

    fn flush(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent
    }

    /// Reads the next frame's payload into `input`.
    fn read_frame(&mut self) -> Result<(), Fault> {
        let mut header = [0; FRAME_HEADER_LEN];
        self.read_exact(&mut header)?;
        // Only the length can be judged yet; the check for a whole frame follows from reading that much.
        next_frame(&header, DEFAULT_FRAME_LEN_MAX)?;
        let len = usize::try_from(i32::from_be_bytes(header)).expect("judged above");
        let mut input = std::mem::take(&mut self.input);
        input.resize(len, 0);
        let read = self.read_exact(&mut input);
        self.input = input;
        read
    }

    fn read_exact(&mut self, into: &mut [u8]) -> Result<(), Fault> {
        self.stream.read_exact(into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Closed,
            io::ErrorKind::WouldBlock => Fault::Missing { outstanding: 1, silence: PATIENCE },
            _ => Fault::Io(error),
        })
    }
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

fn context(index: usize, session: &Session) -> String {
    format!("session {index} on server {}", session.server)
}

/// Closes all sessions.
pub(crate) fn close_all(mut sessions: Vec<Session>) -> Result<()> {
    call_each(&mut sessions, |_, out, xid| request::close_session(out, xid)).context("closing the sessions")
}
