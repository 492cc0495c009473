//! One server of an ensemble: the broadcast (Zab) and the application above it.
//!
//! ```text
//! users --requests--> Application --next batch--> Zab --Append, Send--> host (log, peers)
//!       <--outputs---             <--commit------     <-Durable, Message--
//! ```
//!
//! The pump of `engine/host` drives a node, in production and in the simulator.

use ringkeeper_frame::{Batch, LogPosition};
use ringkeeper_wire::{ServerId, Zxid};

use crate::application::{self, Application};
use crate::replica::Now;
use crate::zab::{self, Effects, Input, Status, Zab};

/// Number of full batches that may wait for the leader's own log. Above it, the leader proposes no more.
const FULL_BATCHES_MAX: usize = 8;

/// What the host has to do, in order.
#[derive(Clone, Debug)]
pub enum Effect<O> {
    /// For the application's users on this server.
    Output(O),
    /// Carry this out; the answer comes back as the [`Input`] that it names.
    Zab(zab::Effect),
    /// After the truncation that precedes this, rebuild the state from the log and hand it to
    /// [`Node::restored`].
    Rebuild,
    /// A peer sent an invalid message: its connection is to be closed.
    InvalidPeerMessage {
        /// The peer.
        peer: ServerId,
        /// What was wrong.
        reason: String,
    },
    /// This server cannot go on: the contents of its log are not what it wrote.
    Broken(String),
}

/// A server of an ensemble, or one alone, which is an ensemble of one.
pub struct Node<A: Application> {
    application: A,
    zab: Zab,
    /// The members by the log, as the broadcast was told last.
    membership: Option<Option<zab::Membership>>,
    /// The status that the application was told last.
    told: Status,
    /// The next change of status is a hand-over.
    handed_over: bool,
    /// Requests wait for the end of a hand-over.
    paused: bool,
    /// Number of [`Effect::Rebuild`]s not answered yet. Until the last answer the application's state
    /// contains truncated transactions: no batch is executed on it, and effects that concern it are deferred.
    rebuilds: usize,
    /// The deferred effects, in order.
    deferred: Vec<zab::Effect>,
    zab_effects: Effects,
    effects: Vec<Effect<A::Output>>,
}

impl<A: Application> Node<A> {
    /// A node whose application has recovered its state from the log that `durable` describes. It does
    /// nothing before [`Input::Start`].
    #[must_use]
    pub fn new(application: A, config: zab::Config, durable: zab::Durable, seed: u64) -> Self {
        let membership = application.membership().cloned();
        Self {
            application,
            zab: Zab::new(zab::Config { membership: membership.clone(), ..config }, durable, seed),
            membership: Some(membership),
            told: Status::Looking,
            handed_over: false,
            paused: false,
            rebuilds: 0,
            deferred: Vec::new(),
            zab_effects: Effects::new(),
            effects: Vec::new(),
        }
    }

    /// The application, read-only.
    #[must_use]
    pub const fn application(&self) -> &A {
        &self.application
    }

    /// A committed state and its log position; see [`Application::hold`].
    #[must_use]
    pub fn hold(&mut self) -> Option<(A::Image, LogPosition)> {
        if self.rebuilds > 0 {
            return None;
        }
        self.application.hold(&self.zab)
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
    pub fn take_effects(&mut self) -> Vec<Effect<A::Output>> {
        std::mem::take(&mut self.effects)
    }

    /// Prepares requests that waited until others were committed, so that the requests of a few users do not
    /// delay everybody else. To be called once in each pass of the host.
    pub fn lead_waiting(&mut self, now: Now) {
        if self.has_due() {
            // What is prepared already does not wait until the large request is prepared and appended.
            let _ = self.has_log_room() && self.propose(now);
            self.request(now, |application| application.lead_waiting(now));
        }
    }

    /// Whether [`Self::lead_waiting`] has something to do. Then another pass is to follow, after other tasks
    /// had their turn.
    #[must_use]
    pub fn has_due(&self) -> bool {
        self.application.has_due()
    }

    /// Whether requests may be handed to the application. While leadership is handed over they wait, and so
    /// does the time of the application.
    #[must_use]
    pub const fn takes_requests(&mut self) -> bool {
        self.paused = self.zab.is_paused();
        !self.paused
    }

    /// Hands a request to the application.
    pub fn request<T>(&mut self, now: Now, request: impl FnOnce(&mut A) -> T) -> T {
        let answer = request(&mut self.application);
        self.settle(now);
        self.propose_full(now);
        answer
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now) {
        if self.paused || self.zab.is_paused() {
            self.application.paused();
        } else {
            self.application.tick(now);
        }
        self.broadcast(now, Input::Tick);
    }

    /// A server is about to be reported as connected, and speaks this version of the messages.
    pub fn peer_speaks(&mut self, peer: ServerId, version: u8) {
        self.application.peer_speaks(peer, version);
        self.zab.peer_speaks(peer, version);
    }

    /// Handles an event of the log or of a peer, or the answer to an effect.
    pub fn input(&mut self, now: Now, input: Input) {
        if let Input::PeerDisconnected(peer) = input {
            self.application.peer_disconnected(peer);
        }
        self.broadcast(now, input);
        // A learner may have forwarded requests.
        self.propose_full(now);
    }

    /// The answer to [`Effect::Rebuild`]: the state restored from the log as it was after the truncation and
    /// before any later append. Or the state of a snapshot that has replaced log and state.
    pub fn restored(&mut self, now: Now, state: A::State) {
        self.rebuilds = self.rebuilds.saturating_sub(1);
        if self.rebuilds > 0 {
            // A later truncation has asked for another rebuild.
            return;
        }
        self.application.restored(state);
        for effect in std::mem::take(&mut self.deferred) {
            match effect {
                zab::Effect::Append(batch) => {
                    self.execute(&batch);
                }
                effect => self.on_zab_effect(now, effect),
            }
        }
        if self.told == Status::Looking {
            self.tell_status(now, self.zab.status());
        }
        self.settle(now);
    }

    /// Proposes full batches even while an append is running, so that peers receive them meanwhile. Bounded,
    /// since batches wait in memory for this server's own log, while a quorum of others commits without it.
    fn propose_full(&mut self, now: Now) {
        while self.application.has_full_batch() && self.has_log_room() && self.propose(now) {}
    }

    fn has_log_room(&self) -> bool {
        self.zab.undurable_bytes() < self.undurable_bytes_max()
    }

    /// Bytes of proposed batches that wait for a leader's own log, at which it proposes no more.
    #[must_use]
    pub fn undurable_bytes_max(&self) -> usize {
        FULL_BATCHES_MAX * self.application.batch_bytes_max()
    }

    /// Proposes the requests since the last batch; whether there were any. To be called when no append is
    /// running.
    pub fn propose(&mut self, now: Now) -> bool {
        if !self.application.has_unsealed() {
            return false;
        }
        let Some(first) = self.zab.next_zxid() else { return false };
        let Some(batch) = self.application.next_batch(first, self.zab.last().checksum) else { return false };
        debug_assert_eq!(batch.first(), first, "application and broadcast agree on the next zxid");
        self.tell_members(now);
        self.broadcast(now, Input::Propose(batch));
        true
    }

    /// The host has handled all its events: sends what was gathered for the leader, and to learners with
    /// users the commits that no proposal has carried.
    pub fn flush(&mut self, now: Now) {
        self.application.flush();
        // What was gathered is sent before a learner says that nothing more comes.
        self.settle(now);
        if let Some(successor) = self.zab.successor_due()
            && self.application.is_settled()
        {
            self.application.handing_over(successor);
            self.settle(now);
            self.broadcast(now, Input::Settled);
        }
        if self.application.has_users() {
            self.zab.note_users(now.monotonic_ms);
        }
        self.broadcast(now, Input::Flush);
        if self.zab.owes_confirmation() {
            // By a lease the flush has confirmed what was asked, and the application has asked for the others
            // who had come meanwhile.
            self.broadcast(now, Input::Flush);
        }
    }

    fn broadcast(&mut self, now: Now, input: Input) {
        self.zab.handle(now.monotonic_ms, input, &mut self.zab_effects);
        self.settle(now);
    }

    /// Passes effects between broadcast and application until none is left between them.
    fn settle(&mut self, now: Now) {
        loop {
            let from_zab: Vec<_> = self.zab_effects.drain().collect();
            let from_application: Vec<_> = self.application.take_effects().collect();
            if from_zab.is_empty() && from_application.is_empty() {
                return;
            }
            for effect in from_application {
                self.on_application_effect(now, effect);
            }
            for effect in from_zab {
                self.on_zab_effect(now, effect);
            }
            self.tell_members(now);
        }
    }

    fn on_application_effect(&mut self, now: Now, effect: application::Effect<A::Output>) {
        let input = match effect {
            application::Effect::Output(output) => return self.effects.push(Effect::Output(output)),
            application::Effect::Broken(reason) => return self.effects.push(Effect::Broken(reason)),
            application::Effect::ToLeader(bytes) => Input::Forward(bytes),
            application::Effect::ToLearner(to, bytes) => Input::ToLearner { to, bytes },
            application::Effect::ConfirmLeadership(token) => Input::ConfirmLeadership { token },
        };
        self.zab.handle(now.monotonic_ms, input, &mut self.zab_effects);
    }

    fn on_zab_effect(&mut self, now: Now, effect: zab::Effect) {
        match effect {
            zab::Effect::Truncate { after } => self.truncate(now, after),
            zab::Effect::Append(batch) if self.rebuilds > 0 => {
                self.deferred.push(zab::Effect::Append(batch.clone()));
                self.effects.push(Effect::Zab(zab::Effect::Append(batch)));
            }
            zab::Effect::Commit { .. }
            | zab::Effect::Status(_)
            | zab::Effect::HandedOver
            | zab::Effect::LeadershipConfirmed { .. }
            | zab::Effect::UpToDate(_)
            | zab::Effect::Forwarded { .. }
            | zab::Effect::LearnerLeft(_)
            | zab::Effect::LearnerSilent(_)
            | zab::Effect::LearnerAnswered { .. }
            | zab::Effect::FromLeader { .. }
                if self.rebuilds > 0 =>
            {
                self.deferred.push(effect);
            }
            zab::Effect::Append(batch) => {
                if self.execute(&batch) {
                    self.effects.push(Effect::Zab(zab::Effect::Append(batch)));
                }
            }
            zab::Effect::Commit { upto } => self.application.commit(now, upto),
            zab::Effect::Status(status) => {
                self.tell_status(now, status);
                self.effects.push(Effect::Zab(zab::Effect::Status(status)));
            }
            zab::Effect::HandedOver => {
                self.handed_over = true;
                self.effects.push(Effect::Zab(zab::Effect::HandedOver));
            }
            zab::Effect::Reset => {
                // Before the batches of the next leader are executed.
                self.application.leadership_ended();
                self.effects.push(Effect::Zab(zab::Effect::Reset));
            }
            zab::Effect::LeadershipConfirmed { token, commit } => {
                self.application.leadership_confirmed(token, commit);
            }
            zab::Effect::Forwarded { from, bytes } => {
                if let Err(error) = self.application.forwarded(now, from, &bytes) {
                    self.effects.push(Effect::InvalidPeerMessage { peer: from, reason: error.to_string() });
                }
            }
            zab::Effect::FromLeader { bytes } => {
                if let Err(error) = self.application.directed(&bytes)
                    && let Some(peer) = self.zab.master()
                {
                    self.effects.push(Effect::InvalidPeerMessage { peer, reason: error.to_string() });
                }
            }
            zab::Effect::LearnerLeft(learner) => self.application.server_left(now, learner),
            zab::Effect::LearnerSilent(learner) => self.application.server_silent(now, learner),
            zab::Effect::LearnerAnswered { learner, asked_ms } => {
                self.application.server_answered(learner, asked_ms);
            }
            zab::Effect::UpToDate(learners) => self.application.up_to_date(learners),
            effect => self.effects.push(Effect::Zab(effect)),
        }
    }

    /// Tells the broadcast who the members are, if the log says something else than before.
    fn tell_members(&mut self, now: Now) {
        let known = (self.rebuilds == 0).then(|| self.application.membership());
        if self.membership.as_ref().map(Option::as_ref) != known {
            let known = known.map(Option::<&_>::cloned);
            self.membership.clone_from(&known);
            self.zab.handle(now.monotonic_ms, Input::Members(known), &mut self.zab_effects);
        }
    }

    /// Whether the application takes the batch; otherwise the server is broken, and must not log it.
    fn execute(&mut self, batch: &Batch) -> bool {
        let executed = self.application.append(batch);
        let sound = executed.is_ok();
        self.effects.extend(executed.err().map(|reason| Effect::Broken(format!("{batch:?}: {reason}"))));
        sound
    }

    fn truncate(&mut self, now: Now, after: Zxid) {
        let cut = |effect: &zab::Effect| matches!(effect, zab::Effect::Append(batch) if batch.last() > after);
        self.deferred.retain(|effect| !cut(effect));
        let kept = self.application.truncate(after) && self.rebuilds == 0;
        self.effects.push(Effect::Zab(zab::Effect::Truncate { after }));
        if !kept {
            self.tell_status(now, Status::Looking);
            self.rebuilds += 1;
            self.effects.push(Effect::Rebuild);
        }
    }

    fn tell_status(&mut self, now: Now, status: Status) {
        let handed_over = std::mem::take(&mut self.handed_over);
        if self.told != status {
            self.told = status;
            match handed_over {
                true => self.application.handed_over(now, status),
                false => self.application.status(now, status),
            }
        }
    }
}

impl<A: Application> std::fmt::Debug for Node<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("status", &self.zab.status())
            .field("last", &self.zab.last())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
