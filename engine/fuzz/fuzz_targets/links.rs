#![no_main]

use ringkeeper_sim::strangers::{accepting, between, dialing};

// The first byte says where the stranger is.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((side, bytes)) = bytes.split_first() else { return };
    match side % 3 {
        0 => accepting(bytes),
        1 => dialing(bytes),
        _ => between(bytes),
    }
});
