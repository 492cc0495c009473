//! Fifty clients with locks, elections, barriers, queues and watches on three servers that are killed,
//! suspended and restarted every few seconds. Ends with status 0 if every promise of the recipes was kept.
//!
//! | team | promise | how it is seen to be kept |
//! | --- | --- | --- |
//! | locks, elections | one holder at a time | [`fence`]: every holder counts in a znode, with its fencing token |
//! | barriers | nobody passes before all have come | [`barriers`]: counted in this process |
//! | queues | nothing lost, nothing taken twice | [`queues`]: a ledger in this process |
//! | watches | none lost, none late, none invented | [`watches`]: a read that shows a change comes after its event |
//! | all | nobody waits for ever | [`board`]: everyone tells what it is doing, a watchdog reads it |

#![forbid(unsafe_code)]

mod barriers;
mod board;
mod chaos;
mod elections;
mod ensemble;
mod fence;
mod locks;
mod queues;
mod soak;
mod verdict;
mod watches;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

/// Fifty clients with locks, elections, barriers, queues and watches on an ensemble whose servers are killed
/// every few seconds.
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
    /// Where the servers' folders are made [default: the system's folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    work_dir: Option<PathBuf>,
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
        (Some(jars), _) => ensemble::Program::ZooKeeper(jars.clone()),
        (None, Some(binary)) => ensemble::Program::Ringkeeper(binary.clone()),
        (None, None) => {
            let own = std::env::current_exe().context("where this program is")?;
            ensemble::Program::Ringkeeper(own.with_file_name("ringkeeper"))
        }
    };
    let work_dir = options.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let servers = ensemble::Ensemble::start(&program, &work_dir)?;
    let plan = soak::Plan {
        duration: Duration::from_secs(options.seconds.unwrap_or(options.minutes * 60)),
        fault_every: Duration::from_millis(options.fault_every),
        patience: Duration::from_secs(options.patience),
        seed: options.seed.unwrap_or_else(any_seed),
    };
    soak::run(servers, &plan)
}

/// Another one each time.
fn any_seed() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::from(now.subsec_nanos()) ^ (now.as_secs() << 30)
}
