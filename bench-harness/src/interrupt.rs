//! Ctrl-C, and other ways of being asked to end: every loop looks here, so that an interrupted run still ends its servers
//! and removes its files.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use procfs::process::Process;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Exit status after a second Ctrl-C: 128 and the number of SIGINT, as shells have it.
const INTERRUPTED_STATUS: i32 = 130;

/// Longest nap between two looks at the flag.
const NAP_MAX: Duration = Duration::from_millis(50);

/// Turns the first SIGINT, SIGTERM or SIGHUP into an error from [`check`]; a second one ends the process at once. Those that
/// whoever started the process has it ignore (nohup does that with SIGHUP) are ignored still.
pub(crate) fn install() -> io::Result<()> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    let ignored = Process::myself().and_then(|own| own.status()).map_or(0, |status| status.sigign);
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0) {
        // In this order: the first signal finds the flag unset, sets it, and lives on.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED_STATUS, Arc::clone(flag))?;
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// # Errors
/// The user has asked to stop.
pub(crate) fn check() -> Result<()> {
    if INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}

/// Sleeps until `deadline`, or until `ended` says that there is nothing to wait for.
///
/// # Errors
/// The user has asked to stop.
pub(crate) fn sleep_until(deadline: Instant, ended: impl Fn() -> bool) -> Result<()> {
    loop {
        check()?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || ended() {
            return Ok(());
        }
        std::thread::sleep(left.min(NAP_MAX));
    }
}
