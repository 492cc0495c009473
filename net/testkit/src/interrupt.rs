//! Ctrl-C, and other ways of being asked to end: every loop looks here, so that an interrupted run still ends
//! its servers and removes its files.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io, process, thread};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static INSTALLED: AtomicBool = AtomicBool::new(false);
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Exit status after a second Ctrl-C: 128 and the number of SIGINT, as shells have it.
const INTERRUPTED_STATUS: i32 = 130;

/// A signal that follows the first one so closely is no second wish: `timeout` sends one to the process and
/// one to its group, and a terminal that is closed may send several.
const SAME_WISH: Duration = Duration::from_secs(1);

/// Longest nap between two looks at the flag.
const NAP_MAX: Duration = Duration::from_millis(50);

/// Turns the first SIGINT, SIGTERM or SIGHUP into an error from [`check`]; one that comes later ends the
/// process at once. Those that whoever started the process has it ignore (nohup does that with SIGHUP) are
/// ignored still.
///
/// # Errors
/// The handlers cannot be installed.
pub fn install() -> io::Result<()> {
    let ignored = ignored_signals();
    let heeded = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let mut signals = Signals::new(heeded)?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut first = None;
        for _ in signals.forever() {
            INTERRUPTED.store(true, Ordering::Relaxed);
            if first.get_or_insert_with(Instant::now).elapsed() > SAME_WISH {
                process::exit(INTERRUPTED_STATUS);
            }
        }
    })?;
    INSTALLED.store(true, Ordering::Relaxed);
    Ok(())
}

/// A bit for each signal that this process was started to ignore.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether signals are handled here, so that servers must not get those of the terminal.
pub(crate) fn is_installed() -> bool {
    INSTALLED.load(Ordering::Relaxed)
}

/// # Errors
/// The user has asked to stop.
pub fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

/// Sleeps until `deadline`, or until `ended` says that there is nothing to wait for.
///
/// # Errors
/// The user has asked to stop.
pub fn sleep_until(deadline: Instant, ended: impl Fn() -> bool) -> Result<()> {
    loop {
        check()?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || ended() {
            return Ok(());
        }
        thread::sleep(left.min(NAP_MAX));
    }
}
