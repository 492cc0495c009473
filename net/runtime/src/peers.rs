//! The links between the servers of an ensemble.
//!
//! Each pair of servers has one connection: the server with the greater id dials, the other one listens on
//! its quorum port. It carries the broadcast's messages in frames, in order, in both directions. When it
//! breaks, both ends notice it, and the dialer dials again, resolving the name each time. A new connection
//! replaces an older one that still stands, since the dialer dials only when the old one is dead.
//!
//! ```text
//! handshake, both ways:  hello { magic 8, from u64, to u64, nonce 32 }  proof { HMAC-SHA256 32 }
//! afterwards:            { length u32, message }*                       (little endian)
//! ```
//!
//! The proof covers both ids and both nonces, with the ensemble's secret (`ringkeeper.peerSecretFile`) as the
//! key. Without a secret, it only proves that the other end speaks this protocol.
//!
//! Bounded are: unauthenticated connections, in number (in all and from one address) and time; memory for a
//! peer's messages, by the bytes received; memory for output that a peer does not read, above which it is
//! disconnected.

mod frames;
mod handshake;
mod link;
mod output;
mod strangers;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use glommio::Task;
use glommio::net::TcpStream;
use ringkeeper_engine::zab::{Input, Message};
use ringkeeper_host::env::Env;
pub use ringkeeper_host::env::PeerAddress;
use ringkeeper_host::pump::{Frontend, Links, Pump};
use ringkeeper_wire::ServerId;
use socket2::Socket;

use crate::clock::Clock;
use crate::socket;
use handshake::Handshake;
use link::Link;
use ringkeeper_host::rate_limiter::RateLimiter;
use strangers::Strangers;

/// Pause between two dials of a peer that is unreachable or whose connections break at once.
const REDIAL_FIRST: Duration = Duration::from_millis(20);
const REDIAL_LAST: Duration = Duration::from_secs(1);

/// How often the names of the ensemble's servers are resolved.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);

/// The links to all other servers.
pub struct Peers {
    own: ServerId,
    links: BTreeMap<ServerId, Rc<Link>>,
    secret: Rc<[u8]>,
    /// Number of connections that are not authenticated yet.
    strangers: Strangers,
    refusals: RateLimiter,
    /// The tasks that dial and accept.
    tasks: RefCell<Vec<Task<()>>>,
}

impl Peers {
    /// The links of `own` to the others of the ensemble, none connected yet. With an empty secret, whoever
    /// reaches the port can pass for a peer.
    #[must_use]
    pub fn new(own: ServerId, ensemble: impl IntoIterator<Item = PeerAddress>, secret: &[u8]) -> Self {
        let others = ensemble.into_iter().filter(|server| server.id != own);
        let links = others.map(|server| (server.id, Rc::new(Link::new(server)))).collect();
        Self {
            own,
            links,
            secret: secret.into(),
            strangers: Strangers::default(),
            refusals: RateLimiter::default(),
            tasks: RefCell::default(),
        }
    }

    /// Why the last dial of a peer failed; empty if it succeeded, or if the peer is the one that dials.
    #[must_use]
    pub fn trouble(&self, peer: ServerId) -> String {
        self.links.get(&peer).map_or_else(String::new, |link| link.trouble())
    }

    /// Number of peers that are connected.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.links.values().filter(|link| link.is_connected()).count()
    }

    /// Starts to dial, and to listen on the socket.
    pub fn start<E: Env>(
        pump: &Rc<Pump<E, impl Frontend<Links = Self>>>,
        socket: Option<Socket>,
        clock: Clock,
    ) {
        let peers = pump.links();
        for link in peers.links.values().filter(|link| link.peer() < peers.own) {
            let task = glommio::spawn_local(dial(Rc::clone(pump), Rc::clone(link)));
            peers.tasks.borrow_mut().push(task);
        }
        if let Some(socket) = socket {
            peers.tasks.borrow_mut().extend([
                glommio::spawn_local(accept(Rc::clone(pump), socket, clock)),
                glommio::spawn_local(resolve(Rc::clone(pump))),
            ]);
        }
    }

    /// Closes all connections and the port. The end of the executor would do neither: it leaks its tasks,
    /// with the descriptors that they hold.
    pub async fn stop(&self) {
        let tasks = self.tasks.take();
        for task in tasks {
            task.cancel().await;
        }
        while self.connected() > 0 || !self.strangers.is_empty() {
            self.links.values().for_each(|link| link.hang_up("this server ends"));
            glommio::timer::sleep(Duration::from_millis(1)).await;
        }
    }

    fn note_refusal(&self, clock: Clock, address: SocketAddr, reason: &str) {
        if self.refusals.admit(clock.monotonic_ms()) {
            tracing::warn!(%address, reason, "refused a connection on the quorum port");
        }
    }

    fn handshake(&self) -> Handshake {
        Handshake { own: self.own, secret: Rc::clone(&self.secret) }
    }
}

impl Links for Peers {
    fn send(&self, to: ServerId, message: &Message) {
        if let Some(link) = self.links.get(&to) {
            link.send(message);
        }
    }

    fn disconnect(&self, peer: ServerId) {
        if let Some(link) = self.links.get(&peer) {
            link.hang_up("given up");
        }
    }
}

/// Accepts connections of peers with greater ids.
async fn accept<E: Env>(pump: Rc<Pump<E, impl Frontend<Links = Peers>>>, socket: Socket, clock: Clock) {
    let listener = socket::adopt(socket);
    loop {
        match listener.accept().await {
            Ok(stream) => {
                glommio::spawn_local(welcome(Rc::clone(&pump), stream, clock)).detach();
            }
            Err(error) => {
                if pump.links().refusals.admit(clock.monotonic_ms()) {
                    tracing::warn!(%error, "a peer's connection could not be accepted");
                }
                glommio::timer::sleep(REDIAL_FIRST).await;
            }
        }
    }
}

async fn welcome<E: Env>(
    pump: Rc<Pump<E, impl Frontend<Links = Peers>>>,
    mut stream: TcpStream,
    clock: Clock,
) {
    let peers = pump.links();
    let Ok(address) = stream.peer_addr() else { return };
    let Some(stranger) = peers.strangers.admit(address.ip().to_canonical()) else {
        return peers.note_refusal(clock, address, "all that are heard are from servers' addresses");
    };
    let handshake = peers.handshake();
    let introduced = or(handshake.answer(&mut stream), async {
        stranger.displaced().await;
        Err(io::Error::other("it has made room for a newer connection before it had proved who it is"))
    });
    let introduced = introduced.await;
    peers.strangers.leave(&stranger);
    let known = introduced.and_then(|peer| {
        let link = peers.links.get(&peer).filter(|_| peer > peers.own);
        link.ok_or_else(|| io::Error::other(format!("server {peer} is not one that dials this server")))
    });
    match known {
        Ok(link) => link.serve(stream, &|input: Input| pump.input(input)).await,
        Err(error) => peers.note_refusal(clock, address, &error.to_string()),
    }
}

/// Keeps the members' addresses up to date; an unresolved name has none meanwhile.
async fn resolve<E: Env>(pump: Rc<Pump<E, impl Frontend<Links = Peers>>>) {
    let hosts: Vec<_> = pump.links().links.values().map(|link| link.host_and_port()).collect();
    loop {
        let hosts = hosts.clone();
        let addresses = glommio::executor().spawn_blocking(move || {
            let resolved =
                hosts.iter().filter_map(|(host, port)| (host.as_str(), *port).to_socket_addrs().ok());
            resolved.flatten().map(|address| address.ip().to_canonical()).collect()
        });
        pump.links().strangers.set_servers(addresses.await);
        glommio::timer::sleep(RESOLVE_INTERVAL).await;
    }
}

/// Keeps a connection to a peer with a smaller id, for as long as the server runs.
async fn dial<E: Env>(pump: Rc<Pump<E, impl Frontend<Links = Peers>>>, link: Rc<Link>) {
    let mut pause = REDIAL_FIRST;
    loop {
        let dialed = Instant::now();
        match connect(&pump.links().handshake(), &link).await {
            Ok(stream) => {
                link.set_trouble(String::new());
                link.serve(stream, &|input: Input| pump.input(input)).await;
            }
            Err(error) => {
                // A peer that is down for days is logged once, not at each dial.
                if link.set_trouble(error.to_string()) {
                    tracing::info!(peer = %link.peer(), %error, "peer not reached, trying on");
                }
            }
        }
        let lasted = dialed.elapsed() > REDIAL_LAST && link.trouble().is_empty();
        pause = if lasted { REDIAL_FIRST } else { (pause * 2).min(REDIAL_LAST) };
        glommio::timer::sleep(pause).await;
    }
}

async fn connect(handshake: &Handshake, link: &Link) -> io::Result<TcpStream> {
    let (host, port) = link.host_and_port();
    let addresses: Vec<SocketAddr> = glommio::executor()
        .spawn_blocking(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect))
        .await?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(address, REDIAL_LAST).await {
            Ok(mut stream) => match handshake.begin(&mut stream, link.peer()).await {
                Ok(()) => return Ok(stream),
                Err(error) => last = error,
            },
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}
