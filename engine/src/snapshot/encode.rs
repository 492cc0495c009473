//! From a state to blocks, one at a time.

use std::sync::Arc;

use ringkeeper_wire::SessionId;
use rkyv::rancor;
use rkyv::util::AlignedVec;

use super::block::{AclRow, Block, SessionRow, Start, ZnodeRow};
use crate::acl::Acl;
use crate::state::State;

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

/// The progress of an encoder.
enum Stage {
    Start,
    /// After this ACL.
    Acls(Option<u32>),
    /// After this session.
    Sessions(Option<SessionId>),
    /// From this key of the tree.
    Znodes(u64),
    End,
}

/// Writes a state as blocks.
pub struct Encoder {
    state: Arc<State>,
    stage: Stage,
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
        Self { state, stage: Stage::Start, block_bytes, paths: String::new() }
    }

    /// Summary of all blocks.
    #[must_use]
    pub fn contents(&self) -> Contents {
        Contents { znodes: self.state.tree().len() as u64, digest: self.state.digest() }
    }

    /// Replaces the contents of `out` by the next block; false after the last one.
    pub fn next(&mut self, out: &mut AlignedVec) -> bool {
        match self.stage {
            Stage::Start => self.start(out),
            Stage::Acls(after) => self.acls(after, out),
            Stage::Sessions(after) => self.sessions(after, out),
            Stage::Znodes(from_key) => self.znodes(from_key, out),
            Stage::End => return false,
        }
        true
    }

    fn start(&mut self, out: &mut AlignedVec) {
        let state = &self.state;
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
        self.stage = Stage::Acls(None);
    }

    fn acls(&mut self, after: Option<u32>, out: &mut AlignedVec) {
        let mut room = Room(self.block_bytes);
        let mut rest = self.state.acls.after(after).peekable();
        let mut rows = Vec::new();
        while let Some((id, acl)) = rest.next_if(|(_, acl)| room.take(acl_bytes(acl))) {
            rows.push(AclRow { id, acl: acl.clone() });
        }
        self.stage = match (rest.peek(), rows.last()) {
            (Some(_), Some(last)) => Stage::Acls(Some(last.id)),
            _ => Stage::Sessions(None),
        };
        write(&Block::Acls(rows), out);
    }

    fn sessions(&mut self, after: Option<SessionId>, out: &mut AlignedVec) {
        let mut room = Room(self.block_bytes);
        let mut rest = self.state.sessions.after(after).peekable();
        let mut rows = Vec::new();
        while let Some((id, session)) = rest.next_if(|_| room.take(SESSION_BYTES)) {
            rows.push(SessionRow { id, session: *session });
        }
        self.stage = match (rest.peek(), rows.last()) {
            (Some(_), Some(last)) => Stage::Sessions(Some(last.id)),
            _ => Stage::Znodes(0),
        };
        write(&Block::Sessions(rows), out);
    }

    fn znodes(&mut self, from_key: u64, out: &mut AlignedVec) {
        self.paths.clear();
        let mut room = Room(self.block_bytes);
        let mut last_key = None;
        let mut taken = Vec::new();
        self.stage = Stage::End;
        for (key, znode) in self.state.tree().entries_from(from_key) {
            // Znodes with equal keys share a block, so that encoding can continue from a key.
            if !room.take(ZNODE_BYTES + znode.path_len() + znode.data_len()) && last_key != Some(key) {
                self.stage = Stage::Znodes(key);
                break;
            }
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
    }
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
