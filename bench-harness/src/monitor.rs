//! Who looks at servers while they are measured (`paper --monitored`): a scrape of each one's metrics every
//! second, what an open dashboard asks for every second, and a collector of the traces that they send.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Where ringkeeper's admin listener is on the address of its client port, unless it is told otherwise.
const ADMIN_PORT: u16 = 8080;

const EVERY: Duration = Duration::from_secs(1);

/// How long a server may take for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// One request in so many is traced.
const TRACED: u32 = 1000;

/// What is asked in each round: the scrape, then what the dashboard's first screen asks for.
const QUESTIONS: [&str; 6] = [
    "/metrics",
    "/metrics",
    "/commands/ensemble",
    "/commands/ensemble",
    "/commands/dirs",
    "/commands/last_snapshot",
];

/// The collector of traces. It takes them all and keeps none.
#[derive(Debug)]
pub(crate) struct Collector {
    address: SocketAddr,
}

/// Looks at some servers until it is dropped.
pub(crate) struct Monitor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// Opens it on loopback, for as long as this process runs.
    pub(crate) fn open() -> Result<Arc<Self>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no collector of traces")?;
        let address = listener.local_addr()?;
        thread::Builder::new().name("collector".to_owned()).spawn(move || {
            for connection in listener.incoming().flatten() {
                // What a server that ends leaves half said is of no use, and holds nobody up.
                thread::spawn(|| take(connection));
            }
        })?;
        Ok(Arc::new(Self { address }))
    }

    /// Lines of the servers' configuration.
    pub(crate) fn server_settings(&self) -> String {
        let Self { address } = self;
        format!("ringkeeper.otlpEndpoint=http://{address}\nringkeeper.traceSampleRate={TRACED}\n")
    }
}

/// Takes one request and answers it.
fn take(mut connection: TcpStream) -> io::Result<()> {
    connection.set_read_timeout(Some(ANSWER_MAX))?;
    let (mut said, mut piece) = (Vec::new(), [0; 1 << 16]);
    while !is_whole(&said) {
        match connection.read(&mut piece)? {
            0 => return Ok(()),
            len => said.extend_from_slice(&piece[..len]),
        }
    }
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

/// Whether these bytes are a whole request with a length in its header.
fn is_whole(said: &[u8]) -> bool {
    const END: &[u8] = b"\r\n\r\n";
    let Some(header_len) = said.windows(END.len()).position(|window| window == END) else { return false };
    let header = String::from_utf8_lossy(&said[..header_len]).to_ascii_lowercase();
    let body_len = header.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    said.len() >= header_len + END.len() + body_len.unwrap_or(0)
}

impl Monitor {
    /// Looks at the servers with these addresses for clients, every second from now on.
    pub(crate) fn start(servers: &[SocketAddr]) -> Result<Self> {
        let admins: Vec<_> = servers.iter().map(|server| SocketAddr::new(server.ip(), ADMIN_PORT)).collect();
        for admin in &admins {
            look(*admin).with_context(|| format!("the admin listener {admin} does not answer"))?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("monitor".to_owned()).spawn(move || {
            let mut next = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                for admin in &admins {
                    // A server that has been killed does not answer.
                    let _ = look(*admin);
                }
                next += EVERY;
                sleep(next.saturating_duration_since(Instant::now()));
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn look(admin: SocketAddr) -> Result<()> {
    for question in QUESTIONS {
        let answer = ask(admin, question).with_context(|| question.to_owned())?;
        ensure!(answer.starts_with(b"HTTP/1.1 200"), "{question}: {}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

fn ask(admin: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut connection = TcpStream::connect_timeout(&admin, ANSWER_MAX)?;
    connection.set_read_timeout(Some(ANSWER_MAX))?;
    write!(connection, "GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_with_the_last_byte_of_its_body() {
        let whole = b"POST /v1/traces HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        assert!(is_whole(whole));
        assert!((0..whole.len()).all(|len| !is_whole(&whole[..len])));
    }
}
