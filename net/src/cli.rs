//! The command line.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::admin::{AdminCommand, AdminError};
use crate::backup::{self, BackupArgs, BackupError};
use crate::config::{Config, LogFormat};
use crate::doctor;
use crate::ensemble::{self, EnsembleArgs, EnsembleError};
use crate::manual::{self, ManualArgs, ManualError};
use crate::migrate::{self, ExportArgs, ExportConfigArgs, ImportArgs, MigrateError};
use crate::restore::{self, RestoreArgs, RestoreError};
use crate::scram::{ScramCommand, ScramError};
use crate::server::{self, StartError};
use crate::tail::{self, TailArgs, TailError};
use crate::tools::{self, FolderCommand, LogCommand, SnapshotCommand};

/// A coordination service that speaks ZooKeeper's client protocol.
#[derive(Parser)]
#[command(name = "ringkeeper", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a server (what `ringkeeper` alone does, too)
    Server(ServerArgs),
    /// Runs an ensemble of servers on this machine, for trying out
    Ensemble(EnsembleArgs),
    /// Checks whether this machine is as a server with this configuration needs it
    Doctor(DoctorArgs),
    /// Makes a data folder out of Apache ZooKeeper's, whose server has to be stopped
    Import(ImportArgs),
    /// Makes a data folder for another system out of a stopped server's
    Export(ExportArgs),
    /// Writes the members that the log names, and the other settings, as Apache ZooKeeper's configuration
    /// files
    ExportConfig(ExportConfigArgs),
    /// Shows which server a stopped server's folder belongs to; makes it another one's
    #[command(subcommand)]
    Folder(FolderCommand),
    /// Shows, checks and repairs the log of a stopped server
    #[command(subcommand)]
    Log(LogCommand),
    /// Shows and checks the snapshots of a stopped server
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Adds users who log in by SCRAM-SHA-256
    #[command(subcommand)]
    Scram(ScramCommand),
    /// Asks a running server about itself, or changes what it logs
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Ships the history of a running ensemble to a folder or an object store, for any moment to be restored
    Backup(BackupArgs),
    /// Makes the folders of a new ensemble as of any moment of a backup, or puts a subtree back
    Restore(RestoreArgs),
    /// Shows the committed transactions of a running server, as they come
    Tail(TailArgs),
    /// Talks to a service, ringkeeper's or Apache ZooKeeper's: one command, or one after the other
    Shell(ringkeeper_shell::ShellArgs),
    /// Writes manual pages and completions of shells, for a package
    #[command(hide = true)]
    Manual(ManualArgs),
}

#[derive(Args, Default)]
struct ServerArgs {
    /// Configuration in the format of Apache ZooKeeper's zoo.cfg; the flags below override it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder for the data; made if it is missing [default: ringkeeper-data]
    #[arg(short, long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Folder for the log, if it has a disk of its own
    #[arg(long, value_name = "FOLDER")]
    data_log_dir: Option<PathBuf>,
    /// Port for clients [default: 2181]
    #[arg(short = 'p', long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    client_port: Option<u16>,
    /// Address for clients [default: 127.0.0.1, or every address with a configuration file]
    #[arg(short = 'a', long, value_name = "ADDRESS")]
    client_address: Option<IpAddr>,
    /// Base unit of times, in milliseconds [default: 2000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..))]
    tick_time: Option<u32>,
    /// Number of shards; by default one for each core but one, and one in all on up to two cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    shards: Option<u16>,
    /// Format of the log on standard error: text or json [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = LogFormat::parse)]
    log_format: Option<LogFormat>,
    /// Ends with this process, which must be the one that started it
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<i32>,
    /// A setting of the configuration file, as KEY=VALUE; may be given several times
    #[arg(short = 'o', long = "option", value_name = "KEY=VALUE")]
    options: Vec<String>,
}

#[derive(Args)]
struct DoctorArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Answers as JSON, one object a line
    #[arg(long)]
    json: bool,
}

impl Cli {
    /// Does what the command line says.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let args = match self.command {
            None => self.server,
            Some(Command::Server(args)) => args,
            Some(Command::Ensemble(args)) => {
                ensemble::run(&args)?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(Command::Shell(args)) => return Ok(ringkeeper_shell::run(args)),
            Some(Command::Doctor(args)) => {
                let (config, notices) = args.server.config()?;
                return Ok(doctor::run(&config, &notices, args.json)?);
            }
            Some(Command::Manual(args)) => {
                manual::write(Self::command(), &args)?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(Command::Folder(command)) => return Ok(tools::exit_code(command.run())),
            Some(Command::Log(command)) => return Ok(tools::exit_code(command.run())),
            Some(Command::Snapshot(command)) => return Ok(tools::exit_code(command.run())),
            Some(Command::Scram(command)) => {
                command.run()?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(Command::Admin(command)) => {
                command.run()?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(Command::Backup(args)) => {
                backup::run(args)?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(Command::Restore(args)) => return Ok(restore::run(args)?),
            Some(Command::Tail(args)) => {
                tail::run(args)?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(Command::Import(args)) => {
                migrate::import(&args)?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(Command::Export(args)) => {
                migrate::export(&args)?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(Command::ExportConfig(args)) => {
                migrate::export_config(&args)?;
                return Ok(ExitCode::SUCCESS);
            }
        };
        if let Some(parent) = args.parent {
            ensemble::end_with(parent)?;
        }
        let (config, notices) = args.config()?;
        server::run(config, &notices)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Why a command failed: one sentence for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Server(#[from] StartError),
    #[error(transparent)]
    Ensemble(#[from] EnsembleError),
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    #[error(transparent)]
    Scram(#[from] ScramError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    Tail(#[from] TailError),
    #[error(transparent)]
    Manual(#[from] ManualError),
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl CliError {
    /// The process' exit code: `EX_CONFIG` of sysexits.h if starting again cannot help, so that a service
    /// manager leaves it at that.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Server(error) if error.is_final() => ExitCode::from(78),
            _ => ExitCode::FAILURE,
        }
    }
}

impl ServerArgs {
    fn config(self) -> Result<(Config, Vec<String>), StartError> {
        let (mut config, mut notices) = match &self.config {
            Some(path) => Config::read(path)?,
            None => (Config::default(), Vec::new()),
        };
        notices.extend(config.set_options(&self.options)?);
        if let Some(folder) = self.data_dir {
            config.data_dir = folder;
        }
        config.data_log_dir = self.data_log_dir.or(config.data_log_dir);
        config.client_port = self.client_port.unwrap_or(config.client_port);
        if let Some(address) = self.client_address {
            (config.client_address, config.client_scope_id) = (address, 0);
        }
        config.tick_time_ms = self.tick_time.unwrap_or(config.tick_time_ms);
        config.shards = self.shards.or(config.shards);
        config.log_format = self.log_format.unwrap_or(config.log_format);
        config.check_limits()?;
        config.read_logins()?;
        notices.extend(config.check_protection()?);
        Ok((config, notices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_and_options_override_the_defaults() {
        let cli =
            Cli::parse_from(["ringkeeper", "server", "-p", "2999", "-o", "tickTime=100", "--shards", "3"]);
        let Some(Command::Server(args)) = cli.command else { panic!("a server command") };
        let (config, notices) = args.config().expect("valid");
        assert_eq!((config.client_port, config.tick_time_ms, config.shards), (2999, 100, Some(3)));
        assert!(notices.is_empty());
    }

    #[test]
    fn an_option_without_a_value_is_refused() {
        let cli = Cli::parse_from(["ringkeeper", "-o", "tickTime"]);
        let error = cli.server.config().expect_err("no value").to_string();
        assert_eq!(error, "--option tickTime: not of the form KEY=VALUE");
    }
}
