//! Several generators of load on one service: processes here, machines elsewhere.
//!
//! The `ringkeeper` binary of this workspace serves, if it is built (or named by `RINGKEEPER_BIN`); without
//! it the tests say so, and do nothing.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringkeeper_testkit::{Ensemble, Program, Seat, WorkFolder, ringkeeper_binary};
use rustix::process::{Pid, Signal, kill_process};

const HARNESS: &str = env!("CARGO_BIN_EXE_bench-harness");

/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(180);

/// Ended with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(binary: &Path) -> (Ensemble, String) {
    let folder = WorkFolder::new("test", &std::env::temp_dir()).unwrap();
    let program = Program::ringkeeper(binary, &[]).unwrap();
    let seats = Seat::on_own_addresses(1);
    let started = Ensemble::start(&program, seats, "maxClientCnxns=0", folder, PATIENCE).unwrap();
    let address = started.connect_string();
    (started, address)
}

fn generator(servers: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(HARNESS);
    command.args(["paper", "--servers", servers, "--others-max", "100"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The one that keeps the results, of two.
fn first(servers: &str, folder: &Path, runs: &str) -> Started {
    let out = folder.join("results");
    let arguments = ["--generators", "2", "--quick", "--only", "fig5", "--runs", runs, "--sessions", "16"];
    Started(generator(servers, &arguments).arg("--out").arg(out).spawn().unwrap())
}

/// How it ended, and what it said on standard error.
fn end_of(mut started: Started) -> (bool, String) {
    let deadline = Instant::now() + PATIENCE;
    while started.0.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "not within {} s", PATIENCE.as_secs());
        sleep(Duration::from_millis(20));
    }
    let mut said = String::new();
    started.0.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
    (started.0.wait().unwrap().success(), said)
}

#[test]
fn two_generators_measure_the_same_windows_and_the_first_one_keeps_the_sum() {
    let Some(binary) = ringkeeper_binary() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_server, servers) = serve(&binary);
    // Twice: the first run must leave nothing that the second one trips over. Nor does it matter who comes
    // first.
    for first_begins in [true, false] {
        let join = || Started(generator(&servers, &["--join", "b"]).spawn().unwrap());
        let (one, other) = if first_begins {
            let one = first(&servers, folder.path(), "1");
            (one, join())
        } else {
            let other = join();
            sleep(Duration::from_millis(500));
            (first(&servers, folder.path(), "1"), other)
        };
        let ends = [one, other].map(end_of);
        assert!(ends.iter().all(|(is_well, _)| *is_well), "{ends:?}");
        let csv = fs::read_to_string(folder.path().join("results/paper/fig5.csv")).unwrap();
        assert!(csv.contains("# generator: ") && csv.contains("on each of 2 machines"), "{csv}");
        let windows = csv.lines().filter(|line| line.contains(",throughput,")).count();
        assert_eq!(windows, 5, "{csv}");
        // Half of the 16 sessions, on each.
        assert!(csv.contains("8 sessions with 100 outstanding each on each generator"), "{csv}");
    }
}

#[test]
fn a_generator_without_the_others_ends_too() {
    let Some(binary) = ringkeeper_binary() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_server, servers) = serve(&binary);
    let mut one = first(&servers, folder.path(), "1000");
    let other = Started(generator(&servers, &["--join", "b"]).spawn().unwrap());
    let mut lines = BufReader::new(one.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = Vec::new();
    // Some windows later.
    while !said.last().is_some_and(|line: &String| line.contains("50 % reads")) {
        let Some(line) = lines.next() else { panic!("{said:?} and {:?}", end_of(other)) };
        said.push(line);
    }
    kill_process(Pid::from_child(&other.0), Signal::TERM).unwrap();
    said.extend(lines);
    assert!(!one.0.wait().unwrap().success());
    let last = said.last().unwrap();
    assert!(last.contains("only 1 of 2 generators are left, without b"), "{said:?}");
}

/// ringkeeper's shell with one session, in which lines are commands.
struct Shell {
    started: Started,
    binary: PathBuf,
    servers: String,
}

impl Shell {
    fn open(binary: &Path, servers: &str) -> Self {
        let mut command = Command::new(binary);
        command.args(["shell", "-s", servers]).stdin(Stdio::piped()).stdout(Stdio::null());
        let started = Started(command.spawn().unwrap());
        Self { started, binary: binary.to_owned(), servers: servers.to_owned() }
    }

    fn run(&mut self, line: &str) {
        writeln!(self.started.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits until `path` has a child that is `wanted`.
    fn child_of(&self, path: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut list = Command::new(&self.binary);
            let answer = list.args(["shell", "-s", &self.servers, "ls", path]).output().unwrap().stdout;
            let answer = String::from_utf8(answer).unwrap();
            let mut names = answer.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
            if let Some(name) = names.find(|name| !name.is_empty() && wanted(name)) {
                return name.to_owned();
            }
            assert!(Instant::now() < deadline, "{path} has {answer:?}");
            sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_window_without_the_report_of_one_generator_is_an_error_that_names_it() {
    let Some(binary) = ringkeeper_binary() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_server, servers) = serve(&binary);
    let one = first(&servers, folder.path(), "1");
    // The other one comes and goes as generators do, but says that a window is over without what it has
    // counted.
    let mut other = Shell::open(&binary, &servers);
    let run = other.child_of("/bench-generators", |name| name != "first");
    let root = format!("/bench-generators/{run}");
    other.child_of(&format!("{root}/here"), |name| name == "first");
    other.run(&format!("create -e {root}/here/b"));
    other.child_of(&format!("{root}/00001-enter"), |name| name == "first");
    other.run(&format!("create {root}/00001-enter/b"));
    other.run(&format!("create {root}/00001-enter/ready"));
    other.child_of(&format!("{root}/00001-leave"), |name| name == "first");
    other.run(&format!("create {root}/00001-leave/ready"));
    let (is_well, said) = end_of(one);
    assert!(!is_well && said.contains("generator(s) b left") && said.contains("00001-leave"), "{said}");
}

#[test]
fn two_generators_of_one_name_are_refused() {
    let Some(binary) = ringkeeper_binary() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (_server, servers) = serve(&binary);
    let arguments = ["--generators", "3", "--only", "fig5", "--out"];
    let _one = Started(generator(&servers, &arguments).arg(folder.path().join("results")).spawn().unwrap());
    let mut two = Started(generator(&servers, &["--join", "b"]).spawn().unwrap());
    // Whichever of the two comes later is refused; the other one waits for a third.
    let mut three = Started(generator(&servers, &["--join", "b"]).spawn().unwrap());
    let deadline = Instant::now() + PATIENCE;
    let refused = loop {
        if three.0.try_wait().unwrap().is_some() {
            break three;
        }
        if two.0.try_wait().unwrap().is_some() {
            break two;
        }
        assert!(Instant::now() < deadline, "nobody was refused");
        sleep(Duration::from_millis(20));
    };
    let (is_well, said) = end_of(refused);
    assert!(!is_well && said.contains("a generator named \"b\" takes part already"), "{said}");
}
