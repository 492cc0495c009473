//! The handshake: the only two records without an xid (docs/protocol.md, 2).

use crate::SessionId;
use crate::record::record;

/// The protocol version of a client that knows ringkeeper's extensions. A server that has them answers with
/// the same version, any other server with 0 (docs/protocol.md, 12.3).
pub const EXTENDED_PROTOCOL: i32 = 0x524b_0001;

/// Length of a session password, in bytes.
pub const PASSWORD_LEN: usize = 16;

record! {
    /// The first frame of a connection (`zookeeper.jute`, ConnectRequest).
    ConnectRequest<'a> {
        /// 0, or [`EXTENDED_PROTOCOL`].
        protocol_version: i32,
        /// The newest zxid the client has seen. A server that is behind it must not serve the client.
        last_zxid_seen: i64,
        /// Session timeout wanted, in milliseconds.
        timeout_ms: i32,
        /// The session to resume, 0 for a new one.
        session_id: SessionId,
        /// The password of the session to resume; zeros or nothing for a new one.
        password: Option<&'a [u8]>,
        /// Whether a read-only server will do. `None`: the byte was absent, as in clients of 3.3 and older;
        /// such a client must get no byte in the answer either.
        read_only: Option<bool>,
    }
}

record! {
    /// The answer to a [`ConnectRequest`] (`zookeeper.jute`, ConnectResponse).
    ConnectResponse<'a> {
        /// 0, or [`EXTENDED_PROTOCOL`] if the request had it.
        protocol_version: i32,
        /// Session timeout granted, in milliseconds; 0 or less tells that the session has expired.
        timeout_ms: i32,
        /// The session.
        session_id: SessionId,
        /// What the client must show to resume the session; [`PASSWORD_LEN`] bytes.
        password: Option<&'a [u8]>,
        /// Whether this server is read-only. Present if and only if the request carried the byte.
        read_only: Option<bool>,
    }
}

impl ConnectResponse<'static> {
    /// The answer that tells the client that its session has expired. `read_only` as in the request's
    /// presence rule.
    #[must_use]
    pub const fn expired(read_only: Option<bool>) -> Self {
        Self {
            protocol_version: 0,
            timeout_ms: 0,
            session_id: SessionId(0),
            password: Some(&[0; PASSWORD_LEN]),
            read_only,
        }
    }
}
