//! The allocator's terms with the system.
#![expect(unsafe_code, reason = "the allocator has no other interface to its settings")]

use libmimalloc_sys::{mi_option_set_default, mi_option_t};

/// `mi_option_purge_delay` of `mimalloc.h`, which the crate has no name for.
const PURGE_DELAY: mi_option_t = 15;

/// How long freed memory stays with the process, in milliseconds. mimalloc's default of a second gives so
/// much back under saturated writes that page faults take a good part of the processor time
/// (docs/decisions/0016-memory-of-saturated-writes.md).
const KEPT_MS: std::ffi::c_long = 10_000;

/// Has freed memory kept for a while. `MIMALLOC_PURGE_DELAY` in the environment comes first.
pub fn keep_freed() {
    // SAFETY: sets a number in a table of the allocator's; nothing else runs yet.
    unsafe { mi_option_set_default(PURGE_DELAY, KEPT_MS) }
}

#[cfg(test)]
mod tests {
    use libmimalloc_sys::mi_option_get;

    use super::*;

    #[test]
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: reads a number.
        let default = unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(default, 1000, "mimalloc's default; see mi_option_e in its header after an upgrade");
        keep_freed();
        // SAFETY: reads a number.
        assert_eq!(unsafe { mi_option_get(PURGE_DELAY) }, KEPT_MS);
    }
}
