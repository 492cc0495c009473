//! Threads that check and read the blocks of a snapshot, so that a start uses all cores.
//!
//! ```text
//! executor: reads blocks from the disk ──▶ threads: checksum, archive, znodes ──▶ executor: takes them in their order
//! ```
//!
//! At most [`BLOCKS_EACH`] blocks for each thread are under way. A block's memory goes around with it and is
//! used again.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::thread;

use async_channel::{Receiver, Sender};
use ringkeeper_engine::snapshot::{BlockReader, DecodeError, Rows};
use ringkeeper_log::frame::AlignedBuf;
use ringkeeper_log::snapshot::{Block, SnapshotError};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// More than this do not help: the executor has its own part of the work.
const THREADS_MAX: usize = 4;

/// Blocks under way for each thread: one that it has, and one for it to go on with.
const BLOCKS_EACH: usize = 2;

/// The cores that the process was given. A thread that an executor starts begins on that executor's core
/// alone.
static CORES: OnceLock<CpuSet> = OnceLock::new();

/// Notes the cores that the process may use. To be called before executors are pinned to theirs.
pub(super) fn note_cores() {
    if let Ok(cores) = sched_getaffinity(None) {
        let _ = CORES.set(cores);
    }
}

/// What became of a block.
pub(super) struct Read {
    pub(super) rows: Result<Rows, Unreadable>,
    /// For the next block.
    pub(super) memory: AlignedBuf,
}

/// Why a block is of no use.
pub(super) enum Unreadable {
    Damaged(SnapshotError),
    Malformed(DecodeError),
}

/// Threads that read blocks of one snapshot. They end when this is dropped.
pub(super) struct Crew {
    blocks: Sender<Block>,
    reads: Receiver<(u32, Read)>,
    /// Those that came before their turn.
    early: BTreeMap<u32, Read>,
    under_way: usize,
    under_way_max: usize,
}

impl Crew {
    /// As many threads as the process has cores, within reason.
    pub(super) fn muster(reader: &BlockReader) -> Self {
        let cores = CORES.get().copied();
        let threads = cores.map_or(1, |cores| cores.count() as usize).clamp(1, THREADS_MAX);
        let (blocks, work) = async_channel::unbounded();
        let (done, reads) = async_channel::unbounded();
        for _ in 0..threads {
            let (work, done, reader) = (work.clone(), done.clone(), reader.clone());
            thread::spawn(move || {
                // Where that fails it is slower, not wrong.
                let _ = cores.map(|cores| sched_setaffinity(None, &cores));
                read_all(&work, &done, &reader);
            });
        }
        let under_way_max = threads * BLOCKS_EACH;
        Self { blocks, reads, early: BTreeMap::new(), under_way: 0, under_way_max }
    }

    /// Whether one more block should be given to [`Self::read`] before the next is taken.
    pub(super) fn has_room(&self) -> bool {
        self.under_way < self.under_way_max
    }

    /// Has a block read.
    pub(super) fn read(&mut self, block: Block) {
        self.under_way += 1;
        self.blocks.try_send(block).expect("the threads wait for blocks for as long as there can be any");
    }

    /// What became of block `ordinal`, which is under way.
    pub(super) async fn take(&mut self, ordinal: u32) -> Read {
        loop {
            if let Some(read) = self.early.remove(&ordinal) {
                self.under_way -= 1;
                return read;
            }
            let (ordinal, read) = self.reads.recv().await.expect("a thread answers every block");
            self.early.insert(ordinal, read);
        }
    }
}

fn read_all(work: &Receiver<Block>, done: &Sender<(u32, Read)>, reader: &BlockReader) {
    while let Ok(mut block) = work.recv_blocking() {
        let rows = match block.payload() {
            Ok(payload) => reader.read(payload).map_err(Unreadable::Malformed),
            Err(error) => Err(Unreadable::Damaged(error)),
        };
        let read = (block.ordinal(), Read { rows, memory: block.into_memory() });
        if done.try_send(read).is_err() {
            return;
        }
    }
}
