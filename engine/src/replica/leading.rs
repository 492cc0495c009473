//! The leader's part of the replica: order of requests, ownership of sessions, answers without a transaction,
//! expiry.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrayvec::ArrayVec;
use bytes::Bytes;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use ringkeeper_wire::{Epoch, ErrorCode, Identity, ReconfigRequest, Request, ServerId, SessionId, Xid, Zxid};

use super::cleaner::Cleaner;
use super::expiry::{Expiry, Verdict};
use super::fair_queue::{FairQueue, Waiting};
use super::transaction_time::TransactionTime;
use super::{Effect, Now, Output, Replica, ReplicaSettings, Role, forward};
use crate::authorisation::{Authorisation, Bounds, BoundsCache};
use crate::limits::{Limit, Refusal};
use crate::message::{Committed, Origin, RequestBatch, ShardId, Submission, Submitted, ToShard};
use crate::mutation::planted;
use crate::path;
use crate::prefetch::PREFETCHED_WRITES;
use crate::prepare::{self, Context, Ensemble, Meter, reconfig};
use crate::state::State;
use crate::tree::Znode;
use crate::txn::{Session, SetData, Txn, TxnOp, Update};

/// Rate at which clients may have znodes counted for quotas, once the initial allowance is used up. This
/// count is the only request that visits a whole subtree on the leader.
const COUNTED_PER_SECOND: u64 = 100_000;

/// A client's connection, on any server of the ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Client {
    pub(super) server: ServerId,
    origin: Origin,
}

/// The connection that a session may write from, and its client's identities as its server last sent them.
#[derive(Clone, Debug)]
struct Ownership {
    client: Client,
    identities: Arc<[Identity]>,
    bounds: BoundsCache,
}

impl From<Client> for Ownership {
    fn from(client: Client) -> Self {
        Self { client, identities: Arc::default(), bounds: BoundsCache::default() }
    }
}

/// A createSession that is not committed yet.
#[derive(Debug)]
struct Opening {
    client: Client,
    password: [u8; 16],
    timeout_ms: u32,
}

/// An answer that the leader gives without a transaction. It waits for a quorum's confirmation: the leader
/// may have been deposed without knowing it, and its answer could contradict its successor.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Synced,
    /// The connection gets the session, if it still owns the session when the answer is released.
    Attached {
        session: SessionId,
        password: [u8; 16],
        timeout_ms: u32,
    },
    Rejected,
}

/// An answer that waits until `upto` is committed and a quorum has confirmed, in a round that began after the
/// question, that this server still leads.
#[derive(Debug)]
struct Unconfirmed {
    client: Client,
    answer: Answer,
    upto: Zxid,
    round: u64,
}

/// The state of one leadership; dropped when the leadership ends.
#[derive(Debug)]
pub(super) struct Leadership {
    /// The last zxid that was assigned.
    last_zxid: Zxid,
    time: TransactionTime,
    expiry: Expiry,
    /// The other servers that are heard, and the time by which all that they had reported has come.
    answered_ms: BTreeMap<ServerId, u64>,
    cleaner: Cleaner,
    /// The connection that a session may write from.
    owners: BTreeMap<SessionId, Ownership>,
    opening: BTreeMap<SessionId, Opening>,
    unconfirmed: VecDeque<Unconfirmed>,
    waiting: FairQueue,
    /// The last confirmation round requested, and the last one confirmed. Rounds are numbered from
    /// [`first_round`] on, since the broadcast may still answer a round of an earlier epoch, which confirms
    /// nothing for this one.
    round_asked: u64,
    round_confirmed: u64,
    /// Its znodes that may be visited grow by [`COUNTED_PER_SECOND`].
    meter: Meter,
    /// Low 56 bits of the last session id given out.
    last_session: i64,
    random: ChaCha12Rng,
}

/// The body of a submitted write, from the bytes of its batch.
pub(super) fn body<'b>(submission: &Submission, bytes: &'b [u8]) -> Option<&'b [u8]> {
    let Submitted::Write { body, .. } = &submission.what else { return None };
    bytes.get(body.clone())
}

/// Decodes the body of a submitted write. Its shard has checked it: only a faulty peer's cannot be decoded.
pub(super) fn decode<'b>(submission: &Submission, body: &'b [u8]) -> Option<Request<'b>> {
    let Submitted::Write { op, .. } = &submission.what else { return None };
    Request::decode(*op, body).ok()
}

/// The number before the first round of an epoch's leadership; greater than all rounds of earlier epochs.
const fn first_round(epoch: Epoch) -> u64 {
    // u64::from is not const.
    (epoch.0 as u64) << 32
}

/// Sessions that end at a time, and ephemerals with them: however many expire together, everybody else has
/// their turn in between.
pub(super) const CLOSING_STEPS_MAX: usize = 10_000;

impl Leadership {
    /// Whether [`Replica::lead_due`] would prepare a request.
    pub(super) fn has_due(&self) -> bool {
        self.waiting.is_due()
    }

    pub(super) fn new(settings: &ReplicaSettings, now: Now, epoch: Epoch, head: &State) -> Self {
        let mut expiry = Expiry::new(now.monotonic_ms, settings.tick_ms, settings.reported_within_ms);
        for (session, known) in head.sessions() {
            expiry.track(now.monotonic_ms, session, known.timeout_ms);
        }
        let mut random = ChaCha12Rng::from_seed(settings.random_seed);
        // The same server may lead several epochs of one process: their passwords must differ.
        random.set_stream(u64::from(epoch.0));
        // Later than all leaderships before, whatever the clock says, so that no session has the id of one
        // that has ended.
        let since_ms = now.wall_ms.max(head.last_time_ms() + 1);
        Self {
            last_zxid: Zxid::new(epoch, 0),
            time: TransactionTime::new(
                now,
                if planted!(settings.requests, TimeRunsBackwards) { 0 } else { since_ms },
            ),
            expiry,
            answered_ms: BTreeMap::new(),
            cleaner: Cleaner::new(settings.cleaner, now.monotonic_ms),
            owners: BTreeMap::new(),
            opening: BTreeMap::new(),
            unconfirmed: VecDeque::new(),
            waiting: FairQueue::new(settings.uncommitted_operations_max),
            round_asked: first_round(epoch),
            round_confirmed: first_round(epoch),
            meter: Meter::new(settings.requests.limits.of(Limit::QuotaZnodes)),
            // ZooKeeper's layout: 40 bits of milliseconds, 16 bits that count within one.
            last_session: (since_ms << 24).cast_unsigned().wrapping_shr(8).cast_signed() & ((1 << 56) - 1),
            random,
        }
    }

    pub(super) const fn expiry(&self) -> &Expiry {
        &self.expiry
    }

    /// Whether nobody waits for an answer, but for commits.
    pub(super) fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.unconfirmed.is_empty()
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.expiry.forget(session);
        self.owners.remove(&session);
        self.opening.remove(&session);
    }

    /// The client's identities: those sent with this write, or with the last write that had some.
    fn identities(&mut self, session: SessionId, named: Option<Arc<[Identity]>>) -> Arc<[Identity]> {
        let Some(owner) = self.owners.get_mut(&session) else { return named.unwrap_or_default() };
        if let Some(identities) = named {
            owner.identities = identities;
        }
        Arc::clone(&owner.identities)
    }

    /// The rules that bind the client of a session.
    fn bounds(
        &mut self,
        session: SessionId,
        authorisation: &Authorisation,
        identities: &[Identity],
    ) -> Option<Arc<Bounds>> {
        if !authorisation.is_active() {
            return None;
        }
        match self.owners.get_mut(&session) {
            Some(owner) => owner.bounds.bounds(authorisation, identities).cloned(),
            None => Bounds::of(authorisation, identities).map(Arc::new),
        }
    }

    fn next_zxid(&mut self) -> Zxid {
        // The broadcast moves to a new epoch well before the counter ends, see `epoch_txns_max` of
        // `zab::Config`.
        self.last_zxid = self.last_zxid.next().expect("an epoch ends before its counter does");
        self.last_zxid
    }

    fn next_session(&mut self, server: ServerId, head: &State) -> SessionId {
        loop {
            self.last_session = (self.last_session + 1) & ((1 << 56) - 1);
            let top = i64::from(u8::try_from(server.0 & 0xff).unwrap_or(0)) << 56;
            let session = SessionId(top | self.last_session);
            if head.session(session).is_none() && session != SessionId(0) {
                return session;
            }
        }
    }
}

impl Replica {
    /// Time has passed: sessions expire, containers and TTL znodes are cleaned up, the feature level rises.
    pub(super) fn tick_leading(&mut self, now: Now) {
        let Role::Leading(leadership) = &mut self.role else { return };
        let step_ms = leadership.expiry.pass(now.monotonic_ms);
        let countable = leadership.meter.countable().saturating_add(step_ms * COUNTED_PER_SECOND / 1000);
        leadership.meter.set_countable(countable.min(self.settings.requests.limits.of(Limit::QuotaZnodes)));
        let (head, mut steps) = (self.pipeline.head(), 0);
        let Leadership { expiry, owners, answered_ms, .. } = &mut **leadership;
        let expired = expiry.expired(now.monotonic_ms, |session, over_ms| {
            if steps >= CLOSING_STEPS_MAX {
                return Verdict::NextTime;
            }
            let server = owners.get(&session).map(|owner| owner.client.server);
            let answered_ms = server.and_then(|server| answered_ms.get(&server));
            let unheard = answered_ms.is_some_and(|answered_ms| *answered_ms < over_ms);
            if unheard && !planted!(self.settings.requests, EndUnheardSessions) {
                steps += 1;
                return Verdict::Waits;
            }
            steps += 1 + head.owned_ephemerals(session);
            Verdict::Expires
        });
        // TTLs are counted from the times of transactions.
        let time = Now { wall_ms: leadership.time.at(now), ..now };
        let removable = leadership.cleaner.removable(time, self.pipeline.head());
        self.expired_sessions += expired.len() as u64;
        for session in expired {
            let mut op = prepare::prepare_close_session(self.pipeline.head(), session);
            if planted!(self.settings.requests, KeepEphemerals) && op == TxnOp::CloseSession {
                op = TxnOp::CloseSessionListed(Vec::new());
            }
            self.order(now, session, Xid(0), op);
        }
        for path in removable {
            if let Some(op) = prepare::prepare_reap(self.pipeline.head(), &path) {
                self.order(now, SessionId(0), Xid(0), op);
            }
        }
        self.raise_level(now);
    }

    /// Time passes in which sessions are not heard.
    pub(super) fn note_pause(&mut self) {
        if let Role::Leading(leadership) = &mut self.role {
            leadership.expiry.note_pause();
        }
    }

    /// The clients that a server had when leadership was handed over to this one. A session that has moved on
    /// since, or has ended, is not theirs any more.
    pub(super) fn take_over(&mut self, server: ServerId, clients: &[(SessionId, Origin)]) {
        for (session, origin) in clients {
            let client = Client { server, origin: *origin };
            let Role::Leading(leadership) = &mut self.role else { return };
            let moved = leadership.owners.get(session).is_some_and(|owner| owner.client != client)
                && !planted!(self.settings.requests, TakeOverMovedSessions);
            if moved || self.pipeline.head().session(*session).is_none() {
                self.direct(client, ToShard::Evict { conn: origin.conn });
            } else {
                leadership.owners.insert(*session, client.into());
            }
        }
    }

    /// A quorum has confirmed, in answer to [`Effect::ConfirmLeadership`] with this number, that this server
    /// leads.
    pub(super) fn confirm_round(&mut self, round: u64) {
        let Role::Leading(leadership) = &mut self.role else { return };
        leadership.round_confirmed = leadership.round_confirmed.max(round);
        if leadership.unconfirmed.back().is_some_and(|last| last.round > leadership.round_asked) {
            leadership.round_asked += 1;
            self.effects.push(Effect::ConfirmLeadership(leadership.round_asked));
        }
        self.release_confirmed();
    }

    /// Another server has answered what was sent at that time, so all that it had reported before has come.
    pub(super) fn note_answer_of(&mut self, server: ServerId, asked_ms: u64) {
        if let Role::Leading(leadership) = &mut self.role {
            leadership.answered_ms.insert(server, asked_ms);
        }
    }

    /// A server has left. Its clients are disconnected, and may come back before it would be the turn of what
    /// they had asked.
    pub(super) fn drop_clients_of(&mut self, now: Now, server: ServerId) {
        self.release_clients_of(now, server);
        if let Role::Leading(leadership) = &mut self.role {
            leadership.waiting.forget(server);
        }
    }

    /// A server is silent or has left, before it reported which sessions it had heard from since its last
    /// report. Their clients get their whole timeout again, since they may rely on it from their last reply
    /// on.
    pub(super) fn release_clients_of(&mut self, now: Now, server: ServerId) {
        let Role::Leading(leadership) = &mut self.role else { return };
        leadership.answered_ms.remove(&server);
        let sessions = leadership.owners.iter().filter(|(_, owner)| owner.client.server == server);
        for (session, _) in sessions {
            leadership.expiry.touch(now.monotonic_ms, *session);
        }
    }

    pub(super) fn lead_requests(&mut self, now: Now, server: ServerId, shard: ShardId, batch: RequestBatch) {
        let deaf = planted!(self.settings.requests, IgnoreTouches) && server != self.settings.server;
        if let Role::Leading(leadership) = &mut self.role
            && !deaf
        {
            for session in &batch.touched {
                leadership.expiry.touch(now.monotonic_ms, *session);
            }
        }
        let mut submissions = batch.submissions.into_iter();
        while let Some(next) = submissions.as_slice().chunks(PREFETCHED_WRITES).next() {
            let requests: ArrayVec<_, PREFETCHED_WRITES> =
                next.iter().map(|submission| decode(submission, body(submission, &batch.bytes)?)).collect();
            self.pipeline.head().prefetch_requests(requests.iter().flatten());
            for (request, submission) in requests.into_iter().zip(submissions.by_ref()) {
                let client = Client { server, origin: Origin { shard, conn: submission.conn } };
                let Role::Leading(leadership) = &mut self.role else { return };
                let is_multi = matches!(request, Some(Request::Multi(_)))
                    && !planted!(self.settings.requests, PrepareAhead);
                if leadership.waiting.admits(client, is_multi) {
                    self.lead_submission(now, client, submission, request, &batch.bytes);
                } else {
                    let body = body(&submission, &batch.bytes).unwrap_or_default();
                    leadership.waiting.push(client, submission, body, &batch.bytes);
                }
            }
        }
    }

    /// Prepares requests that waited for their turn, as many as are due.
    pub(super) fn lead_due(&mut self, now: Now) {
        loop {
            let Role::Leading(leadership) = &mut self.role else { return };
            let Some((client, Waiting { submission, body })) = leadership.waiting.pop() else { return };
            let request = decode(&submission, &body);
            self.lead_submission(now, client, submission, request, &body);
        }
    }

    /// `request` is the decoded body of a write, which lies in `source`.
    fn lead_submission(
        &mut self,
        now: Now,
        client: Client,
        submission: Submission,
        request: Option<Request<'_>>,
        source: &Bytes,
    ) {
        let Submission { session, local, .. } = submission;
        match submission.what {
            Submitted::Open { timeout_ms } => self.open_session(now, client, timeout_ms),
            Submitted::Reattach { password, timeout_ms } => {
                self.reattach(now, client, session, password, timeout_ms);
            }
            Submitted::Detach => self.detach(client, session),
            Submitted::Upgrade { password, timeout_ms } => {
                self.upgrade_session(now, client, session, password, timeout_ms);
            }
            _ if !local && !self.owns(client, session) && !planted!(self.settings.requests, IgnoreOwner) => {
                self.direct(client, ToShard::Evict { conn: client.origin.conn })
            }
            Submitted::Sync => self.sync(client),
            Submitted::Write { xid, op: _, body, identities, read_barrier } => {
                if read_barrier && !planted!(self.settings.requests, DropReadBarriers) {
                    self.pipeline.read_barrier(session);
                }
                let Some(request) = request else {
                    return self.order(now, session, xid, TxnOp::Error(ErrorCode::MarshallingError));
                };
                let origin = (client.server == self.settings.server).then_some(client.origin);
                let Role::Leading(leadership) = &mut self.role else { return };
                let (zxid, time_ms) = (leadership.next_zxid(), leadership.time.next(now));
                let identities = match identities {
                    Some(named) if origin.is_some() => named,
                    named => leadership.identities(session, named),
                };
                let lags = planted!(self.settings.requests, JudgeByCommittedRules);
                let state = if lags { self.pipeline.committed() } else { self.pipeline.head() };
                let bounds = leadership.bounds(session, state.authorisation(), &identities);
                let settings = &self.settings.requests;
                let committed = self.pipeline.committed().last_zxid();
                let context = Context {
                    source,
                    session,
                    local,
                    ensemble: Ensemble {
                        leader: self.settings.server,
                        up_to_date: &self.up_to_date,
                        committed,
                    },
                    identities: &identities,
                    bounds: bounds.as_deref(),
                    time_ms,
                    settings,
                    short_of_memory: self.short_of_memory,
                    meter: &leadership.meter,
                };
                let (txn, outcome) =
                    prepare::execute(self.pipeline.head_mut(), &context, zxid, xid, &request);
                let refusal = leadership.meter.take_refusal();
                if let Request::Multi(ops) = request {
                    leadership.waiting.prepared(zxid, ops.len());
                }
                let size = txn.op.len_bytes().max(body.len());
                self.pipeline.admit(txn, outcome, origin, size);
                if let Some(refusal) = refusal {
                    self.note_refusal(session, refusal);
                }
                if let Some(rule) = bounds.and_then(|bounds| bounds.take_refusal()) {
                    self.output(Output::Forbidden { session, rule });
                }
            }
        }
    }

    /// Writes this server's configuration of the ensemble to `/zookeeper/config`, if it differs.
    pub(super) fn announce_ensemble(&mut self, now: Now) {
        if self.pipeline.head().membership().is_some() {
            return;
        }
        if self.settings.requests.reconfig_enabled
            && let Role::Leading(leadership) = &mut self.role
        {
            // From here on the members are those of the log.
            let text = self.configured.describe(leadership.last_zxid.0 + 1);
            if !text.is_empty() {
                return self.order_config(now, &text);
            }
        }
        let known = self.pipeline.head().znode(path::CONFIG).and_then(Znode::data).unwrap_or_default();
        let text = Arc::clone(&self.settings.ensemble);
        if known != text.as_bytes() {
            self.order_config(now, &text);
        }
    }

    /// Changes the members, if this server leads: what an operator asks for, whom no ACL binds.
    ///
    /// # Errors
    /// As a client that asks for it.
    pub fn reconfigure(&mut self, now: Now, request: &ReconfigRequest<'_>) -> Result<(), ErrorCode> {
        let Role::Leading(leadership) = &self.role else { return Err(ErrorCode::Unimplemented) };
        let ensemble = Ensemble {
            leader: self.settings.server,
            up_to_date: &self.up_to_date,
            committed: self.pipeline.committed().last_zxid(),
        };
        let zxid = Zxid(leadership.last_zxid.0 + 1);
        let head = self.pipeline.head();
        let membership = head.membership().ok_or(ErrorCode::Unimplemented)?;
        let wanted = reconfig::wanted(membership, &self.settings.requests, request)?;
        reconfig::check_level(head, membership, &wanted, &self.settings.requests).map_err(Refusal::code)?;
        let update = reconfig::change(membership, &wanted, &ensemble, zxid)?;
        self.order(now, SessionId(0), Xid(0), TxnOp::Reconfig(update));
        Ok(())
    }

    fn order_config(&mut self, now: Now, text: &str) {
        let set = SetData {
            path: path::CONFIG.into(),
            data: Some(Bytes::copy_from_slice(text.as_bytes())),
            version: -1,
        };
        self.order(now, SessionId(0), Xid(0), TxnOp::Reconfig(Update::SetData(set)));
    }

    pub(super) fn note_refusal(&mut self, session: SessionId, refusal: Refusal) {
        self.refusals.count(refusal);
        self.output(Output::Refused { session, refusal });
    }

    /// Orders a transaction of the server's own.
    pub(super) fn order(&mut self, now: Now, session: SessionId, xid: Xid, op: TxnOp) {
        let Role::Leading(leadership) = &mut self.role else { return };
        let txn = Txn { zxid: leadership.next_zxid(), session, xid, time_ms: leadership.time.next(now), op };
        let size = txn.op.len_bytes();
        self.pipeline.execute(txn, None, size);
    }

    fn owns(&self, client: Client, session: SessionId) -> bool {
        let Role::Leading(leadership) = &self.role else { return false };
        leadership.owners.get(&session).is_some_and(|owner| owner.client == client)
    }

    /// Whether there may be another session beside those of the ensemble and this server's own. If not, that
    /// is noted for `session`, which is 0 if it has no id yet.
    pub(super) fn admits_session(&mut self, session: SessionId) -> bool {
        let sessions = self.pipeline.head().sessions().len() + self.local_session_count();
        let has_room = self.settings.requests.limits.allow(Limit::Sessions, sessions + 1);
        if !has_room {
            self.note_refusal(session, Refusal::Limit(Limit::Sessions));
        }
        has_room
    }

    fn open_session(&mut self, now: Now, client: Client, timeout_ms: u32) {
        // The connection is closed without a reply, so that the client tries again later.
        if !self.admits_session(SessionId(0)) {
            return self.direct(client, ToShard::Evict { conn: client.origin.conn });
        }
        let Role::Leading(leadership) = &mut self.role else { return };
        let session = leadership.next_session(client.server, self.pipeline.head());
        let mut password = [0; 16];
        leadership.random.fill_bytes(&mut password);
        leadership.opening.insert(session, Opening { client, password, timeout_ms });
        let op = TxnOp::CreateSession(Session { timeout_ms, password });
        self.order(now, session, Xid(0), op);
    }

    /// A createSession is committed: its connection is attached, if this leadership has opened it.
    pub(super) fn session_created(&mut self, now: Now, committed: &Committed) {
        let session = committed.txn.session;
        let Role::Leading(leadership) = &mut self.role else { return };
        let Some(Opening { client, password, timeout_ms }) = leadership.opening.remove(&session) else {
            return;
        };
        leadership.expiry.track(now.monotonic_ms, session, timeout_ms);
        leadership.owners.insert(session, client.into());
        let conn = client.origin.conn;
        self.direct(client, ToShard::Attached { conn, session, password, timeout_ms });
    }

    /// A session that was local to the client's server becomes one of the ensemble. It is the client's from
    /// now on, before the transaction is committed: the write that needs it follows.
    fn upgrade_session(
        &mut self,
        now: Now,
        client: Client,
        session: SessionId,
        password: [u8; 16],
        timeout_ms: u32,
    ) {
        let known = self.pipeline.head().session(session).is_some();
        let ended = self.rejected.contains((session, password))
            && !planted!(self.settings.requests, UpgradeEndedSessions);
        if known || ended || !self.admits_session(session) {
            // Nobody has the session any more, so its client is told that it has expired when it comes back.
            return self.direct(client, ToShard::Evict { conn: client.origin.conn });
        }
        let Role::Leading(leadership) = &mut self.role else { return };
        leadership.expiry.track(now.monotonic_ms, session, timeout_ms);
        leadership.owners.insert(session, client.into());
        self.order(now, session, Xid(0), TxnOp::CreateSession(Session { timeout_ms, password }));
    }

    fn reattach(
        &mut self,
        now: Now,
        client: Client,
        session: SessionId,
        password: [u8; 16],
        timeout_ms: u32,
    ) {
        let known = match self.pipeline.head().session(session) {
            Some(known) => known.password == password || planted!(self.settings.requests, AcceptAnyPassword),
            None => planted!(self.settings.requests, ReviveSessions),
        };
        let Role::Leading(leadership) = &mut self.role else { return };
        if !known || leadership.opening.contains_key(&session) {
            self.rejected.insert((session, password));
            return self.answer_when_confirmed(client, Answer::Rejected, self.pipeline.last_executed());
        }
        leadership.expiry.track(now.monotonic_ms, session, timeout_ms);
        let previous = leadership.owners.insert(session, client.into());
        let previous = previous.map(|owner| owner.client).filter(|previous| *previous != client);
        if let Some(previous) = previous
            && !planted!(self.settings.requests, EvictNobody)
        {
            self.direct(previous, ToShard::Evict { conn: previous.origin.conn });
        }
        // What the session asked for before is published first, also its upgrade: a client may count anew on
        // each connection, and would take the replies to the former one's requests for those to its own.
        let upto = self.pipeline.last_executed();
        self.answer_when_confirmed(client, Answer::Attached { session, password, timeout_ms }, upto);
    }

    fn detach(&mut self, client: Client, session: SessionId) {
        let Role::Leading(leadership) = &mut self.role else { return };
        if leadership.owners.get(&session).is_some_and(|owner| owner.client == client) {
            leadership.owners.remove(&session);
        }
    }

    fn sync(&mut self, client: Client) {
        if planted!(self.settings.requests, SyncAlone) {
            return self.direct(client, ToShard::Synced { conn: client.origin.conn });
        }
        self.answer_when_confirmed(client, Answer::Synced, self.pipeline.last_executed());
    }

    fn answer_when_confirmed(&mut self, client: Client, answer: Answer, upto: Zxid) {
        let Role::Leading(leadership) = &mut self.role else { return };
        let idle = leadership.round_asked == leadership.round_confirmed;
        let round = leadership.round_asked + 1;
        leadership.unconfirmed.push_back(Unconfirmed { client, answer, upto, round });
        if idle {
            leadership.round_asked = round;
            self.effects.push(Effect::ConfirmLeadership(round));
        }
    }

    pub(super) fn release_confirmed(&mut self) {
        let committed = self.pipeline.committed().last_zxid();
        if let Role::Leading(leadership) = &mut self.role {
            leadership.waiting.committed(committed);
        }
        loop {
            let Role::Leading(leadership) = &mut self.role else { return };
            let confirmed = leadership.round_confirmed;
            let due = |waiting: &mut Unconfirmed| waiting.round <= confirmed && waiting.upto <= committed;
            let Some(waiting) = leadership.unconfirmed.pop_front_if(due) else { return };
            let Unconfirmed { client, answer, round, .. } = waiting;
            let conn = client.origin.conn;
            match answer {
                Answer::Synced => self.direct(client, ToShard::Synced { conn }),
                Answer::Rejected => self.direct(client, ToShard::Rejected { conn }),
                // The session ended meanwhile. The rejection waits until that end is committed.
                Answer::Attached { session, .. }
                    if self.pipeline.head().session(session).is_none()
                        && !planted!(self.settings.requests, ReviveSessions) =>
                {
                    let upto = self.pipeline.last_executed();
                    let rejected = Unconfirmed { client, answer: Answer::Rejected, upto, round };
                    let Role::Leading(leadership) = &mut self.role else { return };
                    leadership.unconfirmed.push_front(rejected);
                }
                Answer::Attached { session, password, timeout_ms } if self.owns(client, session) => {
                    self.direct(client, ToShard::Attached { conn, session, password, timeout_ms });
                }
                // The session moved on to another connection, which evicted this one, or the connection has
                // ended.
                Answer::Attached { .. } => {}
            }
        }
    }

    /// Sends a message to a connection's shard, on whichever server it is.
    fn direct(&mut self, client: Client, message: ToShard) {
        if client.server == self.settings.server {
            self.tell_local_shard(client.origin.shard, message);
        } else {
            let after = self.pipeline.committed().last_zxid();
            let bytes = forward::encode_directed(after, client.origin.shard, &message);
            self.effects.push(Effect::ToLearner(client.server, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use ringkeeper_frame::Checksum;

    use super::*;
    use crate::application::Application;

    fn leader(ensemble: &str) -> Replica {
        let alone = ReplicaSettings::new(ServerId(1), [0; 32]);
        let settings = ReplicaSettings { ensemble: ensemble.into(), ..alone };
        let mut replica = Replica::new(settings, State::new(1));
        replica.lead(Now::default(), Epoch(1));
        replica
    }

    #[test]
    fn a_new_leader_writes_down_the_ensemble_where_it_reads_differently() {
        let text = "server.1=a:1:2:participant\nversion=0";
        let mut replica = leader(text);
        let last = replica.next_batch(Zxid::ZERO, Checksum::NONE).expect("a transaction").last();
        replica.commit(Now::default(), last);
        let znode = replica.committed().znode(path::CONFIG).expect("built in");
        assert_eq!((znode.data(), znode.stat().version), (Some(text.as_bytes()), -1));

        replica.look();
        replica.lead(Now::default(), Epoch(2));
        assert!(!replica.has_unsealed(), "it says so already");
    }
}
