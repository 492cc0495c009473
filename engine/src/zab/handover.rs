//! A hand-over: leadership moves to a voter that has everything, without the timeouts of an election.
//!
//! ```text
//! leader --Pause--> learners           requests wait at every server
//! leader <--Paused-- learners          behind all that they had forwarded
//! leader commits and answers everything
//! leader --ToLearner--> successor      what its application has to know before it leads
//! leader --Lead--> successor           behind all commits and answers
//! leader <--Notification-- successor   it leads, and waits for others to join
//! leader --Follow--> learners          the successor among them; and follows the successor itself
//! ```
//!
//! It begins when an operator asks for it, when the leader is told to stop or is no voter any more, and
//! when a preferred voter has kept up with the leader for long enough.
//!
//! Safety rests on nothing new: the successor needs the promises of a quorum for a new epoch, and that none
//! of the quorum has a newer history, like every server that was elected. The hand-over decides only when it
//! begins, and that the learners join it at once.
//!
//! Until it sends Follow the leader may call the hand-over off (Resume), and leads on in its epoch. It
//! proposes nothing from Lead on, since the successor would have to learn it before it could lead.
//!
//! A server that was paused has no request under way when it is told Follow, so its clients keep their
//! connections. A successor that was not told may lead all the same, once others have lost the old leader.
//! It disconnects its clients first: the old leader may have called the hand-over off before it was lost,
//! and let a session move away from one of their connections.
//!
//! A learner that does not answer in time is left to find the successor by itself. What it forwards from
//! Lead on is not carried out, since the successor would not learn of it: for example, that a session has
//! moved away from one of its own connections. The learner is disconnected, so that it tells its clients.

use ringkeeper_wire::ServerId;

use super::core::{Core, Next};
use super::effects::{Effect, Effects};
use super::leader::Leader;
use super::lease::Lease;
use super::message::{HandOverStep, Message, PeerState};
use super::peer::Peer;
use crate::mutation::planted;

/// Why a hand-over is not begun, or is called off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandOverError {
    /// Only a leader hands over.
    #[error("this server does not lead: ask the leader")]
    NotLeading,
    /// One is under way.
    #[error("leadership is being handed over already")]
    UnderWay,
    /// The server named leads.
    #[error("server {0} leads already")]
    Leads(ServerId),
    /// The server named does not vote.
    #[error("server {0} is no voter of this ensemble: name another one")]
    NoVoter(ServerId),
    /// The server named does not follow, or lacks a part of the log.
    #[error("server {0} is not synchronized with this one: start it, or wait until it has caught up")]
    NotSynchronized(ServerId),
    /// No voter is synchronized.
    #[error("no other voter is synchronized with this server: start one, or wait until it has caught up")]
    NoSuccessor,
    /// It took too long, or the successor was lost.
    #[error("server {0} did not take over in time: this server leads on; try again, or name another one")]
    Late(ServerId),
}

/// A hand-over, on the leader.
#[derive(Debug)]
pub(super) struct HandOver {
    to: ServerId,
    /// The successor was told to lead.
    told: bool,
    /// Batches may still be proposed: not once it was told.
    proposes: bool,
    until_ms: u64,
}

impl HandOver {
    /// Whether the successor was told to lead.
    pub(super) const fn is_told(&self) -> bool {
        self.told
    }

    /// Whether the leader may still propose what it had taken before.
    pub(super) const fn proposes(&self) -> bool {
        self.proposes
    }
}

impl Leader {
    /// Begins to hand over to the voter that `wanted` names, or else to the first preferred one that is
    /// caught up, or else to the one with the longest durable log.
    pub(super) fn begin_hand_over(&mut self, core: &mut Core, wanted: Option<ServerId>, out: &mut Effects) {
        let to = match self.successor(core, wanted) {
            Ok(to) => to,
            Err(error) => return out.push(Effect::HandOverFailed(error)),
        };
        core.paused = !planted!(core.config, ProposeAfterHandOver);
        let until_ms = core.now_ms + core.config.hand_over_limit_ms;
        self.hand_over = Some(HandOver { to, told: false, proposes: true, until_ms });
        let early = planted!(core.config, HandOverEarly);
        for peer in &mut self.peers {
            (peer.pausing, peer.paused) = (peer.adopted, early);
        }
        self.tell_learners(HandOverStep::Pause, out);
        out.push(Effect::HandingOver { to });
    }

    fn successor(&self, core: &Core, wanted: Option<ServerId>) -> Result<ServerId, HandOverError> {
        if !self.is_active() {
            return Err(HandOverError::NotLeading);
        }
        if self.hand_over.is_some() {
            return Err(HandOverError::UnderWay);
        }
        let able = |peer: &&Peer| peer.voter && peer.adopted && peer.is_heard(core);
        let mut able = self.peers.iter().filter(able);
        match wanted.or_else(|| self.first_caught_up(core, &core.config.preferred, 0)) {
            None => able.max_by_key(|peer| (peer.acked, peer.id)).map(|peer| peer.id),
            Some(id) if id == core.me() => return Err(HandOverError::Leads(id)),
            Some(id) if !core.is_voter(id) => return Err(HandOverError::NoVoter(id)),
            Some(id) => {
                return able
                    .any(|peer| peer.id == id)
                    .then_some(id)
                    .ok_or(HandOverError::NotSynchronized(id));
            }
        }
        .ok_or(HandOverError::NoSuccessor)
    }

    /// The first of these voters that has been caught up for so long.
    fn first_caught_up(&self, core: &Core, voters: &[ServerId], for_ms: u64) -> Option<ServerId> {
        let is_caught_up = |id: &&ServerId| {
            self.peers.iter().any(|peer| {
                let since_ms = peer.caught_up_since_ms.filter(|_| peer.id == **id && peer.voter);
                since_ms.is_some_and(|since_ms| core.now_ms >= since_ms + for_ms)
            })
        };
        voters.iter().find(is_caught_up).copied()
    }

    /// Looks at a tick which voters are caught up, and hands over to one that is preferred to this server and
    /// has been so for long enough. If that one does not take over in time, this server waits twice as long
    /// before it tries again.
    pub(super) fn give_way(&mut self, core: &mut Core, out: &mut Effects) {
        let committed_before = std::mem::replace(&mut self.committed_before, core.commit);
        self.peers.iter_mut().for_each(|peer| peer.look_whether_caught_up(core, committed_before));
        if !self.is_active() || self.hand_over.is_some() {
            return;
        }
        let me = core.me();
        // Those that stand before this server in the list; all of them if it is not there.
        let better = core.config.preferred.split(|id| *id == me).next().unwrap_or_default();
        if let Some(better) = self.first_caught_up(core, better, self.gives_way_after_ms) {
            self.gives_way_after_ms = self.gives_way_after_ms.saturating_mul(2);
            self.begin_hand_over(core, Some(better), out);
        }
    }

    fn tell_learners(&self, step: HandOverStep, out: &mut Effects) {
        for peer in self.peers.iter().filter(|peer| peer.adopted) {
            out.send(peer.id, Message::HandOver { epoch: self.epoch(), step });
        }
    }

    /// The successor that may be told to lead: it has everything, and no learner that can be heard has
    /// forwarded more.
    pub(super) fn successor_due(&self, core: &Core) -> Option<ServerId> {
        let Some(HandOver { to, told: false, .. }) = self.hand_over else { return None };
        let last = core.log.last().zxid;
        let waits = |peer: &Peer| peer.pausing && !peer.paused && peer.is_heard(core);
        let has_all = |peer: &Peer| peer.id == to && peer.paused && peer.acked >= last;
        let due = core.commit >= last && !self.peers.iter().any(waits) && self.peers.iter().any(has_all);
        due.then_some(to)
    }

    /// The application has prepared, proposed and answered all that it was asked. Tells the successor to
    /// lead.
    pub(super) fn on_settled(&mut self, core: &Core, out: &mut Effects) {
        let Some(to) = self.successor_due(core) else { return };
        self.send_commits(core, |peer| peer.id == to, out);
        let lead = HandOverStep::Lead { upto: core.log.last().zxid };
        out.send(to, Message::HandOver { epoch: self.epoch(), step: lead });
        if let Some(hand_over) = &mut self.hand_over {
            hand_over.told = true;
            hand_over.proposes = planted!(core.config, ProposeAfterHandOver);
        }
    }

    /// A server says that it leads: the end of the hand-over, if it is the successor.
    pub(super) fn on_successor(&mut self, core: &mut Core, from: ServerId, out: &mut Effects) -> Next {
        let Some(HandOver { to, told: true, .. }) = self.hand_over else { return Next::Stay };
        if to != from {
            return Next::Stay;
        }
        for peer in &self.peers {
            // One whose requests may be lost has to tell its clients, so it leaves this server as usual.
            let message = match peer.paused {
                true => Message::HandOver { epoch: self.epoch(), step: HandOverStep::Follow(to) },
                false => core.notification(PeerState::Following, core.own_vote(), peer.id),
            };
            out.send(peer.id, message);
        }
        core.moved = true;
        Next::Follow(to)
    }

    /// Calls the hand-over off: this server leads on.
    pub(super) fn call_off(&mut self, core: &mut Core, out: &mut Effects) {
        if let Some(HandOver { to, .. }) = self.hand_over.take() {
            core.paused = false;
            // Learners that were told to follow another leader are free.
            self.lease = Lease::default();
            self.tell_learners(HandOverStep::Resume, out);
            out.push(Effect::HandOverFailed(HandOverError::Late(to)));
        }
    }

    /// Calls the hand-over off if it has taken too long, or its successor is gone.
    pub(super) fn watch_hand_over(&mut self, core: &mut Core, out: &mut Effects) {
        let Some(HandOver { to, until_ms, .. }) = self.hand_over else { return };
        if core.now_ms >= until_ms || !self.peers.iter().any(|peer| peer.id == to) {
            self.call_off(core, out);
        }
    }
}
