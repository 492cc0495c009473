//! The core on a real socket: one background thread a client, standard sockets and mio, no runtime.
//!
//! Callers encode their request straight into the core's output under a short lock, and are woken by the
//! driver thread when the reply is there. The thread sends whatever has been queued in one write, and
//! reads whatever has arrived in one read. A request that finds nothing else under way is written by its
//! own caller, which saves the hop between threads where only latency counts.

mod clock;
#[cfg(feature = "hosted")]
pub mod hosted;
mod names;
mod outcomes;
mod probe;
mod reply;
mod socket;
mod tasks;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod wait;

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Poll, Token};

use clock::Clock;
use names::Names;
use outcomes::Outcomes;
pub use outcomes::StateChanges;
pub(crate) use outcomes::{EventQueue, Watcher};
pub use reply::Reply;
pub(crate) use reply::{Asked, Completion, Decode, Detached, Slot};
use socket::Socket;
use tasks::Tasks;
use tls::Session;
pub(crate) use tls::{ClientSettings, Security};
pub use wait::Wait;

use crate::core::{Admission, Config, Core, Link, Loss, Millis, WatchRequest};
use crate::{Error, Result};
use ringkeeper_wire::OpCode;

const SOCKET: Token = Token(0);
const KICK: Token = Token(1);

/// A request's completion, as the core carries it.
pub(crate) type Request = Arc<dyn Completion>;

/// What callers and the driver thread have in common.
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    /// Of the driver thread. `None` if there is none: a host looks by itself.
    waker: Option<mio::Waker>,
    clock: Clock,
    names: Names,
    tasks: Tasks,
}

struct Inner {
    core: Core<Outcomes>,
    outcomes: Outcomes,
    /// The thread sleeps in `poll` with nothing to send: whoever queues a request wakes it, or writes to
    /// `direct`.
    is_asleep: bool,
    /// The open connection. Invariant: written to only by the driver thread while it is awake, and only
    /// under this lock while it is asleep.
    direct: Option<Arc<TcpStream>>,
    /// Bytes taken from the core that a direct write did not get rid of.
    leftover: Vec<u8>,
    /// The thread is gone, and nothing will be run any more.
    is_over: bool,
}

impl Shared {
    fn new(config: Config, clock: Clock, names: Names, waker: Option<mio::Waker>) -> Arc<Self> {
        let inner = Inner {
            core: Core::new(config, clock.now()),
            outcomes: Outcomes::default(),
            is_asleep: false,
            direct: None,
            leftover: Vec::new(),
            is_over: false,
        };
        Arc::new(Self { inner: Mutex::new(inner), waker, clock, names, tasks: Tasks::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here runs the program's code; a panic is a bug here, and the state stays consistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the core.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&Core<Outcomes>, Millis) -> R) -> R {
        let now = self.clock.now();
        look(&self.lock().core, now)
    }

    /// Lets the core forget or note something that concerns neither the server nor anybody who waits.
    pub(crate) fn note<R>(&self, change: impl FnOnce(&mut Core<Outcomes>) -> R) -> R {
        change(&mut self.lock().core)
    }

    /// Lets the core change, wakes whom that concerns, and the driver thread.
    pub(crate) fn change<R>(
        &self,
        change: impl FnOnce(&mut Core<Outcomes>, Millis, &mut Outcomes) -> R,
    ) -> R {
        let now = self.clock.now();
        let (result, wakers) = {
            let mut inner = self.lock();
            let Inner { core, outcomes, .. } = &mut *inner;
            (change(core, now, outcomes), outcomes.take_wakers())
        };
        wakers.into_iter().for_each(std::task::Waker::wake);
        self.kick();
        result
    }

    /// Queues a request.
    pub(crate) fn submit(
        &self,
        op: OpCode,
        request: Request,
        watch: Option<WatchRequest<Watcher>>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Admission> {
        let mut inner = self.lock();
        let admission = inner.core.submit(op, request, watch, encode).map_err(|(_, error)| error)?;
        if inner.is_asleep && !inner.write_directly(&self.clock) {
            inner.is_asleep = false;
            drop(inner);
            self.kick();
        }
        Ok(admission)
    }

    /// Wakes the driver thread.
    pub(crate) fn kick(&self) {
        if let Some(waker) = &self.waker {
            // The only failures are those of a full counter, which means that it is awake.
            let _ = waker.wake();
        }
    }

    /// A word that nobody else uses.
    pub(crate) fn unique_name(&self) -> uuid::Uuid {
        self.names.draw()
    }

    /// Runs a future of this crate on the driver thread. It must not block.
    pub(crate) fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        if !self.lock().is_over {
            self.tasks.spawn(self, future);
        }
    }

    /// A listener for changes of the session's state.
    pub(crate) fn listen(&self) -> StateChanges {
        self.lock().outcomes.listen()
    }
}

impl Inner {
    /// Sends the only request there is from the caller's own thread. `false` if the driver has to.
    fn write_directly(&mut self, clock: &Clock) -> bool {
        let Some(stream) = &self.direct else { return false };
        if self.core.outstanding() > 1 || !self.leftover.is_empty() {
            return false;
        }
        self.core.take_output(clock.now(), &mut self.leftover);
        let written = (&**stream).write(&self.leftover).unwrap_or(0);
        if written == self.leftover.len() {
            self.leftover.clear();
        } else {
            self.leftover.drain(..written);
        }
        self.leftover.is_empty()
    }
}

/// Starts a client's thread.
pub(crate) fn start(
    config: Config,
    servers: Vec<(String, u16)>,
    security: Option<Security>,
) -> Result<Arc<Shared>> {
    let resources = |error: std::io::Error| Error::Resources(error.to_string());
    let poll = Poll::new().map_err(resources)?;
    let waker = mio::Waker::new(poll.registry(), KICK).map_err(resources)?;
    let shared = Shared::new(config, Clock::start(), Names::Random, Some(waker));
    let driver = Driver {
        shared: Arc::clone(&shared),
        poll,
        socket: Socket::default(),
        servers: servers.into(),
        security,
        link: Link::Down,
    };
    std::thread::Builder::new()
        .name("ringkeeper-client".to_owned())
        .spawn(move || driver.run())
        .map_err(resources)?;
    Ok(shared)
}

struct Driver {
    shared: Arc<Shared>,
    poll: Poll,
    socket: Socket,
    servers: Arc<[(String, u16)]>,
    /// TLS, if the servers are spoken to with it.
    security: Option<Security>,
    /// The connection that the socket belongs to.
    link: Link,
}

/// What to do in a turn of the loop.
enum Turn {
    /// Bring the socket in line with this.
    Relink(Link),
    /// Send what was taken, and come back.
    Flush,
    /// Sleep until something happens, or for this long.
    Sleep(Option<Duration>),
    Over,
}

impl Driver {
    fn run(mut self) {
        let mut events = Events::with_capacity(8);
        loop {
            self.shared.tasks.run();
            match self.next_turn() {
                Turn::Relink(link) => self.relink(link),
                Turn::Flush => self.flush(),
                Turn::Sleep(timeout) => {
                    if let Err(error) = self.poll.poll(&mut events, timeout)
                        && error.kind() != std::io::ErrorKind::Interrupted
                    {
                        tracing::error!(%error, "poll");
                    }
                    self.handle_events(&events);
                }
                Turn::Over => return,
            }
        }
    }

    fn next_turn(&mut self) -> Turn {
        let now = self.shared.clock.now();
        let mut inner = self.shared.lock();
        let Inner { core, outcomes, .. } = &mut *inner;
        core.handle_timeout(now, outcomes);
        let (link, probe) = (core.link(), core.take_probe(now));
        let wakers = outcomes.take_wakers();
        let turn = if link != self.link {
            inner.direct = None;
            inner.leftover.clear();
            Turn::Relink(link)
        } else if inner.take_output(now, &mut self.socket) {
            Turn::Flush
        } else if inner.core.state().is_ended() && self.shared.tasks.is_empty() {
            inner.is_over = true;
            Turn::Over
        } else {
            // With unsent bytes, only the socket can tell when to go on.
            inner.is_asleep = !self.socket.has_unsent();
            inner.direct = self.socket.opened();
            let timeout = inner.core.deadline().map(|at| Duration::from_millis(at.0.saturating_sub(now.0)));
            Turn::Sleep(if wakers.is_empty() { timeout } else { Some(Duration::ZERO) })
        };
        drop(inner);
        wakers.into_iter().for_each(std::task::Waker::wake);
        if let Some(server) = probe {
            // Without a session, the next dial says what is wrong.
            if let Ok(session) = self.session(server) {
                probe::ask(&self.shared, &self.servers, server, session);
            }
        }
        turn
    }

    /// TLS with this server, if it is spoken to with it.
    fn session(&self, server: usize) -> Result<Option<Session>, Loss> {
        let (host, _) = &self.servers[server];
        self.security.as_ref().map(|security| security.session(host)).transpose()
    }

    /// Closes what is open, and dials what the core wants.
    fn relink(&mut self, link: Link) {
        self.socket.close(self.poll.registry());
        self.link = link;
        if let Link::Open { server, .. } = link {
            let session = self.session(server);
            let (host, port) = &self.servers[server];
            let dialed =
                session.and_then(|session| self.socket.dial(host, *port, session, self.poll.registry()));
            if let Err(loss) = dialed {
                self.lost(loss);
            }
        }
    }

    fn lost(&self, loss: Loss) {
        if let Link::Open { attempt, .. } = self.link {
            self.shared.change(|core, now, outcomes| core.handle_lost(now, attempt, loss, outcomes));
        }
    }

    fn flush(&mut self) {
        if let Err(loss) = self.socket.flush() {
            self.lost(loss);
        }
    }

    fn handle_events(&mut self, events: &Events) {
        self.shared.lock().is_asleep = false;
        if events.iter().any(|event| event.token() == KICK) {
            // A lone request is written by its caller: whoever wakes us is about to queue more. Letting
            // it go first makes one write of them.
            std::thread::yield_now();
        }
        for event in events.iter().filter(|event| event.token() == SOCKET) {
            let Link::Open { attempt, .. } = self.link else { continue };
            if self.socket.is_dialing() {
                match self.socket.finish_dial(self.poll.registry()) {
                    Ok(false) => continue,
                    Ok(true) => self.shared.change(|core, _, _| core.handle_connected(attempt)),
                    Err(loss) => {
                        self.lost(loss);
                        continue;
                    }
                }
            }
            if event.is_writable() {
                self.flush();
            }
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                self.receive(attempt);
            }
        }
    }

    /// Reads until the socket is empty, handing everything to the core.
    fn receive(&mut self, attempt: u64) {
        let shared = &self.shared;
        let received = self.socket.receive(|bytes| {
            let now = shared.clock.now();
            let mut inner = shared.lock();
            let Inner { core, outcomes, .. } = &mut *inner;
            let used = core.handle_input(now, attempt, bytes, outcomes);
            let wakers = outcomes.take_wakers();
            drop(inner);
            wakers.into_iter().for_each(std::task::Waker::wake);
            used
        });
        if let Err(loss) = received {
            self.lost(loss);
        }
    }
}

impl Inner {
    /// Moves what is to be sent to the socket, if that can take it. Whether there is any.
    fn take_output(&mut self, now: Millis, socket: &mut Socket) -> bool {
        if !socket.is_open() || socket.has_unsent() {
            return false;
        }
        let output = socket.output();
        output.append(&mut self.leftover);
        self.core.take_output(now, output);
        !output.is_empty()
    }
}
