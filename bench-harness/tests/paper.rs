//! `bench-harness paper` from outside: what it leaves behind, and what it says when it cannot go on.
//!
//! Figure 7 is measured, since it needs no binary but the harness's own.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

const HARNESS: &str = env!("CARGO_BIN_EXE_bench-harness");

/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

fn paper(folder: &Path, arguments: &[&str]) -> Command {
    paper_in(folder, &folder.join("results"), arguments)
}

fn paper_in(work_dir: &Path, out: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(HARNESS);
    command.arg("paper").arg("--quick").arg("--work-dir").arg(work_dir).arg("--out").arg(out);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The broadcast alone; the harness passes for a server's binary as far as it is asked for its version.
fn broadcast_alone(folder: &Path) -> Command {
    let mut command =
        paper(folder, &["--only", "fig7", "--ringkeeper", HARNESS, "--sizes", "3", "--runs", "1"]);
    // Tests run beside each other, and on hosts that are busy.
    command.args(["--others-max", "100"]);
    command
}

fn error_of(mut command: Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(!status.success(), "it did not fail");
    String::from_utf8(stderr).unwrap()
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    ringkeeper_testkit::wait_for(what, PATIENCE, || Ok(look())).unwrap()
}

/// Processes whose command line names `folder`, as that of everything does that the harness starts on it.
fn processes_on(folder: &Path) -> Vec<i32> {
    let folder = folder.to_str().unwrap();
    let processes = procfs::process::all_processes().unwrap().flatten();
    let on_folder = processes.filter(|process| {
        let command = process.cmdline().unwrap_or_default();
        let running = process.stat().is_ok_and(|stat| stat.state != 'Z');
        running && command.iter().any(|argument| argument.contains(folder))
    });
    on_folder.map(|process| process.pid).collect()
}

/// Members that the harness has started and that have become what they are to be.
fn members_on(folder: &Path) -> usize {
    let is_member = |pid: &i32| {
        let command = procfs::process::Process::new(*pid).and_then(|process| process.cmdline());
        command.is_ok_and(|command| command.get(1).is_some_and(|first| first == "broadcast-member"))
    };
    processes_on(folder).iter().filter(|pid| is_member(pid)).count()
}

/// Three members that measure for longer than any test takes. The harness heeds all signals, also where
/// whoever started the tests has some ignored, as a shell does for what runs in the background.
fn endless(folder: &Path) -> Child {
    let arguments = ["--only", "fig7", "--ringkeeper", HARNESS, "--sizes", "3", "--runs", "1000"];
    let harness = paper(folder, &arguments);
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,TERM,HUP").arg(harness.get_program()).args(harness.get_args());
    command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

fn end_with(signal: Signal, harness: &mut Child, folder: &Path) {
    kill_process(Pid::from_child(harness), signal).unwrap();
    harness.wait().unwrap();
    wait_for("the end of everything that was started", || processes_on(folder).is_empty().then_some(()));
}

/// Folders of servers inside `folder`.
fn left_in(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("ringkeeper-")).count()
}

#[test]
fn an_experiment_leaves_its_data_its_picture_and_an_index_of_them_in_a_folder_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results");
    fs::create_dir(&results).unwrap();
    fs::write(results.join("README.md"), "# Ours\n\nby hand\n").unwrap();
    let Output { status, stdout, stderr } = broadcast_alone(folder.path()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{stderr}");
    assert!(stdout.contains("throughput, operations/s"), "{stdout}{stderr}");
    let csv = fs::read_to_string(results.join("paper/fig7.csv")).unwrap();
    assert!(csv.contains("# kernel: ") && csv.contains("\nringkeeper,3,"), "{csv}");
    let svg = fs::read_to_string(results.join("paper/fig7.svg")).unwrap();
    assert!(svg.contains("proposals delivered/s"), "{svg}");
    let index = fs::read_to_string(results.join("paper/README.md")).unwrap();
    assert!(index.contains("(fig7.svg)") && index.contains("bench-harness"), "{index}");
    assert_eq!(fs::read_to_string(results.join("README.md")).unwrap(), "# Ours\n\nby hand\n");
}

#[test]
fn a_harness_that_is_ended_by_a_signal_leaves_no_server_behind() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL] {
        let folder = tempfile::tempdir().unwrap();
        let mut harness = endless(folder.path());
        wait_for("three members", || (members_on(folder.path()) == 3).then_some(()));
        end_with(signal, &mut harness, folder.path());
        // What nobody can remove after a kill, the next run does.
        assert_eq!(left_in(folder.path()), usize::from(signal == Signal::KILL), "after {signal:?}");
    }
}

#[test]
fn a_harness_that_timeout_ends_tidies_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut harness = endless(folder.path());
    wait_for("three members", || (members_on(folder.path()) == 3).then_some(()));
    // One for the process and one for its group, as timeout(1) sends them.
    kill_process(Pid::from_child(&harness), Signal::TERM).unwrap();
    end_with(Signal::TERM, &mut harness, folder.path());
    assert_eq!(left_in(folder.path()), 0);
}

#[test]
fn a_harness_that_is_killed_while_it_starts_servers_leaves_none_behind() {
    for step in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let mut harness = endless(folder.path());
        // Before the first member, between them, and behind the last one, whatever the machine's speed.
        let enough = (step % 5).min(4);
        wait_for("some processes", || (processes_on(folder.path()).len() >= enough).then_some(()));
        sleep(Duration::from_millis(u64::try_from(step).unwrap()));
        end_with(Signal::KILL, &mut harness, folder.path());
    }
}

#[test]
fn a_folder_without_jars_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("nowhere");
    let error =
        error_of(paper(folder.path(), &["--ringkeeper", HARNESS, "--zookeeper", missing.to_str().unwrap()]));
    assert!(error.contains("no folder") && error.contains("nowhere"), "{error}");
    let empty = folder.path().to_str().unwrap();
    let error = error_of(paper(folder.path(), &["--ringkeeper", HARNESS, "--zookeeper", empty]));
    assert!(error.contains("no zookeeper-<version>.jar"), "{error}");
}

#[test]
fn a_port_in_use_is_named_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let error = error_of({
        let mut command = broadcast_alone(folder.path());
        command.arg("--port").arg(&port);
        command
    });
    assert!(error.contains(&format!("port {port} is in use")), "{error}");
}

#[test]
fn an_unreachable_server_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    for more in [&[][..], &["--generators", "2"], &["--join", "b"]] {
        let mut command = paper(folder.path(), &["--servers", &address]);
        if more == ["--join", "b"] {
            command = joining(&address, "b");
        } else {
            command.args(more);
        }
        let error = error_of(command);
        assert!(error.contains(&format!("cannot reach server {address}")), "{error}");
    }
}

#[test]
fn an_option_that_one_who_joins_has_no_say_in_is_refused_by_name() {
    for (option, value) in [("--out", "results"), ("--sizes", "3"), ("--runs", "1")] {
        let mut command = joining("127.0.0.1:1", "b");
        command.args([option, value]);
        let error = error_of(command);
        assert!(error.contains(option) && error.contains("cannot be used with"), "{error}");
    }
}

fn joining(servers: &str, name: &str) -> Command {
    let mut command = Command::new(HARNESS);
    command.args(["paper", "--servers", servers, "--join", name]).stdin(Stdio::null());
    command
}

#[test]
fn too_few_descriptors_are_an_error_that_says_how_many_are_needed() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.arg("-c").arg("ulimit -n 256 && exec \"$@\"").arg("sh").arg(HARNESS);
    command.arg("paper").arg("--ringkeeper").arg(HARNESS).arg("--out").arg(folder.path());
    let error = error_of(command);
    assert!(error.contains("too few file descriptors") && error.contains("hard limit is 256"), "{error}");
}

#[test]
fn without_java_zookeeper_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("zookeeper-3.9.5.jar"), "").unwrap();
    let jars = folder.path().to_str().unwrap();
    let mut command = paper(folder.path(), &["--ringkeeper", HARNESS, "--zookeeper", jars]);
    let error = error_of({
        command.env("PATH", folder.path());
        command
    });
    assert!(error.contains("no java in the PATH"), "{error}");
}

#[test]
fn a_wrong_path_to_a_server_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = error_of(paper(folder.path(), &["--ringkeeper", "/nowhere/ringkeeper"]));
    assert!(error.contains("no ringkeeper at /nowhere/ringkeeper"), "{error}");
    let error = error_of(paper(folder.path(), &["--ringkeeper", HARNESS, "--etcd", "/nowhere/etcd"]));
    assert!(error.contains("no etcd at /nowhere/etcd"), "{error}");
    let error = error_of(paper(folder.path(), &["--ringkeeper", HARNESS, "--etcd", HARNESS]));
    assert!(error.contains("is no etcd"), "{error}");
}

#[test]
fn results_that_cannot_be_written_are_an_error_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    // The other one is a folder into which nobody may write, root included.
    for out in [file.join("results"), "/proc/self".into()] {
        let command = paper_in(folder.path(), &out, &["--only", "fig7", "--ringkeeper", HARNESS]);
        let error = error_of(command);
        assert!(error.contains("cannot make the folder") && error.contains("--out"), "{error}");
    }
}

#[test]
fn a_missing_folder_for_the_servers_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("nowhere");
    let results = folder.path().join("results");
    let error = error_of(paper_in(&missing, &results, &["--only", "fig7", "--ringkeeper", HARNESS]));
    assert!(error.contains("nowhere") && error.contains("--work-dir"), "{error}");
}
