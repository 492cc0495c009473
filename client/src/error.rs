use ringkeeper_wire::{DecodeError, ErrorCode};

use crate::Call;

/// Why a call failed.
///
/// Three kinds, told apart by [`Error::outcome`]: the server refused the request; the request was never
/// sent; or the connection broke while the request was on its way, and nobody can say whether the server
/// executed it. The client never repeats a write by itself.
///
/// An error that the server sent and a broken connection carry the [`Call`] that they answer, and are shown
/// with it: `create /app/leader: no such znode`. A match on the kind leaves it out:
///
/// ```no_run
/// # async fn example(client: ringkeeper_client::Client) -> ringkeeper_client::Result<()> {
/// use ringkeeper_client::{CreateMode, Error};
///
/// match client.create("/app/leader", "host-1", CreateMode::Ephemeral).await {
///     Ok(_) => println!("leading"),
///     Err(Error::NodeExists(_)) => println!("following"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection broke after the request was sent and before its reply came. The server may or may
    /// not have executed it.
    #[error("{0}: connection lost: the request may or may not have been executed")]
    ConnectionLoss(Call),
    /// The request was not sent: the connection broke before its turn came, or no server was reachable
    /// for a whole session timeout. It was not executed.
    #[error("{0}: no connection: the request was not sent")]
    NotSent(Call),
    /// The session has expired: its ephemeral znodes and watches are gone, and this client with it.
    #[error("session expired")]
    SessionExpired,
    /// A credential was refused; the session is of no further use.
    #[error("authentication failed")]
    AuthFailed,
    /// The client was closed.
    #[error("client closed")]
    Closed,
    /// No server granted a session in the time given to [`crate::Builder::connect_timeout`].
    #[error("no server reachable: {0}")]
    Unreachable(String),

    /// The znode, or the parent, does not exist.
    #[error("{0}: no such znode")]
    NoNode(Call),
    /// The znode exists already.
    #[error("{0}: znode exists")]
    NodeExists(Call),
    /// The expected version is not the current one.
    #[error("{0}: version does not match")]
    BadVersion(Call),
    /// The znode has children.
    #[error("{0}: znode has children")]
    NotEmpty(Call),
    /// Ephemeral znodes have no children.
    #[error("{0}: ephemeral znodes have no children")]
    NoChildrenForEphemerals(Call),
    /// The ACL does not permit it.
    #[error("{0}: not permitted by the ACL")]
    NoAuth(Call),
    /// The ACL is empty or malformed, or names a scheme that the session has not proved.
    #[error("{0}: invalid ACL")]
    InvalidAcl(Call),
    /// A write on a read-only server.
    #[error("{0}: server is read-only")]
    NotReadOnly(Call),
    /// No such watch.
    #[error("{0}: no such watch")]
    NoWatcher(Call),
    /// A hard quota would be exceeded.
    #[error("{0}: quota exceeded")]
    QuotaExceeded(Call),
    /// The server was too busy and did not execute the request.
    #[error("{0}: throttled by the server: not executed")]
    Throttled(Call),
    /// Every other error code of the server; see [`ErrorCode`] for their meanings.
    #[error("{1}: server error {0}{name}", name = code_name(*.0))]
    Server(i32, Call),
    /// An operation of a [`crate::Transaction`] failed; none of them was executed.
    #[error("operation {index} of the transaction failed: {error}")]
    Transaction {
        /// Which one, counted from 0.
        index: usize,
        /// Why.
        error: Box<Self>,
    },

    /// Not a path of a znode.
    #[error("invalid path {path:?}: {reason}")]
    InvalidPath {
        /// The path.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Not a connection string.
    #[error("invalid connection string {text:?}: {reason}")]
    InvalidConnectString {
        /// The string.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A setting of the client is out of its range.
    #[error("invalid setting: {0}")]
    InvalidSetting(&'static str),
    /// A file for TLS cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// The request is longer than [`crate::Builder::request_len_max`] allows.
    #[error("request of {len} bytes exceeds the limit of {max} bytes")]
    RequestTooLong {
        /// Length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A reply that breaks the protocol.
    #[error("malformed reply: {0}")]
    Malformed(#[from] DecodeError),
    /// A persistent watch was read too slowly: this many events were dropped.
    #[error("{0} watch events were not read in time")]
    EventsMissed(u64),
    /// The operating system refused a thread or a file descriptor.
    #[error("system resources: {0}")]
    Resources(String),
    /// Something that a recipe found in a znode is not what the recipe writes there.
    #[error("unexpected contents of {path}: {reason}")]
    UnexpectedContents {
        /// The znode.
        path: String,
        /// What is wrong.
        reason: &'static str,
    },
}

/// What is known about a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request changed nothing.
    NotExecuted,
    /// The server may or may not have executed it.
    Unknown,
}

impl Error {
    /// Whether the request that failed may have been executed all the same.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            // A malformed reply answers a request that the server has executed.
            Self::ConnectionLoss(_) | Self::Malformed(_) => Outcome::Unknown,
            _ => Outcome::NotExecuted,
        }
    }

    /// Whether the connection failed, while the session may still be alive: what a read may be repeated
    /// for.
    #[must_use]
    pub const fn is_connection(&self) -> bool {
        matches!(self, Self::ConnectionLoss(_) | Self::NotSent(_))
    }

    /// Whether the session has ended, so that every further call on this client fails.
    #[must_use]
    pub const fn is_session_end(&self) -> bool {
        matches!(self, Self::SessionExpired | Self::AuthFailed | Self::Closed | Self::Unreachable(_))
    }

    /// The call that failed: of the errors that the server sent and of a broken connection, `None` of the
    /// others. Those of [`Error::Transaction`] are in its `error`.
    #[must_use]
    pub const fn call(&self) -> Option<&Call> {
        match self {
            Self::ConnectionLoss(call)
            | Self::NotSent(call)
            | Self::NoNode(call)
            | Self::NodeExists(call)
            | Self::BadVersion(call)
            | Self::NotEmpty(call)
            | Self::NoChildrenForEphemerals(call)
            | Self::NoAuth(call)
            | Self::InvalidAcl(call)
            | Self::NotReadOnly(call)
            | Self::NoWatcher(call)
            | Self::QuotaExceeded(call)
            | Self::Throttled(call)
            | Self::Server(_, call) => Some(call),
            _ => None,
        }
    }

    /// The error with this code on the wire, in answer to `call`.
    pub(crate) fn from_wire(code: i32, call: Call) -> Self {
        match ErrorCode::from_wire(code) {
            Some(ErrorCode::NoNode) => Self::NoNode(call),
            Some(ErrorCode::NodeExists) => Self::NodeExists(call),
            Some(ErrorCode::BadVersion) => Self::BadVersion(call),
            Some(ErrorCode::NotEmpty) => Self::NotEmpty(call),
            Some(ErrorCode::NoChildrenForEphemerals) => Self::NoChildrenForEphemerals(call),
            Some(ErrorCode::NoAuth) => Self::NoAuth(call),
            Some(ErrorCode::InvalidAcl) => Self::InvalidAcl(call),
            Some(ErrorCode::NotReadOnly) => Self::NotReadOnly(call),
            Some(ErrorCode::NoWatcher) => Self::NoWatcher(call),
            Some(ErrorCode::QuotaExceeded) => Self::QuotaExceeded(call),
            Some(ErrorCode::ThrottledOp) => Self::Throttled(call),
            Some(ErrorCode::SessionExpired) => Self::SessionExpired,
            Some(ErrorCode::AuthFailed) => Self::AuthFailed,
            _ => Self::Server(code, call),
        }
    }
}

fn code_name(code: i32) -> String {
    ErrorCode::from_wire(code).map_or_else(String::new, |code| format!(" ({code:?})"))
}

/// What the calls of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;
