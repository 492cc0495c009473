//! Jute, ZooKeeper's serialization: big-endian integers, length-prefixed buffers and strings, counted
//! vectors. Records are their fields in order, without tags (docs/protocol.md, 1.2).

use std::borrow::Cow;

use crate::text::decode_utf8;

/// Why a record could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset}")]
pub struct DecodeError {
    /// What is wrong.
    pub what: Fault,
    /// Where, counted in bytes from the start of the record.
    pub offset: usize,
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The record is cut short.
    #[error("record ends too early")]
    EndOfRecord,
    /// A string or buffer has a negative length other than -1 (null).
    #[error("negative length {0}")]
    NegativeLength(i32),
    /// A string or vector is null where the protocol needs a value.
    #[error("unexpected null")]
    Null,
    /// A number outside the set that the field allows.
    #[error("{field} has no value {value}")]
    UnknownValue {
        /// The field's name.
        field: &'static str,
        /// What it holds.
        value: i32,
    },
    /// An operation that this place does not allow, such as a read inside a multi.
    #[error("operation {0} is not allowed here")]
    UnexpectedOp(i32),
}

/// Reads a record from the front of a byte slice; strings and buffers are borrowed from it.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// Number of bytes read so far.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.total - self.rest.len()
    }

    /// The bytes not yet read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// An error at the current position.
    #[must_use]
    pub const fn error(&self, what: Fault) -> DecodeError {
        DecodeError { what, offset: self.offset() }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or_else(|| self.error(Fault::EndOfRecord))?;
        self.rest = tail;
        Ok(head)
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) =
            self.rest.split_first_chunk::<N>().ok_or_else(|| self.error(Fault::EndOfRecord))?;
        self.rest = tail;
        Ok(*head)
    }

    /// One byte; every nonzero value is `true`.
    ///
    /// # Errors
    /// The record is cut short.
    pub fn read_bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.take_array::<1>()? != [0])
    }

    /// Four bytes.
    ///
    /// # Errors
    /// The record is cut short.
    pub fn read_i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.take_array()?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// The record is cut short.
    pub fn read_i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.take_array()?))
    }

    /// A length and that many bytes; length -1 is null.
    ///
    /// # Errors
    /// The record is cut short, or the length is below -1.
    pub fn read_buffer(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        let start = self.offset();
        let len = self.read_i32()?;
        match usize::try_from(len) {
            Ok(len) => self.take(len).map(Some),
            Err(_) if len == -1 => Ok(None),
            Err(_) => Err(DecodeError { what: Fault::NegativeLength(len), offset: start }),
        }
    }

    /// A string in UTF-8, see [`decode_utf8`]; length -1 is null.
    ///
    /// # Errors
    /// The record is cut short, or the length is below -1.
    pub fn read_ustring(&mut self) -> Result<Option<Cow<'a, str>>, DecodeError> {
        Ok(self.read_buffer()?.map(decode_utf8))
    }

    /// The count of a vector; -1 is null, and any lower count is an empty vector, as in ZooKeeper.
    ///
    /// The count is a claim of the sender: reading the elements is bounded by the bytes that are there,
    /// reserving memory for the count would not be.
    ///
    /// # Errors
    /// The record is cut short.
    pub fn read_count(&mut self) -> Result<Option<usize>, DecodeError> {
        let count = self.read_i32()?;
        Ok(if count == -1 { None } else { Some(usize::try_from(count).unwrap_or(0)) })
    }
}

/// Appends one byte, 0 or 1.
pub fn put_bool(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

/// Appends four bytes.
pub fn put_i32(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends eight bytes.
pub fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a length or count.
///
/// # Panics
/// `len` exceeds `i32::MAX`, which no jute record can express.
pub fn put_len(out: &mut Vec<u8>, len: usize) {
    put_i32(out, i32::try_from(len).expect("a jute length is at most i32::MAX"));
}

/// Appends a buffer, `None` as null.
///
/// # Panics
/// It is longer than `i32::MAX` bytes.
pub fn put_buffer(out: &mut Vec<u8>, buffer: Option<&[u8]>) {
    match buffer {
        Some(bytes) => {
            out.reserve(4 + bytes.len());
            put_len(out, bytes.len());
            out.extend_from_slice(bytes);
        }
        None => put_i32(out, -1),
    }
}

/// Appends a string.
///
/// # Panics
/// It is longer than `i32::MAX` bytes.
pub fn put_ustring(out: &mut Vec<u8>, text: &str) {
    put_buffer(out, Some(text.as_bytes()));
}

/// Appends a vector of strings from any counted source, such as the children of a znode.
///
/// # Panics
/// There are more than `i32::MAX` strings, or one is longer than `i32::MAX` bytes.
pub fn put_ustrings<'t>(
    out: &mut Vec<u8>,
    texts: impl IntoIterator<Item = &'t str, IntoIter: ExactSizeIterator>,
) {
    let texts = texts.into_iter();
    put_len(out, texts.len());
    texts.for_each(|text| put_ustring(out, text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_empty_buffers_are_different() {
        assert_eq!(Reader::new(&[0xff; 4]).read_buffer(), Ok(None));
        assert_eq!(Reader::new(&[0; 4]).read_buffer(), Ok(Some(&[][..])));
    }

    #[test]
    fn errors_name_the_offset_of_the_field() {
        let mut reader = Reader::new(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe]);
        assert_eq!(reader.read_i32(), Ok(1));
        let error = reader.read_buffer().expect_err("length -2");
        assert_eq!(error, DecodeError { what: Fault::NegativeLength(-2), offset: 4 });
        assert_eq!(error.to_string(), "negative length -2 at byte 4");
    }

    #[test]
    fn malformed_utf8_reads_as_replacement_characters() {
        let text = Reader::new(&[0, 0, 0, 3, b'/', 0xff, b'a']).read_ustring();
        assert_eq!(text, Ok(Some(Cow::Borrowed("/\u{fffd}a"))));
    }

    #[test]
    fn well_formed_strings_are_borrowed() {
        let text = Reader::new(&[0, 0, 0, 1, b'/']).read_ustring();
        assert!(matches!(text, Ok(Some(Cow::Borrowed("/")))));
    }

    #[test]
    fn every_nonzero_byte_is_true() {
        assert_eq!(Reader::new(&[0]).read_bool(), Ok(false));
        assert_eq!(Reader::new(&[2]).read_bool(), Ok(true));
    }
}
