//! Apache ZooKeeper's files, of versions 3.4 to 3.9: the way in, and the way back.
//!
//! [`load()`] reads a data folder as Apache ZooKeeper does when it starts: the newest sound snapshot, then
//! the transactions after it, applied to a tree of its own ([`tree::Tree`]), since Apache's snapshots are
//! fuzzy and its rules for applying what is there already are not ours. What comes out becomes an [`engine`]
//! state at the end. [`snapshot::write`] goes the other way.
//!
//! Nothing is believed: lengths are claims that cost no memory before the bytes are there, and every error
//! names the file and the place.
//!
//! [`engine`]: ringkeeper_engine::state::State
#![forbid(unsafe_code)]

mod convert;
mod digest;
mod epochs;
mod error;
mod folder;
mod input;
mod load;
mod password;
mod quota;
mod replay;
pub mod snapshot;
pub mod tree;
pub mod txnlog;

pub use convert::{ConvertError, Converted, Ours};
pub use epochs::Epochs;
pub use error::{Fault, ReadError};
pub use folder::{Folder, FolderError};
pub use load::{LoadError, Loaded, Note, load};
pub use password::session_password;
