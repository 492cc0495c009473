//! One end of a connection, as a program uses it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_lite::{AsyncRead, AsyncWrite};
use ringkeeper_host::env::{Certificate, Connection, Stream, Writer};

use super::network::End;

/// A connection. Dropped, it is closed.
pub(crate) struct SimStream {
    reader: SimReader,
    writer: SimWriter,
}

/// The half that receives.
pub(crate) struct SimReader(End);

/// The half that sends.
pub(crate) struct SimWriter(End);

impl SimStream {
    pub(super) fn new(end: End) -> Self {
        Self { reader: SimReader(end.clone()), writer: SimWriter(end) }
    }
}

impl Stream for SimStream {
    type Reader = SimReader;
    type Writer = SimWriter;

    async fn open(self) -> io::Result<Connection<Self>> {
        let certificate = self.reader.0.certificate();
        let certificate =
            certificate.map(|names| Certificate::new(move |host| names.iter().any(|name| host == name)));
        Ok(Connection { reader: self.reader, writer: self.writer, certificate })
    }

    fn shutdown(writer: &mut SimWriter) {
        writer.0.shut_down();
    }
}

impl AsyncRead for SimReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_read(buffer, cx.waker())
    }
}

impl Writer for SimWriter {}

impl AsyncWrite for SimWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(bytes, cx.waker())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimReader {
    fn drop(&mut self) {
        self.0.turn_away();
    }
}

impl Drop for SimWriter {
    fn drop(&mut self) {
        self.0.close();
    }
}
