//! What shards and the leader core of one server say to each other.
//!
//! They share no mutable memory. A shard sends one [`Turn`] for everything its connections asked in one pass
//! over its sockets; the core answers with [`ToShard`] messages, in an order that is the order of the log:
//! state and the events that caused it arrive together.

use std::ops::Range;
use std::sync::Arc;

use ringkeeper_wire::{OpCode, SessionId, Xid, Zxid};

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

/// All that one shard has for the core after one pass over its sockets.
#[derive(Debug, Default)]
pub struct Turn {
    /// Bodies of the requests, one after the other; [`Submitted::Write::body`] points into it, so that a turn
    /// costs one allocation and not one a request.
    pub bytes: Vec<u8>,
    /// Requests in the order in which the sessions sent them.
    pub submissions: Vec<Submission>,
    /// Sessions heard from since the last turn that carried touches.
    pub touched: Vec<SessionId>,
    /// Whether this server is short of memory from now on, if that has changed. Of no meaning for another
    /// server.
    pub short_of_memory: Option<bool>,
}

impl Turn {
    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.submissions.is_empty() && self.touched.is_empty() && self.short_of_memory.is_none()
    }
}

/// One request of a connection to the core.
#[derive(Debug)]
pub struct Submission {
    /// The connection it came on.
    pub conn: ConnId,
    /// Its session; 0 only for [`Submitted::Open`].
    pub session: SessionId,
    /// What is asked.
    pub what: Submitted,
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
        /// Its body, in [`Turn::bytes`]; already decoded once by the shard without error.
        body: Range<usize>,
        /// Who asks, as authenticated when the request came in; `None` for those of the connection's last
        /// write that had some, which is how a follower says it: they may be long, and are the same for most
        /// writes.
        identities: Option<Arc<[Identity]>>,
        /// Reads of this connection wait between its previous write and this one: they must see a state
        /// without this write, so the core publishes a [`Step`] boundary between the two.
        fence: bool,
    },
    /// sync: answered by [`ToShard::Synced`] once everything committed before it is published.
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
}

/// What the core tells a shard.
#[derive(Clone, Debug)]
pub enum ToShard {
    /// The state to serve from from now on, which did not come about by transactions published to this shard:
    /// the first one, or one received whole from the leader. Only while not serving.
    View(Arc<State>),
    /// Transactions were committed; the shard fires watches, answers its own writes, and reads from the new
    /// view.
    Published(Arc<Published>),
    /// The session of [`Submitted::Open`] or [`Submitted::Reattach`] is served by this connection from now
    /// on. Comes after the `Published` with its createSession.
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
    /// The session moved to another connection, or has expired: close without a word.
    Evict {
        /// The connection.
        conn: ConnId,
    },
    /// The oldest sync of the connection that lacks this word is due. It may come before the answers to the
    /// connection's earlier writes; the shard submits no write behind a sync that lacks it.
    Synced {
        /// The connection.
        conn: ConnId,
    },
    /// Whether this server's disk has room for writes. While it has not, clients are told that the server is
    /// read-only at each write; reads go on.
    Room(bool),
    /// Whether clients are served from now on; when not, every connection is closed.
    Serving(Serving),
}

/// What this server can do for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Nothing: no quorum, or still recovering.
    No,
    /// Reads only.
    ReadOnly,
    /// Everything.
    Yes,
}

/// What was committed, in order, and the state after it.
#[derive(Debug)]
pub struct Published {
    /// At least one. Reads wait for step ends, never for something inside a step.
    pub steps: Vec<Step>,
}

/// Transactions and the state after the last of them.
#[derive(Debug)]
pub struct Step {
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
