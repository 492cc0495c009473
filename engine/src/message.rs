//! Messages between the shards and the leader core of one server.
//!
//! They share no mutable memory. A shard sends one [`RequestBatch`] with all requests that its connections
//! made in one pass over the sockets. The core answers with [`ToShard`] messages in the order of the log: a
//! state and the transactions that led to it arrive together.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use ringkeeper_wire::{OpCode, SessionId, Xid, Zxid};

use crate::authorisation::Authorisation;
use crate::state::State;
use crate::txn::{Changes, Identity, Outcome, Txn};

/// A shard of this server, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// A client connection of one shard; never used again after it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Where a request came from on this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The shard that holds the connection.
    pub shard: ShardId,
    /// The connection.
    pub conn: ConnId,
}

/// A message on its way between a shard and the leader core.
#[derive(Debug)]
pub struct Sent<T> {
    /// When it was sent, microseconds on the server's monotonic clock.
    pub at_us: u64,
    /// The message.
    pub message: T,
}

/// The batch of requests that one shard sends to the core after one pass over its sockets.
#[derive(Debug, Default)]
pub struct RequestBatch {
    /// Bodies of the writes, one after the other; [`Submitted::Write::body`] points into it. So a batch costs
    /// one allocation, not one for each request.
    pub bytes: Bytes,
    /// Requests in the order in which the sessions sent them.
    pub submissions: Vec<Submission>,
    /// Sessions heard from since the last batch that reported any.
    pub touched: Vec<SessionId>,
    /// Whether this server is short of memory, if that has changed. Not forwarded: it concerns this server
    /// only.
    pub short_of_memory: Option<bool>,
}

impl RequestBatch {
    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.submissions.is_empty() && self.touched.is_empty() && self.short_of_memory.is_none()
    }

    /// Takes back what is said of local sessions: the leader goes by what it knows by itself.
    pub(crate) fn withdraw_claims(&mut self) {
        self.submissions.retain(|submission| !matches!(submission.what, Submitted::Upgrade { .. }));
        self.submissions.iter_mut().for_each(|submission| submission.local = false);
    }
}

/// One request of a connection to the core.
#[derive(Debug)]
pub struct Submission {
    /// The connection it came on.
    pub conn: ConnId,
    /// Its session; 0 only for [`Submitted::Open`].
    pub session: SessionId,
    /// Whether the session is local to the server that it came from. Then the leader knows nothing of it, and
    /// believes that server, which has seen that this connection has the session. Shards leave it false.
    pub local: bool,
    /// What is asked.
    pub what: Submitted,
}

impl Submission {
    /// Whether a server says by it that it keeps, or kept, the session by itself.
    #[must_use]
    pub const fn is_claim(&self) -> bool {
        self.local || matches!(self.what, Submitted::Upgrade { .. })
    }
}

/// Requests that the core orders.
#[derive(Debug)]
pub enum Submitted {
    /// A write, closeSession included. Answered by a [`Committed`] with this origin.
    Write {
        /// The client's number of it.
        xid: Xid,
        /// Which write.
        op: OpCode,
        /// Its body, in [`RequestBatch::bytes`]; already decoded once by the shard without error.
        body: Range<usize>,
        /// Identities of the client when the request came in. `None` means those of the connection's last
        /// write that had some: a follower sends a list only when it changes, since it may be long and is the
        /// same for most writes.
        identities: Option<Arc<[Identity]>>,
        /// A read barrier: reads of this connection wait between its previous write and this one, and must
        /// not see this write. So the core ends a published group ([`PublishedGroup`]) between the two.
        read_barrier: bool,
    },
    /// sync: answered by [`ToShard::Synced`] after everything committed before it was published.
    Sync,
    /// A new session with this timeout, already negotiated, milliseconds.
    Open {
        /// Session timeout in milliseconds.
        timeout_ms: u32,
    },
    /// An existing session comes back on this connection.
    Reattach {
        /// As the client presented it.
        password: [u8; 16],
        /// The newly negotiated timeout in milliseconds.
        timeout_ms: u32,
    },
    /// The connection is gone; its session lives on until it expires.
    Detach,
    /// The session, which was local to this server, becomes one of the ensemble, held by this connection. Not
    /// sent by shards: a server sends it to the leader before the write that needs it.
    Upgrade {
        /// As its server drew it.
        password: [u8; 16],
        /// Session timeout in milliseconds.
        timeout_ms: u32,
    },
}

/// What the core tells a shard.
#[derive(Clone, Debug)]
pub enum ToShard {
    /// The state to serve from, not reached by transactions published to this shard: the first one, or one
    /// received from the leader as a snapshot. Sent only while not serving.
    View(Arc<State>),
    /// Transactions were committed; the shard fires watches, answers its own writes, and reads from the new
    /// view.
    Published(Arc<Published>),
    /// From now on this connection serves the session of [`Submitted::Open`] or [`Submitted::Reattach`]. Sent
    /// after the `Published` with the session's createSession.
    Attached {
        /// The connection.
        conn: ConnId,
        /// The session.
        session: SessionId,
        /// What the client must present to come back.
        password: [u8; 16],
        /// Session timeout in milliseconds.
        timeout_ms: u32,
    },
    /// The session is unknown or the password wrong: answer "expired" and close.
    Rejected {
        /// The connection.
        conn: ConnId,
    },
    /// The session moved to another connection, or has expired: close without a reply.
    Evict {
        /// The connection.
        conn: ConnId,
    },
    /// More sessions were asked for than the throttle admits: close without a reply.
    Throttled {
        /// The connection.
        conn: ConnId,
    },
    /// The connection's oldest sync that was not reported yet may be answered. This may precede the replies
    /// to earlier writes of the connection; until it comes, the shard submits no write behind the sync.
    Synced {
        /// The connection.
        conn: ConnId,
    },
    /// The local session of this connection is closed, as its last request asked: that is to be answered.
    /// There is no transaction that would do so.
    Closed {
        /// The connection.
        conn: ConnId,
    },
    /// Whether this server's disk is full. Then each write is answered with "read-only"; reads go on.
    DiskFull(bool),
    /// Whether clients are served from now on; when not, every connection is closed.
    Serving(Serving),
}

/// What this server can do for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Nothing: no quorum, or still recovering.
    No,
    /// Nothing: it leads, and leaves clients to the others (`leaderServes=no`).
    Leads,
    /// Reads only.
    ReadOnly,
    /// Everything.
    Yes,
}

/// What was committed, in order, and the state after it.
#[derive(Debug)]
pub struct Published {
    /// At least one. Reads run at the end of a group, never inside of it.
    pub groups: Vec<PublishedGroup>,
}

/// Transactions and the state after the last of them.
#[derive(Debug)]
pub struct PublishedGroup {
    /// In zxid order.
    pub txns: Vec<Committed>,
    /// The state after them.
    pub view: Arc<State>,
}

/// A committed transaction.
#[derive(Debug)]
pub struct Committed {
    /// What was logged.
    pub txn: Txn,
    /// What applying it gave.
    pub outcome: Outcome,
    /// The rules after it, which decide who is sent its events.
    pub authorisation: Authorisation,
    /// The connection of this server that asked for it, if it was one.
    pub origin: Option<Origin>,
}

impl Committed {
    /// Its zxid.
    #[must_use]
    pub fn zxid(&self) -> Zxid {
        self.txn.zxid
    }

    /// What watches see of it, in the order in which they fire.
    #[must_use]
    pub fn changes(&self) -> Changes<'_> {
        self.outcome.changes(&self.txn)
    }
}
