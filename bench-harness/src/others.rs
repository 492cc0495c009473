//! What processes other than the servers and the harness take of the machine: a window that shared it with a
//! compiler or a backup measures those too.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use procfs::process::{StatFlags, all_processes};

use crate::server_cpu::ServerProcesses;

/// Share of processor time, in percent, that others, the host among them, may take before a window counts for
/// nothing, if nobody says otherwise.
pub(crate) const PERCENT_MAX: u8 = 10;

static SHARE_MAX: OnceLock<f64> = OnceLock::new();

/// From here on, others may take so many percent of the processors' time. What was said first counts.
pub(crate) fn tolerate(percent: u8) {
    SHARE_MAX.get_or_init(|| share(percent));
}

/// How much others may take, as a share.
pub(crate) fn share_max() -> f64 {
    SHARE_MAX.get().copied().unwrap_or_else(|| share(PERCENT_MAX))
}

fn share(percent: u8) -> f64 {
    f64::from(percent) / 100.0
}

/// CPU time of every process at one moment, in ticks; kernel threads are left out.
///
/// A process counts with the children that it has waited for, so that time is not lost with a process that
/// ends: it goes over to whoever started it, and the sum of all stays what it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes(BTreeMap<i32, Process>);

#[derive(Clone, Debug)]
struct Process {
    name: String,
    parent: i32,
    ticks: u64,
    /// A server or a harness.
    measured: bool,
}

/// What others have taken between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    pub(crate) ticks: u64,
    /// Name and number of the one that took most, with what it started.
    pub(crate) busiest: Option<(String, i32)>,
}

impl Processes {
    /// Those that run now. What the harness or one of `servers` has started belongs to it; other generators
    /// on this machine run the harness's own program.
    pub(crate) fn now(servers: Option<&ServerProcesses>) -> Self {
        let mut processes = BTreeMap::new();
        for process in all_processes().into_iter().flatten().flatten() {
            // It may have ended meanwhile.
            let Ok(stat) = process.stat() else { continue };
            if stat.flags().is_ok_and(|flags| flags.contains(StatFlags::PF_KTHREAD)) {
                continue;
            }
            let of_children = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
            let ticks = stat.utime + stat.stime + of_children;
            let known = Process { name: stat.comm, parent: stat.ppid, ticks, measured: false };
            processes.insert(stat.pid, known);
        }
        let mut processes = Self(processes);
        processes.mark(servers.map_or_else(Vec::new, ServerProcesses::pids));
        processes
    }

    /// Marks what is measured: the harness, the servers, and what they have started.
    fn mark(&mut self, servers: Vec<i32>) {
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let harness = self.0.get(&own).map(|process| process.name.clone());
        let is_root = |pid: i32, process: &Process| {
            pid == own || servers.contains(&pid) || Some(&process.name) == harness.as_ref()
        };
        let mut measured: Vec<i32> =
            self.0.iter().filter(|(pid, process)| is_root(**pid, process)).map(|(pid, _)| *pid).collect();
        while let Some(pid) = measured.pop() {
            let Some(process) = self.0.get_mut(&pid) else { continue };
            if !std::mem::replace(&mut process.measured, true) {
                let started = self.0.iter().filter(|(_, process)| process.parent == pid);
                measured.extend(started.map(|(pid, _)| *pid));
            }
        }
    }

    /// What others have taken since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Others {
        let mut taken: BTreeMap<i32, u64> = BTreeMap::new();
        let others = |processes: &Self| -> Vec<(i32, Process)> {
            let others = processes.0.iter().filter(|(_, process)| !process.measured);
            others.map(|(pid, process)| (*pid, process.clone())).collect()
        };
        for (pid, process) in others(self) {
            let before = earlier.0.get(&pid).map_or(0, |before| before.ticks);
            taken.insert(pid, process.ticks.saturating_sub(before));
        }
        // What ended ones had taken before has gone over to their parents, as if those had taken it now.
        for (pid, ended) in others(earlier).into_iter().filter(|(pid, _)| !self.0.contains_key(pid)) {
            let heir =
                std::iter::successors(Some(ended.parent), |parent| Some(earlier.0.get(parent)?.parent))
                    .find(|heir| self.0.contains_key(heir));
            if let Some(ticks) = heir.and_then(|heir| taken.get_mut(&heir)) {
                *ticks = ticks.saturating_sub(ended.ticks);
            }
            debug_assert!(!taken.contains_key(&pid), "{} has ended", ended.name);
        }
        let busiest = taken.iter().filter(|(_, ticks)| **ticks > 0).max_by_key(|(_, ticks)| **ticks);
        Others {
            ticks: taken.values().sum(),
            busiest: busiest.map(|(pid, _)| (self.0[pid].name.clone(), *pid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    fn processes(all: &[(i32, i32, &str, u64)]) -> Processes {
        let process = |(pid, parent, name, ticks): &(i32, i32, &str, u64)| {
            (*pid, Process { name: (*name).to_owned(), parent: *parent, ticks: *ticks, measured: false })
        };
        Processes(all.iter().map(process).collect())
    }

    #[test]
    fn what_a_process_takes_counts_and_the_greediest_is_named() {
        let before = processes(&[(1, 0, "init", 50), (7, 1, "backup", 100), (8, 1, "cron", 10)]);
        let after = processes(&[(1, 0, "init", 50), (7, 1, "backup", 160), (8, 1, "cron", 15)]);
        assert_eq!(after.since(&before), Others { ticks: 65, busiest: Some(("backup".into(), 7)) });
        assert_eq!(after.since(&after), Others::default());
    }

    #[test]
    fn a_child_that_ends_leaves_what_it_took_in_the_window_to_its_parent_and_no_more() {
        // The compiler had 500 ticks before the window, took 30 inside it, and ended; make waited for it.
        let before = processes(&[(1, 0, "init", 50), (7, 1, "make", 20), (8, 7, "cc", 500)]);
        let after = processes(&[(1, 0, "init", 50), (7, 1, "make", 551)]);
        assert_eq!(after.since(&before), Others { ticks: 31, busiest: Some(("make".into(), 7)) });
    }

    #[test]
    fn servers_and_what_they_have_started_are_not_others() {
        let mut before = processes(&[(5, 1, "java", 10), (6, 5, "thread", 10), (9, 1, "other", 10)]);
        let mut after = processes(&[(5, 1, "java", 90), (6, 5, "thread", 90), (9, 1, "other", 11)]);
        before.mark(vec![5]);
        after.mark(vec![5]);
        assert_eq!(after.since(&before).ticks, 1);
    }

    #[test]
    fn this_process_and_what_it_starts_are_not_others() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let own = i32::try_from(child.id()).unwrap();
        let before = Processes::now(None);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(100) {
            std::hint::spin_loop();
        }
        let after = Processes::now(None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(after.0[&own].ticks > before.0[&own].ticks && after.0[&own].measured);
        let busiest = after.since(&before).busiest;
        assert!(busiest.is_none_or(|(_, pid)| pid != own && pid != std::process::id().cast_signed()));
    }
}
