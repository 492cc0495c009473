//! The log's own task: one append at a time, what comes in meanwhile is the next.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringkeeper_engine::replica::SealedBatch;
use ringkeeper_log::error::{AppendError, FatalError};
use ringkeeper_log::frame::{self, AlignedBuf, Checksum, EncodeError, Meta};
use ringkeeper_log::storage::Storage;
use ringkeeper_log::wal::Wal;
use ringkeeper_wire::Zxid;

use super::core_host::CoreHost;
use super::wake::WakeFlag;

/// Without an append for this long, the log writes down that all of it is durable, so that later damage to its last
/// blocks can be told from a crash in the middle of writing them.
const SEAL_AFTER: Duration = Duration::from_secs(1);

/// Why the log ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogFailure {
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Upkeep(#[from] FatalError),
    #[error(transparent)]
    Frame(#[from] EncodeError),
}

/// Batches on their way to the medium.
pub(crate) struct LogQueue {
    /// Sealed and not yet given to the log.
    pending: RefCell<Vec<SealedBatch>>,
    /// An append is running.
    busy: Cell<bool>,
    /// Everything up to here is on the medium.
    durable: Cell<Zxid>,
    stop: Cell<bool>,
    work: WakeFlag,
    force_warning: Duration,
    forced: Cell<Forced>,
}

/// How long the medium took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Forced {
    /// Appends that were made durable.
    pub(crate) count: u64,
    /// Their time in all, and the shortest and longest of them, microseconds.
    pub(crate) sum_us: u64,
    pub(crate) min_us: u64,
    pub(crate) max_us: u64,
    /// How many took longer than the warning threshold.
    pub(crate) slow: u64,
}

impl LogQueue {
    /// A queue behind a log that is durable up to `durable`.
    pub(crate) fn new(durable: Zxid, force_warning: Duration) -> Rc<Self> {
        Rc::new(Self {
            pending: RefCell::default(),
            busy: Cell::new(false),
            durable: Cell::new(durable),
            stop: Cell::new(false),
            work: WakeFlag::default(),
            force_warning,
            forced: Cell::default(),
        })
    }

    /// Appends a batch, together with whatever else waits.
    pub(crate) fn push(&self, batch: SealedBatch) {
        self.pending.borrow_mut().push(batch);
        self.work.raise();
    }

    /// Everything up to here is on the medium.
    pub(crate) fn durable(&self) -> Zxid {
        self.durable.get()
    }

    /// Whether a batch would be appended at once.
    pub(crate) fn is_idle(&self) -> bool {
        !self.busy.get() && self.pending.borrow().is_empty()
    }

    /// How long the medium took so far.
    pub(crate) fn forced(&self) -> Forced {
        self.forced.get()
    }

    /// Ends the task once everything is appended.
    pub(crate) fn stop(&self) {
        self.stop.set(true);
        self.work.raise();
    }

    fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let mut forced = self.forced.get();
        forced.min_us = if forced.count == 0 { us } else { forced.min_us.min(us) };
        forced.max_us = forced.max_us.max(us);
        forced.sum_us += us;
        forced.count += 1;
        if took > self.force_warning {
            forced.slow += 1;
            tracing::warn!(took_ms = us / 1000, "forcing the log to the medium took long: is the disk shared or worn?");
        }
        self.forced.set(forced);
    }
}

/// Appends what the queue holds until it is stopped.
///
/// # Errors
/// The medium failed. Nothing more can be acknowledged; the process has to end.
pub(crate) async fn run<S: Storage>(mut wal: Wal<S>, queue: Rc<LogQueue>, core: Rc<CoreHost>) -> Result<(), LogFailure> {
    let mut previous = wal.last().checksum;
    let mut sealed = true;
    loop {
        let batches = std::mem::take(&mut *queue.pending.borrow_mut());
        let Some(last) = batches.last().map(|batch| batch.last) else {
            if queue.stop.get() {
                wal.seal().await?;
                return Ok(());
            }
            if !wait(&queue, sealed).await {
                wal.seal().await?;
                sealed = true;
            }
            continue;
        };
        queue.busy.set(true);
        let frames = frame_all(&batches, &mut previous)?;
        let started = Instant::now();
        wal.append(&frames).await?;
        queue.record(started.elapsed());
        queue.durable.set(last);
        queue.busy.set(false);
        sealed = false;
        core.wake();
        // The core has been waiting for the log to be idle: its next batch comes first.
        glommio::executor().yield_task_queue_now().await;
    }
}

/// Waits for work; false if the log is to be sealed before any has come.
async fn wait(queue: &LogQueue, sealed: bool) -> bool {
    let work = async {
        poll_fn(|cx| queue.work.poll_lower(cx)).await;
        true
    };
    if sealed {
        return work.await;
    }
    futures_lite::future::or(work, async {
        glommio::timer::sleep(SEAL_AFTER).await;
        false
    })
    .await
}

fn frame_all(batches: &[SealedBatch], previous: &mut Checksum) -> Result<Vec<AlignedBuf>, EncodeError> {
    batches
        .iter()
        .map(|batch| {
            let meta =
                Meta { epoch: batch.first.epoch().0, first_zxid: batch.first.0, last_zxid: batch.last.0 };
            let mut bytes = AlignedBuf::new();
            *previous = frame::encode(meta, &batch.payload, *previous, &mut bytes)?;
            Ok(bytes)
        })
        .collect()
}
