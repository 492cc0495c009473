//! The two systems: how each is started, standalone, with forced writes and its defaults.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::ensemble::{Seat, mode};
use crate::environment::{Environment, first_line};
use crate::{etcd, supervise};

/// A system to measure.
#[derive(Clone, Debug)]
pub(crate) enum System {
    Ringkeeper {
        binary: PathBuf,
        /// Arguments beyond those that every run needs.
        extra: Vec<String>,
    },
    ZooKeeper {
        jars: PathBuf,
        /// As `-Xmx` takes it.
        heap_max: String,
    },
    Etcd {
        binary: PathBuf,
    },
    /// The bare responder of [`crate::floor`]: what the machine, the kernel and the generator leave possible.
    Floor,
}

/// Requests that servers have in process at most, as in the ZooKeeper paper (section 5.1): `globalOutstandingLimit`, which
/// both systems count for a whole ensemble. Above it they stop reading from clients.
pub(crate) const IN_PROCESS_MAX: usize = 2000;

/// Settings of both systems where their defaults would not do: no limit of connections from one host, and the paper's
/// limit of requests. Forced writes are the default of both.
const SETTINGS: [&str; 3] = ["tickTime=2000", "maxClientCnxns=0", "globalOutstandingLimit=2000"];

/// What servers of ensembles need besides.
const ENSEMBLE_SETTINGS: [&str; 2] = ["initLimit=10", "syncLimit=5"];

/// ZooKeeper's alone: no HTTP port.
const ZOOKEEPER_SETTINGS: [&str; 1] = ["admin.enableServer=false"];

/// etcd's setting where its default would not do: it refuses writes once 2 GB of history are there, and the windows of
/// one experiment write more. Forced writes are its default.
const ETCD_SETTINGS: &str = "quota-backend-bytes: 8589934592\n";

/// Name of the file with a server's settings.
const CONFIG_NAME: &str = "zoo.cfg";
const ETCD_CONFIG_NAME: &str = "etcd.yml";

/// Used if a logging library lies among the jars: warnings only, or it would log every request.
const LOGBACK_XML: &str = r#"<configuration>
  <appender name="STDERR" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d %-5p %c - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="STDERR"/></root>
</configuration>
"#;

impl System {
    /// ringkeeper, from its server binary.
    pub(crate) fn ringkeeper(binary: &Path, extra: &[String]) -> Result<Self> {
        let binary =
            binary.canonicalize().with_context(|| format!("no ringkeeper at {}", binary.display()))?;
        Ok(Self::Ringkeeper { binary, extra: extra.to_vec() })
    }

    /// ZooKeeper, from a folder with its jar and those that it needs.
    pub(crate) fn zookeeper(jars: &Path, heap_max: &str) -> Result<Self> {
        let jars = jars.canonicalize().with_context(|| format!("no folder {}", jars.display()))?;
        let system = Self::ZooKeeper { jars, heap_max: heap_max.to_owned() };
        system.version()?;
        Ok(system)
    }

    /// etcd, from its server binary.
    pub(crate) fn etcd(binary: &Path) -> Result<Self> {
        let binary = binary.canonicalize().with_context(|| format!("no etcd at {}", binary.display()))?;
        let system = Self::Etcd { binary: binary.clone() };
        let version = system.version()?;
        ensure!(version.starts_with("etcd "), "{} is no etcd: its version is {version:?}", binary.display());
        Ok(system)
    }

    /// As tables name it.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Ringkeeper { .. } => "ringkeeper",
            Self::ZooKeeper { .. } => "ZooKeeper",
            Self::Etcd { .. } => "etcd",
            Self::Floor => "floor",
        }
    }

    /// The version that is measured.
    pub(crate) fn version(&self) -> Result<String> {
        match self {
            Self::Ringkeeper { binary, .. } | Self::Etcd { binary } => {
                first_line(Command::new(binary).arg("--version"))
                    .with_context(|| format!("{} does not tell its version", binary.display()))
            }
            Self::ZooKeeper { jars, .. } => jar_version(jars),
            Self::Floor => Ok(env!("CARGO_PKG_VERSION").to_owned()),
        }
    }

    /// Records what is measured and how it is set.
    pub(crate) fn describe(&self, environment: &mut Environment, kind: &str) -> Result<()> {
        match self {
            Self::Ringkeeper { extra, .. } => {
                environment.add("ringkeeper", self.version()?);
                let extra: Vec<&str> = extra.iter().map(String::as_str).collect();
                let settings = [&SETTINGS[..], &extra].concat().join(", ");
                environment.add("ringkeeper settings", format!("{kind}, {settings}"));
            }
            Self::ZooKeeper { heap_max, .. } => {
                environment.add("ZooKeeper", self.version()?);
                let settings = [&SETTINGS[..], &ZOOKEEPER_SETTINGS].concat().join(", ");
                environment.add("ZooKeeper settings", format!("{kind}, -Xmx{heap_max}, {settings}"));
                let java = first_line(Command::new("java").arg("-version"));
                environment.add("java", java.context("no java in the PATH")?);
            }
            Self::Etcd { .. } => {
                environment.add("etcd", self.version()?);
                let settings = ETCD_SETTINGS.trim_end();
                let limit =
                    format!("no limit of requests in process: the generator keeps to {IN_PROCESS_MAX}");
                environment.add("etcd settings", format!("{kind}, {settings}; {limit}"));
            }
            Self::Floor => environment.add("floor", "a responder that frames, and answers with canned bytes"),
        }
        Ok(())
    }

    /// Writes the configuration of the server with seat `own` of an ensemble into `folder`, which is empty.
    pub(crate) fn write_ensemble_member(&self, folder: &Path, own: Seat, all: &[Seat]) -> Result<()> {
        let data = folder.join("data");
        fs::create_dir(&data)?;
        if let Self::Etcd { .. } = self {
            return Ok(fs::write(folder.join(ETCD_CONFIG_NAME), etcd_config(&data, own, all))?);
        }
        fs::write(data.join("myid"), format!("{}\n", own.id))?;
        let java_only: &[&str] =
            if matches!(self, Self::ZooKeeper { .. }) { &ZOOKEEPER_SETTINGS } else { &[] };
        let settings = lines(&[&SETTINGS[..], &ENSEMBLE_SETTINGS, java_only].concat());
        let (ip, port, data) = (own.client().ip(), own.client().port(), data.display());
        let server =
            |Seat { id, quorum, election, .. }: &Seat| format!("server.{id}={ip}:{quorum}:{election}\n");
        let text = format!(
            "{settings}dataDir={data}\nclientPortAddress={ip}\nclientPort={port}\n{}",
            all.iter().map(server).collect::<String>()
        );
        Ok(fs::write(folder.join(CONFIG_NAME), text)?)
    }

    /// What a server of an ensemble says that it is: `leader`, `follower`, or something else while it does not serve.
    pub(crate) fn mode(&self, server: SocketAddr) -> Result<String> {
        match self {
            Self::Etcd { .. } => etcd::mode(server).map(str::to_owned),
            _ => mode(server),
        }
    }

    /// The command that runs the server whose configuration was written into `folder`.
    pub(crate) fn ensemble_command(&self, folder: &Path) -> Result<Command> {
        let cfg = folder.join(CONFIG_NAME);
        match self {
            Self::Ringkeeper { binary, extra } => {
                let mut command = supervise::command(binary);
                command.arg("server").arg("--config").arg(cfg).args(extra);
                Ok(command)
            }
            Self::ZooKeeper { jars, heap_max } => {
                let mut command = java(folder, jars, heap_max)?;
                command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(cfg);
                Ok(command)
            }
            Self::Etcd { binary } => {
                let mut command = supervise::command(binary);
                command.arg("--config-file").arg(folder.join(ETCD_CONFIG_NAME));
                Ok(command)
            }
            Self::Floor => bail!("the floor is one process, and no ensemble"),
        }
    }

    /// The command that runs a Java program, given as source, with ZooKeeper's classes and the configuration that was
    /// written into `folder`.
    pub(crate) fn ensemble_program(&self, folder: &Path, source: &Path) -> Result<Command> {
        let Self::ZooKeeper { jars, heap_max } = self else {
            bail!("{} is not written in Java", self.name())
        };
        let mut command = java(folder, jars, heap_max)?;
        command.arg(source).arg(folder.join(CONFIG_NAME));
        Ok(command)
    }

    /// The command that serves `address` from `folder`, which is empty and its own.
    pub(crate) fn command(&self, folder: &Path, address: SocketAddr) -> Result<Command> {
        self.command_with(folder, address, &[])
    }

    /// The same with settings of `zoo.cfg` beyond those of every run; the folder may hold data of an earlier one.
    pub(crate) fn command_with(
        &self,
        folder: &Path,
        address: SocketAddr,
        settings: &[(&str, String)],
    ) -> Result<Command> {
        let data = folder.join("data");
        fs::create_dir_all(&data)?;
        match self {
            Self::Ringkeeper { binary, extra } => {
                let mut command = supervise::command(binary);
                command.arg("server").arg("--data-dir").arg(data);
                command.arg("--client-port").arg(address.port().to_string());
                let own = SETTINGS.map(str::to_owned).into_iter();
                for option in own.chain(settings.iter().map(|(key, value)| format!("{key}={value}"))) {
                    command.arg("--option").arg(option);
                }
                command.args(extra);
                Ok(command)
            }
            Self::ZooKeeper { jars, heap_max } => {
                let cfg = folder.join(CONFIG_NAME);
                let (ip, port) = (address.ip(), address.port());
                let place =
                    format!("dataDir={}\nclientPortAddress={ip}\nclientPort={port}\n", data.display());
                let settings: String =
                    settings.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
                let own = lines(&[&SETTINGS[..], &ZOOKEEPER_SETTINGS].concat());
                fs::write(&cfg, format!("{own}{place}{settings}"))?;
                let mut command = java(folder, jars, heap_max)?;
                command.arg("org.apache.zookeeper.server.ZooKeeperServerMain").arg(cfg);
                Ok(command)
            }
            Self::Etcd { .. } => bail!("etcd is measured in ensembles only"),
            Self::Floor => {
                let mut command = supervise::command(Path::new(supervise::OWN_PROGRAM));
                command.arg("floor").arg("--listen").arg(address.to_string());
                Ok(command)
            }
        }
    }
}

/// As a file has them.
fn lines(settings: &[&str]) -> String {
    settings.iter().map(|setting| format!("{setting}\n")).collect()
}

fn etcd_config(data: &Path, own: Seat, all: &[Seat]) -> String {
    let name = |seat: &Seat| format!("member{}", seat.id);
    let peer = |seat: &Seat| format!("http://{}:{}", seat.client().ip(), seat.quorum);
    let cluster: Vec<String> = all.iter().map(|seat| format!("{}={}", name(seat), peer(seat))).collect();
    let (name, client, peer) = (name(&own), format!("http://{}", own.client()), peer(&own));
    format!(
        "name: {name}\ndata-dir: {}\nlisten-client-urls: {client}\nadvertise-client-urls: {client}\n\
         listen-peer-urls: {peer}\ninitial-advertise-peer-urls: {peer}\ninitial-cluster: {}\n\
         initial-cluster-state: new\n{ETCD_SETTINGS}",
        data.display(),
        cluster.join(",")
    )
}

/// A JVM with ZooKeeper's classes and a log in `folder`; add the class to run and its arguments.
fn java(folder: &Path, jars: &Path, heap_max: &str) -> Result<Command> {
    fs::write(folder.join("logback.xml"), LOGBACK_XML)?;
    let mut command = supervise::command(Path::new("java"));
    command.arg(format!("-Xmx{heap_max}"));
    command.arg("-cp").arg(format!("{}:{}/*", folder.display(), jars.display()));
    Ok(command)
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
