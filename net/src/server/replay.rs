//! From what is on the medium to a state: the newest sound snapshot, and the log after it.

use std::time::{Duration, Instant};

use ringkeeper_engine::snapshot::{DecodeError, Decoder, STATE_VERSION};
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn;
use ringkeeper_log::error::ReadError;
use ringkeeper_log::frame::AlignedBuf;
use ringkeeper_log::snapshot::{Head, SnapshotError, Snapshots, file_name};
use ringkeeper_log::storage::Storage;
use ringkeeper_log::wal::Wal;
use ringkeeper_wire::Zxid;

use super::crew::{Crew, Unreadable};

/// How often the operator hears how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// A state that was put together again.
pub(crate) struct Restored {
    pub(crate) state: State,
    /// The snapshot that it rests on; zero if there is none.
    pub(crate) snapshot: Zxid,
    /// Transactions of the log after it, and the bytes of their batches.
    pub(crate) txns: u64,
    pub(crate) bytes: u64,
    /// Damaged snapshots that were removed.
    pub(crate) damaged: u64,
}

/// Why there is no state.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("a batch of the log cannot be replayed: {0}")]
    Replay(#[from] txn::BatchError),
    #[error(
        "the log begins after zxid {log_base}, and no sound snapshot reaches that far{}: put one back from a copy, or let \
         an empty folder be filled by the ensemble",
        .damage.as_ref().map(|damage| format!(" ({damage})")).unwrap_or_default()
    )]
    Gap {
        log_base: Zxid,
        /// What is wrong with the newest snapshot that would.
        damage: Option<String>,
    },
    #[error(
        "{file} ends with a transaction that the log does not have: the log is another one, or was cut short"
    )]
    Foreign { file: String },
}

/// Why one snapshot is of no use.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    File(#[from] SnapshotError),
    #[error("{file}: {source}")]
    Contents { file: String, source: DecodeError },
    #[error("{file} has version {version} of the state, this build reads {STATE_VERSION}")]
    Version { file: String, version: u32 },
}

impl Unusable {
    /// Whether it is of no use to any other version either.
    const fn is_spoiled(&self) -> bool {
        matches!(self, Self::File(SnapshotError::Damaged { .. }) | Self::Contents { .. })
    }
}

/// Tells now and then how far something is.
struct Progress {
    told: Instant,
}

impl Progress {
    fn start() -> Self {
        Self { told: Instant::now() }
    }

    fn is_due(&mut self) -> bool {
        let due = self.told.elapsed() >= PROGRESS_EVERY;
        if due {
            self.told = Instant::now();
        }
        due
    }
}

/// The state after all of the log. `cluster` is the ensemble, 0 while not known; `seed` is for a tree that
/// begins empty.
///
/// # Errors
/// There is a gap between snapshots and log, or the medium fails.
pub(crate) async fn restore<S: Storage>(
    snapshots: &Snapshots<S>,
    wal: &Wal<S>,
    cluster: u64,
    seed: u64,
) -> Result<Restored, RestoreError> {
    let (mut restored, damaged) = read(snapshots, wal, cluster, seed).await?;
    for zxid in damaged {
        tracing::warn!(file = file_name(zxid), "removed: the state was restored without it");
        snapshots.remove(zxid).await?;
        restored.damaged += 1;
    }
    Ok(restored)
}

/// The state that a server would start with; nothing is changed.
///
/// # Errors
/// As [`restore`].
pub(crate) async fn read_state<S: Storage>(
    snapshots: &Snapshots<S>,
    wal: &Wal<S>,
) -> Result<State, RestoreError> {
    Ok(read(snapshots, wal, 0, 0).await?.0.state)
}

/// The state, and the zxids of the snapshots that were spoiled and are not needed.
async fn read<S: Storage>(
    snapshots: &Snapshots<S>,
    wal: &Wal<S>,
    cluster: u64,
    seed: u64,
) -> Result<(Restored, Vec<Zxid>), RestoreError> {
    let base = wal.base();
    let mut damaged = Vec::new();
    let mut damage = None;
    let mut found = None;
    for zxid in snapshots.list().await? {
        // The log does not go on from an older one.
        if zxid < base.zxid {
            break;
        }
        match load(snapshots, wal, zxid, cluster).await? {
            Ok(state) => {
                found = Some(state);
                break;
            }
            Err(Unusable::File(error)) if !error.is_damage() => return Err(error.into()),
            Err(error) => {
                tracing::error!(%error, "a snapshot cannot be used, trying an older one");
                damage.get_or_insert_with(|| error.to_string());
                damaged.extend(error.is_spoiled().then_some(zxid));
            }
        }
    }
    let state = match found {
        Some(state) => state,
        None if base.zxid == Zxid::ZERO => State::new(seed),
        None => return Err(RestoreError::Gap { log_base: base.zxid, damage }),
    };
    Ok((replay(wal, state).await?, damaged))
}

/// Reads all of one snapshot: its state, or what is wrong with it.
///
/// # Errors
/// The medium fails.
pub(crate) async fn check_snapshot<S: Storage>(
    snapshots: &Snapshots<S>,
    zxid: Zxid,
) -> Result<Result<(State, Head), String>, SnapshotError> {
    match decode(snapshots, zxid, 0).await {
        Ok(read) => Ok(Ok(read)),
        Err(Unusable::File(error)) if !error.is_damage() => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// Reads one snapshot; what is wrong with it and is not the medium's fault comes back as the inner error.
async fn load<S: Storage>(
    snapshots: &Snapshots<S>,
    wal: &Wal<S>,
    zxid: Zxid,
    cluster: u64,
) -> Result<Result<State, Unusable>, RestoreError> {
    let state = match decode(snapshots, zxid, cluster).await {
        Ok((state, head)) => {
            let place = wal.find(zxid).await?;
            if zxid > wal.last().zxid || place.is_none_or(|place| place.checksum != head.chain) {
                return Err(RestoreError::Foreign { file: file_name(zxid) });
            }
            Ok(state)
        }
        Err(error) => Err(error),
    };
    Ok(state)
}

async fn decode<S: Storage>(
    snapshots: &Snapshots<S>,
    zxid: Zxid,
    cluster: u64,
) -> Result<(State, Head), Unusable> {
    let mut reader = snapshots.open(zxid).await?;
    let file = reader.name().to_owned();
    let head = *reader.head();
    if cluster != 0 && head.cluster != cluster {
        return Err(SnapshotError::Foreign { file, cluster: head.cluster }.into());
    }
    if head.state_version != STATE_VERSION {
        return Err(Unusable::Version { file, version: head.state_version });
    }
    let (blocks, bytes) = (reader.blocks(), reader.len());
    let unusable = |source| Unusable::Contents { file: file.clone(), source };
    let started = Instant::now();
    let mut progress = Progress::start();
    let mut decoder = Decoder::new();
    // What the others refer to comes first, and is little.
    while decoder.reader().is_none()
        && let Some(payload) = reader.next().await?
    {
        decoder.block(payload).map_err(unusable)?;
        glommio::yield_if_needed().await;
    }
    if let Some(rows) = decoder.reader() {
        let mut crew = Crew::muster(&rows);
        let mut memory = AlignedBuf::new();
        let mut next = reader.position();
        loop {
            while crew.has_room()
                && let Some(block) = reader.next_block(std::mem::take(&mut memory)).await?
            {
                crew.read(block);
            }
            if next == reader.position() {
                break;
            }
            let read = crew.take(next).await;
            memory = read.memory;
            let rows = read.rows.map_err(|error| match error {
                Unreadable::Damaged(error) => error.into(),
                Unreadable::Malformed(error) => unusable(error),
            })?;
            decoder.take(rows).map_err(unusable)?;
            next += 1;
            if progress.is_due() {
                tracing::info!(file, block = next, blocks, "reading a snapshot");
            }
            // A server that follows goes on answering its leader.
            glommio::yield_if_needed().await;
        }
    }
    let state = decoder.finish().map_err(unusable)?;
    let took_ms = started.elapsed().as_millis();
    tracing::info!(file, bytes, znodes = state.tree().len(), took_ms, "snapshot read");
    Ok((state, head))
}

/// Applies the log after a state to it.
async fn replay<S: Storage>(wal: &Wal<S>, mut state: State) -> Result<Restored, RestoreError> {
    let snapshot = state.last_zxid();
    let (mut txns, mut bytes) = (0, 0);
    if wal.last().zxid > snapshot {
        let mut progress = Progress::start();
        let mut reader = wal.read_from(Zxid(snapshot.0 + 1))?;
        while let Some(frame) = reader.next().await? {
            bytes += frame.bytes().len() as u64;
            let batch = txn::decode_batch(frame.payload())?;
            state.replay(&batch);
            txns += batch.len() as u64;
            if progress.is_due() {
                let end = wal.last().zxid;
                tracing::info!(zxid = %state.last_zxid(), %end, txns, "replaying the log");
            }
            glommio::yield_if_needed().await;
        }
    }
    Ok(Restored { state, snapshot, txns, bytes, damaged: 0 })
}

#[cfg(test)]
mod tests;
