//! Notifications for many clients: encoded once, and shared by the outputs of all of them.
//!
//! The notifications are appended to a block, and the output of each watcher refers to ranges of it. Ranges
//! that follow each other are one, so a transaction with many events copies nothing for each watcher, and
//! clients that do not read share the memory. Blocks are small, since one range keeps a whole block in
//! memory.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// A block that has reached this size is followed by another one.
const BLOCK_BYTES: usize = 64 * 1024;

/// The blocks of a shard.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// The block that is being filled, if any, and its bytes.
    open: Option<Rc<Block>>,
    bytes: Vec<u8>,
    /// Bytes of the complete blocks that are referred to.
    kept_bytes: Rc<Cell<usize>>,
}

#[derive(Debug)]
struct Block {
    /// Set when the block is complete.
    bytes: OnceCell<Box<[u8]>>,
    /// [`Blocks::kept_bytes`].
    kept_bytes: Rc<Cell<usize>>,
}

/// A range of a block.
#[derive(Clone, Debug)]
pub(super) struct SharedBytes {
    block: Rc<Block>,
    start: u32,
    end: u32,
}

impl Blocks {
    /// Appends a notification. [`Self::complete`] must follow before anyone reads it.
    pub(super) fn push(&mut self, frame: &[u8]) -> SharedBytes {
        if self.bytes.len() >= BLOCK_BYTES {
            self.complete();
        }
        let block = self.open.get_or_insert_with(|| {
            Rc::new(Block { bytes: OnceCell::new(), kept_bytes: Rc::clone(&self.kept_bytes) })
        });
        let position = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a frame is shorter than 2^31 bytes");
        let start = position(&self.bytes);
        self.bytes.extend_from_slice(frame);
        SharedBytes { block: Rc::clone(block), start, end: position(&self.bytes) }
    }

    /// Completes the block that is being filled.
    pub(super) fn complete(&mut self) {
        let Some(block) = self.open.take() else { return };
        self.kept_bytes.set(self.bytes());
        block.bytes.set(std::mem::take(&mut self.bytes).into()).expect("a block is completed once");
    }

    /// Memory that the blocks take, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.kept_bytes.get() + self.bytes.len()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let bytes = self.bytes.get().map_or(0, |bytes| bytes.len());
        self.kept_bytes.set(self.kept_bytes.get() - bytes);
    }
}

impl SharedBytes {
    pub(super) fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Extends it by `next` if that follows in the same block. Whether it did.
    pub(super) fn extend(&mut self, next: &Self) -> bool {
        let follows = self.end == next.start && Rc::ptr_eq(&self.block, &next.block);
        if follows {
            self.end = next.end;
        }
        follows
    }

    /// Moves at most `max` bytes from its front to the end of `buffer`.
    pub(super) fn take(&mut self, max: usize, buffer: &mut Vec<u8>) {
        let bytes = self.block.bytes.get().expect("blocks are completed before output is taken");
        let start = self.start as usize;
        let taken = &bytes[start..self.end as usize][..max.min(self.len())];
        buffer.extend_from_slice(taken);
        self.start += u32::try_from(taken.len()).expect("a part of its range");
    }
}
