//! From blocks to a state.

use std::collections::BTreeMap;

use ringkeeper_wire::{SessionId, Zxid};
use rkyv::rancor;
use rkyv::with::DeserializeWith;

use super::block::{ArchivedAclRow, ArchivedBlock, ArchivedSessionRow, ArchivedStart, ArchivedZnodeRow};
use crate::acl::Acl;
use crate::state::{RestoreError, State, StateBuilder};
use crate::tree::AclId;
use crate::txn::Session;
use crate::txn::archive::AclEntries;

/// Why blocks are no state.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not an archive of this version.
    #[error("malformed block: {0}")]
    Malformed(#[from] rancor::Error),
    /// The first block says what comes, and comes once.
    #[error("the first block is missing, or comes twice")]
    Start,
    /// A znode names a list that has not come before it.
    #[error("{path} has access control list {acl}, which is not there")]
    UnknownAcl {
        /// The znode.
        path: String,
        /// The list's number.
        acl: u32,
    },
    /// The znodes are no tree.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// Something is missing or too much.
    #[error("{found} {what}, {announced} were announced")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many should have come.
        announced: u64,
        /// How many came.
        found: u64,
    },
    /// The state is another one.
    #[error("the digest is {found:#x}, {announced:#x} was announced")]
    Digest {
        /// What it should be.
        announced: u64,
        /// What it is.
        found: u64,
    },
}

/// Puts a state together from the blocks of an [`super::Encoder`], in their order.
#[derive(Default)]
pub struct Decoder {
    begun: Option<Begun>,
}

struct Begun {
    builder: StateBuilder,
    last_zxid: Zxid,
    last_time_ms: i64,
    digest: u64,
    acls: BTreeMap<u32, Acl>,
    /// How many were announced, less those that came.
    announced: Counts,
    found: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    acls: u64,
    sessions: u64,
    znodes: u64,
}

impl Decoder {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next block, which has to be aligned to 16 bytes.
    ///
    /// # Errors
    /// See [`DecodeError`]. The decoder is of no use then.
    pub fn block(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        match (rkyv::access::<ArchivedBlock<'_>, rancor::Error>(bytes)?, &mut self.begun) {
            (ArchivedBlock::Start(start), begun @ None) => *begun = Some(Begun::new(start)),
            (ArchivedBlock::Acls(rows), Some(begun)) => {
                rows.iter().try_for_each(|row| begun.acl(row))?;
            }
            (ArchivedBlock::Sessions(rows), Some(begun)) => rows.iter().for_each(|row| begun.session(row)),
            (ArchivedBlock::Znodes(rows), Some(begun)) => {
                rows.iter().try_for_each(|row| begun.znode(row))?;
            }
            _ => return Err(DecodeError::Start),
        }
        Ok(())
    }

    /// The state, if all of it has come.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn finish(self) -> Result<State, DecodeError> {
        let begun = self.begun.ok_or(DecodeError::Start)?;
        let (announced, found) = (begun.announced, begun.found);
        for (what, announced, found) in [
            ("access control lists", announced.acls, found.acls),
            ("sessions", announced.sessions, found.sessions),
            ("znodes", announced.znodes, found.znodes),
        ] {
            if announced != found {
                return Err(DecodeError::Count { what, announced, found });
            }
        }
        let state = begun.builder.finish(begun.last_zxid, begun.last_time_ms)?;
        if state.digest() != begun.digest {
            return Err(DecodeError::Digest { announced: begun.digest, found: state.digest() });
        }
        Ok(state)
    }
}

impl Begun {
    fn new(start: &ArchivedStart) -> Self {
        Self {
            builder: StateBuilder::new(start.seed.to_native()),
            last_zxid: Zxid(start.last_zxid.to_native()),
            last_time_ms: start.last_time_ms.to_native(),
            digest: start.digest.to_native(),
            acls: BTreeMap::new(),
            announced: Counts {
                acls: start.acls.to_native(),
                sessions: start.sessions.to_native(),
                znodes: start.znodes.to_native(),
            },
            found: Counts::default(),
        }
    }

    fn acl(&mut self, row: &ArchivedAclRow) -> Result<(), DecodeError> {
        let mut strategy = ();
        let strategy = rkyv::rancor::Strategy::<_, rancor::Error>::wrap(&mut strategy);
        let acl: Acl = AclEntries::deserialize_with(&row.acl, strategy)?;
        self.acls.insert(row.id.to_native(), acl);
        self.found.acls += 1;
        Ok(())
    }

    fn session(&mut self, row: &ArchivedSessionRow) {
        let session =
            Session { timeout_ms: row.session.timeout_ms.to_native(), password: row.session.password };
        self.builder.session(SessionId(row.id.to_native()), session);
        self.found.sessions += 1;
    }

    fn znode(&mut self, row: &ArchivedZnodeRow<'_>) -> Result<(), DecodeError> {
        let meta = row.meta();
        let acl = match meta.acl {
            AclId::OPEN => Some(&Acl::OPEN),
            AclId(id) => self.acls.get(&id),
        };
        let Some(acl) = acl else {
            return Err(DecodeError::UnknownAcl { path: row.path.to_string(), acl: meta.acl.0 });
        };
        self.builder.znode(&row.path, &meta, acl, row.data.as_deref())?;
        self.found.znodes += 1;
        Ok(())
    }
}
