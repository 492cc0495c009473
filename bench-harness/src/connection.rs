//! A non-blocking connection that moves bytes in bulk: one read for everything the socket has, one write
//! for everything there is to send. Frames are handed out where they were read; only the piece of a frame
//! at the end of a read is copied.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::time::Instant;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use ringkeeper_testkit::Socket;
use ringkeeper_wire::frame::{DEFAULT_FRAME_LEN_MAX, next_frame};

use crate::fault::Fault;

/// Size of the buffer that all connections of a thread read into, in bytes. A quarter of a MiB holds what
/// a hundred outstanding reads of 1 KiB answer, twice; a partial frame of any legal size leaves room.
const SCRATCH_LEN: usize = (256 << 10) + DEFAULT_FRAME_LEN_MAX;

/// The buffer to read into; contents mean nothing between two calls.
pub(crate) fn scratch() -> Box<[u8]> {
    vec![0; SCRATCH_LEN].into_boxed_slice()
}

/// One connection. Registered edge-triggered for both directions, once.
pub(crate) struct Connection {
    socket: Socket,
    /// The start of a frame whose end has not come yet.
    partial: Vec<u8>,
    out: Vec<u8>,
    /// How much of `out` is sent.
    sent: usize,
}

impl Connection {
    /// A connection on a connected socket.
    pub(crate) fn new(mut socket: Socket, registry: &Registry, token: Token) -> io::Result<Self> {
        let tcp = socket.tcp();
        tcp.set_nonblocking(true)?;
        registry.register(&mut SourceFd(&tcp.as_raw_fd()), token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { socket, partial: Vec::new(), out: Vec::new(), sent: 0 })
    }

    /// The bytes to send with the next [`Connection::flush`]; append to them.
    pub(crate) const fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// The socket, no longer registered. Received bytes that are no whole frame are dropped.
    pub(crate) fn into_socket(mut self, registry: &Registry) -> io::Result<Socket> {
        registry.deregister(&mut SourceFd(&self.socket.tcp().as_raw_fd()))?;
        Ok(self.socket)
    }

    /// Sends what the socket takes. The rest goes with the next call, due when the socket is writable.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.out.len() {
            match self.socket.write(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent = 0;
        match self.socket.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            flushed => flushed,
        }
    }

    /// Reads what the socket has and hands every whole frame's payload to `each`, with the time of the
    /// read that completed it. `to_end`: the peer sends no more, so read on to the end of the stream.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        to_end: bool,
        mut each: impl FnMut(&[u8], Instant) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        loop {
            let kept = self.partial.len();
            scratch[..kept].copy_from_slice(&self.partial);
            let room = &mut scratch[kept..];
            let room_len = room.len();
            let read = match self.socket.read(room) {
                Ok(0) => return Err(Fault::Closed),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let at = Instant::now();
            let mut rest = &scratch[..kept + read];
            while let Some((payload, len)) = next_frame(rest, DEFAULT_FRAME_LEN_MAX)? {
                each(payload, at)?;
                rest = &rest[len..];
            }
            self.partial.clear();
            self.partial.extend_from_slice(rest);
            // A short read has emptied the socket, and the next edge announces more; unless the end of the
            // stream came with the last bytes, for that has no edge of its own, or the bytes are those of one
            // record of TLS.
            if read < room_len && !to_end && !self.socket.is_secured() {
                return Ok(());
            }
        }
    }
}
