//! Proofs over real sockets that a server is ZooKeeper to its clients, keeps its promises over crashes, and
//! stands hostile ones.
#![forbid(unsafe_code)]

mod authorisation;
mod crash;
mod differential;
mod hostile;
mod server;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "conformance", about, version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare who may do what with Apache ZooKeeper: all requests, clients and permissions
    Authorisation(authorisation::Options),
    /// Compare a server with Apache ZooKeeper, request by request
    Differential(differential::Options),
    /// Kill a server under load again and again: nothing acknowledged may be lost
    Crash(crash::Options),
    /// Attack a server with malformed bytes, floods, greed and patience
    Hostile(hostile::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Authorisation(options) => authorisation::run(&options),
        Command::Differential(options) => differential::run(&options),
        Command::Crash(options) => crash::run(&options),
        Command::Hostile(options) => hostile::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The causes are for the reader; a backtrace of this program is not.
            error.chain().for_each(|cause| eprintln!("error: {cause}"));
            ExitCode::FAILURE
        }
    }
}
