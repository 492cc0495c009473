//! A connection with TLS, as its task reads and writes it. Records are sealed and opened here, not by the
//! kernel (docs/decisions/0035-tls-for-clients.md).

use std::io::{self, ErrorKind, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_lite::ready;
use ringkeeper_tls::Party;
use ringkeeper_tls::rustls::Connection;
use ringkeeper_tls::rustls::pki_types::CertificateDer;

use super::Transport;

/// Bytes of records that are read from a socket at once: the rest of the reader's buffer takes what they hold
/// and, before that, what has come of the record before them.
const RECORDS_READ_BYTES: usize = 24 * 1024;

/// The smallest buffer that can be read into: records, and what they hold.
pub(super) const READ_ROOM_MIN: usize = 4 * RECORDS_READ_BYTES;

/// Sealed bytes that wait for the socket, at most, before more are sealed.
const RECORDS_AHEAD_BYTES: usize = 64 * 1024;

/// A larger buffer for sealed records is freed when they are sent.
const KEEP_BUFFER_BYTES: usize = 4 * 1024;

/// A connection with TLS after its handshake.
pub struct TlsConnection<T> {
    tcp: T,
    session: Box<Connection>,
    party: Party,
    /// Sealed records on their way to the socket, of which `sent` bytes are gone.
    records: Vec<u8>,
    sent: usize,
    /// As much was read as is read at once: other connections come first.
    yields: bool,
    /// The other end has announced that it sends no more.
    ended: bool,
}

impl<T: Transport> TlsConnection<T> {
    /// A connection whose handshake is done. The session may hold bytes that came right after it.
    pub(super) fn new(tcp: T, session: Box<Connection>, party: Party) -> Self {
        Self { tcp, session, party, records: Vec::new(), sent: 0, yields: false, ended: false }
    }

    /// The socket, for its options.
    #[must_use]
    pub fn tcp(&self) -> &T {
        &self.tcp
    }

    /// The other end's certificate, if it has shown one.
    #[must_use]
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.session.peer_certificates()?.first()
    }

    /// Reads what was received into a buffer of at least [`READ_ROOM_MIN`] bytes; 0 bytes at the end.
    ///
    /// # Errors
    /// The connection is broken, or what came is not what the other end has sent.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.gives_way(cx) {
            return Poll::Pending;
        }
        let (opened, records) = buffer.split_at_mut(buffer.len() - RECORDS_READ_BYTES);
        let before = self.take_opened(opened);
        if before > 0 || self.ended {
            return Poll::Ready(Ok(before));
        }
        loop {
            let received = ready!(Pin::new(&mut self.tcp).poll_read(cx, records))?;
            self.yields = received == records.len();
            let bytes = self.open(&records[..received], opened);
            if self.session.wants_write() {
                // An answer to a key update, or the alert that says what was wrong.
                let _ = self.poll_send(cx);
            }
            let bytes = bytes?;
            if bytes > 0 || received == 0 || self.ended {
                return Poll::Ready(Ok(bytes));
            }
            if self.gives_way(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Whether other connections come first. Then the task is woken here and now: between two reads it may
    /// wait for something else, which would use up an earlier wake-up.
    fn gives_way(&mut self, cx: &Context<'_>) -> bool {
        let gives_way = std::mem::take(&mut self.yields);
        if gives_way {
            cx.waker().wake_by_ref();
        }
        gives_way
    }

    /// Announces the end to the other end.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.send_close_notify();
        // An end that does not read is not waited for.
        let _ = self.poll_send(cx);
        Pin::new(&mut self.tcp).poll_close(cx)
    }

    /// Opens records into `opened`, which has room for them. Returns how many bytes they hold.
    fn open(&mut self, mut records: &[u8], opened: &mut [u8]) -> io::Result<usize> {
        let mut bytes = 0;
        while !records.is_empty() {
            self.session.read_tls(&mut records)?;
            let processed = self.session.process_new_packets();
            let state = processed
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, self.party.explain(&error)))?;
            self.ended |= state.peer_has_closed();
            bytes += self.take_opened(&mut opened[bytes..]);
        }
        Ok(bytes)
    }

    /// Takes what the session has opened.
    fn take_opened(&mut self, buffer: &mut [u8]) -> usize {
        let mut taken = 0;
        while let Ok(bytes @ 1..) = self.session.reader().read(&mut buffer[taken..]) {
            taken += bytes;
        }
        taken
    }

    /// Takes bytes for the other end. [`Self::poll_send`] tells when they are with the socket.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let taken = self.session.writer().write(bytes)?;
        let _ = self.poll_send(cx)?;
        Poll::Ready(Ok(taken))
    }

    /// Sends sealed records, until there are no more.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.sent == self.records.len() {
                self.seal()?;
                if self.records.is_empty() {
                    return Poll::Ready(Ok(()));
                }
            }
            let unsent = &self.records[self.sent..];
            match ready!(Pin::new(&mut self.tcp).poll_write(cx, unsent))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                bytes => self.sent += bytes,
            }
        }
    }

    /// Takes the next records from the session, in place of those that were sent.
    fn seal(&mut self) -> io::Result<()> {
        self.sent = 0;
        self.records.clear();
        while self.session.wants_write() && self.records.len() < RECORDS_AHEAD_BYTES {
            self.session.write_tls(&mut self.records)?;
        }
        if self.records.is_empty() && self.records.capacity() > KEEP_BUFFER_BYTES {
            self.records = Vec::new();
        }
        Ok(())
    }
}
