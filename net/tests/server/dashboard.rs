//! The dashboard, as browsers meet it: who is served, who reads the tree by it, and who changes it.

use std::net::SocketAddr;

use ringkeeper_wire::CreateMode;
use serde_json::{Value, json};

use crate::support::{Answer, Client, Server, get, post, request_by_name, wait_for};

/// The super user's password is "test".
const SUPER: &str = "DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
const AS_SUPER: &str = "authorization: digest super:test\r\n";
const AS_BOB: &str = "authorization: digest bob:secret\r\n";
const NAMELESS: &str = "authorization: ip\r\n";

fn admin(server: &Server) -> SocketAddr {
    (server.address().ip(), 8080).into()
}

fn ask(server: &Server, name: &str, header: &str, body: Value) -> Answer {
    post(admin(server), &format!("/dashboard/{name}"), header, &body)
}

fn create(path: &str, acl: Value) -> Value {
    json!({ "change": "create", "path": path, "data_base64": "aGk=", "acl": [acl] })
}

fn anyone() -> Value {
    json!({ "scheme": "world", "id": "anyone", "perms": 31 })
}

fn set_data(path: &str, version: i32) -> Value {
    json!({ "change": "setData", "path": path, "data_base64": "bmV3", "version": version })
}

#[test]
fn the_dashboard_is_a_page_that_may_load_nothing_from_elsewhere() {
    let server = Server::start();
    for path in ["/", "/dashboard"] {
        let answer = get(admin(&server), path);
        assert!(
            answer.status == 307 && answer.head.contains("\r\nlocation: dashboard/\r\n"),
            "{}",
            answer.head
        );
    }
    let named = |host: &str, path: &str| request_by_name(admin(&server), host, "GET", path, "");
    let page = named("localhost:8080", "/dashboard/");
    for part in [
        "content-security-policy: default-src 'none'; script-src 'self';",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "content-type: text/html",
    ] {
        assert!(page.status == 200 && page.head.contains(part), "{part} in {}", page.head);
    }
    let script = named("127.0.0.1", "/dashboard/main.js");
    assert!(script.head.contains("content-type: text/javascript"), "{}", script.head);
    assert_eq!(named("localhost", "/dashboard/facts").json()["commands"], "/commands");
    assert_eq!(named("localhost", "/dashboard/../../etc/passwd").status, 404);
    assert_eq!(request_by_name(admin(&server), "localhost", "POST", "/dashboard/", "").status, 405);
    let refused = named("evil.example.org", "/dashboard/");
    assert_eq!(refused.status, 421);
    assert!(refused.text().contains("ringkeeper.dashboard.hosts"), "{}", refused.text());
}

#[test]
fn the_operator_says_by_which_names_there_is_a_dashboard_and_whether() {
    let named = Server::start_with(&["-o", "ringkeeper.dashboard.hosts=other.example.org, zk.example.org"]);
    let asked = |server| request_by_name(admin(server), "zk.example.org", "GET", "/dashboard/", "").status;
    assert_eq!(asked(&named), 200);
    let off = Server::start_with(&["-o", "ringkeeper.dashboard.enabled=false"]);
    assert_eq!((asked(&off), get(admin(&off), "/commands/ruok").status), (404, 200));
}

#[test]
fn the_tree_is_read_with_the_permissions_of_who_asks() {
    let server = Server::start_with(&["-o", SUPER]);
    let bob = json!({ "scheme": "digest", "id": "bob:fyVmFCwVbTJYrznoSu1koqYEYF0=", "perms": 1 });
    for (path, acl) in [("/open", anyone()), ("/open/child", anyone()), ("/closed", bob)] {
        let made = ask(&server, "change", AS_SUPER, create(path, acl));
        assert_eq!(made.status, 200, "{}", made.text());
    }
    let status =
        |name: &str, header: &str, path: &str| ask(&server, name, header, json!({ "path": path })).status;
    assert_eq!(status("children", "", "/open"), 401);
    assert_eq!(status("children", "authorization: nonsense x:y\r\n", "/open"), 401);
    assert_eq!((status("children", NAMELESS, "/open"), status("children", NAMELESS, "/closed")), (200, 403));
    assert_eq!((status("children", NAMELESS, "/none"), status("znode", NAMELESS, "/none")), (404, 404));
    let shown = ask(&server, "children", NAMELESS, json!({ "path": "/open" })).json();
    assert_eq!((&shown["total"], &shown["children"][0]["name"]), (&json!(1), &json!("child")));
    assert_eq!((status("znode", NAMELESS, "/closed"), status("znode", AS_SUPER, "/closed")), (403, 200));
    let read = ask(&server, "znode", AS_BOB, json!({ "path": "/closed" })).json();
    assert_eq!((&read["data_base64"], &read["acl"][0]["id"]), (&json!("aGk="), &json!("bob:x")), "{read}");
}

#[test]
fn a_znode_has_a_history_by_pages_for_who_may_read_it() {
    let server = Server::start_with(&["-o", SUPER]);
    let mut client = Client::connect(server.address(), 30_000);
    client.create("/a", b"former", CreateMode::Persistent);
    client.delete("/a");
    client.create("/a", b"0", CreateMode::Persistent);
    client.create("/ab", b"another", CreateMode::Persistent);
    for number in 1..=50 {
        client.set("/a", number.to_string().as_bytes());
    }
    client.set("/a", &[0xff]);
    let (mut changes, mut asked, mut pages) = (Vec::new(), json!({ "path": "/a" }), 0);
    let end = loop {
        let page = ask(&server, "history", NAMELESS, asked.clone()).json();
        let found = page["changes"].as_array().expect("a list");
        assert!(found.len() <= 20, "{page}");
        changes.extend(found.iter().cloned());
        pages += 1;
        match page["before_hex"].as_str() {
            Some(before) => asked["before_hex"] = json!(before),
            None => break page,
        }
    };
    assert_eq!((changes.len(), pages, &end["log_has_creation"]), (54, 3, &json!(true)));
    let of = |at: usize| json!([changes[at]["op"], changes[at]["version"], changes[at]["data"]]);
    assert_eq!((&changes[0]["data_base64"], &changes[0]["version"]), (&json!("/w=="), &json!(51)));
    assert_eq!((of(1), of(50)), (json!(["setData", 50, "50"]), json!(["setData", 1, "1"])));
    assert_eq!((of(51), of(52)), (json!(["create", null, "0"]), json!(["delete", null, null])));
    assert_eq!((of(53), &changes[53]["former"]), (json!(["create", null, null]), &json!(true)));
    assert_eq!(changes[0]["session_hex"], client.session.id.to_string());

    let bob = json!([{ "scheme": "digest", "id": "bob:fyVmFCwVbTJYrznoSu1koqYEYF0=", "perms": 1 }]);
    let closed = json!({ "change": "setAcl", "path": "/a", "version": 0, "acl": bob });
    assert_eq!(ask(&server, "change", AS_SUPER, closed).status, 200);
    let status = |header: &str, body: Value| ask(&server, "history", header, body).status;
    let of_a = || json!({ "path": "/a" });
    assert_eq!(["", NAMELESS, AS_BOB, AS_SUPER].map(|header| status(header, of_a())), [401, 403, 200, 200]);
    assert_eq!(status(NAMELESS, json!({ "path": "/none" })), 404);
    assert_eq!(status(AS_BOB, json!({ "path": "/a", "before_hex": "x" })), 400);
    let changes = |header: &str| ask(&server, "history", header, of_a()).json()["changes"].clone();
    let newest = &changes(AS_BOB)[0];
    assert_eq!(
        (&newest["op"], &newest["version"], &newest["entries"]),
        (&json!("setACL"), &json!(1), &json!(1))
    );
    // Bob may not have been a reader when the data was set.
    let told = |change: &Value| json!([change["bytes"], change["data"], change["withheld"]]);
    assert_eq!(told(&changes(AS_BOB)[2]), json!([2, null, true]));
    assert_eq!(told(&changes(AS_SUPER)[2]), json!([2, "50", null]));
    let all = ask(&server, "history", AS_BOB, of_a());
    assert!(!all.text().contains("\"data"), "{}", all.text());
    let elsewhere = format!("{AS_SUPER}origin: http://evil.example.org\r\n");
    assert_eq!(status(&elsewhere, of_a()), 403);
}

#[test]
fn a_history_tells_that_the_log_begins_later_than_the_znode() {
    let server = Server::start_with(&["-o", "snapCount=100", "-o", "preAllocSize=64"]);
    let mut client = Client::connect(server.address(), 30_000);
    client.create("/old", b"0", CreateMode::Persistent);
    client.create("/other", b"", CreateMode::Persistent);
    let end = wait_for("a purged log", || {
        (0..50).for_each(|_| client.set("/other", &[7; 1000]));
        let page = ask(&server, "history", NAMELESS, json!({ "path": "/old" })).json();
        (page["log_has_creation"] == false).then_some(page)
    });
    assert_eq!((&end["changes"], &end["before_hex"]), (&json!([]), &Value::Null));
    let begins = end["log_begins_after_hex"].as_str().expect("a zxid");
    assert!(begins.starts_with("0x1"), "{end}");
}

#[test]
fn super_users_alone_change_the_tree_unless_the_operator_says_otherwise() {
    let of = |editors: &str| {
        let server =
            Server::start_with(&["-o", SUPER, "-o", &format!("ringkeeper.dashboard.editors={editors}")]);
        let mut client = Client::connect(server.address(), 30_000);
        client.create("/n", b"old", CreateMode::Persistent);
        let status = |header| ask(&server, "change", header, set_data("/n", -1)).status;
        let statuses = [NAMELESS, AS_BOB, AS_SUPER].map(status);
        (statuses, client.get("/n", false).expect("there"))
    };
    assert_eq!(of("super"), ([403, 403, 200], b"new".to_vec()));
    assert_eq!(of("users"), ([403, 200, 200], b"new".to_vec()));
    assert_eq!(of("nobody"), ([403, 403, 403], b"old".to_vec()));
}

#[test]
fn a_change_needs_the_version_that_was_seen() {
    let server = Server::start_with(&["-o", SUPER]);
    let change = |body| {
        let answer = ask(&server, "change", AS_SUPER, body);
        (answer.status, answer.json()["error"].as_str().unwrap_or_default().to_owned())
    };
    let of = |status, error: &str| (status, error.to_owned());
    assert_eq!(change(create("/n", anyone())), of(200, ""));
    assert_eq!(change(create("/n", anyone())), of(409, "NodeExists"));
    assert_eq!(change(set_data("/n", 0)), of(200, ""));
    assert_eq!(change(set_data("/n", 0)), of(409, "BadVersion"));
    assert_eq!(
        change(json!({ "change": "setData", "path": "/n", "data_base64": "" })),
        of(400, "version is missing")
    );
    let readers = json!([{ "scheme": "world", "id": "anyone", "perms": 1 }]);
    assert_eq!(
        change(json!({ "change": "setAcl", "path": "/n", "version": 0, "acl": readers })),
        of(200, "")
    );
    assert_eq!(change(json!({ "change": "delete", "path": "/n", "version": 0 })), of(409, "BadVersion"));
    assert_eq!(change(json!({ "change": "delete", "path": "/n", "version": 1 })), of(200, ""));
    assert_eq!(change(set_data("/n", -1)), of(404, "NoNode"));
}

#[test]
fn a_change_is_in_the_audit_log_under_the_name_of_who_made_it() {
    let server = Server::start_with(&["-o", SUPER, "-o", "audit.enable=true"]);
    assert_eq!(ask(&server, "change", AS_SUPER, create("/made", anyone())).status, 200);
    let record = wait_for("the record", || {
        let shown = ask(&server, "audit", AS_SUPER, json!({})).json();
        let lines = shown["lines"].as_array().expect("a list").clone();
        lines.iter().filter_map(Value::as_str).find(|line| line.contains("znode=/made")).map(str::to_owned)
    });
    for part in ["user=127.0.0.1,super", "ip=127.0.0.1", "operation=create"] {
        assert!(record.contains(part), "{part} in {record}");
    }
    assert_eq!(ask(&server, "audit", AS_BOB, json!({})).status, 403);
}

#[test]
fn a_page_from_elsewhere_changes_nothing() {
    let server = Server::start_with(&["-o", SUPER]);
    let status =
        |header: &str| ask(&server, "change", &format!("{AS_SUPER}{header}"), create("/n", anyone())).status;
    assert_eq!(status("origin: http://evil.example.org\r\n"), 403);
    assert_eq!(status("sec-fetch-site: cross-site\r\norigin: http://localhost\r\n"), 403);
    assert_eq!(get(admin(&server), "/dashboard/change").status, 421, "by an unknown name");
    assert_eq!(
        request_by_name(admin(&server), "localhost", "GET", "/dashboard/change", AS_SUPER).status,
        405
    );
    assert_eq!(request_by_name(admin(&server), "localhost", "OPTIONS", "/dashboard/change", "").status, 405);
    assert_eq!(status("origin: http://localhost\r\n"), 200);
}

#[test]
fn who_has_not_logged_in_where_clients_have_to_reads_nothing() {
    let required = ["-o", "enforce.auth.enabled=true", "-o", "enforce.auth.schemes=digest"];
    let server = Server::start_with(&required);
    let status = |header| ask(&server, "children", header, json!({ "path": "/" })).status;
    assert_eq!((status(NAMELESS), status(AS_BOB)), (403, 200));
}

#[test]
fn sessions_of_changes_end_with_them() {
    let server = Server::start_with(&["-o", SUPER]);
    for number in 0..100 {
        let made = ask(&server, "change", AS_SUPER, create(&format!("/n{number}"), anyone()));
        assert_eq!(made.status, 200, "{}", made.text());
    }
    wait_for("their end", || {
        let told = get(admin(&server), "/commands/monitor").json();
        (told["num_alive_connections"] == 0 && told["global_sessions"] == 0).then_some(())
    });
}
