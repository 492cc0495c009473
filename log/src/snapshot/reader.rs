//! Reads a snapshot file, beginning at its end.

use std::rc::Rc;
use std::sync::Arc;

use super::error::SnapshotError;
use super::layout::{
    ALIGN, BLOCK_HEAD_LEN, Contents, ENTRY_LEN, Entry, FOOTER_LEN, Footer, Head, Unsound, all_zero,
    block_checksum, inflated_len,
};
use crate::frame::{AlignedBuf, LogPosition};
use crate::read_ahead::ReadAhead;
use crate::storage::{BLOCK, BLOCK_LEN, Storage, StorageFile, WriteMode, whole_blocks};

/// Bytes of one read of the index.
const INDEX_READ_LEN: usize = 64 * BLOCK_LEN;

/// Blocks that are read ahead. Their bytes are limited, too, since a single znode may make a long block.
const BLOCKS_AHEAD: usize = 8;
const BYTES_AHEAD: usize = 4 << 20;

/// The greatest factor by which LZ4 decompression can enlarge a block.
const INFLATION_MAX: usize = 255;

/// A snapshot with valid header, index and footer. Its blocks are checked when they are read.
pub struct SnapshotReader<S: Storage> {
    len: u64,
    head: Head,
    contents: Contents,
    entries: Vec<Entry>,
    reads: ReadAhead<S::File>,
    /// Index of the block to be returned next, and of the first one whose read has not begun.
    next: usize,
    ahead: usize,
    /// Bytes of the reads in flight.
    bytes_ahead: usize,
    /// The block handed out by [`Self::next`].
    block: Block,
}

/// A block that was read and not checked yet. Another thread than the reader's may check and use it.
#[derive(Debug)]
pub struct Block {
    /// Name of the file.
    name: Arc<str>,
    ordinal: u32,
    entry: Entry,
    /// Head, payload and padding, so that the payload is aligned for archives; shorter if the file ended.
    bytes: AlignedBuf,
    /// The payload, if it was compressed.
    inflated: AlignedBuf,
}

impl Block {
    /// Its place among the blocks of the file, counted from 0.
    #[must_use]
    pub const fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Its memory, to be reused for another block.
    #[must_use]
    pub fn into_memory(self) -> AlignedBuf {
        self.bytes
    }

    /// What it holds, aligned to 16 bytes.
    ///
    /// # Errors
    /// When it is not what was written.
    pub fn payload(&mut self) -> Result<&[u8], SnapshotError> {
        let Self { name, ordinal, entry, bytes, inflated } = self;
        let damaged = |what| SnapshotError::Damaged { file: name.to_string(), offset: entry.offset, what };
        let (stored, len) =
            stored(*ordinal, entry, bytes).ok_or_else(|| damaged("a block is not as it was written"))?;
        if len == 0 {
            return Ok(stored);
        }
        // No compressed block of ours expands that much, so nothing is allocated for it.
        if len > stored.len().saturating_mul(INFLATION_MAX) {
            return Err(damaged("a compressed block says that it is longer than it can be"));
        }
        inflated.resize(len, 0);
        match lz4_flex::block::decompress_into(stored, inflated) {
            Ok(found) if found == len => Ok(inflated),
            _ => Err(damaged("a compressed block cannot be decompressed")),
        }
    }
}

/// The stored payload of a block, and its length after decompression (0 if it is not compressed); `None` if
/// the block is damaged.
fn stored<'a>(ordinal: u32, entry: &Entry, bytes: &'a [u8]) -> Option<(&'a [u8], usize)> {
    let len = entry.len as usize;
    let (head, rest) = bytes.split_first_chunk()?;
    let inflated = inflated_len(head);
    let (payload, zeros) = rest.split_at_checked(len)?;
    let sound = *head == entry.head(ordinal, inflated)
        && zeros.len() == len.next_multiple_of(ALIGN) - len
        && all_zero(zeros)
        && block_checksum(ordinal, inflated, payload) == entry.checksum;
    sound.then_some((payload, inflated as usize))
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
        let block = Block {
            name: name.into(),
            ordinal: 0,
            entry: nothing,
            bytes: AlignedBuf::new(),
            inflated: AlignedBuf::new(),
        };
        let reads = ReadAhead::new(file);
        Ok(Self { len, head, contents, entries, reads, next: 0, ahead: 0, bytes_ahead: 0, block })
    }

    /// The identity of the snapshot.
    #[must_use]
    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// The summary of its contents.
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

    /// The next block, not checked yet; `None` after the last. Its bytes are read into `memory`.
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
        Ok(Some(Block { name: self.block.name.clone(), ordinal, entry, bytes, inflated: AlignedBuf::new() }))
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

    /// Reads and checks all remaining blocks.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn verify(&mut self) -> Result<(), SnapshotError> {
        while self.next().await?.is_some() {}
        Ok(())
    }
}

/// The offset and length of the file's blocks that contain a snapshot block.
fn span(entry: &Entry) -> (u64, usize) {
    let skip = usize::try_from(entry.offset % BLOCK).expect("less than a block");
    let padded = (entry.len as usize).next_multiple_of(ALIGN);
    (entry.offset - skip as u64, whole_blocks(skip + BLOCK_HEAD_LEN + padded))
}

/// Reads the index, and checks that it fits the file: blocks follow each other from the header to the index,
/// and only zeros are between the index and the footer.
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
    // The length is less than the file's, so a damaged index cannot demand more memory.
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

/// A longer block is not looked for in what was received of a file: its length may not be what was written.
const PART_BLOCK_LEN_MAX: usize = 16 << 20;

/// How much of a file is the beginning of the snapshot that ends at `last`: whole blocks of the disk, up to
/// the last block of the snapshot that is as it was written.
pub(super) async fn sound_len<F: StorageFile>(file: &F, last: LogPosition) -> std::io::Result<u64> {
    let len = file.size().await?;
    if len < BLOCK {
        return Ok(0);
    }
    match Head::decode(&file.read_at(0, BLOCK_LEN).await?) {
        Ok((head, _)) if (head.zxid, head.chain) == (last.zxid, last.checksum) => {}
        _ => return Ok(0),
    }
    let (mut at, mut ordinal) = (BLOCK, 0);
    while let Some(end) = sound_block_end(file, len, at, ordinal).await? {
        (at, ordinal) = (end, ordinal + 1);
    }
    Ok(at - at % BLOCK)
}

/// Where the block at `offset` ends, if it is as it was written.
async fn sound_block_end<F: StorageFile>(
    file: &F,
    len: u64,
    offset: u64,
    ordinal: u32,
) -> std::io::Result<Option<u64>> {
    let skip = usize::try_from(offset % BLOCK).expect("less than a block");
    let start = offset - skip as u64;
    let read = file.read_at(start, 2 * BLOCK_LEN).await?;
    let Some(head) = read.get(skip..).and_then(|bytes| bytes.first_chunk()) else { return Ok(None) };
    let entry = Entry::of_head(offset, head);
    let Some(end) = entry.end().filter(|end| *end <= len) else { return Ok(None) };
    let (start, span) = span(&entry);
    if span > PART_BLOCK_LEN_MAX {
        return Ok(None);
    }
    let read = file.read_at(start, span).await?;
    let padded = usize::try_from(end - offset).expect("less than the span");
    let bytes = read.get(skip..skip + padded);
    Ok(bytes.is_some_and(|bytes| stored(ordinal, &entry, bytes).is_some()).then_some(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(inflated: u32, payload: &[u8]) -> Block {
        let len = u32::try_from(payload.len()).expect("short");
        let entry = Entry { offset: 4096, len, checksum: block_checksum(3, inflated, payload) };
        let mut bytes = AlignedBuf::new();
        bytes.extend_from_slice(&entry.head(3, inflated));
        bytes.extend_from_slice(payload);
        bytes.resize(BLOCK_HEAD_LEN + payload.len().next_multiple_of(ALIGN), 0);
        Block { name: "snapshot".into(), ordinal: 3, entry, bytes, inflated: AlignedBuf::new() }
    }

    #[test]
    fn a_block_that_would_fill_the_memory_is_refused_with_its_place() {
        for (inflated, payload) in [(u32::MAX, &b"few bytes"[..]), (9, b"no LZ4 at all"), (4, b"\x40abcd")] {
            let mut block = block(inflated, payload);
            match block.payload() {
                Err(SnapshotError::Damaged { offset: 4096, .. }) => {}
                other => assert_eq!((inflated, other.ok()), (4, Some(&b"abcd"[..]))),
            }
            assert!(block.inflated.len() < 100);
        }
    }
}
