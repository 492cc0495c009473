//! A client's socket, in the clear or with TLS, blocking or not.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use ringkeeper_tls::ClientSession;
use ringkeeper_tls::rustls::ClientConfig;

/// A TCP socket on which bytes are sent as they are, or by TLS.
pub struct Socket {
    tcp: TcpStream,
    session: Option<ClientSession>,
}

impl From<TcpStream> for Socket {
    fn from(tcp: TcpStream) -> Self {
        Self { tcp, session: None }
    }
}

impl Socket {
    /// TLS on a connected socket, with the server that is reached by this name or address. The handshake
    /// comes with the first bytes.
    ///
    /// # Errors
    /// The name is none.
    pub fn secured(tcp: TcpStream, config: Arc<ClientConfig>, host: &str) -> io::Result<Self> {
        let session = ClientSession::new(config, host).map_err(io::Error::other)?;
        Ok(Self { tcp, session: Some(session) })
    }

    /// Whether it speaks TLS, so that a short read does not mean that the socket is empty.
    #[must_use]
    pub const fn is_secured(&self) -> bool {
        self.session.is_some()
    }

    /// The socket below.
    pub const fn tcp(&mut self) -> &mut TcpStream {
        &mut self.tcp
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.tcp.read(buffer),
            Some(session) => session.read(&mut self.tcp, buffer),
        }
    }
}

/// What is flushed was sealed, and did not fit into the socket.
impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.tcp.write(bytes),
            Some(session) => session.write(&mut self.tcp, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.session {
            None => self.tcp.flush(),
            Some(session) => session.send(&mut self.tcp),
        }
    }
}
