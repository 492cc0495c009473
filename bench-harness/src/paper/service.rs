//! What is measured: an ensemble that the harness starts, or a service that runs already.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};

use crate::compare::{Server, System};
use crate::ensemble::{Ensemble, mode};
use crate::etcd;
use crate::measure::{Load, Measurement, measure};
use crate::server_cpu::ServerProcesses;
use crate::window::Surroundings;

/// A system to start, or servers that run.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    Own(System),
    Running(Vec<SocketAddr>),
}

/// Servers that serve.
pub(crate) struct Service {
    addresses: Vec<SocketAddr>,
    leader: Option<usize>,
    /// Of the servers, where they can be seen.
    processes: Option<ServerProcesses>,
    ensemble: Option<Ensemble>,
    /// Where it is one process, whatever the ensembles' size.
    alone: Option<Server>,
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

    /// Whether it is etcd, which has an API of its own.
    pub(crate) const fn is_etcd(&self) -> bool {
        matches!(self, Self::Own(System::Etcd { .. }))
    }

    /// Whether it is one process, whatever the ensembles' size.
    pub(crate) const fn is_one_process(&self) -> bool {
        matches!(self, Self::Own(System::Floor))
    }

    /// Starts an ensemble of `servers`, or takes what runs.
    pub(crate) fn serve(&self, servers: usize, work_dir: &Path, port: Option<u16>) -> Result<Service> {
        match self {
            Self::Own(system) if self.is_one_process() => Service::start_alone(system, work_dir, port),
            Self::Own(system) => Service::start(system, servers, work_dir, port),
            Self::Running(addresses) => Ok(Service {
                leader: addresses.iter().position(|server| mode(*server).is_ok_and(|mode| mode == "leader")),
                processes: ServerProcesses::listening_on(addresses),
                addresses: addresses.clone(),
                ensemble: None,
                alone: None,
                etcd: false,
            }),
        }
    }
}

impl Service {
    fn start(system: &System, servers: usize, work_dir: &Path, port: Option<u16>) -> Result<Self> {
        let mut ensemble = Ensemble::start(system, servers, work_dir, port)?;
        let leader = ensemble.wait_for_leader().with_context(|| {
            format!("{} did not start; outputs end with:\n{}", system.name(), ensemble.log_tails())
        })?;
        let (addresses, processes) = (ensemble.addresses(), Some(ensemble.processes()?));
        let etcd = matches!(system, System::Etcd { .. });
        Ok(Self { addresses, leader: Some(leader), processes, ensemble: Some(ensemble), alone: None, etcd })
    }

    fn start_alone(system: &System, work_dir: &Path, port: Option<u16>) -> Result<Self> {
        let server = Server::start(system, work_dir, port)?;
        let addresses = server.addresses().to_vec();
        let processes = ServerProcesses::listening_on(&addresses);
        Ok(Self { addresses, leader: Some(0), processes, ensemble: None, alone: Some(server), etcd: false })
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

    /// Where clients connect.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where clients of the leader connect.
    pub(crate) fn leader_address(&self) -> Result<SocketAddr> {
        let leader = self.leader.context("none of the servers says that it leads (srvr must be allowed)")?;
        Ok(self.addresses[leader])
    }

    pub(crate) const fn processes(&self) -> Option<&ServerProcesses> {
        self.processes.as_ref()
    }

    /// The servers, to be killed and started again.
    pub(crate) fn ensemble(&mut self) -> Result<&mut Ensemble> {
        self.ensemble.as_mut().context("servers that the harness did not start are not its to kill")
    }

    /// After servers were started again: takes the new processes for its own, when one of them leads again.
    pub(crate) fn renew(&mut self) -> Result<()> {
        let ensemble = self.ensemble()?;
        let leader = ensemble.wait_for_leader()?;
        let processes = ensemble.processes()?;
        (self.leader, self.processes) = (Some(leader), Some(processes));
        Ok(())
    }

    /// The ends of the servers' outputs, where they can be seen.
    pub(crate) fn log_tails(&self) -> Option<String> {
        let alone = self.alone.as_ref().map(Server::log_tail);
        alone.or_else(|| self.ensemble.as_ref().map(Ensemble::log_tails))
    }
}
