//! A batch of transactions and its frame.

use std::fmt;

use bytes::Bytes;
use ringkeeper_wire::{Epoch, Zxid};

use crate::frame::{self, AlignedBuf, Checksum, Frame, FrameError, Meta};
use crate::position::LogPosition;

/// Transactions that are proposed, appended, synced, committed and truncated together.
///
/// The bytes of a batch are a frame, so a learner is sent exactly what is in the leader's log. The broadcast
/// passes them on without reading them; only [`Self::payload`] parses them. Clones share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Batch {
    first: Zxid,
    last: Zxid,
    checksum: Checksum,
    bytes: Bytes,
}

/// Why zxids or bytes do not form a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    /// The bytes are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The bytes are a frame with other zxids.
    #[error("its frame holds {} to {}", .0.first_zxid, .0.last_zxid)]
    Other(Meta),
}

impl Batch {
    /// A batch of the transactions `first..=last`.
    ///
    /// `checksum` identifies the frame, see [`LogPosition`].
    ///
    /// # Errors
    /// When the zxids are not a non-empty range of one epoch.
    pub fn new(first: Zxid, last: Zxid, checksum: Checksum, bytes: Bytes) -> Result<Self, BatchError> {
        if first > last || first.epoch() != last.epoch() {
            return Err(BatchError::Range { first, last });
        }
        if first.counter() == 0 {
            return Err(BatchError::Counter(first));
        }
        Ok(Self { first, last, checksum, bytes })
    }

    /// The batch of the transactions `first..=last`, continuing the frame with checksum `previous`. Their
    /// encoding is in `frame`, behind the header's place from [`frame::begin`]; nothing is copied.
    ///
    /// # Panics
    /// The zxids are not a range of one epoch, or the payload has 4 GiB or more.
    #[must_use]
    pub fn seal(first: Zxid, last: Zxid, previous: Checksum, mut frame: AlignedBuf) -> Self {
        let meta = Meta { epoch: first.epoch(), first_zxid: first, last_zxid: last };
        let checksum = frame::complete(meta, previous, &mut frame)
            .expect("a batch has the zxids of one epoch and far less than 4 GiB");
        Self { first, last, checksum, bytes: Bytes::from_owner(fitted(frame)) }
    }

    /// As [`Self::seal`], for a payload in another buffer, which is copied.
    ///
    /// # Panics
    /// As [`Self::seal`].
    #[must_use]
    pub fn of(first: Zxid, last: Zxid, previous: Checksum, payload: &[u8]) -> Self {
        let mut frame = frame::begin(payload.len());
        frame.extend_from_slice(payload);
        Self::seal(first, last, previous, frame)
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

    /// The epoch of the leader that proposed it.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.first.epoch()
    }

    /// The position after the batch.
    #[must_use]
    pub const fn end(&self) -> LogPosition {
        LogPosition { zxid: self.last, checksum: self.checksum }
    }

    /// The frame.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether the batch can stand right after `prev`, see [`frame::follows`].
    #[must_use]
    pub fn follows(&self, prev: Zxid) -> bool {
        frame::follows(prev, self.first)
    }

    /// How many transactions it has.
    #[must_use]
    pub const fn txns(&self) -> u64 {
        self.last.0 - self.first.0 + 1
    }

    /// The transactions as the application has encoded them. Validates the frame, which may come from the
    /// network.
    ///
    /// # Errors
    /// The bytes are no frame, or another batch's.
    pub fn payload(&self) -> Result<&[u8], BatchError> {
        let frame = frame::parse(&self.bytes)?;
        let meta = frame.meta();
        if (meta.first_zxid, meta.last_zxid, frame.checksum()) != (self.first, self.last, self.checksum) {
            return Err(BatchError::Other(meta));
        }
        Ok(frame.payload())
    }
}

impl From<&Frame<'_>> for Batch {
    fn from(frame: &Frame<'_>) -> Self {
        let Meta { first_zxid, last_zxid, .. } = frame.meta();
        // The frame was validated when it was parsed.
        let bytes = aligned(frame.bytes());
        Self { first: first_zxid, last: last_zxid, checksum: frame.checksum(), bytes }
    }
}

/// A copy of `bytes` that begins at a multiple of [`frame::FRAME_ALIGN`].
#[must_use]
pub fn aligned(bytes: &[u8]) -> Bytes {
    let mut copy = AlignedBuf::with_capacity(bytes.len());
    copy.extend_from_slice(bytes);
    Bytes::from_owner(copy)
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({}..={}, {} B, {})", self.first, self.last, self.bytes.len(), self.checksum)
    }
}

/// Memory that a frame may have beyond itself, bytes.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// Gives back memory that a frame was thought to need: a request that is refused may be a megabyte long, its
/// batch has some bytes, and batches are kept for learners by their length.
fn fitted(mut frame: AlignedBuf) -> AlignedBuf {
    if frame.capacity() - frame.len() > SPARE_BYTES_MAX {
        frame.shrink_to_fit();
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zxid(epoch: u32, counter: u32) -> Zxid {
        Zxid::new(Epoch(epoch), counter)
    }

    fn batch(first: Zxid, last: Zxid) -> Result<Batch, BatchError> {
        Batch::new(first, last, Checksum::NONE, Bytes::new())
    }

    #[test]
    fn a_batch_is_a_range_of_one_epoch() {
        assert!(batch(zxid(1, 1), zxid(1, 3)).is_ok());
        assert!(batch(zxid(1, 3), zxid(1, 2)).is_err());
        assert!(batch(zxid(1, 3), zxid(2, 4)).is_err());
        assert_eq!(batch(zxid(1, 0), zxid(1, 4)), Err(BatchError::Counter(zxid(1, 0))));
    }

    #[test]
    fn a_framed_batch_gives_its_payload_and_another_batchs_frame_is_refused() {
        let framed = Batch::of(zxid(1, 1), zxid(1, 3), Checksum(7), b"payload");
        assert_eq!(framed.payload(), Ok(&b"payload"[..]));
        let frame = frame::parse(framed.bytes()).expect("a frame");
        assert_eq!((frame.previous(), Batch::from(&frame)), (Checksum(7), framed.clone()));
        let other = Batch::new(zxid(1, 1), zxid(1, 2), framed.checksum, framed.bytes().clone());
        assert_eq!(other.expect("a range").payload(), Err(BatchError::Other(frame.meta())));
        let mut harmed = framed.bytes().to_vec();
        harmed[70] ^= 1;
        let harmed = Batch::new(zxid(1, 1), zxid(1, 3), framed.checksum, harmed.into()).expect("a range");
        assert!(matches!(harmed.payload(), Err(BatchError::Frame(FrameError::Checksum { .. }))));
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

    #[test]
    fn a_short_frame_keeps_no_memory_of_a_long_one() {
        let mut frame = frame::begin(1 << 20);
        frame.extend_from_slice(b"short");
        assert!(fitted(frame).capacity() < SPARE_BYTES_MAX);
    }
}
