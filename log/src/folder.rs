//! One server, one folder: the lock that keeps a second server out.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::storage::is_no_space;

/// The file in a folder that is locked.
pub const LOCK: &str = "lock";

/// In a folder that an import or a restore fills, until everything is in its place. While it is there, no
/// server starts on the folder.
pub const UNFINISHED: &str = "unfinished";

/// How long [`FolderLock::take_patiently`] waits for another server to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Held while a server uses a folder. The system releases the lock when the process ends, however it ends.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

/// Why a folder could not be locked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another server uses the folder.
    #[error("{folder} is in use by another server (process {holder})")]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// The other server's process id, from the lock file.
        holder: String,
    },
    /// The lock file cannot be made.
    #[error("locking {folder}: {source}")]
    Io {
        /// The folder.
        folder: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl FolderLock {
    /// As [`Self::take`], but waits two seconds for the current holder to end. A killed server holds its lock
    /// until the system has freed its memory, which takes a moment for a big tree, and the next server may
    /// start before. Blocks the thread.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn take_patiently(folder: impl AsRef<Path>) -> Result<Self, LockError> {
        let start = Instant::now();
        loop {
            match Self::take(&folder) {
                Err(LockError::InUse { .. }) if start.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                taken => return taken,
            }
        }
    }

    /// Locks a folder on a real disk, with flock(2) on its file `lock`.
    ///
    /// # Errors
    /// When another server, also of this process, has locked it, or the file cannot be made.
    pub fn take(folder: impl AsRef<Path>) -> Result<Self, LockError> {
        let folder = folder.as_ref();
        let failed = |source| LockError::Io { folder: folder.to_owned(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(folder.join(LOCK)).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the error message; the lock itself has failed already.
                let _ = file.read_to_string(&mut holder);
                return Err(LockError::InUse {
                    folder: folder.to_owned(),
                    holder: holder.lines().next().unwrap_or("unknown").to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        if is_removed(&file).map_err(failed)? {
            return Self::take(folder);
        }
        // In place, so that a full disk has the room. Without it, only the number in a message is wrong.
        let note = format!("{}\n", std::process::id());
        let noted = file.write_all(note.as_bytes()).and_then(|()| file.set_len(note.len() as u64));
        match noted {
            Err(error) if !is_no_space(&error) => Err(failed(error)),
            _ => Ok(Self { _file: file }),
        }
    }
}

/// Whether whoever had the lock has removed its file since this one was opened: then it locks nobody out.
fn is_removed(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.nlink() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_on_the_same_folder_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let lock = FolderLock::take(&folder).expect("nobody else has it");
        let refused = FolderLock::take(&folder).expect_err("it is taken");
        assert!(
            matches!(&refused, LockError::InUse { holder, .. } if *holder == std::process::id().to_string())
        );
        drop(lock);
        FolderLock::take(&folder).expect("it is free again");
    }

    #[test]
    fn a_lock_whose_file_was_removed_is_known() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let lock = FolderLock::take(&folder).expect("nobody else has it");
        assert!(!is_removed(&lock._file).expect("looked at"));
        std::fs::remove_file(folder.path().join(LOCK)).expect("there is one");
        assert!(is_removed(&lock._file).expect("looked at"));
    }

    #[test]
    fn a_server_that_is_about_to_end_is_waited_for() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let lock = FolderLock::take(&folder).expect("nobody else has it");
        std::thread::scope(|scope| {
            let next = scope.spawn(|| FolderLock::take_patiently(&folder));
            std::thread::sleep(Duration::from_millis(100));
            drop(lock);
            next.join().expect("no panic").expect("it became free");
        });
    }
}
