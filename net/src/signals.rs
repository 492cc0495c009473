//! SIGTERM and SIGINT end the server cleanly, SIGUSR1 asks it for a snapshot.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
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
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])?;
        let remote = requests.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                let name = signal_hook::low_level::signal_name(signal);
                if signal == SIGUSR1 {
                    tracing::info!(signal = name, "a snapshot was requested");
                    remote.snapshot.make();
                    continue;
                }
                // At a second signal the user does not want to wait.
                let is_second = remote.stop.is_made();
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
