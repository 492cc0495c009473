//! Hostile clients: malformed bytes, floods, greed and patience. Beside each of them and after it a
//! well-behaved session must be served, and the server's memory must stay within its bound. How long the one
//! beside it waited is printed.

mod attack;
mod bystander;
mod greed;
mod volume;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::bystander::Bystander;
use crate::server::{self, Settings};
use ringkeeper_testkit::{Client, Program};

/// Whom to attack, and how hard.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Address of a running server
    #[arg(long, required_unless_present = "binary")]
    server: Option<SocketAddr>,
    /// The running server's process, whose memory is watched
    #[arg(long, requires = "server")]
    pid: Option<u32>,
    /// Start this ringkeeper binary instead
    #[arg(long, conflicts_with = "server")]
    binary: Option<PathBuf>,
    /// Run only the attacks whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// How much the server's resident memory may grow beyond what the data itself takes, in MiB
    #[arg(long, default_value_t = 512)]
    growth_max_mib: u64,
    /// How long a well-behaved request may take, in milliseconds
    #[arg(long, default_value_t = 5_000)]
    patience_ms: u64,
    /// Children of the directory that the slow client lists
    #[arg(long, default_value_t = 1_000_000)]
    children: usize,
    /// Levels of the deepest path
    #[arg(long, default_value_t = 20_000)]
    levels: usize,
    /// Idle connections
    #[arg(long, default_value_t = 2_000)]
    connections: usize,
    /// Divides the sizes of attacks that store very much: 1 is the full size
    #[arg(long, default_value_t = 1)]
    divisor: usize,
    /// The seed of the random bytes and sizes
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What an attack works with.
pub(crate) struct Target<'a> {
    server: SocketAddr,
    options: &'a Options,
    pid: Option<u32>,
    /// Resident memory that the data of the attack may take by right, in bytes.
    allowance: u64,
}

/// Runs every attack.
///
/// # Errors
/// The server did not serve a well-behaved session afterwards, or its memory grew too far.
pub(crate) fn run(options: &Options) -> Result<()> {
    println!("seed {}", options.seed);
    raise_open_files_limit()?;
    let started = match &options.binary {
        Some(binary) => {
            let settings =
                Settings { enforce_quota: false, force_sync: false, session_timeout_min_ms: 4_000 };
            Some(server::start(&Program::ringkeeper(binary, &[])?, settings)?)
        }
        None => None,
    };
    let server = started
        .as_ref()
        .map(|started| started.server(0).address())
        .or(options.server)
        .context("no server")?;
    let pid = options.pid.or_else(|| started.as_ref()?.server(0).pid());
    let mut failed = Vec::new();
    let attacks = attack::ATTACKS.iter().chain(greed::ATTACKS).chain(volume::ATTACKS);
    for (name, attack) in attacks.filter(|(name, _)| name.contains(&options.only)) {
        let began = Instant::now();
        let result = run_attack(&mut Target { server, options, pid, allowance: 0 }, *attack);
        let seconds = began.elapsed().as_secs_f64();
        let memory =
            pid.and_then(resident_bytes).map_or_else(String::new, |bytes| format!(", {} MiB", bytes >> 20));
        match result {
            Ok(longest) => {
                println!("ok      {name} ({seconds:.1} s{memory}, a bystander waited at most {longest:?})");
            }
            Err(error) => {
                println!("FAILED  {name} ({seconds:.1} s{memory}): {error:#}");
                failed.push(*name);
            }
        }
    }
    if let (false, Some(server)) = (failed.is_empty(), &started) {
        println!("the server's last words:\n{}", server.log_tails());
    }
    ensure!(failed.is_empty(), "the server did not stand: {failed:?}");
    Ok(())
}

/// Gives the longest time that a bystander waited.
fn run_attack(target: &mut Target<'_>, attack: attack::Attack) -> Result<Duration> {
    target.expect_served().context("before the attack")?;
    let before = target.pid.and_then(resident_bytes).unwrap_or(0);
    let bystander = Bystander::arrive(target.server)?;
    let attacked = attack(target, before);
    let longest = bystander.leave().context("beside the attack");
    attacked?;
    target.expect_served().context("after the attack")?;
    target.expect_memory_bounded(before)?;
    longest
}

impl Target<'_> {
    /// A well-behaved session writes, reads and goes.
    fn expect_served(&self) -> Result<()> {
        let began = Instant::now();
        let mut client = Client::connect(self.server, 30_000).context("a new session")?;
        let path = client.create("/witness-", b"here", 3).context("create")?;
        let data = client.get(&path, false).context("get")?.context("the znode just created is missing")?.0;
        ensure!(data == b"here", "other data than written");
        client.delete(&path).context("delete")?;
        client.close().context("close")?;
        let took = began.elapsed();
        ensure!(
            took < Duration::from_millis(self.options.patience_ms),
            "a well-behaved session took {took:?}"
        );
        Ok(())
    }

    /// Resident memory against what it was `before` the attack.
    fn expect_memory_bounded(&self, before: u64) -> Result<()> {
        let Some(now) = self.pid.and_then(resident_bytes) else { return Ok(()) };
        let limit = before + self.allowance + (self.options.growth_max_mib << 20);
        ensure!(now <= limit, "resident memory went from {} to {} MiB", before >> 20, now >> 20);
        Ok(())
    }
}

/// Resident memory of a process, in bytes; `None` when it is gone.
fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

fn raise_open_files_limit() -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .context("raising the limit of open files")
}
