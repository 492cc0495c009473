//! Sockets of an executor. What is written to one in a turn is sent in one operation at the turn's end, which
//! is handed to the kernel together with everything else. Bytes that are shared have an operation of their
//! own, a turn later. A receive that waits has no buffer of its own where the kernel can choose one when
//! bytes have come.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_lite::future::or;
use futures_lite::{AsyncRead, AsyncWrite};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use socket2::{Domain, Protocol, SockRef, Socket as System, Type};

use super::env::Reactor;
use super::executor::{Core, SPARE_BYTES_MAX, Slot, Token};
use super::timers::sleep;
use crate::completions::{Loan, Operation, Outcome, Outgoing, is_out_of_buffers};
use crate::tls::Transport;

/// Bytes that are copied to wait behind a send under way, at most: a writer with more waits for it.
const ROOM: usize = 128 * 1024;

/// Bytes that are received at once where the kernel chooses no buffer.
const RECEIVED_MAX: usize = 16 * 1024;

/// A connected socket, of TCP or of the machine's own. Clones are handles of the same one. When the last is
/// dropped, what was written is still sent, and the socket is closed.
#[derive(Clone)]
pub struct TcpStream(Rc<Handle>);

/// Ends what nobody waits for any more.
struct Handle(Rc<Socket>);

/// What the executor knows of a socket.
pub(super) struct Socket {
    fd: Rc<OwnedFd>,
    /// As [`ROOM`].
    room: usize,
    input: RefCell<Input>,
    output: RefCell<Output>,
    /// Dropped when the socket is closed.
    kept: Cell<Option<Box<dyn Any>>>,
}

/// What an operation of a socket does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    Receive,
    Send,
}

#[derive(Default)]
struct Input {
    under_way: Option<Operation>,
    held: Option<Held>,
    /// The socket has more than was received last.
    more: bool,
    /// Nothing comes any more: the stream's end, or an error of this kind.
    ended: Option<Result<(), io::ErrorKind>>,
    waker: Option<Waker>,
}

/// What was received and is not read yet, and how much of it is.
enum Held {
    Lent(Loan, usize),
    Own(Vec<u8>, usize),
}

#[derive(Default)]
struct Output {
    waiting: Vec<u8>,
    /// What is sent behind that without a copy. Nothing more is taken until it is on its way.
    shared: Option<Box<Bytes>>,
    /// The buffer of the last send, if it is too large for other sockets.
    spare: Vec<u8>,
    /// A send is under way.
    sends: bool,
    /// The executor knows that something is waiting.
    is_queued: bool,
    /// The stream ends behind what is waiting.
    closes: bool,
    failed: Option<io::ErrorKind>,
    waker: Option<Waker>,
}

impl Output {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.shared.is_none()
    }

    /// What is to be sent next, and whether more waits behind.
    fn next(&mut self) -> Option<(Outgoing, bool)> {
        if self.waiting.is_empty() {
            return Some((Outgoing::Shared(self.shared.take()?), false));
        }
        Some((Outgoing::Own(std::mem::take(&mut self.waiting)), self.shared.is_some()))
    }

    /// An empty buffer, which may have room.
    fn another(&mut self, core: &Core) -> Vec<u8> {
        let spare = std::mem::take(&mut self.spare);
        if spare.capacity() > 0 { spare } else { core.spares.borrow_mut().take() }
    }
}

fn remember(place: &mut Option<Waker>, waker: &Waker) {
    if !place.as_ref().is_some_and(|known| known.will_wake(waker)) {
        *place = Some(waker.clone());
    }
}

impl Socket {
    /// Begins the sends of all sockets to which something was written.
    pub(super) fn send_all(core: &Core) {
        let mut speaking = core.speaking.borrow_mut();
        let mut ring = core.ring.borrow_mut();
        for socket in speaking.drain(..) {
            let mut output = socket.output.borrow_mut();
            output.is_queued = false;
            if output.sends {
                continue;
            }
            let Some((bytes, more)) = output.next() else { continue };
            output.sends = true;
            if let Outgoing::Shared(_) = bytes
                && let Some(waker) = output.waker.take()
            {
                waker.wake();
            }
            drop(output);
            ring.send(Token::Socket(Rc::clone(&socket), Direction::Send), &socket.fd, bytes, 0, more);
        }
    }

    fn queue(self: &Rc<Self>, core: &Core, output: &mut Output) {
        if !output.sends && !std::mem::replace(&mut output.is_queued, true) {
            core.speaking.borrow_mut().push(Rc::clone(self));
        }
    }

    /// An operation has ended.
    pub(super) fn complete(self: Rc<Self>, core: &Core, direction: Direction, outcome: io::Result<Outcome>) {
        let waker = match direction {
            Direction::Receive => self.received(core, outcome),
            Direction::Send => self.sent(core, outcome),
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn received(self: &Rc<Self>, core: &Core, outcome: io::Result<Outcome>) -> Option<Waker> {
        let mut input = self.input.borrow_mut();
        input.under_way = None;
        match outcome {
            Ok(Outcome::Lent { loan: Some(loan), more }) => {
                input.more = more;
                let mut ring = core.ring.borrow_mut();
                input.held = Some(if ring.runs_short() {
                    let own = ring.lent(&loan).to_vec();
                    ring.give_back(loan);
                    Held::Own(own, 0)
                } else {
                    Held::Lent(loan, 0)
                });
            }
            Ok(Outcome::Lent { loan: None, .. }) => input.ended = Some(Ok(())),
            Err(error) if is_out_of_buffers(&error) && input.ended.is_none() => {
                // Those that are lent have come back by the next turn.
                input.more = true;
                self.receive(core, &mut input);
                return None;
            }
            Err(error) => input.ended = Some(Err(error.kind())),
            // There is something to receive.
            Ok(_) => {}
        }
        input.waker.take()
    }

    fn sent(self: &Rc<Self>, core: &Core, outcome: io::Result<Outcome>) -> Option<Waker> {
        let mut output = self.output.borrow_mut();
        output.sends = false;
        match outcome {
            Ok(Outcome::Sent { buffer, upto }) if upto < buffer.len() => {
                output.sends = true;
                let token = Token::Socket(Rc::clone(self), Direction::Send);
                core.ring.borrow_mut().send(token, &self.fd, buffer, upto, output.shared.is_some());
                return None;
            }
            Ok(Outcome::Sent { buffer, .. }) => {
                match buffer {
                    Outgoing::Own(mut own)
                        if (SPARE_BYTES_MAX + 1..=self.room / 2).contains(&own.capacity()) =>
                    {
                        own.clear();
                        output.spare = own;
                    }
                    Outgoing::Own(own) => core.spares.borrow_mut().give(own),
                    Outgoing::Shared(_) => {}
                }
                if !output.is_empty() {
                    self.queue(core, &mut output);
                } else if output.closes {
                    self.shut(Shutdown::Write);
                }
            }
            failed => {
                output.failed = Some(failed.err().map_or(io::ErrorKind::Other, |error| error.kind()));
                (output.waiting, output.shared) = (Vec::new(), None);
            }
        }
        output.waker.take()
    }

    /// Begins a receive.
    fn receive(self: &Rc<Self>, core: &Core, input: &mut Input) {
        let token = Token::Socket(Rc::clone(self), Direction::Receive);
        let mut ring = core.ring.borrow_mut();
        input.under_way = Some(match core.lends {
            true => ring.borrow(token, &self.fd, !input.more),
            false => ring.poll_readable(token, &self.fd),
        });
    }

    /// Ready when something is held, or nothing will be.
    fn poll_held(self: &Rc<Self>, core: &Core, waker: &Waker) -> Poll<io::Result<()>> {
        let mut input = self.input.borrow_mut();
        if input.held.is_some() {
            return Poll::Ready(Ok(()));
        }
        if let Some(ended) = input.ended {
            return Poll::Ready(ended.map_err(io::Error::from));
        }
        if input.under_way.is_none() {
            if !core.lends && self.receive_at_once(&mut input)? {
                return Poll::Ready(Ok(()));
            }
            self.receive(core, &mut input);
        }
        remember(&mut input.waker, waker);
        Poll::Pending
    }

    /// Receives what is there already. Whether there was something, or the stream's end.
    fn receive_at_once(&self, input: &mut Input) -> io::Result<bool> {
        let mut buffer = Vec::with_capacity(RECEIVED_MAX);
        match recv(&self.fd, rustix::buffer::spare_capacity(&mut buffer), RecvFlags::DONTWAIT) {
            Ok((_, 0)) => input.ended = Some(Ok(())),
            Ok(_) => input.held = Some(Held::Own(buffer, 0)),
            Err(rustix::io::Errno::AGAIN) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn poll_read(self: &Rc<Self>, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let core = Core::current();
        ready!(self.poll_held(&core, cx.waker()))?;
        let mut input = self.input.borrow_mut();
        let mut ring = core.ring.borrow_mut();
        let (bytes, read) = match &mut input.held {
            None => return Poll::Ready(Ok(0)),
            Some(Held::Lent(loan, read)) => (ring.lent(loan), read),
            Some(Held::Own(own, read)) => (&own[..], read),
        };
        let unread = &bytes[*read..];
        let len = unread.len().min(buffer.len());
        buffer[..len].copy_from_slice(&unread[..len]);
        *read += len;
        if *read < bytes.len() {
            return Poll::Ready(Ok(len));
        }
        if let Some(Held::Lent(loan, _)) = input.held.take() {
            ring.give_back(loan);
        }
        Poll::Ready(Ok(len + self.receive_more(&mut input, &mut buffer[len..])))
    }

    /// Receives what the kernel knows to be there besides what was received, without another turn. An error
    /// stays for the next receive.
    fn receive_more(&self, input: &mut Input, buffer: &mut [u8]) -> usize {
        if !input.more || buffer.is_empty() {
            return 0;
        }
        let (len, room) =
            (recv(&self.fd, &mut *buffer, RecvFlags::DONTWAIT).map_or(0, |(len, _)| len), buffer.len());
        input.more = len == room;
        len
    }

    fn poll_write(self: &Rc<Self>, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut output = self.output.borrow_mut();
        if let Some(failed) = output.failed {
            return Poll::Ready(Err(failed.into()));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let room = if output.shared.is_some() { 0 } else { self.room.saturating_sub(output.waiting.len()) };
        let len = bytes.len().min(room);
        if len == 0 {
            remember(&mut output.waker, cx.waker());
            return Poll::Pending;
        }
        let core = Core::current();
        if output.waiting.capacity() == 0 {
            output.waiting = output.another(&core);
        }
        output.waiting.extend_from_slice(&bytes[..len]);
        self.queue(&core, &mut output);
        Poll::Ready(Ok(len))
    }

    /// Takes all of `bytes` to be sent as they are, behind what waits.
    fn poll_share(self: &Rc<Self>, cx: &Context<'_>, bytes: &Bytes) -> Poll<io::Result<()>> {
        let mut output = self.output.borrow_mut();
        if let Some(failed) = output.failed {
            return Poll::Ready(Err(failed.into()));
        }
        if output.shared.is_some() {
            remember(&mut output.waker, cx.waker());
            return Poll::Pending;
        }
        output.shared = Some(Box::new(bytes.clone()));
        self.queue(&Core::current(), &mut output);
        Poll::Ready(Ok(()))
    }

    /// Takes all of `bytes` as they are, and leaves an empty buffer, if nothing else waits.
    fn take(self: &Rc<Self>, bytes: &mut Vec<u8>) -> bool {
        let mut output = self.output.borrow_mut();
        let takes = output.is_empty() && output.failed.is_none() && (1..=self.room).contains(&bytes.len());
        if takes {
            let core = Core::current();
            let another = output.another(&core);
            output.waiting = std::mem::replace(bytes, another);
            self.queue(&core, &mut output);
        }
        takes
    }

    fn poll_flush(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut output = self.output.borrow_mut();
        if let Some(failed) = output.failed {
            return Poll::Ready(Err(failed.into()));
        }
        if output.sends || !output.is_empty() {
            remember(&mut output.waker, cx.waker());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn close(&self) {
        let mut output = self.output.borrow_mut();
        output.closes = true;
        if !output.sends && output.is_empty() {
            self.shut(Shutdown::Write);
        }
    }

    fn shut(&self, direction: Shutdown) {
        // It fails only if the connection has ended, which is the wanted result.
        let _ = shutdown(&self.fd, direction);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(Held::Lent(loan, _)) = self.input.get_mut().held.take()
            && let Some(core) = Core::try_current()
        {
            core.ring.borrow_mut().give_back(loan);
        }
    }
}

impl Drop for Handle {
    /// A receive under way would hold the socket.
    fn drop(&mut self) {
        let Some(core) = Core::try_current() else { return };
        let mut input = self.0.input.borrow_mut();
        // It may have ended for want of a buffer already, and is not to be begun again.
        input.ended = Some(Ok(()));
        if let Some(operation) = input.under_way {
            core.ring.borrow_mut().cancel(operation);
        }
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpStream").field(&self.0.0.fd).finish()
    }
}

impl From<OwnedFd> for TcpStream {
    /// A connected socket, which has to block, on this thread's executor.
    fn from(fd: OwnedFd) -> Self {
        Self::with_room(fd, ROOM)
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.fd.as_fd()
    }
}

impl TcpStream {
    /// A connected socket for which so many bytes may wait behind a send under way.
    pub(super) fn with_room(fd: OwnedFd, room: usize) -> Self {
        let (input, output, kept) = (RefCell::default(), RefCell::default(), Cell::default());
        Self(Rc::new(Handle(Rc::new(Socket { fd: Rc::new(fd), room, input, output, kept }))))
    }

    /// Connects to an address, which has to answer within `patience`.
    ///
    /// # Errors
    /// It does not answer, or refuses; no file descriptor is free.
    pub async fn connect(address: SocketAddr, patience: Duration) -> io::Result<OwnedFd> {
        let socket = System::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        let fd = Rc::new(OwnedFd::from(socket));
        let core = Core::current();
        let (slot, operation) = core.begin(|ring, token| ring.connect(token, &fd, address));
        let connecting = UnderWay { operation: Cell::new(Some(operation)) };
        let in_time = async {
            sleep(patience).await;
            Err(io::ErrorKind::TimedOut.into())
        };
        let connected = async {
            let outcome = slot.outcome().await;
            connecting.operation.take();
            outcome
        };
        or(connected, in_time).await?;
        drop(slot);
        Ok(Rc::try_unwrap(fd).expect("the operation has ended"))
    }

    /// Where the connection comes from.
    #[must_use]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        SockRef::from(self).peer_addr().ok()?.as_socket()
    }

    /// Writes all of `bytes` without a copy, and leaves an empty buffer in their place. Whether it did: they
    /// may be too many, or others may wait.
    pub fn take(&self, bytes: &mut Vec<u8>) -> bool {
        self.0.0.take(bytes)
    }

    /// Keeps something until the socket is closed, which is when the last handle is dropped and the kernel
    /// has taken what was written, or has given up an end that does not read.
    pub fn keep(&self, something: impl Any) {
        self.0.0.kept.set(Some(Box::new(something)));
    }

    /// Resets the connection: what the kernel has not sent is dropped, and the other end is told. A mere
    /// close would keep that, and the connection, for a client that does not read.
    pub fn reset(&self) {
        // It fails only if the connection has ended, which is the wanted result.
        let _ = rustix::net::connect_unspec(self);
    }
}

/// An operation that is taken back when nobody waits for it any more.
struct UnderWay {
    operation: Cell<Option<Operation>>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some((operation, core)) = self.operation.take().zip(Core::try_current()) {
            core.ring.borrow_mut().cancel(operation);
        }
    }
}

impl Transport for TcpStream {
    type Runtime = Reactor;

    fn set_nodelay(&self) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_tcp_nodelay(self, true)?)
    }

    async fn first_byte(&self) -> io::Result<Option<u8>> {
        let socket = &self.0.0;
        poll_fn(|cx| socket.poll_held(&Core::current(), cx.waker())).await?;
        Ok(match &socket.input.borrow().held {
            None => None,
            Some(Held::Lent(loan, read)) => Core::current().ring.borrow().lent(loan).get(*read).copied(),
            Some(Held::Own(own, read)) => own.get(*read).copied(),
        })
    }

    async fn write_shared(&mut self, bytes: Bytes) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        poll_fn(|cx| self.0.0.poll_share(cx, &bytes)).await
    }

    fn second(&self) -> io::Result<Self> {
        Ok(self.clone())
    }

    fn shut_down(&self) {
        self.0.0.shut(Shutdown::Both);
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.0.poll_read(cx, buffer)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.0.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.0.poll_flush(cx)
    }

    /// Ends the stream behind what was written. Does not wait for that.
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.0.close();
        Poll::Ready(Ok(()))
    }
}

/// A listening socket. While it has an accept under way, the kernel holds the socket: to close the port at
/// once, it has to be shut down.
pub struct TcpListener {
    fd: Rc<OwnedFd>,
    accepting: RefCell<Option<(Rc<Slot>, UnderWay)>>,
}

impl From<OwnedFd> for TcpListener {
    /// A socket that listens, and blocks, on this thread's executor.
    fn from(fd: OwnedFd) -> Self {
        Self { fd: Rc::new(fd), accepting: RefCell::default() }
    }
}

impl TcpListener {
    /// The next connection, and where it comes from, if that is an address of the internet. If this is
    /// dropped, the connection stays for the next accept.
    ///
    /// # Errors
    /// A connection could not be accepted; later ones may be, unless the kind is `InvalidInput`: then the
    /// socket no longer listens.
    pub async fn accept(&self) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
        let slot = {
            let mut accepting = self.accepting.borrow_mut();
            let (slot, _) = accepting.get_or_insert_with(|| {
                let (slot, operation) = Core::current().begin(|ring, token| ring.accept(token, &self.fd));
                (slot, UnderWay { operation: Cell::new(Some(operation)) })
            });
            Rc::clone(slot)
        };
        let outcome = slot.outcome().await;
        if let Some((_, accepted)) = self.accepting.take() {
            accepted.operation.take();
        }
        match outcome? {
            Outcome::Accepted(socket, address) => Ok((socket, address)),
            _ => Err(io::ErrorKind::Other.into()),
        }
    }

    /// Closes the port at once.
    pub fn shut_down(&self) {
        // It fails only if the socket does not listen any more, which is the wanted result.
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener as PlainListener, TcpStream as Plain};
    use std::thread;

    use futures_lite::{AsyncReadExt, AsyncWriteExt};

    use super::super::{Executor, spawn_local, yield_now};
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Runs a test as on the newest kernel, and as on the oldest.
    fn on_both(test: impl AsyncFn()) {
        Executor::new("newest").expect("io_uring is available").run(test());
        Executor::plain("oldest").expect("io_uring is available").run(test());
    }

    /// A connection: its end on this executor, and the plain one.
    async fn pair() -> (TcpStream, Plain) {
        let listener = PlainListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let listener = TcpListener::from(OwnedFd::from(listener));
        let plain = Plain::connect(address).expect("it listens");
        let (accepted, from) = listener.accept().await.expect("a connection");
        assert_eq!(from, plain.local_addr().ok());
        let stream = TcpStream::from(accepted);
        assert_eq!(stream.peer_addr(), from);
        (stream, plain)
    }

    /// All that comes until the stream ends.
    async fn rest(mut plain: Plain) -> Vec<u8> {
        let reader = thread::spawn(move || {
            let mut received = Vec::new();
            plain.read_to_end(&mut received).map(|_| received)
        });
        while !reader.is_finished() {
            sleep(Duration::from_millis(1)).await;
        }
        reader.join().expect("no panic").expect("it comes")
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| u8::try_from(at % 251).expect("less than 251")).collect()
    }

    #[test]
    fn many_bytes_go_both_ways_in_their_order_whether_they_are_copied_or_shared() {
        const LEN: usize = 5 << 20;
        const PIECE: usize = 300_000;
        on_both(async || {
            let (mut stream, mut plain) = pair().await;
            let mut sending = plain.try_clone().expect("a descriptor");
            let sender = thread::spawn(move || sending.write_all(&bytes(LEN)));
            let receiver = thread::spawn(move || {
                let mut received = Vec::new();
                plain.read_to_end(&mut received).map(|_| received)
            });
            let mut writer = stream.clone();
            let writing = spawn_local(async move {
                for (number, piece) in bytes(LEN).chunks(PIECE).enumerate() {
                    match number % 3 {
                        0 => writer.write_all(piece).await?,
                        _ => writer.write_shared(Bytes::copy_from_slice(piece)).await?,
                    }
                    writer.write_shared(Bytes::new()).await?;
                    // Each piece of its own, too, and several that wait for one another.
                    if number % 4 == 3 {
                        writer.flush().await?;
                    }
                }
                writer.flush().await?;
                writer.close().await
            });
            let mut received = vec![0; LEN];
            stream.read_exact(&mut received).await.expect("they come");
            assert!(received == bytes(LEN));
            writing.await.expect("they go");
            sender.join().expect("no panic").expect("they go");
            assert!(receiver.join().expect("no panic").expect("they come") == bytes(LEN));
        });
    }

    #[test]
    fn what_is_written_in_a_turn_is_sent_before_the_socket_closes() {
        on_both(async || {
            let (mut stream, plain) = pair().await;
            for piece in [b"one ".as_slice(), b"two ", b"three"] {
                stream.write_all(piece).await.expect("room");
            }
            drop(stream);
            assert_eq!(rest(plain).await, b"one two three");
        });
    }

    #[test]
    fn shared_bytes_are_sent_before_the_socket_closes() {
        on_both(async || {
            let (mut stream, plain) = pair().await;
            let shared = Bytes::from(bytes(300_000));
            for _ in 0..2 {
                stream.write_all(b"then ").await.expect("room");
                stream.write_shared(shared.clone()).await.expect("they go");
            }
            drop(stream);
            assert!(rest(plain).await == [b"then ", &shared[..], b"then ", &shared[..]].concat());
        });
    }

    #[test]
    fn who_waits_to_share_bytes_hears_that_the_connection_has_ended() {
        on_both(async || {
            let (mut stream, plain) = pair().await;
            let shared = Bytes::from(bytes(8 << 20));
            let mut end = Some(plain);
            let written = or(
                async {
                    loop {
                        stream.write_shared(shared.clone()).await?;
                    }
                },
                async {
                    sleep(Duration::from_millis(20)).await;
                    end.take();
                    std::future::pending::<io::Result<()>>().await
                },
            );
            written.await.expect_err("nobody reads");
        });
    }

    #[test]
    fn a_socket_that_is_dropped_while_it_waits_for_bytes_is_closed() {
        on_both(async || {
            let (mut stream, mut plain) = pair().await;
            let mut buffer = [0; 8];
            let read = futures_lite::future::poll_once(stream.read(&mut buffer)).await;
            assert!(read.is_none(), "nothing was sent");
            yield_now().await;
            drop(stream);
            plain.set_read_timeout(Some(PATIENCE)).expect("a socket");
            let ended = thread::spawn(move || plain.read(&mut [0; 8]).ok());
            while !ended.is_finished() {
                sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(ended.join().expect("no panic"), Some(0));
        });
    }

    #[test]
    fn a_socket_that_found_no_buffer_is_not_read_again_when_nobody_has_it_any_more() {
        on_both(async || {
            let (mut stream, _plain) = pair().await;
            let read = futures_lite::future::poll_once(stream.read(&mut [0; 8])).await;
            assert!(read.is_none(), "nothing was sent");
            let socket = Rc::clone(&stream.0.0);
            drop(stream);
            socket.received(&Core::current(), Err(io::Error::from_raw_os_error(105)));
            assert!(socket.input.borrow().under_way.is_none());
        });
    }

    #[test]
    fn the_first_byte_can_be_looked_at_before_it_is_read() {
        on_both(async || {
            let (mut stream, mut plain) = pair().await;
            plain.write_all(b"xyz").expect("room");
            assert_eq!(stream.first_byte().await.expect("it comes"), Some(b'x'));
            let mut all = [0; 3];
            stream.read_exact(&mut all).await.expect("they come");
            assert_eq!(&all, b"xyz");
            drop(plain);
            assert_eq!(stream.first_byte().await.expect("it ends"), None);
        });
    }

    #[test]
    fn a_writer_waits_for_a_reader_that_does_not_read() {
        on_both(async || {
            let (mut stream, mut plain) = pair().await;
            let mut writer = stream.clone();
            let writing = spawn_local(async move { writer.write_all(&vec![1; 64 << 20]).await });
            sleep(Duration::from_millis(100)).await;
            assert!(!writing.is_finished(), "so much is not taken");
            let reading = thread::spawn(move || std::io::copy(&mut plain, &mut std::io::sink()));
            writing.await.expect("they go");
            stream.flush().await.expect("they go");
            stream.close().await.expect("it ends");
            while !reading.is_finished() {
                sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(reading.join().expect("no panic").expect("they come"), 64 << 20);
        });
    }

    #[test]
    fn more_connections_than_buffers_can_have_unread_bytes() {
        const CONNECTIONS: u16 = 600;
        on_both(async || {
            let mut pairs = Vec::new();
            for number in 0..CONNECTIONS {
                let (stream, mut plain) = pair().await;
                let read = futures_lite::future::poll_once(stream.first_byte()).await;
                assert!(read.is_none(), "nothing was sent");
                plain.write_all(&number.to_le_bytes()).expect("room");
                pairs.push((stream, plain));
            }
            for (stream, _) in &pairs {
                assert!(stream.first_byte().await.expect("it comes").is_some());
            }
            for (number, (stream, _)) in (0..CONNECTIONS).zip(&mut pairs) {
                let mut read = [0; 2];
                stream.read_exact(&mut read).await.expect("they come");
                assert_eq!(read, number.to_le_bytes());
            }
            // Some are dropped with unread bytes, and their buffers come back.
            for round in 0..3 {
                for (stream, plain) in &mut pairs {
                    plain.write_all(&[round; 3]).expect("room");
                    assert_eq!(stream.first_byte().await.expect("it comes"), Some(round));
                    let mut read = [0; 3];
                    stream.read_exact(&mut read).await.expect("they come");
                }
                let half = pairs.len() / 2;
                for (stream, plain) in &mut pairs[half..] {
                    plain.write_all(&[9]).expect("room");
                    stream.first_byte().await.expect("it comes");
                }
                pairs.truncate(half);
            }
        });
    }

    #[test]
    fn a_dial_is_refused_answered_or_given_up() {
        on_both(async || {
            let listener = PlainListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("bound");
            let stream = TcpStream::from(TcpStream::connect(address, PATIENCE).await.expect("it listens"));
            assert_eq!(stream.peer_addr(), Some(address));
            stream.set_nodelay().expect("a socket of TCP");
            drop((stream, listener));
            let refused = TcpStream::connect(address, PATIENCE).await.expect_err("nobody listens");
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            // The place for waiting connections is full, so the system does not answer.
            let full = System::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
            full.bind(&any.into()).and_then(|()| full.listen(0)).expect("a port");
            let address = full.local_addr().expect("bound").as_socket().expect("of the internet");
            let _waits = Plain::connect(address).expect("the one place");
            let silent = TcpStream::connect(address, Duration::from_millis(50)).await;
            assert_eq!(silent.expect_err("no answer").kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn an_accept_that_is_given_up_loses_no_connection_and_a_closed_port_says_so() {
        on_both(async || {
            let plain = PlainListener::bind("127.0.0.1:0").expect("a port");
            let address = plain.local_addr().expect("bound");
            let listener = TcpListener::from(OwnedFd::from(plain));
            assert!(futures_lite::future::poll_once(listener.accept()).await.is_none());
            let client = Plain::connect(address).expect("it listens");
            sleep(Duration::from_millis(5)).await;
            let (_, from) = listener.accept().await.expect("the connection");
            assert_eq!(from, client.local_addr().ok());
            assert!(futures_lite::future::poll_once(listener.accept()).await.is_none());
            listener.shut_down();
            assert!(Plain::connect(address).is_err(), "the port is closed");
            let ended = listener.accept().await.expect_err("it does not listen");
            assert_eq!(ended.kind(), io::ErrorKind::InvalidInput);
        });
    }

    #[test]
    fn a_connection_that_is_reset_tells_both_ends() {
        on_both(async || {
            let (stream, mut plain) = pair().await;
            stream.reset();
            let ended = plain.read(&mut [0; 1]).expect_err("reset");
            assert_eq!(ended.kind(), io::ErrorKind::ConnectionReset);
            let mut stream = stream;
            assert!(matches!(stream.read(&mut [0; 1]).await, Ok(0) | Err(_)));
        });
    }
}
