//! The transactions in a log, as versions 3.4 to 3.9 write them.

use ringkeeper_engine::acl::Acl;
use ringkeeper_engine::tree::Owner;
use ringkeeper_wire::jute::Reader;
use ringkeeper_wire::{
    AclEntry, AclList, DecodeError, Fault as RecordFault, OpCode, Record, StringList, record,
};

use super::Entry;
use crate::digest;
use crate::error::{Fault, Flaw};
use crate::tree::is_path;

record! {
    /// What every transaction begins with (`zookeeper.jute`, TxnHeader).
    TxnHeader {
        /// The session that asked.
        session: i64,
        /// The session's number of the request.
        xid: i32,
        /// Its place in the order of everything.
        zxid: i64,
        /// The leader's time, milliseconds since the Unix epoch.
        time: i64,
        /// Its type, an [`OpCode`].
        kind: i32,
    }
}

/// Apache's digest of the tree after a transaction, since 3.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnDigest {
    /// How it is computed; 2 is what we know.
    pub version: i32,
    /// The digest.
    pub digest: u64,
}

/// A change.
#[derive(Clone, Debug, PartialEq)]
pub enum Txn {
    /// A znode begins.
    Create(Create),
    /// A znode ends: asked by a client, or a container or TTL znode whose time has come.
    Delete(String),
    /// A znode's data is replaced; the configuration, too (reconfig).
    SetData {
        /// The znode.
        path: String,
        /// Its data from now on.
        data: Option<Box<[u8]>>,
        /// Its version from now on.
        version: i32,
    },
    /// A znode's ACL is replaced.
    SetAcl {
        /// The znode.
        path: String,
        /// Its ACL from now on.
        acl: Acl,
        /// Its aversion from now on.
        aversion: i32,
    },
    /// Nothing changes: a check in a multi, or a request that failed.
    Nothing,
    /// The session of the header begins.
    CreateSession {
        /// Its timeout in milliseconds.
        timeout_ms: i32,
    },
    /// The session of the header ends.
    CloseSession {
        /// What it owned, as the leader saw it; 3.5 and earlier do not say.
        paths: Option<Vec<String>>,
    },
    /// Several changes; none if it failed.
    Multi(Vec<Self>),
}

/// A znode begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Create {
    /// Its path.
    pub path: String,
    /// Its data.
    pub data: Option<Box<[u8]>>,
    /// Its ACL.
    pub acl: Acl,
    /// What keeps it alive, see [`Owner::from_raw`].
    pub owner: i64,
    /// The parent's number of creations from now on; -1 means one more than before.
    pub parent_cversion: i32,
}

impl Entry {
    /// Takes a record's payload apart; the flaw's offset counts from its beginning.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Flaw> {
        let mut reader = Reader::new(payload);
        let header = TxnHeader::decode(&mut reader)?;
        let (txn, digest) = match OpCode::from_wire(header.kind) {
            Some(OpCode::CloseSession) => close_session(&mut reader)?,
            _ => (txn(&mut reader, header.kind, header.session)?, txn_digest(&mut reader)),
        };
        Ok(Self { header, txn, digest })
    }
}

impl From<DecodeError> for Flaw {
    fn from(error: DecodeError) -> Self {
        Self { offset: error.offset as u64, what: error.what.into() }
    }
}

fn txn(reader: &mut Reader<'_>, kind: i32, session: i64) -> Result<Txn, Flaw> {
    let start = reader.offset() as u64;
    match OpCode::from_wire(kind) {
        Some(OpCode::CreateSession) => Ok(Txn::CreateSession { timeout_ms: reader.read_i32()? }),
        Some(OpCode::Error) => reader.read_i32().map(|_| Txn::Nothing).map_err(Flaw::from),
        Some(OpCode::Multi) => multi(reader, session),
        _ => change(reader, kind, session)?.ok_or(Flaw { offset: start, what: Fault::TxnType(kind) }),
    }
}

/// What may be in a multi, too.
fn change(reader: &mut Reader<'_>, kind: i32, session: i64) -> Result<Option<Txn>, Flaw> {
    let Some(code) = OpCode::from_wire(kind) else { return Ok(None) };
    let change = match code {
        OpCode::Create | OpCode::Create2 => Txn::Create(create(reader, session)?),
        OpCode::CreateContainer => {
            let create = new_znode(reader)?;
            let parent_cversion = reader.read_i32()?;
            Txn::Create(Create { owner: Owner::Container.to_raw(), parent_cversion, ..create })
        }
        OpCode::CreateTtl => {
            let create = new_znode(reader)?;
            let parent_cversion = reader.read_i32()?;
            let owner = Owner::Ttl(reader.read_i64()?.cast_unsigned()).to_raw();
            Txn::Create(Create { owner, parent_cversion, ..create })
        }
        OpCode::Delete | OpCode::DeleteContainer => Txn::Delete(path(reader)?),
        OpCode::SetData | OpCode::Reconfig => {
            Txn::SetData { path: path(reader)?, data: data(reader)?, version: reader.read_i32()? }
        }
        OpCode::SetAcl => {
            Txn::SetAcl { path: path(reader)?, acl: acl(reader)?, aversion: reader.read_i32()? }
        }
        OpCode::Check => {
            path(reader)?;
            reader.read_i32()?;
            Txn::Nothing
        }
        _ => return Ok(None),
    };
    Ok(Some(change))
}

fn create(reader: &mut Reader<'_>, session: i64) -> Result<Create, Flaw> {
    let create = new_znode(reader)?;
    let owner = if reader.read_bool()? { session } else { 0 };
    // The record of the time before 3.4 ends here (CreateTxnV0).
    let parent_cversion = if reader.rest().is_empty() { -1 } else { reader.read_i32()? };
    Ok(Create { owner, parent_cversion, ..create })
}

/// What all creations begin with.
fn new_znode(reader: &mut Reader<'_>) -> Result<Create, Flaw> {
    Ok(Create { path: path(reader)?, data: data(reader)?, acl: acl(reader)?, owner: 0, parent_cversion: -1 })
}

fn path(reader: &mut Reader<'_>) -> Result<String, Flaw> {
    let offset = reader.offset() as u64;
    let path = reader.read_ustring()?.unwrap_or_default();
    if is_path(&path) {
        Ok(path.into_owned())
    } else {
        Err(Flaw { offset, what: Fault::Path(path.into_owned()) })
    }
}

fn data(reader: &mut Reader<'_>) -> Result<Option<Box<[u8]>>, DecodeError> {
    Ok(reader.read_buffer()?.map(Box::from))
}

/// A null list is open, as in Apache's ACL cache.
fn acl(reader: &mut Reader<'_>) -> Result<Acl, DecodeError> {
    let list = Option::<AclList<'_>>::decode(reader)?.unwrap_or_default();
    Ok(Acl::new(list.iter().map(|entry| entry_of(&entry)).collect()))
}

fn entry_of(entry: &ringkeeper_wire::Acl<'_>) -> AclEntry {
    let text = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
    AclEntry { perms: entry.perms, scheme: text(&entry.scheme), id: text(&entry.id) }
}

/// A multi that failed is in the log as well, with errors in place of its operations.
fn multi(reader: &mut Reader<'_>, session: i64) -> Result<Txn, Flaw> {
    let count = reader.read_count()?.unwrap_or(0);
    let mut parts = Vec::new();
    for _ in 0..count {
        let kind_at = reader.offset() as u64;
        let kind = reader.read_i32()?;
        parts.push((kind_at, kind, reader.read_buffer()?.unwrap_or_default()));
    }
    if parts.iter().any(|&(_, kind, _)| kind == OpCode::Error.to_wire()) {
        return Ok(Txn::Multi(Vec::new()));
    }
    let changes = parts.into_iter().map(|(kind_at, kind, data)| {
        // Behind the type and the length.
        let in_log = |flaw: Flaw| Flaw { offset: kind_at + 8 + flaw.offset, what: flaw.what };
        let change = change(&mut Reader::new(data), kind, session).map_err(in_log)?;
        change.ok_or(Flaw { offset: kind_at, what: Fault::TxnType(kind) })
    });
    changes.collect::<Result<_, _>>().map(Txn::Multi)
}

/// The paths are there since 3.6, unless they are switched off; the digest may follow either way, and the
/// lengths tell what is what.
fn close_session(reader: &mut Reader<'_>) -> Result<(Txn, Option<TxnDigest>), Flaw> {
    if reader.rest().is_empty() {
        return Ok((Txn::CloseSession { paths: None }, None));
    }
    let mut ahead = reader.clone();
    let list = Option::<StringList<'_>>::decode(&mut ahead);
    let rest = ahead.rest().len();
    match list {
        Ok(list) if rest == 0 || rest == DIGEST_LEN => {
            let paths = list.unwrap_or_default().iter().map(std::borrow::Cow::into_owned).collect();
            Ok((Txn::CloseSession { paths: Some(paths) }, txn_digest(&mut ahead)))
        }
        _ if reader.rest().len() == DIGEST_LEN => Ok((Txn::CloseSession { paths: None }, txn_digest(reader))),
        Ok(_) => Err(reader.error(RecordFault::EndOfRecord).into()),
        Err(error) => Err(error.into()),
    }
}

/// Bytes of a [`TxnDigest`].
const DIGEST_LEN: usize = 12;

/// The digest, if one follows whose version we know.
fn txn_digest(reader: &mut Reader<'_>) -> Option<TxnDigest> {
    let version = reader.read_i32().ok()?;
    let digest = reader.read_i64().ok()?.cast_unsigned();
    (version == digest::VERSION).then_some(TxnDigest { version, digest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringkeeper_wire::jute;

    fn header(kind: i32) -> Vec<u8> {
        let mut out = Vec::new();
        jute::put_i64(&mut out, 0x100);
        jute::put_i32(&mut out, 7);
        jute::put_i64(&mut out, 0x5_0000_0001);
        jute::put_i64(&mut out, 1_700_000_000_000);
        jute::put_i32(&mut out, kind);
        out
    }

    fn decode(payload: &[u8]) -> Entry {
        Entry::decode(payload).expect("a transaction")
    }

    fn create_record(path: &str) -> Vec<u8> {
        let mut out = Vec::new();
        jute::put_ustring(&mut out, path);
        jute::put_buffer(&mut out, Some(b"data"));
        jute::put_i32(&mut out, -1);
        jute::put_bool(&mut out, true);
        out
    }

    #[test]
    fn a_creation_of_the_time_before_3_4_lets_the_parent_count_for_itself() {
        let old = [header(1), create_record("/a")].concat();
        let Txn::Create(create) = decode(&old).txn else { panic!("a creation") };
        assert_eq!((create.parent_cversion, create.owner), (-1, 0x100));
        let new = [old, 3_i32.to_be_bytes().to_vec()].concat();
        let Txn::Create(create) = decode(&new).txn else { panic!("a creation") };
        assert_eq!(create.parent_cversion, 3);
    }

    #[test]
    fn a_closed_session_may_come_with_paths_and_digest_or_without() {
        let digest = [2_i32.to_be_bytes().to_vec(), 9_i64.to_be_bytes().to_vec()].concat();
        let expected = Some(TxnDigest { version: 2, digest: 9 });
        let mut paths = Vec::new();
        jute::put_ustrings(&mut paths, ["/a"]);
        for (rest, listed, with_digest) in [
            (vec![], None, None),
            (digest.clone(), None, expected),
            (paths.clone(), Some(vec!["/a".to_owned()]), None),
            ([paths, digest].concat(), Some(vec!["/a".to_owned()]), expected),
        ] {
            let entry = decode(&[header(-11), rest].concat());
            assert_eq!((entry.txn, entry.digest), (Txn::CloseSession { paths: listed }, with_digest));
        }
    }

    #[test]
    fn a_failed_multi_changes_nothing() {
        let mut payload = header(14);
        jute::put_len(&mut payload, 2);
        for kind in [1, -1] {
            jute::put_i32(&mut payload, kind);
            jute::put_buffer(&mut payload, Some(&0_i32.to_be_bytes()));
        }
        assert_eq!(decode(&payload).txn, Txn::Multi(Vec::new()));
    }

    #[test]
    fn an_unknown_type_is_named_with_its_place() {
        let flaw = Entry::decode(&header(99)).expect_err("no such type");
        assert_eq!((flaw.offset, flaw.what.to_string().as_str()), (32, "unknown transaction type 99"));
    }

    #[test]
    fn a_path_that_no_znode_can_have_is_refused() {
        let flaw = Entry::decode(&[header(1), create_record("/a/")].concat()).expect_err("no such path");
        assert_eq!(flaw.what.to_string(), "\"/a/\" is not the path of a znode");
    }
}
