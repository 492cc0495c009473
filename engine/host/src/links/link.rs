//! The link to one other server: its output queue, and the connection that carries it, if there is one.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::io;
use std::time::Duration;

use futures_lite::future::or;
use futures_lite::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use ringkeeper_engine::zab::{Input, Message, Notification, PeerState, Pong};
use ringkeeper_log::mutation::planted;
use ringkeeper_wire::{ServerId, Zxid};

use super::frames::FrameReader;
use super::handshake::{Agreed, FEEDS_OBSERVERS, GRANTS_LEASES, SAYS_ABANDONED, SAYS_COMMITTED, SHOWS_SIGNS};
use super::output::{Output, Piece};
use super::seal::Seal;
use crate::env::{Connection, Env, PeerAddress, Stream, Writer};
use crate::rate_limiter::RateLimiter;
use crate::wake::WakeFlag;

/// Bytes that may wait for a peer, beyond the last message. The broadcast keeps less than half of this in
/// flight to one learner, so a peer with more does not read.
const OUTPUT_BYTES_MAX: usize = 128 << 20;

/// To handle messages of so many bytes may take long. Others have their turn before.
const TURN_BYTES: usize = 64 << 10;

/// Connections that are logged at once, and the time after which another one is: two machines with one id
/// take each other's connection once a second.
const LOGGED_MAX: u64 = 6;
const LOGGED_EVERY_MS: u64 = 60_000;

/// Signs of life within the time after which a peer counts as silent, and how many of them may be missed. So
/// a link is given up a little before the broadcast gives its other end up.
const SIGNS_IN_TIME: u32 = 8;
const SIGNS_MISSED_MAX: u32 = SIGNS_IN_TIME - 1;

/// The end of a connection that has lasted longer is logged, whatever was logged before.
const LASTING: Duration = Duration::from_secs(10);

/// The link to one server.
pub(super) struct Link {
    peer: ServerId,
    addresses: RefCell<Vec<PeerAddress>>,
    /// At which of them the connection that stands was dialed; `None` if the peer has dialed.
    dialed_at: RefCell<Option<PeerAddress>>,
    /// It is a member's.
    listed: Cell<bool>,
    /// Nobody listens where the peer was dialed last.
    missed: Cell<bool>,
    /// What waits to be written.
    output: RefCell<Output>,
    /// Whether a connection stands.
    connected: Cell<bool>,
    /// The version of its messages.
    version: Cell<u8>,
    /// Number of connections so far; only the last one may stand.
    dialed: Cell<u64>,
    /// The writer has something to do.
    work: WakeFlag,
    /// The peer is to be given up when it is silent.
    watched: WakeFlag,
    /// The connection is to be closed.
    closing: WakeFlag,
    reason: RefCell<Cow<'static, str>>,
    /// Why the last dial failed; empty if it succeeded.
    trouble: RefCell<String>,
    lines: RateLimiter,
}

impl Link {
    pub(super) fn new(peer: ServerId, addresses: Vec<PeerAddress>) -> Self {
        Self {
            peer,
            addresses: RefCell::new(addresses),
            dialed_at: RefCell::default(),
            listed: Cell::new(true),
            missed: Cell::new(false),
            output: RefCell::default(),
            connected: Cell::new(false),
            version: Cell::new(0),
            dialed: Cell::new(0),
            work: WakeFlag::default(),
            watched: WakeFlag::default(),
            closing: WakeFlag::default(),
            reason: RefCell::default(),
            trouble: RefCell::default(),
            lines: RateLimiter::new(LOGGED_MAX, LOGGED_EVERY_MS),
        }
    }

    /// The link to a server that is not listed, and dials from there.
    pub(super) fn joiner(from: PeerAddress) -> Self {
        Self { listed: Cell::new(false), ..Self::new(from.id, vec![from]) }
    }

    /// Whether it is a member's.
    pub(super) const fn is_listed(&self) -> bool {
        self.listed.get()
    }

    /// Whether nobody listens where the peer was dialed last: it may have moved, or be down.
    pub(super) const fn is_missed(&self) -> bool {
        self.missed.get()
    }

    pub(super) fn set_missed(&self, missed: bool) {
        self.missed.set(missed);
    }

    /// It is a member's, who listens there.
    ///
    /// A connection to an address that the member has left ends if others of its addresses stay: it is
    /// reached there. Without any, the member has moved, and has yet to hear of it over the connection that
    /// stands.
    pub(super) fn list(&self, addresses: Vec<PeerAddress>) {
        let before = self.addresses.replace(addresses);
        let now = self.addresses.borrow();
        let is_reached = before.iter().any(|at| now.contains(at));
        let was_left =
            self.dialed_at.borrow().as_ref().is_some_and(|at| before.contains(at) && !now.contains(at));
        self.listed.set(true);
        if is_reached && was_left {
            self.hang_up("its address has changed");
        }
    }

    /// Why the last dial of this peer failed; empty if it succeeded, or if the peer is the one that dials.
    pub(super) fn trouble(&self) -> String {
        self.trouble.borrow().clone()
    }

    /// Records why a dial failed (empty: it succeeded); whether that has changed.
    pub(super) fn set_trouble(&self, trouble: String) -> bool {
        let before = self.trouble.replace(trouble);
        before != *self.trouble.borrow()
    }

    /// Who is at the other end.
    pub(super) const fn peer(&self) -> ServerId {
        self.peer
    }

    /// Where it listens; a name is resolved at each dial.
    pub(super) fn addresses(&self) -> Vec<PeerAddress> {
        self.addresses.borrow().clone()
    }

    /// The version of the messages on its last connection; 0 before the first one.
    pub(super) const fn version(&self) -> u8 {
        self.version.get()
    }

    /// Whether a connection stands.
    pub(super) fn is_connected(&self) -> bool {
        self.connected.get()
    }

    /// Queues a message if a connection stands. A peer with too much output waiting is disconnected; it is
    /// synchronized anew when it reconnects.
    pub(super) fn send(&self, message: &Message) {
        if !self.connected.get() {
            return;
        }
        let mut output = self.output.borrow_mut();
        if output.bytes() > OUTPUT_BYTES_MAX {
            return self.hang_up("it does not read what it is sent");
        }
        let version = self.version.get();
        match message {
            Message::Notification(told) if version < FEEDS_OBSERVERS => {
                let committed = if version < SAYS_COMMITTED { Zxid::ZERO } else { told.committed };
                let state = match told.state {
                    PeerState::ObserverMaster => PeerState::Following,
                    state => state,
                };
                output.push(&Message::Notification(Notification { state, committed, ..*told }));
            }
            Message::Observer { .. } if version < FEEDS_OBSERVERS => return,
            // The server goes on with what is given up, and needs the new voters until it has a newer build.
            Message::Abandoned { .. } if version < SAYS_ABANDONED => return,
            Message::Pong(pong) if version < GRANTS_LEASES => {
                output.push(&Message::Pong(Pong { lease_ms: 0, ..*pong }));
            }
            message => output.push(message),
        }
        self.work.raise();
    }

    /// Signs of life are due from now on, from both ends: the peer has shown one, or this server begins to.
    pub(super) fn expect_signs(&self) {
        self.watched.raise();
        self.work.raise();
    }

    /// Closes the connection.
    pub(super) fn hang_up(&self, reason: impl Into<Cow<'static, str>>) {
        self.reason.replace(reason.into());
        self.closing.raise();
    }

    /// Carries messages until the connection breaks or is closed, or the peer is silent. `deliver` is called
    /// with the peer's connection, then with its messages, at last with its disconnection.
    pub(super) async fn serve<E: Env>(
        &self,
        env: &E,
        connection: Connection<E::Stream>,
        (agreed, dialed_at): (Agreed, Option<PeerAddress>),
        signs: &Signs,
        deliver: &(impl Fn(Input) + ?Sized),
    ) {
        let Connection { reader, mut writer, certificate } = connection;
        if !self.take_over(env).await {
            return;
        }
        let standing = Standing(self);
        self.dialed_at.replace(dialed_at);
        let Agreed { version, seals } = agreed;
        self.version.set(version);
        self.output.borrow_mut().seal_with(seals.sent);
        let (peer, connected) = (self.peer(), env.elapsed());
        let is_logged = self.lines.admit(env.now().monotonic_ms);
        if is_logged {
            tracing::info!(%peer, certified = certificate.is_some(), "peer connected");
        }
        deliver(Input::PeerConnected(peer));
        let closing = async {
            poll_fn(|cx| self.closing.poll_lower(cx)).await;
            io::Error::other(self.reason.take())
        };
        // Nothing is written after the decision to close, so that a peer never gets messages behind a gap.
        let heard = Heard::default();
        let reading = self.read(env, reader, seals.received, &heard, deliver);
        let carried = or(reading, self.write(env, &mut writer, signs, &heard));
        let shows = signs.are_shown() && version >= SHOWS_SIGNS;
        let silent = async {
            if !shows {
                poll_fn(|cx| self.watched.poll_lower(cx)).await;
            }
            heard.silence(env, signs).await
        };
        let error = or(closing, or(carried, silent)).await;
        E::Stream::shutdown(&mut writer);
        drop(standing);
        if is_logged || env.elapsed().saturating_sub(connected) > LASTING {
            tracing::info!(%peer, %error, "peer disconnected");
        }
        deliver(Input::PeerDisconnected(peer));
    }

    /// Replaces an older connection: it is ended first, so that its end is delivered before the new one's
    /// beginning. False if the peer has dialed yet again meanwhile.
    async fn take_over(&self, env: &impl Env) -> bool {
        let number = self.dialed.get() + 1;
        self.dialed.set(number);
        while self.connected.get() && !planted!(KeepOldConnection) {
            self.hang_up("the peer has dialed anew");
            env.sleep(Duration::from_millis(1)).await;
        }
        if self.dialed.get() != number {
            return false;
        }
        self.connected.set(true);
        // The old connection is closed.
        self.closing.lower();
        self.watched.lower();
        true
    }

    async fn read(
        &self,
        env: &impl Env,
        mut reader: impl AsyncRead + Unpin,
        mut seal: Option<Seal>,
        heard: &Heard,
        deliver: &(impl Fn(Input) + ?Sized),
    ) -> io::Error {
        let mut frames = FrameReader::new();
        // Since others had their turn.
        let mut handled_bytes = 0;
        loop {
            match reader.read(frames.room()).await {
                Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
                Ok(bytes) => frames.received(bytes),
                Err(error) => return error,
            }
            heard.lately.set(true);
            loop {
                let frame = match frames.next() {
                    Ok(Some(frame)) => frame,
                    Ok(None) => break,
                    Err(error) => return io::Error::other(error),
                };
                let opened = match &mut seal {
                    None => Ok(frame),
                    Some(seal) => seal.open(frame),
                };
                let (message, len) = match opened {
                    Ok([]) => {
                        if !heard.is_asked.replace(true) {
                            self.expect_signs();
                        }
                        continue;
                    }
                    Ok(opened) => (Message::decode(opened), opened.len()),
                    Err(error) => return io::Error::other(error),
                };
                handled_bytes += len;
                if handled_bytes >= TURN_BYTES {
                    handled_bytes = len;
                    // The pump carries out what the messages before have caused, then its users are served.
                    env.yield_now().await;
                    env.yield_now().await;
                }
                match message {
                    Ok(message) => deliver(Input::Message { from: self.peer(), message }),
                    Err(error) => return io::Error::other(error),
                }
            }
            // Other tasks run even if a peer sends without a pause.
            env.yield_if_needed().await;
        }
    }

    async fn write(
        &self,
        env: &impl Env,
        writer: &mut impl Writer,
        signs: &Signs,
        heard: &Heard,
    ) -> io::Error {
        loop {
            let Some(piece) = self.output.borrow_mut().pop() else {
                if let Err(error) = writer.flush().await {
                    return error;
                }
                let work = async {
                    poll_fn(|cx| self.work.poll_lower(cx)).await;
                    false
                };
                let knows = self.version.get() >= SHOWS_SIGNS;
                let shows = knows && (signs.are_shown() || heard.is_asked.get());
                if or(work, signs.due(env, shows)).await {
                    self.output.borrow_mut().push_sign();
                }
                continue;
            };
            let written = match &piece {
                Piece::Frames(frames) => writer.write_all(frames).await,
                // What is shared may have to be sent by itself, so a peer that is behind gets copies, together.
                Piece::Payload(payload) if self.output.borrow().has_more() => writer.write_all(payload).await,
                Piece::Payload(payload) => writer.write_shared(payload.clone()).await,
            };
            if let Err(error) = written {
                return error;
            }
            self.output.borrow_mut().written(piece);
        }
    }
}

/// Signs of life, which idle ends show in an ensemble in which some server has several addresses. An end that
/// does not know that yet answers in kind.
pub(super) struct Signs {
    shown: Cell<bool>,
    interval: Duration,
}

impl Signs {
    /// A peer that is silent for so long, or a sign less, is given up.
    pub(super) fn new(silence: Duration) -> Self {
        Self { shown: Cell::new(false), interval: silence / SIGNS_IN_TIME }
    }

    /// They are shown from now on; whether that is new.
    pub(super) fn begin(&self) -> bool {
        !self.shown.replace(true)
    }

    pub(super) const fn are_shown(&self) -> bool {
        self.shown.get()
    }

    /// Ends, with `true`, when an idle end that shows them has to show the next one.
    async fn due(&self, env: &impl Env, shows: bool) -> bool {
        if !shows {
            return pending().await;
        }
        env.sleep(self.interval).await;
        true
    }
}

/// What is heard of the peer.
#[derive(Default)]
struct Heard {
    /// A sign of life: the peer shows more of them, and has to be shown some.
    is_asked: Cell<bool>,
    /// Anything, since the last look.
    lately: Cell<bool>,
}

impl Heard {
    /// Ends when the peer is silent. A look that is late counts once: this process may have been off the CPU,
    /// and then has yet to read what has come in.
    async fn silence(&self, env: &impl Env, signs: &Signs) -> io::Error {
        let mut missed = 0;
        while missed < SIGNS_MISSED_MAX || planted!(TakeSilence) {
            env.sleep(signs.interval).await;
            missed = if self.lately.take() { 0 } else { missed + 1 };
        }
        io::Error::new(io::ErrorKind::TimedOut, "it shows no sign of life")
    }
}

/// Marks the link as connected while its connection is served; unmarks it even if the serving task is
/// cancelled.
struct Standing<'a>(&'a Link);

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.0.output.take();
        self.0.connected.set(false);
    }
}
