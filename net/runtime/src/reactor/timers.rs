//! Timers of an executor, in the order in which they are due.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::executor::Core;

/// When a timer is due; a number tells those of one moment apart.
type Due = (Instant, u64);

#[derive(Default)]
pub(super) struct Timers {
    waiting: BTreeMap<Due, Waker>,
    next: u64,
}

impl Timers {
    /// When the next timer is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((due, _), _)| *due)
    }

    /// Takes a timer that is due by `now`.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Waker> {
        let first = self.waiting.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }
}

/// Ends after `time`. To be awaited on the executor of this thread.
#[must_use]
pub fn sleep(time: Duration) -> Sleep {
    Sleep { due: Instant::now().checked_add(time), place: None }
}

/// The end of a sleep.
#[derive(Debug)]
pub struct Sleep {
    /// Never, if the clock cannot tell.
    due: Option<Instant>,
    /// The place of its timer, which is on the executor while it is not due.
    place: Option<Due>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.due else { return Poll::Pending };
        if Instant::now() >= due {
            return Poll::Ready(());
        }
        let core = Core::current();
        let mut timers = core.timers.borrow_mut();
        let place = match self.place {
            Some(place) => place,
            None => {
                timers.next += 1;
                (due, timers.next)
            }
        };
        timers.waiting.insert(place, cx.waker().clone());
        self.place = Some(place);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        if let Some(core) = Core::try_current() {
            let timer = core.timers.borrow_mut().waiting.remove(&place);
            drop(timer);
        }
    }
}
