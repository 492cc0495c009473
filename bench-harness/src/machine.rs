//! What the machine itself did during a window: a figure is none if it swapped, was throttled, or had its
//! processors taken away by the host or by processes that are not measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use procfs::{CpuTime, CurrentSI, KernelStats};

use crate::cores;
use crate::measure::as_f64;
use crate::others::{self, Others, Processes};
use crate::pauses;
use crate::server_cpu::ServerProcesses;

/// Time that all processors may stand still at once before the far percentiles of an open loop count for
/// nothing: in its windows of 3 s, a pause of 5 ms makes more than one request in a thousand late, from any
/// server.
const STOOD_STILL_MAX: Duration = Duration::from_millis(5);

/// Time that a load thread spends on the CPU, as a share of the window, from which on it may be the limit.
const THREAD_FULL: f64 = 0.95;

/// Share of the servers' cores' time that nobody wanted; above it, a full load thread was the limit and not
/// the machine.
const IDLE_WHILE_FULL: f64 = 0.10;

/// Where control groups are, if there are any.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Whether the servers are on the cores that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Servers {
    Here,
    /// On other machines, or nobody knows.
    Elsewhere,
}

/// The machine's counters at one moment; of its cores, those that serve.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    at: Instant,
    /// Of all its cores.
    machine_ticks: u64,
    all_ticks: u64,
    idle_ticks: u64,
    stolen_ticks: u64,
    swapped_pages: i64,
    throttled_periods: u64,
    processes: Processes,
}

/// What it did between two moments.
#[derive(Clone, Debug)]
pub(crate) struct MachineUse {
    idle_share: f64,
    stolen_share: f64,
    /// Of all its cores.
    others_share: f64,
    others: Others,
    swapped_pages: i64,
    throttled_periods: u64,
    /// The longest time for which nothing ran at all, where that is watched.
    pub(crate) stood_still: Option<Duration>,
}

impl Machine {
    /// The counters now; what this machine does not count stays 0. `servers`: those that the harness has not
    /// started.
    pub(crate) fn now(servers: Option<&ServerProcesses>) -> Self {
        let all = KernelStats::current().map(|stats| stats.cpu_time).unwrap_or_default();
        let cores = all.iter().enumerate().filter(|(core, _)| cores::serves(*core));
        let ticks = |of: fn(&CpuTime) -> u64| cores.clone().map(|(_, core)| of(core)).sum::<u64>();
        let (idle_ticks, stolen_ticks) = (ticks(idle), ticks(stolen));
        let pages = procfs::vmstat().unwrap_or_default();
        let swapped = |name| pages.get(name).copied().unwrap_or(0);
        Self {
            at: Instant::now(),
            machine_ticks: all.iter().map(|core| busy(core) + idle(core) + stolen(core)).sum(),
            all_ticks: ticks(busy) + idle_ticks + stolen_ticks,
            idle_ticks,
            stolen_ticks,
            swapped_pages: swapped("pswpin") + swapped("pswpout"),
            throttled_periods: throttled_periods() + thermal_throttles(),
            processes: Processes::now(servers),
        }
    }

    /// What the machine has done since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> MachineUse {
        let all = as_f64(self.all_ticks.saturating_sub(earlier.all_ticks)).max(1.0);
        let share = |now: u64, then: u64| as_f64(now.saturating_sub(then)) / all;
        let others = self.processes.since(&earlier.processes);
        let machine = as_f64(self.machine_ticks.saturating_sub(earlier.machine_ticks)).max(1.0);
        MachineUse {
            idle_share: share(self.idle_ticks, earlier.idle_ticks),
            stolen_share: share(self.stolen_ticks, earlier.stolen_ticks),
            others_share: as_f64(others.ticks) / machine,
            others,
            swapped_pages: self.swapped_pages - earlier.swapped_pages,
            throttled_periods: self.throttled_periods.saturating_sub(earlier.throttled_periods),
            stood_still: pauses::longest(earlier.at, self.at),
        }
    }
}

impl MachineUse {
    /// Nobody has wanted anything.
    #[cfg(test)]
    pub(crate) const ALL_IDLE: Self = Self {
        idle_share: 1.0,
        stolen_share: 0.0,
        others_share: 0.0,
        others: Others { ticks: 0, busiest: None },
        swapped_pages: 0,
        throttled_periods: 0,
        stood_still: None,
    };

    /// Why a window with this use counts for nothing; empty if it counts. `busiest_thread` is the CPU time of
    /// the load thread that has used most, as a share of the window.
    pub(crate) fn objections(&self, busiest_thread: f64, servers: Servers) -> Vec<String> {
        let mut objections = self.disturbances();
        let full = busiest_thread * 100.0;
        match servers {
            Servers::Here if busiest_thread >= THREAD_FULL && self.idle_share > IDLE_WHILE_FULL => {
                objections.push(format!(
                    "the load generator was the limit: a thread of it {full:.0} % busy, the servers' cores {:.0} % idle",
                    self.idle_share * 100.0
                ));
            }
            // Whether they had time left cannot be seen from here.
            Servers::Elsewhere if busiest_thread >= THREAD_FULL => objections.push(format!(
                "the load generator may have been the limit: a thread of it {full:.0} % busy, the servers \
                 elsewhere; take more --threads or --generators"
            )),
            _ => {}
        }
        objections
    }

    /// What has disturbed the window, and may not disturb the next one; empty if nothing has.
    pub(crate) fn disturbances(&self) -> Vec<String> {
        let mut objections = Vec::new();
        if self.swapped_pages > 0 {
            objections.push(format!("the machine swapped {} pages", self.swapped_pages));
        }
        if self.throttled_periods > 0 {
            objections.push(format!("the processors were throttled {} times", self.throttled_periods));
        }
        if self.stolen_share > others::share_max() {
            let percent = self.stolen_share * 100.0;
            objections.push(format!("the host took {percent:.0} % of the processors' time"));
        }
        if self.others_share > others::share_max() {
            let percent = self.others_share * 100.0;
            let most = self.others.busiest.as_ref();
            let most = most.map(|(name, pid)| format!(", most of it {name} (process {pid})"));
            let most = most.unwrap_or_default();
            objections.push(format!("other processes took {percent:.0} % of the processors' time{most}"));
        }
        objections
    }

    /// The same where every request is due at a moment of its own: that nothing ran for a while.
    pub(crate) fn pause(&self) -> Option<String> {
        let pause = self.stood_still.filter(|pause| *pause > STOOD_STILL_MAX)?;
        Some(format!("the host stopped all processors for {:.0} ms", pause.as_secs_f64() * 1e3))
    }
}

fn busy(core: &CpuTime) -> u64 {
    core.user + core.nice + core.system + core.irq.unwrap_or(0) + core.softirq.unwrap_or(0)
}

fn idle(core: &CpuTime) -> u64 {
    core.idle + core.iowait.unwrap_or(0)
}

fn stolen(core: &CpuTime) -> u64 {
    core.steal.unwrap_or(0)
}

/// Of the control groups that the harness is in, and those above them, as far as they can be seen from here.
fn throttled_periods() -> u64 {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let count = |group: &PathBuf| counter(&fs::read_to_string(group.join("cpu.stat")).ok()?, "nr_throttled");
    cpu_groups(&own).iter().filter_map(count).sum()
}

/// The folders of the control groups that limit a process whose `/proc/self/cgroup` says this: of the one
/// hierarchy (version 2), or of that of the processors (version 1).
fn cpu_groups(own: &str) -> Vec<PathBuf> {
    let mut groups = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let root = match controllers {
            "" => PathBuf::from(CGROUPS),
            some if some.split(',').any(|controller| controller == "cpu") => Path::new(CGROUPS).join(some),
            _ => continue,
        };
        let group = root.join(path.trim_start_matches('/'));
        groups.extend(group.ancestors().take_while(|group| group.starts_with(&root)).map(Path::to_owned));
    }
    groups
}

fn counter(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Of all processors, where the kernel counts them.
fn thermal_throttles() -> u64 {
    let Ok(processors) = fs::read_dir("/sys/devices/system/cpu") else { return 0 };
    let count = |processor: fs::DirEntry| {
        let text = fs::read_to_string(processor.path().join("thermal_throttle/core_throttle_count"));
        text.ok()?.trim().parse::<u64>().ok()
    };
    processors.flatten().filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Machine {
        Machine {
            at: Instant::now(),
            machine_ticks: 0,
            all_ticks: 0,
            idle_ticks: 0,
            stolen_ticks: 0,
            swapped_pages: 5,
            throttled_periods: 2,
            processes: Processes::default(),
        }
    }

    fn later() -> Machine {
        Machine { machine_ticks: 200, all_ticks: 200, ..quiet() }
    }

    #[test]
    fn an_idle_machine_beside_a_full_generator_is_an_objection() {
        let half_idle = Machine { idle_ticks: 40, ..later() }.since(&quiet());
        let objections = half_idle.objections(0.97, Servers::Here);
        assert_eq!(objections.len(), 1);
        assert!(objections[0].starts_with("the load generator was the limit"), "{objections:?}");
        assert!(half_idle.objections(0.80, Servers::Here).is_empty());
        let busy = Machine { idle_ticks: 2, ..later() }.since(&quiet());
        assert!(busy.objections(0.97, Servers::Here).is_empty());
    }

    #[test]
    fn a_full_generator_is_an_objection_by_itself_where_the_servers_are_elsewhere() {
        let busy = Machine { idle_ticks: 2, ..later() }.since(&quiet());
        let objections = busy.objections(0.97, Servers::Elsewhere);
        assert_eq!(objections.len(), 1);
        assert!(objections[0].starts_with("the load generator may have been the limit"), "{objections:?}");
        assert!(busy.objections(0.80, Servers::Elsewhere).is_empty());
        assert!(busy.disturbances().is_empty(), "the same again would be no better");
    }

    #[test]
    fn swapping_throttling_and_theft_are_a_disturbance_each() {
        let cases = [
            (Machine { swapped_pages: 6, ..later() }, "the machine swapped 1 pages"),
            (Machine { throttled_periods: 4, ..later() }, "the processors were throttled 2 times"),
            (Machine { stolen_ticks: 50, ..later() }, "the host took 25 % of the processors' time"),
        ];
        for (later, words) in cases {
            assert_eq!(later.since(&quiet()).objections(0.1, Servers::Here), [words]);
            assert_eq!(later.since(&quiet()).disturbances(), [words]);
        }
    }

    #[test]
    fn a_pause_that_decides_the_far_percentiles_is_a_disturbance_of_an_open_loop() {
        let paused = |ms| MachineUse { stood_still: Some(Duration::from_millis(ms)), ..MachineUse::ALL_IDLE };
        assert_eq!(paused(11).pause().as_deref(), Some("the host stopped all processors for 11 ms"));
        assert_eq!((paused(2).pause(), MachineUse::ALL_IDLE.pause()), (None, None));
        assert!(paused(11).disturbances().is_empty(), "a closed loop waits too");
    }

    #[test]
    fn a_little_theft_is_none() {
        let later = Machine { stolen_ticks: 20, ..later() };
        assert!(later.since(&quiet()).disturbances().is_empty());
    }

    #[test]
    fn a_neighbour_that_computes_is_a_disturbance_with_its_name() {
        let neighbour = |ticks| MachineUse {
            others_share: ticks / 200.0,
            others: Others { ticks: 1, busiest: Some(("rustc".into(), 42)) },
            ..MachineUse::ALL_IDLE
        };
        assert!(neighbour(20.0).disturbances().is_empty());
        assert_eq!(
            neighbour(30.0).disturbances(),
            ["other processes took 15 % of the processors' time, most of it rustc (process 42)"]
        );
    }

    #[test]
    fn a_counter_is_found_by_its_name() {
        assert_eq!(counter("nr_periods 9\nnr_throttled 4\nthrottled_usec 100", "nr_throttled"), Some(4));
        assert_eq!(counter("nr_periods 9", "nr_throttled"), None);
    }

    #[test]
    fn a_group_and_all_above_it_can_throttle() {
        let folders = |own: &str| {
            let folders = cpu_groups(own).into_iter().map(|folder| folder.display().to_string());
            folders.collect::<Vec<_>>()
        };
        assert_eq!(
            folders("0::/box/run\n"),
            ["/sys/fs/cgroup/box/run", "/sys/fs/cgroup/box", "/sys/fs/cgroup"]
        );
        assert_eq!(
            folders("5:memory:/box\n3:cpu,cpuacct:/box\n"),
            ["/sys/fs/cgroup/cpu,cpuacct/box", "/sys/fs/cgroup/cpu,cpuacct"]
        );
    }

    #[test]
    fn this_machine_counts_its_time() {
        let before = Machine::now(None);
        // Longer than a tick.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(Machine::now(None).all_ticks > before.all_ticks);
    }
}
