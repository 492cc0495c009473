//! Servers under test.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::PATIENCE;

/// Every server has a loopback address of its own, so one port does for all.
const PORT: u16 = 25_181;

/// How a server is to be started.
#[derive(Clone, Debug)]
pub(crate) struct ServerSpec {
    pub(crate) address: SocketAddr,
    pub(crate) arguments: Vec<String>,
}

impl ServerSpec {
    /// A server with defaults on an address that nobody else has.
    pub(crate) fn new() -> Self {
        Self { address: SocketAddr::from((own_address(), PORT)), arguments: Vec::new() }
    }

    /// With further arguments.
    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringkeeper"));
        command.current_dir(folder).stdin(Stdio::null()).args(&self.arguments);
        command.args(["-a", &self.address.ip().to_string(), "-p", &self.address.port().to_string()]);
        command
    }
}

/// A loopback address that nobody else has: 127, the process, a number.
pub(crate) fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(number < 255, "one process can start 254 servers");
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, number)
}

/// A running server and its folder. Killed, by its id, when it is dropped.
pub(crate) struct Server {
    spec: ServerSpec,
    folder: TempDir,
    child: Child,
}

impl Server {
    /// A server with defaults in an empty folder.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server with further arguments in an empty folder.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self::start_in(folder, ServerSpec::new().with(arguments))
    }

    fn start_in(folder: TempDir, spec: ServerSpec) -> Self {
        let log =
            File::options().create(true).append(true).open(folder.path().join("stderr")).expect("a log file");
        let child =
            spec.command(folder.path()).stdout(Stdio::null()).stderr(log).spawn().expect("the server starts");
        let mut server = Self { spec, folder, child };
        server.wait_until_it_serves();
        server
    }

    /// Starts again in the same folder, on the same address. The process must have ended.
    pub(crate) fn restart(mut self) -> Self {
        assert!(self.child.try_wait().expect("known").is_some(), "the server still runs");
        let spec = self.spec.clone();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().expect("a temporary folder"));
        Self::start_in(folder, spec)
    }

    /// How it was started.
    pub(crate) fn spec(&self) -> &ServerSpec {
        &self.spec
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.spec.address
    }

    /// Where it was started; its data is below.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder().join("ringkeeper-data")
    }

    /// `kill -9`, and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Lets it do nothing until [`Self::resume`]: its connections stay open.
    pub(crate) fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signalled");
    }

    /// Waits for the end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_for("the server's end", || self.child.try_wait().expect("known"))
    }

    /// The answer to a four-letter word.
    pub(crate) fn word(&self, word: &str) -> String {
        four_letter_word(self.address(), word.as_bytes())
    }

    /// A number of `mntr`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let answer = self.word("mntr");
        let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
        value.unwrap_or_else(|| panic!("no {name} in {answer}")).parse().expect("a number")
    }

    fn wait_until_it_serves(&mut self) {
        let address = self.address();
        wait_for("the server", || {
            if let Some(status) = self.child.try_wait().expect("known") {
                panic!("the server ended with {status}: {}", self.log());
            }
            // A port that is not open yet, or one that the process before has not quite let go of, is no answer.
            ask(address, b"isro").is_ok_and(|answer| answer == "rw").then_some(())
        });
    }

    /// Everything that the server has said.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("stderr")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
    }
}

/// Runs a server that is expected to end by itself, without its log: what it says and how it ends.
pub(crate) fn run_to_end(folder: &Path, spec: &ServerSpec) -> Output {
    let mut command = spec.command(folder);
    command.env("RUST_LOG", "off").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the server starts");
    let start = Instant::now();
    while child.try_wait().expect("known").is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().expect("killed");
            break;
        }
        sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("ended")
}

/// Sends a word and reads until the server closes.
pub(crate) fn four_letter_word(address: SocketAddr, word: &[u8]) -> String {
    ask(address, word).expect("an answer and its end")
}

fn ask(address: SocketAddr, word: &[u8]) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(word)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Waits until `look` finds something.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        sleep(Duration::from_millis(5));
    }
}
