//! Bytes on their way to one client.

/// Output of one connection, and what the shell must do about it.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Encoded and not yet taken by the shell.
    pub(super) bytes: Vec<u8>,
    /// Taken by the shell and not yet reported as written.
    in_flight_bytes: usize,
    /// Upper bound of the bytes of notifications that the socket has not yet taken; never more than `len`.
    notification_bytes: usize,
    /// Whether the connection ends, and how.
    end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    No,
    /// Once all output is written.
    Flush,
    /// At once.
    Abort,
}

impl Outbox {
    /// Output in bytes that the socket has not yet taken.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.in_flight_bytes
    }

    /// Whether the socket has taken everything.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Upper bound of the bytes of notifications that wait for a client which does not read.
    pub(super) const fn unread_notification_bytes(&self) -> usize {
        self.notification_bytes
    }

    /// Appends a frame from a buffer of its own.
    pub(super) fn append(&mut self, frame: Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = frame;
        } else {
            self.bytes.extend_from_slice(&frame);
        }
    }

    /// Appends a notification that was encoded once for all its watchers.
    pub(super) fn push_notification(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.notification_bytes += frame.len();
    }

    /// Exchanges the output for `buffer`, which is emptied first and keeps its capacity for output to come.
    pub(super) fn take(&mut self, buffer: &mut Vec<u8>) {
        buffer.clear();
        std::mem::swap(&mut self.bytes, buffer);
        self.in_flight_bytes += buffer.len();
    }

    /// The socket took this many bytes.
    pub(super) fn written(&mut self, bytes: usize) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
        self.notification_bytes = self.notification_bytes.min(self.len());
    }

    /// Ends the connection once the output is written.
    pub(super) fn close_after_flush(&mut self) {
        if self.end == End::No {
            self.end = End::Flush;
        }
    }

    /// Ends the connection and drops its output, also the part that the shell has taken already.
    pub(super) fn abort(&mut self) {
        *self = Self { end: End::Abort, ..Self::default() };
    }

    /// Whether the connection ends once the output is written.
    pub(super) fn closes(&self) -> bool {
        self.end == End::Flush
    }

    /// Whether the connection ends at once.
    pub(super) fn is_aborted(&self) -> bool {
        self.end == End::Abort
    }
}
