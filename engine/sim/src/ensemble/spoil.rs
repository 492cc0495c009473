//! Damages the files of a server, as a disk might.
//!
//! Only damage that a start can find is done to a log. Damage to the very last append, with nothing written
//! after it, looks like a crash in the middle of that append; the loss of the newest file looks like a crash
//! before it was created.
//!
//! Nothing happens to an empty log. A server that has lost one cannot know that there was nothing in it. If
//! it had a part in a founding that came to nothing, it passes for a member of another ensemble from then on.

use ringkeeper_log::memory::MemoryDisk;
use ringkeeper_log::meta::MetaStore;
use ringkeeper_log::mutation::Mutation;
use ringkeeper_log::salvage;
use ringkeeper_log::snapshot::Snapshots;
use ringkeeper_log::storage::{BLOCK, BLOCK_LEN, Storage};
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_wire::Zxid;

use super::chaos::durable_copy;
use super::recovery::at_once;
use crate::random::Random;

/// A kind of damage.
#[derive(Clone, Debug)]
enum Damage {
    /// A bit of a file is flipped.
    Flipped { file: String, offset: u64, mask: u8 },
    /// The last write to a block is lost.
    Lost { file: String, offset: u64 },
    /// A block was written over another one.
    Misdirected { from: (String, u64), to: (String, u64) },
    /// Files are missing.
    Gone { files: Vec<String> },
}

/// What happens to a server's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// Whatever can.
    Down,
    /// Only the contents change, of what is durable and not being written: the server has its files open.
    Running,
}

/// Damages a server's log or snapshots so that a start finds it. Returns a description, or `None` if nothing
/// was done.
pub(super) fn spoil(
    disk: &MemoryDisk,
    server: Server,
    segment_size_bytes: u64,
    random: &mut Random,
) -> Option<String> {
    // Whether a start finds the damage is decided by the log without planted faults.
    let planted = Mutation::None.plant();
    let damage = damage(disk, server, segment_size_bytes, random);
    planted.plant();
    damage
}

fn damage(disk: &MemoryDisk, server: Server, segment_size_bytes: u64, random: &mut Random) -> Option<String> {
    let options = options_of(disk, segment_size_bytes)?;
    let end = sound_end(disk, &options).filter(|end| *end > Zxid::ZERO)?;
    let names = disk.names();
    let of = |kind: &str| names.iter().filter(|name| name.starts_with(kind)).cloned().collect::<Vec<_>>();
    let (log, snapshots) = (of("log."), of("snapshot.0"));
    let durable = durable_copy(disk);
    let kinds = if server == Server::Down { 8 } else { 5 };
    for _ in 0..8 {
        let damage = draw(disk, &log, &snapshots, kinds, random);
        let spoiled = disk.fork();
        let settled = damage.block().is_none_or(|(file, offset)| {
            let [seen, kept] = [disk, &durable].map(|disk| block_of(disk, file, offset));
            kept.is_some() && kept == seen
        });
        if settled
            && damage.happens_to(&spoiled)
            && (damage.is_to_snapshots() || is_found(&spoiled, &options, end))
        {
            damage.happens_to(disk);
            return Some(format!("{damage:?}"));
        }
    }
    None
}

/// Draws one of the first `kinds` of damage.
fn draw(disk: &MemoryDisk, log: &[String], snapshots: &[String], kinds: u64, random: &mut Random) -> Damage {
    let kind = random.below(kinds);
    let files = if random.below(4) == 0 && !snapshots.is_empty() { snapshots } else { log };
    let mut place = || {
        let file = files[random.index(files.len())].clone();
        let len = disk.contents(&file).map_or(0, |bytes| bytes.len() as u64);
        let block = random.below((len / BLOCK).max(1));
        (file, block * BLOCK)
    };
    let (first, second) = (place(), place());
    match kind {
        // Most of a group header, of a frame's header and of what follows.
        0..=2 => {
            let (file, offset) = first;
            Damage::Flipped { file, offset: offset + random.below(200), mask: 1 << random.below(8) }
        }
        3 => Damage::Lost { file: first.0, offset: first.1 },
        4 => Damage::Misdirected { from: first, to: second },
        5 | 6 => Damage::Gone { files: vec![first.0] },
        _ => Damage::Gone { files: log.to_vec() },
    }
}

impl Damage {
    /// The file and the offset of the block that is changed.
    fn block(&self) -> Option<(&String, u64)> {
        match self {
            Self::Flipped { file, offset, .. } => Some((file, offset - offset % BLOCK)),
            Self::Lost { file, offset } | Self::Misdirected { to: (file, offset), .. } => {
                Some((file, *offset))
            }
            Self::Gone { .. } => None,
        }
    }

    fn is_to_snapshots(&self) -> bool {
        let file = match self {
            Self::Gone { files } => files.first(),
            _ => self.block().map(|(file, _)| file),
        };
        file.is_some_and(|file| file.starts_with("snapshot."))
    }

    /// Applies the damage; whether it changed anything.
    fn happens_to(&self, disk: &MemoryDisk) -> bool {
        match self {
            Self::Flipped { file, offset, mask } => disk.rot(file, *offset, *mask),
            Self::Lost { file, offset } => overwrite(disk, file, *offset, &[0; BLOCK_LEN]),
            Self::Misdirected { from, to } => {
                let block = block_of(disk, &from.0, from.1);
                from != to && block.is_some_and(|block| overwrite(disk, &to.0, to.1, &block))
            }
            Self::Gone { files } => at_once(async {
                let storage = disk.storage();
                for file in files {
                    storage.remove(file).await.ok()?;
                }
                storage.sync_dir().await.ok()
            })
            .flatten()
            .is_some(),
        }
    }
}

fn block_of(disk: &MemoryDisk, file: &str, offset: u64) -> Option<Vec<u8>> {
    let bytes = disk.contents(file)?;
    let at = usize::try_from(offset).ok()?;
    bytes.get(at..at + BLOCK_LEN).map(<[u8]>::to_vec)
}

fn overwrite(disk: &MemoryDisk, file: &str, offset: u64, block: &[u8]) -> bool {
    let Some(old) = block_of(disk, file, offset) else { return false };
    for (at, (old, new)) in (offset..).zip(old.iter().zip(block)) {
        disk.rot(file, at, old ^ new);
    }
    old != block
}

/// The end of the log, if a start would find nothing wrong with it.
fn sound_end(disk: &MemoryDisk, options: &Options) -> Option<Zxid> {
    let disk = durable_copy(disk);
    at_once(async {
        let meta = MetaStore::peek(&disk.storage()).await.ok().flatten()?;
        let meta = MetaStore::open(disk.storage(), meta.server_id, meta.salt).await.ok()?;
        let gone = salvage::is_gone(&disk.storage(), &meta).await.ok()?;
        let (wal, _) = Wal::open(disk.storage(), options.clone(), |_| Ok(())).await.ok()?;
        (!gone).then(|| wal.last().zxid)
    })
    .flatten()
}

/// Whether a start finds that the log went up to `end` and is damaged. If the newest file is lost and an
/// older one is damaged, a start finds the older damage alone.
fn is_found(disk: &MemoryDisk, options: &Options, end: Zxid) -> bool {
    let disk = durable_copy(disk);
    let storage = disk.storage();
    let found = at_once(async {
        let meta = MetaStore::peek(&storage).await.ok().flatten()?;
        let mut meta = MetaStore::open(disk.storage(), meta.server_id, meta.salt).await.ok()?;
        if salvage::is_gone(&storage, &meta).await.ok()? {
            return Some(true);
        }
        if Wal::open(disk.storage(), options.clone(), |_| Ok(())).await.is_ok() {
            return Some(false);
        }
        let salvaged = salvage::salvage(&storage, options, &Snapshots::new(disk.storage()), &mut meta).await;
        Some(salvaged.ok()?.last_zxid >= end)
    });
    found.flatten().unwrap_or(false)
}

fn options_of(disk: &MemoryDisk, segment_size_bytes: u64) -> Option<Options> {
    let disk = durable_copy(disk);
    let meta = at_once(MetaStore::peek(&disk.storage()))?.ok().flatten()?;
    Some(Options { segment_size_bytes, ..Options::new(meta.identity()) })
}
