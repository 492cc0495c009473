//! The systems that are measured: whose servers, with what settings. Writes are forced, as is the default of
//! all.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use ringkeeper_testkit::{Ensemble, Program, Seat, Server, WorkFolder, mode};

use crate::environment::{Environment, first_line};
use crate::monitor::{Collector, Monitor};
use crate::supervise;
use crate::tls::{self, Tls};

/// A system to measure.
#[derive(Clone, Debug)]
pub(crate) struct System {
    /// As tables name it.
    name: &'static str,
    /// Whose servers; none are the bare ones of [`crate::floor`]: what the machine, the kernel and the
    /// generator leave possible.
    program: Option<Program>,
    /// How it speaks with clients, if not in the clear.
    tls: Option<Arc<Tls>>,
    /// Where it sends traces, if it is looked at while it is measured.
    collector: Option<Arc<Collector>>,
}

/// Requests that servers have in process at most, as in the ZooKeeper paper (section 5.1):
/// `globalOutstandingLimit`, which both systems count for a whole ensemble. Above it they stop reading from
/// clients.
pub(crate) const IN_PROCESS_MAX: usize = 2000;

/// Settings of ringkeeper and ZooKeeper where their defaults would not do: no limit of connections from one
/// host, and the paper's limit of requests.
const SETTINGS: [&str; 3] = ["tickTime=2000", "maxClientCnxns=0", "globalOutstandingLimit=2000"];

/// What servers of ensembles need besides.
const ENSEMBLE_SETTINGS: [&str; 2] = ["initLimit=10", "syncLimit=5"];

/// etcd's setting where its default would not do: it refuses writes once 2 GB of history are there, and the
/// windows of one experiment write more.
const ETCD_SETTINGS: &str = "quota-backend-bytes: 8589934592\n";

impl System {
    /// In the clear, with nobody who looks at it.
    const fn new(name: &'static str, program: Option<Program>) -> Self {
        Self { name, program, tls: None, collector: None }
    }

    /// ringkeeper, from its server binary.
    pub(crate) fn ringkeeper(binary: &Path, extra: &[String]) -> Result<Self> {
        Ok(Self::new("ringkeeper", Some(Program::ringkeeper(binary, extra)?)))
    }

    /// An older ringkeeper, to be measured beside the newer one.
    pub(crate) fn before(binary: &Path, extra: &[String]) -> Result<Self> {
        Ok(Self { name: "before", ..Self::ringkeeper(binary, extra)? })
    }

    /// ZooKeeper, from a folder with its jar and those that it needs. `heap_max`: as `-Xmx` takes it.
    pub(crate) fn zookeeper(jars: &Path, heap_max: &str) -> Result<Self> {
        let program = Program::zookeeper(jars, &[&format!("-Xmx{heap_max}")])?;
        let system = Self::new("ZooKeeper", Some(program));
        system.version()?;
        Ok(system)
    }

    /// The same with TLS between clients and servers; `None` for those that have none here.
    pub(crate) fn secured(&self, tls: &Arc<Tls>) -> Option<Self> {
        // A part of the names of latencies, in which there are no blanks.
        let name = match self.name {
            "ringkeeper" => "ringkeeper-TLS",
            "ZooKeeper" => "ZooKeeper-TLS",
            _ => return None,
        };
        Some(Self { name, tls: Some(Arc::clone(tls)), ..self.clone() })
    }

    /// The same, looked at by a [`Monitor`]; `None` for those that are no ringkeeper.
    pub(crate) fn monitored(&self, collector: &Arc<Collector>) -> Option<Self> {
        let name = if self.name == "ringkeeper" { "ringkeeper-monitored" } else { return None };
        Some(Self { name, collector: Some(Arc::clone(collector)), ..self.clone() })
    }

    /// Starts to look at its servers, if it is to be looked at.
    pub(crate) fn monitor(&self, servers: &[SocketAddr]) -> Result<Option<Monitor>> {
        self.collector.as_ref().map(|_| Monitor::start(servers)).transpose()
    }

    /// etcd, from its server binary.
    pub(crate) fn etcd(binary: &Path) -> Result<Self> {
        let system = Self::new("etcd", Some(Program::etcd(binary)?));
        let version = system.version()?;
        ensure!(version.starts_with("etcd "), "{} is no etcd: its version is {version:?}", binary.display());
        Ok(system)
    }

    /// Bare servers.
    pub(crate) const FLOOR: Self = Self::new("floor", None);

    /// As tables name it.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// The same ringkeeper, from a copy of its program.
    pub(crate) fn at(&self, copy: &Path) -> Result<Self> {
        let Some(Program::Ringkeeper { arguments, .. }) = &self.program else { bail!("it is no ringkeeper") };
        Ok(Self { program: Some(Program::ringkeeper(copy, arguments)?), ..self.clone() })
    }

    /// ringkeeper's program.
    pub(crate) fn binary(&self) -> Option<&Path> {
        match &self.program {
            Some(Program::Ringkeeper { binary, .. }) => Some(binary),
            _ => None,
        }
    }

    /// Whether it is ringkeeper, now or before.
    pub(crate) const fn is_ringkeeper(&self) -> bool {
        matches!(self.program, Some(Program::Ringkeeper { .. }))
    }

    /// Whether it has a garbage-collected heap to look into.
    pub(crate) const fn is_zookeeper(&self) -> bool {
        matches!(self.program, Some(Program::ZooKeeper { .. }))
    }

    /// Whether it has an API of its own.
    pub(crate) const fn is_etcd(&self) -> bool {
        matches!(self.program, Some(Program::Etcd { .. }))
    }

    /// Whether it is made of bare servers.
    pub(crate) const fn is_floor(&self) -> bool {
        self.program.is_none()
    }

    /// The version that is measured.
    fn version(&self) -> Result<String> {
        match &self.program {
            Some(Program::Ringkeeper { binary, .. } | Program::Etcd { binary }) => {
                first_line(Command::new(binary).arg("--version"))
                    .with_context(|| format!("{} does not tell its version", binary.display()))
            }
            Some(Program::ZooKeeper { jars, .. }) => jar_version(jars),
            None => Ok(env!("CARGO_PKG_VERSION").to_owned()),
        }
    }

    /// Records what is measured and how it is set.
    pub(crate) fn describe(&self, environment: &mut Environment) -> Result<()> {
        if self.tls.is_some() {
            let how = "TLS 1.3, clients with certificates, else as in the clear";
            environment.add(self.name, format!("{}, {how}", self.version()?));
            return Ok(());
        }
        if self.collector.is_some() {
            let how = "metrics scraped and a dashboard open, each second on each server; traces of one \
                       request in 1,000; else as without";
            environment.add(self.name, format!("{}, {how}", self.version()?));
            return Ok(());
        }
        let settings = |more: &[&str]| [&["ensembles"], &SETTINGS[..], more].concat().join(", ");
        match &self.program {
            Some(Program::Ringkeeper { arguments, .. }) => {
                environment.add(self.name, self.version()?);
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                environment.add("ringkeeper settings", settings(&arguments));
            }
            Some(Program::ZooKeeper { java, .. }) => {
                environment.add("ZooKeeper", self.version()?);
                let own = [&java.join(" "), "admin.enableServer=false"];
                environment.add("ZooKeeper settings", settings(&own));
                let java = first_line(Command::new("java").arg("-version"));
                environment.add("java", java.context("no java in the PATH")?);
            }
            Some(Program::Etcd { .. }) => {
                environment.add("etcd", self.version()?);
                let settings = ETCD_SETTINGS.trim_end();
                let limit =
                    format!("no limit of requests in process: the generator keeps to {IN_PROCESS_MAX}");
                environment.add("etcd settings", format!("ensembles, {settings}; {limit}"));
            }
            None => environment.add(
                "floor",
                "bare loops that frame, write, wait for a quorum, and answer with canned bytes",
            ),
        }
        Ok(())
    }

    /// An ensemble of so many servers, or a server alone, none of which runs yet, in a folder inside
    /// `work_dir`.
    pub(crate) fn ensemble(&self, servers: usize, work_dir: &Path, port: Option<u16>) -> Result<Ensemble> {
        let seats = seats(servers, port)?;
        if !self.is_floor() {
            return self.ensemble_in(seats, "", work_dir);
        }
        let folder = WorkFolder::new("bench", work_dir)?;
        Ensemble::of(seats, folder, |folder, own, all| Ok(floor(folder, own, all)))
    }

    /// An ensemble in these seats, with more lines of settings, none of whose servers runs yet.
    pub(crate) fn ensemble_in(&self, seats: Vec<Seat>, more: &str, work_dir: &Path) -> Result<Ensemble> {
        let Some(program) = &self.program else { bail!("the floor has no settings") };
        seats.iter().for_each(|seat| tls::announce(seat.client(), self.tls.as_ref()));
        let settings = self.settings(seats.len(), more);
        Ensemble::new(program, seats, &settings, WorkFolder::new("bench", work_dir)?)
    }

    /// Configures a server in the seat `own` anew, with more lines of settings, for its next start.
    pub(crate) fn configure(&self, folder: &Path, own: &Seat, all: &[Seat], more: &str) -> Result<()> {
        let Some(program) = &self.program else { bail!("the floor has no settings") };
        program.configure(folder, own, all, &self.settings(all.len(), more))
    }

    /// The command that runs a Java program, given as source, with ZooKeeper's classes and the configuration
    /// in `folder`.
    pub(crate) fn java_command(&self, folder: &Path, source: &Path) -> Result<Vec<OsString>> {
        match &self.program {
            Some(program @ Program::ZooKeeper { .. }) => Ok(program.java_command(folder, source)),
            _ => bail!("{} is not written in Java", self.name),
        }
    }

    fn settings(&self, servers: usize, more: &str) -> String {
        if self.is_etcd() {
            return ETCD_SETTINGS.to_owned();
        }
        let of_ensembles: &[&str] = if servers > 1 { &ENSEMBLE_SETTINGS } else { &[] };
        let settings = SETTINGS.iter().chain(of_ensembles).map(|setting| format!("{setting}\n"));
        let tls = self.tls.iter().map(|tls| tls.server_settings());
        let traces = self.collector.iter().map(|collector| collector.server_settings());
        settings.chain(tls).chain(traces).chain([more.to_owned()]).collect()
    }
}

/// Seats for servers that end with this process: on three ports each from `port` on or, without one, on
/// addresses that nobody else has.
pub(crate) fn seats(servers: usize, port: Option<u16>) -> Result<Vec<Seat>> {
    let seats = match port {
        Some(port) => Seat::on_ports(servers, port)?,
        None => Seat::on_own_addresses(servers),
    };
    Ok(supervised(seats))
}

/// The same seats for servers that end with this process.
pub(crate) fn supervised(mut seats: Vec<Seat>) -> Vec<Seat> {
    seats.iter_mut().for_each(|seat| _ = seat.within.splice(0..0, supervise::prefix()));
    seats
}

fn floor(folder: PathBuf, own: &Seat, all: &[Seat]) -> Server {
    let members: Vec<_> = all.iter().map(|seat| seat.quorum().to_string()).collect();
    let (listen, id) = (own.client().to_string(), own.id.to_string());
    let mut command = own.within.clone();
    let words = [supervise::OWN_PROGRAM, "floor", "--listen", &listen, "--id", &id, "--members"];
    command.extend(words.map(OsString::from));
    command.extend([members.join(",").into(), "--folder".into(), folder.clone().into()]);
    Server::new(own.client(), folder, command, mode)
}

/// The version in the name of ZooKeeper's jar.
fn jar_version(jars: &Path) -> Result<String> {
    let names = fs::read_dir(jars)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let version = |name: String| {
        let version = name.strip_prefix("zookeeper-")?.strip_suffix(".jar")?;
        version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
    };
    match names.filter_map(version).max() {
        Some(version) => Ok(version),
        None => bail!("no zookeeper-<version>.jar in {}: put ZooKeeper's lib folder there", jars.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_server_jar() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["zookeeper-jute-3.9.5.jar", "zookeeper-3.9.4.jar", "netty-buffer-4.1.jar"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(jar_version(folder.path()).unwrap(), "3.9.4");
    }

    #[test]
    fn a_folder_without_the_server_jar_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("zookeeper-jute-3.9.5.jar"), "").unwrap();
        let error = System::zookeeper(folder.path(), "2g").unwrap_err().to_string();
        assert!(error.contains("no zookeeper-<version>.jar"), "{error}");
    }
}
