//! Tenants: limits that are set while clients run, and hold for these clients and nobody else.

use ringkeeper_wire::{CreateMode, ErrorCode, PathWatchRequest, Request};

use crate::shell::{failure, said};
use crate::support::{Client, Server, get, wait_for};

const LIMITS: &str = "/zookeeper/quota/t/ringkeeper_limits";

fn read(path: &str) -> Request<'_> {
    Request::GetData(PathWatchRequest { path: path.into(), watch: false })
}

fn answer(client: &mut Client, request: &Request<'_>) -> Option<ErrorCode> {
    ErrorCode::from_wire(client.call(request).err)
}

/// A server with the znodes `/t` and `/u`, of which `/t` has these limits; and a client.
fn server(limits: &str, options: &[&str]) -> (Server, Client) {
    let server = Server::start_with(options);
    let mut client = Client::connect(server.address(), 40_000);
    for path in ["/t", "/u", "/zookeeper/quota/t"] {
        client.create(path, b"", CreateMode::Persistent);
    }
    client.create(LIMITS, limits.as_bytes(), CreateMode::Persistent);
    (server, client)
}

/// The value of a metric of `/t`.
fn metric(server: &Server, name: &str) -> Option<f64> {
    let metrics = get((server.address().ip(), 8080).into(), "/metrics");
    let line =
        metrics.text().lines().find_map(|line| line.strip_prefix(&format!("ringkeeper_tenant_{name} ")));
    line?.parse().ok()
}

#[test]
fn limits_are_set_listed_and_taken_away() {
    let server = Server::start();
    assert_eq!(said(&server, &["settenant", "/t/a", "burst=2", "ops=1000"]), "");
    assert_eq!(said(&server, &["settenant", "/b", "znodes=5"]), "");
    said(&server, &["setAcl", "/zookeeper/quota", "world:anyone:rcdw"]);
    assert_eq!(said(&server, &["settenant", "/c/d", ""]), "");
    for znode in ["c", "c/d", "c/d/ringkeeper_limits"] {
        let acl = said(&server, &["getAcl", &format!("/zookeeper/quota/{znode}")]);
        assert!(acl.ends_with(": cdrw\n"), "{acl}");
    }
    assert_eq!(said(&server, &["deltenant", "/c/d"]), "");
    assert_eq!(said(&server, &["settenant", "/b", "data=7"]), "");
    assert_eq!(said(&server, &["listtenants"]), "/b data=7\n/t/a burst=2 ops=1000\n");
    let json = r#"{"path":"/b","limits":{"data":7}}"#;
    assert_eq!(said(&server, &["--json", "listtenants"]).lines().next(), Some(json));
    let (code, text) = failure(&server, &["settenant", "/b", "znodes=5", "ops=0"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("word 2 of the limits: the value is a number from 1 to"), "{text}");
    let (code, text) = failure(&server, &["settenant", "/", "znodes=5"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("the root and /zookeeper cannot have limits"), "{text}");
    let (code, _) = failure(&server, &["settenant", "/t/a/b", "znodes=5"]);
    assert_eq!(code, Some(1));
    assert!(server.log().contains("no subtree with limits can be within another"));
    assert_eq!(said(&server, &["deltenant", "/t/a"]), "");
    assert_eq!(said(&server, &["deltenant", "/b"]), "");
    assert_eq!(said(&server, &["listtenants"]), "");
    assert_eq!(said(&server, &["ls", "/zookeeper/quota"]), "[]\n");
    assert_eq!(failure(&server, &["deltenant", "/b"]).0, Some(1));
}

#[test]
fn what_a_tenant_has_stored_is_known_after_a_restart() {
    let (server, mut client) = server("znodes=3 data=10", &[]);
    client.create("/t/a", b"12345", CreateMode::Persistent);
    drop(client);
    server.kill();
    let server = server.restart();
    let mut client = Client::connect(server.address(), 40_000);
    client.create("/t/b", b"12345", CreateMode::Persistent);
    client.send_create("/t/c", b"", CreateMode::Persistent);
    assert_eq!(client.reply().expect("a reply").err, ErrorCode::QuotaExceeded.to_wire());
    client.create("/u/c", b"", CreateMode::Persistent);
    assert!(server.log().contains("its tenant would have more znodes than it may"));
    for (name, expected) in [
        (r#"znodes{tenant="/t"}"#, 3.0),
        (r#"data_bytes{tenant="/t"}"#, 10.0),
        (r#"rejections_total{tenant="/t",limit="znodes"}"#, 1.0),
        (r#"limit{tenant="/t",limit="data"}"#, 10.0),
    ] {
        assert_eq!(metric(&server, name), Some(expected), "{name}");
    }
}

#[test]
fn a_session_whose_requests_wait_lives_though_its_pings_are_not_read_and_its_client_knows() {
    let (server, mut other) = server("ops=5", &[]);
    let mut client = Client::connect(server.address(), 4_000);
    for _ in 0..40 {
        client.send(&read("/t"));
    }
    assert_eq!(answer(&mut other, &read("/u")), Some(ErrorCode::Ok));
    for _ in 0..40 {
        assert_eq!(client.reply().expect("a reply").err, 0);
    }
    assert!(client.exists("/u", false), "the session lasts 4 s, and the requests took 7");
    assert!(client.unasked() > 0, "replies to pings that wait unread");
    assert_eq!(metric(&server, r#"ops_total{tenant="/t"}"#), Some(40.0));
    assert!(metric(&server, r#"delay_seconds_total{tenant="/t"}"#) > Some(5.0));
}

#[test]
fn requests_that_would_wait_too_long_are_refused_and_clients_of_others_are_not() {
    let (server, mut other) = server("ops=1", &["-o", "ringkeeper.tenantDelayMaxMs=100"]);
    let mut clients: Vec<Client> = (0..5).map(|_| Client::connect(server.address(), 40_000)).collect();
    clients.iter_mut().for_each(|client| _ = client.send(&read("/t")));
    for _ in 0..100 {
        assert_eq!(answer(&mut other, &read("/u")), Some(ErrorCode::Ok));
    }
    let codes: Vec<i32> = clients.iter_mut().map(|client| client.reply().expect("a reply").err).collect();
    assert!(codes.contains(&0) && codes.contains(&ErrorCode::ThrottledOp.to_wire()), "{codes:?}");
    said(&server, &["deltenant", "/t"]);
    wait_for("the end of the limits", || {
        let answers = clients.iter_mut().map(|client| answer(client, &read("/t")));
        answers.into_iter().all(|code| code == Some(ErrorCode::Ok)).then_some(())
    });
}

#[test]
fn watches_and_sessions_beyond_the_limits_are_refused_on_all_shards_together() {
    let (server, mut other) = server("watches=3 sessions=2", &["--shards", "2"]);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(server.address(), 40_000)).collect();
    let codes: Vec<_> = clients.iter_mut().map(|client| answer(client, &read("/t"))).collect();
    let (ok, refused) = (Some(ErrorCode::Ok), Some(ErrorCode::QuotaExceeded));
    assert_eq!(codes, [ok, ok, refused, refused]);
    assert!(clients[0].exists("/t", true));
    assert!(clients[1].exists("/t", true));
    assert!(!clients[1].exists("/t/a", true));
    let watch = |path: &'static str| Request::Exists(PathWatchRequest { path: path.into(), watch: true });
    assert_eq!(answer(&mut clients[0], &watch("/t/a")), refused);
    assert_eq!(answer(&mut other, &watch("/u")), ok);
    clients[1].set("/t", b"x");
    let _ = clients[0].event();
    assert_eq!(answer(&mut clients[0], &watch("/t/a")), Some(ErrorCode::NoNode));
    drop(clients.remove(1));
    wait_for("a place", || (answer(&mut clients[1], &read("/t")) == ok).then_some(()));
    assert_eq!(metric(&server, r#"sessions{tenant="/t"}"#), Some(2.0));
}
