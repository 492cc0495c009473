//! What the harness starts for one measurement, on empty folders, and surely ends: a server, or an ensemble.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::system::System;
use crate::ensemble::Ensemble;
use crate::interrupt;
use crate::server_cpu::ServerProcesses;
use crate::session::{self, Session};
use crate::work_folder::WorkFolder;

/// How long a server may take to serve its first session.
const START_MAX: Duration = Duration::from_secs(60);

/// Pause between two attempts to open that session.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// How much of a failed server's output is shown.
const LOG_LINES_SHOWN: usize = 20;

/// A running service. Dropping it kills its processes and removes their folders; should the harness itself be
/// killed, the kernel kills the processes (see [`crate::supervise`]).
pub(crate) struct Server {
    running: Running,
    addresses: Vec<SocketAddr>,
    processes: ServerProcesses,
}

enum Running {
    // Fields drop in this order: first the process ends, then its folder goes.
    Alone(KilledOnDrop, WorkFolder),
    Ensemble(Ensemble),
}

impl Server {
    /// Starts `system` in a folder of its own inside `work_dir`, on `port` or, without one, on any free
    /// port, and waits until it serves sessions.
    pub(crate) fn start(system: &System, work_dir: &Path, port: Option<u16>) -> Result<Self> {
        let address = free_address(port)?;
        let folder = WorkFolder::new("server", work_dir)?;
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
        Ok(Self { running: Running::Alone(child, folder), addresses: vec![address], processes })
    }

    /// Starts an ensemble of `count` servers, on three ports each, and waits until one leads and all others follow.
    pub(crate) fn start_ensemble(
        system: &System,
        count: usize,
        work_dir: &Path,
        port: Option<u16>,
    ) -> Result<Self> {
        let mut ensemble = Ensemble::start(system, count, work_dir, port)?;
        ensemble.wait_for_leader().with_context(|| {
            format!("{} did not start; outputs end with:\n{}", system.name(), ensemble.log_tails())
        })?;
        let (addresses, processes) = (ensemble.addresses(), ensemble.processes()?);
        Ok(Self { running: Running::Ensemble(ensemble), addresses, processes })
    }

    /// Where it serves clients: one address for each server.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Its processes.
    pub(crate) const fn processes(&self) -> &ServerProcesses {
        &self.processes
    }

    /// Its process id, if it is one process.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.running {
            Running::Alone(child, _) => Some(child.0.id()),
            Running::Ensemble(_) => None,
        }
    }

    /// The end of its output, to go with an error.
    pub(crate) fn log_tail(&self) -> String {
        match &self.running {
            Running::Alone(_, folder) => log_tail(folder),
            Running::Ensemble(ensemble) => ensemble.log_tails(),
        }
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

fn log_tail(folder: &WorkFolder) -> String {
    let log = fs::read(folder.path().join(LOG_NAME)).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}
