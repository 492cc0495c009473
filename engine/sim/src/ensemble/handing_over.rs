//! Hand-overs of leadership: at any time beside all faults, and once without any, when nobody may notice.

use ringkeeper_engine::zab::{Input, Status};
use ringkeeper_wire::ServerId;

use super::client::Phase;
use super::violation::{Oracle, Violation};
use super::world::{FAULTS_UNTIL_US, World};

/// Time within which a hand-over without faults is complete, all servers serving.
const COMPLETE_US: u64 = 600_000;
/// Time from the end of all faults until what they had delayed has arrived.
const QUIET_US: u64 = 1_500_000;
/// Time from the end of all faults after which clients stop while a learner is behind. With small buffers, a
/// learner that is fed from the disk gets less than all clients write, and would never catch up.
const REST_AFTER_US: u64 = 20_000_000;

/// The hand-over without faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// Pending, until everybody is there.
    Due,
    /// This server hands over.
    Running { from: usize, until_us: u64 },
    /// It is complete, or the run has none.
    Over,
}

impl World {
    /// Asks the leader, or some server, to hand over: to some server or to whichever it takes.
    pub(super) fn hand_over(&mut self, index: usize) {
        let index = if self.random.chance(900) { self.leader().unwrap_or(index) } else { index };
        let named = ServerId(1 + self.random.below(self.servers.len() as u64));
        let wanted = Some(named).filter(|_| self.random.chance(500));
        if let Some(process) = &self.servers[index].process {
            self.report.hand_overs += 1;
            process.pump.input(Input::HandOver(wanted));
        }
    }

    /// Whether clients ask nothing, so that learners can catch up before the hand-over.
    pub(super) fn clients_rest(&self) -> bool {
        self.trial == Trial::Due && self.now_us > FAULTS_UNTIL_US + REST_AFTER_US
    }

    /// Hands over without faults. Returns whether this is still pending.
    pub(super) fn tries_hand_over(&mut self) -> Result<bool, Violation> {
        match self.trial {
            Trial::Due => {
                if let Some(from) = self.leader().filter(|_| self.is_steady()) {
                    self.say(&format!("server {} hands over without faults", from + 1));
                    self.trial = Trial::Running { from, until_us: self.now_us + COMPLETE_US };
                    if let Some(process) = &self.servers[from].process {
                        process.pump.input(Input::HandOver(None));
                    }
                }
            }
            Trial::Running { from, until_us } => {
                let follows = self.servers[from]
                    .process
                    .as_ref()
                    .is_some_and(|process| matches!(process.node().status(), Status::Following { .. }));
                if follows && self.leader().is_some() && self.all_serve() {
                    self.trial = Trial::Over;
                }
                Oracle::HandOver.check(self.now_us < until_us || self.trial == Trial::Over, || {
                    format!("server {} has not handed over: {}", from + 1, self.describe())
                })?;
            }
            Trial::Over => {}
        }
        Ok(self.trial != Trial::Over)
    }

    /// A server closes a connection: not that of a client, while leadership is handed over without faults.
    pub(super) fn check_hang_up(&self, link: u64) -> Result<(), Violation> {
        let client = self.clients.iter().find(|client| client.link == link && client.phase == Phase::Up);
        let Some(client) = client.filter(|_| matches!(self.trial, Trial::Running { .. })) else {
            return Ok(());
        };
        Err(Oracle::HandOver.broken(format!("client {} loses its connection", client.number)))
    }

    /// Whether all servers have everything they ever had, and all clients are connected.
    fn is_steady(&self) -> bool {
        let voters = self.servers.iter().filter(|server| self.voters.contains(server.id));
        let whole = voters.filter_map(|server| server.process.as_ref()).all(|process| {
            let node = process.node();
            let epochs = node.zab().durable_epochs();
            epochs.initialized && epochs.end_before_damage.0 == 0
        });
        let processes = self.servers.iter().filter_map(|server| server.process.as_ref());
        let synced = processes.map(|process| {
            let learners = process.node().zab().learners();
            learners.synced_followers + learners.synced_observers
        });
        let synced: usize = synced.sum();
        let mut clients = self.clients.iter().zip(&self.finished);
        let clients = clients.all(|(client, done)| *done == Some(false) || client.phase == Phase::Up);
        let paused_until_us = self.servers.iter().map(|server| server.paused_until_us).max();
        let quiet = self.now_us > FAULTS_UNTIL_US.max(paused_until_us.unwrap_or(0)) + QUIET_US;
        quiet && whole && self.all_serve() && clients && synced == self.servers.len() - 1
    }

    fn all_serve(&self) -> bool {
        self.servers.iter().all(|server| server.process.as_ref().is_some_and(|process| process.is_serving()))
    }
}
