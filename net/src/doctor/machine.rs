//! Kernel, limits, memory, the clock.

use std::fs;
use std::path::Path;

use ringkeeper_runtime::preflight;

use super::Finding;

pub(super) fn check() -> impl Iterator<Item = Finding> {
    [kernel(), open_files(), swap(), clock()].into_iter()
}

fn kernel() -> Finding {
    let release = read("/proc/sys/kernel/osrelease");
    match read("/proc/sys/kernel/io_uring_disabled").as_str() {
        "1" => Finding::warning(
            "kernel",
            format!(
                "Linux {release} allows io_uring to privileged processes and one group: let the server's user be in \
                 that group (sysctl kernel.io_uring_group), or set kernel.io_uring_disabled to 0"
            ),
        ),
        _ => Finding::fine("kernel", format!("Linux {release}")),
    }
}

fn open_files() -> Finding {
    let limit = preflight::raise_open_files();
    if limit < preflight::OPEN_FILES_MIN {
        return Finding::warning(
            "open files",
            format!(
                "{limit} at most, and each connection needs one: raise the hard limit with `ulimit -Hn`, or \
                 LimitNOFILE= in the systemd unit"
            ),
        );
    }
    Finding::fine("open files", format!("{limit} at most"))
}

fn swap() -> Finding {
    let has_swap = read("/proc/swaps").lines().count() > 1;
    let swappiness: u32 = read("/proc/sys/vm/swappiness").parse().unwrap_or(0);
    if has_swap && swappiness > 1 {
        return Finding::warning(
            "swap",
            format!(
                "the kernel may move znodes to the disk (vm.swappiness {swappiness}), and requests wait for them: \
                 set vm.swappiness to 1, or MemorySwapMax=0 in the systemd unit"
            ),
        );
    }
    Finding::fine("swap", if has_swap { "hardly used" } else { "none" })
}

fn clock() -> Finding {
    if preflight::is_clock_synchronized() {
        return Finding::fine("clock", "synchronized");
    }
    Finding::warning(
        "clock",
        "the kernel says that nobody synchronizes it: times of znodes, records and certificates are wrong by as \
         much; start chrony or systemd-timesyncd",
    )
}

/// A file's text without the end of its line; empty if it cannot be read.
pub(super) fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}
