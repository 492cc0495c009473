//! A folder that is being made.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use ringkeeper_log::folder::{FolderLock, LOCK, LockError, UNFINISHED};

use super::{MY_ID, MigrateError};
use crate::config::parse_id;

/// What a file system has in its topmost folder.
const LOST_AND_FOUND: &str = "lost+found";

/// A folder that is being made inside its target, in the folder [`UNFINISHED`], with which no server starts.
/// Dropped unfinished, nothing of it is left.
pub(super) struct Draft {
    target: PathBuf,
    path: PathBuf,
    /// The folders that were made for it, the innermost first.
    made: Vec<PathBuf>,
    /// Whether it is to be removed when it is dropped: not after files of it have been moved, since what is
    /// in the target then would be taken for whole.
    removable: bool,
    /// Keeps servers and other drafts out of the target.
    _lock: FolderLock,
}

impl Draft {
    /// Begins a folder at `target`, which has to be empty or missing, and outside of what it is made `from`.
    /// What an interrupted draft has left there, and had not moved yet, is removed. The file `myid` may be
    /// there if it says `my_id`.
    pub(super) fn begin(target: &Path, from: &[&Path], my_id: Option<u64>) -> Result<Self, MigrateError> {
        let failed = |source| MigrateError::Target { folder: target.to_owned(), source };
        // No lock is made in a folder of somebody else.
        check_empty(target, my_id)?;
        if let Some(from) = from.iter().find(|from| is_inside(target, from)) {
            return Err(MigrateError::Inside { target: target.to_owned(), from: from.to_path_buf() });
        }
        let made = target.ancestors().take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
        fs::create_dir_all(target).map_err(failed)?;
        let lock = FolderLock::take(target).map_err(|error| match error {
            LockError::Io { source, .. } => failed(source),
            in_use => MigrateError::Locked(in_use),
        })?;
        let path = target.join(UNFINISHED);
        let mut draft = Self { target: target.to_owned(), path, made, removable: false, _lock: lock };
        // A server may have been started on it before it was locked.
        check_empty(target, my_id)?;
        draft.removable = true;
        draft.clear().and_then(|()| fs::create_dir(&draft.path)).map_err(failed)?;
        Ok(draft)
    }

    /// Where its files are to be written.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves everything into the targets, durably. Interrupted, it leaves [`UNFINISHED`] in at least one of
    /// them unless all of them are whole.
    pub(super) fn finish(drafts: &mut [Self]) -> Result<(), MigrateError> {
        for step in [Self::move_up, Self::declare_finished] {
            for draft in &mut *drafts {
                step(draft)
                    .map_err(|source| MigrateError::Target { folder: draft.target.clone(), source })?;
            }
        }
        Ok(())
    }

    fn move_up(&mut self) -> io::Result<()> {
        // What the files are moved out of has to be there for as long as some of them may be.
        self.sync()?;
        self.removable = false;
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            fs::rename(self.path.join(&name), self.target.join(&name))?;
        }
        self.sync()
    }

    fn declare_finished(&mut self) -> io::Result<()> {
        fs::remove_dir(&self.path)?;
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.target)?.sync_all()
    }

    /// Removes what is not finished.
    fn clear(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.removable {
            let _ = self.clear();
        }
        let _ = fs::remove_file(self.target.join(LOCK));
        // Those that others or a finished draft have put something into stay.
        self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// Refuses a target with something in it that is to stay.
fn check_empty(target: &Path, my_id: Option<u64>) -> Result<(), MigrateError> {
    let names = fs::read_dir(target).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let (mut is_empty, mut is_interrupted) = (true, false);
    for name in names {
        match name.to_str() {
            Some(LOCK | LOST_AND_FOUND) => {}
            Some(UNFINISHED) => is_interrupted = true,
            Some(MY_ID) if my_id.is_some() && id_in(&target.join(MY_ID)) == my_id => {}
            _ => is_empty = false,
        }
    }
    match (is_empty, is_interrupted) {
        (true, _) => Ok(()),
        (false, true) => Err(MigrateError::Interrupted(target.to_owned())),
        (false, false) => Err(MigrateError::NotEmpty(target.to_owned())),
    }
}

/// The server's number in a file `myid`.
pub(super) fn id_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok().and_then(|text| parse_id(&text))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into()).collect();
        names.sort();
        names
    }

    fn begin(target: &Path, my_id: Option<u64>) -> Result<Draft, MigrateError> {
        Draft::begin(target, &[], my_id)
    }

    #[test]
    fn a_target_is_locked_until_its_draft_ends() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let target = folder.path().join("new");
        let draft = begin(&target, None).expect("missing");
        assert!(matches!(begin(&target, None), Err(MigrateError::Locked(_))));
        assert!(FolderLock::take(&target).is_err());
        drop(draft);
        assert!(!target.exists());
    }

    #[test]
    fn what_an_interrupted_draft_has_left_is_removed_by_the_next_one() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join(UNFINISHED)).expect("made");
        for name in ["unfinished/meta", LOCK] {
            fs::write(folder.path().join(name), "").expect("written");
        }
        let draft = begin(folder.path(), None).expect("nothing of use is there");
        assert_eq!(names(draft.path()), [""; 0]);
        write_durably(&draft.path().join("new"), "").expect("written");
        Draft::finish(&mut [draft]).expect("moved");
        assert_eq!(names(folder.path()), ["new"]);
    }

    #[test]
    fn a_target_into_which_files_were_moved_already_is_to_be_emptied() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join(UNFINISHED)).expect("made");
        fs::write(folder.path().join("meta"), "").expect("written");
        assert!(matches!(begin(folder.path(), None), Err(MigrateError::Interrupted(_))));
        fs::remove_dir(folder.path().join(UNFINISHED)).expect("removed");
        assert!(matches!(begin(folder.path(), None), Err(MigrateError::NotEmpty(_))));
        assert_eq!(names(folder.path()), ["meta"], "not even a lock is made");
    }

    /// A folder of which one file cannot be moved is as one that was interrupted there.
    #[test]
    fn none_of_several_targets_is_finished_before_all_of_them_are_whole() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut drafts = ["data", "log"].map(|name| begin(&folder.path().join(name), None).expect("missing"));
        for draft in &drafts {
            write_durably(&draft.path().join("file"), "").expect("written");
        }
        fs::create_dir(drafts[1].target.join("file")).expect("in the way");
        Draft::finish(&mut drafts).expect_err("a file does not replace a folder");
        drop(drafts);
        for target in ["data", "log"] {
            assert_eq!(names(&folder.path().join(target)), ["file", UNFINISHED]);
        }
    }

    #[test]
    fn what_every_disk_has_and_the_same_number_are_no_contents() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join(LOST_AND_FOUND)).expect("made");
        fs::write(folder.path().join(MY_ID), "3\n").expect("written");
        for other in [None, Some(4)] {
            assert!(matches!(begin(folder.path(), other), Err(MigrateError::NotEmpty(_))), "{other:?}");
        }
        drop(begin(folder.path(), Some(3)).expect("the same number"));
        assert_eq!(names(folder.path()), [LOST_AND_FOUND, MY_ID]);
    }
}
