//! Whether files have changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What changes when one of some files is written, replaced, reached through another link, or gets another
/// mode or owner: device, number, length, and the times of change of contents and of all else.
#[derive(PartialEq, Eq)]
pub(crate) struct FileVersions(Vec<Option<([u64; 3], [i64; 4])>>);

impl FileVersions {
    /// Looks at the files.
    pub(crate) fn of<'a>(files: impl Iterator<Item = &'a Path>) -> Self {
        let version = |path: &Path| {
            let file = std::fs::metadata(path).ok()?;
            let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
            Some(([file.dev(), file.ino(), file.len()], times))
        };
        Self(files.map(version).collect())
    }
}
