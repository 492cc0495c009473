//! All clients in turns, and the tables.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ringkeeper_testkit::{Ensemble, Program, Seat, WorkFolder};

use crate::tally::Tally;
use crate::{Compare, requests};

/// How long the server may take to serve.
const START_MAX: Duration = Duration::from_secs(20);

/// Requests under way in the pipelined measurements.
const PIPELINED: usize = 1000;
/// Clients that hand a lock on.
const CROWD: usize = 50;

const REQUEST_CLIENTS: [(&str, &str); 3] = [
    ("ringkeeper-client, tokio", "ringkeeper"),
    ("ringkeeper-client, no runtime", "ringkeeper-wait"),
    ("zookeeper-client 0.11, tokio", "zookeeper-client"),
];

pub(crate) fn run(options: &Compare) -> Result<()> {
    let started = match &options.server {
        Some(_) => None,
        None => Some(start(options)?),
    };
    let server = options.server.clone().or_else(|| started.as_ref().map(Ensemble::connect_string));
    let server = server.context("no server")?;
    requests::prepare(&server)?;
    if !options.only_locks {
        for (work, title) in [("get", "getData of 1 KiB"), ("set", "setData of 1 KiB")] {
            for outstanding in [PIPELINED, 1] {
                compare_requests(options, &server, work, title, outstanding)?;
            }
        }
    }
    for clients in [1, CROWD] {
        compare_locks(options, &server, clients)?;
    }
    Ok(())
}

/// A server for the run, ended and removed when it is dropped.
fn start(options: &Compare) -> Result<Ensemble> {
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => std::env::current_exe()?.with_file_name("ringkeeper"),
    };
    let work_dir = options.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let (program, folder) = (Program::ringkeeper(&binary, &[])?, WorkFolder::new("client-bench", &work_dir)?);
    Ensemble::start(&program, Seat::on_own_addresses(1), "maxClientCnxns=0", folder, START_MAX)
}

fn compare_requests(
    options: &Compare,
    server: &str,
    work: &str,
    title: &str,
    outstanding: usize,
) -> Result<()> {
    let own = std::env::current_exe()?;
    let commands: Vec<_> = REQUEST_CLIENTS
        .iter()
        .map(|(name, client)| {
            let (outstanding, seconds) = (outstanding.to_string(), options.seconds.to_string());
            let arguments = ["requests", "--server", server, "--client", client, "--work", work];
            let mut command = Command::new(&own);
            command.args(arguments).args(["--outstanding", &outstanding, "--seconds", &seconds]);
            (*name, command)
        })
        .collect();
    println!("\n{title}, {outstanding} outstanding");
    println!("{:<30} {:>10} {:>14} {:>9} {:>9}", "client", "ops/s", "ops/CPU-second", "p50 us", "p99 us");
    for (name, tally) in medians(commands, options.runs)? {
        let Tally { rate, rate_per_cpu, p50_us, p99_us } = tally;
        let latency = |us| if outstanding == 1 { format!("{us:.0}") } else { String::new() };
        let (p50, p99) = (latency(p50_us), latency(p99_us));
        println!("{name:<30} {rate:>10.0} {rate_per_cpu:>14.0} {p50:>9} {p99:>9}");
    }
    Ok(())
}

fn compare_locks(options: &Compare, server: &str, clients: usize) -> Result<()> {
    let (count, seconds) = (clients.to_string(), options.seconds.to_string());
    let mut ours = Command::new(std::env::current_exe()?);
    ours.args(["locks", "--server", server, "--clients", &count, "--seconds", &seconds]);
    let mut commands = vec![("ringkeeper-client", ours)];
    if let Some(python) = &options.python {
        let mut kazoo = Command::new(python);
        kazoo.arg(program("locks_kazoo.py")).args([server, &count, &seconds]);
        commands.push(("kazoo", kazoo));
    }
    if let Some(jars) = &options.curator {
        let mut curator = Command::new("java");
        curator.arg("-cp").arg(class_path(jars)).arg(program("LocksCurator.java"));
        curator.args([server, &count, &seconds]);
        commands.push(("Curator", curator));
    }
    println!("\nlock acquired and released, {clients} client(s)\n{:<30} {:>10}", "client", "locks/s");
    for (name, tally) in medians(commands, options.runs)? {
        println!("{name:<30} {:>10.0}", tally.rate);
    }
    Ok(())
}

/// A program for another client, beside this one's sources.
fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign").join(name)
}

/// The jars, and the folder with the setting that keeps Curator's log quiet.
fn class_path(jars: &Path) -> String {
    let quiet = Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign");
    format!("{}:{}/*", quiet.display(), jars.display())
}

/// Each command's median run, by rate; they take turns.
fn medians(mut commands: Vec<(&str, Command)>, runs: usize) -> Result<Vec<(&str, Tally)>> {
    let mut tallies = vec![Vec::new(); commands.len()];
    for _ in 0..runs {
        for ((name, command), tallies) in commands.iter_mut().zip(&mut tallies) {
            tallies.push(measure(command).with_context(|| (*name).to_owned())?);
        }
    }
    let median = |mut tallies: Vec<Tally>| {
        tallies.sort_by(|one, two| one.rate.total_cmp(&two.rate));
        tallies.get(tallies.len() / 2).copied().unwrap_or_default()
    };
    Ok(commands.iter().map(|(name, _)| *name).zip(tallies.into_iter().map(median)).collect())
}

fn measure(command: &mut Command) -> Result<Tally> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    let text = String::from_utf8(output.stdout)?;
    Tally::parse(text.lines().last().context("it printed nothing")?)
}
