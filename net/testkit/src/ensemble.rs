//! Servers that form an ensemble, or one that serves alone.

use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::{Network, Program, Seat, Server, WorkFolder, wait_for};

/// Servers of one program, each in a folder of its own. Dropped, they are killed and their folders removed.
pub struct Ensemble {
    // Fields drop in this order: processes end before their network and their folders go.
    servers: Vec<Server>,
    seats: Vec<Seat>,
    network: Option<Network>,
    folder: WorkFolder,
}

impl Ensemble {
    /// Servers in these seats, none of which runs yet, with `settings` in each configuration.
    ///
    /// # Errors
    /// Their folders cannot be written.
    pub fn new(program: &Program, seats: Vec<Seat>, settings: &str, folder: WorkFolder) -> Result<Self> {
        Self::of(seats, folder, |own, seat, all| program.server(own, seat, all, settings))
    }

    /// Servers of any kind: `server` makes one of them from its folder, its seat and all seats.
    ///
    /// # Errors
    /// Their folders cannot be written.
    pub fn of(
        seats: Vec<Seat>,
        folder: WorkFolder,
        server: impl Fn(PathBuf, &Seat, &[Seat]) -> Result<Server>,
    ) -> Result<Self> {
        let server = |seat: &Seat| {
            let own = folder.path().join(seat.id.to_string());
            fs::create_dir(&own)?;
            server(own, seat, &seats)
        };
        let servers = seats.iter().map(server).collect::<Result<_>>()?;
        Ok(Self { servers, seats, network: None, folder })
    }

    /// Starts servers in these seats and waits until they serve: one leads, the others follow.
    ///
    /// # Errors
    /// It does not come to that within `limit`.
    pub fn start(
        program: &Program,
        seats: Vec<Seat>,
        settings: &str,
        folder: WorkFolder,
        limit: Duration,
    ) -> Result<Self> {
        let ensemble = Self::new(program, seats, settings, folder)?;
        ensemble.launch()?;
        ensemble.leader(limit)?;
        Ok(ensemble)
    }

    /// Keeps the network that the seats are on as long as the servers.
    #[must_use]
    pub fn with_network(self, network: Option<Network>) -> Self {
        Self { network, ..self }
    }

    /// The servers' numbers, from 0.
    #[must_use]
    pub fn servers(&self) -> Range<usize> {
        0..self.servers.len()
    }

    /// One of the servers.
    ///
    /// # Panics
    /// There is no server of that number.
    #[must_use]
    pub fn server(&self, server: usize) -> &Server {
        &self.servers[server]
    }

    /// All servers.
    pub fn iter(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter()
    }

    /// Where the servers are.
    #[must_use]
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// The network between the servers, if it can come apart.
    #[must_use]
    pub const fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// The folder in which the servers' folders are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where clients connect.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(Server::address).collect()
    }

    /// The same for a client of ZooKeeper.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Starts all servers, without waiting.
    ///
    /// # Errors
    /// One of them cannot be started.
    pub fn launch(&self) -> Result<()> {
        self.servers.iter().try_for_each(Server::launch)
    }

    /// Waits until all servers serve.
    ///
    /// # Errors
    /// One of them does not within `limit`.
    pub fn wait_until_serving(&self, limit: Duration) -> Result<()> {
        self.servers.iter().try_for_each(|server| server.wait_until_serving(limit))
    }

    /// Waits until one of `servers` leads and the others follow; which one leads. A server alone is its own
    /// leader.
    ///
    /// # Errors
    /// It does not come to that within `limit`, or one of them ends by itself.
    pub fn leader_among(&self, servers: &[usize], limit: Duration) -> Result<usize> {
        if let ([alone], 1) = (servers, self.servers.len()) {
            self.servers[*alone].wait_until_serving(limit)?;
            return Ok(*alone);
        }
        let leader = wait_for("a leader with all followers", limit, || {
            for server in servers.iter().map(|server| &self.servers[*server]) {
                if let Some(status) = server.ended() {
                    bail!("the server {} has ended by itself, with {status}", server.address());
                }
            }
            let modes: Option<Vec<_>> = servers.iter().map(|server| self.servers[*server].mode()).collect();
            let Some(modes) = modes else { return Ok(None) };
            let followers = modes.iter().filter(|mode| *mode == "follower" || *mode == "observer").count();
            let leader = modes.iter().position(|mode| mode == "leader");
            Ok(leader.filter(|_| followers == servers.len() - 1).map(|leader| servers[leader]))
        });
        leader.map_err(|error| error.context(format!("outputs end with:\n{}", self.log_tails())))
    }

    /// Waits until one of the servers that were started leads and the others follow; which one leads.
    ///
    /// # Errors
    /// It does not come to that within `limit`.
    pub fn leader(&self, limit: Duration) -> Result<usize> {
        let started: Vec<_> = self.servers().filter(|server| self.servers[*server].is_started()).collect();
        self.leader_among(&started, limit)
    }

    /// The last lines of each server's output.
    #[must_use]
    pub fn log_tails(&self) -> String {
        let tail = |server: &Server| format!("{}:\n{}\n", server.address(), server.log_tail());
        self.servers.iter().map(tail).collect()
    }

    /// Kills the servers and removes their network and their folders, as dropping does.
    pub fn end(&self) {
        self.servers.iter().for_each(Server::kill);
        if let Some(network) = &self.network {
            network.remove();
        }
        // What cannot be removed stays, in a folder for temporary files.
        let _ = fs::remove_dir_all(self.folder());
    }
}
