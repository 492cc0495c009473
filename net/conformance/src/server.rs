//! Servers that the tests start themselves: Apache ZooKeeper from a folder of jars, or ringkeeper.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::client::Client;

/// Which server to start.
#[derive(Clone, Debug)]
pub(crate) enum Program {
    /// Apache ZooKeeper: the folder with its jars.
    ZooKeeper(PathBuf),
    /// ringkeeper: the binary.
    Ringkeeper(PathBuf),
}

/// The super user's password is `test`.
pub(crate) const SUPER_DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";

/// Without it the reference writes every debug line.
const LOGBACK: &str = r#"<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5level [%thread] %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"#;

/// Of the session that finds out whether a server serves.
const SESSION_TIMEOUT_MS: i32 = 10_000;
const START_LIMIT: Duration = Duration::from_secs(30);

/// Settings that decide what clients see; the same for every program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Whether hard quotas are enforced.
    pub(crate) enforce_quota: bool,
    /// Whether writes are forced to the medium before they are acknowledged.
    pub(crate) force_sync: bool,
    /// The shortest session timeout that clients may have, in milliseconds.
    pub(crate) session_timeout_min_ms: u32,
}

/// A server process with a folder of its own; ended and removed when dropped.
pub(crate) struct Server {
    program: Program,
    settings: Settings,
    folder: tempfile::TempDir,
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    child: Option<Child>,
}

impl Server {
    /// Starts one on a free port from `ports` and waits until it serves.
    pub(crate) fn start(program: Program, settings: Settings, ports: &mut Ports) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("conformance-").tempdir()?;
        fs::create_dir(folder.path().join("data"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports.next_free()?));
        let mut server = Self { program, settings, folder, address, child: None };
        fs::write(server.config_path(), server.config())?;
        fs::write(server.logback_path(), LOGBACK)?;
        server.launch()?;
        Ok(server)
    }

    /// Starts the process again on the same folder and waits until it serves.
    pub(crate) fn launch(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let child = self.command().stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        self.child = Some(child.with_context(|| format!("starting {:?}", self.program))?);
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None))) {
                break;
            }
            if Client::connect(self.address, SESSION_TIMEOUT_MS).and_then(Client::close).is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("{:?} does not serve; its last words:\n{}", self.program, self.log_tail())
    }

    /// Ends the process as SIGKILL does; its folder stays.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A process that is gone already is as dead as it should be.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The process's id, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The last lines that the process wrote.
    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn config_path(&self) -> PathBuf {
        self.folder.path().join("zoo.cfg")
    }

    fn logback_path(&self) -> PathBuf {
        self.folder.path().join("logback.xml")
    }

    fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Every feature that a client can reach is on; what runs by the clock (removal of containers) is off.
    fn config(&self) -> String {
        let (data_dir, port) = (self.data_dir(), self.address.port());
        let Settings { enforce_quota, force_sync, session_timeout_min_ms } = self.settings;
        let force_sync = if force_sync { "yes" } else { "no" };
        format!(
            "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=2000\nmaxClientCnxns=0\n\
             minSessionTimeout={session_timeout_min_ms}\nmaxSessionTimeout=600000\nadmin.enableServer=false\n\
             4lw.commands.whitelist=*\nextendedTypesEnabled=true\nenforceQuota={enforce_quota}\n\
             forceSync={force_sync}\nreconfigEnabled=true\nznode.container.checkIntervalMs=3600000\n\
             DigestAuthenticationProvider.superDigest={SUPER_DIGEST}\n",
            data_dir.display(),
        )
    }

    fn command(&self) -> Command {
        match &self.program {
            Program::ZooKeeper(jars) => self.java_command(jars),
            Program::Ringkeeper(binary) => {
                let mut command = Command::new(binary);
                command.arg("server").arg("--config").arg(self.config_path());
                command.arg("--data-dir").arg(self.data_dir());
                command.args(["--client-port", &self.address.port().to_string()]);
                command
            }
        }
    }

    fn java_command(&self, jars: &Path) -> Command {
        let mut command = Command::new("java");
        command
            .args(["-Xmx1g", "-XX:+UseSerialGC", "-Dznode.container.checkIntervalMs=3600000"])
            .arg(format!("-Dlogback.configurationFile={}", self.logback_path().display()))
            .arg("-cp")
            .arg(jars.join("*"))
            .arg("org.apache.zookeeper.server.ZooKeeperServerMain")
            .arg(self.config_path());
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The TCP ports that a run may listen on.
pub(crate) struct Ports {
    next: u16,
    end: u16,
}

impl Ports {
    /// `count` ports from `first`.
    pub(crate) const fn new(first: u16, count: u16) -> Self {
        Self { next: first, end: first.saturating_add(count) }
    }

    fn next_free(&mut self) -> Result<u16> {
        while self.next < self.end {
            let port = self.next;
            self.next += 1;
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(port);
            }
        }
        bail!("no free port below {}", self.end)
    }
}
