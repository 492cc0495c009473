//! The step between the harness and a server that it starts: asks the kernel to end the server when the
//! harness ends, however that comes about, keeps to the servers' cores, then becomes the server.
//!
//! A step of its own, because the request must be made by the child itself, between fork and exec, where
//! the standard library offers no safe place.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::cores;

/// This very program, also when it was built anew meanwhile and its path leads to another one.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// Becomes a server that ends with the process that started it.
#[derive(Debug, clap::Args)]
pub(crate) struct SuperviseArgs {
    /// The process to end with
    #[arg(long)]
    parent: i32,
    /// Cores to keep to, separated by commas [default: all]
    #[arg(long)]
    cores: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// What is put before the command of a server, so that it runs under supervision of this process. Start it
/// from the main thread: to the kernel, the parent is the thread that started the child.
pub(crate) fn prefix() -> Vec<OsString> {
    let parent = std::process::id().to_string();
    let mut prefix = [OWN_PROGRAM, "supervise", "--parent", &parent].map(OsString::from).to_vec();
    if let Some(cores) = cores::of_servers() {
        prefix.extend(["--cores".into(), cores.into()]);
    }
    prefix.push("--".into());
    prefix
}

/// Runs the subcommand; returns only when it fails.
pub(crate) fn run(args: &SuperviseArgs) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking for an end with the parent")?;
    // The parent may have ended before the request was made.
    if getppid().map(Pid::as_raw_pid) != Some(args.parent) {
        bail!("the process to end with is gone");
    }
    if let Some(cores) = &args.cores {
        cores::keep_to_list(cores)?;
    }
    let [program, arguments @ ..] = args.command.as_slice() else { bail!("no program") };
    Err(Command::new(program).args(arguments).exec())
        .with_context(|| format!("cannot run {}", program.to_string_lossy()))
}
