use ringkeeper_wire::{PASSWORD_LEN, SessionId};

use super::User;

/// What a [`super::Core`] is built from.
#[derive(Clone, Debug)]
pub struct Config {
    /// Session timeout to ask for, in milliseconds; the server grants one within its own limits.
    pub session_timeout_ms: u32,
    /// How long the first session may take, in milliseconds; `None` tries for ever.
    pub connect_timeout_ms: Option<u64>,
    /// Number of servers; they are named by index.
    pub server_count: usize,
    /// Whether a read-only server will do.
    pub read_only: bool,
    /// Whether every read has to see all that was committed anywhere before it was asked.
    pub linearizable_reads: bool,
    /// Who logs in by SASL on every connection, before anything else.
    pub user: Option<User>,
    /// Credentials to show on every connection, in this order.
    pub credentials: Vec<Credential>,
    /// Largest number of requests queued or awaiting their reply; further ones wait for room.
    pub requests_max: usize,
    /// Largest number of bytes queued and not yet sent; further requests wait for room.
    pub bytes_max: usize,
    /// Longest request, in bytes.
    pub request_len_max: usize,
    /// Longest reply, in bytes; a longer one breaks the connection.
    pub reply_len_max: usize,
    /// Decides the order of the servers and the jitter of pauses.
    pub seed: u64,
    /// The path that the server has in front of the program's, or nothing: errors leave it out.
    pub chroot: String,
    /// A session to take over instead of a new one.
    pub resume: Option<SessionTicket>,
    /// A planted fault.
    #[cfg(feature = "mutations")]
    pub mutation: crate::mutation::Mutation,
}

/// What proves that a client owns a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTicket {
    /// The session.
    pub id: SessionId,
    /// Its password.
    pub password: [u8; PASSWORD_LEN],
}

/// A proof of identity.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// The authentication scheme, such as `digest`.
    pub scheme: String,
    /// The proof, in the words of the scheme: for `digest`, `user:password`.
    pub auth: Vec<u8>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Secrets do not belong in logs.
        f.debug_struct("Credential").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}
