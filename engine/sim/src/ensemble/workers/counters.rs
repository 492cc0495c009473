//! The counter: every change counts once.

use ringkeeper_client::recipes::Counter;
use ringkeeper_client::{Error, Result};

use super::cast::Role;
use super::desk::{Desk, Perhaps};
use super::examiner::Fact;
use crate::random::Random;

pub(super) const COUNTER: &str = "/counter";

pub(super) fn counters(random: &mut Random) -> Vec<Role> {
    (0..random.between(2, 3)).map(|_| Role::new("counter", count)).collect()
}

async fn count(desk: Desk) -> Result<()> {
    let desk = &desk;
    let mut counter = Counter::new(&desk.client, COUNTER);
    desk.rounds(async || {
        desk.at("adds to the counter");
        let mut said = Perhaps::new(desk, Fact::PerhapsAdded);
        let added = counter.add(1).await;
        match &added {
            Ok(sum) => said.settle(Fact::Added { sum: *sum }),
            Err(Error::ConnectionLoss(_)) => {}
            Err(_) => said.forget(),
        }
        added.map(drop)
    })
    .await
}
