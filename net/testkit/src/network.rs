//! A network that can come apart: each server in a network namespace of its own, all on one bridge, and the
//! clients at the bridge itself. Further bridges may connect the servers alone. Needs root and iproute2.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::Seat;
use crate::relay::{PORT, Relay};

/// 198.18.0.0/15 is set aside for tests of networks: so many of 256 addresses.
const SUBNETS: u32 = 512;
/// Last byte of the clients' address.
const CLIENTS_HOST: u8 = 254;

/// Someone on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A server, counted from 0.
    Server(usize),
    /// All clients.
    Clients,
}

/// A loss of packets, until it is healed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// What a server sends to someone is lost.
    Route(usize, Place),
    /// A server's cable is pulled: whatever it sends and whatever is sent to it is lost.
    Cable(usize),
    /// One of the networks among the servers is down.
    Lan(usize),
}

/// Namespaces joined by a bridge. Dropped, they are removed, after the servers have ended.
pub struct Network {
    name: String,
    /// The first three bytes of all addresses.
    subnet: [u8; 3],
    /// The same of the networks among the servers.
    lans: Vec<(String, [u8; 3])>,
    servers: usize,
    cuts: Mutex<Vec<Cut>>,
    /// Between servers that are far apart.
    relay: Option<Relay>,
}

impl Network {
    /// A network for so many servers, or why there is none.
    ///
    /// # Errors
    /// This user may not, or there is no iproute2.
    pub fn make(servers: usize) -> Result<Self> {
        let (name, subnet) = Self::begin()?;
        let network = Self { name, subnet, lans: Vec::new(), servers, cuts: Mutex::default(), relay: None };
        let name = &network.name;
        ip(&format!("addr add {}/24 dev {name}", network.address(Place::Clients)))?;
        ip(&format!("link set {name} up"))?;
        for server in 0..servers {
            let (namespace, cable) = (network.namespace(server), Self::cable(name, server));
            ip(&format!("netns add {namespace}"))?;
            ip(&format!("link add {cable} type veth peer name eth0 netns {namespace}"))?;
            ip(&format!("link set {cable} master {name} up"))?;
            ip(&format!("-n {namespace} addr add {}/24 dev eth0", network.address(Place::Server(server))))?;
            ip(&format!("-n {namespace} link set eth0 up"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
        }
        Ok(network)
    }

    /// Such a network, and so many more among the servers alone.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn make_with_lans(servers: usize, lans: usize) -> Result<Self> {
        let mut network = Self::make(servers)?;
        for lan in 0..lans {
            network.lans.push(Self::begin()?);
            let (name, _) = &network.lans[lan];
            ip(&format!("link set {name} up"))?;
            for server in 0..servers {
                let (namespace, cable, own) = (network.namespace(server), Self::cable(name, server), lan + 1);
                let address = network.lan_address(lan, server);
                ip(&format!("link add {cable} type veth peer name eth{own} netns {namespace}"))?;
                ip(&format!("link set {cable} master {name} up"))?;
                ip(&format!("-n {namespace} addr add {address}/24 dev eth{own}"))?;
                ip(&format!("-n {namespace} link set eth{own} up"))?;
            }
        }
        Ok(network)
    }

    /// Such a network, and another one among the servers alone, whose packets take so long.
    ///
    /// # Errors
    /// As [`Self::make`]; or there is no VXLAN.
    pub fn make_far(servers: usize, delay: Duration) -> Result<Self> {
        let mut network = Self::make(servers)?;
        network.lans.push(Self::begin()?);
        let relay = network.address(Place::Clients);
        let places = (0..servers).map(|server| network.address(Place::Server(server)));
        network.relay = Some(Relay::start(relay, places.collect(), delay)?);
        for server in 0..servers {
            let (namespace, own) = (network.namespace(server), network.address(Place::Server(server)));
            let far = format!("type vxlan id 1 local {own} remote {relay} dstport {PORT}");
            ip(&format!("-n {namespace} link add eth1 {far}"))?;
            ip(&format!("-n {namespace} addr add {}/24 dev eth1", network.lan_address(0, server)))?;
            // What fits into a packet with VXLAN's headers around it, one at a time.
            ip(&format!("-n {namespace} link set eth1 mtu 1450 gso_max_segs 1 up"))?;
        }
        Ok(network)
    }

    /// Makes a bridge with a subnet that nobody else has.
    fn begin() -> Result<(String, [u8; 3])> {
        let first = std::process::id() % SUBNETS;
        let free = (first..SUBNETS).chain(0..first).find_map(Self::begin_with);
        free.context("no bridge can be made")
    }

    fn begin_with(number: u32) -> Option<(String, [u8; 3])> {
        let [_, _, high, low] = number.to_be_bytes();
        let subnet @ [a, b, c] = [198, 18 + high, low];
        let name = format!("rk{number}");
        let routes = ip(&format!("-4 route show exact {a}.{b}.{c}.0/24")).ok()?;
        (routes.is_empty() && ip(&format!("link add {name} type bridge")).is_ok()).then_some((name, subnet))
    }

    /// Where someone is.
    ///
    /// # Panics
    /// A server's number is above 250.
    #[must_use]
    pub fn address(&self, place: Place) -> Ipv4Addr {
        let [a, b, c] = self.subnet;
        let host = match place {
            Place::Server(server) => 1 + u8::try_from(server).expect("few servers"),
            Place::Clients => CLIENTS_HOST,
        };
        Ipv4Addr::new(a, b, c, host)
    }

    /// Where a server is in one of the networks among the servers.
    ///
    /// # Panics
    /// There is no such network, or the server's number is above 250.
    #[must_use]
    pub fn lan_address(&self, lan: usize, server: usize) -> Ipv4Addr {
        let (_, [a, b, c]) = self.lans[lan];
        Ipv4Addr::new(a, b, c, 1 + u8::try_from(server).expect("few servers"))
    }

    /// Seats on the network, as many as it was made for. What is put before a server's command gives way to
    /// the server: the process that runs in the end is the server's own.
    #[must_use]
    pub fn seats(&self) -> Vec<Seat> {
        let within = |server| ["ip", "netns", "exec", &self.namespace(server)].map(OsString::from).to_vec();
        let seat = |server| {
            let ip = self.address(Place::Server(server)).into();
            let far = self.relay.as_ref().map(|_| self.lan_address(0, server).into());
            Seat { peer_ip: far.unwrap_or(ip), ..Seat::new(server + 1, ip, within(server)) }
        };
        (0..self.servers).map(seat).collect()
    }

    /// Packets are lost from now on.
    ///
    /// # Errors
    /// iproute2 fails.
    pub fn cut(&self, cut: Cut) -> Result<()> {
        ip(&self.change(cut, "add", "down"))?;
        self.cuts().push(cut);
        Ok(())
    }

    /// Nothing is lost any more.
    ///
    /// # Errors
    /// iproute2 fails.
    pub fn heal(&self) -> Result<()> {
        let cuts = std::mem::take(&mut *self.cuts());
        // All of them, whatever becomes of one.
        cuts.into_iter().map(|cut| ip(&self.change(cut, "del", "up")).map(drop)).fold(Ok(()), Result::and)
    }

    /// Removes namespaces and bridge.
    pub fn remove(&self) {
        // What was not made, or is removed already, cannot be removed.
        let bridges: Vec<_> = self.lans.iter().map(|(name, _)| name).chain([&self.name]).collect();
        for server in 0..self.servers {
            for bridge in &bridges {
                let _ = ip(&format!("link del {}", Self::cable(bridge, server)));
            }
            let _ = ip(&format!("netns del {}", self.namespace(server)));
        }
        for bridge in bridges {
            let _ = ip(&format!("link del {bridge}"));
        }
    }

    fn change(&self, cut: Cut, route: &str, cable: &str) -> String {
        match cut {
            Cut::Route(from, to) => {
                format!("-n {} route {route} blackhole {}", self.namespace(from), self.address(to))
            }
            Cut::Cable(server) => format!("link set {} {cable}", Self::cable(&self.name, server)),
            Cut::Lan(lan) => format!("link set {} {cable}", self.lans[lan].0),
        }
    }

    fn cuts(&self) -> MutexGuard<'_, Vec<Cut>> {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn namespace(&self, server: usize) -> String {
        format!("{}-{server}", self.name)
    }

    fn cable(bridge: &str, server: usize) -> String {
        format!("{bridge}v{server}")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Runs iproute2: what it says.
fn ip(arguments: &str) -> Result<String> {
    let output = Command::new("ip").args(arguments.split(' ')).stdin(Stdio::null()).output();
    let output = output.context("`ip` of iproute2 cannot be run")?;
    if !output.status.success() {
        bail!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
