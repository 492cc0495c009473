//! The two systems: how each is started, standalone, with forced writes and its defaults.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::environment::{Environment, first_line};
use crate::supervise;

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
    /// The bare responder of [`crate::floor`]: what the machine, the kernel and the generator leave possible.
    Floor,
}

/// ringkeeper's settings where its defaults would not do: no limit of connections from one host.
const RINGKEEPER_SETTINGS: [&str; 2] = ["--option", "maxClientCnxns=0"];

/// ZooKeeper's settings where its defaults would not do: no limit of connections from one host, and no
/// HTTP port. Forced writes are its default.
const ZOO_CFG: &str = "tickTime=2000\nmaxClientCnxns=0\nadmin.enableServer=false\n";

/// Name of the file with a server's settings.
const CONFIG_NAME: &str = "zoo.cfg";

/// Used if a logging library lies among the jars: warnings only, or it would log every request.
const LOGBACK_XML: &str = r#"<configuration>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5p %c - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="STDOUT"/></root>
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

    /// As tables name it.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Ringkeeper { .. } => "ringkeeper",
            Self::ZooKeeper { .. } => "ZooKeeper",
            Self::Floor => "floor",
        }
    }

    /// The version that is measured.
    pub(crate) fn version(&self) -> Result<String> {
        match self {
            Self::Ringkeeper { binary, .. } => first_line(Command::new(binary).arg("--version"))
                .with_context(|| format!("{} does not tell its version", binary.display())),
            Self::ZooKeeper { jars, .. } => jar_version(jars),
            Self::Floor => Ok(env!("CARGO_PKG_VERSION").to_owned()),
        }
    }

    /// Records what is measured and how it is set.
    pub(crate) fn describe(&self, environment: &mut Environment, kind: &str) -> Result<()> {
        match self {
            Self::Ringkeeper { extra, .. } => {
                environment.add("ringkeeper", self.version()?);
                let settings =
                    [&RINGKEEPER_SETTINGS[..], &extra.iter().map(String::as_str).collect::<Vec<_>>()];
                environment.add("ringkeeper settings", format!("{kind}, {}", settings.concat().join(" ")));
            }
            Self::ZooKeeper { heap_max, .. } => {
                environment.add("ZooKeeper", self.version()?);
                let cfg = ZOO_CFG.trim_end().replace('\n', ", ");
                environment.add("ZooKeeper settings", format!("{kind}, -Xmx{heap_max}, {cfg}"));
                let java = first_line(Command::new("java").arg("-version"));
                environment.add("java", java.context("no java in the PATH")?);
            }
            Self::Floor => environment.add("floor", "a responder that frames, and answers with canned bytes"),
        }
        Ok(())
    }

    /// Writes the configuration of a server of an ensemble; `servers` are the `server.N` lines. The data is in
    /// `folder/data`, where `myid` is already.
    pub(crate) fn write_ensemble_member(
        &self,
        folder: &Path,
        address: SocketAddr,
        servers: &str,
    ) -> Result<()> {
        let (ip, port, data) = (address.ip(), address.port(), folder.join("data"));
        let java_only =
            if matches!(self, Self::ZooKeeper { .. }) { "admin.enableServer=false\n" } else { "" };
        let text = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\n{java_only}dataDir={}\n\
             clientPortAddress={ip}\nclientPort={port}\n{servers}",
            data.display()
        );
        Ok(fs::write(folder.join(CONFIG_NAME), text)?)
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
            Self::Floor => bail!("the floor is one process, and no ensemble"),
        }
    }

    /// The command that serves `address` from `folder`, which is empty and its own.
    pub(crate) fn command(&self, folder: &Path, address: SocketAddr) -> Result<Command> {
        let data = folder.join("data");
        fs::create_dir(&data)?;
        match self {
            Self::Ringkeeper { binary, extra } => {
                let mut command = supervise::command(binary);
                command.arg("server").arg("--data-dir").arg(data);
                command.arg("--client-port").arg(address.port().to_string());
                command.args(RINGKEEPER_SETTINGS).args(extra);
                Ok(command)
            }
            Self::ZooKeeper { jars, heap_max } => {
                let cfg = folder.join(CONFIG_NAME);
                let (ip, port) = (address.ip(), address.port());
                let place =
                    format!("dataDir={}\nclientPortAddress={ip}\nclientPort={port}\n", data.display());
                fs::write(&cfg, format!("{ZOO_CFG}{place}"))?;
                let mut command = java(folder, jars, heap_max)?;
                command.arg("org.apache.zookeeper.server.ZooKeeperServerMain").arg(cfg);
                Ok(command)
            }
            Self::Floor => {
                let mut command = supervise::command(Path::new(supervise::OWN_PROGRAM));
                command.arg("floor").arg("--listen").arg(address.to_string());
                Ok(command)
            }
        }
    }
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
