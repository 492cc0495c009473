//! What a stranger can do to the links between two servers, from any bytes: for the fuzz target `links`, and
//! for a test with random bytes. The links are the host's own, over simulated connections.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::{or, zip};
use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use ringkeeper_engine::zab::{Input, Message};
use ringkeeper_host::env::{Class, Connection, Env, Listener, PeerAddress, Stream};
use ringkeeper_host::links::{Links, Redial, Secrets};
use ringkeeper_wire::{Epoch, ServerId};

use super::{Executor, Hardware, Machines, Quality, SimEnv, SimListener, SimStream, address};

pub(super) const PORT: u16 = 2888;
const SECRET: &[u8] = b"secret";

/// What each side of a handshake says: a hello, then a proof.
const HELLO_BYTES: usize = 56;
const HANDSHAKE_BYTES: usize = HELLO_BYTES + 32;

/// A server hangs up on whoever does not prove itself within two seconds.
const VISIT_US: u64 = 5_000_000;

/// Place of the first server, which is dialed, of the second one, which dials, and of the stranger.
const ONE: usize = 0;
const TWO: usize = 1;
const STRANGER: usize = 2;

pub(super) fn quality() -> Quality {
    Quality { latency_us: 1000, loss: 0, window_bytes: 4096, bytes_per_ms: 100_000, pieces: true, cut: 0 }
}

pub(super) fn hardware() -> Hardware {
    Hardware { clock_error_ms: 0, clock_rate: 1000, medium_us: 1000, writes_through: false }
}

pub(super) fn peer(number: usize) -> PeerAddress {
    PeerAddress { id: ServerId(number as u64 + 1), host: Machines::name(number), port: PORT }
}

pub(super) fn socket(number: usize) -> SocketAddr {
    SocketAddr::new(address(number, 0), PORT)
}

pub(super) fn run_until(machines: &Machines, until_us: u64) {
    let over = Rc::new(Cell::new(false));
    let alarm = Rc::clone(&over);
    machines.executor.call_after(until_us - machines.executor.now_us(), move || alarm.set(true));
    while !over.get() && machines.executor.step() {}
}

/// A server without anything above its links.
pub(super) struct Server {
    pub(super) links: Rc<Links<SimEnv>>,
    heard: Rc<RefCell<Vec<Input>>>,
}

impl Server {
    /// Starts the server of a machine, as the server `id` of an ensemble on the first two machines.
    pub(super) fn start(machines: &Machines, number: usize, id: u64, secrets: impl Into<Secrets>) -> Self {
        Self::start_in(machines, number, id, secrets, [ONE, TWO].map(peer))
    }

    /// The same in an ensemble of others.
    pub(super) fn start_in(
        machines: &Machines,
        number: usize,
        id: u64,
        secrets: impl Into<Secrets>,
        ensemble: impl IntoIterator<Item = PeerAddress>,
    ) -> Self {
        let (env, listener) = machines.begin(number, PORT);
        let heard = Rc::<RefCell<Vec<Input>>>::default();
        let links = Links::new(env, ServerId(id), ensemble, secrets, Redial::REAL);
        let hears = Rc::clone(&heard);
        links.start([Machines::port(number, PORT, listener)], move |input| hears.borrow_mut().push(input));
        Self { links, heard }
    }

    pub(super) fn names(&self) -> Vec<String> {
        let name = |input: &Input| match input {
            Input::PeerConnected(peer) => format!("{peer} connected"),
            Input::PeerDisconnected(peer) => format!("{peer} disconnected"),
            Input::Message { message: Message::NewEpoch(epoch), .. } => format!("epoch {}", epoch.0),
            other => format!("{other:?}"),
        };
        self.heard.borrow().iter().map(name).collect()
    }
}

fn machines() -> Machines {
    Machines::new(&Executor::new(1, 50), quality(), &[hardware(); 3])
}

/// Says `bytes`, and listens until the other end hangs up: how much it has said.
async fn visit(stream: SimStream, bytes: &[u8]) -> usize {
    let Connection { mut reader, mut writer, .. } = stream.open().await.expect("it always works");
    let (mut said, mut buffer) = (0, [0; 1000]);
    let speak = async {
        // The other end may hang up before it has read everything.
        let _ = writer.write_all(bytes).await;
    };
    let listen = async {
        while let Ok(len @ 1..) = reader.read(&mut buffer).await {
            said += len;
        }
    };
    zip(speak, listen).await;
    said
}

/// A stranger dials a server and says `bytes`: it is told no more than a hello and is hung up on, and the
/// ensemble's other server is served.
///
/// # Panics
/// If that does not hold.
pub fn accepting(bytes: &[u8]) {
    let machines = machines();
    let one = Server::start(&machines, ONE, 1, SECRET);
    let (env, _) = machines.begin(STRANGER, PORT);
    let said = Rc::new(Cell::new(None));
    let (own, told, bytes) = (env.clone(), Rc::clone(&said), bytes.to_vec());
    let stranger = async move {
        let stream = own.dial(socket(ONE), Duration::from_secs(1)).await.expect("it listens");
        told.set(Some(visit(stream, &bytes).await));
    };
    env.spawn(Class::Requests, stranger).detach();
    let _two = Server::start(&machines, TWO, 2, SECRET);
    run_until(&machines, VISIT_US);
    let said = said.get().expect("the server hangs up");
    assert!(said <= HELLO_BYTES, "{said} bytes are said to a stranger");
    assert_eq!(one.names(), ["2 connected"]);
}

/// A server dials a stranger, who answers with `bytes`: it is told no more than a hello and a proof, and is
/// not taken for the other server.
///
/// # Panics
/// If that does not hold.
pub fn dialing(bytes: &[u8]) {
    let machines = machines();
    let (env, listener) = machines.begin(ONE, PORT);
    let said = Rc::new(RefCell::new(Vec::new()));
    let (told, bytes) = (Rc::clone(&said), bytes.to_vec());
    let stranger = async move {
        loop {
            let (stream, _) = listener.accept().await.expect("it always works");
            let heard = visit(stream, &bytes).await;
            told.borrow_mut().push(heard);
        }
    };
    env.spawn(Class::Requests, stranger).detach();
    let two = Server::start(&machines, TWO, 2, SECRET);
    run_until(&machines, VISIT_US);
    let said = said.take();
    assert!(!said.is_empty(), "the server hangs up");
    assert!(said.iter().all(|said| *said <= HANDSHAKE_BYTES), "{said:?} bytes are said to strangers");
    assert!(two.names().is_empty(), "{:?}", two.names());
}

/// A stranger passes on what two servers say to each other, and changes it: each three bytes of `changes`
/// name a direction and place, and what is added there. A server takes the other one for connected only if
/// what it has heard of the handshake is what the other one has said; messages may be any bytes.
///
/// # Panics
/// If that does not hold.
pub fn between(changes: &[u8]) {
    let machines = machines();
    let one = Server::start(&machines, ONE, 1, SECRET);
    let (env, listener) = machines.begin(STRANGER, PORT);
    let (own, plan) = (env.clone(), Changes::parse(changes));
    env.spawn(Class::Requests, pass_on(own, listener, plan.clone())).detach();
    // The second server finds the first one where the stranger is.
    let ensemble = [PeerAddress { host: Machines::name(STRANGER), ..peer(ONE) }, peer(TWO)];
    let two = Server::start_in(&machines, TWO, 2, SECRET, ensemble);
    for second in 1..=VISIT_US / 1_000_000 {
        run_until(&machines, second * 1_000_000);
        one.links.send(ServerId(2), &Message::NewEpoch(Epoch(1)));
        two.links.send(ServerId(1), &Message::NewEpoch(Epoch(2)));
    }
    for (server, changes) in [(one, &plan.0[0]), (two, &plan.0[1])] {
        let is_intact = changes.iter().all(|(place, added)| *place >= HANDSHAKE_BYTES || *added == 0);
        let names = server.names();
        assert!(is_intact || names.is_empty(), "{changes:?} of what it heard: {names:?}");
    }
}

/// The changes in what the first server hears, and in what the second one hears.
#[derive(Clone, Default)]
struct Changes([Vec<(usize, u8)>; 2]);

impl Changes {
    fn parse(bytes: &[u8]) -> Self {
        let mut changes = Self::default();
        for &[low, high, added] in bytes.as_chunks().0 {
            let place = usize::from(u16::from_le_bytes([low, high])) % 512;
            changes.0[place % 2].push((place / 2, added));
        }
        // Two changes of one place may cancel each other out.
        for direction in &mut changes.0 {
            direction.sort_unstable_by_key(|(place, _)| *place);
            direction.dedup_by_key(|(place, _)| *place);
        }
        changes
    }
}

/// Passes each connection that comes in on to the first server.
async fn pass_on(env: SimEnv, listener: SimListener, Changes([to_one, to_two]): Changes) {
    loop {
        let (dialed, _) = listener.accept().await.expect("it always works");
        let Ok(onward) = env.dial(socket(ONE), Duration::from_secs(1)).await else { continue };
        let two = dialed.open().await.expect("it always works");
        let one = onward.open().await.expect("it always works");
        or(change(two.reader, one.writer, &to_one), change(one.reader, two.writer, &to_two)).await;
    }
}

async fn change(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, changes: &[(usize, u8)]) {
    let (mut passed, mut buffer) = (0, [0; 1000]);
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        for (place, added) in changes {
            if let Some(byte) = place.checked_sub(passed).and_then(|at| buffer[..len].get_mut(at)) {
                *byte = byte.wrapping_add(*added);
            }
        }
        passed += len;
        if to.write_all(&buffer[..len]).await.is_err() {
            return;
        }
    }
}
