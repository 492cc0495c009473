//! Snapshots beside a load: what clients notice, and what memory it takes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ringkeeper_testkit::interrupt;

use super::super::bench::Figure;
use super::host::Host;
use super::tree::Tree;
use super::{NO_SNAPSHOTS, SETTLED, Shape};
use crate::driver::{Schedule, Tally};
use crate::measure::as_f64;
use crate::progress::Progress;
use crate::server_cpu::ServerProcesses;
use crate::window::Surroundings;

/// Snapshots that a folder has when a start is measured: as many as are kept, so that the log was cut.
const SNAPSHOTS: usize = 3;

/// How often snapshots are due until there are so many, and how many writes go by between two looks.
const SETTLING_SNAP_COUNT: u32 = 1000;

/// How long a snapshot must have had its name to be whole: ZooKeeper writes under the last name.
const WHOLE_AFTER: Duration = Duration::from_secs(3);

const SNAPSHOT_MAX: Duration = Duration::from_secs(300);

/// What `mntr` calls the milliseconds that the server has spent on snapshots.
const TIME_IN_SNAPSHOTS_MS: &str = "zk_sum_snapshottime";

/// Names of the latencies without snapshots, with them, and of their ratio.
const LATENCIES: [(f64, [&str; 3]); 3] = [
    (50.0, ["latency p50 without", "latency p50 with", "latency p50, with / without"]),
    (99.0, ["latency p99 without", "latency p99 with", "latency p99, with / without"]),
    (99.9, ["latency p99.9 without", "latency p99.9 with", "latency p99.9, with / without"]),
];

const SAMPLED_EVERY: Duration = Duration::from_millis(50);

/// Has the server take snapshots of the whole tree until there are as many as it keeps.
pub(super) fn settle(host: &Host, tree: Tree, progress: &Progress) -> Result<()> {
    drop(host.start(SETTLING_SNAP_COUNT)?);
    let mut seen = host.snapshots()?;
    for round in 0..SNAPSHOTS {
        let deadline = Instant::now() + SNAPSHOT_MAX;
        let mut names = host.snapshots()?;
        // A server that is still busy with the one before lets a due one pass.
        while names.is_subset(&seen) {
            ensure!(Instant::now() < deadline, "no snapshot within {} s", SNAPSHOT_MAX.as_secs());
            let around = Surroundings::spectator(progress);
            tree.update(host.address(), SETTLING_SNAP_COUNT, round as u64, around)?;
            interrupt::sleep_until(Instant::now() + WHOLE_AFTER, || false)?;
            names = host.snapshots()?;
        }
        seen.extend(names);
        interrupt::sleep_until(Instant::now() + WHOLE_AFTER, || false)?;
    }
    Ok(())
}

/// The same load twice on the same folder: no snapshot is taken, and one after the other.
pub(super) fn beside_load(host: &Host, shape: Shape, progress: &Progress) -> Result<Vec<Figure<'static>>> {
    let without = window(host, shape, NO_SNAPSHOTS, progress)?;
    host.kill();
    let with = window(host, shape, shape.snap_count, progress)?;
    ensure!(with.taking > 0.0, "no snapshot ended in the window: raise --seconds");
    let latency =
        |window: &Window, percent| as_f64(window.tally.latencies_ns.value_at_percentile(percent)) / 1e3;
    let rate = |window: &Window| as_f64(window.tally.operations) / shape.window.as_secs_f64();
    let mut figures = vec![
        ("throughput without", "operations/s", rate(&without)),
        ("throughput with", "operations/s", rate(&with)),
    ];
    for (percent, names) in LATENCIES {
        let (without, with) = (latency(&without, percent), latency(&with, percent));
        let values = [(without, "us"), (with, "us"), (with / without, "")];
        figures.extend(names.into_iter().zip(values).map(|(name, (value, unit))| (name, unit, value)));
    }
    let more = as_f64(with.resident_max) / as_f64(without.resident_max) - 1.0;
    figures.push(("resident memory added", "%", more * 100.0));
    let share = with.taking / shape.window.as_secs_f64() / 10.0;
    figures.push(("snapshots took of the window", "%", share));
    Ok(figures)
}

struct Window {
    tally: Tally,
    resident_max: u64,
    /// Milliseconds of the window that snapshots took, those that ended in it.
    taking: f64,
}

fn window(host: &Host, shape: Shape, snap_count: u32, progress: &Progress) -> Result<Window> {
    host.restore(SETTLED)?;
    drop(host.start(snap_count)?);
    let from = Instant::now() + shape.warmup;
    let schedule = Schedule { outstanding: 1, from, to: from + shape.window, arrivals: None };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(host, schedule, || over.load(Ordering::Relaxed)));
        // On this thread: whoever watches is told from here.
        let around = Surroundings::spectator(progress);
        let loaded = shape
            .tree
            .mix(host.address(), shape.sessions, shape.reads_percent, schedule, around)
            .context("load");
        over.store(true, Ordering::Relaxed);
        let sampled = sampler.join().map_err(|_| anyhow!("sampling panicked"))?;
        let (tally, (resident_max, taking)) = (loaded?, sampled?);
        Ok(Window { tally, resident_max, taking })
    })
}

/// The most memory that the server had inside the window, and the milliseconds that it spent on snapshots.
fn sample(host: &Host, schedule: Schedule, ended: impl Fn() -> bool) -> Result<(u64, f64)> {
    let processes = host.processes()?;
    interrupt::sleep_until(schedule.from, &ended)?;
    let before = host.metric(TIME_IN_SNAPSHOTS_MS)?;
    let resident_max = sample_until(schedule.to, &processes, &ended)?;
    Ok((resident_max, host.metric(TIME_IN_SNAPSHOTS_MS)? - before))
}

fn sample_until(end: Instant, processes: &ServerProcesses, ended: impl Fn() -> bool) -> Result<u64> {
    let mut most = 0;
    while Instant::now() < end && !ended() {
        most = most.max(processes.resident_bytes()?);
        interrupt::sleep_until(Instant::now() + SAMPLED_EVERY, &ended)?;
    }
    Ok(most)
}
