//! The shell, against a server: one command, a script, exit codes, JSON.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use ringkeeper_wire::CreateMode;

use crate::support::{Client, Server};

/// A shell with its words and its input.
fn shell_with_input(server: &Server, words: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ringkeeper"))
        .args(["shell", "-s", &server.address().to_string()])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).expect("the shell reads");
    drop(stdin);
    child.wait_with_output().expect("a child")
}

fn shell(server: &Server, words: &[&str]) -> Output {
    shell_with_input(server, words, "")
}

/// What it says if it succeeds.
pub(crate) fn said(server: &Server, words: &[&str]) -> String {
    let Output { status, stdout, stderr } = shell(server, words);
    assert!(status.success(), "{words:?}: {status}, {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("UTF-8")
}

/// The exit code and what it says of the failure.
pub(crate) fn failure(server: &Server, words: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = shell(server, words);
    (status.code(), String::from_utf8(stderr).expect("UTF-8"))
}

#[test]
fn a_znode_is_created_read_changed_and_deleted() {
    let server = Server::start();
    assert_eq!(said(&server, &["create", "/a", "hello"]), "Created /a\n");
    assert_eq!(said(&server, &["create", "-s", "/a/n-", "-1"]), "Created /a/n-0000000000\n");
    assert_eq!(said(&server, &["get", "/a"]), "hello\n");
    assert_eq!(said(&server, &["ls", "/"]), "[a, zookeeper]\n");
    assert_eq!(said(&server, &["set", "-v", "0", "/a", "bye"]), "");
    assert!(said(&server, &["stat", "/a"]).contains("dataVersion = 1\n"));
    assert_eq!(said(&server, &["ls", "-R", "/a"]), "/a\n/a/n-0000000000\n");
    assert_eq!(said(&server, &["delete", "/a/n-0000000000"]), "");
    assert_eq!(said(&server, &["delete", "/a"]), "");
    assert_eq!(said(&server, &["ls", "/"]), "[zookeeper]\n");
}

#[test]
fn exit_codes_tell_a_refusal_from_wrong_usage_and_from_no_connection() {
    let server = Server::start();
    let (code, text) = failure(&server, &["get", "/none"]);
    assert_eq!((code, text.as_str()), (Some(1), "get /none: no such znode\n"));
    let (code, text) = failure(&server, &["creat", "/a"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("'create'"), "{text}");
    let (code, text) = failure(&server, &["ls", "none"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("\"none\""), "{text}");
    server.kill();
    let (code, text) = failure(&server, &["--connect-timeout", "300", "ls", "/"]);
    assert_eq!(code, Some(3));
    assert!(text.starts_with("connect: no server reachable"), "{text}");
}

/// What a shell says of these servers, without one of its own.
fn failure_at(servers: &str, words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ringkeeper"))
        .args(["shell", "-s", servers, "--connect-timeout", "300"])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("the binary was built");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    (output.status.code(), String::from_utf8(output.stderr).expect("UTF-8"))
}

#[test]
fn what_is_no_server_is_told_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let (code, text) = failure_at(&address, &["ls", "/"]);
    assert_eq!((code, text.as_str()), (Some(3), "connect: no server reachable: no answer\n"));
    // A script ends in the same way, before its first line.
    let (code, text) = failure_at(&address, &[]);
    assert_eq!((code, text.as_str()), (Some(3), "connect: no server reachable: no answer\n"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let (code, text) = failure_at(&address, &["ls", "/"]);
    assert_eq!(code, Some(3));
    assert!(text.contains("not a ZooKeeper server"), "{text}");
}

#[test]
fn wrong_words_are_told_with_what_to_do() {
    for (servers, words, told) in [
        ("127.0.0.1:no", &["ls", "/"][..], "a port is not a number"),
        ("127.0.0.1:1,,", &["ls", "/"], "a server is empty"),
        ("127.0.0.1:1", &["-t", "0", "ls", "/"], "0 is not in 1.."),
        ("127.0.0.1:1", &["--connect-timeout", "0", "ls", "/"], "cannot be used multiple times"),
        ("127.0.0.1:1", &["--auth", "secret", "ls", "/"], "SCHEME:AUTH"),
        ("127.0.0.1:1", &["gett", "/"], "'get'"),
        ("127.0.0.1:1", &["get"], "<PATH>"),
        ("127.0.0.1:1", &["get", "/a", "-x"], "'-x'"),
        ("127.0.0.1:1", &["get", "/a", "/b"], "'/b'"),
        ("127.0.0.1:1", &["create", "-t", "0", "/a"], "0 is not in 1.."),
        ("127.0.0.1:1", &["set", "-v", "one", "/a", "x"], "'one'"),
        ("127.0.0.1:1", &["find", "/", "--owner", "me"], "not a session id"),
        ("127.0.0.1:1", &["printwatches", "perhaps"], "on, off"),
    ] {
        let (code, text) = failure_at(servers, words);
        assert_eq!(code, Some(2), "{words:?}: {text}");
        assert!(text.contains(told), "{words:?}: {text}");
    }
}

#[test]
fn paths_that_are_none_are_refused_by_every_command() {
    let server = Server::start();
    for words in [
        &["get", "a"][..],
        &["ls", "/a/"],
        &["ls", "-R", "/a//b"],
        &["stat", "/a/../b"],
        &["create", "a", "x"],
        &["set", "/./a", "x"],
        &["delete", "a"],
        &["deleteall", "a"],
        &["getAcl", "a"],
        &["setAcl", "a", "world:anyone:r"],
        &["getAllChildrenNumber", "a"],
        &["getEphemerals", "a"],
        &["sync", "a"],
        &["setquota", "-n", "1", "a"],
        &["listquota", "a"],
        &["delquota", "a"],
        &["addWatch", "a"],
        &["removewatches", "a"],
        &["tree", "a"],
        &["du", "a"],
        &["find", "a"],
        &["cp", "a", "/b"],
        &["cp", "/zookeeper", "b"],
        &["export", "a"],
        &["edit", "a"],
    ] {
        let (code, text) = failure(&server, words);
        assert_eq!(code, Some(2), "{words:?}: {text}");
        assert!(text.contains("invalid path"), "{words:?}: {text}");
    }
    assert_eq!(said(&server, &["ls", "/"]), "[zookeeper]\n");
}

#[test]
fn answers_are_json_where_programs_read_them() {
    let server = Server::start();
    said(&server, &["create", "/a", "text"]);
    let parse = |text: String| serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
    let answer = parse(said(&server, &["--json", "get", "-s", "/a"]));
    assert_eq!((answer["data"].as_str(), answer["stat"]["version"].as_i64()), (Some("text"), Some(0)));
    let answer = parse(said(&server, &["--json", "ls", "/"]));
    assert_eq!(answer["children"], serde_json::json!(["a", "zookeeper"]));
    let lines = said(&server, &["--json", "tree", "/"]);
    let paths: Vec<_> = lines.lines().map(|line| parse(line.to_owned())["path"].clone()).collect();
    assert_eq!(paths, ["/", "/a", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"]);
}

#[test]
fn every_command_that_succeeds_answers_in_json() {
    let server = Server::start();
    let folder = server.folder().to_str().expect("UTF-8").to_owned();
    let script = format!(
        "create /a text\nset -s /a other\nset /a again\nget /a\nget -b /a\nstat /a\nls -R /a\nls -s /\n\
         create -e /a/e\ngetEphemerals\ngetAllChildrenNumber /\nsync /\nsetquota -n 5 /a\nlistquota /a\n\
         delquota -b /a\ndelquota /a\nlistquota /a\ngetAcl -s /a\nsetAcl /a world:anyone:cdrwa\n\
         addWatch /w\nremovewatches /w\nprintwatches off\nprintwatches\ntree /a\ndu /\nfind / -name a\n\
         cp /a /b\nexport /a {folder}/a.json\nexport /b\nimport /c {folder}/a.json\ndelete /a/e\n\
         deleteall /c\naddauth digest a:b\nwhoami\nconfig\nversion\nclose\nconnect\nquit\n"
    );
    let commands = script.lines().count();
    let output = shell_with_input(&server, &["--json"], &script);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8(output.stdout).expect("UTF-8");
    let answers: Vec<serde_json::Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(answers.iter().all(serde_json::Value::is_object), "{stdout}");
    // All but `quit`, and some of them several.
    assert!(answers.len() >= commands - 1, "{commands} commands, and the answers:\n{stdout}");
}

#[test]
fn watches_are_shown_in_json_too() {
    let server = Server::start();
    let output = shell_with_input(&server, &["--json"], "addWatch /w\ncreate /w\nsync /w\nls /\n");
    let shown = String::from_utf8(output.stderr).expect("UTF-8");
    let event: serde_json::Value =
        serde_json::from_str(shown.lines().next().unwrap_or_default()).expect("JSON");
    assert_eq!((&event["event"], &event["path"]), (&"NodeCreated".into(), &"/w".into()));
}

#[test]
fn a_subtree_is_exported_imported_copied_and_deleted() {
    let server = Server::start();
    let mut client = Client::connect(server.address(), 10_000);
    for (path, data) in [("/a", &b"\xff\x00"[..]), ("/a/b", b"x"), ("/a/b/c", b""), ("/a/d", b"y")] {
        client.create(path, data, CreateMode::Persistent);
    }
    client.create("/a/e", b"", CreateMode::Ephemeral);
    let file = server.folder().join("a.json");
    let file = file.to_str().expect("UTF-8");
    assert_eq!(said(&server, &["export", "/a", file]), "wrote 4 znodes\n");
    assert_eq!(said(&server, &["import", "/i", file]), "created 4 znodes\n");
    assert_eq!(said(&server, &["cp", "/a", "/c"]), "copied 4 znodes\n");
    for copy in ["/i", "/c"] {
        assert_eq!(client.get(copy, false).as_deref(), Some(&b"\xff\x00"[..]));
        assert_eq!(said(&server, &["tree", copy]), format!("{copy}\n├── b\n│   └── c\n└── d\n"));
    }
    let (code, text) = failure(&server, &["cp", "/a", "/a/b/z"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("within"), "{text}");
    said(&server, &["deleteall", "/i"]);
    assert_eq!(client.get("/i", false), None);
    assert_eq!(said(&server, &["find", "/", "--name", "[bd]"]), "/a/b\n/a/d\n/c/b\n/c/d\n");
    assert_eq!(said(&server, &["find", "/a", "-e"]), "/a/e\n");
}

#[test]
fn a_script_runs_in_one_session_and_ends_with_its_first_error() {
    let server = Server::start();
    let output = shell_with_input(&server, &[], "create -e /e\n# a note\nls /\nget /none\nls /\n");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Created /e\n[e, zookeeper]\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "get /none: no such znode\n");
    // The session was closed, not left to expire.
    assert_eq!(said(&server, &["ls", "/"]), "[zookeeper]\n");
}

#[test]
fn a_watch_is_shown_when_it_fires() {
    let server = Server::start();
    let output = shell_with_input(&server, &[], "addWatch /w\ncreate /w\nset /w 1\nsync /w\nls /\n");
    assert!(output.status.success());
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    let first = shown.lines().next().unwrap_or_default();
    assert!(first.starts_with("WATCHER:: NodeCreated path: /w"), "{shown}");
}

#[test]
fn quotas_are_set_listed_and_taken_away() {
    let server = Server::start();
    said(&server, &["create", "/a", "12345"]);
    said(&server, &["setquota", "-n", "5", "-B", "100", "/a"]);
    let listed = said(&server, &["listquota", "/a"]);
    assert_eq!(listed, "limits of /a: count=5,bytes=-1=;byteHardLimit=100\nuse of /a: count=1,bytes=5\n");
    said(&server, &["create", "/a/b"]);
    let (code, text) = failure(&server, &["setquota", "-n", "1", "/a/b"]);
    assert_eq!(code, Some(2));
    assert!(text.starts_with("/a has a quota already"), "{text}");
    said(&server, &["delquota", "/a"]);
    assert_eq!(said(&server, &["listquota", "/a"]), "no quota for /a\n");
    assert_eq!(said(&server, &["ls", "/zookeeper/quota"]), "[]\n");
}

#[test]
fn an_edit_stores_what_the_editor_leaves() {
    let server = Server::start();
    said(&server, &["create", "/a", "old text"]);
    let output = Command::new(env!("CARGO_BIN_EXE_ringkeeper"))
        .args(["shell", "-s", &server.address().to_string(), "edit", "/a"])
        .env_remove("VISUAL")
        .env("EDITOR", "sed -i s/old/new/")
        .output()
        .expect("a child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said(&server, &["get", "/a"]), "new text\n");
}
