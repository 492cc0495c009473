//! A well-behaved client beside an attack, that asks for something small again and again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ringkeeper_wire::OpCode;

use ringkeeper_testkit::{Client, path_watch_body};

/// Between two requests.
const INTERVAL: Duration = Duration::from_millis(2);

/// The client, until [`Bystander::leave`].
pub(super) struct Bystander {
    done: Arc<AtomicBool>,
    thread: JoinHandle<Result<Duration>>,
}

impl Bystander {
    pub(super) fn arrive(server: SocketAddr) -> Result<Self> {
        let mut client = Client::connect(server, 30_000).context("a bystander's session")?;
        let done = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&done);
        let thread = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !ended.load(Ordering::Relaxed) {
                let began = Instant::now();
                let reply = client.request(OpCode::Exists, &path_watch_body("/"))?;
                ensure!(reply.err == 0, "a bystander is answered {}", reply.err);
                longest = longest.max(began.elapsed());
                thread::sleep(INTERVAL);
            }
            client.close()?;
            Ok(longest)
        });
        Ok(Self { done, thread })
    }

    /// The longest that an answer took.
    ///
    /// # Errors
    /// It was not served to the end.
    pub(super) fn leave(self) -> Result<Duration> {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the bystander panicked"))?
    }
}
