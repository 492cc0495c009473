//! The client inside a host: without thread, socket or clock, and with chance from a seed.
//!
//! For simulators, and for programs that have a loop of their own. [`Builder::host`](crate::Builder::host)
//! gives an ordinary [`Client`](crate::Client), for which all calls and recipes are there, and its [`Host`].
//! The host is told what happens and says what to do; between two calls of its methods nothing moves. So
//! with the same seed, the same calls at the same times give the same bytes.
//!
//! ```text
//!            time, dials that succeed or fail, bytes ──▶ Host ──▶ the connection to have, bytes, the next deadline
//!  program: polls its futures, whose wakers are called inside the host's methods
//! ```
//!
//! ```
//! use ringkeeper_client::Client;
//! use ringkeeper_client::core::{Link, Millis};
//!
//! let builder = Client::builder("a:2181,b:2181").seed(7);
//! let (client, mut host) = builder.host(Millis(0))?;
//! let reply = client.exists("/greeting"); // to be polled by the program
//! let Link::Open { attempt, server } = host.link() else { panic!("it wants a connection") };
//! // The caller connects to `server`, and says so.
//! host.connected(Millis(3), attempt);
//! let mut bytes = Vec::new();
//! host.take_output(Millis(3), &mut bytes);
//! assert!(!bytes.is_empty(), "the handshake");
//! # Ok::<(), ringkeeper_client::Error>(())
//! ```

use std::sync::Arc;

use super::Shared;
use super::clock::Clock;
use super::names::Names;
use crate::SessionState;
use crate::core::{Config, Link, Loss, Millis};

/// What the host of a client sees of it. Times never run backwards; an earlier one counts as the latest.
///
/// The client is to be dropped before the host, or closed, and the host to be driven until
/// [`Host::is_over`]: recipes that were given up delete their znodes meanwhile.
#[must_use = "nothing happens to the client unless its host does it"]
pub struct Host {
    shared: Arc<Shared>,
    /// Bytes of `attempt` that are the beginning of a frame.
    input: Vec<u8>,
    attempt: u64,
}

impl Host {
    pub(crate) fn start(config: Config, now: Millis) -> (Self, Arc<Shared>) {
        let names = Names::seeded(config.seed);
        let shared = Shared::new(config, Clock::told(now), names, None);
        (Self { shared: Arc::clone(&shared), input: Vec::new(), attempt: 0 }, shared)
    }

    /// It is `now`. To be called when a [`Host::deadline`] has come, and after every other call that
    /// changes anything; it also carries on with what recipes leave behind.
    pub fn advance(&mut self, now: Millis) {
        self.shared.clock.tell(now);
        self.shared.change(|core, now, outcomes| core.handle_timeout(now, outcomes));
        self.shared.tasks.run();
    }

    /// When to call [`Host::advance`] at the latest. A time that is over means at once; `None` means that
    /// nothing is timed.
    #[must_use]
    pub fn deadline(&self) -> Option<Millis> {
        if self.shared.tasks.is_woken() {
            return Some(self.shared.clock.now());
        }
        self.shared.read(|core, _| core.deadline())
    }

    /// The connection to have. When it differs from the one there is, that one is to be closed, and the
    /// server named to be connected to.
    #[must_use]
    pub fn link(&self) -> Link {
        self.shared.read(|core, _| core.link())
    }

    /// The connection of this attempt is made.
    pub fn connected(&mut self, now: Millis, attempt: u64) {
        self.shared.clock.tell(now);
        self.shared.change(|core, _, _| core.handle_connected(attempt));
    }

    /// The connection of this attempt could not be made, or is broken.
    pub fn lost(&mut self, now: Millis, attempt: u64, loss: Loss) {
        self.shared.clock.tell(now);
        self.shared.change(|core, now, outcomes| core.handle_lost(now, attempt, loss, outcomes));
    }

    /// Bytes have arrived on the connection of this attempt, in whatever pieces.
    pub fn received(&mut self, now: Millis, attempt: u64, bytes: &[u8]) {
        self.shared.clock.tell(now);
        if self.attempt != attempt {
            self.attempt = attempt;
            self.input.clear();
        }
        self.input.extend_from_slice(bytes);
        let input = &self.input;
        let used = self.shared.change(|core, now, outcomes| core.handle_input(now, attempt, input, outcomes));
        self.input.drain(..used);
    }

    /// Appends what is to be sent on the connection. It counts as sent at `now`.
    pub fn take_output(&mut self, now: Millis, into: &mut Vec<u8>) {
        self.shared.clock.tell(now);
        self.shared.change(|core, now, _| core.take_output(now, into));
    }

    /// A server to ask, apart from the connection, whether it has a quorum (the command `isro`), while a
    /// read-only one serves.
    pub fn take_probe(&mut self, now: Millis) -> Option<usize> {
        self.shared.clock.tell(now);
        self.shared.change(|core, now, _| core.take_probe(now))
    }

    /// This server has a quorum, as it says itself: the client goes there.
    pub fn has_quorum(&mut self, now: Millis, server: usize) {
        self.shared.clock.tell(now);
        self.shared.change(|core, now, outcomes| core.handle_read_write_server(now, server, outcomes));
    }

    /// Where the client stands with its session.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.shared.read(|core, _| core.state())
    }

    /// The session has ended, and nothing is left to be done.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state().is_ended() && self.shared.tasks.is_empty()
    }
}
