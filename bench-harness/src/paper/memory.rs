//! Memory for each znode, on a server alone.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ringkeeper_testkit::interrupt;

use super::bench::{Bench, Figure, Place};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use super::service::{Service, Subject};
use crate::creates::Creates;
use crate::driver::Schedule;
use crate::machine::Machine;
use crate::measure::{Loaded, as_f64, fresh_root, under_load};
use crate::request;
use crate::session::{self, Session};
use crate::system::System;
use crate::window::Surroundings;

const GROWTH: &str = "resident memory growth";
const IN_ALL: &str = "resident memory in all";
const LIVE_HEAP: &str = "live heap growth";
const CREATES: &str = "creates, pipelined";

const FULL: [u32; 2] = [100_000, 1_000_000];
const QUICK: [u32; 2] = [20_000, 100_000];

/// Sessions that create, each under a parent of its own.
pub(crate) const SESSIONS: u32 = 64;

/// Requests outstanding on each.
const OUTSTANDING: usize = 100;

/// Size of each value, in bytes.
const PAYLOAD_LEN: usize = 100;

/// Pause before memory is read, for the server to finish what it does in the background.
const SETTLE: Duration = Duration::from_secs(2);

/// An end that no run of creates should come near.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Memory.
pub(crate) struct Memory;

impl Experiment for Memory {
    fn plan(&self) -> Plan {
        Plan {
            id: "memory",
            title: "Memory for each znode of 100 B",
            about: "A server alone, on which znodes of 100 B are created under 64 parents: growth of its \
                    resident memory, divided by the number of znodes, payload included. For a JVM also the \
                    growth of what is left on the heap after a collection (with the JDK's jcmd): its \
                    resident memory is mostly a matter of the heap it is given.",
            x: Axis { label: "znodes", scale: Scale::Log },
            views: vec![View {
                figure: GROWTH,
                suffix: "",
                y: Axis { label: "resident memory, B/znode", scale: Scale::Linear },
            }],
            figures: vec![GROWTH, IN_ALL, LIVE_HEAP, CREATES],
            own_servers: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let settings = bench.settings;
        let counts =
            settings.tree_znodes.map_or_else(|| bench.pace().pick(QUICK, FULL).to_vec(), |count| vec![count]);
        let systems = bench.subjects().filter_map(Subject::system);
        let subjects: Vec<(&System, u32)> =
            systems.flat_map(|system| counts.iter().map(move |znodes| (system, *znodes))).collect();
        bench.alternate(
            settings.pace.runs,
            &subjects,
            |(system, znodes)| (system.name(), 1, format!("{znodes} znodes")),
            |bench, (system, znodes), origin| {
                let before = Machine::now(None);
                let figures = grow(bench, system, *znodes)?;
                let invalid = Machine::now(None).since(&before).disturbances().join("; ");
                bench.push(origin, Place { series: "", x: f64::from(*znodes) }, &figures, &invalid);
                Ok(())
            },
        )
    }
}

/// Creates `znodes` (rounded down to a multiple of the sessions) on a server alone, and reads its memory
/// before and after.
fn grow(bench: &Bench<'_>, system: &System, znodes: u32) -> Result<Vec<Figure<'static>>> {
    let service = Service::start(system, 1, &bench.settings.work_dir, bench.settings.port)?;
    let each = znodes / SESSIONS;
    let before = Footprint::read(&service, system)?;
    let throughput = fill(service.addresses(), each)?.throughput;
    let after = Footprint::read(&service, system)?;
    let count = f64::from(each * SESSIONS);
    let per_znode = |bytes: f64| bytes / count;
    let mut figures = vec![
        (GROWTH, "B/znode", per_znode(after.resident - before.resident)),
        (IN_ALL, "B/znode", per_znode(after.resident)),
        (CREATES, "operations/s", throughput),
    ];
    if let Some((before, after)) = before.live_heap.zip(after.live_heap) {
        figures.push((LIVE_HEAP, "B/znode", per_znode(after - before)));
    }
    Ok(figures)
}

/// Many znodes that were created.
pub(crate) struct Filled {
    /// The path of the one created last under the last parent.
    pub(crate) last_path: String,
    /// Creates a second.
    pub(crate) throughput: f64,
}

/// Creates `each` znodes of 100 B under each of 64 parents, on 64 sessions.
pub(crate) fn fill(servers: &[SocketAddr], each: u32) -> Result<Filled> {
    let count = usize::try_from(SESSIONS)?;
    let mut sessions = Session::open_all(servers, count)?;
    let root = fresh_root();
    sessions[0].call(|out, xid| request::create(out, xid, &root, b""))?;
    let parents: Vec<String> = (0..count).map(|index| format!("{root}/{index:02}")).collect();
    session::call_each(&mut sessions, |index, out, xid| request::create(out, xid, &parents[index], b""))?;
    let sources = parents.iter().map(|parent| Creates::new(parent, each, PAYLOAD_LEN)).collect();
    let from = Instant::now();
    let schedule = Schedule { outstanding: OUTSTANDING, from, to: from + PATIENCE, arrivals: None };
    let Loaded { sessions, tally, .. } = under_load(sessions, sources, 1, schedule, Surroundings::default())?;
    let created = u64::from(each) * u64::from(SESSIONS);
    ensure!(tally.operations == created, "{} of {created} creates were answered", tally.operations);
    let last_reply = tally.last_reply.context("no creates")?;
    session::close_all(sessions)?;
    let throughput = as_f64(created) / (last_reply - from).as_secs_f64();
    Ok(Filled { last_path: format!("{root}/{:02}/n{:07}", count - 1, each - 1), throughput })
}

/// Bytes, as numbers to calculate with.
struct Footprint {
    resident: f64,
    live_heap: Option<f64>,
}

impl Footprint {
    fn read(service: &Service, system: &System) -> Result<Self> {
        interrupt::sleep_until(Instant::now() + SETTLE, || false)?;
        // Before the collection: what the machine has to hold, not what it might get back.
        let processes = service.processes().context("a server that was started here")?;
        let resident = as_f64(processes.resident_bytes()?);
        let is_jvm = system.is_zookeeper();
        let live_heap = processes.pids().first().copied().filter(|_| is_jvm).and_then(live_heap);
        Ok(Self { resident, live_heap })
    }
}

/// Bytes in use after a forced collection; `None` without the JDK's `jcmd`.
fn live_heap(pid: i32) -> Option<f64> {
    jcmd(pid, "GC.run")?;
    let used_kib = used_kib(&jcmd(pid, "GC.heap_info")?)?;
    Some(as_f64(used_kib) * 1024.0)
}

fn jcmd(pid: i32, question: &str) -> Option<String> {
    let output = Command::new("jcmd").arg(pid.to_string()).arg(question).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The sum over the generations that `GC.heap_info` lists, each as `... total 1K, used 1K ...`; class
/// metadata is not heap.
fn used_kib(heap_info: &str) -> Option<u64> {
    let heap = heap_info.lines().filter(|line| line.contains("total") && !line.contains("space "));
    heap.map(|line| {
        let (_, used) = line.split_once("used ")?;
        let (digits, _) = used.split_once('K')?;
        digits.parse::<u64>().ok()
    })
    .sum::<Option<u64>>()
    .filter(|used| *used > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_in_use_is_the_sum_over_its_generations() {
        let g1 = "4711:\n garbage-first heap   total 262144K, used 1000K [0x0000000080000000)\n  region size 1024K, 4 young\n Metaspace       used 15000K, committed 15300K\n  class space    used 1500K";
        assert_eq!(used_kib(g1), Some(1000));
        let serial = " def new generation   total 78656K, used 20K [0x00)\n  eden space 69952K,   1% used [0x00)\n tenured generation   total 174784K, used 300K [0x00)\n   the space 174784K,   0% used";
        assert_eq!(used_kib(serial), Some(320));
        assert_eq!(used_kib("Could not attach"), None);
    }
}
