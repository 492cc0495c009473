//! The handshake: the only two records without an xid (docs/protocol.md, 2).

use crate::jute::{self, DecodeError, Reader};
use crate::{Record, SessionId};

/// The protocol version of a client that knows ringkeeper's extensions. A server that has them answers with
/// the same version, any other server with 0 (docs/protocol.md, 12.3).
pub const EXTENDED_PROTOCOL: i32 = 0x524b_0001;

/// Length of a session password, in bytes.
pub const PASSWORD_LEN: usize = 16;

/// The first frame of a connection (`zookeeper.jute`, ConnectRequest).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest<'a> {
    /// 0, or [`EXTENDED_PROTOCOL`].
    pub protocol_version: i32,
    /// The newest zxid the client has seen. A server that is behind it must not serve the client.
    pub last_zxid_seen: i64,
    /// Session timeout wanted, in milliseconds.
    pub timeout_ms: i32,
    /// The session to resume, 0 for a new one.
    pub session_id: SessionId,
    /// The password of the session to resume; zeros or nothing for a new one.
    pub password: Option<&'a [u8]>,
    /// Whether a read-only server will do. `None`: the byte was absent, as in clients of 3.3 and older;
    /// such a client must get no byte in the answer either.
    pub read_only: Option<bool>,
}

impl<'a> Record<'a> for ConnectRequest<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: reader.read_i32()?,
            last_zxid_seen: reader.read_i64()?,
            timeout_ms: reader.read_i32()?,
            session_id: Record::decode(reader)?,
            password: reader.read_buffer()?,
            read_only: decode_read_only(reader)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_i32(out, self.protocol_version);
        jute::put_i64(out, self.last_zxid_seen);
        jute::put_i32(out, self.timeout_ms);
        self.session_id.encode(out);
        jute::put_buffer(out, self.password);
        encode_read_only(self.read_only, out);
    }
}

/// The answer to a [`ConnectRequest`] (`zookeeper.jute`, ConnectResponse).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectResponse<'a> {
    /// 0, or [`EXTENDED_PROTOCOL`] if the request had it.
    pub protocol_version: i32,
    /// Session timeout granted, in milliseconds; 0 or less tells that the session has expired.
    pub timeout_ms: i32,
    /// The session.
    pub session_id: SessionId,
    /// What the client must show to resume the session; [`PASSWORD_LEN`] bytes.
    pub password: Option<&'a [u8]>,
    /// Whether this server is read-only. Present if and only if the request carried the byte.
    pub read_only: Option<bool>,
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

impl<'a> Record<'a> for ConnectResponse<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: reader.read_i32()?,
            timeout_ms: reader.read_i32()?,
            session_id: Record::decode(reader)?,
            password: reader.read_buffer()?,
            read_only: decode_read_only(reader)?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_i32(out, self.protocol_version);
        jute::put_i32(out, self.timeout_ms);
        self.session_id.encode(out);
        jute::put_buffer(out, self.password);
        encode_read_only(self.read_only, out);
    }
}

fn decode_read_only(reader: &mut Reader<'_>) -> Result<Option<bool>, DecodeError> {
    if reader.rest().is_empty() { Ok(None) } else { reader.read_bool().map(Some) }
}

fn encode_read_only(read_only: Option<bool>, out: &mut Vec<u8>) {
    if let Some(read_only) = read_only {
        jute::put_bool(out, read_only);
    }
}
