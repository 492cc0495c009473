//! `bench-harness paper` from outside: what it leaves behind, and what it says when it cannot go on.
//!
//! Figure 7 is measured, since it needs no binary but the harness's own.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const HARNESS: &str = env!("CARGO_BIN_EXE_bench-harness");

/// How long anything may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

fn paper(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(HARNESS);
    command
        .arg("paper")
        .arg("--quick")
        .arg("--work-dir")
        .arg(folder)
        .arg("--out")
        .arg(folder.join("results"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The broadcast alone; the harness passes for a server's binary as far as it is asked for its version.
fn broadcast_alone(folder: &Path) -> Command {
    paper(folder, &["--only", "fig7", "--ringkeeper", HARNESS, "--sizes", "3", "--runs", "1"])
}

fn error_of(mut command: Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(!status.success(), "it did not fail");
    String::from_utf8(stderr).unwrap()
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {} s", PATIENCE.as_secs());
        sleep(Duration::from_millis(20));
    }
}

/// Processes that `parent` has started and that run.
fn children_of(parent: &Child) -> Vec<i32> {
    let parent = i32::try_from(parent.id()).unwrap();
    let processes = procfs::process::all_processes().unwrap().flatten();
    let stats = processes.filter_map(|process| process.stat().ok());
    stats.filter(|stat| stat.ppid == parent && stat.state != 'Z').map(|stat| stat.pid).collect()
}

fn runs(pid: i32) -> bool {
    procfs::process::Process::new(pid).and_then(|process| process.stat()).is_ok_and(|stat| stat.state != 'Z')
}

#[test]
fn an_experiment_leaves_its_data_its_picture_and_an_index_that_keeps_other_text() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results");
    fs::create_dir(&results).unwrap();
    fs::write(results.join("README.md"), "# Ours\n\nby hand\n").unwrap();
    let Output { status, stdout, stderr } = broadcast_alone(folder.path()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{stderr}");
    assert!(stdout.contains("throughput, operations/s"), "{stdout}");
    let csv = fs::read_to_string(results.join("paper/fig7.csv")).unwrap();
    assert!(csv.contains("# kernel: ") && csv.contains("ringkeeper-broadcast,3,"), "{csv}");
    let svg = fs::read_to_string(results.join("paper/fig7.svg")).unwrap();
    assert!(svg.contains("proposals delivered/s"), "{svg}");
    let index = fs::read_to_string(results.join("README.md")).unwrap();
    assert!(index.starts_with("# Ours\n\nby hand\n"), "{index}");
    assert!(index.contains("(paper/fig7.svg)") && index.contains("bench-harness"), "{index}");
}

#[test]
fn a_killed_harness_leaves_no_server_behind() {
    let folder = tempfile::tempdir().unwrap();
    // Long enough to be killed in the middle.
    let mut harness =
        paper(folder.path(), &["--only", "fig7", "--ringkeeper", HARNESS, "--sizes", "3", "--runs", "1000"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
    let members = wait_for("three members", || {
        let members = children_of(&harness);
        (members.len() == 3).then_some(members)
    });
    harness.kill().unwrap();
    harness.wait().unwrap();
    wait_for("the members' end", || members.iter().all(|pid| !runs(*pid)).then_some(()));
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
    let error = error_of(paper(folder.path(), &["--servers", &address]));
    assert!(error.contains(&format!("cannot reach server {address}")), "{error}");
}

#[test]
fn too_few_descriptors_are_an_error_that_says_how_many_are_needed() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.arg("-c").arg("ulimit -n 100 && exec \"$@\"").arg("sh").arg(HARNESS);
    command.arg("paper").arg("--ringkeeper").arg(HARNESS).arg("--out").arg(folder.path());
    let error = error_of(command);
    assert!(error.contains("too few file descriptors") && error.contains("hard limit is 100"), "{error}");
}
