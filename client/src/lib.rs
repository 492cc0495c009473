//! Client library and recipes for ringkeeper and Apache ZooKeeper.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod acl;
mod builder;
mod client;
mod connect_string;
pub mod core;
mod create;
mod decode;
mod driver;
mod error;
mod event;
pub mod path;
pub mod recipes;
mod stat;
mod transaction;
mod watch;

pub use acl::Acl;
pub use builder::Builder;
pub use client::{Client, Connecting, Reconfiguration};
pub use create::{CreateMode, CreateOptions, Created};
pub use driver::{Reply, StateChanges, Wait};
pub use error::{Error, Outcome, Result};
pub use event::{EventKind, SessionState, WatchEvent};
pub use ringkeeper_wire::{AddWatchMode, Epoch, ErrorCode, Identity, Perms, SessionId, WatcherType, Zxid};
pub use stat::Stat;
pub use transaction::{OpResult, ReadResult, Reads, Transaction};
pub use watch::{PersistentWatch, Watch, WatchReply, WatchedReply};
