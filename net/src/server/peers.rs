//! The links between the servers of an ensemble.
//!
//! There is one connection between each pair: the server with the greater number dials, the other one listens on its
//! quorum port. Messages of the broadcast travel on it in frames, in order, in both directions; when it breaks, both
//! ends hear of it and the dialer tries again, resolving the name anew each time.
//!
//! ```text
//! handshake, both ways:  hello { magic 8, from u64, to u64, nonce 32 }  proof { HMAC-SHA256 32 }
//! afterwards:            { length u32, message }*                       (little endian)
//! ```
//!
//! The proof covers both numbers and both nonces, under the ensemble's secret (`ringkeeper.peerSecretFile`). Without
//! a secret it proves nothing but that the other end speaks this protocol.

mod handshake;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::or;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::TcpStream;
use ringkeeper_engine::zab::{Input, Message};
use ringkeeper_wire::ServerId;
use socket2::Socket;

use super::core_host::CoreHost;
use super::listener;
use super::log_quota::LogQuota;
use super::wake::WakeFlag;
use crate::config::{Config, ServerSpec};
use handshake::Handshake;

/// Read at once from a peer, at most.
const READ_BYTES: usize = 256 * 1024;

/// The longest frame of a peer: a batch is about a mebibyte, unless a single request is longer.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// Between two dials of a peer that cannot be reached.
const REDIAL_FIRST: Duration = Duration::from_millis(20);
const REDIAL_LAST: Duration = Duration::from_secs(1);

/// The links to all other servers.
pub(crate) struct Peers {
    own: ServerId,
    links: BTreeMap<ServerId, Rc<Link>>,
    secret: Rc<[u8]>,
    log_quota: LogQuota,
}

/// The link to one server.
struct Link {
    peer: ServerId,
    host: String,
    port: u16,
    /// Frames that wait to be written.
    output: RefCell<Vec<u8>>,
    /// A connection stands.
    connected: Cell<bool>,
    /// The writer has something to do.
    work: WakeFlag,
    /// The connection is to be closed.
    hang_up: WakeFlag,
}

impl Peers {
    /// The links that the configuration names, none of them connected yet.
    pub(crate) fn new(config: &Config) -> Self {
        let own = ServerId(config.server_id());
        let others = config.servers.iter().filter(|server| server.id != own.0);
        let links = others.map(|server| (ServerId(server.id), Rc::new(Link::new(server)))).collect();
        Self { own, links, secret: config.peer_secret.clone().unwrap_or_default().into(), log_quota: LogQuota::default() }
    }

    /// Sends a message if the peer is connected.
    pub(crate) fn send(&self, to: ServerId, message: &Message) {
        if let Some(link) = self.links.get(&to)
            && link.connected.get()
        {
            link.push(message);
        }
    }

    /// Closes the connection to a peer.
    pub(crate) fn disconnect(&self, peer: ServerId) {
        if let Some(link) = self.links.get(&peer) {
            link.hang_up.raise();
        }
    }

    /// Number of peers that are connected.
    pub(crate) fn connected(&self) -> usize {
        self.links.values().filter(|link| link.connected.get()).count()
    }

    /// Starts dialing and listening.
    pub(crate) fn start(core: &Rc<CoreHost>, socket: Option<Socket>, clock: super::clock::Clock) {
        let peers = core.peers();
        for link in peers.links.values().filter(|link| link.peer < peers.own) {
            glommio::spawn_local(Rc::clone(link).dial(Rc::clone(core))).detach();
        }
        if let Some(socket) = socket {
            glommio::spawn_local(accept(Rc::clone(core), socket, clock)).detach();
        }
    }

    fn handshake(&self) -> Handshake {
        Handshake { own: self.own, secret: Rc::clone(&self.secret) }
    }
}

/// Takes the connections of peers with greater numbers.
async fn accept(core: Rc<CoreHost>, socket: Socket, clock: super::clock::Clock) {
    let listener = listener::adopt(socket);
    loop {
        match listener.accept().await {
            Ok(stream) => glommio::spawn_local(welcome(Rc::clone(&core), stream, clock)).detach(),
            Err(error) => {
                tracing::warn!(%error, "a peer's connection could not be accepted");
                glommio::timer::sleep(REDIAL_FIRST).await;
                continue;
            }
        };
    }
}

async fn welcome(core: Rc<CoreHost>, mut stream: TcpStream, clock: super::clock::Clock) {
    let peers = core.peers();
    let address = stream.peer_addr().ok();
    let refuse = |reason: &str| {
        if peers.log_quota.admit(clock.monotonic_ms()) {
            tracing::warn!(?address, reason, "refused a connection on the quorum port");
        }
    };
    let peer = match peers.handshake().answer(&mut stream).await {
        Ok(peer) => peer,
        Err(error) => return refuse(&error.to_string()),
    };
    match peers.links.get(&peer).filter(|_| peer > peers.own) {
        Some(link) => Rc::clone(link).serve(Rc::clone(&core), stream).await,
        None => refuse(&format!("server {peer} is not one that dials this server")),
    }
}

impl Link {
    fn new(server: &ServerSpec) -> Self {
        Self {
            peer: ServerId(server.id),
            host: server.host.clone(),
            port: server.quorum_port,
            output: RefCell::default(),
            connected: Cell::new(false),
            work: WakeFlag::default(),
            hang_up: WakeFlag::default(),
        }
    }

    fn push(&self, message: &Message) {
        let mut output = self.output.borrow_mut();
        let start = output.len();
        output.extend_from_slice(&[0; 4]);
        message.encode(&mut output);
        let length = u32::try_from(output.len() - start - 4).expect("a message is far shorter than 4 GiB");
        output[start..start + 4].copy_from_slice(&length.to_le_bytes());
        self.work.raise();
    }

    /// Keeps a connection to a peer with a smaller number, for as long as the server runs.
    async fn dial(self: Rc<Self>, core: Rc<CoreHost>) {
        let mut pause = REDIAL_FIRST;
        loop {
            match self.connect(&core).await {
                Ok(stream) => {
                    pause = REDIAL_FIRST;
                    Rc::clone(&self).serve(Rc::clone(&core), stream).await;
                }
                Err(error) => {
                    tracing::debug!(peer = %self.peer, %error, "not reached");
                    pause = (pause * 2).min(REDIAL_LAST);
                }
            }
            glommio::timer::sleep(pause).await;
        }
    }

    async fn connect(&self, core: &CoreHost) -> io::Result<TcpStream> {
        let (host, port) = (self.host.clone(), self.port);
        let addresses: Vec<SocketAddr> = glommio::executor()
            .spawn_blocking(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect))
            .await?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(address, REDIAL_LAST).await {
                Ok(mut stream) => match core.peers().handshake().begin(&mut stream, self.peer).await {
                    Ok(()) => return Ok(stream),
                    Err(error) => last = error,
                },
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    /// Carries messages until the connection breaks or is given up.
    async fn serve(self: Rc<Self>, core: Rc<CoreHost>, stream: TcpStream) {
        let Ok(mut writer) = stream.set_nodelay(true).map_err(io::Error::from).and_then(|()| listener::second(&stream))
        else {
            return;
        };
        // The peer has dialed anew: what is left of its last connection ends first, so that the engine hears of the
        // end before it hears of the beginning.
        while self.connected.get() {
            self.hang_up.raise();
            glommio::timer::sleep(Duration::from_millis(1)).await;
        }
        self.connected.set(true);
        self.output.borrow_mut().clear();
        poll_fn(|cx| {
            let _ = self.hang_up.poll_lower(cx);
            std::task::Poll::Ready(())
        })
        .await;
        tracing::info!(peer = %self.peer, "peer connected");
        core.peer_input(Input::PeerConnected(self.peer));
        let hang_up = async {
            poll_fn(|cx| self.hang_up.poll_lower(cx)).await;
            io::Error::other("given up")
        };
        let error = or(hang_up, or(self.read(&core, stream), self.write(&mut writer))).await;
        let _ = writer.shutdown(std::net::Shutdown::Both).await;
        self.connected.set(false);
        tracing::info!(peer = %self.peer, %error, "peer disconnected");
        core.peer_input(Input::PeerDisconnected(self.peer));
    }

    async fn read(&self, core: &CoreHost, mut stream: TcpStream) -> io::Error {
        let mut buffer = vec![0; READ_BYTES];
        let mut filled = 0;
        loop {
            match stream.read(&mut buffer[filled..]).await {
                Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
                Ok(bytes) => filled += bytes,
                Err(error) => return error,
            }
            let mut start = 0;
            loop {
                let rest = &buffer[start..filled];
                let Some((length, rest)) = rest.split_first_chunk::<4>() else { break };
                let length = u32::from_le_bytes(*length) as usize;
                if length > FRAME_BYTES_MAX {
                    return io::Error::other(format!("a frame of {length} bytes"));
                }
                let Some(frame) = rest.get(..length) else {
                    if buffer.len() < length + 4 {
                        buffer.resize(start + length + 4, 0);
                    }
                    break;
                };
                match Message::decode(frame) {
                    Ok(message) => core.peer_input(Input::Message { from: self.peer, message }),
                    Err(error) => return io::Error::other(error),
                }
                start += length + 4;
            }
            buffer.copy_within(start..filled, 0);
            filled -= start;
        }
    }

    async fn write(&self, stream: &mut TcpStream) -> io::Error {
        let mut writing = Vec::new();
        loop {
            std::mem::swap(&mut writing, &mut *self.output.borrow_mut());
            if writing.is_empty() {
                poll_fn(|cx| self.work.poll_lower(cx)).await;
                continue;
            }
            if let Err(error) = stream.write_all(&writing).await {
                return error;
            }
            writing.clear();
        }
    }
}
