//! The production storage: a folder on a disk, by glommio's io_uring with direct I/O.
//!
//! Direct I/O is used for every file, in blocks of 4096 bytes whatever the device reports (glommio says 512
//! on file systems that need 4096). Where it is not possible, the folder uses the page cache and logs that
//! once.

use std::cell::Cell;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use glommio::GlommioError;
use glommio::io::{BufferedFile, DmaBuffer, DmaFile, OpenOptions, ReadResult};
use rustix::fs::OFlags;

use ringkeeper_log::storage::{Storage, StorageFile, WriteMode};

use super::executor::to_its_end;
use crate::folder::{self, Probe};

/// A folder on a real disk. Its operations have to be awaited on a glommio executor.
#[derive(Clone)]
pub struct DmaStorage {
    folder: Rc<Path>,
    direct: bool,
}

impl DmaStorage {
    /// Opens the folder at `path`, which has to exist. Writes a file to find out whether direct I/O works
    /// there.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let folder = path.as_ref().canonicalize()?;
        let obstacle = obstacle_to_direct_io(&Probe::write(&folder)?).await?;
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
        let disk = Rc::new(self.open_disk(name, mode == WriteMode::Through, new).await?);
        let through = match mode {
            WriteMode::Adaptive => Some(Rc::new(self.open_disk(name, true, false).await?)),
            WriteMode::Synced | WriteMode::Through => None,
        };
        Ok(DiskFile { disk, through, unsynced: Cell::new(true) })
    }

    async fn open_disk(&self, name: &str, through: bool, new: bool) -> io::Result<Disk> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(new);
        if through {
            options.custom_flags(flag(OFlags::DSYNC));
        }
        let path = self.path(name);
        if self.direct {
            Ok(Disk::Direct(options.dma_open(path).await?))
        } else {
            Ok(Disk::Buffered(options.buffered_open(path).await?))
        }
    }
}

/// Runs a system call that io_uring does not offer on glommio's helper thread.
async fn blocking<T: Send + 'static>(call: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    glommio::executor().spawn_blocking(call).await
}

impl Storage for DmaStorage {
    type File = DiskFile;

    async fn list(&self) -> io::Result<Vec<String>> {
        let folder = self.folder.to_path_buf();
        blocking(move || folder::list(&folder)).await
    }

    async fn create(&self, name: &str, mode: WriteMode) -> io::Result<DiskFile> {
        self.open_with(name, mode, true).await
    }

    async fn open(&self, name: &str, mode: WriteMode) -> io::Result<DiskFile> {
        self.open_with(name, mode, false).await
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.path(from), self.path(to));
        blocking(move || std::fs::rename(from, to)).await
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        blocking(move || std::fs::remove_file(path)).await
    }

    async fn sync_dir(&self) -> io::Result<()> {
        let folder = self.folder.to_path_buf();
        blocking(move || folder::sync(&folder)).await
    }

    async fn free_bytes(&self) -> io::Result<u64> {
        let folder = self.folder.to_path_buf();
        blocking(move || folder::free_bytes(&folder)).await
    }
}

/// An open file of a [`DmaStorage`].
pub struct DiskFile {
    disk: Rc<Disk>,
    /// The same file opened with O_DSYNC, for small writes ([`WriteMode::Adaptive`]).
    through: Option<Rc<Disk>>,
    /// Whether data may be in the file that is not durable yet, written now or before the file was opened.
    unsynced: Cell<bool>,
}

enum Disk {
    Direct(DmaFile),
    Buffered(BufferedFile),
}

impl Disk {
    /// Closes the file, or leaves that to the last operation on it that nobody waits for.
    async fn close(this: Rc<Self>) -> Result<(), GlommioError<()>> {
        match Rc::try_unwrap(this) {
            Ok(Self::Direct(file)) => file.close().await,
            Ok(Self::Buffered(file)) => file.close().await,
            Err(_) => Ok(()),
        }
    }
}

/// A buffer for writes to a [`DiskFile`].
pub struct DiskBuffer(Memory);

enum Memory {
    Direct(DmaBuffer),
    Plain(Vec<u8>),
}

impl AsMut<[u8]> for DiskBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Direct(buffer) => buffer.as_bytes_mut(),
            Memory::Plain(bytes) => bytes,
        }
    }
}

impl StorageFile for DiskFile {
    type Buffer = DiskBuffer;
    type Read = ReadResult;

    fn buffer(&self, len: usize) -> DiskBuffer {
        match &*self.disk {
            Disk::Direct(file) => DiskBuffer(Memory::Direct(file.alloc_dma_buffer(len))),
            Disk::Buffered(_) => DiskBuffer(Memory::Plain(vec![0; len])),
        }
    }

    async fn write_at(&self, mut buffer: DiskBuffer, offset: u64) -> io::Result<usize> {
        let through = WriteMode::Adaptive.writes_through(buffer.as_mut().len());
        let disk = self.through.as_ref().filter(|_| through).unwrap_or_else(|| {
            self.unsynced.set(true);
            &self.disk
        });
        let disk = Rc::clone(disk);
        to_its_end(async move {
            Ok(match (&*disk, buffer.0) {
                (Disk::Direct(file), Memory::Direct(buffer)) => file.write_at(buffer, offset).await?,
                (Disk::Buffered(file), Memory::Plain(bytes)) => file.write_at(bytes, offset).await?,
                _ => {
                    let what = "a buffer of another kind of file";
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
                }
            })
        })
        .await
    }

    async fn read_at(&self, offset: u64, len: usize) -> io::Result<ReadResult> {
        let disk = Rc::clone(&self.disk);
        to_its_end(async move {
            Ok(match &*disk {
                Disk::Direct(file) => file.read_at_aligned(offset, len).await?,
                Disk::Buffered(file) => file.read_at(offset, len).await?,
            })
        })
        .await
    }

    async fn datasync(&self) -> io::Result<()> {
        // Cleared before the sync, since writes that begin during the sync are not covered by it.
        if !self.unsynced.replace(false) {
            return Ok(());
        }
        let synced = match &*self.disk {
            Disk::Direct(file) => file.fdatasync().await,
            Disk::Buffered(file) => file.fdatasync().await,
        };
        Ok(synced?)
    }

    fn is_cached(&self) -> bool {
        matches!(*self.disk, Disk::Buffered(_))
    }

    async fn size(&self) -> io::Result<u64> {
        let disk = Rc::clone(&self.disk);
        to_its_end(async move {
            Ok(match &*disk {
                Disk::Direct(file) => file.file_size().await?,
                Disk::Buffered(file) => file.file_size().await?,
            })
        })
        .await
    }

    async fn allocate(&self, len: u64) -> io::Result<()> {
        let allocated = match &*self.disk {
            Disk::Direct(file) => file.pre_allocate(len, false).await,
            Disk::Buffered(file) => file.pre_allocate(len, false).await,
        };
        match allocated.map_err(io::Error::from) {
            // If there is no room, writing the zeros will fail.
            Err(error) if is_unsupported(&error) => Ok(()),
            other => other,
        }
    }

    async fn close(this: Rc<Self>) -> io::Result<()> {
        let closed: Result<(), GlommioError<()>> = match Rc::try_unwrap(this) {
            Ok(file) => {
                if let Some(through) = file.through {
                    Disk::close(through).await?;
                }
                Disk::close(file.disk).await
            }
            Err(_) => Ok(()),
        };
        Ok(closed?)
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}

/// A flag as `open` takes it.
fn flag(flag: OFlags) -> i32 {
    flag.bits().cast_signed()
}

/// Why direct I/O cannot be used for a file: the file system refuses it, or glommio would panic on the
/// entries of sysfs for the device.
async fn obstacle_to_direct_io(probe: &Probe) -> io::Result<Option<String>> {
    let path = probe.path();
    let device = std::fs::metadata(path)?.dev();
    let obstacle = folder::refusal_of_direct_io(probe).or_else(|| undescribed_device(device));
    if obstacle.is_some() {
        return Ok(obstacle);
    }
    // glommio reads from the first file that it opens on a device, to find out whether it can poll for
    // completions. An empty file is read without the device, so glommio polls, and every later read fails
    // with ENOTSUP. Therefore this file is not empty.
    let file = OpenOptions::new().read(true).write(true).dma_open(path).await?;
    file.close().await?;
    Ok(None)
}

/// Files of `/sys/dev/block/MAJOR:0/queue` from which glommio learns about a device. It panics if the device
/// exists and one of them does not, as for a partition whose disk has another number.
const NUMBERS: [&str; 7] = [
    "rotational",
    "minimum_io_size",
    "optimal_io_size",
    "logical_block_size",
    "physical_block_size",
    "max_sectors_kb",
    "max_segment_size",
];

fn undescribed_device(device: u64) -> Option<String> {
    let described = Path::new("/sys/dev/block").join(format!("{}:0", rustix::fs::major(device)));
    match described.canonicalize() {
        // No such device: glommio treats it as memory, and reads no further file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(format!("{}: {error}", described.display())),
        Ok(device) => {
            let queue = device.join("queue");
            let numbers = NUMBERS.iter().all(|name| is_number(&queue.join(name)));
            let cache = std::fs::read_to_string(queue.join("write_cache")).unwrap_or_default();
            let known_cache = matches!(cache.trim_end_matches('\n'), "write back" | "write through");
            let sound = numbers && known_cache && std::fs::read_dir(device.join("slaves")).is_ok();
            (!sound).then(|| format!("{} does not describe a whole disk", device.display()))
        }
    }
}

fn is_number(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.trim_matches('\n').parse::<isize>().is_ok())
}
