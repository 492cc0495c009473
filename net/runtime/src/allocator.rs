//! The allocator: how long it keeps freed memory.
#![expect(unsafe_code, reason = "the allocator has no other interface to what is done here")]

use libmimalloc_sys::{mi_collect, mi_option_set_default, mi_option_t};

/// `mi_option_purge_delay` of `mimalloc.h`, which the crate does not name.
const PURGE_DELAY: mi_option_t = 15;

/// How long freed memory stays with the process, in milliseconds. With mimalloc's default, saturated writes
/// return memory to the system so often that page faults take much of the CPU time
/// (docs/decisions/0016-memory-of-saturated-writes.md).
const KEPT_MS: std::ffi::c_long = 10_000;

/// Keeps freed memory for a while. `MIMALLOC_PURGE_DELAY` in the environment has precedence.
pub fn keep_freed() {
    // SAFETY: sets a number in a table of the allocator; no other thread runs yet.
    unsafe { mi_option_set_default(PURGE_DELAY, KEPT_MS) }
}

/// Returns freed memory to the system now. Takes milliseconds for each GiB: not to be called where others
/// wait.
pub fn return_freed() {
    // SAFETY: the allocator locks what its threads share; it may be called at any time.
    unsafe { mi_collect(true) }
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
