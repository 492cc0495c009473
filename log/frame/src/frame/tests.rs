use proptest::prelude::*;

use super::*;

const BATCH: Meta = Meta { epoch: Epoch(7), first_zxid: Zxid(0x7_0000_0001), last_zxid: Zxid(0x7_0000_0003) };

fn encoded(meta: Meta, payload: &[u8], previous: Checksum) -> AlignedBuf {
    let mut out = AlignedBuf::new();
    encode(meta, payload, previous, &mut out).expect("a batch with fitting zxids");
    out
}

#[test]
fn encoded_bytes_are_the_documented_ones() {
    let bytes = encoded(BATCH, b"ringkeeper", Checksum(0x0403_0201));
    #[rustfmt::skip]
    let golden = [
        b'R', b'K', b'P', b'B', 0xf6, 0x29, 0x07, 0xe8,
        1, 0, 64, 0, 1, 0, 0, 0,
        10, 0, 0, 0, 7, 0, 0, 0,
        1, 0, 0, 0, 7, 0, 0, 0,
        3, 0, 0, 0, 7, 0, 0, 0,
        1, 2, 3, 4, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,
        b'r', b'i', b'n', b'g', b'k', b'e', b'e', b'p', b'e', b'r',
    ];
    assert_eq!(bytes.as_slice(), golden);
}

#[test]
fn payload_starts_at_a_multiple_of_16() {
    let bytes = encoded(BATCH, b"x", Checksum::NONE);
    let payload = parse(&bytes).expect("just encoded").payload();
    assert_eq!(payload.as_ptr().addr() % FRAME_ALIGN, 0);
}

#[test]
fn bytes_after_the_frame_are_left_alone() {
    let mut bytes = encoded(BATCH, b"abc", Checksum::NONE);
    bytes.extend_from_slice(b"next");
    assert_eq!(parse(&bytes).expect("a whole frame").payload(), b"abc");
}

#[test]
fn batches_with_impossible_zxids_have_no_frame() {
    let mut out = AlignedBuf::new();
    for meta in [
        Meta { epoch: Epoch(8), ..BATCH },
        Meta { first_zxid: Zxid(0x7_0000_0000), ..BATCH },
        Meta { last_zxid: Zxid(0x7_0000_0000), ..BATCH },
        Meta { last_zxid: Zxid(0x8_0000_0001), ..BATCH },
    ] {
        assert_eq!(encode(meta, b"", Checksum::NONE, &mut out), Err(EncodeError::Zxids(meta)));
    }
    assert!(out.is_empty());
}

#[test]
fn zxids_follow_by_one_or_begin_a_later_epoch_at_one() {
    assert!(follows(Zxid(0), Zxid(0x1_0000_0001)));
    assert!(follows(Zxid(0x1_0000_0001), Zxid(0x1_0000_0002)));
    assert!(follows(Zxid(0x1_0000_0005), Zxid(0x3_0000_0001)));
    assert!(!follows(Zxid(0x1_0000_0001), Zxid(0x1_0000_0003)));
    assert!(!follows(Zxid(0x1_0000_0001), Zxid(0x1_0000_0001)));
    assert!(!follows(Zxid(0x1_0000_0001), Zxid(0x2_0000_0002)));
    assert!(!follows(Zxid(0x2_0000_0001), Zxid(0x1_0000_0001)));
    assert!(!follows(Zxid(0x1_ffff_ffff), Zxid(0x2_0000_0000)));
    assert!(!follows(Zxid(u64::MAX), Zxid(1)));
}

#[test]
fn each_foreign_field_is_named() {
    let sealed = |at: usize, value: &[u8]| {
        let mut bytes = encoded(BATCH, b"abc", Checksum::NONE);
        bytes[at..at + value.len()].copy_from_slice(value);
        let crc = crc32c::crc32c(&bytes[COVERED_AT..]);
        put(&mut bytes, CHECKSUM_AT, crc.to_le_bytes());
        parse(&bytes).map(|_| ()).expect_err("a changed field")
    };
    assert_eq!(sealed(MAGIC_AT, b"ZKLG"), FrameError::Magic(*b"ZKLG"));
    assert_eq!(sealed(VERSION_AT, &[9, 0]), FrameError::Version(9));
    assert_eq!(sealed(HEADER_LEN_AT, &[65, 0]), FrameError::HeaderLength(65));
    assert_eq!(sealed(KIND_AT, &[2, 0]), FrameError::Kind(2));
    assert_eq!(sealed(FLAGS_AT, &[1, 0]), FrameError::Reserved);
    assert_eq!(sealed(HEADER_LEN - 1, &[1]), FrameError::Reserved);
    assert_eq!(sealed(EPOCH_AT, &[6]), FrameError::Zxids(Meta { epoch: Epoch(6), ..BATCH }));
    assert_eq!(sealed(PAYLOAD_LEN_AT, &[9]), FrameError::Incomplete { need: 73, have: 67 });
}

proptest! {
    #[test]
    fn parse_returns_what_was_encoded(
        epoch in 0..u32::MAX,
        counter in 1..u32::MAX,
        more in 0..1000_u32,
        payload in prop::collection::vec(any::<u8>(), 0..2000),
        previous: u32,
    ) {
        let base = u64::from(epoch) << 32;
        let meta = Meta {
            epoch: Epoch(epoch),
            first_zxid: Zxid(base | u64::from(counter)),
            last_zxid: Zxid(base | u64::from(counter.saturating_add(more))),
        };
        let bytes = encoded(meta, &payload, Checksum(previous));
        let frame = parse(&bytes).expect("just encoded");
        prop_assert_eq!(frame.meta(), meta);
        prop_assert_eq!(frame.payload(), payload.as_slice());
        prop_assert_eq!(frame.previous(), Checksum(previous));
        prop_assert_eq!(frame.bytes(), bytes.as_slice());
        prop_assert_eq!(encoded_len(&bytes), Ok(bytes.len()));
    }

    #[test]
    fn no_changed_bit_passes(
        payload in prop::collection::vec(any::<u8>(), 0..300),
        at: prop::sample::Index,
        bit in 0..8_u8,
    ) {
        let mut bytes = encoded(BATCH, &payload, Checksum(1));
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(parse(&bytes).is_err());
    }

    #[test]
    fn no_cut_passes(payload in prop::collection::vec(any::<u8>(), 0..300), at: prop::sample::Index) {
        let bytes = encoded(BATCH, &payload, Checksum(1));
        prop_assert!(parse(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn any_bytes_parse_or_fail_in_words(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(error) = parse(&bytes) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
