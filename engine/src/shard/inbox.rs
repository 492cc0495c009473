//! Bytes from one client that wait to be decoded.

/// Input of one connection: part of a frame, or frames that must wait.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// Start of the bytes that wait. Requests are consumed one at a time, and the bytes behind must not be
    /// moved for each of them.
    start: usize,
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    /// The bytes that wait, oldest first.
    pub(super) fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes the oldest `len` bytes, and frees the memory when nothing is left.
    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
        debug_assert!(self.start <= self.bytes.len(), "{len} bytes consumed, fewer were waiting");
        if self.start >= self.bytes.len() {
            *self = Self::default();
        } else if self.start > self.bytes.len() / 2 {
            // Fewer bytes are moved than were consumed since the last move.
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_wait_in_their_order_until_they_are_consumed(
            steps in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..40), 0..60_usize), 0..60),
        ) {
            let (mut inbox, mut model) = (Inbox::default(), Vec::new());
            for (pushed, consumed) in steps {
                inbox.push(&pushed);
                model.extend(pushed);
                let consumed = consumed.min(model.len());
                inbox.consume(consumed);
                model.drain(..consumed);
                prop_assert_eq!(inbox.waiting(), &model[..]);
                prop_assert_eq!(inbox.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn memory_is_not_kept_for_what_was_consumed() {
        let mut inbox = Inbox::default();
        for _ in 0..100 {
            inbox.push(&[7; 1000]);
            inbox.consume(1000 - 1);
        }
        assert!(
            inbox.bytes.len() < 2000,
            "{} bytes are held for {}",
            inbox.bytes.len(),
            inbox.waiting().len()
        );
        inbox.consume(inbox.waiting().len());
        assert_eq!(inbox.bytes.capacity(), 0);
    }
}
