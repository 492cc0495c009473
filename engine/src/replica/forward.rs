//! Messages between the replicas of an ensemble, beside the broadcast: request batches to the leader, answers
//! to learners. As bytes, by the rules of [`crate::codec`].

use std::sync::Arc;

use bytes::Bytes;
use ringkeeper_wire::{Epoch, Identity, OpCode, SessionId, Xid, Zxid};

use super::rejected::Credentials;
use crate::codec::{DecodeError, Reader, Writer};
use crate::message::{ConnId, Origin, RequestBatch, ShardId, Submission, Submitted, ToShard};

/// Bytes of a submission without variable parts: at least, and as reserved for one.
const SUBMISSION_BYTES_MIN: usize = 8 + 8 + 1;
const SUBMISSION_BYTES_USUAL: usize = 40;

/// Bytes of a client's session, shard and connection.
const CLIENT_BYTES: usize = 8 + 2 + 8;

/// Bytes of a session and its password.
const CREDENTIALS_BYTES: usize = 8 + 16;

/// Bytes of two empty texts.
const IDENTITY_BYTES_MIN: usize = 4 + 4;

mod kind {
    pub(super) const REQUESTS: u8 = 1;
    pub(super) const DIGEST: u8 = 2;
    pub(super) const CLIENTS: u8 = 3;
    /// Requests some of which concern local sessions, and the epoch in which their server follows.
    pub(super) const REQUESTS_IN_EPOCH: u8 = 4;

    pub(super) const WRITE: u8 = 1;
    pub(super) const SYNC: u8 = 2;
    pub(super) const OPEN: u8 = 3;
    pub(super) const REATTACH: u8 = 4;
    pub(super) const DETACH: u8 = 5;
    pub(super) const UPGRADE: u8 = 6;
    /// Added to the kind of a request whose session is local to the sender.
    pub(super) const LOCAL: u8 = 0x80;

    pub(super) const ATTACHED: u8 = 1;
    pub(super) const REJECTED: u8 = 2;
    pub(super) const EVICT: u8 = 3;
    pub(super) const SYNCED: u8 = 4;
    /// Of no connection.
    pub(super) const REJECTED_SESSIONS: u8 = 5;
}

/// A batch of a learner's shard, for the leader. The bodies of the requests come last: they lie one after the
/// other, so the length of each says where it is. `epoch` is the one in which the learner follows; see
/// [`Heard::Requests`].
pub(super) fn encode_requests(epoch: Option<Epoch>, shard: ShardId, batch: &RequestBatch) -> Bytes {
    let RequestBatch { bytes, submissions, touched, short_of_memory: _ } = batch;
    let sizes = submissions.len() * SUBMISSION_BYTES_USUAL + touched.len() * size_of::<SessionId>();
    let mut out = Vec::with_capacity(16 + sizes + bytes.len());
    let mut w = Writer(&mut out);
    match epoch.filter(|_| submissions.iter().any(Submission::is_claim)) {
        Some(epoch) => w.u8(kind::REQUESTS_IN_EPOCH).epoch(epoch),
        None => w.u8(kind::REQUESTS),
    };
    w.u16(shard.0).count(touched.len());
    touched.iter().for_each(|session| _ = w.session(*session));
    w.count(submissions.len());
    let mut at = 0;
    for submission in submissions {
        w.submission(submission);
        if let Submitted::Write { body, .. } = &submission.what {
            debug_assert_eq!(body.start, at, "bodies lie one after the other");
            at = body.end;
        }
    }
    w.bytes(bytes);
    out.into()
}

/// Whether a message of a learner's replica has a request that becomes a transaction.
#[must_use]
pub fn forwards_writes(message: &Bytes) -> bool {
    let writes = |what: &Submitted| {
        matches!(what, Submitted::Write { .. } | Submitted::Open { .. } | Submitted::Upgrade { .. })
    };
    match decode(message) {
        Ok(Heard::Requests { batch, .. }) => {
            batch.submissions.iter().any(|submission| writes(&submission.what))
        }
        _ => false,
    }
}

/// The digest of a learner's committed state after `zxid`, for the leader to compare.
pub(super) fn encode_digest(zxid: Zxid, digest: u64) -> Bytes {
    let mut out = Vec::new();
    Writer(&mut out).u8(kind::DIGEST).zxid(zxid).u64(digest);
    out.into()
}

/// The clients of a learner, for a leader that leadership was handed over to.
pub(super) fn encode_clients(clients: &[(SessionId, Origin)]) -> Bytes {
    let mut out = Vec::with_capacity(8 + clients.len() * CLIENT_BYTES);
    let mut w = Writer(&mut out);
    w.u8(kind::CLIENTS).count(clients.len());
    clients
        .iter()
        .for_each(|(session, origin)| _ = w.session(*session).u16(origin.shard.0).u64(origin.conn.0));
    out.into()
}

/// A decoded message of a learner's replica.
#[derive(Debug)]
pub(super) enum Heard {
    Requests {
        /// The epoch in which the learner followed, if it says something of its local sessions: on a
        /// connection that it has had since an earlier epoch, requests before these may be lost.
        epoch: Option<Epoch>,
        shard: ShardId,
        batch: RequestBatch,
    },
    Digest(Zxid, u64),
    Clients(Vec<(SessionId, Origin)>),
}

pub(super) fn decode(message: &Bytes) -> Result<Heard, DecodeError> {
    let mut r = Reader(message);
    match r.u8()? {
        kind @ (kind::REQUESTS | kind::REQUESTS_IN_EPOCH) => {
            let epoch = if kind == kind::REQUESTS_IN_EPOCH { Some(r.epoch()?) } else { None };
            let shard = ShardId(r.u16()?);
            let touched = r.list(size_of::<SessionId>(), Reader::session)?;
            let mut at = 0;
            let submissions = r.list(SUBMISSION_BYTES_MIN, |r| r.submission(&mut at, epoch.is_some()))?;
            let bytes = message.slice_ref(r.bytes(at)?);
            r.end()?;
            let batch = RequestBatch { bytes, submissions, touched, short_of_memory: None };
            Ok(Heard::Requests { epoch, shard, batch })
        }
        kind::DIGEST => {
            let digest = Heard::Digest(r.zxid()?, r.u64()?);
            r.end().map(|()| digest)
        }
        kind::CLIENTS => {
            let client = |r: &mut Reader<'_>| {
                Ok((r.session()?, Origin { shard: ShardId(r.u16()?), conn: ConnId(r.u64()?) }))
            };
            let clients = Heard::Clients(r.list(CLIENT_BYTES, client)?);
            r.end().map(|()| clients)
        }
        other => Err(DecodeError::Value { field: "kind of a forwarded message", value: u64::from(other) }),
    }
}

/// Encodes the leader's answer to one connection of a learner. The learner passes it on after it has
/// published everything up to `after`.
///
/// # Panics
/// The message is one that each server sends to its own shards only.
pub(super) fn encode_directed(after: Zxid, shard: ShardId, message: &ToShard) -> Bytes {
    let (conn, kind) = match message {
        ToShard::Attached { conn, .. } => (conn, kind::ATTACHED),
        ToShard::Rejected { conn } => (conn, kind::REJECTED),
        ToShard::Evict { conn } => (conn, kind::EVICT),
        ToShard::Synced { conn } => (conn, kind::SYNCED),
        ToShard::Published(_)
        | ToShard::View(_)
        | ToShard::Serving(_)
        | ToShard::DiskFull(_)
        | ToShard::Closed { .. }
        | ToShard::Throttled { .. } => unreachable!("every server tells its own shards"),
    };
    let mut out = Vec::new();
    let mut w = Writer(&mut out);
    w.zxid(after).u16(shard.0).u64(conn.0).u8(kind);
    if let ToShard::Attached { session, password, timeout_ms, .. } = message {
        w.session(*session).bytes(password).u32(*timeout_ms);
    }
    out.into()
}

/// The sessions that a leader has called expired, for the learner that it hands leadership over to.
pub(super) fn encode_rejected<'s>(sessions: impl ExactSizeIterator<Item = &'s Credentials>) -> Bytes {
    let mut out = Vec::with_capacity(32 + sessions.len() * CREDENTIALS_BYTES);
    let mut w = Writer(&mut out);
    w.zxid(Zxid::ZERO).u16(0).u64(0).u8(kind::REJECTED_SESSIONS).count(sessions.len());
    sessions.for_each(|(session, password)| _ = w.session(*session).bytes(password));
    out.into()
}

/// A decoded message of the leader's replica.
#[derive(Debug)]
pub(super) enum Directed {
    /// For one connection of a shard, after everything up to the zxid is published.
    Answer(Zxid, ShardId, ToShard),
    RejectedSessions(Vec<Credentials>),
}

pub(super) fn decode_directed(bytes: &[u8]) -> Result<Directed, DecodeError> {
    let mut r = Reader(bytes);
    let (after, shard, conn) = (r.zxid()?, ShardId(r.u16()?), ConnId(r.u64()?));
    let message = match r.u8()? {
        kind::REJECTED_SESSIONS => {
            let sessions = r.list(CREDENTIALS_BYTES, |r| Ok((r.session()?, r.array()?)))?;
            return r.end().map(|()| Directed::RejectedSessions(sessions));
        }
        kind::ATTACHED => {
            let (session, password, timeout_ms) = (r.session()?, r.array()?, r.u32()?);
            ToShard::Attached { conn, session, password, timeout_ms }
        }
        kind::REJECTED => ToShard::Rejected { conn },
        kind::EVICT => ToShard::Evict { conn },
        kind::SYNCED => ToShard::Synced { conn },
        other => return Err(DecodeError::Value { field: "kind of an answer", value: u64::from(other) }),
    };
    r.end().map(|()| Directed::Answer(after, shard, message))
}

impl Writer<'_> {
    fn submission(&mut self, Submission { conn, session, local, what }: &Submission) {
        self.u64(conn.0).session(*session);
        let local = if *local { kind::LOCAL } else { 0 };
        match what {
            Submitted::Write { xid, op, body, identities, read_barrier } => {
                self.u8(kind::WRITE | local).bytes(&xid.0.to_le_bytes()).bytes(&op.to_wire().to_le_bytes());
                self.count(body.len()).flag(*read_barrier).flag(identities.is_some());
                if let Some(identities) = identities {
                    self.count(identities.len());
                    identities.iter().for_each(|who| _ = self.text(&who.scheme).text(&who.id));
                }
            }
            Submitted::Sync => _ = self.u8(kind::SYNC | local),
            Submitted::Open { timeout_ms } => _ = self.u8(kind::OPEN).u32(*timeout_ms),
            Submitted::Reattach { password, timeout_ms } => {
                self.u8(kind::REATTACH).bytes(password).u32(*timeout_ms);
            }
            Submitted::Detach => _ = self.u8(kind::DETACH),
            Submitted::Upgrade { password, timeout_ms } => {
                self.u8(kind::UPGRADE).bytes(password).u32(*timeout_ms);
            }
        }
    }
}

impl Reader<'_> {
    /// A submission whose body begins at `at` if it is a write; moves `at` to the end of the body. It says
    /// nothing of local sessions unless `claims`.
    fn submission(&mut self, at: &mut usize, claims: bool) -> Result<Submission, DecodeError> {
        let (conn, session) = (ConnId(self.u64()?), self.session()?);
        let kind = self.u8()?;
        let local = claims && matches!(kind ^ kind::LOCAL, kind::WRITE | kind::SYNC);
        let what = match if local { kind ^ kind::LOCAL } else { kind } {
            kind::WRITE => self.write(at)?,
            kind::SYNC => Submitted::Sync,
            kind::OPEN => Submitted::Open { timeout_ms: self.u32()? },
            kind::REATTACH => Submitted::Reattach { password: self.array()?, timeout_ms: self.u32()? },
            kind::DETACH => Submitted::Detach,
            kind::UPGRADE if claims => {
                Submitted::Upgrade { password: self.array()?, timeout_ms: self.u32()? }
            }
            other => return Err(DecodeError::Value { field: "kind of a request", value: u64::from(other) }),
        };
        Ok(Submission { conn, session, local, what })
    }

    fn write(&mut self, at: &mut usize) -> Result<Submitted, DecodeError> {
        let xid = Xid(i32::from_le_bytes(self.array()?));
        let op = self.u32()?;
        let named = DecodeError::Value { field: "opcode of a forwarded request", value: u64::from(op) };
        let op = OpCode::from_wire(op.cast_signed()).ok_or(named)?;
        let body = *at..at.saturating_add(self.u32()? as usize);
        *at = body.end;
        let read_barrier = self.flag("read barrier")?;
        let identities = if self.flag("identities")? {
            let identity = |r: &mut Self| {
                let (scheme, id) = (r.text("scheme")?.to_owned(), r.text("identity")?.to_owned());
                Ok(Identity { scheme, id })
            };
            Some(Arc::from(self.list(IDENTITY_BYTES_MIN, identity)?))
        } else {
            None
        };
        Ok(Submitted::Write { xid, op, body, identities, read_barrier })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(body: std::ops::Range<usize>, identities: Option<Arc<[Identity]>>) -> Submission {
        let what =
            Submitted::Write { xid: Xid(7), op: OpCode::SetData, body, identities, read_barrier: true };
        Submission { conn: ConnId(1), session: SessionId(2), local: false, what }
    }

    fn batch(submissions: Vec<Submission>) -> RequestBatch {
        let bytes = Bytes::from_static(b"abc");
        RequestBatch { bytes, submissions, touched: vec![SessionId(2)], short_of_memory: None }
    }

    #[test]
    fn a_turn_survives_the_way_to_the_leader() {
        let identities = vec![Identity { scheme: "ip".to_owned(), id: "127.0.0.1".to_owned() }];
        let other = |what| Submission { conn: ConnId(3), session: SessionId(-1), local: false, what };
        let local = |submission| Submission { local: true, ..submission };
        let batch = batch(vec![
            write(0..2, Some(identities.into())),
            other(Submitted::Open { timeout_ms: 4000 }),
            other(Submitted::Reattach { password: [9; 16], timeout_ms: 1 }),
            other(Submitted::Sync),
            write(2..3, None),
            other(Submitted::Detach),
            local(write(3..3, None)),
            local(other(Submitted::Sync)),
            other(Submitted::Upgrade { password: [8; 16], timeout_ms: 2 }),
        ]);
        let encoded = encode_requests(Some(Epoch(3)), ShardId(5), &batch);
        let Ok(Heard::Requests { epoch, shard, batch: decoded }) = decode(&encoded) else {
            panic!("not requests")
        };
        assert_eq!(epoch, Some(Epoch(3)));
        assert_eq!((shard, format!("{decoded:?}")), (ShardId(5), format!("{batch:?}")));
        for len in 0..encoded.len() {
            assert!(decode(&encoded.slice(..len)).is_err(), "{len} bytes of it");
        }
    }

    #[test]
    fn clients_survive_the_way_to_the_leader() {
        let client = |n: i64| (SessionId(-n), Origin { shard: ShardId(7), conn: ConnId(n.cast_unsigned()) });
        let clients = [client(1), client(2)];
        let encoded = encode_clients(&clients);
        let Ok(Heard::Clients(decoded)) = decode(&encoded) else { panic!("no clients") };
        assert_eq!(decoded, clients);
        for len in 0..encoded.len() {
            assert!(decode(&encoded.slice(..len)).is_err(), "{len} bytes of it");
        }
    }

    /// A request whose range exceeds its batch was forwarded, and a range that u32 cannot hold became 4 GiB.
    #[test]
    fn requests_longer_or_shorter_than_their_turn_are_refused() {
        for (body, error) in [
            (0..4, DecodeError::CutShort { missing: 1 }),
            (0..2, DecodeError::Trailing(1)),
            (0..u32::MAX as usize, DecodeError::CutShort { missing: u32::MAX as usize - 3 }),
        ] {
            let decoded = decode(&encode_requests(None, ShardId(0), &batch(vec![write(body, None)])));
            assert_eq!(decoded.map(|_| ()), Err(error));
        }
    }

    #[test]
    fn bytes_of_a_stranger_are_refused() {
        for len in 0..200_usize {
            let bytes: Vec<u8> = (0..len).map(|i| u8::try_from(i * 37 % 256).unwrap_or(0)).collect();
            let _ = decode_directed(&bytes);
            let _ = decode(&bytes.into());
        }
        let rejected = [(SessionId(-1), [7; 16]), (SessionId(2), [8; 16])];
        for good in [
            encode_directed(Zxid::ZERO, ShardId(1), &ToShard::Synced { conn: ConnId(9) }),
            encode_rejected(rejected.iter()),
        ] {
            assert!(decode_directed(&good).is_ok());
            assert!(decode_directed(&good[..good.len() - 1]).is_err());
        }
    }
}
