//! The server's folder: locked for this process, and recovered to a machine's state and the log behind it.

use std::io;
use std::path::{Path, PathBuf};

use ringkeeper_engine::zab::{Batch, LogPosition};
use ringkeeper_host::identity::{FolderOf, Mismatch, Wanted};
use ringkeeper_host::recovery::{self, Folders, RecoveryError};
use ringkeeper_host::restore::{StateFormat, Unusable};
use ringkeeper_log::error::ReplayError;
use ringkeeper_log::folder::{FolderLock, LockError};
use ringkeeper_log::frame::Frame;
use ringkeeper_log::snapshot::SnapshotReader;
use ringkeeper_log::storage::{Storage, WriteMode};
use ringkeeper_runtime::glommio::dma::DmaStorage;
use ringkeeper_wire::{ServerId, Zxid};

use crate::config::Config;
use crate::entry;
use crate::snapshots::STATE_VERSION;
use ringkeeper_runtime::glommio::env::GlommioEnv;

/// A folder that cannot be used: what is wrong, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// Another server has it.
    #[error("{0}; end that server, or choose another folder")]
    Locked(LockError),
    /// It belongs to another server, or to another ensemble.
    #[error(
        "the folder {folder} cannot be used: {mismatch}; what either side acknowledges could be lost: give each server a \
         folder of its own, and add or remove one member at a time"
    )]
    Identity {
        /// The folder.
        folder: PathBuf,
        /// What does not fit.
        mismatch: Mismatch,
    },
    /// The system refuses, or it is damaged.
    #[error("{}{}", source.about(folder), remedy(source))]
    Unusable {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        source: RecoveryError,
    },
}

fn unusable(folder: &Path, source: io::Error) -> FolderError {
    FolderError::Unusable { folder: folder.to_owned(), source: RecoveryError::Unusable(source) }
}

const fn remedy(error: &RecoveryError) -> &'static str {
    match error {
        RecoveryError::Unusable(_) => "; make it writable for this user, or choose another",
        RecoveryError::NotOurs(_) | RecoveryError::Mismatch(_) => "; choose another folder",
        RecoveryError::MetaDamaged(_) | RecoveryError::Interrupted => {
            "; nothing was changed: restore it from a copy, or begin anew in an empty one"
        }
        RecoveryError::LogGone => {
            "; nothing was changed: put the files back, or begin anew in an empty folder"
        }
        RecoveryError::NothingBack => "; start it together with them, or begin anew in an empty folder",
        RecoveryError::Log(_) | RecoveryError::Damaged(_) => "; nothing of it was changed",
        RecoveryError::State(_) | RecoveryError::TooNew(_) => "; nothing was changed",
        RecoveryError::Salvage(_) => "",
    }
}

/// A folder that this process has locked.
pub(crate) struct Folder {
    path: PathBuf,
    /// Held for as long as the server runs.
    _lock: FolderLock,
}

/// The contents of a folder.
pub(crate) type Recovered = recovery::Recovered<GlommioEnv, MachineFormat>;

impl Folder {
    /// Creates the folder if it is missing, and locks it.
    ///
    /// # Errors
    /// It cannot be made or written to, or another server has it.
    pub(crate) fn lock(path: &Path) -> Result<Self, FolderError> {
        let made = std::fs::create_dir_all(path).and_then(|()| path.canonicalize());
        let path = made.map_err(|source| unusable(path, source))?;
        let lock = FolderLock::take_patiently(&path).map_err(|error| match error {
            LockError::Io { folder, source } => unusable(&folder, source),
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
    ) -> Result<Recovered, FolderError> {
        let folder = || self.path.clone();
        let log = DmaStorage::open(&self.path).await;
        let log = log.map_err(|source| unusable(&self.path, source))?;
        let server_id = ServerId(config.id);
        let wanted = Wanted {
            application: FolderOf::Library,
            id: Some(server_id),
            voters: config.voters(),
            groups: 0,
        };
        let folders = Folders {
            snapshots: log.clone(),
            log,
            wanted: Some(&wanted),
            server_id,
            salt,
            segment_size_bytes: config.segment_size_bytes,
            write_mode: WriteMode::Adaptive,
            has_peers: config.has_voting_peers(),
        };
        let recovered = recovery::open(env, MachineFormat, folders).await;
        recovered.map_err(|error| match error {
            RecoveryError::Mismatch(mismatch) => FolderError::Identity { folder: folder(), mismatch },
            source => FolderError::Unusable { folder: folder(), source },
        })
    }
}

/// What a machine starts with.
#[derive(Debug, Default)]
pub(crate) struct MachineState {
    /// The position of the snapshot.
    pub(crate) snapshot: LogPosition,
    /// What the machine is to be set to; `None` if there is no snapshot.
    pub(crate) bytes: Option<Vec<u8>>,
    /// The log behind it, to be delivered once it is known to be committed.
    pub(crate) batches: Vec<Batch>,
}

/// States of a user's machine.
pub(crate) struct MachineFormat;

impl<S: Storage> StateFormat<S> for MachineFormat {
    type State = MachineState;

    fn version(&self) -> u32 {
        STATE_VERSION
    }

    fn empty(&self) -> MachineState {
        MachineState::default()
    }

    fn last_zxid(&self, state: &MachineState) -> Zxid {
        state.batches.last().map_or(state.snapshot.zxid, Batch::last)
    }

    async fn read(&self, reader: &mut SnapshotReader<S>) -> Result<MachineState, Unusable> {
        let head = *reader.head();
        let mut bytes = Vec::new();
        while let Some(block) = reader.next().await? {
            bytes.extend_from_slice(block);
        }
        let snapshot = LogPosition { zxid: head.zxid, checksum: head.chain };
        Ok(MachineState { snapshot, bytes: Some(bytes), batches: Vec::new() })
    }

    fn replay(&self, state: &mut MachineState, frame: &Frame<'_>) -> Result<u64, ReplayError> {
        let batch = Batch::from(frame);
        entry::read_payload(frame.payload(), batch.txns())?.for_each(drop);
        let txns = batch.txns();
        state.batches.push(batch);
        Ok(txns)
    }
}

#[cfg(test)]
mod tests {
    use glommio::LocalExecutor;
    use ringkeeper_host::restore::{RestoreError, Restored, restore};
    use ringkeeper_log::Identity;
    use ringkeeper_log::frame::Checksum;
    use ringkeeper_log::memory::{MemoryDisk, MemoryStorage};
    use ringkeeper_log::snapshot::{Contents, Head, SnapshotError, Snapshots};
    use ringkeeper_log::wal::{Options, Wal};

    use super::*;
    use crate::entry::{Entries, Entry};
    use ringkeeper_runtime::clock::Clock;

    const CLUSTER: u64 = 9;

    /// A log of one batch with this payload, and a snapshot that ends with it.
    async fn folder(payload: &[u8], head: Head) -> (Snapshots<MemoryStorage>, Wal<MemoryStorage>) {
        let disk = MemoryDisk::new();
        let options = Options::new(Identity { owner: [1; 32], salt: 7 });
        let (mut wal, _) = Wal::open(disk.storage(), options, |_| Ok(())).await.expect("an empty folder");
        let zxid = Zxid(1 << 32 | 1);
        let batch = Batch::of(zxid, zxid, Checksum::NONE, payload);
        wal.append(&[batch.bytes()]).await.expect("a healthy disk");
        let snapshots = Snapshots::new(disk.storage());
        let chain = if head.chain == Checksum::NONE { wal.last().checksum } else { head.chain };
        let mut writer = snapshots.begin(Head { zxid, chain, ..head }).await.expect("a healthy disk");
        writer.block(b"a state").await.expect("a healthy disk");
        writer.finish(Contents::default()).await.expect("a healthy disk");
        (snapshots, wal)
    }

    fn restored(payload: &[u8], head: Head) -> Result<Restored<MachineState>, RestoreError> {
        LocalExecutor::default().run(async {
            let (snapshots, wal) = folder(payload, head).await;
            restore(&GlommioEnv::new(Clock::start()), &MachineFormat, &snapshots, &wal, CLUSTER).await
        })
    }

    fn payload() -> Vec<u8> {
        let mut entries = Entries::default();
        entries.push(Entry { origin: 1, number: 1, proposal: b"a proposal" });
        entries.payload()
    }

    /// The newest snapshot was accepted as the machine's, whatever service, ensemble or history it came from.
    #[test]
    fn a_snapshot_of_another_service_ensemble_or_history_is_not_the_machines() {
        let zxid = Zxid::ZERO;
        let own = Head { zxid, chain: Checksum::NONE, cluster: CLUSTER, state_version: STATE_VERSION };
        let state = restored(&payload(), own).expect("sound").state;
        assert_eq!((state.bytes.as_deref(), state.batches.len()), (Some(&b"a state"[..]), 0));

        let state = restored(&payload(), Head { state_version: 1, ..own }).expect("passed over").state;
        assert_eq!((state.bytes, state.batches.len()), (None, 1), "the log takes its place");
        let ensemble = restored(&payload(), Head { cluster: CLUSTER + 1, ..own });
        assert!(matches!(ensemble, Err(RestoreError::Snapshot(SnapshotError::Foreign { .. }))));
        let history = restored(&payload(), Head { chain: Checksum(77), ..own });
        assert!(matches!(history, Err(RestoreError::Foreign { .. })));
        let log = restored(b"of something else", Head { state_version: 1, ..own });
        assert!(matches!(log, Err(RestoreError::Replay(_))), "a log of another service");
    }
}
