//! Snapshots: `snapshot.<zxid, hex>`, with `.gz` or `.snappy` behind it if compressed.
//!
//! ```text
//! int "ZKSN", int version 2, long -1
//! int sessions, { long id, int timeout in ms }
//! int lists,    { long id, vector of ACL }
//!               { ustring path, buffer data, long list, StatPersisted }   parents first, the root's path is ""
//! ustring "/"                                                             ends the znodes
//! seal
//! long zxid, int digest version, long digest, seal                        since 3.6, can be switched off
//! long last zxid, seal                                                    since 3.9, can be switched off
//!
//! seal      long Adler-32 of everything before, earlier seals too; ustring "/"
//! ```
//!
//! A snapshot is fuzzy: it is written while the server goes on, and may hold parts of transactions after the
//! zxid in its name. Replaying the log from that zxid makes it whole; the digest says from where on it is.

mod packing;
mod reader;
mod writer;

pub use packing::Packing;
pub use reader::{DigestMark, Snapshot, read};
pub use writer::{Summary, write};

const MAGIC: [u8; 4] = *b"ZKSN";
const VERSION: i32 = 2;
/// What Apache writes for the number of the database.
const DATABASE: i64 = -1;
/// The list that everybody may do everything with, which no table holds.
const OPEN_LIST: i64 = -1;
/// In place of the path after the last znode.
const END: &str = "/";

/// The name of the snapshot at `zxid`.
#[must_use]
pub fn file_name(zxid: i64) -> String {
    format!("snapshot.{zxid:x}")
}
