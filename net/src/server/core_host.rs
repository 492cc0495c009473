//! The leader core on its executor: the rings to and from the shards, and the core's statistics.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use ringkeeper_engine::message::{RequestBatch, ShardId, ToShard};
use ringkeeper_engine::node::{self, Effect};
use ringkeeper_engine::replica::{Now, Output, Replica};
use ringkeeper_engine::zab;
use ringkeeper_host::pump::{Frontend, Pump};
use ringkeeper_wire::{ServerId, Zxid};

use super::clock::Clock;
use super::env::GlommioEnv;
use super::rate_limiter::RateLimiter;
use super::report::{CoreCounters, CoreReport};
use super::ring::{Consumer, Producer};
use super::scrub::Integrity;

/// The leader core.
pub(crate) type CoreHost = Pump<GlommioEnv, Shards>;

type Node = node::Node<Replica>;

/// The shards, as the leader core sees them.
pub(crate) struct Shards {
    shards: Vec<ShardLink>,
    clock: Clock,
    counters: CoreCounters,
    /// Number of peers' digests that differed from this server's.
    digest_mismatches: Cell<u64>,
    integrity: Rc<Integrity>,
    refusals: RateLimiter,
}

/// The channels from and to one shard.
struct ShardLink {
    inbox: Consumer<RequestBatch>,
    ring: Producer<ToShard>,
    /// Messages for which the ring had no room; bounded by the outstanding requests of the shards.
    waiting: RefCell<VecDeque<ToShard>>,
}

impl Shards {
    pub(crate) fn new(
        rings: Vec<(Consumer<RequestBatch>, Producer<ToShard>)>,
        integrity: Rc<Integrity>,
        clock: Clock,
    ) -> Self {
        let link = |(inbox, ring)| ShardLink { inbox, ring, waiting: RefCell::default() };
        Self {
            shards: rings.into_iter().map(link).collect(),
            clock,
            counters: CoreCounters::default(),
            digest_mismatches: Cell::new(0),
            integrity,
            refusals: RateLimiter::default(),
        }
    }

    /// The core's statistics.
    pub(crate) fn counters(&self) -> &CoreCounters {
        &self.counters
    }

    fn tell(&self, shard: ShardId, message: ToShard) {
        if let Some(shard) = self.shards.get(usize::from(shard.0)) {
            shard.waiting.borrow_mut().push_back(message);
        }
    }

    fn tell_all(&self, message: &ToShard) {
        self.shards.iter().for_each(|shard| shard.waiting.borrow_mut().push_back(message.clone()));
    }
}

/// Whether two processes run with this id, as far as is known.
pub(crate) fn runs_twice(core: &CoreHost, server: ServerId) -> bool {
    let twice = zab::Alarm::SecondProcess { server };
    core.alarms().lasts(core.frontend().clock.monotonic_ms(), |alarm| *alarm == twice)
}

/// The core's report; `missing` says why the server does not serve.
pub(crate) fn report(core: &CoreHost, missing: String) -> CoreReport {
    let (node, shards) = (core.node(), core.frontend());
    let (replica, now_ms) = (node.application(), shards.clock.monotonic_ms());
    CoreReport {
        state: Arc::clone(replica.committed()),
        status: node.status(),
        missing,
        learners: node.zab().learners(),
        digests: replica.digests().collect(),
        peers_connected: core.links().connected(),
        forced: core.log().forced(),
        snapshots: core.trigger().taken(),
        disk_full: core.log().disk_is_full(),
        findings: shards.integrity.findings(),
        digest_mismatches: shards.digest_mismatches.get(),
        lacks_log: node.zab().durable_epochs().end_before_damage > Zxid::ZERO,
        history_conflict: core.alarms().lasts(now_ms, zab::Alarm::is_conflict),
        id_conflict: core.alarms().lasts(now_ms, zab::Alarm::is_id_conflict),
        proposals: shards.counters.proposals(),
        refusals: *replica.refusals(),
        looking: shards.counters.looking(),
        status_since_ms: shards.counters.status_since_ms(),
    }
}

impl Frontend for Shards {
    type Application = Replica;

    fn hand_over(&self, now: Now, node: &mut Node) {
        for (id, shard) in (0..).map(ShardId).zip(&self.shards) {
            while let Some(requests) = shard.inbox.pop() {
                node.request(now, |replica| replica.requests(now, id, requests));
            }
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
            Output::AllShards(message) => self.tell_all(&message),
            Output::DigestMismatch { peer, zxid } => {
                self.digest_mismatches.set(self.digest_mismatches.get() + 1);
                tracing::error!(
                    %peer,
                    %zxid,
                    "the peer's tree is not this one's after the same transactions: stop it, keep its folder, and let \
                     an empty one be filled by the ensemble; compare the word hash on all servers to see who is alone"
                );
            }
            Output::Refused { session, refusal } => {
                if self.refusals.admit(self.clock.monotonic_ms()) {
                    let bound = refusal.setting();
                    tracing::warn!(%session, bound, "refused: it would go beyond what the bound allows");
                }
            }
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
            Effect::Zab(zab::Effect::Append(batch)) => self.counters.appended(batch.bytes().len()),
            Effect::Zab(zab::Effect::Status(status)) => {
                self.counters.changed(self.clock.monotonic_ms(), *status);
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
