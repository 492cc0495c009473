//! One request's outcome, from the driver thread to whoever waits for it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::Shared;
use crate::core::Admission;
use crate::{Error, Result};

/// Reads a reply's body.
pub(crate) type Decode<T> = fn(Result<&[u8]>, &Asked) -> Result<T>;

/// What a reply is read with.
#[derive(Default)]
pub(crate) struct Asked {
    /// Length of the chroot in front of the reply's paths.
    pub(crate) chroot_len: usize,
    /// The operations of a multi or a multiRead, encoded, for the errors that name them.
    pub(crate) ops: Vec<u8>,
}

/// Takes the outcome of a request.
pub(crate) trait Completion: Send + Sync {
    /// Stores it; whom to wake.
    fn complete(&self, outcome: Result<&[u8]>) -> Option<Waker>;
}

/// For a request whose outcome nobody waits for.
pub(crate) struct Detached;

impl Completion for Detached {
    fn complete(&self, _outcome: Result<&[u8]>) -> Option<Waker> {
        None
    }
}

/// The one allocation of a request. Replies are decoded from the receive buffer right into it.
pub(crate) struct Slot<T> {
    decode: Decode<T>,
    pub(crate) asked: Asked,
    state: Mutex<SlotState<T>>,
}

enum SlotState<T> {
    Open,
    Awaited(Waker),
    Done(Result<T>),
    Taken,
}

impl<T> Slot<T> {
    pub(crate) const fn new(decode: Decode<T>, asked: Asked) -> Self {
        Self { decode, asked, state: Mutex::new(SlotState::Open) }
    }

    fn lock(&self) -> MutexGuard<'_, SlotState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Result<T>> {
        let mut state = self.lock();
        match &mut *state {
            SlotState::Done(_) => {
                let SlotState::Done(outcome) = std::mem::replace(&mut *state, SlotState::Taken) else {
                    unreachable!("matched above")
                };
                Poll::Ready(outcome)
            }
            SlotState::Awaited(waker) => {
                waker.clone_from(cx.waker());
                Poll::Pending
            }
            SlotState::Open => {
                *state = SlotState::Awaited(cx.waker().clone());
                Poll::Pending
            }
            SlotState::Taken => panic!("a reply is polled after it was ready"),
        }
    }
}

impl<T: Send> Completion for Slot<T> {
    fn complete(&self, outcome: Result<&[u8]>) -> Option<Waker> {
        let outcome = (self.decode)(outcome, &self.asked);
        match std::mem::replace(&mut *self.lock(), SlotState::Done(outcome)) {
            SlotState::Awaited(waker) => Some(waker),
            _ => None,
        }
    }
}

/// A request's outcome to come: await it, or [`wait`](crate::Wait::wait) for it.
///
/// The request is queued by the call itself, in the order of the calls, whether or not this is awaited;
/// so many requests can be under way at once. Only when the queue is full does the request wait inside
/// this for room, in its turn. Dropping this takes back a request that still waits for room, and leaves
/// one that is queued alone: it will be executed, and its outcome ignored.
#[must_use = "the outcome of the request is in here"]
pub struct Reply<T>(State<T>);

enum State<T> {
    Failed(Option<Error>),
    Queued(Arc<Slot<T>>),
    /// In the waiting room, at least when it was last seen.
    Waiting {
        slot: Arc<Slot<T>>,
        ticket: u64,
        shared: Arc<Shared>,
    },
}

impl<T: Send + 'static> Reply<T> {
    /// A request that failed before it was queued.
    pub(crate) const fn failed(error: Error) -> Self {
        Self(State::Failed(Some(error)))
    }

    /// The outcome of a request that `submit` queues.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        slot: Slot<T>,
        submit: impl FnOnce(Arc<Slot<T>>) -> Result<Admission>,
    ) -> Self {
        let slot = Arc::new(slot);
        match submit(Arc::clone(&slot)) {
            Ok(Admission::Queued) => Self(State::Queued(slot)),
            Ok(Admission::Waiting(ticket)) => {
                Self(State::Waiting { slot, ticket, shared: Arc::clone(shared) })
            }
            Err(error) => Self::failed(error),
        }
    }
}

impl<T> Future for Reply<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        match &mut self.0 {
            State::Failed(error) => {
                Poll::Ready(Err(error.take().expect("a reply is not polled after it was ready")))
            }
            State::Queued(slot) | State::Waiting { slot, .. } => slot.poll(cx),
        }
    }
}

impl<T> Unpin for Reply<T> {}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let State::Waiting { ticket, shared, .. } = &self.0 {
            shared.withdraw(*ticket);
        }
    }
}

impl Shared {
    fn withdraw(&self, ticket: u64) {
        // Dropped outside the lock, since it may hold the last reference to something of the program's.
        let request = self.lock().core.withdraw(ticket);
        drop(request);
    }
}
