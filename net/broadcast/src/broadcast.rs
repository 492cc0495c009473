//! Starts a server on a thread of its own, and ends it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use async_channel::Receiver;
use futures_lite::future::or;

use glommio::{ExecutorJoinHandle, Placement};
use ringkeeper_engine::node::Node;
use ringkeeper_host::env::Env;
use ringkeeper_host::links::{Links, Port, Redial};
use ringkeeper_host::log_task::LogQueue;
use ringkeeper_host::pump::Pump;
use ringkeeper_host::scrub::Integrity;
use ringkeeper_host::snapshots::Trigger;
use ringkeeper_host::tasks::{self, Settings, Tasks};
use ringkeeper_host::transfer::Limits;
use ringkeeper_runtime::clock::Clock;
use ringkeeper_runtime::glommio::env::{Glommio, GlommioEnv};
use ringkeeper_runtime::glommio::executor::{self, executor};
use ringkeeper_runtime::tls::{PeerTls, StartError as TlsError};
use ringkeeper_runtime::{preflight, socket};
use ringkeeper_wire::ServerId;
use socket2::Socket;

use crate::config::{Config, ConfigError, Member};
use crate::handle::{Handle, Request, Shared};
use crate::handles::Handles;
use crate::machine::{StateError, StateMachine};
use crate::recovery::{Folder, FolderError};
use crate::replica::Replica;
use crate::waiters::Release;

/// How often the node is told the time.
const TICK: Duration = Duration::from_millis(20);

/// An append to the log that takes longer than this is logged.
const FORCE_WARNING: Duration = Duration::from_secs(1);

/// Pending connections of other members, at most.
const BACKLOG: i32 = 64;

const IO_MEMORY_BYTES: usize = 4 << 20;

/// Why a server did not start: one sentence, with the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The machine does not offer what is needed.
    #[error(transparent)]
    Unmet(#[from] preflight::Unmet),
    /// A key or certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The port for other members cannot be opened.
    #[error(
        "the port for other members, {address}, cannot be opened: {error}; end whoever listens there, or correct this member's address"
    )]
    Port {
        /// This member's own address.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// The state machine refuses its own snapshot.
    #[error("the state machine refuses its snapshot: {0}")]
    State(StateError),
    /// The system refuses a thread, io_uring or random bytes.
    #[error("the server's thread cannot start: {0}")]
    Thread(String),
}

/// Why a server ended by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The log failed: nothing more can be acknowledged.
    #[error("the log failed, nothing more can be acknowledged: {0}")]
    Log(String),
    /// What is in the log or came from the leader is not what was written.
    #[error("the server cannot go on: {0}")]
    Broken(String),
    /// The state machine panicked.
    #[error("the server's thread panicked")]
    Panicked,
}

impl From<tasks::Failure> for Failure {
    fn from(failure: tasks::Failure) -> Self {
        match failure {
            tasks::Failure::Log(failure) => Self::Log(failure.to_string()),
            tasks::Failure::Broken(reason) => Self::Broken(reason),
            tasks::Failure::Panicked => Self::Panicked,
        }
    }
}

/// A running server. It ends when it is dropped, when [`Self::join`] follows a [`Handle::shutdown`], or when
/// its log fails.
#[derive(Debug)]
pub struct Broadcast {
    handle: Handle,
    thread: Option<ExecutorJoinHandle<Result<(), Failure>>>,
}

impl Broadcast {
    /// Starts a server with its state machine, on a thread of its own. Returns when the folder is read, the
    /// machine is set to the newest snapshot, and the port is open. There need not be a leader by then: see
    /// [`StateMachine::status`].
    ///
    /// # Errors
    /// It cannot be started; nothing is left running.
    pub fn start<M: StateMachine>(config: Config, machine: M) -> Result<Self, StartError> {
        let members = config.check()?;
        preflight::check()?;
        let tls = config.tls.clone().map(|settings| PeerTls::start(settings, true, None)).transpose()?;
        let folder = Folder::lock(&config.folder)?;
        let port = open_port(&config, &members)?;
        let shared = Shared::new(config.proposal_bytes_max, config.outstanding_bytes_max);
        let (sender, requests) = async_channel::unbounded();
        let (started, starting) = mpsc::sync_channel(1);
        let handle = Handle::new(Arc::clone(&shared), sender);
        let name = format!("broadcast-{}", config.id);
        let server = Server { config, members, folder, port, tls, shared, requests };
        let thread = executor(&name, Placement::Unbound, IO_MEMORY_BYTES)
            .spawn(move || executor::main(server.run(machine, started)))
            .map_err(|error| StartError::Thread(error.to_string()))?;
        match starting.recv() {
            Ok(Ok(())) => Ok(Self { handle, thread: Some(thread) }),
            Ok(Err(error)) => {
                let _ = thread.join();
                Err(error)
            }
            Err(_) => Err(StartError::Thread("it panicked before it had started".to_owned())),
        }
    }

    /// A handle of the server, for any thread.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits for the server's end.
    ///
    /// # Errors
    /// It ended before it was told to.
    pub fn join(mut self) -> Result<(), Failure> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Failure> {
        match self.thread.take().map(ExecutorJoinHandle::join) {
            None => Ok(()),
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err(Failure::Panicked),
        }
    }
}

impl Drop for Broadcast {
    fn drop(&mut self) {
        self.handle.shutdown();
        if let Err(error) = self.end() {
            tracing::error!(code = "RK0109", %error, "a server had ended");
        }
    }
}

/// Opens the port on which other members connect, if there are any.
fn open_port(config: &Config, members: &[Member]) -> Result<Option<(SocketAddr, Socket)>, StartError> {
    let Some(own) = members.iter().find(|member| member.address.id.0 == config.id) else { return Ok(None) };
    let port = own.address.port;
    let host = if config.listen_on_all { "0.0.0.0" } else { &own.address.host };
    let failed = |error| StartError::Port { address: format!("{host}:{port}"), error };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs().map_err(failed)? {
        match socket::bind(address).and_then(|socket| socket.listen(BACKLOG).map(|()| socket)) {
            Ok(socket) => return Ok(Some((address, socket))),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// What the thread is built from.
struct Server {
    config: Config,
    members: Vec<Member>,
    folder: Folder,
    port: Option<(SocketAddr, Socket)>,
    tls: Option<Arc<PeerTls>>,
    shared: Arc<Shared>,
    requests: Receiver<Request>,
}

impl Server {
    /// Runs the thread's executor: recovery, then all tasks, until the end.
    async fn run<M: StateMachine>(
        self,
        machine: M,
        started: mpsc::SyncSender<Result<(), StartError>>,
    ) -> Result<(), Failure> {
        let clock = Clock::start();
        let Self { config, members, folder, port, tls, shared, requests } = self;
        let _reloading = tls.as_ref().map(|tls| glommio::spawn_local(tls.reload::<Glommio>()));
        let env = GlommioEnv::new(clock).with_tls(tls);
        let say = |result| {
            // `start` waits for this result.
            let _ = started.send(result);
        };
        let recovered = async {
            let recovered = folder.open(env.clone(), &config, random()?).await?;
            let replica = Replica::new(random()?, machine, recovered.state).map_err(StartError::State)?;
            let node = Node::new(replica, config.zab(&members), recovered.durable, random()?);
            let trigger =
                Trigger::new(config.snapshot_policy(), recovered.txns, recovered.bytes, env.random());
            Ok((node, trigger, recovered.log, Integrity::new(recovered.damage)))
        };
        let (node, trigger, log_task, integrity) = match recovered.await {
            Ok(recovered) => recovered,
            Err(error) => {
                say(Err(error));
                return Ok(());
            }
        };
        let named = members.iter().map(|member| &member.address).find(|address| address.id.0 == config.id);
        let port = port.zip(named.cloned()).map(|((address, socket), named)| {
            env.listen_on(socket).map(|listener| Port { named, address, listener })
        });
        let port = match port.transpose() {
            Ok(port) => port,
            Err(error) => {
                let address = format!("of member {}", config.id);
                say(Err(StartError::Port { address, error }));
                return Ok(());
            }
        };
        let ensemble = members.into_iter().map(|member| member.address);
        let links = Links::new(env.clone(), ServerId(config.id), ensemble, &config.secret, Redial::REAL);
        let waiters = Rc::default();
        let release = Release { waiters: Rc::clone(&waiters), requests };
        let handles = Handles::new(shared, waiters);
        let log = LogQueue::new(FORCE_WARNING);
        let pump = Pump::new(env, handles, links, node, Rc::clone(&log), trigger);
        let settings = Settings {
            tick: TICK,
            transfer: Limits::with_rate(config.snapshot_policy().bytes_per_second),
            scrub: (!config.scrub.rest.is_zero()).then_some(config.scrub),
        };
        let tasks = Tasks::start(&pump, log_task, integrity, settings);
        pump.start_links(port);
        say(Ok(()));

        let stop = async {
            Handles::receive(&pump, &release.requests).await;
            log.stop();
            std::future::pending().await
        };
        let ended = or(stop, tasks.ended()).await;
        pump.links().stop().await;
        tasks.cancel().await;
        tracing::info!(zxid = %pump.node().application().delivered(), "ended");
        ended.map_err(Failure::from)
    }
}

/// A number of the system's random source.
fn random() -> Result<u64, StartError> {
    getrandom::u64().map_err(|error| StartError::Thread(format!("no random bytes: {error}")))
}

/// Handles are for any thread.
const _: () = {
    const fn for_any_thread<T: Clone + Send + Sync>() {}
    for_any_thread::<Handle>();
};
