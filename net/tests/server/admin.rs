//! The admin listener, as probes, monitoring and operators meet it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use ringkeeper_testkit::own_address;
use ringkeeper_wire::{AclEntry, CreateMode, Perms, Request, SetAclRequest};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::support::{Client, Server, ServerSpec, get, request, run_to_end, wait_for};

/// ZooKeeper's port, which a server on a loopback address of its own has there.
const PORT: u16 = 8080;

fn admin(server: &Server) -> SocketAddr {
    (server.address().ip(), PORT).into()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// Each command, with its other names and its fields before `command` and `error`.
const COMMANDS: &[(&str, &[&str], &str)] = &[
    (
        "configuration",
        &["conf", "config"],
        "client_port data_dir data_log_dir tick_time max_client_cnxns min_session_timeout \
         max_session_timeout server_id client_port_listen_backlog",
    ),
    ("connection_stat_reset", &["crst"], ""),
    ("connections", &["cons"], "connections secure_connections"),
    ("dirs", &[], "datadir_size logdir_size"),
    ("dump", &[], "expiry_time_to_session_ids expiry_time_to_session_ids_hex session_id_to_ephemeral_paths"),
    ("ensemble", &[], "server_id server_state missing leader_id epoch last_zxid_hex appends servers"),
    ("get_trace_mask", &["gtmk"], "tracemask"),
    ("hash", &[], "digests"),
    ("initial_configuration", &["icfg"], "initial_configuration"),
    ("is_read_only", &["isro"], "read_only"),
    ("last_snapshot", &["lsnp"], "zxid timestamp"),
    ("observer_connection_stat_reset", &["orst"], ""),
    ("log_level", &[], "levels changes"),
    ("ruok", &[], ""),
    ("server_stats", &["srvr"], "version read_only server_stats client_response node_count"),
    ("set_trace_mask?traceMask=77", &["stmk?traceMask=77"], "tracemask"),
    ("slow_requests", &[], "slow_request_ms total findings slow_requests"),
    ("stat_reset", &["srst"], ""),
    (
        "stats",
        &["stat"],
        "version read_only server_stats client_response node_count connections secure_connections",
    ),
    ("voting_view", &[], "current_config"),
    ("watch_summary", &["wchs"], "num_connections num_paths num_total_watches"),
    ("watches", &["wchc"], "session_id_to_watched_paths"),
    ("watches_by_path", &["wchp"], "path_to_session_ids path_to_session_ids_hex"),
    ("zabstate", &[], "voting zabstate"),
];

#[test]
fn every_command_has_zookeepers_fields_in_its_order_under_each_of_its_names() {
    let server = Server::start_with(&["--shards", "3"]);
    let index = get(admin(&server), "/commands");
    assert!(index.head.contains("text/html"), "{}", index.head);
    for (name, others, fields) in COMMANDS {
        let primary = name.split('?').next().expect("a name");
        assert!(
            index.text().contains(&format!("<a href=\"/commands/{primary}\">{primary}</a>")),
            "{primary}"
        );
        let expected: Vec<_> = fields.split_whitespace().chain(["command", "error"]).collect();
        for asked in others.iter().chain([name]) {
            let answer = get(admin(&server), &format!("/commands/{asked}"));
            let shown = answer.json();
            assert_eq!(keys(&shown), expected, "{asked}");
            assert_eq!(
                (answer.status, &shown["command"], &shown["error"]),
                (200, &json!(primary), &Value::Null)
            );
            assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
        }
    }
    for (name, some) in [
        ("environment", "host.name"),
        ("system_properties", "os.name"),
        ("monitor", "znode_count"),
        ("monitor", "server_state"),
    ] {
        let shown = get(admin(&server), &format!("/commands/{name}")).json();
        assert!(shown.get(some).is_some() && shown["error"].is_null(), "{shown}");
    }
    let leader = get(admin(&server), "/commands/leader").json();
    assert_eq!(keys(&leader)[..2], ["error", "command"], "its own error stands in front");
}

#[test]
fn numbers_agree_with_the_clients_that_they_are_about() {
    let server = Server::start_with(&["--shards", "3"]);
    let mut client = Client::connect(server.address(), 30_000);
    client.create("/e", b"12345", CreateMode::Ephemeral);
    assert!(client.exists("/e", true));
    let session = client.session.id;
    let (decimal, hex) = (session.0.to_string(), session.to_string());
    let show = |name: &str| get(admin(&server), &format!("/commands/{name}")).json();
    assert_eq!(show("dump")["session_id_to_ephemeral_paths"][&decimal], json!(["/e"]));
    assert_eq!(show("watches")["session_id_to_watched_paths"][&decimal], json!(["/e"]));
    let watched = show("watches_by_path");
    assert_eq!(watched["path_to_session_ids"], json!({ "/e": [session.0] }));
    assert_eq!(watched["path_to_session_ids_hex"], json!({ "/e": [hex] }));
    assert_eq!(show("watch_summary")["num_total_watches"], 1);
    let connections = show("connections");
    let [connection] = connections["connections"].as_array().expect("a list").as_slice() else {
        panic!("one connection, not {connections}");
    };
    assert_eq!((&connection["session_id_hex"], &connection["last_operation"]), (&json!(hex), &json!("EXIS")));
    assert_eq!(connection["session_timeout"], 30_000);
    let monitor = show("monitor");
    assert_eq!((&monitor["ephemerals_count"], &monitor["server_state"]), (&json!(1), &json!("standalone")));
    show("set_trace_mask?traceMask=77");
    assert_eq!(show("get_trace_mask")["tracemask"], 77);
    assert_eq!(
        show("set_trace_mask?traceMask=x")["error"],
        "setTraceMask requires long traceMask argument, got x"
    );
    assert!(show("server_stats")["server_stats"]["packets_received"].as_u64() >= Some(3));
    show("stat_reset");
    assert_eq!(show("server_stats")["server_stats"]["packets_received"], 0);
    client.close();
}

#[test]
fn paths_and_methods_that_there_are_not_are_refused_by_name() {
    let server = Server::start();
    for (method, path, status, allowed) in [
        ("POST", "/commands/stats", 405, "allow: get, head"),
        ("PUT", "/commands", 405, "allow: get, head"),
        ("TRACE", "/metrics", 405, "allow: get, head"),
        ("GET", "/commands/restore", 405, "allow: post"),
        ("POST", "/commands/restore", 503, ""),
        ("GET", "/commands/nonsense", 200, ""),
        ("GET", "/commandsx", 404, ""),
        ("GET", "/", 307, "location: dashboard/"),
        ("GET", "/nonsense", 404, ""),
        ("GET", "/livez/nonsense", 404, ""),
        ("GET", "/livez?exclude=nonsense", 400, ""),
        ("HEAD", "/commands/stats", 200, "content-length: "),
    ] {
        let answer = request(admin(&server), method, path, "");
        assert_eq!(answer.status, status, "{method} {path}");
        assert!(answer.head.contains(allowed), "{method} {path}: {}", answer.head);
        assert_eq!(answer.body.is_empty(), method == "HEAD", "{method} {path}");
    }
    let unknown = get(admin(&server), "/commands/nonsense").json();
    assert_eq!(unknown, json!({ "command": "nonsense", "error": "Unknown command: nonsense" }));
}

#[test]
fn probes_tell_that_a_server_lives_and_serves() {
    let server = Server::start();
    for probe in ["livez", "readyz", "startupz"] {
        let answer = get(admin(&server), &format!("/{probe}"));
        assert_eq!((answer.status, answer.text()), (200, "ok"), "{probe}");
    }
    let verbose = get(admin(&server), "/readyz?verbose&exclude=disk");
    let expected =
        "[+]recovery ok\n[+]executors ok\n[+]log ok\n[+]leader ok\n[+]lag ok\nreadyz check passed\n";
    assert_eq!(verbose.text(), expected);
    assert_eq!(get(admin(&server), "/readyz/leader").text(), "ok");
    assert_eq!(get(admin(&server), "/version").json()["zookeeper"], "3.9.5");
}

#[test]
fn metrics_are_scraped_at_the_admin_listener_and_at_a_port_of_their_own() {
    let address = own_address();
    let port: SocketAddr = (address, 7000).into();
    let class = "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider";
    let host = format!("metricsProvider.httpHost={address}");
    let server = Server::start_with(&["-o", class, "-o", &host]);
    for place in [admin(&server), port] {
        let answer = get(place, "/metrics");
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("content-type: text/plain; version=0.0.4"), "{}", answer.head);
        assert!(answer.text().contains("\n# TYPE znode_count gauge\nznode_count 5\n"), "{}", answer.text());
    }
    for path in ["/commands", "/commands/stats", "/livez", "/version"] {
        assert_eq!(get(port, path).status, 404, "{path}");
    }
}

#[test]
fn a_port_in_use_stops_the_start_only_if_the_operator_has_named_it() {
    let spec = ServerSpec::new();
    let taken = TcpListener::bind((spec.address.ip(), PORT)).expect("free");
    let named = spec.clone().with(&["-o", "admin.serverPort=8080"]);
    let folder = tempfile::tempdir().expect("a folder");
    let ended = run_to_end(folder.path(), &named);
    let said = String::from_utf8(ended.stderr).expect("UTF-8");
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("{}:8080", spec.address.ip())) && said.contains("admin.serverPort"),
        "{said}"
    );
    let server = Server::start_at(spec);
    assert!(server.log().contains("there is no admin listener"), "{}", server.log());
    drop(taken);
    let off = Server::start_with(&["-o", "admin.enableServer=false"]);
    assert!(TcpStream::connect(admin(&off)).is_err());
}

#[test]
fn a_snapshot_is_for_who_may_do_everything_and_is_read_by_the_import() {
    let server = Server::start_with(&["-o", "admin.rateLimiterIntervalInMS=0"]);
    let mut client = Client::connect(server.address(), 30_000);
    client.create("/a", b"kept", CreateMode::Persistent);
    let path = "/commands/snapshot";
    let with = |credentials: &str| {
        request(admin(&server), "GET", path, &format!("Authorization: {credentials}\r\n"))
    };
    assert_eq!(get(admin(&server), path).json()["error"], "Auth info is missing for the command");
    assert_eq!(get(admin(&server), path).status, 401);
    assert_eq!((with("nonsense a:b").status, with("digest a:b").status), (401, 200));
    let answer = with("digest a:b");
    assert!(answer.head.contains("content-type: application/octet-stream"), "{}", answer.head);
    let header = |name: &str| {
        let line = answer.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {name} in {}", answer.head)).to_owned()
    };
    assert_eq!(header("snapshot_size"), answer.body.len().to_string());
    let zxid = header("last_zxid");
    let folder = tempfile::tempdir().expect("a folder");
    let theirs = folder.path().join("theirs/version-2");
    std::fs::create_dir_all(&theirs).expect("made");
    let name = format!("snapshot.{}", zxid.trim_start_matches("0x"));
    std::fs::write(theirs.join(name), &answer.body).expect("written");
    let imported = std::process::Command::new(env!("CARGO_BIN_EXE_ringkeeper"))
        .args(["import", "--from", "theirs", "--to", "ours"])
        .current_dir(folder.path())
        .output()
        .expect("run");
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    let ours = folder.path().join("ours");
    let copy = Server::start_with(&["-d", ours.to_str().expect("UTF-8")]);
    assert_eq!(Client::connect(copy.address(), 30_000).get("/a", false).as_deref(), Some(&b"kept"[..]));
    let acl = [AclEntry { perms: Perms::ALL, scheme: "digest".to_owned(), id: "b:hash".to_owned() }];
    client.call_ok(&Request::SetAcl(SetAclRequest {
        path: "/".into(),
        acl: Some(acl.as_slice().into()),
        version: -1,
    }));
    assert_eq!(with("digest a:b").status, 403);
    assert_eq!(with("ip").status, 403);
}

#[test]
fn whoever_floods_the_listener_keeps_neither_scrapes_nor_clients_waiting() {
    let server = Server::start();
    let mut client = Client::connect(server.address(), 30_000);
    let address = admin(&server);
    let long = format!("GET /livez HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(10 << 20));
    let mut halves = Vec::new();
    thread::scope(|scope| {
        let scrapes = scope.spawn(|| (0..50).for_each(|_| assert_eq!(get(address, "/metrics").status, 200)));
        let stranger = own_address();
        for _ in 0..1000 {
            let half = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            half.bind(&SocketAddr::from((stranger, 0)).into()).expect("a loopback address");
            half.connect(&address.into()).expect("connected");
            // The listener may have closed it for a newer one.
            let _ = half.send(b"GET /livez HTTP/1.1\r\nhos");
            halves.push(half);
        }
        while !scrapes.is_finished() {
            assert!(client.exists("/", false));
        }
        scrapes.join().expect("every scrape is answered");
    });
    assert_eq!(get(address, "/livez").status, 200);
    let mut stream = TcpStream::connect(address).expect("connected");
    let _ = stream.write_all(long.as_bytes());
    let mut answer = Vec::new();
    // The rest of the header may be reset.
    let _ = stream.read_to_end(&mut answer);
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    assert_eq!(get(address, "/readyz").status, 200);
}

#[test]
fn the_level_of_the_log_changes_at_once_for_who_may_do_everything() {
    let server = Server::start();
    let mut client = Client::connect(server.address(), 30_000);
    let path = "/commands/log_level";
    let levels = || get(admin(&server), path).json()["levels"].clone();
    let post = |query: &str, credentials: &str| {
        request(
            admin(&server),
            "POST",
            &format!("{path}?{query}"),
            &format!("Authorization: {credentials}\r\n"),
        )
    };
    assert_eq!(levels(), "info");
    assert_eq!(request(admin(&server), "POST", &format!("{path}?level=debug"), "").status, 401);
    assert_eq!(get(admin(&server), &format!("{path}?level=debug")).json()["levels"], "info");
    let refused = post("level=loud", "ip");
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("off, error, warn, info, debug, trace"), "{}", refused.text());
    let command = |arguments: &[&str]| {
        let address = admin(&server).to_string();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ringkeeper"));
        let ended = command.args(["admin", "log-level", "--server", &address]).args(arguments).output();
        let ended = ended.expect("it runs");
        String::from_utf8(ended.stdout).expect("UTF-8") + &String::from_utf8_lossy(&ended.stderr)
    };
    let told = command(&["ringkeeper_runtime=debug", "--for", "1h"]);
    assert!(told.contains("changed: ringkeeper_runtime to debug for 3"), "{told}");
    let told_of_changes = || server.log().matches("the level of the log was changed").count();
    // A thread of its own writes the log.
    let wait_until_told = |count| wait_for("the log", || (told_of_changes() >= count).then_some(()));
    wait_until_told(1);
    assert_eq!(told_of_changes(), 1);
    assert_eq!(command(&["warn"]).lines().next(), Some("ringkeeper_runtime=debug,warn"));
    assert!(command(&["loud"]).contains("the server says: \"loud\" is not a level"));
    assert_eq!(command(&["ringkeeper_runtime=usual"]).lines().next(), Some("warn"));
    assert_eq!(post("level=debug&for=1ms", "ip").status, 200);
    wait_until_told(2);
    assert_eq!(told_of_changes(), 2, "lines of the level info are left out at warn and shown at debug");
    wait_for("the usual level", || (levels() == "info").then_some(()));
    let acl = [AclEntry { perms: Perms::ALL, scheme: "digest".to_owned(), id: "b:hash".to_owned() }];
    client.call_ok(&Request::SetAcl(SetAclRequest {
        path: "/".into(),
        acl: Some(acl.as_slice().into()),
        version: -1,
    }));
    assert_eq!(post("level=debug", "ip").status, 403);
}
