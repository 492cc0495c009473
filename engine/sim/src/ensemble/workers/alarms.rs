//! Sleeping on the simulated clock.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The alarms of one worker.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    now_us: Cell<u64>,
    set: Cell<u64>,
    sleepers: RefCell<BTreeMap<(u64, u64), Waker>>,
}

impl Alarms {
    pub(super) const fn now_us(&self) -> u64 {
        self.now_us.get()
    }

    /// When the next one is due.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.sleepers.borrow().first_key_value().map(|((at_us, _), _)| *at_us)
    }

    /// It is `now_us`: wakes whose time has come.
    pub(super) fn ring(&self, now_us: u64) {
        self.now_us.set(now_us);
        let due = {
            let mut sleepers = self.sleepers.borrow_mut();
            let later = sleepers.split_off(&(now_us + 1, 0));
            std::mem::replace(&mut *sleepers, later)
        };
        due.into_values().for_each(Waker::wake);
    }

    /// Ready after `us`.
    pub(super) fn sleep(self: &Rc<Self>, us: u64) -> Sleep {
        self.set.set(self.set.get() + 1);
        Sleep { alarms: Rc::clone(self), key: (self.now_us.get() + us, self.set.get()) }
    }
}

/// From [`Alarms::sleep`].
pub(super) struct Sleep {
    alarms: Rc<Alarms>,
    key: (u64, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.alarms.now_us.get() >= self.key.0 {
            return Poll::Ready(());
        }
        self.alarms.sleepers.borrow_mut().insert(self.key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.alarms.sleepers.borrow_mut().remove(&self.key);
    }
}
