//! Fast leader election: servers without a leader agree on the one with the best history.
//!
//! The election only saves time; safety rests on discovery. A server votes only for candidates that it is
//! connected to. After a round without a result it may exclude its candidate once, so that a partial
//! partition does not block the ensemble.

use ringkeeper_wire::ServerId;

use super::core::{Core, Decision, Member, Next};
use super::effects::{Departure, Effects};
use super::message::{Notification, PeerState, Vote};
use super::observer_master::Offers;
use crate::mutation::planted;

#[derive(Debug)]
pub(super) struct Election {
    vote: Vote,
    /// This server's vote while it knows no better candidate.
    own: Vote,
    passed_over: Option<ServerId>,
    heard: Vec<(ServerId, Notification)>,
    decide_at_ms: Option<u64>,
    resend_at_ms: u64,
    restart_at_ms: u64,
    offers: Offers,
}

impl Election {
    /// Begins a round.
    pub(super) fn start(core: &mut Core, passed_over: Option<ServerId>, out: &mut Effects) -> Self {
        core.round += 1;
        let restart_at_ms = core.now_ms + 2 * core.config.peer_timeout_ms + core.jitter_ms();
        let own = Self::own_vote(core, passed_over);
        let mut election = Self {
            vote: own,
            own,
            passed_over,
            heard: Vec::new(),
            decide_at_ms: None,
            resend_at_ms: 0,
            restart_at_ms,
            offers: Offers::default(),
        };
        election.broadcast(core, out);
        election
    }

    /// A server whose log waits for room on the disk is a bad leader, so it usually is no candidate.
    /// Sometimes it is one all the same, since it may be the only one that reaches a quorum; but not right
    /// after it resigned for that reason. One that is no voter any more is none either: others may not know
    /// that yet.
    fn own_vote(core: &mut Core, passed_over: Option<ServerId>) -> Vote {
        let stuck = core.is_stuck() && !core.random().is_multiple_of(4);
        let abstains = passed_over == Some(core.me()) || stuck || !core.votes();
        if abstains { core.blank_vote() } else { core.own_vote() }
    }

    fn broadcast(&mut self, core: &Core, out: &mut Effects) {
        self.resend_at_ms = core.now_ms + core.config.heartbeat_ms();
        // The leader may be one that only newer members name.
        let asked = match core.config.admits_joiners {
            true => core.connected,
            false => core.connected.intersection(core.quorum.voters()),
        };
        for peer in asked.iter() {
            self.notify(core, peer, out);
        }
    }

    pub(super) fn notify(&self, core: &Core, peer: ServerId, out: &mut Effects) {
        out.send(peer, core.notification(PeerState::Looking, self.vote, peer));
    }

    pub(super) fn on_connected(&self, core: &Core, peer: ServerId, out: &mut Effects) {
        self.notify(core, peer, out);
    }

    pub(super) fn on_disconnected(&mut self, core: &mut Core, peer: ServerId, out: &mut Effects) {
        self.heard.retain(|(id, _)| *id != peer);
        self.offers.forget(peer);
        if self.vote.leader == peer {
            self.vote = self.own;
            self.adopt_best(core);
            self.broadcast(core, out);
        }
    }

    pub(super) fn on_notification(
        &mut self,
        core: &mut Core,
        from: ServerId,
        heard: Notification,
        out: &mut Effects,
    ) {
        let counts = core.takes_part(from) && core.heeds(&heard.own.ensemble);
        if heard.state != PeerState::Looking || !counts {
            return;
        }
        if heard.round < core.round {
            self.notify(core, from, out);
            return;
        }
        let mut changed = false;
        if heard.round > core.round {
            core.round = heard.round;
            self.heard.clear();
            self.vote = self.own;
            changed = true;
        }
        self.heard.retain(|(id, _)| *id != from);
        self.heard.push((from, heard));
        changed |= self.adopt_best(core);
        if changed {
            self.broadcast(core, out);
        }
    }

    /// Adopts the best vote heard; whether that changed the vote.
    fn adopt_best(&mut self, core: &Core) -> bool {
        let before = self.vote;
        for (_, heard) in &self.heard {
            if self.admissible(core, heard.vote.leader) && prefers(core, heard.vote, self.vote) {
                self.vote = heard.vote;
            }
        }
        self.vote != before
    }

    fn admissible(&self, core: &Core, candidate: ServerId) -> bool {
        core.takes_part(candidate)
            && Some(candidate) != self.passed_over
            && (candidate == core.me() || core.connected.contains(candidate))
    }

    /// The decision to follow a server that claims to lead. An observer may learn from others, too: it waits
    /// for what they offer, unless a change that is not committed makes it a voter, whom the leader may need.
    pub(super) fn leader_heard(&mut self, core: &mut Core, from: ServerId, heard: &Notification) -> Next {
        let leads = heard.state == PeerState::Leading && heard.vote.leader == from;
        let needs_me = leads && heard.own.ensemble.voters.contains(core.me());
        if core.prefers_masters() && !needs_me {
            self.offers.hear(core, from, heard);
            return Next::Stay;
        }
        if leads && self.passed_over != Some(from) { Next::Follow(from) } else { Next::Stay }
    }

    /// Acts on timeouts and on the votes heard so far.
    pub(super) fn advance(&mut self, core: &mut Core, out: &mut Effects) -> Next {
        if core.now_ms >= self.restart_at_ms {
            let favourite = Some(self.vote.leader).filter(|id| *id != core.me());
            let passed_over = favourite.filter(|_| core.random().is_multiple_of(2));
            return Next::Look(Departure::ElectionStuck, passed_over);
        }
        if core.now_ms >= self.resend_at_ms {
            self.broadcast(core, out);
        }
        if let Some(master) = self.offers.choose(core, self.passed_over) {
            return Next::Follow(master);
        }
        if core.votes() && self.decided(core) { self.outcome(core) } else { Next::Stay }
    }

    fn outcome(&self, core: &Core) -> Next {
        if self.vote.leader == core.me() { Next::Lead } else { Next::Follow(self.vote.leader) }
    }

    fn decided(&mut self, core: &Core) -> bool {
        let agreeing = self.heard.iter().filter(|(_, heard)| heard.vote == self.vote);
        let members = agreeing.clone().map(|(id, heard)| Member {
            id: *id,
            initialized: heard.own.initialized && !core.is_foreign(&heard.own.ensemble),
            blank: heard.own.is_blank(),
            founds: heard.own.founds,
            belongs: heard.own.ensemble.cluster != 0,
        });
        if core.may_decide(members.chain([core.member()])) == Decision::No {
            self.decide_at_ms = None;
            return false;
        }
        let voters = core.connected.intersection(core.quorum.voters());
        let unanimous = agreeing.filter(|(id, _)| voters.contains(*id)).count() == voters.len();
        let decide_at_ms = *self.decide_at_ms.get_or_insert(core.now_ms + core.config.finalize_wait_ms);
        unanimous || core.now_ms >= decide_at_ms
    }
}

fn prefers(core: &Core, new: Vote, old: Vote) -> bool {
    if planted!(core.config, CompareWithoutEpoch) {
        return (new.zxid, new.leader) > (old.zxid, old.leader);
    }
    if planted!(core.config, IgnoreHistory) {
        return new.leader > old.leader;
    }
    new > old
}
