//! A server's folder with everything in it, and what it has to hold.
//!
//! The state of the server is one number that every frame changes, so that two histories never give the same
//! one.

use std::fmt;

use ringkeeper_log::error::{AppendError, FatalError, OpenError, ReadError, SegmentError, TruncateError};
use ringkeeper_log::frame::LogPosition;
use ringkeeper_log::frame::{AlignedBuf, Checksum, Meta, encode};
use ringkeeper_log::memory::{MemoryDisk, MemoryStorage};
use ringkeeper_log::meta::{MetaError, MetaStore, PersistedEpochs};
use ringkeeper_log::reserve::Reserve;
use ringkeeper_log::snapshot::{Contents, Head, SnapshotError, Snapshots, file_name};
use ringkeeper_log::storage::WriteMode;
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_wire::{Epoch, ServerId, Zxid};

/// Snapshots that are kept.
const RETAINED: usize = 2;

const SERVER: u64 = 3;

/// Bytes of a payload that are not zero. Sectors of zeros on zeros cannot be told from ones that were not
/// written, which keeps the number of states small.
const PATTERN_LEN: usize = 700;

/// One thing that a server does with its folder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Append frames with payloads of these lengths, of which only the first bytes are not zero.
    Append(&'static [usize]),
    /// Write down that all is durable.
    Seal,
    /// Prepare the next segment, clear purged ones away.
    Upkeep,
    /// Cut off this many frames.
    Truncate(usize),
    /// Write a snapshot of all there is.
    Snapshot,
    /// Remove superfluous snapshots, and the log before the oldest that is kept.
    Purge,
    /// Take another server's snapshot, which ends with this zxid, in the place of everything.
    Receive(u64),
    /// Receive it, and give it up before the log is reset.
    Withdraw(u64),
    /// Promise this epoch.
    Promise(u32),
    /// Let go of the reserve, as on a full disk.
    Release,
    /// Take the reserve again.
    Keep,
    /// A start.
    Start,
}

/// What a folder holds, or has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) last: LogPosition,
    pub(crate) state: u64,
    pub(crate) epochs: PersistedEpochs,
}

/// The history that a folder has to hold.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// Where each frame ends and the state there, the beginning first.
    frames: Vec<(LogPosition, u64)>,
    epochs: PersistedEpochs,
    new_epoch: bool,
    /// Makes the payloads of two histories differ.
    made: u64,
}

impl Model {
    pub(crate) fn new() -> Self {
        let frames = vec![(LogPosition::default(), 0)];
        Self { frames, epochs: PersistedEpochs::default(), new_epoch: true, made: 0 }
    }

    pub(crate) fn held(&self) -> Held {
        let (last, state) = self.last();
        Held { last, state, epochs: self.epochs }
    }

    fn last(&self) -> (LogPosition, u64) {
        self.frames.last().copied().expect("never empty")
    }

    /// The next frame of the history, taken into the model.
    fn extend(&mut self, payload_len: usize) -> AlignedBuf {
        let (last, state) = self.last();
        let next_epoch = Zxid::new(Epoch(last.zxid.epoch().0 + 1), 1);
        let zxid = if self.new_epoch { next_epoch } else { Zxid(last.zxid.0 + 1) };
        let meta = Meta { epoch: zxid.epoch(), first_zxid: zxid, last_zxid: zxid };
        self.made += 1;
        let mut payload = vec![0; payload_len.max(8)];
        let pattern = payload.len().min(PATTERN_LEN);
        payload[..pattern].fill(self.made.to_le_bytes()[0] | 0x80);
        payload[..8].copy_from_slice(&self.made.to_le_bytes());
        let mut bytes = AlignedBuf::new();
        let checksum = encode(meta, &payload, last.checksum, &mut bytes).expect("fitting zxids");
        self.frames.push((LogPosition { zxid, checksum }, applied(state, &payload)));
        self.new_epoch = false;
        bytes
    }

    /// What the folder may hold while `step` is under way; the last is what it holds afterwards.
    pub(crate) fn outcomes(&self, step: Step) -> Vec<Self> {
        let mut outcomes = vec![self.clone()];
        let mut after = self.clone();
        match step {
            Step::Append(lens) => {
                for len in lens {
                    after.extend(*len);
                    outcomes.push(after.clone());
                }
            }
            Step::Truncate(count) => {
                after.frames.truncate(after.frames.len() - count);
                after.new_epoch = true;
                outcomes.push(after);
            }
            Step::Receive(zxid) => {
                let foreign = Foreign::new(Zxid(zxid));
                after.frames = vec![(foreign.at, foreign.state)];
                after.new_epoch = true;
                outcomes.push(after);
            }
            Step::Promise(epoch) => {
                after.epochs = PersistedEpochs { accepted_epoch: Epoch(epoch), ..after.epochs };
                outcomes.push(after);
            }
            _ => {}
        }
        outcomes
    }
}

fn applied(state: u64, payload: &[u8]) -> u64 {
    let value = u64::from_le_bytes(*payload.first_chunk().expect("a number"));
    state.wrapping_mul(31).wrapping_add(value)
}

/// Another server's snapshot.
struct Foreign {
    bytes: Vec<u8>,
    at: LogPosition,
    state: u64,
}

impl Foreign {
    fn new(zxid: Zxid) -> Self {
        let disk = MemoryDisk::new();
        let at = LogPosition { zxid, checksum: Checksum(77) };
        let state = 1_000_000 + zxid.0;
        futures_lite::future::block_on(async {
            let mut writer = Snapshots::new(disk.storage()).begin(head(at)).await.expect("a healthy disk");
            writer.block(&state.to_le_bytes()).await.expect("a healthy disk");
            writer.finish(Contents { items: 1, digest: state }).await.expect("a healthy disk");
        });
        Self { bytes: disk.contents(&file_name(zxid)).expect("is there"), at, state }
    }
}

fn head(at: LogPosition) -> Head {
    Head { zxid: at.zxid, chain: at.checksum, cluster: 5, state_version: 1 }
}

/// Why a step was not carried out.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The disk is full: the server waits for room, and does it again.
    Full,
    /// What another server sent is not whole: it is sent again.
    Damaged,
    /// The process ends.
    Ends(String),
}

impl Failure {
    fn ends(error: impl fmt::Display) -> Self {
        Self::Ends(error.to_string())
    }
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Self {
        if matches!(error, AppendError::NoSpace { .. }) { Self::Full } else { Self::ends(error) }
    }
}

impl From<SegmentError> for Failure {
    fn from(error: SegmentError) -> Self {
        if matches!(error, SegmentError::NoSpace { .. }) { Self::Full } else { Self::ends(error) }
    }
}

impl From<TruncateError> for Failure {
    fn from(error: TruncateError) -> Self {
        if let TruncateError::Segment(error) = error { error.into() } else { Self::ends(error) }
    }
}

impl From<SnapshotError> for Failure {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::NoSpace { .. } => Self::Full,
            SnapshotError::Damaged { .. } => Self::Damaged,
            error => Self::ends(error),
        }
    }
}

/// Why a folder was not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Meta(#[from] MetaError),
    #[error(transparent)]
    Log(#[from] OpenError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("the log cannot be read again: {0}")]
    Read(#[from] ReadError),
    #[error("the log begins after {0:?}, and {1:?} reach no further than {2}")]
    Gap(LogPosition, Vec<String>, Zxid),
    #[error("{0} is not of this history")]
    Foreign(String),
    #[error("the reserve: {0}")]
    Reserve(FatalError),
}

/// An open folder.
pub(crate) struct Folder {
    pub(crate) wal: Wal<MemoryStorage>,
    snapshots: Snapshots<MemoryStorage>,
    meta: MetaStore<MemoryStorage>,
    reserve: Option<Reserve<MemoryStorage>>,
}

/// How a folder is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) mode: WriteMode,
    pub(crate) reserve: bool,
}

impl Folder {
    /// What a start does, and what it finds.
    pub(crate) async fn open(disk: &MemoryDisk, how: How) -> Result<(Self, Held), Refusal> {
        let storage = disk.storage();
        let meta = MetaStore::open(storage.clone(), ServerId(SERVER), 99).await?;
        let options = Options {
            segment_size_bytes: 64 * 1024,
            write_size_bytes_max: 4096,
            write_mode: how.mode,
            ..Options::new(meta.meta().identity())
        };
        let (wal, _) = Wal::open(storage.clone(), options, |_| Ok(())).await?;
        let snapshots = Snapshots::new(storage.clone());
        snapshots.settle(wal.base()).await?;
        let state = restore(&wal, &snapshots).await?;
        let reserve =
            if how.reserve { Some(Reserve::open(storage).await.map_err(Refusal::Reserve)?) } else { None };
        let held = Held { last: wal.last(), state, epochs: meta.meta().promises };
        Ok((Self { wal, snapshots, meta, reserve }, held))
    }

    /// Carries out a step on a folder that holds `model`.
    pub(crate) async fn perform(&mut self, model: &Model, step: Step) -> Result<(), Failure> {
        match step {
            Step::Append(lens) => {
                let mut model = model.clone();
                let frames: Vec<_> = lens.iter().map(|len| model.extend(*len)).collect();
                self.wal.append(&frames).await?;
            }
            Step::Seal => self.wal.seal().await?,
            Step::Upkeep => self.wal.upkeep().settle().await?,
            Step::Truncate(_) => {
                let after = model.outcomes(step).last().expect("never empty").last().0;
                self.wal.truncate_after(after.zxid).await?;
            }
            Step::Snapshot => self.snapshot(model).await?,
            Step::Purge => {
                let oldest = self.snapshots.retain(RETAINED).await?;
                self.wal.purge_before(oldest.unwrap_or(Zxid::ZERO));
                self.wal.upkeep().settle().await?;
            }
            Step::Receive(zxid) => {
                let at = self.receive(Zxid(zxid)).await?;
                if let Err(error) = self.wal.reset(at.zxid, at.checksum).await {
                    if let SegmentError::NoSpace { .. } = error {
                        self.snapshots.withdraw(Zxid(zxid)).await?;
                    }
                    return Err(error.into());
                }
                self.snapshots.install(Zxid(zxid)).await?;
                self.wal.upkeep().settle().await?;
            }
            Step::Withdraw(zxid) => {
                self.receive(Zxid(zxid)).await?;
                self.snapshots.withdraw(Zxid(zxid)).await?;
            }
            Step::Promise(epoch) => {
                let promises = PersistedEpochs { accepted_epoch: Epoch(epoch), ..self.meta.meta().promises };
                self.meta.promise(promises).await.map_err(Failure::ends)?;
            }
            Step::Release => {
                if let Some(reserve) = &mut self.reserve {
                    reserve.release().await;
                }
            }
            Step::Keep => {
                if let Some(reserve) = &mut self.reserve {
                    reserve.keep().await.map_err(Failure::ends)?;
                }
            }
            Step::Start => unreachable!("a start makes a folder"),
        }
        Ok(())
    }

    async fn snapshot(&self, model: &Model) -> Result<(), SnapshotError> {
        let (at, state) = model.last();
        let mut writer = self.snapshots.begin(head(at)).await?;
        if let Err(error) = writer.block(&state.to_le_bytes()).await {
            writer.abandon().await;
            return Err(error);
        }
        writer.finish(Contents { items: 1, digest: state }).await?;
        Ok(())
    }

    async fn receive(&self, zxid: Zxid) -> Result<LogPosition, SnapshotError> {
        let foreign = Foreign::new(zxid);
        let mut incoming = self.snapshots.receive(ServerId(9), foreign.at).await?;
        for (number, piece) in (0..).zip(foreign.bytes.chunks(4096)) {
            if let Err(error) = incoming.piece(number * 4096, piece).await {
                incoming.abandon().await;
                return Err(error);
            }
        }
        incoming.finish(zxid, |head| head.chain == foreign.at.checksum).await?;
        Ok(foreign.at)
    }
}

/// The newest sound snapshot, and the log after it.
async fn restore(wal: &Wal<MemoryStorage>, snapshots: &Snapshots<MemoryStorage>) -> Result<u64, Refusal> {
    let base = wal.base();
    let (mut state, mut zxid) = (0, Zxid::ZERO);
    let mut damaged = Vec::new();
    for candidate in snapshots.list().await? {
        match load(snapshots, candidate).await {
            Ok((found, chain)) => {
                if wal.find(candidate).await?.is_none_or(|place| place.checksum != chain) {
                    return Err(Refusal::Foreign(file_name(candidate)));
                }
                (state, zxid) = (found, candidate);
                break;
            }
            Err(error) if error.is_damage() => damaged.push(error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    if zxid < base.zxid {
        return Err(Refusal::Gap(base, damaged, zxid));
    }
    if zxid < wal.last().zxid {
        let mut reader = wal.read_from(Zxid(zxid.0 + 1))?;
        while let Some(frame) = reader.next().await? {
            state = applied(state, frame.payload());
        }
    }
    Ok(state)
}

async fn load(snapshots: &Snapshots<MemoryStorage>, zxid: Zxid) -> Result<(u64, Checksum), SnapshotError> {
    let mut reader = snapshots.open(zxid).await?;
    let mut state = 0;
    while let Some(block) = reader.next().await? {
        state = u64::from_le_bytes(*block.first_chunk().expect("a number"));
    }
    assert_eq!(state, reader.contents().digest);
    Ok((state, reader.head().chain))
}
