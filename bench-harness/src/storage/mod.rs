//! `bench-harness storage`: how long a start takes, how fast a scrub reads, what a snapshot costs the clients, what the
//! tree takes of memory.
//!
//! For each system the tree is filled once, brought to a snapshot, and put aside with a short and a long log behind
//! the snapshot. Then the systems take turns (A B A B A B): each turn takes the folder back and starts on it.
//!
//! ```text
//! fill ─ snapshots ─┬─ + short log ─ kill -9 ─▶ saved: restart ─▶ first reply
//!                   ├─ + long log ── kill -9 ─▶ saved: restart; long - short = the log's replay alone;
//!                   │                           scrub, beside the disk's own speed
//!                   └─────────────────────────▶ saved: load without, then with snapshots being taken
//! ```
//!
//! Files are copied just before a start, so the page cache is dropped between the two, for both systems alike (see
//! [`crate::page_cache`]).

mod host;
mod restart;
mod scrub;
mod snapshots;
mod tree;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::host::Host;
use self::tree::Tree;
use crate::compare::{Metric, System, Table};
use crate::environment::{Environment, file_system_of};
use crate::measure::as_f64;
use crate::page_cache::PageCache;
use crate::progress::Progress;
use crate::window::Surroundings;
use crate::{args, interrupt};

/// A snapshot every so many transactions: none.
const NO_SNAPSHOTS: u32 = 2_000_000_000;

/// Folders put aside.
const SETTLED: &str = "settled";
const SHORT_LOG: &str = "short-log";
const LONG_LOG: &str = "long-log";

/// Measures start, scrub, snapshots and memory of ringkeeper and ZooKeeper with a big tree.
#[derive(Debug, clap::Args)]
pub(crate) struct StorageArgs {
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
    #[arg(long, default_value = "4g")]
    zookeeper_heap: String,
    /// Znodes of the tree
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(6400..))]
    znodes: u32,
    /// Size of each value in bytes
    #[arg(long, default_value = "100", value_parser = args::payload_len)]
    payload: usize,
    /// Transactions in the log after the snapshot when the start is measured
    #[arg(long, default_value_t = 100_000)]
    log_txns: u32,
    /// The same once more with so many: what the difference takes is the speed of replay; 0 leaves it out
    #[arg(long, default_value_t = 1_100_000)]
    replay_txns: u32,
    /// Runs of each measurement on each system
    #[arg(long, default_value = "3", value_parser = args::count)]
    runs: usize,
    /// Sessions of the load beside which snapshots are taken; 0 leaves that out
    #[arg(long, default_value_t = 16)]
    sessions: usize,
    /// Requests outstanding on each of them
    #[arg(long, default_value = "1", value_parser = args::count)]
    outstanding: usize,
    /// Share of reads in that load
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    reads_percent: u8,
    /// Length of its windows, without and with snapshots
    #[arg(long, default_value = "20", value_parser = args::window)]
    seconds: Duration,
    /// Load before each window, in seconds
    #[arg(long, default_value = "5", value_parser = args::seconds)]
    warmup: Duration,
    /// Transactions between two snapshots in the window with snapshots
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(2..))]
    snap_count: u32,
    /// Folder in which the servers keep their data [default: the system's temporary folder]
    #[arg(long)]
    work_dir: Option<PathBuf>,
    /// Port of the first server; the second has the next one [default: any that are free]
    #[arg(long)]
    port: Option<u16>,
    /// Where to write: a path to which .md and .csv are appended
    #[arg(long)]
    out: PathBuf,
}

impl StorageArgs {
    fn systems(&self) -> Result<Vec<System>> {
        let ringkeeper =
            self.ringkeeper.as_deref().map(|binary| System::ringkeeper(binary, &self.ringkeeper_arg));
        let zookeeper = self.zookeeper.as_deref().map(|jars| System::zookeeper(jars, &self.zookeeper_heap));
        let systems: Vec<_> = ringkeeper.into_iter().chain(zookeeper).collect::<Result<_>>()?;
        ensure!(!systems.is_empty(), "nothing to measure: give --ringkeeper, --zookeeper or both");
        Ok(systems)
    }

    fn tree(&self) -> Tree {
        Tree::new(self.znodes, self.payload)
    }

    fn environment(&self, systems: &[System], work_dir: &Path) -> Result<Environment> {
        let mut environment = Environment::of_this_run();
        for system in systems {
            system.describe(&mut environment, "standalone")?;
        }
        environment.add("file system", file_system_of(work_dir).unwrap_or_else(|| "unknown".into()));
        environment.add("runs", self.runs);
        Ok(environment)
    }

    fn port(&self, system: usize) -> Result<Option<u16>> {
        let offset = u16::try_from(system)?;
        Ok(self.port.map(|port| port.saturating_add(offset)))
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &StorageArgs) -> Result<()> {
    let systems = args.systems()?;
    let work_dir = args.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let page_cache = PageCache::drop_all();
    let mut environment = args.environment(&systems, &work_dir)?;
    environment.add("page cache", page_cache);
    let mut session = Run {
        args,
        table: Table::new(systems.iter().map(System::name).collect()),
        hosts: vec![],
        progress: Progress::new(),
    };
    for (index, system) in systems.iter().enumerate() {
        session.hosts.push(Host::new(system, &work_dir, args.port(index)?, page_cache)?);
    }
    session.turns("memory", 1, prepare)?;
    session.table.write(&args.out, &environment)?;
    session.turns("restart", args.runs, |host, args, _| restart::restart(host, args, SHORT_LOG))?;
    if args.replay_txns > args.log_txns {
        session.turns("replay", args.runs, |host, args, _| restart::replay(host, args))?;
    }
    session.table.write(&args.out, &environment)?;
    session.turns("scrub", args.runs, scrub::scrub)?;
    session.table.write(&args.out, &environment)?;
    if args.sessions > 0 {
        session.turns("snapshot", args.runs, snapshots::beside_load)?;
    }
    session.table.write(&args.out, &environment)?;
    match session.table.error_count() {
        0 => Ok(()),
        count => bail!("runs that were errors: {count}"),
    }
}

struct Run<'a> {
    args: &'a StorageArgs,
    table: Table,
    hosts: Vec<Host>,
    progress: Progress,
}

impl Run<'_> {
    fn turns(
        &mut self,
        name: &str,
        runs: usize,
        measure: impl Fn(&mut Host, &StorageArgs, &Progress) -> Result<Vec<Metric>>,
    ) -> Result<()> {
        let Self { args, table, hosts, progress } = self;
        progress.experiment(name);
        for run in 1..=runs {
            for (index, host) in hosts.iter_mut().enumerate() {
                progress.at(&format!("run {run}/{runs}, {}", host.system().name()));
                match measure(host, args, progress) {
                    Ok(metrics) => table.add(name, index, metrics),
                    Err(error) => {
                        interrupt::check()?;
                        let (system, tail) = (host.system().name(), host.log_tail());
                        let error =
                            format!("{name} run {run}, {system}: {error:#}; its output ends with {tail}");
                        progress.line(&format!("an error, not a result: {error}"));
                        table.add_error(error);
                    }
                }
                host.kill()?;
            }
        }
        progress.make_room();
        println!("{}", table.markdown_of(name));
        Ok(())
    }
}

/// Fills the tree, and puts the folders aside that the other measurements begin with.
fn prepare(host: &mut Host, args: &StorageArgs, progress: &Progress) -> Result<Vec<Metric>> {
    let (tree, around) = (args.tree(), Surroundings::spectator(progress));
    drop(host.start(NO_SNAPSHOTS)?);
    tree.create(host.address(), around).context("creating the tree")?;
    let resident = host.processes()?.resident_bytes()?;
    host.kill()?;
    snapshots::settle(host, tree, progress).context("waiting for snapshots")?;
    host.kill()?;
    host.save(SETTLED)?;
    let mut logs = vec![(SHORT_LOG, args.log_txns)];
    if args.replay_txns > args.log_txns {
        logs.push((LONG_LOG, args.replay_txns));
    }
    for (name, txns) in logs {
        host.restore(SETTLED)?;
        drop(host.start(NO_SNAPSHOTS)?);
        tree.update(host.address(), txns, 1, around)?;
        tree.set_last(host.address(), name)?;
        host.kill()?;
        host.save(name)?;
    }
    let per_znode = as_f64(resident) / f64::from(tree.znodes());
    Ok(vec![Metric::lower("resident memory in all, after creating", "B/znode", per_znode)])
}
