//! A server of an older build, which is upgraded and downgraded during the run, and the feature level beside
//! it: what the ensemble uses, all its members can do.

use std::collections::BTreeMap;

use ringkeeper_engine::level::{FeatureLevel, Level, LevelChange};
use ringkeeper_engine::members::Members;
use ringkeeper_engine::txn::{Create, SetData, Update};
use ringkeeper_wire::ServerId;

use super::violation::{Oracle, Violation};
use super::world::World;

/// What the committed order says of the level.
#[derive(Debug)]
pub(crate) struct Levels {
    now: FeatureLevel,
    members: Members,
    /// The most that each server could do at any time: a leader may not know yet that it has become older.
    could: BTreeMap<ServerId, Level>,
    pub(crate) changes: u64,
}

impl Levels {
    pub(crate) const fn new(members: Members) -> Self {
        Self {
            now: FeatureLevel { level: Level(0), held: false },
            members,
            could: BTreeMap::new(),
            changes: 0,
        }
    }

    pub(crate) const fn now(&self) -> FeatureLevel {
        self.now
    }

    /// A server begins to run, and can do this.
    pub(crate) fn begins(&mut self, server: ServerId, can: Level) {
        let could = self.could.entry(server).or_default();
        *could = (*could).max(can);
    }

    /// These are the members from now on.
    pub(crate) fn reconfigured(&mut self, members: Members) -> Result<(), Violation> {
        let (before, needed) = (Level::needed_by(&self.members), Level::needed_by(&members));
        Oracle::Level.check(needed <= self.now.level.max(before), || {
            format!("the members need level {needed}, and the ensemble has {}: {members:?}", self.now)
        })?;
        self.members = members;
        Ok(())
    }

    /// The level's znode is written.
    pub(crate) fn changed(&mut self, update: &Update) -> Result<(), Violation> {
        let (Update::Create(Create { data, .. }) | Update::SetData(SetData { data, .. })) = update else {
            return Err(Oracle::Level.broken(format!("the level changes by {update:?}")));
        };
        let text = String::from_utf8_lossy(data.as_deref().unwrap_or_default());
        let Ok(level) = text.parse::<FeatureLevel>() else {
            return Err(Oracle::Level.broken(format!("{text:?} is no level")));
        };
        let cannot = self
            .members
            .iter()
            .find(|member| self.could.get(&ServerId(member.id)).is_none_or(|could| *could < level.level));
        let raised = level.level > self.now.level;
        Oracle::Level.check(!raised || (cannot.is_none() && !self.now.held), || {
            format!(
                "the level is raised from {} to {level}, which a member never could: {cannot:?}",
                self.now
            )
        })?;
        let needed = Level::needed_by(&self.members);
        Oracle::Level.check(raised || needed <= level.level, || {
            format!("the level is lowered to {level}, and the members need level {needed}")
        })?;
        self.changes += 1;
        self.now = level;
        Ok(())
    }
}

impl World {
    /// The operator replaces the build of the server that has an older one at times.
    pub(super) fn replace_build(&mut self) {
        let Some((index, older)) = self.faults.older else { return };
        if self.is_shielded(index) {
            return;
        }
        let build = &mut self.servers[index].build;
        *build = if *build == older { Level::NEWEST } else { older };
        self.report.builds_replaced += 1;
        self.restart(index);
    }

    /// All servers get the newest build: one that only its memory keeps whole when its scrub has repaired the
    /// disk.
    pub(super) fn upgrade(&mut self) {
        let older = self.faults.older.filter(|(index, older)| self.servers[*index].build == *older);
        if let Some((index, _)) = older.filter(|(index, _)| !self.is_shielded(*index)) {
            self.servers[index].build = Level::NEWEST;
            self.restart(index);
        }
    }

    /// A build does not start on a folder whose level it cannot do: the operator puts the newer one back.
    pub(super) fn too_new(&mut self, index: usize, reason: &str) -> Result<(), Violation> {
        let server = &mut self.servers[index];
        Oracle::Level.check(std::mem::replace(&mut server.build, Level::NEWEST) < Level::NEWEST, || {
            format!("server {} is refused its own folder: {reason}", server.id)
        })?;
        self.say(&format!("server {} is not started: {reason}", index + 1));
        self.report.builds_refused += 1;
        self.restart(index);
        Ok(())
    }

    fn restart(&mut self, index: usize) {
        let build = self.servers[index].build;
        self.say(&format!("server {} is started with a build for level {build}", index + 1));
        self.fall(index);
        self.servers[index].disk.run_on();
        self.servers[index].disk.end_process();
        self.start_later(index);
    }

    /// The operator asks the leader for another level.
    pub(super) fn change_level(&mut self) {
        let change = match self.random.below(5) {
            level @ 0..=2 => LevelChange::Lower(Level(u8::try_from(level).unwrap_or_default())),
            _ => LevelChange::Raise,
        };
        let leader = self.leader().and_then(|leader| self.servers[leader].process.as_ref());
        let asked =
            leader.map(|leader| leader.pump.request(|replica, now| replica.change_level(now, change)));
        self.say(&format!("the leader is asked for {change:?}: {asked:?}"));
    }
}
