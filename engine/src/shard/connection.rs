//! One client connection, and the table of all of a shard.

use std::net::SocketAddr;
use std::sync::Arc;

use std::hash::BuildHasherDefault;

use hashbrown::HashMap;
use ringkeeper_wire::{Identity, SessionId, Xid};
use siphasher::sip::SipHasher13;

use super::US_PER_MS;
use super::backlog::Backlog;
use super::inbox::Inbox;
use super::latency::Arrival;
use super::outbox::{Outbox, Parts, Usage};
use super::stats::{ConnectionReport, ConnectionStats};
use crate::authorisation::BoundsCache;
use crate::message::ConnId;
use crate::sasl::Login;
use crate::tenants::Membership;

/// The stage of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing decoded yet: a four-letter word or a ConnectRequest comes first.
    Fresh,
    /// The core was asked for the session; input waits.
    Establishing,
    /// Serves a session.
    Attached,
    /// A token of a login is evaluated beside the shard, to be answered under this number; input waits.
    LoggingIn(Xid),
    /// No further request is accepted; those accepted are still answered.
    Ending,
    /// Nothing is written any more; the shell is closing the socket.
    Closed,
}

/// One client connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnId,
    pub(super) peer: SocketAddr,
    pub(super) phase: Phase,
    /// When the shell reported it, milliseconds.
    pub(super) connected_ms: u64,
    /// Received and not yet decoded: part of a frame, or frames that must wait.
    pub(super) input: Inbox,
    /// Requests taken and not yet answered.
    pub(super) backlog: Backlog,
    pub(super) outbox: Outbox,
    /// The client's identities. They are only appended to, so the first n are those of the time when there
    /// were n.
    pub(super) identities: Arc<[Identity]>,
    /// The rules that bind the client.
    pub(super) bounds: BoundsCache,
    /// Where its login by SASL stands, if it has begun.
    pub(super) login: Option<Box<Login>>,
    /// 0 until attached.
    pub(super) session: SessionId,
    /// Whether the core knows the connection as the session's, so that it must be told of the connection's
    /// end.
    pub(super) attached: bool,
    /// The readOnly byte of the ConnectRequest, if it had one.
    pub(super) read_only: Option<bool>,
    /// The client knows ringkeeper's extensions.
    pub(super) extended: bool,
    /// Heard from since the last report to the core.
    pub(super) touched: bool,
    /// In the shard's list of connections with replies to be written.
    pub(super) dirty: bool,
    /// In the shard's list of connections with notifications to be written.
    pub(super) notified: bool,
    /// In the shard's list of connections whose input waits for the shared bounds.
    pub(super) stalled: bool,
    /// A received request waits, for the bounds or for earlier requests.
    pub(super) waits: bool,
    /// Since when, microseconds.
    pub(super) waits_since_us: Option<u64>,
    /// Its client had not read enough of its replies meanwhile.
    pub(super) waits_unread: bool,
    /// Since when its oldest request waits for the throttle of requests, microseconds.
    pub(super) throttled_since_us: Option<u64>,
    /// Its session counts for a tenant.
    pub(super) membership: Option<Membership>,
    /// In the shard's list of muted connections.
    pub(super) muted: bool,
    /// Since when its oldest request waits for its tenant, microseconds.
    pub(super) muted_since_us: Option<u64>,
    /// How many watches of the setWatches at the front of the backlog are set.
    pub(super) watches_set: u32,
    /// In the shard's list of connections whose oldest request continues in the next slice.
    pub(super) goes_on: bool,
    /// In the same list: input waits for the next slice.
    pub(super) rests: bool,
    /// In the shard's list of connections whose oldest request waits for the end of the published group.
    pub(super) awaits_group: bool,
    /// The last published group of which it was sent an event or a reply.
    pub(super) seen_group: u64,
    /// The oldest request is a read that is executed beside the shard.
    pub(super) reads_beside: bool,
    /// Notifications that wait for the reply to that read.
    pub(super) held_notifications: Parts,
    /// What the shell was last told about reading the socket.
    pub(super) reading: bool,
    /// Size of a recent large reply, in bytes.
    pub(super) reply_len_hint: u32,
    pub(super) stats: ConnectionStats,
}

impl Connection {
    pub(super) fn new(id: ConnId, peer: SocketAddr, now_us: u64, backlog: Backlog) -> Self {
        let ip = Identity { scheme: "ip".to_owned(), id: peer.ip().to_canonical().to_string() };
        Self {
            id,
            peer,
            phase: Phase::Fresh,
            connected_ms: now_us / US_PER_MS,
            input: Inbox::default(),
            backlog,
            outbox: Outbox::default(),
            identities: Arc::new([ip]),
            bounds: BoundsCache::default(),
            login: None,
            session: SessionId(0),
            attached: false,
            read_only: None,
            extended: false,
            touched: false,
            dirty: false,
            notified: false,
            stalled: false,
            waits: false,
            throttled_since_us: None,
            waits_since_us: None,
            waits_unread: false,
            membership: None,
            muted: false,
            muted_since_us: None,
            watches_set: 0,
            goes_on: false,
            rests: false,
            awaits_group: false,
            seen_group: 0,
            reads_beside: false,
            held_notifications: Parts::default(),
            reading: true,
            reply_len_hint: 0,
            stats: ConnectionStats::new(now_us),
        }
    }

    /// What it shows of itself.
    pub(super) fn report(&self) -> ConnectionReport {
        let stats = &self.stats;
        ConnectionReport {
            peer: self.peer,
            session: self.session,
            timeout_ms: stats.timeout_ms,
            outstanding: self.backlog.len(),
            received: stats.received,
            sent: stats.sent,
            established_ms: self.connected_ms,
            last_op: stats.last_op,
            last_xid: stats.last_xid,
            last_zxid: stats.last_zxid,
            last_response_ms: stats.last_response_ms,
            last_latency_us: stats.last_latency_us,
            latency: stats.latency,
        }
    }

    /// Bytes of notifications that wait for the client to read, or for the reply to a long read.
    pub(super) fn unread_notification_bytes(&self) -> usize {
        self.outbox.unread_notification_bytes(&self.held_notifications)
    }

    /// Its share of the output of all connections.
    pub(super) fn usage(&self) -> Usage {
        self.outbox.usage(&self.held_notifications)
    }

    /// The arrival of a request that is decoded now.
    pub(super) fn arrival(&self, now_us: u64) -> Arrival {
        let waited_us = self.waits_since_us.map_or(0, |since_us| now_us.saturating_sub(since_us));
        Arrival {
            decoded_us: now_us,
            input_us: u32::try_from(waited_us).unwrap_or(u32::MAX),
            unread: self.waits_unread,
        }
    }

    /// Whether the socket is to be read.
    pub(super) fn wants_read(&self) -> bool {
        matches!(self.phase, Phase::Fresh | Phase::Attached) && !self.waits
    }

    /// Whether the oldest request is a read in progress, in slices or beside the shard.
    pub(super) fn has_unfinished_read(&self) -> bool {
        self.reads_beside || self.goes_on
    }

    /// Whether requests are still taken.
    pub(super) fn takes_input(&self) -> bool {
        !matches!(self.phase, Phase::Ending | Phase::Closed)
    }
}

/// Index of a connection in its shard's table; reused after the connection is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The shell counts connection ids; no client chooses them, so the hash needs no secret key.
type Hasher = BuildHasherDefault<SipHasher13>;

/// All connections of a shard.
#[derive(Debug)]
pub(super) struct Connections {
    /// Boxed, so that the table need not move them when it grows.
    slots: Vec<Option<Box<Connection>>>,
    free: Vec<Slot>,
    by_id: HashMap<ConnId, Slot, Hasher>,
}

impl Connections {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), by_id: HashMap::with_hasher(Hasher::default()) }
    }

    pub(super) fn insert(&mut self, connection: Connection) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot(u32::try_from(self.slots.len() - 1).expect("a process has less than 2^32 sockets"))
        });
        let earlier = self.by_id.insert(connection.id, slot);
        assert!(earlier.is_none(), "{:?} is used twice", connection.id);
        self.slots[slot.index()] = Some(Box::new(connection));
        slot
    }

    /// Removes a connection. [`Self::free`] must follow once nothing refers to its slot any more.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<(Slot, Box<Connection>)> {
        let slot = self.by_id.remove(&id)?;
        Some((slot, self.slots[slot.index()].take()?))
    }

    /// The slot of a connection that was removed may be used again.
    pub(super) fn free(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    pub(super) fn slot(&self, id: ConnId) -> Option<Slot> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Connection> {
        self.slots.get(slot.index())?.as_deref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Connection> {
        self.slots.get_mut(slot.index())?.as_deref_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All, in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &Connection)> {
        let numbered = (0..).map(Slot).zip(&self.slots);
        numbered.filter_map(|(slot, connection)| Some((slot, connection.as_deref()?)))
    }

    /// All, in the order of their slots.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.slots.iter_mut().flatten().map(|connection| &mut **connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_fills_a_size_class_of_the_allocator() {
        assert_eq!(size_of::<Connection>(), 512, "the next class is 640");
    }
}
