//! Snapshots on their way: to the disk, to a learner, from a leader.
//!
//! ```text
//! leader                                             learner
//! newest file ─ chunk ─▶ ... at most WINDOW ... ─▶ install.part ─ whole, verified ─▶ log begins anew ─▶ set_state
//!        ◀──────── Taken, after each chunk ───────
//! ```
//!
//! The bytes on the link are the file's own. No more of them are under way than the learner's disk keeps up with.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringkeeper_engine::zab::LogPosition;
use ringkeeper_log::dma::DmaStorage;
use ringkeeper_log::snapshot::{Contents, Head, Incoming, SnapshotError, Snapshots};
use ringkeeper_wire::{ServerId, Zxid};

use crate::message::Chunk;
use ringkeeper_host::wake::WakeFlag;

/// Bytes sent to a learner and not taken there.
const WINDOW_BYTES: u64 = 4 << 20;

/// Bytes of one block of a snapshot's file.
const BLOCK_BYTES: usize = 256 << 10;

/// Snapshots that are kept: the newest, and one to fall back on.
const KEPT: usize = 2;

/// How long a failed installation waits before the leader is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Version of what the blocks hold: this library's, apart from the server's own snapshots.
const STATE_VERSION: u32 = 0x4250_0001;

/// What the host does for those that carry snapshots.
pub(crate) trait SnapshotHost: 'static {
    /// The snapshots of the folder.
    fn snapshots(&self) -> &Snapshots<DmaStorage>;

    /// A snapshot is durable, and the oldest that is kept; or none was written.
    fn snapshot_ended(&self, taken: Option<(Zxid, Zxid)>);

    /// This snapshot is at hand for a learner; its pieces follow.
    fn snapshot_ready(self: &Rc<Self>, to: ServerId, last: LogPosition);

    /// A piece for a learner.
    fn send_chunk(&self, to: ServerId, bytes: Arc<[u8]>);

    /// No snapshot can be sent to a learner.
    fn give_up(&self, to: ServerId);

    /// A piece has been taken.
    fn chunk_taken(&self, zxid: Zxid, bytes: u64);

    /// The whole snapshot is here and durable: the log may begin anew after it.
    fn received(&self, last: LogPosition);

    /// The snapshot was not installed.
    fn aborted(&self);
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

/// The snapshots that are sent to learners, one each.
#[derive(Default)]
pub(crate) struct Sends {
    running: RefCell<BTreeMap<ServerId, Rc<Send>>>,
}

#[derive(Default)]
struct Send {
    zxid: Cell<Zxid>,
    taken: Cell<u64>,
    stopped: Cell<bool>,
    work: WakeFlag,
}

impl Sends {
    /// Sends the newest snapshot to a learner, in place of one that is being sent.
    pub(crate) fn start(&self, host: &Rc<impl SnapshotHost>, to: ServerId) {
        self.stop(to);
        let send = Rc::new(Send::default());
        self.running.borrow_mut().insert(to, Rc::clone(&send));
        let host = Rc::clone(host);
        glommio::spawn_local(async move {
            if let Err(error) = send.run(&host, to).await {
                tracing::error!(peer = %to, %error, "a snapshot cannot be sent");
                host.give_up(to);
            }
        })
        .detach();
    }

    /// The learner has taken so much of a snapshot.
    pub(crate) fn taken(&self, by: ServerId, zxid: Zxid, bytes: u64) {
        if let Some(send) = self.running.borrow().get(&by).filter(|send| send.zxid.get() == zxid) {
            send.taken.set(bytes.max(send.taken.get()));
            send.work.raise();
        }
    }

    /// The learner is gone.
    pub(crate) fn stop(&self, to: ServerId) {
        if let Some(send) = self.running.borrow_mut().remove(&to) {
            send.stopped.set(true);
            send.work.raise();
        }
    }
}

impl Send {
    async fn run(&self, host: &Rc<impl SnapshotHost>, to: ServerId) -> Result<(), SnapshotError> {
        let snapshots = host.snapshots();
        let Some(zxid) = snapshots.list().await?.first().copied() else {
            host.give_up(to);
            return Ok(());
        };
        let head = *snapshots.open(zxid).await?.head();
        let mut file = snapshots.send(zxid).await?;
        if self.stopped.get() {
            return Ok(());
        }
        self.zxid.set(zxid);
        tracing::info!(peer = %to, %zxid, bytes = file.len(), "sending a snapshot");
        host.snapshot_ready(to, LogPosition { zxid, checksum: head.chain });
        let len = file.len();
        loop {
            while !self.stopped.get() && file.offset() >= self.taken.get() + WINDOW_BYTES {
                poll_fn(|cx| self.work.poll_lower(cx)).await;
            }
            let offset = file.offset();
            let Some(piece) = file.next().await? else { return Ok(()) };
            if self.stopped.get() {
                return Ok(());
            }
            let chunk = Chunk { zxid, len, offset, bytes: &piece };
            host.send_chunk(to, chunk.encode().into());
        }
    }
}

/// The snapshot that is received.
#[derive(Default)]
pub(crate) struct Receiving {
    steps: RefCell<VecDeque<Step>>,
    work: WakeFlag,
}

/// What the receiving task is told, in order.
enum Step {
    Begin(LogPosition),
    Chunk(Arc<[u8]>),
    Abort,
}

/// A snapshot on its way in.
struct Install {
    last: LogPosition,
    incoming: Option<Incoming<DmaStorage>>,
}

impl Receiving {
    pub(crate) fn begin(&self, last: LogPosition) {
        self.push(Step::Begin(last));
    }

    pub(crate) fn chunk(&self, bytes: Arc<[u8]>) {
        self.push(Step::Chunk(bytes));
    }

    pub(crate) fn abort(&self) {
        self.push(Step::Abort);
    }

    fn push(&self, step: Step) {
        self.steps.borrow_mut().push_back(step);
        self.work.raise();
    }

    async fn next(&self) -> Step {
        loop {
            let step = self.steps.borrow_mut().pop_front();
            match step {
                Some(step) => return step,
                None => poll_fn(|cx| self.work.poll_lower(cx)).await,
            }
        }
    }

    /// Receives for as long as the server runs.
    pub(crate) async fn run(&self, host: &impl SnapshotHost) {
        let mut install: Option<Install> = None;
        loop {
            match self.next().await {
                Step::Begin(last) => {
                    tracing::info!(zxid = %last.zxid, "receiving a snapshot");
                    match host.snapshots().receive().await {
                        Ok(incoming) => install = Some(Install { last, incoming: Some(incoming) }),
                        Err(error) => refuse(host, &error).await,
                    }
                }
                Step::Chunk(bytes) => {
                    if let Some(current) = &mut install
                        && let Err(error) = current.chunk(host, &bytes).await
                    {
                        if let Some(incoming) = current.incoming.take() {
                            incoming.abandon().await;
                        }
                        install = None;
                        refuse(host, &error).await;
                    }
                }
                // Once it is whole, the log is about to begin anew: that is the answer.
                Step::Abort => {
                    if let Some(incoming) = install.as_mut().and_then(|install| install.incoming.take()) {
                        install = None;
                        incoming.abandon().await;
                        host.aborted();
                    }
                }
            }
        }
    }
}

impl Install {
    async fn chunk(&mut self, host: &impl SnapshotHost, bytes: &[u8]) -> Result<(), SnapshotError> {
        let Some(incoming) = &mut self.incoming else { return Ok(()) };
        let file = || "the snapshot received".to_owned();
        let damaged = |what| SnapshotError::Damaged { file: file(), offset: 0, what };
        let chunk = Chunk::decode(bytes).map_err(|_| damaged("a piece that is none"))?;
        if chunk.zxid != self.last.zxid || chunk.bytes.is_empty() {
            return Err(damaged("not the snapshot that was announced"));
        }
        incoming.piece(chunk.offset, chunk.bytes).await?;
        let len = incoming.len();
        if len < chunk.len {
            host.chunk_taken(chunk.zxid, len);
            return Ok(());
        }
        if let Some(incoming) = self.incoming.take() {
            let chain = self.last.checksum;
            let expected = |head: &Head| head.chain == chain && head.state_version == STATE_VERSION;
            incoming.finish(self.last.zxid, expected).await?;
            host.received(self.last);
        }
        Ok(())
    }
}

async fn refuse(host: &impl SnapshotHost, error: &SnapshotError) {
    tracing::error!(%error, "a snapshot was not received; the leader is asked again");
    glommio::timer::sleep(PAUSE).await;
    host.aborted();
}
