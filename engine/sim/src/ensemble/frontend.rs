//! What a simulated server does, as messages to the world: decisions and failures.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use ringkeeper_engine::message::{RequestBatch, ShardId};
use ringkeeper_engine::node::{self, Effect};
use ringkeeper_engine::replica::{Now, Output, Replica};
use ringkeeper_engine::zab::{self, LogPosition, Status};
use ringkeeper_host::pump;
use ringkeeper_wire::{ErrorCode, ReconfigRequest, Zxid};

use super::recovery::{Recovered, Stopped};

type Node = node::Node<Replica>;

/// A message of a server to the world.
pub(crate) enum Told {
    /// Recovery has ended, or failed.
    Recovered(Result<Box<Recovered>, Stopped>),
    /// The node has decided this, which is carried out now.
    Decided { effect: Effect<Output>, leading: bool, executed: Zxid },
    /// The pump has taken what the log had answered.
    Turn,
    /// A snapshot that ends here has replaced the log.
    Installed(LogPosition),
    /// The disk has run full, or has room again.
    DiskFull(bool),
    /// What a peer has sent is not the snapshot that it has announced.
    Mangled(String),
    /// The members are not changed.
    Unchanged(ErrorCode),
    /// The server has ended by itself.
    Failed(String),
}

/// The messages of all servers, each with its server and the life of that server.
pub(crate) type Mail = Rc<RefCell<VecDeque<(usize, u64, Told)>>>;

/// One life of a server, as it writes to the world.
#[derive(Clone)]
pub(crate) struct Sender {
    mail: Mail,
    server: usize,
    life: u64,
}

impl Sender {
    pub(crate) fn new(mail: &Mail, server: usize, life: u64) -> Self {
        Self { mail: Rc::clone(mail), server, life }
    }

    pub(crate) fn tell(&self, told: Told) {
        self.mail.borrow_mut().push_back((self.server, self.life, told));
    }
}

/// The shards of a server, which the world drives.
pub(crate) struct Frontend {
    world: Sender,
    /// What each shard has sent to the core.
    rings: Vec<RefCell<VecDeque<RequestBatch>>>,
    /// Changes of the members that the operator asks for.
    changes: RefCell<VecDeque<ReconfigRequest<'static>>>,
}

impl Frontend {
    pub(crate) fn new(world: Sender, shards: usize) -> Self {
        Self { world, rings: (0..shards).map(|_| RefCell::default()).collect(), changes: RefCell::default() }
    }

    /// A change of the members, for the pump's next turn.
    pub(crate) fn change(&self, request: ReconfigRequest<'static>) {
        self.changes.borrow_mut().push_back(request);
    }

    /// A shard's requests, for the pump's next turn.
    pub(crate) fn push(&self, shard: usize, requests: RequestBatch) {
        self.rings[shard].borrow_mut().push_back(requests);
    }
}

impl pump::Frontend for Frontend {
    type Application = Replica;

    fn hand_over(&self, now: Now, node: &mut Node) {
        for (shard, ring) in (0..).map(ShardId).zip(&self.rings) {
            for requests in ring.take() {
                node.request(now, |replica| replica.requests(now, shard, requests));
            }
        }
        for change in self.changes.take() {
            if let Err(error) = node.request(now, |replica| replica.reconfigure(now, &change)) {
                self.world.tell(Told::Unchanged(error));
            }
        }
    }

    fn work(&self, _: Now, _: &mut Node) -> bool {
        self.world.tell(Told::Turn);
        false
    }

    /// The world wakes the pump.
    fn poll_ready(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    /// The world has it from `observe`, in order with everything else.
    fn output(&self, _: Output) {}

    fn disk_full(&self, full: bool) {
        self.world.tell(Told::DiskFull(full));
    }

    fn observe(&self, node: &Node, effect: &Effect<Output>) {
        // A leader that has handed over appends its successor's batches before it is told that it follows.
        let leading = match (node.status(), effect) {
            (Status::Leading { epoch }, Effect::Zab(zab::Effect::Append(batch))) => batch.epoch() == epoch,
            (status, _) => matches!(status, Status::Leading { .. }),
        };
        let executed = node.application().last_executed();
        self.world.tell(Told::Decided { effect: effect.clone(), leading, executed });
    }

    fn installed(&self, last: LogPosition) {
        self.world.tell(Told::Installed(last));
    }

    fn mangled(&self, reason: String) {
        self.world.tell(Told::Mangled(reason));
    }
}
