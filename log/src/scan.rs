//! Reads a segment group by group.

use std::io;
use std::rc::Rc;

use ringkeeper_wire::Zxid;

use crate::frame::{self, AlignedBuf, Frame};
use crate::group::{self, Damage, GroupHeader, Home, Tip, padded};
use crate::read_ahead::ReadAhead;
use crate::storage::{BLOCK_LEN, StorageFile, whole_blocks};

/// Bytes of one read: large enough for sequential speed, small enough for io_uring's taste.
const READ_LEN: usize = 256 * 1024;

/// Number of reads in flight, once the reads are found to be sequential.
const READS_AHEAD: usize = 4;

/// A part of a file in memory, moving forward. Its bytes are aligned like the blocks they came from.
pub(crate) struct Window<F: StorageFile> {
    reads: ReadAhead<F>,
    /// Whether the last read followed the one before.
    onward: bool,
    file_len: u64,
    /// Offset in the file of `bytes`.
    start: u64,
    bytes: AlignedBuf,
    /// Offset in `bytes` of what was asked for last.
    at: usize,
}

impl<F: StorageFile> Window<F> {
    pub(crate) fn new(file: Rc<F>, file_len: u64) -> Self {
        let reads = ReadAhead::new(file);
        Self { reads, onward: false, file_len, start: 0, bytes: AlignedBuf::new(), at: 0 }
    }

    /// The `len` bytes at `offset` (a multiple of the block), or as many as the file has.
    pub(crate) async fn get(&mut self, offset: u64, len: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.file_len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = len.min(left);
        self.at = usize::try_from(offset.wrapping_sub(self.start)).unwrap_or(usize::MAX);
        if self.at > self.bytes.len() || self.bytes.len() - self.at < len {
            self.move_to(offset, len);
        }
        while self.bytes.len() - self.at < len && self.read_on().await? {}
        Ok(self.current(len))
    }

    /// What [`Self::get`] returned last, `len` bytes of it.
    pub(crate) fn current(&self, len: usize) -> &[u8] {
        let bytes = &self.bytes[self.at..];
        &bytes[..len.min(bytes.len())]
    }

    /// Drops what lies before `offset` and makes room for `len` bytes from there.
    fn move_to(&mut self, offset: u64, len: usize) {
        // A jump: the next read does not follow the last one.
        self.onward &= self.at <= self.bytes.len();
        let kept = self.bytes.len().saturating_sub(self.at);
        if kept > 0 {
            self.bytes.copy_within(self.at.., 0);
        }
        self.bytes.resize(kept, 0);
        self.bytes.reserve(len.saturating_sub(kept));
        self.start = offset;
        self.at = 0;
    }

    /// Reads one more piece; `false` at the end.
    async fn read_on(&mut self) -> io::Result<bool> {
        let at = self.start + self.bytes.len() as u64;
        let want = self.read_len(at);
        if want == 0 {
            return Ok(false);
        }
        if self.reads.peek() != Some((at, want)) {
            self.reads.clear();
            self.reads.begin(at, want);
        }
        if self.onward {
            self.read_ahead(at);
        }
        let read = self.reads.next().await?;
        self.onward = true;
        self.bytes.extend_from_slice(&read[..read.len() / BLOCK_LEN * BLOCK_LEN]);
        Ok(read.len() == want)
    }

    /// How much is read at once at `offset`.
    fn read_len(&self, offset: u64) -> usize {
        let left = usize::try_from(self.file_len.saturating_sub(offset)).unwrap_or(usize::MAX);
        // The last block of a file may be incomplete; it holds no group then.
        left.min(READ_LEN) / BLOCK_LEN * BLOCK_LEN
    }

    /// Begins the reads behind those that were begun, the first of them at `offset`.
    fn read_ahead(&mut self, offset: u64) {
        while self.reads.begun() < READS_AHEAD {
            let next = offset + (self.reads.begun() * READ_LEN) as u64;
            match self.read_len(next) {
                0 => return,
                len => self.reads.begin(next, len),
            }
        }
    }
}

/// A group that was read and checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    /// Where it ends: the next group's offset.
    pub(crate) end: u64,
    /// Bytes from its start to the end of its last frame.
    pub(crate) len: usize,
    /// The history behind it, or behind `until` if that is inside the group.
    pub(crate) tip: Tip,
    /// The greatest number that it claims to have been durable.
    pub(crate) durable: u64,
}

/// Reads the group at `offset` and checks that it continues `tip`. Frames behind zxid `until` are void:
/// neither checked nor counted.
pub(crate) async fn read_group<F: StorageFile>(
    window: &mut Window<F>,
    home: Home,
    offset: u64,
    tip: Tip,
    until: Option<Zxid>,
) -> io::Result<Result<Checked, Damage>> {
    let start = window.get(offset, BLOCK_LEN).await?;
    let Some(header) = GroupHeader::decode(start, home) else {
        return Ok(Err(Damage::NoHeader));
    };
    let Ok(len) = usize::try_from(header.len()) else { return Ok(Err(Damage::Count)) };
    let bytes = window.get(offset, len).await?;
    let body = &bytes[group::HEADER_LEN.min(bytes.len())..];
    let checked = |tip| Checked { end: offset + whole_blocks(len) as u64, len, tip, durable: header.durable };
    Ok(tip.check(&header, body, until).map(checked))
}

/// The frames of a group whose bytes [`read_group`] has checked, those after zxid `until` left out.
pub(crate) fn frames(group: &[u8], until: Option<Zxid>) -> impl Iterator<Item = (usize, Frame<'_>)> {
    let mut at = group::HEADER_LEN;
    std::iter::from_fn(move || {
        let frame = frame::parse_trusted(group.get(at..)?).ok()?;
        if until.is_some_and(|until| frame.meta().last_zxid > until) {
            return None;
        }
        let here = at;
        at += padded(frame.bytes().len());
        Some((here, frame))
    })
}

/// The groups behind the point where a history ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Remains {
    /// The least number of a group that names a later zxid before it, and that zxid.
    lost: Option<(u64, Zxid)>,
    /// The greatest number of a group there.
    last: Option<u64>,
    /// The greatest number that a group there records as durable.
    proven: Option<u64>,
}

impl Remains {
    fn note(&mut self, header: &GroupHeader, tip: Tip) {
        *self = self.join(Self {
            lost: Some((header.number, header.after_zxid)).filter(|(_, zxid)| *zxid > tip.zxid),
            last: Some(header.number),
            proven: Some(header.durable),
        });
    }

    /// The groups of two places together.
    pub(crate) fn join(self, other: Self) -> Self {
        let lost = match (self.lost, other.lost) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        Self { lost, last: self.last.max(other.last), proven: self.proven.max(other.proven) }
    }

    /// The greatest number of a group there.
    pub(crate) fn last_number(&self) -> Option<u64> {
        self.last
    }

    /// If the groups prove that data behind `tip` was durable: the last zxid that is lost.
    pub(crate) fn proof_after(&self, tip: Tip) -> Option<Zxid> {
        let until_zxid = self.lost.map_or(tip.zxid, |(_, zxid)| zxid);
        (self.proven > Some(tip.number)).then_some(until_zxid)
    }
}

/// Searches every block from `offset` to the end of the file for groups of this segment with numbers above
/// that of `tip`. (Lower numbers are from an append that was undone on a full disk.)
pub(crate) async fn remains<F: StorageFile>(
    window: &mut Window<F>,
    home: Home,
    offset: u64,
    tip: Tip,
) -> io::Result<Remains> {
    let mut remains = Remains::default();
    let mut at = offset;
    loop {
        let bytes = window.get(at, READ_LEN).await?;
        for block in bytes.chunks_exact(BLOCK_LEN) {
            if let Some(header) = GroupHeader::decode(block, home).filter(|header| header.number > tip.number)
            {
                remains.note(&header, tip);
            }
        }
        if bytes.len() < READ_LEN {
            return Ok(remains);
        }
        at += READ_LEN as u64;
    }
}
