//! SIGTERM, SIGINT and SIGHUP end the server cleanly, SIGUSR1 asks it for a snapshot. SIGXFSZ does nothing:
//! a write beyond a limit on the length of files fails, and is told of.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::server;

/// The requests that signals make.
#[derive(Clone, Default)]
pub(crate) struct Requests {
    /// To stop.
    pub(crate) stop: Request,
    /// To take a snapshot.
    pub(crate) snapshot: Request,
}

impl Requests {
    /// Listens for signals on a thread of its own, which sleeps until one comes.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let requests = Self::default();
        // `nohup` starts a server that is to outlive its terminal.
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1, SIGXFSZ].into_iter().chain(hangup))?;
        let remote = requests.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                if signal == SIGXFSZ {
                    continue;
                }
                let name = signal_hook::low_level::signal_name(signal);
                if signal == SIGUSR1 {
                    tracing::info!(signal = name, "a snapshot was requested");
                    remote.snapshot.make();
                    continue;
                }
                // At a second signal the user does not want to wait. A terminal that closes may send two.
                let is_second = remote.stop.is_made() && signal != SIGHUP;
                remote.stop.make();
                tracing::info!(signal = name, "stopping");
                if is_second {
                    server::flush_log();
                    std::process::exit(130);
                }
            }
        })?;
        Ok(requests)
    }
}

/// Whether this process ignores a signal, as it was started.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The masks begin with signal 1.
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// A request to the executors from another thread.
#[derive(Clone, Default)]
pub(crate) struct Request(Arc<State>);

#[derive(Default)]
struct State {
    made: AtomicBool,
    waker: AtomicWaker,
}

impl Request {
    fn make(&self) {
        self.0.made.store(true, Ordering::Release);
        self.0.waker.wake();
    }

    fn is_made(&self) -> bool {
        self.0.made.load(Ordering::Acquire)
    }

    /// Ready once the request was made. At most one task may wait.
    pub(crate) fn poll_made(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.waker.register(cx.waker());
        if self.is_made() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Ready once the request was made, and again after it was repeated. At most one task may wait.
    pub(crate) fn poll_taken(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.waker.register(cx.waker());
        if self.0.made.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
    }
}
