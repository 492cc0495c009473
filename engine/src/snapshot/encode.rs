//! From a state to blocks, one at a time.

use std::iter::Peekable;
use std::sync::Arc;

use ringkeeper_wire::SessionId;
use rkyv::rancor;
use rkyv::util::AlignedVec;

use super::block::{AclRow, Block, SessionRow, Start, ZnodeRow};
use crate::acl::Acl;
use crate::state::State;
use crate::tree::{IntoEntries, Znode};

/// Approximate size of a block. A longer znode makes a block of its own.
const BLOCK_BYTES: usize = 256 * 1024;

/// Approximate size of a row without paths, data and names.
const ZNODE_BYTES: usize = 88;
const SESSION_BYTES: usize = 28;
const ACL_ENTRY_BYTES: usize = 24;

/// Summary of all blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Number of znodes.
    pub znodes: u64,
    /// See [`State::digest`].
    pub digest: u64,
}

/// The progress of an encoder, with what is still to be written.
enum Stage {
    Start(Arc<State>),
    /// After this ACL.
    Acls(Arc<State>, Option<u32>),
    /// After this session.
    Sessions(Arc<State>, Option<SessionId>),
    Znodes(Box<Peekable<IntoEntries<Znode>>>),
    End,
}

/// Writes a state as blocks.
///
/// It lets go of what it has written, so that writes which come meanwhile change that part of the tree
/// without a copy (docs/decisions/0061-snapshots-let-go-of-what-is-written.md).
pub struct Encoder {
    stage: Stage,
    contents: Contents,
    block_bytes: usize,
    /// Paths of the znodes of a block.
    paths: String,
}

impl Encoder {
    /// An encoder at the beginning of the state.
    #[must_use]
    pub fn new(state: Arc<State>) -> Self {
        Self::with_block_bytes(state, BLOCK_BYTES)
    }

    /// With blocks of about this many bytes.
    #[must_use]
    pub fn with_block_bytes(state: Arc<State>, block_bytes: usize) -> Self {
        let contents = Contents { znodes: state.tree().len() as u64, digest: state.digest() };
        Self { stage: Stage::Start(state), contents, block_bytes, paths: String::new() }
    }

    /// Summary of all blocks.
    #[must_use]
    pub const fn contents(&self) -> Contents {
        self.contents
    }

    /// Replaces the contents of `out` by the next block; false after the last one.
    pub fn next(&mut self, out: &mut AlignedVec) -> bool {
        self.stage = match std::mem::replace(&mut self.stage, Stage::End) {
            Stage::Start(state) => start(state, out),
            Stage::Acls(state, after) => self.acls(state, after, out),
            Stage::Sessions(state, after) => self.sessions(state, after, out),
            Stage::Znodes(rest) => self.znodes(rest, out),
            Stage::End => return false,
        };
        true
    }

    fn acls(&self, state: Arc<State>, after: Option<u32>, out: &mut AlignedVec) -> Stage {
        let mut room = Room(self.block_bytes);
        let mut rest = state.acls.after(after).peekable();
        let mut rows = Vec::new();
        while let Some((id, acl)) = rest.next_if(|(_, acl)| room.take(acl_bytes(acl))) {
            rows.push(AclRow { id, acl: acl.clone() });
        }
        let last = rows.last().filter(|_| rest.peek().is_some()).map(|last| last.id);
        drop(rest);
        write(&Block::Acls(rows), out);
        if last.is_some() { Stage::Acls(state, last) } else { Stage::Sessions(state, None) }
    }

    fn sessions(&self, state: Arc<State>, after: Option<SessionId>, out: &mut AlignedVec) -> Stage {
        let mut room = Room(self.block_bytes);
        let mut rest = state.sessions.after(after).peekable();
        let mut rows = Vec::new();
        while let Some((id, session)) = rest.next_if(|_| room.take(SESSION_BYTES)) {
            rows.push(SessionRow { id, session: *session });
        }
        let last = rows.last().filter(|_| rest.peek().is_some()).map(|last| last.id);
        drop(rest);
        write(&Block::Sessions(rows), out);
        match last {
            Some(_) => Stage::Sessions(state, last),
            None => Stage::Znodes(Box::new(state.tree().clone().into_entries().peekable())),
        }
    }

    fn znodes(&mut self, mut rest: Box<Peekable<IntoEntries<Znode>>>, out: &mut AlignedVec) -> Stage {
        self.paths.clear();
        let mut room = Room(self.block_bytes);
        let mut last_key = None;
        let mut taken = Vec::new();
        // Znodes with equal keys share a block, so that a decoder can check the order of the blocks.
        while let Some((key, znode)) = rest.next_if(|(key, znode)| {
            room.take(ZNODE_BYTES + znode.path_len() + znode.data_len()) || last_key == Some(*key)
        }) {
            last_key = Some(key);
            let start = self.paths.len();
            znode.append_path(&mut self.paths);
            taken.push((start..self.paths.len(), znode));
        }
        let paths = &self.paths;
        let rows = taken
            .iter()
            .map(|(path, znode)| ZnodeRow::new(&paths[path.clone()], znode.data(), &znode.meta()))
            .collect();
        write(&Block::Znodes(rows), out);
        if rest.peek().is_some() { Stage::Znodes(rest) } else { Stage::End }
    }
}

fn start(state: Arc<State>, out: &mut AlignedVec) -> Stage {
    let start = Start {
        seed: state.tree().seed(),
        last_zxid: state.last_zxid().0,
        last_time_ms: state.last_time_ms(),
        acls: state.acl_count() as u64,
        sessions: state.sessions().len() as u64,
        znodes: state.tree().len() as u64,
        digest: state.digest(),
    };
    write(&Block::Start(start), out);
    Stage::Acls(state, None)
}

fn acl_bytes(acl: &Acl) -> usize {
    acl.entries().iter().map(|entry| ACL_ENTRY_BYTES + entry.scheme.len() + entry.id.len()).sum()
}

/// Space in a block. Rows are added until it is used up, so even a row that is too long fits an empty block.
struct Room(usize);

impl Room {
    fn take(&mut self, bytes: usize) -> bool {
        let fits = self.0 > 0;
        self.0 = self.0.saturating_sub(bytes);
        fits
    }
}

fn write(block: &Block<'_>, out: &mut AlignedVec) {
    let mut buffer = std::mem::take(out);
    buffer.clear();
    let archived = rkyv::api::high::to_bytes_in::<_, rancor::Error>(block, buffer);
    *out = archived.expect("a block fits an archive");
}
