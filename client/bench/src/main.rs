//! The client's figures beside those of other clients, all against one server in one run.
//!
//! Each measurement runs in a process of its own, so that the CPU time it took is its client's alone; the
//! systems take turns, and the table shows each one's median.

#![forbid(unsafe_code)]

mod compare;
mod locks;
mod requests;
mod tally;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Figures of the client beside those of other clients.
#[derive(Debug, Parser)]
#[command(name = "client-bench", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure all clients in turns, and print the tables
    Compare(Compare),
    /// One measurement of requests on one connection, in this process
    Requests(Requests),
    /// One measurement of locks, in this process
    Locks(Locks),
}

#[derive(Clone, Debug, Args)]
struct Compare {
    /// The server's binary [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// A running server instead, `host:port`
    #[arg(long, conflicts_with = "binary")]
    server: Option<String>,
    /// Where the server's folder is made [default: the system's folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    work_dir: Option<PathBuf>,
    /// A Python that has kazoo, for its locks
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// A folder with Curator's jars, for its locks
    #[arg(long, value_name = "FOLDER")]
    curator: Option<PathBuf>,
    /// Measurements of each client
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// How long each takes, without half a second before it
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Leave the requests out
    #[arg(long)]
    only_locks: bool,
}

#[derive(Clone, Debug, Args)]
struct Requests {
    #[arg(long)]
    server: String,
    #[arg(long)]
    client: Subject,
    #[arg(long)]
    work: Work,
    /// Requests under way at any time
    #[arg(long, default_value_t = 1)]
    outstanding: usize,
    #[arg(long, default_value_t = 3)]
    seconds: u64,
}

#[derive(Clone, Debug, Args)]
struct Locks {
    #[arg(long)]
    server: String,
    /// Clients that hand the lock on to one another
    #[arg(long, default_value_t = 1)]
    clients: usize,
    #[arg(long, default_value_t = 3)]
    seconds: u64,
}

/// Which client, and how its calls are awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// ringkeeper-client awaited in tokio
    Ringkeeper,
    /// ringkeeper-client waited for by a thread, without a runtime
    RingkeeperWait,
    /// zookeeper-client in tokio
    ZookeeperClient,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Work {
    /// getData of 1 KiB
    Get,
    /// setData of 1 KiB
    Set,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Compare(options) => compare::run(&options),
        Command::Requests(options) => requests::run(&options),
        Command::Locks(options) => locks::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.chain().for_each(|cause| eprintln!("error: {cause}"));
            ExitCode::FAILURE
        }
    }
}
