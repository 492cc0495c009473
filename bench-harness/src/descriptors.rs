//! File descriptors: one for each session, and the limit that a shell usually sets is low.

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the process needs beside its sessions.
const RESERVE: u64 = 64;

/// Makes room for `sessions` connections, raising the soft limit as far as the hard one lets it.
///
/// # Errors
/// The hard limit is too low.
pub(crate) fn reserve(sessions: usize) -> Result<()> {
    let needed = u64::try_from(sessions)? + RESERVE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    if let Some(hard) = limit.maximum.filter(|hard| *hard < needed) {
        bail!("too few file descriptors: {needed} are needed, the hard limit is {hard} (ulimit -Hn)");
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .context("raising the limit of file descriptors")
}
