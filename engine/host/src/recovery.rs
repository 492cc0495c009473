//! Recovery: what a server starts with, read from its folders.

use std::io;
use std::path::Path;

use ringkeeper_engine::zab::{Durable, Epochs, LogPosition, LogSummary, ServerSet};
use ringkeeper_log::error::{FatalError, OpenError};
use ringkeeper_log::meta::{MetaError, MetaStore, PersistedEpochs};
use ringkeeper_log::repair;
use ringkeeper_log::reserve::Reserve;
use ringkeeper_log::salvage::{self, Salvage, SalvageError};
use ringkeeper_log::snapshot::Snapshots;
use ringkeeper_log::storage::{Storage, WriteMode};
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_wire::{ServerId, Zxid};

use crate::env::Env;
use crate::identity::{Mismatch, Owner, Wanted};
use crate::log_task::LogTask;
use crate::restore::{self, RestoreError, StateFormat};

/// Why a server cannot start with its folders. Nothing is changed, unless a salvage failed half way; the next
/// start repeats it.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The folder cannot be read or written to.
    #[error(transparent)]
    Unusable(io::Error),
    /// An operator's repair of the log was interrupted.
    #[error("a repair of the log was interrupted")]
    Interrupted,
    /// The folder belongs to another server, or to another ensemble.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The file with the server's promises is another server's, or of another version.
    #[error(transparent)]
    NotOurs(MetaError),
    /// The file with the server's promises is damaged, or gone.
    #[error(transparent)]
    MetaDamaged(MetaError),
    /// There is no file of the log, although the server has made promises or has snapshots.
    #[error("the files of the log are gone")]
    LogGone,
    /// The log was lost, and the other servers have not brought it back.
    #[error("the log was lost and is not there again")]
    NothingBack,
    /// The log cannot be opened.
    #[error(transparent)]
    Log(OpenError),
    /// The log is damaged, and there is no other voter to restore it from.
    #[error(transparent)]
    Damaged(OpenError),
    /// The damaged log cannot be salvaged.
    #[error(transparent)]
    Salvage(#[from] SalvageError),
    /// The state needs a newer build.
    #[error("{0}")]
    TooNew(String),
    /// No state can be restored from snapshots and log.
    #[error(transparent)]
    State(#[from] RestoreError),
}

impl RecoveryError {
    /// A sentence about the folder, behind which the program says what to do.
    #[must_use]
    pub fn about(&self, folder: &Path) -> String {
        let folder = folder.display();
        match self {
            Self::Unusable(_) | Self::Mismatch(_) => format!("the folder {folder} cannot be used: {self}"),
            Self::LogGone => {
                format!("the log in {folder} is gone: the server has served, and there is no file of its log")
            }
            Self::NothingBack => format!(
                "the log in {folder} was lost while this server was a member of an ensemble, and the other servers \
                 have not brought it back yet"
            ),
            Self::Log(_) => format!("the log in {folder} cannot be opened: {self}"),
            Self::Damaged(_) => format!("the log in {folder} is damaged: {self}"),
            Self::Salvage(_) => format!("the damaged log in {folder} cannot be repaired: {self}"),
            Self::Interrupted
            | Self::NotOurs(_)
            | Self::MetaDamaged(_)
            | Self::TooNew(_)
            | Self::State(_) => {
                format!("{folder}: {self}")
            }
        }
    }
}

impl From<MetaError> for RecoveryError {
    fn from(error: MetaError) -> Self {
        match error {
            MetaError::Corrupt | MetaError::Missing { .. } => Self::MetaDamaged(error),
            MetaError::Io { source, .. } => Self::Unusable(source),
            error => Self::NotOurs(error),
        }
    }
}

impl From<FatalError> for RecoveryError {
    fn from(error: FatalError) -> Self {
        Self::Unusable(io::Error::other(error))
    }
}

/// The folders of a server, and how it is started on them.
pub struct Folders<'a, S: Storage> {
    /// The log and the promises.
    pub log: S,
    /// The snapshots, in the same folder or in another one.
    pub snapshots: S,
    /// The role of the server; a tool that only reads has none.
    pub wanted: Option<&'a Wanted>,
    /// The id of the server, unless the role decides.
    pub server_id: ServerId,
    /// A secret of the folder, if it is new.
    pub salt: u64,
    /// Length of new files of the log in bytes.
    pub segment_size_bytes: u64,
    /// How the log is made durable.
    pub write_mode: WriteMode,
    /// There are other voters, which have what this server may have lost: by the configuration, which counts
    /// if the log does not name the voters.
    pub has_peers: bool,
}

/// Opens the folders of a server: checks whose they are, which is recorded in new ones, and recovers the
/// state as [`recover`] does.
///
/// # Errors
/// The folders are another server's, or are damaged, or a disk fails.
pub async fn open<E: Env, F: StateFormat<E::Storage>>(
    env: E,
    format: F,
    folders: Folders<'_, E::Storage>,
) -> Result<Recovered<E, F>, RecoveryError> {
    let Folders { log, snapshots, wanted, server_id, salt, segment_size_bytes, write_mode, has_peers } =
        folders;
    if repair::interrupted(&log).await.is_ok_and(|guard| guard.is_some()) {
        return Err(RecoveryError::Interrupted);
    }
    let snapshots = Snapshots::new(snapshots);
    let found = MetaStore::peek(&log).await?;
    // The right folder of the log may come back, so nothing is begun in this one.
    if !salvage::orphaned(&log, &snapshots, found.as_ref()).await?.is_empty() {
        return Err(RecoveryError::LogGone);
    }
    wanted.map_or(Ok(()), |wanted| wanted.check(found.as_ref()))?;
    let server_id = wanted.map_or(server_id, |wanted| {
        found.as_ref().map_or_else(|| wanted.resolve(None).0, |found| found.server_id)
    });
    let mut meta = MetaStore::open(log.clone(), server_id, salt).await?;
    if let Some(wanted) = wanted {
        wanted.record(&mut meta).await?;
    }
    let options = Options { segment_size_bytes, write_mode, ..Options::new(meta.meta().identity()) };
    let has_peers = Owner::of(meta.meta()).has_voting_peers().unwrap_or(has_peers);
    recover(env, format, log, snapshots, meta, &options, has_peers).await
}

/// The result of recovery.
pub struct Recovered<E: Env, F: StateFormat<E::Storage>> {
    /// The state after all of the log.
    pub state: F::State,
    /// The snapshot from which the state was restored; zero if there was none.
    pub snapshot: Zxid,
    /// The log, for its task.
    pub log: LogTask<E, F>,
    /// Transactions after the newest snapshot.
    pub txns: u64,
    /// Bytes of their batches.
    pub bytes: u64,
    /// Damaged files and places that were found.
    pub damage: u64,
    /// The folder's state, for the broadcast.
    pub durable: Durable,
}

/// Opens the log in `storage`, whose epochs are in `meta`, and restores the state from `snapshots` and the
/// log. Damaged parts of the log are cut off if there are other voters (`has_peers`), from whom they are
/// learnt again.
///
/// # Errors
/// The folders are damaged beyond that, or a disk fails.
async fn recover<E: Env, F: StateFormat<E::Storage>>(
    env: E,
    format: F,
    storage: E::Storage,
    snapshots: Snapshots<E::Storage>,
    mut meta: MetaStore<E::Storage>,
    options: &Options,
    has_peers: bool,
) -> Result<Recovered<E, F>, RecoveryError> {
    let mut damage = 0;
    if salvage::is_gone(&storage, &meta).await.map_err(RecoveryError::Log)? {
        if !has_peers {
            return Err(RecoveryError::LogGone);
        }
        let kept = salvage::begin_without(&snapshots, &mut meta).await?.join(", ");
        tracing::error!(
            code = "RK0501",
            kept,
            "the files of the log are gone: all of it has to come from the other servers"
        );
        damage += 1;
    } else if !has_peers
        && meta.meta().promises.end_before_damage > Zxid::ZERO
        && !meta.meta().promises.initialized
    {
        return Err(RecoveryError::NothingBack);
    }
    let mut opened = read_log(&storage, options).await;
    if let Err(error) = &opened
        && error.is_damage()
        && has_peers
    {
        let done = salvage::salvage(&storage, options, &snapshots, &mut meta).await?;
        damage += done.damage.len() as u64;
        report(&done);
        opened = read_log(&storage, options).await;
    }
    let OpenedLog { mut wal, recovered, mut ends } = opened.map_err(|error| {
        if error.is_damage() { RecoveryError::Damaged(error) } else { RecoveryError::Log(error) }
    })?;
    snapshots.settle(wal.base()).await.map_err(RestoreError::from)?;
    let cluster = meta.meta().promises.cluster;
    let restored = match restore::restore(&env, &format, &snapshots, &wal, cluster).await {
        Err(error @ RestoreError::Gap { .. }) if has_peers => {
            tracing::error!(
                code = "RK0502",
                %error,
                last = %wal.last().zxid,
                "all of it has to come from the other servers"
            );
            damage += 1;
            let kept = salvage::begin_anew(&mut wal, &snapshots, &mut meta).await?.join(", ");
            tracing::warn!(code = "RK0503", kept, "what was here is kept for a while");
            ends.clear();
            restore::restore(&env, &format, &snapshots, &wal, cluster).await
        }
        restored => restored,
    }?;
    format.check(&restored.state).map_err(RecoveryError::TooNew)?;
    damage += restored.damaged;
    let mut log = LogSummary::new(wal.base(), restored.snapshot);
    ends.into_iter().for_each(|end| log.push(end));
    let durable = Durable { epochs: epochs(&meta.meta().promises), log };
    tracing::info!(
        zxid = %format.last_zxid(&restored.state),
        snapshot = %restored.snapshot,
        txns = restored.txns,
        bytes = restored.bytes,
        tail = ?recovered.tail,
        "state restored"
    );
    let reserve = Reserve::open(storage.clone()).await?;
    let (state, snapshot, txns, bytes) = (restored.state, restored.snapshot, restored.txns, restored.bytes);
    let log = LogTask { env, wal, snapshots, storage, reserve, meta, format };
    Ok(Recovered { state, snapshot, log, txns, bytes, damage, durable })
}

/// A log read to its end.
struct OpenedLog<S: Storage> {
    wal: Wal<S>,
    recovered: ringkeeper_log::Recovered,
    /// The last position of each epoch, which is all that the broadcast compares.
    ends: Vec<LogPosition>,
}

async fn read_log<S: Storage>(storage: &S, options: &Options) -> Result<OpenedLog<S>, OpenError> {
    let mut ends: Vec<LogPosition> = Vec::new();
    let opened = Wal::open(storage.clone(), options.clone(), |frame| {
        let end = LogPosition { zxid: frame.meta().last_zxid, checksum: frame.checksum() };
        match ends.last_mut() {
            Some(last) if last.zxid.epoch() == end.zxid.epoch() => *last = end,
            _ => ends.push(end),
        }
        Ok(())
    });
    let (wal, recovered) = opened.await?;
    Ok(OpenedLog { wal, recovered, ends })
}

/// The persisted epochs, as the broadcast knows them.
fn epochs(promises: &PersistedEpochs) -> Epochs {
    Epochs {
        accepted: promises.accepted_epoch,
        current: promises.current_epoch,
        cluster: promises.cluster,
        fork: promises.fork,
        voters: ServerSet::from_words(promises.voters),
        groups: promises.groups,
        several_addresses: promises.several_addresses,
        initialized: promises.initialized,
        end_before_damage: promises.end_before_damage,
        leader: promises.leader,
        members: ServerSet::from_words(promises.members),
        committed: promises.committed,
        former: promises.former_epoch,
        former_members: ServerSet::from_words(promises.former_members),
        lease_ms: promises.lease_ms.into(),
    }
}

/// Logs the damage of the log and what was kept of it.
fn report(salvaged: &Salvage) {
    for damage in &salvaged.damage {
        let (file, offset, after, until) =
            (&damage.file, damage.offset, damage.after_zxid, damage.until_zxid);
        tracing::error!(code = "RK0504", file, offset, %after, %until, "the log is damaged");
    }
    let (remedy, end_before_damage) = (salvaged.remedy, salvaged.last_zxid);
    if salvaged.lost {
        tracing::warn!(
            code = "RK0505",
            %remedy,
            %end_before_damage,
            "the log was repaired: what it lacks has to come from the other servers, and this one leads nobody before"
        );
    } else {
        tracing::warn!(code = "RK0506", %remedy, "the log was repaired, nothing is missing");
    }
    if !salvaged.kept.is_empty() {
        let files = salvaged.kept.join(", ");
        tracing::warn!(
            code = "RK0503",
            files,
            "what is damaged, and what came after it, is kept for a while"
        );
    }
}
