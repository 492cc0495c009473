//! A server that the harness starts for one measurement, on an empty folder, and surely ends.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::system::System;
use crate::interrupt;
use crate::server_cpu::ServerProcesses;
use crate::session::{self, Session};

/// How long a server may take to serve its first session.
const START_MAX: Duration = Duration::from_secs(60);

/// Pause between two attempts to open that session.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// How much of a failed server's output is shown.
const LOG_LINES_SHOWN: usize = 20;

/// A running server. Dropping it kills the process and removes its folder; should the harness itself be
/// killed, the kernel kills the process (see [`crate::supervise`]).
pub(crate) struct Server {
    // Fields drop in this order: first the process ends, then its folder goes.
    child: KilledOnDrop,
    folder: TempDir,
    address: SocketAddr,
    processes: ServerProcesses,
}

impl Server {
    /// Starts `system` in a folder of its own inside `work_dir`, on `port` or, without one, on any free
    /// port, and waits until it serves sessions.
    pub(crate) fn start(system: &System, work_dir: &Path, port: Option<u16>) -> Result<Self> {
        let address = free_address(port)?;
        let folder = tempfile::Builder::new()
            .prefix("bench-")
            .tempdir_in(work_dir)
            .with_context(|| format!("no folder for the server in {}", work_dir.display()))?;
        let log = File::create(folder.path().join(LOG_NAME))?;
        let mut command = system.command(folder.path(), address)?;
        // A process group of its own: Ctrl-C reaches the harness, which ends the server when it is done.
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {}", system.name()))?;
        let mut child = KilledOnDrop(child);
        wait_until_serving(&mut child.0, address).with_context(|| {
            format!("{} did not start; its output ends with:\n{}", system.name(), log_tail(&folder))
        })?;
        let processes = ServerProcesses::of_pids(&[i32::try_from(child.0.id())?])?;
        Ok(Self { child, folder, address, processes })
    }

    /// Where it serves clients.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub(crate) const fn processes(&self) -> &ServerProcesses {
        &self.processes
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// The end of its output, to go with an error.
    pub(crate) fn log_tail(&self) -> String {
        log_tail(&self.folder)
    }
}

const LOG_NAME: &str = "server.log";

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // Both fail only if the child has ended already and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_address(port: Option<u16>) -> Result<SocketAddr> {
    let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0)));
    let listener = TcpListener::bind(wanted).with_context(|| format!("port {} is in use", wanted.port()))?;
    Ok(listener.local_addr()?)
}

fn wait_until_serving(child: &mut Child, address: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + START_MAX;
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("the process ended with {status}");
        }
        match Session::open(address) {
            Ok(session) => return session::close_all(vec![session]),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| format!("no session within {} s", START_MAX.as_secs()));
            }
            Err(_) => interrupt::sleep_until(Instant::now() + RETRY_PAUSE, || false)?,
        }
    }
}

fn log_tail(folder: &TempDir) -> String {
    let log = fs::read(folder.path().join(LOG_NAME)).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}
