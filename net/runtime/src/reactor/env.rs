//! The host's environment on an executor of this runtime.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringkeeper_engine::replica::Now;
use ringkeeper_host::env::{Class, Env, Listener, PeerAddress, Task};
use socket2::Socket;

use super::storage::DiskStorage;
use super::tcp::{TcpListener, TcpStream};
use super::{executor, sleep, unblock, yield_if_needed, yield_now};
use crate::clock::Clock;
use crate::socket::{self, BACKLOG, MayListen};
use crate::tls::{PeerStream, PeerTls};

/// Bytes for a peer that may wait behind a send under way: a batch of the log, so that it takes one turn.
const ROOM_OF_LINK: usize = 2 << 20;

/// The executor of this thread and its machine.
#[derive(Clone)]
pub struct ReactorEnv {
    clock: Clock,
    tls: Option<Arc<PeerTls>>,
    may_listen: Rc<MayListen>,
}

impl ReactorEnv {
    /// The environment on this thread's executor, with this clock. Links are in the clear.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, tls: None, may_listen: Rc::new(|_| Ok(())) }
    }

    /// The environment with links that are secured so.
    #[must_use]
    pub fn with_tls(self, tls: Option<Arc<PeerTls>>) -> Self {
        Self { tls, ..self }
    }

    /// The environment of a server that listens for others where that is allowed.
    #[must_use]
    pub fn that_may_listen(self, may_listen: impl Fn(SocketAddr) -> io::Result<()> + 'static) -> Self {
        Self { may_listen: Rc::new(may_listen), ..self }
    }

    /// Listens for peers on a socket, on this thread's executor.
    #[must_use]
    pub fn listen_on(&self, socket: Socket) -> PeerListener {
        PeerListener {
            listener: TcpListener::from(std::os::fd::OwnedFd::from(socket)),
            tls: self.tls.clone(),
        }
    }
}

impl Env for ReactorEnv {
    type Storage = DiskStorage;
    type Stream = PeerStream<TcpStream>;
    type Listener = PeerListener;
    type Task = RunningTask;

    fn now(&self) -> Now {
        self.clock.now()
    }

    fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    fn random(&self) -> u64 {
        getrandom::u64().expect("the system's random source fails at the start or never")
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + 'static {
        sleep(time)
    }

    fn yield_now(&self) -> impl Future<Output = ()> + 'static {
        yield_now()
    }

    fn yield_if_needed(&self) -> impl Future<Output = ()> + 'static {
        yield_if_needed()
    }

    fn spawn(&self, class: Class, task: impl Future<Output = ()> + 'static) -> RunningTask {
        RunningTask(executor::spawn(class, task))
    }

    async fn resolve(&self, peer: &PeerAddress) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = (peer.host.clone(), peer.port);
        unblock(move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect)).await
    }

    async fn dial(&self, address: SocketAddr, patience: Duration) -> io::Result<PeerStream<TcpStream>> {
        let socket = TcpStream::connect(address, patience).await?;
        Ok(PeerStream::dialed(TcpStream::with_room(socket, ROOM_OF_LINK), self.tls.as_ref()))
    }

    fn listen(&self, address: SocketAddr) -> io::Result<PeerListener> {
        (self.may_listen)(address)?;
        socket::listen(address, BACKLOG).map(|socket| self.listen_on(socket))
    }
}

/// A task of this thread's executor.
pub struct RunningTask(executor::Task<()>);

impl Task for RunningTask {
    fn detach(self) {
        self.0.detach();
    }

    async fn cancel(self) {
        self.0.cancel().await;
    }
}

/// A port for other servers. It is closed at once when this is dropped.
pub struct PeerListener {
    listener: TcpListener,
    tls: Option<Arc<PeerTls>>,
}

impl Drop for PeerListener {
    fn drop(&mut self) {
        self.listener.shut_down();
    }
}

impl Listener for PeerListener {
    type Stream = PeerStream<TcpStream>;

    async fn accept(&self) -> io::Result<(PeerStream<TcpStream>, SocketAddr)> {
        loop {
            // A connection of the machine's own has no address, and no peer behind it.
            if let (socket, Some(address)) = self.listener.accept().await? {
                let stream = TcpStream::with_room(socket, ROOM_OF_LINK);
                return Ok((PeerStream::accepted(stream, self.tls.as_ref()), address));
            }
        }
    }
}
