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
    let group = fs::read_to_string("/proc/self/cgroup").ok();
    let group = group.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("0::/")));
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(group.unwrap_or_default());
    let limits = own.ancestors().take_while(|folder| folder.starts_with(root));
    let limits = limits.filter_map(|folder| fs::read_to_string(folder.join("memory.max")).ok());
    limits.filter_map(|text| text.trim().parse().ok()).fold(machine, u64::min)
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
    fn the_default_is_a_share_of_what_there_is() {
        let bytes = MemoryLimit::default().bytes().expect("a limit");
        assert!((1 << 20..1 << 50).contains(&bytes), "{bytes}");
    }
}
