//! The server's folder: claimed for this process, and turned back into a machine's state and what follows it.

use std::io;
use std::path::{Path, PathBuf};

use ringkeeper_engine::zab::{Batch, Durable, Epochs, LogPosition, LogSummary, ServerSet};
use ringkeeper_log::dma::DmaStorage;
use ringkeeper_log::error::{OpenError, ReadError, ReplayError, SegmentError};
use ringkeeper_log::folder::{FolderLock, LockError};
use ringkeeper_log::meta::{MetaError, MetaStore};
use ringkeeper_log::reserve::Reserve;
use ringkeeper_log::salvage::{self, RepairError};
use ringkeeper_log::snapshot::{SnapshotError, SnapshotReader, Snapshots};
use ringkeeper_log::storage::WriteMode;
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_wire::{ServerId, Zxid};

use crate::config::Config;
use crate::core::Recovered;
use crate::shell::env::GlommioEnv;
use ringkeeper_host::log_task::{LogTask, Restore};

/// A folder that cannot be used: what is wrong, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The system refuses.
    #[error(
        "the folder {folder} cannot be used: {source}; make it writable for this user, or choose another"
    )]
    Unusable {
        /// The folder.
        folder: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another server has it.
    #[error("{0}; end that server, or choose another folder")]
    Locked(LockError),
    /// It belongs to something else.
    #[error("{folder}: {source}; choose another folder")]
    NotOurs {
        /// The folder.
        folder: PathBuf,
        /// Whose it is.
        source: MetaError,
    },
    /// What it remembers of its promises is lost.
    #[error("{folder}: {source}; nothing was changed: restore it from a copy, or begin anew in an empty one")]
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        source: MetaError,
    },
    /// The log.
    #[error("the log in {folder} cannot be opened: {source}; nothing of it was changed")]
    Log {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        source: OpenError,
    },
    /// There is no log.
    #[error(
        "the log in {folder} is gone: the server has made promises, and there is no file of its log; nothing was changed: put \
         the files back, or begin anew in an empty folder"
    )]
    LogGone {
        /// The folder.
        folder: PathBuf,
    },
    /// The log is damaged.
    #[error("the damaged log in {folder} cannot be repaired: {source}")]
    Repair {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        source: RepairError,
    },
    /// The log cannot be read.
    #[error("the log in {folder} cannot be read: {source}")]
    Read {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        source: ReadError,
    },
    /// The log cannot be brought to where the newest snapshot is.
    #[error("the log in {folder} cannot begin anew after its snapshot: {source}")]
    Reset {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        source: SegmentError,
    },
    /// A snapshot cannot be read.
    #[error("in {folder}: {source}")]
    Snapshot {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        source: SnapshotError,
    },
    /// The log begins after all sound snapshots.
    #[error(
        "in {folder}, the log begins after {base} and no sound snapshot reaches that far; nothing was changed: restore \
         the folder from a copy, or begin anew in an empty one, which the other members fill"
    )]
    Gap {
        /// The folder.
        folder: PathBuf,
        /// Where the log begins.
        base: Zxid,
    },
}

/// A folder that is this process's.
pub(crate) struct Folder {
    path: PathBuf,
    /// Held for as long as the server runs.
    _lock: FolderLock,
}

/// What a folder held.
pub(crate) struct Opened {
    pub(crate) log: LogTask<GlommioEnv, StateBytes>,
    pub(crate) snapshots: Snapshots<DmaStorage>,
    /// What the broadcast has to know.
    pub(crate) durable: Durable,
    /// What the machine is to be set to, if there is a snapshot.
    pub(crate) state: Option<Vec<u8>>,
    pub(crate) recovered: Recovered,
}

impl Folder {
    /// Makes the folder if it is missing, and locks it.
    ///
    /// # Errors
    /// It cannot be made or written to, or another server has it.
    pub(crate) fn claim(path: &Path) -> Result<Self, FolderError> {
        let unusable = |source| FolderError::Unusable { folder: path.to_owned(), source };
        std::fs::create_dir_all(path).map_err(unusable)?;
        let path = path.canonicalize().map_err(unusable)?;
        let lock = FolderLock::take_patiently(&path).map_err(|error| match error {
            LockError::Io { folder, source } => FolderError::Unusable { folder, source },
            in_use => FolderError::Locked(in_use),
        })?;
        Ok(Self { path, _lock: lock })
    }

    /// Reads what the folder holds. `salt` is a secret.
    ///
    /// # Errors
    /// The folder is another server's, its contents are damaged, or the disk fails.
    pub(crate) async fn open(
        &self,
        env: GlommioEnv,
        config: &Config,
        salt: u64,
    ) -> Result<Opened, FolderError> {
        let folder = || self.path.clone();
        let storage = DmaStorage::open(&self.path)
            .await
            .map_err(|source| FolderError::Unusable { folder: folder(), source })?;
        let mut meta = MetaStore::open(storage.clone(), ServerId(config.id), salt).await.map_err(
            |source| match source {
                MetaError::Corrupt | MetaError::Missing { .. } => {
                    FolderError::Damaged { folder: folder(), source }
                }
                MetaError::Io { source, .. } => FolderError::Unusable { folder: folder(), source },
                source => FolderError::NotOurs { folder: folder(), source },
            },
        )?;
        let options = Options {
            segment_size_bytes: config.segment_size_bytes,
            write_mode: WriteMode::Adaptive,
            ..Options::new(meta.meta().identity())
        };
        let snapshots = Snapshots::new(storage.clone());
        let not_repaired = |source| FolderError::Repair { folder: folder(), source };
        let gone = salvage::is_gone(&storage, &meta).await;
        if gone.map_err(|source| FolderError::Log { folder: folder(), source })? {
            if !config.has_voting_peers() {
                return Err(FolderError::LogGone { folder: folder() });
            }
            let kept = salvage::begin_without(&snapshots, &mut meta).await.map_err(not_repaired)?.join(", ");
            tracing::error!(
                kept,
                "the files of the log are gone: all of it has to come from the other members"
            );
        }
        let mut opened = read_log(&storage, &options).await;
        if let Err(error) = &opened
            && error.is_damage()
            && config.has_voting_peers()
        {
            tracing::error!(%error, "the log is damaged");
            let repair = salvage::repair(&storage, &options, &snapshots, &mut meta).await;
            let repair = repair.map_err(not_repaired)?;
            let (remedy, last, lost) = (repair.remedy, repair.last_zxid, repair.lost);
            let kept = repair.kept.join(", ");
            tracing::warn!(%remedy, %last, lost, kept, "the log was repaired: what is lost has to come from the other members");
            opened = read_log(&storage, &options).await;
        }
        let (mut wal, replayed, mut ends) =
            opened.map_err(|source| FolderError::Log { folder: folder(), source })?;

        let failed = |source| FolderError::Snapshot { folder: folder(), source };
        snapshots.settle(replayed.after).await.map_err(failed)?;
        let (snapshot, state) = match self.newest(&snapshots, replayed.after).await {
            Err(error @ FolderError::Gap { .. }) if config.has_voting_peers() => {
                tracing::error!(%error, "all of it has to come from the other members");
                let kept =
                    salvage::begin_anew(&mut wal, &snapshots, &mut meta).await.map_err(not_repaired)?;
                tracing::warn!(kept = kept.join(", "), "what was here is kept for a while");
                ends.clear();
                (LogPosition::START, None)
            }
            newest => newest?,
        };
        if wal.last().zxid < snapshot.zxid {
            // What is committed may be delivered, and be in a snapshot, before this server's own log holds it.
            let reset = wal.reset(snapshot.zxid, snapshot.checksum).await;
            reset.map_err(|source| FolderError::Reset { folder: folder(), source })?;
        }
        let mut summary = LogSummary::new(wal.base(), snapshot.zxid);
        ends.into_iter()
            .filter(|end| end.zxid > summary.base().zxid)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|end| summary.push(end));
        let batches = read_after(&wal, snapshot.zxid).await;
        let batches = batches.map_err(|source| FolderError::Read { folder: folder(), source })?;
        tracing::info!(
            folder = %self.path.display(),
            snapshot = %snapshot.zxid,
            log = %summary.last().zxid,
            batches = batches.len(),
            tail = ?replayed.tail,
            "folder opened"
        );
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
        let reserve = Reserve::open(storage.clone()).await;
        let reserve = reserve.map_err(|failed| FolderError::Unusable {
            folder: folder(),
            source: std::io::Error::other(failed),
        })?;
        Ok(Opened {
            log: LogTask {
                env,
                wal,
                snapshots: snapshots.clone(),
                storage,
                reserve,
                meta,
                restore: StateBytes,
            },
            snapshots,
            durable: Durable { epochs, log: summary },
            state,
            recovered: Recovered { snapshot, batches },
        })
    }

    /// The newest sound snapshot, if one is needed or there: an older one serves if the log reaches back to it.
    async fn newest(
        &self,
        snapshots: &Snapshots<DmaStorage>,
        base: LogPosition,
    ) -> Result<(LogPosition, Option<Vec<u8>>), FolderError> {
        let failed = |source| FolderError::Snapshot { folder: self.path.clone(), source };
        for zxid in snapshots.list().await.map_err(failed)? {
            if zxid < base.zxid {
                break;
            }
            match read_state(snapshots, zxid.0).await {
                Ok((last, state)) => return Ok((last, Some(state))),
                Err(error) if error.is_damage() => {
                    tracing::error!(%error, "a snapshot is damaged; an older one and the log take its place");
                }
                Err(error) => return Err(failed(error)),
            }
        }
        if base.zxid == Zxid::ZERO {
            return Ok((LogPosition::START, None));
        }
        Err(FolderError::Gap { folder: self.path.clone(), base: base.zxid })
    }
}

type OpenedLog = (Wal<DmaStorage>, ringkeeper_log::Recovered, Vec<LogPosition>);

/// Reads a log to its end, and notes the last position of each epoch.
async fn read_log(storage: &DmaStorage, options: &Options) -> Result<OpenedLog, OpenError> {
    let mut ends = Vec::new();
    let (wal, replayed) = Wal::open(storage.clone(), options.clone(), |frame| {
        let end = LogPosition { zxid: frame.meta().last_zxid, checksum: frame.checksum() };
        note_end(&mut ends, end);
        Ok(())
    })
    .await?;
    Ok((wal, replayed, ends))
}

/// The state that the newest snapshot holds: the machine hears of the log after it as of anything else.
pub(crate) struct StateBytes;

impl Restore<DmaStorage> for StateBytes {
    type State = Vec<u8>;

    async fn restore(
        &self,
        snapshots: &Snapshots<DmaStorage>,
        _: &Wal<DmaStorage>,
        _: u64,
    ) -> Result<Vec<u8>, ReplayError> {
        let newest = snapshots.list().await?.first().copied().ok_or("there is no snapshot")?;
        Ok(read_state(snapshots, newest.0).await?.1)
    }
}

/// Reads a whole snapshot.
///
/// # Errors
/// It is damaged, or the disk fails.
async fn read_state(
    snapshots: &Snapshots<DmaStorage>,
    zxid: u64,
) -> Result<(LogPosition, Vec<u8>), SnapshotError> {
    let mut reader: SnapshotReader<_> = snapshots.open(Zxid(zxid)).await?;
    let head = *reader.head();
    let mut state = Vec::new();
    while let Some(block) = reader.next().await? {
        state.extend_from_slice(block);
    }
    Ok((LogPosition { zxid: head.zxid, checksum: head.chain }, state))
}

/// What the log holds after `zxid`.
async fn read_after(wal: &Wal<DmaStorage>, zxid: Zxid) -> Result<Vec<Batch>, ReadError> {
    let mut batches = Vec::new();
    if wal.last().zxid <= zxid {
        return Ok(batches);
    }
    let mut reader = wal.read_from(Zxid(zxid.0 + 1))?;
    while let Some(frame) = reader.next().await? {
        batches.push(Batch::from(&frame));
    }
    Ok(batches)
}

/// Keeps the last position of each epoch, which is all that the broadcast compares.
fn note_end(ends: &mut Vec<LogPosition>, end: LogPosition) {
    match ends.last_mut() {
        Some(last) if last.zxid.epoch() == end.zxid.epoch() => *last = end,
        _ => ends.push(end),
    }
}
