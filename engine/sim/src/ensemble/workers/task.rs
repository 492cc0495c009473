//! A program's future, polled when it was woken. The whole executor: there is one such task a worker.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use ringkeeper_client::Result;

/// What a program is.
pub(super) type Program = Pin<Box<dyn Future<Output = Result<()>>>>;

/// A running program.
pub(super) struct Task {
    program: Program,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Task {
    pub(super) fn new(program: Program) -> Self {
        Self { program, woken: Arc::new(Woken(AtomicBool::new(true))) }
    }

    /// Goes on if it was woken; `None` if it was not.
    pub(super) fn poll(&mut self) -> Option<Poll<Result<()>>> {
        if !self.woken.0.swap(false, Ordering::Relaxed) {
            return None;
        }
        let waker = Waker::from(Arc::clone(&self.woken));
        Some(self.program.as_mut().poll(&mut Context::from_waker(&waker)))
    }
}
