//! What watches and listeners are told.

use ringkeeper_wire::{EventType, Zxid};

/// What a watch saw.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchEvent {
    /// What happened.
    pub kind: EventKind,
    /// The znode; of a recursive watch possibly a descendant of the one watched.
    pub path: String,
    /// The transaction that did it. `None` when the change was found after a reconnect, and from servers
    /// older than ZooKeeper 3.9, which do not tell.
    pub zxid: Option<Zxid>,
}

impl WatchEvent {
    /// A persistent watch on `path` may have missed events.
    pub(crate) fn restored(path: &str) -> Self {
        Self { kind: EventKind::Restored, path: path.to_owned(), zxid: None }
    }
}

/// What happened to a znode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// The znode was created.
    Created,
    /// The znode was deleted.
    Deleted,
    /// Its data was set.
    DataChanged,
    /// A child was created or deleted.
    ChildrenChanged,
    /// Persistent watches alone: the connection was lost and is restored. ZooKeeper does not report what
    /// changed in between, so read again what matters.
    Restored,
}

impl From<EventType> for EventKind {
    fn from(event: EventType) -> Self {
        match event {
            EventType::NodeCreated => Self::Created,
            EventType::NodeDeleted => Self::Deleted,
            EventType::NodeDataChanged => Self::DataChanged,
            EventType::NodeChildrenChanged => Self::ChildrenChanged,
        }
    }
}

/// Where a client stands with its session.
///
/// ```text
/// Connecting ──▶ Connected ◀──▶ Disconnected ──▶ Lapsed
///                (ReadOnly)◀───────────────────────┘
/// any ──▶ Expired, AuthFailed, Unreachable, Closed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SessionState {
    /// No session yet.
    Connecting,
    /// Served by a member of the ensemble.
    Connected,
    /// Served by a server that has lost its quorum: reads alone, possibly old.
    ReadOnly,
    /// The connection is lost, the session still alive at the servers.
    Disconnected,
    /// No server has confirmed the session for as long as its timeout: it may have expired, and another
    /// client may hold what this one held by an ephemeral znode. A reconnect may still find it alive.
    Lapsed,
    /// The servers have ended the session.
    Expired,
    /// A credential was refused.
    AuthFailed,
    /// No server could be reached in the time given for the first connection.
    Unreachable,
    /// The program has closed the client.
    Closed,
}

impl SessionState {
    /// Whether a server answers.
    #[must_use]
    pub const fn is_connected(self) -> bool {
        matches!(self, Self::Connected | Self::ReadOnly)
    }

    /// Whether the session has ended for good.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Expired | Self::AuthFailed | Self::Unreachable | Self::Closed)
    }
}
