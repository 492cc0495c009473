//! Whether files have changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// What changes when one of some files is written, replaced, or reached through another link: device, number,
/// length and time of change of each.
#[derive(PartialEq, Eq)]
pub(crate) struct FileVersions(Vec<Option<(u64, u64, u64, SystemTime)>>);

impl FileVersions {
    /// Looks at the files.
    pub(crate) fn of<'a>(files: impl Iterator<Item = &'a Path>) -> Self {
        let version = |path: &Path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.dev(), metadata.ino(), metadata.len(), metadata.modified().ok()?))
        };
        Self(files.map(version).collect())
    }
}
