//! Large buffers that were sent, to be used again: so a connection that is idle has none.

use std::cell::RefCell;

/// How many are kept.
const COUNT_MAX: usize = 32;

/// A larger one is freed.
const LEN_MAX: usize = 256 * 1024;

/// Empty buffers.
#[derive(Default)]
pub(super) struct Spares(RefCell<Vec<Vec<u8>>>);

impl Spares {
    /// An empty buffer, with room for `len` bytes where one of that size is there.
    pub(super) fn take(&self, len: usize) -> Vec<u8> {
        let mut spares = self.0.borrow_mut();
        let fitting = spares.iter().rposition(|spare| spare.capacity() >= len);
        fitting.map(|place| spares.swap_remove(place)).unwrap_or_default()
    }

    /// Keeps a buffer.
    pub(super) fn give(&self, mut buffer: Vec<u8>) {
        let mut spares = self.0.borrow_mut();
        if buffer.capacity() > 0 && buffer.capacity() <= LEN_MAX && spares.len() < COUNT_MAX {
            buffer.clear();
            spares.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_where_it_is_large_enough() {
        let spares = Spares::default();
        for len in [10, 100, LEN_MAX + 1] {
            spares.give(Vec::with_capacity(len));
        }
        assert!(spares.take(50).capacity() >= 100);
        assert_eq!(spares.take(50).capacity(), 0, "there is none as large");
        assert!((10..50).contains(&spares.take(5).capacity()));
    }
}
