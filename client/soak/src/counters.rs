//! Counters: two workers on each add, and a tally of what they have added.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ringkeeper_client::recipes::{Counter, CounterFormat};
use ringkeeper_client::{Outcome, Result, Wait};

use crate::soak::{Soak, Team};
use crate::worker::Worker;

const WORKERS: usize = 2;

/// What was added to one counter.
#[derive(Debug)]
pub(crate) struct Tally {
    path: &'static str,
    format: CounterFormat,
    added: AtomicI64,
    /// Added, or not: the session ended before that was known.
    perhaps_added: AtomicI64,
}

/// Four workers on two counters.
pub(crate) fn start(soak: &Arc<Soak>, team: &mut Team) -> Vec<Arc<Tally>> {
    let formats =
        [("/counters/decimal", CounterFormat::Decimal), ("/counters/curator", CounterFormat::Curator)];
    let start_one = |(path, format)| {
        let tally =
            Arc::new(Tally { path, format, added: AtomicI64::new(0), perhaps_added: AtomicI64::new(0) });
        for number in 0..WORKERS {
            let tally = Arc::clone(&tally);
            team.spawn(soak, format!("{path}#{number}"), move |worker| {
                worker.run(|worker| add(worker, &tally));
            });
        }
        tally
    };
    formats.into_iter().map(start_one).collect()
}

/// Adds for a while with one counter, whose sums must grow.
fn add(worker: &mut Worker, tally: &Tally) -> Result<()> {
    let mut counter = Counter::new(&worker.client, tally.path).with_format(tally.format);
    let mut last = i64::MIN;
    for _ in 0..worker.random(1..30) {
        worker.at(format_args!("adds to {}", tally.path));
        match counter.add(1).wait() {
            Ok(sum) => {
                tally.added.fetch_add(1, Ordering::SeqCst);
                worker.count("counted");
                if sum <= last {
                    worker.violation(format_args!("{}: {sum} after {last}", tally.path));
                }
                last = sum;
            }
            Err(error) => {
                if error.outcome() == Outcome::Unknown {
                    tally.perhaps_added.fetch_add(1, Ordering::SeqCst);
                }
                return Err(error);
            }
        }
        let pause = worker.random(0..20);
        worker.sleep(pause);
    }
    Ok(())
}

impl Tally {
    /// The last look.
    pub(crate) fn check_in_the_end(&self, worker: &Worker) -> Result<()> {
        worker.retried(|client| client.sync("/").wait())?;
        let value = Counter::new(&worker.client, self.path).with_format(self.format).get().wait()?;
        let added = self.added.load(Ordering::SeqCst);
        let perhaps = self.perhaps_added.load(Ordering::SeqCst);
        if !(added..=added + perhaps).contains(&value) {
            worker.violation(format_args!(
                "{} is {value}: added were {added}, and perhaps {perhaps} more",
                self.path
            ));
        }
        Ok(())
    }
}
