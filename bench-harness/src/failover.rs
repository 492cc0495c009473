//! `bench-harness failover`: how long an ensemble acknowledges no write after its leader is killed.
//!
//! Three servers with their defaults on this machine, a writer for each. A writer sends one setData after the other
//! on one session; when its connection ends it opens a session on the next server that lets it. After each `kill -9`
//! of the leader, the time without service is the longest gap between two acknowledged writes, of whichever writer,
//! from the last one before the kill until all writers write again. The killed server is started again and follows
//! before the next kill.

mod writer;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use self::writer::Writers;
use crate::compare::System;
use crate::ensemble::Ensemble;
use crate::environment::{Environment, file_system_of};
use crate::statistics::median;
use crate::{args, interrupt};

const SERVERS: usize = 3;

/// Load between the moment that all servers serve and a kill.
const BETWEEN_KILLS: Duration = Duration::from_secs(2);

/// How long writes may stay away before the run is an error.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// Kills the leader of an ensemble under load, again and again, and measures the time without writes.
#[derive(Debug, clap::Args)]
pub(crate) struct FailoverArgs {
    /// ringkeeper's server binary
    #[arg(long)]
    ringkeeper: Option<PathBuf>,
    /// Folder with ZooKeeper's jar and those it needs (the lib folder of a distribution)
    #[arg(long)]
    zookeeper: Option<PathBuf>,
    /// ZooKeeper's greatest heap, as -Xmx takes it
    #[arg(long, default_value = "1g")]
    zookeeper_heap: String,
    /// Kills of each system's leader
    #[arg(long, default_value = "20", value_parser = args::count)]
    kills: usize,
    /// Folder in which the servers keep their data [default: the system's temporary folder]
    #[arg(long)]
    work_dir: Option<PathBuf>,
    /// First of nine ports for the servers [default: any that are free]
    #[arg(long)]
    port: Option<u16>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// One system's figures, milliseconds.
#[derive(Debug, Serialize)]
struct Row {
    system: &'static str,
    median_ms: f64,
    worst_ms: f64,
    /// In the order of the kills.
    all_ms: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    environment: Environment,
    rows: Vec<Row>,
}

impl FailoverArgs {
    fn systems(&self) -> Result<Vec<System>> {
        let ringkeeper = self.ringkeeper.as_deref().map(|binary| System::ringkeeper(binary, &[]));
        let zookeeper = self.zookeeper.as_deref().map(|jars| System::zookeeper(jars, &self.zookeeper_heap));
        let systems: Vec<_> = ringkeeper.into_iter().chain(zookeeper).collect::<Result<_>>()?;
        ensure!(!systems.is_empty(), "nothing to measure: give --ringkeeper, --zookeeper or both");
        Ok(systems)
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &FailoverArgs) -> Result<()> {
    let systems = args.systems()?;
    let work_dir = args.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let mut environment = Environment::of_this_run();
    for system in &systems {
        environment.add(system.name(), system.version()?);
    }
    environment.add("file system", file_system_of(&work_dir).unwrap_or_else(|| "unknown".into()));
    let mut rows = Vec::new();
    for system in &systems {
        let mut ensemble = Ensemble::start(system, SERVERS, &work_dir, args.port)?;
        let gaps = kill_leaders(&mut ensemble, args.kills).with_context(|| {
            format!("{}: an error, not a result; logs end with:\n{}", system.name(), ensemble.log_tails())
        })?;
        rows.push(Row::of(system.name(), gaps)?);
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&Report { environment, rows })?);
    } else {
        print(&environment, &rows);
    }
    Ok(())
}

/// Kills the leader so many times under load; the times without acknowledged writes.
pub(crate) fn kill_leaders(ensemble: &mut Ensemble, kills: usize) -> Result<Vec<Duration>> {
    let writers = Writers::start(&ensemble.addresses())?;
    let mut gaps = Vec::with_capacity(kills);
    for kill in 1..=kills {
        let leader = ensemble.wait_for_leader()?;
        writers.wait_for_all(Instant::now(), RECOVERY_MAX)?;
        interrupt::sleep_until(Instant::now() + BETWEEN_KILLS, || false)?;
        let killed = ensemble.kill(leader)?;
        let recovered = writers.wait_for_all(killed, RECOVERY_MAX)?;
        let gap = writers.longest_gap(killed, recovered);
        eprintln!("{}: kill {kill} of {kills}, server {leader}: {} ms", ensemble.name(), gap.as_millis());
        gaps.push(gap);
        ensemble.restart(leader)?;
    }
    writers.stop()?;
    Ok(gaps)
}

impl Row {
    fn of(system: &'static str, gaps: Vec<Duration>) -> Result<Self> {
        let all_ms: Vec<f64> = gaps.iter().map(|gap| gap.as_secs_f64() * 1e3).collect();
        Ok(Self {
            system,
            median_ms: median(all_ms.iter().copied()).context("no kills")?,
            worst_ms: all_ms.iter().copied().fold(0.0, f64::max),
            all_ms,
        })
    }
}

fn print(environment: &Environment, rows: &[Row]) {
    for fact in environment.facts() {
        println!("{}: {}", fact.name, fact.value);
    }
    println!("\ntime without acknowledged writes after kill -9 of the leader of three servers");
    println!("{:<12} {:>6} {:>10} {:>10}", "system", "kills", "median ms", "worst ms");
    for row in rows {
        println!("{:<12} {:>6} {:>10.0} {:>10.0}", row.system, row.all_ms.len(), row.median_ms, row.worst_ms);
    }
}
