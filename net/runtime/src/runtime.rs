//! What a runtime offers, so that the environment and the storage on it are written once.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ringkeeper_host::env::{Class, Task};
use socket2::Socket;

use crate::tls::Transport;

/// The executor of this thread.
#[expect(async_fn_in_trait, reason = "what is awaited here lives on one thread")]
pub trait Runtime: Clone + 'static {
    /// A connected socket.
    type Tcp: Transport<Runtime = Self>;
    /// A listening socket.
    type Port: 'static;
    /// A running task.
    type Task: Task;

    /// The runtime of this thread.
    fn here() -> Self;

    /// Starts a task.
    fn spawn(&self, class: Class, task: impl Future<Output = ()> + 'static) -> Self::Task;

    /// Ends after `time`.
    fn sleep(time: Duration) -> impl Future<Output = ()> + 'static;

    /// Completes after every other task that is ready has run.
    fn yield_now() -> impl Future<Output = ()> + 'static;

    /// As [`Self::yield_now`], but completes at once unless this task has run for long.
    fn yield_if_needed() -> impl Future<Output = ()> + 'static;

    /// Makes a call that blocks on another thread.
    async fn unblock<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T;

    /// Connects to an address, which has to answer within `patience`.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    async fn connect(address: SocketAddr, patience: Duration) -> io::Result<Self::Tcp>;

    /// Accepts connections on a socket that listens.
    ///
    /// # Errors
    /// No file descriptor is free.
    fn adopt(socket: Socket) -> io::Result<Self::Port>;

    /// The next connection, and where it comes from.
    ///
    /// # Errors
    /// A connection could not be accepted; later ones may be, unless the kind is `InvalidInput`: then the
    /// socket no longer listens.
    async fn accept(port: &Self::Port) -> io::Result<(Self::Tcp, SocketAddr)>;

    /// Closes a port at once, whatever is under way on it.
    fn close(port: &Self::Port);
}
