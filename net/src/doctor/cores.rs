//! The cores of a server: their clock, and who else wants them. What matters only where each executor has a
//! core of its own is looked at only there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use super::{Finding, machine};
use crate::config::Config;
use crate::placement::Placement;

pub(super) fn check(config: &Config) -> impl Iterator<Item = Finding> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let placement = Placement::choose(&cores, config.shards);
    let system = System { root: PathBuf::from("/") };
    let own = match &placement {
        Placement::Shared { .. } => None,
        Placement::Pinned { core, shards } => {
            Some([core].into_iter().chain(shards).map(|core| core.id).collect())
        }
    };
    let processors = processors(config, &placement, &system, cores.iter().map(|core| core.id));
    let of_own = own.map(|own| [system.interrupts(&own), system.memory(&own)]);
    [processors].into_iter().chain(of_own.into_iter().flatten())
}

fn processors(
    config: &Config,
    placement: &Placement,
    system: &System,
    cores: impl ExactSizeIterator<Item = usize>,
) -> Finding {
    if !config.busy_poll.is_zero() && matches!(placement, Placement::Shared { .. }) {
        return Finding::warning(
            "processors",
            "ringkeeper.busyPollMicros is for executors with a core of their own, from three cores on: here the \
             server takes time from all other programs while it looks for work",
        );
    }
    let count = cores.len();
    let governor = |core| system.read(&format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor"));
    let slow = cores.map(governor).find(|governor| !matches!(governor.as_str(), "" | "performance"));
    match slow {
        Some(slow) => Finding::warning(
            "processors",
            format!(
                "their clock follows the load (governor {slow}), which makes single requests slower: \
                 `cpupower frequency-set -g performance`"
            ),
        ),
        None => Finding::fine("processors", format!("{count}: {placement}")),
    }
}

/// What the kernel says of the machine, below this folder.
struct System {
    root: PathBuf,
}

impl System {
    /// Whether network devices interrupt the server's cores.
    fn interrupts(&self, own: &BTreeSet<usize>) -> Finding {
        let mut interrupted = BTreeMap::<String, BTreeSet<usize>>::new();
        for device in self.names("sys/class/net") {
            // Those of a virtual device belong to what it is plugged into.
            let of_device = ["device/msi_irqs", "device/../msi_irqs"]
                .map(|folder| self.names(&format!("sys/class/net/{device}/{folder}")));
            for interrupt in of_device.into_iter().find(|numbers| !numbers.is_empty()).unwrap_or_default() {
                let cores = self.cores(&format!("proc/irq/{interrupt}/effective_affinity_list"));
                let hit: Vec<usize> = cores.intersection(own).copied().collect();
                if !hit.is_empty() {
                    interrupted.entry(device.clone()).or_default().extend(hit);
                }
            }
        }
        if interrupted.is_empty() {
            return Finding::fine("interrupts", "no network device is known to interrupt the server's cores");
        }
        let devices: Vec<String> = interrupted
            .iter()
            .map(|(device, cores)| format!("{device} interrupts CPUs {}", list(cores)))
            .collect();
        Finding::warning(
            "interrupts",
            format!(
                "{}, which the server has for itself, so requests wait: leave the device some CPUs with \
                 ringkeeper.shards or CPUAffinity= in the systemd unit, and name those alone in \
                 /proc/irq/*/smp_affinity_list, where irqbalance does not run",
                devices.join("; ")
            ),
        )
    }

    /// Whether the server's cores have memory in common, and with a network device.
    fn memory(&self, own: &BTreeSet<usize>) -> Finding {
        let nodes = self.names("sys/devices/system/node").into_iter().filter_map(|name| {
            let number: usize = name.strip_prefix("node")?.parse().ok()?;
            let cores = self.cores(&format!("sys/devices/system/node/{name}/cpulist"));
            (!cores.is_disjoint(own)).then_some(number)
        });
        let nodes: BTreeSet<usize> = nodes.collect();
        if nodes.len() > 1 {
            return Finding::warning(
                "memory",
                format!(
                    "the server's cores are of the NUMA nodes {}, and messages between them cross over: give it the \
                     cores of one, `numactl --cpunodebind=N --membind=N`",
                    list(&nodes)
                ),
            );
        }
        let of_devices = self.names("sys/class/net").into_iter().filter_map(|device| {
            self.read(&format!("sys/class/net/{device}/device/numa_node")).parse::<usize>().ok()
        });
        let of_devices: BTreeSet<usize> = of_devices.collect();
        if nodes.is_disjoint(&of_devices) && !nodes.is_empty() && !of_devices.is_empty() {
            return Finding::warning(
                "memory",
                format!(
                    "the server's cores are of NUMA node {}, and the network devices of {}: \
                     `numactl --cpunodebind=N --membind=N` with the node of the one by which clients come",
                    list(&nodes),
                    list(&of_devices)
                ),
            );
        }
        Finding::fine("memory", "the server's cores are not known to be of several NUMA nodes")
    }

    /// A file's text without the end of its line; empty if it cannot be read.
    fn read(&self, path: &str) -> String {
        machine::read(self.root.join(path))
    }

    /// The names in a folder; none if it cannot be read.
    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The numbers that a file lists, such as `0-3,8`.
    fn cores(&self, path: &str) -> BTreeSet<usize> {
        let text = self.read(path);
        let ranges = text.split(',').filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse().ok()?)
        });
        ranges.flatten().collect()
    }
}

fn list(numbers: &BTreeSet<usize>) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    /// A machine of two NUMA nodes with a network device at the second.
    fn machine() -> (tempfile::TempDir, System) {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in [
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/node1/cpulist", "4-6,7\n"),
            ("sys/devices/system/node/possible", "0-1\n"),
            ("sys/class/net/eth0/device/numa_node", "1\n"),
            ("sys/class/net/eth0/device/msi_irqs/40", ""),
            ("sys/class/net/eth0/device/msi_irqs/41", ""),
            ("sys/class/net/lo/mtu", "65536\n"),
            ("proc/irq/40/effective_affinity_list", "7\n"),
            ("proc/irq/41/effective_affinity_list", "3\n"),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        let root = folder.path().to_owned();
        (folder, System { root })
    }

    fn judged(finding: &Finding) -> (bool, &str) {
        (finding.verdict == Verdict::Warning, &finding.says)
    }

    #[test]
    fn interrupts_of_a_network_device_on_cores_of_the_server_are_found() {
        let (_folder, system) = machine();
        let finding = system.interrupts(&[2, 3].into());
        let (warns, says) = judged(&finding);
        assert!(warns && says.starts_with("eth0 interrupts CPUs 3, which"), "{says}");
        assert!(!judged(&system.interrupts(&[4, 5].into())).0);
    }

    #[test]
    fn cores_of_two_nodes_and_a_network_device_at_the_other_are_found() {
        let (_folder, system) = machine();
        for (cores, words) in [(vec![3, 4], "NUMA nodes 0, 1"), (vec![0, 1], "network devices of 1")] {
            let finding = system.memory(&cores.into_iter().collect());
            let (warns, says) = judged(&finding);
            assert!(warns && says.contains(words), "{says}");
        }
        assert!(!judged(&system.memory(&[5, 7].into())).0);
    }

    #[test]
    fn a_machine_that_says_nothing_of_devices_and_nodes_is_fine() {
        let folder = tempfile::tempdir().expect("a folder");
        let system = System { root: folder.path().to_owned() };
        let own = [0, 1, 2].into();
        assert!(!judged(&system.interrupts(&own)).0 && !judged(&system.memory(&own)).0);
    }
}
