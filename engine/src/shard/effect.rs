//! Effects of a shard, beside output to write and request batches for the core.

use ringkeeper_wire::frame::FrameError;

use crate::fourletter::Command;
use crate::limits::Limit;
use crate::message::ConnId;
use crate::sasl::LoginError;
use crate::slow::SlowRequest;

/// An action for the shell, as plain data.
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
    /// A token of a login by Kerberos came in: have the connection's
    /// [`Negotiation`](crate::sasl::Negotiation) answer it, and call
    /// [`Shard::token_evaluated`](super::Shard::token_evaluated).
    Token {
        /// The connection.
        conn: ConnId,
        /// The token.
        token: Vec<u8>,
    },
    /// A request exceeded a bound and was refused; logged at a limited rate, like [`Self::Closing`].
    Limited {
        /// The connection.
        conn: ConnId,
        /// The bound.
        limit: Limit,
    },
    /// A rule forbids a read; logged at a limited rate, like [`Self::Closing`].
    Forbidden {
        /// The connection.
        conn: ConnId,
        /// Whose rule it is.
        rule: String,
    },
    /// A login by SASL failed, or was tried where there is none; the client stays connected without an
    /// identity. Logged at a limited rate, like [`Self::Closing`].
    LoginIgnored {
        /// The connection.
        conn: ConnId,
        /// Why it failed; `None` if this server has no users of SASL.
        error: Option<LoginError>,
    },
    /// A request was slow or is sampled; the shard limits the rate.
    Slow(Box<SlowRequest>),
    /// The connection is being closed for a reason that belongs in the log (the shell limits the rate).
    /// Regular ends have no such effect.
    Closing {
        /// The connection.
        conn: ConnId,
        /// Why.
        reason: CloseReason,
    },
}

/// Why a shard closes a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The byte stream is not made of frames.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// The first bytes begin a TLS handshake.
    #[error(
        "client speaks TLS, and clientPort is served in the clear: have it connect to secureClientPort, or \
         without TLS (zookeeper.client.secure=false), or take both here (client.portUnification=true)"
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
    /// More sessions are asked for than the throttle admits.
    #[error("too many sessions are asked for, see connection_throttle_tokens")]
    Throttled,
    /// Too many large requests are unanswered.
    #[error(
        "a request of {len} bytes beside {unanswered} bytes of large requests without an answer, see \
         largeRequestMaxBytes"
    )]
    LargeRequests {
        /// The length of the request that was refused.
        len: usize,
        /// The bytes of the others.
        unanswered: usize,
    },
    /// A request waited for the throttle of requests for longer than its session lasts.
    #[error("a request waited for longer than the session timeout, see request_stale_latency_check")]
    Stale,
    /// This server does not serve clients now.
    #[error("not serving")]
    NotServing,
    /// This server leads, and leaves clients to the others.
    #[error("this server leads, and a leader takes no clients (leaderServes=no)")]
    Leads,
    /// This server serves reads only, and the client did not ask for a read-only session.
    #[error("read-only server, and the client did not ask for one")]
    ReadOnlyRefused,
    /// The client presented no session in time.
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
    /// A login by SASL failed.
    #[error("login failed: {0}")]
    LoginFailed(#[from] LoginError),
    /// The client exceeds a bound in a request that has no error reply.
    #[error("more than {} allows", .0.setting())]
    Limit(Limit),
    /// Authentication is enforced and a request came first.
    #[error("authentication required")]
    AuthRequired,
    /// The client does not read, and output piled up beyond the bound.
    #[error("client does not read, {0} bytes waited for it")]
    SlowReader(usize),
    /// The connection was ending, and the client did not read its last bytes.
    #[error("client does not take its last bytes")]
    Lingering,
    /// A reply is longer than a frame can be.
    #[error("reply exceeds 2 GiB")]
    ReplyTooLong,
    /// The core answered in another order than the requests: a defect of this server. The client reconnects,
    /// and its session goes on in order.
    #[error("answers out of order")]
    OutOfOrder,
}
