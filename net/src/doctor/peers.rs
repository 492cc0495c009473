//! The other servers: their names, and whether they can be reached.

use std::io::ErrorKind;
use std::iter;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use ringkeeper_engine::zab::ServerSet;
use ringkeeper_host::identity::Owner;
use ringkeeper_log::meta::MetaStore;
use ringkeeper_runtime::reactor::Executor;
use ringkeeper_runtime::reactor::storage::RingStorage;
use ringkeeper_wire::ServerId;

use super::{Finding, Verdict};
use crate::config::{Config, MemberAddress, PeerRole, ServerSpec};
use crate::migrate;

const CHECK: &str = "peers";

/// How long to wait for a server.
const PATIENCE: Duration = Duration::from_secs(1);

/// A name that takes longer delays each reconnection.
const LOOKUP_MAX: Duration = Duration::from_millis(100);

/// Looks for the other members: those of the server, if it runs, since its log may name others than the
/// configuration; else those of the configuration. Nobody is missed whom the folder knows to be no voter any
/// more.
pub(super) fn check(config: &Config) -> impl Iterator<Item = Finding> {
    iter::once_with(|| members(config)).flatten()
}

fn members(config: &Config) -> impl Iterator<Item = Finding> + use<> {
    let own = config.my_id.map(ServerId);
    let running = migrate::members_of_running(config);
    let running = running.filter(|members| own.is_some_and(|own| members.get(own).is_some()));
    let voters = if running.is_some() { None } else { voters_by_log(config.log_dir()) };
    let members = running.unwrap_or_else(|| config.members());
    let others: Vec<_> = members.iter().filter(|server| Some(ServerId(server.id)) != own).cloned().collect();
    others.into_iter().flat_map(move |server| look_for(&server, voters))
}

fn look_for(server: &ServerSpec, voters: Option<ServerSet>) -> Vec<Finding> {
    let id = server.id;
    let found: Vec<_> = server.addresses.iter().map(|address| reach(id, address)).collect();
    let is_former = voters.is_some_and(|voters| !voters.contains(ServerId(id)));
    let is_reached = found.iter().any(|finding| finding.verdict == Verdict::Fine);
    if server.role == PeerRole::Observer || !is_former || is_reached {
        return found;
    }
    let says = format!(
        "server {id}: not reached, and no voter by the log when this folder was last told: its line may be out of date \
         (`ringkeeper export-config` writes the lines anew)"
    );
    vec![Finding::fine(CHECK, says)]
}

/// The voters, if the log in this folder names them.
fn voters_by_log(folder: &Path) -> Option<ServerSet> {
    let executor = Executor::new("doctor").ok()?;
    let peek = async {
        let storage = RingStorage::open_buffered(folder).ok()?;
        MetaStore::peek(&storage).await.ok()?
    };
    executor.run(peek).and_then(|meta| Owner::of(&meta).voters_by_log())
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
