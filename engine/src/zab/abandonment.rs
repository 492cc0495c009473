//! A change of the members that cannot finish, since a quorum of the new voters was lost meanwhile, is given
//! up by the leader that proposed it.
//!
//! ```text
//! leader                     cuts the change, and all behind it, off its own log; leads no more
//! leader --Abandoned--> all  whoever is still in that epoch does the same
//! all                        elect a leader by the quorums before the change
//! ```
//!
//! Why nothing committed is lost:
//!
//! - In its epoch only the leader counts acks. It gives up what it has not committed, and counts no more: it
//!   leads another epoch, or none, before it hears the next ack.
//! - A server that somebody else leads may have taken over the change, and have committed it. Such a server
//!   is in a newer epoch once its acks count there, and heeds no word about the older one.
//! - A server that has promised itself to a newer epoch heeds no word about the older one either: the new
//!   leader knows what is part of the history.
//! - A new voter that was lost with the change in its log needs a quorum before the change, too. One that has
//!   elected another leader meanwhile is in a newer epoch, so it does not let that voter lead.
//!
//! What was proposed behind the change is lost, like all that is uncommitted when a leader fails. If the
//! leader fails, or stops leading, before it gives the change up, nobody can tell whether it was committed:
//! the ensemble then waits for a quorum of the new voters, too. The same holds if it fails right after,
//! before a quorum of the voters before has heard of it.
//!
//! A leader whose learners crash right after they have confirmed it may cut off what its successor commits
//! meanwhile. The quorum that has committed it has it still, and gives it back.

use ringkeeper_wire::{Epoch, ServerId, Zxid};

use super::core::{Core, Next, PendingChange};
use super::effects::{Departure, Effect, Effects};
use super::leader::Leader;
use super::message::{Message, Notification};
use super::quorum::{Quorum, ServerSet};
use crate::mutation::planted;

/// What a leader has given up: everything behind a position in its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Abandoned {
    epoch: Epoch,
    after: Zxid,
}

/// For how long a change has been under way, and its new voters have been lost, on the leader.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnderWay {
    change: Zxid,
    since_ms: u64,
    /// Since when no quorum of the new voters is heard.
    lost_since_ms: Option<u64>,
    /// Once it is hopeless, the question to the voters before it whether this server leads.
    asked: Option<Question>,
}

#[derive(Clone, Copy, Debug)]
struct Question {
    round: u64,
    /// By the clock of the shell, which goes on while this server stands still.
    at_ms: u64,
}

impl Leader {
    /// Gives a change of the members up if no quorum of the new voters was heard for the peer timeout, or has
    /// acknowledged the change within `syncLimit`, although a quorum of those before it has. These have to
    /// confirm first that this server still leads: what has come in while it stood still is older than their
    /// next leader may be.
    pub(super) fn watch_change(&mut self, core: &mut Core, out: &mut Effects) -> Next {
        let Some(pending) = core.pending_change().filter(|_| self.is_active()) else {
            self.change = None;
            return Next::Stay;
        };
        let now_ms = core.now_ms;
        let started = UnderWay { change: pending.since, since_ms: now_ms, lost_since_ms: None, asked: None };
        let mut change = self.change.filter(|known| known.change == pending.since).unwrap_or(started);
        let is_heard = pending.after.is_quorum(&self.heard(core));
        change.lost_since_ms = (!is_heard).then(|| change.lost_since_ms.unwrap_or(now_ms));
        let lost = change.lost_since_ms.is_some_and(|at_ms| now_ms >= at_ms + core.config.peer_timeout_ms);
        let is_late = now_ms >= change.since_ms + core.config.sync_limit_ms;
        let is_hopeless = lost || (is_late && self.waits_for_new_voters(core, &pending));
        // A learner that was asked stays for the peer timeout, unless it crashes or loses its connection.
        let counts = |asked: &Question| core.shell_ms() < asked.at_ms + core.config.peer_timeout_ms;
        let anew = Question { round: self.round + 1, at_ms: core.shell_ms() };
        change.asked = is_hopeless.then(|| change.asked.filter(counts).unwrap_or(anew));
        self.change = Some(change);
        self.round_wanted |= change.asked.is_some_and(|asked| asked.round > self.round);
        let is_confirmed =
            change.asked.is_some_and(|asked| self.is_confirmed_before(core, &pending, asked.round));
        let Some(after) = core.log.before(pending.since).filter(|_| is_confirmed) else { return Next::Stay };
        core.abandoned = Some(Abandoned { epoch: self.epoch(), after });
        for peer in core.connected.iter() {
            out.send(peer, Message::Abandoned { epoch: self.epoch(), after });
        }
        Next::Look(Departure::ChangeAbandoned { by: core.me(), after }, None)
    }

    /// Whether a quorum of the voters before a change has answered this round, or a newer one. A server with
    /// a new disk does not count before it has adopted the epoch: it may have forgotten a newer one.
    fn is_confirmed_before(&self, core: &Core, pending: &PendingChange, round: u64) -> bool {
        let answered = self.peers.iter().filter(|peer| peer.voter && peer.adopted && peer.round >= round);
        pending.before.is_quorum(&answered.map(|peer| peer.id).chain([core.me()]).collect())
    }

    fn waits_for_new_voters(&self, core: &Core, pending: &PendingChange) -> bool {
        let others = self.peers.iter().filter(|peer| peer.adopted && peer.acked >= pending.since);
        let own = (core.log.durable() >= pending.since).then(|| core.me());
        let acked: ServerSet = others.map(|peer| peer.id).chain(own).collect();
        pending.before.is_quorum(&acked) && !pending.after.is_quorum(&acked)
    }
}

impl Core {
    /// What another server has yet to hear of what this one has given up, judged by what it says of itself.
    /// Once there is a newer epoch, its leader decides what is part of the history.
    pub(super) fn reminder(&self, heard: &Notification) -> Option<Message> {
        let Abandoned { epoch, after } = self.abandoned?;
        let newest = self.epochs.accepted.max(heard.own.accepted);
        let same = newest == epoch || planted!(self.config, AbandonAnyEpoch);
        let has_it = same && heard.own.last > after;
        has_it.then_some(Message::Abandoned { epoch, after })
    }

    /// The leader of an epoch has given up everything behind `after` in it.
    pub(super) fn on_abandoned(&self, from: ServerId, epoch: Epoch, after: Zxid) -> Next {
        let in_it = self.epochs.current == epoch && self.epochs.accepted == epoch;
        let same = in_it || planted!(self.config, AbandonAnyEpoch);
        let concerned = same && self.epochs.leader == Some(from) && self.log.last().zxid > after;
        if !concerned || self.log.operation().is_some() || after < self.never_cut() {
            return Next::Stay;
        }
        Next::Look(Departure::ChangeAbandoned { by: from, after }, None)
    }

    /// Cuts off what was given up.
    pub(super) fn cut_abandoned(&mut self, after: Zxid, out: &mut Effects) {
        if let Some(Abandoned { epoch, after }) = self.abandoned {
            self.lower_acknowledged(epoch, after);
        }
        self.log.truncate(after);
        self.recovered = self.recovered.min(after);
        out.push(Effect::Truncate { after });
    }
}
