//! The link to one other server: its output queue, and the connection that carries it, if there is one.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::time::{Duration, Instant};

use futures_lite::future::or;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::TcpStream;
use ringkeeper_engine::zab::{Input, Message};
use ringkeeper_wire::ServerId;

use super::PeerAddress;
use super::frames::FrameReader;
use super::output::Output;
use crate::socket;
use ringkeeper_host::rate_limiter::RateLimiter;
use ringkeeper_host::wake::WakeFlag;

/// Bytes that may wait for a peer, beyond the last message. The broadcast keeps less than half of this in
/// flight to one learner, so a peer with more does not read.
const OUTPUT_BYTES_MAX: usize = 128 << 20;

/// Connections that are logged at once, and the time after which another one is: two machines with one id
/// take each other's connection once a second.
const LOGGED_MAX: u64 = 6;
const LOGGED_EVERY_MS: u64 = 60_000;

/// The end of a connection that has lasted longer is logged, whatever was logged before.
const LASTING: Duration = Duration::from_secs(10);

/// The link to one server.
pub(super) struct Link {
    peer: ServerId,
    host: String,
    port: u16,
    /// What waits to be written.
    output: RefCell<Output>,
    /// Whether a connection stands.
    connected: Cell<bool>,
    /// Number of connections so far; only the last one may stand.
    dialed: Cell<u64>,
    /// The writer has something to do.
    work: WakeFlag,
    /// The connection is to be closed.
    closing: WakeFlag,
    reason: Cell<&'static str>,
    /// Why the last dial failed; empty if it succeeded.
    trouble: RefCell<String>,
    created: Instant,
    lines: RateLimiter,
}

impl Link {
    pub(super) fn new(server: PeerAddress) -> Self {
        Self {
            peer: server.id,
            host: server.host,
            port: server.port,
            output: RefCell::default(),
            connected: Cell::new(false),
            dialed: Cell::new(0),
            work: WakeFlag::default(),
            closing: WakeFlag::default(),
            reason: Cell::new(""),
            trouble: RefCell::default(),
            created: Instant::now(),
            lines: RateLimiter::new(LOGGED_MAX, LOGGED_EVERY_MS),
        }
    }

    /// Why the last dial of this peer failed; empty if it succeeded, or if the peer is the one that dials.
    pub(super) fn trouble(&self) -> String {
        self.trouble.borrow().clone()
    }

    /// Records why a dial failed (empty: it succeeded); whether that has changed.
    pub(super) fn set_trouble(&self, trouble: String) -> bool {
        let before = self.trouble.replace(trouble);
        before != *self.trouble.borrow()
    }

    /// Who is at the other end.
    pub(super) fn peer(&self) -> ServerId {
        self.peer
    }

    /// Where it listens; a name is resolved at each dial.
    pub(super) fn host_and_port(&self) -> (String, u16) {
        (self.host.clone(), self.port)
    }

    /// Whether a connection stands.
    pub(super) fn is_connected(&self) -> bool {
        self.connected.get()
    }

    /// Queues a message if a connection stands. A peer with too much output waiting is disconnected; it is
    /// synchronized anew when it reconnects.
    pub(super) fn send(&self, message: &Message) {
        if !self.connected.get() {
            return;
        }
        let mut output = self.output.borrow_mut();
        if output.bytes() > OUTPUT_BYTES_MAX {
            return self.hang_up("it does not read what it is sent");
        }
        output.push(message);
        self.work.raise();
    }

    /// Closes the connection.
    pub(super) fn hang_up(&self, reason: &'static str) {
        self.reason.set(reason);
        self.closing.raise();
    }

    /// Carries messages until the connection breaks or is closed. `deliver` is called with the peer's
    /// connection, then with its messages, at last with its disconnection.
    pub(super) async fn serve(&self, stream: TcpStream, deliver: &dyn Fn(Input)) {
        let Ok(mut writer) =
            stream.set_nodelay(true).map_err(io::Error::from).and_then(|()| socket::second(&stream))
        else {
            return;
        };
        if !self.take_over().await {
            return;
        }
        let standing = Standing(self);
        let connected = Instant::now();
        let age_ms = connected.duration_since(self.created).as_millis();
        let is_logged = self.lines.admit(u64::try_from(age_ms).unwrap_or(u64::MAX));
        if is_logged {
            tracing::info!(peer = %self.peer, "peer connected");
        }
        deliver(Input::PeerConnected(self.peer));
        let closing = async {
            poll_fn(|cx| self.closing.poll_lower(cx)).await;
            io::Error::other(self.reason.get())
        };
        // Nothing is written after the decision to close, so that a peer never gets messages behind a gap.
        let error = or(closing, or(self.read(stream, deliver), self.write(&mut writer))).await;
        let _ = writer.shutdown(std::net::Shutdown::Both).await;
        drop(standing);
        if is_logged || connected.elapsed() > LASTING {
            tracing::info!(peer = %self.peer, %error, "peer disconnected");
        }
        deliver(Input::PeerDisconnected(self.peer));
    }

    /// Replaces an older connection: it is ended first, so that its end is delivered before the new one's
    /// beginning. False if the peer has dialed yet again meanwhile.
    async fn take_over(&self) -> bool {
        let number = self.dialed.get() + 1;
        self.dialed.set(number);
        while self.connected.get() {
            self.hang_up("the peer has dialed anew");
            glommio::timer::sleep(Duration::from_millis(1)).await;
        }
        if self.dialed.get() != number {
            return false;
        }
        self.connected.set(true);
        // The old connection is closed.
        self.closing.lower();
        true
    }

    async fn read(&self, mut stream: TcpStream, deliver: &dyn Fn(Input)) -> io::Error {
        let mut frames = FrameReader::new();
        loop {
            match stream.read(frames.room()).await {
                Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
                Ok(bytes) => frames.received(bytes),
                Err(error) => return error,
            }
            loop {
                let message = match frames.next() {
                    Ok(Some(frame)) => Message::decode(frame),
                    Ok(None) => break,
                    Err(error) => return io::Error::other(error),
                };
                match message {
                    Ok(message) => deliver(Input::Message { from: self.peer, message }),
                    Err(error) => return io::Error::other(error),
                }
            }
            // Other tasks run even if a peer sends without a pause.
            glommio::yield_if_needed().await;
        }
    }

    async fn write(&self, stream: &mut TcpStream) -> io::Error {
        loop {
            let Some(piece) = self.output.borrow_mut().pop() else {
                poll_fn(|cx| self.work.poll_lower(cx)).await;
                continue;
            };
            if let Err(error) = stream.write_all(piece.bytes()).await {
                return error;
            }
            self.output.borrow_mut().written(piece);
        }
    }
}

/// Marks the link as connected while its connection is served; unmarks it even if the serving task is
/// cancelled.
struct Standing<'a>(&'a Link);

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.0.output.take();
        self.0.connected.set(false);
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use glommio::LocalExecutor;
    use glommio::net::TcpListener;
    use ringkeeper_wire::Epoch;

    use super::*;

    /// Nothing here takes this long.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[derive(Default)]
    struct Heard(RefCell<Vec<Input>>);

    impl Heard {
        /// Waits until `found` finds something in what was heard.
        async fn wait<T>(&self, mut found: impl FnMut(&[Input]) -> Option<T>) -> T {
            let start = std::time::Instant::now();
            loop {
                if let Some(found) = found(&self.0.borrow()) {
                    return found;
                }
                assert!(start.elapsed() < PATIENCE, "waited in vain; heard {:?}", self.0.borrow());
                glommio::timer::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    fn link() -> Rc<Link> {
        Rc::new(Link::new(PeerAddress { id: ServerId(2), host: "127.0.0.1".to_owned(), port: 1 }))
    }

    /// Serves one end of a new connection on the link; the other end.
    async fn connect(link: &Rc<Link>, heard: &Rc<Heard>) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (accepted, dialed) =
            futures_lite::future::zip(listener.accept(), TcpStream::connect(address)).await;
        let (link, heard) = (Rc::clone(link), Rc::clone(heard));
        let stream = accepted.expect("accepted");
        glommio::spawn_local(
            async move { link.serve(stream, &|input| heard.0.borrow_mut().push(input)).await },
        )
        .detach();
        dialed.expect("connected")
    }

    fn names(heard: &[Input]) -> Vec<&'static str> {
        let name = |input: &Input| match input {
            Input::PeerConnected(_) => "connected",
            Input::PeerDisconnected(_) => "disconnected",
            _ => "message",
        };
        heard.iter().map(name).collect()
    }

    fn message() -> Message {
        Message::NewEpoch(Epoch(7))
    }

    fn frame() -> Vec<u8> {
        let mut output = Output::default();
        output.push(&message());
        output.pop().expect("a frame").bytes().to_vec()
    }

    #[test]
    fn messages_go_both_ways_between_connected_and_disconnected() {
        LocalExecutor::default().run(async {
            let (link, heard) = (link(), Rc::new(Heard::default()));
            link.send(&message());
            let mut other = connect(&link, &heard).await;
            heard.wait(|heard| (!heard.is_empty()).then_some(())).await;
            link.send(&message());
            other.write_all(&frame()).await.expect("sent");
            let mut bytes = vec![0; frame().len()];
            other.read_exact(&mut bytes).await.expect("a frame");
            assert_eq!(bytes, frame(), "what was sent before the connection stood is not in front");
            drop(other);
            let heard = heard.wait(|heard| (heard.len() == 3).then(|| names(heard))).await;
            assert_eq!(heard, ["connected", "message", "disconnected"]);
        });
    }

    #[test]
    fn a_connection_dialed_anew_takes_the_place_of_the_old_one() {
        LocalExecutor::default().run(async {
            let (link, heard) = (link(), Rc::new(Heard::default()));
            let mut old = connect(&link, &heard).await;
            heard.wait(|heard| (heard.len() == 1).then_some(())).await;
            let mut new = connect(&link, &heard).await;
            heard.wait(|heard| (heard.len() == 3).then_some(())).await;
            assert_eq!(old.read(&mut [0; 1]).await.expect("the end"), 0);
            new.write_all(&frame()).await.expect("sent");
            let heard = heard.wait(|heard| (heard.len() == 4).then(|| names(heard))).await;
            assert_eq!(heard, ["connected", "disconnected", "connected", "message"]);
        });
    }

    #[test]
    fn bytes_that_are_no_message_end_the_connection() {
        LocalExecutor::default().run(async {
            for garbage in [&[1, 0, 0, 0, 255][..], &[0, 0, 0, 0], &[255; 4]] {
                let (link, heard) = (link(), Rc::new(Heard::default()));
                let mut other = connect(&link, &heard).await;
                other.write_all(garbage).await.expect("sent");
                let heard = heard.wait(|heard| (heard.len() == 2).then(|| names(heard))).await;
                assert_eq!(heard, ["connected", "disconnected"], "{garbage:?}");
                assert!(!link.is_connected());
            }
        });
    }

    #[test]
    fn a_peer_that_does_not_read_is_cut_off_and_its_output_dropped() {
        LocalExecutor::default().run(async {
            let (link, heard) = (link(), Rc::new(Heard::default()));
            let _other = connect(&link, &heard).await;
            heard.wait(|heard| (heard.len() == 1).then_some(())).await;
            let long = Message::Forward(vec![0; 4 << 20].into());
            for _ in 0..2 * OUTPUT_BYTES_MAX / (4 << 20) {
                link.send(&long);
            }
            assert!(link.output.borrow().bytes() < OUTPUT_BYTES_MAX + (5 << 20));
            let heard = heard.wait(|heard| (heard.len() == 2).then(|| names(heard))).await;
            assert_eq!(heard, ["connected", "disconnected"]);
            assert_eq!(link.output.borrow().bytes(), 0);
        });
    }
}
