//! Reading a snapshot, from its end.

use std::rc::Rc;
use std::sync::Arc;

use super::error::SnapshotError;
use super::layout::{
    ALIGN, BLOCK_HEAD_LEN, Contents, ENTRY_LEN, Entry, FOOTER_LEN, Footer, Head, Unsound, all_zero,
    block_checksum,
};
use crate::frame::AlignedBuf;
use crate::read_ahead::ReadAhead;
use crate::storage::{BLOCK, BLOCK_LEN, Storage, StorageFile, WriteMode, whole_blocks};

/// Bytes of one read of the index.
const INDEX_READ_LEN: usize = 64 * BLOCK_LEN;

/// Blocks that are read ahead. A znode may make a long one, so there are bytes to count as well.
const BLOCKS_AHEAD: usize = 8;
const BYTES_AHEAD: usize = 4 << 20;

/// A snapshot whose header, index and footer are sound. Its blocks are checked as they are read.
pub struct SnapshotReader<S: Storage> {
    len: u64,
    head: Head,
    contents: Contents,
    entries: Vec<Entry>,
    reads: ReadAhead<S::File>,
    /// The block that is read next, and the one after those that are under way.
    next: usize,
    ahead: usize,
    /// Bytes under way.
    bytes_ahead: usize,
    /// The block handed out by [`Self::next`].
    block: Block,
}

/// A block as it was read, not checked yet. It may be checked and used on another thread than the one that reads.
#[derive(Debug)]
pub struct Block {
    /// Name of the file.
    name: Arc<str>,
    ordinal: u32,
    entry: Entry,
    /// Head, payload and the zeros behind it, so that the payload is aligned as archives need it; less if the file ended.
    bytes: AlignedBuf,
}

impl Block {
    /// Its place among the blocks of the file, counted from 0.
    #[must_use]
    pub const fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Its memory, to be used for another.
    #[must_use]
    pub fn into_memory(self) -> AlignedBuf {
        self.bytes
    }

    /// What it holds, aligned to 16 bytes.
    ///
    /// # Errors
    /// When it is not what was written.
    pub fn payload(&self) -> Result<&[u8], SnapshotError> {
        let len = self.entry.len as usize;
        let sound = self
            .bytes
            .split_first_chunk()
            .filter(|(head, _)| **head == self.entry.head(self.ordinal))
            .and_then(|(_, rest)| rest.split_at_checked(len))
            .filter(|(payload, zeros)| {
                zeros.len() == len.next_multiple_of(ALIGN) - len
                    && all_zero(zeros)
                    && block_checksum(self.ordinal, payload) == self.entry.checksum
            });
        sound.map(|(payload, _)| payload).ok_or_else(|| SnapshotError::Damaged {
            file: self.name.to_string(),
            offset: self.entry.offset,
            what: "a block is not as it was written",
        })
    }
}

impl<S: Storage> SnapshotReader<S> {
    pub(super) async fn open(storage: &S, name: &str) -> Result<Self, SnapshotError> {
        let failed = |action| SnapshotError::io(action, name);
        let file = storage.open(name, WriteMode::Synced).await.map_err(failed("opening"))?;
        let file = Rc::new(file);
        let len = file.size().await.map_err(failed("measuring"))?;
        let damaged = |offset, what| SnapshotError::Damaged { file: name.to_owned(), offset, what };
        if !len.is_multiple_of(BLOCK) || len < 2 * BLOCK {
            return Err(damaged(len, "the file ends in the middle"));
        }
        let unsound = |offset, what| {
            move |unsound| match unsound {
                Unsound::Damaged => SnapshotError::Damaged { file: name.to_owned(), offset, what },
                Unsound::Version(version) => SnapshotError::Version { file: name.to_owned(), version },
            }
        };
        let block = file.read_at(0, BLOCK_LEN).await.map_err(failed("reading"))?;
        let (head, header_checksum) = Head::decode(&block).map_err(unsound(0, "not a snapshot's header"))?;
        let footer_at = len - FOOTER_LEN as u64;
        let block = file.read_at(len - BLOCK, BLOCK_LEN).await.map_err(failed("reading"))?;
        let bytes = block.last_chunk().ok_or_else(|| damaged(footer_at, "the file ends in the middle"))?;
        let footer = Footer::decode(bytes).map_err(unsound(footer_at, "not a snapshot's footer"))?;
        if footer.header_checksum != header_checksum || footer.zxid != head.zxid {
            return Err(damaged(footer_at, "header and footer are of two snapshots"));
        }
        let entries = read_index(&*file, &footer, footer_at).await.map_err(failed("reading"))?;
        let entries = entries.map_err(|what| damaged(footer.index_at, what))?;
        let contents = footer.contents;
        let nothing = Entry { offset: 0, len: 0, checksum: 0 };
        let block = Block { name: name.into(), ordinal: 0, entry: nothing, bytes: AlignedBuf::new() };
        let reads = ReadAhead::new(file);
        Ok(Self { len, head, contents, entries, reads, next: 0, ahead: 0, bytes_ahead: 0, block })
    }

    /// What it is a snapshot of.
    #[must_use]
    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// What it holds.
    #[must_use]
    pub const fn contents(&self) -> Contents {
        self.contents
    }

    /// Name of the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.block.name
    }

    /// Length of the file in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.entries.len()
    }

    /// Which block comes next, counted from 0.
    #[must_use]
    pub fn position(&self) -> u32 {
        u32::try_from(self.next).expect("the footer counts blocks in 32 bits")
    }

    /// The payload of the next block, aligned to 16 bytes; `None` after the last.
    ///
    /// # Errors
    /// When the block is not what was written, or the disk fails.
    pub async fn next(&mut self) -> Result<Option<&[u8]>, SnapshotError> {
        let bytes = std::mem::take(&mut self.block.bytes);
        match self.next_block(bytes).await? {
            Some(block) => {
                self.block = block;
                self.block.payload().map(Some)
            }
            None => Ok(None),
        }
    }

    /// The next block, not checked yet; `None` after the last. `memory` is used for its bytes.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn next_block(&mut self, memory: AlignedBuf) -> Result<Option<Block>, SnapshotError> {
        let Some(entry) = self.entries.get(self.next).copied() else { return Ok(None) };
        let ordinal = self.position();
        self.read_ahead();
        self.next += 1;
        let read = self.reads.next().await;
        let read = read.map_err(SnapshotError::io("reading", self.name()))?;
        let (start, len) = span(&entry);
        self.bytes_ahead -= len;
        let skip = usize::try_from(entry.offset - start).expect("less than a block");
        let padded = BLOCK_HEAD_LEN + (entry.len as usize).next_multiple_of(ALIGN);
        let found = read.get(skip..).unwrap_or_default();
        let mut bytes = memory;
        bytes.clear();
        bytes.extend_from_slice(&found[..found.len().min(padded)]);
        Ok(Some(Block { name: self.block.name.clone(), ordinal, entry, bytes }))
    }

    /// Begins as many reads as may be under way at once.
    fn read_ahead(&mut self) {
        while let Some(entry) = self.entries.get(self.ahead)
            && (self.ahead == self.next
                || self.ahead - self.next < BLOCKS_AHEAD && self.bytes_ahead < BYTES_AHEAD)
        {
            let (start, len) = span(entry);
            self.reads.begin(start, len);
            self.bytes_ahead += len;
            self.ahead += 1;
        }
    }

    /// Reads all blocks that were not read yet.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn verify(&mut self) -> Result<(), SnapshotError> {
        while self.next().await?.is_some() {}
        Ok(())
    }
}

/// What has to be read to have a block: offset and length.
fn span(entry: &Entry) -> (u64, usize) {
    let skip = usize::try_from(entry.offset % BLOCK).expect("less than a block");
    let padded = (entry.len as usize).next_multiple_of(ALIGN);
    (entry.offset - skip as u64, whole_blocks(skip + BLOCK_HEAD_LEN + padded))
}

/// The index, if it fits the file: blocks lie one after the other from the header to the index, and behind the index
/// are zeros up to the footer.
async fn read_index<F: StorageFile>(
    file: &F,
    footer: &Footer,
    footer_at: u64,
) -> std::io::Result<Result<Vec<Entry>, &'static str>> {
    let Footer { index_at, blocks, .. } = *footer;
    let index_len = u64::from(blocks) * ENTRY_LEN as u64;
    let fits = index_at
        .checked_add(index_len)
        .and_then(|end| footer_at.checked_sub(end))
        .is_some_and(|zeros| zeros < BLOCK);
    if !fits {
        return Ok(Err("the index does not end at the footer"));
    }
    let skip = usize::try_from(index_at % BLOCK).expect("less than a block");
    let mut at = index_at - skip as u64;
    // Its length is less than the file's, so the memory it takes is no stranger's choice.
    let mut bytes = Vec::new();
    while at < footer_at {
        let left = usize::try_from(footer_at - at).unwrap_or(usize::MAX);
        let read = file.read_at(at, whole_blocks(left.min(INDEX_READ_LEN))).await?;
        if read.is_empty() {
            return Ok(Err("the file ends in the middle"));
        }
        at += read.len() as u64;
        bytes.extend_from_slice(&read);
    }
    let index_len = usize::try_from(index_len).unwrap_or(usize::MAX);
    let Some((index, rest)) = bytes.get(skip..).and_then(|bytes| bytes.split_at_checked(index_len)) else {
        return Ok(Err("the file ends in the middle"));
    };
    let zeros = rest.len().saturating_sub(FOOTER_LEN);
    if crc32c::crc32c(index) != footer.index_checksum || !all_zero(&rest[..zeros]) {
        return Ok(Err("the index is not as it was written"));
    }
    let entries: Vec<_> = index.as_chunks().0.iter().map(Entry::decode).collect();
    let mut end = Some(BLOCK);
    for entry in &entries {
        if end != Some(entry.offset) {
            return Ok(Err("the index leaves a gap between blocks"));
        }
        end = entry.end();
    }
    Ok(if end == Some(index_at) { Ok(entries) } else { Err("the index leaves a gap behind the last block") })
}
