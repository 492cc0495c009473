//! Recovery of a simulated server.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use ringkeeper_engine::level::Level;
use ringkeeper_engine::snapshot::{DecodeError, Decoder, STATE_VERSION};
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn;
use ringkeeper_engine::zab::Batch;
use ringkeeper_host::identity::{Mismatch, Wanted};
use ringkeeper_host::links::Port;
use ringkeeper_host::recovery::{self as host, RecoveryError};
use ringkeeper_host::restore::{StateFormat, Unusable};
use ringkeeper_log::error::ReplayError;
use ringkeeper_log::frame::Frame;
use ringkeeper_log::memory::MemoryStorage;
use ringkeeper_log::snapshot::SnapshotReader;
use ringkeeper_log::storage::WriteMode;
use ringkeeper_wire::{ServerId, Zxid};

use crate::env::{SimEnv, SimListener};

/// What recovery found.
pub(crate) struct Recovered {
    pub(crate) host: host::Recovered<SimEnv, TreeFormat>,
    /// All of the log.
    pub(crate) batches: Vec<Batch>,
    /// The port for other servers, unless the server is started without them.
    pub(crate) port: Option<Port<SimListener>>,
}

/// Trees of znodes as the state of a server.
pub(crate) struct TreeFormat {
    seed: u64,
    newest: Level,
}

impl StateFormat<MemoryStorage> for TreeFormat {
    type State = State;

    fn version(&self) -> u32 {
        STATE_VERSION
    }

    fn empty(&self) -> State {
        State::new(self.seed)
    }

    fn check(&self, state: &State) -> Result<(), String> {
        state.feature_level().check(self.newest).map_err(|error| error.to_string())
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
    pub(crate) write_mode: WriteMode,
    pub(crate) segment_size_bytes: u64,
    pub(crate) has_peers: bool,
    pub(crate) seed: u64,
    /// The newest feature level that the server can do.
    pub(crate) newest: Level,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stopped {
    #[error(transparent)]
    Refused(Mismatch),
    #[error("{0}")]
    TooNew(String),
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
    port: Option<Port<SimListener>>,
    how: How,
) -> Result<Recovered, Stopped> {
    let storage = env.storage();
    let folders = host::Folders {
        log: storage.clone(),
        snapshots: storage,
        wanted: Some(&how.wanted),
        server_id: how.server,
        salt: how.seed,
        segment_size_bytes: how.segment_size_bytes,
        write_mode: how.write_mode,
        has_peers: how.has_peers,
    };
    let opened = host::open(env, TreeFormat { seed: how.seed, newest: how.newest }, folders).await;
    let host = opened.map_err(|error| match error {
        RecoveryError::Mismatch(mismatch) => Stopped::Refused(mismatch),
        RecoveryError::TooNew(reason) => Stopped::TooNew(reason),
        error => failed(error),
    })?;
    let wal = &host.log.wal;
    let mut batches = Vec::new();
    if wal.last().zxid > wal.base().zxid {
        let mut reader = wal.read_from(Zxid(wal.base().zxid.0 + 1)).map_err(failed)?;
        while let Some(frame) = reader.next().await.map_err(failed)? {
            batches.push(Batch::from(&frame));
        }
    }
    Ok(Recovered { host, batches, port })
}

fn failed(error: impl std::fmt::Display) -> Stopped {
    Stopped::Failed(error.to_string())
}
