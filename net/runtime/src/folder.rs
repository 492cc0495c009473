//! What is done with a folder of files by system calls that block, on either runtime.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ringkeeper_log::storage::BLOCK_LEN;
use rustix::fs::OFlags;

const PROBE_NAME: &str = "probe";

/// A file of one block to try things out, which is removed when this is dropped.
pub(crate) struct Probe(PathBuf);

impl Probe {
    /// Writes it.
    pub(crate) fn write(folder: &Path) -> io::Result<Self> {
        let path = folder.join(PROBE_NAME);
        fs::write(&path, [0; BLOCK_LEN])?;
        Ok(Self(path))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // If it stays, it is overwritten at the next start.
        let _ = fs::remove_file(&self.0);
    }
}

/// Why the file system does not offer direct I/O.
pub(crate) fn refusal_of_direct_io(probe: &Probe) -> Option<String> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    let refused = OpenOptions::new().read(true).custom_flags(flags).open(probe.path()).err();
    refused.map(|error| format!("O_DIRECT: {error}"))
}

/// Logs what stands in the way of direct I/O, if there is something.
pub(crate) fn tell_of_obstacle(folder: &Path, obstacle: Option<&str>) {
    if let Some(obstacle) = obstacle {
        tracing::warn!(
            code = "RK0108",
            folder = %folder.display(),
            obstacle,
            "no direct I/O here: commits will be slower"
        );
    }
}

/// The names of all files and folders in it.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name()));
    let names: io::Result<Vec<_>> = names.collect();
    Ok(names?.into_iter().filter_map(|name| name.into_string().ok()).collect())
}

/// Makes all names durable.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Bytes that can still be written.
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
