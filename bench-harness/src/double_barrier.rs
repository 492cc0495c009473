//! Double barriers as in section 2.4 of the paper: each client in turn enters barrier after barrier, then
//! leaves them in the same order.
//!
//! ```text
//! enter: exists b/ready, with a watch;  create b/me;  children of b: if all are there, create b/ready;  await b/ready
//! leave: delete b/me;  children of b: while one is left, await its end and look again
//! ```
//!
//! One thread drives all clients; each has one request outstanding at most. It knows who has arrived and who
//! has left, so a client that gets through a barrier too early is found out.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mio::{Events, Poll, Token};
use ringkeeper_testkit::interrupt;
use ringkeeper_wire::{ErrorCode, EventType, GetChildrenResponse, Record, WatcherEvent, xid};

use crate::connection::{self, Connection};
use crate::fault::Fault;
use crate::session::{self, Session};
use crate::window::Rate;
use crate::{reply, request};

/// Name of the znode that says that all are there.
const READY: &str = "ready";

/// Silence after which replies or notifications count as missing.
const SILENCE_MAX: Duration = Duration::from_secs(30);

const WAIT_MAX: Duration = Duration::from_millis(50);

/// What a run has shown.
pub(crate) struct Crossed {
    /// From the first request to the moment that the last client has left the last barrier.
    pub(crate) elapsed: Duration,
    /// Requests of all kinds.
    pub(crate) requests: u64,
}

/// Has `clients` enter and leave `barriers` barriers, the znodes `<root>/n0000000` and so on, which are there
/// and empty. `rate` is told of requests.
pub(crate) fn cross(
    servers: &[SocketAddr],
    root: &str,
    (clients, barriers): (usize, usize),
    rate: &mut Rate<'_>,
) -> Result<Crossed> {
    let sessions = Session::open_all(servers, clients)?;
    let started = Instant::now();
    let mut crossing = Crossing::new(sessions, root, barriers)?;
    crossing.run(rate)?;
    let elapsed = started.elapsed();
    let requests = crossing.requests;
    session::close_all(crossing.into_sessions()?)?;
    Ok(Crossed { elapsed, requests })
}

/// How many clients have asked to be let in and out of each barrier.
struct Ledger {
    clients: usize,
    arrived: Vec<usize>,
    left: Vec<usize>,
}

struct Crossing {
    poll: Poll,
    clients: Vec<Client>,
    ledger: Ledger,
    scratch: Box<[u8]>,
    requests: u64,
}

impl Crossing {
    fn new(sessions: Vec<Session>, root: &str, barriers: usize) -> Result<Self> {
        let poll = Poll::new()?;
        let clients = sessions.into_iter().enumerate().map(|(number, session)| {
            let (socket, next_xid) = session.into_parts();
            let connection = Connection::new(socket, poll.registry(), Token(number))?;
            Ok(Client {
                connection,
                next_xid,
                root: root.to_owned(),
                number,
                barrier: 0,
                doing: Doing::Arriving,
            })
        });
        let clients = clients.collect::<Result<Vec<_>>>()?;
        let ledger = Ledger { clients: clients.len(), arrived: vec![0; barriers], left: vec![0; barriers] };
        Ok(Self { poll, clients, ledger, scratch: connection::scratch(), requests: 0 })
    }

    fn run(&mut self, rate: &mut Rate<'_>) -> Result<()> {
        let Self { poll, clients, ledger, scratch, requests } = self;
        let mut events = Events::with_capacity(clients.len());
        for client in &mut *clients {
            client.arrive();
            client.connection.flush()?;
        }
        let mut last_progress = Instant::now();
        while clients.iter().any(|client| !matches!(client.doing, Doing::Done)) {
            interrupt::check()?;
            let silence = last_progress.elapsed();
            if silence > SILENCE_MAX {
                return Err(Fault::Missing { outstanding: clients.len(), silence }.into());
            }
            match poll.poll(&mut events, Some(WAIT_MAX)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                last_progress = Instant::now();
                let Token(number) = event.token();
                let turned = clients[number].turn(scratch, event.is_read_closed(), ledger);
                *requests += turned.with_context(|| format!("client {number}"))?;
            }
            rate.look(*requests);
        }
        Ok(())
    }

    fn into_sessions(self) -> Result<Vec<Session>> {
        let registry = self.poll.registry();
        let resume =
            |client: Client| Ok(Session::resume(client.connection.into_socket(registry)?, client.next_xid)?);
        self.clients.into_iter().map(resume).collect()
    }
}

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// The answer to exists of the ready znode.
    Arriving,
    Creating,
    /// The list of those who have arrived. `ready`: the notification came already.
    Counting {
        ready: bool,
    },
    Announcing {
        ready: bool,
    },
    /// The notification that all are there.
    Waiting,
    Deleting,
    /// The list of those who are still there.
    Looking,
    /// The answer to a read of one of them, then the notification of its end.
    Watching,
    Done,
}

struct Client {
    connection: Connection,
    next_xid: i32,
    root: String,
    number: usize,
    barrier: usize,
    doing: Doing,
}

impl Client {
    fn barrier_path(&self) -> String {
        format!("{}/n{:07}", self.root, self.barrier)
    }

    fn own_name(&self) -> String {
        format!("c{:05}", self.number)
    }

    fn ready_path(&self) -> String {
        format!("{}/{READY}", self.barrier_path())
    }

    fn own_path(&self) -> String {
        format!("{}/{}", self.barrier_path(), self.own_name())
    }

    fn send(&mut self, doing: Doing, encode: impl FnOnce(&mut Vec<u8>, i32)) {
        encode(self.connection.out(), self.next_xid);
        self.next_xid += 1;
        self.doing = doing;
    }

    fn arrive(&mut self) {
        let path = self.ready_path();
        self.send(Doing::Arriving, |out, xid| request::watch_existence(out, xid, &path));
    }

    /// Takes what has come and sends what follows from it; the number of replies.
    fn turn(&mut self, scratch: &mut [u8], to_end: bool, ledger: &mut Ledger) -> Result<u64, Fault> {
        let mut messages = Vec::new();
        self.connection.receive(scratch, to_end, |payload, _| {
            messages.push(payload.to_vec());
            Ok(())
        })?;
        let mut replies = 0;
        for message in messages {
            let (header, body) = reply::split(&message)?;
            if header.xid == xid::NOTIFICATION {
                self.notified(&WatcherEvent::from_bytes(body)?, ledger)?;
                continue;
            }
            let expected = self.next_xid - 1;
            if header.xid.0 != expected {
                return Err(Fault::OutOfOrder { expected, found: header.xid.0 });
            }
            replies += 1;
            self.replied(expected, header.err, body, ledger)?;
        }
        self.connection.flush()?;
        Ok(replies)
    }

    fn replied(&mut self, xid: i32, err: i32, body: &[u8], ledger: &mut Ledger) -> Result<(), Fault> {
        let code = ErrorCode::from_wire(err);
        let is = |wanted| code == Some(wanted);
        match (self.doing, is(ErrorCode::Ok)) {
            // Nobody is there yet who could have announced it.
            (Doing::Arriving, false) if is(ErrorCode::NoNode) => {
                let path = self.own_path();
                ledger.arrived[self.barrier] += 1;
                self.send(Doing::Creating, |out, xid| request::create(out, xid, &path, b""));
            }
            (Doing::Creating, true) => {
                let path = self.barrier_path();
                let doing = Doing::Counting { ready: false };
                self.send(doing, |out, xid| request::get_children(out, xid, &path));
            }
            (Doing::Counting { ready }, true) => self.counted(body, ready, ledger)?,
            (Doing::Announcing { ready }, ok) if ok || is(ErrorCode::NodeExists) => {
                self.wait(ready, ledger)?
            }
            (Doing::Deleting, true) => self.look(),
            (Doing::Looking, true) => self.looked(body, ledger)?,
            // It went before the watch was there.
            (Doing::Watching, false) if is(ErrorCode::NoNode) => self.look(),
            (Doing::Watching, true) => {}
            (Doing::Arriving, true) => {
                return Err(Fault::Wrong { xid, why: "a barrier is open before this client came".into() });
            }
            _ => return Err(Fault::Refused { xid, err }),
        }
        Ok(())
    }

    fn counted(&mut self, body: &[u8], ready: bool, ledger: &mut Ledger) -> Result<(), Fault> {
        let children = GetChildrenResponse::from_bytes(body)?.children;
        let there = children.iter().filter(|name| name != READY).count();
        if there < ledger.clients {
            return self.wait(ready, ledger);
        }
        let path = self.ready_path();
        self.send(Doing::Announcing { ready }, |out, xid| request::create(out, xid, &path, b""));
        Ok(())
    }

    fn wait(&mut self, ready: bool, ledger: &mut Ledger) -> Result<(), Fault> {
        self.doing = Doing::Waiting;
        if ready { self.entered(ledger) } else { Ok(()) }
    }

    /// In: on to the next barrier, or, from the last one, to leaving the first.
    fn entered(&mut self, ledger: &mut Ledger) -> Result<(), Fault> {
        self.check(ledger.arrived[self.barrier], ledger.clients, "entered")?;
        self.barrier += 1;
        if self.barrier < ledger.arrived.len() {
            self.arrive();
        } else {
            self.barrier = 0;
            self.leave(ledger);
        }
        Ok(())
    }

    fn leave(&mut self, ledger: &mut Ledger) {
        let path = self.own_path();
        ledger.left[self.barrier] += 1;
        self.send(Doing::Deleting, |out, xid| request::delete(out, xid, &path));
    }

    fn look(&mut self) {
        let path = self.barrier_path();
        self.send(Doing::Looking, |out, xid| request::get_children(out, xid, &path));
    }

    /// Watches the next in the order of names, so that the watches are spread over those who are there.
    fn looked(&mut self, body: &[u8], ledger: &mut Ledger) -> Result<(), Fault> {
        let children = GetChildrenResponse::from_bytes(body)?.children;
        let mut names: Vec<String> =
            children.iter().filter(|name| name != READY).map(|name| name.into_owned()).collect();
        names.sort_unstable();
        let own = self.own_name();
        match names.iter().find(|name| **name > own).or_else(|| names.first()) {
            None => self.out(ledger),
            Some(other) => {
                let path = format!("{}/{other}", self.barrier_path());
                self.send(Doing::Watching, |out, xid| request::get_data(out, xid, &path, true));
                Ok(())
            }
        }
    }

    fn out(&mut self, ledger: &mut Ledger) -> Result<(), Fault> {
        self.check(ledger.left[self.barrier], ledger.clients, "left")?;
        self.barrier += 1;
        if self.barrier < ledger.left.len() {
            self.leave(ledger);
        } else {
            self.doing = Doing::Done;
        }
        Ok(())
    }

    fn check(&self, count: usize, clients: usize, what: &str) -> Result<(), Fault> {
        if count == clients {
            return Ok(());
        }
        let why = format!("barrier {} was {what} when {count} of {clients} clients had asked", self.barrier);
        Err(Fault::Wrong { xid: self.next_xid - 1, why })
    }

    fn notified(&mut self, event: &WatcherEvent<'_>, ledger: &mut Ledger) -> Result<(), Fault> {
        let created = event.event_type == EventType::NodeCreated.to_wire() && event.path == self.ready_path();
        let deleted = event.event_type == EventType::NodeDeleted.to_wire();
        match &mut self.doing {
            Doing::Waiting if created => self.entered(ledger),
            Doing::Counting { ready } | Doing::Announcing { ready } if created => {
                *ready = true;
                Ok(())
            }
            Doing::Watching if deleted => {
                self.look();
                Ok(())
            }
            _ => {
                let why = format!("{event:?} while {:?}", self.doing);
                Err(Fault::Wrong { xid: xid::NOTIFICATION.0, why })
            }
        }
    }
}
