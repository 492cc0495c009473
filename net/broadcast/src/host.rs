//! The core on its executor: takes requests, appends to the log, sends messages, and calls the machine in
//! between.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use async_channel::Receiver;
use bytes::Bytes;
use ringkeeper_engine::zab::{Effect, Input, LogPosition, Message, Status};
use ringkeeper_host::snapshots::{SnapshotHost, Trigger};
use ringkeeper_host::transfer::{Receiving, Sending};
use ringkeeper_wire::{ServerId, Zxid};

use crate::core::{Core, Output};
use crate::handle::{Request, Shared};
use crate::machine::StateMachine;
use crate::recovery::MachineState;
use crate::snapshots::{MachineImage, STATE_VERSION};
use crate::waiters::Waiters;
use ringkeeper_host::alarms::Alarms;
use ringkeeper_host::log_task::{Answer, Command, LogHost, LogQueue};
use ringkeeper_host::wake::WakeFlag;
use ringkeeper_runtime::clock::Clock;
use ringkeeper_runtime::peers::{PeerHost, Peers};

/// Bytes delivered to the machine before sockets and log are served again.
const DELIVER_BYTES: usize = 64 << 10;

/// Committed bytes that may wait for the machine. Above it the server stops until the machine has caught up,
/// and sends no acks meanwhile.
const UNDELIVERED_BYTES_MAX: usize = 64 << 20;

/// The core, with its log, links and handles.
pub(crate) struct Host<M> {
    core: RefCell<Core<M>>,
    log: Rc<LogQueue<MachineState>>,
    peers: Peers,
    clock: Clock,
    shared: Arc<Shared>,
    waiters: Rc<Waiters>,
    /// Number of requests so far, by which each is identified.
    numbered: Cell<u64>,
    /// Told of each append, to trigger snapshots.
    trigger: Trigger,
    sending: Sending,
    receiving: Receiving,
    alarms: Alarms,
    /// Whether the disk has room, as the broadcast was last told.
    room: Cell<bool>,
    /// Why the server cannot go on.
    broken: RefCell<Option<String>>,
    /// The pump has something to do.
    work: WakeFlag,
}

impl<M: StateMachine> Host<M> {
    pub(crate) fn new(
        core: Core<M>,
        log: Rc<LogQueue<MachineState>>,
        peers: Peers,
        clock: Clock,
        shared: Arc<Shared>,
        trigger: Trigger,
        waiters: Rc<Waiters>,
    ) -> Rc<Self> {
        Rc::new(Self {
            core: RefCell::new(core),
            log,
            peers,
            clock,
            shared,
            waiters,
            numbered: Cell::new(0),
            trigger,
            sending: Sending::default(),
            receiving: Receiving::default(),
            alarms: Alarms::default(),
            room: Cell::new(true),
            broken: RefCell::default(),
            work: WakeFlag::default(),
        })
    }

    /// Zxid of the last transaction delivered to the machine.
    pub(crate) fn delivered(&self) -> Zxid {
        self.core.borrow().delivered()
    }

    /// Takes requests until one is a shutdown, or all handles are dropped.
    pub(crate) async fn requests(&self, requests: &Receiver<Request>) {
        while let Ok(request) = requests.recv().await {
            let mut next = Some(request);
            while let Some(request) = next {
                if matches!(request, Request::Shutdown) {
                    return;
                }
                self.request(request);
                next = requests.try_recv().ok();
            }
            self.work.raise();
        }
    }

    fn request(&self, request: Request) {
        let number = self.numbered.get() + 1;
        self.numbered.set(number);
        let mut core = self.core.borrow_mut();
        let waiter = match request {
            Request::Propose(proposal, waiter) => {
                core.propose(number, &proposal);
                waiter
            }
            Request::Sync(waiter) => {
                core.sync(self.clock.monotonic_ms(), number);
                waiter
            }
            Request::Shutdown => return,
        };
        self.waiters.told_later(number, waiter);
    }

    /// Handles all events until the server cannot go on; returns the reason.
    pub(crate) async fn pump(self: Rc<Self>) -> String {
        self.core.borrow_mut().input(self.clock.monotonic_ms(), Input::Start);
        loop {
            self.handle();
            let more = self.deliver();
            self.carry_out();
            if let Some(reason) = self.broken.take() {
                return reason;
            }
            if more {
                glommio::executor().yield_task_queue_now().await;
            } else {
                poll_fn(|cx| self.work.poll_lower(cx)).await;
            }
        }
    }

    fn handle(&self) {
        let now_ms = self.clock.monotonic_ms();
        let mut core = self.core.borrow_mut();
        while let Some(answer) = self.log.next_answer() {
            match answer {
                Answer::Input(input) => core.input(now_ms, input),
                Answer::Installed(state, last) => {
                    core.installed(now_ms, last, state.bytes.unwrap_or_default())
                }
                // Never requested: the machine is told committed transactions only, which are never
                // truncated.
                Answer::Rebuilt(_) => {}
            }
        }
        let room = !self.log.disk_is_full();
        if self.room.replace(room) != room {
            core.input(now_ms, Input::Room(room));
        }
        // Group commit: requests that arrive during an fsync form the next batch.
        if self.log.is_idle() || core.has_full_batch() {
            core.seal(now_ms);
        }
        core.flush(now_ms);
    }

    fn deliver(&self) -> bool {
        let mut core = self.core.borrow_mut();
        while core.undelivered_bytes() > UNDELIVERED_BYTES_MAX {
            core.deliver(DELIVER_BYTES);
        }
        core.deliver(DELIVER_BYTES)
    }

    fn carry_out(&self) {
        let outputs = self.core.borrow_mut().take_outputs();
        for output in outputs {
            match output {
                Output::Zab(effect) => self.carry_out_effect(effect),
                Output::Answer { number, answer } => {
                    self.waiters.tell(number, answer);
                }
                Output::Status(status) => {
                    report(status);
                    self.shared.set_status(status);
                }
                Output::InvalidPeerMessage { peer, reason } => {
                    tracing::warn!(%peer, reason, "a peer sent an invalid message, it is disconnected");
                    self.peers.disconnect(peer);
                }
                Output::Broken(reason) => {
                    self.broken.borrow_mut().get_or_insert(reason);
                }
            }
        }
    }

    fn carry_out_effect(&self, effect: Effect) {
        match effect {
            Effect::Send { to, message } => self.peers.send(to, &message),
            Effect::Append(batch) => {
                self.trigger.appended(batch.txns(), batch.bytes().len() as u64);
                self.log.push(Command::Append(batch));
            }
            Effect::Truncate { after } => self.log.push(Command::Truncate { after }),
            Effect::PersistEpochs(epochs) => self.log.push(Command::Promise(epochs)),
            Effect::ReadLog { peer, after, bytes_max } => {
                self.log.push(Command::Read { peer, after, bytes_max });
            }
            Effect::Disconnect { peer } => self.peers.disconnect(peer),
            Effect::Reset => self.sending.cancel_all(),
            Effect::SendSnapshot { to } => self.sending.ask(to),
            Effect::InstallSnapshot { from, last } => self.receiving.begin(from, last),
            Effect::SnapshotChunk { from, bytes } => self.receive_piece(from, bytes),
            Effect::AbortSnapshot => self.receiving.abort(),
            Effect::Departed(why) => tracing::warn!(%why, "leaving the ensemble for a new election"),
            Effect::Repaired { from, claim } => {
                tracing::info!(
                    leader = %from,
                    upto = %claim,
                    "what was damaged here is repaired from the leader"
                );
            }
            Effect::Alarm(alarm) => self.alarms.raise(self.clock.monotonic_ms(), alarm),
            // The rest is the core's own.
            _ => {}
        }
    }

    fn receive_piece(&self, from: ServerId, bytes: Bytes) {
        if !self.receiving.piece(bytes) {
            tracing::warn!(peer = %from, "a snapshot is sent faster than it is written, disconnecting");
            self.peers.disconnect(from);
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&self) {
        self.input(Input::Tick);
    }

    fn input(&self, input: Input) {
        self.core.borrow_mut().input(self.clock.monotonic_ms(), input);
        self.work.raise();
    }
}

impl<M: StateMachine> LogHost for Host<M> {
    fn wake(&self) {
        self.work.raise();
    }
}

impl<M: StateMachine> PeerHost for Host<M> {
    fn peers(&self) -> &Peers {
        &self.peers
    }

    fn peer_input(&self, input: Input) {
        match &input {
            Input::Message { from, message: Message::SnapshotReceived { zxid, upto } } => {
                self.sending.received(*from, *zxid, *upto);
            }
            Input::PeerDisconnected(peer) => self.sending.cancel(*peer),
            _ => {}
        }
        self.input(input);
    }
}

impl<M: StateMachine> SnapshotHost for Host<M> {
    type Image = MachineImage;

    fn hold(&self) -> Option<(MachineImage, LogPosition)> {
        let (state, last) = self.core.borrow_mut().hold()?;
        Some((MachineImage::new(state), last))
    }

    fn trigger(&self) -> &Trigger {
        &self.trigger
    }

    fn sending(&self) -> &Sending {
        &self.sending
    }

    fn receiving(&self) -> &Receiving {
        &self.receiving
    }

    fn committed(&self) -> Zxid {
        self.core.borrow().committed()
    }

    fn cluster(&self) -> u64 {
        self.core.borrow().cluster()
    }

    fn state_version(&self) -> u32 {
        STATE_VERSION
    }

    fn input(&self, input: Input) {
        Self::input(self, input);
    }

    fn input_now(&self, input: Input) {
        Self::input(self, input);
        self.carry_out();
    }

    fn send(&self, to: ServerId, message: &Message) {
        self.peers.send(to, message);
    }

    fn disconnect(&self, peer: ServerId) {
        self.peers.disconnect(peer);
    }

    fn fail(&self, reason: String) {
        self.broken.borrow_mut().get_or_insert(reason);
        self.work.raise();
    }
}

fn report(status: Status) {
    match status {
        Status::Looking => tracing::info!("looking for a leader"),
        Status::Following { leader, epoch } => tracing::info!(%leader, epoch = epoch.0, "following"),
        Status::Leading { epoch } => tracing::info!(epoch = epoch.0, "leading"),
    }
}
