//! Where a server listens.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};

/// A server's number and addresses.
#[derive(Clone, Debug)]
pub struct Seat {
    /// From 1.
    pub id: usize,
    /// Where clients find it.
    pub ip: IpAddr,
    /// Where other servers find it.
    pub peer_ip: IpAddr,
    /// Where clients connect.
    pub client_port: u16,
    /// Where servers speak to the leader, or to each other.
    pub quorum_port: u16,
    /// Where Apache ZooKeeper's servers vote.
    pub election_port: u16,
    /// It learns, and has no vote.
    pub observer: bool,
    /// What is put before its command, such as `ip netns exec NAME`.
    pub within: Vec<OsString>,
}

/// Ports of a server that has an address of its own: client, quorum, election.
const PORTS: [u16; 3] = [2181, 2888, 3888];

impl Seat {
    /// A seat with the usual ports on an address that nobody else has.
    #[must_use]
    pub const fn new(id: usize, ip: IpAddr, within: Vec<OsString>) -> Self {
        let [client_port, quorum_port, election_port] = PORTS;
        Self { id, ip, peer_ip: ip, client_port, quorum_port, election_port, observer: false, within }
    }

    /// Seats on loopback addresses that nobody else has.
    #[must_use]
    pub fn on_own_addresses(count: usize) -> Vec<Self> {
        (1..=count).map(|id| Self::new(id, own_address().into(), Vec::new())).collect()
    }

    /// Seats at 127.0.0.1, on three ports each from `first` on.
    ///
    /// # Errors
    /// One of the ports is in use.
    pub fn on_ports(count: usize, first: u16) -> Result<Vec<Self>> {
        let ip = IpAddr::from(Ipv4Addr::LOCALHOST);
        let ports: Vec<u16> = (first..).take(3 * count).collect();
        for port in &ports {
            TcpListener::bind((ip, *port)).with_context(|| format!("port {port} is in use"))?;
        }
        let seat = |(id, ports): (usize, &[u16])| {
            let &[client_port, quorum_port, election_port] = ports else { unreachable!("chunks of three") };
            Self { client_port, quorum_port, election_port, ..Self::new(id, ip, Vec::new()) }
        };
        Ok((1..).zip(ports.chunks_exact(3)).map(seat).collect())
    }

    /// Where clients connect.
    #[must_use]
    pub fn client(&self) -> SocketAddr {
        (self.ip, self.client_port).into()
    }

    /// Where peers connect.
    #[must_use]
    pub fn quorum(&self) -> SocketAddr {
        (self.peer_ip, self.quorum_port).into()
    }
}

/// A loopback address that no other running process of this machine uses: 127, the process, a number.
#[must_use]
pub fn own_address() -> Ipv4Addr {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // After 254 of them the first servers have ended long ago.
    let number = u8::try_from(NEXT.fetch_add(1, Ordering::Relaxed) % 254 + 1).unwrap_or_default();
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, number)
}
