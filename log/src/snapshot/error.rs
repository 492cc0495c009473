//! Errors of snapshots.

use std::io;

use thiserror::Error;

use crate::storage::is_no_space;

/// Why a snapshot was not written or cannot be used. The log is not affected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file is damaged.
    #[error("{file} is damaged at offset {offset}: {what}")]
    Damaged {
        /// Name of the file.
        file: String,
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// Written by another version of the format.
    #[error(
        "{file} has snapshot format version {version}, this build reads up to {}",
        super::layout::COMPRESSED
    )]
    Version {
        /// Name of the file.
        file: String,
        /// Its version.
        version: u16,
    },
    /// Of another ensemble.
    #[error("{file} belongs to ensemble {cluster:#x}")]
    Foreign {
        /// Name of the file.
        file: String,
        /// The ensemble it names.
        cluster: u64,
    },
    /// A block that no snapshot can hold.
    #[error("a block of {0} bytes")]
    BlockLen(usize),
    /// Received bytes that do not follow those before.
    #[error("received bytes at {found}, expected them at {expected}")]
    Gap {
        /// Where they should have been.
        expected: u64,
        /// Where they are.
        found: u64,
    },
    /// The disk is full.
    #[error("no space for {file}")]
    NoSpace {
        /// Name of the file.
        file: String,
    },
    /// A sync failed: the state of the disk is unknown, and the process has to end.
    #[error("syncing {file}: {source}")]
    Sync {
        /// Name of the file or folder.
        file: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The disk failed.
    #[error("{action} {file}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Name of the file.
        file: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl SnapshotError {
    pub(super) fn io<'a>(action: &'static str, file: &'a str) -> impl FnOnce(io::Error) -> Self + use<'a> {
        move |source| {
            let file = file.to_owned();
            if is_no_space(&source) { Self::NoSpace { file } } else { Self::Io { action, file, source } }
        }
    }

    pub(super) fn sync<'a>(file: &'a str) -> impl FnOnce(io::Error) -> Self + use<'a> {
        move |source| Self::Sync { file: file.to_owned(), source }
    }

    /// Whether the process has to end.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        matches!(self, Self::Sync { .. })
    }

    /// Whether the file is damaged, so that another snapshot may help.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Version { .. })
    }
}
