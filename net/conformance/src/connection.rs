//! A client's connection, as raw as the tests need it: frames out, frames in, nothing interpreted but the
//! handshake.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ringkeeper_wire::jute::{self, Reader};
use ringkeeper_wire::{ConnectRequest, ConnectResponse, PASSWORD_LEN, Record, RequestHeader, SessionId, Xid};

/// How long a server may stay silent before the tests call it silent.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);

/// What a client finds on its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A frame, without its length.
    Frame(Vec<u8>),
    /// The server has closed the connection.
    Closed,
    /// Nothing for [`SILENCE`].
    Silent,
}

/// A session as its client knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Session {
    /// Its number, 0 before the first handshake.
    pub(crate) id: SessionId,
    /// What resumes it.
    pub(crate) password: [u8; PASSWORD_LEN],
}

/// One TCP connection to a server.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub(crate) fn open(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, SILENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Connects and resumes `session`, or opens a new one if its number is 0; `None` if the server refuses.
    pub(crate) fn resume_session(
        server: SocketAddr,
        timeout_ms: i32,
        session: &Session,
        last_zxid_seen: i64,
    ) -> io::Result<Option<(Self, Session)>> {
        let mut connection = Self::open(server)?;
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen,
            timeout_ms,
            session_id: session.id,
            password: Some(&session.password),
            read_only: Some(false),
        };
        connection.send(&connect_frame(&request))?;
        let Received::Frame(answer) = connection.receive()? else { return Ok(None) };
        Ok(granted_session(&answer).map(|session| (connection, session)))
    }

    /// Sends bytes as they are. A connection that the server has closed swallows them: reading tells.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.stream.write_all(bytes) {
            Err(error) if is_closed(&error) => Ok(()),
            result => result,
        }
    }

    /// The next frame, or how the connection stands instead.
    pub(crate) fn receive(&mut self) -> io::Result<Received> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(Received::Frame(frame));
            }
            let mut chunk = [0; 64 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(Received::Closed),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if is_closed(&error) => return Ok(Received::Closed),
                Err(error) if is_timeout(&error) => return Ok(Received::Silent),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Another limit than [`SILENCE`] for reading.
    pub(crate) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))
    }

    fn take_frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some((head, rest)) = self.received.split_first_chunk::<4>() else { return Ok(None) };
        let len = usize::try_from(i32::from_be_bytes(*head))
            .map_err(|_| io::Error::new(ErrorKind::InvalidData, "a frame of negative length"))?;
        if rest.len() < len {
            return Ok(None);
        }
        let frame = rest[..len].to_vec();
        self.received.drain(..4 + len);
        Ok(Some(frame))
    }
}

/// Puts a length in front.
pub(crate) fn frame(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + payload.len());
    jute::put_buffer(&mut out, Some(payload));
    out
}

/// A request, framed.
pub(crate) fn request_frame(xid: i32, op: i32, body: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(8 + body.len());
    RequestHeader { xid: Xid(xid), op }.encode(&mut payload);
    payload.extend_from_slice(body);
    frame(&payload)
}

/// The first frame of a connection.
pub(crate) fn connect_frame(request: &ConnectRequest<'_>) -> Vec<u8> {
    let mut payload = Vec::new();
    request.encode(&mut payload);
    frame(&payload)
}

/// The session that the answer to a handshake grants, if it does.
pub(crate) fn granted_session(answer: &[u8]) -> Option<Session> {
    let response = ConnectResponse::decode(&mut Reader::new(answer)).ok()?;
    let password = <[u8; PASSWORD_LEN]>::try_from(response.password?).ok()?;
    (response.timeout_ms > 0).then_some(Session { id: response.session_id, password })
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            | ErrorKind::UnexpectedEof
    )
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
