//! `ringkeeper admin`: questions to the admin listener of a running server, and commands.

use std::io::{self, IsTerminal, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::why_slow::{self, WhySlowArgs};

/// The admin listener answers within 30 seconds.
const PATIENCE: Duration = Duration::from_secs(40);

/// What a running server can be asked.
#[derive(Subcommand)]
pub(crate) enum AdminCommand {
    /// Shows what the slow requests of a server waited for, and what to do about it
    WhySlow(WhySlowArgs),
    /// Shows the levels of a server's log, or changes one at once
    LogLevel(LogLevelArgs),
    /// Has the leader hand leadership over to another server; clients stay connected
    Lead(LeadArgs),
}

/// Where the server is asked.
#[derive(Args)]
pub(crate) struct Listener {
    /// The server's admin listener, in the clear
    #[arg(short, long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    address: SocketAddr,
    /// What stands in front of the names of commands (admin.commandURL)
    #[arg(long, value_name = "PATH", default_value = "/commands")]
    command_url: String,
}

/// Who asks for a change: whoever has every permission on `/`.
#[derive(Args)]
pub(crate) struct Credentials {
    /// A user of the scheme digest; asks for the password at the terminal, or reads a line from standard
    /// input. Without it the scheme ip is used
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
}

#[derive(Args)]
pub(crate) struct LeadArgs {
    /// The server that is to lead, by its id (myid)
    #[arg(value_name = "ID")]
    server: u64,
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
    #[error(
        "{address} does not answer: {source}; name the server's admin listener (--address). If it speaks TLS \
         alone, ask for its command {command} with curl"
    )]
    Silent { address: SocketAddr, command: String, source: io::Error },
    #[error("no answer of a command, but {0:?}: is it ringkeeper's admin listener?")]
    Other(String),
    #[error("the server says: {0}")]
    Refused(String),
    #[error("the password cannot be read: {0}")]
    Password(io::Error),
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
        }
    }
}

impl LeadArgs {
    fn run(self) -> Result<(), AdminError> {
        let server = self.server.to_string();
        let answer = self.listener.post("hand_over", &[("server", Some(&server))], &self.credentials)?;
        Ok(writeln!(io::stdout(), "server {} leads", parse(&answer)?["leader_id"])?)
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

impl Listener {
    /// The answer of a command.
    pub(crate) fn get(&self, command: &str) -> Result<String, AdminError> {
        self.ask("GET", command, command, "")
    }

    /// The answer of a command that changes something.
    pub(crate) fn post(
        &self,
        command: &str,
        pairs: &[(&str, Option<&str>)],
        credentials: &Credentials,
    ) -> Result<String, AdminError> {
        let pairs = pairs.iter().filter_map(|(key, value)| Some(format!("{key}={}", escaped((*value)?))));
        let target = format!("{command}?{}", pairs.collect::<Vec<_>>().join("&"));
        let header = format!("authorization: {}\r\ncontent-length: 0\r\n", credentials.header()?);
        self.ask("POST", command, &target, &header)
    }

    fn ask(&self, method: &str, command: &str, target: &str, header: &str) -> Result<String, AdminError> {
        let (address, url) = (self.address, &self.command_url);
        let ask = || {
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let rest = format!("host: {address}\r\nconnection: close\r\n{header}\r\n");
            write!(stream, "{method} {url}/{target} HTTP/1.1\r\n{rest}")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned()))
        };
        ask().map_err(|source| AdminError::Silent { address, command: command.to_owned(), source })
    }
}

impl Credentials {
    /// The value of the header `Authorization`.
    pub(crate) fn header(&self) -> Result<String, AdminError> {
        let Some(user) = &self.user else { return Ok("ip".to_owned()) };
        let password = match io::stdin().is_terminal() {
            true => rpassword::prompt_password(format!("Password of {user}: ")),
            false => {
                io::read_to_string(io::stdin()).map(|line| line.trim_end_matches(['\r', '\n']).to_owned())
            }
        };
        let password = password.map_err(AdminError::Password)?;
        let visible = |c: char| !c.is_ascii_control();
        if !user.chars().chain(password.chars()).all(visible) {
            return Err(AdminError::Password(io::ErrorKind::InvalidInput.into()));
        }
        Ok(format!("digest {user}:{password}"))
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

/// A value as it stands in a URL.
fn escaped(value: &str) -> String {
    value
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'-' | b'.' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
