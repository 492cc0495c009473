//! What must hold in every run.

use std::collections::{BTreeMap, HashMap};

use ringkeeper_engine::zab::{LogPosition, Message, Quorum, ServerSet};
use ringkeeper_wire::{Epoch, ServerId, Zxid};

use crate::disk::Disk;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Violation {
    #[error("epoch {} has two leaders, {} and {}", .0.0, .1, .2)]
    TwoLeaders(Epoch, ServerId, ServerId),
    #[error("server {server} delivers {mark:?} as batch {index}, where {expected:?} was delivered before")]
    Order { server: ServerId, index: usize, mark: LogPosition, expected: LogPosition },
    #[error("server {server} delivers up to {upto}, which its log does not have")]
    DeliveredUnknown { server: ServerId, upto: Zxid },
    #[error("{mark:?} is delivered, durable only on {holders:?}")]
    NotDurable { mark: LogPosition, holders: ServerSet },
    #[error("server {server} appends {next} after {last:?}")]
    Gap { server: ServerId, last: LogPosition, next: Zxid },
    #[error("server {server} cuts its log after {after}, having delivered {delivered}")]
    DeliveredCut { server: ServerId, after: Zxid, delivered: Zxid },
    #[error("server {server} leads epoch {} without the committed {lost:?}", .epoch.0)]
    LostByLeader { server: ServerId, epoch: Epoch, lost: LogPosition },
    #[error("server {server} is confirmed as leader at {commit}, but {newest} was delivered before")]
    StaleConfirmation { server: ServerId, commit: Zxid, newest: Zxid },
    #[error("server {server} says {said} before its disk holds it")]
    SaidBeforeDurable { server: ServerId, said: String },
    #[error("server {server} promises itself to two leaders of epoch {}", .epoch.0)]
    PromisedTwice { server: ServerId, epoch: Epoch },
    #[error("server {server} forgets its promise: {before:?} after {after:?}")]
    PromiseBroken { server: ServerId, before: Epoch, after: Epoch },
    #[error("no progress after everything was healed: {0}")]
    Stuck(String),
}

/// Watches one run.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    /// Everything committed, in order: what any server has delivered.
    committed: Vec<LogPosition>,
    /// Which voters have ever had a batch on their disk.
    durable: BTreeMap<(Zxid, u32), ServerSet>,
    leaders: HashMap<Epoch, (ServerId, u64)>,
    confirmations: HashMap<u64, Zxid>,
    /// The last promise of each server: to which leader, in which of its own lives.
    promises: HashMap<ServerId, (Epoch, ServerId, u64)>,
}

impl Checker {
    pub(crate) fn committed(&self) -> &[LogPosition] {
        &self.committed
    }

    fn newest(&self) -> Zxid {
        self.committed.last().map_or(Zxid::ZERO, |mark| mark.zxid)
    }

    pub(crate) fn durable(&mut self, server: ServerId, mark: LogPosition) {
        self.durable.entry((mark.zxid, mark.checksum.0)).or_default().insert(server);
    }

    /// A server delivers its batch number `index`.
    pub(crate) fn deliver(
        &mut self,
        server: ServerId,
        index: usize,
        mark: LogPosition,
        quorum: &dyn Quorum,
    ) -> Result<(), Violation> {
        if let Some(expected) = self.committed.get(index).copied() {
            let agrees = expected == mark;
            return if agrees { Ok(()) } else { Err(Violation::Order { server, index, mark, expected }) };
        }
        let holders = self.durable.get(&(mark.zxid, mark.checksum.0)).copied().unwrap_or_default();
        if !quorum.is_quorum(&holders) {
            return Err(Violation::NotDurable { mark, holders });
        }
        self.committed.push(mark);
        Ok(())
    }

    /// A server begins to lead with this log.
    pub(crate) fn leads(
        &mut self,
        server: ServerId,
        incarnation: u64,
        epoch: Epoch,
        log: impl Iterator<Item = LogPosition>,
    ) -> Result<(), Violation> {
        let leader = *self.leaders.entry(epoch).or_insert((server, incarnation));
        if leader != (server, incarnation) {
            return Err(Violation::TwoLeaders(epoch, leader.0, server));
        }
        // An older leader may learn late that it was elected: it must have what came before its epoch.
        let before = self.committed.iter().take_while(|mark| mark.zxid.epoch() < epoch);
        let mut log = log;
        for expected in before {
            if log.next() != Some(*expected) {
                return Err(Violation::LostByLeader { server, epoch, lost: *expected });
            }
        }
        Ok(())
    }

    /// A server sends a message: what it claims must be on its disk, and a promise must be its only one.
    pub(crate) fn says(
        &mut self,
        server: ServerId,
        incarnation: u64,
        to: ServerId,
        message: &Message,
        disk: &Disk,
    ) -> Result<(), Violation> {
        let (durable, ack) = match message {
            Message::AckEpoch(ask) => (disk.epochs.accepted >= ask.epoch, None),
            Message::Ack(ack) => (true, Some(ack)),
            Message::Pong(pong) => (disk.epochs.accepted >= pong.ack.epoch, Some(&pong.ack)),
            _ => return Ok(()),
        };
        let adopted = ack.is_none_or(|ack| !ack.adopted || disk.epochs.current >= ack.epoch);
        let acked = ack.is_none_or(|ack| disk.last().zxid >= ack.upto);
        if !(durable && adopted && acked) {
            return Err(Violation::SaidBeforeDurable { server, said: format!("{message:?}") });
        }
        match message {
            Message::AckEpoch(ask) if ask.promise => self.promises_epoch(server, incarnation, to, ask.epoch),
            _ => Ok(()),
        }
    }

    fn promises_epoch(
        &mut self,
        server: ServerId,
        incarnation: u64,
        to: ServerId,
        epoch: Epoch,
    ) -> Result<(), Violation> {
        let promise = (epoch, to, incarnation);
        match self.promises.insert(server, promise) {
            Some(before) if before.0 >= epoch && before != promise => {
                Err(Violation::PromisedTwice { server, epoch })
            }
            _ => Ok(()),
        }
    }

    /// A disk is lost, and the promises on it.
    pub(crate) fn wiped(&mut self, server: ServerId) {
        self.promises.remove(&server);
    }

    pub(crate) fn asks_confirmation(&mut self, token: u64) {
        let newest = self.newest();
        self.confirmations.insert(token, newest);
    }

    pub(crate) fn confirmed(&mut self, server: ServerId, token: u64, commit: Zxid) -> Result<(), Violation> {
        match self.confirmations.remove(&token) {
            Some(newest) if newest > commit => Err(Violation::StaleConfirmation { server, commit, newest }),
            _ => Ok(()),
        }
    }
}
