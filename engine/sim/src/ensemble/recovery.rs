//! Recovery of a simulated server.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use ringkeeper_engine::snapshot::{DecodeError, Decoder, STATE_VERSION};
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn;
use ringkeeper_engine::zab::Batch;
use ringkeeper_host::identity::{Mismatch, Wanted};
use ringkeeper_host::recovery as host;
use ringkeeper_host::restore::{StateFormat, Unusable};
use ringkeeper_log::error::ReplayError;
use ringkeeper_log::frame::Frame;
use ringkeeper_log::memory::MemoryStorage;
use ringkeeper_log::meta::MetaStore;
use ringkeeper_log::snapshot::{SnapshotReader, Snapshots};
use ringkeeper_log::storage::WriteMode;
use ringkeeper_log::wal::Options;
use ringkeeper_wire::{ServerId, Zxid};

use super::slips::Unchecked;

use crate::env::{SimEnv, SimListener};

/// What recovery found.
pub(crate) struct Recovered {
    pub(crate) host: host::Recovered<SimEnv, TreeFormat>,
    /// All of the log.
    pub(crate) batches: Vec<Batch>,
    /// The port for other servers, unless the server is started without them.
    pub(crate) listener: Option<SimListener>,
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
    pub(super) wanted: Wanted,
    /// The refusal that is left out.
    pub(super) unchecked: Option<Unchecked>,
    pub(crate) write_mode: WriteMode,
    pub(crate) segment_size_bytes: u64,
    pub(crate) has_peers: bool,
    pub(crate) seed: u64,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stopped {
    #[error(transparent)]
    Refused(Mismatch),
    #[error("{0}")]
    Failed(String),
}

/// Runs a future on a disk that delays nothing; `None` if the power fails meanwhile.
pub(super) fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// Recovers a machine's disk, on that machine.
pub(crate) async fn recover(
    env: SimEnv,
    listener: Option<SimListener>,
    how: How,
) -> Result<Recovered, Stopped> {
    let storage = env.storage();
    let found = MetaStore::peek(&storage).await.map_err(failed)?;
    if let Err(mismatch) = how.wanted.check(found.as_ref())
        && !how.unchecked.is_some_and(|unchecked| unchecked.lets_pass(&mismatch))
    {
        return Err(Stopped::Refused(mismatch));
    }
    // The folder's own, even if it passed unchecked.
    let server = found.map_or(how.server, |meta| meta.server_id);
    let mut meta = MetaStore::open(storage.clone(), server, how.seed).await.map_err(failed)?;
    how.wanted.record(&mut meta).await.map_err(failed)?;
    let options = Options {
        segment_size_bytes: how.segment_size_bytes,
        write_mode: how.write_mode,
        ..Options::new(meta.meta().identity())
    };
    let snapshots = Snapshots::new(storage.clone());
    let format = TreeFormat { seed: how.seed };
    let host = host::recover(env, format, storage, snapshots, meta, &options, how.has_peers).await;
    let host = host.map_err(failed)?;
    let wal = &host.log.wal;
    let mut batches = Vec::new();
    if wal.last().zxid > wal.base().zxid {
        let mut reader = wal.read_from(Zxid(wal.base().zxid.0 + 1)).map_err(failed)?;
        while let Some(frame) = reader.next().await.map_err(failed)? {
            batches.push(Batch::from(&frame));
        }
    }
    Ok(Recovered { host, batches, listener })
}

fn failed(error: impl std::fmt::Display) -> Stopped {
    Stopped::Failed(error.to_string())
}
