//! The pump: the one driver of a server's node. It takes what comes from the log, the peers and the users,
//! and carries out what the node decides.
//!
//! ```text
//! users --Frontend-- requests --> +------+ --> Append, Truncate, PersistEpochs, ReadLog --> log task
//!       <----------- outputs ---- | Node | --> Send, Disconnect --> Links
//! log task, links, -- inputs ---> +------+ --> SendSnapshot, InstallSnapshot --> transfers
//! transfers, clock
//! ```
//!
//! Requests that arrive during an fsync form the next batch (group commit): the node is asked for a batch
//! when the log is idle. A full batch is proposed meanwhile, bounded by the node.

use std::cell::{Cell, Ref, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use ringkeeper_engine::application::Application;
use ringkeeper_engine::node::{Effect, Node};
use ringkeeper_engine::replica::Now;
use ringkeeper_engine::zab::{self, Input, LogPosition, Message, Status};
use ringkeeper_wire::ServerId;

use crate::alarms::Alarms;
use crate::env::Env;
use crate::links::{Links, Port};
use crate::log_task::{Answer, Command, LogQueue};
use crate::snapshots::{Image, Trigger};
use crate::transfer::{Receiving, Sending};
use crate::wake::WakeFlag;

/// How long a held state waits for the log. A snapshot keeps the state that it is written from for longer.
const HELD_MAX: Duration = Duration::from_secs(60);

/// How often it is checked whether the log is durable so far.
const SETTLED_EVERY: Duration = Duration::from_millis(20);

/// The state of an application.
pub type StateOf<F> = <<F as Frontend>::Application as Application>::State;
/// What an application's users are told.
pub type OutputOf<F> = <<F as Frontend>::Application as Application>::Output;

/// The side of a server where the users of its application are: shards with clients, handles of a library, or
/// a simulation.
pub trait Frontend: 'static {
    /// The application.
    type Application: Application<Image: Image>;

    /// Hands all waiting requests to the node.
    fn hand_over(&self, now: Now, node: &mut Node<Self::Application>);

    /// Ready if there are requests, or room for outputs that have waited for it.
    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Work that may wait behind requests and messages: a part of it. Returns whether there is more.
    fn work(&self, now: Now, node: &mut Node<Self::Application>) -> bool {
        let _ = (now, node);
        false
    }

    /// Gives an output to the users it is for.
    fn output(&self, output: OutputOf<Self>);

    /// All outputs of a turn were given.
    fn flush(&self) {}

    /// The disk has run full, or has room again.
    fn disk_full(&self, full: bool) {
        let _ = full;
    }

    /// This is about to be carried out; for statistics and checks.
    fn observe(&self, node: &Node<Self::Application>, effect: &Effect<OutputOf<Self>>) {
        let _ = (node, effect);
    }

    /// This is about to be handled; for statistics.
    fn hear(&self, input: &Input) {
        let _ = input;
    }

    /// A snapshot that ends at `last` has replaced the log; its state is about to replace the application's.
    fn installed(&self, last: LogPosition) {
        let _ = last;
    }

    /// What a peer has sent is not the snapshot that it has announced. It is asked for again.
    fn mangled(&self, reason: String) {
        let _ = reason;
    }
}

/// The driver of a server's node.
pub struct Pump<E: Env, F: Frontend> {
    env: E,
    frontend: F,
    links: Rc<Links<E>>,
    node: RefCell<Node<F::Application>>,
    log: Rc<LogQueue<StateOf<F>>>,
    trigger: Trigger,
    sending: Sending,
    receiving: Receiving,
    /// Whether the disk is full, as node and users were last told.
    disk_full: Cell<bool>,
    alarms: Alarms,
    /// Why the server cannot go on.
    broken: RefCell<Option<String>>,
    /// There is something to do.
    due: WakeFlag,
}

impl<E: Env, F: Frontend> Pump<E, F> {
    /// Version of the application's state in snapshots. A received snapshot of another application or version
    /// is not installed.
    pub(crate) const STATE_VERSION: u32 = F::Application::STATE_VERSION;

    /// A pump of a node that starts now. What it decides is carried out by [`Self::run`].
    pub fn new(
        env: E,
        frontend: F,
        links: Rc<Links<E>>,
        mut node: Node<F::Application>,
        log: Rc<LogQueue<StateOf<F>>>,
        trigger: Trigger,
    ) -> Rc<Self> {
        node.input(env.now(), Input::Start);
        Rc::new(Self {
            env,
            frontend,
            links,
            node: RefCell::new(node),
            log,
            trigger,
            sending: Sending::default(),
            receiving: Receiving::default(),
            disk_full: Cell::new(false),
            alarms: Alarms::default(),
            broken: RefCell::default(),
            due: WakeFlag::default(),
        })
    }

    /// The environment that it runs in.
    pub const fn env(&self) -> &E {
        &self.env
    }

    /// The node, read-only.
    pub fn node(&self) -> Ref<'_, Node<F::Application>> {
        self.node.borrow()
    }

    /// The users' side.
    pub const fn frontend(&self) -> &F {
        &self.frontend
    }

    /// The links to the other servers.
    pub fn links(&self) -> &Rc<Links<E>> {
        &self.links
    }

    /// Starts to connect to the other servers, and to accept their connections.
    pub fn start_links(self: &Rc<Self>, ports: impl IntoIterator<Item = Port<E::Listener>>) {
        let pump = Rc::clone(self);
        self.links.start(ports, move |input| pump.input(input));
    }

    /// The alarms of the last minute.
    pub const fn alarms(&self) -> &Alarms {
        &self.alarms
    }

    /// The queue of the log task.
    pub const fn log(&self) -> &Rc<LogQueue<StateOf<F>>> {
        &self.log
    }

    /// When this server takes snapshots.
    pub const fn trigger(&self) -> &Trigger {
        &self.trigger
    }

    pub(crate) const fn sending(&self) -> &Sending {
        &self.sending
    }

    pub(crate) const fn receiving(&self) -> &Receiving {
        &self.receiving
    }

    /// Has the pump take a turn soon.
    pub fn wake(&self) {
        self.due.raise();
    }

    /// Handles an input; its effects are carried out in the next turn.
    pub fn input(&self, input: Input) {
        self.frontend.hear(&input);
        match &input {
            Input::Message { from, message: Message::SnapshotReceived { zxid, upto } } => {
                self.sending.received(*from, *zxid, *upto);
            }
            Input::PeerConnected(peer) => {
                self.node.borrow_mut().peer_speaks(*peer, self.links.version(*peer));
            }
            Input::PeerDisconnected(peer) => self.sending.cancel(*peer),
            _ => {}
        }
        self.node.borrow_mut().input(self.env.now(), input);
        self.wake();
    }

    /// Handles an input, and carries out all its effects before returning.
    pub(crate) fn input_now(&self, input: Input) {
        self.input(input);
        self.carry_out_effects();
    }

    /// Passes the time to the node and carries out its effects at once: if heartbeats waited behind the
    /// users' requests, they would be late just when the CPU is overloaded.
    pub fn tick(&self) {
        self.node.borrow_mut().tick(self.env.now());
        self.carry_out_effects();
        self.wake();
    }

    /// Hands a request to the application at once; `None` while leadership is handed over.
    pub fn request<T>(&self, request: impl FnOnce(&mut F::Application, Now) -> T) -> Option<T> {
        let (now, mut node) = (self.env.now(), self.node.borrow_mut());
        let answer =
            node.takes_requests().then(|| node.request(now, |application| request(application, now)));
        self.wake();
        answer
    }

    /// Ends the server with a reason; the first one counts.
    pub fn fail(&self, reason: String) {
        self.broken.borrow_mut().get_or_insert(reason);
        self.wake();
    }

    /// The ensemble, 0 while not known.
    pub fn cluster(&self) -> u64 {
        self.node().zab().durable_epochs().cluster
    }

    /// A held state for a snapshot, and its log position, once the log is durable so far; see
    /// [`Application::hold`]. `None` if there is none now, or if that took too long.
    pub async fn hold(&self) -> Option<(<F::Application as Application>::Image, LogPosition)> {
        let (image, position) = self.node.borrow_mut().hold()?;
        let until = self.env.elapsed() + HELD_MAX;
        while !self.node().zab().is_settled(position.zxid) {
            // Another snapshot may have taken the place of the log.
            let is_behind = self.node().zab().log_base() > position.zxid;
            if is_behind || self.env.elapsed() >= until {
                self.env.aside(move || drop(image)).await;
                return None;
            }
            self.env.sleep(SETTLED_EVERY).await;
        }
        Some((image, position))
    }

    /// Handles requests, answers of the log and all other events until the server cannot go on; returns the
    /// reason.
    pub async fn run(self: Rc<Self>) -> String {
        loop {
            let more = self.handle();
            self.carry_out_effects();
            if let Some(reason) = self.broken.take() {
                return reason;
            }
            if more {
                self.env.yield_now().await;
                self.lead_waiting();
            } else {
                poll_fn(|cx| self.poll_due(cx)).await;
            }
        }
    }

    /// One pass. Returns whether another is to follow.
    fn handle(&self) -> bool {
        let now = self.env.now();
        let mut node = self.node.borrow_mut();
        while let Some(answer) = self.log.next_answer() {
            match answer {
                Answer::Input(input) => {
                    self.frontend.hear(&input);
                    node.input(now, input);
                }
                Answer::Rebuilt(state) => node.restored(now, *state),
                Answer::Installed(state, last) => {
                    self.frontend.installed(last);
                    node.restored(now, *state);
                    node.input(now, Input::SnapshotInstalled { last });
                }
            }
        }
        if node.takes_requests() {
            self.frontend.hand_over(now, &mut node);
        }
        if self.log.is_idle() {
            node.propose(now);
        }
        // A leader's lease is judged by this time: it is later than what was asked of the leader until here.
        node.flush(self.env.now());
        let more = self.frontend.work(now, &mut node);
        more || node.has_due()
    }

    /// Prepares a large request that has waited until others were committed, after these were told of it and
    /// their peers and users had their turn: to prepare it may take long.
    fn lead_waiting(&self) {
        self.node.borrow_mut().lead_waiting(self.env.now());
    }

    fn poll_due(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut ready = self.due.poll_lower(cx).is_ready();
        ready |= self.log.poll_news(cx).is_ready();
        // Who waits for the end of a hand-over is not ready; its messages and the ticks are.
        ready |= !self.node().zab().is_paused() && self.frontend.poll_ready(cx).is_ready();
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }

    fn carry_out_effects(&self) {
        self.tell_disk_full();
        let effects = self.node.borrow_mut().take_effects();
        for effect in effects {
            self.frontend.observe(&self.node.borrow(), &effect);
            match effect {
                Effect::Output(output) => self.frontend.output(output),
                Effect::Zab(effect) => self.carry_out(effect),
                Effect::Rebuild => self.log.push(Command::Rebuild),
                Effect::InvalidPeerMessage { peer, reason } => {
                    tracing::warn!(
                        code = "RK0303",
                        %peer,
                        reason,
                        "a peer sent an invalid message, it is disconnected"
                    );
                    self.links().disconnect(peer);
                }
                Effect::Broken(reason) => self.fail(reason),
            }
        }
        self.frontend.flush();
    }

    /// Tells broadcast and users when the disk has run full, and when it has room again.
    fn tell_disk_full(&self) {
        let full = self.log.disk_is_full();
        if self.disk_full.replace(full) != full {
            self.node.borrow_mut().input(self.env.now(), Input::DiskFull(full));
            self.frontend.disk_full(full);
        }
    }

    fn carry_out(&self, effect: zab::Effect) {
        match effect {
            zab::Effect::Send { to, message } => self.links().send(to, &message),
            zab::Effect::Append(batch) => {
                self.trigger.appended(batch.txns(), batch.bytes().len() as u64);
                self.log.push(Command::Append(batch, self.env.elapsed()));
            }
            zab::Effect::Truncate { after } => self.log.push(Command::Truncate { after }),
            zab::Effect::PersistEpochs(epochs) => self.log.push(Command::Promise(epochs)),
            zab::Effect::ReadLog { peer, after, bytes_max } => {
                self.log.push(Command::Read { peer, after, bytes_max });
            }
            zab::Effect::Disconnect { peer } => self.links().disconnect(peer),
            zab::Effect::Departed(why) => {
                tracing::warn!(code = "RK0302", %why, "leaving the ensemble for a new election")
            }
            zab::Effect::Status(status) => report(status, self.node().zab().master()),
            zab::Effect::Alarm(alarm) => self.alarms.raise(self.env.now().monotonic_ms, alarm),
            zab::Effect::Repaired { from, end_before_damage } => {
                tracing::info!(leader = %from, upto = %end_before_damage, "what was damaged here is repaired from the leader");
            }
            zab::Effect::HandingOver { to } => tracing::info!(successor = %to, "handing leadership over"),
            zab::Effect::HandOverFailed(why) => {
                tracing::warn!(code = "RK0307", %why, "leadership is not handed over")
            }
            zab::Effect::HandedOver => tracing::info!("leadership was handed over, clients stay connected"),
            zab::Effect::NotReleased => tracing::warn!(
                code = "RK0308",
                "the leader before this one was lost while it handed over: clients of this server connect anew"
            ),
            zab::Effect::Reset => self.sending.cancel_all(),
            zab::Effect::SendSnapshot { to, after } => self.sending.ask(to, after),
            zab::Effect::InstallSnapshot { from, last } => self.receiving.begin(from, last),
            zab::Effect::SnapshotChunk { from, bytes } => self.receive_piece(from, bytes),
            zab::Effect::AbortSnapshot => self.receiving.abort(),
            // The node handles the other effects itself, between broadcast and application.
            _ => {}
        }
    }

    fn receive_piece(&self, from: ServerId, bytes: Bytes) {
        if !self.receiving.piece(bytes) {
            tracing::warn!(
                code = "RK0322",
                peer = %from,
                "a snapshot is sent faster than it is written, disconnecting"
            );
            self.links().disconnect(from);
        }
    }
}

fn report(status: Status, master: Option<ServerId>) {
    match status {
        Status::Looking => tracing::info!("looking for a leader"),
        Status::Following { leader, epoch } => match master.filter(|master| *master != leader) {
            Some(master) => {
                tracing::info!(%leader, %master, epoch = epoch.0, "following, as an observer of a follower")
            }
            None => tracing::info!(%leader, epoch = epoch.0, "following"),
        },
        Status::Leading { epoch } => tracing::info!(epoch = epoch.0, "leading"),
    }
}
