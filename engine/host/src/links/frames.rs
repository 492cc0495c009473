//! Divides a stream into frames: `length u32` little endian, then that many bytes.

/// Bytes of one read, and of the buffer of a reader whose peer sends no long frame.
pub(super) const READ_BYTES: usize = 256 * 1024;

/// A larger buffer is freed after this many reads that did not need it. If it were freed sooner, a peer that
/// sends long frames one after another would cause a new allocation, with its page faults, for each.
const SHORT_READS_MAX: u32 = 1024;

/// The longest frame: far longer than the longest batch in a log, which every peer must be able to receive.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// A frame too long to be a peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes")]
pub(super) struct Oversize(usize);

/// Bytes received and not yet handled. The buffer grows with the received bytes, not with the announced
/// length.
#[derive(Debug)]
pub(super) struct FrameReader {
    bytes: Vec<u8>,
    /// `bytes[start..filled]` is not handled yet.
    start: usize,
    filled: usize,
    /// Consecutive reads that fitted in the first [`READ_BYTES`].
    short_reads: u32,
}

impl FrameReader {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; READ_BYTES], start: 0, filled: 0, short_reads: 0 }
    }

    /// The free part of the buffer, never empty. [`Self::received`] takes the number of bytes read into it.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.short_reads = if self.filled < READ_BYTES { self.short_reads.saturating_add(1) } else { 0 };
        self.bytes.copy_within(self.start..self.filled, 0);
        self.filled -= self.start;
        self.start = 0;
        if self.filled == self.bytes.len() {
            // The current frame fills the buffer. After doubling, at least half of the buffer is received
            // data.
            self.bytes.resize(2 * self.filled, 0);
        } else if self.bytes.len() > READ_BYTES && self.short_reads > SHORT_READS_MAX {
            self.bytes.truncate(READ_BYTES);
            self.bytes.shrink_to_fit();
        }
        &mut self.bytes[self.filled..]
    }

    /// Records that this many bytes were read into [`Self::room`].
    pub(super) fn received(&mut self, bytes: usize) {
        self.filled += bytes;
        debug_assert!(self.filled <= self.bytes.len(), "{} of {}", self.filled, self.bytes.len());
    }

    /// The next whole frame, without its length.
    ///
    /// # Errors
    /// It is longer than any frame of a peer.
    pub(super) fn next(&mut self) -> Result<Option<&mut [u8]>, Oversize> {
        let rest = &mut self.bytes[self.start..self.filled];
        let Some((length, rest)) = rest.split_first_chunk_mut::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(Oversize(length));
        }
        let frame = rest.get_mut(..length);
        if frame.is_some() {
            self.start += 4 + length;
        }
        Ok(frame)
    }
}

/// Length of a frame's length.
pub(super) const LENGTH_BYTES: usize = 4;

/// Appends a frame with the contents that `encode` appends. If `encode` leaves out the last bytes, which are
/// then written separately, it returns their number.
pub(super) fn append(out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>) -> usize) {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    let following = encode(out);
    let length = out.len() - start - LENGTH_BYTES + following;
    let length = u32::try_from(length).expect("a message is far shorter than 4 GiB");
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the bytes in pieces of `piece` and collects the frames.
    fn frames(reader: &mut FrameReader, mut bytes: &[u8], piece: usize) -> Result<Vec<Vec<u8>>, Oversize> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let room = reader.room();
            let read = room.len().min(piece).min(bytes.len());
            room[..read].copy_from_slice(&bytes[..read]);
            bytes = &bytes[read..];
            reader.received(read);
            while let Some(frame) = reader.next()? {
                frames.push(frame.to_vec());
            }
        }
        Ok(frames)
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_the_stream_is_cut() {
        let sent: Vec<Vec<u8>> =
            [0_usize, 1, 5, 1000, READ_BYTES - 4, READ_BYTES + 7, 3].map(|length| vec![7; length]).to_vec();
        let mut stream = Vec::new();
        for frame in &sent {
            append(&mut stream, |out| {
                out.extend_from_slice(frame);
                0
            });
        }
        for piece in [3, 4096, usize::MAX] {
            assert_eq!(
                frames(&mut FrameReader::new(), &stream, piece).as_ref(),
                Ok(&sent),
                "pieces of {piece}"
            );
        }
    }

    #[test]
    fn a_length_alone_takes_no_memory_and_what_a_long_frame_took_is_given_back() {
        let mut reader = FrameReader::new();
        let announced = u32::try_from(FRAME_BYTES_MAX).expect("a length").to_le_bytes();
        assert_eq!(frames(&mut reader, &announced, 4), Ok(vec![]));
        reader.room();
        assert_eq!(reader.bytes.len(), READ_BYTES);

        let mut reader = FrameReader::new();
        let mut stream = Vec::new();
        append(&mut stream, |out| {
            out.resize(10 * READ_BYTES, 1);
            0
        });
        for _ in 0..2 {
            assert_eq!(frames(&mut reader, &stream, usize::MAX).expect("one frame").len(), 1);
            assert!(reader.bytes.len() > READ_BYTES, "kept for the next long frame");
        }
        for _ in 0..=SHORT_READS_MAX + 1 {
            reader.room();
        }
        assert!(reader.bytes.capacity() < 2 * READ_BYTES);
    }

    #[test]
    fn a_frame_longer_than_any_is_refused_at_its_length() {
        let announced = u32::try_from(FRAME_BYTES_MAX + 1).expect("a length").to_le_bytes();
        assert_eq!(frames(&mut FrameReader::new(), &announced, 4), Err(Oversize(FRAME_BYTES_MAX + 1)));
    }
}
