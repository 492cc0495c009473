//! Threads that decode the blocks of a snapshot, so that a start uses several cores.
//!
//! ```text
//! executor: reads blocks from the disk ──▶ threads: checksum, archive, znodes ──▶ executor: takes them in their order
//! ```
//!
//! At most [`BLOCKS_EACH`] blocks for each thread are in flight. The memory of a decoded block is reused for
//! a later one.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::thread;

use async_channel::{Receiver, Sender};
use ringkeeper_engine::snapshot::{BlockReader, DecodeError, Rows};
use ringkeeper_log::frame::AlignedBuf;
use ringkeeper_log::snapshot::{Block, SnapshotError};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// More threads do not help: the executor's own part of the work is the limit then.
const THREADS_MAX: usize = 4;

/// Blocks in flight for each thread: one being decoded, and the next.
const BLOCKS_EACH: usize = 2;

/// The cores of the process. A thread inherits only the core of the executor that starts it, so the set is
/// restored in it.
static CORES: OnceLock<CpuSet> = OnceLock::new();

/// Records the cores of the process. To be called before executors are pinned.
pub(super) fn note_cores() {
    if let Ok(cores) = sched_getaffinity(None) {
        let _ = CORES.set(cores);
    }
}

/// A decoded block.
pub(super) struct Read {
    pub(super) rows: Result<Rows, Unreadable>,
    /// The block's memory, for another block.
    pub(super) memory: AlignedBuf,
}

/// Why a block cannot be decoded.
pub(super) enum Unreadable {
    Damaged(SnapshotError),
    Malformed(DecodeError),
}

/// A pool of threads that decode the blocks of one snapshot. They end when it is dropped.
pub(super) struct BlockReaders {
    blocks: Sender<Block>,
    reads: Receiver<(u32, Read)>,
    /// Decoded blocks whose predecessors are not decoded yet.
    early: BTreeMap<u32, Read>,
    under_way: usize,
    under_way_max: usize,
}

impl BlockReaders {
    /// A pool with a thread for each core, at most [`THREADS_MAX`].
    pub(super) fn start(reader: &BlockReader) -> Self {
        let cores = CORES.get().copied();
        let threads = cores.map_or(1, |cores| cores.count() as usize).clamp(1, THREADS_MAX);
        let (blocks, work) = async_channel::unbounded();
        let (done, reads) = async_channel::unbounded();
        for _ in 0..threads {
            let (work, done, reader) = (work.clone(), done.clone(), reader.clone());
            thread::spawn(move || {
                // If this fails, the threads share one core: slower, but correct.
                let _ = cores.map(|cores| sched_setaffinity(None, &cores));
                read_all(&work, &done, &reader);
            });
        }
        let under_way_max = threads * BLOCKS_EACH;
        Self { blocks, reads, early: BTreeMap::new(), under_way: 0, under_way_max }
    }

    /// Whether another block may be passed to [`Self::read`] before the next one is taken.
    pub(super) fn has_room(&self) -> bool {
        self.under_way < self.under_way_max
    }

    /// Passes a block to a thread.
    pub(super) fn read(&mut self, block: Block) {
        self.under_way += 1;
        self.blocks.try_send(block).expect("the threads wait for blocks for as long as there can be any");
    }

    /// Waits for block `ordinal`, which was passed to a thread.
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
