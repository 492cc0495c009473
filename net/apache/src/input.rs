//! Jute records from a stream, with the running Adler-32 that snapshots are sealed with.

use std::io::{self, Read};

use ringkeeper_wire::{Fault as RecordFault, decode_utf8};
use simd_adler32::Adler32;

use crate::error::{Fault, Flaw};

/// The most that is taken from the stream at once for a buffer whose length is only a claim.
const CHUNK_LEN: u64 = 1 << 20;

/// Reads jute's primitives from the front of a stream.
pub(crate) struct Input<R> {
    source: R,
    checksum: Adler32,
    offset: u64,
}

impl<R: Read> Input<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, checksum: Adler32::new(), offset: 0 }
    }

    /// Bytes read so far.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Adler-32 of everything read so far.
    pub(crate) fn checksum(&self) -> u32 {
        self.checksum.finish()
    }

    pub(crate) fn flaw(&self, what: impl Into<Fault>) -> Flaw {
        Flaw { offset: self.offset, what: what.into() }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).map_err(|error| self.failed(error))?;
        self.took(&bytes);
        Ok(bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Flaw> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Flaw> {
        self.array().map(i64::from_be_bytes)
    }

    /// What a file of this kind begins with: its magic, the one version that we know, and a number that
    /// nobody looks at.
    pub(crate) fn file_header(&mut self, kind: &'static str, magic: [u8; 4], known: i32) -> Result<(), Flaw> {
        let at_start = |what| Flaw { offset: 0, what };
        if self.array()? != magic {
            return Err(at_start(Fault::Magic(kind)));
        }
        let version = self.i32()?;
        if version != known {
            return Err(at_start(Fault::Version(version)));
        }
        self.i64().map(drop)
    }

    /// A length and that many bytes; length -1 is null.
    pub(crate) fn buffer(&mut self) -> Result<Option<Vec<u8>>, Flaw> {
        let offset = self.offset;
        let len = self.i32()?;
        match u64::try_from(len) {
            Ok(len) => self.bytes(len).map(Some),
            Err(_) if len == -1 => Ok(None),
            Err(_) => Err(Flaw { offset, what: RecordFault::NegativeLength(len).into() }),
        }
    }

    /// A string that must not be null.
    pub(crate) fn text(&mut self) -> Result<String, Flaw> {
        let offset = self.offset;
        let bytes = self.buffer()?.ok_or_else(|| Flaw { offset, what: RecordFault::Null.into() })?;
        Ok(decode_utf8(&bytes).into_owned())
    }

    /// Memory grows with the bytes that come, not with the length that is claimed.
    pub(crate) fn bytes(&mut self, len: u64) -> Result<Vec<u8>, Flaw> {
        let mut bytes = Vec::new();
        while bytes.len() as u64 != len {
            let chunk = CHUNK_LEN.min(len - bytes.len() as u64);
            let before = bytes.len();
            let got = self.source.by_ref().take(chunk).read_to_end(&mut bytes);
            let got = got.map_err(|error| self.failed(error))?;
            self.took(&bytes[before..]);
            if (got as u64) < chunk {
                return Err(self.flaw(Fault::EndOfFile));
            }
        }
        Ok(bytes)
    }

    /// What is left, of which at most `max` bytes are read.
    pub(crate) fn rest(&mut self, max: u64) -> Result<Vec<u8>, Flaw> {
        let mut bytes = Vec::new();
        self.source.by_ref().take(max).read_to_end(&mut bytes).map_err(|error| self.failed(error))?;
        self.took(&bytes);
        Ok(bytes)
    }

    fn took(&mut self, bytes: &[u8]) {
        self.checksum.write(bytes);
        self.offset += bytes.len() as u64;
    }

    fn failed(&self, error: io::Error) -> Flaw {
        let what = match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::EndOfFile,
            _ => Fault::Io(error),
        };
        Flaw { offset: self.offset, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_length_beyond_the_file_is_an_early_end() {
        let bytes = [0x7f, 0xff, 0xff, 0xff, b'a', b'b'];
        let flaw = Input::new(&bytes[..]).buffer().expect_err("two bytes of 2^31 - 1");
        assert_eq!((flaw.offset, flaw.what.to_string().as_str()), (6, "the file ends too early"));
    }

    #[test]
    fn the_checksum_covers_what_was_read() {
        let mut input = Input::new(&b"Wikipedia, and more"[..]);
        input.array::<9>().expect("there are more");
        assert_eq!((input.checksum(), input.offset()), (0x11e6_0398, 9));
    }
}
