//! Snapshots of a simulated server: taken, sent, received, and read at a start, as in `net/src/server/snapshots` and
//! `net/src/server/replay.rs`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use ringkeeper_engine::snapshot::{Decoder, Encoder, STATE_VERSION};
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn;
use ringkeeper_engine::zab::{Input, LogPosition, Message};
use ringkeeper_log::frame::{AlignedBuf, Checksum};
use ringkeeper_log::memory::MemoryStorage;
use ringkeeper_log::snapshot::{Contents, Head, Incoming, SnapshotError, Snapshots, file_name};
use ringkeeper_log::wal::Wal;
use ringkeeper_wire::{ServerId, Zxid};

use super::log::{Answer, Command, Queue};

/// Bytes of a piece, and of those under way: small, so that a snapshot is several.
const PIECE_LEN: usize = 4096;
const WINDOW_BYTES: u64 = 2 * PIECE_LEN as u64;

/// What could not be received is not asked for again before.
const AGAIN_AFTER_US: u64 = 100_000;

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

/// A snapshot on its way to a peer.
#[derive(Default)]
struct Flow {
    zxid: Cell<Zxid>,
    /// Bytes that the peer has written.
    received: Cell<u64>,
    cancelled: Cell<bool>,
}

/// What the broadcast wants received.
enum Wanted {
    Begin { from: ServerId, last: LogPosition },
    Piece(Arc<[u8]>),
    Abort,
}

/// The snapshots of one life of a server, and what its tasks share.
pub(crate) struct SnapshotDesk {
    snapshots: Snapshots<MemoryStorage>,
    queue: Rc<Queue>,
    kept: usize,
    taking: Cell<bool>,
    demanded: Cell<bool>,
    /// Zxid of the newest committed transaction, and the ensemble.
    committed: Cell<Zxid>,
    cluster: Cell<u64>,
    taken: Cell<u64>,
    flows: RefCell<BTreeMap<ServerId, Rc<Flow>>>,
    /// What each peer was sent whole, or did not begin to take.
    sent: RefCell<BTreeMap<ServerId, Zxid>>,
    wanted: RefCell<VecDeque<Wanted>>,
}

impl SnapshotDesk {
    pub(crate) fn new(snapshots: Snapshots<MemoryStorage>, queue: Rc<Queue>, kept: usize) -> Rc<Self> {
        Rc::new(Self {
            snapshots,
            queue,
            kept,
            taking: Cell::new(false),
            demanded: Cell::new(false),
            committed: Cell::default(),
            cluster: Cell::new(0),
            taken: Cell::new(0),
            flows: RefCell::default(),
            sent: RefCell::default(),
            wanted: RefCell::default(),
        })
    }

    /// What the node says of itself, before anything else is done.
    pub(crate) fn note(&self, committed: Zxid, cluster: u64) {
        self.committed.set(committed);
        self.cluster.set(cluster);
    }

    /// Whether a peer waits for a snapshot to be taken.
    pub(crate) fn is_demanded(&self) -> bool {
        self.demanded.get()
    }

    /// How many have been taken in this life.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.get()
    }

    // Taking.

    /// Takes one of this state beside everything else, unless one is being taken.
    pub(crate) fn take(self: &Rc<Self>, state: Arc<State>, mark: LogPosition) {
        if self.taking.replace(true) {
            return;
        }
        self.demanded.set(false);
        let desk = Rc::clone(self);
        self.queue.spawn(async move {
            let taken = desk.write(state, mark).await;
            desk.taking.set(false);
            match taken {
                Err(error) if error.is_fatal() => Err(error.to_string()),
                // It is taken another time.
                _ => Ok(()),
            }
        });
    }

    async fn write(&self, state: Arc<State>, mark: LogPosition) -> Result<(), SnapshotError> {
        let zxid = mark.zxid;
        if self.snapshots.list().await?.first() == Some(&zxid) {
            return Ok(());
        }
        let head =
            Head { zxid, chain: mark.checksum, cluster: self.cluster.get(), state_version: STATE_VERSION };
        let mut encoder = Encoder::new(state);
        let contents = encoder.contents();
        let contents = Contents { items: contents.znodes, digest: contents.digest };
        let mut writer = self.snapshots.begin(head).await?;
        let mut block = AlignedBuf::new();
        while encoder.next(&mut block) {
            if let Err(error) = writer.block(&block).await {
                writer.abandon().await;
                return Err(error);
            }
        }
        writer.finish(contents).await?;
        self.taken.set(self.taken.get() + 1);
        self.queue.answer(Input::SnapshotTaken { zxid });
        if let Some(oldest) = self.snapshots.retain(self.kept).await? {
            let upto = self.oldest_sent().map_or(oldest, |sent| sent.min(oldest));
            self.queue.push(Command::Purge { upto });
        }
        Ok(())
    }

    // Sending.

    fn oldest_sent(&self) -> Option<Zxid> {
        self.flows.borrow().values().map(|flow| flow.zxid.get()).filter(|zxid| *zxid > Zxid::ZERO).min()
    }

    /// A peer needs a snapshot. What it is being sent, if anything, ends.
    pub(crate) fn send(self: &Rc<Self>, to: ServerId) {
        self.cancel(to);
        let flow = Rc::new(Flow::default());
        self.flows.borrow_mut().insert(to, Rc::clone(&flow));
        let desk = Rc::clone(self);
        self.queue.spawn(async move {
            let ended = desk.transfer(to, &flow).await;
            if flow.received.get() > 0 && (flow.cancelled.get() || ended.is_err()) {
                desk.sent.borrow_mut().remove(&to);
            }
            if ended.is_err() {
                desk.queue.reply(Answer::Disconnect(to));
            }
            desk.flows.borrow_mut().retain(|peer, other| *peer != to || !Rc::ptr_eq(other, &flow));
            Ok(())
        });
    }

    pub(crate) fn cancel(&self, to: ServerId) {
        if let Some(flow) = self.flows.borrow_mut().remove(&to) {
            flow.cancelled.set(true);
        }
    }

    pub(crate) fn cancel_all(&self) {
        let flows = std::mem::take(&mut *self.flows.borrow_mut());
        flows.values().for_each(|flow| flow.cancelled.set(true));
    }

    /// A peer has written so much.
    pub(crate) fn received(&self, from: ServerId, zxid: Zxid, upto: u64) {
        if let Some(flow) = self.flows.borrow().get(&from).filter(|flow| flow.zxid.get() == zxid) {
            flow.received.set(flow.received.get().max(upto));
        }
    }

    async fn transfer(&self, to: ServerId, flow: &Flow) -> Result<(), SnapshotError> {
        let Some(last) = self.choose(to, flow).await? else { return Ok(()) };
        let zxid = last.zxid;
        flow.zxid.set(zxid);
        let mut outgoing = self.snapshots.send(zxid).await?;
        let total = outgoing.len();
        if flow.cancelled.get() {
            return Ok(());
        }
        self.sent.borrow_mut().insert(to, zxid);
        self.queue.answer(Input::SnapshotReady { peer: to, last });
        let mut offset = 0;
        while let Some(bytes) = outgoing.next().await? {
            for piece in bytes.chunks(PIECE_LEN) {
                let open = || flow.cancelled.get() || offset < flow.received.get() + WINDOW_BYTES;
                poll_fn(|_| if open() { Poll::Ready(()) } else { Poll::Pending }).await;
                if flow.cancelled.get() {
                    return Ok(());
                }
                let message = encode(zxid, offset, total, piece);
                self.queue.reply(Answer::Send(to, Message::SnapshotChunk(message)));
                offset += piece.len() as u64;
            }
        }
        let whole = || flow.cancelled.get() || flow.received.get() >= total;
        poll_fn(|_| if whole() { Poll::Ready(()) } else { Poll::Pending }).await;
        Ok(())
    }

    /// The newest snapshot; a new one if there is none, or if the peer had that one already.
    async fn choose(&self, to: ServerId, flow: &Flow) -> Result<Option<LogPosition>, SnapshotError> {
        while !flow.cancelled.get() {
            let had = self.sent.borrow().get(&to).copied();
            let newest = self.snapshots.list().await?.first().copied();
            if let Some(zxid) = newest.filter(|zxid| Some(*zxid) != had || *zxid >= self.committed.get()) {
                let checksum = self.snapshots.open(zxid).await?.head().chain;
                return Ok(Some(LogPosition { zxid, checksum }));
            }
            self.demanded.set(!self.taking.get());
            self.queue.sleep(10_000).await;
        }
        Ok(None)
    }

    // Receiving.

    pub(crate) fn begin(&self, from: ServerId, last: LogPosition) {
        self.wanted.borrow_mut().push_back(Wanted::Begin { from, last });
    }

    pub(crate) fn piece(&self, bytes: Arc<[u8]>) {
        self.wanted.borrow_mut().push_back(Wanted::Piece(bytes));
    }

    pub(crate) fn abort(&self) {
        self.wanted.borrow_mut().push_back(Wanted::Abort);
    }

    async fn next_wanted(&self) -> Wanted {
        poll_fn(|_| self.wanted.borrow_mut().pop_front().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Receives snapshots, for as long as the server runs.
    pub(crate) async fn receive(self: Rc<Self>) -> Result<(), String> {
        let mut current: Option<Current> = None;
        loop {
            let result = match self.next_wanted().await {
                Wanted::Begin { from, last } => {
                    let file = self.snapshots.receive().await;
                    file.map(|file| Some(Current { from, last, file }))
                }
                Wanted::Piece(bytes) => match current.take() {
                    Some(current) => self.take_piece(current, &bytes).await,
                    None => Ok(None),
                },
                Wanted::Abort => {
                    if let Some(current) = current.take() {
                        current.file.abandon().await;
                        self.queue.answer(Input::SnapshotAborted);
                    }
                    Ok(None)
                }
            };
            current = match result {
                Ok(current) => current,
                Err(error) if error.is_fatal() => return Err(error.to_string()),
                Err(_) => {
                    self.queue.sleep(AGAIN_AFTER_US).await;
                    self.queue.answer(Input::SnapshotAborted);
                    None
                }
            };
        }
    }

    async fn take_piece(
        &self,
        mut current: Current,
        message: &[u8],
    ) -> Result<Option<Current>, SnapshotError> {
        let (zxid, offset, total, bytes) = decode(message);
        if let Err(error) = current.file.piece(offset, bytes).await {
            current.file.abandon().await;
            return Err(error);
        }
        let upto = current.file.len();
        self.queue.reply(Answer::Send(current.from, Message::SnapshotReceived { zxid, upto }));
        if upto < total {
            return Ok(Some(current));
        }
        let (cluster, checksum) = (self.cluster.get(), current.last.checksum);
        let accept = |head: &Head| head.chain == checksum && (cluster == 0 || head.cluster == cluster);
        current.file.finish(zxid, accept).await?;
        self.queue.push(Command::Install { last: current.last });
        Ok(None)
    }
}

/// A snapshot that is coming in.
struct Current {
    from: ServerId,
    last: LogPosition,
    file: Incoming<MemoryStorage>,
}

fn encode(zxid: Zxid, offset: u64, total: u64, bytes: &[u8]) -> Arc<[u8]> {
    let head = [zxid.0, offset, total].map(u64::to_le_bytes);
    [head.as_flattened(), bytes].concat().into()
}

fn decode(message: &[u8]) -> (Zxid, u64, u64, &[u8]) {
    let (head, bytes) = message.split_at(24);
    let number = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("eight bytes"));
    (Zxid(number(0)), number(8), number(16), bytes)
}
