//! Ctrl-C in the interactive shell: it ends the command, not the shell.

use std::io::{self, Write};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ringkeeper_client::Wait;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::ShellError;

/// How long Ctrl-C may take to be noticed.
const NOTICE: Duration = Duration::from_millis(50);
const NOTICE_AT_MOST: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Has Ctrl-C end the command that runs. Without it, it ends the process.
pub(crate) fn install() -> Result<(), ShellError> {
    let flag = INTERRUPTED.get_or_init(Arc::default);
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(flag))
        .map(drop)
        .map_err(ShellError::io("listening for Ctrl-C"))
}

/// What happened before does not count.
pub(crate) fn forget() {
    if let Some(flag) = INTERRUPTED.get() {
        flag.store(false, Ordering::Relaxed);
    }
}

/// Fails once Ctrl-C was pressed.
pub(crate) fn check() -> Result<(), ShellError> {
    match INTERRUPTED.get() {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(ShellError::Interrupted),
        _ => Ok(()),
    }
}

/// Waits for `future`, until Ctrl-C.
pub(crate) fn wait<F: Future>(future: F) -> Result<F::Output, ShellError> {
    if INTERRUPTED.get().is_none() {
        return Ok(future.wait());
    }
    let mut future = pin!(future);
    loop {
        if let Some(output) = future.as_mut().wait_timeout(NOTICE) {
            return Ok(output);
        }
        check()?;
    }
}

/// Reads a line of an answer to a question; `None` at the end of the input. Ctrl-C ends the wait for it.
pub(crate) fn ask(question: &str) -> Result<Option<String>, ShellError> {
    let mut stderr = io::stderr();
    write!(stderr, "{question}").and_then(|()| stderr.flush()).map_err(ShellError::io("asking"))?;
    let stdin = io::stdin();
    // A read would go on after the signal. A terminal gives a line at a time, so that none is left unread in
    // the buffer of `stdin` when there is nothing to poll.
    loop {
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut ready, Some(&NOTICE_AT_MOST)) {
            Ok(0) | Err(Errno::INTR) => check()?,
            Ok(_) => break,
            Err(error) => return Err(ShellError::io("waiting for an answer")(error.into())),
        }
    }
    let mut answer = String::new();
    let read = stdin.read_line(&mut answer).map_err(ShellError::io("reading an answer"))?;
    Ok((read > 0).then(|| answer.trim().to_lowercase()))
}
