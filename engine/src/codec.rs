//! The byte encoding of everything that one server tells another.
//!
//! Little-endian, without padding. A message says its kind in one byte, then its fields in the order of their
//! struct. The link frames messages and a message ends with its frame, so the last field needs no length.
//! Decoding never panics, allocates in proportion to the input, and accepts only what encoding produces.

use ringkeeper_frame::{BatchError, Checksum, LogPosition};
use ringkeeper_wire::{Epoch, SessionId, Zxid};

/// Why bytes cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The frame ends inside a field.
    #[error("message cut short: {missing} more bytes expected")]
    CutShort {
        /// Bytes lacking in the field.
        missing: usize,
    },
    /// Bytes follow the last field.
    #[error("{0} bytes after the end of the message")]
    Trailing(usize),
    /// A kind, flag, count or range outside of what is possible.
    #[error("{field} cannot be {value}")]
    Value {
        /// What was read.
        field: &'static str,
        /// What it said.
        value: u64,
    },
    /// A text that is not UTF-8.
    #[error("{0} is not valid UTF-8")]
    Text(&'static str),
    /// The zxids of a proposal.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// Appends fields to a message.
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn flag(&mut self, value: bool) -> &mut Self {
        self.u8(u8::from(value))
    }

    pub(crate) fn epoch(&mut self, epoch: Epoch) -> &mut Self {
        self.u32(epoch.0)
    }

    pub(crate) fn zxid(&mut self, zxid: Zxid) -> &mut Self {
        self.u64(zxid.0)
    }

    pub(crate) fn session(&mut self, session: SessionId) -> &mut Self {
        self.bytes(&session.0.to_le_bytes())
    }

    pub(crate) fn position(&mut self, position: LogPosition) -> &mut Self {
        self.zxid(position.zxid).u32(position.checksum.0)
    }

    /// A number of entries, or a length or offset in bytes, which bounds elsewhere keep far below 2^32.
    pub(crate) fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).expect("a message is far smaller than 4 GiB"))
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.count(text.len()).bytes(text.as_bytes())
    }
}

/// Takes fields from a message.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let missing = N.saturating_sub(self.0.len());
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(DecodeError::CutShort { missing })?;
        self.0 = rest;
        Ok(*field)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn flag(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Value { field, value: u64::from(other) }),
        }
    }

    pub(crate) fn epoch(&mut self) -> Result<Epoch, DecodeError> {
        self.u32().map(Epoch)
    }

    pub(crate) fn zxid(&mut self) -> Result<Zxid, DecodeError> {
        self.u64().map(Zxid)
    }

    pub(crate) fn session(&mut self) -> Result<SessionId, DecodeError> {
        self.array().map(i64::from_le_bytes).map(SessionId)
    }

    pub(crate) fn position(&mut self) -> Result<LogPosition, DecodeError> {
        Ok(LogPosition { zxid: self.zxid()?, checksum: Checksum(self.u32()?) })
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let missing = len.saturating_sub(self.0.len());
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(DecodeError::CutShort { missing })?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let len = self.u32()? as usize;
        std::str::from_utf8(self.bytes(len)?).map_err(|_| DecodeError::Text(field))
    }

    /// Entries behind their number, each of `entry_len_min` bytes at least.
    pub(crate) fn list<T>(
        &mut self,
        entry_len_min: usize,
        mut entry: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.u32()? as usize;
        let mut list = Vec::with_capacity(count.min(self.0.len() / entry_len_min));
        for _ in 0..count {
            list.push(entry(self)?);
        }
        Ok(list)
    }

    /// Nothing is left.
    pub(crate) const fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.0.len())) }
    }
}
