//! `ringkeeper-sim`: runs seeds, and replays one.
//!
//! ```text
//! cargo run --release -p ringkeeper-sim -- run --seeds 0..100000 --threads 2
//! cargo run --release -p ringkeeper-sim -- seed 4711 --trace
//! ```

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Parser, Subcommand};
use ringkeeper_engine::mutation::Mutation;
use ringkeeper_sim::ensemble::{self, Report};

/// Seeds between two lines of progress.
const PROGRESS_SEEDS: u64 = 1000;

/// Simulates whole ensembles: servers, disks, network, clocks and clients, each run from one seed.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs many seeds and says what they did; ends with the first seeds that fail.
    Run {
        /// The seeds, `A..B` without B.
        #[arg(long, value_parser = parse_range, default_value = "0..1000")]
        seeds: Range<u64>,
        /// Threads; a run takes one.
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// Goes on after a failure, and lists all that fail.
        #[arg(long)]
        keep_going: bool,
    },
    /// Runs one seed.
    Seed {
        /// The seed.
        seed: u64,
        /// Prints every event.
        #[arg(long)]
        trace: bool,
        /// Plants a fault by its name.
        #[arg(long, value_parser = parse_mutation, default_value = "None")]
        mutation: Mutation,
    },
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("not of the form A..B")?;
    let number = |part: &str| part.parse::<u64>().map_err(|error| format!("{part:?}: {error}"));
    Ok(number(from)?..number(to)?)
}

fn parse_mutation(text: &str) -> Result<Mutation, String> {
    let all = || Mutation::ALL.into_iter().chain([Mutation::None]);
    let named = all().find(|mutation| format!("{mutation:?}") == text);
    named.ok_or_else(|| format!("none of {:?}", all().collect::<Vec<_>>()))
}

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

fn main() -> ExitCode {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if let Some(seed) = SEED.get() {
            eprintln!("seed {seed} panics; replay it: ringkeeper-sim seed {seed} --trace");
        }
        default(info);
    }));
    match Args::parse().command {
        Command::Run { seeds, threads, keep_going } => run(seeds, threads, keep_going),
        Command::Seed { seed, trace, mutation } => {
            println!("seed {seed}");
            SEED.set(Some(seed));
            let run = if trace { ensemble::trace } else { ensemble::run };
            match run(seed, mutation) {
                Ok(report) => {
                    println!("{report}");
                    ExitCode::SUCCESS
                }
                Err(violation) => {
                    println!("seed {seed}: {violation}");
                    ExitCode::FAILURE
                }
            }
        }
    }
}

fn run(seeds: Range<u64>, threads: usize, keep_going: bool) -> ExitCode {
    println!("seeds {}..{} on {threads} threads", seeds.start, seeds.end);
    let next = AtomicU64::new(seeds.start);
    let total = Mutex::new(Report::default());
    let failures = Mutex::new(BTreeMap::new());
    let lock = "no thread panics while it holds a lock";
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || (!keep_going && !failures.lock().expect(lock).is_empty()) {
                        return;
                    }
                    SEED.set(Some(seed));
                    match ensemble::run(seed, Mutation::None) {
                        Ok(report) => {
                            let mut total = total.lock().expect(lock);
                            total.add(&report);
                            if total.seeds % PROGRESS_SEEDS == 0 {
                                println!("{} seeds, {} transactions", total.seeds, total.transactions);
                            }
                        }
                        Err(violation) => {
                            println!("seed {seed}: {violation}");
                            failures.lock().expect(lock).insert(seed, violation.oracle);
                        }
                    }
                }
            });
        }
    });
    println!("{}", total.lock().expect(lock));
    let failures = failures.into_inner().expect(lock);
    println!("failures              {}", failures.len());
    for (seed, oracle) in &failures {
        println!("  seed {seed}: {oracle}; replay it: ringkeeper-sim seed {seed} --trace");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
