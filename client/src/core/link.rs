//! The connection: which one to have, when to give it up, where to go next.

use super::{Core, Millis, Phase, ReadWriteProbe, Sink};
use crate::SessionState;

/// Shortest time for a dial and its handshake, in milliseconds.
const DIAL_MS_MIN: u64 = 100;
/// First pause between two looks for a server with a quorum, in milliseconds; doubled each time.
const PROBE_PAUSE_MIN_MS: u64 = 100;
/// Longest such pause, in milliseconds.
const PROBE_PAUSE_MAX_MS: u64 = 60_000;

/// The connection that the core wants. A driver compares it with what it has, and acts on a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// None: close what there is.
    Down,
    /// One to this server, made for this attempt: close an older one.
    Open {
        /// Number of the attempt; to be named in everything the driver reports of the connection.
        attempt: u64,
        /// Index of the server.
        server: usize,
    },
}

/// Why a connection was given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// It could not be made.
    #[error("{0}")]
    Dial(String),
    /// It was closed, or broke.
    #[error("{0}")]
    Broken(String),
    /// The server was silent for too long.
    #[error("no answer in time")]
    Silent,
    /// The peer sent what no ZooKeeper server sends.
    #[error("not a ZooKeeper server, or a broken one: {0}")]
    Garbled(String),
    /// The server cannot do what the program asks of every read.
    #[error("the server has no linearizable reads, which are an extension of ringkeeper")]
    NotExtended,
    /// A server with a quorum was found in place of the read-only one.
    #[error("leaving a read-only server")]
    LeavingReadOnly,
}

impl<S: Sink> Core<S> {
    /// The connection to have.
    pub fn link(&self) -> Link {
        match self.phase {
            Phase::Waiting { .. } | Phase::Ended => Link::Down,
            _ => Link::Open { attempt: self.attempt, server: self.servers.current() },
        }
    }

    /// A server to ask, apart from the connection, whether it has a quorum (`isro`): for the answer see
    /// [`Core::handle_read_write_server`]. Each call that returns one sets the time of the next.
    pub fn take_probe(&mut self, now: Millis) -> Option<usize> {
        let probe = self.next_probe.as_mut().filter(|probe| probe.at <= now)?;
        probe.at = now.plus(probe.pause_ms);
        probe.pause_ms = (probe.pause_ms * 2).min(PROBE_PAUSE_MAX_MS);
        // The serving one comes last: it may have found its quorum again.
        probe.steps += 1;
        Some(self.servers.following(probe.steps))
    }

    /// When to call [`Core::handle_timeout`] at the latest; `None` when nothing is timed.
    pub fn deadline(&self) -> Option<Millis> {
        let phase = match self.phase {
            Phase::Waiting { until } => Some(until),
            Phase::Dialing { deadline }
            | Phase::Handshaking { deadline }
            | Phase::LoggingIn { deadline, .. }
            | Phase::Closing { deadline } => Some(deadline),
            Phase::Up => Some(self.silent_at().min(self.ping_at())),
            Phase::Ended => return None,
        };
        let lapse = (self.state == SessionState::Disconnected).then_some(self.session.lease_until);
        let probe = self.next_probe.map(|probe| probe.at);
        [phase, self.establish_by, lapse, probe].into_iter().flatten().min()
    }

    fn silent_at(&self) -> Millis {
        self.last_heard.plus(self.session.timeout_ms * 2 / 3)
    }

    fn ping_at(&self) -> Millis {
        match self.ping_sent {
            Some(_) => Millis(u64::MAX),
            None => self.last_sent.plus(self.session.timeout_ms / 3),
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Millis, sink: &mut S) {
        if self.establish_by.is_some_and(|deadline| now >= deadline) {
            self.establish_by = None;
            return self.end(SessionState::Unreachable, sink);
        }
        if self.state == SessionState::Disconnected && now >= self.session.lease_until {
            self.set_state(SessionState::Lapsed, sink);
            self.fail_requests(None, sink);
        }
        match self.phase {
            Phase::Waiting { until } if now >= until => self.dial(now),
            Phase::Dialing { deadline }
            | Phase::Handshaking { deadline }
            | Phase::LoggingIn { deadline, .. }
                if now >= deadline =>
            {
                self.lose(now, Loss::Silent, sink);
            }
            Phase::Up if now >= self.silent_at() => self.lose(now, Loss::Silent, sink),
            Phase::Up if now >= self.ping_at() => self.ping(now),
            Phase::Closing { deadline } if now >= deadline => self.end(SessionState::Closed, sink),
            _ => {}
        }
    }

    /// The connection of this attempt is made.
    pub fn handle_connected(&mut self, attempt: u64) {
        if let (Phase::Dialing { deadline }, true) = (self.phase, attempt == self.attempt) {
            self.phase = Phase::Handshaking { deadline };
            self.greet();
        }
    }

    /// The connection of this attempt could not be made, or is broken.
    pub fn handle_lost(&mut self, now: Millis, attempt: u64, loss: Loss, sink: &mut S) {
        if attempt == self.attempt {
            self.lose(now, loss, sink);
        }
    }

    /// A server said that it has a quorum: a client that is served by a read-only one goes there.
    pub fn handle_read_write_server(&mut self, now: Millis, server: usize, sink: &mut S) {
        if self.next_probe.is_some() {
            self.drop_link(Loss::LeavingReadOnly, sink);
            self.servers.go_to(server);
            self.dial(now);
        }
    }

    pub(super) fn dial(&mut self, now: Millis) {
        let servers = u64::try_from(self.servers.len()).unwrap_or(u64::MAX);
        // Every server has its turn before the time for the first connection is over.
        let to_establish_ms = self.establish_by.and(self.config.connect_timeout_ms);
        let total_ms = self.session.timeout_ms.min(to_establish_ms.unwrap_or(u64::MAX));
        let patience_ms = (total_ms / servers).max(DIAL_MS_MIN);
        self.attempt += 1;
        self.phase = Phase::Dialing { deadline: now.plus(patience_ms) };
    }

    pub(super) fn look_for_read_write_server(&mut self, now: Millis) {
        let pause_ms = PROBE_PAUSE_MIN_MS;
        self.next_probe = Some(ReadWriteProbe { at: now.plus(pause_ms), pause_ms: pause_ms * 2, steps: 0 });
    }

    /// Gives the connection up, and goes on to the next server.
    pub(super) fn lose(&mut self, now: Millis, loss: Loss, sink: &mut S) {
        match self.phase {
            Phase::Waiting { .. } | Phase::Ended => return,
            // The server answers a close by closing; and there is nobody left to reconnect for.
            Phase::Closing { .. } => return self.end(SessionState::Closed, sink),
            Phase::Dialing { .. } | Phase::Handshaking { .. } | Phase::LoggingIn { .. } | Phase::Up => {}
        }
        self.drop_link(loss, sink);
        match self.servers.failed() {
            0 => self.dial(now),
            pause_ms => self.phase = Phase::Waiting { until: now.plus(pause_ms) },
        }
    }

    /// Forgets everything that belonged to the connection. The caller decides what comes next.
    fn drop_link(&mut self, loss: Loss, sink: &mut S) {
        tracing::debug!(server = self.servers.current(), session = %self.session.id, %loss, "connection lost");
        self.last_loss = Some(loss);
        self.prelude.clear();
        self.ping_sent = None;
        self.next_probe = None;
        self.restores_left = 0;
        if self.phase == Phase::Up {
            self.fail_requests(None, sink);
            self.set_state(SessionState::Disconnected, sink);
        }
    }
}
