//! The client library in whole ensembles that fail: locks, elections, queues, counters, barriers and watches.
//!
//! `SIM_RECIPES_SEEDS=<count>` sets how many runs there are, from `SIM_RECIPES_FROM` on. One is replayed by
//! `cargo run -p ringkeeper-sim -- seed <seed> --recipes --trace`.

mod support;

use ringkeeper_client::mutation::Mutation;
use ringkeeper_sim::ensemble::run_recipes;
use support::{assert_all_caught, assert_none_caught};

#[test]
fn recipes_keep_their_promises_whatever_fails() {
    assert_none_caught("SIM_RECIPES", 600, "--recipes --trace", |seed| run_recipes(seed, Mutation::None));
}

#[test]
fn a_seed_decides_the_whole_run() {
    for seed in [2, 7, 31] {
        let run = || run_recipes(seed, Mutation::None);
        assert_eq!(run(), run(), "seed {seed}");
    }
}

/// Rare faults, and seeds that show them.
const CAUGHT_AT: [(&str, u64); 1] = [("DoubleLease", 319)];

#[test]
fn every_fault_planted_in_the_client_is_caught() {
    assert_all_caught(Mutation::ALL.into_iter(), &CAUGHT_AT, 4000, run_recipes);
}
