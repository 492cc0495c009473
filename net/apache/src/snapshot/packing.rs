//! How a snapshot is compressed: the end of its name says so.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;

/// A compression of snapshots (`zookeeper.snapshot.compression.method`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// None.
    Plain,
    /// gzip, `.gz`.
    Gzip,
    /// The stream of snappy-java, `.snappy`, which is not the framing format of snappy.
    Snappy,
}

impl Packing {
    /// The suffix of file names.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Gzip => ".gz",
            Self::Snappy => ".snappy",
        }
    }

    /// What `source` unpacks to.
    ///
    /// `len` is the length of the file, which says how much it may unpack to.
    pub(super) fn unpack<'a>(self, source: impl Read + 'a, len: u64) -> Box<dyn Read + 'a> {
        match self {
            Self::Plain => Box::new(source),
            Self::Gzip => Box::new(Bounded::new(MultiGzDecoder::new(source), len)),
            Self::Snappy => Box::new(Bounded::new(SnappyStream::new(source), len)),
        }
    }
}

/// What a file may always unpack to, in bytes, and how many times its length beyond that. Znodes have paths
/// and times, which do not shrink so much: what does is made to fill the memory of whoever unpacks it.
const UNPACKED_ALWAYS: u64 = 64 << 20;
const RATIO_MAX: u64 = 100;

/// A stream that ends with an error when it is far longer than what it is made from.
struct Bounded<R> {
    source: R,
    left: u64,
}

impl<R: Read> Bounded<R> {
    fn new(source: R, packed_len: u64) -> Self {
        Self { source, left: packed_len.saturating_mul(RATIO_MAX).max(UNPACKED_ALWAYS) }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.source.read(out)?;
        self.left = self.left.checked_sub(got as u64).ok_or_else(|| {
            let what = format!(
                "it unpacks to more than {RATIO_MAX} times its length, which no snapshot does; if it is one \
                 all the same, unpack it and import the file without its suffix"
            );
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        Ok(got)
    }
}

/// Begins a stream of snappy-java, followed by two version numbers; may come again between blocks.
const SNAPPY_MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const SNAPPY_VERSIONS_LEN: usize = 8;
/// No input of snappy gives more than this for each byte: a copy of 64 bytes takes 3.
const SNAPPY_RATIO_MAX: usize = 22;
/// A block longer than this is damaged; snappy-java writes 32 KiB, and at most what its users ask for.
const SNAPPY_BLOCK_MAX: u32 = 1 << 28;

/// ```text
/// magic 8, version 4, oldest compatible version 4, { int length, block of raw snappy }
/// ```
struct SnappyStream<R> {
    source: R,
    begun: bool,
    unpacked: Vec<u8>,
    at: usize,
}

impl<R: Read> SnappyStream<R> {
    const fn new(source: R) -> Self {
        Self { source, begun: false, unpacked: Vec::new(), at: 0 }
    }

    /// Unpacks the next block; `false` at the end.
    fn refill(&mut self) -> io::Result<bool> {
        loop {
            let mut len = [0; 4];
            if self.begun {
                let first = self.source.read(&mut len[..1])?;
                if first == 0 {
                    return Ok(false);
                }
                self.source.read_exact(&mut len[1..])?;
            } else {
                self.source.read_exact(&mut len)?;
            }
            if len == SNAPPY_MAGIC[..4] {
                let mut rest = [0; 4 + SNAPPY_VERSIONS_LEN];
                self.source.read_exact(&mut rest)?;
                if rest[..4] != SNAPPY_MAGIC[4..] {
                    return Err(invalid("not a stream of snappy"));
                }
                self.begun = true;
                continue;
            }
            if !self.begun {
                return Err(invalid("not a stream of snappy"));
            }
            self.unpack(u32::from_be_bytes(len))?;
            if !self.unpacked.is_empty() {
                return Ok(true);
            }
        }
    }

    fn unpack(&mut self, len: u32) -> io::Result<()> {
        if len > SNAPPY_BLOCK_MAX {
            return Err(invalid("an impossible length of a block of snappy"));
        }
        let mut packed = Vec::new();
        self.source.by_ref().take(u64::from(len)).read_to_end(&mut packed)?;
        if packed.len() as u64 != u64::from(len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let unpacked_len = snap::raw::decompress_len(&packed).map_err(io::Error::other)?;
        if unpacked_len / SNAPPY_RATIO_MAX > packed.len() {
            return Err(invalid("an impossible length of a block of snappy"));
        }
        self.unpacked.resize(unpacked_len, 0);
        self.at = 0;
        let got = snap::raw::Decoder::new().decompress(&packed, &mut self.unpacked);
        self.unpacked.truncate(got.map_err(io::Error::other)?);
        Ok(())
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl<R: Read> Read for SnappyStream<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at == self.unpacked.len() && !self.refill()? {
            return Ok(0);
        }
        let got = (&self.unpacked[self.at..]).read(out)?;
        self.at += got;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(blocks: &[&[u8]]) -> Vec<u8> {
        let mut out = [&SNAPPY_MAGIC[..], &1_u32.to_be_bytes(), &1_u32.to_be_bytes()].concat();
        for block in blocks {
            let packed = snap::raw::Encoder::new().compress_vec(block).expect("short");
            out.extend(u32::try_from(packed.len()).expect("short").to_be_bytes());
            out.extend(packed);
        }
        out
    }

    fn unpacked(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Packing::Snappy.unpack(bytes, bytes.len() as u64).read_to_end(&mut out).map(|_| out)
    }

    #[test]
    fn blocks_follow_each_other_and_streams_too() {
        let twice = [stream(&[b"one, ", b"", b"two, "]), stream(&[b"three"])].concat();
        assert_eq!(unpacked(&twice).expect("sound"), b"one, two, three");
    }

    #[test]
    fn a_stream_cut_anywhere_but_between_blocks_is_an_error() {
        let whole = stream(&[b"some", b"more"]);
        let ends: Vec<_> = (0..=whole.len()).filter(|&end| unpacked(&whole[..end]).is_ok()).collect();
        assert_eq!(ends, [16, 16 + 4 + 6, whole.len()]);
    }

    #[test]
    fn what_unpacks_to_far_more_than_any_snapshot_is_refused_and_not_read_to_its_end() {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::copy(&mut io::repeat(0).take(200 << 20), &mut packer).expect("to memory");
        let packed = packer.finish().expect("to memory");
        let mut unpacked = Packing::Gzip.unpack(&packed[..], packed.len() as u64);
        let error = io::copy(&mut unpacked, &mut io::sink()).expect_err("a bomb");
        assert!(error.to_string().contains("100 times"), "{error}");
        // As long as the file it claims to come from, it is no bomb.
        let mut unpacked = Packing::Gzip.unpack(&packed[..], 2 << 20);
        assert_eq!(io::copy(&mut unpacked, &mut io::sink()).expect("sound"), 200 << 20);
    }

    #[test]
    fn a_block_that_claims_more_than_it_can_hold_is_refused_before_memory_is_taken() {
        let claim = [&stream(&[])[..], &5_u32.to_be_bytes(), &[0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
        unpacked(&claim).expect_err("4 GiB in five bytes");
    }
}
