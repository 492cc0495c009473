//! Damage to the files of running servers, and the check that their scrub repairs it.
//!
//! A server may be damaged if a quorum of the others remembers everything, as for damage while it is down. A
//! voter without others may be damaged, too: its memory has everything. It does not crash then until its
//! scrub has repaired the damage.

use std::collections::HashMap;

use ringkeeper_engine::zab::Batch;
use ringkeeper_log::memory::MemoryDisk;
use ringkeeper_log::meta::MetaStore;
use ringkeeper_log::mutation::Mutation;
use ringkeeper_log::snapshot::Snapshots;
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_wire::Zxid;

use super::chaos::durable_copy;
use super::recovery::at_once;
use super::spoil::{self, spoil};
use super::violation::{Oracle, Violation};
use super::world::World;

/// Complete passes after which no damage is left: one may have read the place before it was damaged, the next
/// finds nothing any more, and until the one after it the files that the log has left are cleared away.
const PASSES: u64 = 3;

impl World {
    pub(super) fn damage_running(&mut self, index: usize) {
        let Some(process) = &self.servers[index].process else { return };
        let passes = process.scrub().passes;
        let alone = self.is_alone(index) && process.is_serving();
        if self.servers[index].slip.is_some() || !(alone || self.may_wipe(index)) {
            return;
        }
        let disk = self.servers[index].disk.clone();
        // An operation may be under way that is going to fail, and end the server.
        if alone && disk.struck() > self.servers[index].struck {
            return;
        }
        let size = self.faults.segment_size_bytes;
        let Some(damage) = spoil(&disk, spoil::Server::Running, size, &mut self.random) else { return };
        if alone {
            // A sync that fails would end the server.
            disk.clear_faults();
        }
        self.say(&format!("server {}, while it runs: {damage}", index + 1));
        self.report.damaged_running += 1;
        self.damaged(index);
        self.servers[index].damaged = Some(passes);
    }

    /// The files of a server were damaged.
    pub(super) fn damaged(&mut self, index: usize) {
        self.judge.has_losses = true;
        let server = &mut self.servers[index];
        server.damages += 1;
        server.damaged = Some(0);
        server.remembers = None;
    }

    fn is_alone(&self, index: usize) -> bool {
        self.voters.len() == 1 && self.voters.contains(self.servers[index].id)
    }

    /// Whether only the memory of a running server has everything.
    pub(super) fn is_shielded(&self, index: usize) -> bool {
        let server = &self.servers[index];
        server.process.is_some() && server.damaged.is_some() && self.is_alone(index)
    }

    /// A start has read the log and what it needed of the snapshots: nothing else may be damaged now.
    pub(super) fn look_at_damage(&mut self, index: usize) {
        let server = &mut self.servers[index];
        if server.damaged.is_some() && server.slip.is_none() {
            let whole = read_all(&server.disk, self.faults.segment_size_bytes).is_ok();
            server.damaged = (!whole).then_some(0);
        }
    }

    /// Checks what the scrub says, and that damage is gone once it says so.
    pub(super) fn check_repair(&mut self, index: usize) -> Result<(), Violation> {
        let server = &self.servers[index];
        let Some(process) = &server.process else { return Ok(()) };
        let (id, scrub) = (server.id, process.scrub());
        Oracle::Repair.check(server.damaged.is_some() || scrub.pending == 0, || {
            format!("the scrub of server {id} finds damage on a sound disk")
        })?;
        Oracle::Repair.check(process.found_by_scrub() <= server.damages, || {
            format!("the scrub of server {id} finds {scrub:?}, and there were {} damages", server.damages)
        })?;
        let Some(before) = server.damaged.filter(|before| scrub.passes >= before + PASSES) else {
            return Ok(());
        };
        if server.slip.is_some() {
            return Ok(());
        }
        let log = read_all(&server.disk, self.faults.segment_size_bytes).map_err(|fault| {
            Oracle::Repair
                .broken(format!("server {id}, {} passes after damage: {fault}", scrub.passes - before))
        })?;
        let lacks = log.lacks(process.acknowledged());
        Oracle::Repair.check(lacks.is_none(), || {
            format!("server {id} has acknowledged {lacks:?}, and its log does not say so after a repair")
        })?;
        self.servers[index].damaged = None;
        self.report.repaired += 1;
        if self.healed {
            self.upgrade();
        }
        Ok(())
    }
}

/// A log on a disk, and the snapshot before it.
struct Whole {
    base: Zxid,
    frames: HashMap<Zxid, Batch>,
}

impl Whole {
    /// An acknowledged batch that is neither in the log as it was acknowledged, nor covered by a snapshot.
    fn lacks<'a>(&self, acknowledged: &'a [Batch]) -> Option<&'a Batch> {
        acknowledged
            .iter()
            .filter(|batch| batch.last() > self.base)
            .find(|batch| self.frames.get(&batch.last()).is_none_or(|frame| frame.bytes() != batch.bytes()))
    }
}

/// Reads what is durable on a disk as the start of a server alone would, which gets nothing from others. An
/// error says why there is no start, or which snapshot is damaged.
fn read_all(disk: &MemoryDisk, segment_size_bytes: u64) -> Result<Whole, String> {
    let planted = Mutation::None.plant();
    let disk = durable_copy(disk);
    let read = at_once(async {
        let storage = disk.storage();
        let meta = MetaStore::peek(&storage).await.map_err(text)?.ok_or("no meta file")?;
        let options = Options { segment_size_bytes, ..Options::new(meta.identity()) };
        let mut frames = HashMap::new();
        let opened = Wal::open(storage.clone(), options, |frame| {
            frames.insert(frame.meta().last_zxid, Batch::from(frame));
            Ok(())
        });
        let (wal, _) = opened.await.map_err(text)?;
        let (base, snapshots) = (wal.base(), Snapshots::new(storage));
        snapshots.settle(base).await.map_err(text)?;
        let zxids = snapshots.list().await.map_err(text)?;
        for zxid in &zxids {
            snapshots.open(*zxid).await.map_err(text)?.verify().await.map_err(text)?;
        }
        if zxids.first().is_none_or(|newest| *newest < base.zxid) && base.zxid > Zxid::ZERO {
            return Err(format!("the log begins after {}, and the snapshots are {zxids:?}", base.zxid));
        }
        Ok(Whole { base: base.zxid, frames })
    });
    planted.plant();
    read.unwrap_or_else(|| Err("the disk does not answer".into()))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
