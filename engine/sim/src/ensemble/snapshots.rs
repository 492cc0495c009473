//! Snapshots of a simulated server: taken, and read at a start, as in `net/src/server/snapshots/take.rs` and
//! `net/src/server/replay.rs`.

use std::rc::Rc;
use std::sync::Arc;

use ringkeeper_engine::snapshot::{Decoder, Encoder, STATE_VERSION};
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn;
use ringkeeper_engine::zab::{Input, LogPosition};
use ringkeeper_frame::{AlignedBuf, Checksum};
use ringkeeper_host::log_task::{Command, LogQueue};
use ringkeeper_host::transfer::TransferHost;
use ringkeeper_log::memory::MemoryStorage;
use ringkeeper_log::snapshot::{Contents, Head, SnapshotError, Snapshots, file_name};
use ringkeeper_log::wal::Wal;
use ringkeeper_wire::Zxid;

use super::core::Core;

/// Why there is no state.
#[derive(Debug)]
pub(crate) enum RestoreError {
    /// No sound snapshot reaches as far as where the log begins.
    Gap,
    /// Anything else.
    Failed(String),
}

impl From<RestoreError> for String {
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::Gap => "no sound snapshot reaches as far as where the log begins".to_owned(),
            RestoreError::Failed(reason) => reason,
        }
    }
}

fn failed(error: impl std::fmt::Display) -> RestoreError {
    RestoreError::Failed(error.to_string())
}

/// The state after all of the log, and the snapshot that it rests on: the newest sound one. Damaged ones are removed.
pub(crate) async fn restore(
    snapshots: &Snapshots<MemoryStorage>,
    wal: &Wal<MemoryStorage>,
    seed: u64,
) -> Result<(State, Zxid), RestoreError> {
    let (mut found, mut damaged) = (None, Vec::new());
    let base = wal.base().zxid;
    for zxid in snapshots.list().await.map_err(failed)?.into_iter().filter(|zxid| *zxid >= base) {
        match load(snapshots, zxid).await {
            Ok((state, chain)) => {
                let place = wal.find(zxid).await.map_err(failed)?;
                if zxid > wal.last().zxid || place.is_none_or(|place| place.checksum != chain) {
                    return Err(failed(format!("{} is not of the log's history", file_name(zxid))));
                }
                found = Some(state);
                break;
            }
            Err(error) if error.is_damage() => damaged.push(zxid),
            Err(error) => return Err(failed(error)),
        }
    }
    let mut state = match found {
        Some(state) => state,
        None if base == Zxid::ZERO => State::new(seed),
        None => return Err(RestoreError::Gap),
    };
    let snapshot = state.last_zxid();
    if wal.last().zxid > snapshot {
        let mut reader = wal.read_from(Zxid(snapshot.0 + 1)).map_err(failed)?;
        while let Some(frame) = reader.next().await.map_err(failed)? {
            for txn in txn::decode_batch(frame.payload()).map_err(failed)? {
                state.apply(&txn);
            }
        }
    }
    for zxid in damaged {
        snapshots.remove(zxid).await.map_err(failed)?;
    }
    Ok((state, snapshot))
}

async fn load(snapshots: &Snapshots<MemoryStorage>, zxid: Zxid) -> Result<(State, Checksum), SnapshotError> {
    let mut reader = snapshots.open(zxid).await?;
    let mut decoder = Decoder::new();
    while let Some(payload) = reader.next().await? {
        decoder.block(payload).expect("a block with its checksum is what was written");
    }
    let state = decoder.finish().expect("all blocks are there");
    Ok((state, reader.head().chain))
}

/// Writes a snapshot of this state beside everything else; whether there was none yet.
pub(crate) async fn take(
    snapshots: &Snapshots<MemoryStorage>,
    core: &Core,
    log: &Rc<LogQueue<State>>,
    (state, mark): (Arc<State>, LogPosition),
    kept: usize,
) -> Result<bool, SnapshotError> {
    let zxid = mark.zxid;
    if snapshots.list().await?.first() == Some(&zxid) {
        return Ok(false);
    }
    let head = Head { zxid, chain: mark.checksum, cluster: core.cluster(), state_version: STATE_VERSION };
    let mut encoder = Encoder::new(state);
    let contents = encoder.contents();
    let contents = Contents { items: contents.znodes, digest: contents.digest };
    let mut writer = snapshots.begin(head).await?;
    let mut block = AlignedBuf::new();
    while encoder.next(&mut block) {
        if let Err(error) = writer.block(&block).await {
            writer.abandon().await;
            return Err(error);
        }
    }
    writer.finish(contents).await?;
    core.input(Input::SnapshotTaken { zxid });
    if let Some(oldest) = snapshots.retain(kept).await? {
        let upto = core.sending.oldest().map_or(oldest, |sent| sent.min(oldest));
        log.push(Command::Purge { upto });
    }
    Ok(true)
}
