//! Where Apache ZooKeeper keeps its files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::snapshot::Packing;

/// What Apache makes in its `dataDir` and `dataLogDir`.
const VERSION: &str = "version-2";

/// Folders in which nothing can be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// There is no such folder.
    #[error("{}: there is no such folder", .0.display())]
    Missing(PathBuf),
    /// There is no `version-2`.
    #[error("{}: not a data folder of Apache ZooKeeper, which has a folder {VERSION}", .0.display())]
    NotZooKeeper(PathBuf),
    /// A file whose name is a zxid that no server can come to. Apache ZooKeeper passes over such files.
    #[error("{}: its name is a zxid of 2^63 or more, which no ensemble comes to", .0.display())]
    Zxid(PathBuf),
    /// It cannot be read.
    #[error("{}: {source}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// The data of one server.
#[derive(Clone, Debug)]
pub struct Folder {
    data: PathBuf,
    snapshots: Vec<SnapshotFile>,
    /// With the first zxid of each, which is its name; the oldest first.
    logs: Vec<(i64, PathBuf)>,
}

/// A snapshot by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotFile {
    pub(crate) zxid: i64,
    pub(crate) packing: Packing,
    pub(crate) file: PathBuf,
}

impl Folder {
    /// Looks at a server's `dataDir` and, if it has one, its `dataLogDir`; or at the `version-2` inside them.
    ///
    /// # Errors
    /// They cannot be read, or are not Apache ZooKeeper's.
    pub fn open(data_dir: &Path, data_log_dir: Option<&Path>) -> Result<Self, FolderError> {
        let data = version_folder(data_dir)?;
        let log = data_log_dir.map(version_folder).transpose()?;
        let mut snapshots: Vec<_> = files(&data)?.into_iter().filter_map(snapshot_file).collect();
        snapshots.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.zxid));
        let logs = files(log.as_deref().unwrap_or(&data))?.into_iter();
        let mut logs: Vec<_> = logs.filter_map(|file| Some((log_zxid(&file)?, file))).collect();
        logs.sort();
        Ok(Self { data, snapshots, logs })
    }

    /// The folder of the snapshots.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// All snapshots, the newest first.
    pub(crate) fn snapshots(&self) -> &[SnapshotFile] {
        &self.snapshots
    }

    /// All logs.
    pub(crate) fn logs(&self) -> &[(i64, PathBuf)] {
        &self.logs
    }

    /// The logs that may hold transactions after `zxid`: those that begin later, and the one before them.
    pub(crate) fn logs_after(&self, zxid: i64) -> &[(i64, PathBuf)] {
        let later = self.logs.partition_point(|&(first, _)| first <= zxid);
        &self.logs[later.saturating_sub(1)..]
    }
}

fn version_folder(folder: &Path) -> Result<PathBuf, FolderError> {
    if !folder.is_dir() {
        return Err(FolderError::Missing(folder.to_owned()));
    }
    let inside = folder.join(VERSION);
    if inside.is_dir() {
        Ok(inside)
    } else if folder.canonicalize().is_ok_and(|folder| folder.ends_with(VERSION)) {
        Ok(folder.to_owned())
    } else {
        Err(FolderError::NotZooKeeper(folder.to_owned()))
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let failed = |source| FolderError::Io { folder: folder.to_owned(), source };
    let entries = fs::read_dir(folder).map_err(failed)?;
    let files = entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    match files.iter().find(|file| has_sign_bit(file)) {
        Some(file) => Err(FolderError::Zxid(file.clone())),
        None => Ok(files),
    }
}

/// Whether a snapshot or log is named by a zxid that does not fit.
fn has_sign_bit(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let zxid = name.strip_prefix("snapshot.").or_else(|| name.strip_prefix("log."));
    let digits = zxid.map_or("", |zxid| zxid.split('.').next().unwrap_or_default());
    i64::try_from(u64::from_str_radix(digits, 16).unwrap_or_default()).is_err()
}

fn snapshot_file(file: PathBuf) -> Option<SnapshotFile> {
    let rest = file.file_name()?.to_str()?.strip_prefix("snapshot.")?;
    let packings = [Packing::Gzip, Packing::Snappy];
    let packed =
        packings.into_iter().find_map(|packing| Some((rest.strip_suffix(packing.suffix())?, packing)));
    let (zxid, packing) = packed.unwrap_or((rest, Packing::Plain));
    Some(SnapshotFile { zxid: parse_zxid(zxid)?, packing, file })
}

fn log_zxid(file: &Path) -> Option<i64> {
    parse_zxid(file.file_name()?.to_str()?.strip_prefix("log.")?)
}

fn parse_zxid(digits: &str) -> Option<i64> {
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| i64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_names() {
        let packing = |name: &str| snapshot_file(PathBuf::from(name)).map(|file| (file.zxid, file.packing));
        assert_eq!(packing("snapshot.1a"), Some((0x1a, Packing::Plain)));
        assert_eq!(packing("snapshot.100000002.gz"), Some((0x1_0000_0002, Packing::Gzip)));
        assert_eq!(packing("snapshot.0.snappy"), Some((0, Packing::Snappy)));
        for other in ["snapshot.", "snapshot.-1", "snapshot.1.zip", "snapshot.ffffffffffffffff", "log.1"] {
            assert_eq!(packing(other), None, "{other}");
        }
        assert_eq!(log_zxid(Path::new("log.ff")), Some(255));
    }

    /// They were passed over, and what they hold was missing in silence.
    #[test]
    fn a_file_named_by_a_zxid_beyond_reason_is_an_error() {
        for name in ["snapshot.ffffffffffffffff", "snapshot.8000000000000001.gz", "log.8000000000000000"] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            fs::create_dir(folder.path().join(VERSION)).expect("made");
            fs::write(folder.path().join(VERSION).join(name), "").expect("written");
            let opened = Folder::open(folder.path(), None);
            assert!(matches!(opened, Err(FolderError::Zxid(_))), "{name}: {opened:?}");
        }
    }

    #[test]
    fn the_log_that_begins_before_the_snapshot_may_go_on_after_it() {
        let logs = [1, 5, 9].map(|zxid| (zxid, PathBuf::new())).to_vec();
        let folder = Folder { data: PathBuf::new(), snapshots: Vec::new(), logs };
        let firsts = |zxid| folder.logs_after(zxid).iter().map(|&(first, _)| first).collect::<Vec<_>>();
        assert_eq!(firsts(0), [1, 5, 9]);
        assert_eq!(firsts(4), [1, 5, 9]);
        assert_eq!(firsts(5), [5, 9]);
        assert_eq!(firsts(20), [9]);
    }
}
