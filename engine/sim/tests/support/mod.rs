//! Running many seeds.

use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use ringkeeper_sim::ensemble::{Report, Violation};

/// As many as the machines that this runs on have cores.
const THREADS: usize = 2;

/// A number from the environment.
fn env(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
}

/// No seed shows a violation. `<name>_SEEDS` in the environment says how many there are, `<name>_FROM` where
/// they begin. `replay`: the arguments with which the simulator's program shows one.
pub(crate) fn assert_none_caught(
    name: &str,
    seeds: u64,
    replay: &str,
    run: impl Fn(u64) -> Result<Report, Violation> + Sync,
) {
    let from = env(&format!("{name}_FROM"), 0);
    let seeds = from..from + env(&format!("{name}_SEEDS"), seeds);
    println!("seeds {seeds:?}");
    let (report, caught) = first_caught(seeds, run);
    println!("{report}");
    if let Some((seed, violation)) = caught {
        panic!("seed {seed}: {violation}\nreplay: cargo run -p ringkeeper-sim -- seed {seed} {replay}");
    }
}

/// Each of the planted faults shows in one of so many seeds.
///
/// `caught_at` has seeds that showed rare faults last. They are tried first, since a search takes minutes.
/// Any change of the simulation may move them; what is printed tells the new ones.
pub(crate) fn assert_all_caught<F: Copy + Debug + Sync>(
    faults: impl Iterator<Item = F>,
    caught_at: &[(&str, u64)],
    seeds: u64,
    run: impl Fn(u64, F) -> Result<Report, Violation> + Sync,
) {
    let mut survivors = Vec::new();
    for fault in faults {
        let name = format!("{fault:?}");
        let known = caught_at.iter().find(|(rare, _)| name.contains(rare));
        let known = known.map_or(0..0, |(_, seed)| *seed..*seed + 1);
        match [known, 0..seeds].into_iter().find_map(|seeds| first_caught(seeds, |seed| run(seed, fault)).1) {
            Some((seed, violation)) => {
                let line: String = violation.chars().take(160).collect();
                println!("{name}: seed {seed}: {line}");
            }
            None => survivors.push(name),
        }
    }
    assert!(survivors.is_empty(), "not caught in {seeds} seeds: {survivors:?}");
}

/// Runs seeds until one is caught; that one, and why.
fn first_caught(
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
