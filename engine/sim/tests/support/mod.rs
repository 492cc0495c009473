//! Running many seeds.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use ringkeeper_sim::ensemble::{Report, Violation};

/// As many as the machines that this runs on have cores.
const THREADS: usize = 2;

/// A number from the environment.
pub(crate) fn env(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
}

/// Runs seeds until one is caught; that one, and why.
pub(crate) fn first_caught(
    seeds: Range<u64>,
    run: impl Fn(u64) -> Result<Report, Violation> + Sync,
) -> (Report, Option<(u64, String)>) {
    let next = AtomicU64::new(seeds.start);
    let caught_at = AtomicU64::new(u64::MAX);
    let worker = || {
        let mut total = Report::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || seed > caught_at.load(Ordering::Relaxed) {
                return (total, None);
            }
            // An assertion inside the server is a catch as well.
            let caught = match catch_unwind(AssertUnwindSafe(|| run(seed))) {
                Ok(Ok(report)) => {
                    total.add(&report);
                    continue;
                }
                Ok(Err(violation)) => violation.to_string(),
                Err(_) => "a panic".to_owned(),
            };
            caught_at.fetch_min(seed, Ordering::Relaxed);
            return (total, Some((seed, caught)));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(worker)).collect();
        let mut total = Report::default();
        let mut first: Option<(u64, String)> = None;
        for worker in workers {
            let (report, caught) = worker.join().expect("a worker catches its panics");
            total.add(&report);
            first = [first, caught].into_iter().flatten().min();
        }
        (total, first)
    })
}
