//! One shard on its executor: its sockets, and the rings to and from the leader core.
//!
//! Each connection has a task that reads. The task decodes what it reads, and answers reads at once. The
//! shard's pump runs after all ready connections: it hands their requests to the core in one
//! [`RequestBatch`], and writes the output of each connection once.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_channel::Receiver;
use ringkeeper_engine::fourletter::Command;
use ringkeeper_engine::message::{ConnId, RequestBatch, Sent, ToShard};
use ringkeeper_engine::sasl::{Answer, ScramUsers};
use ringkeeper_engine::shard::{AfterWrite, Effect, Shard};
use ringkeeper_tls::Stores;

use super::admission::Admitted;
use super::audit::AuditLog;
use super::clock::Clock;
use super::helper::Helper;
use super::inspect::{Inspection, Inspectors};
use super::kerberos::{Kerberos, Login};
use super::memory_limit::MemoryState;
use super::rate_limiter::RateLimiter;
use super::reactor;
use super::reactor::tcp::TcpStream;
use super::ring::{Consumer, Producer};
use super::slow::{Teller, Told};
use super::tls::{PortSecurity, Stream};
use super::wake::WakeFlag;
use crate::config::ConfigError;

/// Bytes read from a socket at once. One buffer serves all connections of a shard.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Messages of the core that are handled before sockets are served again.
const MESSAGES_PER_TURN: usize = 64;

/// Connections whose notifications are written before sockets are served again.
const NOTIFIED_PER_TURN: usize = 64;

/// The same in bytes.
const NOTIFIED_BYTES_PER_TURN: usize = 512 * 1024;

/// What the shards of a server have in common.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) inspectors: Inspectors,
    pub(crate) memory: Arc<MemoryState>,
    /// For long reads.
    pub(crate) helper: Helper,
    pub(crate) audit: Option<AuditLog>,
    /// Where slow and sampled requests are explained.
    pub(crate) slow: Teller,
    pub(crate) kerberos: Option<Kerberos>,
    pub(crate) scram: Option<Arc<ScramStore>>,
}

/// The users of SCRAM-SHA-256, who are read again when their file changes.
pub(crate) type ScramStore = Stores<ScramUsers, ConfigError>;

/// A shard with its sockets and its rings.
pub(crate) struct ShardHost {
    shard: RefCell<Shard>,
    links: RefCell<HashMap<ConnId, Rc<Link>>>,
    next_conn: Cell<u64>,
    clock: Clock,
    /// The pump has something to do.
    work: WakeFlag,
    read_buffer: RefCell<Box<[u8]>>,
    to_core: Producer<Sent<RequestBatch>>,
    /// A request batch for which the ring had no room.
    unsent: RefCell<Option<Sent<RequestBatch>>>,
    shared: Shared,
    refusals: RateLimiter,
}

/// One socket.
struct Link {
    conn: ConnId,
    stream: RefCell<Stream>,
    /// Wakes the connection's task, which has one waker for life.
    waker: OnceCell<Waker>,
    output: RefCell<Output>,
    /// A login by Kerberos that has begun.
    login: RefCell<Option<Login>>,
}

#[derive(Default)]
struct Output {
    buffer: Vec<u8>,
    written: usize,
    /// How many bytes the shard gave last.
    given: usize,
}

/// The result of writing a connection's output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flushed {
    /// What the shard gave is written.
    Given,
    /// The socket takes no more; the connection's task is woken when it does.
    Blocked,
    /// The connection is over.
    Ended,
}

impl ShardHost {
    /// Connections are numbered from `first_conn`, which is random: so a leader's message to a connection
    /// from before a restart of this server does not reach a new one.
    pub(crate) fn new(
        shard: Shard,
        first_conn: u64,
        clock: Clock,
        to_core: Producer<Sent<RequestBatch>>,
        shared: Shared,
    ) -> Rc<Self> {
        let host = Rc::new(Self {
            shard: RefCell::new(shard),
            links: RefCell::default(),
            next_conn: Cell::new(first_conn),
            clock,
            work: WakeFlag::default(),
            read_buffer: RefCell::new(vec![0; READ_BUFFER_BYTES].into_boxed_slice()),
            to_core,
            unsent: RefCell::new(None),
            shared,
            refusals: RateLimiter::default(),
        });
        host.take_scram_users();
        host
    }

    /// Serves the socket of a client from `peer` until it is closed, after a handshake where there is to be
    /// one.
    pub(crate) fn serve(
        self: Rc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        admitted: Admitted,
        security: PortSecurity,
    ) -> impl Future<Output = ()> {
        // The connection counts until the kernel has taken its last bytes.
        stream.keep(admitted);
        async move {
            // Boxed: the connection's task keeps room for what it awaits in place for as long as it runs.
            let Some(link) = Box::pin(self.opened(stream, peer, security)).await else { return };
            poll_fn(|cx| self.poll_connection(&link, cx)).await;
            self.links.borrow_mut().remove(&link.conn);
            self.shard.borrow_mut().disconnected(self.clock.monotonic_us(), link.conn);
            self.work.raise();
            // Announces the end before the socket is closed; closing alone would reset the connection if
            // input was left unread.
            let _ = poll_fn(|cx| link.stream.borrow_mut().poll_close(cx)).await;
        }
    }

    /// A connection that the shard knows, after the handshake; `None` if that fails.
    async fn opened(&self, stream: TcpStream, peer: SocketAddr, security: PortSecurity) -> Option<Rc<Link>> {
        let (stream, certified) = match security.open(stream, peer, &self.read_buffer).await {
            Ok(opened) => opened,
            Err(reason) => {
                if self.refusals.admit(self.clock.monotonic_ms()) {
                    tracing::info!(%reason, %peer, "a TLS handshake failed");
                }
                return None;
            }
        };
        let conn = ConnId(self.next_conn.replace(self.next_conn.get() + 1));
        let link = Rc::new(Link {
            conn,
            stream: RefCell::new(stream),
            waker: OnceCell::new(),
            output: RefCell::default(),
            login: RefCell::default(),
        });
        self.links.borrow_mut().insert(conn, Rc::clone(&link));
        self.shard.borrow_mut().connected(self.clock.monotonic_us(), conn, peer);
        if let Some(id) = certified {
            self.shard.borrow_mut().certified(conn, id);
        }
        Some(link)
    }

    /// Ready when the connection is over.
    fn poll_connection(&self, link: &Link, cx: &mut Context<'_>) -> Poll<()> {
        link.remember(cx.waker());
        if self.flush(link) == Flushed::Ended {
            return Poll::Ready(());
        }
        if self.shard.borrow().has_work() {
            // The write may have made room, for other connections, too.
            self.work.raise();
        }
        loop {
            if !self.shard.borrow().wants_read(link.conn) {
                return Poll::Pending;
            }
            let mut buffer = self.read_buffer.borrow_mut();
            let read = link.stream.borrow_mut().poll_read(cx, &mut buffer);
            let Poll::Ready(read) = read else { return Poll::Pending };
            let bytes = match read {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(bytes) => bytes,
            };
            self.shard.borrow_mut().received(self.clock.monotonic_us(), link.conn, &buffer[..bytes]);
            self.work.raise();
            if bytes == buffer.len() {
                // More bytes wait, but other connections come first.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Writes what the shard gives of the connection's output, as far as the socket takes it. If there is
    /// more, the shard names the connection again.
    fn flush(&self, link: &Link) -> Flushed {
        let mut output = link.output.borrow_mut();
        if self.shard.borrow().is_aborted(link.conn) {
            link.stream.borrow().tcp().reset();
            return Flushed::Ended;
        }
        let mut stream = link.stream.borrow_mut();
        let mut cx = Context::from_waker(link.waker.get().unwrap_or(Waker::noop()));
        let mut ends = false;
        if output.buffer.is_empty() {
            let after = self.shard.borrow_mut().take_output(link.conn, &mut output.buffer);
            output.given = output.buffer.len();
            ends = output.given == 0 && after != AfterWrite::Continue;
            if stream.take(&mut output.buffer) {
                self.shard.borrow_mut().written(self.clock.monotonic_us(), link.conn, output.given);
            }
        }
        while output.written < output.buffer.len() {
            match stream.poll_write(&mut cx, &output.buffer[output.written..]) {
                Poll::Ready(Ok(bytes)) if bytes > 0 => {
                    output.written += bytes;
                    self.shard.borrow_mut().written(self.clock.monotonic_us(), link.conn, bytes);
                }
                Poll::Ready(_) => return Flushed::Ended,
                Poll::Pending => return Flushed::Blocked,
            }
        }
        output.written = 0;
        self.shard.borrow_mut().reuse(std::mem::take(&mut output.buffer));
        match stream.poll_flush(&mut cx) {
            Poll::Ready(Ok(())) if !ends => Flushed::Given,
            Poll::Ready(_) => Flushed::Ended,
            Poll::Pending => Flushed::Blocked,
        }
    }

    /// Moves messages between the core and the connections, for as long as the server runs.
    pub(crate) async fn pump(self: Rc<Self>, inbox: Consumer<Sent<ToShard>>) {
        loop {
            poll_fn(|cx| self.poll_work(&inbox, cx)).await;
            let now_us = self.clock.monotonic_us();
            for _ in 0..MESSAGES_PER_TURN {
                let Some(sent) = inbox.pop() else { break };
                self.shard.borrow_mut().deliver_sent(now_us, sent);
            }
            let unfinished = self.shard.borrow_mut().next_slice(now_us);
            self.carry_out_effects();
            self.record_audited();
            self.read_beside();
            let unwritten = self.write_outputs();
            self.send_requests(now_us);
            self.resume_paused();
            if unfinished || unwritten {
                self.work.raise();
                reactor::yield_now().await;
            }
        }
    }

    fn poll_work(&self, inbox: &Consumer<Sent<ToShard>>, cx: &mut Context<'_>) -> Poll<()> {
        let raised = self.work.poll_lower(cx).is_ready();
        let message = inbox.poll_ready(cx).is_ready();
        let room = self.unsent.borrow().is_some() && self.to_core.poll_space(cx).is_ready();
        if raised || message || room { Poll::Ready(()) } else { Poll::Pending }
    }

    fn carry_out_effects(self: &Rc<Self>) {
        loop {
            let Some(effect) = self.shard.borrow_mut().next_effect() else { return };
            match effect {
                Effect::FourLetter { conn, command } => {
                    reactor::spawn_local(Rc::clone(self).answer_four_letter_word(conn, command)).detach();
                }
                Effect::Token { conn, token } => {
                    reactor::spawn_local(Rc::clone(self).evaluate(conn, token)).detach();
                }
                Effect::Slow(request) => self.shared.slow.tell(Told::Request(*request)),
                Effect::Closing { conn, reason } if self.refusals.admit(self.clock.monotonic_ms()) => {
                    tracing::info!(%reason, peer = self.peer(conn), "closing a connection");
                }
                Effect::Limited { conn, limit } if self.refusals.admit(self.clock.monotonic_ms()) => {
                    let (bound, peer) = (limit.setting(), self.peer(conn));
                    tracing::warn!(
                        code = "RK0203",
                        bound,
                        peer,
                        "a request is refused: it asks for more than the bound allows"
                    );
                }
                Effect::Forbidden { conn, rule } if self.refusals.admit(self.clock.monotonic_ms()) => {
                    tracing::warn!(
                        code = "RK0204",
                        rule,
                        peer = self.peer(conn),
                        "a read is refused: a rule of authorisation forbids it"
                    );
                }
                Effect::LoginIgnored { conn, error } if self.refusals.admit(self.clock.monotonic_ms()) => {
                    let reason = error.map_or_else(
                        || {
                            "this server has no users: see java.security.auth.login.config and \
                             ringkeeper.scramFile"
                                .to_owned()
                        },
                        |error| error.to_string(),
                    );
                    tracing::warn!(
                        code = "RK0205",
                        reason,
                        peer = self.peer(conn),
                        "a client goes on without its login by SASL"
                    );
                }
                _ => {}
            }
        }
    }

    fn record_audited(&self) {
        let Some(audit) = &self.shared.audit else { return };
        let entries = self.shard.borrow_mut().take_audited();
        if !entries.is_empty() {
            audit.record(entries);
        }
    }

    fn peer(&self, conn: ConnId) -> Option<String> {
        self.links.borrow().get(&conn).and_then(|link| link.peer())
    }

    async fn answer_four_letter_word(self: Rc<Self>, conn: ConnId, command: Command) {
        let text = self.shared.inspectors.answer(command).await;
        self.shard.borrow_mut().answer(conn, &text);
        self.work.raise();
    }

    /// Has a token of a login by Kerberos evaluated. The connection counts until then, even if it has ended:
    /// so no client has more tokens evaluated than it may have connections.
    async fn evaluate(self: Rc<Self>, conn: ConnId, token: Vec<u8>) {
        let link = self.links.borrow().get(&conn).map(Rc::clone);
        let (Some(link), Some(kerberos)) = (link, &self.shared.kerberos) else { return };
        let begun = link.login.take();
        let Some((login, answer)) = kerberos.answer(begun, token).await else { return };
        if matches!(answer, Ok(Answer { user: None, .. })) {
            link.login.replace(Some(login));
        }
        self.shard.borrow_mut().token_evaluated(self.clock.monotonic_us(), conn, answer);
        self.work.raise();
    }

    /// Passes the next long read to the helper.
    fn read_beside(self: &Rc<Self>) {
        let Some(read) = self.shard.borrow_mut().next_long_read() else { return };
        let host = Rc::clone(self);
        reactor::spawn_local(async move {
            let Some(reply) = host.shared.helper.run(move || read.carry_out()).await else { return };
            host.shard.borrow_mut().long_read_done(host.clock.monotonic_us(), reply);
            host.work.raise();
        })
        .detach();
    }

    /// Writes all replies, and some of the notifications. Whether there may be more of them.
    fn write_outputs(&self) -> bool {
        let mut bytes = 0;
        for _ in 0..NOTIFIED_PER_TURN {
            loop {
                let Some(conn) = self.shard.borrow_mut().next_dirty() else { break };
                self.write_output(conn);
            }
            let Some(conn) = self.shard.borrow_mut().next_notified() else { return false };
            bytes += self.write_output(conn);
            if bytes >= NOTIFIED_BYTES_PER_TURN {
                break;
            }
        }
        true
    }

    /// Writes output of a connection; how many bytes the shard gave.
    fn write_output(&self, conn: ConnId) -> usize {
        let link = self.links.borrow().get(&conn).map(Rc::clone);
        let Some(link) = link else { return 0 };
        if self.flush(&link) == Flushed::Ended {
            link.wake();
        }
        link.output.borrow().given
    }

    fn send_requests(&self, now_us: u64) {
        let mut unsent = self.unsent.borrow_mut();
        if unsent.is_none() {
            let requests = Some(self.shard.borrow_mut().take_requests()).filter(|it| !it.is_empty());
            *unsent = requests.map(|message| Sent { at_us: now_us, message });
        }
        if let Some(requests) = unsent.take() {
            *unsent = self.to_core.push(requests).err();
        }
    }

    /// Resumes reading the sockets of connections that have room again.
    fn resume_paused(&self) {
        loop {
            let Some(conn) = self.shard.borrow_mut().next_readable() else { return };
            if let Some(link) = self.links.borrow().get(&conn) {
                link.wake();
            }
        }
    }

    /// Passes on who can log in by SCRAM-SHA-256.
    fn take_scram_users(&self) {
        if let Some(scram) = &self.shared.scram {
            self.shard.borrow_mut().set_scram_users(scram.config());
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&self) {
        self.take_scram_users();
        self.shard.borrow_mut().set_memory(self.shared.memory.get());
        self.shard.borrow_mut().tick(self.clock.monotonic_us());
        self.work.raise();
    }

    /// Whether the next tick should come soon.
    pub(crate) fn is_in_a_hurry(&self) -> bool {
        self.shard.borrow().has_muted()
    }

    /// Answers reports and resets that four-letter words ask for, for as long as the server runs.
    pub(crate) async fn inspected(self: Rc<Self>, inspections: Receiver<Inspection>) {
        while let Ok(inspection) = inspections.recv().await {
            inspection.carry_out(&mut self.shard.borrow_mut(), self.clock.monotonic_us());
        }
    }
}

impl Link {
    fn remember(&self, waker: &Waker) {
        let known = self.waker.get_or_init(|| waker.clone());
        debug_assert_eq!(known.data(), waker.data(), "a task has one waker for life");
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    fn peer(&self) -> Option<String> {
        self.stream.borrow().tcp().peer_addr().map(|peer| peer.to_string())
    }
}
