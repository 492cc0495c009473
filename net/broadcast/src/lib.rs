//! Zab as a library: a totally ordered, durable broadcast for any deterministic state machine.

mod broadcast;
mod config;
mod core;
mod entry;
mod handle;
mod host;
mod machine;
mod message;
mod recovery;
#[doc(hidden)]
pub mod shell;
mod snapshots;
mod waiters;

pub use broadcast::{Broadcast, Failure, StartError};
pub use config::{Config, ConfigError};
pub use handle::{Handle, Outcome, ProposeError};
pub use machine::{StateError, StateMachine};
pub use recovery::FolderError;
pub use ringkeeper_engine::zab::Status;
pub use ringkeeper_wire::{Epoch, ServerId, Zxid};
pub use shell::preflight::Unmet;
