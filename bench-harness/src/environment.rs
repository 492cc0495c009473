//! Where a measurement was made: without it a figure means nothing.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use procfs::{CpuInfo, Current, LoadAverage, Meminfo};
use serde::Serialize;

/// Named facts about the machine, the software and the settings, in a fixed order.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Environment(Vec<Fact>);

/// One of them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) value: String,
}

impl Environment {
    /// Machine, system, commit and command line; facts that cannot be had are named unknown.
    pub(crate) fn of_this_run() -> Self {
        let mut environment = Self(Vec::new());
        let cpu = CpuInfo::current().ok();
        let model = cpu.as_ref().and_then(|cpu| cpu.model_name(0).map(str::to_owned));
        let uname = rustix::system::uname();
        let kernel = format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy());
        environment.add("date", humantime::format_rfc3339_seconds(SystemTime::now()));
        environment.add("cpu", or_unknown(model));
        environment.add("cores", or_unknown(cpu.map(|cpu| cpu.num_cores())));
        environment
            .add("memory MiB", or_unknown(Meminfo::current().ok().map(|memory| memory.mem_total >> 20)));
        environment.add("kernel", kernel);
        environment.add("load average before", or_unknown(LoadAverage::current().ok().map(|load| load.one)));
        environment.add("commit", or_unknown(commit()));
        environment.add("command", std::env::args().collect::<Vec<_>>().join(" "));
        environment
    }

    /// Adds a fact.
    pub(crate) fn add(&mut self, name: &'static str, value: impl ToString) {
        self.0.push(Fact { name, value: value.to_string() });
    }

    /// The facts in the order of adding.
    pub(crate) fn facts(&self) -> &[Fact] {
        &self.0
    }
}

fn or_unknown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
}

/// The commit of the directory that the harness runs in, marked if the tree differs from it.
fn commit() -> Option<String> {
    first_line(Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]))
}

/// The first line that `command` prints, on either stream, if it succeeds.
pub(crate) fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8_lossy(&text).lines().next().map(str::to_owned)
}

/// The type of the file system that holds `path`, such as `ext4`. A forced write to `tmpfs` costs nothing,
/// which a reader of the figures must know.
pub(crate) fn file_system_of(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = procfs::process::Process::myself().ok()?.mountinfo().ok()?;
    let holding = mounts.into_iter().filter(|mount| path.starts_with(&mount.mount_point));
    // Later mounts hide earlier ones on the same point: of equals, `max_by_key` takes the last.
    holding.max_by_key(|mount| mount.mount_point.as_os_str().len()).map(|mount| mount.fs_type)
}
