//! The client library in whole ensembles that fail: locks, elections, queues, counters, barriers and watches.
//!
//! `SIM_RECIPES_SEEDS=<count>` sets how many runs there are, from `SIM_RECIPES_FROM` on. One is replayed by
//! `cargo run -p ringkeeper-sim -- seed <seed> --recipes --trace`.

mod support;

use ringkeeper_sim::ensemble::{Planted, run_recipes};
use support::{assert_all_caught, assert_none_caught};

#[test]
fn recipes_keep_their_promises_whatever_fails() {
    assert_none_caught("SIM_RECIPES", 600, "--recipes --trace", |seed| run_recipes(seed, Planted::Nothing));
}

#[test]
fn a_seed_decides_the_whole_run() {
    for seed in [2, 7, 31] {
        let run = || run_recipes(seed, Planted::Nothing);
        assert_eq!(run(), run(), "seed {seed}");
    }
}

/// Rare faults, and seeds that show them.
const CAUGHT_AT: [(&str, u64); 2] = [("EndUnheardSessions", 4521), ("DoubleLease", 319)];

#[test]
fn every_planted_fault_that_workers_show_is_caught() {
    assert_all_caught(Planted::shown_by_workers(), &CAUGHT_AT, 8000, run_recipes);
}
