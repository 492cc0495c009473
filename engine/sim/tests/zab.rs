//! Thousands of ensembles, each with its own misfortunes.
//!
//! `SIM_SEED=<seed>` replays one run, `SIM_SEEDS=<count>` sets how many there are, from `SIM_FROM` on,
//! `SIM_TRACE=1` prints every step.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ringkeeper_engine::zab::Mutation;
use ringkeeper_sim::{Outcome, run, trace};

fn env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value}: not a number")))
}

#[test]
fn ensembles_stay_correct_whatever_fails() {
    let seeds = match env("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = env("SIM_FROM").unwrap_or(0);
            first..first + env("SIM_SEEDS").unwrap_or(400)
        }
    };
    let tracing = env("SIM_TRACE") == Some(1);
    let mut total = Outcome::default();
    for seed in seeds {
        let outcome = if tracing { trace(seed, Mutation::None) } else { run(seed, Mutation::None) };
        match outcome {
            Ok(outcome) => {
                total.committed += outcome.committed;
                total.events += outcome.events;
                total.leaderships += outcome.leaderships;
                total.crashes += outcome.crashes;
                total.wipes += outcome.wipes;
                total.damaged += outcome.damaged;
                total.installs += outcome.installs;
                total.truncations += outcome.truncations;
                total.recovery_us = total.recovery_us.max(outcome.recovery_us);
            }
            Err(violation) => panic!("{violation}\nreplay: SIM_SEED={seed} cargo test -p ringkeeper-sim"),
        }
    }
    println!("{total:?}");
}

#[test]
fn a_seed_decides_the_whole_run() {
    for seed in [3, 17, 40] {
        assert_eq!(run(seed, Mutation::None), run(seed, Mutation::None), "seed {seed}");
    }
}

#[test]
fn every_planted_fault_is_caught() {
    const SEEDS: u64 = 3000;
    let survivors: Vec<Mutation> = Mutation::ALL
        .into_iter()
        .filter(|mutation| {
            // An assertion inside the machine is a catch as well.
            let caught =
                |seed: &u64| !matches!(catch_unwind(AssertUnwindSafe(|| run(*seed, *mutation))), Ok(Ok(_)));
            let seed = (0..SEEDS).find(caught);
            println!("{mutation:?}: {seed:?}");
            seed.is_none()
        })
        .collect();
    assert!(survivors.is_empty(), "not caught in {SEEDS} seeds: {survivors:?}");
}
