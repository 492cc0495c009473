//! Little-endian fields at fixed offsets: how every header of a log, and of a frame in it, is read and
//! written.
//!
//! The caller has checked the slice's length; a field outside it is a bug.

/// Stores `bytes` at `at`.
///
/// # Panics
/// The field is not inside of `out`.
pub fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

/// The `N` bytes at `at`.
///
/// # Panics
/// The field is not inside of `bytes`.
#[must_use]
pub fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// The 16-bit number at `at`.
///
/// # Panics
/// The field is not inside of `bytes`.
#[must_use]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

/// The 32-bit number at `at`.
///
/// # Panics
/// The field is not inside of `bytes`.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

/// The 64-bit number at `at`.
///
/// # Panics
/// The field is not inside of `bytes`.
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}
