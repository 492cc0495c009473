//! A client: its requests, what it has seen, and the checks of the servers' replies.
//!
//! It behaves as ZooKeeper's Java client does: it pings, leaves a silent server, resumes its session with the
//! newest zxid of a reply, and restores its watches before anything else.

use std::collections::VecDeque;
use std::sync::Arc;

use ringkeeper_wire::frame::{framed, next_frame};
use ringkeeper_wire::jute::Reader;
use ringkeeper_wire::{
    CATCH_UP_ZXID, ConnectRequest, ConnectResponse, EXTENDED_PROTOCOL, ErrorCode, EventType, OpCode, Record,
    ReplyHeader, Response, SessionId, WatcherEvent, Xid, xid,
};

use super::ask::Ask;
use super::judge::Judge;
use super::model::Tree;
use super::restoring::{Left, Restoring, Told};
use super::rules::{Does, Who};
use super::violation::{Oracle, Violation};
use super::watching::{self, Event, Watch, Watches};

const FRAME_LEN_MAX: usize = 1 << 20;

/// A session, as its client knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) id: i64,
    pub(crate) password: [u8; 16],
    pub(crate) timeout_ms: u64,
    /// Of one server's read-only mode, and over at the end of the connection.
    pub(crate) is_read_only: bool,
}

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No connection; the client dials when it acts next.
    Down,
    /// The ConnectRequest is sent.
    Greeting,
    /// Serves the session.
    Up,
}

/// A request without a reply.
#[derive(Debug)]
struct Pending {
    xid: i32,
    ask: Ask,
    /// The newest zxid that any client had seen when a sync was sent.
    seen: i64,
}

/// The effect of a received frame on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Nothing,
    /// The session is established.
    Attached,
    /// The session has expired.
    Expired,
    /// The session is closed, as asked.
    Closed,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: u64,
    pub(crate) session: Option<Session>,
    pub(crate) phase: Phase,
    pub(crate) link: u64,
    /// Presents a wrong password.
    pub(crate) impostor: bool,
    pub(crate) timeout_ms: u64,
    /// Accepts a server in read-only mode.
    pub(crate) takes_read_only: bool,
    /// How many sessions of that mode it has had.
    pub(crate) read_only_sessions: u64,
    /// How often its local session was resumed in that mode.
    pub(crate) resumed_read_only: u64,
    /// Its connection is to a server in that mode.
    without_leader: bool,
    /// Its server has had no leader since its start: it serves all that its log has, as ZooKeeper's does.
    pub(crate) sees_whole_log: bool,
    /// Who it shows to be on each connection.
    pub(crate) who: Who,
    next_xid: i32,
    pending: VecDeque<Pending>,
    /// The newest zxid of a reply: no later reply of the session may be older.
    last_seen: i64,
    /// A sync guarantees that later replies are at least as new as this zxid.
    synced: i64,
    watches: Watches,
    /// Only for the tap of a library: the watches that it may restore on this connection.
    former: Watches,
    /// Only for the tap of a library: the newest zxid of a reply to its program.
    replied: i64,
    /// The watches were restored on this connection.
    restored: bool,
    /// Events up to here are in `expected`.
    cursor: i64,
    expected: VecDeque<Event>,
    /// The events since the connection began, until the watches are restored.
    told: Vec<Told>,
    /// Writes sent on the connection.
    writes: u64,
    input: Vec<u8>,
    pub(crate) sent_us: u64,
    pub(crate) heard_us: u64,
    pub(crate) attached_us: u64,
    /// When a server last replied within the session, so that it had heard of the client.
    served_us: u64,
}

impl Client {
    pub(crate) fn new(number: u64, timeout_ms: u64, who: Who) -> Self {
        Self {
            number,
            session: None,
            phase: Phase::Down,
            link: 0,
            impostor: false,
            timeout_ms,
            takes_read_only: false,
            read_only_sessions: 0,
            resumed_read_only: 0,
            without_leader: false,
            sees_whole_log: false,
            who,
            next_xid: 1,
            pending: VecDeque::new(),
            last_seen: 0,
            synced: 0,
            watches: Watches::default(),
            former: Watches::default(),
            replied: 0,
            restored: false,
            cursor: 0,
            expected: VecDeque::new(),
            told: Vec::new(),
            writes: 0,
            input: Vec::new(),
            sent_us: 0,
            heard_us: 0,
            attached_us: 0,
            served_us: 0,
        }
    }

    pub(crate) fn has_read_only_session(&self) -> bool {
        self.session.is_some_and(|session| session.is_read_only)
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether the session is to end with a request under way.
    pub(crate) fn closes(&self) -> bool {
        self.pending.iter().any(|pending| matches!(pending.ask, Ask::Close))
    }

    /// The connection is gone, and with it the answers to what was asked.
    pub(crate) fn lost(&mut self) {
        self.phase = Phase::Down;
        self.link = 0;
        self.pending.clear();
        self.expected.clear();
        self.told.clear();
        self.input.clear();
        self.writes = 0;
        self.restored = false;
        self.cursor = 0;
    }

    /// Begins a new connection; returns the ConnectRequest.
    pub(crate) fn greet(&mut self, now_us: u64, link: u64, impostor: bool) -> Vec<u8> {
        self.lost();
        if self.has_read_only_session() && self.read_only_sessions.is_multiple_of(2) {
            // As Java's client does. Otherwise it shows the session, as kazoo does.
            self.forget_session();
        }
        self.phase = Phase::Greeting;
        self.link = link;
        self.impostor = impostor && self.session.is_some();
        (self.sent_us, self.heard_us) = (now_us, now_us);
        let mut password = self.session.map_or([0; 16], |session| session.password);
        password[3] ^= u8::from(self.impostor);
        let request = ConnectRequest {
            protocol_version: EXTENDED_PROTOCOL,
            last_zxid_seen: self.last_seen,
            timeout_ms: i32::try_from(self.timeout_ms).unwrap_or(i32::MAX),
            session_id: SessionId(self.session.map_or(0, |session| session.id)),
            password: Some(&password),
            read_only: Some(self.takes_read_only),
        };
        framed(|out| request.encode(out))
    }

    /// The library that this client doubles begins a new connection.
    pub(crate) fn greeted(
        &mut self,
        now_us: u64,
        link: u64,
        request: &ConnectRequest<'_>,
    ) -> Result<(), Violation> {
        self.lost();
        (self.phase, self.link) = (Phase::Greeting, link);
        (self.sent_us, self.heard_us) = (now_us, now_us);
        let known = self.session.map_or((0, [0; 16]), |session| (session.id, session.password));
        let shown = (request.session_id.0, request.password.unwrap_or_default());
        Oracle::Session.check(shown == (known.0, &known.1[..]), || {
            format!("client {} has session {known:x?} and shows {shown:x?}", self.number)
        })?;
        // A server behind this zxid must not serve the client, and the watches are restored from this zxid.
        Oracle::Read.check(request.last_zxid_seen == self.replied, || {
            format!(
                "client {} has seen {:#x} in replies and says {:#x}",
                self.number, self.replied, request.last_zxid_seen
            )
        })?;
        self.last_seen = self.replied;
        // Watches that are not restored before the first request are lost.
        self.former.absorb(std::mem::take(&mut self.watches));
        Ok(())
    }

    /// The library has asked something.
    pub(crate) fn asked(
        &mut self,
        now_us: u64,
        xid: i32,
        ask: Ask,
        judge: &mut Judge,
    ) -> Result<(), Violation> {
        if let Ask::Restore { watches, .. } = &ask {
            let restored: Watches = watches.iter().cloned().collect();
            Oracle::Watch.check(self.former.cover(&restored), || {
                format!("client {} restores {restored:?}, of {:?}", self.number, self.former)
            })?;
            self.watches = restored;
        }
        self.former = Watches::default();
        self.note(now_us, xid, ask, judge);
        Ok(())
    }

    /// Appends a request to `out`, and records it.
    pub(crate) fn ask(&mut self, now_us: u64, ask: Ask, judge: &mut Judge, out: &mut Vec<u8>) {
        if self.session.is_none() {
            return;
        }
        let xid = match &ask {
            Ask::Ping => xid::PING.0,
            Ask::Login(_) => xid::AUTH.0,
            Ask::Restore { .. } => xid::SET_WATCHES.0,
            _ => {
                self.next_xid += 1;
                self.next_xid
            }
        };
        ask.encode(Xid(xid), out);
        self.note(now_us, xid, ask, judge);
    }

    /// Records a request that is sent.
    fn note(&mut self, now_us: u64, xid: i32, ask: Ask, judge: &mut Judge) {
        if ask.is_write() {
            let session = self.session.map_or(0, |session| session.id);
            judge.sent(session, xid, &ask, self.link, self.writes, false);
            self.writes += 1;
        }
        self.sent_us = now_us;
        self.pending.push_back(Pending { xid, ask, seen: judge.seen });
    }

    /// A write on a connection whose session has moved away; it must never be committed.
    pub(crate) fn haunt(&mut self, ask: &Ask, link: u64, judge: &mut Judge) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(session) = self.session {
            self.next_xid += 1;
            judge.sent(session.id, self.next_xid, ask, link, 0, true);
            ask.encode(Xid(self.next_xid), &mut out);
        }
        out
    }

    /// Handles received bytes. `settled`: no fault has occurred for a while.
    pub(crate) fn hear(
        &mut self,
        now_us: u64,
        bytes: &[u8],
        judge: &mut Judge,
        settled: bool,
    ) -> Result<Heard, Violation> {
        self.heard_us = now_us;
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let Some((frame, len)) =
            next_frame(rest, FRAME_LEN_MAX).map_err(|error| Oracle::Fifo.broken(error.to_string()))?
        {
            rest = &rest[len..];
            if self.phase == Phase::Up {
                self.served_us = now_us;
            }
            let heard = match self.phase {
                Phase::Greeting => self.welcomed(now_us, frame, judge, settled)?,
                _ => self.frame(frame, judge)?,
            };
            if matches!(heard, Heard::Expired | Heard::Closed) || self.phase == Phase::Down {
                return Ok(heard);
            }
            if heard == Heard::Attached {
                self.input = rest.to_vec();
                return Ok(heard);
            }
        }
        self.input = rest.to_vec();
        Ok(Heard::Nothing)
    }

    fn welcomed(
        &mut self,
        now_us: u64,
        frame: &[u8],
        judge: &mut Judge,
        settled: bool,
    ) -> Result<Heard, Violation> {
        let response =
            ConnectResponse::from_bytes(frame).map_err(|error| Oracle::Session.broken(error.to_string()))?;
        let who = |client: &Self| format!("client {} with {:x?}", client.number, client.session);
        if response.timeout_ms <= 0 {
            let known = self.session.is_some_and(|session| judge.tree().sessions.contains(&session.id));
            Oracle::Session.check(self.impostor || !known || !settled, || {
                format!("{} is refused, and the session lives", who(self))
            })?;
            if self.impostor {
                // The session itself is as good as before.
                self.impostor = false;
                self.lost();
                return Ok(Heard::Nothing);
            }
            let idle_us = now_us - self.served_us;
            let timeout_us = self.session.map_or(0, |session| session.timeout_ms * 1000);
            // It may be on another server than its own.
            let is_local = self.session.is_some_and(|session| judge.is_local(session.id));
            Oracle::Session.check(!settled || is_local || idle_us >= timeout_us, || {
                format!("{} has expired, and was served {idle_us} us ago", who(self))
            })?;
            self.end_session(judge);
            return Ok(Heard::Expired);
        }
        Oracle::Session.check(!self.impostor, || format!("{} is let in with a wrong password", who(self)))?;
        let id = response.session_id.0;
        let is_read_only = response.read_only == Some(true);
        Oracle::Session.check(!self.has_read_only_session(), || {
            format!("{} is let in, and the session was of the read-only mode", who(self))
        })?;
        let is_local = self.session.is_some_and(|session| judge.is_local(session.id));
        let lasts = self.session.is_some();
        Oracle::Session.check(!is_read_only || self.takes_read_only && (is_local || !lasts), || {
            format!("{} is let in by a server in read-only mode", who(self))
        })?;
        if let Some(session) = self.session {
            Oracle::Session.check(session.id == id, || format!("{} is given session {id:#x}", who(self)))?;
            let gone = settled && !judge.is_local(id) && !judge.tree().sessions.contains(&id);
            Oracle::Session.check(!gone, || format!("{} is let in, and the session has ended", who(self)))?;
        } else {
            judge.opened(id)?;
        }
        let password = response.password.and_then(|password| password.try_into().ok());
        let Some(password) = password else {
            return Err(Oracle::Session.broken(format!("{} is given no password", who(self))));
        };
        let timeout_ms = u64::try_from(response.timeout_ms).unwrap_or_default();
        self.read_only_sessions += u64::from(is_read_only && !lasts);
        self.resumed_read_only += u64::from(is_read_only && lasts);
        self.without_leader = is_read_only;
        self.session = Some(Session { id, password, timeout_ms, is_read_only: is_read_only && !lasts });
        judge.clients.insert(id, self.who);
        self.phase = Phase::Up;
        self.attached_us = now_us;
        Ok(Heard::Attached)
    }

    /// The first requests on a connection: who the client is, and the watches of the session, if it has some.
    pub(crate) fn introduction(&self) -> Vec<Ask> {
        let watches = self.watches.in_order();
        let restore = (!watches.is_empty()).then_some(Ask::Restore { watches, since: self.last_seen });
        self.who.logins().iter().map(|login| Ask::Login(login)).chain(restore).collect()
    }

    fn end_session(&mut self, judge: &mut Judge) {
        judge.ended(self.session.map_or(0, |session| session.id));
        self.forget_session();
    }

    fn forget_session(&mut self) {
        self.lost();
        self.session = None;
        (self.watches, self.former) = Default::default();
        (self.last_seen, self.synced, self.next_xid, self.replied) = (0, 0, 1, 0);
    }

    fn frame(&mut self, frame: &[u8], judge: &mut Judge) -> Result<Heard, Violation> {
        let header =
            ReplyHeader::from_bytes(frame).map_err(|error| Oracle::Fifo.broken(error.to_string()))?;
        let body = &frame[ReplyHeader::LEN..];
        if header.xid == xid::NOTIFICATION {
            self.event(header.zxid, body, judge)?;
            return Ok(Heard::Nothing);
        }
        let Some(pending) = self.pending.pop_front().filter(|pending| pending.xid == header.xid.0) else {
            return Err(Oracle::Fifo.broken(format!(
                "client {} waits for others than {header:?}: {:?}",
                self.number, self.pending
            )));
        };
        self.reply(&pending, header, body, judge)
    }

    fn reply(
        &mut self,
        pending: &Pending,
        header: ReplyHeader,
        body: &[u8],
        judge: &mut Judge,
    ) -> Result<Heard, Violation> {
        let ReplyHeader { zxid, err, .. } = header;
        let number = self.number;
        if let Ask::Login(login) = pending.ask {
            Oracle::Session
                .check(err == 0, || format!("client {number} is not taken for {login}: error {err}"))?;
            return Ok(Heard::Nothing);
        }
        judge.forbidden += u64::from(err == ErrorCode::NoAuth.to_wire());
        Oracle::Read.check(zxid >= self.last_seen && zxid >= self.synced, || {
            format!(
                "client {number} is answered at {zxid:#x}, having seen {:#x} and synced {:#x}: {pending:?}",
                self.last_seen, self.synced
            )
        })?;
        let without_leader = self.without_leader;
        let tree = judge.tree_at(zxid).cloned();
        Oracle::Read.check(tree.is_some() || without_leader && self.sees_whole_log, || {
            format!("client {number} is answered at {zxid:#x}, which is not committed: {pending:?}")
        })?;
        if let Ask::Restore { watches, since } = &pending.ask {
            if !self.restored(watches, *since, zxid, judge)? {
                // It restores them anew, so that its watches and the server's are the same.
                self.last_seen = zxid;
                self.lost();
                return Ok(Heard::Nothing);
            }
        } else if self.restored || self.watches.is_empty() {
            self.advance(zxid, judge);
            Oracle::Watch.check(self.expected.is_empty(), || {
                format!("client {number} is answered at {zxid:#x} before {:x?}: {pending:?}", self.expected)
            })?;
        }
        self.last_seen = zxid;
        if pending.xid > 0 {
            self.replied = self.replied.max(zxid);
        }
        if tree.is_some() {
            judge.seen = judge.seen.max(zxid);
        }
        if without_leader {
            let is_refused = err == ErrorCode::NotReadOnly.to_wire();
            Oracle::Session.check(is_refused == pending.ask.needs_leader(), || {
                format!("client {number} is answered {err} by a server without a leader: {pending:?}")
            })?;
            if is_refused {
                if let Some(session) = self.session.filter(|_| pending.ask.is_write()) {
                    judge.refused(session.id, pending.xid, true)?;
                }
                return Ok(Heard::Nothing);
            }
        }
        if matches!(pending.ask, Ask::Sync | Ask::Linearizable(_)) {
            Oracle::Sync.check(zxid >= pending.seen, || {
                format!(
                    "client {number} is answered at {zxid:#x}, {:#x} had been seen: {pending:?}",
                    pending.seen
                )
            })?;
            self.synced = self.synced.max(pending.seen);
        }
        let ask = match &pending.ask {
            Ask::Linearizable(read) => read,
            ask => ask,
        };
        match ask {
            Ask::AddWatch { path, recursive } => {
                let kind = if *recursive { watching::RECURSIVE } else { watching::PERSISTENT };
                self.watches.add(path, kind);
                self.restored = true;
            }
            Ask::RemoveWatch { path, recursive } if err == 0 => {
                let kind = if *recursive { watching::RECURSIVE } else { watching::PERSISTENT };
                self.watches.consume(path, kind);
            }
            ask if ask.is_read() => {
                if let Some(tree) = &tree {
                    judge.reads_checked += 1;
                    check_read((number, self.who), ask, tree, zxid, err, body)?;
                }
                self.watch(ask, err);
            }
            ask if ask.is_write() => {
                let session = self.session.map_or(0, |session| session.id);
                if err == ErrorCode::NotReadOnly.to_wire() {
                    judge.refused(session, pending.xid, false)?;
                    return Ok(Heard::Nothing);
                }
                let closes = matches!(ask, Ask::Close);
                if closes && judge.is_local(session) {
                    Oracle::Session.check(err == 0, || format!("client {number} cannot close: {err}"))?;
                } else {
                    judge.answered(session, pending.xid, zxid, err, body)?;
                }
                if closes {
                    self.end_session(judge);
                    return Ok(Heard::Closed);
                }
            }
            _ => {}
        }
        Ok(Heard::Nothing)
    }

    fn watch(&mut self, ask: &Ask, err: i32) {
        let (path, kind) = match (ask, ErrorCode::from_wire(err)) {
            (Ask::Data { path, watch: true } | Ask::Exists { path, watch: true }, Some(ErrorCode::Ok)) => {
                (path, watching::DATA)
            }
            (Ask::Exists { path, watch: true }, Some(ErrorCode::NoNode)) => (path, watching::EXIST),
            (Ask::Children { path, watch: true, .. }, Some(ErrorCode::Ok)) => (path, watching::CHILD),
            _ => return,
        };
        self.watches.add(path, kind);
        self.restored = true;
    }

    /// Computes the expected events up to `zxid`.
    fn advance(&mut self, zxid: i64, judge: &Judge) {
        let entries = if self.watches.is_empty() { &[] } else { judge.between(self.cursor, zxid) };
        for entry in entries {
            self.watches.fire_all(entry, self.who, &mut self.expected);
        }
        self.cursor = self.cursor.max(zxid);
    }

    fn event(&mut self, zxid: i64, body: &[u8], judge: &mut Judge) -> Result<(), Violation> {
        judge.events_checked += 1;
        let number = self.number;
        let event = WatcherEvent::decode(&mut Reader::new(body));
        let event = event.map_err(|error| Oracle::Watch.broken(error.to_string()))?;
        let Some(kind) = EventType::from_wire(event.event_type) else {
            return Err(Oracle::Watch.broken(format!("client {number} sees {event:?}")));
        };
        let path: Arc<str> = (*event.path).into();
        if zxid == CATCH_UP_ZXID {
            self.told.push(Told::Missed(kind, path));
            return Ok(());
        }
        let seen = Event { zxid, event: kind, path };
        Oracle::Watch.check(judge.tree_at(zxid).is_some(), || {
            format!("client {number} sees {seen:x?}, which is not committed")
        })?;
        if !self.restored {
            let restores = self.pending.iter().any(|pending| matches!(pending.ask, Ask::Restore { .. }));
            Oracle::Watch.check(restores, || format!("client {number} sees {seen:x?} without a watch"))?;
            self.told.push(Told::Now(seen));
            return Ok(());
        }
        self.advance(zxid, judge);
        let expected = self.expected.pop_front();
        Oracle::Watch.check(expected.as_ref() == Some(&seen), || {
            format!("client {number} sees {seen:x?}, and should see {expected:x?}")
        })
    }

    /// Whether it is known which watches are left.
    fn restored(
        &mut self,
        watches: &[Watch],
        since: i64,
        zxid: i64,
        judge: &mut Judge,
    ) -> Result<bool, Violation> {
        judge.events_checked += self.told.len() as u64;
        let told = std::mem::take(&mut self.told);
        let restoring = Restoring::new(watches, (since, zxid), &told, judge, self.who);
        let Some(Left { watches: left, is_sure, is_explained }) = restoring.and_then(Restoring::explain)
        else {
            return Err(Oracle::Watch.broken(format!(
                "client {} had seen {since:#x} and is told, until {watches:?} are restored at {zxid:#x}: {told:x?}",
                self.number
            )));
        };
        judge.restores_unexplained += u64::from(!is_explained);
        (self.watches, self.restored, self.cursor) = (left, true, zxid);
        Ok(is_sure)
    }
}

fn check_read(
    (number, who): (u64, Who),
    ask: &Ask,
    tree: &Tree,
    zxid: i64,
    err: i32,
    body: &[u8],
) -> Result<(), Violation> {
    let wrong = |seen: String, model: String| {
        Oracle::Read
            .broken(format!("client {number} asks {ask:?} at {zxid:#x} and sees {seen}; the model: {model}"))
    };
    let (Ask::Data { path, .. } | Ask::Exists { path, .. } | Ask::Children { path, .. }) = ask else {
        return Ok(());
    };
    let may = |closed| match ask {
        Ask::Exists { .. } => who.may_look(path, closed, tree),
        _ => who.may_with(Does::Read, path, closed, tree),
    };
    let znode = tree.znodes.get(path);
    let expected = match znode {
        _ if !may(false) => Err(ErrorCode::NoAuth),
        None => Err(ErrorCode::NoNode),
        Some(znode) if !may(znode.closed) => Err(ErrorCode::NoAuth),
        Some(znode) => Ok(znode),
    };
    let znode = match expected {
        Ok(znode) => znode,
        Err(expected) if err == expected.to_wire() => return Ok(()),
        Err(expected) => return Err(wrong(format!("error {err}"), format!("{expected:?} for {who:?}"))),
    };
    let op = match ask {
        Ask::Data { .. } => OpCode::GetData,
        Ask::Exists { .. } => OpCode::Exists,
        Ask::Children { stat: true, .. } => OpCode::GetChildren2,
        _ => OpCode::GetChildren,
    };
    if err != 0 {
        return Err(wrong(format!("error {err}"), format!("{znode:?}")));
    }
    let names = |names: ringkeeper_wire::StringList<'_>| {
        let mut names: Vec<Arc<str>> = names.iter().map(|name| (*name).into()).collect();
        names.sort();
        names.iter().eq(znode.children.iter())
    };
    let response =
        Response::decode(op, body).map_err(|error| wrong(error.to_string(), format!("{znode:?}")))?;
    let fits = match &response {
        Response::GetData(read) => read.data.unwrap_or_default() == &*znode.data && read.stat == znode.stat(),
        Response::Stat(stat) => *stat == znode.stat(),
        Response::GetChildren2(read) => read.stat == znode.stat() && names(read.children),
        Response::GetChildren(read) => names(read.children),
        _ => false,
    };
    if fits { Ok(()) } else { Err(wrong(format!("{response:?}"), format!("{znode:?} {:?}", znode.stat()))) }
}
