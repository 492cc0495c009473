//! The allocator: mimalloc, and how long it keeps freed memory.
#![expect(unsafe_code, reason = "the allocator has no other interface to what is done here")]

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_collect, mi_free, mi_malloc, mi_malloc_aligned, mi_option_set_default, mi_option_t, mi_realloc,
    mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

/// The alignment of every block that is as large. A block of 8 bytes is aligned to those.
const ALIGNED_BY_ITSELF: usize = 16;

/// mimalloc, as the process's allocator.
///
/// Version 3 has a function for an alignment that asks for up to that many bytes more than are wanted, unless
/// their number is a power of two. Then what fits a size class exactly takes the next one, a fifth larger.
/// Nearly all that is allocated needs no more alignment than any block has, and is asked for without.
#[derive(Clone, Copy, Debug)]
pub struct Allocator;

impl Allocator {
    /// Whether `size` bytes have the alignment by themselves.
    const fn is_plain(layout: &Layout, size: usize) -> bool {
        layout.align() <= ALIGNED_BY_ITSELF && layout.align() <= size
    }
}

// SAFETY: mimalloc keeps the contract of `malloc` and its kin, and blocks are aligned as `is_plain` says. Any
// of its functions may free or grow what another one has allocated.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: a size, and an alignment that is a power of two.
        let block = unsafe {
            match Self::is_plain(&layout, layout.size()) {
                true => mi_malloc(layout.size()),
                false => mi_malloc_aligned(layout.size(), layout.align()),
            }
        };
        block.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe {
            match Self::is_plain(&layout, layout.size()) {
                true => mi_zalloc(layout.size()),
                false => mi_zalloc_aligned(layout.size(), layout.align()),
            }
        };
        block.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller has it from one of the others.
        unsafe { mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller has it from one of the others, with this alignment.
        let block = unsafe {
            match Self::is_plain(&layout, size) {
                true => mi_realloc(block.cast(), size),
                false => mi_realloc_aligned(block.cast(), size, layout.align()),
            }
        };
        block.cast()
    }
}

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
    use libmimalloc_sys::{mi_option_get, mi_usable_size};

    use super::*;

    #[test]
    fn blocks_are_aligned_and_what_fits_a_size_class_takes_no_more() {
        for (size, align) in [1_usize, 8, 15, 16, 17, 24, 40, 100, 160, 1000, 5000, 1 << 20]
            .into_iter()
            .flat_map(|size| [1, 2, 4, 8, 16, 32, 4096].map(|align| (size, align)))
        {
            let layout = Layout::from_size_align(size, align).expect("valid");
            let longer = Layout::from_size_align(size + 3, align).expect("valid");
            // Several at once: of those in a row, the first one alone may be aligned by chance.
            // SAFETY: a layout of some bytes; each block is freed with the layout that it has last.
            unsafe {
                let blocks = [(); 8].map(|()| Allocator.alloc(layout));
                blocks.iter().for_each(|block| block.write_bytes(7, size));
                let blocks = blocks.map(|block| Allocator.realloc(block, layout, size + 3));
                let zeroed = [(); 8].map(|()| Allocator.alloc_zeroed(layout));
                for (block, byte) in blocks.iter().map(|block| (block, 7)).chain(zeroed.iter().zip([0; 8])) {
                    assert!(block.addr().is_multiple_of(align), "{layout:?}");
                    assert!((0..size).all(|at| *block.add(at) == byte), "{layout:?}");
                }
                blocks.into_iter().for_each(|block| Allocator.dealloc(block, longer));
                zeroed.into_iter().for_each(|block| Allocator.dealloc(block, layout));
            }
        }
        for class in [80, 112, 160, 192, 320] {
            let layout = Layout::from_size_align(class, 8).expect("valid");
            // SAFETY: as above.
            unsafe {
                let block = Allocator.alloc(layout);
                assert_eq!(mi_usable_size(block.cast()), class);
                Allocator.dealloc(block, layout);
            }
        }
    }

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
