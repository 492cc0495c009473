//! `ringkeeper doctor`: what stops a start, or makes a server slow, is found before the first start.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::support::{Server, ServerSpec, run_to_end};

const WELL: &str = "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=data\nclientPortAddress=127.0.0.1\n";

/// The findings that are not fine, as `verdict check: says`, and the exit code.
fn findings(folder: &Path, configuration: &str) -> (Vec<String>, i32) {
    fs::write(folder.join("zoo.cfg"), configuration).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_ringkeeper"))
        .args(["doctor", "--json", "--config", "zoo.cfg"])
        .current_dir(folder)
        .output()
        .expect("started");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let findings = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let bad = findings.filter(|finding| finding["verdict"] != "ok").map(|finding| {
        let part = |name: &str| finding[name].as_str().expect("a text").to_owned();
        format!("{} {}: {}", part("verdict"), part("check"), part("says"))
    });
    (bad.collect(), output.status.code().expect("an exit code"))
}

fn failures(folder: &Path, configuration: &str) -> Vec<String> {
    let (findings, code) = findings(folder, configuration);
    let failures: Vec<_> = findings.into_iter().filter(|finding| finding.starts_with("FAILURE")).collect();
    assert_eq!(code, i32::from(!failures.is_empty()), "{failures:?}");
    failures
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("bound").port()
}

#[test]
fn a_machine_on_which_a_server_starts_has_no_failure_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let configuration = format!("{WELL}clientPort={}\n", free_port());
    assert_eq!(failures(folder.path(), &configuration), [""; 0]);
    let left: Vec<_> =
        fs::read_dir(folder.path()).expect("there").map(|entry| entry.expect("read").file_name()).collect();
    assert_eq!(left, ["zoo.cfg"]);
}

#[test]
fn what_stops_a_start_is_found_by_the_words_that_the_start_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = taken.local_addr().expect("bound").port();
    fs::write(folder.path().join("file"), "").expect("written");
    let ensemble = |line: &str| format!("{WELL}clientPort={}\n{line}", free_port());
    for (configuration, check, words) in [
        (format!("{WELL}clientPort={port}\n"), "client ports", "is in use"),
        (format!("{WELL}clientPort={}\ndataLogDir=file/log\n", free_port()), "disk", "choose another with"),
        (
            ensemble(&format!(
                "server.1=127.0.0.1:{port}:{port}\nserver.2=127.0.0.1:1:2\nserver.3=127.0.0.1:3:4\n"
            )),
            "quorum port",
            "another server listens there",
        ),
        (
            ensemble("server.1=127.0.0.1:0:0\nserver.2=nobody.invalid:1:2\nserver.3=127.0.0.1:3:4\n")
                .replace(":0:0", &format!(":{}:{}", free_port(), free_port())),
            "peers",
            "correct the line server.2",
        ),
        (
            format!("{WELL}secureClientPort={}\nssl.keyStore.location=none.pem\n", free_port()),
            "clients",
            "none.pem",
        ),
    ] {
        fs::create_dir_all(folder.path().join("data")).expect("made");
        fs::write(folder.path().join("data/myid"), "1").expect("written");
        let found = failures(folder.path(), &configuration);
        let expected = format!("FAILURE {check}: ");
        assert!(
            found.iter().any(|finding| finding.starts_with(&expected) && finding.contains(words)),
            "{check}: {found:?}"
        );
    }
}

#[test]
fn a_configuration_that_a_start_refuses_is_refused_by_the_doctor_with_the_same_words() {
    let server = Server::start();
    let refused = run_to_end(server.folder(), &ServerSpec::new().with(&["-o", "tickTime=never"]));
    let output = Command::new(env!("CARGO_BIN_EXE_ringkeeper"))
        .args(["doctor", "-o", "tickTime=never"])
        .current_dir(server.folder())
        .output()
        .expect("started");
    assert_eq!((output.status.code(), &output.stderr), (refused.status.code(), &refused.stderr));
}

#[test]
fn looking_for_work_on_a_core_that_is_shared_is_warned_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let configuration =
        format!("{WELL}clientPort={}\nringkeeper.shards=1024\nringkeeper.busyPollMicros=50\n", free_port());
    let (findings, _) = findings(folder.path(), &configuration);
    let is_it =
        |finding: &String| finding.starts_with("warning processors") && finding.contains("busyPollMicros");
    assert!(findings.iter().any(is_it), "{findings:?}");
}
