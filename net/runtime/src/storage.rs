//! The production storage: a folder on a disk, with direct I/O. Where that is not possible, the folder uses
//! the page cache and logs that once. How files are read and written is the runtime's.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ringkeeper_log::storage::{BLOCK_LEN, Storage, StorageFile, WriteMode, is_no_space};
use rustix::fs::OFlags;

use crate::runtime::Runtime;

const PROBE_NAME: &str = "probe";

/// A file of one block to try things out, which is removed when this is dropped. On a full disk it is empty.
pub struct Probe(PathBuf);

impl Probe {
    /// Writes it.
    fn write(folder: &Path) -> io::Result<Self> {
        let path = folder.join(PROBE_NAME);
        match fs::write(&path, [0; BLOCK_LEN]) {
            Err(error) if !is_no_space(&error) || !path.exists() => Err(error),
            _ => Ok(Self(path)),
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Why the file system does not offer direct I/O.
    pub(crate) fn refusal_of_direct_io(&self) -> Option<String> {
        let flags = OFlags::DIRECT.bits().cast_signed();
        let refused = OpenOptions::new().read(true).custom_flags(flags).open(&self.0).err();
        refused.map(|error| format!("O_DIRECT: {error}"))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // If it stays, it is overwritten at the next start.
        let _ = fs::remove_file(&self.0);
    }
}

/// An open file of a runtime.
#[expect(async_fn_in_trait, reason = "storage, log and caller live on one thread")]
pub trait DiskFile: StorageFile + Sized {
    /// The runtime on which it is awaited.
    type Runtime: Runtime;

    /// Why direct I/O cannot be used in the probe's folder, if it cannot.
    ///
    /// # Errors
    /// When the probe cannot be read.
    async fn obstacle_to_direct_io(probe: &Probe) -> io::Result<Option<String>>;

    /// Opens a file, which has to be there unless it is `new`.
    ///
    /// # Errors
    /// The system refuses.
    async fn open(path: PathBuf, direct: bool, mode: WriteMode, new: bool) -> io::Result<Self>;
}

/// A folder on a real disk. What it does has to be awaited on the runtime of its files.
pub struct DiskStorage<F> {
    folder: Rc<Path>,
    direct: bool,
    _files: PhantomData<F>,
}

impl<F> Clone for DiskStorage<F> {
    fn clone(&self) -> Self {
        Self { folder: Rc::clone(&self.folder), direct: self.direct, _files: PhantomData }
    }
}

impl<F: DiskFile> DiskStorage<F> {
    /// Opens the folder at `path`, which has to exist. Writes a file to find out whether direct I/O works
    /// there.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let folder = path.as_ref().canonicalize()?;
        let obstacle = F::obstacle_to_direct_io(&Probe::write(&folder)?).await?;
        if let Some(obstacle) = &obstacle {
            tracing::warn!(
                code = "RK0108",
                folder = %folder.display(),
                obstacle,
                "no direct I/O here: commits will be slower"
            );
        }
        Ok(Self { folder: folder.into(), direct: obstacle.is_none(), _files: PhantomData })
    }

    /// Opens the folder at `path` through the page cache, even if direct I/O would work.
    ///
    /// # Errors
    /// When there is no such folder.
    pub fn open_buffered(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { folder: path.as_ref().canonicalize()?.into(), direct: false, _files: PhantomData })
    }

    /// Whether files are written past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes a system call on the folder that blocks.
    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let folder = self.folder.to_path_buf();
        F::Runtime::unblock(move || call(&folder)).await
    }
}

impl<F: DiskFile> Storage for DiskStorage<F> {
    type File = F;

    async fn list(&self) -> io::Result<Vec<String>> {
        self.call(|folder| {
            let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name()));
            let names: io::Result<Vec<_>> = names.collect();
            Ok(names?.into_iter().filter_map(|name| name.into_string().ok()).collect())
        })
        .await
    }

    async fn create(&self, name: &str, mode: WriteMode) -> io::Result<F> {
        F::open(self.path(name), self.direct, mode, true).await
    }

    async fn open(&self, name: &str, mode: WriteMode) -> io::Result<F> {
        F::open(self.path(name), self.direct, mode, false).await
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.path(from), self.path(to));
        self.call(|_| fs::rename(from, to)).await
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        self.call(|_| fs::remove_file(path)).await
    }

    async fn sync_dir(&self) -> io::Result<()> {
        self.call(|folder| File::open(folder)?.sync_all()).await
    }

    async fn free_bytes(&self) -> io::Result<u64> {
        self.call(|folder| {
            let stat = rustix::fs::statvfs(folder)?;
            Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
        })
        .await
    }
}
