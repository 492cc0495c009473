//! Servers of one system that form an ensemble, one of which may be killed now and then.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::compare::System;
use crate::interrupt;
use crate::server_cpu::ServerProcesses;
use crate::work_folder::WorkFolder;

/// How long servers may take to find a leader and follow it.
const START_MAX: Duration = Duration::from_secs(120);

/// How long a server may take to say what it is.
const ANSWER_MAX: Duration = Duration::from_secs(2);

const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// How much of each server's output is shown with an error.
const LOG_LINES_SHOWN: usize = 10;

/// A running ensemble. Dropping it kills its processes and removes its folder.
pub(crate) struct Ensemble {
    members: Vec<Member>,
    system: System,
    _folder: WorkFolder,
}

struct Member {
    folder: PathBuf,
    client: SocketAddr,
    child: Option<Child>,
}

/// A server's number and ports, all on the loopback address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    /// From 1.
    pub(crate) id: usize,
    client: u16,
    /// Where servers speak to the leader, or to each other.
    pub(crate) quorum: u16,
    /// Where servers vote.
    pub(crate) election: u16,
}

impl Seat {
    /// Seats for servers that have three of the ports each.
    pub(crate) fn of_all(ports: &[u16]) -> Vec<Self> {
        let seat = |(id, ports): (usize, &[u16])| {
            let &[client, quorum, election] = ports else { unreachable!("chunks of three") };
            Self { id, client, quorum, election }
        };
        (1..).zip(ports.chunks_exact(3)).map(seat).collect()
    }

    /// Where clients connect.
    pub(crate) fn client(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.client).into()
    }
}

impl Ensemble {
    /// Starts `count` servers in folders of their own inside `work_dir`, on three ports each from `port` on or, without
    /// one, on any that are free.
    pub(crate) fn start(system: &System, count: usize, work_dir: &Path, port: Option<u16>) -> Result<Self> {
        let folder = WorkFolder::new("ensemble", work_dir)?;
        let seats: Vec<Seat> = Seat::of_all(&ports(count, port)?);
        let mut members = Vec::new();
        for seat in &seats {
            let own = folder.path().join(seat.id.to_string());
            fs::create_dir(&own)?;
            system.write_ensemble_member(&own, *seat, &seats)?;
            members.push(Member { folder: own, client: seat.client(), child: None });
        }
        let mut ensemble = Self { members, system: system.clone(), _folder: folder };
        for server in 0..count {
            ensemble.restart(server)?;
        }
        Ok(ensemble)
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.system.name()
    }

    /// Where clients connect.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.client).collect()
    }

    /// The processes of the servers that run.
    pub(crate) fn processes(&self) -> Result<ServerProcesses> {
        let running = self.members.iter().filter_map(|member| member.child.as_ref());
        let pids: Vec<_> = running.map(|child| i32::try_from(child.id())).collect::<Result<_, _>>()?;
        ServerProcesses::of_pids(&pids)
    }

    /// Waits until one server leads and all others follow; which one leads.
    pub(crate) fn wait_for_leader(&mut self) -> Result<usize> {
        let deadline = Instant::now() + START_MAX;
        loop {
            let mode = |member: &Member| self.system.mode(member.client).unwrap_or_default();
            let modes: Vec<_> = self.members.iter().map(mode).collect();
            let of = |mode: &str| modes.iter().filter(|other| *other == mode).count();
            if let (1, Some(leader)) = (of("leader"), modes.iter().position(|mode| mode == "leader"))
                && of("follower") == self.members.len() - 1
            {
                return Ok(leader);
            }
            if Instant::now() > deadline {
                bail!("no leader with all followers within {} s, but {modes:?}", START_MAX.as_secs());
            }
            interrupt::sleep_until(Instant::now() + RETRY_PAUSE, || false)?;
        }
    }

    /// Waits until a server says that it leads, whether or not others follow yet; which one.
    pub(crate) fn leader(&self) -> Result<usize> {
        let deadline = Instant::now() + START_MAX;
        loop {
            let running = self.members.iter().enumerate().filter(|(_, member)| member.child.is_some());
            let mut leaders = running
                .filter(|(_, member)| self.system.mode(member.client).is_ok_and(|mode| mode == "leader"));
            if let Some((leader, _)) = leaders.next() {
                return Ok(leader);
            }
            if Instant::now() > deadline {
                bail!("no server leads within {} s", START_MAX.as_secs());
            }
            interrupt::sleep_until(Instant::now() + RETRY_PAUSE, || false)?;
        }
    }

    /// `kill -9`; the moment just before.
    pub(crate) fn kill(&mut self, server: usize) -> Result<Instant> {
        let mut child = self.members[server].child.take().context("the server runs")?;
        let before = Instant::now();
        child.kill()?;
        child.wait()?;
        Ok(before)
    }

    /// Starts a server that does not run.
    pub(crate) fn restart(&mut self, server: usize) -> Result<()> {
        let member = &mut self.members[server];
        let log = File::options().create(true).append(true).open(member.folder.join("server.log"))?;
        let mut command = self.system.ensemble_command(&member.folder)?;
        command.current_dir(&member.folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // Ctrl-C reaches the harness, which ends the servers when it is done.
        let child = command.process_group(0).spawn();
        member.child = Some(child.with_context(|| format!("cannot start {}", self.system.name()))?);
        Ok(())
    }

    /// The ends of the servers' outputs, to go with an error.
    pub(crate) fn log_tails(&self) -> String {
        let tail = |member: &Member| {
            let log = fs::read_to_string(member.folder.join("server.log")).unwrap_or_default();
            last_lines(&log)
        };
        self.members.iter().map(tail).collect::<Vec<_>>().join("\n\n")
    }
}

/// What is shown with an error of a process that has said this.
pub(crate) fn last_lines(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        for child in self.members.iter_mut().filter_map(|member| member.child.as_mut()) {
            // Both fail only if it has ended already and been waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Client, quorum and election port of each of `count` servers.
pub(crate) fn ports(count: usize, first: Option<u16>) -> Result<Vec<u16>> {
    let wanted = (0..3 * u16::try_from(count)?).map(|index| first.map_or(0, |first| first + index));
    let listeners = wanted.map(|port| {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| format!("port {port} is in use"))
    });
    // All at once, so that no port is given twice.
    let listeners: Vec<_> = listeners.collect::<Result<_>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// What a server says it is.
pub(crate) fn mode(server: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(b"srvr")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
    Ok(mode.context("it does not serve")?.to_owned())
}
