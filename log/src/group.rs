//! The group: the frames of one append, as they lie in a segment. Local to one server's disk.
//!
//! A group starts on a fresh block, so that no durable block is ever rewritten, and has a header of its own
//! in front of its frames:
//!
//! ```text
//!  0        4        8    10   12     16       24        32        40     48           56       60      64
//!  +--------+--------+----+----+------+--------+---------+---------+------+------------+--------+-------+-------
//!  | magic  | CRC32C |ver |hlen|frames| number | durable | segment | salt | after zxid | length | zeros | frames
//!  | "RKGR" |        |    | 64 |      |        |         |         |      |            |        |       |
//!  +--------+--------+----+----+------+--------+---------+---------+------+------------+--------+-------+-------
//!                    |<---------- covered by the CRC32C (the frames have their own) ------------------->|
//! ```
//!
//! - `number` increases with every group and segment header of this log and is never reused.
//! - `durable`: everything numbered up to here was durable when this group was written. This distinguishes a
//!   torn tail from corruption: a crash can lose or tear any block written since the last sync, in any order,
//!   but a group with `durable >= n` proves that number `n` was once intact.
//! - `segment` and `salt` distinguish this segment's groups from those of an earlier use of the file, of
//!   another log, or forged in a client's data. The salt never leaves the server.
//! - `after zxid` is the last zxid before the group.
//! - A group without frames is a seal: it only records what is durable.

use ringkeeper_wire::Zxid;

use crate::frame::layout::{put, u16_at, u32_at, u64_at};
use crate::frame::{self, Checksum, FRAME_ALIGN, Frame, FrameError};

pub(crate) const HEADER_LEN: usize = RESERVED_AT + 4;

const VERSION: u16 = 1;
const MAGIC: [u8; 4] = *b"RKGR";
const MAGIC_AT: usize = 0;
const CHECKSUM_AT: usize = MAGIC_AT + 4;
const VERSION_AT: usize = CHECKSUM_AT + 4;
const HEADER_LEN_AT: usize = VERSION_AT + 2;
const FRAMES_AT: usize = HEADER_LEN_AT + 2;
const NUMBER_AT: usize = FRAMES_AT + 4;
const DURABLE_AT: usize = NUMBER_AT + 8;
const SEGMENT_AT: usize = DURABLE_AT + 8;
const SALT_AT: usize = SEGMENT_AT + 8;
const AFTER_ZXID_AT: usize = SALT_AT + 8;
const BODY_LEN_AT: usize = AFTER_ZXID_AT + 8;
const RESERVED_AT: usize = BODY_LEN_AT + 4;

const COVERED_AT: usize = VERSION_AT;
const HEADER_LEN_FIELD: u16 = 64;

const _: () = assert!(HEADER_LEN == HEADER_LEN_FIELD as usize);
const _: () = assert!(HEADER_LEN.is_multiple_of(FRAME_ALIGN));

/// Which file and which log a group belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) segment: u64,
    pub(crate) salt: u64,
}

/// The fields of a group's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    pub(crate) home: Home,
    pub(crate) number: u64,
    pub(crate) durable: u64,
    pub(crate) after_zxid: Zxid,
    pub(crate) frames: u32,
    /// Bytes from the header's end to the end of the last frame.
    pub(crate) body_len: u32,
}

impl GroupHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        put(&mut out, MAGIC_AT, MAGIC);
        put(&mut out, VERSION_AT, VERSION.to_le_bytes());
        put(&mut out, HEADER_LEN_AT, HEADER_LEN_FIELD.to_le_bytes());
        put(&mut out, FRAMES_AT, self.frames.to_le_bytes());
        put(&mut out, NUMBER_AT, self.number.to_le_bytes());
        put(&mut out, DURABLE_AT, self.durable.to_le_bytes());
        put(&mut out, SEGMENT_AT, self.home.segment.to_le_bytes());
        put(&mut out, SALT_AT, self.home.salt.to_le_bytes());
        put(&mut out, AFTER_ZXID_AT, self.after_zxid.0.to_le_bytes());
        put(&mut out, BODY_LEN_AT, self.body_len.to_le_bytes());
        let checksum = crc32c::crc32c(&out[COVERED_AT..]);
        put(&mut out, CHECKSUM_AT, checksum.to_le_bytes());
        out
    }

    /// The header at the start of `bytes`, if there is one that belongs to `home`.
    pub(crate) fn decode(bytes: &[u8], home: Home) -> Option<Self> {
        let bytes = bytes.get(..HEADER_LEN)?;
        let ours = bytes[..MAGIC.len()] == MAGIC
            && u16_at(bytes, VERSION_AT) == VERSION
            && u16_at(bytes, HEADER_LEN_AT) == HEADER_LEN_FIELD
            && u32_at(bytes, CHECKSUM_AT) == crc32c::crc32c(&bytes[COVERED_AT..])
            && home == Home { segment: u64_at(bytes, SEGMENT_AT), salt: u64_at(bytes, SALT_AT) };
        ours.then(|| Self {
            home,
            number: u64_at(bytes, NUMBER_AT),
            durable: u64_at(bytes, DURABLE_AT),
            after_zxid: Zxid(u64_at(bytes, AFTER_ZXID_AT)),
            frames: u32_at(bytes, FRAMES_AT),
            body_len: u32_at(bytes, BODY_LEN_AT),
        })
    }

    /// Bytes of header and frames, without the padding to whole blocks.
    pub(crate) fn len(&self) -> u64 {
        HEADER_LEN as u64 + u64::from(self.body_len)
    }
}

/// Bytes that a frame of `len` bytes takes inside a group.
pub(crate) const fn padded(len: usize) -> usize {
    len.next_multiple_of(FRAME_ALIGN)
}

/// The end of a history, which the next group has to continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tip {
    /// Last zxid.
    pub(crate) zxid: Zxid,
    /// Checksum of the frame that holds it.
    pub(crate) checksum: Checksum,
    /// Number of the last group or segment header.
    pub(crate) number: u64,
}

/// Why a group does not continue a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// No header of this segment where one should be.
    NoHeader,
    /// The header is sound, but the group continues another history.
    Stray,
    /// A frame is damaged or incomplete.
    Frame(FrameError),
    /// A sound frame does not continue the one before it.
    Chain,
    /// The header's count or length does not fit the frames.
    Count,
}

impl Tip {
    /// Checks all frames of a group, or those up to zxid `until`; returns the end of the history behind them.
    pub(crate) fn check(
        self,
        header: &GroupHeader,
        body: &[u8],
        until: Option<Zxid>,
    ) -> Result<Self, Damage> {
        if header.number <= self.number || header.after_zxid != self.zxid {
            return Err(Damage::Stray);
        }
        let mut tip = Self { number: header.number, ..self };
        let mut rest = body;
        for _ in 0..header.frames {
            let frame = frame::parse(rest).map_err(Damage::Frame)?;
            if until.is_some_and(|until| frame.meta().last_zxid > until) {
                return Ok(tip);
            }
            tip = tip.after(&frame).ok_or(Damage::Chain)?;
            rest = rest.get(padded(frame.bytes().len())..).unwrap_or_default();
        }
        if rest.is_empty() { Ok(tip) } else { Err(Damage::Count) }
    }

    /// The end of the history behind `frame`, if the frame continues this one.
    pub(crate) fn after(self, frame: &Frame<'_>) -> Option<Self> {
        let continues =
            frame.previous() == self.checksum && frame::follows(self.zxid, frame.meta().first_zxid);
        continues.then(|| Self { zxid: frame.meta().last_zxid, checksum: frame.checksum(), ..self })
    }
}
