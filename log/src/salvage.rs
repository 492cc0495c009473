//! Salvage of a damaged log: which part is sound, how far the log went, and how a server with peers
//! continues.
//!
//! Each segment is sound or damaged by itself, since its header names what it continues. So a damaged log has
//! a sound beginning, which ends at the first damage, and a sound end, which begins with the segment behind
//! the last damage. One of three things is kept:
//!
//! 1. **The end**, if a sound snapshot covers everything before it. Then nothing is lost: a purge would have
//!    removed the damaged part anyway.
//! 2. **The beginning**, if it goes at least as far as the newest sound snapshot.
//! 3. **Nothing**: the log begins anew behind the newest sound snapshot, or at zxid 0.
//!
//! In cases 2 and 3 the server has lost data that it may have acknowledged. Before anything is cut, the
//! former end of the log is recorded ([`crate::meta::PersistedEpochs::end_before_damage`]). It is found
//! behind the damage: durable data is known to be damaged only by a sound group there, and that group names
//! the zxid before it. Until the broadcast has fetched what is missing, the server decides nothing that it
//! would not have decided with its whole log.
//!
//! A crash may interrupt a salvage at any point; it then begins anew. The cut is one durable header, as in
//! [`Wal::truncate_after`]. Afterwards the removed files are kept for a while under other names, as far as
//! there is room (`salvage/kept.rs`). A crash in between loses these copies, which no server needs.

mod kept;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::rc::Rc;

use ringkeeper_wire::{Epoch, Zxid};
use thiserror::Error;

use crate::error::{Corruption, FatalError, OpenError, SegmentError};
use crate::frame;
use crate::frame::LogPosition;
use crate::group::{GroupHeader, HEADER_LEN, Home, Tip, padded};
use crate::meta::{Meta, MetaStore, PersistedEpochs};
use crate::recover::{self, Found, io_error};
use crate::scan::{self, Window};
use crate::segment::{SegmentHeader, file_name, sequence_of};
use crate::snapshot::{self, SnapshotError, Snapshots};
use crate::storage::{BLOCK, BLOCK_LEN, Storage, StorageFile};
use crate::upkeep::{Retired, Upkeep};
use crate::wal::{Cut, Live, Options, Wal, retired};
use kept::Shelf;

pub use kept::let_go;

/// Why a salvage failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SalvageError {
    /// The log cannot be read, or is not ours.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The snapshots cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The former end of the log could not be recorded.
    #[error(transparent)]
    Claim(#[from] FatalError),
    /// There is no room for the segment that continues behind the damage, or the disk fails.
    #[error("going on after the damage: {0}")]
    Cut(#[from] SegmentError),
}

/// Which part of a damaged log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The part behind this zxid; a snapshot covers the part before.
    DropUpto(Zxid),
    /// The part up to here.
    CutAfter(LogPosition),
    /// Nothing; the log begins anew behind a snapshot, or at zxid 0.
    BeginAfter(LogPosition),
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropUpto(zxid) => write!(f, "dropped up to zxid {zxid}, a snapshot covers that"),
            Self::CutAfter(last) => write!(f, "cut after zxid {}", last.zxid),
            Self::BeginAfter(LogPosition { zxid: Zxid::ZERO, .. }) => f.write_str("begun anew"),
            Self::BeginAfter(last) => write!(f, "begun anew after the snapshot at zxid {}", last.zxid),
        }
    }
}

/// The result of a salvage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvage {
    /// The damage, oldest first.
    pub damage: Vec<Corruption>,
    /// Which part was kept.
    pub remedy: Remedy,
    /// The former end of the log.
    pub last_zxid: Zxid,
    /// Whether data is missing that the server may have acknowledged.
    pub lost: bool,
    /// Names of the files in which the removed parts are kept.
    pub kept: Vec<String>,
}

/// Cuts the damaged part off a log that [`Wal::open`] has refused, so that it can be opened. If data is lost,
/// `meta` gets the log's former end first. For a server with peers only, from which it learns that data
/// again.
///
/// # Errors
/// When the disk is full or fails; the log must not be used then.
pub async fn salvage<S: Storage>(
    storage: &S,
    options: &Options,
    snapshots: &Snapshots<S>,
    meta: &mut MetaStore<S>,
) -> Result<Salvage, SalvageError> {
    let wreck = Wreck::survey(storage, options).await?;
    let remedy = wreck.remedy(newest_sound(snapshots).await?);
    let kept = match remedy {
        Remedy::DropUpto(_) => wreck.last_zxid,
        Remedy::CutAfter(last) | Remedy::BeginAfter(last) => last.zxid,
    };
    let lost = kept < wreck.last_zxid;
    let (damage, last_zxid) = (wreck.damage.clone(), wreck.last_zxid);
    if lost {
        record_end_before_damage(meta, last_zxid).await?;
    }
    let kept = wreck.mend(storage, options, remedy).await?;
    Ok(Salvage { damage, remedy, last_zxid, lost, kept })
}

/// Empties a log that begins behind all sound snapshots, and the snapshots' folder: everything has to come
/// from the peers. `meta` gets the log's end first. Returns the names of the files in which the contents are
/// kept.
///
/// The snapshots go before the log: a crash in between leaves a log that still begins behind them all. An
/// empty log beside a snapshot would be one that the snapshot does not belong to.
///
/// # Errors
/// When the disk is full or fails.
pub async fn begin_anew<S: Storage>(
    wal: &mut Wal<S>,
    snapshots: &Snapshots<S>,
    meta: &mut MetaStore<S>,
) -> Result<Vec<String>, SalvageError> {
    record_end_before_damage(meta, wal.last().zxid).await?;
    let upkeep = wal.upkeep();
    let segments: Vec<_> = wal.segments().map(|segment| (segment.header.sequence, false)).collect();
    let bytes = wal.segments().map(|segment| segment.header.size_bytes).sum();
    // Before the snapshots get their names, so that both get the same number.
    let shelf = Shelf::clear(upkeep.storage().clone(), bytes).await;
    let mut kept = empty(snapshots).await?;
    wal.reset(Zxid::ZERO, frame::Checksum::NONE).await?;
    kept.extend(reported(keep(shelf, &upkeep, None, segments).await));
    settle(&upkeep).await?;
    Ok(kept)
}

/// Renames the snapshots of a folder, as far as there is room to keep them, and removes the rest; returns the
/// new names.
async fn empty<S: Storage>(snapshots: &Snapshots<S>) -> Result<Vec<String>, SnapshotError> {
    let kept = reported(keep_snapshots(snapshots).await);
    for zxid in snapshots.list().await? {
        snapshots.remove(zxid).await?;
    }
    Ok(kept)
}

async fn keep_snapshots<S: Storage>(snapshots: &Snapshots<S>) -> io::Result<Vec<String>> {
    let mut shelf = Shelf::clear(snapshots.storage().clone(), 0).await?;
    let mut kept = Vec::new();
    for zxid in snapshots.list().await.map_err(io::Error::other)? {
        kept.extend(shelf.take(&snapshot::file_name(zxid)).await?);
    }
    Ok(kept)
}

/// Keeps retired segments, as far as there is room: first a copy of the one that stays in use, then the
/// damaged ones (`true`), then newer ones before older ones. Returns the names, which the segments get when
/// [`settle`] processes the queue.
async fn keep<S: Storage>(
    shelf: io::Result<Shelf<S>>,
    upkeep: &Upkeep<S>,
    used: Option<(String, Rc<S::File>)>,
    mut segments: Vec<(u64, bool)>,
) -> io::Result<Vec<String>> {
    let mut shelf = shelf?;
    let mut kept = Vec::new();
    if let Some((name, file)) = used {
        kept.extend(shelf.copy(&file, &name).await?);
    }
    segments.sort_by_key(|(sequence, damaged)| Reverse((*damaged, *sequence)));
    for (sequence, _) in segments {
        let name = upkeep.retired_len(sequence).and_then(|len| shelf.name(&file_name(sequence), len));
        if let Some(name) = name {
            upkeep.set_aside(sequence, name.clone());
            kept.push(name);
        }
    }
    Ok(kept)
}

/// A failure to keep copies is logged only, since the log does not need them.
fn reported(kept: io::Result<Vec<String>>) -> Vec<String> {
    kept.unwrap_or_else(|error| {
        tracing::warn!(code = "RK0511", %error, "what is damaged of the log cannot be kept");
        Vec::new()
    })
}

/// Processes the queue of retired files.
async fn settle<S: Storage>(upkeep: &Upkeep<S>) -> Result<(), SegmentError> {
    match upkeep.settle().await {
        // The next segment is prepared when there is room.
        Err(SegmentError::NoSpace { .. }) => Ok(()),
        settled => settled,
    }
}

/// Whether all files of a log are missing although the server has made promises, so that there was a log: the
/// folder is damaged, or the files were removed.
///
/// # Errors
/// The folder cannot be read.
pub async fn is_gone<S: Storage>(storage: &S, meta: &MetaStore<S>) -> Result<bool, OpenError> {
    Ok(gone_until(storage, &meta.meta().promises).await?.is_some())
}

/// The greatest zxid that a server without its log files (see [`is_gone`]) can have acknowledged: the last of
/// the newest epoch that it has accepted. `None` if there are files.
///
/// # Errors
/// The folder cannot be read.
pub async fn gone_until<S: Storage>(
    storage: &S,
    promises: &PersistedEpochs,
) -> Result<Option<Zxid>, OpenError> {
    let names = storage.list().await.map_err(listing)?;
    let gone = promises.accepted_epoch > Epoch(0) && !names.iter().any(|name| sequence_of(name).is_some());
    Ok(gone.then(|| Zxid::new(promises.accepted_epoch, u32::MAX)))
}

fn listing(source: io::Error) -> OpenError {
    OpenError::Io { action: "listing", file: "the log's folder".into(), source }
}

/// The snapshots, newest first, of a server whose log is gone together with what it had promised (`found`).
/// So it is if the log's disk was replaced, or is not mounted. None if there is anything of that log.
///
/// # Errors
/// The folders cannot be read.
pub async fn orphaned<S: Storage>(
    log: &S,
    snapshots: &Snapshots<S>,
    found: Option<&Meta>,
) -> Result<Vec<Zxid>, SalvageError> {
    let is_new = |meta: &Meta| (meta.promises.accepted_epoch, meta.promises.cluster) == (Epoch(0), 0);
    if !found.is_none_or(is_new) {
        return Ok(Vec::new());
    }
    let zxids = snapshots.list().await?;
    // A log without `meta` is damage of another kind.
    let has_log = !zxids.is_empty()
        && found.is_none()
        && log.list().await.map_err(listing)?.iter().any(|name| sequence_of(name).is_some());
    Ok(if has_log { Vec::new() } else { zxids })
}

/// Prepares a folder without its log ([`is_gone`]). How far the log went is unknown, so the server counts as
/// one with a new disk; it keeps its promises, and records that the log is damaged, so that it does not lead.
/// The snapshots are useless without the log; returns the names of the files in which they are kept.
///
/// # Errors
/// When the disk is full or fails.
pub async fn begin_without<S: Storage>(
    snapshots: &Snapshots<S>,
    meta: &mut MetaStore<S>,
) -> Result<Vec<String>, SalvageError> {
    let zxids = snapshots.list().await?;
    let promises = meta.meta().promises;
    let end_before_damage = promises.end_before_damage.max(zxids.first().copied().unwrap_or(Zxid(1)));
    meta.promise(PersistedEpochs { end_before_damage, initialized: false, ..promises }).await?;
    Ok(empty(snapshots).await?)
}

/// Records the former end of the log, unless a later one is recorded already.
pub(crate) async fn record_end_before_damage<S: Storage>(
    meta: &mut MetaStore<S>,
    last_zxid: Zxid,
) -> Result<(), FatalError> {
    let promises = meta.meta().promises;
    meta.promise(PersistedEpochs { end_before_damage: promises.end_before_damage.max(last_zxid), ..promises })
        .await
}

/// The position of the newest snapshot that is sound; the start of all history if there is none.
async fn newest_sound<S: Storage>(snapshots: &Snapshots<S>) -> Result<LogPosition, SnapshotError> {
    for zxid in snapshots.list().await? {
        match verified(snapshots, zxid).await {
            Ok(position) => return Ok(position),
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(LogPosition::default())
}

async fn verified<S: Storage>(snapshots: &Snapshots<S>, zxid: Zxid) -> Result<LogPosition, SnapshotError> {
    let mut reader = snapshots.open(zxid).await?;
    let checksum = reader.head().chain;
    reader.verify().await?;
    Ok(LogPosition { zxid, checksum })
}

/// A damaged log, as far as it can be read.
struct Wreck<F> {
    damage: Vec<Corruption>,
    /// Every segment with a sound header that is not void, oldest first.
    segments: Vec<Live<F>>,
    /// Number of segments in the sound beginning; of the last one, the part up to its first damage.
    beginning: usize,
    /// Index of the first segment of the sound end.
    end: usize,
    /// All other files.
    others: Vec<Found<F>>,
    last_zxid: Zxid,
    /// The greatest number of a group or segment header.
    number: u64,
    next_sequence: u64,
}

impl<F: StorageFile + 'static> Wreck<F> {
    async fn survey<S: Storage<File = F>>(storage: &S, options: &Options) -> Result<Self, OpenError> {
        let mut others = recover::survey(storage, options).await?;
        let next_sequence = others.last().map_or(1, |file| file.sequence + 1);
        let runs = runs(&mut others);
        let mut wreck = Self {
            damage: Vec::new(),
            segments: Vec::new(),
            beginning: 0,
            end: 0,
            others,
            last_zxid: Zxid::ZERO,
            number: 0,
            next_sequence,
        };
        let mut newest_len = 0;
        let breaks: Vec<_> =
            runs.iter().skip(1).flat_map(|run| run.first()).map(|first| Some(first.header)).collect();
        for (run, after) in runs.into_iter().zip(breaks.into_iter().chain([None])) {
            newest_len = run.last().map_or(0, |last| last.len);
            wreck.read_run(run, after, options).await?;
        }
        wreck.read_tail(newest_len, options).await?;
        Ok(wreck)
    }

    /// Reads consecutive segments. `after` is the next sound header, behind a segment whose header is
    /// damaged.
    async fn read_run(
        &mut self,
        run: Vec<Segment<F>>,
        after: Option<SegmentHeader>,
        options: &Options,
    ) -> Result<(), OpenError> {
        if let Some(first) = run.first().map(|first| first.header)
            && self.segments.is_empty()
            && self.has_file(first.previous)
        {
            self.note_lost(first.previous, 0, Tip::default(), first.after_zxid);
        }
        let limits: Vec<_> = run.iter().skip(1).map(|next| next.header).collect();
        let mut limits = limits.into_iter();
        for Segment { header, file, len } in run {
            let limit = limits.next();
            let until = limit.map(|next| next.after_zxid);
            let mut live = Live::new(header, file, true);
            read_groups(&mut live, len, until).await?;
            let (tip, offset) = (live.tip, live.end);
            self.segments.push(live);
            if self.beginning + 1 == self.segments.len() && self.damage.is_empty() {
                self.beginning = self.segments.len();
            }
            if limit.is_some_and(|next| (next.after_zxid, next.chain) != (tip.zxid, tip.checksum)) {
                self.note_lost(header.sequence, offset, tip, until.unwrap_or(tip.zxid));
            }
        }
        if let Some(after) = after {
            let tip = self.segments.last().map_or_else(Tip::default, |last| last.tip);
            let whole = self.damage.is_empty();
            self.note_lost(after.previous, 0, tip, after.after_zxid);
            if whole {
                self.end_beginning_before(after.previous, options).await?;
            }
        }
        Ok(())
    }

    /// A segment with a damaged header may have truncated the segment before it: ends the beginning there.
    async fn end_beginning_before(&mut self, sequence: u64, options: &Options) -> Result<(), OpenError> {
        let Some(cut) = self.begins_after(sequence, options).await? else { return Ok(()) };
        while self.beginning > 1
            && self.segments.get(self.beginning - 1).is_some_and(|last| last.header.after_zxid >= cut)
        {
            self.beginning -= 1;
        }
        let last = self.beginning.checked_sub(1).and_then(|last| self.segments.get_mut(last));
        if let Some(last) = last.filter(|last| last.tip.zxid > cut) {
            let header = last.header;
            *last = Live::new(header, last.file.clone(), true);
            read_groups(last, header.size_bytes, Some(cut)).await?;
        }
        Ok(())
    }

    /// Examines the newest segment, and what lies behind the last sound header.
    async fn read_tail(&mut self, newest_len: u64, options: &Options) -> Result<(), OpenError> {
        let (sequence, offset, tip) = self
            .segments
            .last()
            .map_or_else(|| (0, BLOCK, Tip::default()), |last| (last.header.sequence, last.end, last.tip));
        let corruption = match recover::end(&self.segments, newest_len, &self.others, options).await {
            Ok((_, number)) => {
                (self.last_zxid, self.number) = (tip.zxid, number);
                return Ok(());
            }
            Err(OpenError::Corrupt(corruption)) => corruption,
            Err(error) => return Err(error),
        };
        let mut reach = Reach { zxid: tip.zxid, number: tip.number };
        if let Some(newest) = self.segments.last() {
            let window = Window::new(newest.file.clone(), newest_len);
            reach = reach.join(Reach::of(window, newest.header.home(), offset).await?);
        }
        let mut damaged = (sequence, offset);
        for other in self.others.iter().filter(|other| other.sequence > sequence && other.header.is_none()) {
            let home = Home { segment: other.sequence, salt: options.identity.salt };
            let window = Window::new(other.file.clone(), other.len);
            reach = reach.join(Reach::of(window, home, 0).await?);
            if file_name(other.sequence) == corruption.file {
                damaged = (other.sequence, 0);
            }
        }
        (self.last_zxid, self.number) = (reach.zxid, reach.number);
        let whole = self.damage.is_empty();
        self.note_lost(damaged.0, damaged.1, tip, reach.zxid);
        if whole && damaged.0 != sequence {
            self.end_beginning_before(damaged.0, options).await?;
        }
        Ok(())
    }

    fn note_lost(&mut self, sequence: u64, offset: u64, tip: Tip, until_zxid: Zxid) {
        let until_zxid = until_zxid.max(tip.zxid);
        self.damage.push(Corruption { file: file_name(sequence), offset, after_zxid: tip.zxid, until_zxid });
        self.end = self.segments.len();
    }

    fn has_file(&self, sequence: u64) -> bool {
        self.others.iter().any(|other| other.sequence == sequence)
    }

    /// The position that a segment with a damaged header continues, from its first group.
    async fn begins_after(&self, sequence: u64, options: &Options) -> Result<Option<Zxid>, OpenError> {
        let Some(file) = self.others.iter().find(|other| other.sequence == sequence) else { return Ok(None) };
        if file.len < 2 * BLOCK {
            return Ok(None);
        }
        let block = file.file.read_at(BLOCK, BLOCK_LEN).await;
        let block = block.map_err(|source| io_error("reading", sequence, source))?;
        let home = Home { segment: sequence, salt: options.identity.salt };
        Ok(GroupHeader::decode(&block, home).map(|header| header.after_zxid))
    }

    /// Decides which part to keep, given the newest sound snapshot.
    fn remedy(&self, snapshot: LogPosition) -> Remedy {
        if let Some(end) = self.segments.get(self.end).map(Live::start)
            && (end.zxid..=self.last_zxid).contains(&snapshot.zxid)
        {
            return Remedy::DropUpto(end.zxid);
        }
        let beginning = self.segments.get(..self.beginning).unwrap_or_default();
        if let (Some(first), Some(last)) = (beginning.first(), beginning.last())
            && first.start().zxid <= snapshot.zxid
            && last.tip.zxid >= snapshot.zxid
        {
            return Remedy::CutAfter(LogPosition { zxid: last.tip.zxid, checksum: last.tip.checksum });
        }
        Remedy::BeginAfter(snapshot)
    }

    /// Carries out `remedy`. Returns the names of the files in which the removed parts are kept.
    async fn mend<S: Storage<File = F>>(
        mut self,
        storage: &S,
        options: &Options,
        remedy: Remedy,
    ) -> Result<Vec<String>, SegmentError> {
        let mut dropped = self.segments;
        let kept = match remedy {
            Remedy::DropUpto(_) => dropped.split_off(self.end),
            Remedy::CutAfter(_) => {
                let rest = dropped.split_off(self.beginning);
                std::mem::replace(&mut dropped, rest)
            }
            Remedy::BeginAfter(_) => Vec::new(),
        };
        // If the last kept segment is damaged, it stays in use until a purge; so a copy of it is kept.
        let damaged: BTreeSet<_> = self.damage.iter().map(|damage| damage.file.clone()).collect();
        let cut = kept.last().filter(|last| damaged.contains(&last.name()));
        let cut_bytes = cut.map_or(0, |last| 2 * last.header.size_bytes);
        let cut = cut.map(|last| (last.name(), Rc::clone(&last.file)));
        let mut wal = Wal::assemble(storage.clone(), options, kept, self.number, self.next_sequence);
        loop {
            let done = match remedy {
                Remedy::DropUpto(_) => Ok(()),
                Remedy::CutAfter(last) => wal.cut_at_end(last).await,
                Remedy::BeginAfter(last) => wal.reset(last.zxid, last.checksum).await,
            };
            match done {
                Err(SegmentError::NoSpace { .. }) if let_go(storage).await.is_ok_and(|gone| gone > 0) => {}
                done => {
                    done?;
                    break;
                }
            }
        }
        let upkeep = wal.upkeep();
        let is_damaged = |file: &Retired<F>| damaged.contains(&file_name(file.sequence));
        // A purge would have removed the segments before the snapshot.
        let history = !matches!(remedy, Remedy::DropUpto(_));
        let dropped: Vec<_> = dropped.into_iter().map(retired).collect();
        let others: Vec<_> = self.others.drain(..).map(Found::retired).collect();
        let segments = dropped.iter().filter(|file| history || is_damaged(file));
        let segments = segments.chain(others.iter().filter(|file| is_damaged(file)));
        let bytes = segments.clone().map(|file| file.len).sum::<u64>() + cut_bytes;
        let segments: Vec<_> = segments.map(|file| (file.sequence, is_damaged(file))).collect();
        let mut files: Vec<_> = dropped.into_iter().chain(others).collect();
        files.sort_by_key(|file| file.sequence);
        files.into_iter().for_each(|file| upkeep.retire(file));
        let shelf = Shelf::clear(storage.clone(), bytes).await;
        let names = reported(keep(shelf, &upkeep, cut, segments).await);
        settle(&upkeep).await?;
        Ok(names)
    }
}

impl<S: Storage> Wal<S> {
    /// Continues in a new segment at `last`, so that everything behind it is void.
    async fn cut_at_end(&mut self, last: LogPosition) -> Result<(), SegmentError> {
        let LogPosition { zxid, checksum } = last;
        let cut = self.place_of_cut(zxid);
        self.continue_after(Cut { tip: Tip { zxid, checksum, ..cut.tip }, ..cut }).await
    }
}

/// A segment with a sound header.
struct Segment<F> {
    header: SegmentHeader,
    file: std::rc::Rc<F>,
    len: u64,
}

/// Takes the sound segments that are not void out of `files`, as runs of consecutive segments, oldest first.
/// Between two runs a segment is missing or has a damaged header.
fn runs<F>(files: &mut Vec<Found<F>>) -> Vec<Vec<Segment<F>>> {
    let mut runs = Vec::new();
    let mut below = u64::MAX;
    let newest = |files: &[Found<F>], below| {
        files.iter().rposition(|file| file.header.is_some() && file.sequence < below)
    };
    while let Some(index) = newest(files, below) {
        let mut run = Vec::new();
        let mut next = Some(index);
        while let Some(index) = next {
            let Found { file, len, header, .. } = files.remove(index);
            let Some(header) = header else { break };
            below = header.previous;
            next = files.iter().position(|file| file.sequence == below && file.header.is_some());
            run.push(Segment { header, file, len });
        }
        run.reverse();
        runs.push(run);
    }
    runs.reverse();
    runs
}

/// Reads groups while they continue the segment, up to zxid `until`.
async fn read_groups<F: StorageFile>(
    segment: &mut Live<F>,
    len: u64,
    until: Option<Zxid>,
) -> Result<(), OpenError> {
    let home = segment.header.home();
    let mut window = Window::new(segment.file.clone(), len);
    while until.is_none_or(|until| segment.tip.zxid < until) {
        let read = scan::read_group(&mut window, home, segment.end, segment.tip, until).await;
        match read.map_err(|source| io_error("reading", home.segment, source))? {
            Ok(group) => segment.grow(group.end, group.tip),
            Err(_) => break,
        }
    }
    Ok(())
}

/// How far a log went, by the groups behind the damage.
#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    zxid: Zxid,
    number: u64,
}

impl Reach {
    fn join(self, other: Self) -> Self {
        Self { zxid: self.zxid.max(other.zxid), number: self.number.max(other.number) }
    }

    /// Looks at every block from `offset` on.
    async fn of<F: StorageFile>(mut window: Window<F>, home: Home, offset: u64) -> Result<Self, OpenError> {
        let failed = |source| io_error("reading", home.segment, source);
        let mut reach = Self::default();
        let mut at = offset;
        loop {
            let block = window.get(at, BLOCK_LEN).await.map_err(failed)?;
            if block.len() < BLOCK_LEN {
                return Ok(reach);
            }
            at += BLOCK;
            let Some(header) = GroupHeader::decode(block, home) else { continue };
            let len = usize::try_from(header.len()).unwrap_or(usize::MAX);
            let group = window.get(at - BLOCK, len).await.map_err(failed)?;
            let last = last_frame(group.get(HEADER_LEN..).unwrap_or_default(), header.frames);
            let zxid = header.after_zxid.max(last.unwrap_or_default());
            reach = reach.join(Self { zxid, number: header.number });
        }
    }
}

/// The last zxid of the sound frames at the beginning of a group's body.
fn last_frame(mut body: &[u8], frames: u32) -> Option<Zxid> {
    let mut last = None;
    for _ in 0..frames {
        let Ok(frame) = frame::parse(body) else { break };
        last = Some(frame.meta().last_zxid);
        body = body.get(padded(frame.bytes().len())..).unwrap_or_default();
    }
    last
}

#[cfg(test)]
mod tests;
