//! The tools of a worker's program: client, clock, random numbers.

use std::cell::RefCell;
use std::fmt::Display;
use std::rc::Rc;

use futures_lite::future;
use ringkeeper_client::{Client, CreateMode, Error, Result};

use super::alarms::{Alarms, Sleep};
use super::examiner::Fact;
use super::stage::Stage;
use crate::random::Random;

/// Records a fact when it is dropped: the uncertain one, unless a certain one was set before.
pub(super) struct Perhaps<'a> {
    desk: &'a Desk,
    fact: Option<Fact>,
}

impl<'a> Perhaps<'a> {
    pub(super) const fn new(desk: &'a Desk, fact: Fact) -> Self {
        Self { desk, fact: Some(fact) }
    }

    /// Replaces the uncertain fact by a certain one.
    pub(super) fn settle(&mut self, fact: Fact) {
        self.fact = Some(fact);
    }

    /// Records no fact.
    pub(super) fn forget(&mut self) {
        self.fact = None;
    }
}

impl Drop for Perhaps<'_> {
    fn drop(&mut self) {
        if let Some(fact) = self.fact.take() {
            self.desk.state(fact);
        }
    }
}

/// The client, the clock, the dice and the stage of one worker's program.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    pub(super) client: Client,
    pub(super) worker: usize,
    pub(super) stage: Rc<Stage>,
    pub(super) alarms: Rc<Alarms>,
    pub(super) random: Rc<RefCell<Random>>,
}

impl Desk {
    /// Does `round` again and again, and once more after everything was healed.
    pub(super) async fn rounds(&self, mut round: impl AsyncFnMut() -> Result<()>) -> Result<()> {
        loop {
            let last = self.stage.is_healed();
            round().await?;
            self.done();
            if last {
                return Ok(());
            }
            self.pause().await;
        }
    }

    pub(super) fn at(&self, doing: impl Display) {
        self.stage.at(self.worker, doing);
    }

    /// A round is through.
    pub(super) fn done(&self) {
        self.stage.deeds.set(self.stage.deeds.get() + 1);
    }

    pub(super) fn state(&self, fact: Fact) {
        self.stage.state(fact);
    }

    /// How long the session is certain to live, in milliseconds.
    pub(super) fn lease_ms(&self) -> u64 {
        u64::try_from(self.client.lease().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn session(&self) -> i64 {
        self.client.session_id().0
    }

    /// The newest zxid that a reply has shown.
    pub(super) fn seen(&self) -> i64 {
        self.client.last_zxid().to_wire()
    }

    pub(super) fn chance(&self, per_mille: u64) -> bool {
        self.random.borrow_mut().chance(per_mille)
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    pub(super) fn sleep(&self, us: u64) -> Sleep {
        self.alarms.sleep(us)
    }

    /// Sleeps for up to 20 ms.
    pub(super) async fn pause(&self) {
        let us = self.below(20_000);
        self.sleep(us).await;
    }

    /// `future`, unless it takes longer than `us`: then it is dropped.
    pub(super) async fn within<T>(&self, us: u64, future: impl Future<Output = T>) -> Option<T> {
        let late = async {
            self.sleep(us).await;
            None
        };
        future::or(async { Some(future.await) }, late).await
    }

    /// Completes `future`, or sometimes gives it up early.
    pub(super) async fn patiently<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        if self.stage.is_healed() || !self.chance(200) {
            return Some(future.await);
        }
        let us = self.below(60_000);
        self.within(us, future).await
    }

    /// Waits until something outside holds.
    pub(super) async fn until(&self, holds: impl Fn() -> bool) {
        while !holds() {
            self.sleep(5000).await;
        }
    }

    /// Repeats a call that does no harm twice, over lost connections.
    pub(super) async fn retried<T>(&self, call: impl AsyncFn(&Client) -> Result<T>) -> Result<T> {
        loop {
            match call(&self.client).await {
                Err(error) if error.is_connection() => self.client.connected().await?,
                outcome => return outcome,
            }
        }
    }

    /// A persistent znode that may be there already.
    pub(super) async fn lay(&self, path: &str, data: &[u8]) -> Result<()> {
        let laid = self.retried(async |client| client.create(path, data, CreateMode::Persistent).await);
        match laid.await {
            Ok(_) | Err(Error::NodeExists(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
