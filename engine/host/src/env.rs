//! What the host asks of the machine that it runs on: time, random numbers, tasks, files and connections.
//!
//! `net/runtime` implements it with io_uring and real clocks, the simulator from one seed. Futures are driven
//! on the thread that made them; nothing here is `Send`.

use std::future::Future;
use std::io;
use std::time::Duration;

use futures_lite::{AsyncRead, AsyncWrite};
use ringkeeper_engine::replica::Now;
use ringkeeper_log::storage::Storage;
use ringkeeper_wire::ServerId;

/// The share of the processor that a task has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// What clients and peers wait for.
    Requests,
    /// What takes only the time that nobody else wants, such as the scrub.
    Background,
}

/// Another server: its id, and where it listens for the connections of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// The server.
    pub id: ServerId,
    /// A name, resolved at each dial, or an address.
    pub host: String,
    /// The port for other servers.
    pub port: u16,
}

/// A machine. Clones are the same one.
#[expect(async_fn_in_trait, reason = "everything of a server lives on one thread")]
pub trait Env: Clone + 'static {
    /// Its disk.
    type Storage: Storage;
    /// A connection to a peer.
    type Stream: Stream;
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

    /// Ends after every other task that is ready had its turn.
    fn yield_now(&self) -> impl Future<Output = ()> + 'static;

    /// As [`Self::yield_now`], but at once unless this task has run for long.
    fn yield_if_needed(&self) -> impl Future<Output = ()> + 'static;

    /// Starts a task on this thread.
    fn spawn(&self, class: Class, task: impl Future<Output = ()> + 'static) -> Self::Task;

    /// Connects to a peer: resolves its name and tries each address, for `patience` each.
    ///
    /// # Errors
    /// The name has no address, or none of them answers.
    async fn dial(&self, peer: &PeerAddress, patience: Duration) -> io::Result<Self::Stream>;
}

/// A running task. It ends when this is dropped, and not before it lets its thread go on.
#[expect(async_fn_in_trait, reason = "everything of a server lives on one thread")]
pub trait Task: 'static {
    /// Lets it run for as long as it wants.
    fn detach(self);

    /// Ends it, and waits until everything that it held is dropped.
    async fn cancel(self);
}

/// Where peers connect.
#[expect(async_fn_in_trait, reason = "everything of a server lives on one thread")]
pub trait Listener: 'static {
    /// A connection.
    type Stream: Stream;

    /// The next connection, and where it comes from, for messages to the operator.
    ///
    /// # Errors
    /// A connection could not be accepted; the next one may be.
    async fn accept(&self) -> io::Result<(Self::Stream, String)>;
}

/// Ordered bytes to and from a peer.
#[expect(async_fn_in_trait, reason = "everything of a server lives on one thread")]
pub trait Stream: 'static {
    /// The half that receives.
    type Reader: AsyncRead + Unpin + 'static;
    /// The half that sends.
    type Writer: AsyncWrite + Unpin + 'static;

    /// Both halves, so that one task can read while another writes. What is written leaves without delay.
    ///
    /// # Errors
    /// No file descriptor is free.
    fn split(self) -> io::Result<(Self::Reader, Self::Writer)>;

    /// Closes the connection in both directions, reads that wait included.
    async fn shutdown(writer: &mut Self::Writer);
}
