//! What a shard asks of the shell, besides bytes to write and turns to carry to the core.

use ringkeeper_wire::frame::FrameError;

use crate::fourletter::Command;
use crate::limits::Limit;
use crate::message::ConnId;

/// Something for the shell to do, as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Effect {
    /// A four-letter word came in: gather the reports of all shards, format them, and call
    /// [`Shard::answer`](super::Shard::answer).
    FourLetter {
        /// The connection that asked.
        conn: ConnId,
        /// What it asked.
        command: Command,
    },
    /// A request went beyond a bound and was refused; worth a line in the log like [`Self::Closing`].
    Limited {
        /// The connection.
        conn: ConnId,
        /// The bound.
        limit: Limit,
    },
    /// The connection is being closed for a reason worth a line in the log (the shell limits their rate).
    /// Ends that are in order have no such line.
    Closing {
        /// The connection.
        conn: ConnId,
        /// Why.
        reason: CloseReason,
    },
}

/// Why a shard closes a connection on its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The byte stream is not made of frames.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// The first bytes begin a TLS handshake.
    #[error(
        "client speaks TLS, and clientPort is served in the clear: have it connect without TLS \
         (zookeeper.client.secure=false)"
    )]
    Tls,
    /// The first record is not a ConnectRequest.
    #[error("malformed ConnectRequest")]
    MalformedConnect,
    /// A request without a whole header, or a malformed auth or sasl packet.
    #[error("malformed request header, auth or sasl packet")]
    MalformedHeader,
    /// The client has seen a later state than this server.
    #[error("client has seen zxid 0x{seen:x}, this server is at 0x{ours:x}")]
    ClientAhead {
        /// The client's last zxid.
        seen: i64,
        /// The server's.
        ours: i64,
    },
    /// There is no memory for another session.
    #[error("no memory for another session, see ringkeeper.memoryLimit")]
    NoMemory,
    /// This server does not serve clients now.
    #[error("not serving")]
    NotServing,
    /// This server serves reads only, and the client did not say that this will do.
    #[error("read-only server, and the client did not ask for one")]
    ReadOnlyRefused,
    /// No session was presented in time.
    #[error("no session in time")]
    Sessionless,
    /// The session moved to another connection or expired.
    #[error("session moved or expired")]
    Evicted,
    /// An opcode that does not exist or that no client may use.
    #[error("opcode {0} refused")]
    OpCode(i32),
    /// Credentials refused.
    #[error("authentication failed")]
    AuthFailed,
    /// The client wants more kept for it than the bound allows, and no reply could say so.
    #[error("more than {} allows", .0.setting())]
    Limit(Limit),
    /// Authentication is enforced and a request came first.
    #[error("authentication required")]
    AuthRequired,
    /// The client does not read, and output piled up beyond the bound.
    #[error("client does not read, {0} bytes waited for it")]
    SlowReader(usize),
    /// The connection was at its end, and the client did not take its last bytes.
    #[error("client does not take its last bytes")]
    Lingering,
    /// A reply is longer than a frame can be.
    #[error("reply exceeds 2 GiB")]
    ReplyTooLong,
    /// The core answered in another order than it was asked. A defect of ours; the client finds its session
    /// again elsewhere, in order.
    #[error("answers out of order")]
    OutOfOrder,
}
