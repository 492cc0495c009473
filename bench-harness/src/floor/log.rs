//! The log of a bare server: blocks of one file that are there already, written in a circle, so that a write
//! changes nothing but data.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use ringkeeper_runtime::completions::{ALIGNMENT, Ring};
use rustix::fs::OFlags;

/// Bytes of the file.
const LEN: usize = 64 << 20;

/// One write at a time; what comes meanwhile is written together after it.
pub(super) struct Log {
    file: Rc<OwnedFd>,
    offset: usize,
    /// Not handed to the kernel yet.
    next: Vec<u8>,
    /// Number of the last batch in `next`.
    appended: u64,
    /// That of the last one in what is being written, and how many bytes that is.
    writing: Option<(u64, usize)>,
    durable: u64,
    spare: Vec<u8>,
}

impl Log {
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let path = folder.join("floor.log");
        let mut file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        file.write_all(&vec![0; LEN])?;
        file.sync_all()?;
        // On a file system without direct writes, which keeps its files in memory, plain ones do.
        let open = |flags: OFlags| {
            OpenOptions::new().write(true).custom_flags(flags.bits().cast_signed()).open(&path)
        };
        let file = open(OFlags::DIRECT | OFlags::DSYNC).or_else(|_| open(OFlags::DSYNC))?;
        let (next, spare) = (Vec::new(), Vec::new());
        Ok(Self {
            file: Rc::new(file.into()),
            offset: 0,
            next,
            appended: 0,
            writing: None,
            durable: 0,
            spare,
        })
    }

    /// Number of the last batch that is durable, with all before it.
    pub(super) const fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether a batch that is appended now would be written at once.
    pub(super) const fn is_idle(&self) -> bool {
        self.writing.is_none()
    }

    pub(super) fn append(&mut self, number: u64, batch: &[u8]) {
        self.next.extend_from_slice(batch);
        self.appended = number;
    }

    /// Begins to write what was appended, unless a write is under way.
    pub(super) fn flush<T>(&mut self, ring: &mut Ring<T>, token: T) {
        if self.next.is_empty() || !self.is_idle() {
            return;
        }
        let blocks = self.next.len().div_ceil(ALIGNMENT) * ALIGNMENT;
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.clear();
        bytes.reserve(blocks + ALIGNMENT);
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        bytes.resize(start, 0);
        bytes.append(&mut self.next);
        bytes.resize(start + blocks, 0);
        if self.offset + blocks > LEN {
            self.offset = 0;
        }
        ring.write(token, &self.file, bytes, start..start + blocks, self.offset as u64);
        self.offset += blocks;
        self.writing = Some((self.appended, blocks));
    }

    /// So many bytes are written; the memory is used again.
    pub(super) fn written(&mut self, buffer: Vec<u8>, bytes: usize) -> Result<()> {
        let (number, begun) = self.writing.take().context("a write that was begun")?;
        ensure!(bytes == begun, "the disk takes {bytes} bytes of {begun}");
        self.spare = buffer;
        self.durable = number;
        Ok(())
    }
}
