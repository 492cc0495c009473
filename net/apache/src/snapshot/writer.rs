//! Writing a snapshot that Apache ZooKeeper starts from.

use std::collections::BTreeMap;
use std::io::{self, Write};

use ringkeeper_engine::acl::Acl;
use ringkeeper_engine::path;
use ringkeeper_engine::state::State;
use ringkeeper_engine::tree::{Owner, Znode};
use ringkeeper_wire::{AclList, Record, jute};
use simd_adler32::Adler32;

use super::{DATABASE, END, MAGIC, OPEN_LIST, VERSION};

/// Bytes gathered before they are written.
const BUFFER_LEN: usize = 1 << 16;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Znodes.
    pub znodes: usize,
    /// Sessions.
    pub sessions: usize,
    /// Znodes with a time to live: Apache takes them for ephemerals of dead sessions, unless it is started
    /// with `extendedTypesEnabled=true`.
    pub ttl_znodes: usize,
}

/// Writes a state as a snapshot; its file has to be named after the state's zxid ([`super::file_name`]).
///
/// Neither digest nor last zxid is written: no version needs them, and a server with the one switched off and
/// the other on takes the one for the other.
///
/// # Errors
/// What `out` says.
///
/// # Panics
/// There are more than `i32::MAX` sessions or lists.
pub fn write(state: &State, out: impl Write) -> io::Result<Summary> {
    let mut out = Output { out, checksum: Adler32::new(), pending: Vec::new() };
    out.pending.extend(MAGIC);
    jute::put_i32(&mut out.pending, VERSION);
    jute::put_i64(&mut out.pending, DATABASE);
    let sessions = state.sessions();
    let mut summary = Summary { sessions: sessions.len(), ..Summary::default() };
    jute::put_len(&mut out.pending, sessions.len());
    for (id, session) in sessions {
        jute::put_i64(&mut out.pending, id.0);
        jute::put_i32(&mut out.pending, i32::try_from(session.timeout_ms).unwrap_or(i32::MAX));
        out.flush_if_full()?;
    }
    let lists = number_lists(state);
    jute::put_len(&mut out.pending, lists.len());
    for (acl, &id) in &lists {
        jute::put_i64(&mut out.pending, id);
        AclList::from(acl.entries()).encode(&mut out.pending);
        out.flush_if_full()?;
    }
    for (path, znode) in parents_first(state) {
        summary.znodes += 1;
        summary.ttl_znodes += usize::from(matches!(znode.owner(), Owner::Ttl(_)));
        jute::put_ustring(&mut out.pending, &path);
        jute::put_buffer(&mut out.pending, znode.data());
        let list = lists.get(state.acl_of(znode)).copied().unwrap_or(OPEN_LIST);
        jute::put_i64(&mut out.pending, list);
        put_stat(&mut out.pending, znode);
        out.flush_if_full()?;
    }
    jute::put_ustring(&mut out.pending, END);
    out.seal()?;
    Ok(summary)
}

/// The lists in use, each with a number from 1 on.
fn number_lists(state: &State) -> BTreeMap<&Acl, i64> {
    let mut lists = BTreeMap::new();
    for znode in state.tree().nodes() {
        let acl = state.acl_of(znode);
        if !acl.is_open() {
            let next = i64::try_from(lists.len()).expect("lists fit memory") + 1;
            lists.entry(acl).or_insert(next);
        }
    }
    lists
}

/// Every znode with its path as Apache has it: the root's is empty.
fn parents_first(state: &State) -> impl Iterator<Item = (String, &Znode)> {
    let root = state.znode(path::ROOT).map(|root| (String::new(), root));
    root.into_iter().chain(state.tree().descendants(path::ROOT).map(|znode| (znode.path(), znode)))
}

fn put_stat(out: &mut Vec<u8>, znode: &Znode) {
    let meta = znode.meta();
    jute::put_i64(out, meta.czxid.to_wire());
    jute::put_i64(out, meta.mzxid.to_wire());
    jute::put_i64(out, meta.ctime);
    jute::put_i64(out, meta.mtime);
    jute::put_i32(out, meta.version);
    jute::put_i32(out, meta.cversion);
    jute::put_i32(out, meta.aversion);
    jute::put_i64(out, meta.raw_owner);
    jute::put_i64(out, meta.pzxid.to_wire());
}

struct Output<W> {
    out: W,
    checksum: Adler32,
    pending: Vec<u8>,
}

impl<W: Write> Output<W> {
    fn flush_if_full(&mut self) -> io::Result<()> {
        if self.pending.len() >= BUFFER_LEN { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.checksum.write(&self.pending);
        self.out.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }

    fn seal(&mut self) -> io::Result<()> {
        self.flush()?;
        jute::put_i64(&mut self.pending, i64::from(self.checksum.finish()));
        jute::put_ustring(&mut self.pending, END);
        self.flush()?;
        self.out.flush()
    }
}
