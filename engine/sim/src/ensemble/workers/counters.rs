//! The counter: every change counts once.

use ringkeeper_client::recipes::Counter;
use ringkeeper_client::{Error, Result};

use super::cast::Role;
use super::desk::Desk;
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
        match counter.add(1).await {
            Ok(sum) => desk.state(Fact::Added { sum }),
            Err(error) => {
                if error == Error::ConnectionLoss {
                    desk.state(Fact::PerhapsAdded);
                }
                return Err(error);
            }
        }
        Ok(())
    })
    .await
}
