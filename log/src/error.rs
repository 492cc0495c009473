//! Errors of the log, by operation.

use std::io;
use std::sync::Arc;

use ringkeeper_wire::Zxid;
use thiserror::Error;

use crate::frame::{Checksum, FrameError};
use crate::storage::is_no_space;

/// The state of a log file is unknown. The error is latched: every later write to the log fails with it, and
/// the process has to stop acknowledging. A failed fsync is not retried, since the kernel may have dropped
/// the data.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum FatalError {
    /// The device reported an error.
    #[error("{action} {file} at offset {offset}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Name of the file in the log's folder.
        file: String,
        /// Byte offset, 0 where there is none.
        offset: u64,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// The device took only a part of a write.
    #[error("writing {file} at offset {offset}: only {wrote} of {len} bytes were taken")]
    ShortWrite {
        /// Name of the file in the log's folder.
        file: String,
        /// Byte offset of the write.
        offset: u64,
        /// Bytes given.
        len: usize,
        /// Bytes taken.
        wrote: usize,
    },
    /// The future of an earlier write was dropped before it was finished.
    #[error("an earlier write to the log was abandoned half way")]
    Abandoned,
}

impl FatalError {
    pub(crate) fn io(action: &'static str, file: String, offset: u64, source: io::Error) -> Self {
        Self::Io { action, file, offset, source: Arc::new(source) }
    }

    /// Whether the error is only a full disk.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_no_space(source))
    }
}

/// Why there is no new segment.
#[derive(Clone, Debug, Error)]
pub enum SegmentError {
    /// The disk is full. Nothing has changed; try again when there is room.
    #[error("no space for a log segment of {size_bytes} bytes")]
    NoSpace {
        /// Bytes a segment takes.
        size_bytes: u64,
    },
    /// The disk failed.
    #[error(transparent)]
    Failed(#[from] FatalError),
}

/// Why an append failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The log has failed for good.
    #[error(transparent)]
    Failed(#[from] FatalError),
    /// The disk is full. None of the frames was appended; the same append may be tried again.
    #[error("no space for the log: {needed_bytes} bytes needed")]
    NoSpace {
        /// Bytes that found no room.
        needed_bytes: u64,
    },
    /// A frame's zxids do not continue the log. Nothing was appended.
    #[error("batch begins with zxid {first_zxid}, the log ends with {last_zxid}")]
    Order {
        /// The last zxid before the frame.
        last_zxid: Zxid,
        /// The frame's first one.
        first_zxid: Zxid,
    },
    /// A frame continues another frame than the one before it. Nothing was appended.
    #[error("batch with zxid {first_zxid} continues checksum {found}, the log ends with {expected}")]
    Chain {
        /// The frame's first zxid.
        first_zxid: Zxid,
        /// Checksum of the frame before it.
        expected: Checksum,
        /// The one it names.
        found: Checksum,
    },
    /// The bytes are not exactly one frame. Nothing was appended.
    #[error("not a frame to append: {0}")]
    Frame(#[from] FrameError),
    /// A frame that fits into no segment. Nothing was appended.
    #[error("frame of {len} bytes, a segment holds {max} bytes")]
    TooLarge {
        /// Its length.
        len: usize,
        /// The greatest length that fits.
        max: u64,
    },
}

impl From<SegmentError> for AppendError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::NoSpace { size_bytes } => Self::NoSpace { needed_bytes: size_bytes },
            SegmentError::Failed(fatal) => Self::Failed(fatal),
        }
    }
}

/// Why a truncation failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum TruncateError {
    /// No segment to go on in, or a disk that failed.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The zxid is inside a batch, or unknown to this history.
    #[error("no batch of the log ends with zxid {zxid}")]
    NotABoundary {
        /// What was asked for.
        zxid: Zxid,
    },
    /// The log up to there is purged.
    #[error("cannot cut after zxid {zxid}: the log begins after {after_zxid}")]
    Purged {
        /// What was asked for.
        zxid: Zxid,
        /// The last zxid before the log's first frame.
        after_zxid: Zxid,
    },
    /// The log could not be read.
    #[error(transparent)]
    Read(ReadError),
}

impl From<FatalError> for TruncateError {
    fn from(fatal: FatalError) -> Self {
        Self::Segment(SegmentError::Failed(fatal))
    }
}

/// Damage to data that was durable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{file} is damaged at offset {offset}: transactions after zxid {after_zxid} up to {until_zxid} are lost or unreadable"
)]
pub struct Corruption {
    /// Name of the file in the log's folder.
    pub file: String,
    /// Offset of the damaged group, or of the segment's header.
    pub offset: u64,
    /// The last zxid that is sound.
    pub after_zxid: Zxid,
    /// The last zxid that is known to have been durable and is damaged.
    pub until_zxid: Zxid,
}

/// Why the log could not be read.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The data is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// The disk failed.
    #[error("reading {file} at offset {offset}: {source}")]
    Io {
        /// Name of the file in the log's folder.
        file: String,
        /// Byte offset.
        offset: u64,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// The log does not go back so far.
    #[error("zxid {zxid} is purged: the log begins after {after_zxid}")]
    Purged {
        /// What was asked for.
        zxid: Zxid,
        /// The last zxid before the log's first frame.
        after_zxid: Zxid,
    },
}

/// Why a log cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Damage to data that was durable. The log is not changed.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// Segments between others are not there.
    #[error("log segment {missing} is missing: {older} is older, {newer} continues the missing one")]
    MissingSegment {
        /// The file that is not there.
        missing: String,
        /// A file from before it.
        older: String,
        /// The file that continues it.
        newer: String,
    },
    /// A segment of another server or cluster.
    #[error("{file} belongs to the log of another server or cluster")]
    Foreign {
        /// Name of the file in the log's folder.
        file: String,
    },
    /// A segment of another version of the format.
    #[error("{file} has log format version {version}, this build reads {}", crate::segment::VERSION)]
    Version {
        /// Name of the file in the log's folder.
        file: String,
        /// Its version.
        version: u16,
    },
    /// A segment size that cannot be.
    #[error("segment size {0}: not a multiple of 4096 from 65,536 to 1 GiB")]
    SegmentSize(u64),
    /// A write size that cannot be.
    #[error("write size {0}: not a positive multiple of 4096")]
    WriteSize(usize),
    /// The disk failed, or is full.
    #[error("{action} {file}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Name of the file in the log's folder.
        file: String,
        /// The system's answer.
        source: io::Error,
    },
    /// No first segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The caller's replay refused a frame.
    #[error("replaying zxids {first_zxid} to {last_zxid}: {source}")]
    Replay {
        /// The frame's first zxid.
        first_zxid: Zxid,
        /// The frame's last zxid.
        last_zxid: Zxid,
        /// The caller's reason.
        source: ReplayError,
    },
}

impl OpenError {
    /// Whether durable data is damaged or missing, so that [`crate::salvage`] may help.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt(_) | Self::MissingSegment { .. })
    }
}

/// Why the caller's replay refused a frame.
pub type ReplayError = Box<dyn std::error::Error + Send + Sync>;
