//! What a znode costs in memory: resident memory of the server before and after many znodes, and for a JVM
//! also the heap that is still in use after a collection.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::metric::Metric;
use super::server::Server;
use crate::creates::Creates;
use crate::driver::Schedule;
use crate::measure::{Loaded, as_f64, fresh_root, under_load};
use crate::session::{self, Session};
use crate::window::Surroundings;
use crate::{interrupt, request};

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

/// Creates `znodes` (rounded down to a multiple of the sessions) and reads the server's memory before and
/// after. `is_jvm`: read the live heap too.
pub(crate) fn memory(server: &Server, znodes: u32, is_jvm: bool) -> Result<Vec<Metric>> {
    let each = znodes / SESSIONS;
    let before = Footprint::read(server, is_jvm)?;
    let throughput = fill(server.addresses(), each)?.throughput;
    let after = Footprint::read(server, is_jvm)?;
    let count = f64::from(each * SESSIONS);
    let per_znode = |bytes: f64| bytes / count;
    let mut metrics = vec![
        Metric::lower("resident memory growth", "B/znode", per_znode(after.resident - before.resident)),
        Metric::lower("resident memory in all", "B/znode", per_znode(after.resident)),
        Metric::higher("creates, pipelined", "operations/s", throughput),
    ];
    if let Some((before, after)) = before.live_heap.zip(after.live_heap) {
        metrics.push(Metric::lower("live heap growth", "B/znode", per_znode(after - before)));
    }
    Ok(metrics)
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
    fn read(server: &Server, is_jvm: bool) -> Result<Self> {
        interrupt::sleep_until(Instant::now() + SETTLE, || false)?;
        // Before the collection: what the machine has to hold, not what it might get back.
        let resident = as_f64(server.processes().resident_bytes()?);
        let live_heap = server.pid().filter(|_| is_jvm).and_then(live_heap);
        Ok(Self { resident, live_heap })
    }
}

/// Bytes in use after a forced collection; `None` without the JDK's `jcmd`.
fn live_heap(pid: u32) -> Option<f64> {
    jcmd(pid, "GC.run")?;
    let used_kib = used_kib(&jcmd(pid, "GC.heap_info")?)?;
    Some(as_f64(used_kib) * 1024.0)
}

fn jcmd(pid: u32, question: &str) -> Option<String> {
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
