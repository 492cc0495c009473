//! Takes a snapshot while the service goes on.

use std::rc::Rc;
use std::time::Duration;

use ringkeeper_engine::zab::Input;
use ringkeeper_log::frame::AlignedBuf;
use ringkeeper_log::snapshot::{Head, PackedBlock, Packer, SnapshotError, SnapshotWriter, Snapshots};
use ringkeeper_log::storage::Storage;

use super::Image;
use crate::env::Env;
use crate::log_task::Command;
use crate::pump::{Frontend, Pump};

/// Pause before a failed snapshot is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Pause before a state is to be held again, if there was none.
const HOLD_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Takes a snapshot whenever one is due, for as long as the server runs.
pub(crate) async fn take_snapshots<E: Env, F: Frontend>(
    pump: Rc<Pump<E, F>>,
    snapshots: Snapshots<E::Storage>,
) {
    let (env, trigger) = (pump.env(), pump.trigger());
    loop {
        trigger.wait().await;
        // If the length cannot be read, taking the snapshot meets the same error and reports it.
        if trigger.waits_for_log(snapshots.newest_len().await.unwrap_or(0)) {
            continue;
        }
        trigger.begin(env.random());
        while let Err(error) = take(&pump, &snapshots).await {
            if error.is_fatal() {
                return pump.fail(error.to_string());
            }
            tracing::error!(
                code = "RK0408",
                %error,
                "no snapshot was taken; the log keeps everything until one is"
            );
            env.sleep(AGAIN_AFTER).await;
        }
    }
}

/// Takes a snapshot of the committed state, then removes old snapshots and purges the log.
async fn take<E: Env, F: Frontend>(
    pump: &Pump<E, F>,
    snapshots: &Snapshots<E::Storage>,
) -> Result<(), SnapshotError> {
    let (env, trigger) = (pump.env(), pump.trigger());
    let policy = trigger.policy();
    let commanded = trigger.take_command();
    let (cluster, image, position) = loop {
        // A new learner may apply transactions before its ensemble's number is durable. A snapshot without
        // that number would be taken for a foreign one by the next start.
        let cluster = pump.cluster();
        if cluster != 0
            && let Some((image, position)) = pump.hold().await
        {
            break (cluster, image, position);
        }
        env.sleep(HOLD_AGAIN_AFTER).await;
    };
    let zxid = position.zxid;
    // An operator who asks for a snapshot expects a new file.
    if !commanded && snapshots.list().await?.first() == Some(&zxid) {
        return Ok(());
    }
    let started = env.elapsed();
    let head = Head { zxid, chain: position.checksum, cluster, state_version: Pump::<E, F>::STATE_VERSION };
    let contents = image.contents();
    let mut writer = match policy.compressed {
        true => snapshots.begin_compressed(head).await?,
        false => snapshots.begin(head).await?,
    };
    if let Err(error) = write(env, &mut writer, image, policy.bytes_per_second).await {
        writer.abandon().await;
        return Err(error);
    }
    let bytes = writer.finish(contents).await?;
    let took = env.elapsed().saturating_sub(started);
    trigger.note(zxid, bytes, took);
    tracing::info!(%zxid, bytes, items = contents.items, took_ms = took.as_millis(), "snapshot taken");
    pump.input(Input::SnapshotTaken { zxid });
    if let Some(oldest) = snapshots.retain(policy.kept).await? {
        let sent = pump.sending().oldest().unwrap_or(oldest);
        pump.log().push(Command::Purge { upto: oldest.min(sent) });
    }
    Ok(())
}

/// Writes block by block, and sleeps after each for as long as the rate demands, which lets other tasks run.
async fn write<S: Storage>(
    env: &impl Env,
    writer: &mut SnapshotWriter<S>,
    image: impl Image,
    bytes_per_second: u64,
) -> Result<(), SnapshotError> {
    let (payload, packed) = (AlignedBuf::new(), PackedBlock::default());
    let mut blocks = Blocks { image, packer: writer.packer(), payload, packed };
    loop {
        // What is not needed any more is dropped there, too: with a big tree that is long work.
        let Some(next) = env.aside(move || blocks.next()).await? else { return Ok(()) };
        blocks = next;
        let began = env.elapsed();
        env.yield_now().await;
        if let Err(error) = writer.append(&blocks.packed).await {
            env.aside(move || drop(blocks)).await;
            return Err(error);
        }
        let due = Duration::from_nanos(blocks.payload.len() as u64 * 1_000_000_000 / bytes_per_second.max(1));
        env.sleep(due.saturating_sub(env.elapsed().saturating_sub(began))).await;
    }
}

/// The blocks of an image, of which one is held.
struct Blocks<I> {
    image: I,
    packer: Packer,
    /// The payload of the block.
    payload: AlignedBuf,
    packed: PackedBlock,
}

impl<I: Image> Blocks<I> {
    /// Holds the next one, if there is one.
    fn next(mut self) -> Result<Option<Self>, SnapshotError> {
        if !self.image.next(&mut self.payload) {
            return Ok(None);
        }
        self.packer.pack(&self.payload, &mut self.packed)?;
        Ok(Some(self))
    }
}
