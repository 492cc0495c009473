//! Reading a snapshot.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use ringkeeper_engine::acl::Acl;
use ringkeeper_engine::path;
use ringkeeper_wire::jute::Reader;
use ringkeeper_wire::{AclEntry, Perms, Record};
use simd_adler32::Adler32;

use super::{END, MAGIC, OPEN_LIST, Packing, VERSION};
use crate::digest;
use crate::error::{Fault, Flaw, ReadError};
use crate::input::Input;
use crate::tree::{Stat, Tree, Znode, is_path, parent};

/// What a snapshot holds.
#[derive(Debug)]
pub struct Snapshot {
    /// Timeout in milliseconds of each session.
    pub sessions: BTreeMap<i64, i32>,
    /// The znodes.
    pub tree: Tree,
    /// Where the tree has which digest.
    pub digest: DigestMark,
}

/// What a snapshot says of Apache's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestMark {
    /// Nothing, or nothing we know: nothing can be compared.
    Absent,
    /// The snapshot is not fuzzy.
    Empty,
    /// After the transaction `zxid` the tree is whole and has this digest.
    At {
        /// The transaction.
        zxid: i64,
        /// The digest.
        digest: u64,
    },
}

/// Reads a snapshot.
///
/// # Errors
/// It cannot be read, or is damaged.
pub fn read(file: &Path, packing: Packing) -> Result<Snapshot, ReadError> {
    let opened = File::open(file);
    let opened = opened.map_err(|error| Flaw { offset: 0, what: Fault::Io(error) }.in_file(file))?;
    let len = opened.metadata().map_or(0, |metadata| metadata.len());
    let unpacked = packing.unpack(BufReader::with_capacity(1 << 16, opened), len);
    parse(BufReader::with_capacity(1 << 16, unpacked)).map_err(|flaw| flaw.in_file(file))
}

fn parse(source: impl Read) -> Result<Snapshot, Flaw> {
    let mut input = Input::new(source);
    input.file_header("snapshot", MAGIC, VERSION)?;
    let sessions = sessions(&mut input)?;
    let lists = lists(&mut input)?;
    let tree = tree(&mut input, &lists)?;
    let checksum = input.checksum();
    let seal_at = input.offset();
    if input.i64()? != i64::from(checksum) {
        return Err(Flaw { offset: seal_at, what: Fault::Checksum });
    }
    input.text()?;
    let digest = digest_mark(&mut input)?;
    Ok(Snapshot { sessions, tree, digest })
}

fn sessions(input: &mut Input<impl Read>) -> Result<BTreeMap<i64, i32>, Flaw> {
    let mut sessions = BTreeMap::new();
    for _ in 0..input.i32()?.max(0) {
        let id = input.i64()?;
        sessions.insert(id, input.i32()?);
    }
    Ok(sessions)
}

fn lists(input: &mut Input<impl Read>) -> Result<HashMap<i64, Acl>, Flaw> {
    let mut lists = HashMap::from([(OPEN_LIST, Acl::OPEN)]);
    for _ in 0..input.i32()?.max(0) {
        let id = input.i64()?;
        let mut entries = Vec::new();
        for _ in 0..input.i32()?.max(0) {
            let perms = Perms(input.i32()?);
            entries.push(AclEntry { perms, scheme: input.text()?, id: input.text()? });
        }
        lists.insert(id, Acl::new(entries));
    }
    Ok(lists)
}

fn tree(input: &mut Input<impl Read>, lists: &HashMap<i64, Acl>) -> Result<Tree, Flaw> {
    let mut tree = Tree::default();
    loop {
        let offset = input.offset();
        let path = input.text()?;
        let path = match path.as_str() {
            END => break,
            "" => path::ROOT,
            path => path,
        };
        let data = input.buffer()?.map(Vec::into_boxed_slice);
        let acl = lists.get(&input.i64()?).cloned();
        let stat = Stat::from_bytes(&input.array::<{ Stat::LEN }>()?);
        let stat = stat.map_err(|error| Flaw { offset, ..Flaw::from(error) })?;
        let fault = |what: fn(String) -> Fault| Err(Flaw { offset, what: what(path.to_owned()) });
        if !is_path(path) {
            return fault(Fault::Path);
        }
        if parent(path).is_some_and(|parent| tree.get(parent).is_none()) {
            return fault(Fault::Orphan);
        }
        if tree.add(path, Znode { data, acl, stat }).is_err() {
            return fault(Fault::Twice);
        }
    }
    if tree.get(path::ROOT).is_none() {
        return Err(input.flaw(Fault::Orphan(path::ROOT.to_owned())));
    }
    Ok(tree)
}

/// More than the parts after the first seal can be.
const TAIL_MAX: u64 = 4096;
/// Bytes of the digest's part without its seal, and of a seal.
const DIGEST_LEN: usize = 20;
const SEAL_LEN: usize = 13;

/// The digest is the first of the parts that may follow; the last zxid, which may follow as well or instead,
/// is what the name says already.
fn digest_mark(input: &mut Input<impl Read>) -> Result<DigestMark, Flaw> {
    let offset = input.offset();
    let mut checksum = Adler32::from_checksum(input.checksum());
    let tail = input.rest(TAIL_MAX)?;
    let Some((part, rest)) = tail.split_at_checked(DIGEST_LEN).filter(|(_, rest)| rest.len() >= SEAL_LEN)
    else {
        return Ok(DigestMark::Absent);
    };
    let mut reader = Reader::new(part);
    let (zxid, version, digest) = (reader.read_i64()?, reader.read_i32()?, reader.read_i64()?);
    if version != digest::VERSION {
        return Ok(DigestMark::Absent);
    }
    checksum.write(part);
    if Reader::new(rest).read_i64()? != i64::from(checksum.finish()) {
        return Err(Flaw { offset: offset + DIGEST_LEN as u64, what: Fault::Checksum });
    }
    Ok(match zxid {
        0 => DigestMark::Empty,
        zxid => DigestMark::At { zxid, digest: digest.cast_unsigned() },
    })
}
