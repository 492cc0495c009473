//! Work beside the log's path: the next segment is filled before it is needed, purged ones are reused or removed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::error::{FatalError, SegmentError};
use crate::segment::file_name;
use crate::storage::{BLOCK_LEN, Storage, StorageFile, WriteMode, is_no_space};

/// Bytes of one write of zeros: small, so that the log's own writes need not wait long behind it.
const FILL_LEN: usize = 64 * BLOCK_LEN;

/// A segment file that waits for use: as long as a segment, all of it written once, without a header of its own
/// sequence.
pub(crate) struct Spare<F> {
    pub(crate) sequence: u64,
    pub(crate) file: Rc<F>,
    pub(crate) len: u64,
}

/// A segment file that the log no longer needs.
pub(crate) struct Retired<F> {
    pub(crate) sequence: u64,
    pub(crate) file: Rc<F>,
    pub(crate) len: u64,
    /// It is kept, under this name.
    aside: Option<String>,
}

impl<F> Retired<F> {
    pub(crate) const fn new(sequence: u64, file: Rc<F>, len: u64) -> Self {
        Self { sequence, file, len, aside: None }
    }
}

/// Keeps a spare segment ready and clears away old ones. Spawn [`Self::run`] on the log's executor; without it the
/// log works too, but waits for each new segment and leaves old ones behind.
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
    spare: RefCell<Option<Spare<S::File>>>,
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
            spare: RefCell::new(None),
            retired: RefCell::new(VecDeque::new()),
            working: Cell::new(false),
            bell: Bell::default(),
        };
        Self { shared: Rc::new(shared) }
    }

    /// Works until a disk operation fails. A full disk is no failure: the work goes on when something was purged or
    /// an append asks for room again.
    ///
    /// # Errors
    /// When the disk fails; the process should stop then.
    pub async fn run(&self) -> Result<(), FatalError> {
        loop {
            match self.settle().await {
                Ok(()) => {}
                Err(SegmentError::NoSpace { size_bytes }) => {
                    tracing::warn!(size_bytes, "no space to prepare the next log segment");
                }
                Err(SegmentError::Failed(fatal)) => return Err(fatal),
            }
            self.shared.bell.heard().await;
        }
    }

    /// Does all the work there is now.
    ///
    /// # Errors
    /// When the disk is full or fails.
    pub async fn settle(&self) -> Result<(), SegmentError> {
        let Some(_turn) = Turn::take(&self.shared.working) else { return Ok(()) };
        loop {
            let retired = self.shared.retired.borrow_mut().pop_front();
            if let Some(retired) = retired {
                self.clear_away(retired).await?;
            } else if self.shared.spare.borrow().is_none() {
                let spare = self.prepare(self.shared.segment_len).await?;
                self.shared.spare.replace(Some(spare));
            } else {
                return Ok(());
            }
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

    /// Length of a retired file that has not been cleared away.
    pub(crate) fn retired_len(&self, sequence: u64) -> Option<u64> {
        self.shared.retired.borrow().iter().find(|file| file.sequence == sequence).map(|file| file.len)
    }

    /// Has a retired file get another name, instead of being reused or removed.
    pub(crate) fn set_aside(&self, sequence: u64, name: String) {
        let mut retired = self.shared.retired.borrow_mut();
        if let Some(file) = retired.iter_mut().find(|file| file.sequence == sequence) {
            file.aside = Some(name);
        }
    }

    /// A segment to go on in, numbered above `active`: the one that is ready, or one made now.
    pub(crate) async fn take(&self, active: u64) -> Result<Spare<S::File>, SegmentError> {
        self.take_of(active, self.shared.segment_len).await
    }

    /// [`Self::take`] for a segment of `len` bytes: a longer one than the others, for what fits into none of them, is
    /// made now.
    pub(crate) async fn take_of(&self, active: u64, len: u64) -> Result<Spare<S::File>, SegmentError> {
        if len != self.shared.segment_len {
            return self.prepare(len).await;
        }
        self.shared.bell.ring();
        let ready = self.shared.spare.borrow_mut().take();
        match ready {
            Some(spare) if spare.sequence > active => Ok(spare),
            Some(late) => {
                // It was begun before the active one and finished after it; segments are used in order.
                self.retire(Retired::new(late.sequence, late.file, late.len));
                self.prepare(len).await
            }
            None => self.prepare(len).await,
        }
    }

    pub(crate) fn give_back(&self, spare: Spare<S::File>) {
        let fits = spare.len == self.shared.segment_len;
        let surplus = if fits { self.shared.spare.replace(Some(spare)) } else { Some(spare) };
        if let Some(Spare { sequence, file, len }) = surplus {
            self.retire(Retired::new(sequence, file, len));
        }
    }

    fn next_sequence(&self) -> u64 {
        let sequence = self.shared.next_sequence.get();
        self.shared.next_sequence.set(sequence + 1);
        sequence
    }

    async fn prepare(&self, len: u64) -> Result<Spare<S::File>, SegmentError> {
        let sequence = self.next_sequence();
        let name = file_name(sequence);
        match self.fill_new(&name, len).await {
            Ok(file) => Ok(Spare { sequence, file, len }),
            Err(error) if is_no_space(&error) => {
                // Half a segment helps nobody and takes room.
                let removed = self.shared.storage.remove(&name).await;
                if let Err(error) = removed {
                    tracing::warn!(file = name, %error, "cannot remove an unfinished log segment");
                }
                Err(SegmentError::NoSpace { size_bytes: len })
            }
            Err(error) => Err(FatalError::io("preparing", name, 0, error).into()),
        }
    }

    async fn fill_new(&self, name: &str, len: u64) -> io::Result<Rc<S::File>> {
        let storage = &self.shared.storage;
        let file = storage.create(name, WriteMode::Synced).await?;
        file.allocate(len).await?;
        let mut at = 0;
        while at < len {
            let left = usize::try_from(len - at).unwrap_or(usize::MAX);
            let mut zeros = file.buffer(left.min(FILL_LEN));
            zeros.as_mut().fill(0);
            let wrote = file.write_at(zeros, at).await?;
            if wrote < left.min(FILL_LEN) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            at += wrote as u64;
        }
        file.datasync().await?;
        storage.sync_dir().await?;
        if self.shared.mode == WriteMode::Synced {
            return Ok(Rc::new(file));
        }
        S::File::close(Rc::new(file)).await?;
        Ok(Rc::new(storage.open(name, self.shared.mode).await?))
    }

    /// Reuses the file if a spare is wanted and nobody reads it, else removes it, or sets it aside. One at a time, oldest first and
    /// each durable before the next, so that no crash leaves a gap among the purged ones.
    async fn clear_away(&self, retired: Retired<S::File>) -> Result<(), SegmentError> {
        let name = file_name(retired.sequence);
        let unread = Rc::strong_count(&retired.file) == 1;
        let wanted = self.shared.spare.borrow().is_none();
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
        self.shared.spare.replace(Some(Spare { sequence, file, len }));
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

/// Lets one caller work at a time, also when its future is dropped.
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

/// Wakes one waiting task; a ring that nobody waited for is heard at once by the next.
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
