//! A client's connection, in the clear or with TLS, as the shard reads and writes it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_lite::{AsyncRead, AsyncWrite};
use ringkeeper_runtime::reactor::tcp::TcpStream;
use ringkeeper_runtime::tls::TlsConnection;

/// A connection of a client.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsConnection<TcpStream>>),
}

impl Stream {
    /// The socket, for its options.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(connection) => connection.tcp(),
        }
    }

    /// Reads what the client has sent; 0 bytes at its end.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Self::Tls(connection) => connection.poll_read(cx, buffer),
        }
    }

    /// Takes all of `bytes` for the client at once, where the connection can, and leaves an empty buffer.
    pub(crate) fn take(&self, bytes: &mut Vec<u8>) -> bool {
        match self {
            Self::Plain(tcp) => tcp.take(bytes),
            Self::Tls(_) => false,
        }
    }

    /// Takes bytes for the client. [`Self::poll_flush`] tells when they are with the socket.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(connection) => connection.poll_write(cx, bytes),
        }
    }

    /// Ready when the socket has taken all that was written.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(connection) => connection.poll_send(cx),
        }
    }

    /// Announces the end to the client.
    pub(crate) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_close(cx),
            Self::Tls(connection) => connection.poll_close(cx),
        }
    }
}
