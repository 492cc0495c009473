//! Bytes on their way to one client.

use std::collections::VecDeque;

use super::notification::SharedBytes;
use crate::spares::Spares;

/// What the shell takes at once is at most this long, if it has to be put together from parts.
const PIECE_BYTES: usize = 64 * 1024;

/// An empty queue of parts that has grown beyond this is given back.
const IDLE_PARTS_MAX: usize = 64;

/// Output of one connection, and what the shell must do about it.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Output before `bytes`, not yet taken by the shell. Empty unless there are shared notifications.
    earlier: Parts,
    /// Encoded and not yet taken by the shell.
    pub(super) bytes: Vec<u8>,
    /// Taken by the shell and not yet reported as written.
    in_flight_bytes: usize,
    /// Upper bound of the bytes of notifications that were copied into this output and that the socket has
    /// not yet taken; never more than `own_bytes`.
    notification_bytes: usize,
    /// Whether the connection ends, and how.
    end: End,
}

/// Bytes of a connection's own, and shared ones, in order. `None` until the first, since most connections
/// never have any.
#[derive(Debug, Default)]
pub(super) struct Parts(Option<Box<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    parts: VecDeque<Part>,
    own_bytes: usize,
    shared_bytes: usize,
}

#[derive(Debug)]
enum Part {
    Own(Vec<u8>),
    Shared(SharedBytes),
}

/// A notification, as it is appended to an output.
#[derive(Clone, Copy, Debug)]
pub(super) enum Notification<'a> {
    /// To be copied.
    Copied(&'a [u8]),
    /// To be referred to, since many clients are sent it.
    Shared(&'a SharedBytes),
}

/// Memory of one connection that is counted for all connections together, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// Output, without what is shared.
    pub(super) output: usize,
    /// Notifications, without what is shared.
    pub(super) notifications: usize,
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

impl Notification<'_> {
    pub(super) fn len(self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Shared(shared) => shared.len(),
        }
    }
}

impl Parts {
    fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|queue| queue.parts.is_empty())
    }

    fn own_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.own_bytes)
    }

    fn shared_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.shared_bytes)
    }

    fn len(&self) -> usize {
        self.own_bytes() + self.shared_bytes()
    }

    /// Memory that the parts themselves take, without the bytes in them.
    fn overhead_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.parts.len() * size_of::<Part>())
    }

    fn push_own(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.0.get_or_insert_default().push_own(bytes);
        }
    }

    pub(super) fn push(&mut self, notification: Notification<'_>) {
        self.0.get_or_insert_default().push(notification);
    }

    fn append(&mut self, behind: Self) {
        match (&mut self.0, behind.0) {
            (Some(queue), Some(mut behind)) => {
                queue.own_bytes += behind.own_bytes;
                queue.shared_bytes += behind.shared_bytes;
                queue.parts.append(&mut behind.parts);
            }
            (none @ None, behind) => *none = behind,
            (Some(_), None) => {}
        }
    }

    /// Moves a piece from the front to the empty `buffer`. Returns how much of it was shared.
    fn take(&mut self, buffer: &mut Vec<u8>) -> usize {
        let Some(queue) = &mut self.0 else { return 0 };
        let shared_bytes = queue.take(buffer);
        if queue.parts.is_empty() && queue.parts.capacity() > IDLE_PARTS_MAX {
            self.0 = None;
        }
        shared_bytes
    }
}

impl Queue {
    fn push_own(&mut self, bytes: Vec<u8>) {
        self.own_bytes += bytes.len();
        self.parts.push_back(Part::Own(bytes));
    }

    fn push(&mut self, notification: Notification<'_>) {
        match (notification, self.parts.back_mut()) {
            (Notification::Copied(bytes), Some(Part::Own(last))) => {
                last.extend_from_slice(bytes);
                self.own_bytes += bytes.len();
            }
            (Notification::Copied(bytes), _) => self.push_own(bytes.to_vec()),
            (Notification::Shared(shared), last) => {
                let extended = if let Some(Part::Shared(last)) = last { last.extend(shared) } else { false };
                if !extended {
                    self.parts.push_back(Part::Shared(shared.clone()));
                }
                self.shared_bytes += shared.len();
            }
        }
    }

    /// As [`Parts::take`].
    fn take(&mut self, buffer: &mut Vec<u8>) -> usize {
        let shared_before = self.shared_bytes;
        while let Some(front) = self.parts.front_mut() {
            match front {
                Part::Own(own) if buffer.is_empty() => std::mem::swap(own, buffer),
                Part::Own(own) if buffer.len() + own.len() <= PIECE_BYTES => buffer.append(own),
                Part::Shared(shared) if buffer.len() < PIECE_BYTES => {
                    let before = buffer.len();
                    shared.take(PIECE_BYTES - before, buffer);
                    self.shared_bytes -= buffer.len() - before;
                    if shared.len() > 0 {
                        break;
                    }
                }
                Part::Own(_) | Part::Shared(_) => break,
            }
            self.parts.pop_front();
        }
        let shared_bytes = shared_before - self.shared_bytes;
        self.own_bytes -= buffer.len() - shared_bytes;
        shared_bytes
    }
}

impl Outbox {
    /// Output in bytes that the socket has not yet taken.
    pub(super) fn len(&self) -> usize {
        self.own_bytes() + self.earlier.shared_bytes()
    }

    /// The same, without what is shared with other connections.
    fn own_bytes(&self) -> usize {
        self.earlier.own_bytes() + self.bytes.len() + self.in_flight_bytes
    }

    /// Whether the socket has taken everything.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the shell has something to do: to write, or to close the socket.
    pub(super) fn is_due(&self) -> bool {
        self.in_flight_bytes == 0
            && !(self.earlier.is_empty() && self.bytes.is_empty() && self.end == End::No)
    }

    /// Where output is appended: a spare buffer, if it has none of its own.
    pub(super) fn buffer(&mut self, spares: &mut Spares) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = spares.take();
        }
        &mut self.bytes
    }

    /// Appends a frame from a buffer of its own.
    pub(super) fn append(&mut self, frame: Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = frame;
        } else {
            self.bytes.extend_from_slice(&frame);
        }
    }

    pub(super) fn push(&mut self, notification: Notification<'_>) {
        match notification {
            Notification::Copied(bytes) => {
                self.bytes.extend_from_slice(bytes);
                self.notification_bytes += bytes.len();
            }
            Notification::Shared(_) => {
                self.earlier.push_own(std::mem::take(&mut self.bytes));
                self.earlier.push(notification);
            }
        }
    }

    /// Appends notifications that were held back.
    pub(super) fn append_notifications(&mut self, held: Parts) {
        self.notification_bytes += held.own_bytes();
        self.earlier.push_own(std::mem::take(&mut self.bytes));
        self.earlier.append(held);
    }

    /// Exchanges output for `buffer`, which is emptied first.
    pub(super) fn take(&mut self, buffer: &mut Vec<u8>) {
        buffer.clear();
        if self.earlier.is_empty() {
            std::mem::swap(&mut self.bytes, buffer);
        } else {
            self.notification_bytes += self.earlier.take(buffer);
            if self.earlier.is_empty() && buffer.len() + self.bytes.len() <= PIECE_BYTES {
                buffer.append(&mut self.bytes);
            }
        }
        self.in_flight_bytes += buffer.len();
    }

    /// The socket took this many bytes.
    pub(super) fn written(&mut self, bytes: usize) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
        self.notification_bytes = self.notification_bytes.min(self.own_bytes());
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

    /// Whether the connection ends once the output is written that the shell has taken.
    pub(super) fn closes(&self) -> bool {
        self.end == End::Flush && self.earlier.is_empty() && self.bytes.is_empty()
    }

    /// Whether the connection ends at once.
    pub(super) fn is_aborted(&self) -> bool {
        self.end == End::Abort
    }
}

/// The notifications of a connection: in its output, and held back behind a long read.
impl Outbox {
    /// Upper bound of the bytes of notifications that wait for a client to read.
    pub(super) fn unread_notification_bytes(&self, held: &Parts) -> usize {
        self.notification_bytes + self.earlier.shared_bytes() + held.len()
    }

    pub(super) fn usage(&self, held: &Parts) -> Usage {
        let overhead_bytes = self.earlier.overhead_bytes() + held.overhead_bytes();
        Usage {
            output: self.own_bytes(),
            notifications: self.notification_bytes + held.own_bytes() + overhead_bytes,
        }
    }
}
