//! Where the files of an experiment are.

use std::path::{Path, PathBuf};

use super::FOLDER;

/// The page with tables and pictures of all records.
pub(crate) fn index(out: &Path) -> PathBuf {
    out.join(FOLDER).join("README.md")
}

/// Its record.
pub(crate) fn csv(out: &Path, id: &str) -> PathBuf {
    out.join(FOLDER).join(format!("{id}.csv"))
}

/// Its latencies.
pub(crate) fn histograms(out: &Path, id: &str) -> PathBuf {
    out.join(FOLDER).join(format!("{id}.hlog"))
}

/// A picture's name.
pub(crate) fn picture_name(id: &str, suffix: &str) -> String {
    if suffix.is_empty() { format!("{id}.svg") } else { format!("{id}-{suffix}.svg") }
}
