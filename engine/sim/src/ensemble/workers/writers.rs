//! Pipelined writes: what the library says of each is what became of it.

use std::cell::Cell;
use std::rc::Rc;

use ringkeeper_client::{CreateMode, Outcome, Result};

use super::cast::Role;
use super::desk::{Desk, Perhaps};
use super::examiner::{Fact, Said};
use crate::random::Random;

pub(super) const WRITTEN: &str = "/written";

pub(super) fn writers(random: &mut Random) -> Vec<Role> {
    let writer = |_| {
        let written = Rc::new(Cell::new(0));
        Role::new("writer", move |desk| write(desk, Rc::clone(&written)))
    };
    (0..random.between(1, 2)).map(writer).collect()
}

async fn write(desk: Desk, written: Rc<Cell<u64>>) -> Result<()> {
    let desk = &desk;
    desk.lay(WRITTEN, b"").await?;
    desk.rounds(async || {
        let calls = 1 + desk.below(10);
        let first = written.replace(written.get() + calls);
        let path = |number: u64| format!("{WRITTEN}/{}.{number}", desk.worker);
        let paths: Vec<String> = (first..first + calls).map(path).collect();
        desk.at(format_args!("writes {paths:?}"));
        // All at once, and reads in between.
        let replies: Vec<_> = paths
            .iter()
            .map(|path| {
                let created = desk.client.create(path, b"", CreateMode::Persistent);
                (created, desk.chance(300).then(|| desk.client.exists(path)))
            })
            .collect();
        // What is dropped on the way may have been executed or not.
        let mut said = Perhaps::new(
            desk,
            Fact::Wrote(paths.iter().cloned().map(|path| (path, Said::Nothing)).collect()),
        );
        let (mut outcomes, mut failure) = (Vec::new(), None);
        for (path, (created, read)) in paths.iter().zip(replies) {
            let outcome = match created.await {
                Ok(_) => Said::Done,
                Err(error) => {
                    let outcome = error.outcome();
                    failure = Some(error);
                    if outcome == Outcome::Unknown { Said::Unknown } else { Said::NotDone }
                }
            };
            outcomes.push((path.clone(), outcome));
            // Own writes are seen by the reads behind them.
            if let Some(Ok(stat)) = match read {
                Some(read) => Some(read.await),
                None => None,
            } {
                desk.state(Fact::ReadOwn { path: path.clone(), said: outcome, exists: stat.is_some() });
            }
        }
        said.settle(Fact::Wrote(outcomes));
        match failure {
            Some(error) if error.is_connection() => desk.client.connected().await,
            Some(error) => Err(error),
            None => Ok(()),
        }
    })
    .await
}
