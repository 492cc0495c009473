//! Reads ahead, so that the disk works while the reader processes earlier bytes.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::storage::StorageFile;

/// Reads of one file, in the order in which they were begun.
pub(crate) struct ReadAhead<F: StorageFile> {
    file: Rc<F>,
    reads: VecDeque<Read<F>>,
}

struct Read<F: StorageFile> {
    offset: u64,
    len: usize,
    state: State<F>,
}

enum State<F: StorageFile> {
    UnderWay(Pin<Box<dyn Future<Output = io::Result<F::Read>>>>),
    Done(Option<io::Result<F::Read>>),
}

impl<F: StorageFile> State<F> {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Self::UnderWay(read) = self
            && let Poll::Ready(read) = read.as_mut().poll(cx)
        {
            *self = Self::Done(Some(read));
        }
    }
}

impl<F: StorageFile> ReadAhead<F> {
    pub(crate) const fn new(file: Rc<F>) -> Self {
        Self { file, reads: VecDeque::new() }
    }

    /// Number of reads that were begun and not taken.
    pub(crate) fn begun(&self) -> usize {
        self.reads.len()
    }

    /// Offset and length of the read that [`Self::next`] returns.
    pub(crate) fn peek(&self) -> Option<(u64, usize)> {
        self.reads.front().map(|read| (read.offset, read.len))
    }

    /// Adds a read, as [`StorageFile::read_at`]. The next call of [`Self::next`] submits it.
    pub(crate) fn begin(&mut self, offset: u64, len: usize) {
        let file = self.file.clone();
        let read = Box::pin(async move { file.read_at(offset, len).await });
        self.reads.push_back(Read { offset, len, state: State::UnderWay(read) });
    }

    /// Forgets all reads.
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
    }

    /// The result of the oldest read.
    ///
    /// # Panics
    /// None was begun.
    pub(crate) async fn next(&mut self) -> io::Result<F::Read> {
        let read = poll_fn(|cx| {
            // All are polled, since the first poll submits a read to the disk.
            self.reads.iter_mut().for_each(|read| read.state.poll(cx));
            match &mut self.reads.front_mut().expect("a read was begun").state {
                State::UnderWay(_) => Poll::Pending,
                State::Done(read) => Poll::Ready(read.take().expect("a read is taken once")),
            }
        })
        .await;
        self.reads.pop_front();
        read
    }
}
