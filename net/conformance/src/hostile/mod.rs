//! Hostile clients: malformed bytes, floods, greed and patience. Beside each of them and after it a
//! well-behaved session must be served, and the server's memory must stay within its bound. How long those
//! beside it waited is printed.

mod attack;
mod bystander;
mod greed;
mod volume;
mod worst;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::bystander::{Bystanders, Observed, times_us};
use crate::server::{self, START_LIMIT, Settings};
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
    /// How many servers to start; the clients are at a follower
    #[arg(long, default_value_t = 1, requires = "binary")]
    servers: usize,
    /// Write what was measured to this file, as Markdown
    #[arg(long)]
    report: Option<PathBuf>,
    /// Measure the worst request of each kind, too
    #[arg(long)]
    worst: bool,
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
    /// The servers' processes, whose memory is watched.
    pids: Vec<u32>,
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
            Some(server::start_ensemble(&Program::ringkeeper(binary, &[])?, options.servers, settings, "")?)
        }
        None => None,
    };
    let (server, pids) = match &started {
        Some(started) => {
            let leader = started.leader(START_LIMIT)?;
            let follower = started.servers().find(|&server| server != leader).unwrap_or(leader);
            let pids: Vec<u32> = started.iter().filter_map(ringkeeper_testkit::Server::pid).collect();
            (started.server(follower).address(), pids)
        }
        None => (options.server.context("no server")?, options.pid.into_iter().collect()),
    };
    let mut report = Report { attacks: String::new(), worst: String::new(), reads_us: times_us() };
    let mut failed = Vec::new();
    let attacks = attack::ATTACKS.iter().chain(greed::ATTACKS).chain(volume::ATTACKS);
    for (name, attack) in attacks.filter(|(name, _)| name.contains(&options.only)) {
        let began = Instant::now();
        let mut target = Target { server, options, pids: pids.clone(), allowance: 0 };
        let before = resident_bytes(&pids);
        let result = run_attack(&mut target, *attack, before);
        let seconds = began.elapsed().as_secs_f64();
        match result {
            Ok(observed) => {
                let grown = mib(observed.peak_bytes.saturating_sub(before));
                let (read, write) = (observed.read(), observed.write);
                println!(
                    "ok      {name} ({seconds:.1} s, bystanders waited at most {read:?} to read, {write:?} to \
                     write, +{grown} MiB)"
                );
                report.attack(name, seconds, &observed, grown, mib(target.allowance));
            }
            Err(error) => {
                println!("FAILED  {name} ({seconds:.1} s): {error:#}");
                failed.push(*name);
            }
        }
    }
    println!("{}", report.reads());
    if options.worst {
        let target = Target { server, options, pids, allowance: 0 };
        worst::measure(&target)?.iter().for_each(|seen| report.worst(seen));
    }
    if let Some(path) = &options.report {
        fs::write(path, report.text(options)).with_context(|| format!("writing {}", path.display()))?;
    }
    if let (false, Some(server)) = (failed.is_empty(), &started) {
        println!("the server's last words:\n{}", server.log_tails());
    }
    ensure!(failed.is_empty(), "the server did not stand: {failed:?}");
    Ok(())
}

/// Gives what bystanders saw.
fn run_attack(target: &mut Target<'_>, attack: attack::Attack, before: u64) -> Result<Observed> {
    target.expect_served().context("before the attack")?;
    let bystanders = Bystanders::arrive(target.server, target.pids.clone())?;
    let attacked = attack(target, before);
    let observed = bystanders.leave().context("beside the attack");
    attacked?;
    target.expect_served().context("after the attack")?;
    target.expect_memory_bounded(before)?;
    observed
}

/// Does something beside bystanders: how long it took, what they saw, and by how many bytes the servers'
/// memory grew.
fn observed(
    target: &Target<'_>,
    act: impl FnOnce() -> Result<Duration>,
) -> Result<(Duration, Observed, u64)> {
    let before = resident_bytes(&target.pids);
    let bystanders = Bystanders::arrive(target.server, target.pids.clone())?;
    let took = act();
    let observed = bystanders.leave()?;
    let grown = observed.peak_bytes.saturating_sub(before);
    Ok((took?, observed, grown))
}

/// What was measured, as tables.
struct Report {
    attacks: String,
    worst: String,
    /// All reads beside attacks.
    reads_us: Histogram<u64>,
}

impl Report {
    fn attack(&mut self, name: &str, seconds: f64, observed: &Observed, grown_mib: u64, stored_mib: u64) {
        self.reads_us += &observed.reads_us;
        let (read, write) = (milliseconds(observed.read()), milliseconds(observed.write));
        let row = format!("| {name} | {seconds:.1} | {read} | {write} | {grown_mib} | {stored_mib} |\n");
        self.attacks.push_str(&row);
    }

    fn worst(&mut self, seen: &worst::Seen) {
        let worst::Seen { name, what, answered, bystanders, grown_bytes } = seen;
        let answered = milliseconds(*answered);
        let (read, write) = (milliseconds(bystanders.read()), milliseconds(bystanders.write));
        let row = format!("| `{name}` | {what} | {answered} | {read} | {write} | {} |\n", mib(*grown_bytes));
        self.worst.push_str(&row);
    }

    fn reads(&self) -> String {
        let within =
            |quantile| milliseconds(Duration::from_micros(self.reads_us.value_at_quantile(quantile)));
        let (p50, p99, p999) = (within(0.5), within(0.99), within(0.999));
        format!(
            "Beside the attacks, half of the bystanders' reads took {p50} ms, 99 % {p99} ms, 99.9 % {p999} ms at most."
        )
    }

    fn text(&self, options: &Options) -> String {
        let Options { servers, seed, divisor, children, .. } = options;
        let mut text = format!(
            "Servers: {servers}, seed {seed}, sizes divided by {divisor}, the largest znode has {} children.\n\n\
             | attack | it took, s | a bystander's read, ms | its write, ms | memory grew, MiB | for what is stored, MiB |\n\
             | --- | ---: | ---: | ---: | ---: | ---: |\n{}",
            children / divisor,
            self.attacks
        );
        text.push_str(&format!("\n{}\n", self.reads()));
        if !self.worst.is_empty() {
            text.push_str(
                "\n| request | at its worst | answered within, ms | a bystander's read, ms | its write, ms | memory grew, MiB |\n\
                 | --- | --- | ---: | ---: | ---: | ---: |\n",
            );
            text.push_str(&self.worst);
        }
        text
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

const fn mib(bytes: u64) -> u64 {
    bytes >> 20
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
        let now = resident_bytes(&self.pids);
        let limit = before + self.allowance + (self.options.growth_max_mib << 20);
        ensure!(now <= limit, "resident memory went from {} to {} MiB", before >> 20, now >> 20);
        Ok(())
    }
}

/// Resident memory of the process that has most, in bytes; 0 without any.
fn resident_bytes(pids: &[u32]) -> u64 {
    let of = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
    };
    pids.iter().filter_map(of).max().unwrap_or(0)
}

fn raise_open_files_limit() -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .context("raising the limit of open files")
}
