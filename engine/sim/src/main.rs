//! `ringkeeper-sim`: runs seeds, and replays one.
//!
//! ```text
//! cargo run --release -p ringkeeper-sim -- run --seeds 0..100000 --threads 2
//! cargo run --release -p ringkeeper-sim -- seed 4711 --trace
//! ```
//! With `--recipes`, the client library and its recipes are in the ensemble as well.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Args as Arguments, Parser, Subcommand};
use ringkeeper_sim::ensemble::{self, Planted as Fault, Report, Violation};

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
        /// Begins no seed after this long.
        #[arg(long, default_value_t = u64::MAX / 60)]
        minutes: u64,
        /// Goes on after a failure, and lists all that fail.
        #[arg(long)]
        keep_going: bool,
        #[command(flatten)]
        planted: Planted,
    },
    /// Runs one seed.
    Seed {
        /// The seed.
        seed: u64,
        /// Prints every event.
        #[arg(long)]
        trace: bool,
        #[command(flatten)]
        planted: Planted,
    },
}

/// What kind of run, and the fault in it.
#[derive(Clone, Copy, Arguments)]
struct Planted {
    /// Plants a fault, by its name.
    #[arg(long, value_parser = parse_fault, default_value = "None")]
    mutation: Fault,
    /// With the client library: locks, elections, queues, counters, barriers and watches.
    #[arg(long)]
    recipes: bool,
}

impl Planted {
    fn run(self, seed: u64, trace: bool) -> Result<Report, Violation> {
        match (self.recipes, trace) {
            (false, false) => ensemble::run(seed, self.mutation),
            (false, true) => ensemble::trace(seed, self.mutation),
            (true, false) => ensemble::run_recipes(seed, self.mutation),
            (true, true) => ensemble::trace_recipes(seed, self.mutation),
        }
    }

    /// The arguments that replay a seed.
    fn replay(self, seed: u64) -> String {
        let mut planted = if self.recipes { " --recipes".to_owned() } else { String::new() };
        if self.mutation != Fault::Nothing {
            planted += &format!(" --mutation {}", self.mutation);
        }
        format!("ringkeeper-sim seed {seed}{planted} --trace")
    }
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("not of the form A..B")?;
    let number = |part: &str| part.parse::<u64>().map_err(|error| format!("{part:?}: {error}"));
    Ok(number(from)?..number(to)?)
}

fn parse_fault(text: &str) -> Result<Fault, String> {
    let all = || Fault::shown_by_plain_clients().chain(Fault::shown_by_workers()).chain([Fault::Nothing]);
    let named = all().find(|fault| fault.to_string() == text);
    named.ok_or_else(|| {
        format!("none of {}", all().map(|fault| fault.to_string()).collect::<Vec<_>>().join(", "))
    })
}

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

thread_local! {
    static RUNNING: Cell<Option<(u64, Planted)>> = const { Cell::new(None) };
}

fn main() -> ExitCode {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if let Some((seed, planted)) = RUNNING.get() {
            eprintln!("seed {seed} panics; replay it: {}", planted.replay(seed));
        }
        default(info);
    }));
    match Args::parse().command {
        Command::Run { seeds, threads, minutes, keep_going, planted } => {
            let limit = Duration::from_secs(60 * minutes);
            run(seeds, threads, limit, keep_going, planted)
        }
        Command::Seed { seed, trace, planted } => {
            println!("seed {seed}");
            RUNNING.set(Some((seed, planted)));
            match planted.run(seed, trace) {
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

#[expect(clippy::disallowed_methods, reason = "how long to go on is the only thing that the clock decides")]
fn run(seeds: Range<u64>, threads: usize, limit: Duration, keep_going: bool, planted: Planted) -> ExitCode {
    let started = Instant::now();
    println!("seeds {}..{} on {threads} threads", seeds.start, seeds.end);
    let next = AtomicU64::new(seeds.start);
    let total = Mutex::new(Report::default());
    let failures = Mutex::new(BTreeMap::new());
    let lock = "no thread panics while it holds a lock";
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    if started.elapsed() > limit {
                        return;
                    }
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || (!keep_going && !failures.lock().expect(lock).is_empty()) {
                        return;
                    }
                    RUNNING.set(Some((seed, planted)));
                    match planted.run(seed, false) {
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
    println!("took                  {} s", started.elapsed().as_secs());
    let failures = failures.into_inner().expect(lock);
    println!("failures              {}", failures.len());
    for (seed, oracle) in &failures {
        println!("  seed {seed}: {oracle}; replay it: {}", planted.replay(*seed));
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
