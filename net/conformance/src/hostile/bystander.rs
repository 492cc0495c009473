//! Well-behaved clients beside an attack: one reads something small again and again, another writes something
//! small. Meanwhile the servers' memory is measured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use ringkeeper_wire::OpCode;

use super::resident_bytes;
use ringkeeper_testkit::{Client, path_watch_body};

/// Between two requests.
const INTERVAL: Duration = Duration::from_millis(2);

/// What they saw.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    /// How long each read took, microseconds.
    pub(super) reads_us: Histogram<u64>,
    /// The longest that a write took.
    pub(super) write: Duration,
    /// The most memory that was resident, of the server that had most, bytes.
    pub(super) peak_bytes: u64,
}

impl Observed {
    /// The longest that a read took.
    pub(super) fn read(&self) -> Duration {
        Duration::from_micros(self.reads_us.max())
    }
}

/// Times up to a minute, to two digits.
pub(super) fn times_us() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 2).expect("bounds that the library takes")
}

/// The clients, until [`Bystanders::leave`].
pub(super) struct Bystanders {
    done: Arc<AtomicBool>,
    reader: JoinHandle<Result<Observed>>,
    writer: JoinHandle<Result<Duration>>,
}

impl Bystanders {
    pub(super) fn arrive(server: SocketAddr, pids: Vec<u32>) -> Result<Self> {
        let connect = || Client::connect(server, 30_000).context("a bystander's session");
        let (reader, mut writer) = (connect()?, connect()?);
        // Ephemeral: gone with the session, however the attack ends.
        let path = writer.create("/bystander-", b"", 3)?;
        let done = Arc::new(AtomicBool::new(false));
        let (reader_done, writer_done) = (Arc::clone(&done), Arc::clone(&done));
        Ok(Self {
            reader: thread::spawn(move || read(reader, &reader_done, &pids)),
            writer: thread::spawn(move || write(writer, &path, &writer_done)),
            done,
        })
    }

    /// What they saw.
    ///
    /// # Errors
    /// They were not served to the end.
    pub(super) fn leave(self) -> Result<Observed> {
        self.done.store(true, Ordering::Relaxed);
        let panicked = |_| anyhow::anyhow!("a bystander panicked");
        let (read, write) = (self.reader.join().map_err(panicked)?, self.writer.join().map_err(panicked)?);
        Ok(Observed { write: write.context("a bystander that writes")?, ..read? })
    }
}

fn read(mut client: Client, done: &AtomicBool, pids: &[u32]) -> Result<Observed> {
    let mut observed = Observed { reads_us: times_us(), write: Duration::ZERO, peak_bytes: 0 };
    while !done.load(Ordering::Relaxed) {
        let began = Instant::now();
        let reply = client.request(OpCode::Exists, &path_watch_body("/"))?;
        ensure!(reply.err == 0, "a bystander is answered {}", reply.err);
        observed.reads_us.saturating_record(u64::try_from(began.elapsed().as_micros())?);
        observed.peak_bytes = observed.peak_bytes.max(resident_bytes(pids));
        thread::sleep(INTERVAL);
    }
    client.close()?;
    Ok(observed)
}

fn write(mut client: Client, path: &str, done: &AtomicBool) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    while !done.load(Ordering::Relaxed) {
        let began = Instant::now();
        client.set(path, b"small")?;
        longest = longest.max(began.elapsed());
        thread::sleep(INTERVAL);
    }
    client.close()?;
    Ok(longest)
}
