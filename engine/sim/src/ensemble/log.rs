//! A server's log task on a simulated disk: the real log, driven by hand.
//!
//! The task does what the shell's does (`net/src/server/log_task.rs`), on `log`'s disk in memory. Every operation of
//! that disk is held until the world lets it finish, so that a crash can come between any two.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use ringkeeper_engine::state::State;
use ringkeeper_engine::zab::{Batch, Durable, Epochs, Input, LogPosition, LogSummary, Message, ServerSet};
use ringkeeper_log::Reader;
use ringkeeper_log::error::{AppendError, SegmentError, TruncateError};
use ringkeeper_log::memory::{MemoryDisk, MemoryStorage, OpId, OpKind};
use ringkeeper_log::meta::{MetaStore, Promises};
use ringkeeper_log::reserve::Reserve;
use ringkeeper_log::salvage;
use ringkeeper_log::snapshot::Snapshots;
use ringkeeper_log::storage::{Storage, StorageFile, WriteMode};
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_wire::{ServerId, Zxid};

use super::snapshots::{RestoreError, SnapshotDesk, restore};

/// Something to do with the log.
#[derive(Debug)]
pub(crate) enum Command {
    Append(Batch),
    Truncate {
        after: Zxid,
    },
    Rebuild,
    /// Begin anew after a snapshot that was received.
    Install {
        last: LogPosition,
    },
    Purge {
        upto: Zxid,
    },
    Promise(Epochs),
    Read {
        peer: ServerId,
        after: Zxid,
        bytes_max: usize,
    },
}

/// What the log answers.
pub(crate) enum Answer {
    Input(Input),
    Rebuilt(Box<State>),
    Installed(Box<State>, LogPosition),
    Send(ServerId, Message),
    Disconnect(ServerId),
}

type Task = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// What the task and the world share.
#[derive(Default)]
pub(crate) struct Queue {
    commands: RefCell<VecDeque<Command>>,
    answers: RefCell<VecDeque<Answer>>,
    busy: Cell<bool>,
    /// The log has been idle for a while: it is to write down that all of it is durable.
    seal: Cell<bool>,
    spawned: RefCell<Vec<Task>>,
    remembers: Cell<bool>,
    /// The disk has no room for what is to be appended.
    full: Cell<bool>,
    now_us: Cell<u64>,
}

/// The log of one life of a server.
pub(crate) struct Log {
    queue: Rc<Queue>,
    tasks: Vec<Task>,
    disk: MemoryDisk,
    pub(crate) snapshots: Rc<SnapshotDesk>,
    /// The newest operation that the world knows of.
    newest: Option<OpId>,
}

/// What recovery found.
pub(crate) struct Recovered {
    pub(crate) log: Log,
    pub(crate) state: State,
    pub(crate) durable: Durable,
    pub(crate) batches: Vec<Batch>,
}

/// How often a full disk is looked at.
const LOOK_FOR_ROOM_EVERY_US: u64 = 40_000;

/// How a log is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) server: ServerId,
    pub(crate) write_mode: WriteMode,
    pub(crate) segment_size_bytes: u64,
    pub(crate) snapshots_kept: usize,
    pub(crate) has_peers: bool,
    pub(crate) seed: u64,
}

fn remembers(epochs: &Epochs) -> bool {
    epochs.initialized && epochs.claim == Zxid::ZERO
}

/// A future on a disk that holds nothing back; `None` if the power fails meanwhile.
pub(super) fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

impl Log {
    /// Recovers what a disk holds; `None` if the power fails in the middle of it.
    pub(crate) fn recover(disk: &MemoryDisk, how: How) -> Result<Option<Recovered>, String> {
        disk.hold(false);
        let opened = at_once(Self::open(disk, how)).transpose()?;
        disk.hold(true);
        Ok(opened)
    }

    async fn open(disk: &MemoryDisk, how: How) -> Result<Recovered, String> {
        let storage = disk.storage();
        let meta = MetaStore::open(storage.clone(), how.server, how.seed).await;
        let mut meta = meta.map_err(|error| error.to_string())?;
        let options = Options {
            segment_size_bytes: how.segment_size_bytes,
            write_mode: how.write_mode,
            ..Options::new(meta.meta().identity())
        };
        let snapshots = Snapshots::new(storage.clone());
        if salvage::is_gone(&storage, &meta).await.map_err(|error| error.to_string())? {
            let begun = salvage::begin_without(&snapshots, &mut meta).await;
            begun.map_err(|error| error.to_string())?;
        }
        if let Err(error) = Wal::open(storage.clone(), options.clone(), |_| Ok(())).await
            && error.is_damage()
        {
            let repair = salvage::repair(&storage, &options, &snapshots, &mut meta).await;
            repair.map_err(|error| error.to_string())?;
        }
        let mut batches = Vec::new();
        let opened = Wal::open(storage.clone(), options, |frame| {
            batches.extend(std::iter::once(Batch::from(frame)));
            Ok(())
        });
        let (mut wal, _) = opened.await.map_err(|error| error.to_string())?;
        snapshots.settle(wal.base()).await.map_err(|error| error.to_string())?;
        let (state, snapshot) = match restore(&snapshots, &wal, how.seed).await {
            Err(RestoreError::Gap) if how.has_peers => {
                let begun = salvage::begin_anew(&mut wal, &snapshots, &mut meta).await;
                begun.map_err(|error| error.to_string())?;
                batches.clear();
                restore(&snapshots, &wal, how.seed).await?
            }
            restored => restored?,
        };
        let reserve = Reserve::open(storage.clone()).await.map_err(|error| error.to_string())?;
        let mut summary = LogSummary::new(wal.base(), snapshot);
        batches.iter().for_each(|batch| summary.push(batch.end()));
        let promises = meta.meta().promises;
        let epochs = Epochs {
            accepted: promises.accepted_epoch,
            current: promises.current_epoch,
            cluster: promises.cluster,
            fork: promises.fork,
            voters: ServerSet::from_words(promises.voters),
            initialized: promises.initialized,
            claim: promises.claim,
        };
        let queue = Rc::new(Queue::default());
        queue.remembers.set(remembers(&epochs));
        let upkeep = wal.upkeep();
        let desk = SnapshotDesk::new(snapshots.clone(), Rc::clone(&queue), how.snapshots_kept);
        let task =
            LogTask { wal, meta, snapshots, storage, reserve, seed: how.seed, queue: Rc::clone(&queue) };
        let tasks: Vec<Task> = vec![
            Box::pin(task.run()),
            Box::pin(async move { upkeep.run().await.map_err(|error| error.to_string()) }),
            Box::pin(Rc::clone(&desk).receive()),
        ];
        let log = Self { queue, tasks, disk: disk.clone(), snapshots: desk, newest: None };
        Ok(Recovered { log, state, durable: Durable { epochs, log: summary }, batches })
    }

    pub(crate) fn push(&self, command: Command) {
        self.queue.push(command);
    }

    /// Whether an append would be carried out at once.
    pub(crate) fn is_idle(&self) -> bool {
        !self.queue.busy.get() && self.queue.commands.borrow().is_empty()
    }

    /// Whether the disk has all that this server has promised and acknowledged.
    pub(crate) fn remembers(&self) -> bool {
        self.queue.remembers.get()
    }

    /// Whether the disk has room for writes.
    pub(crate) fn has_room(&self) -> bool {
        !self.queue.full.get()
    }

    pub(crate) fn seal_when_idle(&self) {
        self.queue.seal.set(true);
    }

    pub(crate) fn has_answers(&self) -> bool {
        !self.queue.answers.borrow().is_empty()
    }

    pub(crate) fn next_answer(&self) -> Option<Answer> {
        self.queue.answers.borrow_mut().pop_front()
    }

    /// Goes on as far as the disk allows; the operations that were begun.
    pub(crate) fn run(&mut self, now_us: u64) -> Result<Vec<(OpId, OpKind)>, String> {
        self.queue.now_us.set(now_us);
        let mut context = Context::from_waker(Waker::noop());
        let mut index = 0;
        while index < self.tasks.len() {
            match self.tasks[index].as_mut().poll(&mut context) {
                Poll::Ready(done) => {
                    done?;
                    drop(self.tasks.remove(index));
                }
                Poll::Pending => index += 1,
            }
            self.tasks.append(&mut self.queue.spawned.borrow_mut());
        }
        let held = self.disk.held();
        let newest = self.newest;
        self.newest = held.last().map(|(id, _)| *id).max(newest);
        Ok(held.into_iter().filter(|(id, _)| Some(*id) > newest).collect())
    }
}

struct LogTask {
    wal: Wal<MemoryStorage>,
    meta: MetaStore<MemoryStorage>,
    snapshots: Snapshots<MemoryStorage>,
    storage: MemoryStorage,
    reserve: Reserve<MemoryStorage>,
    seed: u64,
    queue: Rc<Queue>,
}

impl LogTask {
    async fn run(mut self) -> Result<(), String> {
        let queue = Rc::clone(&self.queue);
        let mut sealed = true;
        loop {
            let group = queue.next_group();
            let command = if group.is_empty() { queue.next_command() } else { None };
            if !group.is_empty() {
                queue.busy.set(true);
                self.append(&group).await?;
                if let Some(last) = group.last() {
                    queue.answer(Input::Durable { upto: last.last() });
                }
                sealed = false;
            } else if let Some(command) = command {
                queue.busy.set(true);
                self.carry_out(command).await?;
            } else if !queue.wait(sealed).await {
                match self.wal.seal().await {
                    Ok(()) | Err(AppendError::NoSpace { .. }) => sealed = true,
                    Err(error) => return Err(error.to_string()),
                }
            }
            queue.busy.set(false);
        }
    }

    /// Appends, as soon as there is room.
    async fn append(&mut self, group: &[Batch]) -> Result<(), String> {
        let frames: Vec<_> = group.iter().map(|batch| &**batch.bytes()).collect();
        loop {
            match self.wal.append(&frames).await {
                Ok(_) => break,
                Err(AppendError::NoSpace { needed_bytes }) => self.wait_for_room(needed_bytes).await?,
                Err(error) => return Err(error.to_string()),
            }
        }
        self.found_room().await
    }

    async fn found_room(&mut self) -> Result<(), String> {
        if self.queue.full.replace(false) {
            self.reserve.keep().await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Waits until the disk has that much room, and carries out meanwhile what needs none.
    async fn wait_for_room(&mut self, needed_bytes: u64) -> Result<(), String> {
        if salvage::let_go(&self.storage).await.map_err(|error| error.to_string())? > 0 {
            return Ok(());
        }
        if !self.queue.full.replace(true) {
            self.reserve.release().await;
        }
        let queue = Rc::clone(&self.queue);
        loop {
            let mut look = pin!(queue.sleep(LOOK_FOR_ROOM_EVERY_US));
            loop {
                let command = poll_fn(|cx| match queue.next_beside_append() {
                    Some(command) => Poll::Ready(Some(command)),
                    None => look.as_mut().poll(cx).map(|()| None),
                });
                let Some(command) = command.await else { break };
                self.carry_out_beside(command).await?;
            }
            let free = self.storage.free_bytes().await.map_err(|error| error.to_string())?;
            if free >= needed_bytes + self.reserve.missing_bytes() {
                return Ok(());
            }
        }
    }

    async fn promise(&mut self, promises: Promises) -> Result<(), String> {
        let mut waits = false;
        while let Err(error) = self.meta.promise(promises).await {
            if !error.is_no_space() {
                return Err(error.to_string());
            }
            if std::mem::replace(&mut waits, true) {
                self.queue.sleep(LOOK_FOR_ROOM_EVERY_US).await;
            } else {
                self.reserve.release().await;
            }
        }
        if waits { self.reserve.keep().await.map_err(|error| error.to_string()) } else { Ok(()) }
    }

    async fn truncate(&mut self, after: Zxid) -> Result<LogPosition, String> {
        loop {
            match self.wal.truncate_after(after).await {
                Ok(last) => {
                    self.found_room().await?;
                    return Ok(last);
                }
                Err(TruncateError::Segment(SegmentError::NoSpace { size_bytes })) => {
                    self.wait_for_room(size_bytes).await?;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    async fn install(&mut self, last: LogPosition) -> Result<Answer, String> {
        match self.wal.reset(last.zxid, last.checksum).await {
            Ok(()) => {}
            Err(SegmentError::NoSpace { .. }) => {
                self.snapshots.withdraw(last.zxid).await.map_err(|error| error.to_string())?;
                return Ok(Answer::Input(Input::SnapshotAborted));
            }
            Err(error) => return Err(error.to_string()),
        }
        self.snapshots.install(last.zxid).await.map_err(|error| error.to_string())?;
        let (state, _) = restore(&self.snapshots, &self.wal, self.seed).await?;
        Ok(Answer::Installed(Box::new(state), last))
    }

    async fn carry_out(&mut self, command: Command) -> Result<(), String> {
        match command {
            Command::Append(_) => unreachable!("appends are taken in groups"),
            Command::Truncate { after } => {
                let last = self.truncate(after).await?;
                self.queue.answer(Input::Truncated { last });
            }
            Command::Rebuild => {
                let (state, _) = restore(&self.snapshots, &self.wal, self.seed).await?;
                self.queue.reply(Answer::Rebuilt(Box::new(state)));
            }
            Command::Install { last } => {
                let answer = self.install(last).await?;
                self.queue.reply(answer);
            }
            Command::Purge { upto } => {
                if self.wal.purge_before(upto) > 0 {
                    self.queue.answer(Input::LogPurged { base: self.wal.base() });
                }
            }
            Command::Promise(_) | Command::Read { .. } => return self.carry_out_beside(command).await,
        }
        Ok(())
    }

    /// Carries out what neither needs the log's end nor changes it.
    async fn carry_out_beside(&mut self, command: Command) -> Result<(), String> {
        match command {
            Command::Promise(epochs) => {
                let promises = Promises {
                    cluster: epochs.cluster,
                    fork: epochs.fork,
                    voters: epochs.voters.words(),
                    accepted_epoch: epochs.accepted,
                    current_epoch: epochs.current,
                    initialized: epochs.initialized,
                    claim: epochs.claim,
                };
                self.promise(promises).await?;
                self.queue.remembers.set(remembers(&epochs));
                self.queue.answer(Input::EpochsDurable);
            }
            Command::Read { peer, after, bytes_max } => {
                match self.wal.read_from(Zxid(after.0.saturating_add(1))) {
                    Ok(reader) => {
                        let queue = Rc::clone(&self.queue);
                        self.queue.spawned.borrow_mut().push(Box::pin(async move {
                            let batches = read_batches(reader, bytes_max).await?;
                            queue.answer(Input::LogRead { peer, after, batches });
                            Ok(())
                        }));
                    }
                    Err(_) => self.queue.answer(Input::LogRead { peer, after, batches: Vec::new() }),
                }
            }
            _ => unreachable!("not a command beside others"),
        }
        Ok(())
    }
}

async fn read_batches<F: StorageFile>(mut reader: Reader<F>, bytes_max: usize) -> Result<Vec<Batch>, String> {
    let mut batches = Vec::new();
    let mut bytes = 0;
    while bytes < bytes_max {
        let Some(frame) = reader.next().await.map_err(|error| error.to_string())? else { break };
        bytes += frame.bytes().len();
        batches.extend(Some(Batch::from(&frame)));
    }
    Ok(batches)
}

impl Queue {
    pub(crate) fn push(&self, command: Command) {
        self.commands.borrow_mut().push_back(command);
    }

    pub(crate) fn answer(&self, input: Input) {
        self.reply(Answer::Input(input));
    }

    pub(crate) fn reply(&self, answer: Answer) {
        self.answers.borrow_mut().push_back(answer);
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = Result<(), String>> + 'static) {
        self.spawned.borrow_mut().push(Box::pin(task));
    }

    /// Waits for so long, to the next tick.
    pub(crate) async fn sleep(&self, us: u64) {
        let until_us = self.now_us.get() + us;
        poll_fn(|_| if self.now_us.get() >= until_us { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn next_group(&self) -> Vec<Batch> {
        let mut commands = self.commands.borrow_mut();
        let mut group = Vec::new();
        while let Some(Command::Append(batch)) =
            commands.pop_front_if(|command| matches!(command, Command::Append(_)))
        {
            group.push(batch);
        }
        group
    }

    fn next_beside_append(&self) -> Option<Command> {
        let mut commands = self.commands.borrow_mut();
        let beside = |command: &Command| matches!(command, Command::Promise(_) | Command::Read { .. });
        let place = commands.iter().position(beside)?;
        commands.remove(place)
    }

    fn next_command(&self) -> Option<Command> {
        self.commands.borrow_mut().pop_front()
    }

    /// Waits for work; false if the log is to be sealed before any has come.
    async fn wait(&self, sealed: bool) -> bool {
        self.busy.set(false);
        poll_fn(|_| {
            if !self.commands.borrow().is_empty() {
                Poll::Ready(true)
            } else if self.seal.take() && !sealed {
                self.busy.set(true);
                Poll::Ready(false)
            } else {
                Poll::Pending
            }
        })
        .await
    }
}
