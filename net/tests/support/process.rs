//! Servers under test, started as their users start them: by arguments alone.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};

use ringkeeper_testkit::{self as testkit, WorkFolder};
use rustix::process::Signal;

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
        Self { address: (testkit::own_address(), PORT).into(), arguments: Vec::new() }
    }

    /// With further arguments.
    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    fn command(&self) -> Vec<String> {
        let Self { address, arguments } = self;
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let place = ["-a".to_owned(), ip, "-p".to_owned(), port];
        let binary = env!("CARGO_BIN_EXE_ringkeeper").to_owned();
        [binary].into_iter().chain(arguments.iter().cloned()).chain(place).collect()
    }
}

/// A running server and its folder.
pub(crate) struct Server {
    spec: ServerSpec,
    server: testkit::Server,
    _folder: WorkFolder,
}

impl Deref for Server {
    type Target = testkit::Server;

    fn deref(&self) -> &Self::Target {
        &self.server
    }
}

impl Server {
    /// A server with defaults in an empty folder.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// A server that may have so many files open, with further arguments in an empty folder.
    pub(crate) fn start_with_open_files(open_files: u32, arguments: &[&str]) -> Self {
        // What the shell is told of becomes the server's limits.
        let limit = format!("ulimit -n {open_files}; exec \"$0\" \"$@\"");
        Self::start_by(&["sh", "-c", &limit], ServerSpec::new().with(arguments))
    }

    /// A server with further arguments in an empty folder.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::start_at(ServerSpec::new().with(arguments))
    }

    /// A server that is started like this, in an empty folder.
    pub(crate) fn start_at(spec: ServerSpec) -> Self {
        Self::start_by(&[], spec)
    }

    fn start_by(starter: &[&str], spec: ServerSpec) -> Self {
        let folder = WorkFolder::new("test", &std::env::temp_dir()).expect("a temporary folder");
        let starter = starter.iter().map(|&word| word.to_owned());
        let command = starter.chain(spec.command()).map(Into::into).collect();
        let server = testkit::Server::new(spec.address, folder.path().into(), command, testkit::mode);
        Self { spec, server, _folder: folder }.launched()
    }

    fn launched(self) -> Self {
        self.launch().expect("the server starts");
        self.wait_until_serving(PATIENCE).expect("it serves");
        self
    }

    /// Starts again in the same folder, on the same address. The process must have ended.
    pub(crate) fn restart(self) -> Self {
        self.launched()
    }

    /// How it was started.
    pub(crate) fn spec(&self) -> &ServerSpec {
        &self.spec
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder().join("ringkeeper-data")
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM).expect("signalled");
    }

    /// Waits for the end.
    pub(crate) fn wait(&self) -> ExitStatus {
        let status = wait_for("the server's end", || self.ended());
        self.kill();
        status
    }

    /// The answer to a four-letter word.
    pub(crate) fn word(&self, word: &str) -> String {
        self.ask(word).expect("an answer and its end")
    }

    /// A number of `mntr`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        testkit::metric(self.address(), name).unwrap_or_else(|| panic!("no {name} in {}", self.word("mntr")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
    }
}

/// Runs a server that is expected to end by itself, without its log: what it says and how it ends.
pub(crate) fn run_to_end(folder: &Path, spec: &ServerSpec) -> Output {
    let mut command = command_in(folder, spec);
    command.env("RUST_LOG", "off").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the server starts");
    let ended = testkit::wait_for("the server's end", PATIENCE, || Ok(child.try_wait()?));
    if ended.is_err() {
        child.kill().expect("killed");
    }
    child.wait_with_output().expect("ended")
}

/// A server in a folder, for tests that have its output themselves.
pub(crate) fn command_in(folder: &Path, spec: &ServerSpec) -> Command {
    let [binary, arguments @ ..] = &spec.command()[..] else { unreachable!("a program") };
    let mut command = Command::new(binary);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

/// Waits until `look` finds something.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    testkit::wait_for(what, PATIENCE, || Ok(look())).expect("it does not take as long")
}
