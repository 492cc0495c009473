//! The unit of replication: a batch of transactions, and the log positions between batches.

use std::fmt;
use std::sync::Arc;

use ringkeeper_wire::{Epoch, Zxid};

/// A position between two batches of a log: everything up to and including `zxid`.
///
/// Zab keeps two facts true of all logs of an ensemble (DSN 2011): a zxid names one transaction, and logs
/// that hold the same zxid hold the same transactions before it. The checksum lets a reader *check* that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogMark {
    /// The last zxid before the position; [`Zxid::ZERO`] is the start of all history.
    pub zxid: Zxid,
    /// Checksum of the frame that ends here; 0 when it is not known, which matches every other.
    pub checksum: u32,
}

impl LogMark {
    /// The start of all history.
    pub const START: Self = Self { zxid: Zxid::ZERO, checksum: 0 };

    /// Whether two marks of the same zxid can be the same position.
    #[must_use]
    pub const fn agrees(self, other: Self) -> bool {
        self.zxid.0 == other.zxid.0
            && (self.checksum == other.checksum || self.checksum == 0 || other.checksum == 0)
    }
}

/// Transactions that are proposed, appended, synced, committed and truncated as one.
///
/// The payload is opaque. In production it is the encoded log frame, so the bytes sent to a learner are the
/// bytes in the leader's log. Cloning shares the payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Batch {
    first: Zxid,
    last: Zxid,
    checksum: u32,
    bytes: Arc<[u8]>,
}

/// Why zxids do not form a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The range is empty or spans epochs.
    #[error("{first} to {last} is not a range inside one epoch")]
    Range {
        /// First zxid given.
        first: Zxid,
        /// Last zxid given.
        last: Zxid,
    },
    /// Counter 0 begins an epoch and names no transaction.
    #[error("{0} names no transaction")]
    Counter(Zxid),
}

impl Batch {
    /// A batch of the transactions `first..=last`.
    ///
    /// `checksum` identifies the frame (0: none), see [`LogMark`].
    ///
    /// # Errors
    /// When the zxids are not a non-empty range of one epoch.
    pub fn new(first: Zxid, last: Zxid, checksum: u32, bytes: Arc<[u8]>) -> Result<Self, BatchError> {
        if first > last || first.epoch() != last.epoch() {
            return Err(BatchError::Range { first, last });
        }
        if first.counter() == 0 {
            return Err(BatchError::Counter(first));
        }
        Ok(Self { first, last, checksum, bytes })
    }

    /// The first transaction.
    #[must_use]
    pub const fn first(&self) -> Zxid {
        self.first
    }

    /// The last transaction.
    #[must_use]
    pub const fn last(&self) -> Zxid {
        self.last
    }

    /// The leadership that proposed it.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.first.epoch()
    }

    /// The position after the batch.
    #[must_use]
    pub const fn end(&self) -> LogMark {
        LogMark { zxid: self.last, checksum: self.checksum }
    }

    /// The payload.
    #[must_use]
    pub const fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Whether the batch can stand right after `prev`: the next counter of the same epoch, or the first of a
    /// later one.
    #[must_use]
    pub fn follows(&self, prev: Zxid) -> bool {
        if self.first.epoch() == prev.epoch() {
            prev.next() == Some(self.first)
        } else {
            self.first.epoch() > prev.epoch() && self.first.counter() == 1
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({}..={}, {} B, {:08x})", self.first, self.last, self.bytes.len(), self.checksum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zxid(epoch: u32, counter: u32) -> Zxid {
        Zxid::new(Epoch(epoch), counter)
    }

    fn batch(first: Zxid, last: Zxid) -> Result<Batch, BatchError> {
        Batch::new(first, last, 0, Arc::from([]))
    }

    #[test]
    fn a_batch_is_a_range_of_one_epoch() {
        assert!(batch(zxid(1, 1), zxid(1, 3)).is_ok());
        assert!(batch(zxid(1, 3), zxid(1, 2)).is_err());
        assert!(batch(zxid(1, 3), zxid(2, 4)).is_err());
        assert_eq!(batch(zxid(1, 0), zxid(1, 4)), Err(BatchError::Counter(zxid(1, 0))));
    }

    #[test]
    fn a_batch_follows_without_a_gap() {
        let next = batch(zxid(2, 4), zxid(2, 5)).unwrap();
        assert!(next.follows(zxid(2, 3)));
        assert!(!next.follows(zxid(2, 2)));
        assert!(!next.follows(zxid(2, 4)));
        assert!(!next.follows(zxid(1, 3)), "an epoch begins with counter 1");
        assert!(batch(zxid(2, 1), zxid(2, 1)).unwrap().follows(zxid(1, 77)));
    }
}
