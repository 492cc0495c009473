//! What the host's tasks of one server and the world say to each other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use ringkeeper_engine::snapshot::STATE_VERSION;
use ringkeeper_engine::zab::{Input, Message};
use ringkeeper_host::log_task::LogHost;
use ringkeeper_host::transfer::{Receiving, Sending, TransferHost};
use ringkeeper_wire::{ServerId, Zxid};

/// What a task has to say.
pub(crate) enum Told {
    /// The core has something to do.
    Wake,
    Input(Input),
    /// An input of which everything follows before the next thing that is told.
    InputNow(Input),
    Send(ServerId, Message),
    Disconnect(ServerId),
    /// A peer waits for a newer snapshot.
    DemandSnapshot,
    /// The server cannot go on.
    Failed(String),
}

/// What all tasks have told, with the server and its life.
pub(crate) type Mail = Rc<RefCell<VecDeque<(usize, u64, Told)>>>;

/// One life of a server.
pub(crate) struct Core {
    mail: Mail,
    server: usize,
    life: u64,
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    committed: Cell<Zxid>,
    cluster: Cell<u64>,
}

impl Core {
    pub(crate) fn new(mail: &Mail, server: usize, life: u64) -> Rc<Self> {
        Rc::new(Self {
            mail: Rc::clone(mail),
            server,
            life,
            sending: Sending::default(),
            receiving: Receiving::default(),
            committed: Cell::default(),
            cluster: Cell::new(0),
        })
    }

    /// What the node says of itself, before anything else is done.
    pub(crate) fn note(&self, committed: Zxid, cluster: u64) {
        self.committed.set(committed);
        self.cluster.set(cluster);
    }

    pub(crate) fn tell(&self, told: Told) {
        self.mail.borrow_mut().push_back((self.server, self.life, told));
    }
}

impl LogHost for Core {
    fn wake(&self) {
        self.tell(Told::Wake);
    }
}

impl TransferHost for Core {
    fn sending(&self) -> &Sending {
        &self.sending
    }

    fn receiving(&self) -> &Receiving {
        &self.receiving
    }

    fn committed(&self) -> Zxid {
        self.committed.get()
    }

    fn cluster(&self) -> u64 {
        self.cluster.get()
    }

    fn state_version(&self) -> u32 {
        STATE_VERSION
    }

    fn demand_snapshot(&self) {
        self.tell(Told::DemandSnapshot);
    }

    fn input(&self, input: Input) {
        self.tell(Told::Input(input));
    }

    fn input_now(&self, input: Input) {
        self.tell(Told::InputNow(input));
    }

    fn send(&self, to: ServerId, message: &Message) {
        self.tell(Told::Send(to, message.clone()));
    }

    fn disconnect(&self, peer: ServerId) {
        self.tell(Told::Disconnect(peer));
    }

    fn fail(&self, reason: String) {
        self.tell(Told::Failed(reason));
    }
}
