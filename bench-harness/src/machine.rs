//! What the machine itself did during a window: a figure is none if it swapped, was throttled, or had its processors
//! taken away by the host.

use std::fs;
use std::path::Path;

use procfs::{CurrentSI, KernelStats};

/// Share of processor time that a host may take before a window counts for nothing.
const STOLEN_MAX: f64 = 0.10;

/// Time that a load thread spends on the CPU, as a share of the window, from which on it may be the limit.
const THREAD_FULL: f64 = 0.95;

/// Share of all processor time that nobody wanted; above it, a full load thread was the limit and not the machine.
const IDLE_WHILE_FULL: f64 = 0.10;

/// Where control groups are, if there are any.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The machine's counters at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    all_ticks: u64,
    idle_ticks: u64,
    stolen_ticks: u64,
    swapped_pages: i64,
    throttled_periods: u64,
}

/// What it did between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineUse {
    idle_share: f64,
    stolen_share: f64,
    swapped_pages: i64,
    throttled_periods: u64,
}

impl Machine {
    /// The counters now; what this machine does not count stays 0.
    pub(crate) fn now() -> Self {
        let cpu = KernelStats::current().map(|stats| stats.total).ok();
        let ticks = |of: fn(&procfs::CpuTime) -> u64| cpu.as_ref().map_or(0, of);
        let idle_ticks = ticks(|cpu| cpu.idle + cpu.iowait.unwrap_or(0));
        let stolen_ticks = ticks(|cpu| cpu.steal.unwrap_or(0));
        let busy_ticks =
            ticks(|cpu| cpu.user + cpu.nice + cpu.system + cpu.irq.unwrap_or(0) + cpu.softirq.unwrap_or(0));
        let pages = procfs::vmstat().unwrap_or_default();
        let swapped = |name| pages.get(name).copied().unwrap_or(0);
        Self {
            all_ticks: busy_ticks + idle_ticks + stolen_ticks,
            idle_ticks,
            stolen_ticks,
            swapped_pages: swapped("pswpin") + swapped("pswpout"),
            throttled_periods: throttled_periods() + thermal_throttles(),
        }
    }

    /// What the machine has done since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> MachineUse {
        let all = crate::measure::as_f64(self.all_ticks.saturating_sub(earlier.all_ticks)).max(1.0);
        let share = |now: u64, then: u64| crate::measure::as_f64(now.saturating_sub(then)) / all;
        MachineUse {
            idle_share: share(self.idle_ticks, earlier.idle_ticks),
            stolen_share: share(self.stolen_ticks, earlier.stolen_ticks),
            swapped_pages: self.swapped_pages - earlier.swapped_pages,
            throttled_periods: self.throttled_periods.saturating_sub(earlier.throttled_periods),
        }
    }
}

impl MachineUse {
    /// Why a window with this use counts for nothing; empty if it counts. `generator_share` is the load threads' CPU
    /// time as a share of the window.
    pub(crate) fn objections(&self, generator_share: f64, threads: usize) -> Vec<String> {
        let mut objections = Vec::new();
        if self.swapped_pages > 0 {
            objections.push(format!("the machine swapped {} pages", self.swapped_pages));
        }
        if self.throttled_periods > 0 {
            objections.push(format!("the processors were throttled {} times", self.throttled_periods));
        }
        if self.stolen_share > STOLEN_MAX {
            let percent = self.stolen_share * 100.0;
            objections.push(format!("the host took {percent:.0} % of the processors' time"));
        }
        let threads = crate::measure::as_f64(threads as u64);
        if generator_share >= THREAD_FULL * threads && self.idle_share > IDLE_WHILE_FULL {
            let (full, idle) = (generator_share * 100.0 / threads, self.idle_share * 100.0);
            objections.push(format!(
                "the load generator was the limit: its {threads} thread(s) {full:.0} % busy, the machine {idle:.0} % idle"
            ));
        }
        objections
    }
}

/// Of the control group that the harness is in, and those above it.
fn throttled_periods() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(own) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else { return 0 };
    let count = |group: &Path| counter(&fs::read_to_string(group.join("cpu.stat")).ok()?, "nr_throttled");
    let own = Path::new(CGROUPS).join(own);
    own.ancestors().take_while(|group| group.starts_with(CGROUPS)).filter_map(count).sum()
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

    const QUIET: Machine =
        Machine { all_ticks: 0, idle_ticks: 0, stolen_ticks: 0, swapped_pages: 5, throttled_periods: 2 };

    #[test]
    fn an_idle_machine_beside_a_full_generator_is_an_objection() {
        let later = Machine { all_ticks: 200, idle_ticks: 40, ..QUIET };
        let objections = later.since(&QUIET).objections(0.97, 1);
        assert_eq!(objections.len(), 1);
        assert!(objections[0].starts_with("the load generator was the limit"), "{objections:?}");
        assert!(later.since(&QUIET).objections(0.80, 1).is_empty());
        let busy = Machine { all_ticks: 200, idle_ticks: 2, ..QUIET };
        assert!(busy.since(&QUIET).objections(0.97, 1).is_empty());
    }

    #[test]
    fn swapping_throttling_and_theft_are_objections() {
        let later = Machine {
            all_ticks: 200,
            idle_ticks: 0,
            stolen_ticks: 50,
            swapped_pages: 6,
            throttled_periods: 3,
        };
        assert_eq!(later.since(&QUIET).objections(0.1, 1).len(), 3);
    }

    #[test]
    fn a_counter_is_found_by_its_name() {
        assert_eq!(counter("nr_periods 9\nnr_throttled 4\nthrottled_usec 100", "nr_throttled"), Some(4));
        assert_eq!(counter("nr_periods 9", "nr_throttled"), None);
    }
}
