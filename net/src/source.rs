//! Which running server is asked for its transactions and its state, and by whom.

use std::io;
use std::path::PathBuf;

use clap::Args;
use ringkeeper_backup::Source;
use ringkeeper_backup::http::{Http, HttpError};
use ringkeeper_tls::ClientSettings;
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

/// The stores for `https://`.
#[derive(Args)]
pub(crate) struct TlsArgs {
    /// Speak TLS with servers whose certificates these authorities have signed (.pem, .p12, .jks)
    #[arg(long, value_name = "FILE", env = "RINGKEEPER_TLS_TRUST_STORE")]
    tls_trust_store: Option<PathBuf>,
    /// The private key and certificates to show to servers (.pem, .p12, .jks)
    #[arg(long, value_name = "FILE", env = "RINGKEEPER_TLS_KEY_STORE", requires = "tls_trust_store")]
    tls_key_store: Option<PathBuf>,
    /// A file with the password of both stores
    #[arg(long, value_name = "FILE", env = "RINGKEEPER_TLS_PASSWORD_FILE", requires = "tls_trust_store")]
    tls_password_file: Option<PathBuf>,
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

impl TlsArgs {
    fn settings(&self) -> Option<ClientSettings> {
        let mut settings = ClientSettings::trusting(self.tls_trust_store.clone()?);
        if let Some(file) = &self.tls_key_store {
            settings = settings.with_key_store(file);
        }
        if let Some(file) = &self.tls_password_file {
            settings = settings.with_password_file(file);
        }
        Some(settings)
    }
}

/// What requests are sent by.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
