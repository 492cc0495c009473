//! What stands in front of requests and replies, and the one message that answers no request.

use std::borrow::Cow;

use crate::frame::FRAME_HEADER_LEN;
use crate::record::record;
use crate::{ErrorCode, EventType, Record, Xid, jute, xid};

record! {
    /// In front of every request (`zookeeper.jute`, RequestHeader).
    RequestHeader {
        /// The client's number for the request, echoed in the reply.
        xid: Xid,
        /// The opcode as received; see [`crate::OpCode::from_wire`].
        op: i32,
    }
}

record! {
    /// In front of every reply (`zookeeper.jute`, ReplyHeader). A body follows only when `err` is 0.
    ReplyHeader {
        /// The request's xid, or a special one.
        xid: Xid,
        /// The server's last processed zxid when the reply was built; 0 and -1 are special.
        zxid: i64,
        /// The error code, see [`ErrorCode`].
        err: i32,
    }
}

impl RequestHeader {
    /// Encoded size in bytes.
    pub const LEN: usize = 8;

    /// Set in the opcode of a read that has to see all that was committed anywhere before it was asked, on a
    /// connection with [`crate::EXTENDED_PROTOCOL`] (docs/protocol.md, 12.3).
    pub const LINEARIZABLE: i32 = 1 << 30;
}

impl ReplyHeader {
    /// Encoded size in bytes.
    pub const LEN: usize = 16;

    /// The header of a reply.
    #[must_use]
    pub const fn new(xid: Xid, zxid: i64, err: ErrorCode) -> Self {
        Self { xid, zxid, err: err.to_wire() }
    }
}

/// The state in every event: `KeeperState.SyncConnected`, also from a read-only server.
pub const SYNC_CONNECTED: i32 = 3;

/// The zxid of catch-up events, those that a setWatches fires (docs/protocol.md, 6.4).
pub const CATCH_UP_ZXID: i64 = -1;

record! {
    /// What a watch saw (`zookeeper.jute`, WatcherEvent).
    WatcherEvent<'a> {
        /// What happened, see [`EventType`].
        event_type: i32,
        /// The connection's state, always [`SYNC_CONNECTED`].
        state: i32,
        /// The znode.
        path: Cow<'a, str>,
    }
}

/// Appends a notification, its frame and header included. `zxid` is that of the transaction which fired
/// the watch, or [`CATCH_UP_ZXID`].
///
/// # Panics
/// `path` is longer than a frame can express.
pub fn encode_notification(out: &mut Vec<u8>, zxid: i64, event_type: EventType, path: &str) {
    const FIXED_LEN: usize = ReplyHeader::LEN + 12;
    let len = FIXED_LEN + path.len();
    out.reserve(FRAME_HEADER_LEN + len);
    jute::put_len(out, len);
    ReplyHeader::new(xid::NOTIFICATION, zxid, ErrorCode::Ok).encode(out);
    jute::put_i32(out, event_type.to_wire());
    jute::put_i32(out, SYNC_CONNECTED);
    jute::put_ustring(out, path);
}
