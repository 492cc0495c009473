//! Waking a task of the same executor.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// Something to do, for one waiting task. Setting it twice before the task runs is one wake-up: what comes in
/// meanwhile is handled in one go.
#[derive(Debug, Default)]
pub struct WakeFlag {
    raised: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl WakeFlag {
    /// There is something to do.
    pub fn raise(&self) {
        if !self.raised.replace(true)
            && let Some(waker) = self.waiting.borrow_mut().take()
        {
            waker.wake();
        }
    }

    /// Forgets what was to be done.
    pub fn lower(&self) {
        self.raised.set(false);
    }

    /// Ready, and lowered, if it was raised.
    pub fn poll_lower(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.raised.replace(false) {
            return Poll::Ready(());
        }
        self.waiting.replace(Some(cx.waker().clone()));
        Poll::Pending
    }
}
