//! Storage of a ringkeeper server: the write-ahead log on its disk, and what is small and must not be
//! forgotten.
//!
//! ```text
//! proposal batch --frame::encode--> frame --Wal::append--> group --> segment file     durable when append returns
//!                                     |
//!                                     +--> peers: the same bytes
//! Wal::open: segment files --> groups --> frames, verified --> replay
//! ```
//!
//! # The folder
//! | file | what it is |
//! | --- | --- |
//! | `lock` | held by the running server, [`folder::FolderLock`] |
//! | `meta` | owner and epochs, [`meta::MetaStore`] |
//! | `reserve` | room to let go of, [`reserve::Reserve`] |
//! | `log.<sequence, 16 hex digits>` | a segment of the log, or a file that waits to become one |
//! | `snapshot.<zxid, 16 hex digits>` | a state, see [`snapshot`] |
//! | `aside.<n>.<name>` | what a [`repair`] has set aside: nobody looks at it |
//! | `salvaged.<n>.<name>` | what a [`salvage`] has taken out, for a while: nobody looks at it |
//! | `repair.<name>` | of a [`repair`] that was interrupted |
//!
//! # Torn or corrupt
//! A crash may lose or tear any block that was written since the last sync, in any order. So a frame that is
//! harmed is one of two things: a part of an append that nobody was told of, which is dropped, or damage to
//! acknowledged data, which is never served and never cut off. Two rules tell them apart.
//!
//! - All frames of one write lie in a *group* with a header of its own. Groups and segment headers carry
//!   increasing numbers, and each names the greatest number that was durable when it was written.
//! - Behind the last good group, with number `n`, all blocks are searched for groups of this log. If one of
//!   them says that a number above `n` had been durable, something durable is missing: corruption. If none
//!   does, everything behind `n` was written after the last sync: a torn tail.
//!
//! A log with corruption is not opened. A server whose peers have everything may have the damage cut off, see
//! [`salvage`].
//!
//! What remains undecidable is damage to the very last append while nothing was written after it: it looks
//! like a crash in its middle. [`wal::Wal::seal`] closes that gap; call it when the log has been idle for a
//! moment, and at a clean stop.
//!
//! A torn tail is not erased. The next append goes to another segment, whose header says after which frame it
//! goes on; that makes everything behind that frame void, at once and for good. [`wal::Wal::truncate_after`]
//! and [`wal::Wal::reset`] cut the log by the same header.
//!
//! # Disks
//! Everything goes through [`storage::Storage`]: `net/runtime` implements it on glommio, [`memory`] in memory, for
//! simulations. The log itself starts no task and knows no executor; the one thing to be spawned is
//! [`Upkeep::run`].
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
