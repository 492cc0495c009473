//! A client's connection, as raw as the tests need it: frames out, frames in, nothing interpreted but the
//! handshake.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;

use ringkeeper_wire::frame::{framed, next_frame, put_frame};
use ringkeeper_wire::{
    AclEntry, ConnectRequest, ConnectResponse, PASSWORD_LEN, Perms, Record, Request, RequestHeader,
    SessionId, Xid,
};

use crate::Socket;

/// How long a server may stay silent before it counts as silent, unless [`Connection::set_patience`] says
/// otherwise.
const SILENCE: Duration = Duration::from_secs(10);

/// How much is read at once, in bytes.
const READ_LEN: usize = 64 << 10;

/// What a client finds on its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A frame, without its length.
    Frame(Vec<u8>),
    /// The server has closed the connection.
    Closed,
    /// Nothing has come for as long as the client is patient.
    Silent,
}

/// A session as its client knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Its number, 0 before the first handshake.
    pub id: SessionId,
    /// What resumes it.
    pub password: [u8; PASSWORD_LEN],
}

impl Session {
    /// What asks to resume the session, or for a new one if its number is 0.
    #[must_use]
    pub const fn connect_request(&self, timeout_ms: i32, last_zxid_seen: i64) -> ConnectRequest<'_> {
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen,
            timeout_ms,
            session_id: self.id,
            password: Some(&self.password),
            read_only: Some(false),
        }
    }
}

/// One connection to a server.
pub struct Connection {
    socket: Socket,
    buffer: Vec<u8>,
    /// How much of `buffer` is received and not taken.
    filled: usize,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn open(server: SocketAddr) -> io::Result<Self> {
        Self::of(TcpStream::connect_timeout(&server, SILENCE)?)
    }

    /// Takes over a connection.
    ///
    /// # Errors
    /// The socket refuses its settings.
    pub fn of(socket: impl Into<Socket>) -> io::Result<Self> {
        let mut socket = socket.into();
        let tcp = socket.tcp();
        tcp.set_nodelay(true)?;
        tcp.set_write_timeout(Some(SILENCE))?;
        tcp.set_read_timeout(Some(SILENCE))?;
        Ok(Self { socket, buffer: Vec::new(), filled: 0 })
    }

    /// The socket, and how many bytes were received without being taken.
    #[must_use]
    pub fn into_parts(self) -> (Socket, usize) {
        (self.socket, self.filled)
    }

    /// The TCP socket.
    pub const fn stream(&mut self) -> &mut TcpStream {
        self.socket.tcp()
    }

    /// Sends bytes as they are. A connection that the server has closed swallows them: reading tells.
    ///
    /// # Errors
    /// The server does not take them.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.socket.write_all(bytes) {
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                Ok(())
            }
            result => result,
        }
    }

    /// The next frame, or how the connection stands instead.
    ///
    /// # Errors
    /// The socket fails, or a frame has a negative length.
    pub fn receive(&mut self) -> io::Result<Received> {
        loop {
            let frame = next_frame(&self.buffer[..self.filled], usize::MAX);
            if let Some((frame, len)) =
                frame.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?
            {
                let frame = frame.to_vec();
                self.buffer.copy_within(len..self.filled, 0);
                self.filled -= len;
                return Ok(Received::Frame(frame));
            }
            if self.buffer.len() < self.filled + READ_LEN {
                self.buffer.resize(self.filled + READ_LEN, 0);
            }
            match self.socket.read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Ok(Received::Closed),
                Ok(len) => self.filled += len,
                Err(error) => match error.kind() {
                    ErrorKind::ConnectionReset
                    | ErrorKind::BrokenPipe
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::UnexpectedEof => return Ok(Received::Closed),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(Received::Silent),
                    ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// How long reading waits.
    ///
    /// # Errors
    /// It is zero.
    pub fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        self.socket.tcp().set_read_timeout(Some(patience))
    }
}

/// Puts a length in front.
#[must_use]
pub fn frame(payload: &[u8]) -> Vec<u8> {
    framed(|out| out.extend_from_slice(payload))
}

/// A request whose body may be anything, framed.
#[must_use]
pub fn request_frame(xid: i32, op: i32, body: &[u8]) -> Vec<u8> {
    framed(|out| {
        RequestHeader { xid: Xid(xid), op }.encode(out);
        out.extend_from_slice(body);
    })
}

/// The first frame of a connection.
#[must_use]
pub fn connect_frame(request: &ConnectRequest<'_>) -> Vec<u8> {
    framed(|out| request.encode(out))
}

/// Appends a request, framed.
pub fn append_request(out: &mut Vec<u8>, xid: Xid, request: &Request<'_>) {
    put_frame(out, |out| {
        RequestHeader { xid, op: request.op().to_wire() }.encode(out);
        request.encode(out);
    });
}

/// The permissions of a znode with which everybody may do everything.
pub static OPEN_ACL: LazyLock<[AclEntry; 1]> =
    LazyLock::new(|| [AclEntry { perms: Perms::ALL, scheme: "world".into(), id: "anyone".into() }]);

/// The session that the answer to a handshake grants, if it does, and its timeout in milliseconds.
#[must_use]
pub fn granted_session(answer: &[u8]) -> Option<(Session, i32)> {
    let response = ConnectResponse::from_bytes(answer).ok()?;
    let password = <[u8; PASSWORD_LEN]>::try_from(response.password?).ok()?;
    let session = Session { id: response.session_id, password };
    (response.timeout_ms > 0).then_some((session, response.timeout_ms))
}
