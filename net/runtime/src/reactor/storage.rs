//! Files by the executor's ring.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::rc::Rc;

use ringkeeper_log::storage::{BLOCK_LEN, StorageFile, WriteMode};
use rustix::fs::OFlags;

use super::env::Reactor;
use super::executor::{Core, Token, unblock};
use crate::completions::{ALIGNMENT, Operation, Outcome, Ring};
use crate::storage::{DiskFile, DiskStorage, Probe};

/// The largest buffer that a file keeps for its next write.
const SPARE_MAX: usize = 4 << 20;

/// A folder on a real disk. What it does has to be awaited on an executor of the reactor.
pub type RingStorage = DiskStorage<RingFile>;

/// An open file of a [`RingStorage`].
pub struct RingFile {
    file: Rc<OwnedFd>,
    /// The same file opened with O_DSYNC, for small writes ([`WriteMode::Adaptive`]).
    through: Option<Rc<OwnedFd>>,
    direct: bool,
    /// The buffer of the last write, with all bytes that it ever had: so its memory is cleared only once.
    spare: Cell<Vec<u8>>,
    /// Whether data may be in the file that is not durable yet, written now or before the file was opened.
    unsynced: Cell<bool>,
}

/// Memory that begins where direct I/O wants it.
pub struct DiskBuffer {
    bytes: Vec<u8>,
    range: Range<usize>,
}

/// Where the aligned part of this memory begins.
fn aligned(bytes: &[u8]) -> usize {
    bytes.as_ptr().align_offset(ALIGNMENT)
}

impl AsMut<[u8]> for DiskBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.range.clone()]
    }
}

impl Deref for DiskBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

/// Does an operation on a file. It goes on by itself if nobody waits for it any more.
async fn carry_out(operation: impl FnOnce(&mut Ring<Token>, Token) -> Operation) -> io::Result<Outcome> {
    let (slot, _) = Core::current().begin(operation);
    slot.outcome().await
}

impl DiskFile for RingFile {
    type Runtime = Reactor;

    async fn obstacle_to_direct_io(probe: &Probe) -> io::Result<Option<String>> {
        Ok(probe.refusal_of_direct_io())
    }

    async fn open(path: PathBuf, direct: bool, mode: WriteMode, new: bool) -> io::Result<Self> {
        let opened = unblock(move || {
            let open = |through: bool, new: bool| {
                let mut flags = OFlags::empty();
                flags.set(OFlags::DIRECT, direct);
                flags.set(OFlags::DSYNC, through);
                let mut options = OpenOptions::new();
                options.read(true).write(true).create_new(new).custom_flags(flags.bits().cast_signed());
                options.open(&path)
            };
            let file = open(mode == WriteMode::Through, new)?;
            Ok::<_, io::Error>((file, (mode == WriteMode::Adaptive).then(|| open(true, false)).transpose()?))
        });
        let (file, through) = opened.await?;
        let shared = |file: File| Rc::new(OwnedFd::from(file));
        let (spare, unsynced) = (Cell::default(), Cell::new(true));
        Ok(Self { file: shared(file), through: through.map(shared), direct, spare, unsynced })
    }
}

impl StorageFile for RingFile {
    type Buffer = DiskBuffer;
    type Read = DiskBuffer;

    fn buffer(&self, len: usize) -> DiskBuffer {
        let mut bytes = self.spare.take();
        bytes.reserve((len + ALIGNMENT).saturating_sub(bytes.len()));
        let start = aligned(&bytes);
        let range = start..start + len;
        // A shorter buffer than the one before keeps that one's bytes, for the next longer one.
        if bytes.len() < range.end {
            bytes.resize(range.end, 0);
        }
        DiskBuffer { bytes, range }
    }

    async fn write_at(&self, buffer: DiskBuffer, offset: u64) -> io::Result<usize> {
        let through = WriteMode::Adaptive.writes_through(buffer.len());
        let file = self.through.as_ref().filter(|_| through).unwrap_or_else(|| {
            self.unsynced.set(true);
            &self.file
        });
        let DiskBuffer { bytes, range } = buffer;
        match carry_out(|ring, token| ring.write(token, file, bytes, range, offset)).await? {
            Outcome::Written { buffer, bytes } => {
                if buffer.capacity() <= SPARE_MAX {
                    self.spare.set(buffer);
                }
                Ok(bytes)
            }
            _ => Err(io::ErrorKind::Other.into()),
        }
    }

    async fn read_at(&self, offset: u64, len: usize) -> io::Result<DiskBuffer> {
        let mut bytes = Vec::with_capacity(len + ALIGNMENT);
        let start = aligned(&bytes);
        bytes.resize(start, 0);
        loop {
            let done = bytes.len() - start;
            let (left, from) = (len - done, offset + done as u64);
            let read = carry_out(|ring, token| ring.read(token, &self.file, bytes, left, from)).await?;
            let Outcome::Read { buffer, bytes: more } = read else { return Err(io::ErrorKind::Other.into()) };
            bytes = buffer;
            // Old kernels read less through the page cache than the file has. Past it, a short read is the file's
            // end, and another one could not begin there, at no multiple of a block.
            let range = start..bytes.len();
            if range.len() == len || more == 0 || self.direct {
                return Ok(DiskBuffer { bytes, range });
            }
        }
    }

    async fn datasync(&self) -> io::Result<()> {
        // Cleared before the sync, since writes that begin during the sync are not covered by it.
        if !self.unsynced.replace(false) {
            return Ok(());
        }
        carry_out(|ring, token| ring.sync(token, &self.file)).await.map(drop)
    }

    fn is_cached(&self) -> bool {
        !self.direct
    }

    async fn size(&self) -> io::Result<u64> {
        let size = rustix::fs::fstat(&self.file)?.st_size;
        u64::try_from(size).map_err(io::Error::other)
    }

    async fn allocate(&self, len: u64) -> io::Result<()> {
        match carry_out(|ring, token| ring.allocate(token, &self.file, len)).await {
            // If there is no room, writing the zeros will fail.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            allocated => allocated.map(drop),
        }
    }

    async fn close(this: Rc<Self>) -> io::Result<()> {
        if let Some(Self { file, through, .. }) = Rc::into_inner(this) {
            let last = [Some(file), through].into_iter().flatten().filter_map(Rc::into_inner);
            let last: Vec<_> = last.collect();
            unblock(move || drop(last)).await;
        }
        Ok(())
    }
}

const _: () = assert!(BLOCK_LEN.is_multiple_of(ALIGNMENT), "blocks are what direct I/O takes");
