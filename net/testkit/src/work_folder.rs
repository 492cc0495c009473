//! Folders in which servers keep their data while they are tested or measured. They go with what uses them;
//! where a program was killed before that, the next one removes them.
//!
//! A folder is in use as long as somebody holds the lock on a file inside it, which the kernel lets go with
//! the process.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

/// What the names of all such folders begin with.
const PREFIX: &str = "ringkeeper-";

const LOCK_NAME: &str = "in-use";

/// One that is just being made is not locked yet.
const LEFT_AFTER: Duration = Duration::from_secs(10);

/// A folder that is removed when it is dropped.
pub struct WorkFolder {
    folder: TempDir,
    _lock: File,
}

impl WorkFolder {
    /// A new one inside `work_dir`, with `kind` in its name.
    ///
    /// # Errors
    /// Nothing can be written into `work_dir`.
    pub fn new(kind: &str, work_dir: &Path) -> Result<Self> {
        remove_left(work_dir);
        let folder = tempfile::Builder::new().prefix(&format!("{PREFIX}{kind}-")).tempdir_in(work_dir);
        let folder =
            folder.with_context(|| format!("no folder for the servers in {}", work_dir.display()))?;
        let lock = File::create(folder.path().join(LOCK_NAME))?;
        lock.try_lock()?;
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders that nobody uses any more, as far as this user may.
fn remove_left(work_dir: &Path) {
    let entries = fs::read_dir(work_dir).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for folder in ours.map(|entry| entry.path()).filter(|folder| is_left(folder)) {
        let _ = fs::remove_dir_all(folder);
    }
}

fn is_left(folder: &Path) -> bool {
    let Ok(lock) = File::open(folder.join(LOCK_NAME)) else { return false };
    let made = lock.metadata().and_then(|metadata| metadata.modified()).ok();
    let age = made.and_then(|made| made.elapsed().ok()).unwrap_or_default();
    age > LEFT_AFTER && lock.try_lock().is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn folders_of_a_program_that_was_killed_are_removed_and_those_in_use_stay() {
        let work_dir = tempfile::tempdir().unwrap();
        let folder = |name: &str, made: SystemTime| {
            let folder = work_dir.path().join(name);
            fs::create_dir(&folder).unwrap();
            let lock = File::create(folder.join(LOCK_NAME)).unwrap();
            lock.set_modified(made).unwrap();
            (folder, lock)
        };
        let long_ago = SystemTime::now() - LEFT_AFTER * 2;
        let (left, _) = folder("ringkeeper-ensemble-1", long_ago);
        let (used, lock) = folder("ringkeeper-ensemble-2", long_ago);
        let (new, _) = folder("ringkeeper-ensemble-3", SystemTime::now());
        let (foreign, _) = folder("photographs", long_ago);
        lock.try_lock().unwrap();
        let own = WorkFolder::new("ensemble", work_dir.path()).unwrap();
        assert!(!left.exists());
        assert!(used.exists() && new.exists() && foreign.exists() && own.path().exists());
    }
}
