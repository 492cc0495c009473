//! Where the files of an experiment are.

use std::path::{Path, PathBuf};

use super::FOLDER;

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
