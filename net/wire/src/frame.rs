//! Frames: a four-byte big-endian length, then that many bytes, in both directions.

use crate::jute;

/// Size of the length in front of every frame, in bytes.
pub const FRAME_HEADER_LEN: usize = 4;

/// ZooKeeper's default for `jute.maxbuffer`: the longest request frame accepted, in bytes.
pub const DEFAULT_FRAME_LEN_MAX: usize = 0xf_ffff;

/// Why a stream cannot be cut into frames; the connection is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is negative.
    #[error("negative frame length {0}")]
    Negative(i32),
    /// The frame exceeds what the receiver accepts, or what the length can express.
    #[error("frame of {len} bytes exceeds the limit of {max} bytes")]
    TooLong {
        /// Length in bytes, without the four of the length itself.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
}

/// The first frame of `buf`: its payload, and how many bytes of `buf` it takes with its length. `None`
/// when more bytes are needed. A wrong length is reported as soon as its four bytes are there.
///
/// # Errors
/// The length is negative or exceeds `max_len`.
pub fn next_frame(buf: &[u8], max_len: usize) -> Result<Option<(&[u8], usize)>, FrameError> {
    let Some((header, rest)) = buf.split_first_chunk::<FRAME_HEADER_LEN>() else { return Ok(None) };
    let claimed = i32::from_be_bytes(*header);
    let len = usize::try_from(claimed).map_err(|_| FrameError::Negative(claimed))?;
    if len > max_len {
        return Err(FrameError::TooLong { len, max: max_len });
    }
    Ok(rest.get(..len).map(|payload| (payload, FRAME_HEADER_LEN + len)))
}

/// Opens a frame at the end of `out`, leaving room for its length. Give the result to [`end_frame`].
#[must_use = "the frame has no length before `end_frame`"]
pub fn begin_frame(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    jute::put_i32(out, 0);
    start
}

/// Closes the frame opened at `start`: everything appended since is its payload.
///
/// # Errors
/// The payload exceeds `i32::MAX` bytes; `out` is then cut back to `start`.
///
/// # Panics
/// `start` does not come from [`begin_frame`] on the same buffer.
pub fn end_frame(out: &mut Vec<u8>, start: usize) -> Result<(), FrameError> {
    let len = out.len() - start - FRAME_HEADER_LEN;
    let Ok(claimed) = i32::try_from(len) else {
        out.truncate(start);
        return Err(FrameError::TooLong { len, max: i32::MAX.unsigned_abs() as usize });
    };
    out[start..start + FRAME_HEADER_LEN].copy_from_slice(&claimed.to_be_bytes());
    Ok(())
}

/// Appends a frame whose payload `encode` appends.
///
/// # Panics
/// The payload exceeds `i32::MAX` bytes. Where a peer decides how long it is, [`end_frame`] tells.
pub fn put_frame(out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
    let start = begin_frame(out);
    encode(out);
    end_frame(out, start).expect("a payload that fits into a frame");
}

/// The same as bytes of its own.
///
/// # Panics
/// As [`put_frame`].
pub fn framed(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(&mut out, encode);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_one_by_one() {
        let stream = [0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 9];
        assert_eq!(next_frame(&stream, 2), Ok(Some((&[7, 8][..], 6))));
        assert_eq!(next_frame(&stream[6..], 2), Ok(Some((&[][..], 4))));
        assert_eq!(next_frame(&stream[10..], 2), Ok(None));
    }

    #[test]
    fn a_wrong_length_is_reported_before_its_payload_arrives() {
        assert_eq!(next_frame(&[0xff; 4], 100), Err(FrameError::Negative(-1)));
        assert_eq!(next_frame(&[0, 0, 0, 101], 100), Err(FrameError::TooLong { len: 101, max: 100 }));
        assert_eq!(next_frame(&[0, 0, 0, 100], 100), Ok(None));
        assert_eq!(next_frame(&[0xff; 3], 100), Ok(None));
    }

    #[test]
    fn frames_are_appended_behind_what_is_there() {
        let mut out = vec![1];
        put_frame(&mut out, |out| out.extend_from_slice(&[2, 3]));
        assert_eq!(out, [1, 0, 0, 0, 2, 2, 3]);
    }
}
