//! The handles' side of a server: takes their requests, answers them, and calls the machine in between.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_channel::Receiver;
use ringkeeper_engine::node::Node;
use ringkeeper_engine::replica::Now;
use ringkeeper_host::pump::{Frontend, Pump};
use ringkeeper_runtime::glommio::env::GlommioEnv;

use crate::handle::{Request, Shared, Waiter};
use crate::machine::StateMachine;
use crate::replica::{Output, Replica};
use crate::waiters::Waiters;

/// Bytes delivered to the machine before sockets and log are served again.
const DELIVER_BYTES: usize = 64 << 10;

/// Committed bytes that may wait for the machine. Above it the server stops until the machine has caught up,
/// and sends no acks meanwhile.
const UNDELIVERED_BYTES_MAX: usize = 64 << 20;

/// The handles of a server, as its thread sees them.
pub(crate) struct Handles<M> {
    shared: Arc<Shared>,
    waiters: Rc<Waiters>,
    /// Numbered requests for the next turn: proposals, and syncs (`None`). Bounded by
    /// [`crate::Config::outstanding_bytes_max`].
    requests: RefCell<VecDeque<(u64, Option<Vec<u8>>)>>,
    /// Number of requests so far, by which each is identified.
    numbered: Cell<u64>,
    machine: PhantomData<fn(M)>,
}

impl<M: StateMachine> Handles<M> {
    pub(crate) fn new(shared: Arc<Shared>, waiters: Rc<Waiters>) -> Self {
        Self { shared, waiters, requests: RefCell::default(), numbered: Cell::new(0), machine: PhantomData }
    }

    /// Takes requests until one is a shutdown, or all handles are dropped.
    pub(crate) async fn receive(pump: &Pump<GlommioEnv, Self>, requests: &Receiver<Request>) {
        while let Ok(request) = requests.recv().await {
            let mut next = Some(request);
            while let Some(request) = next {
                let (request, waiter) = match request {
                    Request::Propose(proposal, waiter) => (Some(proposal), waiter),
                    Request::Sync(waiter) => (None, waiter),
                    Request::Shutdown => return,
                };
                pump.frontend().push(request, waiter);
                next = requests.try_recv().ok();
            }
            pump.wake();
        }
    }

    fn push(&self, request: Option<Vec<u8>>, waiter: Waiter) {
        let number = self.numbered.get() + 1;
        self.numbered.set(number);
        self.waiters.told_later(number, waiter);
        self.requests.borrow_mut().push_back((number, request));
    }
}

impl<M: StateMachine> Frontend for Handles<M> {
    type Application = Replica<M>;

    fn hand_over(&self, now: Now, node: &mut Node<Replica<M>>) {
        while let Some((number, request)) = self.requests.borrow_mut().pop_front() {
            node.request(now, |replica| match request {
                Some(proposal) => replica.propose(number, &proposal),
                None => replica.sync(number),
            });
        }
    }

    /// [`Self::receive`] wakes the pump.
    fn poll_ready(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn work(&self, now: Now, node: &mut Node<Replica<M>>) -> bool {
        while node.application().undelivered_bytes() > UNDELIVERED_BYTES_MAX {
            node.request(now, |replica| replica.deliver(DELIVER_BYTES));
        }
        node.request(now, |replica| replica.deliver(DELIVER_BYTES))
    }

    fn output(&self, output: Output) {
        match output {
            Output::Answer { number, answer } => self.waiters.tell(number, answer),
            Output::Status(status) => self.shared.set_status(status),
        }
    }
}
