//! Backups of an ensemble.
//!
//! ```text
//! running server --Source::full--> Shipper --> Store: full/...      a state, in parts
//!       --Source::feed--> batches --Shipper--> Store: log/...       what was committed behind it
//!                     Store --rebuild--> State as of a zxid or a time that the log covers
//! ```
//!
//! # The store
//! A folder, or a bucket of an object store. Each object is written once, whole, and read back; its name says
//! what it holds, so a listing tells whether anything is missing:
//!
//! | object | what it is |
//! | --- | --- |
//! | `manifest` | the ensemble's number: a store has the history of one ensemble |
//! | `full/ZXID-CHAIN/PART` | blocks of a state, each behind its length |
//! | `full/ZXID-CHAIN.end` | how many parts there are: written last, without it the state is unfinished |
//! | `log/ZXID-CHAIN-ZXID-CHAIN` | frames of the log from behind the first position up to the second |
//!
//! A position is a zxid and the checksum of the log's frame that ends there, which covers all frames before.
//! So what was shipped from a history that has forked is told from what continues the store.
#![forbid(unsafe_code)]

mod catalog;
mod epoch;
pub mod http;
mod object;
mod prune;
mod rebuild;
mod ship;
mod source;
mod store;

pub use catalog::{Catalog, Segment, TakenFull};
pub use epoch::begin_epoch;
pub use object::{Key, KeyError};
pub use prune::prune;
pub use rebuild::{Moment, RebuildError, Rebuilt, Verified, rebuild, time, verify};
pub use ship::{PendingFull, ShipError, Shipper};
pub use source::{Full, Part, Source, SourceError};
pub use store::{Store, StoreError, StoreSettings};
