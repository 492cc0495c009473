//! Servers that run already: which they are, how they are reached, and as whom.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, ensure};
use ringkeeper_shell::{LoginArgs, TlsArgs};

use crate::{args, login, tls};

/// What is said of servers that the harness starts: of running ones it has nothing to say.
const RUNNING_HAVE_NOT: [&str; 11] = [
    "ringkeeper",
    "ringkeeper_arg",
    "before",
    "zookeeper",
    "zookeeper_heap",
    "etcd",
    "floor",
    "tls",
    "monitored",
    "sizes",
    "port",
];

/// Servers to measure instead of starting any.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RunningArgs {
    /// Measure servers that run, host:port, separated by commas, instead of starting any
    #[arg(long, value_delimiter = ',', value_parser = args::server, conflicts_with_all = RUNNING_HAVE_NOT)]
    servers: Vec<args::Server>,
    #[command(flatten)]
    tls_files: TlsArgs,
    #[command(flatten)]
    login: LoginArgs,
}

impl RunningArgs {
    /// Whether there are such servers.
    pub(super) const fn is_there(&self) -> bool {
        !self.servers.is_empty()
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.address).collect()
    }

    /// Has the connections to the servers speak TLS and log in, as is asked.
    pub(super) fn secure(&self) -> Result<()> {
        let settings = self.tls_files.settings();
        if !self.is_there() {
            ensure!(
                settings.is_none() && !self.login.has_file(),
                "--tls-trust-store (RINGKEEPER_TLS_TRUST_STORE) and --login-file are for servers that run \
                 (--servers); for those that the harness starts, --tls makes certificates"
            );
            return Ok(());
        }
        if let Some(settings) = settings {
            let config = Arc::new(settings.load()?);
            let secure =
                |server: &args::Server| tls::secure(server.address, &server.host, Arc::clone(&config));
            self.servers.iter().for_each(secure);
        }
        self.login.user()?.into_iter().for_each(login::install);
        Ok(())
    }

    /// For the record: where they are, how they are reached, and by what mechanism the generator logs in.
    pub(super) fn describe(&self) -> String {
        let way = if self.tls_files.settings().is_some() { "TLS" } else { "in the clear" };
        let login = match self.login.user() {
            Ok(Some(user)) => format!(", logged in by {:?}", user.mechanism),
            _ => String::new(),
        };
        format!("{:?}, {way}{login}", self.addresses())
    }
}
