//! What makes a run an error instead of a result: a reply that is wrong, out of order or missing.

use std::io;
use std::time::Duration;

use ringkeeper_client::core::LoginFailure;
use ringkeeper_wire::ErrorCode;
use ringkeeper_wire::frame::FrameError;
use ringkeeper_wire::jute::DecodeError;

/// Why a connection's replies cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// Replies must come in the order of the requests.
    #[error("out of order: a reply to xid {found} came where that to xid {expected} was due")]
    OutOfOrder {
        /// Xid of the oldest unanswered request.
        expected: i32,
        /// Xid of the reply.
        found: i32,
    },
    /// A reply although nothing is outstanding, or a notification although no watch is set.
    #[error("nothing was asked that a message with xid {0} could answer")]
    Unasked(i32),
    /// Every request of the harness is one that must succeed.
    #[error("xid {xid} was refused: {}", error_name(*.err))]
    Refused {
        /// Xid of the request.
        xid: i32,
        /// ZooKeeper's error code.
        err: i32,
    },
    /// The body is not what the operation answers.
    #[error("wrong reply to xid {xid}: {why}")]
    Wrong {
        /// Xid of the request.
        xid: i32,
        /// What is wrong with the body.
        why: String,
    },
    /// A client never goes back in time.
    #[error("the reply to xid {xid} carries zxid {found:#x}, an earlier one carried {seen:#x}")]
    WentBack {
        /// Xid of the request.
        xid: i32,
        /// Newest zxid seen before.
        seen: i64,
        /// Zxid of this reply.
        found: i64,
    },
    /// Replies are overdue.
    #[error("{outstanding} replies are missing, and none came for {} s", .silence.as_secs())]
    Missing {
        /// Number of requests without a reply.
        outstanding: usize,
        /// How long the server has been silent.
        silence: Duration,
    },
    /// The server ended the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server refused the session.
    #[error("the server refused the session")]
    SessionRefused,
    /// The session is there, but nobody is logged in.
    #[error(transparent)]
    NotLoggedIn(#[from] LoginFailure),
    /// The stream cannot be cut into frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A record is malformed.
    #[error("malformed record: {0}")]
    Record(#[from] DecodeError),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn error_name(err: i32) -> String {
    match ErrorCode::from_wire(err) {
        Some(code @ ErrorCode::SessionClosedRequireSaslAuth) => {
            format!("{code:?} ({err}): the server wants a login (--login-file)")
        }
        Some(code) => format!("{code:?} ({err})"),
        None => format!("error {err}"),
    }
}
