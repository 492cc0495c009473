//! What is measured: an ensemble that the harness starts, or a service that runs already.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use ringkeeper_testkit::{Ensemble, mode_on};

use crate::measure::{Load, Measurement, measure};
use crate::monitor::Monitor;
use crate::server_cpu::ServerProcesses;
use crate::system::System;
use crate::window::Surroundings;
use crate::{etcd, session};

/// How long servers may take to find a leader and follow it.
const START_MAX: Duration = Duration::from_secs(120);

/// A system to start, or servers that run.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    Own(System),
    Running(Vec<SocketAddr>),
}

/// Servers that serve.
pub(crate) struct Service {
    /// The leader's first.
    addresses: Vec<SocketAddr>,
    leader: Option<usize>,
    /// Of the servers, where they can be seen.
    processes: Option<ServerProcesses>,
    /// Who looks at the servers meanwhile; ends before they do.
    _monitor: Option<Monitor>,
    /// Those that the harness has started.
    ensemble: Option<Ensemble>,
    etcd: bool,
}

impl Subject {
    /// As tables and pictures name it.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Own(system) => system.name(),
            Self::Running(_) => "service",
        }
    }

    /// The system, if it is one that the harness starts.
    pub(crate) const fn system(&self) -> Option<&System> {
        match self {
            Self::Own(system) => Some(system),
            Self::Running(_) => None,
        }
    }

    /// Whether it is ringkeeper, now or before.
    pub(crate) fn is_ringkeeper(&self) -> bool {
        matches!(self, Self::Own(system) if system.is_ringkeeper())
    }

    /// Whether it is etcd, which has an API of its own.
    pub(crate) fn is_etcd(&self) -> bool {
        matches!(self, Self::Own(system) if system.is_etcd())
    }

    /// Whether it is made of bare servers.
    pub(crate) fn is_floor(&self) -> bool {
        matches!(self, Self::Own(system) if system.is_floor())
    }

    /// Starts an ensemble of `servers`, or takes what runs. `pids`: processes of the servers that run.
    pub(crate) fn serve(
        &self,
        servers: usize,
        work_dir: &Path,
        port: Option<u16>,
        pids: &[i32],
    ) -> Result<Service> {
        match self {
            Self::Own(system) => Service::start(system, servers, work_dir, port),
            Self::Running(addresses) => {
                let leader = leader_of(addresses);
                Ok(Service {
                    leader,
                    processes: match pids {
                        [] => ServerProcesses::listening_on(addresses),
                        pids => Some(ServerProcesses::of_pids(pids)?),
                    },
                    addresses: leader_first(addresses.clone(), leader),
                    ensemble: None,
                    _monitor: None,
                    etcd: false,
                })
            }
        }
    }
}

impl Service {
    /// Starts an ensemble of `servers`, or one server alone.
    pub(crate) fn start(system: &System, servers: usize, work_dir: &Path, port: Option<u16>) -> Result<Self> {
        Self::of(system, system.ensemble(servers, work_dir, port)?)
    }

    /// Starts these servers of `system`.
    pub(crate) fn of(system: &System, ensemble: Ensemble) -> Result<Self> {
        ensemble.launch()?;
        let leader =
            ensemble.leader(START_MAX).with_context(|| format!("{} did not start", system.name()))?;
        let (addresses, processes) = (ensemble.addresses(), Some(ServerProcesses::of(&ensemble)?));
        let monitor = system.monitor(&addresses)?;
        Ok(Self {
            addresses: leader_first(addresses, Some(leader)),
            leader: Some(leader),
            processes,
            ensemble: Some(ensemble),
            _monitor: monitor,
            etcd: system.is_etcd(),
        })
    }

    /// Whether it is etcd, which has an API of its own.
    pub(crate) const fn is_etcd(&self) -> bool {
        self.etcd
    }

    /// Runs `load` against these of its servers once, through its own API.
    pub(crate) fn measure(
        &self,
        servers: &[SocketAddr],
        around: Surroundings<'_>,
        load: &Load,
    ) -> Result<Measurement> {
        if !self.etcd {
            return measure(servers, around, load);
        }
        let outstanding = etcd::bearable(load.outstanding, load.sessions);
        etcd::measure(servers, around, &Load { outstanding, ..load.clone() })
    }

    /// Where clients connect, the leader's first: in every system, a client alone has the leader's server.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where clients of the leader connect.
    pub(crate) fn leader_address(&self) -> Result<SocketAddr> {
        self.leader.context("none of the servers says that it leads (srvr must be allowed)")?;
        Ok(self.addresses[0])
    }

    /// The process that leads.
    fn leader_process(&self) -> Result<ServerProcesses> {
        let leader = self.leader.context("a leader")?;
        let pid = self.ensemble()?.server(leader).pid().context("the leader runs")?;
        ServerProcesses::of_pids(&[i32::try_from(pid)?])
    }

    /// CPU seconds of the server that leads and of all together, so far.
    pub(crate) fn cpu_times(&self) -> Result<(f64, f64)> {
        let (leader, all) = (self.leader_process()?, self.processes().context("own servers")?);
        Ok((leader.cpu_time()?.as_secs_f64(), all.cpu_time()?.as_secs_f64()))
    }

    pub(crate) const fn processes(&self) -> Option<&ServerProcesses> {
        self.processes.as_ref()
    }

    /// The servers, to be killed and started again.
    pub(crate) fn ensemble(&self) -> Result<&Ensemble> {
        self.ensemble.as_ref().context("servers that the harness did not start are not its to kill")
    }

    /// Waits until one of the harness's servers leads and the others follow; which one leads.
    pub(crate) fn wait_for_leader(&self) -> Result<usize> {
        self.ensemble()?.leader(START_MAX)
    }

    /// After servers were started again: takes the new processes for its own, when one of them leads again.
    pub(crate) fn renew(&mut self) -> Result<()> {
        self.leader = Some(self.wait_for_leader()?);
        self.addresses = leader_first(self.ensemble()?.addresses(), self.leader);
        self.processes = Some(ServerProcesses::of(self.ensemble()?)?);
        Ok(())
    }

    /// The ends of the servers' outputs, where they can be seen.
    pub(crate) fn log_tails(&self) -> Option<String> {
        self.ensemble.as_ref().map(Ensemble::log_tails)
    }
}

fn leader_first(mut servers: Vec<SocketAddr>, leader: Option<usize>) -> Vec<SocketAddr> {
    servers.swap(0, leader.unwrap_or(0));
    servers
}

fn leader_of(servers: &[SocketAddr]) -> Option<usize> {
    let mode = |server: &SocketAddr| mode_on(session::dial(*server).ok()?);
    servers.iter().position(|server| matches!(mode(server).as_deref(), Some("leader" | "standalone")))
}
