//! From a folder to a tree: the newest sound snapshot, and the transactions after it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringkeeper_wire::Zxid;

use crate::convert::Ours;
use crate::epochs::Epochs;
use crate::error::ReadError;
use crate::folder::{Folder, FolderError};
use crate::replay;
use crate::snapshot::{self, DigestMark, Snapshot};
use crate::tree::Tree;
use crate::txnlog::{Entry, Tail, TxnLog};

/// First transactions of a server that began with nothing: alone, and in the first epoch of an ensemble.
const FIRST_ZXIDS: [i64; 2] = [1, 0x1_0000_0001];

/// A folder that makes no state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is none.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A log or an epoch is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No snapshot can be read.
    #[error("none of the {count} snapshots in {} can be read, the newest because of {newest}", folder.display())]
    NoSoundSnapshot {
        /// Where they are.
        folder: PathBuf,
        /// How many there are.
        count: usize,
        /// What is wrong with the newest.
        newest: Box<ReadError>,
    },
    /// There is no snapshot, and the logs do not begin with the first transaction.
    #[error("{} holds no snapshot{}", folder.display(), if *logs { ", and its logs do not reach back to the first transaction" } else { " and no log" })]
    NoSnapshot {
        /// Where snapshots would be.
        folder: PathBuf,
        /// Whether there are logs.
        logs: bool,
    },
}

/// Something that the user should know.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note {
    /// A snapshot could not be read, an older one and more of the log take its place.
    SnapshotPassedOver(ReadError),
    /// A log ends in the middle of a record.
    TornTail {
        /// The log.
        file: PathBuf,
        /// Where that record begins.
        offset: u64,
    },
    /// Transactions are missing.
    Gap {
        /// The last one before them.
        after: Zxid,
        /// The first one after them.
        next: Zxid,
    },
    /// Apache's digest of the tree is not that of ours.
    DigestDiffers(Zxid),
    /// A fuzzy snapshot holds later transactions than the logs.
    LogsTooShort {
        /// The last transaction in the logs.
        last: Zxid,
        /// The one up to which they would have to go.
        wanted: Zxid,
    },
    /// A znode's ACL is not in the snapshot.
    AclUnknown(String),
    /// A znode without a parent was left out.
    OrphanLeftOut(String),
    /// What would be rules or settings of ours was left out.
    OursLeftOut {
        /// What it would be.
        kind: Ours,
        /// How many znodes.
        znodes: usize,
    },
    /// Nobody can prove to be who an ACL names.
    Unsatisfiable {
        /// The scheme that there is no way to authenticate with, or which of its entries.
        scheme: String,
        /// How many znodes have an entry of it.
        znodes: usize,
        /// How many of them nobody but the superuser can do anything with.
        locked: usize,
        /// One of the znodes, and its entry.
        example: String,
    },
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SnapshotPassedOver(error) => {
                write!(f, "{error}; an older snapshot and the log were used instead")
            }
            Self::TornTail { file, offset } => {
                write!(f, "{}: the record at byte {offset} is torn, the log ends before it", file.display())
            }
            Self::Gap { after, next } => {
                write!(f, "transactions are missing: {next} follows {after} in the log")
            }
            Self::DigestDiffers(zxid) => {
                write!(f, "the digest that Apache ZooKeeper has logged at {zxid} is not that of the tree")
            }
            Self::LogsTooShort { last, wanted } => {
                write!(f, "the snapshot was being written up to {wanted}, but the logs end with {last}")
            }
            Self::AclUnknown(path) => {
                write!(f, "{path}: its ACL is not in the snapshot; nobody but the superuser may use it now")
            }
            Self::Unsatisfiable { scheme, znodes, locked, example } => write!(
                f,
                "ACL entries of the scheme {scheme}, which nobody can satisfy here, are on {znodes} znodes, \
                 such as {example}; on {locked} znodes of these nobody can satisfy any entry, and only the \
                 superuser may use them"
            ),
            Self::OursLeftOut { kind, znodes } => {
                let (place, reason) = match kind {
                    Ours::Rules => (
                        "/zookeeper/authorisation",
                        "ringkeeper takes rules from them, and with Apache ZooKeeper any client may have made them; if \
                         the folder is an export of ringkeeper, --keep-rules keeps them",
                    ),
                    Ours::Limits => (
                        "/zookeeper/quota/*/ringkeeper_limits",
                        "ringkeeper takes tenants' limits from them, and with Apache ZooKeeper any client may have made \
                         them; if the folder is an export of ringkeeper, --keep-rules keeps them",
                    ),
                    Ours::FeatureLevel => ("/zookeeper/feature_level", "the servers write their own"),
                };
                let (noun, verb) = if *znodes == 1 { ("znode", "was") } else { ("znodes", "were") };
                write!(f, "{znodes} {noun} at {place} {verb} left out: {reason}")
            }
            Self::OrphanLeftOut(path) => write!(f, "{path}: it has no parent, and was left out"),
        }
    }
}

/// What a folder holds.
#[derive(Debug)]
pub struct Loaded {
    /// The znodes.
    pub tree: Tree,
    /// Timeout in milliseconds of each session.
    pub sessions: BTreeMap<i64, i32>,
    /// The last transaction.
    pub zxid: i64,
    /// The largest time in it, milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// What the server has promised.
    pub epochs: Epochs,
    /// The snapshot; `None` if the logs alone were enough.
    pub snapshot: Option<PathBuf>,
    /// Number of transactions applied to the snapshot.
    pub transactions: u64,
    /// Whether there was any log, with or without transactions.
    pub has_logs: bool,
    /// Number of Apache's digests found equal to the tree's.
    pub digests_equal: u64,
    /// What the user should know.
    pub notes: Vec<Note>,
}

/// Reads a server's folder, as Apache ZooKeeper does when it starts. Nothing is changed in it.
///
/// # Errors
/// There is no sound snapshot, or a log after it is damaged.
pub fn load(folder: &Folder) -> Result<Loaded, LoadError> {
    let (mut loaded, mut digests) = begin(folder)?;
    let snapshot_zxid = loaded.zxid;
    digests.compare(&mut loaded, snapshot_zxid, None);
    for (_, file) in folder.logs_after(snapshot_zxid) {
        let mut log = TxnLog::open(file)?;
        while let Some(entry) = log.read()? {
            // Behind the first one after the snapshot everything counts, as in Apache's iterator.
            if loaded.transactions > 0 || is_after(entry.header.zxid, snapshot_zxid) {
                loaded.take(&entry, &mut digests);
            }
        }
        if let Some(Tail::Torn { offset }) = log.tail() {
            loaded.notes.push(Note::TornTail { file: file.clone(), offset });
        }
    }
    if let Some(zxid) = digests.differ_since {
        loaded.notes.push(Note::DigestDiffers(Zxid::from_wire(zxid)));
    }
    if let Compare::From { zxid, .. } = digests.state {
        let (last, wanted) = (Zxid::from_wire(loaded.zxid), Zxid::from_wire(zxid));
        loaded.notes.push(Note::LogsTooShort { last, wanted });
    }
    loaded.has_logs = !folder.logs().is_empty();
    loaded.epochs = Epochs::read(folder.data(), loaded.zxid)?;
    Ok(loaded)
}

/// Whether no transaction can be missing between two of a log, or behind a snapshot: an epoch's transactions
/// have all numbers from 1 on, those that fail included. What an epoch lacks at its end cannot be seen.
fn follows(next: Zxid, after: Zxid) -> bool {
    let first = if next.epoch() == after.epoch() { after.counter().saturating_add(1) } else { 1 };
    next <= after || next.counter() <= first
}

/// Whether one zxid comes after another one. A forged zxid with the sign bit set is the greatest, so it does
/// not go unnoticed.
fn is_after(zxid: i64, before: i64) -> bool {
    Zxid::from_wire(zxid) > Zxid::from_wire(before)
}

fn begin(folder: &Folder) -> Result<(Loaded, Digests), LoadError> {
    let mut notes = Vec::new();
    for file in folder.snapshots() {
        match snapshot::read(&file.file, file.packing) {
            Ok(snapshot) => {
                let digests = Digests::after(&snapshot, file.zxid);
                return Ok((Loaded::at(file.zxid, snapshot, Some(file.file.clone()), notes), digests));
            }
            Err(error) => notes.push(Note::SnapshotPassedOver(error)),
        }
    }
    let count = folder.snapshots().len();
    if let Some(Note::SnapshotPassedOver(newest)) = notes.into_iter().next() {
        let folder = folder.data().to_owned();
        return Err(LoadError::NoSoundSnapshot { folder, count, newest: Box::new(newest) });
    }
    let from_the_start = folder.logs().first().is_some_and(|(first, _)| FIRST_ZXIDS.contains(first));
    if !from_the_start {
        return Err(LoadError::NoSnapshot {
            folder: folder.data().to_owned(),
            logs: !folder.logs().is_empty(),
        });
    }
    let mut tree = Tree::default();
    tree.add_built_in();
    let snapshot = Snapshot { sessions: BTreeMap::new(), tree, digest: DigestMark::Absent };
    Ok((Loaded::at(0, snapshot, None, Vec::new()), Digests::new(Compare::Never)))
}

impl Loaded {
    /// What says that transactions are missing which servers have acknowledged; `None` if nothing does.
    #[must_use]
    pub fn gap(&self) -> Option<&Note> {
        self.notes.iter().find(|note| matches!(note, Note::Gap { .. } | Note::LogsTooShort { .. }))
    }

    fn at(zxid: i64, snapshot: Snapshot, file: Option<PathBuf>, notes: Vec<Note>) -> Self {
        let times = snapshot.tree.iter().map(|(_, znode)| znode.stat.ctime.max(znode.stat.mtime));
        Self {
            time_ms: times.max().unwrap_or(0),
            tree: snapshot.tree,
            sessions: snapshot.sessions,
            zxid,
            epochs: Epochs::default(),
            snapshot: file,
            transactions: 0,
            has_logs: false,
            digests_equal: 0,
            notes,
        }
    }

    #[cfg(test)]
    pub(crate) fn of_tree(tree: Tree) -> Self {
        let snapshot = Snapshot { sessions: BTreeMap::new(), tree, digest: DigestMark::Absent };
        Self::at(1, snapshot, None, Vec::new())
    }

    fn take(&mut self, entry: &Entry, digests: &mut Digests) {
        let header = &entry.header;
        let (after, next) = (Zxid::from_wire(self.zxid), Zxid::from_wire(header.zxid));
        if !follows(next, after) {
            self.notes.push(Note::Gap { after, next });
        }
        replay::apply(&mut self.tree, &mut self.sessions, header, &entry.txn);
        if is_after(header.zxid, self.zxid) {
            self.zxid = header.zxid;
        }
        self.time_ms = self.time_ms.max(header.time);
        self.transactions += 1;
        digests.compare(self, header.zxid, entry.digest.map(|digest| digest.digest));
    }
}

/// Compares Apache's digests with those of our tree, where they should be equal.
struct Digests {
    state: Compare,
    /// The zxid of the first digest that has differed since they were last equal. A digest that differs is no
    /// flaw while later ones are equal: Apache notes a fuzzy snapshot's digest before the transaction that it
    /// is applying, whose changes the snapshot may hold.
    differ_since: Option<i64>,
}

enum Compare {
    /// There is nothing to compare with.
    Never,
    /// The tree is whole after this transaction.
    From {
        zxid: i64,
        digest: u64,
    },
    Always,
}

impl Digests {
    /// A digest of before the snapshot began is one of the same tree (the new epoch's first zxid names no
    /// transaction).
    fn after(snapshot: &Snapshot, snapshot_zxid: i64) -> Self {
        let state = match snapshot.digest {
            DigestMark::Absent => Compare::Never,
            DigestMark::At { zxid, digest } if zxid >= snapshot_zxid => Compare::From { zxid, digest },
            DigestMark::At { .. } | DigestMark::Empty => Compare::Always,
        };
        Self::new(state)
    }

    const fn new(state: Compare) -> Self {
        Self { state, differ_since: None }
    }

    fn compare(&mut self, loaded: &mut Loaded, zxid: i64, logged: Option<u64>) {
        let expected = match self.state {
            Compare::Never => None,
            Compare::From { zxid: wanted, digest } if wanted == zxid => Some(digest),
            Compare::From { .. } => None,
            Compare::Always => logged,
        };
        let Some(expected) = expected else { return };
        self.state = Compare::Always;
        if expected == loaded.tree.digest() {
            self.differ_since = None;
            loaded.digests_equal += 1;
        } else {
            self.differ_since.get_or_insert(zxid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txnlog::{Create, Txn, TxnDigest, TxnHeader};
    use ringkeeper_wire::Epoch;

    fn create(zxid: i64, path: &str, digest: u64) -> Entry {
        let header = TxnHeader { session: 7, xid: 0, zxid, time: 0, kind: 1 };
        let acl = ringkeeper_engine::acl::Acl::OPEN;
        let txn =
            Txn::Create(Create { path: path.to_owned(), data: None, acl, owner: 0, parent_cversion: -1 });
        Entry { header, txn, digest: Some(TxnDigest { version: 2, digest }) }
    }

    fn apply(tree: &mut Tree, entry: &Entry) {
        replay::apply(tree, &mut BTreeMap::new(), &entry.header, &entry.txn);
    }

    /// Loads a snapshot at zxid 4 that holds transaction 5, but has the digest of before it, and then these
    /// digests of transactions 5 and 6, made false on demand. Since when do they differ?
    fn differ_since(sound: &[bool]) -> Option<i64> {
        let mut tree = Tree::default();
        tree.add_built_in();
        let before = tree.digest();
        apply(&mut tree, &create(5, "/a", 0));
        let digest = DigestMark::At { zxid: 4, digest: before };
        let mut served = tree.clone();
        let snapshot = Snapshot { sessions: BTreeMap::new(), tree, digest };
        let mut digests = Digests::after(&snapshot, 4);
        let mut loaded = Loaded::at(4, snapshot, None, Vec::new());
        digests.compare(&mut loaded, 4, None);
        for ((zxid, path), sound) in [(5, "/a"), (6, "/b")].into_iter().zip(sound) {
            apply(&mut served, &create(zxid, path, 0));
            let digest = served.digest().wrapping_add(u64::from(!sound));
            loaded.take(&create(zxid, path, digest), &mut digests);
        }
        digests.differ_since
    }

    #[test]
    fn an_epoch_lacks_nothing_that_goes_on_or_begins_with_its_first_transaction() {
        let zxid = |epoch, counter| Zxid::new(Epoch(epoch), counter);
        for (after, next) in [
            (zxid(1, 7), zxid(1, 8)),
            (zxid(1, 7), zxid(2, 1)),
            (zxid(1, 7), zxid(5, 1)),
            // Behind snapshots of an empty server, and of a leader that has ordered nothing yet.
            (zxid(0, 0), zxid(1, 1)),
            (zxid(2, 0), zxid(2, 1)),
            // Again, as after a log was begun anew.
            (zxid(2, 3), zxid(2, 3)),
            (zxid(2, 3), zxid(1, 9)),
        ] {
            assert!(follows(next, after), "{next} after {after}");
        }
        for (after, next) in [(zxid(1, 7), zxid(1, 9)), (zxid(1, 7), zxid(2, 2)), (zxid(0, 0), zxid(1, 2))] {
            assert!(!follows(next, after), "{next} after {after}");
        }
    }

    #[test]
    fn a_digest_of_before_the_transaction_that_a_snapshot_holds_is_no_difference_once_later_ones_are_equal() {
        assert_eq!(differ_since(&[]), Some(4));
        assert_eq!(differ_since(&[true]), None);
        assert_eq!(differ_since(&[true, true]), None);
    }

    #[test]
    fn a_difference_that_stays_is_told_from_where_it_began() {
        assert_eq!(differ_since(&[false, false]), Some(4));
        assert_eq!(differ_since(&[true, false]), Some(6));
        assert_eq!(differ_since(&[false, true]), None);
    }
}
