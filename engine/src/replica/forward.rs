//! Messages between the replicas of an ensemble, beside the broadcast: request batches to the leader, answers
//! to learners.

use std::sync::Arc;

use bytes::Bytes;
use ringkeeper_wire::{Identity, OpCode, SessionId, Xid, Zxid};
use rkyv::rancor;
use rkyv::util::AlignedVec;
use rkyv::{Archive, Deserialize, Serialize};

use crate::message::{ConnId, ShardId, Submission, Submitted, ToShard, Turn};

/// Buffer size for a message without its variable parts.
const ARCHIVE_BYTES_MIN: usize = 128;

/// Why a peer's bytes are no message of a replica.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// They are not an archive of this version.
    #[error("malformed message of a peer's replica: {0}")]
    Malformed(#[from] rancor::Error),
    /// They name an opcode that no client can have sent.
    #[error("a peer forwarded a request with opcode {0}")]
    Opcode(i32),
    /// A request's body lies outside of its batch.
    #[error("a peer forwarded a request of the bytes {start} to {end} of {len}")]
    Range {
        /// Where the request's body should begin.
        start: u32,
        /// Where it should end.
        end: u32,
        /// Bytes of the turn.
        len: usize,
    },
}

/// A message of a learner's replica to the leader's.
#[derive(Archive, Serialize, Deserialize)]
enum FromLearner {
    Turn(ForwardedTurn),
    Digest { zxid: u64, digest: u64 },
}

#[derive(Archive, Serialize, Deserialize)]
struct ForwardedTurn {
    shard: u16,
    bytes: Vec<u8>,
    submissions: Vec<ForwardedSubmission>,
    touched: Vec<i64>,
}

#[derive(Archive, Serialize, Deserialize)]
struct ForwardedSubmission {
    conn: u64,
    session: i64,
    what: Forwarded,
}

#[derive(Archive, Serialize, Deserialize)]
enum Forwarded {
    Write {
        xid: i32,
        op: i32,
        start: u32,
        end: u32,
        /// `None`: those of the connection's last write that had some.
        identities: Option<Vec<(String, String)>>,
        fence: bool,
    },
    Sync,
    Open {
        timeout_ms: u32,
    },
    Reattach {
        password: [u8; 16],
        timeout_ms: u32,
    },
    Detach,
}

#[derive(Archive, Serialize, Deserialize)]
struct Directed {
    after: u64,
    shard: u16,
    conn: u64,
    what: Direction,
}

#[derive(Archive, Serialize, Deserialize)]
enum Direction {
    Attached { session: i64, password: [u8; 16], timeout_ms: u32 },
    Rejected,
    Evict,
    Synced,
}

/// A turn of a learner's shard, for the leader.
pub(super) fn encode_turn(shard: ShardId, turn: Turn) -> Bytes {
    let forwarded = ForwardedTurn {
        shard: shard.0,
        bytes: turn.bytes,
        submissions: turn.submissions.into_iter().map(ForwardedSubmission::from).collect(),
        touched: turn.touched.into_iter().map(|session| session.0).collect(),
    };
    let len_bytes = ARCHIVE_BYTES_MIN
        + forwarded.bytes.len()
        + forwarded.submissions.len() * size_of::<ArchivedForwardedSubmission>()
        + forwarded.touched.len() * size_of::<i64>();
    to_bytes(&FromLearner::Turn(forwarded), len_bytes)
}

/// The digest of a learner's committed state after `zxid`, for the leader to compare.
pub(super) fn encode_digest(zxid: Zxid, digest: u64) -> Bytes {
    to_bytes(&FromLearner::Digest { zxid: zxid.0, digest }, ARCHIVE_BYTES_MIN)
}

/// A decoded message of a learner's replica.
#[derive(Debug)]
pub(super) enum Heard {
    Turn(ShardId, Turn),
    Digest(Zxid, u64),
}

pub(super) fn decode(bytes: &[u8]) -> Result<Heard, ForwardError> {
    let forwarded = match from_bytes(bytes)? {
        FromLearner::Turn(forwarded) => forwarded,
        FromLearner::Digest { zxid, digest } => return Ok(Heard::Digest(Zxid(zxid), digest)),
    };
    let len = forwarded.bytes.len();
    let submissions = forwarded.submissions.into_iter().map(|submission| submission.checked(len));
    let submissions = submissions.collect::<Result<_, _>>()?;
    let touched = forwarded.touched.into_iter().map(SessionId).collect();
    let turn = Turn { bytes: forwarded.bytes, submissions, touched, short_of_memory: None };
    Ok(Heard::Turn(ShardId(forwarded.shard), turn))
}

/// Encodes the leader's answer to one connection of a learner. The learner passes it on after it has
/// published everything up to `after`.
///
/// # Panics
/// The message is one that each server sends to its own shards only.
pub(super) fn encode_directed(after: Zxid, shard: ShardId, message: &ToShard) -> Bytes {
    let (conn, what) = match message {
        ToShard::Attached { conn, session, password, timeout_ms } => {
            (conn, Direction::Attached { session: session.0, password: *password, timeout_ms: *timeout_ms })
        }
        ToShard::Rejected { conn } => (conn, Direction::Rejected),
        ToShard::Evict { conn } => (conn, Direction::Evict),
        ToShard::Synced { conn } => (conn, Direction::Synced),
        ToShard::Published(_) | ToShard::View(_) | ToShard::Serving(_) | ToShard::Room(_) => {
            unreachable!("every server tells its own shards")
        }
    };
    to_bytes(&Directed { after: after.0, shard: shard.0, conn: conn.0, what }, ARCHIVE_BYTES_MIN)
}

pub(super) fn decode_directed(bytes: &[u8]) -> Result<(Zxid, ShardId, ToShard), ForwardError> {
    let Directed { after, shard, conn, what } = from_bytes(bytes)?;
    let conn = ConnId(conn);
    let message = match what {
        Direction::Attached { session, password, timeout_ms } => {
            ToShard::Attached { conn, session: SessionId(session), password, timeout_ms }
        }
        Direction::Rejected => ToShard::Rejected { conn },
        Direction::Evict => ToShard::Evict { conn },
        Direction::Synced => ToShard::Synced { conn },
    };
    Ok((Zxid(after), ShardId(shard), message))
}

impl From<Submission> for ForwardedSubmission {
    fn from(Submission { conn, session, what }: Submission) -> Self {
        let what = match what {
            Submitted::Write { xid, op, body, identities, fence } => Forwarded::Write {
                xid: xid.0,
                op: op.to_wire(),
                start: place(body.start),
                end: place(body.end),
                identities: identities.map(|identities| {
                    identities.iter().map(|who| (who.scheme.clone(), who.id.clone())).collect()
                }),
                fence,
            },
            Submitted::Sync => Forwarded::Sync,
            Submitted::Open { timeout_ms } => Forwarded::Open { timeout_ms },
            Submitted::Reattach { password, timeout_ms } => Forwarded::Reattach { password, timeout_ms },
            Submitted::Detach => Forwarded::Detach,
        };
        Self { conn: conn.0, session: session.0, what }
    }
}

/// An offset in the bytes of a batch, which every queue's bound keeps far below 4 GiB.
fn place(at: usize) -> u32 {
    u32::try_from(at).expect("a turn is far smaller than 4 GiB")
}

impl ForwardedSubmission {
    /// The submission, of a turn with `len` bytes.
    fn checked(self, len: usize) -> Result<Submission, ForwardError> {
        let what = match self.what {
            Forwarded::Write { start, end, .. } if start > end || end as usize > len => {
                return Err(ForwardError::Range { start, end, len });
            }
            Forwarded::Write { xid, op, start, end, identities, fence } => Submitted::Write {
                xid: Xid(xid),
                op: OpCode::from_wire(op).ok_or(ForwardError::Opcode(op))?,
                body: start as usize..end as usize,
                identities: identities.map(|identities| {
                    identities.into_iter().map(|(scheme, id)| Identity { scheme, id }).collect::<Arc<[_]>>()
                }),
                fence,
            },
            Forwarded::Sync => Submitted::Sync,
            Forwarded::Open { timeout_ms } => Submitted::Open { timeout_ms },
            Forwarded::Reattach { password, timeout_ms } => Submitted::Reattach { password, timeout_ms },
            Forwarded::Detach => Submitted::Detach,
        };
        Ok(Submission { conn: ConnId(self.conn), session: SessionId(self.session), what })
    }
}

/// The archive of `value`; `len_bytes` is its approximate length.
fn to_bytes<T>(value: &T, len_bytes: usize) -> Bytes
where
    T: for<'a> Serialize<
        rkyv::api::high::HighSerializer<AlignedVec, rkyv::ser::allocator::ArenaHandle<'a>, rancor::Error>,
    >,
{
    let archive = AlignedVec::with_capacity(len_bytes);
    let archive = rkyv::api::high::to_bytes_in::<_, rancor::Error>(value, archive);
    Bytes::from_owner(archive.expect("a message fits an archive"))
}

/// An archive has to be aligned. A peer's message usually is, since it has an allocation of its own.
fn from_bytes<T>(bytes: &[u8]) -> Result<T, ForwardError>
where
    T: Archive,
    T::Archived: for<'a> rkyv::bytecheck::CheckBytes<rkyv::api::high::HighValidator<'a, rancor::Error>>
        + Deserialize<T, rkyv::api::high::HighDeserializer<rancor::Error>>,
{
    if bytes.as_ptr().addr().is_multiple_of(align_of::<T::Archived>()) {
        return Ok(rkyv::from_bytes::<T, rancor::Error>(bytes)?);
    }
    let mut aligned: AlignedVec = AlignedVec::with_capacity(bytes.len());
    aligned.extend_from_slice(bytes);
    Ok(rkyv::from_bytes::<T, rancor::Error>(&aligned)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_survives_the_way_to_the_leader() {
        let identities: Arc<[Identity]> =
            Arc::from(vec![Identity { scheme: "ip".to_owned(), id: "127.0.0.1".to_owned() }]);
        let what = Submitted::Write {
            xid: Xid(7),
            op: OpCode::SetData,
            body: 0..3,
            identities: Some(identities),
            fence: true,
        };
        let submissions = vec![
            Submission { conn: ConnId(1), session: SessionId(2), what },
            Submission { conn: ConnId(3), session: SessionId(0), what: Submitted::Open { timeout_ms: 4000 } },
        ];
        let turn =
            Turn { bytes: b"abc".to_vec(), submissions, touched: vec![SessionId(2)], short_of_memory: None };
        let expected = format!("{turn:?}");
        let Ok(Heard::Turn(shard, decoded)) = decode(&encode_turn(ShardId(5), turn)) else {
            panic!("not a turn");
        };
        assert_eq!((shard, format!("{decoded:?}")), (ShardId(5), expected));
    }

    /// A request whose range exceeds its batch was forwarded, and a range that u32 cannot hold became 4 GiB.
    #[test]
    fn a_request_outside_of_its_turn_is_refused() {
        for (start, end) in [(0, 4), (3, 2), (u32::MAX, u32::MAX), (5, 5)] {
            let what = Forwarded::Write {
                xid: 7,
                op: OpCode::SetData.to_wire(),
                start,
                end,
                identities: None,
                fence: false,
            };
            let submissions = vec![ForwardedSubmission { conn: 1, session: 2, what }];
            let turn = ForwardedTurn { shard: 0, bytes: b"abc".to_vec(), submissions, touched: Vec::new() };
            let bytes = to_bytes(&FromLearner::Turn(turn), ARCHIVE_BYTES_MIN);
            assert!(matches!(decode(&bytes), Err(ForwardError::Range { .. })), "{start} to {end}");
        }
    }

    #[test]
    fn bytes_of_a_stranger_are_refused() {
        for len in 0..200_usize {
            let bytes: Vec<u8> = (0..len).map(|i| u8::try_from(i * 37 % 256).unwrap_or(0)).collect();
            let _ = decode(&bytes);
            let _ = decode_directed(&bytes);
        }
        let good = encode_directed(Zxid::ZERO, ShardId(1), &ToShard::Synced { conn: ConnId(9) });
        assert!(decode_directed(&good[..good.len() - 1]).is_err());
    }
}
