//! The ports where clients connect: opened at the start, and moved where a change of the members says.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringkeeper_wire::ServerId;
use socket2::Socket;

use super::clock::Clock;
use super::core_host::CoreHost;
use super::door::{Accepted, Door};
use super::listener::{self, BindError};
use super::names;
use super::rate_limiter::RateLimiter;
use super::reactor;
use super::reactor::tcp::TcpListener;
use super::tls::{PortSecurity, TlsAcceptor};
use crate::config::{Config, host_address, socket_address};

/// How often the list of members is looked at, and a port that could not be opened is tried again.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A port for clients that does not listen yet.
pub(super) struct ClientPort {
    pub(super) address: SocketAddr,
    socket: Socket,
    security: PortSecurity,
}

/// Binds the ports of a configuration: the one in the clear, if there is one, then the one with TLS alone.
///
/// # Errors
/// A port is taken, or an address not usable.
pub(super) fn bind(config: &Config, tls: Option<&Arc<TlsAcceptor>>) -> Result<Vec<ClientPort>, BindError> {
    let clear = match tls.filter(|_| config.tls.port_unification) {
        Some(tls) => PortSecurity::Either(Arc::clone(tls)),
        None => PortSecurity::Clear,
    };
    let client_port = (config.client_port != 0).then(|| (config.client_socket(), clear));
    let secure = config.tls.secure_socket().zip(tls.map(|tls| PortSecurity::Tls(Arc::clone(tls))));
    client_port
        .into_iter()
        .chain(secure)
        .map(|(address, security)| Ok(ClientPort { address, socket: listener::bind(address)?, security }))
        .collect()
}

/// What all ports for clients have in common.
pub(super) struct Manner {
    pub(super) door: Door,
    pub(super) backlog: u32,
    /// How long a client may be silent, or take no output, before the system closes its connection.
    pub(super) silence_max: Duration,
}

/// The ports that listen, the one that the members' list names first.
pub(super) struct ClientPorts {
    manner: Manner,
    open: RefCell<Vec<Listening>>,
}

struct Listening {
    address: SocketAddr,
    security: PortSecurity,
    /// Ends it.
    handle: Socket,
}

impl ClientPorts {
    /// Opens ports.
    ///
    /// # Errors
    /// Another server began to listen meanwhile.
    pub(super) fn open(ports: Vec<ClientPort>, manner: Manner) -> Result<Rc<Self>, BindError> {
        let all = Rc::new(Self { manner, open: RefCell::default() });
        for port in ports {
            let listening = all.listen(port)?;
            all.open.borrow_mut().push(listening);
        }
        Ok(all)
    }

    fn listen(&self, port: ClientPort) -> Result<Listening, BindError> {
        let ClientPort { address, socket, security } = port;
        let handle = listener::handle(&socket, address)?;
        listener::watch_over(&socket, self.manner.silence_max);
        listener::listen(&socket, self.manner.backlog, address)?;
        let (clear, tls) = match security {
            PortSecurity::Clear => (true, false),
            PortSecurity::Tls(_) => (false, true),
            PortSecurity::Either(_) => (true, true),
        };
        reactor::spawn_local(accept(socket, security.clone(), self.manner.door.clone())).detach();
        tracing::info!(%address, clear, tls, "listening for clients");
        Ok(Listening { address, security, handle })
    }

    /// Where clients connect: the first port, or what the configuration says of one.
    pub(super) fn address(&self, config: &Config) -> SocketAddr {
        self.open.borrow().first().map_or_else(|| config.client_socket(), |port| port.address)
    }

    /// Closes all ports to new connections.
    pub(super) fn close(&self) {
        self.open.borrow().iter().for_each(|port| listener::stop_listening(&port.handle));
    }

    /// Moves the first port whenever a committed change of the members gives this server another one, for as
    /// long as the server runs. Connections that stand go on.
    pub(super) async fn follow_members(self: Rc<Self>, core: Rc<CoreHost>, own: ServerId) {
        // What was done already. At first, a port of that number that the configuration has opened will do:
        // its address may be another name of the one that is listed.
        let mut done = None;
        loop {
            let wanted = listed(&core, own);
            if wanted != done
                && let Some((host, port)) = &wanted
            {
                let is_open = || self.open.borrow().iter().any(|open| open.address.port() == *port);
                if done.is_some() || !is_open() {
                    self.move_until_done(&core, own, (host.as_deref(), *port)).await;
                }
            }
            done = wanted;
            reactor::sleep(LOOK_EVERY).await;
        }
    }

    /// Tries to move the first port, as long as that is what is wanted.
    async fn move_until_done(&self, core: &CoreHost, own: ServerId, wanted: (Option<&str>, u16)) {
        let mut trouble = String::new();
        let is_wanted =
            || listed(core, own).as_ref().is_some_and(|(host, port)| (host.as_deref(), *port) == wanted);
        while is_wanted() {
            let error = match client_address(wanted).await {
                Ok(address) => match self.move_to(address) {
                    Ok(()) => return,
                    Err(error) => error.to_string(),
                },
                Err(error) => error,
            };
            if trouble != error {
                tracing::error!(
                    code = "RK0214",
                    error,
                    "the port for clients that the list of members names cannot be opened; clients are served where \
                     they were, and it is tried again"
                );
                trouble = error;
            }
            reactor::sleep(AGAIN_AFTER).await;
        }
    }

    fn move_to(&self, address: SocketAddr) -> Result<(), BindError> {
        let mut open = self.open.borrow_mut();
        let Some(first) = open.first_mut().filter(|first| first.address != address) else { return Ok(()) };
        let before = first.address;
        let listen_at = |address| {
            let socket = listener::try_bind(address)?;
            self.listen(ClientPort { address, socket, security: first.security.clone() })
        };
        if before.port() == address.port() {
            // One address may include the other.
            listener::stop_listening(&first.handle);
        }
        let opened = listen_at(address);
        if opened.is_err() && before.port() == address.port() {
            *first = listen_at(before)?;
        }
        let closed = std::mem::replace(first, opened?);
        listener::stop_listening(&closed.handle);
        tracing::info!(%before, now = %address, "the port for clients has moved");
        Ok(())
    }
}

/// The client's host and port in this server's line of the committed members.
fn listed(core: &CoreHost, own: ServerId) -> Option<(Option<String>, u16)> {
    let node = core.node();
    let membership = node.application().committed().membership()?;
    membership.members.get(own)?.client.clone()
}

/// Where a server listens whose line names this host and port.
async fn client_address((host, port): (Option<&str>, u16)) -> Result<SocketAddr, String> {
    let Some(host) = host.map(str::to_owned) else {
        return Ok((IpAddr::from(Ipv4Addr::UNSPECIFIED), port).into());
    };
    let looked_up = names::look_up(move || host_address(&host)).await;
    let (address, scope_id) = looked_up.map_err(|error| error.to_string())??;
    Ok(socket_address(address, port, scope_id))
}

/// Accepts clients and hands each to the shard with the fewest connections.
async fn accept(socket: Socket, security: PortSecurity, door: Door) {
    let listener = TcpListener::from(OwnedFd::from(socket));
    let quota = RateLimiter::default();
    let clock = Clock::start();
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok((socket, Some(peer))) => (Socket::from(socket), peer),
            // It has ended already.
            Ok((_, None)) => continue,
            Err(error) => {
                // It no longer listens: it has moved, or the server is stopping.
                if error.kind() == io::ErrorKind::InvalidInput {
                    return;
                }
                if quota.admit(clock.monotonic_ms()) {
                    tracing::warn!(code = "RK0201", %error, "a connection could not be accepted");
                }
                // Most likely no file descriptor is free: existing connections have priority.
                reactor::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        match door.admission.admit(peer.ip().to_canonical()) {
            Ok(admitted) => {
                let shard = &door.shards[admitted.shard()];
                let accepted = Accepted { socket, peer, admitted, security: security.clone() };
                if shard.send(accepted).await.is_err() {
                    return;
                }
            }
            Err(reason) => {
                if quota.admit(clock.monotonic_ms()) {
                    tracing::warn!(code = "RK0202", %reason, "a connection was refused");
                }
            }
        }
    }
}
