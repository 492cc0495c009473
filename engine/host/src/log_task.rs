//! The log task: the only owner of the log and of the persisted epochs.
//!
//! It carries out commands one at a time, in order. Batches received during an fsync are appended together
//! after it (group commit).

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use ringkeeper_engine::metrics::{Distribution, Totals};
use ringkeeper_engine::zab::{Batch, Epochs, Input, LogPosition};
use ringkeeper_log::error::{AppendError, FatalError, ReadError, SegmentError, TruncateError};
use ringkeeper_log::frame::Meta;
use ringkeeper_log::meta::{MetaStore, PersistedEpochs};
use ringkeeper_log::reserve::Reserve;
use ringkeeper_log::salvage;
use ringkeeper_log::snapshot::{SnapshotError, Snapshots};
use ringkeeper_log::storage::{Storage, StorageFile};
use ringkeeper_log::wal::Wal;
use ringkeeper_log::{Reader, Scrub};
use ringkeeper_wire::{ServerId, Zxid};

use crate::env::{Class, Env, Task};
use crate::feed::{Feed, Place, Slice};
use crate::restore::{RestoreError, StateFormat, restore};
use crate::wake::WakeFlag;

/// Idle time after which the log writes a seal: a record that all of it is durable. After a seal, damage to
/// the last blocks cannot be mistaken for a crash in the middle of writing them.
const SEAL_AFTER: Duration = Duration::from_secs(1);

/// How often a full disk is checked for free space.
const LOOK_FOR_ROOM_EVERY: Duration = Duration::from_millis(250);

/// Why the log task ended.
#[derive(Debug, thiserror::Error)]
pub enum LogFailure {
    /// An append failed.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The disk failed.
    #[error(transparent)]
    Fatal(#[from] FatalError),
    /// It could not be cut.
    #[error(transparent)]
    Truncate(#[from] TruncateError),
    /// It could not be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The medium holds no valid state.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

/// A command for the log task.
#[derive(Debug)]
pub enum Command {
    /// Append, answered by [`Input::Durable`]; handed over at this [`Env::elapsed`].
    Append(Batch, Duration),
    /// Cut, answered by [`Input::Truncated`].
    Truncate {
        /// The last zxid that stays.
        after: Zxid,
    },
    /// Rebuild the state from the newest snapshot and the log after it, answered by [`Answer::Rebuilt`].
    Rebuild,
    /// Reset the log to a received snapshot and read its state. Answered by [`Answer::Installed`], or by
    /// [`Input::SnapshotAborted`] if the disk is full.
    Install {
        /// What it holds.
        last: LogPosition,
    },
    /// Purge what a snapshot at this zxid replaces. Answered by [`Input::LogPurged`] if there was any.
    Purge {
        /// What it holds.
        upto: Zxid,
    },
    /// Make promises durable, answered by [`Input::EpochsDurable`].
    Promise(Epochs),
    /// Read for a peer, answered by [`Input::LogRead`].
    Read {
        /// The peer.
        peer: ServerId,
        /// Read what comes right after it.
        after: Zxid,
        /// About how much.
        bytes_max: usize,
    },
    /// Read committed batches for a change feed or a backup, in the background.
    Feed(Rc<Feed>),
    /// Verify all of the log, in the background.
    Verify(Rc<Verification>),
    /// Continue in another segment if this file is the current one, unless the disk is full. Appends go on in
    /// the room that the file has, so this must not keep them waiting.
    Leave {
        /// Where damage was found.
        file: String,
        /// Set when the command is done: to the end of the file, or to nothing if there is no room.
        end: Rc<Cell<Option<Option<Zxid>>>>,
    },
}

/// A pass over the log that verifies it at a bounded rate.
#[derive(Debug)]
pub struct Verification {
    bytes_per_second: u64,
    read_bytes: Rc<Cell<u64>>,
    outcome: RefCell<Option<Result<(), ReadError>>>,
    done: WakeFlag,
}

impl Verification {
    /// A pass that adds the bytes it reads to `read_bytes`.
    #[must_use]
    pub fn new(bytes_per_second: u64, read_bytes: Rc<Cell<u64>>) -> Rc<Self> {
        let (outcome, done) = (RefCell::default(), WakeFlag::default());
        Rc::new(Self { bytes_per_second, read_bytes, outcome, done })
    }

    /// Ready when the pass has ended; an error is the damage that ended it.
    ///
    /// # Panics
    /// If the pass has panicked.
    pub fn poll_done(&self, cx: &mut Context<'_>) -> Poll<Result<(), ReadError>> {
        let outcome = || self.outcome.borrow_mut().take().expect("the pass over the log has panicked");
        self.done.poll_lower(cx).map(|()| outcome())
    }

    async fn run<F: StorageFile>(&self, env: &impl Env, mut scrub: Scrub<F>) {
        let _done = RaisedAtLast(&self.done);
        let outcome = loop {
            let began = env.elapsed();
            match scrub.step().await {
                Ok(Some(bytes)) => {
                    self.read_bytes.set(self.read_bytes.get() + bytes);
                    self.rest(env, bytes, began).await;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.outcome.replace(Some(outcome));
    }

    /// Sleeps for the time that the rate demands for this many bytes.
    async fn rest(&self, env: &impl Env, bytes: u64, began: Duration) {
        let due = Duration::from_nanos(bytes * 1_000_000_000 / self.bytes_per_second.max(1));
        let due = due.saturating_sub(env.elapsed().saturating_sub(began));
        if due > Duration::ZERO {
            env.sleep(due).await;
        } else {
            env.yield_if_needed().await;
        }
    }
}

/// Raises a flag when it is dropped, even by a panic.
struct RaisedAtLast<'a>(&'a WakeFlag);

impl Drop for RaisedAtLast<'_> {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// An answer of the log task.
#[derive(Debug)]
pub enum Answer<T> {
    /// An input of the node.
    Input(Input),
    /// The state rebuilt from all of the log.
    Rebuilt(Box<T>),
    /// The state of the snapshot that has replaced log and state.
    Installed(Box<T>, LogPosition),
}

/// The log task's queue of commands, and its answers.
pub struct LogQueue<T> {
    commands: RefCell<VecDeque<Command>>,
    answers: RefCell<VecDeque<Answer<T>>>,
    /// A command is being carried out.
    busy: Cell<bool>,
    stop: Cell<bool>,
    /// Appends wait for space on the disk.
    full: Cell<bool>,
    /// When the append that is being written began, if there is one; since the environment's start.
    appending_since: Cell<Option<Duration>>,
    work: WakeFlag,
    /// There are answers, or the log is idle.
    news: WakeFlag,
    force_warning: Duration,
    appends: RefCell<Appends>,
}

/// Statistics of appends, each of which makes one or more batches durable. Times are microseconds.
#[derive(Clone, Debug, Default)]
pub struct Appends {
    /// How long they took, with the fsync.
    pub took: Distribution,
    /// Those that took longer than the warning threshold.
    pub slow: u64,
    /// Transactions of one append.
    pub txns: Totals,
    /// How long transactions waited for their append to begin.
    pub waited: Distribution,
    /// How long it was from their hand-over to the log until they were durable.
    pub durable_after: Distribution,
}

impl<T> LogQueue<T> {
    /// An empty queue. An append longer than `force_warning` is logged.
    #[must_use]
    pub fn new(force_warning: Duration) -> Rc<Self> {
        Rc::new(Self {
            commands: RefCell::default(),
            answers: RefCell::new(VecDeque::new()),
            busy: Cell::new(false),
            stop: Cell::new(false),
            full: Cell::new(false),
            appending_since: Cell::new(None),
            work: WakeFlag::default(),
            news: WakeFlag::default(),
            force_warning,
            appends: RefCell::default(),
        })
    }

    /// Adds a command.
    pub fn push(&self, command: Command) {
        self.commands.borrow_mut().push_back(command);
        self.work.raise();
    }

    /// Takes the oldest answer.
    #[must_use]
    pub fn next_answer(&self) -> Option<Answer<T>> {
        self.answers.borrow_mut().pop_front()
    }

    /// Ready when there is an answer, the log is idle, or the disk has run full or has room again.
    pub fn poll_news(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.news.poll_lower(cx)
    }

    /// Whether an append would start at once.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.busy.get() && self.commands.borrow().is_empty()
    }

    /// Whether appends wait for space on the disk.
    #[must_use]
    pub fn disk_is_full(&self) -> bool {
        self.full.get()
    }

    /// Since when the disk writes an append, if it does, on the clock of [`Env::elapsed`].
    #[must_use]
    pub fn appending_since(&self) -> Option<Duration> {
        self.appending_since.get()
    }

    /// Statistics of the appends so far.
    #[must_use]
    pub fn appends(&self) -> Ref<'_, Appends> {
        self.appends.borrow()
    }

    /// Ends the task once the queue is empty.
    pub fn stop(&self) {
        self.stop.set(true);
        self.work.raise();
    }

    fn answer(&self, answer: Answer<T>) {
        self.answers.borrow_mut().push_back(answer);
    }

    /// Takes the appends at the front of the queue.
    fn next_group(&self) -> Vec<(Batch, Duration)> {
        let mut commands = self.commands.borrow_mut();
        let mut group = Vec::new();
        while let Some(Command::Append(batch, handed_over)) =
            commands.pop_front_if(|command| matches!(command, Command::Append(..)))
        {
            group.push((batch, handed_over));
        }
        group
    }

    /// Takes the oldest command. A function of its own, so that the queue is not borrowed while the command
    /// runs.
    fn next_command(&self) -> Option<Command> {
        self.commands.borrow_mut().pop_front()
    }

    /// Takes the oldest command that may overtake an append which waits for room.
    fn next_beside_append(&self) -> Option<Command> {
        let mut commands = self.commands.borrow_mut();
        let place = commands.iter().position(|command| {
            matches!(
                command,
                Command::Promise(_) | Command::Read { .. } | Command::Feed(_) | Command::Verify(_)
            )
        })?;
        commands.remove(place)
    }

    /// Records an append.
    fn record(&self, group: &[(Batch, Duration)], started: Duration, ended: Duration) {
        let mut appends = self.appends.borrow_mut();
        let took = ended.saturating_sub(started);
        if took > self.force_warning {
            appends.slow += 1;
            let took_ms = micros(took) / 1000;
            tracing::warn!(
                code = "RK0401",
                took_ms,
                "an fsync of the log took long: is the disk shared or worn?"
            );
        }
        appends.took.record(micros(took));
        appends.txns.record(group.iter().map(|(batch, _)| batch.txns()).sum());
        for (batch, handed_over) in group {
            appends.waited.record_n(micros(started.saturating_sub(*handed_over)), batch.txns());
            appends.durable_after.record_n(micros(ended.saturating_sub(*handed_over)), batch.txns());
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The log, the persisted epochs, and the means to rebuild a state.
pub struct LogTask<E: Env, F> {
    /// The environment.
    pub env: E,
    /// The log.
    pub wal: Wal<E::Storage>,
    /// The snapshots, in the log's folder or in another one.
    pub snapshots: Snapshots<E::Storage>,
    /// The log's folder.
    pub storage: E::Storage,
    /// Disk space reserved for promises on a full disk.
    pub reserve: Reserve<E::Storage>,
    /// The persisted epochs.
    pub meta: MetaStore<E::Storage>,
    /// How to rebuild a state.
    pub format: F,
}

impl<E: Env, F: StateFormat<E::Storage>> LogTask<E, F> {
    /// Carries out the commands of the queue until it is stopped.
    ///
    /// # Errors
    /// The medium failed. Nothing more can be acknowledged; the process has to end.
    pub async fn run(mut self, queue: Rc<LogQueue<F::State>>) -> Result<(), LogFailure> {
        let mut sealed = true;
        loop {
            let group = queue.next_group();
            if !group.is_empty() {
                queue.busy.set(true);
                if !self.append(&group, &queue).await? {
                    return Ok(());
                }
                sealed = false;
            } else if let Some(command) = queue.next_command() {
                queue.busy.set(true);
                self.carry_out(command, &queue).await?;
            } else if queue.stop.get() {
                return self.seal().await;
            } else {
                if !wait(&self.env, &queue, sealed).await {
                    self.seal().await?;
                    sealed = true;
                }
                continue;
            }
            queue.busy.set(false);
            queue.news.raise();
            // The core was waiting for an idle log: it may propose its next batch first.
            self.env.yield_now().await;
        }
    }

    /// Writes a seal. On a full disk it is omitted: nothing is lost, since the next append replaces it.
    async fn seal(&mut self) -> Result<(), LogFailure> {
        match self.wal.seal().await {
            Err(AppendError::NoSpace { .. }) => Ok(()),
            sealed => Ok(sealed?),
        }
    }

    /// Appends a group, waiting for room if necessary. False if the server stops before there is room: the
    /// group was not reported as durable.
    async fn append(
        &mut self,
        group: &[(Batch, Duration)],
        queue: &Rc<LogQueue<F::State>>,
    ) -> Result<bool, LogFailure> {
        let Some((last, _)) = group.last() else { return Ok(true) };
        let frames: Vec<_> = group.iter().map(|(batch, _)| &**batch.bytes()).collect();
        let mut started = self.env.elapsed();
        loop {
            queue.appending_since.set(Some(started));
            let appended = self.wal.append(&frames).await;
            queue.appending_since.set(None);
            match appended {
                Ok(_) => break,
                Err(AppendError::NoSpace { needed_bytes }) => {
                    if !self.wait_for_room(needed_bytes, queue).await? {
                        return Ok(false);
                    }
                    started = self.env.elapsed();
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.found_room(queue).await?;
        let ended = self.env.elapsed();
        queue.record(group, started, ended);
        queue.answer(Answer::Input(Input::Durable { upto: last.last() }));
        Ok(true)
    }

    async fn found_room(&mut self, queue: &LogQueue<F::State>) -> Result<(), FatalError> {
        if queue.full.replace(false) {
            tracing::info!("the disk has room again, writes go on");
            self.reserve.keep().await?;
        }
        Ok(())
    }

    /// Waits until the disk has this much room, and meanwhile carries out commands that need none. False if
    /// the server stops before.
    async fn wait_for_room(
        &mut self,
        needed_bytes: u64,
        queue: &Rc<LogQueue<F::State>>,
    ) -> Result<bool, LogFailure> {
        if self.let_go_of_salvaged().await {
            return Ok(true);
        }
        if !queue.full.replace(true) {
            tracing::error!(
                code = "RK0402",
                needed_bytes,
                "the disk is full: writes are refused until there is room"
            );
            self.reserve.release().await;
            queue.news.raise();
        }
        let mut look = pin!(self.env.sleep(LOOK_FOR_ROOM_EVERY));
        loop {
            while let Some(command) = queue.next_beside_append() {
                self.carry_out_beside(command, queue).await?;
                queue.news.raise();
            }
            if queue.stop.get() {
                return Ok(false);
            }
            let looks = poll_fn(|cx| match look.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(true),
                // A command may have come that can be carried out without room, such as a read for a learner.
                Poll::Pending => queue.work.poll_lower(cx).map(|()| false),
            });
            if !looks.await {
                continue;
            }
            look.set(self.env.sleep(LOOK_FOR_ROOM_EVERY));
            // The space that the reserve has released is not for the log. If free space is unknown, the
            // append is tried.
            let wanted_bytes = needed_bytes + self.reserve.missing_bytes();
            if self.storage.free_bytes().await.is_ok_and(|free| free < wanted_bytes) {
                continue;
            }
            return Ok(true);
        }
    }

    /// Removes the files that salvages have kept; whether there were any.
    async fn let_go_of_salvaged(&self) -> bool {
        match salvage::let_go(&self.storage).await {
            Ok(0) => false,
            Ok(files) => {
                tracing::warn!(
                    code = "RK0403",
                    files,
                    "the disk is full: kept copies of a damaged log are removed"
                );
                true
            }
            Err(error) => {
                tracing::warn!(code = "RK0404", %error, "kept copies of a damaged log cannot be removed");
                false
            }
        }
    }

    async fn carry_out(
        &mut self,
        command: Command,
        queue: &Rc<LogQueue<F::State>>,
    ) -> Result<(), LogFailure> {
        let answer = match command {
            Command::Append(..) => unreachable!("appends are taken in groups"),
            Command::Truncate { after } => match self.truncate(after, queue).await? {
                Some(last) => Answer::Input(Input::Truncated { last }),
                None => return Ok(()),
            },
            Command::Rebuild => Answer::Rebuilt(Box::new(self.rebuild().await?)),
            Command::Install { last } => self.install(last).await?,
            Command::Purge { upto } => {
                let segments = self.wal.purge_before(upto);
                if segments == 0 {
                    return Ok(());
                }
                let base = self.wal.base();
                tracing::info!(segments, base = %base.zxid, "old segments of the log were purged");
                Answer::Input(Input::LogPurged { base })
            }
            Command::Promise(_) | Command::Read { .. } | Command::Feed(_) | Command::Verify(_) => {
                return self.carry_out_beside(command, queue).await;
            }
            Command::Leave { file, end } => {
                match self.wal.leave(&file).await {
                    Ok(zxid) => end.set(Some(Some(zxid))),
                    Err(SegmentError::NoSpace { .. }) => end.set(Some(None)),
                    Err(SegmentError::Failed(fatal)) => return Err(fatal.into()),
                }
                return Ok(());
            }
        };
        queue.answer(answer);
        Ok(())
    }

    /// Carries out a command that neither needs the end of the log nor changes it.
    async fn carry_out_beside(
        &mut self,
        command: Command,
        queue: &Rc<LogQueue<F::State>>,
    ) -> Result<(), LogFailure> {
        match command {
            Command::Promise(epochs) => {
                if self.promise(&epochs, queue).await? {
                    queue.answer(Answer::Input(Input::EpochsDurable));
                }
            }
            Command::Read { peer, after, bytes_max } => {
                let Ok(reader) = self.wal.read_from(Zxid(after.0.saturating_add(1))) else {
                    queue.answer(Answer::Input(Input::LogRead { peer, after, batches: Vec::new() }));
                    return Ok(());
                };
                // The read runs beside later appends.
                let queue = Rc::clone(queue);
                let read = async move {
                    let mut batches = Vec::new();
                    if let Err(error) = read_batches(reader, |_| true, bytes_max, &mut batches).await {
                        tracing::error!(code = "RK0407", %error, "the log cannot be read for a peer");
                    }
                    queue.answer(Answer::Input(Input::LogRead { peer, after, batches }));
                    queue.news.raise();
                };
                self.env.spawn(Class::Requests, read).detach();
            }
            Command::Feed(feed) => {
                let begun = begin(&self.wal, &feed);
                let read = async move {
                    let outcome = match begun {
                        Ok((after, reader)) => read_slice(reader, after, &feed).await,
                        Err(error) => Err(error),
                    };
                    feed.finish(outcome);
                };
                self.env.spawn(Class::Background, read).detach();
            }
            Command::Verify(verification) => {
                let (scrub, env) = (self.wal.scrub(), self.env.clone());
                let run = async move { verification.run(&env, scrub).await };
                self.env.spawn(Class::Background, run).detach();
            }
            _ => unreachable!("not a command beside others"),
        }
        Ok(())
    }

    /// Writes promises, waiting for room if necessary; false if the server stops before. Unwritten promises
    /// are not sent to anyone, so meanwhile the server only takes no part in elections. What is no
    /// promise, and is only kept with them, waits for the next one: no append is held up for that.
    async fn promise(&mut self, epochs: &Epochs, queue: &LogQueue<F::State>) -> Result<bool, LogFailure> {
        let append_waits = queue.full.get();
        let mut waits = false;
        let (wanted, kept) = (promises(epochs), self.meta.meta().promises);
        let promises_nothing =
            PersistedEpochs { members: kept.members, committed: kept.committed, ..wanted } == kept;
        while let Err(error) = self.meta.promise(wanted).await {
            if !error.is_no_space() {
                return Err(error.into());
            }
            if promises_nothing {
                return Ok(true);
            }
            if !std::mem::replace(&mut waits, true) {
                tracing::error!(code = "RK0405", %error, "the disk has no room for the server's promises");
                self.reserve.release().await;
                continue;
            }
            if queue.stop.get() {
                return Ok(false);
            }
            // A leader has to resign: nothing is appended either while this waits.
            if !queue.full.replace(true) {
                queue.news.raise();
            }
            self.env.sleep(LOOK_FOR_ROOM_EVERY).await;
        }
        if waits && !append_waits {
            queue.full.set(false);
            self.reserve.keep().await?;
        }
        Ok(true)
    }

    /// Truncates the log, waiting for room for a new segment if necessary; `None` if the server stops before.
    async fn truncate(
        &mut self,
        after: Zxid,
        queue: &Rc<LogQueue<F::State>>,
    ) -> Result<Option<LogPosition>, LogFailure> {
        loop {
            match self.wal.truncate_after(after).await {
                Ok(last) => {
                    self.found_room(queue).await?;
                    return Ok(Some(last));
                }
                Err(TruncateError::Segment(SegmentError::NoSpace { size_bytes })) => {
                    if !self.wait_for_room(size_bytes, queue).await? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn install(&mut self, last: LogPosition) -> Result<Answer<F::State>, LogFailure> {
        match self.wal.reset(last.zxid, last.checksum).await {
            Ok(()) => {}
            Err(SegmentError::NoSpace { size_bytes }) => {
                tracing::error!(
                    code = "RK0406",
                    size_bytes,
                    "no space to begin the log anew after a snapshot"
                );
                self.snapshots.withdraw(last.zxid).await?;
                return Ok(Answer::Input(Input::SnapshotAborted));
            }
            Err(SegmentError::Failed(fatal)) => return Err(fatal.into()),
        }
        self.snapshots.install(last.zxid).await?;
        Ok(Answer::Installed(Box::new(self.rebuild().await?), last))
    }

    /// Snapshots hold committed transactions, which are never truncated, so all of them still fit the log.
    async fn rebuild(&self) -> Result<F::State, LogFailure> {
        let cluster = self.meta.meta().promises.cluster;
        Ok(restore(&self.env, &self.format, &self.snapshots, &self.wal, cluster).await?.state)
    }
}

/// A reader for a feed, and the zxid behind which it begins.
fn begin<S: Storage>(wal: &Wal<S>, feed: &Feed) -> Result<(Zxid, Reader<S::File>), ReadError> {
    let after = match feed.place {
        Place::After(after) => after,
        Place::Before(zxid) => wal.slice_before(zxid, feed.bytes_max as u64)?,
    };
    Ok((after, wal.read_from(Zxid(after.0.saturating_add(1)))?))
}

/// Reads what a feed wants from a reader that begins behind `after`.
async fn read_slice<F: StorageFile>(reader: Reader<F>, after: Zxid, feed: &Feed) -> Result<Slice, ReadError> {
    let mut batches = Vec::new();
    // A slice before a zxid ends there: its length is bounded by where it begins.
    let (before, bytes_max) = match feed.place {
        Place::After(_) => (Zxid(u64::MAX), feed.bytes_max),
        Place::Before(zxid) => (zxid, usize::MAX),
    };
    let wanted = |meta: &Meta| meta.first_zxid < before && meta.last_zxid <= feed.upto;
    read_batches(reader, wanted, bytes_max, &mut batches).await?;
    Ok(Slice { after, batches })
}

/// Reads about `bytes_max` bytes of batches, up to the first one that is not wanted.
async fn read_batches<F: StorageFile>(
    mut reader: Reader<F>,
    wanted: impl Fn(&Meta) -> bool,
    bytes_max: usize,
    batches: &mut Vec<Batch>,
) -> Result<(), ReadError> {
    let mut bytes = 0;
    while bytes < bytes_max
        && let Some(frame) = reader.next().await?
        && wanted(&frame.meta())
    {
        bytes += frame.bytes().len();
        batches.push(Batch::from(&frame));
    }
    Ok(())
}

fn promises(epochs: &Epochs) -> PersistedEpochs {
    PersistedEpochs {
        cluster: epochs.cluster,
        fork: epochs.fork,
        voters: epochs.voters.words(),
        groups: epochs.groups,
        several_addresses: epochs.several_addresses,
        accepted_epoch: epochs.accepted,
        current_epoch: epochs.current,
        initialized: epochs.initialized,
        end_before_damage: epochs.end_before_damage,
        leader: epochs.leader,
        members: epochs.members.words(),
        committed: epochs.committed,
        former_epoch: epochs.former,
        former_members: epochs.former_members.words(),
        lease_ms: u16::try_from(epochs.lease_ms).unwrap_or(u16::MAX),
    }
}

/// Waits for a command; false if the log has been idle for so long that it has to be sealed.
async fn wait<T>(env: &impl Env, queue: &LogQueue<T>, sealed: bool) -> bool {
    let work = async {
        poll_fn(|cx| queue.work.poll_lower(cx)).await;
        true
    };
    if sealed {
        return work.await;
    }
    futures_lite::future::or(work, async {
        env.sleep(SEAL_AFTER).await;
        false
    })
    .await
}
