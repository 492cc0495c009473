//! Buffers for output that are used again: so a reply need not grow a new one, and a connection that is idle
//! has none.

/// Empty buffers. The one that was given last is taken first: it is in the processor's cache.
#[derive(Debug)]
pub struct Spares {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    bytes_max: usize,
    buffer_bytes_max: usize,
}

impl Spares {
    /// Keeps `bytes_max` in all, in buffers of `buffer_bytes_max` at most.
    #[must_use]
    pub const fn new(bytes_max: usize, buffer_bytes_max: usize) -> Self {
        Self { buffers: Vec::new(), bytes: 0, bytes_max, buffer_bytes_max }
    }

    /// A buffer; if none is left, one that has yet to grow.
    pub fn take(&mut self) -> Vec<u8> {
        let spare = self.buffers.pop().unwrap_or_default();
        self.bytes -= spare.capacity();
        spare
    }

    /// Keeps a buffer, unless it is too large or there is no room.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if (1..=self.buffer_bytes_max).contains(&capacity) && self.bytes + capacity <= self.bytes_max {
            buffer.clear();
            self.bytes += capacity;
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_buffer_is_taken_first_and_the_bytes_of_all_are_bounded() {
        let mut spares = Spares::new(1000, 200);
        for bytes in [0, 10, 201, 100] {
            spares.give(Vec::with_capacity(bytes));
        }
        assert_eq!([(); 3].map(|()| spares.take().capacity()), [100, 10, 0]);
        for _ in 0..6 {
            spares.give(Vec::with_capacity(200));
        }
        assert_eq!([(); 6].map(|()| spares.take().capacity()), [200, 200, 200, 200, 200, 0]);
    }

    #[test]
    fn a_buffer_is_empty_when_it_is_taken() {
        let mut spares = Spares::new(1000, 200);
        spares.give(vec![1, 2, 3]);
        assert!(spares.take().is_empty());
    }
}
