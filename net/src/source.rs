//! Which running server is asked for its transactions and its state, and by whom.

use std::io;

use clap::Args;
use ringkeeper_backup::Source;
use ringkeeper_backup::http::{Http, HttpError};
use ringkeeper_shell::TlsArgs;
use tokio::runtime::Runtime;

use crate::admin::{AdminError, Credentials};

/// Where a running server is asked.
#[derive(Args)]
pub(crate) struct SourceArgs {
    /// The server's admin listener: ADDRESS:PORT, or with http:// or https:// [default: 127.0.0.1:8080]
    #[arg(short, long, value_name = "URL")]
    server: Option<String>,
    /// What stands in front of the names of commands (admin.commandURL)
    #[arg(long, value_name = "PATH", default_value = "/commands")]
    command_url: String,
    #[command(flatten)]
    credentials: Credentials,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Why no server can be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnusableSource {
    #[error(transparent)]
    Credentials(#[from] AdminError),
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl SourceArgs {
    /// Whether a server is named.
    pub(crate) fn is_named(&self) -> bool {
        self.server.is_some()
    }

    /// The server; asks for a password if a user is named.
    pub(crate) fn source(&self) -> Result<Source, UnusableSource> {
        let http = Http::new(self.tls.settings().as_ref())?;
        let server = self.server.as_deref().unwrap_or("127.0.0.1:8080");
        let server = match server.contains("://") {
            true => server.to_owned(),
            false => format!("http://{server}"),
        };
        let commands = format!("{}{}", server.trim_end_matches('/'), self.command_url);
        Ok(Source::new(http, commands, self.credentials.header()?))
    }
}

/// What requests are sent by.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
