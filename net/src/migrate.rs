//! The way here from Apache ZooKeeper or from a backup, and the way back.
//!
//! A folder is made as a draft inside its target and moved into place file by file. So a target may be a
//! file system of its own. No server starts on it while the draft's own folder is there, which is removed
//! last: what an interruption leaves behind is never taken for a whole folder.

mod draft;
mod dynamic_config;
mod export;
mod import;
mod restored;
mod target;

pub(crate) use dynamic_config::{ExportConfigArgs, export_config, members_of_running};
pub(crate) use export::{ExportArgs, export};
pub(crate) use import::{ImportArgs, import};
pub(crate) use restored::{Members, ensemble_of, write_members};

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use ringkeeper_apache::{ConvertError, FolderError, LoadError, ReadError};
use ringkeeper_log::error::{OpenError, SegmentError};
use ringkeeper_log::folder::LockError;
use ringkeeper_log::meta::MetaError;
use ringkeeper_log::snapshot::SnapshotError;

use crate::config::ConfigError;
use crate::server;
use ringkeeper_runtime::preflight::{self, Unmet};
use ringkeeper_runtime::reactor::Executor;

/// Where both systems have the server's number, in its data folder.
const MY_ID: &str = "myid";

/// Who a server is that stands alone.
const ALONE: u64 = 1;

/// Why nothing was imported or exported: one sentence for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MigrateError {
    #[error(transparent)]
    Unmet(#[from] Unmet),
    #[error("{0}; --from wants the dataDir of Apache ZooKeeper's zoo.cfg, and --from-log its dataLogDir")]
    Source(#[from] FolderError),
    #[error("{0}; take the folder of another server of the ensemble, or a copy")]
    Load(#[from] LoadError),
    #[error("{0}")]
    Convert(#[from] ConvertError),
    #[error("{0}: cannot be read as a server's number, 0 to 255; name it with --myid")]
    MyId(PathBuf),
    #[error(
        "{0} holds no transaction: there is nothing to import, start the server on a new folder; or, if zoo.cfg has \
         dataLogDir, name that with --from-log"
    )]
    Blank(PathBuf),
    #[error(
        "{folder}: {gap}: if zoo.cfg has dataLogDir, name that with --from-log; otherwise take the folder of another \
         server, or import without what is missing (--accept-gap)"
    )]
    Gap { folder: PathBuf, gap: String },
    #[error(
        "{folder} has come to epoch {epoch}, of 2147483647 that there can be: an ensemble with it would soon elect \
         nobody; an epoch like this comes from damage or from a forged zxid, so take the folder of another server or \
         a backup"
    )]
    Epoch { folder: PathBuf, epoch: u32 },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0}: a server alone has no members, and its configuration is one of Apache ZooKeeper as it is")]
    NoMembers(PathBuf),
    #[error(
        "the server that listens on {0} does not tell its members: let it answer the word conf there, without TLS \
         (4lw.commands.whitelist), or stop it"
    )]
    Silent(SocketAddr),
    #[error(
        "{in_use}, which does not take clients on {address}: name where it does, as a reconfig may have moved it, with \
         --server, or stop it"
    )]
    Elsewhere { in_use: LockError, address: SocketAddr },
    #[error("the server on {from} tells its members, but {reason}")]
    Members { from: String, reason: String },
    #[error("{0} is not empty: name another folder with --to, or empty it")]
    NotEmpty(PathBuf),
    #[error(
        "{0}: an import, restore or export was interrupted here when some of the files were in their place already: \
         empty the folder, and do it again"
    )]
    Interrupted(PathBuf),
    #[error(
        "{0}, or something else is being imported or restored into it: wait, or name another folder with --to"
    )]
    Locked(LockError),
    #[error("{target} is inside of {from}, which is only read: name a folder outside of it with --to")]
    Inside { target: PathBuf, from: PathBuf },
    #[error("{folder}: {source}")]
    Target { folder: PathBuf, source: io::Error },
    #[error(
        "{0}: not a data folder of ringkeeper; if its log has a folder of its own (dataLogDir), name that with --from-log"
    )]
    NotOurs(PathBuf),
    #[error(transparent)]
    Recovery(#[from] server::FolderError),
    #[error("{folder}: {source}")]
    Meta { folder: PathBuf, source: MetaError },
    #[error("{folder}: {source}")]
    Log { folder: PathBuf, source: OpenError },
    #[error("{folder}: {source}")]
    Reset { folder: PathBuf, source: SegmentError },
    #[error("{folder}: {source}")]
    Snapshot { folder: PathBuf, source: SnapshotError },
    #[error("what was written cannot be read back: {0}")]
    Verify(#[from] ReadError),
    #[error("the executor cannot be made: {0}")]
    Executor(String),
    #[error("no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// Runs what reads and writes through io_uring.
fn run<T, E>(task: impl Future<Output = Result<T, E>>) -> Result<T, MigrateError>
where
    MigrateError: From<E>,
{
    preflight::check()?;
    let executor = Executor::new("migration").map_err(|error| MigrateError::Executor(error.to_string()))?;
    Ok(executor.run(task)?)
}

fn random() -> Result<u64, getrandom::Error> {
    getrandom::u64()
}

/// Tells the user, unless nobody listens.
fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
