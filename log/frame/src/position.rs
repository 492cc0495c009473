//! Places between two batches of a log.

use std::fmt;

use ringkeeper_wire::Zxid;

use crate::frame::Checksum;

/// A position between two batches of a log: everything up to and including `zxid`.
///
/// Zab keeps two facts true of all logs of an ensemble (DSN 2011): a zxid names one transaction, and logs
/// that hold the same zxid hold the same transactions before it. The checksum lets a reader *check* that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// The last zxid before the position; [`Zxid::ZERO`] is the start of all history.
    pub zxid: Zxid,
    /// Checksum of the frame that ends here, which the next frame continues; [`Checksum::NONE`] when it is
    /// not known, which matches every other.
    pub checksum: Checksum,
}

impl LogPosition {
    /// The start of all history.
    pub const START: Self = Self { zxid: Zxid::ZERO, checksum: Checksum::NONE };

    /// Whether two positions with the same zxid can be the same one.
    #[must_use]
    pub const fn agrees(self, other: Self) -> bool {
        self.zxid.0 == other.zxid.0
            && (self.checksum.0 == other.checksum.0 || self.checksum.0 == 0 || other.checksum.0 == 0)
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.zxid, self.checksum)
    }
}
