//! A shell for ringkeeper and Apache ZooKeeper: the commands of ZooKeeper's own `zkCli` with their options,
//! and what is missed there: subtrees as pictures, sizes and files, searches, editing, and JSON for programs.
//!
//! ```text
//! one-shot:     words of the command line --+
//! interactive:  a line, split into words ---+--> command::Command --> run --> out::Out: text, or JSON lines
//! ```
//!
//! Exit status of the one-shot form: 0 done, 1 the service refused, 2 wrong usage, 3 no connection.
#![forbid(unsafe_code)]

mod command;
mod edit;
mod error;
mod interactive;
mod interrupt;
mod lines;
mod login;
mod out;
mod quota;
mod render;
mod rules;
mod run;
mod session;
mod subtree;
mod tenants;
mod tls;
mod walk;
mod watches;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::command::Line;
use crate::error::ShellError;
pub use crate::login::{LoginArgs, LoginError};
use crate::out::Out;
use crate::session::{Session, Target};
pub use crate::tls::TlsArgs;

/// What `ringkeeper shell` takes.
#[derive(Debug, clap::Args)]
pub struct ShellArgs {
    /// Servers, as host:port,host:port/chroot
    #[arg(short, long, default_value = "127.0.0.1:2181", value_name = "SERVERS")]
    servers: String,
    /// Session timeout to ask for, in milliseconds
    #[arg(short = 't', long, default_value = "30000", value_name = "MS", value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// How long to wait for a server, in milliseconds
    #[arg(long, default_value = "10000", value_name = "MS", value_parser = clap::value_parser!(u32).range(1..))]
    connect_timeout: u32,
    /// A server that has lost its quorum will do, for reads
    #[arg(short, long)]
    readonly: bool,
    /// A proof of identity, as SCHEME:AUTH, such as digest:user:password; may be repeated
    #[arg(long, value_name = "SCHEME:AUTH")]
    auth: Vec<String>,
    #[command(flatten)]
    login: LoginArgs,
    #[command(flatten)]
    tls: TlsArgs,
    /// Answers as JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Do not ask before deleting what has children
    #[arg(short, long)]
    yes: bool,
    /// A command and its words; without one, the shell asks for commands. `help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the shell; the exit status is that of the one command, or of the last one of a script.
#[must_use]
pub fn run(args: ShellArgs) -> ExitCode {
    match try_run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.print();
            ExitCode::from(error.status())
        }
    }
}

fn try_run(args: ShellArgs) -> Result<(), ShellError> {
    let target = Target {
        servers: args.servers,
        session_timeout: Duration::from_millis(args.timeout.into()),
        connect_timeout: Duration::from_millis(args.connect_timeout.into()),
        read_only: args.readonly,
        login: args.login.user()?,
        tls: args.tls.settings(),
        credentials: args.auth.iter().map(|auth| split_credential(auth)).collect::<Result<_, _>>()?,
    };
    let stdin_is_terminal = std::io::stdin().is_terminal();
    let asks = stdin_is_terminal && !args.yes;
    if args.command.is_empty() {
        // A script ends by Ctrl-C, at a terminal only its command does.
        if stdin_is_terminal {
            interrupt::install()?;
        }
        return interactive::run(target, args.json, asks, stdin_is_terminal);
    }
    // Usage first: help needs no server.
    let line = Line::try_parse_from(command::normalize(args.command))?;
    let mut stdout = std::io::stdout().lock();
    let mut out = Out::new(&mut stdout, args.json);
    let mut session = Session::open(target, args.json)?;
    let done = run::run(&mut session, line.command, &mut out, asks).map(drop);
    session.close();
    done
}

fn split_credential(text: &str) -> Result<(String, Vec<u8>), ShellError> {
    match text.split_once(':') {
        Some((scheme, auth)) if !scheme.is_empty() => Ok((scheme.to_owned(), auth.as_bytes().to_vec())),
        _ => Err(ShellError::Usage(format!("--auth {text:?} is not of the form SCHEME:AUTH"))),
    }
}
