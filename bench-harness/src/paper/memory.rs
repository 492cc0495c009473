//! Memory for each znode, idle session and idle watch, on a server alone.

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
use crate::descriptors;
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
const SESSION: &str = "an idle session";
const WATCH: &str = "an idle watch, alone on its path";
const SECOND_WATCH: &str = "an idle watch on a path that has one";

const FULL: [u32; 2] = [100_000, 1_000_000];
const QUICK: [u32; 2] = [20_000, 100_000];

/// Sessions that create, each under a parent of its own.
pub(crate) const SESSIONS: u32 = 64;

/// Idle sessions, opened after others that make the server ready for them.
const IDLE: usize = 4_000;
const BEFORE_IDLE: usize = 500;

/// Watches that each idle session leaves, twice: on paths that nobody watches, and on those of another one.
const WATCHES: usize = 50;

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
            title: "Memory for each znode of 100 B, idle session and idle watch",
            about: "A server alone, on which znodes of 100 B are created under 64 parents: growth of its \
                    resident memory, divided by the number of znodes, payload included. For a JVM also the \
                    growth of what is left on the heap after a collection (with the JDK's jcmd): its \
                    resident memory is mostly a matter of the heap it is given. Then another server alone: \
                    its growth, of the heap for a JVM, by 4,000 idle sessions, and by 50 watches of each \
                    for the creation of znodes, twice.",
            x: Axis { label: "znodes", scale: Scale::Log },
            views: vec![View {
                figure: GROWTH,
                suffix: "",
                y: Axis { label: "resident memory, B/znode", scale: Scale::Linear },
            }],
            figures: vec![GROWTH, IN_ALL, LIVE_HEAP, CREATES, SESSION, WATCH, SECOND_WATCH],
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
                let mut figures = grow(bench, system, *znodes)?;
                figures.extend(idle(bench, system)?);
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

/// Opens sessions that do nothing, has them leave watches, and reads the server's memory in between.
fn idle(bench: &Bench<'_>, system: &System) -> Result<Vec<Figure<'static>>> {
    let service = Service::start(system, 1, &bench.settings.work_dir, bench.settings.port)?;
    descriptors::reserve(BEFORE_IDLE + IDLE)?;
    let _first = Session::open_all(service.addresses(), BEFORE_IDLE)?;
    let mut before = Footprint::read(&service, system)?;
    let mut figures = Vec::new();
    let mut grown = |figure, count: usize| -> Result<()> {
        let after = Footprint::read(&service, system)?;
        figures.push((figure, "B", after.since(&before) / as_f64(count as u64)));
        before = after;
        Ok(())
    };
    let mut sessions = Session::open_all(service.addresses(), IDLE)?;
    grown(SESSION, IDLE)?;
    for (figure, shift) in [(WATCH, 0), (SECOND_WATCH, 1)] {
        for (index, session) in sessions.iter_mut().enumerate() {
            let owner = (index + shift) % IDLE;
            for number in 0..WATCHES {
                let path = format!("/{owner:05}-{number:02}");
                ensure!(!session.exists(&path)?, "{path} is there");
            }
        }
        grown(figure, IDLE * WATCHES)?;
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

    /// What has been added since, to the heap if that is known.
    fn since(&self, before: &Self) -> f64 {
        self.live_heap.zip(before.live_heap).map_or(self.resident - before.resident, |(now, was)| now - was)
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
