//! From the store to a state as of any moment that it covers, by the code that replays the log at a start.

use jiff::Timestamp;
use ringkeeper_engine::snapshot::{DecodeError, Decoder, STATE_VERSION};
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn::{self, Txn};
use ringkeeper_frame::{self as frame, AlignedBuf, LogPosition};
use ringkeeper_wire::Zxid;

use crate::catalog::{Catalog, Segment, TakenFull};
use crate::source::batches;
use crate::store::{Store, StoreError};

/// Which state is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The last one.
    Latest,
    /// After all transactions up to this one.
    Zxid(Zxid),
    /// Before the first transaction with a later time, milliseconds since the Unix epoch.
    Time(i64),
}

/// Why there is no such state.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no state to begin with.
    #[error("there is no complete backup in the store")]
    Empty,
    /// The moment is before the oldest state.
    #[error("the store begins with zxid {oldest} of {}", time(*time_ms))]
    TooEarly {
        /// The oldest state.
        oldest: Zxid,
        /// The time of its last transaction, milliseconds since the Unix epoch.
        time_ms: i64,
    },
    /// The moment is behind what was shipped.
    #[error("the store ends at zxid {end} of {}; --at latest takes that", time(*time_ms))]
    TooLate {
        /// The end.
        end: Zxid,
        /// Its time, likewise.
        time_ms: i64,
    },
    /// A part of the log is missing.
    #[error(
        "the store lacks the transactions behind zxid {after}, before {next}: moments between them cannot be restored"
    )]
    Gap {
        /// The end of what is there.
        after: Zxid,
        /// What comes next.
        next: Zxid,
    },
    /// An object does not say what its name says.
    #[error("{name} in the store cannot be used: {reason}")]
    Unusable {
        /// The object.
        name: String,
        /// Why.
        reason: String,
    },
}

/// A time of a transaction, as people read it.
#[must_use]
pub fn time(time_ms: i64) -> String {
    Timestamp::from_millisecond(time_ms).map_or_else(|_| format!("{time_ms} ms"), |time| format!("{time:.3}"))
}

/// A state of the past.
#[derive(Debug)]
pub struct Rebuilt {
    /// The state.
    pub state: State,
    /// Number of the ensemble that had it.
    pub ensemble: u64,
    /// The state that it was made from.
    pub full: Zxid,
    /// Transactions that were replayed.
    pub txns: u64,
    /// The greatest zxid in the store.
    pub greatest: Zxid,
}

/// What a store has, read from its beginning to its end.
#[derive(Debug, Default)]
pub struct Verified {
    /// States, each of which the log before it leads to, unless there is a gap.
    pub fulls: usize,
    /// Parts of the log.
    pub segments: usize,
    /// Transactions.
    pub txns: u64,
    /// The first and the last moment.
    pub range: (Zxid, Zxid),
    /// Ranges that the log lacks: the end of what is there, and where it goes on.
    pub gaps: Vec<(Zxid, Zxid)>,
}

/// The state as of a moment.
///
/// # Errors
/// The store does not cover it, or is damaged.
pub async fn rebuild(store: &Store, moment: Moment) -> Result<Rebuilt, RebuildError> {
    let catalog = Catalog::read(store).await?;
    let ensemble = catalog.ensemble.ok_or(RebuildError::Empty)?;
    let oldest = catalog.fulls.first().ok_or(RebuildError::Empty)?;
    let is_before = |full: &&TakenFull| match moment {
        Moment::Latest => true,
        Moment::Zxid(zxid) => full.position.zxid <= zxid,
        Moment::Time(time_ms) => full.time_ms <= time_ms,
    };
    let too_early = || RebuildError::TooEarly { oldest: oldest.position.zxid, time_ms: oldest.time_ms };
    let full = catalog.fulls.iter().rfind(is_before).ok_or_else(too_early)?;
    let is_behind = |txn: &Txn| match moment {
        Moment::Latest => false,
        Moment::Zxid(zxid) => txn.zxid > zxid,
        Moment::Time(time_ms) => txn.time_ms > time_ms,
    };
    let mut replay = Replay::begin(store, full).await?;
    let mut is_over = false;
    for segment in catalog.from(full.position) {
        is_over = replay.segment(store, &segment, is_behind).await?;
        if is_over {
            break;
        }
    }
    let end = replay.state.last_zxid();
    if !is_over && moment != Moment::Zxid(end) {
        // Nothing that was stored says that the moment was over.
        let later_fulls = catalog.fulls.iter().map(|full| full.position.zxid);
        let later = later_fulls.chain(catalog.segments.iter().map(|segment| segment.last.zxid));
        if let Some(next) = later.filter(|zxid| *zxid > end).min() {
            return Err(RebuildError::Gap { after: end, next });
        }
        if moment != Moment::Latest && moment != Moment::Time(replay.state.last_time_ms()) {
            return Err(RebuildError::TooLate { end, time_ms: replay.state.last_time_ms() });
        }
    }
    let Replay { state, txns, .. } = replay;
    Ok(Rebuilt { state, ensemble, full: full.position.zxid, txns, greatest: catalog.greatest() })
}

/// Reads everything: each state and each part of the log, and whether the log leads from one state to the
/// next.
///
/// # Errors
/// Something is damaged or missing of what should be there; a gap that the names tell is none.
pub async fn verify(store: &Store) -> Result<Verified, RebuildError> {
    let catalog = Catalog::read(store).await?;
    let oldest = catalog.fulls.first().ok_or(RebuildError::Empty)?;
    let mut verified = Verified { fulls: catalog.fulls.len(), ..Verified::default() };
    let mut read = Vec::new();
    let mut before: Option<Replay> = None;
    for full in &catalog.fulls {
        let loaded = Replay::begin(store, full).await?;
        if let Some(mut replay) = before {
            let zxid = full.position.zxid;
            for segment in catalog.from(replay.position) {
                read.push(segment);
                if replay.segment(store, &segment, |txn| txn.zxid > zxid).await? {
                    break;
                }
            }
            verified.txns += replay.txns;
            if replay.position.zxid < zxid {
                verified.gaps.push((replay.position.zxid, zxid));
            } else if replay.position != full.position || replay.state.digest() != loaded.state.digest() {
                let reason = "the log before it leads to another state".to_owned();
                return Err(RebuildError::Unusable { name: TakenFull::end_name(full.position), reason });
            }
        }
        before = Some(loaded);
    }
    let mut replay = before.ok_or(RebuildError::Empty)?;
    for segment in catalog.from(replay.position) {
        read.push(segment);
        replay.segment(store, &segment, |_| false).await?;
    }
    verified.txns += replay.txns;
    for segment in catalog.segments.iter().filter(|segment| !read.contains(segment)) {
        read_segment(store, segment).await?;
    }
    verified.segments = catalog.segments.len();
    verified.range = (oldest.position.zxid, replay.position.zxid);
    if catalog.greatest() > replay.position.zxid {
        verified.gaps.push((replay.position.zxid, catalog.greatest()));
    }
    Ok(verified)
}

/// A state, and its place in the log.
struct Replay {
    state: State,
    position: LogPosition,
    txns: u64,
}

impl Replay {
    /// Reads a state.
    async fn begin(store: &Store, full: &TakenFull) -> Result<Self, RebuildError> {
        let position = full.position;
        let unusable = |reason| RebuildError::Unusable { name: TakenFull::end_name(position), reason };
        if full.state_version != STATE_VERSION {
            let version = full.state_version;
            return Err(unusable(format!(
                "its state has version {version}, this program reads {STATE_VERSION}"
            )));
        }
        let mut blocks = Blocks::default();
        for part in 0..full.parts {
            let bytes = store.need(&full.part_name(part)).await?;
            blocks.add(&bytes).map_err(|error| unusable(error.to_string()))?;
        }
        let state = blocks.finish().map_err(unusable)?;
        if state.last_zxid() != position.zxid {
            return Err(unusable(format!("it is a state as of zxid {}", state.last_zxid())));
        }
        Ok(Self { state, position, txns: 0 })
    }

    /// Replays a part of the log up to the first transaction for which `is_behind`; whether there is one.
    async fn segment(
        &mut self,
        store: &Store,
        segment: &Segment,
        is_behind: impl Fn(&Txn) -> bool,
    ) -> Result<bool, RebuildError> {
        let unusable = |reason: String| RebuildError::Unusable { name: segment.name(), reason };
        for batch in read_segment(store, segment).await? {
            if batch.last() <= self.position.zxid {
                if batch.last() == self.position.zxid && batch.end() != self.position {
                    return Err(unusable(format!("it is of another history at zxid {}", batch.last())));
                }
                continue;
            }
            let frame = frame::parse(batch.bytes()).map_err(|error| unusable(error.to_string()))?;
            if frame.previous() != self.position.checksum
                || !frame::follows(self.position.zxid, batch.first())
            {
                return Err(unusable(format!("it does not continue zxid {}", self.position.zxid)));
            }
            let txns = txn::decode_batch(frame.payload()).map_err(|error| unusable(error.to_string()))?;
            let wanted = txns.iter().position(&is_behind).unwrap_or(txns.len());
            self.state.replay(&txns[..wanted]);
            self.txns += wanted as u64;
            if wanted < txns.len() {
                return Ok(true);
            }
            self.position = batch.end();
        }
        Ok(false)
    }
}

async fn read_segment(store: &Store, segment: &Segment) -> Result<Vec<frame::Batch>, RebuildError> {
    let name = segment.name();
    let bytes = store.need(&name).await?;
    let read = batches(&bytes).and_then(|batches| match batches.last() {
        Some(last) if last.end() == segment.last => Ok(batches),
        _ => Err("its end is not that of its name".to_owned()),
    });
    read.map_err(|reason| RebuildError::Unusable { name, reason })
}

/// Blocks of a state, each behind its length, in pieces of any length.
#[derive(Default)]
struct Blocks {
    decoder: Decoder,
    rest: Vec<u8>,
}

impl Blocks {
    fn add(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.rest.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((length, rest)) = self.rest[at..].split_first_chunk::<4>() {
            let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
            let Some(block) = rest.get(..length) else { break };
            let mut aligned = AlignedBuf::with_capacity(length);
            aligned.extend_from_slice(block);
            self.decoder.block(&aligned)?;
            at += 4 + length;
        }
        self.rest.drain(..at);
        Ok(())
    }

    fn finish(self) -> Result<State, String> {
        match self.rest.is_empty() {
            true => self.decoder.finish().map_err(|error| error.to_string()),
            false => Err("its last block is cut short".to_owned()),
        }
    }
}
