//! What a package installs beside the program, made from the command line's own definition: manual pages and
//! the completions of shells.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;

/// Where everything goes.
#[derive(Args)]
pub(crate) struct ManualArgs {
    /// Folder for the files; made if it is missing
    folder: PathBuf,
}

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written: {source}", folder.display())]
pub(crate) struct ManualError {
    folder: PathBuf,
    source: io::Error,
}

/// Writes `man1/*.1` for the program and each of its commands, and `bash`, `zsh` and `fish` with completions.
///
/// # Errors
/// The folder cannot be written.
pub(crate) fn write(command: Command, args: &ManualArgs) -> Result<(), ManualError> {
    let folder = &args.folder;
    pages(command.clone(), &folder.join("man1"))
        .and_then(|()| completions(command, folder))
        .map_err(|source| ManualError { folder: folder.clone(), source })
}

fn pages(command: Command, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command, folder)
}

fn completions(mut command: Command, folder: &Path) -> io::Result<()> {
    for (shell, name) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
        let folder = folder.join(name);
        fs::create_dir_all(&folder)?;
        clap_complete::generate_to(shell, &mut command, "ringkeeper", &folder)?;
    }
    Ok(())
}
