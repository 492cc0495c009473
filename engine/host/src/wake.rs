//! Wakes a task of the same executor.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// A flag that one task waits for. Raising it twice before the task runs wakes the task once, so it handles
/// all work that has come in at once.
#[derive(Debug, Default)]
pub struct WakeFlag {
    raised: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl WakeFlag {
    /// Raises the flag: there is work.
    pub fn raise(&self) {
        if !self.raised.replace(true)
            && let Some(waker) = self.waiting.borrow_mut().take()
        {
            waker.wake();
        }
    }

    /// Lowers the flag without waiting.
    pub fn lower(&self) {
        self.raised.set(false);
    }

    /// Ready if the flag is raised, which lowers it.
    pub fn poll_lower(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.raised.replace(false) {
            return Poll::Ready(());
        }
        self.waiting.replace(Some(cx.waker().clone()));
        Poll::Pending
    }
}
