//! The processes of an ensemble.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::EnsembleError;
use super::layout::{CONFIG_FILE, LOG_FILE, Layout, Member};

/// How long a server may take to answer; a suspended one never does.
const ANSWER_MAX: Duration = Duration::from_millis(300);

/// How long servers may take to end before they are killed.
const STOP_MAX: Duration = Duration::from_secs(10);

/// The servers that run. All of them are ended when this is dropped.
pub(super) struct Members(Vec<Process>);

struct Process {
    id: u64,
    client: SocketAddr,
    child: Child,
    ended: Option<ExitStatus>,
}

/// The state of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: u64,
    pub(super) client: SocketAddr,
    pub(super) pid: u32,
    pub(super) condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// It answers clients; fields as `srvr` has them.
    Serving { mode: String, zxid: String, connections: String },
    /// It answers, but has no quorum.
    NotServing,
    /// It does not answer.
    Silent,
    /// Its process has ended.
    Ended(ExitStatus),
}

impl Members {
    /// Starts all servers. To be called on the main thread: to the kernel, a child's parent is the thread.
    pub(super) fn start(layout: &Layout) -> Result<Self, EnsembleError> {
        let mut members = Self(Vec::new());
        for member in &layout.servers {
            let child = spawn(member).map_err(|error| EnsembleError::Spawn { server: member.id, error })?;
            members.0.push(Process { id: member.id, client: member.client, child, ended: None });
        }
        Ok(members)
    }

    /// Asks all servers for their state.
    pub(super) fn look(&mut self) -> Vec<Row> {
        self.0.iter_mut().map(Process::look).collect()
    }

    /// Whether no server is left.
    pub(super) fn all_ended(&self) -> bool {
        self.0.iter().all(|process| process.ended.is_some())
    }

    /// Ends all servers and waits for them.
    pub(super) fn stop(&mut self) {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + STOP_MAX;
        while !self.all_ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
            self.0.iter_mut().for_each(Process::reap);
        }
        // A suspended process handles no other signal.
        self.signal(Signal::KILL);
        for process in self.0.iter_mut().filter(|process| process.ended.is_none()) {
            process.ended = process.child.wait().ok();
        }
    }

    fn signal(&mut self, signal: Signal) {
        for process in &mut self.0 {
            process.reap();
            if process.ended.is_none() {
                let _ = kill_process(Pid::from_child(&process.child), signal);
            }
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(member: &Member) -> io::Result<Child> {
    let log = File::options().create(true).append(true).open(member.folder.join(LOG_FILE))?;
    Command::new(std::env::current_exe()?)
        .args(["server", "--parent", &std::process::id().to_string(), "--config"])
        .arg(member.folder.join(CONFIG_FILE))
        .current_dir(&member.folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-C must reach this process only, which then stops the servers in order.
        .process_group(0)
        .spawn()
}

impl Process {
    fn reap(&mut self) {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
    }

    fn look(&mut self) -> Row {
        self.reap();
        let condition = match self.ended {
            Some(status) => Condition::Ended(status),
            None => ask(self.client, "srvr").map_or(Condition::Silent, |answer| Condition::of(&answer)),
        };
        Row { id: self.id, client: self.client, pid: self.child.id(), condition }
    }
}

impl Condition {
    fn of(srvr: &str) -> Self {
        let field = |name: &str| srvr.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        match (field("Mode: "), field("Zxid: "), field("Connections: ")) {
            (Some(mode), Some(zxid), Some(connections)) => Self::Serving { mode, zxid, connections },
            _ => Self::NotServing,
        }
    }
}

fn ask(server: SocketAddr, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_srvr_says_is_read() {
        let text = "Zookeeper version: 1\nConnections: 3\nOutstanding: 0\nZxid: 0x100000002\nMode: leader\nNode count: 5\n";
        let (mode, zxid, connections) = ("leader".to_owned(), "0x100000002".to_owned(), "3".to_owned());
        assert_eq!(Condition::of(text), Condition::Serving { mode, zxid, connections });
        assert_eq!(
            Condition::of("This ZooKeeper instance is not currently serving requests\n"),
            Condition::NotServing
        );
    }
}
