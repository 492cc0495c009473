//! The running server: from a configuration to executors with tasks, and back to a clean end.

mod admission;
mod clock;
mod core_host;
mod framing;
mod inspect;
mod listener;
mod log_quota;
mod log_task;
mod peers;
mod recovery;
mod replay;
mod report;
mod shard_host;
mod snapshots;
mod start;
mod system;
mod wake;

pub(crate) use recovery::{Folder, FolderError};
pub(crate) use start::{StartError, run};
