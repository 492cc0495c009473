//! A server as a process of its own, in a folder of its own.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::{interrupt, wait_for, words};

/// How a server is asked what it is; `None` while it does not serve.
pub type ModeOf = fn(SocketAddr) -> Option<String>;

/// Lines of a log that are shown with an error.
const LOG_LINES_SHOWN: usize = 20;

/// A server, running or not. Dropped, its process is killed.
pub struct Server {
    address: SocketAddr,
    folder: PathBuf,
    /// The program and its arguments.
    command: Vec<OsString>,
    mode_of: ModeOf,
    child: Mutex<Option<Child>>,
}

impl Server {
    /// A server that serves clients at `address` when `command` is run in `folder`. Most tell what they are
    /// by [`crate::mode`].
    #[must_use]
    pub fn new(address: SocketAddr, folder: PathBuf, command: Vec<OsString>, mode_of: ModeOf) -> Self {
        Self { address, folder, command, mode_of, child: Mutex::default() }
    }

    /// Where clients connect.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its process runs and its log is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where it keeps log and snapshots, if it is started by a [`crate::Program`].
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The file with its settings, if it is started by a [`crate::Program`].
    pub fn config(&self) -> PathBuf {
        self.folder.join("zoo.cfg")
    }

    /// Starts the process, without waiting until it serves.
    ///
    /// # Errors
    /// It runs already, or cannot be started.
    pub fn launch(&self) -> Result<()> {
        let mut child = self.child();
        if child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            bail!("the server {} runs already", self.address);
        }
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let [program, arguments @ ..] = self.command.as_slice() else { bail!("no program") };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        if interrupt::is_installed() {
            // Ctrl-C reaches this program alone, which ends its servers when it is done.
            command.process_group(0);
        }
        let started = command.spawn();
        *child = Some(started.with_context(|| format!("cannot start {}", program.display()))?);
        Ok(())
    }

    /// Waits until it serves.
    ///
    /// # Errors
    /// The process ends, or does not serve within `limit`; the error has the end of its log.
    pub fn wait_until_serving(&self, limit: Duration) -> Result<()> {
        let served = wait_for("a server that serves", limit, || {
            if let Some(status) = self.ended() {
                bail!("the process ended with {status}");
            }
            Ok(self.mode().map(drop))
        });
        served.with_context(|| {
            let tail = self.log_tail();
            format!("the server {} did not start; its output ends with:\n{tail}", self.address)
        })
    }

    /// `kill -9`, and waits for the end. A process that has ended already stays ended.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops it as an operator does, and waits for the end.
    ///
    /// # Errors
    /// It does not run.
    pub fn stop(&self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let mut child = self.child().take().context("the server does not run")?;
        Ok(child.wait()?)
    }

    /// Lets it do nothing until [`Self::resume`]; its connections stay open.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// It does not run.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// It does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child();
        let pid = Pid::from_child(child.as_ref().context("the server does not run")?);
        Ok(kill_process(pid, signal)?)
    }

    /// How the process has ended, if it has ended by itself.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child().as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// Whether it was started and not killed or stopped since.
    pub fn is_started(&self) -> bool {
        self.child().is_some()
    }

    /// The process's number, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// The answer to a four-letter word.
    ///
    /// # Errors
    /// There is none within two seconds.
    pub fn ask(&self, word: &str) -> io::Result<String> {
        words::ask(self.address, word.as_bytes())
    }

    /// What it says that it is: `leader`, `follower`, `standalone`; `None` while it does not serve.
    pub fn mode(&self) -> Option<String> {
        (self.mode_of)(self.address)
    }

    /// Everything that the process has said.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    /// The last lines of it.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
