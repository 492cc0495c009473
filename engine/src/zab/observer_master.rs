//! Observer masters: followers that feed observers, so that the leader has no work with each of them
//! (`observerMasterPort`).
//!
//! ```text
//! observer --FollowerInfo--> follower                        and so on, as with a leader
//!                            follower --Join-----> leader    when the observer has what is committed
//!                            follower <--Joined--- leader
//! observer <--Ping, active-- follower                        it serves clients from now on
//! observer --Forward-------> follower --Forward--> leader    writes, syncs, sessions that come back
//! observer <--ToLearner----- follower <-ToLearner- leader
//! ```
//!
//! To the observer its master is what a leader would be, but for two things: it is sent what is committed and
//! nothing else, and its acks count nowhere. To the leader the observer is a learner that is heard through
//! another one. So the leader alone orders writes, answers syncs, and knows who holds which session.
//!
//! Why an observer's requests never come late: it forwards nothing before the leader has said Joined. So
//! whatever it has forwarded through one master was sent behind a Join that the leader had taken, and is
//! dropped once the leader has taken a later Join, through another master, or a FollowerInfo of the observer.
//!
//! A follower feeds observers as long as it serves clients itself in the leader's epoch, and has a vote. When
//! it loses its leader, or begins another epoch, it disconnects them, and each finds another master. One that
//! becomes a voter is disconnected, too, as soon as the follower has that in its log. An observer that was
//! fed by somebody faster in this epoch, so that its log is ahead, waits until the follower has as much, so
//! nothing is cut off that is committed elsewhere. One that has promised itself to a newer epoch goes to the
//! leader.
//!
//! In a hand-over of leadership the observers are asked to forward no more, before the follower says so of
//! itself. When the leader has let go, they go over to the successor with their master, or with the successor
//! itself if that is their master, and keep their clients.
//!
//! An observer that looks for a master asks all voters, as in an election. Of those that offer it, in the
//! order of their ids, the first one that it tries is the one whose turn its own id says. So observers with
//! ids in a row spread evenly. After a failure it tries the next one; the leader is the last.

use std::collections::BTreeMap;

use bytes::Bytes;
use ringkeeper_frame::{Batch, LogPosition};
use ringkeeper_wire::{Epoch, ServerId, Zxid};

use super::core::{Core, NO_STREAMING_LEARNER};
use super::effects::{Effect, Effects, SyncedLearner};
use super::leader::Leader;
use super::message::{AckEpoch, HandOverStep, Message, Notification, ObserverStep, PeerState, Standing};
use super::peer::{EpochContext, Peer};
use super::quorum::ServerSet;
use crate::mutation::planted;

/// From this version of the messages between servers on, a follower may feed observers.
pub const OBSERVER_MASTERS_SINCE: u8 = 11;

/// Peer timeouts for which an observer waits for connected followers, while it could have the leader.
const FOLLOWERS_TIMEOUTS: u64 = 10;

/// What the leader knows of an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing yet.
    Outside,
    /// It was told.
    Asked,
    /// It takes requests of the observer, which may serve clients once it has what was committed then.
    Joined(Zxid),
    /// As the observer knows.
    Serving,
}

#[derive(Debug)]
struct Observer {
    peer: Peer,
    place: Place,
}

/// The observers that a follower feeds.
#[derive(Debug, Default)]
pub(super) struct ObserverMaster {
    observers: Vec<Observer>,
    /// The last round of heartbeats, and when the next one is due.
    round: u64,
    ping_at_ms: u64,
}

/// The leader, as the follower follows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Following {
    pub(super) leader: ServerId,
    pub(super) context: EpochContext,
}

impl Following {
    fn tell(&self, observer: ServerId, step: ObserverStep, out: &mut Effects) {
        out.send(self.leader, Message::Observer { epoch: self.context.epoch, observer, step });
    }
}

impl ObserverMaster {
    /// How many there are, and how many have what is committed.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.observers.len(), self.synced().len())
    }

    /// Those that have what is committed.
    pub(super) fn synced(&self) -> Vec<SyncedLearner> {
        let adopted = self.observers.iter().filter(|observer| observer.peer.adopted);
        adopted.map(|observer| observer.peer.as_synced()).collect()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.observers.is_empty()
    }

    /// The lowest position up to which all observers fed from the log were sent it.
    pub(super) fn sent_to_all(&self) -> Zxid {
        let sent = self.observers.iter().filter_map(|observer| observer.peer.sent_upto());
        sent.min().unwrap_or(NO_STREAMING_LEARNER)
    }

    fn observer(&mut self, id: ServerId) -> Option<&mut Observer> {
        self.observers.iter_mut().find(|observer| observer.peer.id == id)
    }

    /// An observer asks to be fed.
    pub(super) fn on_join(
        &mut self,
        core: &Core,
        (from, join): (ServerId, Standing),
        epoch: Epoch,
        out: &mut Effects,
    ) {
        match self.observer(from) {
            Some(observer) => observer.peer.hear(core),
            None => {
                let peer = Peer::new(core, from, &join);
                self.observers.push(Observer { peer, place: Place::Outside });
            }
        }
        out.send(from, Message::NewEpoch(epoch));
    }

    /// A message of an observer.
    pub(super) fn on_message(
        &mut self,
        core: &Core,
        from: ServerId,
        message: Message,
        following: &Following,
        out: &mut Effects,
    ) {
        let epoch = following.context.epoch;
        let Some(Observer { peer, place }) = self.observer(from) else { return };
        peer.hear(core);
        match message {
            Message::AckEpoch(ask) if ask.epoch == epoch => peer.asks(ask),
            Message::Ack(ack) if ack.epoch == epoch => peer.on_ack(core, ack, ack.adopted),
            Message::Pong(pong) if pong.ack.epoch == epoch => peer.on_ack(core, pong.ack, pong.ack.adopted),
            Message::Forward(bytes) if *place == Place::Serving && !peer.paused => {
                following.tell(from, ObserverStep::Forward(bytes), out);
            }
            Message::HandOver { epoch: of, step: HandOverStep::Paused } if of == epoch => peer.paused = true,
            _ => {}
        }
    }

    /// The leader says something of an observer.
    pub(super) fn on_step(
        &mut self,
        id: ServerId,
        step: ObserverStep,
        following: &Following,
        out: &mut Effects,
    ) {
        let Some(observer) = self.observer(id) else {
            if matches!(step, ObserverStep::Joined { .. }) {
                following.tell(id, ObserverStep::Left, out);
            }
            return;
        };
        match step {
            ObserverStep::Joined { commit } if observer.place == Place::Asked => {
                observer.place = Place::Joined(commit);
            }
            ObserverStep::Left => self.release(|peer| peer.id == id, out),
            ObserverStep::ToLearner(bytes) => out.send(id, Message::ToLearner(bytes)),
            ObserverStep::Joined { .. } | ObserverStep::Join | ObserverStep::Forward(_) => {}
        }
    }

    pub(super) fn on_log_read(
        &mut self,
        core: &Core,
        (id, after): (ServerId, Zxid),
        batches: Vec<Batch>,
        context: &EpochContext,
        out: &mut Effects,
    ) {
        if let Some(observer) = self.observer(id) {
            observer.peer.on_log_read(core, after, batches, context, out);
        }
    }

    pub(super) fn on_snapshot_ready(
        &mut self,
        core: &Core,
        id: ServerId,
        last: LogPosition,
        context: &EpochContext,
        out: &mut Effects,
    ) {
        if let Some(observer) = self.observer(id) {
            observer.peer.on_snapshot_ready(core, last, context, out);
        }
    }

    /// Sends observers what they lack, and tells the leader of those that have it.
    pub(super) fn feed(&mut self, core: &Core, following: &Following, out: &mut Effects) {
        let Following { context, .. } = following;
        for Observer { peer, place } in &mut self.observers {
            let is_ahead = |ask: &AckEpoch| {
                let last = ask.log.last();
                last.epoch() == context.epoch && last > core.log.last().zxid
            };
            if !peer.ask.as_ref().is_some_and(is_ahead) {
                peer.synchronize(core, context, out);
            }
            peer.pump(core, context, out);
            match *place {
                Place::Outside if peer.is_up_to_date() => {
                    *place = Place::Asked;
                    following.tell(peer.id, ObserverStep::Join, out);
                }
                Place::Joined(commit) if core.commit >= commit && !core.paused => {
                    *place = Place::Serving;
                    peer.ping(core, context.epoch, self.round, true, out);
                }
                _ => {}
            }
        }
    }

    /// Sends the commits that no batch has carried.
    pub(super) fn flush(&mut self, core: &Core, epoch: Epoch, out: &mut Effects) {
        self.observers.iter_mut().for_each(|observer| observer.peer.send_commit(core, epoch, out));
    }

    /// Time has passed: heartbeats are due, and the silent are given up.
    pub(super) fn on_tick(&mut self, core: &Core, following: &Following, out: &mut Effects) {
        let gone = |peer: &Peer| {
            core.now_ms > peer.heard_at_ms + core.config.sync_limit_ms || core.is_voter(peer.id)
        };
        self.leave(gone, following, out);
        if core.now_ms >= self.ping_at_ms {
            self.ping_at_ms = core.now_ms + core.config.heartbeat_ms();
            self.round += 1;
            for Observer { peer, place } in &mut self.observers {
                peer.ping(core, following.context.epoch, self.round, *place == Place::Serving, out);
            }
        }
    }

    /// Gives observers up, and tells the leader.
    pub(super) fn leave(&mut self, which: impl Fn(&Peer) -> bool, following: &Following, out: &mut Effects) {
        for Observer { peer, place } in self.observers.iter().filter(|observer| which(&observer.peer)) {
            if *place != Place::Outside {
                following.tell(peer.id, ObserverStep::Left, out);
            }
        }
        self.release(which, out);
    }

    /// Disconnects observers. They find other masters.
    fn release(&mut self, which: impl Fn(&Peer) -> bool, out: &mut Effects) {
        self.observers.retain(|Observer { peer, .. }| {
            if which(peer) {
                out.push(Effect::Disconnect { peer: peer.id });
            }
            !which(peer)
        });
    }

    /// A hand-over begins, or is called off: the observers are told. Those that do not serve forward nothing.
    pub(super) fn pause(&mut self, epoch: Epoch, step: HandOverStep, out: &mut Effects) {
        for Observer { peer, place } in &mut self.observers {
            peer.paused = *place != Place::Serving && step == HandOverStep::Pause;
            if *place == Place::Serving {
                out.send(peer.id, Message::HandOver { epoch, step });
            }
        }
    }

    /// Whether nothing more comes from any observer that is heard.
    pub(super) fn is_paused(&self, core: &Core) -> bool {
        let waits = |peer: &Peer| !peer.paused && peer.is_heard(core);
        planted!(core.config, PauseWithoutObservers)
            || !self.observers.iter().any(|observer| waits(&observer.peer))
    }

    /// The leader hands over: takes out those that have nothing under way. They stay with this server.
    pub(super) fn take_paused(&mut self) -> Vec<ServerId> {
        let stays = |observer: &mut Observer| observer.place == Place::Serving && observer.peer.paused;
        self.observers.extract_if(.., stays).map(|observer| observer.peer.id).collect()
    }
}

/// The leader has let go, in its epoch: those observers go over with their master.
pub(super) fn go_over(observers: Vec<ServerId>, me: ServerId, epoch: Epoch, out: &mut Effects) {
    for observer in observers {
        out.send(observer, Message::HandOver { epoch, step: HandOverStep::Follow(me) });
    }
}

impl Leader {
    /// A follower says something of an observer.
    pub(super) fn on_observer(
        &mut self,
        core: &Core,
        from: ServerId,
        observer: ServerId,
        step: ObserverStep,
        out: &mut Effects,
    ) {
        let heard = self.masters.get(&observer) == Some(&from);
        match step {
            ObserverStep::Join if self.is_active() && core.knows(observer) && !core.is_voter(observer) => {
                match heard {
                    // What it had under way before it came back is lost.
                    true => out.push(Effect::LearnerLeft(observer)),
                    false => self.forget_learner(observer, out),
                }
                self.masters.insert(observer, from);
                let joined = ObserverStep::Joined { commit: core.commit };
                self.tell_master(from, observer, joined, out);
            }
            ObserverStep::Join => self.tell_master(from, observer, ObserverStep::Left, out),
            ObserverStep::Left if heard => {
                self.masters.remove(&observer);
                out.push(Effect::LearnerLeft(observer));
            }
            ObserverStep::Forward(bytes) if heard => {
                out.push(Effect::Forwarded { from: observer, bytes });
            }
            _ => {}
        }
    }

    /// Disconnects the observers that this server has fed, and whom the leader before it has not let go.
    pub(super) fn part_with_staying(&mut self, out: &mut Effects) {
        self.staying.drain(..).for_each(|peer| out.push(Effect::Disconnect { peer }));
    }

    /// A learner that was heard in some way is not any more in that way.
    pub(super) fn forget_learner(&mut self, learner: ServerId, out: &mut Effects) {
        let direct = self.peers.len();
        self.peers.retain(|peer| peer.id != learner);
        let master = self.masters.remove(&learner);
        if let Some(master) = master {
            self.tell_master(master, learner, ObserverStep::Left, out);
        }
        if self.peers.len() < direct || master.is_some() {
            out.push(Effect::LearnerLeft(learner));
        }
    }

    /// A follower feeds nobody any more.
    pub(super) fn forget_observers_of(&mut self, master: ServerId, out: &mut Effects) {
        self.masters.retain(|observer, of| {
            if *of == master {
                out.push(Effect::LearnerLeft(*observer));
            }
            *of != master
        });
    }

    fn tell_master(&self, master: ServerId, observer: ServerId, step: ObserverStep, out: &mut Effects) {
        out.send(master, Message::Observer { epoch: self.epoch(), observer, step });
    }

    /// Sends a learner an answer, if this server hears it, and the commits so far before that: the answer may
    /// depend on them.
    pub(super) fn answer(&mut self, core: &Core, to: ServerId, bytes: Bytes, out: &mut Effects) {
        let through = self.masters.get(&to).copied().unwrap_or(to);
        self.send_commits(core, |peer| peer.id == through, out);
        if self.peers.iter().any(|peer| peer.id == to) {
            out.send(to, Message::ToLearner(bytes));
        } else if let Some(master) = self.masters.get(&to) {
            self.tell_master(*master, to, ObserverStep::ToLearner(bytes), out);
        }
    }
}

/// What a voter offers an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    Master,
    Leader,
    /// It follows a leader, and feeds no observer, or not this one.
    Nothing,
}

/// What voters have offered an observer that looks for a master.
#[derive(Debug, Default)]
pub(super) struct Offers {
    offers: BTreeMap<ServerId, Offer>,
}

impl Offers {
    /// A server that does not look for a leader says what it is.
    pub(super) fn hear(&mut self, core: &mut Core, from: ServerId, heard: &Notification) {
        let offer = match heard.state {
            PeerState::ObserverMaster => Offer::Master,
            PeerState::Leading if heard.vote.leader == from && heard.serves => Offer::Leader,
            PeerState::Following if heard.serves => Offer::Nothing,
            // It may offer more in a moment.
            _ => return self.forget(from),
        };
        self.offers.insert(from, offer);
        if offer != Offer::Nothing {
            core.masters_since_ms.get_or_insert(core.now_ms);
        }
    }

    pub(super) fn forget(&mut self, peer: ServerId) {
        self.offers.remove(&peer);
    }

    /// Whose turn it is, once all voters have answered, or long enough after the first offer.
    pub(super) fn choose(&self, core: &mut Core, passed_over: Option<ServerId>) -> Option<ServerId> {
        let waited_ms = core.now_ms - core.masters_since_ms?;
        let with = |wanted: Offer| {
            let offers = self.offers.iter().filter(move |(_, offer)| **offer == wanted);
            offers.map(|(id, _)| *id).filter(move |id| Some(*id) != passed_over)
        };
        let mut turns: Vec<_> = with(Offer::Master).collect();
        let first = usize::try_from(core.me().0).unwrap_or_default();
        if !turns.is_empty() {
            let first = first % turns.len();
            turns.rotate_left(first);
        }
        turns.extend(with(Offer::Leader));
        let turn = core.masters_tried.checked_rem(turns.len())?;
        let chosen = turns[turn];
        let answered: ServerSet = self.offers.keys().copied().collect();
        let (voters, timeout_ms) = (*core.quorum.voters(), core.config.peer_timeout_ms);
        let mut others = core.connected.intersection(&voters);
        others.remove(chosen);
        let patience_ms = match self.offers.get(&chosen) {
            // A leader that serves has followers. They may need a moment until they do.
            Some(Offer::Leader) if !others.is_empty() => FOLLOWERS_TIMEOUTS * timeout_ms,
            Some(Offer::Leader) => timeout_ms,
            _ => core.config.finalize_wait_ms,
        };
        if !voters.is_subset(&answered) && waited_ms < patience_ms {
            return None;
        }
        core.masters_tried += 1;
        Some(chosen)
    }
}
