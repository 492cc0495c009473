//! The host's environment on glommio.

use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use glommio::net::{TcpListener, TcpStream};
use glommio::{Latency, Shares, TaskQueueHandle};
use ringkeeper_engine::replica::Now;
use ringkeeper_host::env::{Class, Env, Listener, PeerAddress, Task};
use socket2::Socket;

use super::dma::DmaStorage;
use super::tcp::adopt;
use crate::clock::Clock;
use crate::socket::{self, BACKLOG, MayListen};
use crate::tls::{PeerStream, PeerTls};

/// CPU shares of [`Class::Background`]; all other tasks together have 1000.
const BACKGROUND_SHARES: usize = 10;

/// The executor of this thread and its machine.
#[derive(Clone)]
pub struct GlommioEnv {
    clock: Clock,
    background: TaskQueueHandle,
    tls: Option<Arc<PeerTls>>,
    may_listen: Rc<MayListen>,
}

impl GlommioEnv {
    /// The environment on this thread's executor, with this clock. Links are in the clear.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let shares = Shares::Static(BACKGROUND_SHARES);
        let background = glommio::executor().create_task_queue(shares, Latency::NotImportant, "background");
        Self { clock, background, tls: None, may_listen: Rc::new(|_| Ok(())) }
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
    ///
    /// # Errors
    /// No file descriptor is free.
    pub fn listen_on(&self, socket: Socket) -> io::Result<PeerListener> {
        let handle = socket.try_clone()?;
        Ok(PeerListener { listener: adopt(socket), handle, tls: self.tls.clone() })
    }
}

impl Env for GlommioEnv {
    type Storage = DmaStorage;
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
        glommio::timer::sleep(time)
    }

    fn yield_now(&self) -> impl Future<Output = ()> + 'static {
        yield_now()
    }

    fn yield_if_needed(&self) -> impl Future<Output = ()> + 'static {
        glommio::yield_if_needed()
    }

    fn spawn(&self, class: Class, task: impl Future<Output = ()> + 'static) -> RunningTask {
        RunningTask(match class {
            Class::Requests => glommio::spawn_local(task),
            Class::Background => glommio::spawn_local_into(task, self.background)
                .expect("the queue was made on this executor and is never removed"),
        })
    }

    async fn resolve(&self, peer: &PeerAddress) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = (peer.host.clone(), peer.port);
        let resolved = move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        glommio::executor().spawn_blocking(resolved).await
    }

    async fn dial(&self, address: SocketAddr, patience: Duration) -> io::Result<PeerStream<TcpStream>> {
        let tcp = TcpStream::connect_timeout(address, patience).await?;
        Ok(PeerStream::dialed(tcp, self.tls.as_ref()))
    }

    fn listen(&self, address: SocketAddr) -> io::Result<PeerListener> {
        (self.may_listen)(address)?;
        socket::listen(address, BACKLOG).and_then(|socket| self.listen_on(socket))
    }
}

async fn yield_now() {
    glommio::executor().yield_task_queue_now().await;
}

/// A task of this thread's executor.
pub struct RunningTask(glommio::Task<()>);

impl Task for RunningTask {
    fn detach(self) {
        self.0.detach();
    }

    async fn cancel(self) {
        self.0.cancel().await;
    }
}

/// A port for other servers.
pub struct PeerListener {
    listener: TcpListener,
    handle: Socket,
    tls: Option<Arc<PeerTls>>,
}

impl Drop for PeerListener {
    /// Closes the port at once. A pending accept of io_uring would hold the socket, and the port with it.
    fn drop(&mut self) {
        // It fails only if the socket does not listen any more, which is the wanted result.
        let _ = self.handle.shutdown(Shutdown::Both);
    }
}

impl Listener for PeerListener {
    type Stream = PeerStream<TcpStream>;

    async fn accept(&self) -> io::Result<(PeerStream<TcpStream>, SocketAddr)> {
        loop {
            let stream = self.listener.accept().await?;
            // A connection that has ended already has no address.
            if let Ok(address) = stream.peer_addr() {
                return Ok((PeerStream::accepted(stream, self.tls.as_ref()), address));
            }
        }
    }
}
