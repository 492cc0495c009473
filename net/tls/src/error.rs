//! Why TLS cannot be served.

use std::path::{Path, PathBuf};

/// One sentence that names the setting or the file, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is missing, or contradicts others.
    #[error("{key}: {reason}")]
    Setting {
        /// Its key in the configuration.
        key: &'static str,
        /// What is wrong, and the remedy.
        reason: String,
    },
    /// A file cannot be used.
    #[error("{key}: {}: {reason}", path.display())]
    File {
        /// The setting that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong, and the remedy.
        reason: String,
    },
}

impl Error {
    pub(crate) fn setting(key: &'static str, reason: impl Into<String>) -> Self {
        Self::Setting { key, reason: reason.into() }
    }

    pub(crate) fn file(key: &'static str, path: &Path, reason: impl Into<String>) -> Self {
        Self::File { key, path: path.to_owned(), reason: reason.into() }
    }
}
