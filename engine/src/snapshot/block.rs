//! The archives in the blocks of a snapshot.

use ringkeeper_wire::{SessionId, Zxid};
use rkyv::with::{InlineAsBox, Map};
use rkyv::{Archive, Serialize};

use crate::acl::Acl;
use crate::tree::{AclId, ZnodeMeta};
use crate::txn::Session;
use crate::txn::archive::{AclEntries, Number};

/// One block.
///
/// Archives outlive this program: variants keep their order, or [`super::STATE_VERSION`] changes.
#[derive(Archive, Serialize)]
pub(super) enum Block<'a> {
    Start(Start),
    Acls(Vec<AclRow>),
    Sessions(Vec<SessionRow>),
    Znodes(Vec<ZnodeRow<'a>>),
}

/// The first block: properties of the state, and the counts of what follows.
#[derive(Archive, Serialize)]
pub(super) struct Start {
    /// Seed of the tree's hash.
    pub(super) seed: u64,
    pub(super) last_zxid: u64,
    pub(super) last_time_ms: i64,
    pub(super) acls: u64,
    pub(super) sessions: u64,
    pub(super) znodes: u64,
    pub(super) digest: u64,
}

/// An ACL other than the open one, with its number in this snapshot.
#[derive(Archive, Serialize)]
pub(super) struct AclRow {
    pub(super) id: u32,
    #[rkyv(with = AclEntries)]
    pub(super) acl: Acl,
}

#[derive(Archive, Serialize)]
pub(super) struct SessionRow {
    #[rkyv(with = Number)]
    pub(super) id: SessionId,
    pub(super) session: Session,
}

#[derive(Archive, Serialize)]
pub(super) struct ZnodeRow<'a> {
    #[rkyv(with = InlineAsBox)]
    pub(super) path: &'a str,
    #[rkyv(with = Map<InlineAsBox>)]
    pub(super) data: Option<&'a [u8]>,
    czxid: u64,
    mzxid: u64,
    pzxid: u64,
    ctime: i64,
    mtime: i64,
    raw_owner: i64,
    version: i32,
    cversion: i32,
    aversion: i32,
    num_children: u32,
    acl: u32,
}

impl<'a> ZnodeRow<'a> {
    pub(super) fn new(path: &'a str, data: Option<&'a [u8]>, meta: &ZnodeMeta) -> Self {
        Self {
            path,
            data,
            czxid: meta.czxid.0,
            mzxid: meta.mzxid.0,
            pzxid: meta.pzxid.0,
            ctime: meta.ctime,
            mtime: meta.mtime,
            raw_owner: meta.raw_owner,
            version: meta.version,
            cversion: meta.cversion,
            aversion: meta.aversion,
            num_children: meta.num_children,
            acl: meta.acl.0,
        }
    }
}

impl ArchivedZnodeRow<'_> {
    /// Everything but path and data.
    pub(super) fn meta(&self) -> ZnodeMeta {
        ZnodeMeta {
            czxid: Zxid(self.czxid.to_native()),
            mzxid: Zxid(self.mzxid.to_native()),
            pzxid: Zxid(self.pzxid.to_native()),
            ctime: self.ctime.to_native(),
            mtime: self.mtime.to_native(),
            raw_owner: self.raw_owner.to_native(),
            version: self.version.to_native(),
            cversion: self.cversion.to_native(),
            aversion: self.aversion.to_native(),
            num_children: self.num_children.to_native(),
            acl: AclId(self.acl.to_native()),
        }
    }
}
