//! One seed, played against both servers.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ringkeeper_wire::jute::Reader;
use ringkeeper_wire::{
    ConnectRequest, ErrorCode, EventType, MultiResult, OpCode, Record, ReplyHeader, Response, SessionId, xid,
};

use super::accepted::Accepted;
use super::compare::{Comparison, Difference, describe};
use super::mapping::{HeaderZxid, Mapping};
use super::request::{Outgoing, RequestMaker, SymbolicZxid, abbreviate};
use super::side::{Side, barrier_frame, barrier_request, is_event, unknown_session};
use ringkeeper_testkit::{Connection, Received, Session, connect_frame, frame};

/// How a seed ended.
pub(super) struct Outcome {
    /// Requests sent.
    pub(super) operations: usize,
    /// Differences found that are meant.
    pub(super) accepted: Reasons,
    /// What the reference answered.
    pub(super) coverage: Coverage,
    /// The first difference that is not, told for people.
    pub(super) report: Option<String>,
}

/// How often each reason for a difference was met: what the list calls it, and the request's name.
pub(super) type Reasons = BTreeMap<(String, String), usize>;

/// How often each kind of request got each kind of answer from the reference.
pub(super) type Coverage = BTreeMap<(String, String), usize>;

/// Paths remembered to be used again.
const PATHS_MAX: usize = 64;
/// Sessions that send setWatches, and so become super users; the others are bound by ACLs.
const RESTORING_SLOTS: usize = 2;
/// Requests remembered for the report.
const LOG_MAX: usize = 4000;

/// The state of a run.
pub(super) struct Run {
    rng: ChaCha8Rng,
    seed: u64,
    enforce_quota: bool,
    verbose: bool,
    reference: Side,
    subject: Side,
    mapping: Mapping,
    paths: Vec<String>,
    /// For each slot the paths on which it has lately left watches.
    watched: Vec<VecDeque<String>>,
    log: VecDeque<LogEntry>,
    next_xid: i32,
    operations: usize,
    coverage: Coverage,
    /// A request that did not suit the group it was made for.
    left_over: Option<Outgoing>,
}

struct LogEntry {
    operation: usize,
    slot: usize,
    path: Option<String>,
    text: String,
}

/// One answer, side by side.
struct Answered {
    slot: usize,
    request: String,
    path: Option<String>,
    reference: String,
    subject: String,
    differences: Vec<Difference>,
}

impl Run {
    /// A run with new sessions on both servers; nothing is sent yet.
    pub(super) fn new(
        seed: u64,
        reference: SocketAddr,
        subject: SocketAddr,
        enforce_quota: bool,
        verbose: bool,
    ) -> Result<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let slots = rng.random_range(4..=8);
        Ok(Self {
            rng,
            seed,
            enforce_quota,
            verbose,
            reference: Side::new(reference, slots),
            subject: Side::new(subject, slots),
            mapping: Mapping::default(),
            paths: Vec::new(),
            watched: vec![VecDeque::new(); slots],
            log: VecDeque::new(),
            next_xid: 1,
            operations: 0,
            coverage: Coverage::new(),
            left_over: None,
        })
    }

    /// Plays until `operations` requests are answered or something differs.
    pub(super) fn play(mut self, operations: usize, accepted: &Accepted) -> Result<Outcome> {
        let mut reasons = Reasons::new();
        while self.operations < operations {
            let answers =
                self.step().with_context(|| format!("seed {}, request {}", self.seed, self.operations))?;
            for answer in answers.iter().filter(|answer| !answer.differences.is_empty()) {
                for difference in &answer.differences {
                    let Some(reason) = accepted.reason(&answer.request, difference) else {
                        let report = Some(self.report(answer));
                        return Ok(self.outcome(reasons, report));
                    };
                    *reasons.entry((reason.to_owned(), difference.request.clone())).or_default() += 1;
                }
            }
        }
        Ok(self.outcome(reasons, None))
    }

    fn outcome(self, accepted: Reasons, report: Option<String>) -> Outcome {
        Outcome { operations: self.operations, accepted, coverage: self.coverage, report }
    }

    fn step(&mut self) -> Result<Vec<Answered>> {
        let slot = self.rng.random_range(0..self.reference.slots.len());
        if self.reference.slots[slot].connection.is_none() {
            return self.connect(slot);
        }
        match self.rng.random_range(0..1000) {
            0..4 => self.connect(slot),
            4..12 => {
                self.note(slot, None, "drops its connection".to_owned());
                self.drop_connection(slot);
                Ok(Vec::new())
            }
            12..14 => self.bad_bytes(),
            14..16 => self.bad_frame(slot),
            _ => self.group(slot),
        }
    }

    fn drop_connection(&mut self, slot: usize) {
        for side in [&mut self.reference, &mut self.subject] {
            side.slots[slot].connection = None;
        }
    }

    fn xids(&mut self, count: usize) -> i32 {
        let first = self.next_xid;
        self.next_xid += i32::try_from(count).expect("a group is small");
        first
    }

    fn note(&mut self, slot: usize, path: Option<String>, text: String) {
        if self.verbose {
            println!("{:6} session {slot}: {text}", self.operations);
        }
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(LogEntry { operation: self.operations, slot, path, text });
    }

    /// Some requests of one session.
    fn group(&mut self, slot: usize) -> Result<Vec<Answered>> {
        let requests = self.make_group(slot);
        let is_set_watches = |request: &Outgoing| {
            let op = OpCode::from_wire(request.op);
            matches!(op, Some(OpCode::SetWatches | OpCode::SetWatches2))
        };
        if !requests.iter().any(is_set_watches) {
            return self.exchange(slot, &requests);
        }
        // The reference sends events of what the client may not read then, so it has to be one that may.
        let mut answers = self.exchange(slot, &[RequestMaker::auth_as_super()])?;
        answers.extend(self.exchange(slot, &requests)?);
        Ok(answers)
    }

    /// Requests of one session, sent at once.
    fn exchange(&mut self, slot: usize, requests: &[Outgoing]) -> Result<Vec<Answered>> {
        let first_xid = self.xids(requests.len());
        for request in requests {
            self.note(slot, request.path.clone(), abbreviate(&request.describe()));
            self.remember_watch(slot, request);
            self.operations += 1;
        }
        let mapping = &self.mapping;
        self.reference.send(slot, requests, first_xid, &|zxid| resolve(mapping, zxid).0)?;
        self.subject.send(slot, requests, first_xid, &|zxid| resolve(mapping, zxid).1)?;
        let mut reference = self.reference.read_replies(slot, requests.len())?;
        let mut subject = self.subject.read_replies(slot, requests.len())?;
        if requests.iter().any(|request| request.op == OpCode::CloseSession.to_wire()) {
            // In which order a session's ephemerals go is nobody's promise.
            sort_events(&mut reference);
            sort_events(&mut subject);
        }
        self.learn(requests, &reference);
        let closes =
            requests.last().zip(reference.last()).is_some_and(|(request, reply)| closes(request.op, reply));
        let mut answers = self.compare(slot, requests, reference, subject);
        if closes && self.reference.slots[slot].connection.is_some() {
            // Anything sent before the server has closed may or may not be answered.
            let (r, s) = (self.reference.read_replies(slot, 1)?, self.subject.read_replies(slot, 1)?);
            answers.extend(self.compare(slot, &[], r, s));
        }
        if requests.iter().any(|request| request.op == OpCode::DeleteContainer.to_wire()) {
            // One of the servers ends the connection, the other may not.
            self.drop_connection(slot);
        }
        if requests.iter().any(|request| request.is_write || request.is_alone) {
            let closes = requests.iter().any(|request| request.op == OpCode::CloseSession.to_wire());
            answers.extend(self.barrier(closes)?);
            if closes && self.reference.slots[slot].connection.is_none() {
                self.reference.slots[slot].session = Session::default();
                self.subject.slots[slot].session = Session::default();
            }
        }
        Ok(answers)
    }

    fn make_group(&mut self, slot: usize) -> Vec<Outgoing> {
        let len = *[1, 1, 2, 4, 8, 12, 16, 24].choose(&mut self.rng).expect("not empty");
        let mut group: Vec<Outgoing> = self.left_over.take().into_iter().collect();
        while group.len() < len && !group.iter().any(|request| request.is_alone) {
            let mut maker = RequestMaker {
                rng: &mut self.rng,
                paths: &self.paths,
                watched: self.watched[slot].make_contiguous(),
                known_zxids: self.mapping.known_txns(),
                enforce_quota: self.enforce_quota,
                restores_watches: slot < RESTORING_SLOTS,
            };
            let request = maker.request();
            if request.is_alone && !group.is_empty() {
                self.left_over = Some(request);
                break;
            }
            group.push(request);
        }
        group
    }

    /// Collects the events of what happened so far on every session.
    fn barrier(&mut self, session_was_closed: bool) -> Result<Vec<Answered>> {
        let xid = self.xids(1);
        self.reference.send_barrier(xid)?;
        self.subject.send_barrier(xid)?;
        let mut answers = Vec::new();
        for slot in 0..self.reference.slots.len() {
            let mut reference = self.reference.read_replies(slot, 1)?;
            let mut subject = self.subject.read_replies(slot, 1)?;
            if session_was_closed {
                sort_events(&mut reference);
                sort_events(&mut subject);
            }
            answers.extend(self.compare(slot, &[barrier_request()], reference, subject));
        }
        Ok(answers)
    }

    /// Compares what a slot received, frame by frame.
    fn compare(
        &mut self,
        slot: usize,
        requests: &[Outgoing],
        reference: Vec<Received>,
        subject: Vec<Received>,
    ) -> Vec<Answered> {
        let mut pending = requests.iter().peekable();
        let mut answers = Vec::new();
        let frames = reference.len().max(subject.len());
        for index in 0..frames {
            let nothing = Received::Silent;
            let r = reference.get(index).unwrap_or(&nothing);
            let s = subject.get(index).unwrap_or(&nothing);
            let request = if is_event(r) { pending.peek().copied() } else { pending.next() };
            let op = request.map_or(0, |request| request.op);
            let mode = if pending.peek().is_some() { HeaderZxid::AtLeast } else { HeaderZxid::Exact };
            let name = OpCode::from_wire(op).map_or_else(|| format!("opcode {op}"), |op| format!("{op:?}"));
            *self.coverage.entry((name.clone(), kind_of_answer(r))).or_default() += 1;
            let mut comparison = Comparison::new(&mut self.mapping, name);
            comparison.received(op, mode, r, s);
            let differences = comparison.differences;
            if !differences.is_empty() || self.verbose {
                let (reference, subject) = (describe(op, r), describe(op, s));
                if self.verbose {
                    println!("{:6} session {slot} gets {reference} | {subject}", self.operations);
                }
                let (request, path) = match request {
                    Some(request) => (request.describe(), request.path.clone()),
                    None => ("nothing".to_owned(), None),
                };
                answers.push(Answered { slot, request, path, reference, subject, differences });
            }
            let out_of_step = differences_end_the_transcript(answers.last());
            if out_of_step || *r == Received::Closed || *s == Received::Closed {
                self.drop_connection(slot);
            }
            if out_of_step {
                break;
            }
        }
        answers
    }

    /// Remembers what the reference has created.
    fn learn(&mut self, requests: &[Outgoing], answers: &[Received]) {
        let replies = answers.iter().filter(|answer| !is_event(answer));
        for (request, reply) in requests.iter().zip(replies) {
            let (Received::Frame(reply), Some(op)) = (reply, OpCode::from_wire(request.op)) else { continue };
            let mut reader = Reader::new(reply);
            if !ReplyHeader::decode(&mut reader).is_ok_and(|header| header.err == 0) {
                continue;
            }
            match Response::decode(op, reader.rest()) {
                Ok(Response::Create(response)) => self.learn_path(&response.path),
                Ok(Response::Create2(response)) => self.learn_path(&response.path),
                Ok(Response::Multi(results)) => {
                    for result in results {
                        let kind = match &result {
                            MultiResult::Error(code) => format!("result {code}"),
                            _ => "result of success".to_owned(),
                        };
                        *self.coverage.entry((format!("{op:?}"), kind)).or_default() += 1;
                        if let MultiResult::Created(path) | MultiResult::Created2(path, _) = result {
                            self.learn_path(&path);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn remember_watch(&mut self, slot: usize, request: &Outgoing) {
        const WATCHED_MAX: usize = 6;
        let Some(path) = request.watched_path() else { return };
        let watched = &mut self.watched[slot];
        if watched.len() == WATCHED_MAX {
            watched.pop_front();
        }
        watched.push_back(path.clone());
    }

    fn learn_path(&mut self, path: &str) {
        // Arbitrary data in a quota's znodes ends the reference: it parses them while it applies a txn.
        if path.starts_with("/zookeeper/quota") || self.paths.iter().any(|known| known == path) {
            return;
        }
        if self.paths.len() == PATHS_MAX {
            let forgotten = self.rng.random_range(0..PATHS_MAX);
            self.paths.swap_remove(forgotten);
        }
        self.paths.push(path.to_owned());
    }

    /// A handshake of any kind: new, resuming, stealing, refused.
    fn connect(&mut self, slot: usize) -> Result<Vec<Answered>> {
        let handshake = self.make_handshake(slot);
        self.note(slot, None, format!("connects: {handshake:?}"));
        let pipelined = handshake.pipelined_xid.map(barrier_frame).unwrap_or_default();
        let connect = |side: &mut Side, zxid: i64| {
            let session = handshake.session(side.slots[slot].session);
            let mut bytes = connect_frame(&handshake.request(&session, zxid));
            bytes.extend_from_slice(&pipelined);
            side.connect(slot, &bytes)
        };
        let zxids = resolve(&self.mapping, handshake.last_zxid_seen);
        let (r, r_earlier) = connect(&mut self.reference, zxids.0)?;
        let (s, s_earlier) = connect(&mut self.subject, zxids.1)?;
        let mut comparison = Comparison::new(&mut self.mapping, "connect".to_owned());
        comparison.handshakes(&r, &s);
        let differences = comparison.differences;
        let kind = match &r {
            Received::Frame(_) if is_refusal(&r) => "refused".to_owned(),
            Received::Frame(_) => "granted".to_owned(),
            other => format!("{other:?}"),
        };
        *self.coverage.entry((format!("connect {:?}", handshake.kind), kind)).or_default() += 1;
        let (reference, subject) = (describe(0, &r), describe(0, &s));
        let request = format!("{handshake:?}");
        let mut answers = vec![Answered { slot, request, path: None, reference, subject, differences }];
        answers.extend(self.compare_ends(slot, r_earlier, s_earlier)?);
        let is_granted = matches!(r, Received::Frame(_)) && !is_refusal(&r);
        if handshake.pipelined_xid.is_some() && is_granted && self.reference.slots[slot].connection.is_some()
        {
            let r = self.reference.read_replies(slot, 1)?;
            let s = self.subject.read_replies(slot, 1)?;
            answers.extend(self.compare(slot, &[barrier_request()], r, s));
        }
        if is_refusal(&r) && handshake.claims_in_vain() {
            answers.extend(self.compare_claimed(slot)?);
        }
        if is_refusal(&r) && handshake.is_honest() {
            self.reference.slots[slot].session = Session::default();
            self.subject.slots[slot].session = Session::default();
        }
        answers.extend(self.barrier(false)?);
        Ok(answers)
    }

    /// How the earlier connections of a session end when it is resumed elsewhere.
    fn compare_ends(
        &mut self,
        slot: usize,
        reference: Option<Connection>,
        subject: Option<Connection>,
    ) -> Result<Vec<Answered>> {
        let (Some(mut reference), Some(mut subject)) = (reference, subject) else { return Ok(Vec::new()) };
        let (r, s) = (reference.receive()?, subject.receive()?);
        let mut comparison = Comparison::new(&mut self.mapping, "earlier connection".to_owned());
        comparison.received(0, HeaderZxid::Exact, &r, &s);
        let differences = comparison.differences;
        let (reference, subject) = (describe(0, &r), describe(0, &s));
        let request = "nothing, on a connection whose session has been resumed elsewhere".to_owned();
        Ok(vec![Answered { slot, request, path: None, reference, subject, differences }])
    }

    /// What has become of a session's connection when somebody else was refused that session.
    fn compare_claimed(&mut self, slot: usize) -> Result<Vec<Answered>> {
        if self.reference.slots[slot].connection.is_none() {
            return Ok(Vec::new());
        }
        let (xid, barrier) = (self.xids(1), barrier_request());
        let answer = |side: &mut Side| -> Result<Received> {
            side.send(slot, std::slice::from_ref(&barrier), xid, &|_| 0)?;
            Ok(side.read_replies(slot, 1)?.pop().unwrap_or(Received::Silent))
        };
        let (r, s) = (answer(&mut self.reference)?, answer(&mut self.subject)?);
        let mut comparison = Comparison::new(&mut self.mapping, "claimed connection".to_owned());
        comparison.received(barrier.op, HeaderZxid::Exact, &r, &s);
        let differences = comparison.differences;
        if r == Received::Closed || s == Received::Closed {
            self.drop_connection(slot);
        }
        let (reference, subject) = (describe(barrier.op, &r), describe(barrier.op, &s));
        let request = "sync, on a connection whose session somebody else has claimed in vain".to_owned();
        Ok(vec![Answered { slot, request, path: None, reference, subject, differences }])
    }

    fn make_handshake(&mut self, slot: usize) -> Handshake {
        let has_session = self.reference.slots[slot].session.id != SessionId(0);
        let is_connected = self.reference.slots[slot].connection.is_some();
        let kind = match self.rng.random_range(0..20) {
            0 => SessionKind::Unknown,
            1 if has_session => SessionKind::WrongPassword,
            2 if has_session => SessionKind::NoPassword,
            _ => SessionKind::Own,
        };
        // A second session in a connected slot would leave the first without an owner.
        let kind = if is_connected && !has_session { SessionKind::Unknown } else { kind };
        let known = self.mapping.known_txns();
        let last_zxid_seen = match self.rng.random_range(0..20) {
            0 => SymbolicZxid::Literal(i64::MAX),
            1 => SymbolicZxid::Literal(-1),
            2..10 if known > 0 => SymbolicZxid::Known(self.rng.random_range(0..known)),
            _ => SymbolicZxid::Literal(0),
        };
        let pipelined_xid = self.rng.random_ratio(1, 8).then(|| self.xids(1));
        Handshake {
            kind,
            last_zxid_seen,
            timeout_ms: *[600_000, 0, -1, 30_000, i32::MAX, i32::MIN]
                .choose(&mut self.rng)
                .expect("not empty"),
            protocol_version: *[0, 0, 0, 1, -1].choose(&mut self.rng).expect("not empty"),
            read_only: *[None, Some(false), Some(true)].choose(&mut self.rng).expect("not empty"),
            pipelined_xid,
        }
    }

    /// Nonsense in place of a handshake, on a connection of its own.
    fn bad_bytes(&mut self) -> Result<Vec<Answered>> {
        let bytes = match self.rng.random_range(0..6) {
            0 => frame(&[]),
            1 => frame(&[0; 7]),
            2 => (-1i32).to_be_bytes().to_vec(),
            3 => 0x10_0000i32.to_be_bytes().to_vec(),
            4 => i32::MAX.to_be_bytes().to_vec(),
            _ => frame(&[0; 27]),
        };
        let slot = 0;
        self.note(slot, None, format!("another connection begins with {}", bytes.escape_ascii()));
        let answer = |side: &Side| -> Result<Received> {
            let mut connection = Connection::open(side.address)?;
            connection.send(&bytes)?;
            Ok(connection.receive()?)
        };
        let (r, s) = (answer(&self.reference)?, answer(&self.subject)?);
        let mut comparison = Comparison::new(&mut self.mapping, "bad handshake".to_owned());
        comparison.handshakes(&r, &s);
        let differences = comparison.differences;
        let (reference, subject) = (describe(0, &r), describe(0, &s));
        let request = abbreviate(&bytes.escape_ascii().to_string());
        Ok(vec![Answered { slot, request, path: None, reference, subject, differences }])
    }

    /// A frame that no client sends: the connection ends, the session does not.
    fn bad_frame(&mut self, slot: usize) -> Result<Vec<Answered>> {
        let auth = [0, 0, 0, 1, 0, 0, 0, 100, 0, 0];
        let bytes = match self.rng.random_range(0..6) {
            0 => (-1i32).to_be_bytes().to_vec(),
            1 => i32::MIN.to_be_bytes().to_vec(),
            2 => 0x10_0000i32.to_be_bytes().to_vec(),
            3 => frame(&[]),
            4 => frame(&[0, 0, 0, 1, 0, 0]),
            _ => frame(&auth),
        };
        self.note(slot, None, format!("sends {}", bytes.escape_ascii()));
        for side in [&mut self.reference, &mut self.subject] {
            if let Some(connection) = &mut side.slots[slot].connection {
                connection.send(&bytes)?;
            }
        }
        let r = self.reference.read_replies(slot, 1)?;
        let s = self.subject.read_replies(slot, 1)?;
        Ok(self.compare(slot, &[], r, s))
    }

    /// Tells what differs, and what led to it: requests of the session and about the path.
    fn report(&self, answer: &Answered) -> String {
        const LINES: usize = 40;
        let mut text = String::new();
        let related = |entry: &&LogEntry| {
            let same_path = match (&entry.path, &answer.path) {
                (Some(a), Some(b)) => a.starts_with(b.as_str()) || b.starts_with(a.as_str()),
                _ => false,
            };
            same_path || entry.slot == answer.slot
        };
        let lines: Vec<&LogEntry> = self.log.iter().rev().filter(related).take(LINES).collect();
        let _ = writeln!(text, "seed {}, request {}, session {}:", self.seed, self.operations, answer.slot);
        let _ = writeln!(text, "  asked:     {}", abbreviate(&answer.request));
        let _ = writeln!(text, "  reference: {}", answer.reference);
        let _ = writeln!(text, "  subject:   {}", answer.subject);
        for Difference { request, field, reference, subject } in &answer.differences {
            let _ = writeln!(text, "  {request}, {field}: reference {reference}, subject {subject}");
        }
        let _ = writeln!(text, "before it, by this session or about this path:");
        for LogEntry { operation, slot, text: line, .. } in lines.iter().rev() {
            let _ = writeln!(text, "  {operation:6} session {slot}: {line}");
        }
        text
    }
}

/// A handshake before it is written for one side.
#[derive(Debug)]
struct Handshake {
    kind: SessionKind,
    last_zxid_seen: SymbolicZxid,
    timeout_ms: i32,
    protocol_version: i32,
    read_only: Option<bool>,
    pipelined_xid: Option<i32>,
}

#[derive(Debug, PartialEq, Eq)]
enum SessionKind {
    /// The slot's own, or a new one if it has none.
    Own,
    WrongPassword,
    NoPassword,
    /// One that no server knows.
    Unknown,
}

impl Handshake {
    fn session(&self, own: Session) -> Session {
        match self.kind {
            SessionKind::Own | SessionKind::NoPassword => own,
            SessionKind::WrongPassword => Session { password: [1; 16], ..own },
            SessionKind::Unknown => unknown_session(),
        }
    }

    fn request<'a>(&self, session: &'a Session, last_zxid_seen: i64) -> ConnectRequest<'a> {
        ConnectRequest {
            protocol_version: self.protocol_version,
            last_zxid_seen,
            timeout_ms: self.timeout_ms,
            session_id: session.id,
            password: (self.kind != SessionKind::NoPassword).then_some(session.password.as_slice()),
            read_only: self.read_only,
        }
    }

    /// Whether it names a session without the proof that it is the client's.
    fn claims_in_vain(&self) -> bool {
        matches!(self.kind, SessionKind::WrongPassword | SessionKind::NoPassword)
    }

    /// Whether a refusal means that the session is gone.
    fn is_honest(&self) -> bool {
        self.kind == SessionKind::Own
    }
}

/// Whether the frames that follow cannot be paired any more.
fn differences_end_the_transcript(answer: Option<&Answered>) -> bool {
    let ends = |difference: &Difference| matches!(difference.field.as_str(), "answer" | "order" | "frame");
    answer.is_some_and(|answer| answer.differences.iter().any(ends))
}

/// Whether the reference closes the connection after this answer.
fn closes(op: i32, reply: &Received) -> bool {
    let Received::Frame(reply) = reply else { return false };
    let err = ReplyHeader::decode(&mut Reader::new(reply)).map_or(0, |header| header.err);
    match OpCode::from_wire(op) {
        Some(OpCode::CloseSession) => true,
        Some(OpCode::Auth) => err != 0,
        Some(OpCode::Check) | None => err == ErrorCode::Unimplemented.to_wire(),
        _ => false,
    }
}

/// An answer without its particulars.
fn kind_of_answer(received: &Received) -> String {
    let Received::Frame(frame) = received else { return format!("{received:?}") };
    let mut reader = Reader::new(frame);
    match ReplyHeader::decode(&mut reader) {
        Ok(header) if header.xid == xid::NOTIFICATION => match reader.read_i32().map(EventType::from_wire) {
            Ok(Some(event_type)) => format!("event {event_type:?}"),
            _ => "event of no known type".to_owned(),
        },
        Ok(header) => format!("err {}", header.err),
        Err(_) => "not a reply".to_owned(),
    }
}

fn is_refusal(answer: &Received) -> bool {
    matches!(answer, Received::Frame(frame) if ringkeeper_testkit::granted_session(frame).is_none())
}

fn resolve(mapping: &Mapping, zxid: SymbolicZxid) -> (i64, i64) {
    match zxid {
        SymbolicZxid::Literal(zxid) => (zxid, zxid),
        SymbolicZxid::Known(index) => mapping.known_txn(index),
    }
}

/// Brings neighbouring events of one transaction into an order of their own.
fn sort_events(frames: &mut [Received]) {
    let zxid = |received: &Received| match received {
        Received::Frame(frame) if is_event(received) => {
            ReplyHeader::decode(&mut Reader::new(frame)).ok().map(|header| header.zxid)
        }
        _ => None,
    };
    for chunk in frames.chunk_by_mut(|a, b| zxid(a).is_some() && zxid(a) == zxid(b)) {
        chunk.sort_by_key(|received| match received {
            Received::Frame(frame) => frame.clone(),
            _ => Vec::new(),
        });
    }
}
