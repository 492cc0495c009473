//! Starting: what a server needs, and the one sentence it says when it lacks something.

use std::fs;
use std::io::{self, PipeReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use ringkeeper_wire::CreateMode;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Client, Server, ServerSpec, command_in, run_to_end, wait_for};

/// The server refuses to start until somebody changes something, which is what this exit code means.
fn refuses(folder: &Path, spec: &ServerSpec, words: &[&str]) {
    ends(folder, spec, 78, words);
}

/// The server does not start now; it may if it is started again later.
fn fails(folder: &Path, spec: &ServerSpec, words: &[&str]) {
    ends(folder, spec, 1, words);
}

/// The server ends with this exit code and one sentence, which holds all of `words`.
fn ends(folder: &Path, spec: &ServerSpec, code: i32, words: &[&str]) {
    let Output { status, stderr, .. } = run_to_end(folder, spec);
    let said = String::from_utf8(stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(code), "{said}");
    assert!(
        said.starts_with("ringkeeper: ") && said.ends_with('\n') && said.lines().count() == 1,
        "{said:?}"
    );
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
}

fn empty_folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn a_server_in_an_empty_folder_needs_no_configuration() {
    let server = Server::start();
    let mut client = Client::connect(server.address(), 10_000);
    assert_eq!(client.timeout_ms, 10_000);
    assert_eq!(client.create("/a", b"1", CreateMode::Persistent), "/a");
    assert_eq!(client.get("/a", false).as_deref(), Some(&b"1"[..]));
    client.set("/a", b"2");
    assert_eq!(client.get("/a", false).as_deref(), Some(&b"2"[..]));
    assert_eq!(client.create("/a/s-", b"", CreateMode::PersistentSequential), "/a/s-0000000000");
    assert_eq!(client.children("/a", false), ["s-0000000000"]);
    client.delete("/a/s-0000000000");
    client.delete("/a");
    assert_eq!(client.get("/a", false), None);
    client.close();
    assert!(server.data_dir().is_dir());
}

#[test]
fn a_log_for_programs_has_an_object_a_line_with_the_fields_of_the_message() {
    let server = Server::start_with(&["--log-format", "json"]);
    server.terminate();
    assert!(server.wait().success());
    let log = server.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let started = lines.iter().find(|line| line["message"] == "ringkeeper starts").expect("a first line");
    assert_eq!((&started["level"], &started["open_files"].is_u64()), (&Value::from("INFO"), &true));
    assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["target"].is_string()), "{log}");
}

/// A server whose standard error is a pipe that is full of empty lines, and the end to read from.
fn with_full_pipe(folder: &Path, spec: &ServerSpec) -> (Child, PipeReader) {
    let (reader, mut writer) = io::pipe().expect("a pipe");
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("set");
    while writer.write(b"\n").is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).expect("set");
    let server = command_in(folder, spec).stdout(Stdio::null()).stderr(writer).spawn().expect("it starts");
    (server, reader)
}

fn signal(server: &Child, signal: Signal) {
    let pid = Pid::from_raw(server.id().try_into().expect("a number of a process")).expect("not zero");
    kill_process(pid, signal).expect("signalled");
}

fn ended(server: &mut Child) -> ExitStatus {
    let ended = wait_for("the server's end", || server.try_wait().expect("looked at"));
    assert!(server.wait().is_ok());
    ended
}

#[test]
fn a_log_that_nobody_reads_stops_neither_the_server_nor_its_end() {
    let (folder, spec) = (empty_folder(), ServerSpec::new());
    let (mut server, unread) = with_full_pipe(folder.path(), &spec);
    wait_for("the server", || ringkeeper_testkit::mode(spec.address));
    let mut client = Client::connect(spec.address, 10_000);
    signal(&server, Signal::USR1);
    client.create("/a", b"", CreateMode::Persistent);
    signal(&server, Signal::TERM);
    assert!(ended(&mut server).success());
    drop(unread);
}

#[test]
fn a_log_that_is_read_late_is_whole_up_to_the_last_words() {
    let (folder, spec) = (empty_folder(), ServerSpec::new());
    let (mut server, mut late) = with_full_pipe(folder.path(), &spec);
    wait_for("the server", || ringkeeper_testkit::mode(spec.address));
    Client::connect(spec.address, 10_000).create("/a", b"", CreateMode::Persistent);
    signal(&server, Signal::USR1);
    let read = std::thread::spawn(move || {
        let mut log = String::new();
        late.read_to_string(&mut log).map(|_| log).expect("text")
    });
    std::thread::sleep(Duration::from_millis(50));
    signal(&server, Signal::TERM);
    assert!(ended(&mut server).success());
    let log = read.join().expect("read");
    for words in ["ringkeeper starts", "a snapshot was requested", "stopping"] {
        assert!(log.contains(words), "{words:?} is not in {log}");
    }
    // A start that is refused: its line, and the reason behind it.
    let taken = TcpListener::bind(spec.address).expect("free");
    let (mut server, mut reader) = with_full_pipe(folder.path(), &spec.clone().with(&["-o", "noSuchKey=1"]));
    let mut log = String::new();
    reader.read_to_string(&mut log).expect("text");
    assert_eq!(ended(&mut server).code(), Some(1));
    drop(taken);
    let lines: Vec<_> = log.trim().lines().collect();
    assert!(lines.first().is_some_and(|line| line.contains("RK0101")), "{log}");
    assert!(lines.last().is_some_and(|line| line.starts_with("ringkeeper: ")), "{log}");
}

/// The server as a shell starts it behind these words.
fn behind(words: &str, folder: &Path, spec: &ServerSpec) -> Child {
    let server = command_in(folder, spec);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("{words}; exec \"$0\" \"$@\"")])
        .arg(server.get_program())
        .args(server.get_args());
    shell.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    shell.spawn().expect("a shell")
}

fn said(server: &mut Child) -> String {
    let mut said = String::new();
    server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    said
}

#[test]
fn a_terminal_that_closes_ends_the_server_as_sigterm_does_unless_nohup_started_it() {
    for (words, signals) in [("true", &[Signal::HUP][..]), ("trap '' HUP", &[Signal::HUP, Signal::TERM])] {
        let (folder, spec) = (empty_folder(), ServerSpec::new());
        let mut server = behind(words, folder.path(), &spec);
        wait_for("the server", || ringkeeper_testkit::mode(spec.address));
        for &sent in signals {
            assert!(server.try_wait().expect("looked at").is_none(), "{words}");
            signal(&server, sent);
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(ended(&mut server).success());
        let log = said(&mut server);
        let name = if signals.len() == 1 { "SIGHUP" } else { "SIGTERM" };
        assert!(log.contains(&format!("stopping signal={name:?}")), "{log}");
    }
}

#[test]
fn a_limit_on_the_length_of_files_is_told_of() {
    let folder = empty_folder();
    let mut server = behind("ulimit -f 1000", folder.path(), &ServerSpec::new());
    assert!(ended(&mut server).code().is_some());
    let log = said(&mut server);
    assert!(log.contains("File too large") && log.contains("ulimit -f"), "{log}");
}

#[test]
fn a_form_of_the_log_that_there_is_not_is_refused() {
    let spec = ServerSpec::new().with(&["-o", "ringkeeper.logFormat=xml"]);
    refuses(empty_folder().path(), &spec, &["ringkeeper.logFormat", "neither text nor json"]);
}

#[test]
fn a_port_in_use_is_named_with_the_remedy() {
    let spec = ServerSpec::new();
    let _other = TcpListener::bind(spec.address).expect("a free port");
    let folder = empty_folder();
    fails(folder.path(), &spec, &[&spec.address.to_string(), "in use", "--client-port"]);
}

#[test]
fn an_address_of_another_machine_is_named_with_the_remedy() {
    let mut spec = ServerSpec::new();
    spec.address.set_ip([192, 0, 2, 1].into());
    fails(empty_folder().path(), &spec, &["192.0.2.1", "--client-address"]);
}

#[test]
fn a_second_server_on_a_folder_is_refused_and_the_first_goes_on() {
    let server = Server::start();
    let data_dir = server.data_dir();
    let data_dir = data_dir.to_str().expect("UTF-8");
    fails(server.folder(), &ServerSpec::new().with(&["-d", data_dir]), &[data_dir, "in use", "--data-dir"]);
    Client::connect(server.address(), 10_000).create("/a", b"", CreateMode::Persistent);
}

#[test]
fn a_folder_of_apache_zookeeper_is_refused_and_left_alone() {
    let folder = empty_folder();
    let theirs = folder.path().join("data/version-2");
    fs::create_dir_all(&theirs).expect("made");
    fs::write(theirs.join("log.1"), b"ZKLG\0\0\0\x02").expect("written");
    refuses(folder.path(), &ServerSpec::new().with(&["-d", "data"]), &["ZooKeeper", "--data-dir"]);
    let left: Vec<_> =
        fs::read_dir(&theirs).expect("there").map(|entry| entry.expect("read").file_name()).collect();
    assert_eq!(left, ["log.1"]);
    assert_eq!(fs::read(theirs.join("log.1")).expect("there"), b"ZKLG\0\0\0\x02");
}

#[test]
fn a_folder_that_cannot_be_made_is_named_with_the_remedy() {
    let folder = empty_folder();
    fs::write(folder.path().join("file"), b"").expect("written");
    refuses(folder.path(), &ServerSpec::new().with(&["-d", "file/data"]), &["file/data", "--data-dir"]);
}

#[test]
fn wrong_options_are_named_and_nothing_is_made() {
    for (option, words) in [
        ("tickTime=soon", &["tickTime", "\"soon\""][..]),
        ("tickTime=0", &["tickTime", "0 is not a number from 1"]),
        ("clientPort=70000", &["clientPort", "70000"]),
        ("jute.maxbuffer=-1", &["jute.maxbuffer", "-1"]),
        ("skipACL=perhaps", &["skipACL", "\"perhaps\"", "yes", "no"]),
        ("DigestAuthenticationProvider.superDigest=secret", &["superDigest", "user:base64"]),
        ("minSessionTimeout=50000", &["minSessionTimeout", "50000", "40000"]),
        ("tickTime", &["tickTime", "KEY=VALUE"]),
    ] {
        let folder = empty_folder();
        refuses(folder.path(), &ServerSpec::new().with(&["-o", option]), words);
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0, "{option}");
    }
}

#[test]
fn a_wrong_configuration_file_is_named_with_the_line() {
    for (text, words) in [
        ("dataDir=data\nclientPort=2181\ntickTime=2s\n", &["zoo.cfg:3", "tickTime", "\"2s\""][..]),
        ("clientPort=2181\n", &["zoo.cfg", "dataDir is missing"]),
        ("dataDir=data\n", &["zoo.cfg", "clientPort is missing"]),
        ("dataDir=data\nclientPort=2181\nserver.1=host\n", &["zoo.cfg:3", "server.1", "host:quorumPort"]),
    ] {
        let folder = empty_folder();
        fs::write(folder.path().join("zoo.cfg"), text).expect("written");
        refuses(folder.path(), &ServerSpec::new().with(&["-c", "zoo.cfg"]), words);
    }
    refuses(
        empty_folder().path(),
        &ServerSpec::new().with(&["-c", "none.cfg"]),
        &["none.cfg", "cannot be read"],
    );
}

#[test]
fn a_log_that_was_left_in_the_data_folder_is_not_begun_anew_in_another_one() {
    let folder = empty_folder();
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).to_str().expect("UTF-8").to_owned();
    let server = Server::start_with(&["--data-dir", &text("data")]);
    Client::connect(server.address(), 10_000).create("/a", b"1", CreateMode::Persistent);
    server.kill();
    let apart = ["--data-dir", &text("data"), "--data-log-dir", &text("log")];
    let words = ["/log (dataLogDir) has no log", "/data has one", "move `meta`"];
    refuses(folder.path(), &ServerSpec::new().with(&apart), &words);
    for file in fs::read_dir(path("data")).expect("a folder").map(|file| file.expect("one")) {
        let name = file.file_name().into_string().expect("UTF-8");
        if name == "meta" || name.starts_with("log.") {
            fs::rename(file.path(), path("log").join(name)).expect("moved");
        }
    }
    let server = Server::start_with(&apart);
    let mut client = Client::connect(server.address(), 10_000);
    assert_eq!(client.get("/a", false).as_deref(), Some(&b"1"[..]));
}
