//! A segment: a file of fixed size, filled ahead of use, whose first block says what it continues.
//!
//! ```text
//!  0        4        8    10   12      16         24         32           40       48     56     64         96     128
//!  +--------+--------+----+----+-------+----------+----------+------------+--------+------+------+----------+------+
//!  | magic  | CRC32C |ver |hlen| chain | sequence | previous | after zxid | number | salt | size | identity | zeros|
//!  | "RKSG" |        |    |128 |       |          | sequence |            |        |      |      |          |      |
//!  +--------+--------+----+----+-------+----------+----------+------------+--------+------+------+----------+------+
//!                    |<--------------------------- covered by the CRC32C ---------------------------------------->|
//! ```
//!
//! Segments form a linked list. A header says that the history continues here, behind the frame of segment
//! `previous` that ends with `after zxid` and has checksum `chain`. Everything behind that frame in the
//! previous segment, and every segment numbered between the two, is void. So one durable header truncates the
//! log atomically, without rewriting durable data. A new segment without a truncation uses the same header,
//! with nothing to cut.
//!
//! `previous` is 0 where a log begins: at its very start, or behind a snapshot that was received.
//!
//! A file's name holds its sequence only. A file without a header, or with the header of another sequence, is
//! a spare: so segments are prepared and recycled without writing their headers.

use ringkeeper_wire::Zxid;

use crate::frame::Checksum;
use crate::frame::layout::{array_at, put, u16_at, u32_at, u64_at};
use crate::group::Home;

pub(crate) const HEADER_LEN: usize = RESERVED_AT + 32;

/// The format this build writes and reads.
pub(crate) const VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"RKSG";
const MAGIC_AT: usize = 0;
const CHECKSUM_AT: usize = MAGIC_AT + 4;
const VERSION_AT: usize = CHECKSUM_AT + 4;
const HEADER_LEN_AT: usize = VERSION_AT + 2;
const CHAIN_AT: usize = HEADER_LEN_AT + 2;
const SEQUENCE_AT: usize = CHAIN_AT + 4;
const PREVIOUS_AT: usize = SEQUENCE_AT + 8;
const AFTER_ZXID_AT: usize = PREVIOUS_AT + 8;
const NUMBER_AT: usize = AFTER_ZXID_AT + 8;
const SALT_AT: usize = NUMBER_AT + 8;
const SIZE_AT: usize = SALT_AT + 8;
const IDENTITY_AT: usize = SIZE_AT + 8;
const RESERVED_AT: usize = IDENTITY_AT + IDENTITY_LEN;

const COVERED_AT: usize = VERSION_AT;
const HEADER_LEN_FIELD: u16 = 128;

const _: () = assert!(HEADER_LEN == HEADER_LEN_FIELD as usize);

/// Bytes of [`Identity::owner`].
pub const IDENTITY_LEN: usize = 32;

/// The owner of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Names the cluster and the server, as the caller likes; a log with other bytes is refused.
    pub owner: [u8; IDENTITY_LEN],
    /// Secret number, drawn when the server's folder is created, so that a client's data cannot imitate the
    /// log's own structures.
    pub salt: u64,
}

/// The fields of a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) sequence: u64,
    /// Sequence of the segment this one continues; 0 where a log begins.
    pub(crate) previous: u64,
    /// Last zxid before this segment.
    pub(crate) after_zxid: Zxid,
    /// Checksum of the frame that ends with `after_zxid`.
    pub(crate) chain: Checksum,
    /// The header's place in the order of groups, see [`crate::group`].
    pub(crate) number: u64,
    /// Length of the file in bytes.
    pub(crate) size_bytes: u64,
    pub(crate) identity: Identity,
}

/// Why the first block of a file is no valid header of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// No header was written since the file got its name.
    Absent,
    /// Sound, but of a version this build does not know.
    Version(u16),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        put(&mut out, MAGIC_AT, MAGIC);
        put(&mut out, VERSION_AT, VERSION.to_le_bytes());
        put(&mut out, HEADER_LEN_AT, HEADER_LEN_FIELD.to_le_bytes());
        put(&mut out, CHAIN_AT, self.chain.0.to_le_bytes());
        put(&mut out, SEQUENCE_AT, self.sequence.to_le_bytes());
        put(&mut out, PREVIOUS_AT, self.previous.to_le_bytes());
        put(&mut out, AFTER_ZXID_AT, self.after_zxid.0.to_le_bytes());
        put(&mut out, NUMBER_AT, self.number.to_le_bytes());
        put(&mut out, SALT_AT, self.identity.salt.to_le_bytes());
        put(&mut out, SIZE_AT, self.size_bytes.to_le_bytes());
        put(&mut out, IDENTITY_AT, self.identity.owner);
        let checksum = crc32c::crc32c(&out[COVERED_AT..]);
        put(&mut out, CHECKSUM_AT, checksum.to_le_bytes());
        out
    }

    /// The header in the first block of the file that is named after `sequence`.
    pub(crate) fn decode(block: &[u8], sequence: u64) -> Result<Self, HeaderFault> {
        let bytes = block.get(..HEADER_LEN).ok_or(HeaderFault::Absent)?;
        let sound = bytes[..MAGIC.len()] == MAGIC
            && u32_at(bytes, CHECKSUM_AT) == crc32c::crc32c(&bytes[COVERED_AT..]);
        if !sound {
            return Err(HeaderFault::Absent);
        }
        let version = u16_at(bytes, VERSION_AT);
        if version != VERSION || u16_at(bytes, HEADER_LEN_AT) != HEADER_LEN_FIELD {
            return Err(HeaderFault::Version(version));
        }
        let header = Self {
            sequence: u64_at(bytes, SEQUENCE_AT),
            previous: u64_at(bytes, PREVIOUS_AT),
            after_zxid: Zxid(u64_at(bytes, AFTER_ZXID_AT)),
            chain: Checksum(u32_at(bytes, CHAIN_AT)),
            number: u64_at(bytes, NUMBER_AT),
            size_bytes: u64_at(bytes, SIZE_AT),
            identity: Identity { owner: array_at(bytes, IDENTITY_AT), salt: u64_at(bytes, SALT_AT) },
        };
        if header.sequence == sequence { Ok(header) } else { Err(HeaderFault::Absent) }
    }

    /// Where the segment's groups belong.
    pub(crate) fn home(&self) -> Home {
        Home { segment: self.sequence, salt: self.identity.salt }
    }
}

/// The name of a segment's file.
pub(crate) fn file_name(sequence: u64) -> String {
    format!("log.{sequence:016x}")
}

/// The sequence in the name of a segment's file.
pub(crate) fn sequence_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log.")?;
    let sequence = u64::from_str_radix(digits, 16).ok()?;
    (sequence != 0 && file_name(sequence) == name).then_some(sequence)
}
