//! Double barriers: five processes go through one together, round after round. Everyone counts itself in
//! before it enters and out before it leaves; who gets through must find all five counted.
//!
//! A process whose session ends has left its barrier, whatever the others think. So each end of a session
//! in a group ends the barrier, and all five go on to a new one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use futures_lite::future;
use ringkeeper_client::recipes::{DoubleBarrier, OrderedBarrier, Participation};
use ringkeeper_client::{Result, Wait};

use crate::soak::{Soak, Team};
use crate::worker::Worker;

const GROUP: usize = 5;

/// How long the end of another's session may take to be known.
const RUMOUR_MAX: Duration = Duration::from_secs(60);

/// Which of the two recipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Double,
    Ordered,
}

/// What a group knows about itself.
#[derive(Debug, Default)]
struct Group(Mutex<Muster>);

#[derive(Debug, Default)]
struct Muster {
    /// Number of the barrier.
    barrier: u64,
    entered: HashMap<u64, usize>,
    left: HashMap<u64, usize>,
    /// The round that nobody begins any more.
    last: Option<u64>,
    wakers: Vec<Waker>,
}

/// Ten workers in two groups.
pub(crate) fn start(soak: &Arc<Soak>, team: &mut Team) {
    for (kind, path) in [(Kind::Double, "/barriers/double"), (Kind::Ordered, "/barriers/ordered")] {
        let group = Arc::new(Group::default());
        for number in 0..GROUP {
            let group = Arc::clone(&group);
            team.spawn(soak, format!("{path}#{number}"), move |worker| {
                take_part(worker, kind, path, &group);
            });
        }
    }
}

fn take_part(mut worker: Worker, kind: Kind, path: &str, group: &Group) {
    let (mut barrier, mut round) = (group.barrier(), 0);
    loop {
        let now = group.barrier();
        if now != barrier {
            (barrier, round) = (now, 0);
        }
        match group.begins(barrier, round, !worker.goes_on()) {
            Some(true) => {}
            Some(false) => break,
            // The barrier has ended just now.
            None => continue,
        }
        let path = format!("{path}/{barrier}");
        if let Err(error) = pass(&mut worker, kind, &path, group, (barrier, round)) {
            group.end(barrier);
            worker.recover(error);
        }
        round += 1;
    }
    worker.finish();
}

/// One round. Returns early when the barrier ends.
fn pass(worker: &mut Worker, kind: Kind, path: &str, group: &Group, at: (u64, u64)) -> Result<()> {
    let (barrier, round) = at;
    worker.at(format_args!("enters {path}, round {round}"));
    let entering = async { Some(enter(worker, kind, path).await) };
    let Some(inside) = future::or(entering, group.ended(barrier)).wait() else { return Ok(()) };
    let inside = inside?;
    group.expect_all(worker, at, "entered", |muster| &muster.entered);
    worker.count("barriers entered");
    let pause = worker.random(0..30);
    worker.sleep(pause);
    worker.at(format_args!("leaves {path}, round {round}"));
    if !group.leaves(at) {
        return Ok(());
    }
    let leaving = async { Some(leave(worker, kind, path, inside).await) };
    let Some(left) = future::or(leaving, group.ended(barrier)).wait() else { return Ok(()) };
    left?;
    group.expect_all(worker, at, "left", |muster| &muster.left);
    worker.count("barriers left");
    Ok(())
}

async fn enter(worker: &Worker, kind: Kind, path: &str) -> Result<Participation> {
    let (client, id) = (&worker.client, &worker.name);
    match kind {
        Kind::Double => DoubleBarrier::new(client, path, GROUP).enter(id).await,
        Kind::Ordered => OrderedBarrier::new(client, path, GROUP).enter(id).await,
    }
}

async fn leave(worker: &Worker, kind: Kind, path: &str, inside: Participation) -> Result<()> {
    match kind {
        Kind::Double => DoubleBarrier::new(&worker.client, path, GROUP).leave(inside).await,
        Kind::Ordered => OrderedBarrier::new(&worker.client, path, GROUP).leave(inside).await,
    }
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, Muster> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn barrier(&self) -> u64 {
        self.lock().barrier
    }

    /// Counts one in, unless it is time to stop: `false` then, for all five in the same round. `None` if
    /// the barrier has ended.
    fn begins(&self, barrier: u64, round: u64, is_finishing: bool) -> Option<bool> {
        let mut muster = self.lock();
        if muster.barrier != barrier {
            return None;
        }
        let is_first = !muster.entered.contains_key(&round);
        if is_finishing && is_first {
            muster.last.get_or_insert(round);
        }
        if muster.last.is_some_and(|last| round >= last) {
            return Some(false);
        }
        *muster.entered.entry(round).or_default() += 1;
        Some(true)
    }

    /// Counts one out; `false` if the barrier has ended.
    fn leaves(&self, (barrier, round): (u64, u64)) -> bool {
        let mut muster = self.lock();
        if muster.barrier == barrier {
            *muster.left.entry(round).or_default() += 1;
        }
        muster.barrier == barrier
    }

    /// Ends the barrier for all.
    fn end(&self, barrier: u64) {
        let mut muster = self.lock();
        if muster.barrier == barrier {
            let wakers = std::mem::take(&mut muster.wakers);
            // Who has gone home already will not come to another barrier.
            *muster = Muster { barrier: barrier + 1, last: muster.last.map(|_| 0), ..Muster::default() };
            drop(muster);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Ready when the barrier has ended.
    async fn ended<T>(&self, barrier: u64) -> Option<T> {
        future::poll_fn(|cx| {
            let mut muster = self.lock();
            if muster.barrier != barrier {
                return Poll::Ready(None);
            }
            muster.wakers.retain(|waker| !waker.will_wake(cx.waker()));
            muster.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// All five must be counted, unless a session has ended: then the barrier does, as soon as that is
    /// known.
    fn expect_all(
        &self,
        worker: &Worker,
        (barrier, round): (u64, u64),
        what: &str,
        counts: impl Fn(&Muster) -> &HashMap<u64, usize>,
    ) {
        let count = |muster: &Muster| counts(muster).get(&round).copied().unwrap_or_default();
        let found = {
            let muster = self.lock();
            if muster.barrier != barrier || count(&muster) == GROUP {
                return;
            }
            count(&muster)
        };
        worker.at(format_args!("wonders why only {found} have {what} round {round}"));
        let deadline = Instant::now() + RUMOUR_MAX;
        while self.barrier() == barrier {
            if Instant::now() > deadline {
                worker.violation(format_args!("passed round {round} when {found} of {GROUP} had {what}"));
                return;
            }
            worker.sleep(10);
        }
    }
}
