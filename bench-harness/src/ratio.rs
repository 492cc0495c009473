//! `bench-harness ratio`: throughput and latency of a mix of reads and writes against running servers.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::environment::Environment;
use crate::measure::{Load, Measurement, measure};
use crate::server_cpu::ServerProcesses;
use crate::statistics::median;
use crate::window::Surroundings;
use crate::{args, descriptors};

/// Saturates servers with a mix of getData and setData, every reply checked.
#[derive(Debug, clap::Args)]
pub(crate) struct RatioArgs {
    /// Servers, host:port, separated by commas; sessions are spread evenly over them
    #[arg(long, required = true, value_delimiter = ',', value_parser = args::server)]
    servers: Vec<SocketAddr>,
    /// Sessions, one connection each
    #[arg(long, default_value = "64", value_parser = args::count)]
    sessions: usize,
    /// Requests outstanding on each session
    #[arg(long, default_value = "100", value_parser = args::count)]
    outstanding: usize,
    /// Size of every value, in bytes
    #[arg(long, default_value = "1024", value_parser = args::payload_len)]
    payload: usize,
    /// Share of reads in percent; the rest are writes
    #[arg(long, default_value = "100", value_parser = clap::value_parser!(u8).range(0..=100))]
    reads: u8,
    /// Number of znodes [default: one for each session]
    #[arg(long, value_parser = args::count)]
    znodes: Option<usize>,
    /// Length of the measured window
    #[arg(long, default_value = "10", value_parser = args::window)]
    seconds: Duration,
    /// Load before the window, in seconds
    #[arg(long, default_value = "3", value_parser = args::seconds)]
    warmup: Duration,
    /// Number of runs; medians over them are printed last
    #[arg(long, default_value = "3", value_parser = args::count)]
    runs: usize,
    /// Load-generating threads
    #[arg(long, default_value = "1", value_parser = args::count)]
    threads: usize,
    /// Seed of the order of reads and writes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Processes whose CPU time counts [default: those listening on the servers' ports, on loopback]
    #[arg(long, value_delimiter = ',')]
    server_pid: Vec<i32>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl RatioArgs {
    fn load(&self) -> Load {
        Load {
            sessions: self.sessions,
            outstanding: self.outstanding,
            threads: self.threads,
            payload_len: self.payload,
            znodes: self.znodes.unwrap_or(self.sessions),
            reads_percent: self.reads,
            per_second: None,
            warmup: self.warmup,
            window: self.seconds,
            seed: self.seed,
        }
    }

    fn server_processes(&self) -> Result<Option<ServerProcesses>> {
        if self.server_pid.is_empty() {
            return Ok(ServerProcesses::listening_on(&self.servers));
        }
        ServerProcesses::of_pids(&self.server_pid).map(Some)
    }
}

/// One run, or the medians of several; latencies in microseconds.
#[derive(Clone, Debug, Serialize)]
struct Row {
    operations_per_second: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p99_9_us: f64,
    max_us: f64,
    /// Of one core; 1 means that the generator itself may be the limit.
    generator_cpu_share: f64,
    server_cpu_seconds_per_million: Option<f64>,
}

impl Row {
    fn of(measurement: &Measurement) -> Self {
        Self {
            operations_per_second: measurement.throughput(),
            p50_us: measurement.latency_us(50.0),
            p90_us: measurement.latency_us(90.0),
            p99_us: measurement.latency_us(99.0),
            p99_9_us: measurement.latency_us(99.9),
            max_us: measurement.latency_us(100.0),
            generator_cpu_share: measurement.generator_share(),
            server_cpu_seconds_per_million: measurement.server_cpu_per_million(),
        }
    }

    fn median_of(rows: &[Self]) -> Option<Self> {
        let of = |field: fn(&Self) -> f64| median(rows.iter().map(field));
        let server_cpu: Option<Vec<f64>> =
            rows.iter().map(|row| row.server_cpu_seconds_per_million).collect();
        Some(Self {
            operations_per_second: of(|row| row.operations_per_second)?,
            p50_us: of(|row| row.p50_us)?,
            p90_us: of(|row| row.p90_us)?,
            p99_us: of(|row| row.p99_us)?,
            p99_9_us: of(|row| row.p99_9_us)?,
            max_us: of(|row| row.max_us)?,
            generator_cpu_share: of(|row| row.generator_cpu_share)?,
            server_cpu_seconds_per_million: server_cpu.and_then(median),
        })
    }

    fn print(&self, name: &str) {
        let server_cpu =
            self.server_cpu_seconds_per_million.map_or_else(|| "-".into(), |s| format!("{s:.2}"));
        println!(
            "{name:>6} {:>10.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {server_cpu:>10}",
            self.operations_per_second,
            self.p50_us,
            self.p90_us,
            self.p99_us,
            self.p99_9_us,
            self.max_us,
            self.generator_cpu_share * 100.0,
        );
    }
}

#[derive(Debug, Serialize)]
struct Report {
    environment: Environment,
    runs: Vec<Row>,
    median: Row,
}

/// Runs the subcommand.
pub(crate) fn run(args: &RatioArgs) -> Result<()> {
    descriptors::reserve(args.sessions)?;
    let environment = Environment::of_this_run();
    let processes = args.server_processes()?;
    if processes.is_none() {
        eprintln!(
            "the servers' processes are not on this machine or not visible: their CPU time is not measured"
        );
    }
    if !args.json {
        print_heading(args);
    }
    let load = args.load();
    let mut runs = Vec::with_capacity(args.runs);
    for run in 1..=args.runs {
        let measurement = measure(&args.servers, Surroundings::servers(processes.as_ref()), &load)
            .with_context(|| format!("run {run} is an error, not a result"))?;
        let row = Row::of(&measurement);
        if !args.json {
            row.print(&run.to_string());
        }
        runs.push(row);
    }
    let median = Row::median_of(&runs).context("no runs")?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&Report { environment, runs, median })?);
    } else {
        median.print("median");
    }
    Ok(())
}

fn print_heading(args: &RatioArgs) {
    println!(
        "{} sessions x {} outstanding, {} % reads, {} B, {} thread(s), window {:.0} s",
        args.sessions,
        args.outstanding,
        args.reads,
        args.payload,
        args.threads,
        args.seconds.as_secs_f64(),
    );
    println!(
        "{:>6} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10}",
        "run", "ops/s", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us", "gen cpu%", "srv s/1e6"
    );
}
