//! Callers that wait for an outcome.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use async_channel::Receiver;

use crate::handle::{Request, Waiter};
use crate::replica::Answer;

/// Waiting callers by the number of their request.
#[derive(Default)]
pub(crate) struct Waiters(RefCell<BTreeMap<u64, Waiter>>);

impl Waiters {
    pub(crate) fn told_later(&self, number: u64, waiter: Waiter) {
        self.0.borrow_mut().insert(number, waiter);
    }

    pub(crate) fn tell(&self, number: u64, answer: Answer) {
        let waiter = self.0.borrow_mut().remove(&number);
        if let Some(waiter) = waiter {
            waiter.tell(answer);
        }
    }
}

/// Drops all waiting callers when the server ends, however it ends. Without it, tasks that outlive their
/// executor, and queues that outlive their reader, would keep them waiting.
pub(crate) struct Release {
    pub(crate) waiters: Rc<Waiters>,
    pub(crate) requests: Receiver<Request>,
}

impl Drop for Release {
    fn drop(&mut self) {
        self.requests.close();
        while self.requests.try_recv().is_ok() {}
        self.waiters.0.take();
    }
}
