//! The server's folder: claimed for this process, and turned back into a state.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ringkeeper_engine::state::State;
use ringkeeper_engine::zab::{Durable, Epochs, LogPosition, LogSummary, ServerSet};
use ringkeeper_log::dma::DmaStorage;
use ringkeeper_log::error::{OpenError, ReplayError};
use ringkeeper_log::folder::{FolderLock, LockError};
use ringkeeper_log::meta::{MetaError, MetaStore};
use ringkeeper_log::repair;
use ringkeeper_log::reserve::Reserve;
use ringkeeper_log::salvage::{self, Repair, RepairError};
use ringkeeper_log::snapshot::Snapshots;
use ringkeeper_log::storage::{Storage, WriteMode};
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_wire::{ServerId, Zxid};

use super::env::GlommioEnv;
use super::identity::{IdentityError, Wanted};
use super::log_task::{LogTask, Restore};
use super::replay::{self, RestoreError};
use crate::config::{Config, PeerRole};
use crate::tools::command_for;

/// A folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    #[error(
        "the folder {folder} cannot be used: {source}; make it writable for this user, or choose another with --data-dir"
    )]
    Unusable { folder: PathBuf, source: io::Error },
    #[error("{0}; end that server, or choose another folder with --data-dir")]
    Locked(LockError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("{folder}: {source}; choose another folder with --data-dir")]
    NotOurs { folder: PathBuf, source: MetaError },
    #[error(
        "{folder}: {source}; nothing was changed: restore the folder from a copy, or begin anew in an empty one"
    )]
    Damaged { folder: PathBuf, source: MetaError },
    #[error("the log in {folder} cannot be opened: {source}; nothing of it was changed")]
    Log { folder: PathBuf, source: OpenError },
    #[error("the damaged log in {folder} cannot be repaired: {source}")]
    Repair { folder: PathBuf, source: RepairError },
    #[error(
        "the log in {folder} is damaged: {source}; nothing of it was changed: `{command}` shows what can be done about it, \
         and what that loses"
    )]
    LogDamaged { folder: PathBuf, source: OpenError, command: String },
    #[error("{folder}: {source}; `{command}` shows what can be done about it, and what that loses")]
    State { folder: PathBuf, source: RestoreError, command: String },
    #[error(
        "the log in {folder} is gone: the server has made promises, and there is no file of its log; nothing was changed: put \
         the files back, or see with `{command}` whether a snapshot can take its place"
    )]
    LogGone { folder: PathBuf, command: String },
    #[error(
        "the log in {folder} was lost while this server was a member of an ensemble, and the other servers have not brought it \
         back yet: start it together with them (what was left is in salvaged.* beside it), or begin anew in an empty folder"
    )]
    NothingBack { folder: PathBuf },
    #[error("{folder}: a repair of the log was interrupted: `{command}` finishes it")]
    Interrupted { folder: PathBuf, command: String },
}

/// The server's folders, locked for this process.
pub(crate) struct Folder {
    data_dir: PathBuf,
    log_dir: PathBuf,
    segment_size_bytes: u64,
    write_mode: WriteMode,
    server_id: u64,
    /// Other voters have what this server may have lost.
    has_peers: bool,
    /// Held for as long as the process lives.
    _locks: Vec<FolderLock>,
}

/// Trees from snapshots and logs.
pub(crate) struct TreeRestore {
    /// Seed of the trees of this process.
    seed: u64,
}

impl<S: Storage> Restore<S> for TreeRestore {
    type State = State;

    async fn restore(
        &self,
        snapshots: &Snapshots<S>,
        wal: &Wal<S>,
        cluster: u64,
    ) -> Result<State, ReplayError> {
        Ok(replay::restore(snapshots, wal, cluster, self.seed).await?.state)
    }
}

/// What the folders held.
pub(crate) struct Recovered {
    /// The number of the server that the folder belongs to.
    pub(crate) server_id: u64,
    pub(crate) state: State,
    pub(crate) log: LogTask<GlommioEnv, TreeRestore>,
    /// Transactions after the newest snapshot, and the bytes of their batches.
    pub(crate) txns: u64,
    pub(crate) bytes: u64,
    /// Damaged files and places that were found.
    pub(crate) damage: u64,
    /// What the broadcast has to know of the folder.
    pub(crate) durable: Durable,
}

impl Folder {
    /// Makes the folders where they are missing, and locks them.
    ///
    /// # Errors
    /// They cannot be made or written to, or another server has them.
    pub(crate) fn claim(config: &Config) -> Result<Self, FolderError> {
        let mut folders = vec![make(&config.data_dir)?];
        let log_dir = make(config.log_dir())?;
        if !folders.contains(&log_dir) {
            folders.push(log_dir.clone());
        }
        let locks = folders.iter().map(|folder| {
            FolderLock::take_patiently(folder).map_err(|error| match error {
                LockError::Io { folder, source } => FolderError::Unusable { folder, source },
                in_use => FolderError::Locked(in_use),
            })
        });
        Ok(Self {
            _locks: locks.collect::<Result<_, _>>()?,
            data_dir: folders.swap_remove(0),
            log_dir,
            segment_size_bytes: config.segment_size_bytes,
            write_mode: config.log_write_mode,
            server_id: config.server_id(),
            has_peers: has_voting_peers(config),
        })
    }

    /// Folder of the snapshots.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Folder of the log.
    pub(crate) fn log_dir(&self) -> &Path {
        &self.log_dir
    }

    /// Reads the newest snapshot and replays the log after it. `seed` and `salt` are secrets that clients cannot guess.
    /// Whoever runs on the folder says as what; whoever only reads it does not.
    ///
    /// # Errors
    /// The folder is not what is wanted, its contents are damaged, or the disk fails.
    pub(crate) async fn recover(
        &self,
        env: GlommioEnv,
        seed: u64,
        salt: u64,
        wanted: Option<&Wanted>,
    ) -> Result<Recovered, FolderError> {
        let folder = || self.log_dir.clone();
        let repair = || command_for("log repair", &self.data_dir, &self.log_dir);
        let storage = open(&self.log_dir).await?;
        if repair::interrupted(&storage).await.is_ok_and(|guard| guard.is_some()) {
            return Err(FolderError::Interrupted { folder: folder(), command: repair() });
        }
        let unusable = |source| match source {
            MetaError::Corrupt | MetaError::Missing { .. } => {
                FolderError::Damaged { folder: folder(), source }
            }
            MetaError::Io { source, .. } => FolderError::Unusable { folder: folder(), source },
            source => FolderError::NotOurs { folder: folder(), source },
        };
        let found = MetaStore::peek(&storage).await.map_err(unusable)?;
        let mut server_id = self.server_id;
        if let Some(wanted) = wanted {
            let adopt = || command_for("folder adopt", &self.data_dir, &self.log_dir);
            wanted.check(found.as_ref(), folder, adopt)?;
            server_id = wanted.resolve(found.as_ref()).0.0;
        }
        let mut meta = MetaStore::open(storage.clone(), ServerId(server_id), salt).await.map_err(unusable)?;
        if let Some(wanted) = wanted {
            let recorded = wanted.record(&mut meta).await;
            recorded.map_err(|failed| FolderError::Unusable {
                folder: folder(),
                source: io::Error::other(failed),
            })?;
        }
        let options = Options {
            segment_size_bytes: self.segment_size_bytes,
            write_mode: self.write_mode,
            ..Options::new(meta.meta().identity())
        };
        let snapshots =
            if self.data_dir == self.log_dir { storage.clone() } else { open(&self.data_dir).await? };
        let snapshots = Snapshots::new(snapshots);
        let started = Instant::now();
        let mut damage = 0;
        let gone = salvage::is_gone(&storage, &meta).await;
        if gone.map_err(|source| FolderError::Log { folder: folder(), source })? {
            if !self.has_peers {
                return Err(FolderError::LogGone { folder: folder(), command: repair() });
            }
            let kept = salvage::begin_without(&snapshots, &mut meta).await;
            let kept = kept.map_err(|source| FolderError::Repair { folder: folder(), source })?.join(", ");
            tracing::error!(
                kept,
                "the files of the log are gone: all of it has to come from the other servers"
            );
            damage += 1;
        } else if !self.has_peers
            && meta.meta().promises.claim > Zxid::ZERO
            && !meta.meta().promises.initialized
        {
            return Err(FolderError::NothingBack { folder: folder() });
        }
        let mut opened = read_log(&storage, &options).await;
        if let Err(error) = &opened
            && error.is_damage()
            && self.has_peers
        {
            let done = salvage::repair(&storage, &options, &snapshots, &mut meta).await;
            let done = done.map_err(|source| FolderError::Repair { folder: folder(), source })?;
            damage += done.damage.len() as u64;
            report(&done);
            opened = read_log(&storage, &options).await;
        }
        let OpenedLog { mut wal, recovered, mut marks } = opened.map_err(|source| {
            if source.is_damage() {
                FolderError::LogDamaged { folder: folder(), source, command: repair() }
            } else {
                FolderError::Log { folder: folder(), source }
            }
        })?;
        let damaged =
            |source| FolderError::State { folder: self.data_dir.clone(), source, command: repair() };
        snapshots.settle(wal.base()).await.map_err(RestoreError::from).map_err(damaged)?;
        let cluster = meta.meta().promises.cluster;
        let restored = match replay::restore(&snapshots, &wal, cluster, seed).await {
            Err(error @ RestoreError::Gap { .. }) if self.has_peers => {
                tracing::error!(%error, last = %wal.last().zxid, "all of it has to come from the other servers");
                damage += 1;
                let begun = salvage::begin_anew(&mut wal, &snapshots, &mut meta).await;
                let kept = begun.map_err(|source| FolderError::Repair { folder: folder(), source })?;
                tracing::warn!(files = kept.join(", "), "what was here is kept for a while");
                marks.clear();
                replay::restore(&snapshots, &wal, cluster, seed).await
            }
            restored => restored,
        };
        let restored = restored.map_err(damaged)?;
        damage += restored.damaged;
        let state = restored.state;
        tracing::info!(
            zxid = %state.last_zxid(),
            snapshot = %restored.snapshot,
            znodes = state.tree().len(),
            sessions = state.sessions().len(),
            txns = restored.txns,
            bytes = restored.bytes,
            tail = ?recovered.tail,
            took_ms = started.elapsed().as_millis(),
            "state restored"
        );
        let mut summary = LogSummary::new(wal.base(), restored.snapshot);
        marks.into_iter().for_each(|mark| summary.push(mark));
        let promises = meta.meta().promises;
        let epochs = Epochs {
            accepted: promises.accepted_epoch,
            current: promises.current_epoch,
            cluster: promises.cluster,
            fork: promises.fork,
            voters: ServerSet::from_words(promises.voters),
            initialized: promises.initialized,
            claim: promises.claim,
        };
        let durable = Durable { epochs, log: summary };
        let reserve = Reserve::open(storage.clone()).await;
        let reserve = reserve.map_err(|failed| FolderError::Unusable {
            folder: folder(),
            source: std::io::Error::other(failed),
        })?;
        let log = LogTask { env, wal, snapshots, storage, reserve, meta, restore: TreeRestore { seed } };
        Ok(Recovered { server_id, state, log, txns: restored.txns, bytes: restored.bytes, damage, durable })
    }
}

/// A log that was read to its end.
struct OpenedLog {
    wal: Wal<DmaStorage>,
    recovered: ringkeeper_log::Recovered,
    /// The last position of each epoch.
    marks: Vec<LogPosition>,
}

async fn read_log(storage: &DmaStorage, options: &Options) -> Result<OpenedLog, OpenError> {
    let mut marks = Vec::new();
    let (wal, recovered) = Wal::open(storage.clone(), options.clone(), |frame| {
        let end = LogPosition { zxid: frame.meta().last_zxid, checksum: frame.checksum() };
        note_end(&mut marks, end);
        Ok(())
    })
    .await?;
    Ok(OpenedLog { wal, recovered, marks })
}

/// Whether there are voters besides this server.
fn has_voting_peers(config: &Config) -> bool {
    let own = config.server_id();
    config.servers.iter().any(|server| server.role == PeerRole::Participant && server.id != own)
}

/// Tells the operator what was damaged, and what follows from it.
fn report(repair: &Repair) {
    for damage in &repair.damage {
        let (file, offset) = (&damage.file, damage.offset);
        let (after, until) = (damage.after_zxid, damage.until_zxid);
        tracing::error!(file, offset, %after, %until, "the log is damaged");
    }
    let (remedy, claim) = (repair.remedy, repair.last_zxid);
    if repair.lost {
        tracing::warn!(
            %remedy,
            %claim,
            "the log was repaired: what it lacks has to come from the other servers, and this one leads nobody before"
        );
    } else {
        tracing::warn!(%remedy, "the log was repaired, nothing is missing");
    }
    if !repair.kept.is_empty() {
        let files = repair.kept.join(", ");
        tracing::warn!(files, "what is damaged, and what came after it, is kept for a while");
    }
}

async fn open(folder: &Path) -> Result<DmaStorage, FolderError> {
    let opened = DmaStorage::open(folder).await;
    opened.map_err(|source| FolderError::Unusable { folder: folder.to_owned(), source })
}

/// Keeps the last position of each epoch, which is all that the broadcast compares.
fn note_end(marks: &mut Vec<LogPosition>, end: LogPosition) {
    match marks.last_mut() {
        Some(last) if last.zxid.epoch() == end.zxid.epoch() => *last = end,
        _ => marks.push(end),
    }
}

fn make(folder: &Path) -> Result<PathBuf, FolderError> {
    std::fs::create_dir_all(folder)
        .and_then(|()| folder.canonicalize())
        .map_err(|source| FolderError::Unusable { folder: folder.to_owned(), source })
}
