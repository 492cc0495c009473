//! Housekeeping on the driver thread: what must be finished although nobody waits for it any more, such
//! as deleting the znode of a lock that was given up.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Wake};

use super::Shared;

#[derive(Default)]
pub(super) struct Tasks {
    woken: Mutex<Vec<Arc<Task>>>,
    unfinished: AtomicUsize,
}

struct Task {
    /// `None` when finished.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    shared: Weak<Shared>,
}

impl Tasks {
    pub(super) fn spawn(&self, shared: &Arc<Shared>, future: impl Future<Output = ()> + Send + 'static) {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        let task = Task { future: Mutex::new(Some(Box::pin(future))), shared: Arc::downgrade(shared) };
        Arc::new(task).wake();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unfinished.load(Ordering::Relaxed) == 0
    }

    /// Whether [`Tasks::run`] has something to run.
    #[cfg(feature = "hosted")]
    pub(super) fn is_woken(&self) -> bool {
        !self.woken.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Runs those that were woken. On the driver thread alone.
    pub(super) fn run(&self) {
        if self.is_empty() {
            return;
        }
        let woken = std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner));
        for task in woken {
            let waker = Arc::clone(&task).into();
            let mut future = task.future.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(running) = &mut *future else { continue };
            if running.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                // Dropped here: it may hold the last handle on the client, whose end it is.
                *future = None;
                self.unfinished.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let Some(shared) = self.shared.upgrade() else { return };
        shared.tasks.woken.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        shared.kick();
    }
}
