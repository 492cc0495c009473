//! Whose servers: how each program is configured and started.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{Seat, Server, words};

/// A program whose servers can be started.
#[derive(Clone, Debug)]
pub enum Program {
    /// ringkeeper.
    Ringkeeper {
        /// The server's binary.
        binary: PathBuf,
        /// Arguments after the configuration's.
        arguments: Vec<String>,
    },
    /// Apache ZooKeeper.
    ZooKeeper {
        /// The folder with its jar and those that it needs.
        jars: PathBuf,
        /// The JVM's own arguments, such as `-Xmx1g`.
        java: Vec<String>,
    },
    /// etcd.
    Etcd {
        /// The server's binary.
        binary: PathBuf,
    },
}

/// Used if a logging library lies among the jars: warnings only, or it would log every request.
const LOGBACK: &str = r#"<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5level [%thread] %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"#;

const CONFIG_NAME: &str = "zoo.cfg";
const ETCD_CONFIG_NAME: &str = "etcd.yml";

impl Program {
    /// ringkeeper, from its server's binary.
    ///
    /// # Errors
    /// There is no such file.
    pub fn ringkeeper(binary: &Path, arguments: &[String]) -> Result<Self> {
        let binary =
            binary.canonicalize().with_context(|| format!("no ringkeeper at {}", binary.display()))?;
        Ok(Self::Ringkeeper { binary, arguments: arguments.to_vec() })
    }

    /// Apache ZooKeeper, from a folder with its jar and those that it needs. `java`: the JVM's own arguments.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn zookeeper(jars: &Path, java: &[&str]) -> Result<Self> {
        let jars = jars.canonicalize().with_context(|| format!("no folder {}", jars.display()))?;
        Ok(Self::ZooKeeper { jars, java: java.iter().map(|&argument| argument.to_owned()).collect() })
    }

    /// etcd, from its server's binary.
    ///
    /// # Errors
    /// There is no such file.
    pub fn etcd(binary: &Path) -> Result<Self> {
        let binary = binary.canonicalize().with_context(|| format!("no etcd at {}", binary.display()))?;
        Ok(Self::Etcd { binary })
    }

    /// As tables name it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ringkeeper { .. } => "ringkeeper",
            Self::ZooKeeper { .. } => "ZooKeeper",
            Self::Etcd { .. } => "etcd",
        }
    }

    /// The server in the seat `own` of an ensemble, configured in `folder` and not running yet. `settings`:
    /// more lines of its configuration.
    ///
    /// # Errors
    /// The configuration cannot be written.
    pub fn server(&self, folder: PathBuf, own: &Seat, all: &[Seat], settings: &str) -> Result<Server> {
        self.configure(&folder, own, all, settings)?;
        let config = |name: &str| folder.join(name).into_os_string();
        let command = match self {
            Self::Ringkeeper { binary, arguments } => {
                let mut command =
                    vec![binary.into(), "server".into(), "--config".into(), config(CONFIG_NAME)];
                command.extend(arguments.iter().map(OsString::from));
                command
            }
            Self::ZooKeeper { .. } => {
                self.java_command(&folder, "org.apache.zookeeper.server.quorum.QuorumPeerMain")
            }
            Self::Etcd { binary } => {
                vec![binary.into(), "--config-file".into(), config(ETCD_CONFIG_NAME)]
            }
        };
        let command = own.within.iter().cloned().chain(command).collect();
        let mode_of = if matches!(self, Self::Etcd { .. }) { etcd_mode } else { words::mode };
        Ok(Server::new(own.client(), folder, command, mode_of))
    }

    /// The command that runs a Java program with ZooKeeper's classes and the configuration in `folder`: a
    /// class, or a file with its source. Empty for other programs.
    #[must_use]
    pub fn java_command(&self, folder: &Path, program: impl AsRef<OsStr>) -> Vec<OsString> {
        let Self::ZooKeeper { jars, java } = self else { return Vec::new() };
        let classes = format!("{}:{}/*", folder.display(), jars.display());
        let mut command = vec![OsString::from("java")];
        command.extend(java.iter().map(OsString::from));
        command.extend(["-cp".into(), classes.into(), program.as_ref().to_owned()]);
        command.push(folder.join(CONFIG_NAME).into_os_string());
        command
    }

    /// Writes the configuration of the server in the seat `own` into `folder`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn configure(&self, folder: &Path, own: &Seat, all: &[Seat], settings: &str) -> Result<()> {
        let data = folder.join("data");
        fs::create_dir_all(&data)?;
        if let Self::Etcd { .. } = self {
            return Ok(fs::write(folder.join(ETCD_CONFIG_NAME), etcd_config(&data, own, all, settings))?);
        }
        let mut text = format!(
            "dataDir={}\nclientPortAddress={}\nclientPort={}\n{settings}\n",
            data.display(),
            own.ip,
            own.client_port
        );
        if let Self::ZooKeeper { .. } = self {
            text.push_str("admin.enableServer=false\n");
            fs::write(folder.join("logback.xml"), LOGBACK)?;
        }
        // Without lines of servers it is alone.
        if all.len() > 1 {
            fs::write(data.join("myid"), format!("{}\n", own.id))?;
            let line = |Seat { id, peer_ip, quorum_port, election_port, observer, .. }: &Seat| {
                let role = if *observer { ":observer" } else { "" };
                format!("server.{id}={peer_ip}:{quorum_port}:{election_port}{role}\n")
            };
            text.extend(all.iter().map(line));
        }
        Ok(fs::write(folder.join(CONFIG_NAME), text)?)
    }
}

fn etcd_config(data: &Path, own: &Seat, all: &[Seat], settings: &str) -> String {
    let name = |seat: &Seat| format!("member{}", seat.id);
    let peer = |seat: &Seat| format!("http://{}", seat.quorum());
    let cluster: Vec<String> = all.iter().map(|seat| format!("{}={}", name(seat), peer(seat))).collect();
    let (name, client, peer) = (name(own), format!("http://{}", own.client()), peer(own));
    format!(
        "name: {name}\ndata-dir: {}\nlisten-client-urls: {client}\nadvertise-client-urls: {client}\n\
         listen-peer-urls: {peer}\ninitial-advertise-peer-urls: {peer}\ninitial-cluster: {}\n\
         initial-cluster-state: new\n{settings}",
        data.display(),
        cluster.join(",")
    )
}

/// How long a member of etcd may take to tell its metrics.
const METRICS_MAX: Duration = Duration::from_secs(2);

/// What a member of etcd is, from its metrics.
fn etcd_mode(member: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&member, METRICS_MAX).ok()?;
    stream.set_read_timeout(Some(METRICS_MAX)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let is = |gauge: &str| answer.lines().any(|line| line == format!("etcd_server_{gauge} 1"));
    is("has_leader").then(|| if is("is_leader") { "leader" } else { "follower" }.to_owned())
}
