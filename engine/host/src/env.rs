//! The environment of the host: time, random numbers, tasks, files and connections.
//!
//! `net/runtime` implements it with io_uring and real clocks, the simulator from one seed. Futures run on the
//! thread that made them; nothing here is `Send` but work that is done aside.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_lite::{AsyncRead, AsyncWrite, AsyncWriteExt};
use ringkeeper_engine::members::{MemberAddress, ServerSpec};
use ringkeeper_engine::replica::Now;
use ringkeeper_log::storage::Storage;
use ringkeeper_wire::ServerId;

/// A task's priority for CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Work that clients and peers wait for.
    Requests,
    /// Work for idle CPU time, such as the scrub.
    Background,
}

/// A server: its id, and where it listens for the connections of others, or one of several such places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerAddress {
    /// The server.
    pub id: ServerId,
    /// A name, resolved at each dial, or an address. The server's certificate bears it, where there is one.
    pub host: String,
    /// The port for other servers.
    pub port: u16,
}

impl PeerAddress {
    /// All addresses of a member.
    pub fn of(server: &ServerSpec) -> impl Iterator<Item = Self> {
        let at = |it: &MemberAddress| (it.host.clone(), it.quorum_port);
        let id = ServerId(server.id);
        server.addresses.iter().map(at).map(move |(host, port)| Self { id, host, port })
    }
}

/// As `host:port`.
impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// An environment. Clones are handles of the same machine.
#[expect(async_fn_in_trait, reason = "everything of a server lives on one thread")]
pub trait Env: Clone + 'static {
    /// Its disk.
    type Storage: Storage;
    /// A connection to a peer.
    type Stream: Stream;
    /// The port for other servers.
    type Listener: Listener<Stream = Self::Stream>;
    /// A running task.
    type Task: Task;

    /// Both clocks of the moment.
    fn now(&self) -> Now;

    /// Time since an arbitrary beginning, on a clock that never jumps and is fine enough for rates.
    fn elapsed(&self) -> Duration;

    /// A random number that nobody can guess.
    fn random(&self) -> u64;

    /// Ends after `time`.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + 'static;

    /// Completes after every other task that is ready has run.
    fn yield_now(&self) -> impl Future<Output = ()> + 'static;

    /// As [`Self::yield_now`], but completes at once unless this task has run for long.
    fn yield_if_needed(&self) -> impl Future<Output = ()> + 'static;

    /// Does what computes for long on another thread, so that nothing on this one waits for it. If the future
    /// is dropped before, the work may be done or not.
    fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> + 'static;

    /// Starts a task on this thread.
    fn spawn(&self, class: Class, task: impl Future<Output = ()> + 'static) -> Self::Task;

    /// The addresses of a peer's name, in the order in which they should be dialed.
    ///
    /// # Errors
    /// The name cannot be resolved.
    async fn resolve(&self, peer: &PeerAddress) -> io::Result<Vec<SocketAddr>>;

    /// Connects to an address, which has to answer within `patience`.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    async fn dial(&self, address: SocketAddr, patience: Duration) -> io::Result<Self::Stream>;

    /// Listens for other servers at an address of this machine.
    ///
    /// # Errors
    /// The address is not there, or in use, or this server may not listen there.
    fn listen(&self, address: SocketAddr) -> io::Result<Self::Listener>;
}

/// A running task. When this is dropped the task ends, at its next await at the latest.
#[expect(async_fn_in_trait, reason = "everything of a server lives on one thread")]
pub trait Task: 'static {
    /// Lets the task run to its end.
    fn detach(self);

    /// Ends the task, and waits until everything it holds is dropped.
    async fn cancel(self);
}

/// A socket that accepts peers' connections.
#[expect(async_fn_in_trait, reason = "everything of a server lives on one thread")]
pub trait Listener: 'static {
    /// A connection.
    type Stream: Stream;

    /// The next connection, and where it comes from.
    ///
    /// # Errors
    /// A connection could not be accepted; later ones may be, unless the kind is `InvalidInput`: then the
    /// socket no longer listens.
    async fn accept(&self) -> io::Result<(Self::Stream, SocketAddr)>;
}

/// The half of a connection that sends.
#[expect(async_fn_in_trait, reason = "everything of a server lives on one thread")]
pub trait Writer: AsyncWrite + Unpin + 'static {
    /// Writes all of `bytes`, without a copy of them where the environment can.
    ///
    /// # Errors
    /// The connection has ended.
    async fn write_shared(&mut self, bytes: Bytes) -> io::Result<()> {
        self.write_all(&bytes).await
    }
}

/// An ordered byte stream to and from a peer.
#[expect(async_fn_in_trait, reason = "everything of a server lives on one thread")]
pub trait Stream: Sized + 'static {
    /// The half that receives.
    type Reader: AsyncRead + Unpin + 'static;
    /// The half that sends. What was written is with the system when it is flushed.
    type Writer: Writer;

    /// Secures the connection where the environment does so, and splits it. Ends within seconds, whatever
    /// the other end does.
    ///
    /// # Errors
    /// The other end is not trusted, or does not speak as this one; no file descriptor is free.
    async fn open(self) -> io::Result<Connection<Self>>;

    /// Closes the connection in both directions, and ends pending reads.
    fn shutdown(writer: &mut Self::Writer);
}

/// A connection to a peer in halves, of which one can be read while the other is written, by one task.
pub struct Connection<S: Stream> {
    /// The half that receives.
    pub reader: S::Reader,
    /// The half that sends.
    pub writer: S::Writer,
    /// The other end's certificate, where the environment asks for one.
    pub certificate: Option<Certificate>,
}

/// A certificate that is valid and belongs to the other end of a connection. Whose name it bears is left to
/// be checked.
pub struct Certificate(Box<dyn Fn(&str) -> bool>);

impl Certificate {
    /// A certificate that bears the names for which `bears_name` is true.
    pub fn new(bears_name: impl Fn(&str) -> bool + 'static) -> Self {
        Self(Box::new(bears_name))
    }

    /// Whether it bears the name (or the address) of this host.
    #[must_use]
    pub fn names(&self, host: &str) -> bool {
        (self.0)(host)
    }
}
