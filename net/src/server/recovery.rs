//! The server's folder: claimed for this process, and turned back into a state.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ringkeeper_engine::state::State;
use ringkeeper_engine::txn;
use ringkeeper_engine::zab::{Durable, Epochs, LogMark, LogSummary};
use ringkeeper_log::dma::DmaStorage;
use ringkeeper_log::error::{OpenError, ReplayError};
use ringkeeper_log::folder::{FolderLock, LockError};
use ringkeeper_log::meta::{MetaError, MetaStore};
use ringkeeper_log::storage::WriteMode;
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_wire::{Epoch, Zxid};

use super::log_task::{LogTask, Replay, mark};
use crate::config::Config;

/// A folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    #[error(
        "the folder {folder} cannot be used: {source}; make it writable for this user, or choose another with --data-dir"
    )]
    Unusable { folder: PathBuf, source: io::Error },
    #[error("{0}; end that server, or choose another folder with --data-dir")]
    Locked(LockError),
    #[error("{folder}: {source}; choose another folder with --data-dir")]
    NotOurs { folder: PathBuf, source: MetaError },
    #[error(
        "{folder}: {source}; nothing was changed: restore the folder from a copy, or begin anew in an empty one"
    )]
    Damaged { folder: PathBuf, source: MetaError },
    #[error("the log in {folder} cannot be opened: {source}; nothing of it was changed")]
    Log { folder: PathBuf, source: OpenError },
}

/// The server's folders, locked for this process.
pub(crate) struct Folder {
    data_dir: PathBuf,
    log_dir: PathBuf,
    segment_size_bytes: u64,
    write_mode: WriteMode,
    server_id: u64,
    /// Held for as long as the process lives.
    _locks: Vec<FolderLock>,
}

/// Trees from logs.
pub(crate) struct TreeReplay {
    /// Seed of the trees of this process.
    seed: u64,
}

impl Replay for TreeReplay {
    type State = State;

    fn begin(&self) -> State {
        State::new(self.seed)
    }

    fn replay(&self, state: &mut State, payload: &[u8]) -> Result<(), ReplayError> {
        for txn in txn::decode_batch(payload)? {
            state.apply(&txn);
        }
        Ok(())
    }
}

/// What the folders held.
pub(crate) struct Recovered {
    pub(crate) state: State,
    pub(crate) log: LogTask<DmaStorage, TreeReplay>,
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
            FolderLock::take(folder).map_err(|error| match error {
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

    /// Replays the log. `seed` and `salt` are secrets that clients cannot guess.
    ///
    /// # Errors
    /// The folder is another server's, its contents are damaged, or the disk fails.
    pub(crate) async fn recover(&self, seed: u64, salt: u64) -> Result<Recovered, FolderError> {
        let folder = || self.log_dir.clone();
        let storage = DmaStorage::open(&self.log_dir)
            .await
            .map_err(|source| FolderError::Unusable { folder: folder(), source })?;
        let meta =
            MetaStore::open(storage.clone(), self.server_id, salt).await.map_err(|source| match source {
                MetaError::Corrupt | MetaError::Missing { .. } => {
                    FolderError::Damaged { folder: folder(), source }
                }
                MetaError::Io { source, .. } => FolderError::Unusable { folder: folder(), source },
                source => FolderError::NotOurs { folder: folder(), source },
            })?;
        let options = Options {
            segment_size_bytes: self.segment_size_bytes,
            write_mode: self.write_mode,
            ..Options::new(meta.meta().identity())
        };
        let started = Instant::now();
        let replay = TreeReplay { seed };
        let mut state = replay.begin();
        let mut marks = Vec::new();
        let (wal, recovered) = Wal::open(storage, options, |frame| {
            replay.replay(&mut state, frame.payload())?;
            note_end(
                &mut marks,
                LogMark { zxid: Zxid(frame.meta().last_zxid), checksum: frame.checksum().0 },
            );
            Ok(())
        })
        .await
        .map_err(|source| FolderError::Log { folder: folder(), source })?;
        tracing::info!(
            zxid = %state.last_zxid(),
            znodes = state.tree().len(),
            sessions = state.sessions().len(),
            batches = recovered.frames,
            bytes = recovered.bytes,
            tail = ?recovered.tail,
            took_ms = started.elapsed().as_millis(),
            "log replayed"
        );
        let mut summary = LogSummary::new(mark(recovered.after), Zxid::ZERO);
        marks.into_iter().for_each(|mark| summary.push(mark));
        let promises = meta.meta().promises;
        let epochs = Epochs {
            accepted: Epoch(promises.accepted_epoch),
            current: Epoch(promises.current_epoch),
            cluster: promises.cluster,
            initialized: promises.initialized,
        };
        let durable = Durable { epochs, log: summary };
        Ok(Recovered { state, log: LogTask { wal, meta, replay }, durable })
    }
}

/// Keeps the last position of each epoch, which is all that the broadcast compares.
fn note_end(marks: &mut Vec<LogMark>, end: LogMark) {
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
