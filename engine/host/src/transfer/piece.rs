//! The message with a piece of a snapshot.
//!
//! ```text
//!  0       8        16      24
//!  +-------+--------+-------+-----------------+
//!  | zxid  | offset | total | bytes           |      little endian
//!  +-------+--------+-------+-----------------+
//! ```

use bytes::Bytes;

use ringkeeper_wire::Zxid;

const HEAD_LEN: usize = 24;

/// A piece of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// Of the snapshot.
    pub(super) zxid: Zxid,
    /// Where in its file.
    pub(super) offset: u64,
    /// Length of the file.
    pub(super) total: u64,
    pub(super) bytes: &'a [u8],
}

pub(super) fn encode(piece: &Piece<'_>) -> Bytes {
    let mut out = Vec::with_capacity(HEAD_LEN + piece.bytes.len());
    for number in [piece.zxid.0, piece.offset, piece.total] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(piece.bytes);
    out.into()
}

/// `None` if the bytes are no piece, or a piece that exceeds its file.
pub(super) fn decode(message: &[u8]) -> Option<Piece<'_>> {
    let (head, bytes) = message.split_first_chunk::<HEAD_LEN>()?;
    let [zxid, offset, total] = *head.as_chunks().0 else { return None };
    let [zxid, offset, total] = [zxid, offset, total].map(u64::from_le_bytes);
    let end = offset.checked_add(bytes.len() as u64)?;
    (end <= total).then_some(Piece { zxid: Zxid(zxid), offset, total, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_travel_and_what_is_none_is_refused() {
        let piece = Piece { zxid: Zxid(7), offset: 4096, total: 5000, bytes: &[1; 904] };
        assert_eq!(decode(&encode(&piece)), Some(piece));
        assert_eq!(decode(&encode(&Piece { total: 4999, ..piece })), None);
        assert_eq!(decode(&encode(&Piece { offset: u64::MAX, ..piece })), None);
        assert_eq!(decode(&[0; HEAD_LEN - 1]), None);
    }
}
