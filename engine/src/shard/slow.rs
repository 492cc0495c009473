//! Which requests are slow or sampled, and what is told of them. All slow ones are counted. More than that is
//! told of a few a second, so that a server where all are slow does not become slower by that.

use ringkeeper_wire::{OpCode, Request};

use super::latency::{About, Answered, Arrival, Unwritten};
use super::request::{HEADER_LEN, first_path};
use super::{Effect, Shard, Slot};
use crate::slow::SlowRequest;
use crate::trace::TraceId;

/// Slow requests that are told of in a second.
const TOLD_PER_SECOND: u32 = 10;

/// Sampled requests that are told of in a second, and that wait for their replies to be written.
const SAMPLED_PER_SECOND: u32 = 1000;
const UNWRITTEN_MAX: usize = 1024;

/// Bytes of a path that are shown.
const PATH_BYTES_MAX: usize = 200;

const US_PER_S: u64 = 1_000_000;

/// The slow and sampled requests of a shard.
#[derive(Debug)]
pub(super) struct SlowRequests {
    /// Microseconds; 0 if none is slow.
    above_us: u64,
    /// One in so many is sampled; 0 if none is.
    one_in: u32,
    /// The second in which the last one was told of, and how many were in it.
    second: u64,
    told: u32,
    sampled: u32,
    /// Those since the last one that are not told of.
    untold: u64,
    /// Those whose replies are not written yet.
    unwritten: Vec<(Slot, SlowRequest)>,
}

impl SlowRequests {
    pub(super) const fn new(above_us: u64, one_in: u32) -> Self {
        Self { above_us, one_in, second: 0, told: 0, sampled: 0, untold: 0, unwritten: Vec::new() }
    }

    /// Whether a request that came then and goes on now is slow.
    pub(super) const fn is_slow(&self, arrival: Arrival, now_us: u64) -> bool {
        self.above_us > 0 && now_us.saturating_sub(arrival.received_us()) > self.above_us
    }

    /// Whether any request is sampled.
    pub(super) const fn samples(&self) -> bool {
        self.one_in > 0
    }

    fn begin_second(&mut self, now_us: u64) {
        let second = now_us / US_PER_S;
        if self.second != second {
            (self.second, self.told, self.sampled) = (second, 0, 0);
        }
    }

    /// Whether another sampled one may be told of.
    fn admit_sampled(&mut self, now_us: u64) -> bool {
        self.begin_second(now_us);
        let admitted = self.sampled < SAMPLED_PER_SECOND && self.unwritten.len() < UNWRITTEN_MAX;
        self.sampled += u32::from(admitted);
        admitted
    }

    /// Whether another slow one may be told of.
    fn admit(&mut self, now_us: u64) -> bool {
        self.begin_second(now_us);
        let admitted = self.told < TOLD_PER_SECOND;
        self.told += u32::from(admitted);
        self.untold += u64::from(!admitted);
        admitted
    }
}

impl Shard {
    /// Notes a request that was slow when its reply was made.
    pub(super) fn note_slow(&mut self, now_us: u64, slot: Slot, answered: Answered<'_>) {
        if self.slow.admit(now_us) {
            self.note(now_us, slot, answered, false);
        }
    }

    /// Notes a request to which the reply was just made, if it is sampled. Pings and others with numbers of
    /// their own never are, since all of a session have one id.
    pub(super) fn note_sampled(&mut self, now_us: u64, slot: Slot, answered: Answered<'_>) {
        let zxid = answered.zxid();
        let id = TraceId::of(self.connection(slot).session, answered.xid, zxid);
        if answered.xid.0 < 0 || !id.is_sampled(self.slow.one_in) {
            return;
        }
        if self.slow.admit_sampled(now_us) {
            self.note(now_us, slot, answered, true);
        } else {
            self.counters.untraced += 1;
        }
    }

    fn note(&mut self, now_us: u64, slot: Slot, answered: Answered<'_>, sampled: bool) {
        let Answered { xid, op, arrival, began_us, body_len, about } = answered;
        let (zxid, path) = match about {
            About::Body(body) => (None, path_of(op, body)),
            About::Txn(zxid, path) => (Some(zxid), path.map(shown)),
        };
        let connection = self.connection(slot);
        let request = SlowRequest {
            session: connection.session,
            client: connection.peer,
            xid,
            op,
            path,
            bytes: HEADER_LEN + body_len,
            zxid,
            received_us: arrival.received_us(),
            decoded_us: arrival.decoded_us,
            unread: arrival.unread,
            began_us,
            answered_us: now_us,
            written_us: now_us,
            untold: if sampled { 0 } else { std::mem::take(&mut self.slow.untold) },
            sampled,
        };
        self.slow.unwritten.push((slot, request));
    }

    /// Notes the last one of the replies that the socket has just taken, if only that made it slow: its
    /// client does not read. Of its request no more is known than what the connection shows of itself.
    pub(super) fn note_unread(&mut self, slot: Slot, replies: Unwritten) {
        let Unwritten { arrival, answered_us, .. } = replies;
        if self.slow.is_slow(arrival, answered_us) || !self.slow.admit(answered_us) {
            return;
        }
        let last_xid = self.connection(slot).stats.last_xid;
        let mut noted = self.slow.unwritten.iter_mut();
        if let Some((_, request)) = noted.find(|(of, request)| *of == slot && request.xid == last_xid) {
            request.sampled = false;
            request.untold = std::mem::take(&mut self.slow.untold);
            return;
        }
        let connection = self.connection(slot);
        let request = SlowRequest {
            session: connection.session,
            client: connection.peer,
            xid: connection.stats.last_xid,
            op: connection.stats.last_op.unwrap_or_default(),
            path: None,
            bytes: 0,
            zxid: None,
            received_us: arrival.received_us(),
            decoded_us: arrival.decoded_us,
            unread: arrival.unread,
            began_us: answered_us,
            answered_us,
            written_us: answered_us,
            untold: std::mem::take(&mut self.slow.untold),
            sampled: false,
        };
        self.slow.unwritten.push((slot, request));
    }

    /// Tells of the noted requests whose replies the socket has just taken.
    pub(super) fn tell_slow(&mut self, now_us: u64, slot: Slot) {
        for (_, mut request) in self.slow.unwritten.extract_if(.., |(of, _)| *of == slot) {
            request.written_us = now_us;
            self.effects.push_back(Effect::Slow(Box::new(request)));
        }
    }
}

fn path_of(op: i32, body: &[u8]) -> Option<String> {
    first_path(&Request::decode(OpCode::from_wire(op)?, body).ok()?, shown)
}

/// A path, cut.
fn shown(path: &str) -> String {
    let cut = &path[..path.floor_char_boundary(PATH_BYTES_MAX)];
    if cut.len() < path.len() { format!("{cut}...") } else { cut.to_owned() }
}
