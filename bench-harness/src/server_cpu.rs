//! What the servers take of the machine, read from `/proc`: CPU time, memory, and whose a port is.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::{FDTarget, Process};
use ringkeeper_testkit::{Ensemble, Server};

/// The processes whose CPU time and memory are measured.
pub(crate) struct ServerProcesses(Vec<Process>);

impl ServerProcesses {
    /// The processes with these ids.
    pub(crate) fn of_pids(pids: &[i32]) -> Result<Self> {
        let open = |pid: &i32| Process::new(*pid).with_context(|| format!("no process {pid}"));
        Ok(Self(pids.iter().map(open).collect::<Result<_>>()?))
    }

    /// Those of the servers that run.
    pub(crate) fn of(ensemble: &Ensemble) -> Result<Self> {
        let pids = ensemble.iter().filter_map(Server::pid).map(i32::try_from);
        Self::of_pids(&pids.collect::<Result<Vec<_>, _>>()?)
    }

    /// The processes that listen on `servers`, each once; `None` unless all of them run on this machine
    /// and their descriptors may be read.
    pub(crate) fn listening_on(servers: &[SocketAddr]) -> Option<Self> {
        let mut pids = Vec::new();
        for server in servers.iter().filter(|server| server.ip().is_loopback()) {
            pids.push(listening_pid(*server)?);
        }
        if pids.len() < servers.len() {
            return None;
        }
        pids.sort_unstable();
        pids.dedup();
        Self::of_pids(&pids).ok()
    }

    /// Their numbers.
    pub(crate) fn pids(&self) -> Vec<i32> {
        self.0.iter().map(|process| process.pid).collect()
    }

    /// User and system time of all their threads so far, ended ones and kernel workers of their io_urings
    /// included.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        let mut ticks = 0;
        for process in &self.0 {
            let stat = process.stat().with_context(|| format!("server process {} is gone", process.pid))?;
            ticks += stat.utime + stat.stime;
        }
        Ok(duration_of(ticks))
    }

    /// Resident memory of all of them, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let mut kib = 0;
        for process in &self.0 {
            let status = process.status()?;
            kib += status.vmrss.ok_or_else(|| anyhow!("process {} has no memory", process.pid))?;
        }
        Ok(kib * 1024)
    }
}

/// User and system time of everything that this process has started and that has ended: servers that it
/// killed are among them.
pub(crate) fn of_ended_children() -> Result<Duration> {
    let stat = Process::myself()?.stat()?;
    Ok(duration_of(u64::try_from(stat.cutime + stat.cstime)?))
}

fn duration_of(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1000 / procfs::ticks_per_second())
}

/// The process that listens on `server`, an address of this machine.
fn listening_pid(server: SocketAddr) -> Option<i32> {
    let inode = listener_inode(server)?;
    let has_inode = |process: &Process| {
        let Ok(mut descriptors) = process.fd() else { return false };
        descriptors.any(|fd| fd.is_ok_and(|fd| fd.target == FDTarget::Socket(inode)))
    };
    procfs::process::all_processes().ok()?.flatten().find(has_inode).map(|process| process.pid)
}

fn listener_inode(server: SocketAddr) -> Option<u64> {
    let mut sockets = procfs::net::tcp().unwrap_or_default();
    sockets.extend(procfs::net::tcp6().unwrap_or_default());
    let listens =
        |socket: &&TcpNetEntry| socket.state == TcpState::Listen && accepts(socket.local_address, server);
    sockets.iter().find(listens).map(|socket| socket.inode)
}

/// Whether a listener on `local` takes connections to `server`.
fn accepts(local: SocketAddr, server: SocketAddr) -> bool {
    local.port() == server.port()
        && (local.ip().is_unspecified() || local.ip().to_canonical() == server.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_listener_of_this_process_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(listening_pid(listener.local_addr().unwrap()), Some(own));
    }

    #[test]
    fn a_port_without_listener_has_no_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(listening_pid(address), None);
    }

    #[test]
    fn a_wildcard_listener_accepts_every_address_of_its_port() {
        let server: SocketAddr = "127.0.0.1:2181".parse().unwrap();
        for local in ["0.0.0.0:2181", "[::]:2181", "127.0.0.1:2181", "[::ffff:127.0.0.1]:2181"] {
            assert!(accepts(local.parse().unwrap(), server), "{local}");
        }
        for local in ["127.0.0.2:2181", "0.0.0.0:2182"] {
            assert!(!accepts(local.parse().unwrap(), server), "{local}");
        }
    }
}
