//! Transactions: they are logged, replicated and applied; applying one has an outcome.
//!
//! A transaction is idempotent and complete. It contains the leader's time and the resulting versions and
//! owners, so applying it needs no clock, no check and no request (as in ZooKeeper's log). A failed request
//! is a transaction too, since it has a place in the order.
//!
//! Paths and data are shared with the bytes that they were read from, a shard's requests or a batch, so a
//! transaction copies none of them. It keeps those bytes in memory, but lives only until it is published.

pub(crate) mod archive;
mod batch;
mod outcome;

pub use batch::{BatchError, decode_batch, encode_batch, share_batch};
pub use outcome::{Change, ChangeKind, Changes, Effect, Outcome};
pub use ringkeeper_wire::Identity;

use std::slice;

use bytes::Bytes;
use bytestring::ByteString;
use ringkeeper_wire::{ErrorCode, SessionId, Xid, Zxid};
use rkyv::with::{Map, Skip};

use crate::acl::Acl;
use archive::{AclEntries, Number, Shared};

/// One transaction.
#[derive(Clone, Debug, PartialEq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct Txn {
    /// Its place in the order of all transactions. In an archive it follows from the position in the batch.
    #[rkyv(with = Skip)]
    pub zxid: Zxid,
    /// The session that asked; 0 for the server itself.
    #[rkyv(with = Number)]
    pub session: SessionId,
    /// The session's number of the request.
    #[rkyv(with = Number)]
    pub xid: Xid,
    /// The leader's time, milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// What it does.
    pub op: TxnOp,
}

/// What a transaction does.
///
/// Archives are read by later builds: variants keep their order, and new ones are appended and are no larger
/// than [`TxnOp::Update`]; otherwise the format version of the log changes.
#[derive(Clone, Debug, PartialEq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub enum TxnOp {
    /// One change of the tree.
    Update(Update),
    /// Several changes, all at the same zxid and time.
    Multi(Vec<Update>),
    /// A multi that failed and changes nothing.
    FailedMulti(FailedMulti),
    /// A failed request, which changes nothing.
    Error(#[rkyv(with = Number)] ErrorCode),
    /// The session [`Txn::session`] begins.
    CreateSession(Session),
    /// The session [`Txn::session`] ends, and the znodes of these paths are deleted. Only in logs from before
    /// [`Self::CloseSession`]: the list grows with the session's ephemerals.
    CloseSessionListed(Vec<Box<str>>),
    /// The ensemble's configuration changes: a [`SetData`] of [`crate::path::CONFIG`].
    Reconfig(Update),
    /// The session [`Txn::session`] ends, and its ephemeral znodes are deleted. Every server knows them from
    /// its state, so the transaction's length does not depend on their number.
    CloseSession,
}

impl TxnOp {
    /// The requested changes of the tree, in order; a closed session has none.
    #[must_use]
    pub fn updates(&self) -> &[Update] {
        match self {
            Self::Update(update) | Self::Reconfig(update) => slice::from_ref(update),
            Self::Multi(updates) => updates,
            Self::FailedMulti(_)
            | Self::Error(_)
            | Self::CreateSession(_)
            | Self::CloseSessionListed(_)
            | Self::CloseSession => &[],
        }
    }
}

impl TxnOp {
    /// Number of operations of a multi, whether it failed or not; 0 for all others.
    #[must_use]
    pub const fn multi_operations(&self) -> usize {
        match self {
            Self::Multi(updates) => updates.len(),
            Self::FailedMulti(failed) => failed.ops as usize,
            _ => 0,
        }
    }

    /// Approximate bytes in a batch.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        let updates: usize = self.updates().iter().map(Update::len_bytes).sum();
        match self {
            Self::CloseSessionListed(paths) => paths.iter().map(|path| path.len()).sum(),
            _ => updates,
        }
    }
}

/// A change of one znode.
#[derive(Clone, Debug, PartialEq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub enum Update {
    /// A znode begins.
    Create(Create),
    /// The childless znode of this path ends: asked by a client, or a container or TTL znode whose time has
    /// come.
    Delete(#[rkyv(with = Shared)] ByteString),
    /// Its data is replaced.
    SetData(SetData),
    /// Its ACL is replaced.
    SetAcl(SetAcl),
    /// Nothing changes: in a multi, the version of the znode of this path was checked.
    Check(#[rkyv(with = Shared)] ByteString),
}

impl Update {
    /// The znode.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Create(Create { path, .. })
            | Self::Delete(path)
            | Self::SetData(SetData { path, .. })
            | Self::SetAcl(SetAcl { path, .. })
            | Self::Check(path) => path,
        }
    }
}

impl Update {
    fn len_bytes(&self) -> usize {
        let fixed = 64;
        let data = |data: &Option<Bytes>| data.as_ref().map_or(0, Bytes::len);
        let rest = match self {
            Self::Create(create) => data(&create.data) + create.acl.len_bytes(),
            Self::SetData(set) => data(&set.data),
            Self::SetAcl(set) => set.acl.len_bytes(),
            Self::Delete(_) | Self::Check(_) => 0,
        };
        fixed + self.path().len() + rest
    }
}

/// A znode begins.
#[derive(Clone, Debug, PartialEq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct Create {
    /// Its full path, the sequence suffix included.
    #[rkyv(with = Shared)]
    pub path: ByteString,
    /// Its data; null and empty are different.
    #[rkyv(with = Map<Shared>)]
    pub data: Option<Bytes>,
    /// Its ACL.
    #[rkyv(with = AclEntries)]
    pub acl: Acl,
    /// What keeps it alive, see [`crate::tree::Owner::from_raw`].
    pub raw_owner: i64,
    /// How many children its parent has had, this one included (wraps).
    pub parent_cversion: i32,
    /// Whether the reply has a Stat (create2) or the path alone (create).
    pub reply_with_stat: bool,
}

/// A znode's data is replaced.
#[derive(Clone, Debug, PartialEq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct SetData {
    /// The znode.
    #[rkyv(with = Shared)]
    pub path: ByteString,
    /// Its new data.
    #[rkyv(with = Map<Shared>)]
    pub data: Option<Bytes>,
    /// Its new version.
    pub version: i32,
}

/// A znode's ACL is replaced.
#[derive(Clone, Debug, PartialEq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct SetAcl {
    /// The znode.
    #[rkyv(with = Shared)]
    pub path: ByteString,
    /// Its new ACL.
    #[rkyv(with = AclEntries)]
    pub acl: Acl,
    /// Its new ACL version.
    pub aversion: i32,
}

/// The replicated data of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct Session {
    /// Timeout in milliseconds, as negotiated when it was created.
    pub timeout_ms: u32,
    /// The secret by which a client resumes the session: random, drawn by the leader that created it.
    pub password: [u8; 16],
}

/// A multi that failed: where and why.
#[derive(Clone, Copy, Debug, PartialEq, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub struct FailedMulti {
    /// Number of operations.
    pub ops: u32,
    /// Which one failed, counted from 0.
    pub failed: u32,
    /// Why.
    #[rkyv(with = Number)]
    pub code: ErrorCode,
}

impl FailedMulti {
    /// The code of each operation in the reply: 0 before the one that failed, -2 after it.
    pub fn codes(self) -> impl ExactSizeIterator<Item = ErrorCode> {
        (0..self.ops).map(move |op| match op.cmp(&self.failed) {
            std::cmp::Ordering::Less => ErrorCode::Ok,
            std::cmp::Ordering::Equal => self.code,
            std::cmp::Ordering::Greater => ErrorCode::RuntimeInconsistency,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_multi_says_ok_before_and_inconsistency_after() {
        let failed = FailedMulti { ops: 4, failed: 2, code: ErrorCode::BadVersion };
        let codes: Vec<i32> = failed.codes().map(ErrorCode::to_wire).collect();
        assert_eq!(codes, [0, 0, -103, -2]);
    }
}
