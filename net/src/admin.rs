//! `ringkeeper admin`: questions to the admin listener of a running server, and commands.

pub(crate) mod listener;

use std::io::{self, Write};

use clap::{Args, Subcommand};
use serde_json::Value;

use self::listener::{Credentials, Listener, ListenerError};
use crate::why_slow::{self, WhySlowArgs};

/// What a running server can be asked.
#[derive(Subcommand)]
pub(crate) enum AdminCommand {
    /// Shows what the slow requests of a server waited for, and what to do about it
    WhySlow(WhySlowArgs),
    /// Shows the levels of a server's log, or changes one at once
    LogLevel(LogLevelArgs),
    /// Has the leader hand leadership over to another server; clients stay connected
    Lead(LeadArgs),
    /// Shows the feature level of an ensemble, or has its leader lower it, or raise it again
    FeatureLevel(FeatureLevelArgs),
}

#[derive(Args)]
pub(crate) struct FeatureLevelArgs {
    /// Lowers the level to N, so that servers of older builds may join, and holds it there
    #[arg(long, value_name = "N", conflicts_with = "raise")]
    lower: Option<u8>,
    /// Lets the leader raise the level again, as far as all members can
    #[arg(long)]
    raise: bool,
    #[command(flatten)]
    listener: Listener,
    #[command(flatten)]
    credentials: Credentials,
}

#[derive(Args)]
pub(crate) struct LeadArgs {
    /// The server that is to lead, by its id (myid)
    #[arg(value_name = "ID")]
    id: u64,
    #[command(flatten)]
    listener: Listener,
    #[command(flatten)]
    credentials: Credentials,
}

#[derive(Args)]
pub(crate) struct LogLevelArgs {
    /// off, error, warn, info, debug or trace; or usual, as at the start. A target is the beginning of a
    /// module's name; without one all change that have no level of their own
    #[arg(value_name = "[TARGET=]LEVEL")]
    level: Option<String>,
    /// Takes the change back after this time, such as 30s, 10m or 2h
    #[arg(long = "for", value_name = "TIME", requires = "level")]
    lasts: Option<String>,
    #[command(flatten)]
    listener: Listener,
    #[command(flatten)]
    credentials: Credentials,
}

/// Why there is no answer: one sentence for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    #[error(transparent)]
    Listener(#[from] ListenerError),
    #[error("no answer of a command, but {0:?}: is it ringkeeper's admin listener?")]
    Other(String),
    #[error("the server says: {0}")]
    Refused(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl AdminCommand {
    /// Asks, and shows the answer.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn run(self) -> Result<(), AdminError> {
        match self {
            Self::WhySlow(args) => why_slow::run(&args),
            Self::LogLevel(args) => args.run(),
            Self::Lead(args) => args.run(),
            Self::FeatureLevel(args) => args.run(),
        }
    }
}

impl LeadArgs {
    fn run(self) -> Result<(), AdminError> {
        let id = self.id.to_string();
        let answer = self.listener.post("hand_over", &[("server", Some(&id))], &self.credentials)?;
        Ok(writeln!(io::stdout(), "server {} leads", parse(&answer)?["leader_id"])?)
    }
}

impl FeatureLevelArgs {
    fn run(self) -> Result<(), AdminError> {
        let lower = self.lower.map(|level| level.to_string());
        let pairs = [("lower", lower.as_deref()), ("raise", self.raise.then_some("true"))];
        let answer = match pairs.iter().any(|(_, value)| value.is_some()) {
            true => self.listener.post("feature_level", &pairs, &self.credentials)?,
            false => self.listener.get("feature_level")?,
        };
        let answer = parse(&answer)?;
        let held = if answer["held"] == true { ", held until --raise" } else { "" };
        let mut out = format!("feature level {}{held}\n", answer["level"]);
        for member in answer["members"].as_array().into_iter().flatten() {
            let id = &member["id"];
            out += &match member["level"].as_u64() {
                Some(level) => format!("server {id} can do level {level}\n"),
                None => format!("server {id} is not connected\n"),
            };
        }
        Ok(io::stdout().write_all(out.as_bytes())?)
    }
}

impl LogLevelArgs {
    fn run(self) -> Result<(), AdminError> {
        let answer = match &self.level {
            None => self.listener.get("log_level")?,
            Some(level) => {
                let (target, level) = level
                    .split_once('=')
                    .map_or((None, level.as_str()), |(target, level)| (Some(target), level));
                let pairs = [("target", target), ("level", Some(level)), ("for", self.lasts.as_deref())];
                self.listener.post("log_level", &pairs, &self.credentials)?
            }
        };
        let answer = parse(&answer)?;
        let mut out = format!("{}\n", answer["levels"].as_str().unwrap_or_default());
        for change in answer["changes"].as_array().into_iter().flatten() {
            let target = change["target"].as_str().unwrap_or("the rest");
            let level = change["level"].as_str().unwrap_or_default();
            let left = change["seconds_left"].as_u64().map(|seconds| format!(" for {seconds} s"));
            out += &format!("changed: {target} to {level}{}\n", left.unwrap_or_default());
        }
        Ok(io::stdout().write_all(out.as_bytes())?)
    }
}

impl AdminError {
    /// Something else than an answer of a command.
    pub(crate) fn other(answer: &str) -> Self {
        Self::Other(answer.chars().take(80).collect())
    }
}

/// The answer of a command.
///
/// # Errors
/// It is none, or tells an error.
pub(crate) fn parse(answer: &str) -> Result<Value, AdminError> {
    let value: Value = serde_json::from_str(answer).map_err(|_| AdminError::other(answer))?;
    match value["error"].as_str() {
        Some(error) => Err(AdminError::Refused(error.to_owned())),
        None => Ok(value),
    }
}
