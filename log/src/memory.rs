//! The simulator's disk: a [`Storage`] in memory that forgets, tears, fails, fills up, dawdles and rots on
//! demand.
//!
//! Deterministic, in one thread, with std alone: the same calls and the same seeds give the same disk. Its
//! futures run under any executor, or are polled by hand.
//!
//! What the machine sees and what would survive a power loss are two things here. A write is seen at once and
//! survives for certain after a [`StorageFile::datasync`]; until then [`MemoryDisk::crash`] decides for each
//! 512-byte sector whether it did. Likewise each creation, renaming or removal of a name until
//! [`Storage::sync_dir`]: a file that was written and synced is gone if its name was not. An operation under
//! way when the power fails has the same freedom, so a write in flight may tear and a sync in flight may have
//! worked. [`MemoryDisk::crash_states`] goes through all that may be left instead of drawing one.
//!
//! A [`Fault`] strikes single operations: errors, a full disk, writes that are lost or land elsewhere, and
//! syncs that fail or lie ([`Effect`] lists them). [`MemoryDisk::rot`] flips bits of what is durable.

mod crash_states;
mod disk;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::ops::{Deref, Range};
use std::rc::Rc;
use std::task::{Poll, Waker};

pub use crash_states::CRASH_STATES_MAX;
use disk::{Change, Disk, index};
pub use disk::{CrashMode, Effect, Fault, OpId, OpKind, Unit};

use crate::storage::{BLOCK, Storage, StorageFile, WriteMode};

/// The disk itself, in the hands of the simulator or the test.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    disk: Rc<RefCell<Disk>>,
}

impl MemoryDisk {
    /// An empty disk without limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The folder as a server that starts now sees it. After a [`Self::crash`] earlier ones are dead: their
    /// operations fail.
    #[must_use]
    pub fn storage(&self) -> MemoryStorage {
        let life = self.disk.borrow().life;
        MemoryStorage { disk: self.disk.clone(), life }
    }

    /// An independent copy of the whole state, powered on.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { disk: Rc::new(RefCell::new(self.disk.borrow().copy())) }
    }

    /// Cuts the power and restores it: what was not durable survives as `mode` says, whoever used the disk is
    /// cut off, faults and holds are lifted.
    pub fn crash(&self, mode: CrashMode) {
        self.disk.borrow_mut().crash(&mut mode.chooser());
    }

    /// [`Self::crash`] where `survives` decides on each sector and change of a name, oldest first.
    pub fn crash_with(&self, mut survives: impl FnMut(Unit<'_>) -> bool) {
        self.disk.borrow_mut().crash(&mut survives);
    }

    /// The process that uses the disk ends, and the machine goes on: everything stays as it is seen, unsynced
    /// or not; whoever used the disk is cut off, faults and holds are lifted.
    pub fn end_process(&self) {
        self.disk.borrow_mut().end_process();
    }

    /// Hands each state that a power loss right now may leave to `each`, as a disk of its own, powered on; no
    /// two of them are equal. Returns how many there are.
    ///
    /// A file system may write what is not durable in any order, so any set of the sectors, lengths and names
    /// that [`Self::crash_with`] asks about may survive. Sets that leave the same contents under the same
    /// names are one state.
    ///
    /// # Panics
    /// If there are more than [`CRASH_STATES_MAX`]: too much is unsynced at once to look at all of it.
    pub fn crash_states(&self, mut each: impl FnMut(&Self)) -> u64 {
        let mut count = 0;
        self.disk.borrow().crash_states(&mut |disk| {
            count += 1;
            each(&Self { disk: Rc::new(RefCell::new(disk)) });
        });
        count
    }

    /// Operations begun since the disk was made.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.disk.borrow().begun
    }

    /// The power fails in the middle of the operation after the next `operations`: that one and all later
    /// ones never finish. What follows is a [`Self::crash`].
    pub fn halt_after(&self, operations: u64) {
        let mut disk = self.disk.borrow_mut();
        disk.halt_at = Some(disk.begun + operations);
    }

    /// [`Self::halt_after`] that counts only operations that change something, syncs among them.
    pub fn halt_after_changes(&self, changes: u64) {
        self.disk.borrow_mut().changes_left = Some(changes);
    }

    /// Takes back a [`Self::halt_after`] or [`Self::halt_after_changes`] that has not struck.
    pub fn run_on(&self) {
        let mut disk = self.disk.borrow_mut();
        (disk.halt_at, disk.changes_left) = (None, None);
    }

    /// Whether [`Self::halt_after`] or [`Self::halt_after_changes`] has struck.
    #[must_use]
    pub fn halted(&self) -> bool {
        self.disk.borrow().halted()
    }

    /// From now on operations finish only when released (`true`), or at once (`false`, which releases all).
    pub fn hold(&self, hold: bool) {
        let mut disk = self.disk.borrow_mut();
        disk.hold = hold;
        let wakers = if hold { Vec::new() } else { disk.release_all() };
        drop(disk);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The operations that wait for their release, oldest first.
    #[must_use]
    pub fn held(&self) -> Vec<(OpId, OpKind)> {
        self.disk.borrow().held()
    }

    /// Those that were begun since the last call, oldest first, whether or not they wait still.
    #[must_use]
    pub fn take_newly_held(&self) -> Vec<(OpId, OpKind)> {
        self.disk.borrow_mut().take_newly_held()
    }

    /// Lets one held operation finish.
    pub fn release(&self, id: OpId) {
        let waker = self.disk.borrow_mut().release(id);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Plants a fault; several may be planted, the first that fits an operation strikes.
    pub fn inject(&self, fault: Fault) {
        self.disk.borrow_mut().faults.push(fault);
    }

    /// Bytes that all files together have.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.disk.borrow().used()
    }

    /// Whether there is a limit to that.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.disk.borrow().capacity.is_some()
    }

    /// Operations that a planted fault has struck, or that found no room, since the disk was made.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.disk.borrow().struck
    }

    /// Lifts all planted faults.
    pub fn clear_faults(&self) {
        self.disk.borrow_mut().faults.clear();
    }

    /// How many bytes all files together may have; `None` for no limit.
    pub fn set_capacity_bytes(&self, capacity: Option<u64>) {
        self.disk.borrow_mut().capacity = capacity;
    }

    /// Changes a durable byte behind everyone's back: `mask` is XORed onto it. Returns whether the file has
    /// it.
    pub fn rot(&self, name: &str, offset: u64, mask: u8) -> bool {
        self.disk.borrow_mut().rot(name, offset, mask)
    }

    /// All names as they are seen now, in their order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.disk.borrow().names()
    }

    /// What a power loss right now leaves for certain: files, by the numbers that [`Unit`] gives them, and
    /// their bytes. From now on, [`Self::take_newly_durable`] tells what becomes durable.
    #[must_use]
    pub fn durable_files(&self) -> Vec<(u64, Rc<Vec<u8>>)> {
        let mut disk = self.disk.borrow_mut();
        disk.newly_durable = Some(Vec::new());
        disk.durable_files()
    }

    /// Hands each piece of a file that a write or a sync has made durable since the last call to `each`: the
    /// file's number, all its durable bytes, and which of them are new.
    pub fn take_newly_durable(&self, mut each: impl FnMut(u64, &[u8], Range<usize>)) {
        let mut disk = self.disk.borrow_mut();
        let places = disk.newly_durable.as_mut().map(std::mem::take).unwrap_or_default();
        for (file, place) in places {
            if let Some(bytes) = disk.durable(file) {
                each(file, &bytes, index(place.start)..index(place.end).min(bytes.len()));
            }
        }
    }

    /// Whether a power loss right now leaves the file with a name.
    #[must_use]
    pub fn has_durable_name(&self, file: u64) -> bool {
        self.disk.borrow().has_durable_name(file)
    }

    /// The bytes of a file as they are seen now.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        self.disk.borrow().contents(name)
    }
}

/// A server's view of a [`MemoryDisk`].
#[derive(Clone)]
pub struct MemoryStorage {
    disk: Rc<RefCell<Disk>>,
    life: u64,
}

impl MemoryStorage {
    /// Runs one operation: `start` when it is issued, `finish` when it is done.
    async fn operate<A, B>(
        &self,
        kind: OpKind,
        name: &str,
        start: impl FnOnce(&mut Disk, OpId, Option<Effect>) -> io::Result<A>,
        finish: impl FnOnce(&mut Disk, A) -> io::Result<B>,
    ) -> io::Result<B> {
        let (id, started) = {
            let mut disk = self.disk.borrow_mut();
            let id = disk.begin(self.life, kind)?;
            let started = match disk.fault(kind, name) {
                _ if disk.halted_before(id) => Err(powered_off()),
                Some(Effect::Fail(error)) => Err(error.into()),
                effect => start(&mut disk, id, effect),
            };
            (id, started)
        };
        poll_fn(|context| {
            let mut disk = self.disk.borrow_mut();
            if disk.is_done(self.life, id) {
                return Poll::Ready(());
            }
            disk.wait(id, context.waker());
            Poll::Pending
        })
        .await;
        let mut disk = self.disk.borrow_mut();
        disk.check_life(self.life)?;
        finish(&mut disk, started?)
    }

    async fn instant<B>(
        &self,
        kind: OpKind,
        name: &str,
        act: impl FnOnce(&mut Disk, OpId) -> io::Result<B>,
    ) -> io::Result<B> {
        self.operate(kind, name, |disk, id, _| act(disk, id), |_, done| Ok(done)).await
    }

    fn file(&self, name: &str, inode: u64, mode: WriteMode) -> MemoryFile {
        MemoryFile { storage: self.clone(), name: name.to_owned(), inode, mode }
    }
}

impl Storage for MemoryStorage {
    type File = MemoryFile;

    async fn list(&self) -> io::Result<Vec<String>> {
        self.instant(OpKind::List, "", |disk, _| Ok(disk.names())).await
    }

    async fn create(&self, name: &str, mode: WriteMode) -> io::Result<MemoryFile> {
        let inode = self.instant(OpKind::Create, name, |disk, id| disk.create(id, name)).await?;
        Ok(self.file(name, inode, mode))
    }

    async fn open(&self, name: &str, mode: WriteMode) -> io::Result<MemoryFile> {
        let inode = self.instant(OpKind::Open, name, |disk, _| disk.lookup(name)).await?;
        Ok(self.file(name, inode, mode))
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.instant(OpKind::Rename, from, |disk, id| disk.rename(id, from, to)).await
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        self.instant(OpKind::Remove, name, |disk, id| disk.remove(id, name)).await
    }

    async fn sync_dir(&self) -> io::Result<()> {
        let start = |_: &mut Disk, id, effect| Ok((id, effect));
        let finish = |disk: &mut Disk, (id, effect)| disk.sync_dir(id, effect);
        self.operate(OpKind::SyncDir, "", start, finish).await
    }

    async fn free_bytes(&self) -> io::Result<u64> {
        self.instant(OpKind::Free, "", |disk, _| Ok(disk.free())).await
    }
}

/// An open file of a [`MemoryStorage`].
pub struct MemoryFile {
    storage: MemoryStorage,
    name: String,
    inode: u64,
    mode: WriteMode,
}

impl StorageFile for MemoryFile {
    type Buffer = Vec<u8>;
    type Read = MemoryRead;

    fn buffer(&self, len: usize) -> Vec<u8> {
        // Not zeros: whoever relies on a fresh buffer's contents shall fail here and not on the real disk.
        vec![0xa5; len]
    }

    async fn write_at(&self, buffer: Vec<u8>, offset: u64) -> io::Result<usize> {
        check_aligned(offset, buffer.len())?;
        let start = |disk: &mut Disk, id, effect| {
            let len = if effect == Some(Effect::Short) { buffer.len() / 2 } else { buffer.len() };
            let data = buffer[..len].to_vec();
            match effect {
                Some(Effect::Ignore) => return Ok((id, len)),
                Some(Effect::Misdirect { blocks }) => {
                    let offset = disk.misdirected(self.inode, offset, len, blocks)?;
                    disk.change(id, self.inode, Change::Write { offset, data })?;
                }
                _ => disk.change(id, self.inode, Change::Write { offset, data })?,
            }
            Ok((id, len))
        };
        self.storage
            .operate(OpKind::Write, &self.name, start, |disk, (id, len)| {
                disk.finish_change(self.inode, id, self.mode.writes_through(len));
                Ok(len)
            })
            .await
    }

    async fn read_at(&self, offset: u64, len: usize) -> io::Result<MemoryRead> {
        check_aligned(offset, len)?;
        let read = |disk: &mut Disk, _| disk.read(self.inode, offset, len);
        self.storage.instant(OpKind::Read, &self.name, read).await.map(MemoryRead)
    }

    async fn datasync(&self) -> io::Result<()> {
        let start = |disk: &mut Disk, _, effect| Ok((disk.finished_changes(self.inode), effect));
        self.storage
            .operate(OpKind::Sync, &self.name, start, |disk, (changes, effect)| {
                disk.sync(self.inode, &changes, effect)
            })
            .await
    }

    fn is_cached(&self) -> bool {
        false
    }

    async fn size(&self) -> io::Result<u64> {
        self.storage.instant(OpKind::Size, &self.name, |disk, _| disk.len(self.inode)).await
    }

    async fn allocate(&self, len: u64) -> io::Result<()> {
        let start = |disk: &mut Disk, id, _| {
            disk.change(id, self.inode, Change::Grow { len })?;
            Ok(id)
        };
        self.storage
            .operate(OpKind::Allocate, &self.name, start, |disk, id| {
                disk.finish_change(self.inode, id, false);
                Ok(())
            })
            .await
    }

    async fn close(_: Rc<Self>) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes read from a [`MemoryFile`].
pub struct MemoryRead(Vec<u8>);

impl Deref for MemoryRead {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The rule of direct I/O, kept here too so that a simulation finds what breaks it.
fn check_aligned(offset: u64, len: usize) -> io::Result<()> {
    let whole = offset.is_multiple_of(BLOCK) && (len as u64).is_multiple_of(BLOCK);
    if whole { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "not whole blocks")) }
}

fn powered_off() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the simulated machine is off")
}

#[cfg(test)]
mod tests;
