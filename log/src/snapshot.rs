//! Snapshot files: a state at one zxid, as blocks whose contents the log does not interpret.
//!
//! ```text
//!  0         4096                                                             index        length - 128   length
//!  +---------+----------------------------+-----+----------------------------+------------+-------+------+
//!  | header  | block 0: head 16 | payload | ... | block n: head 16 | payload | n+1 x 16   | zeros |footer|
//!  +---------+----------------------------+-----+----------------------------+------------+-------+------+
//!   zxid, checksum of the log's frame      each block begins at a multiple     offset, length,      number of blocks,
//!   there, cluster                         of 16 bytes; zeros in between       CRC32C of each       items and digest
//! ```
//!
//! Every byte is covered by a CRC32C or has to be zero, so each flipped bit is found. A file is read from its
//! end: the footer locates the index, and the index locates the blocks. A length in the file is trusted only
//! up to the length of the file.
//!
//! # Names
//! | file | what it is |
//! | --- | --- |
//! | `snapshot.<zxid, 16 hex digits>` | whole and durable |
//! | `snapshot.new` | being written |
//! | `install.part.<zxid>.<server>` | being received from that server, or what came of it before it broke off |
//! | `install.<zxid>` | received, verified and durable; the log has not begun anew after it, or has just done so |
//!
//! A snapshot gets its name by a rename after its contents are durable. A snapshot from another server also
//! replaces the log. It is `install.<zxid>` first; then the log is reset to it ([`crate::wal::Wal::reset`]),
//! which decides; then it gets its final name. After a crash, [`Snapshots::settle`] looks at the log's
//! beginning. If that is the snapshot's position, the reset was done, and only the snapshot holds the state
//! before it. If not, the log and the older snapshots are as they were.

mod error;
mod folder;
mod layout;
mod reader;
mod transfer;
mod writer;

use ringkeeper_wire::{ServerId, Zxid};

pub use error::SnapshotError;
pub use folder::Snapshots;
pub use layout::{Contents, Head};
pub use reader::{Block, SnapshotReader};
pub use transfer::{Incoming, Outgoing};
pub use writer::{PackedBlock, Packer, SnapshotWriter};

/// Name of a snapshot that is being written.
pub const NEW_NAME: &str = "snapshot.new";

/// The name of the snapshot at `zxid`.
#[must_use]
pub fn file_name(zxid: Zxid) -> String {
    format!("snapshot.{:016x}", zxid.0)
}

fn install_name(zxid: Zxid) -> String {
    format!("install.{:016x}", zxid.0)
}

/// The name of a snapshot that is being received: another server's file at the same zxid has other bytes.
fn part_name(zxid: Zxid, from: ServerId) -> String {
    format!("{PART}{:016x}.{:016x}", zxid.0, from.0)
}

/// What the names of those begin with.
const PART: &str = "install.part.";

/// The zxid in the name of a snapshot that is being received.
fn zxid_of_part(name: &str) -> Option<Zxid> {
    let (zxid, _) = name.strip_prefix(PART)?.split_once('.')?;
    u64::from_str_radix(zxid, 16).ok().map(Zxid)
}

/// The zxid in the name of a snapshot.
#[must_use]
pub fn zxid_of(name: &str) -> Option<Zxid> {
    zxid_behind("snapshot.", name)
}

fn zxid_behind(prefix: &str, name: &str) -> Option<Zxid> {
    let digits = name.strip_prefix(prefix)?;
    let zxid = Zxid(u64::from_str_radix(digits, 16).ok()?);
    (format!("{:016x}", zxid.0) == digits).then_some(zxid)
}

#[cfg(test)]
mod tests;
