//! Handles, by which the application's threads use a server.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use async_channel::Sender;
use futures_channel::oneshot;
use ringkeeper_engine::zab::Status;
use ringkeeper_wire::Zxid;

use crate::replica::Answer;

/// Why a proposal or sync has no known success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// The server has no leader. Nothing was proposed; try again.
    #[error("no leader: nothing was proposed, try again when there is one")]
    NoLeader,
    /// The leader was lost, or this server ended, before the outcome was known. The proposal may have been
    /// delivered, may be later, or never; a repetition may be delivered as well.
    #[error("the outcome is unknown: the leader was lost, or this server ended, in between")]
    Unknown,
    /// Too many bytes are outstanding. Nothing was proposed.
    #[error("{bytes} bytes of proposals are outstanding, {max} may be: wait for some of them")]
    Overloaded {
        /// Bytes outstanding.
        bytes: usize,
        /// The limit, [`crate::Config::outstanding_bytes_max`].
        max: usize,
    },
    /// Longer than [`crate::Config::proposal_bytes_max`]. Nothing was proposed.
    #[error("a proposal of {bytes} bytes, {max} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// This server has ended. Nothing was proposed.
    #[error("this server has ended: nothing was proposed")]
    Ended,
}

/// The outcome of a proposal or a sync: a future for any executor, which can also block a thread.
///
/// Dropping it does not affect the proposal.
#[must_use = "without the outcome nobody knows whether it was delivered"]
#[derive(Debug)]
pub struct Outcome(Inner);

#[derive(Debug)]
enum Inner {
    Refused(ProposeError),
    Waiting(oneshot::Receiver<Result<Zxid, ProposeError>>),
}

impl Outcome {
    /// Blocks the thread until the outcome is there.
    ///
    /// # Errors
    /// It was not delivered here, or is not known to be.
    pub fn wait(self) -> Result<Zxid, ProposeError> {
        futures_lite::future::block_on(self)
    }
}

impl Future for Outcome {
    type Output = Result<Zxid, ProposeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Inner::Refused(error) => Poll::Ready(Err(*error)),
            Inner::Waiting(receiver) => {
                // The sender is dropped without an answer when the server ends.
                Pin::new(receiver).poll(cx).map(|answer| answer.unwrap_or(Err(ProposeError::Unknown)))
            }
        }
    }
}

/// The sender of an outcome. Dropping it reports an unknown outcome.
#[derive(Debug)]
pub(crate) struct Waiter {
    sender: oneshot::Sender<Result<Zxid, ProposeError>>,
    _load: Load,
}

impl Waiter {
    pub(crate) fn tell(self, answer: Answer) {
        let answer = match answer {
            Answer::Delivered(zxid) => Ok(zxid),
            Answer::NoLeader => Err(ProposeError::NoLeader),
            Answer::Unknown => Err(ProposeError::Unknown),
        };
        // The caller may have dropped its future.
        let _ = self.sender.send(answer);
    }
}

/// Bytes that count as outstanding for as long as it lives.
#[derive(Debug)]
struct Load {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.outstanding_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A request of a handle to the server's thread.
#[derive(Debug)]
pub(crate) enum Request {
    Propose(Vec<u8>, Waiter),
    Sync(Waiter),
    Shutdown,
}

/// State shared by the handles and the server's thread.
#[derive(Debug)]
pub(crate) struct Shared {
    proposal_bytes_max: usize,
    outstanding_bytes_max: usize,
    outstanding_bytes: AtomicUsize,
    status: Mutex<Status>,
}

impl Shared {
    pub(crate) fn new(proposal_bytes_max: usize, outstanding_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            proposal_bytes_max,
            outstanding_bytes_max,
            outstanding_bytes: AtomicUsize::new(0),
            status: Mutex::new(Status::Looking),
        })
    }

    pub(crate) fn set_status(&self, status: Status) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

/// Memory that a proposal takes in addition to its own bytes.
const PROPOSAL_OVERHEAD_BYTES: usize = 128;

/// A handle of a running server, for any thread. Clones are handles of the same server.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    requests: Sender<Request>,
}

impl Handle {
    pub(crate) const fn new(shared: Arc<Shared>, requests: Sender<Request>) -> Self {
        Self { shared, requests }
    }

    /// Proposes. The outcome is the proposal's zxid when it was delivered to this server's own machine; by
    /// then it is durable on a quorum. A follower forwards proposals to its leader. Of the proposals made one
    /// after another through one server, those that are delivered keep their order.
    pub fn propose(&self, proposal: Vec<u8>) -> Outcome {
        let (bytes, max) = (proposal.len(), self.shared.proposal_bytes_max);
        if bytes > max {
            return Outcome(Inner::Refused(ProposeError::TooLong { bytes, max }));
        }
        self.ask(bytes, |waiter| Request::Propose(proposal, waiter))
    }

    /// Waits until this server's machine has delivered everything that any server had acknowledged before
    /// this call, so that a read of the machine afterwards is linearizable. The leader answers only after a
    /// quorum has confirmed that it still leads. [`crate::StateMachine::deliver_sync`] is called at that
    /// point. The outcome is the last zxid delivered; after [`ProposeError::NoLeader`], try again.
    pub fn sync(&self) -> Outcome {
        self.ask(0, Request::Sync)
    }

    /// The server's status, as its machine was told last.
    #[must_use]
    pub fn status(&self) -> Status {
        *self.shared.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the server cleanly: the log is closed, and unanswered requests have an unknown outcome. Does not
    /// wait; [`crate::Broadcast::join`] does.
    pub fn shutdown(&self) {
        // If there is no receiver, the server has ended already.
        let _ = self.requests.try_send(Request::Shutdown);
    }

    fn ask(&self, bytes: usize, request: impl FnOnce(Waiter) -> Request) -> Outcome {
        let load = bytes + PROPOSAL_OVERHEAD_BYTES;
        let before = self.shared.outstanding_bytes.fetch_add(load, Ordering::Relaxed);
        let load = Load { shared: Arc::clone(&self.shared), bytes: load };
        let max = self.shared.outstanding_bytes_max;
        // A proposal larger than the whole limit is accepted if nothing else is outstanding.
        if before > 0 && before + load.bytes > max {
            return Outcome(Inner::Refused(ProposeError::Overloaded { bytes: before, max }));
        }
        let (sender, receiver) = oneshot::channel();
        match self.requests.try_send(request(Waiter { sender, _load: load })) {
            Ok(()) => Outcome(Inner::Waiting(receiver)),
            Err(_) => Outcome(Inner::Refused(ProposeError::Ended)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_and_too_long_are_refused_and_room_comes_back() {
        let (sender, receiver) = async_channel::unbounded();
        let handle = Handle::new(Shared::new(1000, 2000), sender);
        let too_long = handle.propose(vec![0; 1001]).wait();
        assert_eq!(too_long, Err(ProposeError::TooLong { bytes: 1001, max: 1000 }));
        let first = handle.propose(vec![0; 1000]);
        let refused = handle.propose(vec![0; 1000]).wait();
        assert_eq!(refused, Err(ProposeError::Overloaded { bytes: 1128, max: 2000 }));
        let Ok(Request::Propose(_, waiter)) = receiver.try_recv() else { panic!("a proposal") };
        waiter.tell(Answer::Delivered(Zxid(7)));
        assert_eq!(first.wait(), Ok(Zxid(7)));
        let second = handle.propose(vec![0; 1000]);
        drop(receiver);
        drop(handle);
        assert_eq!(second.wait(), Err(ProposeError::Unknown), "nobody is left to answer");
    }

    #[test]
    fn a_server_that_has_ended_takes_nothing() {
        let (sender, receiver) = async_channel::unbounded();
        let handle = Handle::new(Shared::new(10, 2000), sender);
        drop(receiver);
        assert_eq!(handle.propose(vec![]).wait(), Err(ProposeError::Ended));
        assert_eq!(handle.sync().wait(), Err(ProposeError::Ended));
    }
}
