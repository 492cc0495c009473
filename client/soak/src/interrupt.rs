//! Ctrl-C and SIGTERM: the run ends early, with its servers and their network. A second one ends the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Listens from now on.
pub(crate) fn install() -> Result<()> {
    let requested = REQUESTED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first one finds the flag down.
        flag::register_conditional_default(signal, Arc::clone(requested)).context("listening for Ctrl-C")?;
        flag::register(signal, Arc::clone(requested)).context("listening for Ctrl-C")?;
    }
    Ok(())
}

/// Fails when somebody wants the run to end.
pub(crate) fn check() -> Result<()> {
    if REQUESTED.get().is_some_and(|requested| requested.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}
