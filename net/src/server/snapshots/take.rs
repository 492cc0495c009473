//! Taking a snapshot beside the running service.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ringkeeper_engine::snapshot::{Encoder, STATE_VERSION};
use ringkeeper_engine::state::State;
use ringkeeper_engine::zab::Input;
use ringkeeper_host::transfer::TransferHost;
use ringkeeper_log::snapshot::{Contents, Head, SnapshotError, SnapshotWriter, Snapshots};
use ringkeeper_log::storage::Storage;
use ringkeeper_wire::Zxid;
use rkyv::util::AlignedVec;

use super::Trigger;
use crate::server::core_host::CoreHost;
use crate::server::log_task::{Command, LogQueue};

/// After which a snapshot that could not be taken is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// How often it is looked whether the end of the log is committed.
const SETTLED_EVERY: Duration = Duration::from_millis(20);

/// Takes snapshots whenever one is due, for as long as the server runs. `random` gives a number each time.
pub(crate) async fn take_snapshots<S: Storage>(
    snapshots: Snapshots<S>,
    trigger: Rc<Trigger>,
    core: Rc<CoreHost>,
    log: Rc<LogQueue<State>>,
    random: impl Fn() -> u64,
) {
    loop {
        trigger.wait().await;
        // If it cannot be told, whoever takes one meets the same error and says so.
        if trigger.waits_for_log(snapshots.newest_len().await.unwrap_or(0)) {
            continue;
        }
        trigger.begin(random());
        while let Err(error) = take(&snapshots, &trigger, &core, &log).await {
            if error.is_fatal() {
                return core.fail(error.to_string());
            }
            tracing::error!(%error, "no snapshot was taken; the log keeps everything until one is");
            glommio::timer::sleep(AGAIN_AFTER).await;
        }
    }
}

/// Takes one of what is committed now, and lets go of what it makes superfluous. Its zxid.
async fn take<S: Storage>(
    snapshots: &Snapshots<S>,
    trigger: &Trigger,
    core: &CoreHost,
    log: &LogQueue<State>,
) -> Result<Zxid, SnapshotError> {
    let commanded = trigger.take_command();
    let (state, mark) = loop {
        match core.with_node(|node| node.snapshot()) {
            Some(snapshot) => break snapshot,
            None => glommio::timer::sleep(SETTLED_EVERY).await,
        }
    };
    let zxid = mark.zxid;
    // Who waits for one by command waits for a new file.
    if !commanded && snapshots.list().await?.first() == Some(&zxid) {
        return Ok(zxid);
    }
    let started = Instant::now();
    let head = Head {
        zxid,
        chain: mark.checksum,
        cluster: core.with_node(|node| node.zab().durable_epochs().cluster),
        state_version: STATE_VERSION,
    };
    let encoder = Encoder::new(state);
    let contents = encoder.contents();
    let contents = Contents { items: contents.znodes, digest: contents.digest };
    let mut writer = match trigger.policy().compressed {
        true => snapshots.begin_compressed(head).await?,
        false => snapshots.begin(head).await?,
    };
    if let Err(error) = write(&mut writer, encoder, trigger.policy().bytes_per_second).await {
        writer.abandon().await;
        return Err(error);
    }
    let bytes = writer.finish(contents).await?;
    let took = started.elapsed();
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    trigger.note(zxid, bytes, took_ms);
    tracing::info!(%zxid, bytes, znodes = contents.items, took_ms, "snapshot taken");
    core.input(Input::SnapshotTaken { zxid });
    if let Some(oldest) = snapshots.retain(trigger.policy().kept).await? {
        let sent = core.sending().oldest().unwrap_or(oldest);
        log.push(Command::Purge { upto: oldest.min(sent) });
    }
    Ok(zxid)
}

/// Writes block by block, and rests after each one for as long as the rate asks: that is also when everybody
/// else has their turn.
async fn write<S: Storage>(
    writer: &mut SnapshotWriter<S>,
    mut encoder: Encoder,
    bytes_per_second: u64,
) -> Result<(), SnapshotError> {
    let mut block = AlignedVec::new();
    while encoder.next(&mut block) {
        let began = Instant::now();
        // Encoding was the longest piece of work without a pause.
        glommio::executor().yield_task_queue_now().await;
        writer.block(&block).await?;
        let due = Duration::from_nanos(block.len() as u64 * 1_000_000_000 / bytes_per_second.max(1));
        glommio::timer::sleep(due.saturating_sub(began.elapsed())).await;
    }
    Ok(())
}
