//! A nonblocking connection with its two buffers, both kept from one connection to the next.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use mio::net::TcpStream;
use mio::{Interest, Registry};

use super::SOCKET;
use super::tls::Session;
use crate::core::Loss;

/// Room for one read, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// Buffers that have grown beyond this are given back, in bytes.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

#[derive(Default)]
pub(super) struct Socket {
    stream: Stream,
    output: Vec<u8>,
    /// How much of `output` is sent.
    sent: usize,
    input: Vec<u8>,
    /// How much of `input` is filled.
    filled: usize,
}

#[derive(Default)]
enum Stream {
    #[default]
    Closed,
    Dialing {
        stream: TcpStream,
        others: std::vec::IntoIter<SocketAddr>,
        session: Option<Session>,
    },
    Open(Arc<TcpStream>),
    /// With TLS, from its handshake on.
    Secured(Secured),
}

struct Secured {
    tcp: TcpStream,
    session: Session,
}

impl Socket {
    pub(super) fn is_open(&self) -> bool {
        match &self.stream {
            Stream::Open(_) => true,
            Stream::Secured(secured) => !secured.session.is_handshaking(),
            Stream::Closed | Stream::Dialing { .. } => false,
        }
    }

    pub(super) fn is_dialing(&self) -> bool {
        !matches!(self.stream, Stream::Closed) && !self.is_open()
    }

    /// The open connection, if bytes are sent on it as they are.
    pub(super) fn opened(&self) -> Option<Arc<TcpStream>> {
        match &self.stream {
            Stream::Open(stream) => Some(Arc::clone(stream)),
            _ => None,
        }
    }

    pub(super) const fn has_unsent(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Where to put what is to be sent next; everything before is sent.
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        debug_assert!(!self.has_unsent(), "the buffer is handed out when it is empty");
        self.output.clear();
        self.sent = 0;
        if self.output.capacity() > KEPT_BYTES_MAX {
            self.output = Vec::new();
        }
        &mut self.output
    }

    pub(super) fn close(&mut self, registry: &Registry) {
        match std::mem::take(&mut self.stream) {
            Stream::Closed => {}
            Stream::Dialing { mut stream, .. } => deregister(&mut stream, registry),
            // Callers hold it only under the core's lock, so dropping ours closes it.
            Stream::Open(stream) => match Arc::try_unwrap(stream) {
                Ok(mut stream) => deregister(&mut stream, registry),
                Err(stream) => drop(stream.shutdown(std::net::Shutdown::Both)),
            },
            Stream::Secured(mut secured) => {
                secured.session.end(&mut secured.tcp);
                deregister(&mut secured.tcp, registry);
            }
        }
        self.output.clear();
        self.sent = 0;
        self.filled = 0;
    }

    /// Resolves the name, which may block, and begins to connect to the first address that takes it.
    /// With a session, TLS comes before anything else.
    pub(super) fn dial(
        &mut self,
        host: &str,
        port: u16,
        session: Option<Session>,
        registry: &Registry,
    ) -> Result<(), Loss> {
        let addresses = (host, port)
            .to_socket_addrs()
            .map_err(|error| Loss::Dial(format!("cannot resolve {host}: {error}")))?;
        self.dial_next(addresses.collect::<Vec<_>>().into_iter(), session, None, registry)
    }

    fn dial_next(
        &mut self,
        mut addresses: std::vec::IntoIter<SocketAddr>,
        session: Option<Session>,
        mut failure: Option<Loss>,
        registry: &Registry,
    ) -> Result<(), Loss> {
        while let Some(address) = addresses.next() {
            let connecting = TcpStream::connect(address).and_then(|mut stream| {
                registry.register(&mut stream, SOCKET, Interest::READABLE | Interest::WRITABLE)?;
                Ok(stream)
            });
            match connecting {
                Ok(stream) => {
                    self.stream = Stream::Dialing { stream, others: addresses, session };
                    return Ok(());
                }
                Err(error) => failure = Some(Loss::Dial(format!("cannot connect to {address}: {error}"))),
            }
        }
        Err(failure.unwrap_or_else(|| Loss::Dial("the name has no address".to_owned())))
    }

    /// Looks what became of the dial: whether the connection is open.
    pub(super) fn finish_dial(&mut self, registry: &Registry) -> Result<bool, Loss> {
        if let Stream::Secured(secured) = &mut self.stream {
            return secured.shake_hands();
        }
        let Stream::Dialing { mut stream, others, session } = std::mem::take(&mut self.stream) else {
            return Ok(false);
        };
        let failure = match (stream.take_error(), stream.peer_addr()) {
            (Ok(None), Ok(_)) => {
                // Requests are batched here; the kernel must not hold them back.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::warn!(%error, "TCP_NODELAY");
                }
                let Some(session) = session else {
                    self.stream = Stream::Open(Arc::new(stream));
                    return Ok(true);
                };
                let mut secured = Secured { tcp: stream, session };
                let done = secured.shake_hands();
                self.stream = Stream::Secured(secured);
                return done;
            }
            (Ok(Some(error)) | Err(error), _) => error,
            (Ok(None), Err(error)) if error.kind() == ErrorKind::NotConnected => {
                self.stream = Stream::Dialing { stream, others, session };
                return Ok(false);
            }
            (Ok(None), Err(error)) => error,
        };
        deregister(&mut stream, registry);
        self.dial_next(others, session, Some(Loss::Dial(format!("cannot connect: {failure}"))), registry)?;
        Ok(false)
    }

    /// Sends as much as the socket takes.
    pub(super) fn flush(&mut self) -> Result<(), Loss> {
        match self.is_open().then(|| self.send()) {
            Some(Err(error)) if error.kind() != ErrorKind::WouldBlock => {
                Err(Loss::Broken(format!("send: {error}")))
            }
            _ => Ok(()),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        if let Stream::Secured(secured) = &mut self.stream {
            secured.session.send(&mut secured.tcp)?;
        }
        while self.has_unsent() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads all there is, handing it to `handle`, which says how much it has used.
    pub(super) fn receive(&mut self, mut handle: impl FnMut(&[u8]) -> usize) -> Result<(), Loss> {
        if !self.is_open() {
            return Ok(());
        }
        let is_plain = matches!(self.stream, Stream::Open(_));
        loop {
            if self.filled == self.input.len() {
                // The beginning of a frame fills it: twice as much, at least one read.
                self.input.resize((self.filled * 2).max(READ_BYTES), 0);
            }
            let room = &mut self.input[self.filled..];
            let (room_len, read) = (room.len(), self.stream.read(room));
            match read {
                Ok(0) => return Err(Loss::Broken("closed by the server".to_owned())),
                Ok(len) => {
                    let end = self.filled + len;
                    let used = handle(&self.input[..end]);
                    self.input.copy_within(used..end, 0);
                    self.filled = end - used;
                    // A short read has emptied a socket of Linux and the BSDs: saves a call that would
                    // only say so.
                    if len < room_len && is_plain && cfg!(unix) {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Loss::Broken(format!("receive: {error}"))),
            }
        }
        if self.filled == 0 && self.input.len() > KEPT_BYTES_MAX {
            self.input = Vec::new();
        }
        Ok(())
    }
}

impl Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Open(stream) => (&**stream).read(room),
            Self::Secured(secured) => secured.session.read(&mut secured.tcp, room),
            Self::Closed | Self::Dialing { .. } => Err(ErrorKind::NotConnected.into()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Open(stream) => (&**stream).write(bytes),
            Self::Secured(secured) => secured.session.write(&mut secured.tcp, bytes),
            Self::Closed | Self::Dialing { .. } => Err(ErrorKind::NotConnected.into()),
        }
    }
}

impl Secured {
    /// Goes on with the handshake: whether it is done.
    fn shake_hands(&mut self) -> Result<bool, Loss> {
        self.session.shake_hands(&mut self.tcp).map_err(|error| Loss::Dial(format!("TLS: {error}")))
    }
}

fn deregister(stream: &mut TcpStream, registry: &Registry) {
    // Closing the descriptor, which comes next, deregisters it too.
    let _ = registry.deregister(stream);
}
