//! A stopped server's folder, locked.

use std::path::{Path, PathBuf};

use clap::Args;
use ringkeeper_engine::zab::ServerSet;
use ringkeeper_host::identity::ALONE;
use ringkeeper_log::folder::{FolderLock, LockError};
use ringkeeper_log::meta::{Meta, MetaError, MetaStore, PersistedEpochs};
use ringkeeper_log::snapshot::Snapshots;
use ringkeeper_log::storage::Storage;
use ringkeeper_log::wal::Options;
use ringkeeper_log::{repair, salvage};
use ringkeeper_runtime::reactor::storage::RingStorage;
use ringkeeper_wire::{Epoch, ServerId, Zxid};

use super::ToolError;
use crate::config::Config;
use crate::server::{FolderError, check_finished};

/// Which folder, and how to speak of it.
#[derive(Args)]
pub(crate) struct FolderArgs {
    /// The server's zoo.cfg, which names its folders; the flags below override it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server's data folder [default: ringkeeper-data]
    #[arg(short, long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Its log folder, if it has one
    #[arg(long, value_name = "FOLDER")]
    data_log_dir: Option<PathBuf>,
    /// Answers as JSON, one object a line
    #[arg(long)]
    pub(super) json: bool,
}

impl FolderArgs {
    /// A folder that has data and log.
    pub(super) fn of(folder: PathBuf, json: bool) -> Self {
        Self { config: None, data_dir: Some(folder), data_log_dir: None, json }
    }

    pub(super) fn config(&self) -> Result<Config, ToolError> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?.0,
            None => Config::default(),
        };
        if let Some(folder) = &self.data_dir {
            config.data_dir.clone_from(folder);
            config.data_log_dir = None;
        }
        config.data_log_dir = self.data_log_dir.clone().or(config.data_log_dir);
        Ok(config)
    }
}

/// The folders of a stopped server, which no server can use meanwhile.
pub(super) struct Folder {
    pub(super) data_dir: PathBuf,
    pub(super) log_dir: PathBuf,
    pub(super) log: RingStorage,
    pub(super) snapshots: Snapshots<RingStorage>,
    pub(super) options: Options,
    /// Whose folder it is.
    pub(super) meta: Meta,
    /// That is nowhere written: see [`salvage::orphaned`].
    pub(super) is_orphaned: bool,
    /// The configuration names other servers of the ensemble.
    pub(super) has_peers: bool,
    /// A repair was begun and not finished.
    pub(super) interrupted: bool,
    /// There is no file of the log, though there must have been one: see [`salvage::gone_until`].
    pub(super) gone_until: Option<Zxid>,
    _locks: Vec<FolderLock>,
}

impl Folder {
    /// Locks the folders, which have to be there.
    ///
    /// # Errors
    /// They are not ours, or are in use.
    pub(super) async fn open(args: &FolderArgs) -> Result<Self, ToolError> {
        let config = args.config()?;
        let log = open(config.log_dir())?;
        let data = open(&config.data_dir)?;
        let snapshots = Snapshots::new(data.clone());
        let log_dir = canonical(config.log_dir())?;
        let data_dir = canonical(&config.data_dir)?;
        check_finished(&[&data_dir, &log_dir]).map_err(|error| ToolError::Refused(error.to_string()))?;
        // Nothing is made in a folder that is not ours, not even a lock.
        let interrupted = is_interrupted(&log, &log_dir).await?;
        let found = owner(&log, &log_dir).await?;
        if found.is_none() && data_dir != log_dir && !matches!(MetaStore::peek(&data).await, Ok(None)) {
            return Err(ToolError::Refused(FolderError::LogLeftBehind { log_dir, data_dir }.to_string()));
        }
        let orphaned = salvage::orphaned(&log, &snapshots, found.as_ref()).await;
        let orphaned = orphaned.map_err(|source| ToolError::Salvage { folder: log_dir.clone(), source })?;
        let is_orphaned = !orphaned.is_empty();
        let meta = if is_orphaned {
            let id = config.id_in_folder().map_or(ALONE, ServerId);
            meta_after(&snapshots, &orphaned, found, id).await?
        } else {
            found.ok_or_else(|| ToolError::NotOurs(log_dir.clone()))?
        };
        let gone_until = match is_orphaned {
            true => Ok(Some(Zxid::new(meta.promises.accepted_epoch, u32::MAX))),
            false => salvage::gone_until(&log, &meta.promises).await,
        };
        let gone_until = gone_until.map_err(|source| ToolError::Log { folder: log_dir.clone(), source })?;
        let mut folders = vec![&data_dir];
        folders.extend((data_dir != log_dir).then_some(&log_dir));
        let locks = folders.into_iter().map(|folder| {
            FolderLock::take(folder).map_err(|error| match error {
                LockError::InUse { .. } => ToolError::InUse(error),
                error => ToolError::Lock(error),
            })
        });
        let locks = locks.collect::<Result<_, _>>()?;
        let options =
            Options { segment_size_bytes: config.segment_size_bytes, ..Options::new(meta.identity()) };
        let has_peers = config.servers.len() > 1;
        Ok(Self {
            data_dir,
            log_dir,
            log,
            snapshots,
            options,
            meta,
            is_orphaned,
            has_peers,
            interrupted,
            gone_until: gone_until.filter(|_| !interrupted),
            _locks: locks,
        })
    }

    /// As [`Self::open`], and no repair is under way.
    ///
    /// # Errors
    /// As there, and when a repair was interrupted.
    pub(super) async fn open_settled(args: &FolderArgs) -> Result<Self, ToolError> {
        let folder = Self::open(args).await?;
        if folder.interrupted {
            return Err(ToolError::Interrupted { folder: folder.log_dir });
        }
        if folder.is_orphaned {
            return Err(ToolError::Orphaned { repair: folder.command("log repair"), folder: folder.log_dir });
        }
        Ok(folder)
    }

    /// Writes down whose folder it is, if that was gone.
    ///
    /// # Errors
    /// The disk fails, or is full.
    pub(super) async fn keep_meta(&self) -> Result<(), ToolError> {
        if !self.is_orphaned {
            return Ok(());
        }
        let Meta { server_id, salt, promises, .. } = self.meta;
        let store = MetaStore::open(self.log.clone(), server_id, salt).await;
        let mut store = store.map_err(|source| ToolError::Meta { folder: self.log_dir.clone(), source })?;
        let written = store.promise(promises).await;
        written.map_err(|error| ToolError::Refused(format!("{}: {error}", self.log_dir.display())))
    }

    /// The command line of a tool for this folder.
    pub(super) fn command(&self, tool: &str) -> String {
        command_for(tool, &self.data_dir, &self.log_dir)
    }
}

/// What a member can do that has lost what it had.
pub(crate) const AS_NEW_MEMBER: &str =
    "empty the server's folders but for myid and start it: the other servers bring everything";

/// The command line of a tool for these folders, to be typed into a shell.
pub(crate) fn command_for(tool: &str, data_dir: &Path, log_dir: &Path) -> String {
    let data = format!("ringkeeper {tool} --data-dir {}", quoted(data_dir));
    if data_dir == log_dir { data } else { format!("{data} --data-log-dir {}", quoted(log_dir)) }
}

fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

fn open(folder: &Path) -> Result<RingStorage, ToolError> {
    RingStorage::open_buffered(folder).map_err(|_| ToolError::NotOurs(folder.to_owned()))
}

fn canonical(folder: &Path) -> Result<PathBuf, ToolError> {
    folder.canonicalize().map_err(|_| ToolError::NotOurs(folder.to_owned()))
}

async fn is_interrupted(log: &RingStorage, folder: &Path) -> Result<bool, ToolError> {
    let guard = repair::interrupted(log).await;
    let guard = guard.map_err(|source| ToolError::Repair { folder: folder.to_owned(), source })?;
    Ok(guard.is_some())
}

/// Whose folder it is, if it says so; also while a repair has taken the file away.
async fn owner(log: &RingStorage, folder: &Path) -> Result<Option<Meta>, ToolError> {
    let failed = |source| ToolError::Meta { folder: folder.to_owned(), source };
    let meta = match MetaStore::peek(log).await.map_err(failed)? {
        None => repair::guarded_meta(log).await.map_err(failed)?,
        meta => meta,
    };
    let names = log.list().await.unwrap_or_default();
    match names.into_iter().find(|name| name.starts_with("log.")) {
        Some(log) if meta.is_none() => Err(failed(MetaError::Missing { log })),
        _ => Ok(meta),
    }
}

/// How many epochs a server may have begun after its newest snapshot: what it begins next has to come later.
const EPOCHS_AFTER_SNAPSHOT_MAX: u32 = 1000;

/// What a server alone promises that goes on with a snapshot, and has lost its log and what it had promised.
/// Other servers may have the rest of that history, so it begins a fork.
async fn meta_after(
    snapshots: &Snapshots<RingStorage>,
    zxids: &[Zxid],
    found: Option<Meta>,
    server_id: ServerId,
) -> Result<Meta, ToolError> {
    let mut cluster = 0;
    for zxid in zxids {
        if let Ok(reader) = snapshots.open(*zxid).await {
            cluster = reader.head().cluster;
            break;
        }
    }
    let salt = random()?;
    let new = Meta { server_id, salt, application: 0, promises: PersistedEpochs::default() };
    let meta = found.unwrap_or(new);
    let newest = zxids.first().map_or(Epoch(0), |zxid| zxid.epoch());
    let epoch = Epoch(newest.0.saturating_add(EPOCHS_AFTER_SNAPSHOT_MAX));
    let promises = PersistedEpochs {
        cluster,
        fork: random()?.max(1),
        voters: ServerSet::from_iter([meta.server_id]).words(),
        accepted_epoch: epoch,
        current_epoch: epoch,
        initialized: true,
        ..PersistedEpochs::default()
    };
    Ok(Meta { promises, ..meta })
}

pub(super) fn random() -> Result<u64, ToolError> {
    getrandom::u64().map_err(|error| ToolError::Executor(format!("no random bytes: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_named_so_that_a_shell_takes_them() {
        let command = |data: &str, log: &str| command_for("log verify", Path::new(data), Path::new(log));
        assert_eq!(command("/a/b", "/a/b"), "ringkeeper log verify --data-dir /a/b");
        assert_eq!(
            command("/a/it's", "/b"),
            r"ringkeeper log verify --data-dir '/a/it'\''s' --data-log-dir /b"
        );
    }
}
