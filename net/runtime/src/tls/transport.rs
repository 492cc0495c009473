//! What a connection with TLS needs of the socket below it, on either runtime.

use std::io;

use bytes::Bytes;
use futures_lite::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::runtime::Runtime;

/// A connected socket, on this thread's executor.
#[expect(async_fn_in_trait, reason = "a socket lives on one thread")]
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Sized + 'static {
    /// The executor's runtime.
    type Runtime: Runtime<Tcp = Self>;

    /// Has small messages sent at once.
    ///
    /// # Errors
    /// It is no socket of TCP.
    fn set_nodelay(&self) -> io::Result<()>;

    /// The first byte that the next read takes, once it is there; none at the end of the stream.
    ///
    /// # Errors
    /// The connection is broken.
    async fn first_byte(&self) -> io::Result<Option<u8>>;

    /// Writes all of `bytes`, without a copy of them where the runtime can.
    ///
    /// # Errors
    /// The connection is broken.
    async fn write_shared(&mut self, bytes: Bytes) -> io::Result<()> {
        self.write_all(&bytes).await
    }

    /// A second handle, so that one task can read and another write.
    ///
    /// # Errors
    /// No file descriptor is free.
    fn second(&self) -> io::Result<Self>;

    /// Closes the connection in both directions, and ends its pending reads.
    fn shut_down(&self);
}
