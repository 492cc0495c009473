//! The state format of the server: the tree of znodes, read from snapshots and replayed from the log.

use std::time::{Duration, Instant};

use ringkeeper_engine::level::Level;
use ringkeeper_engine::snapshot::{DecodeError, Decoder, STATE_VERSION};
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn;
use ringkeeper_host::restore::{self, StateFormat, Unusable};
use ringkeeper_log::error::ReplayError;
use ringkeeper_log::frame::{AlignedBuf, Frame};
use ringkeeper_log::snapshot::{Head, SnapshotError, SnapshotReader, Snapshots};
use ringkeeper_log::storage::Storage;
use ringkeeper_log::wal::Wal;
use ringkeeper_wire::Zxid;

use super::block_readers::{BlockReaders, Unreadable};
use super::clock::Clock;
use super::reactor;
use super::reactor::env::ReactorEnv;

pub(crate) use ringkeeper_host::restore::RestoreError;

/// How often progress is logged.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// The tree of znodes as the application's state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TreeFormat {
    /// Seed of a tree that begins empty.
    pub(crate) seed: u64,
}

impl<S: Storage> StateFormat<S> for TreeFormat {
    type State = State;

    fn version(&self) -> u32 {
        STATE_VERSION
    }

    fn empty(&self) -> State {
        State::new(self.seed)
    }

    fn check(&self, state: &State) -> Result<(), String> {
        state.feature_level().check(Level::NEWEST).map_err(|error| error.to_string())
    }

    fn last_zxid(&self, state: &State) -> Zxid {
        state.last_zxid()
    }

    async fn read(&self, reader: &mut SnapshotReader<S>) -> Result<State, Unusable> {
        decode(reader).await
    }

    fn replay(&self, state: &mut State, batch: &Frame<'_>) -> Result<u64, ReplayError> {
        let batch = txn::decode_batch(batch.payload())?;
        state.replay(&batch);
        Ok(batch.len() as u64)
    }
}

/// The state that a start would restore; nothing is changed.
///
/// # Errors
/// As [`restore::restore`].
pub(crate) async fn read_state<S: Storage>(
    snapshots: &Snapshots<S>,
    wal: &Wal<S>,
) -> Result<State, RestoreError> {
    let env = ReactorEnv::new(Clock::start());
    Ok(restore::read(&env, &TreeFormat::default(), snapshots, wal, 0).await?.0.state)
}

/// Reads all of one snapshot: its state, or why it cannot be used.
///
/// # Errors
/// The medium fails.
pub(crate) async fn check_snapshot<S: Storage>(
    snapshots: &Snapshots<S>,
    zxid: Zxid,
) -> Result<Result<(State, Head), String>, SnapshotError> {
    match restore::read_snapshot(&TreeFormat::default(), snapshots, zxid, 0).await {
        Ok(read) => Ok(Ok(read)),
        Err(Unusable::File(error)) if !error.is_damage() => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// Reads the blocks of a snapshot on all cores.
async fn decode<S: Storage>(reader: &mut SnapshotReader<S>) -> Result<State, Unusable> {
    let file = reader.name().to_owned();
    let (blocks, bytes) = (reader.blocks(), reader.len());
    let unusable = |error: DecodeError| Unusable::Contents { file: file.clone(), reason: error.to_string() };
    let started = Instant::now();
    let mut told = started;
    let mut decoder = Decoder::new();
    // The first blocks, to which all others refer, are few and are decoded here.
    while decoder.reader().is_none()
        && let Some(payload) = reader.next().await?
    {
        decoder.block(payload).map_err(unusable)?;
        reactor::yield_if_needed().await;
    }
    if let Some(rows) = decoder.reader() {
        let mut block_readers = BlockReaders::start(&rows);
        let mut memory = AlignedBuf::new();
        let mut next = reader.position();
        loop {
            while block_readers.has_room()
                && let Some(block) = reader.next_block(std::mem::take(&mut memory)).await?
            {
                block_readers.read(block);
            }
            if next == reader.position() {
                break;
            }
            let read = block_readers.take(next).await;
            memory = read.memory;
            let rows = read.rows.map_err(|error| match error {
                Unreadable::Damaged(error) => error.into(),
                Unreadable::Malformed(error) => unusable(error),
            })?;
            decoder.take(rows).map_err(unusable)?;
            next += 1;
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                tracing::info!(file, block = next, blocks, "reading a snapshot");
            }
            // A follower has to answer its leader meanwhile.
            reactor::yield_if_needed().await;
        }
    }
    let state = decoder.finish().map_err(unusable)?;
    let took_ms = started.elapsed().as_millis();
    tracing::info!(file, bytes, znodes = state.tree().len(), took_ms, "snapshot read");
    Ok(state)
}

#[cfg(test)]
mod tests;
