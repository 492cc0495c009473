//! Load generation and the paper's experiments.
//!
//! A result here is a ratio measured in one run, the median of several, with the CPU time that the servers
//! took beside it. Every reply is checked; a run with a wrong, misplaced or missing one is an error.
#![forbid(unsafe_code)]

mod args;
mod broadcast_member;
mod connection;
mod cores;
mod creates;
mod descriptors;
mod double_barrier;
mod driver;
mod environment;
mod etcd;
mod fault;
mod floor;
mod generators;
mod lane;
mod login;
mod machine;
mod measure;
mod mix;
mod monitor;
mod open_loop;
mod others;
mod page_cache;
mod paper;
mod pauses;
mod payload;
mod progress;
mod raftkeeper_mix;
mod reply;
mod request;
mod server_cpu;
mod session;
mod statistics;
mod supervise;
mod system;
mod timeline;
mod tls;
mod window;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ringkeeper_testkit::interrupt;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Load generation and measurements for servers that speak ZooKeeper's client protocol.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Floor(floor::FloorArgs),
    Paper(Box<paper::PaperArgs>),
    #[command(hide = true)]
    Supervise(supervise::SuperviseArgs),
    #[command(hide = true)]
    BroadcastMember(broadcast_member::MemberArgs),
}

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let done = interrupt::install().map_err(anyhow::Error::from).and_then(|()| match command {
        Command::Floor(args) => floor::run(&args),
        Command::Paper(args) => paper::run(&args),
        Command::BroadcastMember(args) => broadcast_member::run(&args),
        Command::Supervise(args) => supervise::run(&args),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-harness: {error:#}");
            ExitCode::FAILURE
        }
    }
}
