//! From what is on the medium to a state: the newest sound snapshot, and the log after it.

use std::time::Duration;

use ringkeeper_log::error::{ReadError, ReplayError};
use ringkeeper_log::frame::Frame;
use ringkeeper_log::snapshot::{Head, SnapshotError, SnapshotReader, Snapshots, file_name};
use ringkeeper_log::storage::Storage;
use ringkeeper_log::wal::Wal;
use ringkeeper_wire::Zxid;

use crate::env::Env;

/// How often the operator is told the progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// How an application's state is read from a snapshot and brought forward by the log.
#[expect(async_fn_in_trait, reason = "everything of a server lives on one thread")]
pub trait StateFormat<S: Storage>: 'static {
    /// The state.
    type State: 'static;

    /// Version of what the blocks of snapshots hold. Two applications never have the same one.
    fn version(&self) -> u32;

    /// The state before every transaction.
    fn empty(&self) -> Self::State;

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
    /// The batch is none of this application's.
    fn replay(&self, state: &mut Self::State, batch: &Frame<'_>) -> Result<u64, ReplayError>;
}

/// A state that was put together again.
#[derive(Debug)]
pub struct Restored<T> {
    /// The state.
    pub state: T,
    /// The snapshot that it rests on; zero if there is none.
    pub snapshot: Zxid,
    /// Transactions of the log after it.
    pub txns: u64,
    /// Bytes of their batches.
    pub bytes: u64,
    /// Damaged snapshots that were removed.
    pub damaged: u64,
}

/// Why there is no state.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A snapshot cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log holds what the application does not know.
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
        /// What is wrong with the newest snapshot that would.
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

/// Why one snapshot is of no use.
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
    /// Whether it is of no use to any other version either.
    const fn is_spoiled(&self) -> bool {
        matches!(self, Self::File(SnapshotError::Damaged { .. }) | Self::Contents { .. })
    }
}

/// Tells now and then how far something is.
#[derive(Debug)]
pub struct Progress {
    told: Duration,
}

impl Progress {
    /// Begins now.
    #[must_use]
    pub fn start(env: &impl Env) -> Self {
        Self { told: env.elapsed() }
    }

    /// Whether the operator should be told now.
    pub fn is_due(&mut self, env: &impl Env) -> bool {
        let now = env.elapsed();
        let due = now.saturating_sub(self.told) >= PROGRESS_EVERY;
        if due {
            self.told = now;
        }
        due
    }
}

/// The state after all of the log. Spoiled snapshots that are not needed are removed. `cluster` is the ensemble, 0 while
/// not known.
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
        tracing::warn!(file = file_name(zxid), "removed: the state was restored without it");
        snapshots.remove(zxid).await?;
        restored.damaged += 1;
    }
    Ok(restored)
}

/// The state that a server would start with, and the zxids of the snapshots that are spoiled and not needed. Nothing is
/// changed.
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
        // The log does not go on from an older one.
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
                tracing::error!(%error, "a snapshot cannot be used, trying an older one");
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

/// Applies the log after a state to it.
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
