//! `bench-harness compare`: ringkeeper and Apache ZooKeeper on the same machine, in one run.
//!
//! For every workload the systems take turns (A B A B A B), so that whatever else the machine does falls on
//! both alike. Each turn has a server of its own, started on an empty folder of the same file system, with
//! forced writes; only one runs at a time.

mod churn;
pub(crate) mod fanout;
pub(crate) mod memory;
pub(crate) mod metric;
pub(crate) mod server;
mod system;
mod table;
mod workload;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

pub(crate) use self::metric::Metric;
pub(crate) use self::server::Server;
pub(crate) use self::system::{IN_PROCESS_MAX, System};
pub(crate) use self::table::Table;
use self::workload::{Lengths, SESSIONS_MAX, Workload};
use crate::environment::{Environment, file_system_of};
use crate::{args, descriptors, interrupt};

/// Starts ringkeeper and ZooKeeper in turn, measures both, and writes a table of medians and ratios.
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArgs {
    /// ringkeeper's server binary
    #[arg(long)]
    ringkeeper: Option<PathBuf>,
    /// One more argument for ringkeeper; may be repeated
    #[arg(long, requires = "ringkeeper", allow_hyphen_values = true)]
    ringkeeper_arg: Vec<String>,
    /// Folder with ZooKeeper's jar and those it needs (the lib folder of a distribution)
    #[arg(long)]
    zookeeper: Option<PathBuf>,
    /// ZooKeeper's greatest heap, as -Xmx takes it
    #[arg(long, default_value = "2g")]
    zookeeper_heap: String,
    /// Measure the bare responder too: what the machine and the generator leave possible
    #[arg(long, conflicts_with = "ensemble")]
    floor: bool,
    /// Measure ensembles of so many servers instead of servers alone
    #[arg(long, value_parser = clap::value_parser!(u8).range(2..=13))]
    ensemble: Option<u8>,
    /// Workloads, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Workload>,
    /// Runs of each workload on each system
    #[arg(long, default_value = "3", value_parser = args::count)]
    runs: usize,
    /// Length of each measured window
    #[arg(long, default_value = "10", value_parser = args::window)]
    seconds: Duration,
    /// Load before each window, in seconds
    #[arg(long, default_value = "3", value_parser = args::seconds)]
    warmup: Duration,
    /// Mixed load on each fresh server before its workload, in seconds: a JVM compiles its code meanwhile
    #[arg(long, default_value = "5", value_parser = args::seconds)]
    conditioning: Duration,
    /// Znodes of the memory workload
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(64..))]
    memory_znodes: u32,
    /// Folder in which the servers keep their data [default: the system's temporary folder]
    #[arg(long)]
    work_dir: Option<PathBuf>,
    /// Port of the server, or first of three for each server of an ensemble [default: any that are free]
    #[arg(long)]
    port: Option<u16>,
    /// Where to write: a path to which .md and .csv are appended
    #[arg(long)]
    out: PathBuf,
}

impl CompareArgs {
    fn systems(&self) -> Result<Vec<System>> {
        let ringkeeper =
            self.ringkeeper.as_deref().map(|binary| System::ringkeeper(binary, &self.ringkeeper_arg));
        let zookeeper = self.zookeeper.as_deref().map(|jars| System::zookeeper(jars, &self.zookeeper_heap));
        let floor = self.floor.then_some(Ok(System::Floor));
        let systems: Vec<_> = ringkeeper.into_iter().chain(zookeeper).chain(floor).collect::<Result<_>>()?;
        ensure!(!systems.is_empty(), "nothing to measure: give --ringkeeper, --zookeeper or both");
        Ok(systems)
    }

    fn workloads(&self) -> &[Workload] {
        if self.only.is_empty() { Workload::value_variants() } else { &self.only }
    }

    /// What is measured, in words.
    fn kind(&self) -> String {
        self.ensemble.map_or_else(|| "standalone".to_owned(), |count| format!("{count} servers"))
    }

    const fn lengths(&self) -> Lengths {
        Lengths {
            conditioning: self.conditioning,
            warmup: self.warmup,
            window: self.seconds,
            memory_znodes: self.memory_znodes,
        }
    }

    fn environment(&self, systems: &[System], work_dir: &Path) -> Result<Environment> {
        let mut environment = Environment::of_this_run();
        for system in systems {
            system.describe(&mut environment, &self.kind())?;
        }
        environment.add("file system", file_system_of(work_dir).unwrap_or_else(|| "unknown".into()));
        environment.add("runs", self.runs);
        let [window, warmup, conditioning] =
            [self.seconds, self.warmup, self.conditioning].map(|length| length.as_secs_f64());
        environment
            .add("lengths", format!("window {window} s, warm-up {warmup} s, conditioning {conditioning} s"));
        Ok(environment)
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &CompareArgs) -> Result<()> {
    descriptors::reserve(SESSIONS_MAX)?;
    let systems = args.systems()?;
    let work_dir = args.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let environment = args.environment(&systems, &work_dir)?;
    let mut table = Table::new(systems.iter().map(System::name).collect());
    for workload in args.workloads() {
        for run in 1..=args.runs {
            for (index, system) in systems.iter().enumerate() {
                if !workload.suits(system) {
                    continue;
                }
                eprintln!("{}: run {run} of {}, {}", workload.name(), args.runs, system.name());
                match turn(system, *workload, args, &work_dir) {
                    Ok(metrics) => table.add(&workload.name(), index, metrics),
                    Err(error) => {
                        interrupt::check()?;
                        let error = format!("{} run {run}, {}: {error:#}", workload.name(), system.name());
                        eprintln!("an error, not a result: {error}");
                        table.add_error(error);
                    }
                }
            }
        }
        println!("{}", table.markdown_of(&workload.name()));
        // After each workload: what is measured is not lost if a later one is interrupted.
        table.write(&args.out, &environment)?;
    }
    match table.error_count() {
        0 => Ok(()),
        count => bail!("runs that were errors: {count}"),
    }
}

/// One workload on one server, started and ended for it.
fn turn(system: &System, workload: Workload, args: &CompareArgs, work_dir: &Path) -> Result<Vec<Metric>> {
    let server = match args.ensemble {
        None => Server::start(system, work_dir, args.port)?,
        Some(count) => Server::start_ensemble(system, count.into(), work_dir, args.port)?,
    };
    let is_jvm = matches!(system, System::ZooKeeper { .. });
    workload
        .run(&server, args.lengths(), is_jvm)
        .with_context(|| format!("server output ends with {:?}", server.log_tail()))
}
