//! What is wrong with a file, and where.

use std::io;
use std::path::{Path, PathBuf};

/// A file that cannot be read as what it should be.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what} at byte {offset}", file.display())]
pub struct ReadError {
    /// The file.
    pub file: PathBuf,
    /// Where in the file; in a compressed one, where in what it unpacks to.
    pub offset: u64,
    /// What is wrong there.
    pub what: Fault,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It cannot be read, or not be unpacked.
    #[error("{0}")]
    Io(io::Error),
    /// It is cut short.
    #[error("the file ends too early")]
    EndOfFile,
    /// Its first bytes are not those of such a file.
    #[error("not a {0} of Apache ZooKeeper")]
    Magic(&'static str),
    /// A format that no released version has written.
    #[error("unknown format version {0}")]
    Version(i32),
    /// What was read is not what was written.
    #[error("wrong checksum")]
    Checksum,
    /// A record breaks a rule of its encoding.
    #[error("{0}")]
    Record(ringkeeper_wire::Fault),
    /// No znode can have this path.
    #[error("{0:?} is not the path of a znode")]
    Path(String),
    /// A znode without a parent.
    #[error("the parent of {0} is missing")]
    Orphan(String),
    /// A znode that comes twice.
    #[error("{0} comes twice")]
    Twice(String),
    /// A transaction that no version up to 3.9 writes.
    #[error("unknown transaction type {0}")]
    TxnType(i32),
}

impl From<ringkeeper_wire::Fault> for Fault {
    fn from(fault: ringkeeper_wire::Fault) -> Self {
        match fault {
            ringkeeper_wire::Fault::EndOfRecord => Self::EndOfFile,
            fault => Self::Record(fault),
        }
    }
}

/// A [`Fault`] and its place, in a file whose name the reader does not know.
#[derive(Debug)]
pub(crate) struct Flaw {
    pub(crate) offset: u64,
    pub(crate) what: Fault,
}

impl Flaw {
    pub(crate) fn in_file(self, file: &Path) -> ReadError {
        ReadError { file: file.to_owned(), offset: self.offset, what: self.what }
    }
}
