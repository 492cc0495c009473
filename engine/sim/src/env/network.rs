//! The network between machines: connections of ordered bytes, which take their time, stall and break.
//!
//! It behaves as TCP does for its users. Lost packets are sent again, so they and those behind them are late.
//! A partition stalls packets in one or both directions, without notice to either end. A reader that stops
//! reading blocks the writer. The end of a process resets its connections, of which its peers learn later.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

use super::executor::{Executor, Process};
use super::stream::SimStream;

/// A lost packet is sent again after this long, then after twice as long, and so on.
const RETRANSMIT_US: u64 = 20_000;
/// A connection breaks when one packet was lost so many times.
const LOST_MAX: u32 = 5;

/// How good all connections are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quality {
    /// The longest time that a packet takes.
    pub(crate) latency_us: u64,
    /// Packets that are lost, per mille.
    pub(crate) loss: u64,
    /// Bytes of one direction of a connection that nobody has read, at most.
    pub(crate) window_bytes: usize,
    /// What a connection carries in a millisecond.
    pub(crate) bytes_per_ms: u64,
    /// Reads and writes take any part of what there is.
    pub(crate) pieces: bool,
    /// Packets, per mille, in the middle of which a connection breaks.
    pub(crate) cut: u64,
}

/// A number of a machine.
type Place = usize;

/// A number of a network: each machine has an interface in each.
pub(crate) type Lan = usize;

/// How many networks there are.
pub(crate) const LANS: usize = 2;

/// The network of a run. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Network(Rc<Inner>);

struct Inner {
    executor: Executor,
    quality: Cell<Quality>,
    /// Blocked directions, and the ends whose packets wait there.
    blocked: RefCell<BTreeMap<(Place, Place), Vec<End>>>,
    /// What a packet takes between two machines, where that is always the same, in microseconds.
    distances: RefCell<BTreeMap<(Place, Place), u64>>,
    /// Directions that are behind, since when in microseconds, and how many times as long everything takes.
    behind: RefCell<BTreeMap<(Place, Place), (u64, u64)>>,
    /// Interfaces that are down, and the ends whose packets wait there.
    down: RefCell<BTreeMap<(Place, Lan), Vec<End>>>,
    listeners: RefCell<BTreeMap<(Place, Lan, u16), Rc<Backlog>>>,
    connections: RefCell<Vec<Weak<RefCell<Connection>>>>,
    /// The names in the certificates of those machines that have one.
    certificates: RefCell<BTreeMap<Place, Vec<String>>>,
    lost: Cell<u64>,
}

/// Connections that nobody has accepted.
struct Backlog {
    process: Rc<Process>,
    waiting: RefCell<VecDeque<(SimStream, (Place, Lan))>>,
    accepting: Cell<Option<Waker>>,
}

/// Two ends that send each other bytes.
pub(super) struct Connection {
    lan: Lan,
    ends: [Side; 2],
}

/// What one end of a connection has received and will receive.
struct Side {
    place: Place,
    process: u64,
    on_the_way: VecDeque<Packet>,
    received: VecDeque<u8>,
    /// Of `on_the_way` and `received`.
    bytes: usize,
    /// When the last packet on the way arrives.
    arrives_us: u64,
    /// The other end sends no more.
    ended: bool,
    /// This end sends no more.
    closed: bool,
    /// This end does not read any more.
    deaf: bool,
    broken: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

struct Packet {
    at_us: u64,
    content: Content,
}

enum Content {
    Bytes(Vec<u8>),
    /// Nothing follows.
    End,
    Reset,
}

impl Side {
    fn new(place: Place, process: &Process) -> Self {
        Self {
            place,
            process: process.id(),
            on_the_way: VecDeque::new(),
            received: VecDeque::new(),
            bytes: 0,
            arrives_us: 0,
            ended: false,
            closed: false,
            deaf: false,
            broken: false,
            reader: None,
            writer: None,
        }
    }

    fn wake(&mut self) {
        [self.reader.take(), self.writer.take()].into_iter().flatten().for_each(Waker::wake);
    }

    fn break_off(&mut self) {
        self.broken = true;
        self.received.clear();
        self.wake();
    }
}

/// One end of a connection.
#[derive(Clone)]
pub(super) struct End {
    network: Network,
    connection: Rc<RefCell<Connection>>,
    index: usize,
}

impl Network {
    pub(crate) fn new(executor: &Executor, quality: Quality) -> Self {
        Self(Rc::new(Inner {
            executor: executor.clone(),
            quality: Cell::new(quality),
            blocked: RefCell::default(),
            distances: RefCell::default(),
            behind: RefCell::default(),
            down: RefCell::default(),
            listeners: RefCell::default(),
            connections: RefCell::default(),
            certificates: RefCell::default(),
            lost: Cell::new(0),
        }))
    }

    /// Sets the quality of all connections from now on.
    pub(crate) fn set_quality(&self, quality: Quality) {
        self.0.quality.set(quality);
    }

    pub(crate) fn quality(&self) -> Quality {
        self.0.quality.get()
    }

    /// Puts two machines so far apart that every packet between them takes as long, in either direction.
    pub(crate) fn set_distance(&self, (a, b): (Place, Place), us: u64) {
        self.0.distances.borrow_mut().extend([((a, b), us), ((b, a), us)]);
    }

    /// Gives a machine a certificate, which it shows from now on, with this name and those before.
    pub(crate) fn certify(&self, place: Place, name: &str) {
        self.0.certificates.borrow_mut().entry(place).or_default().push(name.to_owned());
    }

    /// How many packets were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.0.lost.get()
    }

    /// Nothing passes from one machine to the other until it is unblocked.
    pub(crate) fn block(&self, from: Place, to: Place) {
        self.0.blocked.borrow_mut().entry((from, to)).or_default();
    }

    pub(crate) fn unblock(&self, from: Place, to: Place) {
        let waiting = self.0.blocked.borrow_mut().remove(&(from, to)).unwrap_or_default();
        self.send_again(waiting);
    }

    /// From now on one machine falls behind in what it hears from the other, as if it saw that in slow
    /// motion: what is sent a second later arrives `times` seconds from now.
    pub(crate) fn fall_behind(&self, from: Place, to: Place, times: u64) {
        let now_us = self.0.executor.now_us();
        self.0.behind.borrow_mut().entry((from, to)).or_insert((now_us, times));
    }

    /// What is still on its way arrives now, and what is sent from now on comes as soon as ever.
    pub(crate) fn catch_up(&self, from: Place, to: Place) {
        if self.0.behind.borrow_mut().remove(&(from, to)).is_none() {
            return;
        }
        let now_us = self.0.executor.now_us();
        for end in self.ends() {
            if end.hasten(from, to, now_us) {
                self.0.executor.call_after(0, move || end.arrive());
            }
        }
    }

    /// Takes a machine's interface down: nothing goes through it until it is up again.
    pub(crate) fn take_down(&self, place: Place, lan: Lan) {
        self.0.down.borrow_mut().entry((place, lan)).or_default();
    }

    pub(crate) fn bring_up(&self, place: Place, lan: Lan) {
        let waiting = self.0.down.borrow_mut().remove(&(place, lan)).unwrap_or_default();
        self.send_again(waiting);
    }

    fn send_again(&self, waiting: Vec<End>) {
        for end in waiting {
            let delay_us = self.0.executor.draw(|random| random.below(RETRANSMIT_US));
            self.0.executor.call_after(delay_us, move || end.arrive());
        }
    }

    /// Whether a machine's interface is down.
    pub(crate) fn is_down(&self, place: Place, lan: Lan) -> bool {
        self.0.down.borrow().contains_key(&(place, lan))
    }

    fn is_blocked(&self, from: Place, to: Place, lan: Lan) -> bool {
        let cut = self.0.blocked.borrow().contains_key(&(from, to));
        cut || self.is_down(from, lan) || self.is_down(to, lan)
    }

    /// Breaks all connections between two machines, whatever is under way.
    pub(crate) fn break_off(&self, a: Place, b: Place) {
        for connection in self.connections() {
            let [first, second] = &mut connection.borrow_mut().ends;
            if [(a, b), (b, a)].contains(&(first.place, second.place)) {
                first.break_off();
                second.break_off();
            }
        }
    }

    /// Breaks the ends that one machine has of its connections to another one. The other ends hear of it as
    /// late as of anything that is sent there.
    pub(crate) fn break_end(&self, at: Place, other: Place) {
        self.ends().filter(|end| end.direction() == (other, at)).for_each(|end| end.reset(0));
    }

    /// A process ends: its connections are reset, which the other ends hear `silence_us` later at the
    /// earliest.
    pub(super) fn reset(&self, process: &Process, silence_us: u64) {
        self.0.listeners.borrow_mut().retain(|_, backlog| backlog.process.id() != process.id());
        let is_its = |end: &End| end.connection.borrow().ends[end.index].process == process.id();
        self.ends().filter(is_its).for_each(|end| end.reset(silence_us));
    }

    /// Both ends of all connections.
    fn ends(&self) -> impl Iterator<Item = End> + '_ {
        self.connections().into_iter().flat_map(|connection| {
            [0, 1].map(|index| End { network: self.clone(), connection: Rc::clone(&connection), index })
        })
    }

    fn connections(&self) -> Vec<Rc<RefCell<Connection>>> {
        let mut connections = self.0.connections.borrow_mut();
        connections.retain(|connection| connection.strong_count() > 0);
        connections.iter().filter_map(Weak::upgrade).collect()
    }

    /// Forgets everything that is on its way.
    pub(super) fn clear(&self) {
        let waiting = (self.0.blocked.take(), self.0.down.take());
        drop((waiting, self.0.listeners.take()));
    }

    /// Whether somebody listens on a port of a machine's interface.
    pub(super) fn is_taken(&self, address: (Place, Lan, u16)) -> bool {
        self.0.listeners.borrow().contains_key(&address)
    }

    /// Listens on a port of a machine's interface.
    pub(super) fn listen(&self, address: (Place, Lan, u16), process: &Rc<Process>) -> SimListener {
        let backlog = Rc::new(Backlog {
            process: Rc::clone(process),
            waiting: RefCell::default(),
            accepting: Cell::new(None),
        });
        self.0.listeners.borrow_mut().insert(address, Rc::clone(&backlog));
        SimListener { network: self.clone(), address, backlog }
    }

    /// Connects one machine with another.
    pub(super) async fn dial(
        &self,
        from: Place,
        process: &Rc<Process>,
        to: (Place, Lan, u16),
        patience_us: u64,
    ) -> io::Result<SimStream> {
        let executor = &self.0.executor;
        let deadline_us = executor.now_us() + patience_us;
        while self.is_blocked(from, to.0, to.1) || self.is_blocked(to.0, from, to.1) {
            if executor.now_us() >= deadline_us {
                return Err(io::ErrorKind::TimedOut.into());
            }
            executor.sleep_us(RETRANSMIT_US.min(patience_us)).await;
        }
        executor.sleep_us(self.latency_us(from, to.0)).await;
        let dialed = self.connect(from, process, to);
        executor.sleep_us(self.latency_us(to.0, from)).await;
        dialed
    }

    fn connect(&self, from: Place, process: &Process, to: (Place, Lan, u16)) -> io::Result<SimStream> {
        let backlog = self.0.listeners.borrow().get(&to).map(Rc::clone);
        let backlog = backlog.ok_or(io::ErrorKind::ConnectionRefused)?;
        let ends = [Side::new(from, process), Side::new(to.0, &backlog.process)];
        let connection = Rc::new(RefCell::new(Connection { lan: to.1, ends }));
        self.0.connections.borrow_mut().push(Rc::downgrade(&connection));
        let end = |index| End { network: self.clone(), connection: Rc::clone(&connection), index };
        backlog.waiting.borrow_mut().push_back((SimStream::new(end(1)), (from, to.1)));
        if let Some(waker) = backlog.accepting.take() {
            waker.wake();
        }
        Ok(SimStream::new(end(0)))
    }

    fn latency_us(&self, from: Place, to: Place) -> u64 {
        if let Some(us) = self.0.distances.borrow().get(&(from, to)) {
            return *us;
        }
        let max = self.0.quality.get().latency_us;
        self.0.executor.draw(|random| random.between(max / 10, max))
    }

    /// When a packet arrives in a direction that may be behind.
    fn delay(&self, from: Place, to: Place, at_us: u64) -> u64 {
        let behind = self.0.behind.borrow().get(&(from, to)).copied();
        behind.map_or(at_us, |(since_us, times)| since_us + (at_us - since_us) * times)
    }

    /// Number of losses before a packet gets through.
    fn lose(&self) -> u32 {
        let loss = self.0.quality.get().loss;
        let lost = self.0.executor.draw(|random| (0..=LOST_MAX).take_while(|_| random.chance(loss)).count());
        self.0.lost.set(self.0.lost.get() + lost as u64);
        u32::try_from(lost).unwrap_or(LOST_MAX)
    }
}

impl End {
    /// The names in the certificate of the machine at the other end.
    pub(super) fn certificate(&self) -> Option<Vec<String>> {
        let other = self.connection.borrow().ends[1 - self.index].place;
        self.network.0.certificates.borrow().get(&other).cloned()
    }

    /// Reads what has come in; `None` if the other end has ended.
    pub(super) fn poll_read(&self, buffer: &mut [u8], waker: &Waker) -> Poll<io::Result<usize>> {
        let mut connection = self.connection.borrow_mut();
        let side = &mut connection.ends[self.index];
        if side.broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let len = self.part(buffer.len().min(side.received.len()));
        if len == 0 && !side.ended && !buffer.is_empty() {
            side.reader = Some(waker.clone());
            return Poll::Pending;
        }
        for (to, from) in buffer.iter_mut().zip(side.received.drain(..len)) {
            *to = from;
        }
        side.bytes -= len;
        let writer = connection.ends[1 - self.index].writer.take();
        drop(connection);
        writer.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(len))
    }

    /// Sends as much as the other end has room for.
    pub(super) fn poll_write(&self, bytes: &[u8], waker: &Waker) -> Poll<io::Result<usize>> {
        let mut connection = self.connection.borrow_mut();
        let unread = connection.ends[1 - self.index].bytes;
        let side = &mut connection.ends[self.index];
        if side.broken || side.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = self.network.0.quality.get().window_bytes.saturating_sub(unread);
        let len = self.part(room.min(bytes.len()));
        if len == 0 && !bytes.is_empty() {
            side.writer = Some(waker.clone());
            return Poll::Pending;
        }
        drop(connection);
        let cut = self.network.0.quality.get().cut;
        let arrives = self.network.0.executor.draw(|random| match random.chance(cut) {
            true => random.index(len + 1),
            false => len,
        });
        self.send(Content::Bytes(bytes[..arrives].to_vec()), 0);
        if arrives < len {
            self.reset(0);
        }
        Poll::Ready(Ok(len))
    }

    /// How many of `len` bytes are read or written at once.
    fn part(&self, len: usize) -> usize {
        if len == 0 || !self.network.0.quality.get().pieces {
            return len;
        }
        1 + self.network.0.executor.draw(|random| random.index(len))
    }

    /// Sends no more.
    pub(super) fn close(&self) {
        let closed = {
            let side = &mut self.connection.borrow_mut().ends[self.index];
            std::mem::replace(&mut side.closed, true) || side.broken
        };
        if !closed {
            self.send(Content::End, 0);
        }
    }

    /// Sends no more, and reads the end from now on.
    pub(super) fn shut_down(&self) {
        self.close();
        let side = &mut self.connection.borrow_mut().ends[self.index];
        side.deaf = true;
        side.ended = true;
        side.bytes -= side.received.len();
        side.received.clear();
        side.wake();
    }

    /// Stops reading. Bytes that arrive later are answered with a reset.
    pub(super) fn turn_away(&self) {
        let unread = {
            let side = &mut self.connection.borrow_mut().ends[self.index];
            side.deaf = true;
            !side.received.is_empty()
        };
        if unread {
            self.reset(0);
        }
    }

    /// Ends this end; the other one learns of it later.
    fn reset(&self, silence_us: u64) {
        let gone = {
            let side = &mut self.connection.borrow_mut().ends[self.index];
            let gone = side.broken;
            side.break_off();
            gone
        };
        if !gone {
            self.send(Content::Reset, silence_us);
        }
    }

    fn send(&self, content: Content, silence_us: u64) {
        let network = &self.network;
        let lost = network.lose();
        if lost > LOST_MAX {
            let [first, second] = &mut self.connection.borrow_mut().ends;
            first.break_off();
            return second.break_off();
        }
        let len = if let Content::Bytes(bytes) = &content { bytes.len() } else { 0 };
        let resent_us = (0..lost).map(|times| RETRANSMIT_US << times).sum::<u64>();
        let carried_us = len as u64 * 1000 / network.0.quality.get().bytes_per_ms.max(1);
        let now_us = network.0.executor.now_us();
        let other = Self { index: 1 - self.index, ..self.clone() };
        let (from, to) = other.direction();
        let latency_us = network.latency_us(from, to);
        let at_us = network.delay(from, to, now_us + silence_us + latency_us + resent_us);
        {
            let side = &mut self.connection.borrow_mut().ends[other.index];
            side.bytes += len;
            side.arrives_us = side.arrives_us.max(at_us) + carried_us;
            side.on_the_way.push_back(Packet { at_us: side.arrives_us, content });
        }
        let delay_us = self.connection.borrow().ends[other.index].arrives_us - now_us;
        network.0.executor.call_after(delay_us, move || other.arrive());
    }

    /// What comes to this end in that direction is due now, at the latest. Returns whether anything is.
    fn hasten(&self, from: Place, to: Place, now_us: u64) -> bool {
        if self.direction() != (from, to) {
            return false;
        }
        let side = &mut self.connection.borrow_mut().ends[self.index];
        side.arrives_us = side.arrives_us.min(now_us);
        side.on_the_way.iter_mut().for_each(|packet| packet.at_us = packet.at_us.min(now_us));
        !side.on_the_way.is_empty()
    }

    /// From where to where it hears.
    fn direction(&self) -> (Place, Place) {
        let ends = &self.connection.borrow().ends;
        (ends[1 - self.index].place, ends[self.index].place)
    }

    /// Delivers the packets that are due, unless the direction is blocked.
    fn arrive(&self) {
        let ((from, to), lan) = (self.direction(), self.connection.borrow().lan);
        if let Some(waiting) = self.network.0.blocked.borrow_mut().get_mut(&(from, to)) {
            return waiting.push(self.clone());
        }
        for interface in [(from, lan), (to, lan)] {
            if let Some(waiting) = self.network.0.down.borrow_mut().get_mut(&interface) {
                return waiting.push(self.clone());
            }
        }
        let now_us = self.network.0.executor.now_us();
        let refused = {
            let side = &mut self.connection.borrow_mut().ends[self.index];
            let mut refused = false;
            while let Some(packet) = side.on_the_way.pop_front_if(|packet| packet.at_us <= now_us) {
                match packet.content {
                    Content::Bytes(_) if side.broken => {}
                    Content::Bytes(_) if side.deaf => refused = true,
                    Content::Bytes(bytes) => side.received.extend(bytes),
                    Content::End => side.ended = true,
                    Content::Reset => side.break_off(),
                }
            }
            side.reader.take().into_iter().for_each(Waker::wake);
            refused
        };
        if refused {
            self.reset(0);
        }
    }
}

/// A port where connections come in.
pub(crate) struct SimListener {
    network: Network,
    address: (Place, Lan, u16),
    backlog: Rc<Backlog>,
}

impl SimListener {
    pub(super) async fn next(&self) -> (SimStream, (Place, Lan)) {
        poll_fn(|cx| {
            if let Some(accepted) = self.backlog.waiting.borrow_mut().pop_front() {
                return Poll::Ready(accepted);
            }
            self.backlog.accepting.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let mut listeners = self.network.0.listeners.borrow_mut();
        if listeners.get(&self.address).is_some_and(|backlog| Rc::ptr_eq(backlog, &self.backlog)) {
            listeners.remove(&self.address);
        }
    }
}
