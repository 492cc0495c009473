//! What the folders of a new ensemble hold before its first start.

use ringkeeper_engine::txn::{self, Session, Txn, TxnOp};
use ringkeeper_frame::{Batch, Checksum};
use ringkeeper_log::memory::MemoryDisk;
use ringkeeper_log::meta::{MetaStore, PersistedEpochs};
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_wire::{Epoch, ServerId, SessionId, Xid, Zxid};

use super::recovery::at_once;
use crate::random::Random;

/// When the transactions of a fork were proposed: before any clock of a run.
const FORK_TIME_MS: i64 = 1_699_999_000_000;
/// Longer than it takes until somebody leads.
const FORK_SESSION_TIMEOUT_MS: u32 = 3000;
const FORK_CLUSTER: u64 = 7;

/// How an ensemble begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Founding {
    /// With blank folders.
    Blank,
    /// With folders that the operator has declared new.
    KnownNew,
    /// With blank folders, of which a minority has the number and the epoch of a failed founding.
    Unfinished,
    /// Three voters with the remains of two unfinished leaderships. One led epoch 2 and logged a proposal
    /// alone. One has adopted epoch 2 and seen no proposal. One has never heard of epoch 2, and has proposals
    /// of epoch 1 that the others lack.
    Forked,
}

impl Founding {
    /// Fills the folders of all servers.
    pub(super) fn prepare(
        self,
        folders: &[(ServerId, MemoryDisk)],
        segment_size_bytes: u64,
        random: &mut Random,
    ) {
        match self {
            Self::Blank => {}
            Self::KnownNew => {
                let promises = PersistedEpochs { initialized: true, ..PersistedEpochs::default() };
                folders.iter().for_each(|(id, disk)| write(*id, disk, segment_size_bytes, promises, &[]));
            }
            Self::Unfinished => leave_over(folders, segment_size_bytes, random),
            Self::Forked => fork(folders, segment_size_bytes, random),
        }
    }
}

/// The folders of leaders that were elected one after another, drew a number each, and were adopted by
/// themselves only.
fn leave_over(folders: &[(ServerId, MemoryDisk)], segment_size_bytes: u64, random: &mut Random) {
    let known_new = random.chance(500);
    let first = random.index(folders.len());
    for place in 0..folders.len() {
        let (id, disk) = &folders[(first + place) % folders.len()];
        // Of four voters one, of five voters two.
        let drawn = place < (folders.len() - 1) / 2;
        let epoch = Epoch(if drawn { u32::try_from(place + 1).unwrap_or(1) } else { 0 });
        let promises = PersistedEpochs {
            cluster: if drawn { FORK_CLUSTER + u64::from(epoch.0) } else { 0 },
            accepted_epoch: epoch,
            current_epoch: epoch,
            initialized: drawn || known_new,
            ..PersistedEpochs::default()
        };
        write(*id, disk, segment_size_bytes, promises, &[]);
    }
}

fn fork(folders: &[(ServerId, MemoryDisk)], segment_size_bytes: u64, random: &mut Random) {
    let ahead = random.index(3);
    let behind = (ahead + 1 + random.index(2)) % 3;
    let mut log: Vec<Batch> = Vec::new();
    for counter in 1..=7 {
        let previous = log.last().map_or(Checksum::NONE, |batch| batch.end().checksum);
        log.push(proposal(Zxid::new(Epoch(1), counter), previous));
    }
    let alone = proposal(Zxid::new(Epoch(2), 1), log[4].end().checksum);
    for (server, (id, disk)) in folders.iter().enumerate() {
        let epoch = Epoch(if server == behind { 1 } else { 2 });
        let kept = if server == behind { 7 } else { 5 };
        let alone = (server == ahead).then_some(&alone);
        let batches: Vec<&Batch> = log[..kept].iter().chain(alone).collect();
        let promises = PersistedEpochs {
            cluster: FORK_CLUSTER,
            accepted_epoch: epoch,
            current_epoch: epoch,
            initialized: true,
            ..PersistedEpochs::default()
        };
        write(*id, disk, segment_size_bytes, promises, &batches);
    }
}

/// A session that begins.
fn proposal(zxid: Zxid, previous: Checksum) -> Batch {
    let session = Session { timeout_ms: FORK_SESSION_TIMEOUT_MS, password: [0; 16] };
    let begins = Txn {
        zxid,
        session: SessionId(zxid.to_wire()),
        xid: Xid(0),
        time_ms: FORK_TIME_MS + i64::from(100 * zxid.epoch().0 + zxid.counter()),
        op: TxnOp::CreateSession(session),
    };
    let mut frame = ringkeeper_frame::begin(0);
    txn::encode_batch([&begins], &mut frame);
    Batch::seal(zxid, zxid, previous, frame)
}

fn write(
    id: ServerId,
    disk: &MemoryDisk,
    segment_size_bytes: u64,
    promises: PersistedEpochs,
    log: &[&Batch],
) {
    disk.hold(false);
    at_once(async {
        let mut meta = MetaStore::open(disk.storage(), id, id.0).await.expect("a healthy disk");
        meta.promise(promises).await.expect("a healthy disk");
        let options = Options { segment_size_bytes, ..Options::new(meta.meta().identity()) };
        let opened = Wal::open(disk.storage(), options, |_| Ok(())).await;
        let (mut wal, _) = opened.expect("a healthy disk");
        let frames: Vec<&[u8]> = log.iter().map(|batch| &**batch.bytes()).collect();
        if !frames.is_empty() {
            wal.append(&frames).await.expect("a healthy disk");
        }
    })
    .expect("nothing is held back");
    disk.end_process();
}
