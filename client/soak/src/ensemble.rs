//! Server processes, an ensemble or one alone, to be killed, suspended and, where that is possible, cut off from one another and from the
//! clients.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::{self, AddressFamily, SocketType};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::interrupt;
use crate::network::{Network, Place};

/// How long servers may take to find a leader in the beginning.
const START_MAX: Duration = Duration::from_secs(60);
const ANSWER_MAX: Duration = Duration::from_secs(2);
const LOG_LINES_SHOWN: usize = 15;

/// Client, quorum and election port of each server that has a network of its own.
const PORTS: [u16; 3] = [2181, 2888, 3888];

/// Which server to start.
#[derive(Clone, Debug)]
pub(crate) enum Program {
    /// The server's binary.
    Ringkeeper(PathBuf),
    /// A folder with Apache ZooKeeper's jars.
    ZooKeeper(PathBuf),
}

/// Dropped, it [ends](Self::end).
pub(crate) struct Ensemble {
    program: Program,
    members: Vec<Member>,
    network: Option<Network>,
    _ports: Vec<Port>,
    folder: TempDir,
}

struct Member {
    folder: PathBuf,
    address: SocketAddr,
    /// What is put before its command.
    within: Vec<String>,
    child: Mutex<Option<Child>>,
}

impl Ensemble {
    /// Starts `servers` of them, on a network or on this machine's own address, and waits until they serve.
    pub(crate) fn start(
        program: &Program,
        servers: usize,
        work_dir: &Path,
        network: Option<Network>,
    ) -> Result<Self> {
        let program = match program {
            Program::Ringkeeper(binary) => Program::Ringkeeper(
                binary.canonicalize().with_context(|| format!("no server at {}", binary.display()))?,
            ),
            Program::ZooKeeper(jars) => Program::ZooKeeper(
                jars.canonicalize().with_context(|| format!("no folder {}", jars.display()))?,
            ),
        };
        let folder = tempfile::Builder::new().prefix("soak-").tempdir_in(work_dir)?;
        let (homes, ports) = homes(servers, network.as_ref())?;
        let mut lines = String::new();
        for (id, Home { ip, ports: [_, quorum, election], .. }) in (1..).zip(&homes) {
            // Without a line it is alone.
            if servers > 1 {
                writeln!(lines, "server.{id}={ip}:{quorum}:{election}")?;
            }
        }
        let mut members = Vec::new();
        for (id, Home { ip, ports: [client, ..], within }) in (1..).zip(homes) {
            let own = folder.path().join(id.to_string());
            fs::create_dir_all(own.join("data"))?;
            fs::write(own.join("data/myid"), format!("{id}\n"))?;
            let address = SocketAddr::from((ip, client));
            fs::write(own.join("zoo.cfg"), config(&own, address, &lines, &program))?;
            members.push(Member { folder: own, address, within, child: Mutex::new(None) });
        }
        let ensemble = Self { program, members, network, _ports: ports, folder };
        for server in ensemble.servers() {
            ensemble.launch(server)?;
        }
        ensemble.wait_until_all_serve(START_MAX)?;
        Ok(ensemble)
    }

    /// The servers' numbers.
    pub(crate) fn servers(&self) -> std::ops::Range<usize> {
        0..self.members.len()
    }

    /// The network between the servers, if it can come apart.
    pub(crate) const fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Kills the servers and removes their network and their folders.
    pub(crate) fn end(&self) {
        self.servers().for_each(|server| self.kill(server));
        if let Some(network) = &self.network {
            network.remove();
        }
        // What cannot be removed stays, in a folder for temporary files.
        let _ = fs::remove_dir_all(self.folder.path());
    }

    /// The servers, for clients.
    pub(crate) fn connect_string(&self) -> String {
        let addresses = self.members.iter().map(|member| member.address.to_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Starts a server that does not run.
    pub(crate) fn launch(&self, server: usize) -> Result<()> {
        let member = &self.members[server];
        let log = File::options().create(true).append(true).open(member.folder.join("server.log"))?;
        let mut command = self.command(member);
        command.current_dir(&member.folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // Ctrl-C reaches this program alone, which ends the servers.
        let child = command.process_group(0).spawn().context("the server does not start")?;
        *member.child() = Some(child);
        Ok(())
    }

    /// `kill -9`.
    pub(crate) fn kill(&self, server: usize) {
        if let Some(mut child) = self.members[server].child().take() {
            // A process that is gone already is as dead as it should be.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Suspends a server: its connections stay open, and nothing comes from them.
    pub(crate) fn suspend(&self, server: usize) {
        self.signal(server, Signal::STOP);
    }

    /// Lets a suspended server go on.
    pub(crate) fn resume(&self, server: usize) {
        self.signal(server, Signal::CONT);
    }

    fn signal(&self, server: usize, signal: Signal) {
        let pid = self.members[server].child().as_ref().and_then(|child| Pid::from_child(child).into());
        if let Some(pid) = pid {
            // It runs: only this program ends it.
            let _ = kill_process(pid, signal);
        }
    }

    /// Whether a server's process has ended although nobody killed it.
    pub(crate) fn has_died(&self, server: usize) -> bool {
        let mut child = self.members[server].child();
        child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Whether this server leads.
    pub(crate) fn leads(&self, server: usize) -> bool {
        self.ask(server, "srvr").is_ok_and(|answer| answer.contains("Mode: leader"))
    }

    /// What a server answers to a four-letter word.
    pub(crate) fn ask(&self, server: usize, word: &str) -> Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.members[server].address, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Waits until every server serves.
    pub(crate) fn wait_until_all_serve(&self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        let serves = |server| self.ask(server, "srvr").is_ok_and(|answer| answer.contains("Mode: "));
        while !self.servers().all(serves) {
            interrupt::check()?;
            if Instant::now() > deadline {
                bail!("the servers do not all serve after {} s:\n{}", limit.as_secs(), self.log_tails());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The last lines of each server's output.
    pub(crate) fn log_tails(&self) -> String {
        let tail = |member: &Member| {
            let log = fs::read(member.folder.join("server.log")).unwrap_or_default();
            let text = String::from_utf8_lossy(&log);
            let lines: Vec<_> = text.lines().collect();
            let shown = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n    ");
            format!("  {}:\n    {shown}\n", member.address)
        };
        self.members.iter().map(tail).collect()
    }

    fn command(&self, member: &Member) -> Command {
        let mut words: Vec<OsString> = member.within.iter().map(Into::into).collect();
        match &self.program {
            Program::Ringkeeper(binary) => words.extend([binary.into(), "server".into(), "--config".into()]),
            Program::ZooKeeper(jars) => {
                words.extend(["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp"].map(OsString::from));
                words.extend([
                    jars.join("*").into(),
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain".into(),
                ]);
            }
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(member.folder.join("zoo.cfg"));
        command
    }
}

impl Member {
    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        self.end();
    }
}

/// Where a server is to be.
struct Home {
    ip: IpAddr,
    /// Client, quorum and election port.
    ports: [u16; 3],
    within: Vec<String>,
}

/// Homes on the network, or on this machine's own address with ports that are reserved.
fn homes(servers: usize, network: Option<&Network>) -> Result<(Vec<Home>, Vec<Port>)> {
    if let Some(network) = network {
        let home = |server| {
            let ip = network.address(Place::Server(server)).into();
            Home { ip, ports: PORTS, within: network.within(server) }
        };
        return Ok(((0..servers).map(home).collect(), Vec::new()));
    }
    let ports: Vec<_> = (0..PORTS.len() * servers).map(|_| Port::reserve()).collect::<Result<_>>()?;
    let home = |ports: &[Port]| Home {
        ip: Ipv4Addr::LOCALHOST.into(),
        ports: std::array::from_fn(|at| ports[at].number),
        within: Vec::new(),
    };
    Ok((ports.chunks(PORTS.len()).map(home).collect(), ports))
}

/// Short ticks: sessions of a few seconds, and a leader that is given up after as many.
fn config(folder: &Path, address: SocketAddr, servers: &str, program: &Program) -> String {
    let admin = if matches!(program, Program::ZooKeeper(_)) { "admin.enableServer=false\n" } else { "" };
    format!(
        "tickTime=1000\ninitLimit=10\nsyncLimit=4\nmaxClientCnxns=0\nautopurge.purgeInterval=1\n\
         4lw.commands.whitelist=*\n{admin}dataDir={}\nclientPortAddress={}\nclientPort={}\n{servers}",
        folder.join("data").display(),
        address.ip(),
        address.port(),
    )
}

/// A port that stays ours while no server listens on it: bound, it is given to nobody who asks for any.
struct Port {
    number: u16,
    _reservation: OwnedFd,
}

impl Port {
    fn reserve() -> Result<Self> {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        // Both sides need it, so that a server can listen on a port that is only bound.
        net::sockopt::set_socket_reuseaddr(&socket, true)?;
        net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let address = SocketAddr::try_from(net::getsockname(&socket)?)?;
        Ok(Self { number: address.port(), _reservation: socket })
    }
}
