//! One server of an ensemble: the broadcast (Zab) and the replica above it.
//!
//! ```text
//! shards --Turn--> Replica --sealed batch--> Zab --Append, Send--> shell (log, peers)
//!        <-ToShard--       <--commit--------     <-Durable, Message--
//! ```
//!
//! The production shell and the simulator both drive a node.

use std::sync::Arc;

use ringkeeper_wire::Zxid;

use crate::limits::{Refusal, Refusals};
use crate::message::{ShardId, ToShard, Turn};
use crate::replica::{self, Now, Replica, ReplicaSettings};
use crate::state::State;
use crate::txn::Txn;
use crate::zab::{self, Batch, Effects, Input, LogPosition, Status, Zab};

/// Number of full batches that may wait for the leader's own log. Above it, the leader proposes no more.
const FULL_BATCHES_MAX: usize = 8;

/// What the shell has to do, in order.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Give this to one shard.
    Shard(ShardId, ToShard),
    /// Give this to every shard.
    AllShards(ToShard),
    /// Carry this out; the answer comes back as the [`Input`] that it names.
    Zab(zab::Effect),
    /// After the truncation that precedes this, rebuild the state from the log and hand it to
    /// [`Node::rebuilt`].
    Rebuild,
    /// A peer sent an invalid message: its connection is to be closed.
    InvalidPeerMessage {
        /// The peer.
        peer: ringkeeper_wire::ServerId,
        /// What was wrong.
        reason: String,
    },
    /// The learner's state digest differs from the leader's (this server's) after the same transaction.
    DigestMismatch {
        /// The learner.
        peer: ringkeeper_wire::ServerId,
        /// The transaction.
        zxid: Zxid,
    },
    /// The leader refused a request or a new session, see [`replica::Effect::Refused`].
    Refused {
        /// The session that asked; 0 for a new one.
        session: ringkeeper_wire::SessionId,
        /// Why.
        refusal: Refusal,
    },
    /// This server cannot go on: the contents of its log are not what it wrote.
    Broken(String),
}

/// A server of an ensemble, or one alone, which is an ensemble of one.
pub struct Node {
    replica: Replica,
    zab: Zab,
    /// Clients are served in the current status.
    serves: bool,
    /// Number of [`Effect::Rebuild`]s not answered yet. Until the last answer the replica's state contains
    /// truncated transactions: no batch is executed on it, and effects that concern the replica are deferred.
    rebuilds: usize,
    /// The deferred effects, in order.
    deferred: Vec<zab::Effect>,
    zab_effects: Effects,
    effects: Vec<Effect>,
}

impl Node {
    /// A node that has recovered `state` from the log that `durable` describes. It does nothing before
    /// [`Input::Start`].
    #[must_use]
    pub fn new(
        settings: ReplicaSettings,
        state: State,
        config: zab::Config,
        durable: zab::Durable,
        seed: u64,
    ) -> Self {
        Self {
            replica: Replica::new(settings, state),
            zab: Zab::new(config, durable, seed),
            serves: false,
            rebuilds: 0,
            deferred: Vec::new(),
            zab_effects: Effects::new(),
            effects: Vec::new(),
        }
    }

    /// The state after everything committed.
    #[must_use]
    pub fn committed(&self) -> &Arc<State> {
        self.replica.committed()
    }

    /// The committed state and its log position, if a snapshot of it may be taken now. Right after a start
    /// the state contains the whole log, whose end may not be committed yet.
    #[must_use]
    pub fn snapshot(&self) -> Option<(Arc<State>, LogPosition)> {
        let state = self.committed();
        let mark = self.zab.snapshot_mark(state.last_zxid())?;
        Some((Arc::clone(state), mark))
    }

    /// Digests of the committed states at every 128th zxid, see [`Replica::digests`].
    pub fn digests(&self) -> impl Iterator<Item = (Zxid, u64)> {
        self.replica.digests()
    }

    /// The refusals by this server as a leader.
    #[must_use]
    pub const fn refusals(&self) -> &Refusals {
        self.replica.refusals()
    }

    /// What the server is in its ensemble.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.zab.status()
    }

    /// The broadcast, read-only.
    #[must_use]
    pub const fn zab(&self) -> &Zab {
        &self.zab
    }

    /// Takes what is to be done, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Prepares requests that waited until others were committed, so that the requests of a few clients do not
    /// delay everybody else. To be called once in each pass of the core.
    pub fn lead_waiting(&mut self, now: Now) {
        if self.has_due() {
            self.replica.lead_waiting(now);
            self.settle(now);
            self.propose_full(now);
        }
    }

    /// Whether [`Self::lead_waiting`] has something to do. Then another pass is to follow, after other tasks
    /// had their turn.
    #[must_use]
    pub fn has_due(&self) -> bool {
        self.replica.has_due()
    }

    /// A shard's requests.
    pub fn turn(&mut self, now: Now, shard: ShardId, turn: Turn) {
        self.replica.turn(now, shard, turn);
        self.settle(now);
        self.propose_full(now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now) {
        self.replica.tick(now);
        self.broadcast(now, Input::Tick);
    }

    /// Handles an event of the log or of a peer, or the answer to an effect.
    pub fn input(&mut self, now: Now, input: Input) {
        self.broadcast(now, input);
        // A learner may have forwarded requests.
        self.propose_full(now);
    }

    /// The answer to [`Effect::Rebuild`]: the state restored from the log as it was after the truncation and
    /// before any later append.
    pub fn rebuilt(&mut self, now: Now, state: State) {
        self.rebuilds = self.rebuilds.saturating_sub(1);
        if self.rebuilds > 0 {
            // A later truncation has asked for another rebuild.
            return;
        }
        self.replica.rebuilt(state);
        for effect in std::mem::take(&mut self.deferred) {
            match effect {
                zab::Effect::Append(batch) => self.execute(&batch),
                effect => self.on_zab_effect(now, effect),
            }
        }
        if !self.serves {
            self.on_status(now, self.zab.status());
        }
        self.settle(now);
    }

    /// Proposes a full batch even while an append is running, so that peers receive it meanwhile. Bounded,
    /// since batches wait in memory for this server's own log, while a quorum of others commits without it.
    fn propose_full(&mut self, now: Now) {
        if self.replica.has_full_batch() && self.zab.undurable_bytes() < self.undurable_bytes_max() {
            self.propose(now);
        }
    }

    /// Bytes of proposed batches that wait for a leader's own log, at which it proposes no more.
    #[must_use]
    pub const fn undurable_bytes_max(&self) -> usize {
        FULL_BATCHES_MAX * self.replica.settings().batch_bytes_max
    }

    /// Transactions that are executed and not committed, in order.
    pub fn uncommitted(&self) -> impl Iterator<Item = &Txn> {
        self.replica.uncommitted()
    }

    /// The bound on the operations of multis among a leader's [`Self::uncommitted`], the newest multi left out.
    #[must_use]
    pub const fn uncommitted_operations_max(&self) -> usize {
        self.replica.settings().uncommitted_operations_max
    }

    /// Proposes the transactions since the last batch. To be called when no append is running.
    pub fn propose(&mut self, now: Now) {
        if !self.replica.has_unsealed() || self.zab.next_zxid().is_none() {
            return;
        }
        let Some(batch) = self.replica.next_batch(self.zab.last().checksum) else { return };
        debug_assert_eq!(
            self.zab.next_zxid(),
            Some(batch.first()),
            "replica and broadcast agree on the next zxid"
        );
        self.broadcast(now, Input::Propose(batch));
    }

    /// The shell has handled all its events: sends the commits that no proposal has carried.
    pub fn flush(&mut self, now: Now) {
        self.broadcast(now, Input::Flush);
    }

    fn broadcast(&mut self, now: Now, input: Input) {
        if let Input::PeerDisconnected(peer) = input {
            self.replica.server_left(now, peer);
        }
        self.zab.handle(now.monotonic_ms, input, &mut self.zab_effects);
        self.settle(now);
    }

    /// Passes effects between broadcast and replica until none is left between them.
    fn settle(&mut self, now: Now) {
        loop {
            let from_zab: Vec<_> = self.zab_effects.drain().collect();
            let from_replica: Vec<_> = self.replica.take_effects().collect();
            if from_zab.is_empty() && from_replica.is_empty() {
                return;
            }
            for effect in from_replica {
                self.on_replica_effect(now, effect);
            }
            for effect in from_zab {
                self.on_zab_effect(now, effect);
            }
        }
    }

    fn on_replica_effect(&mut self, now: Now, effect: replica::Effect) {
        let input = match effect {
            replica::Effect::Shard(shard, message) => {
                return self.effects.push(Effect::Shard(shard, message));
            }
            replica::Effect::AllShards(message) => return self.effects.push(Effect::AllShards(message)),
            replica::Effect::DigestMismatch { peer, zxid } => {
                return self.effects.push(Effect::DigestMismatch { peer, zxid });
            }
            replica::Effect::Refused { session, refusal } => {
                return self.effects.push(Effect::Refused { session, refusal });
            }
            replica::Effect::ToLeader(bytes) => Input::Forward(bytes),
            replica::Effect::ToLearner(to, bytes) => {
                // The message may depend on commits that the learner has not received yet: they are sent
                // first.
                self.zab.handle(now.monotonic_ms, Input::Flush, &mut self.zab_effects);
                Input::ToLearner { to, bytes }
            }
            replica::Effect::ConfirmLeadership(token) => Input::ConfirmLeadership { token },
        };
        self.zab.handle(now.monotonic_ms, input, &mut self.zab_effects);
    }

    fn on_zab_effect(&mut self, now: Now, effect: zab::Effect) {
        match effect {
            zab::Effect::Truncate { after } => self.truncate(after),
            zab::Effect::Append(batch) if self.rebuilds > 0 => {
                self.deferred.push(zab::Effect::Append(batch.clone()));
                self.effects.push(Effect::Zab(zab::Effect::Append(batch)));
            }
            zab::Effect::Commit { .. }
            | zab::Effect::Status(_)
            | zab::Effect::LeadershipConfirmed { .. }
            | zab::Effect::Forwarded { .. }
            | zab::Effect::FromLeader { .. }
                if self.rebuilds > 0 =>
            {
                self.deferred.push(effect);
            }
            zab::Effect::Append(batch) => {
                self.execute(&batch);
                self.effects.push(Effect::Zab(zab::Effect::Append(batch)));
            }
            zab::Effect::Commit { upto } => self.replica.commit(now, upto),
            zab::Effect::Status(status) => {
                self.on_status(now, status);
                self.effects.push(Effect::Zab(zab::Effect::Status(status)));
            }
            zab::Effect::LeadershipConfirmed { token, .. } => self.replica.leadership_confirmed(token),
            zab::Effect::Forwarded { from, bytes } => {
                if let Err(error) = self.replica.forwarded(now, from, &bytes) {
                    self.effects.push(Effect::InvalidPeerMessage { peer: from, reason: error.to_string() });
                }
            }
            zab::Effect::FromLeader { bytes } => {
                if let Err(error) = self.replica.directed(&bytes)
                    && let Status::Following { leader, .. } = self.zab.status()
                {
                    self.effects.push(Effect::InvalidPeerMessage { peer: leader, reason: error.to_string() });
                }
            }
            effect => self.effects.push(Effect::Zab(effect)),
        }
    }

    /// Executes an appended batch, unless this server leads and executed it when it was prepared.
    fn execute(&mut self, batch: &Batch) {
        if batch.last() > self.replica.last_executed() {
            let executed = batch
                .payload()
                .map_err(|error| error.to_string())
                .and_then(|payload| self.replica.append(payload).map_err(|error| error.to_string()));
            if let Err(reason) = executed {
                self.effects.push(Effect::Broken(format!("{batch:?}: {reason}")));
            }
        }
    }

    fn truncate(&mut self, after: Zxid) {
        let cut = |effect: &zab::Effect| matches!(effect, zab::Effect::Append(batch) if batch.last() > after);
        self.deferred.retain(|effect| !cut(effect));
        let kept = self.replica.truncate(after) && self.rebuilds == 0;
        self.effects.push(Effect::Zab(zab::Effect::Truncate { after }));
        if !kept {
            if std::mem::take(&mut self.serves) {
                self.replica.look();
            }
            self.rebuilds += 1;
            self.effects.push(Effect::Rebuild);
        }
    }

    fn on_status(&mut self, now: Now, status: Status) {
        if self.serves {
            // Also at a change from one epoch directly to the next: transactions that the old epoch had not
            // proposed are dropped, and their clients have to be told.
            self.replica.look();
        }
        self.serves = status != Status::Looking;
        match status {
            Status::Looking => {}
            Status::Following { .. } => self.replica.follow(),
            Status::Leading { epoch } => self.replica.lead(now, epoch),
        }
    }

    /// Zxid of the last transaction executed, committed or not.
    #[must_use]
    pub fn last_executed(&self) -> Zxid {
        self.replica.last_executed()
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("status", &self.zab.status())
            .field("last", &self.zab.last())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
