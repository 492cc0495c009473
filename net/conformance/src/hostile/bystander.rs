//! A well-behaved client beside an attack, that asks for something small again and again, and looks at the
//! servers' memory meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ringkeeper_wire::OpCode;

use super::resident_bytes;
use ringkeeper_testkit::{Client, path_watch_body};

/// Between two requests.
const INTERVAL: Duration = Duration::from_millis(2);

/// What it saw.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observed {
    /// The longest that an answer took.
    pub(super) longest: Duration,
    /// The most memory that was resident, of the server that had most, bytes.
    pub(super) peak_bytes: u64,
}

/// The client, until [`Bystander::leave`].
pub(super) struct Bystander {
    done: Arc<AtomicBool>,
    thread: JoinHandle<Result<Observed>>,
}

impl Bystander {
    pub(super) fn arrive(server: SocketAddr, pids: Vec<u32>) -> Result<Self> {
        let mut client = Client::connect(server, 30_000).context("a bystander's session")?;
        let done = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&done);
        let thread = thread::spawn(move || {
            let mut observed = Observed::default();
            while !ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                let reply = client.request(OpCode::Exists, &path_watch_body("/"))?;
                ensure!(reply.err == 0, "a bystander is answered {}", reply.err);
                observed.longest = observed.longest.max(began.elapsed());
                observed.peak_bytes = observed.peak_bytes.max(resident_bytes(&pids));
                thread::sleep(INTERVAL);
            }
            client.close()?;
            Ok(observed)
        });
        Ok(Self { done, thread })
    }

    /// What it saw.
    ///
    /// # Errors
    /// It was not served to the end.
    pub(super) fn leave(self) -> Result<Observed> {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the bystander panicked"))?
    }
}
