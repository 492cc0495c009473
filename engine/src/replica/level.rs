//! The feature level: what the members can do, when the leader raises the level, and how it is lowered.

use std::collections::BTreeSet;

use ringkeeper_wire::{ServerId, SessionId, Xid, Zxid};

use super::{Now, Output, Replica, Role};
use crate::acl::Acl;
use crate::level::{FeatureLevel, Level, LevelChange, NotLowered, TooHigh};
use crate::members::Members;
use crate::mutation::planted;
use crate::path;
use crate::tree::Owner;
use crate::txn::{Create, SetData, TxnOp, Update};

/// What the links were told last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    level: FeatureLevel,
    required: Level,
}

impl Replica {
    /// The level that a peer has to be able to do: that of the log, committed or not; and what the members
    /// need, whose log may be from before there were levels.
    #[must_use]
    pub fn required_level(&self) -> Level {
        self.pipeline.head().feature_level().level.max(self.need())
    }

    /// What the members need.
    fn need(&self) -> Level {
        let [before, after] = [self.committed().membership(), self.pipeline.head().membership()]
            .map(|known| known.map_or(self.configured_need, |known| known.need));
        before.max(after)
    }

    /// Whether this server can do the level of its log: it ends if it cannot.
    pub(super) fn check_level(&self) -> Result<(), TooHigh> {
        self.pipeline.head().feature_level().check(self.settings.newest_level)
    }

    /// Who has to be able to do a level before it is reached: the members, and until a change of them is
    /// committed those before and after. Nobody for a server alone.
    fn members(&self) -> BTreeSet<ServerId> {
        let members = [self.committed().membership(), self.pipeline.head().membership()]
            .map(|known| known.map_or(&self.configured, |known| &known.members));
        members.into_iter().flat_map(Members::iter).map(|server| ServerId(server.id)).collect()
    }

    /// What each member can do; `None` of one that is not connected.
    #[must_use]
    pub fn members_levels(&self) -> Vec<(ServerId, Option<Level>)> {
        let can = |server| match self.versions.get(&server) {
            _ if server == self.settings.server => Some(self.settings.newest_level),
            version => version.map(|version| Level::of_version(*version).min(self.settings.newest_level)),
        };
        self.members().into_iter().map(|server| (server, can(server))).collect()
    }

    /// A leader raises the level as far as all members can, unless it is held.
    pub(super) fn raise_level(&mut self, now: Now) {
        let FeatureLevel { level, held } = self.pipeline.head().feature_level();
        if held || level >= self.settings.newest_level {
            return;
        }
        let levels = self.members_levels().into_iter();
        let can = match planted!(self.settings.requests, RaiseWhileOneCannot) {
            true => levels.filter_map(|(_, can)| can).max(),
            // None is less than any level.
            false => levels.map(|(_, can)| can).min().flatten(),
        };
        if let Some(level) = can.filter(|can| *can > level) {
            self.order_level(now, FeatureLevel { level, held: false });
        }
    }

    /// Lowers the level, or lets it be raised again, if this server leads; the transaction that does so, if
    /// one is needed.
    ///
    /// # Errors
    /// Why it is not lowered.
    pub fn change_level(&mut self, now: Now, change: LevelChange) -> Result<Option<Zxid>, NotLowered> {
        let before = self.pipeline.head().feature_level();
        let after = match change {
            LevelChange::Raise => FeatureLevel { held: false, ..before },
            LevelChange::Lower(wanted) if wanted > before.level => {
                return Err(NotLowered::IsLower { now: before.level, wanted });
            }
            LevelChange::Lower(wanted) if self.need() > wanted => {
                return Err(NotLowered::InUse { needed: self.need(), wanted });
            }
            LevelChange::Lower(level) => FeatureLevel { level, held: true },
        };
        if after == before || !matches!(self.role, Role::Leading(_)) {
            return Ok(None);
        }
        self.order_level(now, after);
        Ok(Some(self.pipeline.last_executed()))
    }

    fn order_level(&mut self, now: Now, level: FeatureLevel) {
        let (path, data) = (path::FEATURE_LEVEL.into(), Some(level.to_string().into_bytes().into()));
        let head = self.pipeline.head();
        let update = match head.znode(path::FEATURE_LEVEL) {
            Some(_) => Update::SetData(SetData { path, data, version: 0 }),
            None => Update::Create(Create {
                path,
                data,
                acl: Acl::read_only(),
                raw_owner: Owner::None.to_raw(),
                parent_cversion: head
                    .znode(path::ZOOKEEPER)
                    .map_or(0, |parent| parent.persisted_cversion().wrapping_add(1)),
                reply_with_stat: false,
            }),
        };
        self.order(now, SessionId(0), Xid(0), TxnOp::Update(update));
    }

    /// Tells the links of the level, when the log says something else than before.
    pub(super) fn note_level(&mut self) {
        let now = Told { level: self.pipeline.head().feature_level(), required: self.required_level() };
        if self.level_told != now {
            self.level_told = now;
            let Told { level, required } = now;
            self.output(Output::Level { level, required });
        }
    }
}

#[cfg(test)]
mod tests;
