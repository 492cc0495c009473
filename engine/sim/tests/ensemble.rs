//! Thousands of whole ensembles with clients, each with its own misfortunes.
//!
//! `SIM_ENSEMBLE_SEEDS=<count>` sets how many there are, from `SIM_ENSEMBLE_FROM` on. One is replayed by
//! `cargo run -p ringkeeper-sim -- seed <seed> --trace`.

mod support;

use ringkeeper_engine::mutation::Mutation;
use ringkeeper_sim::ensemble::run;
use support::{env, first_caught};

#[test]
fn ensembles_keep_their_promises_whatever_fails() {
    let from = env("SIM_ENSEMBLE_FROM", 0);
    let seeds = from..from + env("SIM_ENSEMBLE_SEEDS", 1600);
    println!("seeds {seeds:?}");
    let (report, caught) = first_caught(seeds, |seed| run(seed, Mutation::None));
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
        match first_caught(0..SEEDS, |seed| run(seed, mutation)).1 {
            Some((seed, violation)) => {
                let line: String = violation.chars().take(160).collect();
                println!("{mutation:?}: seed {seed}: {line}");
            }
            None => survivors.push(mutation),
        }
    }
    assert!(survivors.is_empty(), "not caught in {SEEDS} seeds: {survivors:?}");
}
