//! The frame: one batch of transactions, encoded once by the leader. The same bytes are sent to the other
//! servers and stored in every server's log.
//!
//! ```text
//!        0        4        8    10   12   14   16       20       24          32          40       44      64
//!        +--------+--------+----+----+----+----+--------+--------+-----------+-----------+--------+-------+----------
//!        | magic  | CRC32C |ver |hlen|kind|flag|payload | epoch  | first     | last      | CRC of | zeros | payload
//!        | "RKPB" |        |    | 64 |  1 | 0  | length |        | zxid      | zxid      | former |       |
//!        +--------+--------+----+----+----+----+--------+--------+-----------+-----------+--------+-------+----------
//!                          |<----------------------------- covered by the CRC32C ---------------------------------->|
//! ```
//!
//! Numbers are little-endian. The header is 64 bytes and frames start at multiples of 16, so a payload is as
//! aligned as rkyv wants it. The payload's exact length is stored: an archive's root is found from its end,
//! which padding would move.
//!
//! `CRC of former` makes the frames a chain: a frame that is lost, repeated, misplaced or of another history
//! does not continue the frame before it. The first frame of all continues [`Checksum::NONE`].

use std::fmt;

use ringkeeper_wire::{Epoch, Zxid};
use rkyv::util::AlignedVec;
use thiserror::Error;

use crate::layout::{array_at, put, u16_at, u32_at, u64_at};

/// A byte buffer whose start is a multiple of [`FRAME_ALIGN`].
pub type AlignedBuf = AlignedVec<FRAME_ALIGN>;

/// Frames, and therefore payloads, start at a multiple of this many bytes.
pub const FRAME_ALIGN: usize = 16;

/// Bytes before the payload.
pub const HEADER_LEN: usize = RESERVED_AT + 20;

/// The format this build writes and reads.
pub const VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"RKPB";
const MAGIC_AT: usize = 0;
const CHECKSUM_AT: usize = MAGIC_AT + 4;
const VERSION_AT: usize = CHECKSUM_AT + 4;
const HEADER_LEN_AT: usize = VERSION_AT + 2;
const KIND_AT: usize = HEADER_LEN_AT + 2;
const FLAGS_AT: usize = KIND_AT + 2;
const PAYLOAD_LEN_AT: usize = FLAGS_AT + 2;
const EPOCH_AT: usize = PAYLOAD_LEN_AT + 4;
const FIRST_ZXID_AT: usize = EPOCH_AT + 4;
const LAST_ZXID_AT: usize = FIRST_ZXID_AT + 8;
const PREVIOUS_AT: usize = LAST_ZXID_AT + 8;
const RESERVED_AT: usize = PREVIOUS_AT + 4;
const RESERVED_LEN: usize = HEADER_LEN - RESERVED_AT;

/// Where the CRC32C begins: after the magic and itself.
const COVERED_AT: usize = VERSION_AT;

/// `HEADER_LEN` as it is stored.
const HEADER_LEN_FIELD: u16 = 64;

const _: () = assert!(HEADER_LEN == HEADER_LEN_FIELD as usize);
const _: () = assert!(HEADER_LEN.is_multiple_of(FRAME_ALIGN));

const KIND_BATCH: u16 = 1;

/// A frame's CRC32C, by which the next frame names it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Checksum(pub u32);

impl Checksum {
    /// What the first frame of a history continues.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Epoch and zxids of a frame's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The epoch of the leader that proposed the batch; the high half of both zxids.
    pub epoch: Epoch,
    /// Zxid of the batch's first transaction.
    pub first_zxid: Zxid,
    /// Zxid of its last one; not below `first_zxid`.
    pub last_zxid: Zxid,
}

/// A frame with valid checksum and fields, borrowed from the bytes it was parsed from.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    meta: Meta,
    checksum: Checksum,
    previous: Checksum,
    bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Epoch and zxids of the batch.
    #[must_use]
    pub fn meta(&self) -> Meta {
        self.meta
    }

    /// This frame's own checksum.
    #[must_use]
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }

    /// The checksum of the frame that this one continues.
    #[must_use]
    pub fn previous(&self) -> Checksum {
        self.previous
    }

    /// The batch, exactly as long as it was encoded.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// Header and payload: what is sent to a peer or appended to a log.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("first_zxid", &self.meta.first_zxid)
            .field("last_zxid", &self.meta.last_zxid)
            .field("checksum", &self.checksum)
            .field("previous", &self.previous)
            .field("payload_len", &self.payload().len())
            .finish_non_exhaustive()
    }
}

/// Why bytes are not a frame.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The bytes end before the frame does.
    #[error("frame cut short: {have} of {need} bytes")]
    Incomplete {
        /// Bytes of the whole frame, as far as its header is there.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// The bytes do not begin like a frame.
    #[error("no frame here: magic {0:02x?}")]
    Magic([u8; 4]),
    /// Written by another version of the format.
    #[error("frame format version {0}, this build reads {VERSION}")]
    Version(u16),
    /// A header of another length than this version has.
    #[error("frame header of {0} bytes, {HEADER_LEN} expected")]
    HeaderLength(u16),
    /// The frame is damaged.
    #[error("frame checksum {found}, its bytes give {computed}")]
    Checksum {
        /// In the header.
        found: Checksum,
        /// Of the bytes.
        computed: Checksum,
    },
    /// A kind of frame that this build does not know.
    #[error("frame of unknown kind {0}")]
    Kind(u16),
    /// Flags or reserved bytes that this build does not know.
    #[error("frame with unknown flags or reserved bytes")]
    Reserved,
    /// First zxid, last zxid and epoch do not fit together.
    #[error("frame of epoch {} spans zxids {} to {}", .0.epoch.0, .0.first_zxid, .0.last_zxid)]
    Zxids(Meta),
}

/// A batch that has no frame: its zxids do not fit together, or its payload is 4 GiB or more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// First zxid, last zxid and epoch do not fit together.
    #[error("batch of epoch {} spans zxids {} to {}", .0.epoch.0, .0.first_zxid, .0.last_zxid)]
    Zxids(Meta),
    /// Longer than the length field can say.
    #[error("payload of {0} bytes, a frame holds less than 4 GiB")]
    PayloadTooLong(usize),
}

/// A buffer with space for the header, behind which a payload of about `payload_len` bytes is to be written
/// before [`complete`]. So a payload is encoded in its final place.
#[must_use]
pub fn begin(payload_len: usize) -> AlignedBuf {
    let mut frame = AlignedBuf::with_capacity(HEADER_LEN + payload_len);
    frame.extend_from_slice(&[0; HEADER_LEN]);
    frame
}

/// Writes the header in front of a payload: `frame` becomes the frame of a batch that continues the frame
/// with checksum `previous`. Returns the new frame's checksum.
///
/// # Errors
/// When the batch has no frame; `frame` is then unchanged.
///
/// # Panics
/// `frame` is shorter than what [`begin`] made.
pub fn complete(meta: Meta, previous: Checksum, frame: &mut [u8]) -> Result<Checksum, EncodeError> {
    if !zxids_fit(&meta) {
        return Err(EncodeError::Zxids(meta));
    }
    let (place, payload) = frame.split_at_mut(HEADER_LEN);
    let payload_len = u32::try_from(payload.len()).map_err(|_| EncodeError::PayloadTooLong(payload.len()))?;
    let mut header = [0; HEADER_LEN];
    put(&mut header, MAGIC_AT, MAGIC);
    put(&mut header, VERSION_AT, VERSION.to_le_bytes());
    put(&mut header, HEADER_LEN_AT, HEADER_LEN_FIELD.to_le_bytes());
    put(&mut header, KIND_AT, KIND_BATCH.to_le_bytes());
    put(&mut header, PAYLOAD_LEN_AT, payload_len.to_le_bytes());
    put(&mut header, EPOCH_AT, meta.epoch.0.to_le_bytes());
    put(&mut header, FIRST_ZXID_AT, meta.first_zxid.0.to_le_bytes());
    put(&mut header, LAST_ZXID_AT, meta.last_zxid.0.to_le_bytes());
    put(&mut header, PREVIOUS_AT, previous.0.to_le_bytes());
    let covered = crc32c::crc32c(&header[COVERED_AT..]);
    let checksum = Checksum(crc32c::crc32c_append(covered, payload));
    put(&mut header, CHECKSUM_AT, checksum.0.to_le_bytes());
    place.copy_from_slice(&header);
    Ok(checksum)
}

/// Replaces the contents of `out` by the frame of a payload in another buffer: [`begin`] and [`complete`] in
/// one.
///
/// # Errors
/// When the batch has no frame; `out` is then unchanged.
pub fn encode(
    meta: Meta,
    payload: &[u8],
    previous: Checksum,
    out: &mut AlignedBuf,
) -> Result<Checksum, EncodeError> {
    let mut frame = begin(payload.len());
    frame.extend_from_slice(payload);
    let checksum = complete(meta, previous, &mut frame)?;
    *out = frame;
    Ok(checksum)
}

/// Parses the frame at the start of `bytes`, behind which other bytes may follow.
///
/// Magic, version and lengths locate the checksum; all other fields are used only after it is verified.
///
/// # Errors
/// When there is no whole, unharmed frame of this version.
pub fn parse(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let bytes = extent(bytes)?;
    let found = Checksum(u32_at(bytes, CHECKSUM_AT));
    let computed = Checksum(crc32c::crc32c(&bytes[COVERED_AT..]));
    if found != computed {
        return Err(FrameError::Checksum { found, computed });
    }
    fields(bytes)
}

/// As [`parse`], without verifying the checksum: for bytes that this process has verified before.
///
/// # Errors
/// When the fields make no frame of this version.
pub fn parse_trusted(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    fields(extent(bytes)?)
}

/// How long the frame at the start of `bytes` says it is, in bytes, header included. Only its magic, version
/// and header length have been checked: bound the answer before allocating for it.
///
/// # Errors
/// When `bytes` do not begin with a frame's header.
pub fn encoded_len(bytes: &[u8]) -> Result<usize, FrameError> {
    if bytes.len() < HEADER_LEN {
        return Err(FrameError::Incomplete { need: HEADER_LEN, have: bytes.len() });
    }
    let magic = array_at(bytes, MAGIC_AT);
    if magic != MAGIC {
        return Err(FrameError::Magic(magic));
    }
    let version = u16_at(bytes, VERSION_AT);
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let header_len = u16_at(bytes, HEADER_LEN_AT);
    if header_len != HEADER_LEN_FIELD {
        return Err(FrameError::HeaderLength(header_len));
    }
    let payload_len = usize::try_from(u32_at(bytes, PAYLOAD_LEN_AT)).unwrap_or(usize::MAX);
    Ok(HEADER_LEN.saturating_add(payload_len))
}

/// Whether a batch that begins with `first` continues a history that ends with `last`: the next counter of
/// the same epoch, or counter 1 of a later epoch (counter 0 names no transaction).
#[must_use]
pub fn follows(last: Zxid, first: Zxid) -> bool {
    if first.epoch() == last.epoch() {
        last.next() == Some(first)
    } else {
        first.epoch() > last.epoch() && first.counter() == 1
    }
}

fn extent(bytes: &[u8]) -> Result<&[u8], FrameError> {
    let need = encoded_len(bytes)?;
    bytes.get(..need).ok_or(FrameError::Incomplete { need, have: bytes.len() })
}

fn fields(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let kind = u16_at(bytes, KIND_AT);
    if kind != KIND_BATCH {
        return Err(FrameError::Kind(kind));
    }
    if u16_at(bytes, FLAGS_AT) != 0 || array_at(bytes, RESERVED_AT) != [0; RESERVED_LEN] {
        return Err(FrameError::Reserved);
    }
    let meta = Meta {
        epoch: Epoch(u32_at(bytes, EPOCH_AT)),
        first_zxid: Zxid(u64_at(bytes, FIRST_ZXID_AT)),
        last_zxid: Zxid(u64_at(bytes, LAST_ZXID_AT)),
    };
    if !zxids_fit(&meta) {
        return Err(FrameError::Zxids(meta));
    }
    Ok(Frame {
        meta,
        checksum: Checksum(u32_at(bytes, CHECKSUM_AT)),
        previous: Checksum(u32_at(bytes, PREVIOUS_AT)),
        bytes,
    })
}

/// A batch belongs to one epoch, has a transaction, and no transaction has counter 0.
fn zxids_fit(meta: &Meta) -> bool {
    meta.first_zxid.epoch() == meta.epoch
        && meta.last_zxid.epoch() == meta.epoch
        && meta.first_zxid.counter() != 0
        && meta.first_zxid <= meta.last_zxid
}

#[cfg(test)]
mod tests;
