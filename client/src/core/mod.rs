//! The client as a value machine: every decision, and no I/O.
//!
//! A [`Core`] is told what happens (a connection came up, bytes arrived, time passed, the program makes a
//! request) and tells what to do: bytes to send ([`Core::take_output`]), the connection to have
//! ([`Core::link`]), the time to be called again ([`Core::deadline`]), and through a [`Sink`] the outcomes
//! for the program. It holds no socket, clock, thread or entropy, so that a simulator can run it with a
//! whole ensemble from one seed; the crate's own driver runs it on a real socket.
//!
//! # What it promises
//! - Replies are given in the order of the requests, each request is answered exactly once.
//! - When a connection is lost, the requests that were sent fail with [`Error::ConnectionLoss`], and *all*
//!   that were waiting behind them with [`Error::NotSent`]: of what had been asked by then, the server has
//!   executed a prefix, with no hole in it. Requests made later are new ones. Nothing is sent twice.
//! - A watch is delivered before the reply that shows the change, in the server's order.
//! - A server that has seen less than the client is never accepted (it refuses: the last zxid is carried).
//!
//! # Life of a connection
//! ```text
//! Waiting --> Dialing --> Handshaking --> Up --> (lost) next server at once, then with growing pauses
//! ```

mod config;
mod link;
mod login;
mod pending;
mod replies;
mod requests;
mod restore;
mod scram;
mod servers;
#[cfg(test)]
mod tests;
mod watches;

use std::collections::VecDeque;

use ringkeeper_wire::{PASSWORD_LEN, SessionId, Zxid};

pub use config::{Config, Credential, SessionTicket};
pub use link::{Link, Loss};
pub use login::{Login, LoginFailure, Mechanism, User};
pub use pending::Admission;
pub use watches::{WatchId, WatchRequest};

use pending::PendingQueue;
use servers::Servers;
use watches::Watches;

use crate::{Error, SessionState, WatchEvent};

/// A point in time: milliseconds since an origin of the caller's choice, never running backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    const fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// Where a [`Core`] delivers outcomes. Called while the core works: an implementation stores and returns.
pub trait Sink {
    /// The program's handle on a request.
    type Request;
    /// The program's handle on a watch.
    type Watcher;

    /// The outcome of a request: the body of the reply, or why there is none.
    fn reply(&mut self, request: Self::Request, outcome: Result<&[u8], Error>);

    /// Whether anybody still waits for a watch whose request is answered only now.
    fn wants(&self, watcher: &Self::Watcher) -> bool;

    /// A one-shot watch has fired, and is gone.
    fn fired(&mut self, watcher: Self::Watcher, event: WatchEvent);

    /// A persistent watch has seen something, and stays.
    fn seen(&mut self, watcher: &Self::Watcher, event: WatchEvent);

    /// A watch of either kind is gone with its session, for this reason.
    fn ended(&mut self, watcher: Self::Watcher, reason: Error);

    /// The session's state has changed.
    fn state(&mut self, state: SessionState);
}

/// One session's state machine. `S` receives what it finds out.
pub struct Core<S: Sink> {
    config: Config,
    servers: Servers,
    phase: Phase,
    /// Number of the current or latest dial. Events of earlier ones are ignored.
    attempt: u64,
    state: SessionState,
    session: Session,
    /// Before this time, the first session must be granted.
    establish_by: Option<Millis>,
    last_loss: Option<Loss>,

    pending: PendingQueue<S::Request, S::Watcher>,
    watches: Watches<S::Watcher>,
    /// Of the user, if there is one.
    login: Option<Login>,
    /// Unanswered auth requests of this connection, oldest first; `None` are replayed ones.
    auths: VecDeque<Option<S::Request>>,
    /// setWatches requests of this connection that are not yet answered.
    restores_left: usize,

    /// Bytes that come before all requests: handshake, credentials, watches, pings.
    prelude: Vec<u8>,
    last_sent: Millis,
    last_heard: Millis,
    /// When the marked request was sent, see [`PendingQueue`].
    marked_sent: Millis,
    ping_sent: Option<Millis>,
    next_probe: Option<ReadWriteProbe>,
}

/// What a session is to the client.
struct Session {
    id: SessionId,
    password: [u8; PASSWORD_LEN],
    /// Granted timeout; the wanted one before the first grant.
    timeout_ms: u64,
    /// Invariant: never decreases; moved by replies alone, never by events (see `restore`).
    last_zxid: Zxid,
    /// Whether a server with a quorum knows the session.
    is_global: bool,
    /// The servers have promised to keep the session until then.
    lease_until: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not started, or pausing between dials.
    Waiting {
        until: Millis,
    },
    Dialing {
        deadline: Millis,
    },
    Handshaking {
        deadline: Millis,
    },
    /// The session is granted, and the user is logging in.
    LoggingIn {
        deadline: Millis,
        is_read_only: bool,
    },
    Up,
    /// The program is closing the session; the server's last answer is awaited.
    Closing {
        deadline: Millis,
    },
    Ended,
}

/// The search for a server with a quorum, while a read-only one serves.
#[derive(Clone, Copy)]
struct ReadWriteProbe {
    at: Millis,
    pause_ms: u64,
    /// How far round the circle of servers the last look was.
    steps: usize,
}

impl<S: Sink> Core<S> {
    /// A client that begins to dial at `now`.
    #[must_use]
    pub fn new(mut config: Config, now: Millis) -> Self {
        let ticket = config.resume.unwrap_or_default();
        let mut core = Self {
            servers: Servers::new(config.server_count, config.seed),
            phase: Phase::Waiting { until: now },
            attempt: 0,
            state: SessionState::Connecting,
            session: Session {
                id: ticket.id,
                password: ticket.password,
                timeout_ms: u64::from(config.session_timeout_ms),
                last_zxid: Zxid::ZERO,
                is_global: ticket.id != SessionId::default(),
                lease_until: now,
            },
            establish_by: config.connect_timeout_ms.map(|ms| now.plus(ms)),
            last_loss: None,
            pending: PendingQueue::new(config.requests_max, config.bytes_max, config.linearizable_reads),
            watches: Watches::default(),
            login: config.user.take().map(|user| Login::new(user, config.seed)),
            auths: VecDeque::new(),
            restores_left: 0,
            prelude: Vec::new(),
            last_sent: now,
            last_heard: now,
            marked_sent: now,
            ping_sent: None,
            next_probe: None,
            config,
        };
        core.dial(now);
        core
    }

    /// Where the client stands with its session.
    pub const fn state(&self) -> SessionState {
        self.state
    }

    /// The session's id, 0 before there is one.
    pub const fn session_id(&self) -> SessionId {
        self.session.id
    }

    /// What another client needs in order to take the session over.
    pub const fn ticket(&self) -> SessionTicket {
        SessionTicket { id: self.session.id, password: self.session.password }
    }

    /// The session timeout granted, in milliseconds; the one wanted while there is no session.
    pub const fn session_timeout_ms(&self) -> u64 {
        self.session.timeout_ms
    }

    /// The newest zxid that a reply has shown.
    pub const fn last_zxid(&self) -> Zxid {
        self.session.last_zxid
    }

    /// Until then the servers keep the session, whatever happens to the connection: the time at which
    /// the latest answered request was sent, plus the timeout.
    pub const fn lease_until(&self) -> Millis {
        self.session.lease_until
    }

    /// Number of requests that are queued or awaiting their reply.
    pub fn outstanding(&self) -> usize {
        self.pending.len()
    }

    /// The planted fault.
    #[cfg(feature = "mutations")]
    pub(crate) const fn mutation(&self) -> crate::mutation::Mutation {
        self.config.mutation
    }

    fn set_state(&mut self, state: SessionState, sink: &mut S) {
        if self.state != state {
            self.state = state;
            sink.state(state);
        }
    }

    /// Why the session has ended, if it has.
    pub fn end_reason(&self) -> Option<Error> {
        match self.state {
            SessionState::Expired => Some(Error::SessionExpired),
            SessionState::AuthFailed => Some(Error::AuthFailed),
            SessionState::Unreachable => Some(Error::Unreachable(self.loss_text())),
            SessionState::Closed => Some(Error::Closed),
            _ if matches!(self.phase, Phase::Closing { .. }) => Some(Error::Closed),
            _ => None,
        }
    }

    fn loss_text(&self) -> String {
        self.last_loss.as_ref().map_or_else(|| "no answer".to_owned(), ToString::to_string)
    }

    /// Ends the session in `state`: everything that waits is told.
    fn end(&mut self, state: SessionState, sink: &mut S) {
        self.phase = Phase::Ended;
        self.set_state(state, sink);
        let reason = self.end_reason().unwrap_or(Error::Closed);
        self.prelude.clear();
        self.next_probe = None;
        for request in std::mem::take(&mut self.auths).into_iter().flatten() {
            sink.reply(request, Err(reason.clone()));
        }
        self.fail_requests(Some(&reason), sink);
        self.watches.end(&reason, sink);
    }
}
