//! Where this server listens for others: at each of its own addresses, as soon as that is possible.
//!
//! The shell opens the ports that it can before the server starts. One whose network is down is tried again,
//! as are the addresses that a change of the members gives this server. What the configuration names stays
//! open until the server ends, since it may be another name of what the members are told.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use super::{Deliver, Links};
use crate::env::{Class, Env, PeerAddress};

/// The host in place of each own one, if a server listens on all addresses of its machine.
const ALL: &str = "0.0.0.0";

/// Time after which a port that could not be opened is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// A port that is open.
pub struct Port<L> {
    /// By which of this server's addresses.
    pub named: PeerAddress,
    /// Where it is.
    pub address: SocketAddr,
    /// Accepts there.
    pub listener: L,
}

/// The ports of a server.
pub(super) struct Ports<T> {
    configured: RefCell<BTreeSet<PeerAddress>>,
    on_all: Cell<bool>,
    /// Another port at each address.
    also: Cell<Option<u16>>,
    /// The tasks that listen, or try to.
    tasks: RefCell<BTreeMap<PeerAddress, T>>,
    open: RefCell<BTreeSet<SocketAddr>>,
}

impl<T> Ports<T> {
    pub(super) fn new(configured: impl IntoIterator<Item = PeerAddress>) -> Self {
        Self {
            configured: RefCell::new(configured.into_iter().collect()),
            on_all: Cell::new(false),
            also: Cell::new(None),
            tasks: RefCell::default(),
            open: RefCell::default(),
        }
    }

    /// Each port is one of all addresses of the machine.
    pub(super) fn listen_on_all(&self) {
        self.on_all.set(true);
        let configured = self.configured.take();
        self.configured.replace(configured.into_iter().map(|address| self.meant(address)).collect());
    }

    pub(super) fn listen_also_at(&self, port: u16) {
        self.also.set(Some(port));
    }

    /// The other port at an address, if there is one.
    pub(super) fn also_at(&self, address: &PeerAddress) -> Option<PeerAddress> {
        self.also.get().map(|port| PeerAddress { port, ..address.clone() })
    }

    fn meant(&self, address: PeerAddress) -> PeerAddress {
        if self.on_all.get() { PeerAddress { host: ALL.to_owned(), ..address } } else { address }
    }

    pub(super) fn take_tasks(&self) -> impl Iterator<Item = T> + use<T> {
        self.tasks.take().into_values()
    }
}

impl<E: Env> Links<E> {
    /// Begins to accept at the ports that are open, and to open the others.
    pub(super) fn open_ports(self: &Rc<Self>, open: Vec<Port<E::Listener>>, deliver: &Rc<Deliver>) {
        for Port { named, address, listener } in open {
            let accepting = Rc::clone(self).accept_at(address, listener, Rc::clone(deliver));
            let task = self.env.spawn(Class::Requests, accepting);
            let named = self.ports.meant(named);
            self.ports.configured.borrow_mut().insert(named.clone());
            self.ports.tasks.borrow_mut().insert(named, task);
        }
        self.listen_at([], deliver);
    }

    /// Listens at these addresses, beside those of the configuration.
    pub(super) fn listen_at(
        self: &Rc<Self>,
        named: impl IntoIterator<Item = PeerAddress>,
        deliver: &Rc<Deliver>,
    ) {
        let mut tasks = self.ports.tasks.borrow_mut();
        // A server that has no port at its start has no need of any.
        if tasks.is_empty() {
            return;
        }
        let mut wanted = self.ports.configured.borrow().clone();
        wanted.extend(named.into_iter().map(|address| self.ports.meant(address)));
        let also: Vec<_> = wanted.iter().filter_map(|address| self.ports.also_at(address)).collect();
        wanted.extend(also);
        tasks.retain(|named, _| wanted.contains(named));
        for named in wanted {
            let listen = || Rc::clone(self).listen(named.clone(), Rc::clone(deliver));
            tasks.entry(named.clone()).or_insert_with(|| self.env.spawn(Class::Requests, listen()));
        }
    }

    /// Opens a port as soon as that is possible, and accepts there.
    async fn listen(self: Rc<Self>, named: PeerAddress, deliver: Rc<Deliver>) {
        let mut trouble = String::new();
        loop {
            match self.open_port(&named).await {
                Ok(None) => return,
                Ok(Some((address, listener))) => {
                    tracing::info!(%address, "listening for other servers");
                    return self.accept_at(address, listener, deliver).await;
                }
                Err(error) if trouble != error.to_string() => {
                    trouble = error.to_string();
                    tracing::warn!(
                        code = "RK0323",
                        address = %named,
                        %error,
                        "other servers cannot connect at one of this server's addresses, trying on"
                    );
                }
                Err(_) => {}
            }
            self.env.sleep(PAUSE).await;
        }
    }

    /// A port that is open from now on; `None` if it is already, by another name.
    async fn open_port(&self, named: &PeerAddress) -> io::Result<Option<(SocketAddr, E::Listener)>> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.env.resolve(named).await? {
            if self.ports.open.borrow().contains(&address) {
                return Ok(None);
            }
            match self.env.listen(address) {
                Ok(listener) => return Ok(Some((address, listener))),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn accept_at(self: Rc<Self>, address: SocketAddr, listener: E::Listener, deliver: Rc<Deliver>) {
        struct Open<'a>(&'a RefCell<BTreeSet<SocketAddr>>, SocketAddr);
        impl Drop for Open<'_> {
            fn drop(&mut self) {
                self.0.borrow_mut().remove(&self.1);
            }
        }
        self.ports.open.borrow_mut().insert(address);
        let _open = Open(&self.ports.open, address);
        Rc::clone(&self).accept(listener, deliver).await;
    }
}
