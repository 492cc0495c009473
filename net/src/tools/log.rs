//! `ringkeeper log`: what a stopped server's log holds, whether it is sound, and what to do if it is not.

mod compare;
mod dump;
mod ls;
mod plan;
mod repair;
mod verify;

use clap::Subcommand;

use super::{Finding, ToolError, run};

/// The tools for the log.
#[derive(Subcommand)]
pub(crate) enum LogCommand {
    /// Lists the log's files and the zxids that they hold
    Ls(ls::LsArgs),
    /// Shows the transactions of the log, those behind damage included
    Dump(dump::DumpArgs),
    /// Lists what one folder's log has and another's lacks; exit code 0 nothing, 1 something
    Compare(compare::CompareArgs),
    /// Checks every frame, checksum and link of the log; exit code 0 sound, 1 damaged, 2 not checked
    Verify(verify::VerifyArgs),
    /// Shows what can be done about damage and what each choice loses; does it with a choice and --yes
    Repair(repair::RepairArgs),
}

impl LogCommand {
    /// Does what it says.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn run(self) -> Result<Finding, ToolError> {
        match self {
            Self::Ls(args) => run(ls::ls(args)),
            Self::Dump(args) => run(dump::dump(args)),
            Self::Compare(args) => run(compare::compare(args)),
            Self::Verify(args) => run(verify::verify(args)),
            Self::Repair(args) => run(repair::repair(args)),
        }
    }
}
