//! Storage of a ringkeeper server: the write-ahead log on its disk.
#![forbid(unsafe_code)]

pub mod dma;
pub mod error;
pub mod folder;
pub mod frame;
mod group;
mod layout;
pub mod memory;
pub mod meta;
mod reader;
mod recover;
mod scan;
mod segment;
pub mod storage;
mod upkeep;
pub mod wal;

pub use reader::Reader;
pub use recover::{Recovered, Tail};
pub use segment::{IDENTITY_LEN, Identity};
pub use upkeep::Upkeep;
