//! One server's leader core: it combines sessions and transactions, on a leader and on a follower.
//!
//! It runs on every server. Shards send it [`RequestBatch`]s; it answers with [`ToShard`] messages in the
//! order of the log. On the leader a request is prepared against the newest speculative state, becomes a
//! transaction, and is published when it is committed. A follower forwards its shards' requests to the leader
//! and publishes the transactions of the log.
//!
//! The caller drives what orders and replicates the batches: Zab, or the own log of a server alone. It takes
//! a batch with [`Replica::next_batch`] when the log is idle, passes a leader's batches to
//! [`Replica::append`], and reports the committed position with [`Replica::commit`].

mod cleaner;
mod connection_throttle;
mod digests;
mod expiry;
mod fair_queue;
mod forward;
mod issuer;
mod leading;
mod level;
mod local;
mod pipeline;
mod read_only;
mod rejected;
mod transaction_time;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use ringkeeper_frame::{Batch, Checksum, LogPosition};
use ringkeeper_wire::{Epoch, Identity, OpCode, ServerId, SessionId, Xid, Zxid};

use crate::application::{Application, Effect};
use crate::authorisation::Authorisation;
use crate::codec::DecodeError;
use crate::level::{FeatureLevel, Level};
use crate::limits::{Refusal, Refusals};
use crate::members::{Members, Membership};
use crate::message::{Committed, Origin, RequestBatch, Serving, ShardId, Submission, Submitted, ToShard};
use crate::mutation::planted;
use crate::prefetch::PREFETCHED_WRITES;
use crate::settings::Settings;
use crate::snapshot::{Encoder, STATE_VERSION};
use crate::state::State;
use crate::txn::{self, ArchivedTxn, BatchError, Txn, TxnOp};
use crate::zab::{self, ServerSet, Status, Zab};

pub use cleaner::CleanerSettings;
use connection_throttle::ConnectionThrottle;
pub use connection_throttle::{ConnectionThrottleReport, ConnectionThrottleSettings};
pub use expiry::ListedSession;
pub use forward::forwards_writes;
use forward::{Directed, Heard};
use leading::Leadership;
pub use local::LOCAL_SESSIONS_SINCE;
use local::LocalSessions;
use pipeline::Pipeline;
use read_only::ReadOnly;
use rejected::RejectedSessions;

/// Both clocks of the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds on a clock that never jumps, for intervals.
    pub monotonic_ms: u64,
    /// Milliseconds since the Unix epoch, for timestamps.
    pub wall_ms: i64,
}

/// Bytes at which a batch is closed. A shard may submit far more at once, and every server holds whole
/// batches in memory.
const SEALED_BYTES_MAX: usize = 16 << 20;

/// Bytes at which a batch is proposed even while the log is busy, since larger appends are not faster.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Operations of multis ahead of their commit: a few milliseconds of work.
const UNCOMMITTED_OPERATIONS_MAX: usize = 4_000;

/// Settings of a replica.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// This server; the top byte of the sessions that it creates.
    pub server: ServerId,
    /// Sessions expire on multiples of this, milliseconds.
    pub tick_ms: u32,
    /// Bytes of requests from which a batch is proposed without waiting for the log to be idle
    /// ([`crate::node::Node`]).
    pub batch_bytes_max: usize,
    /// Operations of multis that a leader prepares ahead of their commit, or one multi that has more; further
    /// multis wait for their client's turn.
    pub uncommitted_operations_max: usize,
    /// The time within which other servers report the sessions they heard from, milliseconds: somewhat more
    /// than [`crate::shard::Settings::touch_interval_ms`].
    pub reported_within_ms: u32,
    /// What `/zookeeper/config` is to say of the ensemble, the same on all its servers; empty for a server
    /// alone.
    pub ensemble: Arc<str>,
    /// Whether this server takes clients while it leads other servers. Without others it always does.
    pub leader_serves: bool,
    /// What requests may do.
    pub requests: Settings,
    /// How containers and TTL znodes are cleaned up.
    pub cleaner: CleanerSettings,
    /// How many clients of this server may ask for a session.
    pub connection_throttle: ConnectionThrottleSettings,
    /// Time without a leader after which clients that accept it are served reads, milliseconds; `None` serves
    /// nobody without a leader.
    pub read_only_after_ms: Option<u64>,
    /// Whether this server keeps the sessions of its clients by itself, as long as its leader can deal with
    /// that.
    pub local_sessions: bool,
    /// Whether such a session becomes one of the ensemble when it creates its first ephemeral.
    pub local_sessions_upgrading: bool,
    /// The newest feature level that this server can do; an older one only in simulations.
    pub newest_level: Level,
    /// Seed of the passwords of sessions: from the system's random source, or the simulator's.
    pub random_seed: [u8; 32],
}

impl ReplicaSettings {
    /// A server alone with a tick of one second, batches of a MiB and the default rules for requests.
    #[must_use]
    pub fn new(server: ServerId, random_seed: [u8; 32]) -> Self {
        Self {
            server,
            tick_ms: 1000,
            batch_bytes_max: BATCH_BYTES_MAX,
            uncommitted_operations_max: UNCOMMITTED_OPERATIONS_MAX,
            reported_within_ms: 0,
            ensemble: "".into(),
            leader_serves: true,
            requests: Settings::default(),
            cleaner: CleanerSettings::default(),
            connection_throttle: ConnectionThrottleSettings::default(),
            read_only_after_ms: None,
            local_sessions: false,
            local_sessions_upgrading: false,
            newest_level: Level::NEWEST,
            random_seed,
        }
    }
}

/// What the replica tells the shards of this server, and the operator.
#[derive(Clone, Debug)]
pub enum Output {
    /// Give this to one shard.
    Shard(ShardId, ToShard),
    /// Give this to every shard.
    AllShards(ToShard),
    /// The leader refused a request or a new session; to be logged at a limited rate.
    Refused {
        /// The session that asked; 0 for a new one.
        session: SessionId,
        /// Why.
        refusal: Refusal,
    },
    /// A rule forbids a write; to be logged at a limited rate.
    Forbidden {
        /// The session that asked.
        session: SessionId,
        /// Whose rule it is.
        rule: String,
    },
    /// The log names other members than before, perhaps not committed yet: the links are to reach these, and
    /// those before while they stay connected.
    Members(Arc<Membership>),
    /// The log says another feature level than before, perhaps not committed yet, or the members need another
    /// one: the links are to refuse peers that cannot do `required`.
    Level {
        /// What the log says.
        level: FeatureLevel,
        /// As [`Replica::required_level`].
        required: Level,
    },
    /// A learner's state differs from this server's after the same transaction: one of them is wrong.
    DigestMismatch {
        /// The learner.
        peer: ServerId,
        /// The transaction.
        zxid: Zxid,
    },
}

/// Sessions that are listed in one part.
const SESSIONS_LISTED: usize = 1000;

/// What a server is in its ensemble.
#[derive(Debug)]
enum Role {
    Looking,
    Following,
    Leading(Box<Leadership>),
}

/// A session that a connection of this server carries.
#[derive(Debug)]
struct Attachment {
    origin: Origin,
    /// Made for the first write of the session that is forwarded.
    writes: Option<Box<ForwardedWrites>>,
}

#[derive(Debug, Default)]
struct ForwardedWrites {
    /// Those not yet appended, in order; true for a write with a read barrier.
    waiting: VecDeque<(Xid, bool)>,
    /// The client's identities as last sent to the leader.
    identities: Option<Arc<[Identity]>>,
}

impl ForwardedWrites {
    /// Removes from a write the identities that the leader has from an earlier one.
    fn name_once(&mut self, identities: &mut Option<Arc<[Identity]>>) {
        let Some(new) = identities else { return };
        if self.identities.as_ref().is_some_and(|told| Arc::ptr_eq(told, new)) {
            *identities = None;
        } else {
            self.identities = Some(Arc::clone(new));
        }
    }
}

/// The leader core's logic.
#[derive(Debug)]
pub struct Replica {
    settings: ReplicaSettings,
    pipeline: Pipeline,
    role: Role,
    attached: BTreeMap<SessionId, Attachment>,
    connection_throttle: Option<ConnectionThrottle>,
    read_only: Option<ReadOnly>,
    local: Option<LocalSessions>,
    /// Also those of leaderships before, since what has been called expired stays so.
    rejected: RejectedSessions,
    /// The versions of the messages that the connected servers speak.
    versions: BTreeMap<ServerId, u8>,
    /// The epoch that this server follows or leads in, if its leader takes requests of local sessions.
    local_in: Option<Epoch>,
    /// The leader's answers that depend on transactions not published here yet. The leader sends its commits
    /// before its answers, but on a lagging learner a commit may wait for its proposal.
    held: VecDeque<(Zxid, ShardId, ToShard)>,
    /// On a leader: learners that have its whole log.
    up_to_date: ServerSet,
    /// The transaction whose members this server's links were told.
    members_told: Zxid,
    level_told: level::Told,
    /// The members by this server's configuration, who are those of the ensemble while the log names none.
    configured: Members,
    /// The level without which they are not the members.
    configured_need: Level,
    /// What the shards were told last.
    serving: Serving,
    /// Creations and growing writes are refused.
    short_of_memory: bool,
    /// Zxid of the newest digest that was sent to the leader.
    digest_told: Zxid,
    refusals: Refusals,
    expired_sessions: u64,
    effects: Vec<Effect<Output>>,
}

impl Replica {
    /// A replica that has recovered `state`, and serves nobody yet.
    #[must_use]
    pub fn new(settings: ReplicaSettings, state: State) -> Self {
        let state = recovered(&settings, state);
        let configured = Members::parse(&settings.ensemble).map(|(members, _)| members).unwrap_or_default();
        Self {
            connection_throttle: ConnectionThrottle::new(&settings.connection_throttle, settings.random_seed),
            read_only: settings
                .read_only_after_ms
                .map(|after_ms| ReadOnly::new(after_ms, settings.server, settings.random_seed)),
            local: settings.local_sessions.then(|| LocalSessions::new(&settings)),
            rejected: RejectedSessions::default(),
            versions: BTreeMap::new(),
            local_in: None,
            settings,
            pipeline: Pipeline::new(state),
            role: Role::Looking,
            attached: BTreeMap::new(),
            held: VecDeque::new(),
            up_to_date: ServerSet::EMPTY,
            members_told: Zxid::ZERO,
            level_told: level::Told::default(),
            configured_need: Level::needed_by(&configured),
            configured,
            serving: Serving::No,
            short_of_memory: false,
            digest_told: Zxid::ZERO,
            refusals: Refusals::default(),
            expired_sessions: 0,
            effects: Vec::new(),
        }
    }

    /// The state after everything committed.
    #[must_use]
    pub fn committed(&self) -> &Arc<State> {
        self.pipeline.committed()
    }

    /// Digests of the committed states at every 128th zxid since this process began, oldest first; at most
    /// 1024.
    pub fn digests(&self) -> impl Iterator<Item = (Zxid, u64)> {
        self.pipeline.digests()
    }

    /// A part of the sessions whose silence this server counts, those behind `after`; empty at their end. On
    /// a leader these are the sessions of the ensemble and its own local ones, on others only the latter.
    #[must_use]
    pub fn listed_sessions(&self, after: Option<SessionId>) -> Vec<ListedSession> {
        let local = self.local.iter().flat_map(|local| local.expiry().listed(after, true));
        let mut listed: Vec<_> = local.take(SESSIONS_LISTED).collect();
        if let Role::Leading(leadership) = &self.role {
            listed.extend(leadership.expiry().listed(after, false).take(SESSIONS_LISTED));
            listed.sort_unstable_by_key(|listed| listed.session);
            listed.truncate(SESSIONS_LISTED);
        }
        listed
    }

    /// The refusals by this server as a leader.
    #[must_use]
    pub const fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Number of sessions that this server has ended since they were silent: those of the ensemble as a
    /// leader, and its local ones.
    #[must_use]
    pub const fn expired_sessions(&self) -> u64 {
        self.expired_sessions
    }

    /// What the throttle of sessions shows of itself.
    #[must_use]
    pub fn connection_throttle(&self) -> ConnectionThrottleReport {
        self.connection_throttle.as_ref().map(ConnectionThrottle::report).unwrap_or_default()
    }

    /// What this server does for clients.
    #[must_use]
    pub const fn serving(&self) -> Serving {
        self.serving
    }

    /// Zxid of the last transaction executed, committed or not.
    #[must_use]
    pub fn last_executed(&self) -> Zxid {
        self.pipeline.last_executed()
    }

    /// Begins to lead `epoch`. Everything executed so far is committed, or will be before any new
    /// transaction.
    pub fn lead(&mut self, now: Now, epoch: Epoch) {
        self.up_to_date = ServerSet::EMPTY;
        self.role =
            Role::Leading(Box::new(Leadership::new(&self.settings, now, epoch, self.pipeline.head())));
        self.serve(self.serving_as_leader());
        self.announce_ensemble(now);
    }

    /// What the shards may do for clients from now on.
    fn serve(&mut self, serving: Serving) {
        if std::mem::replace(&mut self.serving, serving) != serving {
            self.output(Output::AllShards(ToShard::Serving(serving)));
        }
    }

    /// What this server does for clients while it leads. It takes none only where another server can.
    fn serving_as_leader(&self) -> Serving {
        let has_others = || {
            let membership = self.committed().membership();
            let members = membership.map_or(&self.configured, |membership| &membership.members);
            members.iter().any(|it| ServerId(it.id) != self.settings.server)
        };
        if self.settings.leader_serves || !has_others() { Serving::Yes } else { Serving::Leads }
    }

    /// Goes from one leader to the next with all its clients: nothing that they had asked waits for an
    /// answer. The new leader is told who they are, before any of their requests.
    fn go_over(&mut self, now: Now, status: Status) {
        for writes in self.attached.values_mut().filter_map(|attachment| attachment.writes.as_mut()) {
            writes.identities = None;
        }
        let clients = self.clients_of_ensemble();
        match status {
            Status::Leading { epoch } => {
                self.up_to_date = ServerSet::EMPTY;
                let head = self.pipeline.head();
                self.role = Role::Leading(Box::new(Leadership::new(&self.settings, now, epoch, head)));
                self.take_over(self.settings.server, &clients);
                self.announce_ensemble(now);
            }
            Status::Following { .. } => {
                self.role = Role::Following;
                self.serve(Serving::Yes);
                self.effects.push(Effect::ToLeader(forward::encode_clients(&clients)));
            }
            Status::Looking => {}
        }
    }

    /// This server follows a leader and has caught up with it.
    pub fn follow(&mut self) {
        self.role = Role::Following;
        self.serve(Serving::Yes);
    }

    /// Stops leading or following: clients are disconnected. Proposed transactions that are not committed
    /// stay: the next leader's synchronization either commits or truncates them ([`Self::truncate`]).
    pub fn look(&mut self) {
        self.role = Role::Looking;
        self.forget_connections();
        self.held.clear();
        self.pipeline.abandon_unsealed();
        self.serve(Serving::No);
    }

    /// The shards close, or have closed, the connections of all sessions.
    fn forget_connections(&mut self) {
        self.attached.clear();
        if let Some(local) = &mut self.local {
            local.disconnected();
        }
    }

    /// Disconnects the clients that were served reads without a leader.
    fn end_read_only(&mut self) {
        if self.read_only.as_mut().is_some_and(ReadOnly::end) {
            self.forget_connections();
            self.serve(Serving::No);
        }
    }

    /// Answers a shard's requests without a leader. If nobody is served, the shard has been told, and closes
    /// its connections when it handles that message.
    fn read_only_requests(&mut self, now: Now, shard: ShardId, batch: &RequestBatch) {
        for submission in &batch.submissions {
            let Some(mode) = self.read_only.as_mut().filter(|mode| mode.serves()) else { return };
            let Submission { conn, session, what, .. } = submission;
            let origin = Origin { shard, conn: *conn };
            let is_local = self.local.as_ref().is_some_and(|local| local.contains(*session));
            match what {
                Submitted::Reattach { password, timeout_ms } if is_local => {
                    self.reattach_local(now, origin, *session, *password, *timeout_ms);
                }
                Submitted::Detach if is_local => self.detach_local(*session, origin),
                // The shard has answered.
                Submitted::Write { op: OpCode::CloseSession, .. } if is_local => {
                    self.forget_local(*session, origin);
                }
                _ => {
                    let state = self.pipeline.committed();
                    if let Some(answer) = mode.answer(&self.settings.requests, state, *conn, what) {
                        self.output(Output::Shard(shard, answer));
                    }
                }
            }
        }
    }

    /// A shard's requests.
    pub fn requests(&mut self, now: Now, shard: ShardId, mut batch: RequestBatch) {
        self.short_of_memory = batch.short_of_memory.unwrap_or(self.short_of_memory);
        let opens_locally = self.opens_locally();
        if let Some(throttle) = &mut self.connection_throttle {
            for conn in throttle.refuse(now.monotonic_ms, &mut batch.submissions, opens_locally) {
                self.output(Output::Shard(shard, ToShard::Throttled { conn }));
            }
        }
        self.keep_local(now, shard, &mut batch);
        if batch.submissions.is_empty() && batch.touched.is_empty() {
            return;
        }
        for submission in &mut batch.submissions {
            self.note_forwarded(shard, submission);
        }
        match &mut self.role {
            Role::Looking => self.read_only_requests(now, shard, &batch),
            Role::Following if planted!(self.settings.requests, ForwardTwice) => {
                let bytes = forward::encode_requests(self.local_in, shard, &batch);
                self.effects.push(Effect::ToLeader(bytes.clone()));
                self.effects.push(Effect::ToLeader(bytes));
            }
            Role::Following => {
                let bytes = forward::encode_requests(self.local_in, shard, &batch);
                self.effects.push(Effect::ToLeader(bytes));
            }
            Role::Leading(_) => self.lead_requests(now, self.settings.server, shard, batch),
        }
    }

    /// Sends the newest digest of a committed state to the leader, each digest once.
    fn tell_digest(&mut self) {
        if let Some((zxid, digest)) =
            self.pipeline.newest_digest().filter(|(zxid, _)| *zxid > self.digest_told)
        {
            self.digest_told = zxid;
            self.effects.push(Effect::ToLeader(forward::encode_digest(zxid, digest)));
        }
    }

    /// Executes a leader's proposed batch.
    fn execute(&mut self, payload: &Bytes) -> Result<(), BatchError> {
        let mut txns = txn::share_batch(payload)?.into_iter();
        while let Some(next) = txns.as_slice().chunks(PREFETCHED_WRITES).next() {
            self.pipeline.head().prefetch_txns(next, true);
            for txn in txns.by_ref().take(PREFETCHED_WRITES) {
                let origin = self.origin_of(txn.session, txn.xid);
                // The leader has closed this batch: the size limit does not apply to it.
                self.pipeline.execute(txn, origin, 0);
            }
        }
        self.pipeline.seal(usize::MAX);
        if planted!(self.settings.requests, PublishOnAppend) {
            self.commit(Now::default(), self.pipeline.last_executed());
        }
        Ok(())
    }

    /// What is executed and not committed, in order.
    pub fn uncommitted(&self) -> impl Iterator<Item = &Txn> {
        self.pipeline.uncommitted()
    }

    /// What the replica was told at its start.
    #[must_use]
    pub const fn settings(&self) -> &ReplicaSettings {
        &self.settings
    }

    /// Tells the links who the members are, when the log says something else than before.
    fn note_members(&mut self) {
        let membership = self.pipeline.head().membership();
        let since = membership.map_or(Zxid::ZERO, |membership| membership.quorums.since);
        if let Some(membership) = membership.filter(|_| since != self.members_told) {
            self.effects.push(Effect::Output(Output::Members(Arc::clone(membership))));
        }
        self.members_told = since;
    }

    fn output(&mut self, output: Output) {
        self.effects.push(Effect::Output(output));
    }

    /// Records which connection a session's forwarded write came from.
    fn note_forwarded(&mut self, shard: ShardId, submission: &mut Submission) {
        let origin = Origin { shard, conn: submission.conn };
        match &mut submission.what {
            Submitted::Write { xid, read_barrier, identities, .. }
                if matches!(self.role, Role::Following) =>
            {
                if let Some(attachment) =
                    self.attached.get_mut(&submission.session).filter(|a| a.origin == origin)
                {
                    let writes = attachment.writes.get_or_insert_default();
                    writes.waiting.push_back((*xid, *read_barrier));
                    // Of a local session, the leader keeps nothing from one write to the next.
                    if !submission.local {
                        writes.name_once(identities);
                    }
                }
            }
            Submitted::Detach
                if self
                    .attached
                    .get(&submission.session)
                    .is_some_and(|attachment| attachment.origin == origin) =>
            {
                self.attached.remove(&submission.session);
            }
            _ => {}
        }
    }

    /// The connection of this server that waits for the reply to this transaction of the leader.
    fn origin_of(&mut self, session: SessionId, xid: Xid) -> Option<Origin> {
        let attachment = self.attached.get_mut(&session)?;
        let waiting = &mut attachment.writes.as_mut()?.waiting;
        let (_, read_barrier) = waiting.pop_front_if(|(waiting, _)| *waiting == xid)?;
        if read_barrier {
            self.pipeline.read_barrier(session);
        }
        Some(attachment.origin)
    }

    /// Releases the leader's answers whose transactions are published, in order.
    fn tell_what_is_due(&mut self) {
        let published = self.pipeline.committed().last_zxid();
        while let Some((_, shard, message)) = self.held.pop_front_if(|(after, ..)| *after <= published) {
            self.tell_local_shard(shard, message);
        }
    }

    fn tell_local_shard(&mut self, shard: ShardId, message: ToShard) {
        match &message {
            ToShard::Attached { conn, session, .. } => {
                let origin = Origin { shard, conn: *conn };
                self.attached.insert(*session, Attachment { origin, writes: None });
            }
            ToShard::Evict { conn } => {
                let origin = Origin { shard, conn: *conn };
                self.attached.retain(|_, attachment| attachment.origin != origin);
            }
            _ => {}
        }
        self.output(Output::Shard(shard, message));
    }

    /// The epoch, if whoever leads takes requests of local sessions.
    fn takes_local(&self, status: Status) -> Option<Epoch> {
        match status {
            Status::Looking => None,
            Status::Leading { epoch } => Some(epoch),
            Status::Following { leader, epoch } => self.minds_local(leader).then_some(epoch),
        }
    }

    /// Whether a server minds local sessions when it leads.
    fn minds_local(&self, server: ServerId) -> bool {
        self.versions.get(&server).is_some_and(|version| *version >= LOCAL_SESSIONS_SINCE)
    }

    /// A session has ended: its connection is closed, unless that connection asked for the end.
    fn session_closed(&mut self, committed: &Committed) {
        let session = committed.txn.session;
        if let Role::Leading(leadership) = &mut self.role {
            leadership.forget(session);
        }
        if let Some(attachment) = self.attached.remove(&session)
            && committed.origin != Some(attachment.origin)
        {
            let Origin { shard, conn } = attachment.origin;
            self.output(Output::Shard(shard, ToShard::Evict { conn }));
        }
    }
}

impl Application for Replica {
    type State = State;
    type Image = Encoder;
    type Output = Output;
    type MessageError = DecodeError;

    const STATE_VERSION: u32 = STATE_VERSION;

    fn take_effects(&mut self) -> std::vec::Drain<'_, Effect<Output>> {
        self.note_level();
        self.note_members();
        self.effects.drain(..)
    }

    fn status(&mut self, now: Now, status: Status) {
        // Also at a change from one epoch directly to the next: transactions that the old epoch had not
        // proposed are dropped, and their clients have to be told.
        if !matches!(self.role, Role::Looking) {
            self.look();
        }
        if let Err(error) = self.check_level()
            && status != Status::Looking
        {
            self.effects.push(Effect::Broken(error.to_string()));
        }
        if status != Status::Looking {
            self.end_read_only();
        }
        self.local_in = self.takes_local(status);
        if self.local_in.is_none()
            && status != Status::Looking
            && let Some(local) = &mut self.local
        {
            local.clear();
        }
        match status {
            Status::Looking => {}
            Status::Following { .. } => self.follow(),
            Status::Leading { epoch } => self.lead(now, epoch),
        }
    }

    fn handed_over(&mut self, now: Now, status: Status) {
        let mut writes = self.attached.values().filter_map(|attachment| attachment.writes.as_ref());
        let waits = writes.any(|writes| !writes.waiting.is_empty());
        let parts = matches!(status, Status::Leading { .. }) && self.serving_as_leader() == Serving::Leads;
        let loses_local = self.local_session_count() > 0 && self.takes_local(status).is_none();
        let is_ready = !waits && self.held.is_empty() && !matches!(self.role, Role::Looking);
        if !is_ready || parts || loses_local || status == Status::Looking {
            return self.status(now, status);
        }
        self.local_in = self.takes_local(status);
        self.go_over(now, status);
    }

    fn handing_over(&mut self, successor: ServerId) {
        let newest = self.rejected.newest();
        let is_told = newest.len() > 0 && self.minds_local(successor);
        if is_told {
            self.effects.push(Effect::ToLearner(successor, forward::encode_rejected(newest)));
        }
    }

    fn leadership_ended(&mut self) {
        if matches!(self.role, Role::Leading(_)) {
            self.pipeline.abandon_unsealed();
            self.role = Role::Following;
        }
    }

    fn peer_speaks(&mut self, peer: ServerId, version: u8) {
        self.versions.insert(peer, version);
    }

    fn peer_disconnected(&mut self, peer: ServerId) {
        self.versions.remove(&peer);
    }

    fn tick(&mut self, now: Now) {
        self.tick_leading(now);
        self.tick_local(now);
        if matches!(self.role, Role::Looking)
            && self.read_only.as_mut().is_some_and(|mode| mode.is_due(now.monotonic_ms))
        {
            self.serve(Serving::ReadOnly);
        }
    }

    fn membership(&self) -> Option<&zab::Membership> {
        self.pipeline.head().membership().map(|membership| &membership.quorums)
    }

    fn up_to_date(&mut self, learners: ServerSet) {
        self.up_to_date = learners;
    }

    fn paused(&mut self) {
        self.note_pause();
        if let Some(local) = &mut self.local {
            local.note_pause();
        }
    }

    fn has_users(&self) -> bool {
        // A session that this server opens by itself reads at once what is published.
        !self.attached.is_empty() || self.opens_locally()
    }

    fn is_settled(&self) -> bool {
        let answered = matches!(&self.role, Role::Leading(leadership) if leadership.is_settled());
        answered && !self.has_unsealed()
    }

    fn lead_waiting(&mut self, now: Now) {
        self.lead_due(now);
    }

    fn has_due(&self) -> bool {
        matches!(&self.role, Role::Leading(leadership) if leadership.has_due())
    }

    fn server_left(&mut self, now: Now, server: ServerId) {
        self.drop_clients_of(now, server);
    }

    fn server_silent(&mut self, now: Now, server: ServerId) {
        self.release_clients_of(now, server);
    }

    fn server_answered(&mut self, server: ServerId, asked_ms: u64) {
        self.note_answer_of(server, asked_ms);
    }

    fn has_unsealed(&self) -> bool {
        !self.pipeline.is_open_empty()
    }

    fn has_full_batch(&self) -> bool {
        self.pipeline.open_bytes() >= self.settings.batch_bytes_max
    }

    fn batch_bytes_max(&self) -> usize {
        self.settings.batch_bytes_max
    }

    fn next_batch(&mut self, _first: Zxid, previous: Checksum) -> Option<Batch> {
        let (txns, bytes) = self.pipeline.seal(SEALED_BYTES_MAX)?;
        let (first, last) = (txns[0].zxid, txns[txns.len() - 1].zxid);
        let mut frame = ringkeeper_frame::begin(txns.len() * size_of::<ArchivedTxn>() + bytes);
        txn::encode_batch(txns, &mut frame);
        if planted!(self.settings.requests, ReplyBeforeCommit) {
            self.commit(Now::default(), last);
        }
        Some(Batch::seal(first, last, previous, frame))
    }

    fn append(&mut self, batch: &Batch) -> Result<(), String> {
        // A leader has executed the requests of its own batch when it prepared them.
        if batch.last() <= self.last_executed() {
            return Ok(());
        }
        let payload = batch.payload().map_err(|error| error.to_string())?;
        self.execute(&batch.bytes().slice_ref(payload)).map_err(|error| error.to_string())?;
        match self.role {
            // A log that is being synchronized may go on to a lower level.
            Role::Looking => Ok(()),
            _ => self.check_level().map_err(|error| error.to_string()),
        }
    }

    fn commit(&mut self, now: Now, upto: Zxid) {
        let Some(published) = self.pipeline.commit(upto) else { return };
        let published = Arc::new(published);
        self.output(Output::AllShards(ToShard::Published(Arc::clone(&published))));
        for committed in published.groups.iter().flat_map(|group| &group.txns) {
            match &committed.txn.op {
                TxnOp::CreateSession(_) => self.session_created(now, committed),
                TxnOp::CloseSession | TxnOp::CloseSessionListed(_) => self.session_closed(committed),
                _ => self.local_write_committed(now, committed.txn.session),
            }
        }
        match self.role {
            Role::Following => self.tell_digest(),
            Role::Leading(_) => {
                // There may be another server from now on, or none.
                self.serve(self.serving_as_leader());
                // A client whose session begins when all members are there may count on what they can do.
                self.raise_level(now);
            }
            Role::Looking => {}
        }
        self.release_confirmed();
        self.tell_what_is_due();
    }

    fn truncate(&mut self, after: Zxid) -> bool {
        self.pipeline.truncate(after) || planted!(self.settings.requests, KeepCutState)
    }

    fn restored(&mut self, state: State) {
        self.end_read_only();
        self.pipeline = Pipeline::new(recovered(&self.settings, state));
        self.output(Output::AllShards(ToShard::View(Arc::clone(self.pipeline.committed()))));
    }

    fn leadership_confirmed(&mut self, number: u64, _commit: Zxid) {
        self.confirm_round(number);
    }

    fn forwarded(&mut self, now: Now, from: ServerId, bytes: &Bytes) -> Result<(), DecodeError> {
        match forward::decode(bytes)? {
            Heard::Requests { epoch, shard, mut batch } if matches!(self.role, Role::Leading(_)) => {
                if epoch.is_some() && epoch != self.local_in {
                    batch.withdraw_claims();
                }
                self.lead_requests(now, from, shard, batch);
            }
            Heard::Clients(clients) if matches!(self.role, Role::Leading(_)) => {
                self.take_over(from, &clients);
            }
            Heard::Requests { .. } | Heard::Clients(_) => {}
            Heard::Digest(zxid, digest) => {
                if self.digests().any(|(known, own)| known == zxid && own != digest) {
                    self.output(Output::DigestMismatch { peer: from, zxid });
                }
            }
        }
        Ok(())
    }

    fn directed(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        match forward::decode_directed(bytes)? {
            Directed::Answer(after, shard, message) => {
                self.held.push_back((after, shard, message));
                self.tell_what_is_due();
            }
            Directed::RejectedSessions(sessions) => {
                sessions.into_iter().for_each(|rejected| self.rejected.insert(rejected));
            }
        }
        Ok(())
    }

    fn hold(&mut self, zab: &Zab) -> Option<(Encoder, LogPosition)> {
        // Right after a start the state contains the whole log, whose end may not be committed yet.
        let state = self.committed();
        let position = zab.committed_mark(state.last_zxid())?;
        Some((Encoder::new(Arc::clone(state)), position))
    }
}

/// A state as it comes from a disk or from a peer.
fn recovered(settings: &ReplicaSettings, mut state: State) -> State {
    if planted!(settings.requests, LoseRules) {
        state.authorisation = Authorisation::default();
    }
    state
}

#[cfg(test)]
mod tests;
