//! The server's folders: locked for this process, and recovered to a state.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ringkeeper_host::identity::Wanted;
use ringkeeper_host::recovery::{self, RecoveryError};
use ringkeeper_log::error::OpenError;
use ringkeeper_log::folder::{FolderLock, LockError};
use ringkeeper_log::meta::{MetaError, MetaStore};
use ringkeeper_log::repair;
use ringkeeper_log::salvage::RepairError;
use ringkeeper_log::snapshot::Snapshots;
use ringkeeper_log::storage::WriteMode;
use ringkeeper_log::wal::Options;
use ringkeeper_runtime::dma::DmaStorage;
use ringkeeper_wire::ServerId;

use super::env::GlommioEnv;
use super::identity::IdentityError;
use super::replay::{RestoreError, TreeFormat};
use crate::config::{Config, PeerRole};
use crate::tools::command_for;

/// Why a folder cannot be used.
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
    /// Whether there are other voters, which have what this server may have lost.
    has_peers: bool,
    /// Held for as long as the process lives.
    _locks: Vec<FolderLock>,
}

/// What the folders held.
pub(crate) type Recovered = recovery::Recovered<GlommioEnv, TreeFormat>;

impl Folder {
    /// Creates missing folders, and locks them.
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

    /// Reads the newest snapshot and replays the log after it. `seed` and `salt` must be unknown to clients.
    /// A server names the role in which it runs on the folder; a tool that only reads does not.
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
            let checked = wanted.check(found.as_ref());
            checked.map_err(|mismatch| IdentityError::new(mismatch, folder(), adopt()))?;
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
        let format = TreeFormat { seed };
        let recovered =
            recovery::recover(env, format, storage, snapshots, meta, &options, self.has_peers).await;
        let recovered = recovered.map_err(|error| match error {
            RecoveryError::LogGone => FolderError::LogGone { folder: folder(), command: repair() },
            RecoveryError::NothingBack => FolderError::NothingBack { folder: folder() },
            RecoveryError::Log(source) => FolderError::Log { folder: folder(), source },
            RecoveryError::Damaged(source) => {
                FolderError::LogDamaged { folder: folder(), source, command: repair() }
            }
            RecoveryError::Repair(source) => FolderError::Repair { folder: folder(), source },
            RecoveryError::State(source) => {
                FolderError::State { folder: self.data_dir.clone(), source, command: repair() }
            }
            failed => FolderError::Unusable { folder: folder(), source: io::Error::other(failed) },
        })?;
        tracing::info!(
            znodes = recovered.state.tree().len(),
            sessions = recovered.state.sessions().len(),
            took_ms = started.elapsed().as_millis(),
            "tree restored"
        );
        Ok(recovered)
    }
}

/// Whether there are voters besides this server.
fn has_voting_peers(config: &Config) -> bool {
    let own = config.server_id();
    config.servers.iter().any(|server| server.role == PeerRole::Participant && server.id != own)
}

async fn open(folder: &Path) -> Result<DmaStorage, FolderError> {
    let opened = DmaStorage::open(folder).await;
    opened.map_err(|source| FolderError::Unusable { folder: folder.to_owned(), source })
}

fn make(folder: &Path) -> Result<PathBuf, FolderError> {
    std::fs::create_dir_all(folder)
        .and_then(|()| folder.canonicalize())
        .map_err(|source| FolderError::Unusable { folder: folder.to_owned(), source })
}
