//! Thousands of whole ensembles with clients, each with its own misfortunes.
//!
//! `SIM_ENSEMBLE_SEEDS=<count>` sets how many there are, from `SIM_ENSEMBLE_FROM` on. One is replayed by
//! `cargo run -p ringkeeper-sim -- seed <seed> --trace`.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use ringkeeper_engine::mutation::Mutation;
use ringkeeper_sim::ensemble::{Report, run};

/// As many as the machines that this runs on have cores.
const THREADS: usize = 2;

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
}

/// Runs seeds until one is caught; that one, and why.
fn first_caught(seeds: Range<u64>, mutation: Mutation) -> (Report, Option<(u64, String)>) {
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
            let caught = match catch_unwind(AssertUnwindSafe(|| run(seed, mutation))) {
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

#[test]
fn ensembles_keep_their_promises_whatever_fails() {
    let from = env("SIM_ENSEMBLE_FROM", 0);
    let seeds = from..from + env("SIM_ENSEMBLE_SEEDS", 1600);
    println!("seeds {seeds:?}");
    let (report, caught) = first_caught(seeds, Mutation::None);
    println!("{report}");
    if let Some((seed, violation)) = caught {
        panic!("seed {seed}: {violation}\nreplay: cargo run -p ringkeeper-sim -- seed {seed} --trace");
    }
}

#[test]
fn a_seed_decides_the_whole_run() {
    for seed in [2, 7, 31] {
        assert_eq!(run(seed, Mutation::None), run(seed, Mutation::None), "seed {seed}");
    }
}

#[test]
fn every_planted_fault_is_caught() {
    const SEEDS: u64 = 4000;
    let mut survivors = Vec::new();
    for mutation in Mutation::ALL {
        match first_caught(0..SEEDS, mutation).1 {
            Some((seed, violation)) => {
                let line: String = violation.chars().take(160).collect();
                println!("{mutation:?}: seed {seed}: {line}");
            }
            None => survivors.push(mutation),
        }
    }
    assert!(survivors.is_empty(), "not caught in {SEEDS} seeds: {survivors:?}");
}
