//! The differential test: the same random requests to a reference and to a subject, every answer and every
//! event compared. One seed decides the whole sequence.
//!
//! Both servers get the requests in lock-step. A group of requests of one session is sent at once; when all
//! its replies are there, every session sends a sync, whose reply follows every event of the group. So each
//! session's frames come in an order that the protocol fixes, and are compared in that order.

mod accepted;
mod compare;
mod mapping;
mod pool;
mod request;
mod run;
mod side;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use ringkeeper_testkit::Program;

use self::accepted::Accepted;
use self::run::{Coverage, Outcome, Reasons, Run};
use crate::server::{self, Settings};

/// What to compare, and how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Address of a running reference, with the same history as the subject (best: none)
    #[arg(long, requires = "subject", conflicts_with = "start_zookeeper")]
    reference: Option<SocketAddr>,
    /// Address of a running subject
    #[arg(long, requires = "reference")]
    subject: Option<SocketAddr>,
    /// Start Apache ZooKeeper from this folder of jars as the reference, anew for each seed
    #[arg(long, value_name = "FOLDER", required_unless_present = "reference")]
    start_zookeeper: Option<PathBuf>,
    /// Start this ringkeeper binary as the subject; without it, a second ZooKeeper is the subject
    #[arg(long, value_name = "BINARY", requires = "start_zookeeper")]
    start_ringkeeper: Option<PathBuf>,
    /// The seed of a single run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Several seeds, as FIRST..END
    #[arg(long, value_parser = parse_seeds, value_name = "FIRST..END")]
    seeds: Option<Seeds>,
    /// Number of requests for each seed
    #[arg(long, default_value_t = 20_000)]
    operations: usize,
    /// The list of accepted differences
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/differences.toml"))]
    accepted: PathBuf,
    /// Print what was covered: how often each kind of request got each kind of answer
    #[arg(long)]
    coverage: bool,
    /// Print every request as it is sent
    #[arg(long)]
    verbose: bool,
}

/// A range of seeds.
#[derive(Clone, Debug)]
struct Seeds(std::ops::Range<u64>);

fn parse_seeds(text: &str) -> Result<Seeds, String> {
    let (first, end) = text.split_once("..").ok_or("expected FIRST..END")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    Ok(Seeds(number(first)?..number(end)?))
}

/// Runs every seed.
///
/// # Errors
/// A difference that is not accepted, or a server that could not be reached.
pub(crate) fn run(options: &Options) -> Result<()> {
    let list = Accepted::load(&options.accepted)?;
    let seeds = options.seeds.as_ref().map_or(options.seed..options.seed + 1, |seeds| seeds.0.clone());
    let mut failed = Vec::new();
    let mut covered = Coverage::new();
    let mut reasons = Reasons::new();
    let (mut requests, mut clean) = (0, 0);
    for seed in seeds {
        let started = Instant::now();
        let Outcome { operations, accepted, coverage, report } = run_seed(options, seed, &list)?;
        requests += operations;
        let seconds = started.elapsed().as_secs_f64();
        let verdict = if report.is_none() { "no difference" } else { "DIFFERENT" };
        println!(
            "seed {seed}: {operations} requests, {} accepted, {verdict} ({seconds:.1} s)",
            accepted.values().sum::<usize>()
        );
        for (reason, count) in accepted {
            *reasons.entry(reason).or_default() += count;
        }
        for (kind, count) in coverage {
            *covered.entry(kind).or_default() += count;
        }
        if let Some(report) = report {
            println!("{report}");
            println!("again: conformance differential --seed {seed} --operations {} ...", options.operations);
            failed.push(seed);
        } else {
            clean += 1;
        }
    }
    println!(
        "{clean} of {} seeds without a difference in {requests} requests, but for those that are meant:",
        clean + failed.len()
    );
    for ((reason, request), count) in &reasons {
        println!("{count:8} {request:22} {reason}");
    }
    if options.coverage {
        covered.iter().for_each(|((request, answer), count)| println!("{request:22} {answer:28} {count:8}"));
    }
    ensure!(failed.is_empty(), "differences with seeds {failed:?}");
    Ok(())
}

fn run_seed(options: &Options, seed: u64, accepted: &Accepted) -> Result<Outcome> {
    // Both with and without hard quotas, as both are in use; with them, writes cannot be pipelined. Sessions
    // never expire, since nothing that depends on the clock can be compared.
    let settings = Settings {
        enforce_quota: seed.is_multiple_of(4),
        force_sync: false,
        session_timeout_min_ms: 400_000,
    };
    let Some(jars) = &options.start_zookeeper else {
        let reference = options.reference.expect("clap requires it without start_zookeeper");
        let subject = options.subject.expect("clap requires it with reference");
        return Run::new(seed, reference, subject, settings.enforce_quota, options.verbose)?
            .play(options.operations, accepted);
    };
    let zookeeper = server::zookeeper(jars, &[])?;
    let program = match &options.start_ringkeeper {
        Some(binary) => Program::ringkeeper(binary, &[])?,
        None => zookeeper.clone(),
    };
    let (reference, subject) = (server::start(&zookeeper, settings)?, server::start(&program, settings)?);
    let [r, s] = [&reference, &subject].map(|started| started.server(0).address());
    let run = Run::new(seed, r, s, settings.enforce_quota, options.verbose)?;
    let outcome = run.play(options.operations, accepted);
    outcome.map_err(|error| {
        error.context(format!("reference:\n{}\nsubject:\n{}", reference.log_tails(), subject.log_tails()))
    })
}
