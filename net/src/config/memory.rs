//! `ringkeeper.memoryLimit`: memory of the server above which its tree does not grow.

use std::fs;
use std::path::Path;

/// A share of the machine's memory or a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryLimit {
    /// None.
    Unlimited,
    /// Bytes.
    Bytes(u64),
    /// Percentage of the machine's memory, or of the control group's limit if that is lower.
    Percent(u64),
}

impl Default for MemoryLimit {
    fn default() -> Self {
        Self::Percent(80)
    }
}

impl MemoryLimit {
    /// Reads `0`, `75%`, or a number of bytes with K, M or G behind it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is neither 0, a share such as 75%, nor a number of bytes such as 800M or 4G")
        };
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.trim().parse().ok().filter(|percent| (1..=100).contains(percent));
            return percent.map(Self::Percent).ok_or_else(wrong);
        }
        let (digits, shift) = match text.char_indices().next_back() {
            Some((at, 'k' | 'K')) => (&text[..at], 10),
            Some((at, 'm' | 'M')) => (&text[..at], 20),
            Some((at, 'g' | 'G')) => (&text[..at], 30),
            _ => (text, 0),
        };
        let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
        Ok(if bytes == 0 { Self::Unlimited } else { Self::Bytes(bytes) })
    }

    /// In bytes; `None` for no limit.
    pub(crate) fn bytes(self) -> Option<u64> {
        match self {
            Self::Unlimited => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Percent(percent) => Some(available_bytes() / 100 * percent),
        }
    }
}

/// The machine's memory, or the lowest limit of this process's control groups.
fn available_bytes() -> u64 {
    let memory = rustix::system::sysinfo();
    #[allow(clippy::useless_conversion, reason = "the width of these fields differs between architectures")]
    let machine = u64::from(memory.totalram) * u64::from(memory.mem_unit);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    lowest_limit(&groups, Path::new("/sys/fs/cgroup")).map_or(machine, |limit| limit.min(machine))
}

/// The lowest limit of a process's control groups and of those around them. `groups` has a line `0::PATH` for
/// version 2, and `N:memory:PATH` for version 1. In a container the path may be one of the host, and `mounts`
/// begins with the container's own group: what is not there is passed over.
fn lowest_limit(groups: &str, mounts: &Path) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next(), fields.next(), fields.next().unwrap_or_default());
        let (mount, file) = match controllers {
            Some("") => (mounts.to_owned(), "memory.max"),
            Some(names) if names.split(',').any(|name| name == "memory") => {
                (mounts.join("memory"), "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let own = mount.join(path.trim_start_matches('/'));
        let around = own.ancestors().take_while(|folder| folder.starts_with(&mount));
        around.filter_map(|folder| fs::read_to_string(folder.join(file)).ok()).collect()
    });
    // Version 2 says `max` where there is no limit, version 1 a number beyond any memory.
    limits.filter_map(|text| text.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shares_or_bytes() {
        for (text, limit) in [
            ("0", MemoryLimit::Unlimited),
            ("75%", MemoryLimit::Percent(75)),
            ("1000000", MemoryLimit::Bytes(1_000_000)),
            ("800M", MemoryLimit::Bytes(800 << 20)),
            ("4 g", MemoryLimit::Bytes(4 << 30)),
        ] {
            assert_eq!(MemoryLimit::parse(text), Ok(limit), "{text}");
        }
        for text in ["", "%", "0%", "101%", "x", "4T", "99999999999999999999G"] {
            assert!(MemoryLimit::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_of_both_versions_of_control_groups_are_found_and_of_those_around() {
        let mounts = tempfile::tempdir().expect("a temporary folder");
        let write = |folder: &str, file: &str, limit: &str| {
            let folder = mounts.path().join(folder);
            fs::create_dir_all(&folder).expect("made");
            fs::write(folder.join(file), format!("{limit}\n")).expect("written");
        };
        write("memory", "memory.limit_in_bytes", "9223372036854771712");
        write("memory/outer", "memory.limit_in_bytes", "300");
        write("memory/outer/inner", "memory.limit_in_bytes", "400");
        write("unified", "memory.max", "200");
        write("unified/inner", "memory.max", "max");
        for (groups, limit) in [
            ("5:cpu,cpuacct:/outer\n4:memory:/outer/inner\n0::/\n", Some(300)),
            ("4:memory:/\n", Some(9_223_372_036_854_771_712)),
            ("4:hugetlb,memory:/of/the/host\n", Some(9_223_372_036_854_771_712)),
            ("0::/unified/inner\n", Some(200)),
            ("0::/\n", None),
            ("", None),
        ] {
            assert_eq!(lowest_limit(groups, mounts.path()), limit, "{groups}");
        }
    }

    #[test]
    fn the_default_is_a_share_of_what_there_is() {
        let bytes = MemoryLimit::default().bytes().expect("a limit");
        assert!((1 << 20..1 << 50).contains(&bytes), "{bytes}");
    }
}
