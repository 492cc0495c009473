//! `ringkeeper tail`: what was committed, from any zxid that the log has.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};

use ringkeeper_wire::{AclEntry, CreateMode, Perms, Request, SetAclRequest, SetDataRequest};
use serde_json::{Value, json};

use crate::support::{Client, Server, request, wait_for};

/// A snapshot every 50 to 100 transactions, segments of 64 KiB: the log is purged soon.
const SMALL: [&str; 4] = ["-o", "snapCount=100", "-o", "preAllocSize=64"];

fn admin(server: &Server) -> SocketAddr {
    (server.address().ip(), 8080).into()
}

fn tail(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringkeeper"));
    command.args(["tail", "--server", &admin(server).to_string()]).args(arguments).stdin(Stdio::null());
    command
}

fn run(server: &Server, arguments: &[&str]) -> Output {
    tail(server, arguments).output().expect("run")
}

fn objects(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::str::from_utf8(&output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

/// The fields that a test knows beforehand.
fn known(object: &Value) -> Value {
    let known = ["op", "path", "data", "data_base64", "version"];
    known.iter().filter_map(|key| Some(((*key).to_owned(), object.get(key)?.clone()))).collect()
}

struct Following(Child);

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn transactions_are_shown_from_a_zxid_with_their_data_and_by_subtree() {
    let server = Server::start();
    let mut client = Client::connect(server.address(), 30_000);
    client.create("/a", b"text", CreateMode::Persistent);
    client.create("/a/b", &[0xff, 0], CreateMode::Persistent);
    client.create("/ab", b"", CreateMode::Persistent);
    client.call_ok(&Request::SetData(SetDataRequest { path: "/a".into(), data: None, version: -1 }));
    client.delete("/a/b");
    let all = objects(&run(&server, &["--from", "0x100000001", "--once", "--json"]));
    let zxids: Vec<_> = all.iter().map(|object| object["zxid"].as_str().expect("text")).collect();
    let expected: Vec<_> = (1..=6).map(|counter| format!("0x10000000{counter}")).collect();
    assert_eq!(zxids, expected);
    let changes: Vec<_> = all[1..].iter().map(known).collect();
    let expected = [
        json!({ "op": "create", "path": "/a", "data": "text" }),
        json!({ "op": "create", "path": "/a/b", "data_base64": "/wA=" }),
        json!({ "op": "create", "path": "/ab", "data": "" }),
        json!({ "op": "setData", "path": "/a", "data": null, "version": 1 }),
        json!({ "op": "delete", "path": "/a/b" }),
    ];
    assert_eq!(changes, expected);
    let some = objects(&run(&server, &["--from", "0x100000003", "--once", "--json", "--path", "/a"]));
    assert_eq!(
        some.iter().map(known).collect::<Vec<_>>(),
        [&expected[1], &expected[3], &expected[4]].map(Clone::clone)
    );
}

#[test]
fn a_tail_follows_until_it_is_stopped_also_over_a_restart_of_the_server() {
    let server = Server::start();
    let mut client = Client::connect(server.address(), 30_000);
    let mut child = tail(&server, &["--from", "1", "--path", "/a", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let _following = Following(child);
    let mut next = || {
        let line = lines.next().expect("another line").expect("read");
        known(&serde_json::from_str(&line).expect("an object"))
    };
    client.create("/a", b"1", CreateMode::Persistent);
    assert_eq!(next(), json!({ "op": "create", "path": "/a", "data": "1" }));
    server.kill();
    let server = server.restart();
    Client::resume(server.address(), 30_000, client.session).expect("alive").set("/a", b"2");
    assert_eq!(next(), json!({ "op": "setData", "path": "/a", "data": "2", "version": 1 }));
}

#[test]
fn a_zxid_that_the_log_no_longer_has_is_refused_with_the_one_where_it_begins() {
    let server = Server::start_with(&SMALL);
    let mut client = Client::connect(server.address(), 30_000);
    client.create("/a", b"", CreateMode::Persistent);
    let gone = wait_for("a purged log", || {
        (0..50).for_each(|_| client.set("/a", &[7; 1000]));
        let answer = request(admin(&server), "GET", "/commands/feed?after=0", "authorization: ip\r\n");
        (answer.status == 410).then(|| answer.json())
    });
    let begins = gone["log_begins_after"].as_str().expect("a zxid").to_owned();
    let refused = run(&server, &["--from", "1", "--once"]);
    let said = String::from_utf8(refused.stderr).expect("UTF-8");
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("the server's log begins after 0x1") && said.contains("--from 0x1"), "{said}");
    let header = "authorization: ip\r\n";
    let answer = request(admin(&server), "GET", &format!("/commands/feed?after={begins}"), header);
    assert!(matches!(answer.status, 200 | 410), "{}", answer.head);
}

#[test]
fn the_feed_is_for_who_may_do_everything() {
    let server = Server::start();
    let ask = |header: &str, query: &str| {
        request(admin(&server), "GET", &format!("/commands/feed{query}"), header).status
    };
    assert_eq!(ask("", ""), 401);
    assert_eq!(ask("authorization: ip\r\n", "?after=x"), 400);
    assert_eq!(ask("authorization: ip\r\n", "?after=0"), 200);
    let mut client = Client::connect(server.address(), 30_000);
    let acl = [AclEntry { perms: Perms::ALL, scheme: "digest".to_owned(), id: "b:hash".to_owned() }];
    let acl = Some(acl.as_slice().into());
    client.call_ok(&Request::SetAcl(SetAclRequest { path: "/".into(), acl, version: -1 }));
    assert_eq!(ask("authorization: ip\r\n", "?after=0"), 403);
    assert_eq!(ask("authorization: digest a:b\r\n", "?after=0"), 403);
}
