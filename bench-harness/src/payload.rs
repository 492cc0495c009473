//! What the harness writes into znodes, so that a reply shows whose value it is, which one, and whether it
//! is whole.
//!
//! ```text
//! 0       4       8          16            len - 8      len
//! | magic | znode | sequence | filler ...  | sequence   |      integers big-endian
//! ```
//!
//! The sequence counts the values of one znode. It stands at both ends: a value put together from two
//! writes shows. The filler is pseudo-random, so that nothing on the way can compress it.

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

const MAGIC: [u8; 4] = *b"rkbh";
const ZNODE_AT: usize = MAGIC.len();
const SEQUENCE_AT: usize = ZNODE_AT + size_of::<u32>();
const FILLER_AT: usize = SEQUENCE_AT + size_of::<u64>();

/// The shortest payload that holds the marks, in bytes.
pub(crate) const LEN_MIN: usize = FILLER_AT + size_of::<u64>();

/// The longest payload, in bytes: what `jute.maxbuffer` lets through by default, less room for a path, a
/// header and a Stat.
pub(crate) const LEN_MAX: usize = 1_000_000;

/// The first value (sequence 0) of `znode`, `len` bytes long.
///
/// # Panics
/// `len` is below [`LEN_MIN`].
pub(crate) fn first(znode: u32, len: usize) -> Vec<u8> {
    assert!(len >= LEN_MIN, "a payload of {len} bytes has no room for its marks");
    let mut payload = vec![0; len];
    StdRng::seed_from_u64(u64::from(znode)).fill_bytes(&mut payload);
    payload[..ZNODE_AT].copy_from_slice(&MAGIC);
    payload[ZNODE_AT..SEQUENCE_AT].copy_from_slice(&znode.to_be_bytes());
    stamp(&mut payload, 0);
    payload
}

/// Turns `payload` into the value number `sequence` of its znode.
pub(crate) fn stamp(payload: &mut [u8], sequence: u64) {
    let bytes = sequence.to_be_bytes();
    let tail_at = payload.len() - bytes.len();
    payload[SEQUENCE_AT..FILLER_AT].copy_from_slice(&bytes);
    payload[tail_at..].copy_from_slice(&bytes);
}

/// The sequence of a value of `znode`; `None` if it is another znode's or not whole.
pub(crate) fn sequence_of(payload: &[u8], znode: u32) -> Option<u64> {
    let (marks, _) = payload.split_first_chunk::<FILLER_AT>()?;
    let (_, tail) = payload.split_last_chunk::<8>()?;
    let ours = marks[..ZNODE_AT] == MAGIC
        && marks[ZNODE_AT..SEQUENCE_AT] == znode.to_be_bytes()
        && marks[SEQUENCE_AT..] == *tail;
    ours.then(|| u64::from_be_bytes(*tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamped_value_tells_its_sequence() {
        for len in [LEN_MIN, 100, 1024] {
            let mut payload = first(7, len);
            assert_eq!(sequence_of(&payload, 7), Some(0));
            stamp(&mut payload, 1 << 40);
            assert_eq!(sequence_of(&payload, 7), Some(1 << 40));
        }
    }

    #[test]
    fn a_value_of_another_znode_is_refused() {
        assert_eq!(sequence_of(&first(7, 100), 8), None);
    }

    #[test]
    fn a_value_made_of_two_writes_is_refused() {
        let (mut early, mut late) = (first(7, 100), first(7, 100));
        stamp(&mut early, 1);
        stamp(&mut late, 2);
        early[50..].copy_from_slice(&late[50..]);
        assert_eq!(sequence_of(&early, 7), None);
    }

    #[test]
    fn a_value_cut_short_is_refused() {
        assert_eq!(sequence_of(&first(7, 100)[..LEN_MIN - 1], 7), None);
        assert_eq!(sequence_of(&[], 7), None);
    }
}
