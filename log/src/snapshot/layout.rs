//! The fixed parts of a snapshot file.
//!
//! ```text
//! header  0        4        8    10   12      16     24        32     36      128
//!         +--------+--------+----+----+-------+------+---------+------+-------+
//!         | magic  | CRC32C |ver |len | chain | zxid | cluster |state | zeros |   zeros up to 4096
//!         | "RKSN" |        |    |128 |       |      |         |version       |
//!         +--------+--------+----+----+-------+------+---------+------+-------+
//!
//! block   0     4        8         12         16
//!         +-----+--------+---------+----------+---------+-------+
//!         | len | CRC32C | ordinal | inflated | payload | zeros |   CRC32C over ordinal, inflated and payload
//!         +-----+--------+---------+----------+---------+-------+
//!
//! index   offset u64, len u32, CRC32C u32 of each block
//!
//! footer  0        4        8    10   12       16         24      32       40       44       48     56      128
//!         +--------+--------+----+----+--------+----------+-------+--------+--------+--------+------+-------+
//!         | magic  | CRC32C |ver |len | blocks | index at | items | digest | header | index  | zxid | zeros |
//!         | "RKSE" |        |    |128 |        |          |       |        | CRC32C | CRC32C |      |       |
//!         +--------+--------+----+----+--------+----------+-------+--------+--------+--------+------+-------+
//! ```
//!
//! `inflated` is 0 where the payload is stored as given, else the length that it has after decompressing the
//! LZ4 block in the file. Files with such blocks have version 2 in their header, so that older builds report
//! the unsupported version.

use ringkeeper_wire::Zxid;

use crate::frame::Checksum;
use crate::frame::layout::{put, u16_at, u32_at, u64_at};
use crate::storage::BLOCK_LEN;

/// All blocks are stored as given; the format that all builds read.
const PLAIN: u16 = 1;
/// Some blocks are compressed; the newest format that this build knows.
pub(super) const COMPRESSED: u16 = 2;

const MAGIC_AT: usize = 0;
const CHECKSUM_AT: usize = MAGIC_AT + 4;
const VERSION_AT: usize = CHECKSUM_AT + 4;
const LEN_AT: usize = VERSION_AT + 2;
const COVERED_AT: usize = VERSION_AT;
const LEN_FIELD: u16 = 128;

const HEADER_MAGIC: [u8; 4] = *b"RKSN";
const HEADER_LEN: usize = LEN_FIELD as usize;
const CHAIN_AT: usize = LEN_AT + 2;
const ZXID_AT: usize = CHAIN_AT + 4;
const CLUSTER_AT: usize = ZXID_AT + 8;
const STATE_VERSION_AT: usize = CLUSTER_AT + 8;

const FOOTER_MAGIC: [u8; 4] = *b"RKSE";
/// Bytes of the footer.
pub(super) const FOOTER_LEN: usize = LEN_FIELD as usize;
const BLOCKS_AT: usize = LEN_AT + 2;
const INDEX_AT: usize = BLOCKS_AT + 4;
const ITEMS_AT: usize = INDEX_AT + 8;
const DIGEST_AT: usize = ITEMS_AT + 8;
const HEADER_CHECKSUM_AT: usize = DIGEST_AT + 8;
const INDEX_CHECKSUM_AT: usize = HEADER_CHECKSUM_AT + 4;
const FOOTER_ZXID_AT: usize = INDEX_CHECKSUM_AT + 4;

/// Bytes before a block's payload.
pub(super) const BLOCK_HEAD_LEN: usize = 16;
const INFLATED_AT: usize = 12;
/// Blocks, and therefore payloads, begin at a multiple of this many bytes.
pub(super) const ALIGN: usize = 16;
/// Bytes of a block in the index.
pub(super) const ENTRY_LEN: usize = 16;

/// The identity of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The last transaction it holds.
    pub zxid: Zxid,
    /// Checksum of the log's frame that ends with `zxid`: what the next frame continues.
    pub chain: Checksum,
    /// The ensemble.
    pub cluster: u64,
    /// Version of the blocks' contents, as the caller counts.
    pub state_version: u32,
}

/// Summary of a snapshot's contents, from its writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Number of items in the blocks, as the caller counts.
    pub items: u64,
    /// The caller's digest of them.
    pub digest: u64,
}

/// Why bytes are no valid header or footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsound {
    Damaged,
    Version(u16),
}

fn seal(out: &mut [u8], magic: [u8; 4], version: u16) -> u32 {
    put(out, MAGIC_AT, magic);
    put(out, VERSION_AT, version.to_le_bytes());
    put(out, LEN_AT, LEN_FIELD.to_le_bytes());
    let checksum = crc32c::crc32c(&out[COVERED_AT..]);
    put(out, CHECKSUM_AT, checksum.to_le_bytes());
    checksum
}

fn check(bytes: &[u8], magic: [u8; 4]) -> Result<u32, Unsound> {
    let checksum = u32_at(bytes, CHECKSUM_AT);
    if bytes[..MAGIC_AT + 4] != magic || checksum != crc32c::crc32c(&bytes[COVERED_AT..]) {
        return Err(Unsound::Damaged);
    }
    let version = u16_at(bytes, VERSION_AT);
    if !(PLAIN..=COMPRESSED).contains(&version) || u16_at(bytes, LEN_AT) != LEN_FIELD {
        return Err(Unsound::Version(version));
    }
    Ok(checksum)
}

impl Head {
    /// The file's first block, and its checksum.
    pub(super) fn encode(&self, compressed: bool) -> ([u8; BLOCK_LEN], u32) {
        let mut out = [0; BLOCK_LEN];
        put(&mut out, CHAIN_AT, self.chain.0.to_le_bytes());
        put(&mut out, ZXID_AT, self.zxid.0.to_le_bytes());
        put(&mut out, CLUSTER_AT, self.cluster.to_le_bytes());
        put(&mut out, STATE_VERSION_AT, self.state_version.to_le_bytes());
        let checksum =
            seal(&mut out[..HEADER_LEN], HEADER_MAGIC, if compressed { COMPRESSED } else { PLAIN });
        (out, checksum)
    }

    pub(super) fn decode(block: &[u8]) -> Result<(Self, u32), Unsound> {
        let (bytes, zeros) = block.split_at_checked(HEADER_LEN).ok_or(Unsound::Damaged)?;
        let checksum = check(bytes, HEADER_MAGIC)?;
        if !all_zero(zeros) {
            return Err(Unsound::Damaged);
        }
        let head = Self {
            zxid: Zxid(u64_at(bytes, ZXID_AT)),
            chain: Checksum(u32_at(bytes, CHAIN_AT)),
            cluster: u64_at(bytes, CLUSTER_AT),
            state_version: u32_at(bytes, STATE_VERSION_AT),
        };
        Ok((head, checksum))
    }
}

/// The last bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) zxid: Zxid,
    pub(super) blocks: u32,
    pub(super) index_at: u64,
    pub(super) contents: Contents,
    pub(super) header_checksum: u32,
    pub(super) index_checksum: u32,
}

impl Footer {
    pub(super) fn encode(&self) -> [u8; FOOTER_LEN] {
        let mut out = [0; FOOTER_LEN];
        put(&mut out, BLOCKS_AT, self.blocks.to_le_bytes());
        put(&mut out, INDEX_AT, self.index_at.to_le_bytes());
        put(&mut out, ITEMS_AT, self.contents.items.to_le_bytes());
        put(&mut out, DIGEST_AT, self.contents.digest.to_le_bytes());
        put(&mut out, HEADER_CHECKSUM_AT, self.header_checksum.to_le_bytes());
        put(&mut out, INDEX_CHECKSUM_AT, self.index_checksum.to_le_bytes());
        put(&mut out, FOOTER_ZXID_AT, self.zxid.0.to_le_bytes());
        seal(&mut out, FOOTER_MAGIC, PLAIN);
        out
    }

    pub(super) fn decode(bytes: &[u8; FOOTER_LEN]) -> Result<Self, Unsound> {
        check(bytes, FOOTER_MAGIC)?;
        Ok(Self {
            zxid: Zxid(u64_at(bytes, FOOTER_ZXID_AT)),
            blocks: u32_at(bytes, BLOCKS_AT),
            index_at: u64_at(bytes, INDEX_AT),
            contents: Contents { items: u64_at(bytes, ITEMS_AT), digest: u64_at(bytes, DIGEST_AT) },
            header_checksum: u32_at(bytes, HEADER_CHECKSUM_AT),
            index_checksum: u32_at(bytes, INDEX_CHECKSUM_AT),
        })
    }
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Offset of the block's head.
    pub(super) offset: u64,
    /// Length of the payload.
    pub(super) len: u32,
    pub(super) checksum: u32,
}

impl Entry {
    pub(super) fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut out = [0; ENTRY_LEN];
        put(&mut out, 0, self.offset.to_le_bytes());
        put(&mut out, 8, self.len.to_le_bytes());
        put(&mut out, 12, self.checksum.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8; ENTRY_LEN]) -> Self {
        Self { offset: u64_at(bytes, 0), len: u32_at(bytes, 8), checksum: u32_at(bytes, 12) }
    }

    /// Of the block at `offset`, which begins with this head.
    pub(super) fn of_head(offset: u64, head: &[u8; BLOCK_HEAD_LEN]) -> Self {
        Self { offset, len: u32_at(head, 0), checksum: u32_at(head, 4) }
    }

    /// Where the block and the zeros behind it end; `None` if there is no such place.
    pub(super) fn end(&self) -> Option<u64> {
        self.offset.checked_add((BLOCK_HEAD_LEN + (self.len as usize).next_multiple_of(ALIGN)) as u64)
    }

    /// The block's head.
    pub(super) fn head(&self, ordinal: u32, inflated: u32) -> [u8; BLOCK_HEAD_LEN] {
        let mut out = [0; BLOCK_HEAD_LEN];
        put(&mut out, 0, self.len.to_le_bytes());
        put(&mut out, 4, self.checksum.to_le_bytes());
        put(&mut out, 8, ordinal.to_le_bytes());
        put(&mut out, INFLATED_AT, inflated.to_le_bytes());
        out
    }
}

/// The length of a block's payload after decompression, from the block's head; 0 for a payload stored as
/// given.
pub(super) fn inflated_len(head: &[u8; BLOCK_HEAD_LEN]) -> u32 {
    u32_at(head, INFLATED_AT)
}

/// The checksum of a block.
pub(super) fn block_checksum(ordinal: u32, inflated: u32, payload: &[u8]) -> u32 {
    let mut head = [0; 8];
    put(&mut head, 0, ordinal.to_le_bytes());
    put(&mut head, 4, inflated.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&head), payload)
}

pub(super) fn all_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}
