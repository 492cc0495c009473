//! One measurement: sessions opened, znodes laid out, a mix of reads and writes for a warm-up and a window,
//! everything removed again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow};
use ringkeeper_testkit::interrupt;

use crate::driver::{Schedule, Tally, drive};
use crate::lane::Source;
use crate::machine::Servers;
use crate::mix::Mix;
use crate::open_loop::Arrivals;
use crate::session::{self, Session};
use crate::window::{Seen, Surroundings, on_threads};
use crate::{payload, request};

/// The load, without the servers it goes to.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) sessions: usize,
    /// Requests outstanding on each session.
    pub(crate) outstanding: usize,
    /// Load-generating threads.
    pub(crate) threads: usize,
    /// Size of every value, in bytes.
    pub(crate) payload_len: usize,
    /// Number of znodes; as many as sessions when each is to have its own.
    pub(crate) znodes: usize,
    /// Share of reads; the rest are writes.
    pub(crate) reads_percent: u8,
    /// Requests a second of an open loop; as many as the servers answer without.
    pub(crate) per_second: Option<f64>,
    /// Requests of an open loop that come at once, those of all threads together.
    pub(crate) burst: usize,
    pub(crate) warmup: Duration,
    pub(crate) window: Duration,
    /// Decides the order of reads and writes.
    pub(crate) seed: u64,
}

impl Load {
    /// When the requests of each of so many threads come, in an open loop.
    pub(crate) fn arrivals(&self, threads: usize) -> Option<Arrivals> {
        let each = |per_second| Arrivals::new(per_second / as_f64(threads as u64), self.seed);
        self.per_second.map(|per_second| each(per_second).in_bursts(self.burst / threads))
    }
}

/// Share of late requests, in percent, from which on latencies say more of the generator than of the servers.
const LATE_PERCENT_MAX: f64 = 20.0;

/// What a window has shown.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    pub(crate) tally: Tally,
    pub(crate) window: Duration,
    /// User and system time of the servers inside the window.
    pub(crate) server_cpu: Option<Duration>,
    /// The longest time for which nothing ran on this machine, where that is watched.
    pub(crate) stood_still: Option<Duration>,
    /// Why the window counts for nothing, although every reply was right; empty if it counts.
    pub(crate) objections: Vec<String>,
    /// Something else than the load is among the reasons: measured again, it may count.
    pub(crate) disturbed: bool,
}

impl Measurement {
    /// Operations a second.
    pub(crate) fn throughput(&self) -> f64 {
        as_f64(self.tally.operations) / self.window.as_secs_f64()
    }

    /// CPU seconds of the servers for a million operations.
    pub(crate) fn server_cpu_per_million(&self) -> Option<f64> {
        let cpu = self.server_cpu?.as_secs_f64();
        (self.tally.operations > 0).then(|| cpu * 1e6 / as_f64(self.tally.operations))
    }

    /// The latency below which `percent` of the operations stayed, in microseconds.
    pub(crate) fn latency_us(&self, percent: f64) -> f64 {
        as_f64(self.tally.latencies_ns.value_at_percentile(percent)) / 1e3
    }

    /// Requests of an open loop that left more than a millisecond after they were due, in percent.
    pub(crate) fn late_percent(&self) -> f64 {
        late_percent(&self.tally)
    }

    /// Time of the load generator on the CPU as a share of the window; 1 is one core.
    pub(crate) fn generator_share(&self) -> f64 {
        self.tally.generator_cpu.as_secs_f64() / self.window.as_secs_f64()
    }
}

fn late_percent(tally: &Tally) -> f64 {
    as_f64(tally.late) * 100.0 / as_f64(tally.operations.max(1))
}

/// What speaks against a window.
fn objections(tally: &Tally, seen: &Seen, window: Duration) -> Vec<String> {
    let busiest_thread = tally.busiest_thread.as_secs_f64() / window.as_secs_f64();
    let servers = if seen.server_cpu.is_some() { Servers::Here } else { Servers::Elsewhere };
    let mut objections = seen.machine.objections(busiest_thread, servers);
    let late = late_percent(tally);
    if late > LATE_PERCENT_MAX {
        objections.push(format!("the load generator was late with {late:.0} % of the requests"));
    }
    if tally.operations == 0 {
        objections.push("no reply came inside the window".to_owned());
    }
    objections
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds are far below 2^53")]
pub(crate) const fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Runs `load` against `servers` once.
///
/// # Errors
/// A server cannot be reached, a reply is wrong, out of order or missing, or the user interrupts.
pub(crate) fn measure(servers: &[SocketAddr], around: Surroundings<'_>, load: &Load) -> Result<Measurement> {
    let mut sessions = Session::open_all(servers, load.sessions)?;
    let load = &Load { seed: load.seed ^ around.seed(), ..load.clone() };
    let layout = Layout::create(&mut sessions, load)?;
    let sources = (0..load.sessions).map(|index| layout.mix(index, load)).collect();
    let threads = load.threads.min(load.sessions);
    around.begin_with(&mut sessions)?;
    let from = Instant::now() + load.warmup;
    let arrivals = load.arrivals(threads);
    let schedule = Schedule { outstanding: load.outstanding, from, to: from + load.window, arrivals };
    let mut loaded = under_load(sessions, sources, threads, schedule, around)?;
    layout.remove(&mut loaded.sessions)?;
    loaded.finish(schedule, around)
}

/// What [`under_load`] has seen.
pub(crate) struct Loaded {
    /// With nothing outstanding.
    pub(crate) sessions: Vec<Session>,
    pub(crate) tally: Tally,
    seen: Seen,
}

impl Loaded {
    /// Closes the sessions; what the window has shown.
    pub(crate) fn finish(self, schedule: Schedule, around: Surroundings<'_>) -> Result<Measurement> {
        let Self { sessions, tally, seen } = self;
        session::close_all(sessions)?;
        judge(tally, seen, schedule, around)
    }
}

/// What a window has shown, together with what other generators have counted in theirs.
pub(crate) fn judge(
    tally: Tally,
    seen: Seen,
    schedule: Schedule,
    around: Surroundings<'_>,
) -> Result<Measurement> {
    let window = schedule.to - schedule.from;
    let mut objections = objections(&tally, &seen, window);
    let pause = seen.machine.pause().filter(|_| schedule.arrivals.is_some());
    let disturbed = pause.is_some() || !seen.machine.disturbances().is_empty();
    objections.extend(pause);
    let Seen { server_cpu, machine } = seen;
    let own =
        Measurement { tally, window, server_cpu, stood_still: machine.stood_still, objections, disturbed };
    around.end_together(own)
}

/// Puts sessions under load from several threads and looks at servers and machine at both ends of the window.
pub(crate) fn under_load<S: Source + Send>(
    sessions: Vec<Session>,
    sources: Vec<S>,
    threads: usize,
    schedule: Schedule,
    around: Surroundings<'_>,
) -> Result<Loaded> {
    let work = (0..).zip(deal(sessions.into_iter().zip(sources), threads)).map(|(thread, share)| {
        let arrivals = schedule.arrivals.map(|arrivals| arrivals.of_thread(thread));
        move |replies: &_| drive(share, Schedule { arrivals, ..schedule }, replies)
    });
    let (driven, seen) = on_threads(work.collect(), schedule, around)?;
    let (mut sessions, mut tally) = (Vec::new(), Tally::new());
    for (own, counted) in driven {
        sessions.extend(own);
        tally.add(&counted);
    }
    Ok(Loaded { sessions, tally, seen })
}

/// Items dealt as cards are; hands without any are left out.
pub(crate) fn deal<T>(items: impl Iterator<Item = T>, hands: usize) -> Vec<Vec<T>> {
    let mut dealt: Vec<Vec<T>> = (0..hands).map(|_| Vec::new()).collect();
    items.enumerate().for_each(|(index, item)| dealt[index % hands].push(item));
    dealt.retain(|hand| !hand.is_empty());
    dealt
}

/// A path for one measurement's znodes that no other measurement has used.
pub(crate) fn fresh_root() -> String {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("/bench-{:x}-{:x}", since_epoch.as_micros(), run_id())
}

/// A number that no other run has: generators on several machines, in containers too, may well have the same
/// process id.
pub(crate) fn run_id() -> u64 {
    static ID: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());
    *ID
}

/// The znodes of one measurement and who uses which.
struct Layout {
    root: String,
    znodes: usize,
    sessions: usize,
}

impl Layout {
    fn create(sessions: &mut [Session], load: &Load) -> Result<Self> {
        let layout = Self { root: fresh_root(), znodes: load.znodes, sessions: load.sessions };
        let first = sessions.first_mut().ok_or_else(|| anyhow!("no sessions"))?;
        first.call(|out, xid| request::create(out, xid, &layout.root, b"")).context("creating the root")?;
        layout
            .for_each(sessions, |znode, out, xid| {
                let data = payload::first(number(znode), load.payload_len);
                request::create(out, xid, &layout.path(znode), &data);
            })
            .context("creating the znodes")?;
        Ok(layout)
    }

    fn remove(&self, sessions: &mut [Session]) -> Result<()> {
        self.for_each(sessions, |znode, out, xid| request::delete(out, xid, &self.path(znode)))
            .context("deleting the znodes")?;
        sessions[0].call(|out, xid| request::delete(out, xid, &self.root)).context("deleting the root")?;
        Ok(())
    }

    /// One request for each znode, a round of one for each session at a time.
    fn for_each(&self, sessions: &mut [Session], encode: impl Fn(usize, &mut Vec<u8>, i32)) -> Result<()> {
        for round in (0..self.znodes).step_by(self.sessions) {
            let width = self.sessions.min(self.znodes - round);
            session::call_each(&mut sessions[..width], |index, out, xid| encode(round + index, out, xid))?;
            interrupt::check()?;
        }
        Ok(())
    }

    fn path(&self, znode: usize) -> String {
        format!("{}/{znode:05}", self.root)
    }

    /// The requests of one session. Where there are enough znodes, each belongs to one session: that which
    /// created it.
    fn mix(&self, session: usize, load: &Load) -> Mix {
        let alone = self.znodes >= self.sessions;
        let own = if alone {
            (session..self.znodes).step_by(self.sessions).collect()
        } else {
            vec![session % self.znodes]
        };
        let znodes = own.into_iter().map(|znode| (number(znode), self.path(znode)));
        let seed = load.seed ^ u64::try_from(session).unwrap_or_default().rotate_left(32);
        Mix::new(znodes, alone, load.reads_percent, load.payload_len, seed)
    }
}

fn number(znode: usize) -> u32 {
    u32::try_from(znode).expect("the command line bounds the number of znodes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::MachineUse;

    #[test]
    fn sessions_are_dealt_evenly_and_idle_threads_left_out() {
        assert_eq!(deal(0..5, 2), [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(deal(0..1, 4), [vec![0]]);
    }

    #[test]
    fn a_window_without_replies_or_with_late_requests_does_not_count() {
        let quiet = || Seen { server_cpu: None, machine: MachineUse::ALL_IDLE };
        let mut tally = Tally::new();
        let window = Duration::from_secs(1);
        assert_eq!(objections(&tally, &quiet(), window), ["no reply came inside the window"]);
        tally.operations = 100;
        tally.late = 20;
        assert!(objections(&tally, &quiet(), window).is_empty());
        tally.late = 21;
        assert_eq!(
            objections(&tally, &quiet(), window),
            ["the load generator was late with 21 % of the requests"]
        );
    }

    #[test]
    fn one_full_thread_is_the_limit_beside_an_idle_one() {
        let machine = MachineUse::ALL_IDLE;
        let mut tally = Tally::new();
        tally.operations = 1;
        tally.add_cpu(Duration::from_millis(990));
        tally.add(&Tally::new());
        let seen = Seen { server_cpu: Some(Duration::ZERO), machine };
        let found = objections(&tally, &seen, Duration::from_secs(1));
        assert!(found.len() == 1 && found[0].starts_with("the load generator was the limit"), "{found:?}");
    }

    #[test]
    fn roots_differ_between_measurements() {
        let first = fresh_root();
        std::thread::sleep(Duration::from_micros(2));
        assert_ne!(first, fresh_root());
    }
}
