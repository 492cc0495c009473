//! Crash consistency from outside: sessions write in a pipeline, the server is killed at a random moment and
//! restarted on the same folder, and every session must find exactly a prefix of what it sent, no shorter
//! than what was acknowledged.
//!
//! Each writer owns a directory, so what it may find does not depend on the others; all of them make
//! sequential znodes in one shared directory, whose names must never repeat.

mod model;
mod writer;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use self::writer::{SEQUENTIAL, Writer};
use crate::server::{self, START_LIMIT, Settings};
use ringkeeper_testkit::{Client, Program, Server};

/// How to crash what.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The ringkeeper binary
    #[arg(long, required_unless_present = "zookeeper")]
    binary: Option<PathBuf>,
    /// Instead of ringkeeper: Apache ZooKeeper from this folder of jars
    #[arg(long, conflicts_with = "binary")]
    zookeeper: Option<PathBuf>,
    /// Number of crashes
    #[arg(long, default_value_t = 50)]
    rounds: usize,
    /// Number of sessions that write
    #[arg(long, default_value_t = 4)]
    sessions: usize,
    /// Requests that a session keeps outstanding
    #[arg(long, default_value_t = 64)]
    pipeline: usize,
    /// The longest time from a start to the crash, in milliseconds
    #[arg(long, default_value_t = 600)]
    crash_after_max_ms: u64,
    /// The seed of the moments and of the writes
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Timeout of the sessions that resume after every crash, in milliseconds.
const LIVE_TIMEOUT_MS: i32 = 60_000;
/// Timeout of the session that never comes back, in milliseconds; expiry is checked every tick of 2000.
const ABANDONED_TIMEOUT_MS: i32 = 4_000;
const ABANDONED: &str = "/abandoned";

/// Crashes the server `rounds` times.
///
/// # Errors
/// The first promise that is broken, or a server that cannot be started.
pub(crate) fn run(options: &Options) -> Result<()> {
    println!("seed {}", options.seed);
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    let program = match (&options.binary, &options.zookeeper) {
        (Some(binary), _) => Program::ringkeeper(binary, &[])?,
        (None, Some(jars)) => server::zookeeper(jars, &[])?,
        (None, None) => unreachable!("clap requires one of them"),
    };
    let settings = Settings { enforce_quota: false, force_sync: true, session_timeout_min_ms: 4_000 };
    let started = server::start(&program, settings)?;
    let result = crash_again_and_again(options, started.server(0), &mut rng);
    result.map_err(|error| error.context(format!("the server's last words:\n{}", started.log_tails())))
}

fn crash_again_and_again(options: &Options, server: &Server, rng: &mut ChaCha8Rng) -> Result<()> {
    let mut writers = prepare(options, server.address(), rng)?;
    let mut names = HashSet::new();
    let mut acknowledged = 0;
    for round in 0..options.rounds {
        let crash_after = Duration::from_millis(rng.random_range(5..=options.crash_after_max_ms));
        write_until_crash(&mut writers, server, crash_after)?;
        let restarted = Instant::now();
        server.launch()?;
        server.wait_until_serving(START_LIMIT)?;
        let recovery = restarted.elapsed();
        for writer in &mut writers {
            let verified = writer.verify(server.address(), &mut names);
            acknowledged += verified.with_context(|| format!("round {round}, writer {}", writer.index))?;
        }
        clear_sequential(server.address())?;
        println!(
            "round {round}: killed after {crash_after:?}, back in {recovery:?}, {acknowledged} acknowledged so far"
        );
    }
    expect_abandoned_gone(server.address())?;
    println!("{} crashes, {acknowledged} acknowledged writes, none lost", options.rounds);
    Ok(())
}

fn prepare(options: &Options, server: SocketAddr, rng: &mut ChaCha8Rng) -> Result<Vec<Writer>> {
    let mut client = Client::connect(server, ABANDONED_TIMEOUT_MS)?;
    client.create(SEQUENTIAL, b"", 0)?;
    client.create(ABANDONED, b"", 1)?;
    let writers = 0..options.sessions;
    writers
        .map(|index| Writer::open(server, index, options.pipeline, LIVE_TIMEOUT_MS, rng.random()))
        .collect()
}

/// Lets every writer write until the server is killed under it.
fn write_until_crash(writers: &mut [Writer], server: &Server, crash_after: Duration) -> Result<()> {
    thread::scope(|scope| {
        let running: Vec<_> =
            writers.iter_mut().map(|writer| scope.spawn(|| writer.write_until_closed())).collect();
        thread::sleep(crash_after);
        server.kill();
        running.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))
    })
}

/// Keeps the shared directory small; its names stay used. In a pipeline, for the writers' sessions hear
/// nothing meanwhile and must not expire.
fn clear_sequential(server: SocketAddr) -> Result<()> {
    let mut client = Client::connect(server, LIVE_TIMEOUT_MS)?;
    let names = client.children(SEQUENTIAL, false)?;
    let paths: Vec<String> = names.iter().map(|name| format!("{SEQUENTIAL}/{name}")).collect();
    client.delete_all(&paths)?;
    client.close()
}

/// The session that never came back must be gone with its ephemeral, though the server was restarted ever so
/// often.
fn expect_abandoned_gone(server: SocketAddr) -> Result<()> {
    let mut client = Client::connect(server, LIVE_TIMEOUT_MS)?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while client.get(ABANDONED, false)?.is_some() {
        ensure!(Instant::now() < deadline, "the ephemeral of an expired session is still there");
        thread::sleep(Duration::from_millis(200));
    }
    client.close()
}
