//! Restores a state: from the newest sound snapshot, and the log after it.

use std::time::Duration;

use ringkeeper_log::error::{ReadError, ReplayError};
use ringkeeper_log::frame::Frame;
use ringkeeper_log::snapshot::{Head, SnapshotError, SnapshotReader, Snapshots, file_name};
use ringkeeper_log::storage::Storage;
use ringkeeper_log::wal::Wal;
use ringkeeper_wire::Zxid;

use crate::env::Env;

/// How often progress is logged.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// How an application reads its state from a snapshot, and replays the log on it.
#[expect(async_fn_in_trait, reason = "everything of a server lives on one thread")]
pub trait StateFormat<S: Storage>: 'static {
    /// The state.
    type State: 'static;

    /// Version of the contents of snapshot blocks; different for every application.
    fn version(&self) -> u32;

    /// The state before the first transaction.
    fn empty(&self) -> Self::State;

    /// Whether a server can go on with the state.
    ///
    /// # Errors
    /// It needs a newer build; a sentence for the operator.
    fn check(&self, state: &Self::State) -> Result<(), String> {
        let _ = state;
        Ok(())
    }

    /// The last transaction in a state.
    fn last_zxid(&self, state: &Self::State) -> Zxid;

    /// Reads all blocks of a snapshot.
    ///
    /// # Errors
    /// The file or its contents are damaged, or the medium fails.
    async fn read(&self, reader: &mut SnapshotReader<S>) -> Result<Self::State, Unusable>;

    /// Applies a batch of the log to a state; how many transactions it has.
    ///
    /// # Errors
    /// The batch is not one of this application.
    fn replay(&self, state: &mut Self::State, batch: &Frame<'_>) -> Result<u64, ReplayError>;
}

/// A restored state.
#[derive(Debug)]
pub struct Restored<T> {
    /// The state.
    pub state: T,
    /// The snapshot from which it was restored; zero if there was none.
    pub snapshot: Zxid,
    /// Transactions of the log after it.
    pub txns: u64,
    /// Bytes of their batches.
    pub bytes: u64,
    /// Damaged snapshots that were removed.
    pub damaged: u64,
}

/// Why no state could be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A snapshot cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A batch of the log is not one of the application.
    #[error("a batch of the log cannot be replayed: {0}")]
    Replay(ReplayError),
    /// The log begins after all sound snapshots.
    #[error(
        "the log begins after zxid {log_base}, and no sound snapshot reaches that far{}: put one back from a copy, or let \
         an empty folder be filled by the ensemble",
        .damage.as_ref().map(|damage| format!(" ({damage})")).unwrap_or_default()
    )]
    Gap {
        /// The last zxid before the log.
        log_base: Zxid,
        /// What is wrong with the newest snapshot that does reach that far.
        damage: Option<String>,
    },
    /// A snapshot and the log belong to different histories.
    #[error(
        "{file} ends with a transaction that the log does not have: the log is another one, or was cut short"
    )]
    Foreign {
        /// The snapshot.
        file: String,
    },
}

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The file.
    #[error(transparent)]
    File(#[from] SnapshotError),
    /// What its blocks hold.
    #[error("{file}: {reason}")]
    Contents {
        /// The snapshot.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// Of another version, or another application.
    #[error("{file} has version {version:#x} of the state, this build reads {reads:#x}")]
    Version {
        /// The snapshot.
        file: String,
        /// Its version.
        version: u32,
        /// The version that this application reads.
        reads: u32,
    },
}

impl Unusable {
    /// Whether the snapshot is damaged, so that no other version could use it either.
    const fn is_spoiled(&self) -> bool {
        matches!(self, Self::File(SnapshotError::Damaged { .. }) | Self::Contents { .. })
    }
}

/// Limits how often progress is logged.
#[derive(Debug)]
pub struct Progress {
    told: Duration,
}

impl Progress {
    /// A limiter whose interval begins now.
    #[must_use]
    pub fn start(env: &impl Env) -> Self {
        Self { told: env.elapsed() }
    }

    /// Whether progress should be logged now.
    pub fn is_due(&mut self, env: &impl Env) -> bool {
        let now = env.elapsed();
        let due = now.saturating_sub(self.told) >= PROGRESS_EVERY;
        if due {
            self.told = now;
        }
        due
    }
}

/// Restores the state after all of the log, and removes damaged snapshots that were not needed. `cluster` is
/// the number of the ensemble, 0 while not known.
///
/// # Errors
/// There is a gap between snapshots and log, they are of different histories, or the medium fails.
pub async fn restore<S: Storage, F: StateFormat<S>>(
    env: &impl Env,
    format: &F,
    snapshots: &Snapshots<S>,
    wal: &Wal<S>,
    cluster: u64,
) -> Result<Restored<F::State>, RestoreError> {
    let (mut restored, damaged) = read(env, format, snapshots, wal, cluster).await?;
    for zxid in damaged {
        tracing::warn!(code = "RK0508", file = file_name(zxid), "removed: the state was restored without it");
        snapshots.remove(zxid).await?;
        restored.damaged += 1;
    }
    Ok(restored)
}

/// The state that a start would restore, and the zxids of damaged snapshots that are not needed for it.
/// Nothing is changed.
///
/// # Errors
/// As [`restore`].
pub async fn read<S: Storage, F: StateFormat<S>>(
    env: &impl Env,
    format: &F,
    snapshots: &Snapshots<S>,
    wal: &Wal<S>,
    cluster: u64,
) -> Result<(Restored<F::State>, Vec<Zxid>), RestoreError> {
    let base = wal.base();
    let mut damaged = Vec::new();
    let mut damage = None;
    let mut found = None;
    for zxid in snapshots.list().await? {
        // Older snapshots end before the log begins.
        if zxid < base.zxid {
            break;
        }
        match read_snapshot(format, snapshots, zxid, cluster).await {
            Ok((state, head)) => {
                let place = wal.find(zxid).await?;
                if zxid > wal.last().zxid || place.is_none_or(|place| place.checksum != head.chain) {
                    return Err(RestoreError::Foreign { file: file_name(zxid) });
                }
                found = Some(state);
                break;
            }
            Err(Unusable::File(error)) if !error.is_damage() => return Err(error.into()),
            Err(error) => {
                tracing::error!(code = "RK0507", %error, "a snapshot cannot be used, trying an older one");
                damage.get_or_insert_with(|| error.to_string());
                damaged.extend(error.is_spoiled().then_some(zxid));
            }
        }
    }
    let state = match found {
        Some(state) => state,
        None if base.zxid == Zxid::ZERO => format.empty(),
        None => return Err(RestoreError::Gap { log_base: base.zxid, damage }),
    };
    Ok((replay(env, format, wal, state).await?, damaged))
}

/// Reads all of one snapshot.
///
/// # Errors
/// It is damaged, or of another application or ensemble, or the medium fails.
pub async fn read_snapshot<S: Storage, F: StateFormat<S>>(
    format: &F,
    snapshots: &Snapshots<S>,
    zxid: Zxid,
    cluster: u64,
) -> Result<(F::State, Head), Unusable> {
    let mut reader = snapshots.open(zxid).await?;
    let head = *reader.head();
    let file = || file_name(zxid);
    if cluster != 0 && head.cluster != cluster {
        return Err(SnapshotError::Foreign { file: file(), cluster: head.cluster }.into());
    }
    let (version, reads) = (head.state_version, format.version());
    if version != reads {
        return Err(Unusable::Version { file: file(), version, reads });
    }
    Ok((format.read(&mut reader).await?, head))
}

/// Replays the log behind a state on that state.
async fn replay<S: Storage, F: StateFormat<S>>(
    env: &impl Env,
    format: &F,
    wal: &Wal<S>,
    mut state: F::State,
) -> Result<Restored<F::State>, RestoreError> {
    let snapshot = format.last_zxid(&state);
    let (mut txns, mut bytes) = (0, 0);
    let end = wal.last().zxid;
    if end > snapshot {
        let mut progress = Progress::start(env);
        let mut reader = wal.read_from(Zxid(snapshot.0 + 1))?;
        while let Some(frame) = reader.next().await? {
            bytes += frame.bytes().len() as u64;
            txns += format.replay(&mut state, &frame).map_err(RestoreError::Replay)?;
            if progress.is_due(env) {
                tracing::info!(zxid = %format.last_zxid(&state), %end, txns, "replaying the log");
            }
            env.yield_if_needed().await;
        }
    }
    Ok(Restored { state, snapshot, txns, bytes, damaged: 0 })
}
