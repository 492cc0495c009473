//! The allocator's terms with the system.

use libmimalloc_sys::{mi_option_set_default, mi_option_t};

/// `mi_option_purge_delay` of `mimalloc.h`, which the crate has no name for.
const PURGE_DELAY: mi_option_t = 15;

/// How long freed memory stays with the process, milliseconds. A second is mimalloc's own choice: at 250,000 writes of
/// 1 KiB a second each server then gave back 30 MB a second, to be zeroed and faulted in again, in huge pages: page faults
/// were a fifth of the servers' processor time.
const KEPT_MS: std::ffi::c_long = 10_000;

/// Has freed memory kept for a while. `MIMALLOC_PURGE_DELAY` in the environment comes first.
pub(crate) fn keep_freed() {
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
