//! Facts about the process and the machine.

use std::path::Path;
use std::time::Duration;

use ringkeeper_engine::fourletter::Word;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Figures that take blocking system calls, and are therefore measured off the executor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// Open file descriptors, and how many there may be.
    pub(crate) file_descriptors: (u64, u64),
    /// Bytes of the files in the data folder and in the log's.
    pub(crate) directory_sizes_bytes: (u64, u64),
    /// Resident and virtual memory in bytes.
    pub(crate) memory_bytes: Option<(u64, u64)>,
    /// CPU time of the process so far.
    pub(crate) cpu: Duration,
}

impl Measured {
    /// Whether `word` shows any of them.
    pub(crate) fn is_shown_by(word: Word) -> bool {
        matches!(word, Word::Conf | Word::Dirs | Word::Mntr)
    }

    /// Measures what `word` shows.
    pub(crate) fn take(word: Word, data_dir: &Path, log_dir: &Path) -> Self {
        match word {
            Word::Mntr => Self {
                file_descriptors: file_descriptors(),
                memory_bytes: status_bytes("VmRSS:").zip(status_bytes("VmSize:")),
                cpu: clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default(),
                ..Self::default()
            },
            Word::Conf | Word::Dirs => {
                Self { directory_sizes_bytes: directory_sizes(data_dir, log_dir), ..Self::default() }
            }
            _ => Self::default(),
        }
    }
}

/// The version of ZooKeeper whose protocol this is, then our own; clients parse the digits in front.
pub(crate) fn version() -> String {
    concat!("3.9.5-ringkeeper-", env!("CARGO_PKG_VERSION"), ", built on ", env!("RINGKEEPER_BUILT_ON"))
        .to_owned()
}

/// ZooKeeper's keys without those of a Java virtual machine.
pub(crate) fn environment() -> Vec<(String, String)> {
    let system = rustix::system::uname();
    let memory = rustix::system::sysinfo();
    #[allow(clippy::useless_conversion, reason = "the width of these fields differs between architectures")]
    let mib = |units| format!("{}MB", (u64::from(units) * u64::from(memory.mem_unit)) >> 20);
    let variable = |name| std::env::var(name).unwrap_or_else(|_| "unknown".to_owned());
    let folder =
        std::env::current_dir().map_or_else(|_| "unknown".to_owned(), |path| path.display().to_string());
    [
        ("zookeeper.version", version()),
        ("host.name", system.nodename().to_string_lossy().into_owned()),
        ("os.name", system.sysname().to_string_lossy().into_owned()),
        ("os.arch", system.machine().to_string_lossy().into_owned()),
        ("os.version", system.release().to_string_lossy().into_owned()),
        ("user.name", variable("USER")),
        ("user.home", variable("HOME")),
        ("user.dir", folder),
        ("os.memory.free", mib(memory.freeram)),
        ("os.memory.max", mib(memory.totalram)),
        ("os.memory.total", mib(memory.totalram)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// The process's own memory: resident memory without the pages of files.
pub(crate) fn own_memory_bytes() -> Option<u64> {
    status_bytes("RssAnon:")
}

fn status_bytes(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix(name))?.trim().strip_suffix(" kB")?;
    kib.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn file_descriptors() -> (u64, u64) {
    let listed = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    // The directory listing itself holds one descriptor.
    let open = u64::try_from(listed.saturating_sub(1)).unwrap_or(u64::MAX);
    (open, getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

/// Bytes of the files in the data folder and in the log's.
pub(crate) fn directory_sizes(data_dir: &Path, log_dir: &Path) -> (u64, u64) {
    let data = folder_size(data_dir);
    (data, if log_dir == data_dir { data } else { folder_size(log_dir) })
}

/// Bytes of all files below `folder`. Files that vanish meanwhile do not count.
fn folder_size(folder: &Path) -> u64 {
    let mut size = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) => size += metadata.len(),
                Err(_) => {}
            }
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_as_large_as_all_files_below_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("inner")).expect("made");
        std::fs::write(folder.path().join("a"), [0; 10]).expect("written");
        std::fs::write(folder.path().join("inner/b"), [0; 5]).expect("written");
        std::os::unix::fs::symlink(folder.path(), folder.path().join("loop")).expect("linked");
        let link = folder.path().join("loop").symlink_metadata().expect("there").len();
        assert_eq!(folder_size(folder.path()), 15 + link);
    }

    #[test]
    fn clients_find_the_protocols_version_in_front() {
        let version = version();
        let digits: Vec<&str> = version.split('-').next().expect("a first part").split('.').collect();
        assert_eq!(digits, ["3", "9", "5"]);
        assert!(version.contains(", built on 2") && version.ends_with(" UTC"), "{version}");
    }

    #[test]
    fn the_process_has_open_files_and_memory() {
        let (open, max) = file_descriptors();
        assert!(open >= 3 && open <= max, "{open} of {max}");
        assert!(status_bytes("VmRSS:").expect("Linux tells") > 0);
    }
}
