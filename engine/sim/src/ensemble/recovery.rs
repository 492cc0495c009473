//! How a start turns a server's folder back into a state, as `net/src/server/recovery.rs` does.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use ringkeeper_engine::snapshot::{DecodeError, Decoder, STATE_VERSION};
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn;
use ringkeeper_engine::zab::{Batch, Durable, Epochs, LogSummary, ServerSet};
use ringkeeper_host::log_task::LogTask;
use ringkeeper_host::restore::{StateFormat, Unusable};
use ringkeeper_log::error::ReplayError;
use ringkeeper_log::frame::Frame;
use ringkeeper_log::memory::{MemoryDisk, MemoryStorage};
use ringkeeper_log::meta::MetaStore;
use ringkeeper_log::reserve::Reserve;
use ringkeeper_log::salvage;
use ringkeeper_log::snapshot::{SnapshotReader, Snapshots};
use ringkeeper_log::storage::WriteMode;
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_wire::{ServerId, Zxid};

use super::snapshots::{RestoreError, restore};
use crate::env::SimEnv;

/// What recovery found.
pub(crate) struct Recovered {
    pub(crate) log: LogTask<SimEnv, TreeFormat>,
    pub(crate) state: State,
    pub(crate) durable: Durable,
    pub(crate) batches: Vec<Batch>,
}

/// Trees of znodes as the state of a server.
pub(crate) struct TreeFormat {
    seed: u64,
}

impl StateFormat<MemoryStorage> for TreeFormat {
    type State = State;

    fn version(&self) -> u32 {
        STATE_VERSION
    }

    fn empty(&self) -> State {
        State::new(self.seed)
    }

    fn last_zxid(&self, state: &State) -> Zxid {
        state.last_zxid()
    }

    async fn read(&self, reader: &mut SnapshotReader<MemoryStorage>) -> Result<State, Unusable> {
        let file = reader.name().to_owned();
        let contents =
            |error: DecodeError| Unusable::Contents { file: file.clone(), reason: error.to_string() };
        let mut decoder = Decoder::new();
        while let Some(payload) = reader.next().await? {
            decoder.block(payload).map_err(contents)?;
        }
        decoder.finish().map_err(contents)
    }

    fn replay(&self, state: &mut State, batch: &Frame<'_>) -> Result<u64, ReplayError> {
        let batch = txn::decode_batch(batch.payload())?;
        state.replay(&batch);
        Ok(batch.len() as u64)
    }
}

/// How a log is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) server: ServerId,
    pub(crate) write_mode: WriteMode,
    pub(crate) segment_size_bytes: u64,
    pub(crate) has_peers: bool,
    pub(crate) seed: u64,
}

/// A future on a disk that holds nothing back; `None` if the power fails meanwhile.
pub(super) fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// Recovers what the disk of a machine holds; `None` if the power fails in the middle of it.
pub(crate) fn recover(disk: &MemoryDisk, env: SimEnv, how: How) -> Result<Option<Recovered>, String> {
    disk.hold(false);
    let opened = at_once(open(env, how)).transpose()?;
    disk.hold(true);
    Ok(opened)
}

async fn open(env: SimEnv, how: How) -> Result<Recovered, String> {
    let storage = env.storage();
    let meta = MetaStore::open(storage.clone(), how.server, how.seed).await;
    let mut meta = meta.map_err(|error| error.to_string())?;
    let options = Options {
        segment_size_bytes: how.segment_size_bytes,
        write_mode: how.write_mode,
        ..Options::new(meta.meta().identity())
    };
    let snapshots = Snapshots::new(storage.clone());
    if salvage::is_gone(&storage, &meta).await.map_err(|error| error.to_string())? {
        let begun = salvage::begin_without(&snapshots, &mut meta).await;
        begun.map_err(|error| error.to_string())?;
    }
    if let Err(error) = Wal::open(storage.clone(), options.clone(), |_| Ok(())).await
        && error.is_damage()
    {
        let repair = salvage::repair(&storage, &options, &snapshots, &mut meta).await;
        repair.map_err(|error| error.to_string())?;
    }
    let mut batches = Vec::new();
    let opened = Wal::open(storage.clone(), options, |frame| {
        batches.extend(std::iter::once(Batch::from(frame)));
        Ok(())
    });
    let (mut wal, _) = opened.await.map_err(|error| error.to_string())?;
    snapshots.settle(wal.base()).await.map_err(|error| error.to_string())?;
    let (state, snapshot) = match restore(&snapshots, &wal, how.seed).await {
        Err(RestoreError::Gap) if how.has_peers => {
            let begun = salvage::begin_anew(&mut wal, &snapshots, &mut meta).await;
            begun.map_err(|error| error.to_string())?;
            batches.clear();
            restore(&snapshots, &wal, how.seed).await?
        }
        restored => restored?,
    };
    let reserve = Reserve::open(storage.clone()).await.map_err(|error| error.to_string())?;
    let mut summary = LogSummary::new(wal.base(), snapshot);
    batches.iter().for_each(|batch| summary.push(batch.end()));
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
    let format = TreeFormat { seed: how.seed };
    let log = LogTask { env, wal, snapshots, storage, reserve, meta, format };
    Ok(Recovered { log, state, durable: Durable { epochs, log: summary }, batches })
}
