//! `cargo +nightly fuzz run frame_parse` in `log/frame`: no bytes make the frame parser panic, and what it
//! accepts encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringkeeper_frame::{AlignedBuf, encode, encoded_len, parse};

fuzz_target!(|bytes: &[u8]| {
    let _ = encoded_len(bytes);
    if let Ok(frame) = parse(bytes) {
        let mut again = AlignedBuf::new();
        let checksum = encode(frame.meta(), frame.payload(), frame.previous(), &mut again).expect("it was encoded");
        assert_eq!(checksum, frame.checksum());
        assert_eq!(again.as_slice(), frame.bytes());
    }
});
