//! Buffers of which the kernel takes one when bytes have come, so that a connection that waits needs none.
//! The kernel can do so from Linux 5.19 on.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// How many there are, a power of two.
const COUNT: u16 = 256;

/// Bytes of each.
pub(super) const LEN: u32 = 16 * 1024;

/// Memory that the kernel shares begins at a page.
const PAGE: usize = 4096;

/// The number by which receives name these buffers.
pub(super) const GROUP: u16 = 0;

/// A buffer with received bytes. It has to be given back.
#[derive(Debug)]
pub struct Loan {
    id: u16,
    len: usize,
}

impl Loan {
    /// How many bytes came.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The buffers, and the ring by which they are given to the kernel.
pub(super) struct Pool {
    /// [`COUNT`] entries; the kernel reads them.
    entries: NonNull<BufRingEntry>,
    /// [`COUNT`] buffers of [`LEN`] bytes; the kernel writes to those that are not lent.
    buffers: NonNull<u8>,
    tail: u16,
    lent: u16,
}

impl Pool {
    /// Buffers for receives on this ring; none if the kernel cannot take them.
    pub(super) fn register(ring: &IoUring) -> Option<Self> {
        let mut pool =
            Self { entries: allocate(entries()).cast(), buffers: allocate(buffers()), tail: 0, lent: 0 };
        let address = pool.entries.as_ptr().addr() as u64;
        // SAFETY: the entries are memory of the right size and alignment, which is freed only when no receive
        // is under way, see `Ring`'s drop.
        let registered: io::Result<()> =
            unsafe { ring.submitter().register_buf_ring_with_flags(address, COUNT, GROUP, 0) };
        registered.ok()?;
        (0..COUNT).for_each(|id| pool.put(id));
        Some(pool)
    }

    /// The buffer into which so many bytes have come.
    pub(super) fn lend(&mut self, id: u16, len: usize) -> Loan {
        assert!(id < COUNT && len <= LEN as usize, "a buffer of this pool");
        self.lent += 1;
        Loan { id, len }
    }

    /// Whether so many are lent that the kernel may soon find none.
    pub(super) const fn runs_short(&self) -> bool {
        self.lent > COUNT / 2
    }

    /// What has come.
    pub(super) fn bytes<'a>(&'a self, loan: &'a Loan) -> &'a [u8] {
        let begin = usize::from(loan.id) * LEN as usize;
        // SAFETY: the kernel has filled so many bytes of this buffer, and does not write to it before it is
        // given back, which takes the loan.
        unsafe { std::slice::from_raw_parts(self.buffers.as_ptr().add(begin), loan.len) }
    }

    /// Gives a buffer back to the kernel.
    #[expect(clippy::needless_pass_by_value, reason = "nobody reads it any more")]
    pub(super) fn give_back(&mut self, loan: Loan) {
        self.lent -= 1;
        self.put(loan.id);
    }

    /// Gives a buffer to the kernel.
    pub(super) fn put(&mut self, id: u16) {
        let place = usize::from(self.tail % COUNT);
        // SAFETY: `place` and `id` are below `COUNT`; the kernel reads an entry only after the tail has
        // passed it, and is done with one before its buffer comes back.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(place);
            entry.set_addr(self.buffers.as_ptr().add(usize::from(id) * LEN as usize).addr() as u64);
            entry.set_len(LEN);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the first entry has a place for the tail, which the kernel reads atomically.
        let tail = unsafe { &*BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: both were allocated so, and the kernel uses neither any more.
        unsafe {
            dealloc(self.entries.as_ptr().cast(), entries());
            dealloc(self.buffers.as_ptr(), buffers());
        }
    }
}

const fn entries() -> Layout {
    pages(size_of::<BufRingEntry>() * COUNT as usize)
}

const fn buffers() -> Layout {
    pages(LEN as usize * COUNT as usize)
}

const fn pages(len: usize) -> Layout {
    match Layout::from_size_align(len, PAGE) {
        Ok(layout) => layout,
        Err(_) => panic!("a layout"),
    }
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}
