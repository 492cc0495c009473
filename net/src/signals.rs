//! SIGTERM and SIGINT end the server cleanly.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Tells the executors that the server is to end.
#[derive(Clone, Default)]
pub(crate) struct Shutdown(Arc<State>);

#[derive(Default)]
struct State {
    requested: AtomicBool,
    waker: AtomicWaker,
}

impl Shutdown {
    /// Listens for signals on a thread of its own, which sleeps until one comes.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let shutdown = Self::default();
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let remote = shutdown.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                tracing::info!(signal = signal_hook::low_level::signal_name(signal), "stopping");
                if remote.is_requested() {
                    // A second signal: whoever sends it does not want to wait.
                    std::process::exit(130);
                }
                remote.request();
            }
        })?;
        Ok(shutdown)
    }

    /// Asks the server to end.
    pub(crate) fn request(&self) {
        self.0.requested.store(true, Ordering::Release);
        self.0.waker.wake();
    }

    fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Acquire)
    }

    /// Ready once the server is to end. One task may wait at a time.
    pub(crate) fn poll_requested(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.waker.register(cx.waker());
        if self.is_requested() { Poll::Ready(()) } else { Poll::Pending }
    }
}
