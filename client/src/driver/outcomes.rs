//! Where the core delivers: completions, watches and listeners; and whom to wake for it afterwards.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use super::Request;
use crate::core::Sink;
use crate::{Error, Result, SessionState, WatchEvent, path};

/// The core's sink. Nobody is woken under the core's lock: wakers are collected here.
#[derive(Default)]
pub(crate) struct Outcomes {
    wakers: Vec<Waker>,
    listeners: Vec<Weak<EventQueue<SessionState>>>,
}

/// A watch's queue, as the core carries it.
pub(crate) type Watcher = Arc<EventQueue<WatchEvent>>;

impl Outcomes {
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }

    pub(super) fn listen(&mut self) -> StateChanges {
        let queue = Arc::new(EventQueue::new(0, usize::MAX));
        self.listeners.retain(|listener| listener.strong_count() > 0);
        self.listeners.push(Arc::downgrade(&queue));
        StateChanges(queue)
    }
}

impl Sink for Outcomes {
    type Request = Request;
    type Watcher = Watcher;

    fn reply(&mut self, request: Request, outcome: Result<&[u8]>) {
        self.wakers.extend(request.complete(outcome));
    }

    fn wants(&self, watcher: &Watcher) -> bool {
        watcher.lock().end.is_none()
    }

    fn fired(&mut self, watcher: Watcher, event: WatchEvent) {
        self.seen(&watcher, event);
    }

    fn seen(&mut self, watcher: &Watcher, mut event: WatchEvent) {
        if watcher.chroot_len > 0 {
            event.path = path::from_server(watcher.chroot_len, &event.path).to_owned();
        }
        self.wakers.extend(watcher.push(event));
    }

    fn ended(&mut self, watcher: Watcher, reason: Error) {
        self.wakers.extend(watcher.end(reason));
    }

    fn state(&mut self, state: SessionState) {
        self.listeners.retain(|listener| {
            let Some(listener) = listener.upgrade() else { return false };
            self.wakers.extend(listener.push(state));
            if state.is_ended() {
                self.wakers.extend(listener.end(Error::Closed));
            }
            true
        });
    }
}

/// A bounded queue of events with one reader.
pub(crate) struct EventQueue<T> {
    chroot_len: usize,
    events_max: usize,
    state: Mutex<QueueState<T>>,
}

struct QueueState<T> {
    events: VecDeque<T>,
    /// Events dropped since the queue was last read.
    missed: u64,
    end: Option<Error>,
    waker: Option<Waker>,
}

impl<T> EventQueue<T> {
    pub(crate) const fn new(chroot_len: usize, events_max: usize) -> Self {
        let state = QueueState { events: VecDeque::new(), missed: 0, end: None, waker: None };
        Self { chroot_len, events_max, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: T) -> Option<Waker> {
        let mut state = self.lock();
        if state.events.len() < self.events_max && state.missed == 0 {
            state.events.push_back(event);
        } else {
            state.missed += 1;
        }
        state.waker.take()
    }

    pub(crate) fn end(&self, reason: Error) -> Option<Waker> {
        let mut state = self.lock();
        state.end.get_or_insert(reason);
        state.waker.take()
    }

    /// The next event; [`Error::EventsMissed`] once for a gap; at the end, for ever its reason.
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<Result<T>> {
        let mut state = self.lock();
        if let Some(event) = state.events.pop_front() {
            return Poll::Ready(Ok(event));
        }
        if state.missed > 0 {
            return Poll::Ready(Err(Error::EventsMissed(std::mem::take(&mut state.missed))));
        }
        if let Some(reason) = &state.end {
            return Poll::Ready(Err(reason.clone()));
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

/// The changes of a session's state from the time of [`crate::Client::state_changes`] on; ends with the
/// session.
#[must_use = "streams do nothing unless read"]
pub struct StateChanges(Arc<EventQueue<SessionState>>);

impl Stream for StateChanges {
    type Item = SessionState;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<SessionState>> {
        self.0.poll_next(cx).map(Result::ok)
    }
}

impl StateChanges {
    /// The next change; `None` after the end of the session.
    pub async fn next(&mut self) -> Option<SessionState> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}
