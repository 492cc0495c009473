//! Background work of the log: the next segment is filled before it is needed, purged ones are reused or
//! removed.
//!
//! Filling a segment writes as much as the log itself, to the same disk, and a sync of the log waits for
//! those writes. A spare filled at once would delay every append meanwhile. So it is filled as the log
//! advances, a little after each append, and is complete when half of the segment in use is. Purged segments
//! are kept as spares, which need no filling (docs/decisions/0015-spare-segments.md).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::error::{FatalError, SegmentError};
use crate::segment::file_name;
use crate::storage::{BLOCK, BLOCK_LEN, Storage, StorageFile, WriteMode, is_no_space};

/// The file that is being filled. It gets a segment's name when it is complete, so that a start does not take
/// an incomplete one for a spare.
const NEW_NAME: &str = "log.new";

/// Greatest size of one write of zeros: small, so that writes of the log do not wait long behind it.
const FILL_LEN: usize = 64 * BLOCK_LEN;

/// Smallest size of one write of zeros, except for the last of a file.
const FILL_LEN_MIN: u64 = 16 * BLOCK;

/// The ratio of the rate of filling to the rate of the log.
const FILL_PACE: u64 = 2;

/// Purged segments that are kept as spares, at most: slightly more than a snapshot releases, if a segment and
/// a snapshot interval have about the same number of transactions.
const SPARES_MAX: usize = 4;

/// A file that is ready to become a segment: of a segment's length, completely written, without a header of
/// its own sequence.
pub(crate) struct Spare<F> {
    pub(crate) sequence: u64,
    pub(crate) file: Rc<F>,
    pub(crate) len: u64,
}

/// A file that is to become a spare.
struct Filling<F> {
    name: String,
    file: F,
    len: u64,
    /// Bytes written.
    filled: u64,
}

/// A segment file that the log no longer needs.
pub(crate) struct Retired<F> {
    pub(crate) sequence: u64,
    pub(crate) file: Rc<F>,
    pub(crate) len: u64,
    /// The name under which it is kept.
    aside: Option<String>,
}

impl<F> Retired<F> {
    pub(crate) const fn new(sequence: u64, file: Rc<F>, len: u64) -> Self {
        Self { sequence, file, len, aside: None }
    }
}

/// Prepares spare segments and removes old ones. [`Self::run`] is to be spawned on the log's executor;
/// without it the log works, but waits for each new segment and keeps old ones.
pub struct Upkeep<S: Storage> {
    shared: Rc<Shared<S>>,
}

impl<S: Storage> Clone for Upkeep<S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

struct Shared<S: Storage> {
    storage: S,
    segment_len: u64,
    mode: WriteMode,
    next_sequence: Cell<u64>,
    /// In the order of their sequences, in which they are used.
    spares: RefCell<VecDeque<Spare<S::File>>>,
    /// End of the log in the current segment.
    used: Cell<u64>,
    /// End of the log at which filling continues.
    awaited: Cell<u64>,
    retired: RefCell<VecDeque<Retired<S::File>>>,
    working: Cell<bool>,
    bell: Bell,
}

impl<S: Storage> Upkeep<S> {
    pub(crate) fn new(storage: S, segment_len: u64, mode: WriteMode, next_sequence: u64) -> Self {
        let shared = Shared {
            storage,
            segment_len,
            mode,
            next_sequence: Cell::new(next_sequence),
            spares: RefCell::default(),
            used: Cell::new(0),
            awaited: Cell::new(u64::MAX),
            retired: RefCell::new(VecDeque::new()),
            working: Cell::new(false),
            bell: Bell::default(),
        };
        Self { shared: Rc::new(shared) }
    }

    /// Works until a disk operation fails. A full disk is no failure: the work continues when something was
    /// purged or an append needs a segment.
    ///
    /// # Errors
    /// When the disk fails; the process should stop then.
    pub async fn run(&self) -> Result<(), FatalError> {
        self.remove_unfinished().await?;
        let mut filling = None;
        loop {
            match self.work(&mut filling, || FILL_PACE * self.shared.used.get()).await {
                Ok(()) => {}
                Err(SegmentError::NoSpace { size_bytes }) => {
                    tracing::warn!(code = "RK0411", size_bytes, "no space to prepare the next log segment");
                }
                Err(SegmentError::Failed(fatal)) => return Err(fatal),
            }
            self.shared.bell.heard().await;
        }
    }

    /// Does all the pending work, and fills a spare without waiting for the log. Instead of [`Self::run`],
    /// not concurrently with it.
    ///
    /// # Errors
    /// When the disk is full or fails.
    pub async fn settle(&self) -> Result<(), SegmentError> {
        self.work(&mut None, || u64::MAX).await
    }

    /// Does all the pending work, and fills a spare up to `fill_to`.
    async fn work(
        &self,
        filling: &mut Option<Filling<S::File>>,
        fill_to: impl Fn() -> u64,
    ) -> Result<(), SegmentError> {
        let Some(_turn) = Turn::take(&self.shared.working) else { return Ok(()) };
        loop {
            let retired = self.shared.retired.borrow_mut().pop_front();
            if let Some(retired) = retired {
                self.clear_away(retired).await?;
                continue;
            }
            let Some(mut begun) = filling.take() else {
                if !self.shared.spares.borrow().is_empty() {
                    return Ok(());
                }
                self.remove_unfinished().await?;
                *filling = Some(self.begin(NEW_NAME.to_owned(), self.shared.segment_len).await?);
                continue;
            };
            let next = begun.len.min(begun.filled + FILL_LEN_MIN);
            if begun.filled == begun.len {
                let sequence = self.next_sequence();
                self.keep(self.finish(begun, sequence).await?);
            } else if fill_to() >= next {
                let to = fill_to().clamp(next, begun.filled + FILL_LEN as u64).min(begun.len);
                self.fill(&mut begun, to / BLOCK * BLOCK).await?;
                *filling = Some(begun);
            } else {
                self.shared.awaited.set(next.div_ceil(FILL_PACE));
                *filling = Some(begun);
                return Ok(());
            }
        }
    }

    /// Records the end of the log in the current segment.
    pub(crate) fn advanced(&self, end: u64) {
        self.shared.used.set(end);
        if end >= self.shared.awaited.get() {
            self.shared.awaited.set(u64::MAX);
            self.shared.bell.ring();
        }
    }

    pub(crate) fn storage(&self) -> &S {
        &self.shared.storage
    }

    pub(crate) fn mode(&self) -> WriteMode {
        self.shared.mode
    }

    pub(crate) fn segment_len(&self) -> u64 {
        self.shared.segment_len
    }

    pub(crate) fn retire(&self, retired: Retired<S::File>) {
        self.shared.retired.borrow_mut().push_back(retired);
        self.shared.bell.ring();
    }

    /// Length of a retired file that is still in the queue.
    pub(crate) fn retired_len(&self, sequence: u64) -> Option<u64> {
        self.shared.retired.borrow().iter().find(|file| file.sequence == sequence).map(|file| file.len)
    }

    /// Marks a retired file to be renamed instead of reused or removed.
    pub(crate) fn set_aside(&self, sequence: u64, name: String) {
        let mut retired = self.shared.retired.borrow_mut();
        if let Some(file) = retired.iter_mut().find(|file| file.sequence == sequence) {
            file.aside = Some(name);
        }
    }

    /// A segment numbered above `active`, to continue in: a spare, or one made now.
    pub(crate) async fn take(&self, active: u64) -> Result<Spare<S::File>, SegmentError> {
        self.take_of(active, self.shared.segment_len).await
    }

    /// As [`Self::take`], for a segment of `len` bytes. One that is longer than the others, for a frame that
    /// fits into none of them, is always made now.
    pub(crate) async fn take_of(&self, active: u64, len: u64) -> Result<Spare<S::File>, SegmentError> {
        if len != self.shared.segment_len {
            return self.prepare(len).await;
        }
        self.shared.bell.ring();
        loop {
            let ready = self.shared.spares.borrow_mut().pop_front();
            match ready {
                Some(spare) if spare.sequence > active => return Ok(spare),
                // The active segment, a longer one, was made after this spare; segments are used in order.
                Some(late) => self.retire(Retired::new(late.sequence, late.file, late.len)),
                None => return self.prepare(len).await,
            }
        }
    }

    pub(crate) fn give_back(&self, spare: Spare<S::File>) {
        if spare.len == self.shared.segment_len {
            self.keep(spare);
        } else {
            self.retire(Retired::new(spare.sequence, spare.file, spare.len));
        }
    }

    fn keep(&self, spare: Spare<S::File>) {
        let mut spares = self.shared.spares.borrow_mut();
        let place = spares.partition_point(|other| other.sequence < spare.sequence);
        spares.insert(place, spare);
    }

    fn next_sequence(&self) -> u64 {
        let sequence = self.shared.next_sequence.get();
        self.shared.next_sequence.set(sequence + 1);
        sequence
    }

    /// Makes a spare at once.
    async fn prepare(&self, len: u64) -> Result<Spare<S::File>, SegmentError> {
        let sequence = self.next_sequence();
        let mut begun = self.begin(file_name(sequence), len).await?;
        while begun.filled < len {
            let to = len.min(begun.filled + FILL_LEN as u64);
            self.fill(&mut begun, to).await?;
        }
        self.finish(begun, sequence).await
    }

    /// Removes the unfinished spare of an earlier start or an earlier run.
    async fn remove_unfinished(&self) -> Result<(), FatalError> {
        match self.shared.storage.remove(NEW_NAME).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FatalError::io("removing", NEW_NAME.to_owned(), 0, error))
            }
            _ => Ok(()),
        }
    }

    async fn begin(&self, name: String, len: u64) -> Result<Filling<S::File>, SegmentError> {
        let created = async {
            let file = self.shared.storage.create(&name, WriteMode::Synced).await?;
            file.allocate(len).await?;
            Ok(file)
        };
        let file = self.prepared(&name, len, created.await).await?;
        Ok(Filling { name, file, len, filled: 0 })
    }

    /// Writes zeros up to `to`.
    async fn fill(&self, begun: &mut Filling<S::File>, to: u64) -> Result<(), SegmentError> {
        let len = usize::try_from(to - begun.filled).unwrap_or(usize::MAX).min(FILL_LEN);
        let mut zeros = begun.file.buffer(len);
        zeros.as_mut().fill(0);
        let written = match begun.file.write_at(zeros, begun.filled).await {
            Ok(wrote) if wrote < len => Err(io::ErrorKind::StorageFull.into()),
            written => written,
        };
        begun.filled += self.prepared(&begun.name, begun.len, written).await? as u64;
        Ok(())
    }

    async fn finish(&self, begun: Filling<S::File>, sequence: u64) -> Result<Spare<S::File>, SegmentError> {
        let Filling { name, file, len, .. } = begun;
        let Shared { storage, mode, .. } = &*self.shared;
        let spare_name = file_name(sequence);
        let opened = async {
            file.datasync().await?;
            if name != spare_name {
                storage.rename(&name, &spare_name).await?;
            }
            storage.sync_dir().await?;
            if *mode == WriteMode::Synced {
                return Ok(Rc::new(file));
            }
            S::File::close(Rc::new(file)).await?;
            Ok(Rc::new(storage.open(&spare_name, *mode).await?))
        };
        let file = self.prepared(&name, len, opened.await).await?;
        Ok(Spare { sequence, file, len })
    }

    /// Handles the result of a step in preparing a segment. On a full disk it removes the unfinished file.
    async fn prepared<T>(&self, name: &str, len: u64, result: io::Result<T>) -> Result<T, SegmentError> {
        match result {
            Ok(done) => Ok(done),
            Err(error) if is_no_space(&error) => {
                let removed = self.shared.storage.remove(name).await;
                if let Err(error) = removed {
                    tracing::warn!(
                        code = "RK0412",
                        file = name,
                        %error,
                        "cannot remove an unfinished log segment"
                    );
                }
                Err(SegmentError::NoSpace { size_bytes: len })
            }
            Err(error) => Err(FatalError::io("preparing", name.to_owned(), 0, error).into()),
        }
    }

    /// Reuses the file if a spare is wanted and no reader has it open; else removes it, or renames it if it
    /// is to be kept. Files are processed one at a time, oldest first, each durably before the next, so that
    /// a crash leaves no gap among the purged ones.
    async fn clear_away(&self, retired: Retired<S::File>) -> Result<(), SegmentError> {
        let name = file_name(retired.sequence);
        let unread = Rc::strong_count(&retired.file) == 1;
        let wanted = self.shared.spares.borrow().len() < SPARES_MAX;
        let result = if let Some(aside) = &retired.aside {
            self.rename(&name, aside, retired.file).await
        } else if unread && wanted && retired.len == self.shared.segment_len {
            self.recycle(&name, retired.file).await
        } else {
            self.remove(&name, retired.file).await
        };
        result.map_err(|error| FatalError::io("clearing away", name, 0, error).into())
    }

    async fn recycle(&self, name: &str, file: Rc<S::File>) -> io::Result<()> {
        let sequence = self.next_sequence();
        self.shared.storage.rename(name, &file_name(sequence)).await?;
        self.shared.storage.sync_dir().await?;
        let len = self.shared.segment_len;
        self.keep(Spare { sequence, file, len });
        Ok(())
    }

    async fn rename(&self, name: &str, aside: &str, file: Rc<S::File>) -> io::Result<()> {
        self.shared.storage.rename(name, aside).await?;
        self.shared.storage.sync_dir().await?;
        S::File::close(file).await
    }

    async fn remove(&self, name: &str, file: Rc<S::File>) -> io::Result<()> {
        self.shared.storage.remove(name).await?;
        self.shared.storage.sync_dir().await?;
        S::File::close(file).await
    }
}

/// Lets one caller work at a time. Dropped with the caller's future, it lets the next one in.
struct Turn<'a>(&'a Cell<bool>);

impl<'a> Turn<'a> {
    fn take(working: &'a Cell<bool>) -> Option<Self> {
        if working.replace(true) { None } else { Some(Self(working)) }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Wakes one waiting task. A ring without a waiting task is kept for the next one that waits.
#[derive(Default)]
struct Bell {
    rung: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Bell {
    fn ring(&self) {
        self.rung.set(true);
        let waiting = self.waiting.borrow_mut().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    async fn heard(&self) {
        poll_fn(|context| {
            if self.rung.take() {
                return Poll::Ready(());
            }
            self.waiting.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_lite::future::{block_on, poll_once};

    use super::*;
    use crate::memory::MemoryDisk;

    const LEN: u64 = 1024 * 1024;

    #[test]
    fn a_spare_is_filled_as_the_log_advances_and_full_when_half_of_a_segment_is_used() {
        let disk = MemoryDisk::new();
        let upkeep = Upkeep::new(disk.storage(), LEN, WriteMode::Synced, 2);
        let mut running = pin!(upkeep.run());
        let mut operations = || {
            let before = disk.operations();
            assert!(block_on(poll_once(&mut running)).is_none(), "it goes on");
            disk.operations() - before
        };
        operations();
        for end in (0..LEN / 2).step_by(BLOCK_LEN) {
            upkeep.advanced(end);
            let allowed = u64::from(end > 0 && (FILL_PACE * end).is_multiple_of(FILL_LEN_MIN));
            assert_eq!(operations(), allowed, "at {end}");
            assert!(upkeep.shared.spares.borrow().is_empty());
        }
        upkeep.advanced(LEN / 2);
        operations();
        assert_eq!(upkeep.shared.spares.borrow().len(), 1);
        upkeep.advanced(LEN);
        assert_eq!(operations(), 0, "one is enough");
    }

    #[test]
    fn a_log_that_advances_faster_than_the_disk_has_its_spare_filled_in_long_writes() {
        let disk = MemoryDisk::new();
        let upkeep = Upkeep::new(disk.storage(), LEN, WriteMode::Synced, 2);
        upkeep.advanced(LEN);
        let mut running = pin!(upkeep.run());
        assert!(block_on(poll_once(&mut running)).is_none(), "it goes on");
        assert_eq!(upkeep.shared.spares.borrow().len(), 1);
        let (look_for_an_old_one_create_allocate, sync_rename_sync) = (4, 3);
        assert_eq!(
            disk.operations(),
            look_for_an_old_one_create_allocate + LEN / FILL_LEN as u64 + sync_rename_sync
        );
    }

    #[test]
    fn a_spare_that_was_half_filled_at_a_stop_is_no_segment_afterwards() {
        let disk = MemoryDisk::new();
        let run_once = |advanced| {
            let upkeep = Upkeep::new(disk.storage(), LEN, WriteMode::Synced, 2);
            upkeep.advanced(advanced);
            assert!(block_on(poll_once(pin!(upkeep.run()))).is_none(), "it goes on");
        };
        run_once(LEN / 4);
        assert_eq!(disk.names(), [NEW_NAME]);
        run_once(LEN / 2);
        assert_eq!(disk.names(), [file_name(2)], "begun anew");
    }

    #[test]
    fn purged_segments_are_kept_for_reuse_but_not_all_of_them() {
        let disk = MemoryDisk::new();
        let upkeep = Upkeep::new(disk.storage(), LEN, WriteMode::Synced, 1);
        for _ in 0..SPARES_MAX + 2 {
            let Spare { sequence, file, len } = block_on(upkeep.prepare(LEN)).expect("a healthy disk");
            upkeep.retire(Retired::new(sequence, file, len));
        }
        block_on(upkeep.settle()).expect("a healthy disk");
        assert_eq!(disk.names().len(), SPARES_MAX);
        let before = disk.operations();
        for active in 0..SPARES_MAX {
            let spare = block_on(upkeep.take(active as u64)).expect("a healthy disk");
            assert!(spare.sequence > active as u64 + SPARES_MAX as u64, "behind all that were in use");
        }
        assert_eq!(disk.operations(), before, "nothing was filled");
    }
}
