//! Futures side by side, in one task.

use std::future::poll_fn;
use std::task::Poll;

/// The first success; all others are dropped then. If there is none, all failures, in order.
///
/// When one future ends, all others are polled once more: they may wait for what it held.
pub(super) async fn first_success<T, F>(
    futures: impl Iterator<Item = impl Future<Output = Result<T, F>>>,
) -> Result<T, Vec<F>> {
    let mut running: Vec<_> = futures.map(|future| (Some(Box::pin(future)), None)).collect();
    poll_fn(|cx| {
        loop {
            let mut ended = false;
            for (future, failure) in &mut running {
                let Some(polled) = future.as_mut().map(|future| future.as_mut().poll(cx)) else { continue };
                match polled {
                    Poll::Pending => {}
                    Poll::Ready(Ok(success)) => return Poll::Ready(Ok(success)),
                    Poll::Ready(Err(reason)) => {
                        *future = None;
                        *failure = Some(reason);
                        ended = true;
                    }
                }
            }
            if running.iter().all(|(future, _)| future.is_none()) {
                return Poll::Ready(Err(running.drain(..).filter_map(|(_, failure)| failure).collect()));
            }
            if !ended {
                return Poll::Pending;
            }
        }
    })
    .await
}
