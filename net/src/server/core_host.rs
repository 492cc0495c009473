//! The leader core on its executor: the rings to and from the shards, and the core's statistics.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_channel::Sender;
use futures_lite::future::or;
use ringkeeper_engine::level::LevelChange;
use ringkeeper_engine::limits::Refusal;
use ringkeeper_engine::members::Membership;
use ringkeeper_engine::message::{Published, RequestBatch, Sent, ShardId, ToShard};
use ringkeeper_engine::node::{self, Effect};
use ringkeeper_engine::replica::{Now, Output, Replica, forwards_writes};
use ringkeeper_engine::slow::{Explanation, Pause, SlowRequest, explain};
use ringkeeper_engine::trace::{Proposal, ProposalTimes, TraceId};
use ringkeeper_engine::zab::{self, HandOverError, Input, Message, Status};
use ringkeeper_host::env::Env;
use ringkeeper_host::links::Links;
use ringkeeper_host::log_task::Appends;
use ringkeeper_host::pump::{Frontend, Pump};
use ringkeeper_wire::{ServerId, Zxid};

use super::clock::Clock;
use super::core_counters::{CoreCounters, CoreTimes};
use super::rate_limiter::RateLimiter;
use super::reactor::env::ReactorEnv;
use super::report::CoreReport;
use super::ring::{Consumer, Producer};
use super::scrub::Integrity;
use super::slow::{Teller, Told};

/// How long a server that is told to stop waits until another one leads and it follows.
const LAST_HAND_OVER_MAX: Duration = Duration::from_secs(1);

/// Pause between two looks whether a change of the feature level is committed.
const COMMIT_POLL: Duration = Duration::from_millis(5);

/// A transaction may be later than this server's clock by so much, unless the operator is told, and how often
/// that is.
const AHEAD_MAX_MS: i64 = 10_000;
const AHEAD_TOLD_EVERY_MS: u64 = 3_600_000;

/// The leader core.
pub(crate) type CoreHost = Pump<ReactorEnv, Shards>;

type Node = node::Node<Replica>;

/// The shards, as the leader core sees them.
pub(crate) struct Shards {
    shards: Vec<ShardLink>,
    links: Rc<Links<ReactorEnv>>,
    clock: Clock,
    counters: RefCell<CoreCounters>,
    /// Number of peers' digests that differed from this server's.
    digest_mismatches: Cell<u64>,
    /// Number of writes that rules refused.
    forbidden: Cell<u64>,
    integrity: Rc<Integrity>,
    refusals: RateLimiter,
    /// When the log was told last of transactions that are ahead of the clock.
    ahead_told_ms: Cell<Option<u64>>,
    /// Those who wait for the outcome of a hand-over.
    hand_over: RefCell<Vec<Sender<Result<ServerId, String>>>>,
    sampling: Sampling,
}

/// Which writes of other servers' clients the leader tells of.
pub(crate) struct Sampling {
    /// One in so many; 0 for none.
    pub(crate) one_in: u32,
    pub(crate) teller: Teller,
}

impl Sampling {
    /// Whether times are to be kept for it.
    fn is_on(&self) -> bool {
        self.one_in > 0 && self.teller.exports()
    }
}

/// The rings from and to one shard.
type Rings = (Consumer<Sent<RequestBatch>>, Producer<Sent<ToShard>>);

/// The channels from and to one shard.
struct ShardLink {
    inbox: Consumer<Sent<RequestBatch>>,
    ring: Producer<Sent<ToShard>>,
    /// Messages for which the ring had no room; bounded by the outstanding requests of the shards.
    waiting: RefCell<VecDeque<Sent<ToShard>>>,
}

impl Shards {
    pub(crate) fn new(
        rings: Vec<Rings>,
        links: Rc<Links<ReactorEnv>>,
        integrity: Rc<Integrity>,
        clock: Clock,
        has_peers: bool,
        sampling: Sampling,
    ) -> Self {
        let link = |(inbox, ring)| ShardLink { inbox, ring, waiting: RefCell::default() };
        Self {
            shards: rings.into_iter().map(link).collect(),
            links,
            clock,
            counters: RefCell::new(CoreCounters::new(clock.monotonic_us(), has_peers)),
            digest_mismatches: Cell::new(0),
            forbidden: Cell::new(0),
            integrity,
            refusals: RateLimiter::default(),
            ahead_told_ms: Cell::new(None),
            sampling,
            hand_over: RefCell::default(),
        }
    }

    /// The core's statistics.
    pub(crate) const fn counters(&self) -> &RefCell<CoreCounters> {
        &self.counters
    }

    /// The log names other members: the links are to reach them.
    fn set_members(&self, membership: &Membership) {
        let version = membership.quorums.since;
        let members = membership.members.describe(version.0).replace('\n', " ");
        tracing::info!(code = "RK0319", members, "the log names the members of the ensemble");
        self.links.set_members(&membership.members);
    }

    /// Tells of transactions that are later than this server's clock.
    fn compare_clocks(&self, now: Now, published: &Published) {
        let last = published.groups.last().and_then(|group| group.txns.last());
        let ahead_ms = last.map_or(0, |last| last.txn.time_ms.saturating_sub(now.wall_ms));
        let told_ms = self.ahead_told_ms.get();
        if ahead_ms > AHEAD_MAX_MS
            && told_ms.is_none_or(|told_ms| now.monotonic_ms >= told_ms + AHEAD_TOLD_EVERY_MS)
        {
            self.ahead_told_ms.set(Some(now.monotonic_ms));
            tracing::warn!(
                code = "RK0325",
                ahead_s = ahead_ms / 1000,
                "the last transaction is later than this server's clock: the clock is behind, or a leader's was ahead; \
                 set the clocks of all servers by NTP; until they have caught up, the times of transactions go on at \
                 half their speed, and restore --at and TTLs go by them"
            );
        }
    }

    /// Tells of the sampled ones of other servers' writes.
    fn trace(&self, published_us: u64, published: &Published) {
        for committed in published.groups.iter().flat_map(|group| &group.txns) {
            let (session, xid, zxid) = (committed.txn.session, committed.txn.xid, committed.zxid());
            let is_sampled = TraceId::of(session, xid, Some(zxid)).is_sampled(self.sampling.one_in);
            if is_sampled && committed.origin.is_none() && xid.0 >= 0 {
                let proposal = Proposal { session, xid, zxid, published_us };
                self.sampling.teller.tell(Told::Proposal(proposal));
            }
        }
    }

    fn handed_over(&self, outcome: &Result<ServerId, String>) {
        for answer in self.hand_over.take() {
            // Whoever asked may be gone.
            let _ = answer.try_send(outcome.clone());
        }
    }

    fn tell(&self, shard: ShardId, message: ToShard) {
        if let Some(shard) = self.shards.get(usize::from(shard.0)) {
            shard.waiting.borrow_mut().push_back(Sent { at_us: self.clock.monotonic_us(), message });
        }
    }

    fn tell_all(&self, message: &ToShard) {
        let at_us = self.clock.monotonic_us();
        for shard in &self.shards {
            shard.waiting.borrow_mut().push_back(Sent { at_us, message: message.clone() });
        }
    }
}

/// Whether two processes run with this id, as far as is known.
pub(crate) fn runs_twice(core: &CoreHost, server: ServerId) -> bool {
    let twice = zab::Alarm::SecondProcess { server };
    core.alarms().lasts(core.frontend().clock.monotonic_ms(), |alarm| *alarm == twice)
}

/// Hands leadership over to a server, or to the one that the broadcast chooses ([`Input::HandOver`]).
///
/// # Errors
/// Why this server leads on, or who leads it.
pub(crate) async fn hand_over(core: &CoreHost, wanted: Option<ServerId>) -> Result<ServerId, String> {
    if let Status::Following { leader, .. } = core.node().status() {
        return Err(format!("this server does not lead: ask server {leader}, which does"));
    }
    if !core.frontend().hand_over.borrow().is_empty() {
        return Err(HandOverError::UnderWay.to_string());
    }
    let outcome = outcome_of_hand_over(core);
    core.input(Input::HandOver(wanted));
    outcome.recv().await.unwrap_or_else(|_| Err("the server is ending".to_owned()))
}

/// Changes the feature level, and waits until that is committed.
///
/// # Errors
/// Why the level is as it was, or who leads this server.
pub(crate) async fn change_level(core: &CoreHost, change: LevelChange) -> Result<(), String> {
    let epoch = match core.node().status() {
        Status::Leading { epoch } => epoch,
        Status::Following { leader, .. } => {
            return Err(format!("this server does not lead: ask server {leader}, which does"));
        }
        Status::Looking => return Err("no server leads: try again".to_owned()),
    };
    let asked = core.request(|replica, now| replica.change_level(now, change));
    let asked = asked.ok_or_else(|| "leadership is being handed over: try again".to_owned())?;
    let Some(zxid) = asked.map_err(|refusal| refusal.to_string())? else { return Ok(()) };
    while core.node().application().committed().last_zxid() < zxid {
        if core.node().status() != (Status::Leading { epoch }) {
            return Err("leadership was lost before the change was committed: look, and try again".to_owned());
        }
        core.env().sleep(COMMIT_POLL).await;
    }
    Ok(())
}

/// Where the outcome of the hand-over that is under way, or begins at once, is told.
fn outcome_of_hand_over(core: &CoreHost) -> async_channel::Receiver<Result<ServerId, String>> {
    let (answer, outcome) = async_channel::bounded(1);
    core.frontend().hand_over.borrow_mut().push(answer);
    outcome
}

/// Hands leadership over before this server stops, if it leads and somebody can take over.
pub(crate) async fn hand_over_at_end(core: &CoreHost) {
    if matches!(core.node().status(), Status::Leading { .. })
        && core.node().zab().learners().synced_followers > 0
    {
        // The outcome is in the log of the server.
        let over = async {
            if core.node().zab().is_paused() {
                // Somebody has asked for it, or a preferred server has caught up.
                drop(outcome_of_hand_over(core).recv().await);
            }
            drop(hand_over(core, None).await);
        };
        or(over, core.env().sleep(LAST_HAND_OVER_MAX)).await;
    }
}

/// The core's report; `missing` says why the server does not serve.
pub(crate) fn report(core: &CoreHost, missing: String) -> CoreReport {
    let (node, shards) = (core.node(), core.frontend());
    let (replica, now_ms) = (node.application(), shards.clock.monotonic_ms());
    let synced = node.zab().synced();
    let learners = synced.iter().map(|learner| learner.server);
    CoreReport {
        members: shards.counters.borrow().members(shards.clock.monotonic_us(), learners),
        state: Arc::clone(replica.committed()),
        status: node.status(),
        serving: replica.serving(),
        leaders_commit: shards.counters.borrow().leaders_commit(),
        missing,
        learners: node.zab().learners(),
        synced,
        digests: replica.digests().collect(),
        peers_connected: core.links().connected(),
        slow_appends: core.log().appends().slow,
        appending: core.log().appending_since().map(|since| core.env().elapsed().saturating_sub(since)),
        snapshots: core.trigger().taken(),
        disk_full: core.log().disk_is_full(),
        findings: shards.integrity.findings(),
        digest_mismatches: shards.digest_mismatches.get(),
        forbidden: shards.forbidden.get(),
        lacks_log: node.zab().durable_epochs().end_before_damage > Zxid::ZERO,
        history_conflict: core.alarms().lasts(now_ms, zab::Alarm::is_conflict),
        id_conflict: core.alarms().lasts(now_ms, zab::Alarm::is_id_conflict),
        counts: shards.counters.borrow().counts(),
        refusals: *replica.refusals(),
        expired_sessions: replica.expired_sessions(),
        local_sessions: replica.local_session_count(),
        times: None,
        connection_throttle: replica.connection_throttle(),
        members_levels: replica.members_levels(),
    }
}

/// Says where the time of a slow request went.
pub(crate) fn explain_slow(core: &CoreHost, request: SlowRequest, pauses: &[Pause]) -> Explanation {
    let counters = core.frontend().counters.borrow();
    let batch = request.zxid.and_then(|zxid| counters.batches().of(zxid));
    explain(request, batch, pauses)
}

/// The leader's part of a write, if the times of its batch are still known.
pub(crate) fn explain_proposal(core: &CoreHost, proposal: Proposal) -> Option<ProposalTimes> {
    let counters = core.frontend().counters.borrow();
    let batch = counters.batches().of(proposal.zxid)?;
    let acks = counters.acks_of(batch.last, batch.appended_us);
    Some(ProposalTimes::new(proposal, batch, acks))
}

/// Times of the core's stages, and of its log.
pub(crate) fn times(core: &CoreHost) -> (CoreTimes, Appends) {
    (core.frontend().counters.borrow().times(), core.log().appends().clone())
}

impl Frontend for Shards {
    type Application = Replica;

    fn hand_over(&self, now: Now, node: &mut Node) {
        let mut began_us = None;
        for (id, shard) in (0..).map(ShardId).zip(&self.shards) {
            while let Some(Sent { at_us, message: requests }) = shard.inbox.pop() {
                let began_us = *began_us.get_or_insert_with(|| self.clock.monotonic_us());
                self.counters.borrow_mut().took(began_us, at_us, requests.submissions.len());
                node.request(now, |replica| replica.requests(now, id, requests));
            }
        }
        if let Some(began_us) = began_us {
            self.counters.borrow_mut().prepared(began_us, self.clock.monotonic_us());
        }
    }

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut ready = false;
        for shard in &self.shards {
            ready |= shard.inbox.poll_ready(cx).is_ready();
            ready |= !shard.waiting.borrow().is_empty() && shard.ring.poll_space(cx).is_ready();
        }
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    fn output(&self, output: Output) {
        match output {
            Output::Shard(shard, message) => self.tell(shard, message),
            Output::AllShards(message) => {
                if let ToShard::Published(published) = &message {
                    let now_us = self.clock.monotonic_us();
                    let mut counters = self.counters.borrow_mut();
                    counters.published(now_us, self.clock.now(), published);
                    self.compare_clocks(self.clock.now(), published);
                    if self.sampling.is_on() && counters.leads() {
                        self.trace(now_us, published);
                    }
                }
                self.tell_all(&message);
            }
            Output::Members(membership) => self.set_members(&membership),
            Output::Level { level, required } => {
                self.links.require(required);
                tracing::info!(code = "RK0324", %level, %required, "the log has this feature level");
            }
            Output::DigestMismatch { peer, zxid } => {
                self.digest_mismatches.set(self.digest_mismatches.get() + 1);
                tracing::error!(
                    code = "RK0306",
                    %peer,
                    %zxid,
                    "the peer's tree is not this one's after the same transactions: stop it, keep its folder, and let \
                     an empty one be filled by the ensemble; compare the word hash on all servers to see who is alone"
                );
            }
            Output::Forbidden { session, rule } => {
                self.forbidden.set(self.forbidden.get() + 1);
                if self.refusals.admit(self.clock.monotonic_ms()) {
                    tracing::warn!(
                        code = "RK0204",
                        %session,
                        rule,
                        "a write is refused: a rule of authorisation forbids it"
                    );
                }
            }
            Output::Refused { session, refusal } => {
                if !self.refusals.admit(self.clock.monotonic_ms()) {
                    return;
                }
                match refusal {
                    Refusal::Level { .. } => {
                        tracing::warn!(code = "RK0213", %session, %refusal, "the members are not changed");
                    }
                    _ => tracing::warn!(code = "RK0206", %session, %refusal, "a request is refused"),
                }
            }
        }
    }

    fn hear(&self, input: &Input) {
        let mut counters = self.counters.borrow_mut();
        let (from, message) = match input {
            Input::Durable { upto } => return counters.durable(self.clock.monotonic_us(), *upto),
            Input::Message { from, message } => (*from, message),
            _ => return,
        };
        match message {
            Message::Ack(ack) | Message::Pong(zab::Pong { ack, .. }) => {
                let now_us = self.clock.monotonic_us();
                counters.acknowledged(now_us, from, ack.upto);
                if let Message::Pong(zab::Pong { round, .. }) = message {
                    counters.ponged(now_us, from, *round);
                }
                if self.sampling.is_on() {
                    counters.keep_ack(now_us, from, ack.upto);
                }
            }
            Message::Forward(bytes) if self.sampling.is_on() && forwards_writes(bytes) => {
                counters.forwarded(self.clock.monotonic_us());
            }
            Message::Propose(zab::Propose { commit, .. })
            | Message::Ping(zab::Ping { commit, .. })
            | Message::Commit { upto: commit, .. } => counters.learns_commit(*commit),
            _ => {}
        }
    }

    fn flush(&self) {
        self.shards.iter().for_each(ShardLink::drain);
    }

    fn disk_full(&self, full: bool) {
        self.tell_all(&ToShard::DiskFull(full));
    }

    fn observe(&self, _: &Node, effect: &Effect<Output>) {
        match effect {
            Effect::Zab(zab::Effect::HandedOver) => self.counters.borrow_mut().hands_over(),
            Effect::Zab(zab::Effect::HandOverFailed(why)) => self.handed_over(&Err(why.to_string())),
            Effect::Zab(zab::Effect::Append(batch)) => {
                self.counters.borrow_mut().appended(self.clock.monotonic_us(), batch);
            }
            Effect::Zab(zab::Effect::Send { message: zab::Message::Sync(sync), .. }) => {
                self.counters.borrow_mut().synchronizes(sync.plan);
            }
            Effect::Zab(zab::Effect::Send { to, message: zab::Message::Ping(ping) }) => {
                self.counters.borrow_mut().pinged(self.clock.monotonic_us(), *to, ping.round);
            }
            Effect::Zab(zab::Effect::Status(status)) => {
                self.counters.borrow_mut().changed(self.clock.monotonic_us(), *status);
                self.handed_over(&match status {
                    Status::Following { leader, .. } => Ok(*leader),
                    _ => Err("leadership was lost before it was handed over".to_owned()),
                });
            }
            _ => {}
        }
    }
}

impl ShardLink {
    fn drain(&self) {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(message) = waiting.pop_front() {
            if let Err(message) = self.ring.push(message) {
                waiting.push_front(message);
                break;
            }
        }
    }
}
