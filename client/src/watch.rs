//! Watches in the program's hands: one-shot ones as futures, persistent ones as streams.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use ringkeeper_wire::{AddWatchMode, OpCode, Request, WatcherType, WatchesRequest};

use crate::core::WatchId;
use crate::driver::{Detached, Shared, Watcher};
use crate::{Error, Reply, Result, WatchEvent};

/// What a watch needs to be taken back.
struct Registration {
    shared: Arc<Shared>,
    id: WatchId,
    /// As the server names it.
    path: String,
}

/// A one-shot watch: a future that is ready when the znode changes.
///
/// It lives as long as the session, over every change of servers, and fails only with the session's end.
/// Dropping it forgets the watch.
#[must_use = "futures do nothing unless awaited"]
pub struct Watch {
    queue: Watcher,
    registration: Registration,
}

impl Watch {
    pub(crate) const fn new(shared: Arc<Shared>, id: WatchId, path: String, queue: Watcher) -> Self {
        Self { queue, registration: Registration { shared, id, path } }
    }
}

impl Future for Watch {
    type Output = Result<WatchEvent>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.queue.poll_next(cx)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // If its request is not answered yet, it is not registered either, and must not be later. Nobody
        // waits any more, so that there is nobody to wake.
        drop(self.queue.end(Error::Closed));
        let Registration { shared, id, path } = &self.registration;
        shared.note(|core| core.forget_watch(path, *id));
    }
}

/// The outcome of a read, and the watch that it left: see [`Reply`] for when the request is queued.
#[must_use = "the outcome of the request is in here"]
pub struct WatchedReply<T> {
    reply: Reply<T>,
    /// Taken when the reply is ready.
    watch: Option<Watch>,
}

impl<T> WatchedReply<T> {
    pub(crate) const fn new(reply: Reply<T>, watch: Option<Watch>) -> Self {
        Self { reply, watch }
    }
}

impl<T> Future for WatchedReply<T> {
    type Output = Result<(T, Watch)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(outcome) = Pin::new(&mut self.reply).poll(cx) else { return Poll::Pending };
        Poll::Ready(outcome.map(|value| {
            (value, self.watch.take().expect("a request that was queued has a watch, given away once"))
        }))
    }
}

/// A persistent watch: a stream of what happens to a znode, or to a whole subtree.
///
/// It lives as long as the session. After a change of servers it yields [`crate::EventKind::Restored`]:
/// ZooKeeper does not tell what a persistent watch missed. Events that are not read in time are dropped,
/// see [`crate::Builder::watch_events_max`]; the gap is told by [`Error::EventsMissed`]. The stream ends
/// with the session, whose end is its last item. Dropping it removes the watch.
#[must_use = "streams do nothing unless read"]
pub struct PersistentWatch {
    queue: Watcher,
    registration: Registration,
    mode: AddWatchMode,
    is_over: bool,
}

impl PersistentWatch {
    pub(crate) const fn new(
        shared: Arc<Shared>,
        id: WatchId,
        path: String,
        queue: Watcher,
        mode: AddWatchMode,
    ) -> Self {
        Self { queue, registration: Registration { shared, id, path }, mode, is_over: false }
    }

    /// The next event; `None` after the end of the session was told.
    pub async fn next(&mut self) -> Option<Result<WatchEvent>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for PersistentWatch {
    type Item = Result<WatchEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let Poll::Ready(event) = self.queue.poll_next(cx) else { return Poll::Pending };
        self.is_over = matches!(&event, Err(error) if !matches!(error, Error::EventsMissed(_)));
        Poll::Ready(Some(event))
    }
}

impl Drop for PersistentWatch {
    fn drop(&mut self) {
        drop(self.queue.end(Error::Closed));
        let Registration { shared, id, path } = &self.registration;
        if !shared.note(|core| core.forget_persistent(path, self.mode, *id)) {
            return;
        }
        let watcher_type = match self.mode {
            AddWatchMode::Persistent => WatcherType::Persistent,
            AddWatchMode::PersistentRecursive => WatcherType::PersistentRecursive,
        };
        let request = Request::RemoveWatches(WatchesRequest { path: path.as_str().into(), watcher_type });
        // If the connection or the session is gone, so is the watch; and without room in the queue it
        // stays at the server, where it costs an event that nobody here is told.
        let _ = shared.submit(OpCode::RemoveWatches, Arc::new(Detached), None, |out| request.encode(out));
    }
}

/// The outcome of [`crate::Client::watch`]: the stream of events.
#[must_use = "the outcome of the request is in here"]
pub struct WatchReply {
    reply: Reply<()>,
    watch: Option<PersistentWatch>,
}

impl WatchReply {
    pub(crate) const fn new(reply: Reply<()>, watch: Option<PersistentWatch>) -> Self {
        Self { reply, watch }
    }
}

impl Future for WatchReply {
    type Output = Result<PersistentWatch>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(outcome) = Pin::new(&mut self.reply).poll(cx) else { return Poll::Pending };
        Poll::Ready(
            outcome
                .map(|()| self.watch.take().expect("a request that was queued has a watch, given away once")),
        )
    }
}
