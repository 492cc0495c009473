//! The write-ahead log.
//!
//! Log positions, in their order: `after_zxid` (the last zxid before the first frame, raised by
//! [`Wal::purge_before`]) <= `last().zxid` (the last durable zxid, raised by [`Wal::append`], lowered by
//! [`Wal::truncate_after`]). No position is written and not durable: an append returns when its frames are
//! durable.

use std::collections::VecDeque;
use std::rc::Rc;

use ringkeeper_wire::Zxid;

use crate::error::{AppendError, FatalError, OpenError, ReadError, ReplayError, SegmentError, TruncateError};
use crate::frame::LogPosition;
use crate::frame::{self, Checksum, Frame};
use crate::group::{GroupHeader, Tip, padded};
use crate::mutation::planted;
use crate::reader::Reader;
use crate::recover::{self, Recovered};
use crate::segment::{Identity, SegmentHeader, file_name};
use crate::storage::{BLOCK, BLOCK_LEN, Storage, StorageFile, WriteMode, whole_blocks};
use crate::upkeep::{Retired, Spare, Upkeep};
use crate::{group, segment};

/// Distance between the places in a segment from which reading can start.
const MARK_DISTANCE: u64 = 256 * 1024;

const SEGMENT_LEN_MIN: u64 = 64 * 1024;
const SEGMENT_LEN_MAX: u64 = 1024 * 1024 * 1024;

static ZEROS: [u8; BLOCK_LEN] = [0; BLOCK_LEN];

/// How to open a log.
#[derive(Clone, Debug)]
pub struct Options {
    /// The owner of the log.
    pub identity: Identity,
    /// Length of new segment files in bytes: a multiple of 4096 from 64 KiB to 1 GiB. Older files keep
    /// theirs, and a frame that is longer gets a segment of its own.
    pub segment_size_bytes: u64,
    /// Greatest size of one write, a multiple of 4096, and of the frames in one group unless a single frame
    /// is longer. Above 1 MiB writes are not faster (docs/decisions/0013-small-writes-go-through.md).
    pub write_size_bytes_max: usize,
    /// How writes are made durable: by a sync after each append, or by synchronous writes.
    pub write_mode: WriteMode,
}

impl Options {
    /// Segments of 64 MiB, writes of up to 1 MiB, fdatasync after each append.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            segment_size_bytes: 64 * 1024 * 1024,
            write_size_bytes_max: 1024 * 1024,
            write_mode: WriteMode::Synced,
        }
    }

    fn check(&self) -> Result<(), OpenError> {
        let size = self.segment_size_bytes;
        if !is_segment_size(size) {
            return Err(OpenError::SegmentSize(size));
        }
        let size = self.write_size_bytes_max;
        if !size.is_multiple_of(BLOCK_LEN) || size == 0 {
            return Err(OpenError::WriteSize(size));
        }
        Ok(())
    }
}

/// Whether a segment file can be of this length, in bytes.
#[must_use]
pub fn is_segment_size(size_bytes: u64) -> bool {
    size_bytes.is_multiple_of(BLOCK) && (SEGMENT_LEN_MIN..=SEGMENT_LEN_MAX).contains(&size_bytes)
}

/// A place from which reading can start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) offset: u64,
    /// The history before the group at `offset`.
    pub(crate) before: Tip,
}

/// A segment of the current history.
pub(crate) struct Live<F> {
    pub(crate) header: SegmentHeader,
    pub(crate) file: Rc<F>,
    /// Where its last group ends.
    pub(crate) end: u64,
    /// The history at its end.
    pub(crate) tip: Tip,
    pub(crate) marks: Vec<Mark>,
    /// Whether the header is in the file. If not, it is written together with the first group.
    pub(crate) header_written: bool,
}

impl<F> Live<F> {
    pub(crate) fn new(header: SegmentHeader, file: Rc<F>, header_written: bool) -> Self {
        let tip = Tip { zxid: header.after_zxid, checksum: header.chain, number: header.number };
        Self { header, file, end: BLOCK, tip, marks: Vec::new(), header_written }
    }

    /// Records a group from the old end to `end`.
    pub(crate) fn grow(&mut self, end: u64, tip: Tip) {
        let far = self.marks.last().is_none_or(|mark| self.end >= mark.offset + MARK_DISTANCE);
        if far {
            self.marks.push(Mark { offset: self.end, before: self.tip });
        }
        self.end = end;
        self.tip = tip;
    }

    pub(crate) fn name(&self) -> String {
        file_name(self.header.sequence)
    }
}

enum State {
    Ready,
    /// A write is in progress. If the next write finds this state, the earlier one was abandoned.
    Busy,
    Failed(FatalError),
}

/// A write-ahead log: frames are durable when `append` returns, and are verified when they are read.
///
/// It belongs to one executor. One append runs at a time; the caller collects what arrives meanwhile and
/// appends it as the next group.
pub struct Wal<S: Storage> {
    upkeep: Upkeep<S>,
    identity: Identity,
    write_len_max: usize,
    /// The current history, oldest first. Invariant: not empty, each continues the one before it.
    segments: VecDeque<Live<S::File>>,
    /// The greatest number of a group or segment header.
    number: u64,
    /// The greatest durable number.
    durable: u64,
    /// Number of the last seal.
    sealed: u64,
    /// The last segment ends with remains of an unfinished append, so the next group goes to another one.
    cut_due: bool,
    state: State,
}

impl<S: Storage> Wal<S> {
    /// Opens the log in `storage`, or creates one, and passes every frame in order to `replay`, after its
    /// checksum, its place in the chain and its zxids were checked.
    ///
    /// # Errors
    /// When the log is damaged (it is not changed then), belongs to another server, or the disk fails. The
    /// result of `replay` up to the error must be discarded.
    pub async fn open(
        storage: S,
        options: Options,
        mut replay: impl FnMut(&Frame<'_>) -> Result<(), ReplayError>,
    ) -> Result<(Self, Recovered), OpenError> {
        options.check()?;
        let history = recover::recover(&storage, &options, &mut replay).await?;
        let mut wal =
            Self::assemble(storage, &options, history.segments, history.number, history.next_sequence);
        wal.cut_due = history.recovered.tail.is_torn();
        history.leftover.into_iter().for_each(|file| wal.upkeep.retire(file));
        if wal.segments.is_empty() {
            wal.begin_segment(0, Tip::default()).await?;
        }
        Ok((wal, history.recovered))
    }

    /// A log of these segments, with the greatest number of a group or segment header so far, and the
    /// sequence of the next segment.
    pub(crate) fn assemble(
        storage: S,
        options: &Options,
        segments: Vec<Live<S::File>>,
        number: u64,
        next_sequence: u64,
    ) -> Self {
        let upkeep = Upkeep::new(storage, options.segment_size_bytes, options.write_mode, next_sequence);
        upkeep.advanced(segments.last().map_or(0, |segment| segment.end));
        Self {
            upkeep,
            identity: options.identity,
            write_len_max: options.write_size_bytes_max,
            segments: segments.into(),
            number,
            durable: number,
            sealed: 0,
            cut_due: false,
            state: State::Ready,
        }
    }

    /// Begins a log in `storage`, which holds none, behind a position, with a first segment of this sequence.
    pub(crate) async fn begin(
        storage: S,
        options: &Options,
        sequence: u64,
        after: LogPosition,
    ) -> Result<Self, OpenError> {
        options.check()?;
        let mut wal = Self::assemble(storage, options, Vec::new(), 0, sequence);
        let tip = Tip { zxid: after.zxid, checksum: after.checksum, number: 0 };
        wal.begin_segment(0, tip).await?;
        Ok(wal)
    }

    /// The log's end.
    #[must_use]
    pub fn last(&self) -> LogPosition {
        let tip = self.tip();
        LogPosition { zxid: tip.zxid, checksum: tip.checksum }
    }

    /// The last zxid before the first frame that can be read.
    #[must_use]
    pub fn after_zxid(&self) -> Zxid {
        self.segments.front().map_or(Zxid::ZERO, |segment| segment.header.after_zxid)
    }

    /// The end of the log before its first frame: a snapshot must cover everything up to it.
    #[must_use]
    pub fn base(&self) -> LogPosition {
        let start = self.segments.front().map(Live::start).unwrap_or_default();
        LogPosition { zxid: start.zxid, checksum: start.checksum }
    }

    /// The work to be done beside the log, see [`Upkeep::run`].
    #[must_use]
    pub fn upkeep(&self) -> Upkeep<S> {
        self.upkeep.clone()
    }

    /// Appends frames, each as [`frame::encode`] made it or [`frame::parse`] accepted it, and returns when
    /// all are durable. Their checksums are not computed again.
    ///
    /// # Errors
    /// [`AppendError::Failed`] is final. After any other error nothing was appended and the log is as before;
    /// only a crash right after [`AppendError::NoSpace`] may leave frames of that append, as of any
    /// unfinished one.
    pub async fn append<B: AsRef<[u8]>>(&mut self, frames: &[B]) -> Result<LogPosition, AppendError> {
        self.check_state()?;
        let tip = self.admit(frames)?;
        if frames.is_empty() {
            return Ok(self.last());
        }
        let plan = self.plan(frames);
        let spares = self.reserve(plan.iter().filter_map(|part| part.rolls)).await;
        if planted!(FullDiskSucceeds) && matches!(spares, Err(SegmentError::NoSpace { .. })) {
            return Ok(self.last());
        }
        let spares = spares?;
        self.state = State::Busy;
        let result = self.write(frames, &plan, spares).await;
        self.settle_state(&result);
        result?;
        debug_assert_eq!((self.tip().zxid, self.tip().checksum), (tip.zxid, tip.checksum));
        Ok(self.last())
    }

    /// Writes a seal: it records everything appended so far as durable, so that later damage to the last
    /// append cannot be taken for a crash in the middle of it. For a clean stop, and after idle time. Does
    /// nothing if nothing was appended since the last seal.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub async fn seal(&mut self) -> Result<(), AppendError> {
        self.check_state()?;
        if self.sealed == self.tip().number {
            return Ok(());
        }
        let rolls = (self.room() < BLOCK).then(|| self.upkeep.segment_len());
        let spares = self.reserve(rolls).await?;
        self.state = State::Busy;
        let part = Part { frames: 0, rolls };
        let result = self.write::<&[u8]>(&[], &[part], spares).await;
        self.settle_state(&result);
        result?;
        self.sealed = self.tip().number;
        Ok(())
    }

    /// Truncates the log after the batch that ends with `zxid` (Zab, synchronization phase: TRUNC). Atomic
    /// and durable: after it returns, no crash brings the later frames back; a crash before leaves the whole
    /// log or the truncated one.
    ///
    /// # Errors
    /// When there is no such batch, or the disk is full or fails. [`FatalError`]s are final.
    pub async fn truncate_after(&mut self, zxid: Zxid) -> Result<LogPosition, TruncateError> {
        self.check_state()?;
        if zxid >= self.tip().zxid {
            return Ok(self.last());
        }
        let after_zxid = self.after_zxid();
        if zxid < after_zxid {
            return Err(TruncateError::Purged { zxid, after_zxid });
        }
        let mut cut = self.place_of_cut(zxid);
        if cut.kept > 0 {
            let found = self.find(zxid).await.map_err(TruncateError::Read)?;
            cut.tip.checksum = found.ok_or(TruncateError::NotABoundary { zxid })?.checksum;
        }
        self.continue_after(cut).await?;
        Ok(self.last())
    }

    /// The place where the history is cut to end with `zxid`; its checksum is known only if nothing is kept.
    /// Segments that begin at the cut or behind it are void as a whole.
    pub(crate) fn place_of_cut(&self, zxid: Zxid) -> Cut {
        let kept = self.segments.iter().take_while(|segment| segment.header.after_zxid < zxid).count();
        match kept.checked_sub(1).and_then(|last| self.segments.get(last)) {
            Some(segment) => {
                let tip = Tip { zxid, checksum: Checksum::NONE, number: segment.header.number };
                Cut { kept, previous: segment.header.sequence, tip }
            }
            None => Cut {
                kept,
                previous: self.segments.front().map_or(0, |first| first.header.previous),
                tip: self.segments.front().map_or_else(Tip::default, Live::start),
            },
        }
    }

    /// Empties the log, which then continues behind a received snapshot (Zab, synchronization phase: SNAP).
    /// The next frame has to follow `zxid` and continue `checksum`. Atomic as [`Self::truncate_after`].
    ///
    /// # Errors
    /// When the disk is full or fails. [`FatalError`]s are final.
    pub async fn reset(&mut self, zxid: Zxid, checksum: Checksum) -> Result<(), SegmentError> {
        self.check_state()?;
        let tip = Tip { zxid, checksum, number: self.number };
        self.continue_after(Cut { kept: 0, previous: 0, tip }).await
    }

    /// Continues in another segment if the current one is the damaged `file`. Returns the end of that file: a
    /// snapshot of everything up to there allows [`Self::purge_before`] to remove it.
    ///
    /// # Errors
    /// When the disk is full or fails. [`FatalError`]s are final.
    pub async fn leave(&mut self, file: &str) -> Result<Zxid, SegmentError> {
        self.check_state()?;
        let tip = self.tip();
        if let Some(active) = self.segments.back().filter(|active| active.name() == file) {
            let cut = Cut { kept: self.segments.len(), previous: active.header.sequence, tip };
            self.continue_after(cut).await?;
        }
        let behind = self.segments.iter().skip_while(|segment| segment.name() != file).nth(1);
        Ok(behind.map_or_else(|| self.after_zxid(), |segment| segment.header.after_zxid))
    }

    /// The segments of the current history, oldest first.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Live<S::File>> {
        self.segments.iter()
    }

    /// Releases the segments that hold nothing behind `zxid`, which a durable snapshot must cover;
    /// [`Upkeep::run`] reuses or removes their files. Returns their number.
    pub fn purge_before(&mut self, zxid: Zxid) -> usize {
        let zxid = if planted!(PurgeEverything) { self.tip().zxid } else { zxid };
        let mut purged = 0;
        while self.segments.get(1).is_some_and(|next| next.header.after_zxid <= zxid && next.header_written) {
            if let Some(segment) = self.segments.pop_front() {
                self.upkeep.retire(retired(segment));
                purged += 1;
            }
        }
        purged
    }

    /// A reader from the frame that holds `zxid`, or the first one behind it, to the current end of the log.
    /// Appends and purges may continue meanwhile.
    ///
    /// # Errors
    /// When the log begins after `zxid`.
    pub fn read_from(&self, zxid: Zxid) -> Result<Reader<S::File>, ReadError> {
        let after_zxid = self.after_zxid();
        if zxid <= after_zxid && zxid <= self.tip().zxid {
            return Err(ReadError::Purged { zxid, after_zxid });
        }
        let first = self.segments.iter().rposition(|segment| segment.header.after_zxid < zxid).unwrap_or(0);
        Ok(Reader::new(self.segments.iter().skip(first), zxid))
    }

    /// Where a reader begins that shall read about the last `bytes` of the log before `zxid`: the zxid after
    /// which [`Self::read_from`] goes on. Asked again with the zxid behind the one returned, it goes backwards
    /// to the log's beginning.
    ///
    /// # Errors
    /// When the log begins behind everything that is before `zxid`.
    pub fn slice_before(&self, zxid: Zxid, bytes: u64) -> Result<Zxid, ReadError> {
        let last = Zxid(zxid.0.saturating_sub(1));
        let segment = self.segments.iter().rev().find(|segment| segment.header.after_zxid < last);
        let segment =
            segment.ok_or_else(|| ReadError::Purged { zxid: last, after_zxid: self.after_zxid() })?;
        let end = segment.marks.iter().find(|mark| mark.before.zxid >= last);
        let end = end.map_or(segment.end, |mark| mark.offset);
        let mut starts = segment.marks.iter().rev();
        let start = starts.find(|mark| mark.before.zxid < last && mark.offset.saturating_add(bytes) <= end);
        Ok(start.map_or(segment.header.after_zxid, |mark| mark.before.zxid))
    }

    /// The end of the batch that ends with `zxid`, if the log has one, or begins after it.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn find(&self, zxid: Zxid) -> Result<Option<LogPosition>, ReadError> {
        if let Some(segment) = self.segments.iter().find(|segment| segment.header.after_zxid == zxid) {
            return Ok(Some(LogPosition { zxid, checksum: segment.header.chain }));
        }
        if zxid < self.after_zxid() {
            return Ok(None);
        }
        let mut reader = self.read_from(zxid)?;
        let frame = reader.next().await?.filter(|frame| frame.meta().last_zxid == zxid);
        Ok(frame.map(|frame| LogPosition { zxid, checksum: frame.checksum() }))
    }

    fn tip(&self) -> Tip {
        self.segments.back().map_or_else(Tip::default, |segment| segment.tip)
    }

    fn check_state(&mut self) -> Result<(), FatalError> {
        match &self.state {
            State::Ready => Ok(()),
            State::Failed(error) => Err(error.clone()),
            State::Busy => {
                self.state = State::Failed(FatalError::Abandoned);
                Err(FatalError::Abandoned)
            }
        }
    }

    fn settle_state(&mut self, result: &Result<(), AppendError>) {
        self.state = match result {
            Err(AppendError::Failed(error)) => State::Failed(error.clone()),
            _ => State::Ready,
        };
    }

    /// Checks that the frames continue the log and fit into it; returns the history after them.
    fn admit<B: AsRef<[u8]>>(&self, frames: &[B]) -> Result<Tip, AppendError> {
        let max = SEGMENT_LEN_MAX - BLOCK - group::HEADER_LEN as u64;
        let mut tip = self.tip();
        for bytes in frames {
            let bytes = bytes.as_ref();
            let frame = frame::parse_trusted(bytes)?;
            debug_assert!(frame::parse(bytes).is_ok(), "a frame with a wrong checksum is about to be logged");
            if frame.bytes().len() != bytes.len() {
                let (need, have) = (frame.bytes().len(), bytes.len());
                return Err(frame::FrameError::Incomplete { need, have }.into());
            }
            if padded(bytes.len()) as u64 > max {
                return Err(AppendError::TooLarge { len: bytes.len(), max });
            }
            let first_zxid = frame.meta().first_zxid;
            tip = tip.after(&frame).ok_or_else(|| {
                if frame::follows(tip.zxid, first_zxid) {
                    AppendError::Chain { first_zxid, expected: tip.checksum, found: frame.previous() }
                } else {
                    AppendError::Order { last_zxid: tip.zxid, first_zxid }
                }
            })?;
        }
        Ok(tip)
    }
}

impl<F> Live<F> {
    /// The history before its first group.
    pub(crate) fn start(&self) -> Tip {
        Tip { zxid: self.header.after_zxid, checksum: self.header.chain, number: self.header.number }
    }
}

pub(crate) fn retired<F>(segment: Live<F>) -> Retired<F> {
    Retired::new(segment.header.sequence, segment.file, segment.header.size_bytes)
}

/// Where a history is cut.
pub(crate) struct Cut {
    /// How many segments stay.
    pub(crate) kept: usize,
    /// Sequence of the one that the history goes on from.
    pub(crate) previous: u64,
    /// The history there.
    pub(crate) tip: Tip,
}

/// The frames of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    frames: usize,
    /// The group goes to a new segment of this length.
    rolls: Option<u64>,
}

mod write;

#[cfg(test)]
mod tests;
