//! The ringkeeper server and its tools.

mod admin;
mod backup;
mod cli;
mod config;
mod doctor;
mod ensemble;
mod manual;
mod migrate;
mod placement;
mod restore;
mod scram;
mod server;
mod signals;
mod tail;
mod tools;
mod transaction;
mod why_slow;

use std::process::ExitCode;

use clap::Parser;
use ringkeeper_runtime::allocator::{self, Allocator};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    allocator::keep_freed();
    // What is stored here is for nobody else on this machine, whatever the shell that starts it allows.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let cli = cli::Cli::parse();
    let status = cli.run().unwrap_or_else(|error| {
        // One sentence that names the thing and the remedy.
        server::say(format_args!("ringkeeper: {error}\n"));
        error.exit_code()
    });
    server::flush_log();
    status
}
