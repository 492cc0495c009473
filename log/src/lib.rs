//! Storage of a ringkeeper server: the write-ahead log, snapshot files, and a small file of state that must
//! not be lost.
//!
//! ```text
//! proposal batch --frame::encode--> frame --Wal::append--> group --> segment file (durable: append returns)
//!                                     |
//!                                     +--> peers: the same bytes
//! Wal::open: segment files --> groups --> frames, verified --> replay
//! ```
//!
//! # The folder
//! | file | what it is |
//! | --- | --- |
//! | `lock` | held by the running server, [`folder::FolderLock`] |
//! | `unfinished` | of an import or a restore that has not ended, [`folder::UNFINISHED`] |
//! | `meta` | owner and epochs, [`meta::MetaStore`] |
//! | `reserve` | room to let go of, [`reserve::Reserve`] |
//! | `log.<sequence, 16 hex digits>` | a segment of the log, or a file that waits to become one |
//! | `snapshot.<zxid, 16 hex digits>` | a state, see [`snapshot`] |
//! | `aside.<n>.<name>` | what a [`repair`] has set aside: nobody looks at it |
//! | `salvaged.<n>.<name>` | what a [`salvage`] has taken out, for a while: nobody looks at it |
//! | `repair.<name>` | of a [`repair`] that was interrupted |
//!
//! # Torn tail or corruption
//! A crash may lose or tear any block that was written since the last sync, in any order. So a damaged frame
//! is either a part of an append that was never acknowledged, which is dropped, or damage to acknowledged
//! data, which is never served and never truncated. Two rules distinguish them:
//!
//! - All frames of one write are in a *group* with a header of its own. Groups and segment headers have
//!   increasing numbers, and each names the greatest number that was durable when it was written.
//! - Behind the last good group, with number `n`, all blocks are searched for groups of this log. If one of
//!   them says that a number above `n` was durable, durable data is missing: corruption. If none does,
//!   everything behind `n` was written after the last sync: a torn tail.
//!
//! A log with corruption is not opened. A server whose peers have its data may cut off the damaged part, see
//! [`salvage`].
//!
//! Damage to the very last append, with nothing written after it, cannot be distinguished from a crash during
//! that append. A seal ([`wal::Wal::seal`]) closes that gap; write one when the log has been idle for a
//! moment, and at a clean stop.
//!
//! A torn tail is not erased. The next append goes to another segment, whose header names the frame that it
//! continues; this makes everything behind that frame void, atomically and for good.
//! [`wal::Wal::truncate_after`] and [`wal::Wal::reset`] cut the log by the same header.
//!
//! # Disks
//! All I/O uses [`storage::Storage`]: `net/runtime` implements it on io_uring, [`memory`] in memory for
//! simulations. The log itself starts no task and depends on no executor; only [`Upkeep::run`] has to be
//! spawned.
#![forbid(unsafe_code)]

pub mod error;
pub mod examine;
pub mod folder;
mod group;
pub mod memory;
pub mod meta;
pub mod mutation;
mod read_ahead;
mod reader;
mod recover;
pub mod repair;
pub mod reserve;
pub mod salvage;
mod scan;
mod scrub;
mod segment;
pub mod snapshot;
pub mod storage;
mod upkeep;
pub mod wal;

pub use reader::Reader;
pub use recover::{Recovered, Tail};
/// Frames, batches and positions, as engine and log know them.
pub use ringkeeper_frame as frame;
pub use scrub::Scrub;
pub use segment::{IDENTITY_LEN, Identity};
pub use upkeep::Upkeep;
