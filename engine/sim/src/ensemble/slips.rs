//! Operators' slips: a server is started as something that its folder is not. It has to be refused, or to do
//! no harm; nothing acknowledged is lost in silence.

use std::fmt;

use ringkeeper_engine::zab::ServerSet;
use ringkeeper_host::identity::{FolderOf, Mismatch, Wanted};
use ringkeeper_log::memory::MemoryDisk;
use ringkeeper_log::meta::PersistedEpochs;
use ringkeeper_wire::ServerId;

use super::chaos::{durable_copy, promises_on};
use super::violation::{Oracle, Violation};
use super::world::World;

/// Ids of servers that a wrong list names, and that there are not.
const NOBODY: [ServerId; 2] = [ServerId(8), ServerId(9)];

/// What is wrong with the next start of a server.
pub(super) enum Slip {
    /// It is started without the ensemble's configuration, as a server alone.
    Alone,
    /// Its configuration has another list of voters.
    Voters(ServerSet),
    /// It is started on a copy of another server's folder: a wrong folder, or a wrong id. Its own is put
    /// aside.
    Folder { aside: MemoryDisk },
}

impl fmt::Display for Slip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => f.write_str("alone"),
            Self::Voters(voters) => write!(f, "with the voters {voters:?}"),
            Self::Folder { .. } => f.write_str("on the copy of another one's folder"),
        }
    }
}

impl World {
    /// The role in which a server is started next.
    pub(super) fn wanted(&self, index: usize) -> Wanted {
        let id = Some(self.servers[index].id);
        let (id, voters) = match &self.servers[index].slip {
            Some(Slip::Alone) => (None, ServerSet::EMPTY),
            Some(Slip::Voters(voters)) => (id, *voters),
            Some(Slip::Folder { .. }) | None => (id, self.voters),
        };
        let groups = if self.has_own_list(index) { self.quorums().groups() } else { 0 };
        Wanted { application: FolderOf::Server, id, voters, groups }
    }

    /// Whether a server is started with the ensemble's configuration.
    pub(super) fn has_own_list(&self, index: usize) -> bool {
        !matches!(self.servers[index].slip, Some(Slip::Alone | Slip::Voters(_)))
    }

    /// Whether a server runs, or is about to, without connections to others.
    pub(super) fn runs_alone(&self, index: usize) -> bool {
        matches!(self.servers[index].slip, Some(Slip::Alone))
    }

    /// The next start of a server goes wrong. One slip at a time: contradictory ones are no slips any more.
    /// Only if the folder knows its ensemble, since one that does not belongs to nobody.
    pub(super) fn slip(&mut self, index: usize) {
        let slipped = self.servers.iter().any(|server| server.slip.is_some());
        if slipped || self.voters.len() < 3 || !self.knows_its_ensemble(index) {
            return;
        }
        let id = self.servers[index].id;
        let other = (index + 1 + self.random.index(self.servers.len() - 1)) % self.servers.len();
        let slip = match self.random.below(3) {
            0 => Slip::Alone,
            1 => Slip::Voters(self.wrong_list(id)),
            _ if self.knows_its_ensemble(other) && self.servers[other].damaged.is_none() => {
                let copy = durable_copy(&self.servers[other].disk);
                self.servers[index].disk.set_capacity_bytes(None);
                Slip::Folder { aside: self.replace_disk(index, copy) }
            }
            _ => return,
        };
        self.say(&format!("server {id} is about to be started {slip}"));
        self.report.slips += 1;
        self.judge.lists_differ |= matches!(slip, Slip::Voters(_));
        self.servers[index].slip = Some(slip);
    }

    fn knows_its_ensemble(&self, index: usize) -> bool {
        let PersistedEpochs { voters, cluster, .. } = promises_on(&durable_copy(&self.servers[index].disk));
        cluster != 0 && ServerSet::from_words(voters) == self.voters
    }

    /// A list with some of the others missing, and perhaps with more.
    fn wrong_list(&mut self, id: ServerId) -> ServerSet {
        let mut list: ServerSet =
            self.voters.iter().filter(|voter| *voter == id || self.random.chance(500)).collect();
        for nobody in NOBODY {
            if self.random.chance(200) {
                list.insert(nobody);
            }
        }
        list
    }

    /// The start of a server was refused: the operator corrects the slip.
    pub(super) fn refused(&mut self, index: usize, mismatch: Mismatch) -> Result<(), Violation> {
        let id = self.servers[index].id;
        Oracle::Sound.check(self.servers[index].slip.is_some(), || {
            format!("server {id} is refused its own folder: {mismatch}")
        })?;
        self.say(&format!("server {id} is not started: {mismatch}"));
        self.report.slips_refused += 1;
        self.fall(index);
        self.servers[index].disk.run_on();
        self.servers[index].disk.end_process();
        self.correct(index);
        self.start_later(index);
        Ok(())
    }

    /// Corrects a slip, for the next start.
    pub(super) fn correct(&mut self, index: usize) {
        if let Some(Slip::Folder { aside }) = self.servers[index].slip.take() {
            self.replace_disk(index, aside);
        }
    }

    /// Corrects a slip, and ends what was started with it.
    pub(super) fn correct_at_once(&mut self, index: usize) {
        if self.servers[index].slip.is_some() {
            self.fall(index);
            self.servers[index].disk.run_on();
            self.servers[index].disk.end_process();
            self.correct(index);
        }
    }

    /// Puts another disk into a server's machine; the one that was there.
    fn replace_disk(&mut self, index: usize, disk: MemoryDisk) -> MemoryDisk {
        let server = &mut self.servers[index];
        server.machine.replace_disk(disk.clone());
        server.struck = disk.struck();
        std::mem::replace(&mut server.disk, disk)
    }
}
