//! Many requests outside a window of load: keys to be laid out, changed, or read back.

use std::future::Future;

use anyhow::{Context, Result};
use ringkeeper_testkit::interrupt;
use tokio::task::JoinSet;

use crate::driver::SILENCE_MAX;
use crate::fault::Fault;
use crate::window::Rate;

/// Sends `requests`, so many outstanding at most, and awaits every answer; in whatever order the answers
/// come. `rate` is told of them.
///
/// # Errors
/// A request fails, nothing is answered for long, or the user interrupts.
pub(super) async fn pipeline<T: Send + 'static, R: Future<Output = Result<T>> + Send + 'static>(
    requests: impl IntoIterator<Item = R>,
    outstanding: usize,
    rate: &mut Rate<'_>,
) -> Result<Vec<T>> {
    let mut requests = requests.into_iter();
    let (mut under_way, mut answers) = (JoinSet::new(), Vec::new());
    requests.by_ref().take(outstanding).for_each(|request| drop(under_way.spawn(request)));
    loop {
        interrupt::check()?;
        let missing = Fault::Missing { outstanding: under_way.len(), silence: SILENCE_MAX };
        let Some(ended) =
            tokio::time::timeout(SILENCE_MAX, under_way.join_next()).await.map_err(|_| missing)?
        else {
            return Ok(answers);
        };
        answers.push(ended.context("a request panicked")??);
        rate.look(answers.len() as u64);
        requests.next().into_iter().for_each(|request| drop(under_way.spawn(request)));
    }
}

/// For requests that nobody waits long for.
pub(super) fn untold() -> Rate<'static> {
    Rate::new(None, "requests")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::runtime;
    use super::*;

    #[test]
    fn no_more_requests_are_outstanding_than_asked_for() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let request = |number: usize| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::Relaxed);
                Ok(number)
            }
        };
        let mut answers =
            runtime().unwrap().block_on(pipeline((0..100).map(request), 7, &mut untold())).unwrap();
        answers.sort_unstable();
        assert_eq!(answers, (0..100).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_request_that_fails_is_the_end() {
        let request = |number: usize| async move {
            if number == 5 { Err(anyhow::anyhow!("number five")) } else { Ok(number) }
        };
        let error =
            runtime().unwrap().block_on(pipeline((0..100).map(request), 3, &mut untold())).unwrap_err();
        assert_eq!(error.to_string(), "number five");
    }
}
