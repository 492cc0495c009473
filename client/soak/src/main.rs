//! Seventy clients with every recipe, every call and every kind of watch on three servers that are killed,
//! suspended, partitioned, restarted and started the wrong way every few seconds. Ends with status 0 if every
//! promise of the recipes was kept.
//!
//! | team | promise | how it is seen to be kept |
//! | --- | --- | --- |
//! | locks, elections | one holder at a time | [`fence`]: every holder counts in a znode, with its token |
//! | barriers | nobody passes before all have come | [`barriers`]: counted in this process |
//! | queues | nothing lost, nothing taken twice | [`queues`]: a ledger in this process |
//! | counters | each change made once | [`counters`]: a ledger in this process |
//! | configurations | none missed, none half changed, none older than one read before | [`configurations`] |
//! | groups | who is in is seen, who has left is not | [`groups`] |
//! | meetings | nobody waits for what is there | [`meetings`] |
//! | calls | each is executed once or not at all, and says so | [`calls`]: a model of a subtree of its own |
//! | watches | none lost, late or invented | [`watches`]: an event comes before a read that shows it |
//! | members | their versions are one history | [`members`]: an operator changes them (`--reconfigure`) |
//! | all | nobody waits for ever | [`board`]: everyone tells what it is doing, a watchdog reads it |

#![forbid(unsafe_code)]

mod access;
mod barriers;
mod board;
mod calls;
mod chaos;
mod configurations;
mod counters;
mod elections;
mod fence;
mod groups;
mod locks;
mod meetings;
mod members;
mod queues;
mod slips;
mod soak;
mod verdict;
mod watches;
mod worker;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use ringkeeper_testkit::{Ensemble, Network, Program, Seat, WorkFolder, interrupt};

use self::access::Access;

/// How long servers may take to find a leader in the beginning.
const START_MAX: Duration = Duration::from_secs(60);

/// Short ticks: sessions of a few seconds, and a leader that is given up after as many.
const SETTINGS: &str = "tickTime=1000\ninitLimit=10\nsyncLimit=4\nmaxClientCnxns=0\n\
                        autopurge.purgeInterval=1\n4lw.commands.whitelist=*\n\
                        ringkeeper.trustedNetwork=yes\n";

/// Seventy clients with every recipe, every call and every kind of watch on an ensemble whose servers are
/// killed and partitioned every few seconds.
#[derive(Debug, Parser)]
#[command(name = "soak", version)]
struct Options {
    /// The server's binary [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Soak Apache ZooKeeper instead, from this folder of jars
    #[arg(long, value_name = "FOLDER", conflicts_with = "binary")]
    zookeeper: Option<PathBuf>,
    /// How long faults go on
    #[arg(long, value_name = "N", default_value_t = 20)]
    minutes: u64,
    /// How long faults go on, in seconds
    #[arg(long, value_name = "N", conflicts_with = "minutes")]
    seconds: Option<u64>,
    /// Mean time from one fault to the next, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2500, value_parser = clap::value_parser!(u64).range(100..))]
    fault_every: u64,
    /// How long a client may be at one thing before it counts as stuck, in seconds
    #[arg(long, value_name = "N", default_value_t = 90)]
    patience: u64,
    /// Decides what goes wrong, and what the clients do [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// How many servers
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    servers: u8,
    /// The clients speak TLS
    #[arg(long)]
    tls: bool,
    /// The clients log in, and the servers refuse those that do not
    #[arg(long, conflicts_with = "zookeeper")]
    login: bool,
    /// The members change every few seconds: servers leave, return, become observers
    #[arg(long, conflicts_with = "zookeeper")]
    reconfigure: bool,
    /// Where the servers' folders are made [default: the system's folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    work_dir: Option<PathBuf>,
    /// Instead of a soak, run this with the servers' addresses in RINGKEEPER_TEST_SERVERS, and let nothing go
    /// wrong
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            error.chain().for_each(|cause| eprintln!("error: {cause}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<bool> {
    let program = match (&options.zookeeper, &options.binary) {
        (Some(jars), _) => Program::zookeeper(jars, &["-Xmx512m", "-XX:+UseSerialGC"])?,
        (None, Some(binary)) => Program::ringkeeper(binary, &[])?,
        (None, None) => {
            let own = std::env::current_exe().context("where this program is")?;
            Program::ringkeeper(&own.with_file_name("ringkeeper"), &[])?
        }
    };
    let work_dir = options.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    interrupt::install()?;
    let count = usize::from(options.servers);
    if let Some((name, words)) = options.command.split_first() {
        let servers = start(&program, Seat::on_own_addresses(count), SETTINGS, &work_dir)?;
        return run_command(name, words, &servers.connect_string());
    }
    let network = Network::make(count);
    if let Err(reason) = &network {
        eprintln!(
            "no partitions in this run, which goes on without: {reason:#}. They need root and iproute2"
        );
    }
    let network = network.ok();
    let seats = network.as_ref().map_or_else(|| Seat::on_own_addresses(count), Network::seats);
    let access = Access::new(&seats, options.tls, options.login)?;
    let members = if options.reconfigure { members::SETTINGS } else { "" };
    let settings = format!("{SETTINGS}{}{members}", access.server_settings());
    let servers = start(&program, seats, &settings, &work_dir)?.with_network(network);
    // ZooKeeper does not refuse a folder that is not its own, a server alone belongs to no ensemble, and
    // lists of servers mean nothing where the log has them.
    let can_slip = options.zookeeper.is_none() && count >= 3 && !options.reconfigure;
    let operator = can_slip.then(|| slips::Operator::new(program, settings));
    let plan = soak::Plan {
        duration: Duration::from_secs(options.seconds.unwrap_or(options.minutes * 60)),
        fault_every: Duration::from_millis(options.fault_every),
        patience: Duration::from_secs(options.patience),
        seed: options.seed.unwrap_or_else(any_seed),
        reconfigures: options.reconfigure,
    };
    soak::run(servers, operator, access, &plan)
}

/// Starts servers, and waits until they serve.
fn start(program: &Program, seats: Vec<Seat>, settings: &str, work_dir: &Path) -> anyhow::Result<Ensemble> {
    Ensemble::start(program, seats, settings, WorkFolder::new("soak", work_dir)?, START_MAX)
}

/// Whether a command succeeds beside running servers.
fn run_command(name: &OsStr, words: &[OsString], servers: &str) -> anyhow::Result<bool> {
    let mut command = Command::new(name);
    command.args(words).env("RINGKEEPER_TEST_SERVERS", servers);
    // Ctrl-C reaches the command as well: the servers are ended when that has ended.
    let status = command.status().with_context(|| format!("{} cannot be run", name.display()))?;
    Ok(status.success())
}

/// Another one each time.
fn any_seed() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::from(now.subsec_nanos()) ^ (now.as_secs() << 30)
}
