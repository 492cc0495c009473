//! The server that all clients are measured against.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use ringkeeper_client::{Client, Wait};
use tempfile::TempDir;

use crate::Compare;

/// Ended and removed when dropped, if it was started here.
pub(crate) struct Server {
    pub(crate) address: String,
    _started: Option<Started>,
}

struct Started {
    child: Child,
    _folder: TempDir,
}

impl Server {
    /// The one that is named, or one started for the run.
    pub(crate) fn of(options: &Compare) -> Result<Self> {
        if let Some(address) = &options.server {
            return Ok(Self { address: address.clone(), _started: None });
        }
        let binary = match &options.binary {
            Some(binary) => binary.clone(),
            None => std::env::current_exe()?.with_file_name("ringkeeper"),
        };
        let work_dir = options.work_dir.clone().unwrap_or_else(std::env::temp_dir);
        let port = match options.port {
            Some(port) => port,
            None => std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(),
        };
        Self::start(&binary, &work_dir, port)
    }

    fn start(binary: &PathBuf, work_dir: &Path, port: u16) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("client-bench-").tempdir_in(work_dir)?;
        let child = Command::new(binary)
            .args([
                "server",
                "--option",
                "maxClientCnxns=0",
                "--client-port",
                &port.to_string(),
                "--data-dir",
            ])
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let server =
            Self { address: format!("127.0.0.1:{port}"), _started: Some(Started { child, _folder: folder }) };
        let reached = Client::builder(&server.address).connect_timeout(Duration::from_secs(20)).connect();
        reached.wait().context("the server does not serve")?.close().wait()?;
        Ok(server)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
