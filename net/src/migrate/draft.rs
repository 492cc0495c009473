//! A folder that is being made.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::MigrateError;

/// Inside the target, until everything is there.
const NAME: &str = "unfinished";
/// Without this file no server starts on a folder with a log, so it is moved last.
const LAST: &str = "meta";

/// A folder that is being made inside its target. Dropped unfinished, nothing of it is left.
pub(super) struct Draft {
    target: PathBuf,
    path: PathBuf,
    /// The folders that were made for it, the innermost first.
    made: Vec<PathBuf>,
}

impl Draft {
    /// Begins a folder at `target`, which has to be empty or missing, and outside of what it is made `from`.
    pub(super) fn begin(target: &Path, from: &[&Path]) -> Result<Self, MigrateError> {
        let failed = |source| MigrateError::Target { folder: target.to_owned(), source };
        if fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(MigrateError::NotEmpty(target.to_owned()));
        }
        if let Some(from) = from.iter().find(|from| is_inside(target, from)) {
            return Err(MigrateError::Inside { target: target.to_owned(), from: from.to_path_buf() });
        }
        let made = target.ancestors().take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
        let path = target.join(NAME);
        fs::create_dir_all(target).and_then(|()| fs::create_dir(&path)).map_err(failed)?;
        Ok(Self { target: target.to_owned(), path, made })
    }

    /// Where its files are to be written.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves everything into the target, durably.
    pub(super) fn finish(self) -> Result<(), MigrateError> {
        self.move_up().map_err(|source| MigrateError::Target { folder: self.target.clone(), source })
    }

    fn move_up(&self) -> io::Result<()> {
        let names = fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort_by_key(|name| (name == LAST, name.clone()));
        for name in names {
            if name == LAST {
                File::open(&self.target)?.sync_all()?;
            }
            fs::rename(self.path.join(&name), self.target.join(&name))?;
        }
        fs::remove_dir(&self.path)?;
        File::open(&self.target)?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Gone already if it is finished.
        let _ = fs::remove_dir_all(&self.path);
        // Those that others or a finished draft have put something into stay.
        self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// Whether a folder, which may be missing, is inside of another one.
fn is_inside(folder: &Path, outer: &Path) -> bool {
    let there = std::path::absolute(folder).ok();
    let there = there.and_then(|folder| folder.ancestors().find_map(|folder| folder.canonicalize().ok()));
    there.zip(outer.canonicalize().ok()).is_some_and(|(folder, outer)| folder.starts_with(outer))
}

/// Writes a small file durably.
pub(super) fn write_durably(file: &Path, text: &str) -> io::Result<()> {
    fs::write(file, text)?;
    File::open(file)?.sync_all()
}
