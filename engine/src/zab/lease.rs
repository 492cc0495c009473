//! A lease: time in which a leader may answer readers without asking a quorum for each round of them.
//!
//! A learner that answers a heartbeat of an active leader may grant it a lease. For [`Config::lease_ms`] from
//! then on, it takes part in no election, so it promises itself to nobody else. The leader relies on three
//! quarters of that time, counted from when it sent the heartbeat, once a quorum has granted it. Any other
//! leader needs the promise of one server of that quorum, or of this leader itself, which knows that it
//! leads no more.
//!
//! The leader judges by the clock of its shell, which goes on in a pause of the process, and at a flush,
//! whose time was taken after the readers' requests were. So what is assumed of clocks: while one server's
//! clock counts three milliseconds, no other server's counts more than four, and it does not stand still
//! while a virtual machine does.
//!
//! Where a lease ends early, or must not be forgotten:
//!
//! - A leader that hands over, or says that it leads no more, has given its lease up: learners are free at
//!   once. While it hands over it does not use the lease, and afterwards it needs new grants.
//! - A change of the members, and a new epoch, need new grants: another quorum decides.
//! - What a server may have granted is on its disk before it grants it ([`Epochs::lease_ms`]). After a start
//!   it waits for so long.
//!
//! [`Config::lease_ms`]: super::Config::lease_ms
//! [`Epochs::lease_ms`]: super::Epochs::lease_ms

use std::collections::VecDeque;

use super::core::Core;
use crate::mutation::planted;

/// The leader's part.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// Rounds of heartbeats that no quorum has answered with grants, and when they were sent, oldest first;
    /// at most one for each millisecond.
    sent: VecDeque<(u64, u64)>,
    from_ms: u64,
    until_ms: u64,
}

impl Lease {
    /// A round of heartbeats goes out.
    pub(super) fn ask(&mut self, core: &Core, round: u64) {
        let (lease_ms, now_ms) = (core.config.lease_ms, now_ms(core));
        if lease_ms == 0 || self.sent.back().is_some_and(|(_, sent_ms)| *sent_ms == now_ms) {
            return;
        }
        while self.sent.pop_front_if(|(_, sent_ms)| *sent_ms + lease_ms <= now_ms).is_some() {}
        self.sent.push_back((round, now_ms));
    }

    /// A quorum has answered this round with grants.
    pub(super) fn renew(&mut self, core: &Core, round: u64) {
        let lease_ms = core.config.lease_ms;
        let relied_on_ms = if planted!(core.config, WholeLease) { lease_ms } else { lease_ms * 3 / 4 };
        while let Some((_, sent_ms)) = self.sent.pop_front_if(|(sent, _)| *sent <= round) {
            (self.from_ms, self.until_ms) = (sent_ms, sent_ms + relied_on_ms);
        }
    }

    /// Whether no quorum can follow another leader now.
    pub(super) fn is_held(&self, core: &Core) -> bool {
        (self.from_ms..self.until_ms).contains(&now_ms(core))
    }
}

/// The time by which the leader judges its lease.
fn now_ms(core: &Core) -> u64 {
    if planted!(core.config, LeaseOutlastsPause) { core.now_ms } else { core.shell_ms() }
}

impl Core {
    /// Grants the leader whose heartbeat came in a lease, once the disk remembers how long it may be. Returns
    /// how long it is; 0 if there is none.
    pub(super) fn grant_lease(&mut self) -> u64 {
        let lease_ms = self.config.lease_ms;
        self.epochs.lease_ms = self.epochs.lease_ms.max(lease_ms);
        if lease_ms == 0 || self.persisted.lease_ms < lease_ms {
            return 0;
        }
        self.leased_until_ms = self.now_ms + lease_ms;
        lease_ms
    }

    /// The leader that was granted a lease leads no more.
    pub(super) const fn release_lease(&mut self) {
        self.leased_until_ms = 0;
    }

    /// Whether this server still owes it to a leader to take part in no election. Otherwise the disk may
    /// forget a longer lease than is granted now.
    pub(super) fn owes_lease(&mut self) -> bool {
        if self.now_ms < self.leased_until_ms && !planted!(self.config, ElectDuringLease) {
            return true;
        }
        self.epochs.lease_ms = self.epochs.lease_ms.min(self.config.lease_ms);
        false
    }
}
