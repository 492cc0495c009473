//! The other servers: their names, and whether they can be reached.

use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::Finding;
use crate::config::{Config, MemberAddress};

const CHECK: &str = "peers";

/// How long to wait for a server.
const PATIENCE: Duration = Duration::from_secs(1);

/// A name that takes longer delays each reconnection.
const LOOKUP_MAX: Duration = Duration::from_millis(100);

pub(super) fn check(config: &Config) -> impl Iterator<Item = Finding> {
    let own = config.own_server().map(|own| own.id);
    let others = config.servers.iter().filter(move |server| Some(server.id) != own);
    others.flat_map(|server| server.addresses.iter().map(|address| reach(server.id, address)))
}

fn reach(id: u64, address: &MemberAddress) -> Finding {
    let MemberAddress { host, quorum_port, .. } = address;
    let began = Instant::now();
    let address = match (host.as_str(), *quorum_port).to_socket_addrs().map(|mut addresses| addresses.next())
    {
        Ok(Some(address)) => address,
        Ok(None) => return Finding::failure(CHECK, format!("server {id}: {host} has no address")),
        Err(error) => {
            let says =
                format!("server {id}: {host}: {error}; correct the line server.{id}, or the name service");
            return Finding::failure(CHECK, says);
        }
    };
    let lookup = began.elapsed();
    if lookup > LOOKUP_MAX {
        let says = format!(
            "server {id}: looking {host} up takes {} ms; write its address into /etc/hosts",
            lookup.as_millis()
        );
        return Finding::warning(CHECK, says);
    }
    let began = Instant::now();
    match TcpStream::connect_timeout(&address, PATIENCE) {
        Ok(_) => {
            Finding::fine(CHECK, format!("server {id}: {address} is {} us away", began.elapsed().as_micros()))
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Finding::warning(
            CHECK,
            format!("server {id}: nobody listens on {address}; it may not be started yet"),
        ),
        Err(error) => Finding::warning(
            CHECK,
            format!(
                "server {id}: {address}: {error}; a firewall between the servers has to let port {quorum_port} through"
            ),
        ),
    }
}
