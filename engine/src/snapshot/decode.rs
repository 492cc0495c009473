//! From blocks to a state.

use ringkeeper_wire::{SessionId, Zxid};
use rkyv::rancor;
use rkyv::with::DeserializeWith;

use super::block::{ArchivedAclRow, ArchivedBlock, ArchivedSessionRow, ArchivedStart, ArchivedZnodeRow};
use crate::acl::Acl;
use crate::state::{RestoreError, State, StateLoader, Unreadable, ZnodeReader, ZnodeRun};
use crate::tree::Misplaced;
use crate::txn::Session;
use crate::txn::archive::AclEntries;

/// Why blocks cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not an archive of this version.
    #[error("malformed block: {0}")]
    Malformed(#[from] rancor::Error),
    /// The first block does not announce the others, or a later one does.
    #[error("the first block is missing, or comes twice")]
    Start,
    /// A znode names an ACL that no earlier block has.
    #[error("{path} has access control list {acl}, which is not there")]
    UnknownAcl {
        /// The znode.
        path: String,
        /// The list's number.
        acl: u32,
    },
    /// The znodes are not in the tree's order.
    #[error(transparent)]
    Misplaced(#[from] Misplaced),
    /// The znodes do not form a tree.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The number of rows is not the one that the first block announces.
    #[error("{found} {what}, {announced} were announced")]
    Count {
        /// The kind of rows.
        what: &'static str,
        /// How many should have come.
        announced: u64,
        /// How many came.
        found: u64,
    },
    /// The digest is not the announced one.
    #[error("the digest is {found:#x}, {announced:#x} was announced")]
    Digest {
        /// What it should be.
        announced: u64,
        /// What it is.
        found: u64,
    },
}

/// Builds a state from the blocks of an [`super::Encoder`], in their order.
///
/// Most of the work is for znodes, and several cores can share it. As soon as there is a [`Self::reader`],
/// blocks may be read apart from the decoder and in any order; the decoder takes their rows in the order of
/// the blocks.
#[derive(Default)]
pub struct Decoder {
    begun: Option<Begun>,
}

struct Begun {
    loader: StateLoader,
    last_zxid: Zxid,
    last_time_ms: i64,
    digest: u64,
    announced: Counts,
    found: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    acls: u64,
    sessions: u64,
    znodes: u64,
}

/// Reads blocks of one snapshot, see [`Decoder::reader`].
#[derive(Clone, Debug)]
pub struct BlockReader {
    znodes: ZnodeReader,
}

/// What a block holds, for [`Decoder::take`].
#[derive(Debug)]
pub struct Rows(Kind);

#[derive(Debug)]
enum Kind {
    Acls(Vec<(u32, Acl)>),
    Sessions(Vec<(SessionId, Session)>),
    Znodes(ZnodeRun),
}

impl BlockReader {
    /// Reads a block other than the first one; it has to be aligned to 16 bytes.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn read(&self, bytes: &[u8]) -> Result<Rows, DecodeError> {
        Ok(Rows(match rkyv::access::<ArchivedBlock<'_>, rancor::Error>(bytes)? {
            ArchivedBlock::Start(_) => return Err(DecodeError::Start),
            ArchivedBlock::Acls(rows) => Kind::Acls(rows.iter().map(acl).collect::<Result<_, _>>()?),
            ArchivedBlock::Sessions(rows) => Kind::Sessions(rows.iter().map(session).collect()),
            ArchivedBlock::Znodes(rows) => {
                let mut run = ZnodeRun::default();
                rows.iter().try_for_each(|row| self.znode(&mut run, row))?;
                Kind::Znodes(run)
            }
        }))
    }

    fn znode(&self, run: &mut ZnodeRun, row: &ArchivedZnodeRow<'_>) -> Result<(), DecodeError> {
        let meta = row.meta();
        self.znodes.push(run, &row.path, &meta, row.data.as_deref()).map_err(|error| match error {
            Unreadable::UnknownAcl => DecodeError::UnknownAcl { path: row.path.to_string(), acl: meta.acl.0 },
            Unreadable::Misplaced(misplaced) => misplaced.into(),
        })
    }
}

fn acl(row: &ArchivedAclRow) -> Result<(u32, Acl), DecodeError> {
    let mut strategy = ();
    let strategy = rancor::Strategy::<_, rancor::Error>::wrap(&mut strategy);
    Ok((row.id.to_native(), AclEntries::deserialize_with(&row.acl, strategy)?))
}

fn session(row: &ArchivedSessionRow) -> (SessionId, Session) {
    let session = Session { timeout_ms: row.session.timeout_ms.to_native(), password: row.session.password };
    (SessionId(row.id.to_native()), session)
}

impl Decoder {
    /// A decoder that expects the first block.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next block, which has to be aligned to 16 bytes.
    ///
    /// # Errors
    /// See [`DecodeError`]. The decoder is unusable then.
    pub fn block(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let Some(begun) = &self.begun else {
            return match rkyv::access::<ArchivedBlock<'_>, rancor::Error>(bytes)? {
                ArchivedBlock::Start(start) => {
                    self.begun = Some(Begun::new(start));
                    Ok(())
                }
                _ => Err(DecodeError::Start),
            };
        };
        let rows = begun.reader().read(bytes)?;
        self.take(rows)
    }

    /// A reader for the remaining blocks, once the ACLs that they refer to are decoded.
    #[must_use]
    pub fn reader(&self) -> Option<BlockReader> {
        let begun = self.begun.as_ref()?;
        (begun.found.acls == begun.announced.acls).then(|| begun.reader())
    }

    /// Takes what the next block holds.
    ///
    /// # Errors
    /// See [`DecodeError`]. The decoder is unusable then.
    pub fn take(&mut self, Rows(rows): Rows) -> Result<(), DecodeError> {
        let Begun { loader, found, .. } = self.begun.as_mut().ok_or(DecodeError::Start)?;
        match rows {
            Kind::Acls(rows) => {
                found.acls += rows.len() as u64;
                rows.iter().for_each(|(id, acl)| loader.acl(*id, acl));
            }
            Kind::Sessions(rows) => {
                found.sessions += rows.len() as u64;
                rows.into_iter().for_each(|(id, session)| loader.session(id, session));
            }
            Kind::Znodes(run) => {
                found.znodes += run.len() as u64;
                loader.append(run)?;
            }
        }
        Ok(())
    }

    /// The state, if all rows have come.
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
        let state = begun.loader.finish(begun.last_zxid, begun.last_time_ms)?;
        if state.digest() != begun.digest {
            return Err(DecodeError::Digest { announced: begun.digest, found: state.digest() });
        }
        Ok(state)
    }
}

impl Begun {
    fn new(start: &ArchivedStart) -> Self {
        Self {
            loader: StateLoader::new(start.seed.to_native()),
            last_zxid: Zxid(start.last_zxid.to_native()),
            last_time_ms: start.last_time_ms.to_native(),
            digest: start.digest.to_native(),
            announced: Counts {
                acls: start.acls.to_native(),
                sessions: start.sessions.to_native(),
                znodes: start.znodes.to_native(),
            },
            found: Counts::default(),
        }
    }

    fn reader(&self) -> BlockReader {
        BlockReader { znodes: self.loader.reader() }
    }
}
