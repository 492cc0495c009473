//! Taking snapshots of the machine's state.

use std::rc::Rc;

use ringkeeper_engine::zab::LogPosition;
use ringkeeper_log::snapshot::{Contents, Head, SnapshotError, Snapshots};
use ringkeeper_runtime::dma::DmaStorage;
use ringkeeper_wire::Zxid;

/// Bytes of one block of a snapshot's file.
const BLOCK_BYTES: usize = 256 << 10;

/// Snapshots that are kept: the newest, and one to fall back on.
const KEPT: usize = 2;

/// Version of what the blocks hold: this library's, apart from the server's own snapshots.
pub(crate) const STATE_VERSION: u32 = 0x4250_0001;

/// What the host does for those that carry snapshots.
pub(crate) trait SnapshotHost: 'static {
    /// The snapshots of the folder.
    fn snapshots(&self) -> &Snapshots<DmaStorage>;

    /// A snapshot is durable, and the oldest that is kept; or none was written.
    fn snapshot_ended(&self, taken: Option<(Zxid, Zxid)>);
}

/// Writes a snapshot beside everything else.
pub(crate) fn take(host: &Rc<impl SnapshotHost>, last: LogPosition, cluster: u64, state: Vec<u8>) {
    let host = Rc::clone(host);
    glommio::spawn_local(async move {
        let taken = match write(host.snapshots(), last, cluster, &state).await {
            Ok(oldest) => {
                tracing::info!(zxid = %last.zxid, bytes = state.len(), "snapshot taken");
                Some((last.zxid, oldest))
            }
            Err(error) => {
                tracing::error!(zxid = %last.zxid, %error, "no snapshot: the log is kept");
                None
            }
        };
        host.snapshot_ended(taken);
    })
    .detach();
}

/// Writes a snapshot; the oldest one that is kept now.
async fn write(
    snapshots: &Snapshots<DmaStorage>,
    last: LogPosition,
    cluster: u64,
    state: &[u8],
) -> Result<Zxid, SnapshotError> {
    let chain = last.checksum;
    let head = Head { zxid: last.zxid, chain, cluster, state_version: STATE_VERSION };
    let mut writer = snapshots.begin(head).await?;
    for block in state.chunks(BLOCK_BYTES) {
        if let Err(error) = writer.block(block).await {
            writer.abandon().await;
            return Err(error);
        }
        glommio::yield_if_needed().await;
    }
    writer.finish(Contents { items: state.len() as u64, digest: 0 }).await?;
    Ok(snapshots.retain(KEPT).await?.unwrap_or(last.zxid))
}
