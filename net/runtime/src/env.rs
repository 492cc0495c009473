//! The host's environment on a runtime and a machine.

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringkeeper_engine::replica::Now;
use ringkeeper_host::env::{Class, Env, Listener, PeerAddress};
use socket2::Socket;

use crate::clock::Clock;
use crate::helper::Helper;
use crate::names;
use crate::runtime::Runtime;
use crate::socket;
use crate::storage::{DiskFile, DiskStorage};
use crate::tls::{PeerStream, PeerTls};

/// Connections from other servers that wait to be accepted.
const BACKLOG: i32 = 64;

/// Whether a server may listen at an address for others, and if not, why.
type MayListen = dyn Fn(SocketAddr) -> io::Result<()>;

/// The executor of this thread and its machine, with files `F` of its runtime.
pub struct MachineEnv<F: DiskFile> {
    clock: Clock,
    runtime: F::Runtime,
    tls: Option<Arc<PeerTls>>,
    may_listen: Rc<MayListen>,
    /// For long work, if the runtime's own thread for what blocks is not to do it.
    helper: Option<Helper>,
}

impl<F: DiskFile> Clone for MachineEnv<F> {
    fn clone(&self) -> Self {
        let Self { clock, runtime, tls, may_listen, helper } = self;
        let (clock, runtime, may_listen) = (*clock, runtime.clone(), Rc::clone(may_listen));
        Self { clock, runtime, tls: tls.clone(), may_listen, helper: helper.clone() }
    }
}

impl<F: DiskFile> MachineEnv<F> {
    /// The environment on this thread's executor, with this clock. Links are in the clear.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let (runtime, may_listen) = (F::Runtime::here(), Rc::new(|_| Ok(())));
        Self { clock, runtime, tls: None, may_listen, helper: None }
    }

    /// The environment with a helper for long work.
    #[must_use]
    pub fn with_helper(self, helper: Helper) -> Self {
        Self { helper: Some(helper), ..self }
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
    pub fn listen_on(&self, socket: Socket) -> io::Result<PeerListener<F::Runtime>> {
        Ok(PeerListener { port: F::Runtime::adopt(socket)?, tls: self.tls.clone() })
    }
}

impl<F: DiskFile> Env for MachineEnv<F> {
    type Storage = DiskStorage<F>;
    type Stream = PeerStream<<F::Runtime as Runtime>::Tcp>;
    type Listener = PeerListener<F::Runtime>;
    type Task = <F::Runtime as Runtime>::Task;

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
        F::Runtime::sleep(time)
    }

    fn yield_now(&self) -> impl Future<Output = ()> + 'static {
        F::Runtime::yield_now()
    }

    fn yield_if_needed(&self) -> impl Future<Output = ()> + 'static {
        F::Runtime::yield_if_needed()
    }

    fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> + 'static {
        let helper = self.helper.clone();
        async move {
            match helper {
                // Without an answer the process is ending.
                Some(helper) => match helper.run(work).await {
                    Some(done) => done,
                    None => pending().await,
                },
                None => F::Runtime::unblock(work).await,
            }
        }
    }

    fn spawn(&self, class: Class, task: impl Future<Output = ()> + 'static) -> Self::Task {
        self.runtime.spawn(class, task)
    }

    async fn resolve(&self, peer: &PeerAddress) -> io::Result<Vec<SocketAddr>> {
        names::addresses(peer.host.clone(), peer.port).await
    }

    async fn dial(&self, address: SocketAddr, patience: Duration) -> io::Result<Self::Stream> {
        let tcp = F::Runtime::connect(address, patience).await?;
        Ok(PeerStream::dialed(tcp, self.tls.as_ref()))
    }

    fn listen(&self, address: SocketAddr) -> io::Result<Self::Listener> {
        (self.may_listen)(address)?;
        socket::listen(address, BACKLOG).and_then(|socket| self.listen_on(socket))
    }
}

/// A port for other servers. It is closed at once when this is dropped.
pub struct PeerListener<R: Runtime> {
    port: R::Port,
    tls: Option<Arc<PeerTls>>,
}

impl<R: Runtime> Drop for PeerListener<R> {
    fn drop(&mut self) {
        R::close(&self.port);
    }
}

impl<R: Runtime> Listener for PeerListener<R> {
    type Stream = PeerStream<R::Tcp>;

    async fn accept(&self) -> io::Result<(Self::Stream, SocketAddr)> {
        let (tcp, address) = R::accept(&self.port).await?;
        Ok((PeerStream::accepted(tcp, self.tls.as_ref()), address))
    }
}
