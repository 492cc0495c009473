//! Recovery: what the files of a log contain after a stop of any kind.
//!
//! 1. Each file's first block is read. The newest sound header begins the list of segments, which its
//!    `previous` fields lead back through. Files outside of the list are void or waiting for use.
//! 2. The list is read from its oldest segment, each up to the point where the next one continues it, and the
//!    newest up to the first group that is not whole.
//! 3. What lies behind that point decides. If a group there, or in a file whose header is damaged, names a
//!    durable number above that of the last good group, durable data is damaged: corruption. If there are
//!    groups without such a number, a crash has torn the last append, which was never acknowledged: the log
//!    ends here, and continues in another segment. If there is nothing, the log ends and continues here.
//!
//! What was read need not be durable yet, if only the process has crashed. A sync would not help: the process
//! may have ended because a sync had failed. Then the system still shows data that it has given up writing,
//! and reports success for the next sync. So everything that no later group records as durable, at most the
//! last append, is written again, the same bytes at the same place, and synced. Nothing else is written.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use ringkeeper_wire::Zxid;

use crate::error::{Corruption, OpenError, ReplayError};
use crate::frame::LogPosition;
use crate::frame::{Checksum, Frame};
use crate::group::{Home, Tip};
use crate::mutation::planted;
use crate::scan::{self, Remains, Window};
use crate::segment::{HeaderFault, SegmentHeader, file_name, sequence_of};
use crate::storage::{BLOCK, BLOCK_LEN, Storage, StorageFile};
use crate::upkeep::Retired;
use crate::wal::{Live, Options};

/// The result of opening a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The end of the log before its first frame: a snapshot must cover everything up to it.
    pub after: LogPosition,
    /// The end of the log.
    pub last: LogPosition,
    /// Frames handed to replay.
    pub frames: u64,
    /// Bytes of those frames.
    pub bytes: u64,
    /// How the log ends.
    pub tail: Tail,
}

/// How a log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// With its last group.
    Clean,
    /// With remains of an append that a crash has interrupted, never acknowledged. They are cut off.
    Torn {
        /// Name of the file in the log's folder.
        file: String,
        /// Where the remains begin.
        offset: u64,
    },
}

impl Tail {
    pub(crate) fn is_torn(&self) -> bool {
        matches!(self, Self::Torn { .. })
    }
}

/// A log read to its end.
pub(crate) struct History<F> {
    pub(crate) segments: Vec<Live<F>>,
    pub(crate) number: u64,
    pub(crate) next_sequence: u64,
    pub(crate) leftover: Vec<Retired<F>>,
    pub(crate) recovered: Recovered,
}

/// A segment's file as found.
pub(crate) struct Found<F> {
    pub(crate) sequence: u64,
    pub(crate) file: Rc<F>,
    pub(crate) len: u64,
    pub(crate) header: Option<SegmentHeader>,
}

/// Reads the log in `storage`.
pub(crate) async fn recover<S: Storage>(
    storage: &S,
    options: &Options,
    replay: &mut impl FnMut(&Frame<'_>) -> Result<(), ReplayError>,
) -> Result<History<S::File>, OpenError> {
    let files = survey(storage, options).await?;
    let next_sequence = files.last().map_or(1, |file| file.sequence + 1);
    let (chain, others) = arrange(files)?;
    let mut replayer = Replayer { replay, frames: 0, bytes: 0 };
    let mut segments: Vec<Live<S::File>> = Vec::with_capacity(chain.len());
    let limits: Vec<Option<Tip>> = chain.iter().skip(1).map(|next| Some(start(next))).chain([None]).collect();
    let (mut newest_len, mut unproven) = (0, 0);
    for ((header, file, len), limit) in chain.into_iter().zip(limits) {
        newest_len = len;
        let mut segment = Live::new(header, file, true);
        unproven = walk(&mut segment, len, limit, &mut replayer).await?;
        segments.push(segment);
    }
    let (tail, number) = end(&segments, newest_len, &others, options).await?;
    if let Some(newest) = segments.last() {
        let settled = write_again(&*newest.file, unproven..newest.end, options.write_size_bytes_max).await;
        settled.map_err(|source| io_error("writing the end again to", newest.header.sequence, source))?;
    }
    let after = segments.first().map(Live::start).unwrap_or_default();
    let last = segments.last().map(|segment| segment.tip).unwrap_or_default();
    let recovered = Recovered {
        after: position(after),
        last: position(last),
        frames: replayer.frames,
        bytes: replayer.bytes,
        tail,
    };
    let leftover = others.into_iter().map(|file| file.retired()).collect();
    Ok(History { segments, number, next_sequence, leftover, recovered })
}

impl<F> Found<F> {
    pub(crate) fn retired(self) -> Retired<F> {
        Retired::new(self.sequence, self.file, self.len)
    }
}

fn position(tip: Tip) -> LogPosition {
    LogPosition { zxid: tip.zxid, checksum: tip.checksum }
}

fn start(header: &(SegmentHeader, impl Sized, u64)) -> Tip {
    Tip { zxid: header.0.after_zxid, checksum: header.0.chain, number: header.0.number }
}

pub(crate) fn io_error(action: &'static str, sequence: u64, source: std::io::Error) -> OpenError {
    OpenError::Io { action, file: file_name(sequence), source }
}

/// The segment files in order of their sequence, each with the header it has.
pub(crate) async fn survey<S: Storage>(
    storage: &S,
    options: &Options,
) -> Result<Vec<Found<S::File>>, OpenError> {
    let names = storage.list().await;
    let names = names.map_err(|source| OpenError::Io {
        action: "listing",
        file: "the log's folder".into(),
        source,
    })?;
    let mut sequences: Vec<u64> = names.iter().filter_map(|name| sequence_of(name)).collect();
    sequences.sort_unstable();
    let mut files = Vec::with_capacity(sequences.len());
    for sequence in sequences {
        files.push(look_at(storage, options, sequence).await?);
    }
    Ok(files)
}

async fn look_at<S: Storage>(
    storage: &S,
    options: &Options,
    sequence: u64,
) -> Result<Found<S::File>, OpenError> {
    let failed = |action| move |source| io_error(action, sequence, source);
    let name = file_name(sequence);
    let file = storage.open(&name, options.write_mode).await.map_err(failed("opening"))?;
    let len = file.size().await.map_err(failed("measuring"))?;
    let block =
        if len < BLOCK { None } else { Some(file.read_at(0, BLOCK_LEN).await.map_err(failed("reading"))?) };
    let decoded = block.map_or(Err(HeaderFault::Absent), |block| SegmentHeader::decode(&block, sequence));
    let header = match decoded {
        Ok(header) if header.identity != options.identity => return Err(OpenError::Foreign { file: name }),
        Ok(header) => Some(header),
        Err(HeaderFault::Absent) => None,
        Err(HeaderFault::Version(version)) => return Err(OpenError::Version { file: name, version }),
    };
    Ok(Found { sequence, file: Rc::new(file), len, header })
}

type Chain<F> = Vec<(SegmentHeader, Rc<F>, u64)>;

/// The list of segments, oldest first, and the files that are not part of it.
fn arrange<F>(mut files: Vec<Found<F>>) -> Result<(Chain<F>, Vec<Found<F>>), OpenError> {
    let mut chain: Chain<F> = Vec::new();
    let mut next = files.iter().rposition(|file| file.header.is_some());
    while let Some(index) = next {
        let file = files.remove(index);
        let Some(header) = file.header else {
            // Part of the list, there, and without a header.
            return Err(damaged_header(file.sequence, chain.last().map(|(header, ..)| header)).into());
        };
        next = files.iter().position(|file| file.sequence == header.previous);
        chain.push((header, file.file, file.len));
    }
    chain.reverse();
    if planted!(SkipNewestSegment) && chain.len() > 1 {
        chain.pop();
    }
    if let Some((oldest, ..)) = chain.first()
        && oldest.previous != 0
        && let Some(older) =
            files.iter().find(|file| file.header.is_some() && file.sequence < oldest.previous)
    {
        return Err(OpenError::MissingSegment {
            missing: file_name(oldest.previous),
            older: file_name(older.sequence),
            newer: file_name(oldest.sequence),
        });
    }
    Ok((chain, files))
}

fn damaged_header(sequence: u64, newer: Option<&SegmentHeader>) -> Corruption {
    let until_zxid = newer.map_or(Zxid::ZERO, |header| header.after_zxid);
    Corruption { file: file_name(sequence), offset: 0, after_zxid: Zxid::ZERO, until_zxid }
}

struct Replayer<'a, R> {
    replay: &'a mut R,
    frames: u64,
    bytes: u64,
}

impl<R: FnMut(&Frame<'_>) -> Result<(), ReplayError>> Replayer<'_, R> {
    fn group(&mut self, group: &[u8], until: Option<Zxid>) -> Result<(), OpenError> {
        for (_, frame) in scan::frames(group, until) {
            let meta = frame.meta();
            (self.replay)(&frame).map_err(|source| OpenError::Replay {
                first_zxid: meta.first_zxid,
                last_zxid: meta.last_zxid,
                source,
            })?;
            self.frames += 1;
            self.bytes += frame.bytes().len() as u64;
        }
        Ok(())
    }
}

/// Reads a segment up to where the next one continues it (`limit`), or as far as it is intact. Returns the
/// offset from which on no group in it is recorded as durable.
async fn walk<F, R>(
    segment: &mut Live<F>,
    len: u64,
    limit: Option<Tip>,
    replayer: &mut Replayer<'_, R>,
) -> Result<u64, OpenError>
where
    F: StorageFile,
    R: FnMut(&Frame<'_>) -> Result<(), ReplayError>,
{
    let mut unproven = VecDeque::from([(segment.header.number, 0)]);
    let home = segment.header.home();
    let until = limit.map(|limit| limit.zxid);
    let mut window = Window::new(segment.file.clone(), len);
    while until.is_none_or(|until| segment.tip.zxid < until) {
        let read = scan::read_group(&mut window, home, segment.end, segment.tip, until).await;
        match read.map_err(|source| io_error("reading", home.segment, source))? {
            Ok(group) => {
                replayer.group(window.current(group.len), until)?;
                unproven.push_back((group.tip.number, segment.end));
                while unproven.pop_front_if(|(number, _)| *number <= group.durable).is_some() {}
                segment.grow(group.end, group.tip);
            }
            Err(_) => break,
        }
    }
    let reached: Option<(Zxid, Checksum)> = limit.map(|_| (segment.tip.zxid, segment.tip.checksum));
    if reached == limit.map(|limit| (limit.zxid, limit.checksum)) {
        return Ok(unproven.front().map_or(segment.end, |(_, offset)| *offset));
    }
    Err(Corruption {
        file: segment.name(),
        offset: segment.end,
        after_zxid: segment.tip.zxid,
        until_zxid: until.unwrap_or_default(),
    }
    .into())
}

/// Writes a part of a file once more as it is, in writes of at most `len_max` bytes, and syncs it.
async fn write_again<F: StorageFile>(file: &F, part: Range<u64>, len_max: usize) -> io::Result<()> {
    let mut at = part.start;
    while at < part.end {
        let len = usize::try_from(part.end - at).unwrap_or(usize::MAX).min(len_max);
        let mut buffer = file.buffer(len);
        let read = file.read_at(at, len).await?;
        if read.len() != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.as_mut().copy_from_slice(&read);
        if file.write_at(buffer, at).await? != len {
            return Err(io::ErrorKind::WriteZero.into());
        }
        at += len as u64;
    }
    file.datasync().await
}

/// Decides what lies behind the last group, and finds the greatest number that was ever used.
pub(crate) async fn end<F: StorageFile>(
    segments: &[Live<F>],
    newest_len: u64,
    others: &[Found<F>],
    options: &Options,
) -> Result<(Tail, u64), OpenError> {
    let mut behind = Remains::default();
    let (sequence, offset, tip) = segments
        .last()
        .map_or_else(|| (0, 0, Tip::default()), |last| (last.header.sequence, last.end, last.tip));
    let mut damage = (sequence, offset);
    if let Some(newest) = segments.last() {
        let mut window = Window::new(newest.file.clone(), newest_len);
        let found = scan::remains(&mut window, newest.header.home(), offset, tip).await;
        behind = found.map_err(|source| io_error("reading", sequence, source))?;
    }
    let torn = behind.last_number().is_some();
    for other in others.iter().filter(|other| other.sequence > sequence && other.header.is_none()) {
        let home = Home { segment: other.sequence, salt: options.identity.salt };
        let mut window = Window::new(other.file.clone(), other.len);
        let found = scan::remains(&mut window, home, 0, tip).await;
        let found = found.map_err(|source| io_error("reading", other.sequence, source))?;
        if !torn && behind.proof_after(tip).is_none() && found.proof_after(tip).is_some() {
            damage = (other.sequence, 0);
        }
        behind = behind.join(found);
    }
    if let Some(until_zxid) = behind.proof_after(tip).filter(|_| !planted!(TakeDamageForTear)) {
        let (file, offset) = (file_name(damage.0), damage.1);
        return Err(Corruption { file, offset, after_zxid: tip.zxid, until_zxid }.into());
    }
    let tail = if torn { Tail::Torn { file: file_name(sequence), offset } } else { Tail::Clean };
    Ok((tail, behind.last_number().unwrap_or(0).max(tip.number)))
}
