//! The links between the servers of an ensemble.
//!
//! Each pair of servers has one connection: the server with the greater id dials, the other one listens on
//! its quorum port. Where servers may join ([`Links::admit_joiners`]), a server that is not listed dials
//! those that it wants to join. The one with the smaller id dials, too, when it hears nothing: the other one
//! may not know it, or look for it where it was before one of the two has moved. The connection carries the
//! broadcast's messages in frames, in order, in both directions. When it breaks, both ends notice it, and the
//! dialer dials again, resolving the name each time. A new connection replaces an older one that still
//! stands, since the dialer dials only when the old one is dead.
//!
//! A server that is in several networks has an address in each. All of them are dialed side by side, and the
//! first one at which the handshake is completed carries the link. In an ensemble with such a server, an idle
//! end shows signs of life, which are frames without a message. The other end answers in kind, and
//! each hangs up when it hears nothing for the peer timeout: the network may be down, and another one not.
//!
//! ```text
//! handshake, both ways:  hello { magic 8, from u64, to u64, nonce 32 }  proof { HMAC-SHA256 32 }
//! afterwards:            { length u32, message or nothing, seal 0 or 16 }*         (little endian)
//! ```
//!
//! The proof covers both ids and both nonces, with the ensemble's secret (`ringkeeper.peerSecretFile`) as the
//! key, or the dialer's user and password (`quorum.auth`): the listener tries those of all its users, and
//! proves itself with what fits. With Kerberos, the dialer shows a ticket in front of the proof, and the key
//! is one that both ends get out of it: see `kerberos`. Without a secret, the proof only says that the other
//! end speaks this protocol. With one, and without TLS, each frame is sealed: see `seal`.
//!
//! The environment may secure the connection below that, by TLS with certificates of both ends. Then a
//! certificate has to bear the name of the server's host in the list of members: the server that was dialed,
//! or the one that the hello comes from. Otherwise a refusal is the last that is sent: a hello with another
//! magic.
//!
//! Bounded are: unauthenticated connections, in number (in all and from one address) and time; memory for a
//! peer's messages, by the bytes received; memory for output that a peer does not read, above which it is
//! disconnected.

mod frames;
mod handshake;
mod kerberos;
mod link;
mod output;
mod ports;
mod race;
mod seal;
mod strangers;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

use futures_lite::future::or;
use ringkeeper_engine::level::Level;
use ringkeeper_engine::members::Members;
use ringkeeper_engine::zab::{Input, Message, ServerSet};
use ringkeeper_log::mutation::planted;
use ringkeeper_wire::ServerId;

use crate::env::{Class, Connection, Env, Listener, PeerAddress, Stream, Task};
use crate::rate_limiter::RateLimiter;
pub(crate) use handshake::TAKES_WIDE_WINDOWS;
pub use handshake::{MAGIC, Secrets};
pub use kerberos::{Accepted, Acceptor, Initiator, Kerberos, Key, Ticket};
pub use ports::Port;

use handshake::{Agreed, Handshake, NEWEST_VERSION, Turn, check_level};
use link::{Link, Signs};
use ports::Ports;
use race::first_success;
use strangers::Strangers;

/// How often the names of the ensemble's servers are resolved.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);

/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Time after which a KDC is said to be silent. It is waited for on.
const KDC_PATIENCE: Duration = Duration::from_secs(5);

/// When a peer is dialed. The pauses are between two dials of one that is unreachable or whose connections
/// break at once, each twice as long as the one before.
#[derive(Clone, Copy, Debug)]
pub struct Redial {
    /// After the first failure, and after a connection that has lasted for longer than [`Self::last`].
    pub first: Duration,
    /// The longest pause, and the time that one address has to answer.
    pub last: Duration,
    /// Silence after which another address is tried, if some server has several.
    pub silence: Duration,
}

impl Redial {
    /// For real networks.
    pub const REAL: Self = Self {
        first: Duration::from_millis(20),
        last: Duration::from_secs(1),
        silence: Duration::from_millis(500),
    };
}

/// Takes what the links bring.
type Deliver = dyn Fn(Input);

/// The links to all other servers.
pub struct Links<E: Env> {
    env: E,
    own: ServerId,
    links: RefCell<BTreeMap<ServerId, Rc<Link>>>,
    /// Whether servers that are not listed are heard.
    admits_joiners: Cell<bool>,
    /// The newest version of the messages that this server speaks.
    newest: Cell<u8>,
    /// What a peer has to be able to do.
    required: Cell<Level>,
    /// Takes what the links bring, from [`Self::start`] on. The tasks own it, since it owns these links.
    deliver: RefCell<Option<Weak<Deliver>>>,
    secrets: Secrets,
    redial: Redial,
    /// Shown on idle links.
    signs: Signs,
    /// Connections that are not authenticated yet.
    strangers: Strangers,
    refusals: RateLimiter,
    ports: Ports<E::Task>,
    /// Resolves the members' names.
    resolver: RefCell<Option<E::Task>>,
    /// The tasks that dial, by the server that they dial.
    dials: RefCell<BTreeMap<ServerId, E::Task>>,
}

impl<E: Env> Links<E> {
    /// The links of `own` to the others of the ensemble, none connected yet. Each server may have several
    /// addresses.
    #[must_use]
    pub fn new(
        env: E,
        own: ServerId,
        ensemble: impl IntoIterator<Item = PeerAddress>,
        secrets: impl Into<Secrets>,
        redial: Redial,
    ) -> Rc<Self> {
        let mut members = BTreeMap::<_, Vec<_>>::new();
        ensemble.into_iter().for_each(|address| members.entry(address.id).or_default().push(address));
        let ports = Ports::new(members.remove(&own).unwrap_or_default());
        let link = |(id, addresses)| (id, Rc::new(Link::new(id, addresses)));
        Rc::new(Self {
            env,
            own,
            links: RefCell::new(members.into_iter().map(link).collect()),
            admits_joiners: Cell::new(false),
            newest: Cell::new(NEWEST_VERSION),
            required: Cell::default(),
            deliver: RefCell::default(),
            secrets: secrets.into(),
            redial,
            signs: Signs::new(redial.silence),
            strangers: Strangers::default(),
            refusals: RateLimiter::default(),
            ports,
            resolver: RefCell::default(),
            dials: RefCell::default(),
        })
    }

    /// Hears servers that are not listed as well. Before [`Self::start`].
    pub fn admit_joiners(&self) {
        self.admits_joiners.set(true);
    }

    /// Takes connections at every address of this machine, not at this server's own alone. Before
    /// [`Self::start`].
    pub fn listen_on_all(&self) {
        self.ports.listen_on_all();
    }

    /// Takes connections at this port, too, beside each port of this server, and dials it at other servers
    /// that do not answer at their own. Before [`Self::start`].
    pub fn listen_also_at(&self, port: u16) {
        self.ports.listen_also_at(port);
    }

    /// Speaks as an older build does, for simulations. Before [`Self::start`].
    pub fn speak_at_most(&self, version: u8) {
        self.newest.set(self.newest.get().min(version));
    }

    /// Peers that cannot do this feature level are refused from now on. Such a server would take majorities
    /// for quorums, or the members for those of its configuration.
    pub fn require(&self, level: Level) {
        self.required.set(level);
        for link in self.all().iter().filter(|link| link.is_connected()) {
            if let Err(refusal) = check_level(link.peer(), link.version(), level) {
                link.hang_up(refusal);
            }
        }
    }

    /// These are the members. If one of them has several addresses, idle ends show signs of life from now on.
    pub fn watch_for_silence(&self, members: &Members) {
        if members.has_several_addresses() && self.signs.begin() {
            self.all().iter().for_each(|link| link.expect_signs());
        }
    }

    /// Starts to dial, and to accept connections at `ports`: without any this server takes none, and with
    /// some of its addresses it tries to open the others. `deliver` is called with each connection to a peer,
    /// then with its messages, at last with its disconnection.
    pub fn start(
        self: &Rc<Self>,
        ports: impl IntoIterator<Item = Port<E::Listener>>,
        deliver: impl Fn(Input) + 'static,
    ) {
        let deliver: Rc<Deliver> = Rc::new(deliver);
        self.deliver.replace(Some(Rc::downgrade(&deliver)));
        self.all().into_iter().for_each(|link| self.begin_to_dial(link));
        let ports: Vec<_> = ports.into_iter().collect();
        if !ports.is_empty() {
            self.open_ports(ports, &deliver);
            self.resolver.replace(Some(self.env.spawn(Class::Requests, Rc::clone(self).resolve())));
        }
    }

    /// The members are these from now on. A connection to one that is none any more stays until it breaks.
    pub fn set_members(self: &Rc<Self>, members: &Members) {
        self.watch_for_silence(members);
        if let Some((own, deliver)) = members.get(self.own).zip(self.deliver()) {
            self.listen_at(PeerAddress::of(own), &deliver);
        }
        for server in members.iter().filter(|server| ServerId(server.id) != self.own) {
            let (peer, addresses) = (ServerId(server.id), PeerAddress::of(server).collect());
            let link = match self.link(peer) {
                // A joiner's connection goes on.
                Some(link) => {
                    link.list(addresses);
                    link
                }
                None => Rc::new(Link::new(peer, addresses)),
            };
            self.links.borrow_mut().insert(peer, Rc::clone(&link));
            if !self.dials.borrow().contains_key(&peer) {
                self.begin_to_dial(link);
            }
        }
    }

    fn begin_to_dial(self: &Rc<Self>, link: Rc<Link>) {
        let greater = link.peer() > self.own;
        if greater && !self.admits_joiners.get() {
            return;
        }
        let Some(deliver) = self.deliver() else { return };
        let peer = link.peer();
        let dial = Rc::clone(self).dial(link, greater, deliver);
        self.dials.borrow_mut().insert(peer, self.env.spawn(Class::Requests, dial));
    }

    fn deliver(&self) -> Option<Rc<Deliver>> {
        self.deliver.borrow().as_ref().and_then(Weak::upgrade)
    }

    fn link(&self, peer: ServerId) -> Option<Rc<Link>> {
        self.links.borrow().get(&peer).map(Rc::clone)
    }

    fn all(&self) -> Vec<Rc<Link>> {
        self.links.borrow().values().map(Rc::clone).collect()
    }

    /// Sends a message if the peer is connected.
    pub fn send(&self, to: ServerId, message: &Message) {
        if let Some(link) = self.links.borrow().get(&to) {
            link.send(message);
        }
    }

    /// Closes the connection to a peer.
    pub fn disconnect(&self, peer: ServerId) {
        if let Some(link) = self.link(peer) {
            link.hang_up("given up");
        }
    }

    /// Why the last dial of a peer failed; empty if it succeeded, or if the peer is the one that dials.
    #[must_use]
    pub fn trouble(&self, peer: ServerId) -> String {
        self.link(peer).map_or_else(String::new, |link| link.trouble())
    }

    /// The version of the messages on the connection to this server; 0 before the first one.
    pub(crate) fn version(&self, peer: ServerId) -> u8 {
        self.links.borrow().get(&peer).map_or(0, |link| link.version())
    }

    /// Number of peers that are connected.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.links.borrow().values().filter(|link| link.is_connected()).count()
    }

    /// Closes all connections and the port. The end of the executor would do neither: it leaks its tasks,
    /// with the descriptors that they hold.
    pub async fn stop(&self) {
        let (resolver, dials) = (self.resolver.take(), self.dials.take());
        for task in self.ports.take_tasks().chain(resolver).chain(dials.into_values()) {
            task.cancel().await;
        }
        while self.connected() > 0 || !self.strangers.is_empty() {
            self.all().iter().for_each(|link| link.hang_up("this server ends"));
            self.env.sleep(Duration::from_millis(1)).await;
        }
    }

    fn now_ms(&self) -> u64 {
        self.env.now().monotonic_ms
    }

    fn note_refusal(&self, address: SocketAddr, reason: &str) {
        if self.refusals.admit(self.now_ms()) {
            tracing::warn!(code = "RK0304", %address, reason, "refused a connection on the quorum port");
        }
    }

    const fn handshake(&self) -> Handshake<'_, E> {
        let Self { env, own, secrets, links, required, newest, .. } = self;
        Handshake { env, own: *own, newest: newest.get(), required, secrets, links }
    }

    /// Accepts connections of peers with greater ids, and of joiners.
    async fn accept(self: Rc<Self>, listener: E::Listener, deliver: Rc<Deliver>) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    let welcome = Rc::clone(&self).welcome(stream, address, Rc::clone(&deliver));
                    self.env.spawn(Class::Requests, welcome).detach();
                }
                // It no longer listens: the server is stopping.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                Err(error) => {
                    if self.refusals.admit(self.now_ms()) {
                        tracing::warn!(code = "RK0305", %error, "a peer's connection could not be accepted");
                    }
                    self.env.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn welcome(self: Rc<Self>, stream: E::Stream, address: SocketAddr, deliver: Rc<Deliver>) {
        let Some(stranger) = self.strangers.admit(address.ip().to_canonical()) else {
            return self.note_refusal(address, "all that are heard are from servers' addresses");
        };
        let displaced = async {
            stranger.displaced().await;
            Err(io::Error::other("it has made room for a newer connection before it had proved who it is"))
        };
        let introduced = or(self.introduce(stream, address), displaced).await;
        self.strangers.leave(&stranger);
        match introduced {
            Ok((link, connection, agreed)) => {
                link.serve(&self.env, connection, (agreed, None), &self.signs, &*deliver).await;
            }
            Err(error) if self.is_outrun(address, &error) => {}
            Err(error) => self.note_refusal(address, &error.to_string()),
        }
    }

    /// Whether a connection may be one of several that a server has dialed side by side, and has given up for
    /// another one.
    fn is_outrun(&self, address: SocketAddr, error: &io::Error) -> bool {
        let ended = matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
        ended && self.signs.are_shown() && self.strangers.are_from_server(address.ip().to_canonical())
    }

    /// Learns which peer has connected.
    async fn introduce(
        &self,
        stream: E::Stream,
        address: SocketAddr,
    ) -> io::Result<(Rc<Link>, Connection<E::Stream>, Agreed)> {
        let mut connection = stream.open().await?;
        let joins_from = self.admits_joiners.get().then(|| address.ip().to_canonical());
        let (peer, agreed) = self.handshake().answer(&mut connection, joins_from).await?;
        let known = self.link(peer);
        match (known, joins_from) {
            (Some(link), _) if peer > self.own || !link.is_listed() || self.looks_in_vain(&link) => {
                Ok((link, connection, agreed))
            }
            (None, Some(host)) if peer != self.own && peer.0 < ServerSet::ID_MAX => {
                let from = PeerAddress { id: peer, host: host.to_string(), port: 0 };
                let link = Rc::new(Link::joiner(from));
                self.links.borrow_mut().insert(peer, Rc::clone(&link));
                Ok((link, connection, agreed))
            }
            _ => Err(io::Error::other(format!("server {peer} is not one that dials this server"))),
        }
    }

    /// Whether a member with a smaller id may dial, since it does not listen where this server looks for it:
    /// one of the two was away while the member moved.
    fn looks_in_vain(&self, member: &Link) -> bool {
        self.admits_joiners.get() && member.is_missed() && !planted!(RefuseSmallerIds)
    }

    /// Keeps the members' addresses up to date; an unresolved name has none meanwhile.
    async fn resolve(self: Rc<Self>) {
        loop {
            let mut addresses = BTreeSet::new();
            for address in self.all().iter().flat_map(|link| link.addresses()) {
                let resolved = self.env.resolve(&address).await.unwrap_or_default();
                addresses.extend(resolved.into_iter().map(|address| address.ip().to_canonical()));
            }
            self.strangers.set_servers(addresses);
            self.env.sleep(RESOLVE_INTERVAL).await;
        }
    }

    /// Keeps a connection to a peer, for as long as the server runs: to one with a smaller id, or one that
    /// does not dial in spite of its greater id.
    async fn dial(self: Rc<Self>, link: Rc<Link>, greater: bool, deliver: Rc<Deliver>) {
        let Redial { first, last, .. } = self.redial;
        let mut pause = first;
        loop {
            if greater {
                self.env.sleep(2 * last).await;
            }
            if link.is_connected() {
                // It has dialed this server.
                self.env.sleep(last).await;
                continue;
            }
            let dialed = self.env.elapsed();
            match self.connect(&link).await {
                Ok(Reached { connection, agreed, at }) => {
                    link.set_trouble(String::new());
                    link.set_missed(false);
                    link.serve(&self.env, connection, (agreed, Some(at)), &self.signs, &*deliver).await;
                }
                Err(error) => {
                    link.set_missed(matches!(error, NotReached::Nobody(_)));
                    // A peer that is down for days is logged once, not at each dial.
                    if !greater && link.set_trouble(error.to_string()) {
                        error.log(link.peer());
                    }
                }
            }
            let lasted = self.env.elapsed().saturating_sub(dialed) > last && link.trouble().is_empty();
            pause = if lasted { first } else { (pause * 2).min(last) };
            self.env.sleep(pause).await;
        }
    }

    /// Dials all of a peer's addresses side by side; the first one at which it answers counts.
    async fn connect(&self, link: &Link) -> Result<Reached<E::Stream>, NotReached> {
        let turn = Turn::default();
        let mut addresses = link.addresses();
        if planted!(DialFirstAddress) {
            addresses.truncate(1);
        }
        let dials = addresses.iter().map(|at| self.connect_at(at, link, &turn));
        first_success(dials).await.map_err(|failures| NotReached::at_all(addresses.iter().zip(failures)))
    }

    /// Connects to the first address of a name at which that peer answers, at its own port or the other one.
    async fn connect_at(
        &self,
        at: &PeerAddress,
        link: &Link,
        turn: &Turn,
    ) -> Result<Reached<E::Stream>, NotReached> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address").into();
        for address in self.env.resolve(at).await? {
            match self.connect_to(address, at, link, turn).await {
                Ok(reached) => return Ok(reached),
                Err(error) => failure = error,
            }
        }
        let Some(also) = self.ports.also_at(at) else { return Err(failure) };
        for address in self.env.resolve(&also).await? {
            if let Ok(reached) = self.connect_to(address, at, link, turn).await {
                return Ok(reached);
            }
        }
        Err(failure)
    }

    async fn connect_to(
        &self,
        address: SocketAddr,
        at: &PeerAddress,
        link: &Link,
        turn: &Turn,
    ) -> Result<Reached<E::Stream>, NotReached> {
        // Before the peer is dialed, whose patience is shorter than that for a KDC.
        let ticket = or(self.handshake().ticket(&at.host), self.note_silent_kdc(link)).await;
        let ticket = ticket.map_err(NotReached::NoTicket)?;
        let dialed = self.env.dial(address, self.redial.last).await.map_err(NotReached::Nobody)?;
        let mut connection = dialed.open().await?;
        let agreed = self.handshake().begin(&mut connection, link.peer(), ticket, turn).await?;
        Ok(Reached { connection, agreed, at: at.clone() })
    }

    /// Says after a while that no KDC answers; never ends.
    async fn note_silent_kdc<T>(&self, link: &Link) -> T {
        self.env.sleep(KDC_PATIENCE).await;
        let silent = NotReached::NoTicket(io::Error::other("no KDC answers yet, waiting for one"));
        if link.peer() < self.own && link.set_trouble(silent.to_string()) {
            silent.log(link.peer());
        }
        std::future::pending().await
    }
}

/// A peer that was dialed.
struct Reached<S: Stream> {
    connection: Connection<S>,
    agreed: Agreed,
    at: PeerAddress,
}

/// Why a peer was not reached.
#[derive(Debug, thiserror::Error)]
enum NotReached {
    #[error("no ticket of Kerberos: {0}")]
    NoTicket(io::Error),
    /// Nobody listens there.
    #[error(transparent)]
    Nobody(io::Error),
    #[error(transparent)]
    Other(#[from] io::Error),
}

impl NotReached {
    /// What has failed at each of a peer's addresses.
    fn at_all<'a>(failures: impl Iterator<Item = (&'a PeerAddress, Self)>) -> Self {
        let mut failures: Vec<_> = failures.collect();
        if failures.len() == 1 {
            return failures.remove(0).1;
        }
        let no_ticket = failures.iter().all(|(_, failure)| matches!(failure, Self::NoTicket(_)));
        let nobody = failures.iter().all(|(_, failure)| matches!(failure, Self::Nobody(_)));
        let all: Vec<_> = failures.iter().map(|(at, failure)| format!("{at}: {failure}")).collect();
        let all = io::Error::other(all.join("; "));
        match (no_ticket, nobody) {
            (true, _) => Self::NoTicket(all),
            (_, true) => Self::Nobody(all),
            _ => Self::Other(all),
        }
    }

    fn log(&self, peer: ServerId) {
        match self {
            Self::NoTicket(error) => tracing::warn!(
                code = "RK0309", %peer, %error, "no ticket of Kerberos for a peer is to be had, trying on"
            ),
            Self::Nobody(error) | Self::Other(error) => {
                tracing::info!(%peer, %error, "peer not reached, trying on")
            }
        }
    }
}
