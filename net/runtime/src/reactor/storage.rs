//! A folder on a disk, by the executor's ring with direct I/O. Where that is not possible, the folder uses
//! the page cache and logs that once.

use std::cell::Cell;
use std::fs::{File as SystemFile, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ringkeeper_log::storage::{BLOCK_LEN, Storage, StorageFile, WriteMode};
use rustix::fs::OFlags;

use super::executor::{Core, Token, unblock};
use crate::completions::{ALIGNMENT, Operation, Outcome, Ring};
use crate::folder::{self, Probe};

/// The largest buffer that a file keeps for its next write.
const SPARE_MAX: usize = 4 << 20;

/// A folder on a real disk. What it does has to be awaited on an executor.
#[derive(Clone)]
pub struct DiskStorage {
    folder: Rc<Path>,
    direct: bool,
}

impl DiskStorage {
    /// Opens the folder at `path`, which has to exist. Writes a file to find out whether direct I/O works
    /// there.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let folder = path.as_ref().canonicalize()?;
        let probed = folder.clone();
        let probing = move || Ok::<_, io::Error>(folder::refusal_of_direct_io(&Probe::write(&probed)?));
        let obstacle = unblock(probing).await?;
        folder::tell_of_obstacle(&folder, obstacle.as_deref());
        Ok(Self { folder: folder.into(), direct: obstacle.is_none() })
    }

    /// Opens the folder at `path` through the page cache, even if direct I/O would work.
    ///
    /// # Errors
    /// When there is no such folder.
    pub fn open_buffered(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { folder: path.as_ref().canonicalize()?.into(), direct: false })
    }

    /// Whether files are written past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    async fn open_with(&self, name: &str, mode: WriteMode, new: bool) -> io::Result<DiskFile> {
        let (path, direct) = (self.path(name), self.direct);
        let opened = unblock(move || {
            let open = |through: bool, new: bool| {
                let mut flags = OFlags::empty();
                flags.set(OFlags::DIRECT, direct);
                flags.set(OFlags::DSYNC, through);
                let mut options = OpenOptions::new();
                options.read(true).write(true).create_new(new).custom_flags(flags.bits().cast_signed());
                options.open(&path)
            };
            let file = open(mode == WriteMode::Through, new)?;
            Ok::<_, io::Error>((file, (mode == WriteMode::Adaptive).then(|| open(true, false)).transpose()?))
        });
        let (file, through) = opened.await?;
        let shared = |file: SystemFile| Rc::new(OwnedFd::from(file));
        Ok(DiskFile {
            file: shared(file),
            through: through.map(shared),
            direct,
            spare: Cell::default(),
            unsynced: Cell::new(true),
        })
    }
}

impl Storage for DiskStorage {
    type File = DiskFile;

    async fn list(&self) -> io::Result<Vec<String>> {
        let folder = self.folder.to_path_buf();
        unblock(move || folder::list(&folder)).await
    }

    async fn create(&self, name: &str, mode: WriteMode) -> io::Result<DiskFile> {
        self.open_with(name, mode, true).await
    }

    async fn open(&self, name: &str, mode: WriteMode) -> io::Result<DiskFile> {
        self.open_with(name, mode, false).await
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.path(from), self.path(to));
        unblock(move || std::fs::rename(from, to)).await
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        unblock(move || std::fs::remove_file(path)).await
    }

    async fn sync_dir(&self) -> io::Result<()> {
        let folder = self.folder.to_path_buf();
        unblock(move || folder::sync(&folder)).await
    }

    async fn free_bytes(&self) -> io::Result<u64> {
        let folder = self.folder.to_path_buf();
        unblock(move || folder::free_bytes(&folder)).await
    }
}

/// An open file of a [`DiskStorage`].
pub struct DiskFile {
    file: Rc<OwnedFd>,
    /// The same file opened with O_DSYNC, for small writes ([`WriteMode::Adaptive`]).
    through: Option<Rc<OwnedFd>>,
    direct: bool,
    /// The buffer of the last write, with its bytes, since its memory need not be cleared.
    spare: Cell<Vec<u8>>,
    /// Whether data may be in the file that is not durable yet, written now or before the file was opened.
    unsynced: Cell<bool>,
}

/// Memory that begins where direct I/O wants it.
pub struct DiskBuffer {
    bytes: Vec<u8>,
    start: usize,
}

/// Where the aligned part of this memory begins.
fn aligned(bytes: &[u8]) -> usize {
    bytes.as_ptr().align_offset(ALIGNMENT)
}

impl AsMut<[u8]> for DiskBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

impl Deref for DiskBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// Does an operation on a file. It goes on by itself if nobody waits for it any more.
async fn carry_out(operation: impl FnOnce(&mut Ring<Token>, Token) -> Operation) -> io::Result<Outcome> {
    let (slot, _) = Core::current().begin(operation);
    slot.outcome().await
}

impl StorageFile for DiskFile {
    type Buffer = DiskBuffer;
    type Read = DiskBuffer;

    fn buffer(&self, len: usize) -> DiskBuffer {
        let mut bytes = self.spare.take();
        bytes.reserve((len + ALIGNMENT).saturating_sub(bytes.len()));
        let start = aligned(&bytes);
        bytes.resize(start + len, 0);
        DiskBuffer { bytes, start }
    }

    async fn write_at(&self, buffer: DiskBuffer, offset: u64) -> io::Result<usize> {
        let through = WriteMode::Adaptive.writes_through(buffer.len());
        let file = self.through.as_ref().filter(|_| through).unwrap_or_else(|| {
            self.unsynced.set(true);
            &self.file
        });
        let DiskBuffer { bytes, start } = buffer;
        match carry_out(|ring, token| ring.write(token, file, bytes, start, offset)).await? {
            Outcome::Written { buffer, bytes } => {
                if buffer.capacity() <= SPARE_MAX {
                    self.spare.set(buffer);
                }
                Ok(bytes)
            }
            _ => Err(io::ErrorKind::Other.into()),
        }
    }

    async fn read_at(&self, offset: u64, len: usize) -> io::Result<DiskBuffer> {
        let mut bytes = Vec::with_capacity(len + ALIGNMENT);
        let start = aligned(&bytes);
        bytes.resize(start, 0);
        match carry_out(|ring, token| ring.read(token, &self.file, bytes, len, offset)).await? {
            Outcome::Read { buffer: bytes, .. } => Ok(DiskBuffer { bytes, start }),
            _ => Err(io::ErrorKind::Other.into()),
        }
    }

    async fn datasync(&self) -> io::Result<()> {
        // Cleared before the sync, since writes that begin during the sync are not covered by it.
        if !self.unsynced.replace(false) {
            return Ok(());
        }
        carry_out(|ring, token| ring.sync(token, &self.file)).await.map(drop)
    }

    fn is_cached(&self) -> bool {
        !self.direct
    }

    async fn size(&self) -> io::Result<u64> {
        let size = rustix::fs::fstat(&self.file)?.st_size;
        u64::try_from(size).map_err(io::Error::other)
    }

    async fn allocate(&self, len: u64) -> io::Result<()> {
        match carry_out(|ring, token| ring.allocate(token, &self.file, len)).await {
            // If there is no room, writing the zeros will fail.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            allocated => allocated.map(drop),
        }
    }

    async fn close(this: Rc<Self>) -> io::Result<()> {
        if let Some(Self { file, through, .. }) = Rc::into_inner(this) {
            let last = [Some(file), through].into_iter().flatten().filter_map(Rc::into_inner);
            let last: Vec<_> = last.collect();
            unblock(move || drop(last)).await;
        }
        Ok(())
    }
}

const _: () = assert!(BLOCK_LEN.is_multiple_of(ALIGNMENT), "blocks are what direct I/O takes");
