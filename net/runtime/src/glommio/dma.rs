//! Files by glommio's io_uring, with direct I/O in blocks of 4096 bytes whatever the device reports (glommio
//! says 512 on file systems that need 4096).

use std::cell::Cell;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use glommio::GlommioError;
use glommio::io::{BufferedFile, DmaBuffer, DmaFile, OpenOptions, ReadResult};
use rustix::fs::OFlags;

use ringkeeper_log::storage::{StorageFile, WriteMode};

use super::env::Glommio;
use super::executor::to_its_end;
use crate::storage::{DiskFile, DiskStorage, Probe};

/// A folder on a real disk. Its operations have to be awaited on a glommio executor.
pub type DmaStorage = DiskStorage<DmaDiskFile>;

/// An open file of a [`DmaStorage`].
pub struct DmaDiskFile {
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
    async fn open(path: &Path, direct: bool, through: bool, new: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(new);
        if through {
            options.custom_flags(OFlags::DSYNC.bits().cast_signed());
        }
        Ok(match direct {
            true => Self::Direct(options.dma_open(path).await?),
            false => Self::Buffered(options.buffered_open(path).await?),
        })
    }

    /// Closes the file, or leaves that to the last operation on it that nobody waits for.
    async fn close(this: Rc<Self>) -> Result<(), GlommioError<()>> {
        match Rc::try_unwrap(this) {
            Ok(Self::Direct(file)) => file.close().await,
            Ok(Self::Buffered(file)) => file.close().await,
            Err(_) => Ok(()),
        }
    }
}

/// A buffer for writes to a [`DmaDiskFile`].
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

impl DiskFile for DmaDiskFile {
    type Runtime = Glommio;

    /// The file system refuses it, or glommio would panic on the entries of sysfs for the device.
    async fn obstacle_to_direct_io(probe: &Probe) -> io::Result<Option<String>> {
        let path = probe.path();
        let metadata = std::fs::metadata(path)?;
        let obstacle = probe.refusal_of_direct_io().or_else(|| undescribed_device(metadata.dev()));
        let obstacle = obstacle.or_else(|| (metadata.len() == 0).then(|| "the disk is full".to_owned()));
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

    async fn open(path: PathBuf, direct: bool, mode: WriteMode, new: bool) -> io::Result<Self> {
        let disk = Rc::new(Disk::open(&path, direct, mode == WriteMode::Through, new).await?);
        let through = match mode {
            WriteMode::Adaptive => Some(Rc::new(Disk::open(&path, direct, true, false).await?)),
            WriteMode::Synced | WriteMode::Through => None,
        };
        Ok(Self { disk, through, unsynced: Cell::new(true) })
    }
}

impl StorageFile for DmaDiskFile {
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
