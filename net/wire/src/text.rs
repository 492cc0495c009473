//! Text that clients send: UTF-8, and what becomes of bytes that are not.

use std::borrow::Cow;

/// Reads text in UTF-8. Malformed bytes become U+FFFD, in the number that ZooKeeper's virtual machine makes
/// of them: as usual, except that an encoded surrogate is one. Java's clients send characters beyond U+FFFF
/// as two of those. Only malformed text is copied.
#[must_use]
#[inline]
pub fn decode_utf8(bytes: &[u8]) -> Cow<'_, str> {
    // `from_utf8` has a fast path for ASCII, `from_utf8_lossy` has not.
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(repair(bytes)),
    }
}

#[cold]
fn repair(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(chunk) = rest.utf8_chunks().next() {
        text.push_str(chunk.valid());
        let (valid, invalid) = (chunk.valid().len(), chunk.invalid().len());
        if invalid > 0 {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        rest = &rest[valid + invalid.max(surrogate_len(&rest[valid..]))..];
    }
    text
}

/// Length of the encoded surrogate, whole or cut short, at the beginning of `bytes`; 0 if there is none.
fn surrogate_len(bytes: &[u8]) -> usize {
    match bytes {
        [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => 3,
        [0xed, 0xa0..=0xbf, ..] => 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_text_is_borrowed() {
        assert!(matches!(decode_utf8("/é中😀".as_bytes()), Cow::Borrowed("/é中😀")));
    }

    #[test]
    fn malformed_bytes_become_as_many_replacements_as_in_java() {
        for (bytes, expected) in [
            (b"/a\xffb" as &[u8], "/a\u{fffd}b"),
            (b"\xe4\xb8", "\u{fffd}"),
            (b"\xe4\xb8x", "\u{fffd}x"),
            (b"\xf0\x9f\x98", "\u{fffd}"),
            (b"\xc0\x80", "\u{fffd}\u{fffd}"),
            (b"\xe0\x80\xaf", "\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xf4\x90\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
            (b"x\xed\xa0\x80y", "x\u{fffd}y"),
            (b"\xed\xa0\xbd\xed\xb8\x80", "\u{fffd}\u{fffd}"),
            (b"\xed\xa0", "\u{fffd}"),
            (b"\xed\xa0x", "\u{fffd}x"),
            (b"\xed\x9f\xbf", "\u{d7ff}"),
            (b"\xed", "\u{fffd}"),
        ] {
            assert_eq!(decode_utf8(bytes), expected, "{}", bytes.escape_ascii());
        }
    }
}
