//! Writes a snapshot, block by block.

use std::rc::Rc;

use super::error::SnapshotError;
use super::layout::{ALIGN, Contents, Entry, FOOTER_LEN, Footer, Head, block_checksum};
use super::{NEW_NAME, file_name};
use crate::mutation::planted;
use crate::storage::{BLOCK, BLOCK_LEN, Storage, StorageFile, WriteMode};

/// Bytes of one write: small, so that writes of the log do not wait long behind it.
const WRITE_LEN: usize = 64 * BLOCK_LEN;

/// Bytes after which a file without direct I/O is synced. A page cache full of snapshot data would delay the
/// log's own syncs. With direct I/O such syncs have no benefit, and would delay the log instead.
const SYNC_LEN: u64 = 4 << 20;

/// A file that grows from its beginning, in whole blocks.
pub(super) struct Appender<S: Storage> {
    storage: S,
    name: String,
    file: S::File,
    /// Bytes not written yet.
    pending: Vec<u8>,
    /// Number of bytes written, and number synced.
    written: u64,
    synced: u64,
}

impl<S: Storage> Appender<S> {
    /// Creates a file, replacing one that a crash may have left.
    pub(super) async fn create(storage: S, name: &str) -> Result<Self, SnapshotError> {
        let names = storage.list().await.map_err(SnapshotError::io("looking for", name))?;
        if names.iter().any(|found| found == name) {
            storage.remove(name).await.map_err(SnapshotError::io("removing", name))?;
        }
        let file = storage.create(name, WriteMode::Synced).await;
        let file = file.map_err(SnapshotError::io("creating", name))?;
        Ok(Self::behind(storage, name, file, 0))
    }

    /// Goes on behind the first `written` bytes of a file, whole blocks of which nothing is known to be
    /// synced.
    pub(super) fn behind(storage: S, name: &str, file: S::File, written: u64) -> Self {
        Self { storage, name: name.to_owned(), file, pending: Vec::new(), written, synced: 0 }
    }

    /// Bytes appended so far.
    pub(super) fn len(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Zeros up to the next multiple of `align`, less `back` bytes.
    pub(super) fn pad(&mut self, align: usize, back: usize) {
        let len = (self.pending.len() + back).next_multiple_of(align) - back;
        self.pending.resize(len, 0);
    }

    /// Writes the pending bytes as far as they fill whole writes.
    pub(super) async fn write(&mut self) -> Result<(), SnapshotError> {
        let mut at = 0;
        while self.pending.len() - at >= WRITE_LEN {
            self.write_out(at, WRITE_LEN).await?;
            at += WRITE_LEN;
        }
        self.pending.drain(..at);
        Ok(())
    }

    async fn write_out(&mut self, at: usize, len: usize) -> Result<(), SnapshotError> {
        let mut buffer = self.file.buffer(len);
        buffer.as_mut().copy_from_slice(&self.pending[at..at + len]);
        let wrote = self.file.write_at(buffer, self.written).await;
        if wrote.map_err(SnapshotError::io("writing", &self.name))? != len {
            return Err(SnapshotError::NoSpace { file: self.name.clone() });
        }
        self.written += len as u64;
        if self.file.is_cached() && self.written - self.synced >= SYNC_LEN {
            self.sync().await?;
        }
        Ok(())
    }

    async fn sync(&mut self) -> Result<(), SnapshotError> {
        self.synced = self.written;
        if planted!(SnapshotUnsynced) {
            return Ok(());
        }
        self.file.datasync().await.map_err(SnapshotError::sync(&self.name))
    }

    /// Writes everything, which has to be whole blocks.
    pub(super) async fn write_all(&mut self) -> Result<(), SnapshotError> {
        self.write().await?;
        let rest = self.pending.len();
        debug_assert!(rest.is_multiple_of(BLOCK_LEN), "{rest} bytes are not whole blocks");
        if rest > 0 {
            self.write_out(0, rest).await?;
            self.pending.clear();
        }
        Ok(())
    }

    /// Writes everything and gives the file its name, all of it durably.
    pub(super) async fn finish(mut self, name: &str) -> Result<(), SnapshotError> {
        self.write_all().await?;
        self.sync().await?;
        let Self { storage, file, name: part, .. } = self;
        S::File::close(Rc::new(file)).await.map_err(SnapshotError::io("closing", name))?;
        storage.rename(&part, name).await.map_err(SnapshotError::io("renaming", name))?;
        storage.sync_dir().await.map_err(SnapshotError::sync(name))
    }

    /// Gives up: the file is removed.
    pub(super) async fn abandon(self) {
        let Self { storage, file, name, .. } = self;
        // A file left behind is removed at the next start, or when the next snapshot begins.
        let _ = S::File::close(Rc::new(file)).await;
        let _ = storage.remove(&name).await;
    }
}

/// Makes payloads into blocks: in their order, compressed where that is wanted, with checksums. It does no
/// I/O, so it can be anywhere, while the writer is where the file is.
#[derive(Debug)]
pub struct Packer {
    compressed: bool,
    /// How many blocks it has made.
    blocks: usize,
    /// Memory for a payload that is being compressed.
    deflated: Vec<u8>,
}

/// A block as it lies in the file.
#[derive(Debug, Default)]
pub struct PackedBlock {
    bytes: Vec<u8>,
    ordinal: usize,
    len: u32,
    checksum: u32,
}

impl Packer {
    const fn new(compressed: bool) -> Self {
        Self { compressed, blocks: 0, deflated: Vec::new() }
    }

    /// Replaces the contents of `block` by the next one, with this payload.
    ///
    /// # Errors
    /// The payload is too long, or there are too many.
    pub fn pack(&mut self, payload: &[u8], block: &mut PackedBlock) -> Result<(), SnapshotError> {
        let too_long = |_| SnapshotError::BlockLen(payload.len());
        let given = u32::try_from(payload.len()).map_err(too_long)?;
        let ordinal = u32::try_from(self.blocks).map_err(too_long)?;
        let (len, inflated, payload) = match self.compressed.then(|| compress(payload, &mut self.deflated)) {
            Some(len) if len < payload.len() => {
                (u32::try_from(len).map_err(too_long)?, given, &self.deflated[..len])
            }
            _ => (given, 0, payload),
        };
        let checksum = block_checksum(ordinal, inflated, payload);
        block.bytes.clear();
        block.bytes.extend_from_slice(&Entry { offset: 0, len, checksum }.head(ordinal, inflated));
        block.bytes.extend_from_slice(payload);
        (block.ordinal, block.len, block.checksum) = (self.blocks, len, checksum);
        self.blocks += 1;
        Ok(())
    }
}

/// A snapshot that is being written. One at a time in a folder.
pub struct SnapshotWriter<S: Storage> {
    out: Appender<S>,
    head: Head,
    header_checksum: u32,
    entries: Vec<Entry>,
    packer: Packer,
    /// Memory for [`Self::block`].
    packed: PackedBlock,
}

impl<S: Storage> SnapshotWriter<S> {
    pub(super) async fn begin(storage: S, head: Head, compressed: bool) -> Result<Self, SnapshotError> {
        let mut out = Appender::create(storage, NEW_NAME).await?;
        let (header, header_checksum) = head.encode(compressed);
        out.push(&header);
        let (packer, packed) = (Packer::new(compressed), PackedBlock::default());
        Ok(Self { out, head, header_checksum, entries: Vec::new(), packer, packed })
    }

    /// Adds a block and writes what has gathered.
    ///
    /// # Errors
    /// When the disk is full or fails; the writer is to be abandoned then.
    pub async fn block(&mut self, payload: &[u8]) -> Result<(), SnapshotError> {
        let mut packed = std::mem::take(&mut self.packed);
        self.packer.pack(payload, &mut packed)?;
        let written = self.append(&packed).await;
        self.packed = packed;
        written
    }

    /// What makes the blocks of this file for [`Self::append`], from the first one on.
    #[must_use]
    pub const fn packer(&self) -> Packer {
        Packer::new(self.packer.compressed)
    }

    /// Adds a block and writes what has gathered.
    ///
    /// # Errors
    /// When the disk is full or fails; the writer is to be abandoned then.
    ///
    /// # Panics
    /// The block is not the next one.
    pub async fn append(&mut self, block: &PackedBlock) -> Result<(), SnapshotError> {
        assert_eq!(block.ordinal, self.entries.len(), "blocks are appended in their order");
        self.entries.push(Entry { offset: self.out.len(), len: block.len, checksum: block.checksum });
        self.out.push(&block.bytes);
        self.out.pad(ALIGN, 0);
        self.out.write().await
    }

    /// Bytes of the file so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.out.len()
    }

    /// Whether there is no block yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Ends the file and makes it durable under its name. Returns its length in bytes.
    ///
    /// # Errors
    /// When the disk is full or fails. What is left is removed when the next one begins.
    pub async fn finish(mut self, contents: Contents) -> Result<u64, SnapshotError> {
        let index_at = self.out.len();
        let index: Vec<_> = self.entries.iter().flat_map(Entry::encode).collect();
        self.out.push(&index);
        self.out.pad(BLOCK_LEN, FOOTER_LEN);
        let footer = Footer {
            zxid: self.head.zxid,
            blocks: u32::try_from(self.entries.len()).expect("checked at each block"),
            index_at,
            contents,
            header_checksum: self.header_checksum,
            index_checksum: crc32c::crc32c(&index),
        };
        self.out.push(&footer.encode());
        let len = self.out.len();
        debug_assert!(len.is_multiple_of(BLOCK), "{len} bytes are not whole blocks");
        self.out.finish(&file_name(self.head.zxid)).await?;
        Ok(len)
    }

    /// Gives up: nothing is left of it.
    pub async fn abandon(self) {
        self.out.abandon().await;
    }
}

/// Compresses a payload; how many bytes of `deflated` that takes.
fn compress(payload: &[u8], deflated: &mut Vec<u8>) -> usize {
    deflated.resize(lz4_flex::block::get_maximum_output_size(payload.len()), 0);
    lz4_flex::block::compress_into(payload, deflated).expect("as much room as it may take")
}
