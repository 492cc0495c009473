//! A bounded ring between two executors: one producer, one consumer, no lock.
//!
//! The queue is crossbeam's. Each side waits on a waker: cheap on one executor, one eventfd write between
//! two.

use std::sync::Arc;
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use crossbeam::queue::ArrayQueue;

struct Shared<T> {
    queue: ArrayQueue<T>,
    /// Woken when a message was added.
    consumer: AtomicWaker,
    /// Woken when a message was taken.
    producer: AtomicWaker,
}

/// The end that adds messages.
pub struct Producer<T>(Arc<Shared<T>>);

/// The end that takes messages.
pub struct Consumer<T>(Arc<Shared<T>>);

/// A ring for `capacity` messages.
pub fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let shared = Arc::new(Shared {
        queue: ArrayQueue::new(capacity),
        consumer: AtomicWaker::new(),
        producer: AtomicWaker::new(),
    });
    (Producer(Arc::clone(&shared)), Consumer(shared))
}

impl<T> Producer<T> {
    /// Adds a message and wakes the consumer.
    ///
    /// # Errors
    /// The ring is full: the message is returned, and [`Self::poll_space`] is ready when there is space.
    pub fn push(&self, message: T) -> Result<(), T> {
        self.0.queue.push(message)?;
        self.0.consumer.wake();
        Ok(())
    }

    /// Ready once there is room.
    pub fn poll_space(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.0.queue.is_full() {
            return Poll::Ready(());
        }
        self.0.producer.register(cx.waker());
        if self.0.queue.is_full() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl<T> Consumer<T> {
    /// Takes the oldest message and wakes the producer in any case. To wake it only if the ring was full
    /// would be wrong: the ring may fill, and the producer go to sleep, right after that check.
    pub fn pop(&self) -> Option<T> {
        let message = self.0.queue.pop()?;
        self.0.producer.wake();
        Some(message)
    }

    /// Ready if there is a message; otherwise the next one wakes the task.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.0.queue.is_empty() {
            return Poll::Ready(());
        }
        self.0.consumer.register(cx.waker());
        if self.0.queue.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_fn};

    #[test]
    fn messages_arrive_in_order_across_threads_through_a_ring_that_is_often_full() {
        let (producer, consumer) = ring(4);
        let sender = std::thread::spawn(move || {
            for mut number in 0..10_000_u32 {
                while let Err(back) = producer.push(number) {
                    number = back;
                    block_on(poll_fn(|cx| producer.poll_space(cx)));
                }
            }
        });
        for expected in 0..10_000_u32 {
            block_on(poll_fn(|cx| consumer.poll_ready(cx)));
            assert_eq!(consumer.pop(), Some(expected));
        }
        sender.join().expect("the sender ends");
        assert_eq!(consumer.pop(), None);
    }

    #[test]
    fn a_full_ring_gives_the_message_back() {
        let (producer, consumer) = ring(1);
        assert_eq!(producer.push('a'), Ok(()));
        assert_eq!(producer.push('b'), Err('b'));
        assert_eq!(consumer.pop(), Some('a'));
        assert_eq!(producer.push('b'), Ok(()));
    }
}
