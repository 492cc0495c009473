//! The storage that the log needs: a flat folder of files, read and written in whole blocks.
//!
//! The server's is `net/runtime/src/reactor/storage.rs`, the library's `net/runtime/src/glommio/dma.rs`, and
//! the simulator's disk is [`crate::memory`]. Futures run on the thread that made them; nothing here is
//! `Send`.

use std::io;
use std::ops::Deref;
use std::rc::Rc;

/// Offsets and lengths of reads and writes are multiples of this many bytes: the block of a file system,
/// which is enough for direct I/O. No two writes share a block.
pub const BLOCK_LEN: usize = 4096;

/// [`BLOCK_LEN`] in the type of file offsets.
pub const BLOCK: u64 = BLOCK_LEN as u64;

/// When the effect of a write is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// After the next [`StorageFile::datasync`] (fdatasync).
    #[default]
    Synced,
    /// When the write is done (O_DSYNC).
    Through,
    /// Writes of up to [`THROUGH_LEN_MAX`] as [`Self::Through`], longer ones as [`Self::Synced`]. A small
    /// write is then one device request instead of two, which shortens the latency of a lone client; a large
    /// write is faster with a sync. The caller syncs after each write; a sync with nothing to do is free.
    Adaptive,
}

/// The longest write that [`WriteMode::Adaptive`] writes through.
pub const THROUGH_LEN_MAX: usize = 64 * 1024;

impl WriteMode {
    /// Whether a write of `len` bytes is durable when it is done.
    #[must_use]
    pub const fn writes_through(self, len: usize) -> bool {
        match self {
            Self::Synced => false,
            Self::Through => true,
            Self::Adaptive => len <= THROUGH_LEN_MAX,
        }
    }
}

/// A folder. Names have no separators. Changes of names are durable only after [`Storage::sync_dir`].
#[expect(async_fn_in_trait, reason = "storage, log and caller live on one thread")]
pub trait Storage: Clone + 'static {
    /// An open file of this storage.
    type File: StorageFile;

    /// Names of all files and folders in it, in no order.
    async fn list(&self) -> io::Result<Vec<String>>;

    /// A new, empty file, for reading and writing. Fails if the name is taken.
    async fn create(&self, name: &str, mode: WriteMode) -> io::Result<Self::File>;

    /// An existing file, for reading and writing.
    async fn open(&self, name: &str, mode: WriteMode) -> io::Result<Self::File>;

    /// Gives a file another name, atomically; a file that had that name is gone.
    async fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name. The file stays readable where it is open.
    async fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all names durable.
    async fn sync_dir(&self) -> io::Result<()>;

    /// Bytes that can still be written.
    async fn free_bytes(&self) -> io::Result<u64>;
}

/// An open file. Shared by `Rc`, since a reader may outlive the log's own use of it.
#[expect(async_fn_in_trait, reason = "storage, log and caller live on one thread")]
pub trait StorageFile: 'static {
    /// Memory that can be written from, suitably aligned.
    type Buffer: AsMut<[u8]>;
    /// Memory that has been read into.
    type Read: Deref<Target = [u8]>;

    /// A buffer of `len` bytes (whole blocks) with any contents.
    fn buffer(&self, len: usize) -> Self::Buffer;

    /// Writes the whole buffer at `offset`; returns how many bytes the device took, fewer being possible.
    async fn write_at(&self, buffer: Self::Buffer, offset: u64) -> io::Result<usize>;

    /// Reads up to `len` bytes at `offset`; fewer only at the file's end.
    async fn read_at(&self, offset: u64, len: usize) -> io::Result<Self::Read>;

    /// Makes all finished writes, and the length needed to read them, durable. After an error the state of
    /// these writes is unknown, and the sync must not be repeated.
    async fn datasync(&self) -> io::Result<()>;

    /// Whether writes stay in a page cache until the next sync, whose duration then depends on their amount.
    fn is_cached(&self) -> bool;

    /// Length in bytes.
    async fn size(&self) -> io::Result<u64>;

    /// Reserves disk space up to a length of `len` bytes, without writing it.
    async fn allocate(&self, len: u64) -> io::Result<()>;

    /// Closes the file when this is its last user.
    async fn close(this: Rc<Self>) -> io::Result<()>;
}

/// Whether an error says that the disk is full or a quota is used up.
#[must_use]
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// `len` rounded up to whole blocks.
pub(crate) const fn whole_blocks(len: usize) -> usize {
    len.next_multiple_of(BLOCK_LEN)
}
