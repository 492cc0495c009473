//! The tools for a stopped server's folder: `ringkeeper folder ...`, `ringkeeper log ...` and `ringkeeper
//! snapshot ...`.
//!
//! They take the folder's lock, so no server can use it meanwhile. All of them but `folder adopt` and `log
//! repair` only read. Exit codes: 0 for sound or done, 1 for damage that was found (or a repair that needs a
//! choice), 2 for a tool that could not do its work.

mod folder;
mod identity;
mod log;
mod out;
mod snapshot;

pub(crate) use folder::{AS_NEW_MEMBER, command_for};
pub(crate) use identity::FolderCommand;
pub(crate) use log::LogCommand;
pub(crate) use out::printable;
pub(crate) use snapshot::{SnapshotCommand, portable_object};

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use ringkeeper_log::error::OpenError;
use ringkeeper_log::folder::LockError;
use ringkeeper_log::meta::MetaError;
use ringkeeper_log::repair::RepairError;
use ringkeeper_log::salvage::SalvageError;
use ringkeeper_log::snapshot::SnapshotError;
use ringkeeper_runtime::preflight::{self, Unmet};
use ringkeeper_runtime::reactor::Executor;

use crate::config::ConfigError;
use crate::server::RestoreError;

/// What a tool found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Everything is as it should be.
    Sound,
    /// There is damage.
    Damaged,
}

/// Why a tool could not do its work: one sentence for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Unmet(#[from] Unmet),
    #[error("{0}: not a data folder of ringkeeper; name the server's with --data-dir (and --data-log-dir)")]
    NotOurs(PathBuf),
    #[error("{0}; stop it first")]
    InUse(LockError),
    #[error(transparent)]
    Lock(LockError),
    #[error("{folder}: {source}")]
    Meta { folder: PathBuf, source: MetaError },
    #[error("{folder}: an earlier repair was interrupted; `ringkeeper log repair` finishes it")]
    Interrupted { folder: PathBuf },
    #[error(
        "{folder}: the log is gone; put its files back (is the disk mounted?), or see what `{repair}` says"
    )]
    Orphaned { folder: PathBuf, repair: String },
    #[error("{folder}: {source}")]
    Salvage { folder: PathBuf, source: SalvageError },
    #[error("{folder}: {source}")]
    Log { folder: PathBuf, source: OpenError },
    #[error("{folder}: {source}")]
    Snapshot { folder: PathBuf, source: SnapshotError },
    #[error("{folder}: {source}")]
    Repair { folder: PathBuf, source: RepairError },
    #[error("{folder}: {source}")]
    State { folder: PathBuf, source: RestoreError },
    #[error("{0}")]
    Refused(String),
    #[error("the executor cannot be made: {0}")]
    Executor(String),
    #[error("writing the output: {0}")]
    Output(io::Error),
}

/// Ends a tool: what it found as an exit code. What could not be looked at is told apart from damage.
pub(crate) fn exit_code(result: Result<Finding, ToolError>) -> ExitCode {
    match result {
        Ok(Finding::Sound) => ExitCode::SUCCESS,
        Ok(Finding::Damaged) => ExitCode::from(1),
        // Whoever reads the output has seen enough, as `head` does.
        Err(ToolError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("ringkeeper: {error}\n"));
            ExitCode::from(2)
        }
    }
}

/// Runs what reads and writes through io_uring.
fn run(tool: impl Future<Output = Result<Finding, ToolError>>) -> Result<Finding, ToolError> {
    preflight::check()?;
    let executor = Executor::new("tool").map_err(|error| ToolError::Executor(error.to_string()))?;
    executor.run(tool)
}
