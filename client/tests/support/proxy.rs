//! A server's address with a cable that can be pulled.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringkeeper_wire::OpCode;

/// Forwards connections to a server, and breaks them on demand. Its threads end with the process.
pub(crate) struct Proxy {
    address: String,
    line: Arc<Line>,
}

#[derive(Default)]
struct Line {
    connections: Mutex<Vec<TcpStream>>,
    /// Replies are read and thrown away: what the client asked for is done, and it will not know.
    is_deaf: AtomicBool,
    /// A request of this kind begins that.
    loses_from: Mutex<Option<OpCode>>,
    /// New connections are refused.
    is_down: AtomicBool,
}

impl Proxy {
    /// A proxy in front of the server at an address.
    pub(crate) fn new(server: &str) -> Self {
        let server = server.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let line = Arc::new(Line::default());
        let accepting = Arc::clone(&line);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if !accepting.is_down.load(Ordering::SeqCst)
                    && let Ok(upstream) = TcpStream::connect(&server)
                {
                    connect(&accepting, client, upstream);
                }
            }
        });
        Self { address, line }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Breaks all connections; new ones are served.
    pub(crate) fn cut(&self) {
        *self.line.loses_from.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.line.is_deaf.store(false, Ordering::SeqCst);
        for connection in self.line.lock().drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// From now until the next cut, replies are lost.
    pub(crate) fn lose_replies(&self) {
        self.line.is_deaf.store(true, Ordering::SeqCst);
    }

    /// From the next request of this kind until the next cut, replies are lost.
    pub(crate) fn lose_replies_from(&self, op: OpCode) {
        *self.line.loses_from.lock().unwrap_or_else(PoisonError::into_inner) = Some(op);
    }

    /// Whether replies are lost.
    pub(crate) fn loses_replies(&self) -> bool {
        self.line.is_deaf.load(Ordering::SeqCst)
    }

    /// Whether connections can be made; those there are stay.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.line.is_down.store(is_down, Ordering::SeqCst);
    }
}

impl Line {
    /// Notes what a client sends. Its requests come whole, since each is sent at once.
    fn hear(&self, mut requests: &[u8]) {
        let mut loses_from = self.loses_from.lock().unwrap_or_else(PoisonError::into_inner);
        while let (Some(op), Some((len, rest))) = (*loses_from, requests.split_first_chunk()) {
            // Behind the length stand the xid and the kind.
            if rest.get(4..8) == Some(op.to_wire().to_be_bytes().as_slice()) {
                *loses_from = None;
                self.is_deaf.store(true, Ordering::SeqCst);
            }
            requests = rest.get(u32::from_be_bytes(*len) as usize..).unwrap_or_default();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn connect(line: &Arc<Line>, client: TcpStream, server: TcpStream) {
    let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
    line.lock().extend([clone(&client), clone(&server)]);
    let (to_server, to_client) = (clone(&server), clone(&client));
    let (hearing, deaf) = (Arc::clone(line), Arc::clone(line));
    std::thread::spawn(move || {
        forward(client, to_server, |requests| {
            hearing.hear(requests);
            true
        });
    });
    std::thread::spawn(move || forward(server, to_client, |_| !deaf.is_deaf.load(Ordering::SeqCst)));
}

fn forward(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(&[u8]) -> bool) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if passes(&buffer[..len]) && to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    // The other direction ends with this one.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
