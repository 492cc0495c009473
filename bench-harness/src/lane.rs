//! One session under pipelined load: a bounded number of requests outstanding, every reply checked against
//! the oldest of them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use mio::{Registry, Token};
use ringkeeper_wire::xid::PING;

use crate::connection::Connection;
use crate::fault::Fault;
use crate::session::{IDLE_MAX, Session};
use crate::{reply, request};

/// Where a session's requests come from, and what their replies must be.
pub(crate) trait Source {
    /// What the reply to one request must contain.
    type Expected;

    /// Appends the next request's frame under `xid`; `None` when there are no more.
    fn issue(&mut self, out: &mut Vec<u8>, xid: i32) -> Option<Self::Expected>;

    /// Whether the request counts: as one of those outstanding, whose number is limited, and in the results.
    fn counts(&self, _expected: &Self::Expected) -> bool {
        true
    }

    /// Whether `body` answers the request; the words of the error say why not.
    fn check(&self, expected: &Self::Expected, body: &[u8]) -> Result<(), String>;
}

struct Outstanding<E> {
    xid: i32,
    sent_at: Instant,
    counts: bool,
    expected: E,
}

/// A session, its source of requests, and the requests not yet answered.
pub(crate) struct Lane<S: Source> {
    connection: Connection,
    source: S,
    next_xid: i32,
    /// Oldest first.
    outstanding: VecDeque<Outstanding<S::Expected>>,
    /// How many of them count. Never more than the limit given to [`Lane::fill`].
    counting: usize,
    zxid_seen: i64,
    exhausted: bool,
    /// When anything was sent last.
    sent_at: Instant,
    /// Pings without an answer.
    pings: usize,
}

impl<S: Source> Lane<S> {
    /// Puts `session` under load from `source`.
    pub(crate) fn new(session: Session, source: S, registry: &Registry, token: Token) -> Result<Self> {
        let (socket, next_xid) = session.into_parts();
        let connection = Connection::new(socket, registry, token)?;
        Ok(Self {
            connection,
            source,
            next_xid,
            outstanding: VecDeque::new(),
            counting: 0,
            zxid_seen: 0,
            exhausted: false,
            sent_at: Instant::now(),
            pings: 0,
        })
    }

    /// Gives the session back.
    ///
    /// # Panics
    /// Requests are outstanding.
    pub(crate) fn into_session(self, registry: &Registry) -> Result<Session> {
        assert!(self.outstanding() == 0, "a lane is given back before its replies have come");
        Ok(Session::resume(self.connection.into_socket(registry)?, self.next_xid)?)
    }

    /// Issues requests until `limit` that count are outstanding or the source has no more.
    pub(crate) fn fill(&mut self, limit: usize) {
        if self.exhausted || self.counting >= limit {
            return;
        }
        let sent_at = Instant::now();
        while self.counting < limit {
            let xid = self.next_xid;
            let Some(expected) = self.source.issue(self.connection.out(), xid) else {
                self.exhausted = true;
                return;
            };
            self.expect(xid, sent_at, expected);
        }
    }

    /// Issues one request, whose latency counts from `due`, when it should have left.
    pub(crate) fn issue(&mut self, due: Instant) {
        let xid = self.next_xid;
        match self.source.issue(self.connection.out(), xid) {
            None => self.exhausted = true,
            Some(expected) => self.expect(xid, due, expected),
        }
    }

    fn expect(&mut self, xid: i32, sent_at: Instant, expected: S::Expected) {
        // As ZooKeeper's own client: negative xids mean something else.
        self.next_xid = if xid == i32::MAX { 1 } else { xid + 1 };
        let counts = self.source.counts(&expected);
        self.counting += usize::from(counts);
        self.sent_at = sent_at;
        self.outstanding.push_back(Outstanding { xid, sent_at, counts, expected });
    }

    /// If it has been idle for long: sends a ping, so that the session does not expire. Whether it did.
    pub(crate) fn keep_alive(&mut self, now: Instant) -> Result<bool, Fault> {
        let idle = self.outstanding() == 0 && now.saturating_duration_since(self.sent_at) >= IDLE_MAX;
        if idle {
            request::ping(self.connection.out());
            (self.sent_at, self.pings) = (now, self.pings + 1);
            self.flush()?;
        }
        Ok(idle)
    }

    /// Sends what has been issued.
    pub(crate) fn flush(&mut self) -> Result<(), Fault> {
        Ok(self.connection.flush()?)
    }

    /// Takes all replies that are there, calling `completed` for each that counts with its time and latency.
    /// `to_end` as in [`Connection::receive`].
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        to_end: bool,
        mut completed: impl FnMut(Instant, Duration),
    ) -> Result<(), Fault> {
        let Self { connection, source, outstanding, counting, zxid_seen, pings, .. } = self;
        connection.receive(scratch, to_end, |payload, at| {
            let (header, body) = reply::split(payload)?;
            if header.xid == PING && *pings > 0 {
                *pings -= 1;
                return Ok(());
            }
            let Some(oldest) = outstanding.pop_front() else { return Err(Fault::Unasked(header.xid.0)) };
            let xid = oldest.xid;
            reply::check(&header, xid)?;
            if header.zxid < *zxid_seen {
                return Err(Fault::WentBack { xid, seen: *zxid_seen, found: header.zxid });
            }
            *zxid_seen = header.zxid;
            source.check(&oldest.expected, body).map_err(|why| Fault::Wrong { xid, why })?;
            if oldest.counts {
                *counting -= 1;
                completed(at, at.saturating_duration_since(oldest.sent_at));
            }
            Ok(())
        })
    }

    /// Number of requests without a reply, pings included.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.len() + self.pings
    }

    /// Whether the source has no more and all replies have come.
    pub(crate) fn is_done(&self) -> bool {
        self.exhausted && self.outstanding() == 0
    }
}
