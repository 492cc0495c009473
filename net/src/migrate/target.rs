//! The folder of a server to be: a state, and an empty log that goes on after it.

use std::path::Path;
use std::sync::Arc;

use ringkeeper_engine::snapshot::{Encoder, STATE_VERSION};
use ringkeeper_engine::state::State;
use ringkeeper_log::frame::Checksum;
use ringkeeper_log::meta::{MetaStore, PersistedEpochs};
use ringkeeper_log::snapshot::{Contents, Head, SnapshotError, Snapshots};
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_runtime::reactor::storage::RingStorage;
use ringkeeper_wire::{Epoch, ServerId};
use rkyv::util::AlignedVec;

use super::MigrateError;

/// The folders of the server to be.
pub(super) struct Target<'a> {
    pub(super) data: &'a Path,
    pub(super) log: &'a Path,
    pub(super) server_id: u64,
    pub(super) salt: u64,
}

/// What members have to agree in, besides the state.
#[derive(Clone, Copy)]
pub(super) struct History {
    /// Number of the ensemble.
    pub(super) cluster: u64,
    /// Stands for the checksum of the frame before the first one.
    pub(super) chain: Checksum,
    pub(super) accepted: Epoch,
    pub(super) current: Epoch,
}

impl Target<'_> {
    /// Writes a snapshot and an empty log that goes on after it.
    pub(super) async fn write(&self, state: &Arc<State>, history: History) -> Result<(), MigrateError> {
        let (zxid, History { cluster, chain, .. }) = (state.last_zxid(), history);
        let log = open(self.log).await?;
        let data = if self.data == self.log { log.clone() } else { open(self.data).await? };

        let failed = |source| MigrateError::Meta { folder: self.log.to_owned(), source };
        let mut meta =
            MetaStore::open(log.clone(), ServerId(self.server_id), self.salt).await.map_err(failed)?;
        let options = Options::new(meta.meta().identity());
        let (mut wal, _) = Wal::open(log, options, |_| Ok(()))
            .await
            .map_err(|source| MigrateError::Log { folder: self.log.to_owned(), source })?;
        wal.reset(zxid, chain)
            .await
            .map_err(|source| MigrateError::Reset { folder: self.log.to_owned(), source })?;

        let head = Head { zxid, chain, cluster, state_version: STATE_VERSION };
        write_snapshot(&Snapshots::new(data), head, state)
            .await
            .map_err(|source| MigrateError::Snapshot { folder: self.data.to_owned(), source })?;

        let promises = PersistedEpochs {
            cluster,
            accepted_epoch: history.accepted,
            current_epoch: history.current,
            initialized: true,
            ..PersistedEpochs::default()
        };
        let failed = |source| MigrateError::Reset { folder: self.log.to_owned(), source };
        meta.promise(promises).await.map_err(|error| failed(error.into()))
    }
}

async fn write_snapshot(
    snapshots: &Snapshots<RingStorage>,
    head: Head,
    state: &Arc<State>,
) -> Result<(), SnapshotError> {
    let mut encoder = Encoder::new(Arc::clone(state));
    let contents = encoder.contents();
    let mut writer = snapshots.begin(head).await?;
    let mut block = AlignedVec::new();
    while encoder.next(&mut block) {
        writer.block(&block).await?;
    }
    let contents = Contents { items: contents.znodes, digest: contents.digest };
    writer.finish(contents).await.map(drop)
}

async fn open(folder: &Path) -> Result<RingStorage, MigrateError> {
    let opened = RingStorage::open(folder).await;
    opened.map_err(|source| MigrateError::Target { folder: folder.to_owned(), source })
}
