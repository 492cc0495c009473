//! The messages of the broadcast as bytes, by the rules of [`crate::codec`].

use bytes::Bytes;
use ringkeeper_frame::{Batch, Checksum, LogPosition, aligned};
use ringkeeper_wire::{ServerId, Zxid};

use super::message::{
    Ack, AckEpoch, Doubt, EnsembleId, HandOverStep, Known, LogOutline, Message, Notification, ObserverStep,
    PeerState, Ping, Pong, Propose, Standing, Sync, SyncPlan, Vote,
};
use super::quorum::ServerSet;
use crate::codec::{DecodeError, Reader, Writer};

mod kind {
    pub(super) const NOTIFICATION: u8 = 1;
    pub(super) const FOLLOWER_INFO: u8 = 2;
    pub(super) const NEW_EPOCH: u8 = 3;
    pub(super) const ACK_EPOCH: u8 = 4;
    pub(super) const SYNC: u8 = 5;
    pub(super) const SNAPSHOT_CHUNK: u8 = 6;
    pub(super) const PROPOSE: u8 = 7;
    pub(super) const ACK: u8 = 8;
    pub(super) const COMMIT: u8 = 9;
    pub(super) const PING: u8 = 10;
    pub(super) const PONG: u8 = 11;
    pub(super) const FORWARD: u8 = 12;
    pub(super) const TO_LEARNER: u8 = 13;
    pub(super) const SNAPSHOT_RECEIVED: u8 = 14;
    pub(super) const HAND_OVER: u8 = 15;
    /// A notification that says what is committed; version 7 of the messages has none.
    pub(super) const COMMITTED_NOTIFICATION: u8 = 16;
    /// Not in the messages of version 8.
    pub(super) const ABANDONED: u8 = 17;
    /// A message from a server whose voters stand in groups; version 8 has none.
    pub(super) const GROUPED: u8 = 18;
    /// A [`PONG`] that grants a lease; version 9 has none.
    pub(super) const LEASING_PONG: u8 = 19;
    /// Not in the messages of version 10.
    pub(super) const OBSERVER: u8 = 20;
}

impl Message {
    /// Appends the message without its payload, and returns the payload, which has to be written next.
    ///
    /// The shell writes a long payload from its own memory, so that a proposal is not copied for each
    /// learner.
    pub fn encode_header(&self, out: &mut Vec<u8>) -> Option<&Bytes> {
        let mut w = Writer(out);
        if let Some(EnsembleId { groups: groups @ 1.., .. }) = self.ensemble() {
            w.u8(kind::GROUPED).u64(*groups);
        }
        match self {
            Self::Notification(n) => w.notification(n),
            Self::FollowerInfo(standing) => {
                w.u8(kind::FOLLOWER_INFO).standing(standing);
            }
            Self::NewEpoch(epoch) => {
                w.u8(kind::NEW_EPOCH).epoch(*epoch);
            }
            Self::AckEpoch(ask) => w.ack_epoch(ask),
            Self::Sync(sync) => w.sync(sync),
            Self::Propose(propose) => {
                let Propose { epoch, prev, commit, batch } = propose;
                w.u8(kind::PROPOSE).epoch(*epoch).position(*prev).zxid(*commit);
                w.zxid(batch.first()).zxid(batch.last()).u32(batch.end().checksum.0);
                return Some(batch.bytes());
            }
            Self::Ack(ack) => {
                w.u8(kind::ACK).ack(*ack);
            }
            Self::Commit { epoch, upto } => {
                w.u8(kind::COMMIT).epoch(*epoch).zxid(*upto);
            }
            Self::Ping(ping) => {
                let Ping { epoch, round, commit, sent, active, members } = *ping;
                w.u8(kind::PING).epoch(epoch).u64(round).zxid(commit).zxid(sent).flag(active).set(members);
            }
            Self::Pong(Pong { round, ack, lease_ms: 0 }) => {
                w.u8(kind::PONG).u64(*round).ack(*ack);
            }
            Self::Pong(Pong { round, ack, lease_ms }) => {
                w.u8(kind::LEASING_PONG).u64(*lease_ms).u64(*round).ack(*ack);
            }
            Self::SnapshotChunk(bytes) => {
                w.u8(kind::SNAPSHOT_CHUNK);
                return Some(bytes);
            }
            Self::SnapshotReceived { zxid, upto } => {
                w.u8(kind::SNAPSHOT_RECEIVED).zxid(*zxid).u64(*upto);
            }
            Self::Forward(bytes) => {
                w.u8(kind::FORWARD);
                return Some(bytes);
            }
            Self::ToLearner(bytes) => {
                w.u8(kind::TO_LEARNER);
                return Some(bytes);
            }
            Self::Abandoned { epoch, after } => {
                w.u8(kind::ABANDONED).epoch(*epoch).zxid(*after);
            }
            Self::HandOver { epoch, step } => {
                w.u8(kind::HAND_OVER).epoch(*epoch).step(*step);
            }
            Self::Observer { epoch, observer, step } => {
                w.u8(kind::OBSERVER).epoch(*epoch).u64(observer.0);
                return w.observer_step(step);
            }
        }
        None
    }

    /// Appends the whole message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Some(payload) = self.encode_header(out) {
            out.extend_from_slice(payload);
        }
    }

    /// Reads the message that a frame holds.
    ///
    /// # Errors
    /// When the frame is not exactly one message.
    pub fn decode(frame: &[u8]) -> Result<Self, DecodeError> {
        let Some((&kind::GROUPED, grouped)) = frame.split_first() else { return Self::decode_plain(frame) };
        let mut r = Reader(grouped);
        let groups = r.u64()?;
        let mut message = Self::decode_plain(r.0)?;
        match message.ensemble_mut() {
            Some(ensemble) if groups > 0 => ensemble.groups = groups,
            _ => return Err(DecodeError::Value { field: "groups", value: groups }),
        }
        Ok(message)
    }

    fn decode_plain(frame: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader(frame);
        let message = match r.u8()? {
            kind::NOTIFICATION => Self::Notification(r.notification(Zxid::ZERO)?),
            kind::COMMITTED_NOTIFICATION => {
                let committed = r.committed()?;
                Self::Notification(r.notification(committed)?)
            }
            kind::FOLLOWER_INFO => Self::FollowerInfo(r.standing()?),
            kind::NEW_EPOCH => Self::NewEpoch(r.epoch()?),
            kind::ACK_EPOCH => Self::AckEpoch(r.ack_epoch()?),
            kind::SYNC => Self::Sync(r.sync()?),
            kind::SNAPSHOT_CHUNK => Self::SnapshotChunk(r.rest()),
            kind::SNAPSHOT_RECEIVED => Self::SnapshotReceived { zxid: r.zxid()?, upto: r.u64()? },
            kind::PROPOSE => Self::Propose(r.propose()?),
            kind::ACK => Self::Ack(r.ack()?),
            kind::COMMIT => Self::Commit { epoch: r.epoch()?, upto: r.zxid()? },
            kind::PING => Self::Ping(Ping {
                epoch: r.epoch()?,
                round: r.u64()?,
                commit: r.zxid()?,
                sent: r.zxid()?,
                active: r.flag("active")?,
                members: r.set()?,
            }),
            kind::PONG => Self::Pong(Pong { lease_ms: 0, round: r.u64()?, ack: r.ack()? }),
            kind::LEASING_PONG => Self::Pong(Pong { lease_ms: r.u64()?, round: r.u64()?, ack: r.ack()? }),
            kind::FORWARD => Self::Forward(r.rest()),
            kind::TO_LEARNER => Self::ToLearner(r.rest()),
            kind::ABANDONED => Self::Abandoned { epoch: r.epoch()?, after: r.zxid()? },
            kind::HAND_OVER => Self::HandOver { epoch: r.epoch()?, step: r.step()? },
            kind::OBSERVER => {
                let (epoch, observer) = (r.epoch()?, ServerId(r.u64()?));
                Self::Observer { epoch, observer, step: r.observer_step()? }
            }
            other => return Err(DecodeError::Value { field: "message kind", value: u64::from(other) }),
        };
        r.end()?;
        Ok(message)
    }

    /// The sender's ensemble, if the message names it.
    const fn ensemble(&self) -> Option<&EnsembleId> {
        match self {
            Self::Notification(told) => Some(&told.own.ensemble),
            Self::FollowerInfo(own) => Some(&own.ensemble),
            Self::Sync(sync) => Some(&sync.ensemble),
            _ => None,
        }
    }

    const fn ensemble_mut(&mut self) -> Option<&mut EnsembleId> {
        match self {
            Self::Notification(told) => Some(&mut told.own.ensemble),
            Self::FollowerInfo(own) => Some(&mut own.ensemble),
            Self::Sync(sync) => Some(&mut sync.ensemble),
            _ => None,
        }
    }
}

impl Writer<'_> {
    fn vote(&mut self, vote: Vote) -> &mut Self {
        self.epoch(vote.epoch).zxid(vote.zxid).u64(vote.leader.0)
    }

    fn ensemble(&mut self, ensemble: EnsembleId) -> &mut Self {
        self.u64(ensemble.cluster).u64(ensemble.fork).set(ensemble.voters)
    }

    fn set(&mut self, servers: ServerSet) -> &mut Self {
        servers.words().into_iter().for_each(|word| _ = self.u64(word));
        self
    }

    fn standing(&mut self, own: &Standing) -> &mut Self {
        self.epoch(own.accepted).epoch(own.current).flag(own.led_by.is_some());
        if let Some(leader) = own.led_by {
            self.u64(leader.0);
        }
        self.zxid(own.last).ensemble(own.ensemble).flag(own.initialized).flag(own.founds).u64(own.process)
    }

    fn ack(&mut self, ack: Ack) -> &mut Self {
        self.epoch(ack.epoch).zxid(ack.upto).u8(u8::from(ack.adopted) | (u8::from(!ack.has_users) << 1))
    }

    fn notification(&mut self, n: &Notification) {
        let state = match n.state {
            PeerState::Looking => 0,
            PeerState::Following => 1,
            PeerState::Leading => 2,
            PeerState::ObserverMaster => 3,
        };
        match n.committed {
            Zxid::ZERO => self.u8(kind::NOTIFICATION),
            committed => self.u8(kind::COMMITTED_NOTIFICATION).zxid(committed),
        };
        self.u8(state).u64(n.round).vote(n.vote).standing(&n.own).flag(n.serves);
        match n.doubt {
            None => self.u8(0),
            Some(Doubt::OldCopy(known)) => self.u8(1).epoch(known.epoch).zxid(known.zxid),
            Some(Doubt::Replaced) => self.u8(2),
            Some(Doubt::Contested) => self.u8(3),
        };
    }

    fn ack_epoch(&mut self, ask: &AckEpoch) {
        self.u8(kind::ACK_EPOCH)
            .epoch(ask.epoch)
            .flag(ask.promise)
            .epoch(ask.current)
            .zxid(ask.end_before_damage);
        self.u64(ask.serial).flag(ask.snapshot).zxid(ask.log.floor);
        let newest = ask.log.ends.len().saturating_sub(LogOutline::ENDS_MAX);
        for end in ask.log.ends.iter().skip(newest) {
            self.position(*end);
        }
    }

    fn step(&mut self, step: HandOverStep) {
        match step {
            HandOverStep::Pause => self.u8(0),
            HandOverStep::Paused => self.u8(1),
            HandOverStep::Resume => self.u8(2),
            HandOverStep::Lead { upto } => self.u8(3).zxid(upto),
            HandOverStep::Follow(leader) => self.u8(4).u64(leader.0),
        };
    }

    fn observer_step<'m>(&mut self, step: &'m ObserverStep) -> Option<&'m Bytes> {
        let (kind, payload) = match step {
            ObserverStep::Join => (0, None),
            ObserverStep::Joined { commit } => {
                self.u8(1).zxid(*commit);
                return None;
            }
            ObserverStep::Left => (2, None),
            ObserverStep::Forward(bytes) => (3, Some(bytes)),
            ObserverStep::ToLearner(bytes) => (4, Some(bytes)),
        };
        self.u8(kind);
        payload
    }

    fn sync(&mut self, sync: &Sync) {
        let Sync { epoch, serial, plan, history, ensemble } = *sync;
        self.u8(kind::SYNC).epoch(epoch).u64(serial).zxid(history).ensemble(ensemble);
        match plan {
            SyncPlan::Diff => self.u8(0),
            SyncPlan::Truncate(after) => self.u8(1).zxid(after),
            SyncPlan::Snapshot(last) => self.u8(2).position(last),
        };
    }
}

impl Reader<'_> {
    fn vote(&mut self) -> Result<Vote, DecodeError> {
        Ok(Vote { epoch: self.epoch()?, zxid: self.zxid()?, leader: ServerId(self.u64()?) })
    }

    fn ensemble(&mut self) -> Result<EnsembleId, DecodeError> {
        Ok(EnsembleId { cluster: self.u64()?, fork: self.u64()?, voters: self.set()?, groups: 0 })
    }

    fn set(&mut self) -> Result<ServerSet, DecodeError> {
        Ok(ServerSet::from_words([self.u64()?, self.u64()?, self.u64()?, self.u64()?]))
    }

    fn standing(&mut self) -> Result<Standing, DecodeError> {
        let (accepted, current) = (self.epoch()?, self.epoch()?);
        let led_by = if self.flag("leader known")? { Some(ServerId(self.u64()?)) } else { None };
        Ok(Standing {
            accepted,
            current,
            led_by,
            last: self.zxid()?,
            ensemble: self.ensemble()?,
            initialized: self.flag("initialized")?,
            founds: self.flag("founds")?,
            process: self.u64()?,
        })
    }

    fn doubt(&mut self) -> Result<Option<Doubt>, DecodeError> {
        Ok(match self.u8()? {
            0 => None,
            1 => Some(Doubt::OldCopy(Known { epoch: self.epoch()?, zxid: self.zxid()? })),
            2 => Some(Doubt::Replaced),
            3 => Some(Doubt::Contested),
            other => return Err(DecodeError::Value { field: "doubt", value: u64::from(other) }),
        })
    }

    fn ack(&mut self) -> Result<Ack, DecodeError> {
        let (epoch, upto) = (self.epoch()?, self.zxid()?);
        match self.u8()? {
            flags @ 0..4 => Ok(Ack { epoch, upto, adopted: flags & 1 != 0, has_users: flags & 2 == 0 }),
            other => Err(DecodeError::Value { field: "flags of an ack", value: u64::from(other) }),
        }
    }

    fn rest(&mut self) -> Bytes {
        aligned(std::mem::take(&mut self.0))
    }

    fn committed(&mut self) -> Result<Zxid, DecodeError> {
        match self.zxid()? {
            Zxid::ZERO => Err(DecodeError::Value { field: "committed", value: 0 }),
            committed => Ok(committed),
        }
    }

    fn notification(&mut self, committed: Zxid) -> Result<Notification, DecodeError> {
        let state = match self.u8()? {
            0 => PeerState::Looking,
            1 => PeerState::Following,
            2 => PeerState::Leading,
            3 => PeerState::ObserverMaster,
            other => return Err(DecodeError::Value { field: "state", value: u64::from(other) }),
        };
        Ok(Notification {
            state,
            round: self.u64()?,
            vote: self.vote()?,
            own: self.standing()?,
            serves: self.flag("serves")?,
            committed,
            doubt: self.doubt()?,
        })
    }

    fn ack_epoch(&mut self) -> Result<AckEpoch, DecodeError> {
        Ok(AckEpoch {
            epoch: self.epoch()?,
            promise: self.flag("promise")?,
            current: self.epoch()?,
            end_before_damage: self.zxid()?,
            serial: self.u64()?,
            snapshot: self.flag("snapshot")?,
            log: self.outline()?,
        })
    }

    fn outline(&mut self) -> Result<LogOutline, DecodeError> {
        let floor = self.zxid()?;
        let mut ends: Vec<LogPosition> = Vec::new();
        while !self.0.is_empty() {
            let end = self.position()?;
            if ends.len() == LogOutline::ENDS_MAX {
                return Err(DecodeError::Value { field: "epochs", value: ends.len() as u64 + 1 });
            }
            if ends.last().is_some_and(|last| last.zxid >= end.zxid) {
                return Err(DecodeError::Value { field: "end of an epoch", value: end.zxid.0 });
            }
            ends.push(end);
        }
        if ends.is_empty() {
            return Err(DecodeError::Value { field: "epochs", value: 0 });
        }
        Ok(LogOutline { floor, ends })
    }

    fn sync(&mut self) -> Result<Sync, DecodeError> {
        let (epoch, serial) = (self.epoch()?, self.u64()?);
        let (history, ensemble) = (self.zxid()?, self.ensemble()?);
        let plan = match self.u8()? {
            0 => SyncPlan::Diff,
            1 => SyncPlan::Truncate(self.zxid()?),
            2 => SyncPlan::Snapshot(self.position()?),
            other => return Err(DecodeError::Value { field: "plan", value: u64::from(other) }),
        };
        Ok(Sync { epoch, serial, plan, history, ensemble })
    }

    fn step(&mut self) -> Result<HandOverStep, DecodeError> {
        Ok(match self.u8()? {
            0 => HandOverStep::Pause,
            1 => HandOverStep::Paused,
            2 => HandOverStep::Resume,
            3 => HandOverStep::Lead { upto: self.zxid()? },
            4 => HandOverStep::Follow(ServerId(self.u64()?)),
            other => {
                return Err(DecodeError::Value { field: "step of a hand-over", value: u64::from(other) });
            }
        })
    }

    fn observer_step(&mut self) -> Result<ObserverStep, DecodeError> {
        Ok(match self.u8()? {
            0 => ObserverStep::Join,
            1 => ObserverStep::Joined { commit: self.zxid()? },
            2 => ObserverStep::Left,
            3 => ObserverStep::Forward(self.rest()),
            4 => ObserverStep::ToLearner(self.rest()),
            other => {
                return Err(DecodeError::Value { field: "step of an observer", value: u64::from(other) });
            }
        })
    }

    fn propose(&mut self) -> Result<Propose, DecodeError> {
        let (epoch, prev, commit) = (self.epoch()?, self.position()?, self.zxid()?);
        let (first, last, checksum) = (self.zxid()?, self.zxid()?, Checksum(self.u32()?));
        let batch = Batch::new(first, last, checksum, self.rest())?;
        Ok(Propose { epoch, prev, commit, batch })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ringkeeper_wire::{Epoch, Zxid};

    use super::*;

    fn zxid() -> impl Strategy<Value = Zxid> {
        any::<u64>().prop_map(Zxid)
    }

    fn epoch() -> impl Strategy<Value = Epoch> {
        any::<u32>().prop_map(Epoch)
    }

    fn mark() -> impl Strategy<Value = LogPosition> {
        (zxid(), any::<u32>()).prop_map(|(zxid, checksum)| LogPosition { zxid, checksum: Checksum(checksum) })
    }

    fn payload() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..64).prop_map(Bytes::from)
    }

    fn vote() -> impl Strategy<Value = Vote> {
        (epoch(), zxid(), any::<u64>()).prop_map(|(epoch, zxid, id)| Vote {
            epoch,
            zxid,
            leader: ServerId(id),
        })
    }

    fn ensemble() -> impl Strategy<Value = EnsembleId> {
        let groups = prop_oneof![Just(0), any::<u64>()];
        (any::<u64>(), any::<u64>(), any::<[u64; 4]>(), groups).prop_map(|(cluster, fork, voters, groups)| {
            EnsembleId { cluster, fork, voters: ServerSet::from_words(voters), groups }
        })
    }

    fn ack() -> impl Strategy<Value = Ack> {
        (epoch(), zxid(), any::<bool>(), any::<bool>()).prop_map(|(epoch, upto, adopted, has_users)| Ack {
            epoch,
            upto,
            adopted,
            has_users,
        })
    }

    fn batch() -> impl Strategy<Value = Batch> {
        (epoch(), 1..1000u32, 0..1000u32, any::<u32>(), payload()).prop_map(
            |(epoch, first, more, checksum, bytes)| {
                let last = Zxid::new(epoch, first + more);
                Batch::new(Zxid::new(epoch, first), last, Checksum(checksum), bytes).unwrap()
            },
        )
    }

    fn set() -> impl Strategy<Value = ServerSet> {
        any::<[u64; 4]>().prop_map(ServerSet::from_words)
    }

    fn standing() -> impl Strategy<Value = Standing> {
        let leader = any::<Option<u64>>().prop_map(|id| id.map(ServerId));
        (epoch(), epoch(), leader, zxid(), ensemble(), any::<bool>(), any::<bool>(), any::<u64>()).prop_map(
            |(accepted, current, led_by, last, ensemble, initialized, founds, process)| Standing {
                accepted,
                current,
                led_by,
                last,
                ensemble,
                initialized,
                founds,
                process,
            },
        )
    }

    fn doubt() -> impl Strategy<Value = Option<Doubt>> {
        let known = (epoch(), zxid()).prop_map(|(epoch, zxid)| Doubt::OldCopy(Known { epoch, zxid }));
        let (replaced, contested) = (Just(Some(Doubt::Replaced)), Just(Some(Doubt::Contested)));
        prop_oneof![Just(None), known.prop_map(Some), replaced, contested]
    }

    fn notification() -> impl Strategy<Value = Notification> {
        let state = prop_oneof![
            Just(PeerState::Looking),
            Just(PeerState::Following),
            Just(PeerState::Leading),
            Just(PeerState::ObserverMaster),
        ];
        (state, any::<u64>(), vote(), standing(), any::<bool>(), zxid(), doubt()).prop_map(
            |(state, round, vote, own, serves, committed, doubt)| Notification {
                state,
                round,
                vote,
                own,
                serves,
                committed,
                doubt,
            },
        )
    }

    fn ack_epoch() -> impl Strategy<Value = AckEpoch> {
        let log = (zxid(), prop::collection::btree_map(any::<u64>(), any::<u32>(), 1..8)).prop_map(
            |(floor, ends)| LogOutline {
                floor,
                ends: ends
                    .into_iter()
                    .map(|(z, checksum)| LogPosition { zxid: Zxid(z), checksum: Checksum(checksum) })
                    .collect(),
            },
        );
        (epoch(), any::<bool>(), epoch(), zxid(), log, any::<u64>(), any::<bool>()).prop_map(
            |(epoch, promise, current, end_before_damage, log, serial, snapshot)| AckEpoch {
                epoch,
                promise,
                current,
                end_before_damage,
                log,
                serial,
                snapshot,
            },
        )
    }

    fn sync() -> impl Strategy<Value = Sync> {
        let plan = prop_oneof![
            Just(SyncPlan::Diff),
            zxid().prop_map(SyncPlan::Truncate),
            mark().prop_map(SyncPlan::Snapshot),
        ];
        (epoch(), any::<u64>(), plan, zxid(), ensemble()).prop_map(
            |(epoch, serial, plan, history, ensemble)| Sync { epoch, serial, plan, history, ensemble },
        )
    }

    fn step() -> impl Strategy<Value = HandOverStep> {
        prop_oneof![
            Just(HandOverStep::Pause),
            Just(HandOverStep::Paused),
            Just(HandOverStep::Resume),
            zxid().prop_map(|upto| HandOverStep::Lead { upto }),
            any::<u64>().prop_map(|leader| HandOverStep::Follow(ServerId(leader))),
        ]
    }

    fn observer_step() -> impl Strategy<Value = ObserverStep> {
        prop_oneof![
            Just(ObserverStep::Join),
            zxid().prop_map(|commit| ObserverStep::Joined { commit }),
            Just(ObserverStep::Left),
            payload().prop_map(ObserverStep::Forward),
            payload().prop_map(ObserverStep::ToLearner),
        ]
    }

    fn message() -> impl Strategy<Value = Message> {
        prop_oneof![
            (epoch(), any::<u64>(), observer_step()).prop_map(|(epoch, observer, step)| {
                Message::Observer { epoch, observer: ServerId(observer), step }
            }),
            (epoch(), step()).prop_map(|(epoch, step)| Message::HandOver { epoch, step }),
            (epoch(), zxid()).prop_map(|(epoch, after)| Message::Abandoned { epoch, after }),
            notification().prop_map(Message::Notification),
            standing().prop_map(Message::FollowerInfo),
            epoch().prop_map(Message::NewEpoch),
            ack_epoch().prop_map(Message::AckEpoch),
            sync().prop_map(Message::Sync),
            payload().prop_map(Message::SnapshotChunk),
            (zxid(), any::<u64>()).prop_map(|(zxid, upto)| Message::SnapshotReceived { zxid, upto }),
            (epoch(), mark(), zxid(), batch()).prop_map(|(epoch, prev, commit, batch)| {
                Message::Propose(Propose { epoch, prev, commit, batch })
            }),
            ack().prop_map(Message::Ack),
            (epoch(), zxid()).prop_map(|(epoch, upto)| Message::Commit { epoch, upto }),
            (epoch(), any::<u64>(), zxid(), zxid(), any::<bool>(), set()).prop_map(
                |(epoch, round, commit, sent, active, members)| Message::Ping(Ping {
                    epoch,
                    round,
                    commit,
                    sent,
                    active,
                    members
                })
            ),
            (any::<u64>(), ack(), any::<u64>()).prop_map(|(round, ack, lease_ms)| Message::Pong(Pong {
                round,
                ack,
                lease_ms
            })),
            payload().prop_map(Message::Forward),
            payload().prop_map(Message::ToLearner),
        ]
    }

    proptest! {
        #[test]
        fn a_message_survives_the_wire(message in message()) {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            prop_assert_eq!(Message::decode(&bytes), Ok(message));
        }

        #[test]
        fn what_decodes_is_what_encodes(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..21u8) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok(message) = Message::decode(&bytes) {
                let mut again = Vec::new();
                message.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }

        #[test]
        fn a_damaged_message_is_an_error_or_another_message(
            message in message(), at in any::<prop::sample::Index>(), bit in 0..8u8, cut in any::<bool>(),
        ) {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let at = at.index(bytes.len());
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1 << bit;
            }
            prop_assert_ne!(Message::decode(&bytes), Ok(message));
        }
    }
}
