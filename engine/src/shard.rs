//! One shard: its connections, the request queues of their sessions, reads and watches.
//!
//! A shard is a plain value. The shell reports events of sockets and of the core, with the time in
//! microseconds on a clock that never jumps, and takes out what is to be written, submitted and logged. The
//! shard decides the order in which a client sees replies and events:
//!
//! - Replies leave in the order of the connection's requests. A write or sync leaves a gap in the backlog,
//!   which the core's answer fills. A read waits for the gaps before it; without any it is answered at once.
//! - In a published group, the events of each transaction go out first, then its reply if the writer is on
//!   this shard. Reads that waited for it run after the group's last transaction, on the group's state. So no
//!   client sees a state before the events that led to it.
//! - A reply names the last transaction processed when it was made. The events up to that transaction precede
//!   the reply, so a client that reconnects with its zxid has missed none of them.
//!
//! A long request does not delay other connections: it is executed in slices (`slice.rs`), or beside the
//! shard on an immutable state (`long_read.rs`).
//!
//! Memory does not grow with a client's speed: a connection whose client does not read, or that has more than
//! its share of unanswered requests, is neither decoded nor read until its queues have drained.

mod audited;
mod auth;
mod backlog;
mod connection;
mod effect;
mod handshake;
mod inbox;
mod latency;
mod long_read;
mod notification;
mod outbox;
mod publish;
mod read;
mod request;
mod request_throttle;
mod settings;
mod slice;
mod slow;
mod stats;
mod tenants;
#[cfg(test)]
mod tests;
mod watches;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use ringkeeper_wire::frame::next_frame;
use ringkeeper_wire::{SessionId, Zxid};

pub use self::effect::{CloseReason, Effect};
pub use self::long_read::{LongRead, LongReadReply};
pub use self::request_throttle::{RequestThrottle, ThrottleCounts};
pub use self::settings::Settings;
pub use self::stats::{ConnectionReport, Counters, ShardReport, Timings, WatchCounts};

use self::backlog::{Backlog, Load};
pub(crate) use self::connection::Slot;
use self::connection::{Connection, Connections, Phase};
use self::inbox::Inbox;
use self::long_read::LongReads;
use self::notification::Blocks;
use self::outbox::{Parts, Usage};
use self::publish::Publication;
use self::slow::SlowRequests;
use self::tenants::Muted;
use crate::audit;
use crate::fourletter::Command;
use crate::limits::Limit;
use crate::message::{ConnId, RequestBatch, Sent, Serving, ShardId, Submission, Submitted, ToShard};
use crate::spares::Spares;
use crate::state::State;
use crate::steps;
use crate::watch::WatchTable;

/// Longest first frame accepted, in bytes; a ConnectRequest has 45. Bounds the memory for connections without
/// a session.
const CONNECT_LEN_MAX: usize = 4096;

/// What the shell does with a connection after it has written the bytes it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum AfterWrite {
    /// Waits for more.
    Continue,
    /// Closes the socket, and calls [`Shard::disconnected`].
    Close,
    /// Closes it at once: drops the bytes it took and has not written.
    Abort,
}

/// The first bytes of a TLS handshake: content type and major version of the record.
const TLS_HANDSHAKE: [u8; 2] = [22, 3];

/// How long a client may take to read the last bytes of a connection that ends, milliseconds.
const LAST_BYTES_TIMEOUT_MS: u64 = 5_000;

/// Bytes of a shard's spare buffers, at most.
const SPARES_BYTES_MAX: usize = 16 << 20;

/// A larger buffer is freed. It has held more than a connection's output should grow to.
const SPARE_BYTES_MAX: usize = 2 << 20;

const US_PER_MS: u64 = 1_000;

/// Why a slot has a connection.
const IN_USE: &str = "a slot in use was looked up or listed in this very call";

/// How short of memory the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Enough: nothing is refused.
    Ample,
    /// Requests that make the tree grow are refused.
    Short,
    /// New sessions are refused, too.
    Scarce,
}

/// One shard of a server.
#[derive(Debug)]
pub struct Shard {
    id: ShardId,
    settings: Settings,
    serving: Serving,
    /// The disk has no room for the log: writes are refused.
    disk_full: bool,
    memory: Memory,
    /// The state after the last group delivered.
    view: Arc<State>,
    /// The last transaction processed; inside a group it runs ahead of `view`.
    zxid: Zxid,
    /// What is being published.
    publication: Option<Publication>,
    /// Some transactions of a group are published, but not all.
    in_group: bool,
    /// The number of that group.
    group: u64,
    /// Messages of the core that wait for the publication.
    undelivered: VecDeque<ToShard>,
    connections: Connections,
    watches: WatchTable,
    /// Draws the nonces of logins.
    nonces: ChaCha12Rng,
    /// The next batch for the core; its bytes are collected in `bodies`.
    requests: RequestBatch,
    bodies: Vec<u8>,
    /// Sessions heard from since the last tick that reported them.
    touched: Vec<Slot>,
    touches_reported_ms: u64,
    effects: VecDeque<Effect>,
    /// Connections with replies to be written, or to be closed, each once.
    dirty: VecDeque<ConnId>,
    /// Entries of the audit log that the shell has not taken.
    audited: Vec<audit::Entry>,
    /// Connections with notifications or more output to be written, each once.
    notified: VecDeque<ConnId>,
    /// Connections whose sockets are to be read again.
    readable: VecDeque<ConnId>,
    /// Connections whose input waits for the bounds that all connections of the shard share, each once.
    stalled: VecDeque<Slot>,
    /// The stalled connection whose turn it is.
    resumed: Option<Slot>,
    /// Connections that wait since their tenants use more than they may.
    muted: Muted,
    /// Some of them may have their turns: those of the tenants after this one first.
    resumes_after: Option<Arc<str>>,
    /// Connections with reads to run at the end of the current group, each once.
    to_drain: Vec<Slot>,
    /// Connections that end once their output is written, oldest first, and since when, milliseconds.
    ending: VecDeque<(u64, ConnId)>,
    /// Slots of connections that are gone, with watches left to be removed.
    departed: VecDeque<Slot>,
    /// Connections whose oldest request goes on in the next slice, each once.
    going_on: VecDeque<Slot>,
    /// Number of znodes that reads may still visit in this slice.
    visits_left: usize,
    /// Number of notifications that may still be sent in this slice.
    notifications_left: usize,
    long_reads: LongReads,
    /// Time of the last tick, milliseconds.
    ticked_ms: u64,
    /// Connections that may still be without a session, oldest first.
    sessionless: VecDeque<ConnId>,
    /// Connections whose clients have seen more than this server has published: the zxid that they have seen.
    ahead: BTreeSet<(i64, ConnId)>,
    /// What the requests of all connections take up that are not yet answered.
    outstanding: Load,
    /// Output in bytes that sockets have not yet taken.
    output_bytes: usize,
    /// Memory of the notifications that wait for their clients, in the output or behind long reads, without
    /// what is shared; bytes.
    notification_bytes: usize,
    /// The shared ones.
    blocks: Blocks,
    counters: Counters,
    timings: Timings,
    slow: SlowRequests,
    /// A notification, encoded once for all its watchers.
    notification: Vec<u8>,
    /// Connections that are sent the current event.
    watchers: Vec<Slot>,
    /// For connections, which have a buffer only while they have output.
    spares: Spares,
}

impl Shard {
    /// A shard without connections. It serves once it is told so by [`ToShard::Serving`]; until then it
    /// answers four-letter words alone.
    #[must_use]
    pub fn new(id: ShardId, settings: Settings, view: Arc<State>) -> Self {
        Self {
            id,
            serving: Serving::No,
            disk_full: false,
            memory: Memory::Ample,
            zxid: view.last_zxid(),
            view,
            connections: Connections::new(),
            watches: WatchTable::new(settings.hash_seed),
            nonces: ChaCha12Rng::from_seed(settings.sasl.nonce_seed),
            visits_left: settings.slice_visits_max,
            notifications_left: settings.notifications_max,
            slow: SlowRequests::new(settings.slow_above_us, settings.trace_one_in),
            settings,
            publication: None,
            in_group: false,
            group: 0,
            undelivered: VecDeque::new(),
            requests: RequestBatch::default(),
            bodies: Vec::new(),
            touched: Vec::new(),
            touches_reported_ms: 0,
            effects: VecDeque::new(),
            dirty: VecDeque::new(),
            audited: Vec::new(),
            notified: VecDeque::new(),
            readable: VecDeque::new(),
            stalled: VecDeque::new(),
            resumed: None,
            muted: Muted::new(),
            resumes_after: None,
            to_drain: Vec::new(),
            ending: VecDeque::new(),
            departed: VecDeque::new(),
            going_on: VecDeque::new(),
            long_reads: LongReads::default(),
            ticked_ms: 0,
            sessionless: VecDeque::new(),
            ahead: BTreeSet::new(),
            outstanding: Load::default(),
            output_bytes: 0,
            notification_bytes: 0,
            blocks: Blocks::default(),
            counters: Counters::default(),
            timings: Timings::new(id),
            notification: Vec::new(),
            watchers: Vec::new(),
            spares: Spares::new(SPARES_BYTES_MAX, SPARE_BYTES_MAX),
        }
    }

    /// A client connected.
    ///
    /// # Panics
    /// `conn` was used before and not reported as disconnected.
    pub fn connected(&mut self, now_us: u64, conn: ConnId, peer: SocketAddr) {
        let backlog = Backlog::new(self.settings.audits, self.settings.throttle.large_above_bytes);
        self.connections.insert(Connection::new(conn, peer, now_us, backlog));
        self.sessionless.push_back(conn);
    }

    /// Handles bytes received from the socket. Whole frames are handled in place; only the rest is copied.
    pub fn received(&mut self, now_us: u64, conn: ConnId, bytes: &[u8]) {
        let Some(slot) = self.connections.slot(conn) else { return };
        self.counters.received_bytes += bytes.len() as u64;
        self.touch(slot);
        let connection = self.connection(slot);
        if !connection.takes_input() {
            return;
        }
        if connection.input.is_empty() {
            let consumed = self.consume(now_us, slot, bytes);
            let connection = self.connection(slot);
            if connection.takes_input() {
                connection.input.push(&bytes[consumed..]);
            }
            self.update_reading(slot);
        } else {
            connection.input.push(bytes);
            self.pump(now_us, slot);
        }
    }

    /// Takes a buffer for replies to come, of any connection: one that [`Self::take_output`] has filled and
    /// that is written, or another.
    pub fn reuse(&mut self, buffer: Vec<u8>) {
        self.spares.give(buffer);
    }

    /// The socket took `bytes` of what [`Self::take_output`] gave.
    pub fn written(&mut self, now_us: u64, conn: ConnId, bytes: usize) {
        let Some(slot) = self.connections.slot(conn) else { return };
        let is_due = self.change_output(slot, |connection| {
            connection.outbox.written(bytes);
            connection.outbox.is_due()
        });
        if is_due {
            self.mark_notified(slot);
        }
        if self.connection(slot).waits {
            // What the client sends lies unread in the socket; that replies go out is the only sign of life.
            self.touch(slot);
        }
        self.record_latency(now_us, slot);
        self.tell_slow(now_us, slot);
        self.drain(now_us, slot);
        self.resume_stalled(now_us);
    }

    /// The connection is gone, whoever closed it.
    pub fn disconnected(&mut self, now_us: u64, conn: ConnId) {
        let Some((slot, connection)) = self.connections.remove(conn) else { return };
        self.tell_slow(now_us, slot);
        self.departed.push_back(slot);
        self.outstanding -= connection.backlog.load();
        self.counters.throttled.stale_dropped += u64::from(connection.throttled_since_us.is_some());
        let Usage { output, notifications } = connection.usage();
        self.output_bytes -= output;
        self.notification_bytes -= notifications;
        if connection.attached {
            if connection.touched {
                // The next report would not contain this session any more, and another server may be the next
                // to serve it.
                self.requests.touched.push(connection.session);
            }
            self.submit(conn, connection.session, Submitted::Detach);
        }
        self.forget_departed();
        self.resume_stalled(now_us);
    }

    /// Handles a message of the core, if necessary in slices. The order of delivery must be the order in
    /// which the core sent them.
    pub fn deliver(&mut self, now_us: u64, message: ToShard) {
        if self.publication.is_some() {
            self.undelivered.push_back(message);
        } else {
            self.handle(now_us, message);
            self.continue_publication(now_us);
        }
        self.resume_stalled(now_us);
    }

    /// As [`Self::deliver`], and records how long what was committed was on its way.
    pub fn deliver_sent(&mut self, now_us: u64, sent: Sent<ToShard>) {
        if let ToShard::Published(_) = &sent.message {
            self.timings.deliveries.record(now_us.saturating_sub(sent.at_us));
        }
        self.deliver(now_us, sent.message);
    }

    fn handle(&mut self, now_us: u64, message: ToShard) {
        match message {
            ToShard::Published(published) => self.publication = Some(Publication::new(published)),
            ToShard::View(view) => self.replace_view(view),
            ToShard::Attached { conn, session, password, timeout_ms } => {
                self.attach(now_us, conn, session, password, timeout_ms);
            }
            ToShard::Rejected { conn } => self.reject(conn),
            ToShard::Throttled { conn } => {
                if let Some(slot) = self.connections.slot(conn) {
                    self.abort(slot, Some(CloseReason::Throttled));
                }
            }
            ToShard::Evict { conn } => {
                if let Some(slot) = self.connections.slot(conn) {
                    self.connection(slot).attached = false;
                    self.abort(slot, Some(CloseReason::Evicted));
                }
            }
            ToShard::Synced { conn } => self.synced(now_us, conn),
            ToShard::Closed { conn } => self.closed(now_us, conn),
            ToShard::Serving(serving) => self.set_serving(serving),
            ToShard::DiskFull(full) => self.disk_full = full,
        }
    }

    /// Whether this server is short of memory: then it creates no sessions, and the leader does not let the
    /// tree grow.
    pub fn set_memory(&mut self, memory: Memory) {
        let before = std::mem::replace(&mut self.memory, memory);
        if (before == Memory::Ample) != (memory == Memory::Ample) {
            self.requests.short_of_memory = Some(memory != Memory::Ample);
        }
    }

    /// Time passed; to be called a few times a second.
    pub fn tick(&mut self, now_us: u64) {
        let now_ms = now_us / US_PER_MS;
        self.ticked_ms = now_ms;
        self.close_sessionless(now_ms);
        self.welcome_ahead(now_us, i64::MAX);
        self.abort_lingering(now_ms);
        if self.resumes_after.is_none() && !self.muted.is_empty() {
            self.resumes_after = Some("".into());
        }
        if now_ms.saturating_sub(self.touches_reported_ms) >= self.settings.touch_interval_ms {
            self.touches_reported_ms = now_ms;
            self.report_touches();
        }
    }

    /// Whether connections are muted: then they should have a tick every few milliseconds, so that they go on
    /// a few at a time.
    #[must_use]
    pub fn has_muted(&self) -> bool {
        !self.muted.is_empty()
    }

    /// Everything for the core since the last call; empty if nothing.
    pub fn take_requests(&mut self) -> RequestBatch {
        let bytes = std::mem::take(&mut self.bodies).into();
        RequestBatch { bytes, ..std::mem::take(&mut self.requests) }
    }

    /// The next thing for the shell to do.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The next connection that has replies to be written or is to be closed; each is named once until it has
    /// more.
    pub fn next_dirty(&mut self) -> Option<ConnId> {
        while let Some(conn) = self.dirty.pop_front() {
            if let Some(slot) = self.connections.slot(conn) {
                self.connection(slot).dirty = false;
                return Some(conn);
            }
        }
        None
    }

    /// The next connection that has notifications to be written, or more output than it gave at once. There
    /// may be very many of them, so the shell should look at [`Self::next_dirty`] in between.
    pub fn next_notified(&mut self) -> Option<ConnId> {
        while let Some(conn) = self.notified.pop_front() {
            if let Some(slot) = self.connections.slot(conn) {
                let connection = self.connection(slot);
                connection.notified = false;
                if connection.outbox.is_due() {
                    return Some(conn);
                }
            }
        }
        None
    }

    /// Exchanges the connection's output for `buffer`, which is emptied first. What is taken must be written
    /// before anything taken later, and reported by [`Self::written`]; the buffer then goes to
    /// [`Self::reuse`]. Not all output is given at once; when it is written, the connection is named again.
    pub fn take_output(&mut self, conn: ConnId, buffer: &mut Vec<u8>) -> AfterWrite {
        buffer.clear();
        let Some(slot) = self.connections.slot(conn) else { return AfterWrite::Close };
        self.change_output(slot, |connection| connection.outbox.take(buffer));
        steps::count(steps::kib(buffer.len()));
        let outbox = &self.connection(slot).outbox;
        if outbox.is_aborted() {
            AfterWrite::Abort
        } else if outbox.closes() {
            AfterWrite::Close
        } else {
            AfterWrite::Continue
        }
    }

    /// Whether the connection was aborted: to be asked before its taken output is written.
    #[must_use]
    pub fn is_aborted(&self, conn: ConnId) -> bool {
        let connection = self.connections.slot(conn).and_then(|slot| self.connections.get(slot));
        connection.is_none_or(|connection| connection.outbox.is_aborted())
    }

    /// Whether the socket is to be read; to be asked after [`Self::received`]. When it turns from no to yes
    /// later, [`Self::next_readable`] says so.
    #[must_use]
    pub fn wants_read(&self, conn: ConnId) -> bool {
        let connection = self.connections.slot(conn).and_then(|slot| self.connections.get(slot));
        connection.is_some_and(Connection::wants_read)
    }

    /// The next connection whose socket is to be read again. May name one that is gone or held back anew.
    pub fn next_readable(&mut self) -> Option<ConnId> {
        self.readable.pop_front()
    }

    /// What has happened since the last call for the audit log, in order.
    pub fn take_audited(&mut self) -> Vec<audit::Entry> {
        std::mem::take(&mut self.audited)
    }

    /// Whether there are requests for the core, an effect, output, a socket to read again, or another slice.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !(self.audited.is_empty()
            && self.requests.is_empty()
            && self.effects.is_empty()
            && self.dirty.is_empty()
            && self.notified.is_empty()
            && self.publication.is_none()
            && self.departed.is_empty()
            && self.going_on.is_empty()
            && !self.watches.is_counting()
            && self.resumes_after.is_none()
            && !self.long_reads.has_next()
            && self.readable.is_empty())
    }

    /// Answers an [`Effect::FourLetter`] and closes the connection.
    pub fn answer(&mut self, conn: ConnId, text: &str) {
        let Some(slot) = self.connections.slot(conn) else { return };
        self.write(slot, |out| out.extend_from_slice(text.as_bytes()));
        self.end(slot);
    }

    /// Number of connections.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// The shard's statistics, with the number of its connections.
    #[must_use]
    pub fn report(&self) -> ShardReport {
        ShardReport {
            counters: self.counters,
            latency: self.timings.all(),
            timings: Vec::new(),
            outstanding: self.outstanding.requests,
            output_bytes: self.output_bytes,
            watches: self.watches.counts(),
            connection_count: self.connections.len(),
            connections: Vec::new(),
        }
    }

    /// The shard's statistics, with a report of each connection.
    #[must_use]
    pub fn detailed_report(&self) -> ShardReport {
        steps::count(self.connections.len());
        let connections = self.connections.iter().map(|(_, connection)| connection.report()).collect();
        ShardReport { connections, ..self.report() }
    }

    /// The shard's statistics, with the distributions of its latencies.
    #[must_use]
    pub fn timed_report(&self) -> ShardReport {
        ShardReport { timings: vec![self.timings.clone()], ..self.report() }
    }

    /// Forgets the server's statistics (`srst`).
    pub fn reset_counters(&mut self) {
        self.counters = Counters::default();
        self.timings = Timings::new(self.id);
    }

    /// Forgets the connections' statistics (`crst`).
    pub fn reset_connections(&mut self, now_us: u64) {
        self.connections.iter_mut().for_each(|connection| connection.stats.reset(now_us));
    }
}

/// Shared by the modules of the shard.
impl Shard {
    fn connection(&mut self, slot: Slot) -> &mut Connection {
        self.connections.get_mut(slot).expect(IN_USE)
    }

    /// Where output of a connection is appended.
    fn output(&mut self, slot: Slot) -> &mut Vec<u8> {
        let connection = self.connections.get_mut(slot).expect(IN_USE);
        connection.outbox.buffer(&mut self.spares)
    }

    /// Appends output of one frame.
    fn write(&mut self, slot: Slot, encode: impl FnOnce(&mut Vec<u8>)) {
        let out = self.output(slot);
        let before = out.len();
        encode(out);
        self.appended(slot, before);
    }

    /// Counts a reply that was appended to output of `before` bytes.
    fn wrote(&mut self, slot: Slot, before: usize) {
        let bytes = self.appended(slot, before);
        self.counters.replies.record(bytes);
    }

    /// Counts one frame that was appended to output of `before` bytes, and returns its length.
    fn appended(&mut self, slot: Slot, before: usize) -> usize {
        let added = self.connection(slot).outbox.bytes.len() - before;
        steps::count(steps::kib(added));
        self.output_bytes += added;
        self.count_sent(slot, added);
        self.mark_dirty(slot);
        added
    }

    fn count_sent(&mut self, slot: Slot, frame_len: usize) {
        self.connection(slot).stats.sent += 1;
        self.counters.sent += 1;
        self.counters.sent_bytes += frame_len as u64;
    }

    /// Changes a connection's output, and what all connections use together.
    fn change_output<R>(&mut self, slot: Slot, change: impl FnOnce(&mut Connection) -> R) -> R {
        let connection = self.connection(slot);
        let before = connection.usage();
        let result = change(connection);
        let after = connection.usage();
        self.output_bytes = self.output_bytes + after.output - before.output;
        self.notification_bytes = self.notification_bytes + after.notifications - before.notifications;
        result
    }

    fn mark_notified(&mut self, slot: Slot) {
        let connection = self.connection(slot);
        let conn = connection.id;
        if !std::mem::replace(&mut connection.notified, true) {
            self.notified.push_back(conn);
        }
    }

    fn mark_dirty(&mut self, slot: Slot) {
        let connection = self.connection(slot);
        let conn = connection.id;
        if !std::mem::replace(&mut connection.dirty, true) {
            self.dirty.push_back(conn);
        }
    }

    fn submit(&mut self, conn: ConnId, session: SessionId, what: Submitted) {
        self.requests.submissions.push(Submission { conn, session, local: false, what });
    }

    /// Closes the connection once its output is written.
    fn end(&mut self, slot: Slot) {
        let connection = self.connection(slot);
        connection.phase = Phase::Closed;
        connection.input = Inbox::default();
        connection.outbox.close_after_flush();
        let conn = connection.id;
        self.ending.push_back((self.ticked_ms, conn));
        self.drop_backlog(slot);
        self.mark_dirty(slot);
    }

    fn drop_backlog(&mut self, slot: Slot) {
        let backlog = std::mem::take(&mut self.connection(slot).backlog);
        self.outstanding -= backlog.load();
    }

    /// Closes the connection at once, unless it is closing already.
    fn abort(&mut self, slot: Slot, reason: Option<CloseReason>) {
        if self.connection(slot).phase != Phase::Closed {
            self.reset(slot, reason);
        }
    }

    /// Closes the connection at once, even if it is ending and has output left to write.
    fn reset(&mut self, slot: Slot, reason: Option<CloseReason>) {
        self.change_output(slot, |connection| {
            connection.outbox.abort();
            connection.held_notifications = Parts::default();
        });
        let connection = self.connection(slot);
        let conn = connection.id;
        connection.phase = Phase::Closed;
        connection.input = Inbox::default();
        self.drop_backlog(slot);
        self.mark_dirty(slot);
        if let Some(reason) = reason {
            self.note_close(conn, reason);
        }
    }

    /// Counts and logs a request that exceeds a bound.
    fn note_limit(&mut self, slot: Slot, limit: Limit) {
        self.counters.limits.count(limit);
        let conn = self.connection(slot).id;
        self.effects.push_back(Effect::Limited { conn, limit });
    }

    fn note_close(&mut self, conn: ConnId, reason: CloseReason) {
        match reason {
            CloseReason::Frame(_)
            | CloseReason::Tls
            | CloseReason::MalformedConnect
            | CloseReason::MalformedHeader => {
                self.counters.malformed += 1;
            }
            CloseReason::SlowReader(_) | CloseReason::Lingering => self.counters.slow_readers += 1,
            CloseReason::Sessionless => self.counters.sessionless_expired += 1,
            CloseReason::AuthFailed | CloseReason::LoginFailed(_) => self.counters.auth_failed += 1,
            CloseReason::Limit(limit) => self.counters.limits.count(limit),
            CloseReason::NotServing => {
                self.counters.not_serving += 1;
                self.counters.connections_rejected += 1;
            }
            CloseReason::ClientAhead { .. }
            | CloseReason::Leads
            | CloseReason::NoMemory
            | CloseReason::ReadOnlyRefused
            | CloseReason::Throttled => {
                self.counters.connections_rejected += 1;
            }
            CloseReason::LargeRequests { .. } => self.counters.throttled.large_rejected += 1,
            CloseReason::Stale => self.counters.throttled.stale_dropped += 1,
            CloseReason::Evicted
            | CloseReason::OpCode(_)
            | CloseReason::AuthRequired
            | CloseReason::ReplyTooLong
            | CloseReason::OutOfOrder => {}
        }
        self.effects.push_back(Effect::Closing { conn, reason });
    }
}

/// From bytes to frames.
impl Shard {
    /// Handles the waiting input, as far as bounds and backlog allow.
    fn pump(&mut self, now_us: u64, slot: Slot) {
        let mut input = std::mem::take(&mut self.connection(slot).input);
        let consumed = self.consume(now_us, slot, input.waiting());
        let connection = self.connection(slot);
        if connection.takes_input() {
            input.consume(consumed);
            connection.input = input;
        }
        self.update_reading(slot);
    }

    /// Handles the whole frames at the front of `input` while the connection may proceed. Returns the number
    /// of bytes consumed.
    fn consume(&mut self, now_us: u64, slot: Slot, input: &[u8]) -> usize {
        self.connection(slot).waits = false;
        let mut consumed = 0;
        let mut frames = 0;
        let mut left = self.settings.slice_visits_max.max(1);
        while let Some(rest) = input.get(consumed..).filter(|rest| !rest.is_empty()) {
            let (fresh, len_max) = match self.connection(slot).phase {
                Phase::Fresh => (true, self.settings.frame_len_max.min(CONNECT_LEN_MAX)),
                Phase::Attached => (false, self.settings.frame_len_max),
                Phase::Establishing | Phase::LoggingIn(_) | Phase::Ending | Phase::Closed => break,
            };
            if fresh && let Some(command) = Command::parse(rest) {
                self.four_letter_word(slot, command);
                break;
            }
            if !self.proceeds(now_us, slot) {
                break;
            }
            if left == 0 {
                self.take_input_later(slot);
                break;
            }
            // All of the client's identities may be compared with an ACL.
            left = left.saturating_sub(1 + self.connection(slot).identities.len());
            match next_frame(rest, len_max) {
                Ok(_) if !fresh && self.refuses_large(slot, rest) => break,
                Ok(Some((frame, len))) if self.frame(now_us, slot, frame) => {
                    consumed += len;
                    frames += 1;
                }
                Ok(Some(_)) => {
                    // A client that is ahead may give up meanwhile, which shows when its socket is read.
                    self.connection(slot).waits = !fresh || rest.len() > CONNECT_LEN_MAX;
                    break;
                }
                Ok(None) => break,
                Err(_) if fresh && rest.starts_with(&TLS_HANDSHAKE) => {
                    self.abort(slot, Some(CloseReason::Tls));
                    break;
                }
                Err(error) => {
                    self.abort(slot, Some(CloseReason::Frame(error)));
                    break;
                }
            }
        }
        let connection = self.connection(slot);
        let waited_us = connection.arrival(now_us).input_us;
        if connection.waits {
            connection.waits_since_us.get_or_insert(now_us);
        } else {
            connection.throttled_since_us = None;
            connection.waits_since_us = None;
            connection.waits_unread = false;
        }
        if frames > 0 {
            self.timings.inputs.record_n(waited_us.into(), frames);
        }
        consumed
    }

    fn update_reading(&mut self, slot: Slot) {
        let connection = self.connection(slot);
        let (conn, wants_read) = (connection.id, connection.wants_read());
        let before = std::mem::replace(&mut connection.reading, wants_read);
        if wants_read && !before {
            self.readable.push_back(conn);
        }
    }

    /// Handles one frame. False if it must be handled again later.
    fn frame(&mut self, now_us: u64, slot: Slot, frame: &[u8]) -> bool {
        steps::count(1 + steps::kib(frame.len()));
        let connection = self.connection(slot);
        let fresh = connection.phase == Phase::Fresh;
        let taken = if fresh { self.connect(slot, frame) } else { self.request(now_us, slot, frame) };
        if taken {
            self.counters.connection_requests += u64::from(fresh);
            self.counters.received += 1;
            self.connection(slot).stats.received += 1;
        }
        taken
    }

    /// Answers a four-letter word; `None` means that its argument is not complete yet.
    fn four_letter_word(&mut self, slot: Slot, command: Option<Command>) {
        let Some(command) = command else { return };
        let connection = self.connection(slot);
        let conn = connection.id;
        connection.phase = Phase::Ending;
        connection.input = Inbox::default();
        if self.settings.four_letter_words.allows(command.word) {
            self.effects.push_back(Effect::FourLetter { conn, command });
        } else {
            self.answer(conn, &crate::fourletter::not_in_whitelist(command.word));
        }
    }

    /// Whether the bounds allow the connection another request. If not, it continues when its own output or
    /// backlog shrinks; it is listed in `stalled` if other connections could make room for it.
    fn proceeds(&mut self, now_us: u64, slot: Slot) -> bool {
        let settings = &self.settings;
        let connection =
            self.connections.get_mut(slot).expect("the connection was looked up in this very call");
        let own_room = connection.outbox.len() < settings.output_high_water_bytes;
        let output_room = self.output_bytes < settings.output_total_max_bytes;
        // Stalled connections come first: otherwise the one that was answered last would take the free place
        // each time.
        let others_turn = output_room && !self.stalled.is_empty() && self.resumed != Some(slot);
        let place = self.outstanding.requests < settings.outstanding_max
            && self.outstanding.write_bytes < settings.outstanding_max_bytes
            && !others_turn;
        let throttled = settings.throttle.is_on()
            && (self.outstanding.requests >= settings.throttle.outstanding_max || others_turn);
        if throttled && connection.throttled_since_us.is_none() {
            connection.throttled_since_us = Some(now_us);
            self.counters.throttled.waits += 1;
        }
        let shared_room = (output_room || connection.outbox.is_empty())
            && (place || connection.backlog.is_empty())
            && !throttled;
        connection.waits = !(own_room && shared_room);
        connection.waits_unread |= !own_room;
        if !shared_room && !std::mem::replace(&mut connection.stalled, true) {
            self.stalled.push_back(slot);
        }
        own_room && shared_room
    }

    /// Resumes connections that waited for the shard's bounds, oldest first, each at most once in a call.
    fn resume_stalled(&mut self, now_us: u64) {
        for _ in 0..self.stalled.len() {
            let settings = &self.settings;
            let over = self.outstanding.requests
                >= settings.outstanding_max.min(settings.throttle.outstanding_max)
                || self.outstanding.write_bytes >= settings.outstanding_max_bytes
                || self.output_bytes >= self.settings.output_total_max_bytes;
            if over {
                return;
            }
            let Some(slot) = self.stalled.pop_front() else { return };
            if let Some(connection) = self.connections.get_mut(slot)
                && std::mem::take(&mut connection.stalled)
            {
                self.resumed = Some(slot);
                self.pump(now_us, slot);
                self.resumed = None;
            }
        }
    }

    /// Aborts ending connections whose clients have not read the last bytes in time.
    fn abort_lingering(&mut self, now_ms: u64) {
        while let Some((_, conn)) =
            self.ending.pop_front_if(|(since, _)| now_ms.saturating_sub(*since) >= LAST_BYTES_TIMEOUT_MS)
        {
            if let Some(slot) = self.connections.slot(conn) {
                self.reset(slot, Some(CloseReason::Lingering));
            }
        }
    }

    fn close_sessionless(&mut self, now_ms: u64) {
        while let Some(&conn) = self.sessionless.front() {
            if let Some(slot) = self.connections.slot(conn) {
                let connection = self.connection(slot);
                let waits = matches!(connection.phase, Phase::Fresh | Phase::Establishing);
                if waits
                    && now_ms.saturating_sub(connection.connected_ms) < self.settings.sessionless_timeout_ms
                {
                    return;
                }
                if waits {
                    self.abort(slot, Some(CloseReason::Sessionless));
                }
            }
            self.sessionless.pop_front();
        }
    }

    fn report_touches(&mut self) {
        self.touch_muted();
        for slot in std::mem::take(&mut self.touched) {
            let Some(connection) = self.connections.get_mut(slot) else { continue };
            if std::mem::take(&mut connection.touched) && connection.attached {
                self.requests.touched.push(connection.session);
            }
        }
    }
}
