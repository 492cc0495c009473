//! Messages from the host's tasks of a server to the world.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use ringkeeper_engine::node::Node;
use ringkeeper_engine::snapshot::{Encoder, STATE_VERSION};
use ringkeeper_engine::zab::{Input, LogPosition, Message};
use ringkeeper_host::log_task::LogHost;
use ringkeeper_host::snapshots::{SnapshotHost, Trigger};
use ringkeeper_host::transfer::{Receiving, Sending};
use ringkeeper_wire::{ServerId, Zxid};

use super::recovery::{Recovered, Stopped};

/// A message of a task.
pub(crate) enum Told {
    /// Recovery has ended, or failed.
    Recovered(Result<Box<Recovered>, Stopped>),
    /// The core has something to do.
    Wake,
    Input(Input),
    /// An input whose effects must all be carried out before the next message.
    InputNow(Input),
    Send(ServerId, Message),
    Disconnect(ServerId),
    /// What a peer has sent is not the snapshot that it has announced.
    Mangled(String),
    /// The server cannot go on.
    Failed(String),
}

/// The messages of all tasks, each with its server and the life of that server.
pub(crate) type Mail = Rc<RefCell<VecDeque<(usize, u64, Told)>>>;

/// One life of a server.
pub(crate) struct Core {
    mail: Mail,
    server: usize,
    life: u64,
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pub(crate) trigger: Trigger,
    pub(crate) node: RefCell<Node>,
}

impl Core {
    pub(crate) fn new(mail: &Mail, server: usize, life: u64, node: Node, trigger: Trigger) -> Rc<Self> {
        Rc::new(Self {
            mail: Rc::clone(mail),
            server,
            life,
            sending: Sending::default(),
            receiving: Receiving::default(),
            trigger,
            node: RefCell::new(node),
        })
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

impl SnapshotHost for Core {
    type Image = Encoder;

    fn hold(&self) -> Option<(Encoder, LogPosition)> {
        let (state, position) = self.node.borrow().snapshot()?;
        Some((Encoder::new(state), position))
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
        self.node.borrow().zab().committed()
    }

    fn cluster(&self) -> u64 {
        self.node.borrow().zab().durable_epochs().cluster
    }

    fn state_version(&self) -> u32 {
        STATE_VERSION
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

    fn mangled(&self, reason: String) {
        self.tell(Told::Mangled(reason));
    }

    fn fail(&self, reason: String) {
        self.tell(Told::Failed(reason));
    }
}
