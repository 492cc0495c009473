//! `ringkeeper snapshot`: what snapshots hold, and whether they are sound.

mod export;
mod inspect;
mod ls;
mod take;
mod verify;

pub(crate) use export::portable_object;

use clap::Subcommand;
use ringkeeper_engine::state::State;
use ringkeeper_log::snapshot::{Head, file_name};
use ringkeeper_wire::Zxid;

use super::folder::{Folder, FolderArgs};
use super::{Finding, ToolError, run};
use crate::server::check_snapshot;

/// The tools for snapshots.
#[derive(Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Lists the snapshots
    Ls(ls::LsArgs),
    /// Counts what a snapshot holds: largest subtrees, widest parents, sessions and their ephemerals
    Inspect(inspect::InspectArgs),
    /// Checks every block and digest of all snapshots, or of one; exit code 0 sound, 1 damaged, 2 not checked
    Verify(verify::VerifyArgs),
    /// Has a running server take a snapshot (SIGUSR1), and waits for it
    Take(take::TakeArgs),
    /// Writes a snapshot's znodes as JSON, one a line
    Export(export::ExportArgs),
}

impl SnapshotCommand {
    /// Does what it says.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn run(self) -> Result<Finding, ToolError> {
        match self {
            Self::Ls(args) => run(ls::ls(args)),
            Self::Inspect(args) => run(inspect::inspect(args)),
            Self::Verify(args) => run(verify::verify(args)),
            Self::Take(args) => take::take(&args),
            Self::Export(args) => run(export::export(args)),
        }
    }
}

/// One snapshot of a folder.
#[derive(clap::Args)]
pub(crate) struct OneArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// The zxid in the snapshot's name [default: the newest one]
    #[arg(long, value_name = "ZXID")]
    zxid: Option<Zxid>,
}

impl OneArgs {
    /// Reads it.
    async fn read(&self) -> Result<(State, Head), ToolError> {
        let folder = Folder::open_settled(&self.folder).await?;
        let failed = |source| ToolError::Snapshot { folder: folder.data_dir.clone(), source };
        let there = folder.snapshots.list().await.map_err(failed)?;
        let zxid = match self.zxid.or_else(|| there.first().copied()) {
            Some(zxid) if there.contains(&zxid) => zxid,
            Some(zxid) => {
                return Err(ToolError::Refused(format!(
                    "{} is not in {}: {} lists those that are",
                    file_name(zxid),
                    folder.data_dir.display(),
                    folder.command("snapshot ls")
                )));
            }
            None => {
                return Err(ToolError::Refused(format!(
                    "{} has no snapshot; its log may hold everything from the beginning",
                    folder.data_dir.display()
                )));
            }
        };
        check_snapshot(&folder.snapshots, zxid).await.map_err(failed)?.map_err(ToolError::Refused)
    }
}
