//! The leader core on its executor: turns of the shards in, batches to the log, published state to the shards.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use ringkeeper_engine::message::{ShardId, ToShard, Turn};
use ringkeeper_engine::replica::{Effect, Replica};

use super::clock::Clock;
use super::log_task::LogQueue;
use super::wake::WakeFlag;
use crate::ring::{Consumer, Producer};

/// The leader core and everything it needs to talk.
pub(crate) struct CoreHost {
    replica: RefCell<Replica>,
    shards: Vec<ShardLink>,
    log: Rc<LogQueue>,
    clock: Clock,
    /// The pump has something to do.
    work: WakeFlag,
}

/// The way to one shard.
struct ShardLink {
    ring: Producer<ToShard>,
    /// What the ring had no room for. Bounded by what shards may have outstanding.
    waiting: RefCell<VecDeque<ToShard>>,
}

impl CoreHost {
    pub(crate) fn new(replica: Replica, shards: Vec<Producer<ToShard>>, log: Rc<LogQueue>, clock: Clock) -> Rc<Self> {
        let shards = shards.into_iter().map(|ring| ShardLink { ring, waiting: RefCell::default() }).collect();
        Rc::new(Self { replica: RefCell::new(replica), shards, log, clock, work: WakeFlag::default() })
    }

    /// Something changed that the pump must look at.
    pub(crate) fn wake(&self) {
        self.work.raise();
    }

    /// Looks at the replica.
    pub(crate) fn with_replica<T>(&self, look: impl FnOnce(&mut Replica) -> T) -> T {
        look(&mut self.replica.borrow_mut())
    }

    /// Handles turns and what the log reports, for as long as the server runs.
    pub(crate) async fn pump(self: Rc<Self>, inboxes: Vec<Consumer<Turn>>) {
        loop {
            poll_fn(|cx| self.poll_work(&inboxes, cx)).await;
            let now = self.clock.now();
            {
                let mut replica = self.replica.borrow_mut();
                for (shard, inbox) in (0..).map(ShardId).zip(&inboxes) {
                    while let Some(turn) = inbox.pop() {
                        replica.turn(now, shard, turn);
                    }
                }
                replica.commit(now, self.log.durable());
                // Batches form by themselves: whatever comes in while the log is being forced is the next one.
                if replica.has_unsealed()
                    && self.log.is_idle()
                    && let Some(batch) = replica.seal()
                {
                    self.log.push(batch);
                }
            }
            self.carry_out_effects();
        }
    }

    fn poll_work(&self, inboxes: &[Consumer<Turn>], cx: &mut Context<'_>) -> Poll<()> {
        let mut ready = self.work.poll_lower(cx).is_ready();
        for inbox in inboxes {
            ready |= inbox.poll_ready(cx).is_ready();
        }
        for shard in &self.shards {
            ready |= !shard.waiting.borrow().is_empty() && shard.ring.poll_space(cx).is_ready();
        }
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    fn carry_out_effects(&self) {
        let mut confirmed = None;
        {
            let mut replica = self.replica.borrow_mut();
            for effect in replica.take_effects() {
                match effect {
                    Effect::Shard(shard, message) => self.send(usize::from(shard.0), message),
                    Effect::AllShards(message) => {
                        (0..self.shards.len()).for_each(|shard| self.send(shard, message.clone()));
                    }
                    // A server alone is its own quorum, and has no peers.
                    Effect::ConfirmLeadership(round) => confirmed = Some(round),
                    Effect::ToLeader(_) | Effect::ToLearner(..) => {}
                }
            }
        }
        for shard in &self.shards {
            shard.drain();
        }
        if let Some(round) = confirmed {
            self.replica.borrow_mut().leadership_confirmed(round);
            self.work.raise();
        }
    }

    fn send(&self, shard: usize, message: ToShard) {
        if let Some(shard) = self.shards.get(shard) {
            shard.waiting.borrow_mut().push_back(message);
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&self) {
        self.replica.borrow_mut().tick(self.clock.now());
        self.work.raise();
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
