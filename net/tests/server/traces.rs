//! Sampled requests, with collectors that do not work.

use std::net::TcpListener;

use ringkeeper_testkit::own_address;
use ringkeeper_wire::CreateMode;

use crate::support::{Client, Server, get, request, wait_for};

/// A server of whose requests every one is traced, sent to this address.
fn traced_to(address: &str) -> Server {
    let endpoint = format!("ringkeeper.otlpEndpoint=http://{address}");
    Server::start_with(&["-o", "ringkeeper.traceSampleRate=1", "-o", &endpoint])
}

fn dropped(server: &Server) -> Option<u64> {
    let metrics = get((server.address().ip(), 8080).into(), "/metrics");
    let mut lines = metrics.text().lines();
    lines.find_map(|line| line.strip_prefix("ringkeeper_traces_dropped_total ")?.parse().ok())
}

#[test]
fn traces_that_no_collector_takes_are_counted_and_requests_go_on() {
    let gone = TcpListener::bind((own_address(), 0)).expect("a port");
    let nobody = gone.local_addr().expect("an address").to_string();
    drop(gone);
    // Its connections wait to be accepted for ever.
    let silent = TcpListener::bind((own_address(), 0)).expect("a port");
    let silent = silent.local_addr().map(|address| (silent, address.to_string())).expect("an address");
    for (address, why) in [(&nobody, "refused"), (&silent.1, "no answer within 10 s")] {
        let server = traced_to(address);
        let mut client = Client::connect(server.address(), 30_000);
        client.create("/a", b"", CreateMode::Persistent);
        wait_for("traces that are left out", || {
            assert!(client.exists("/a", false));
            dropped(&server).filter(|dropped| *dropped > 0)
        });
        wait_for("the reason", || server.log().contains(why).then_some(()));
    }
}

#[test]
fn sampled_requests_are_in_the_log_at_the_level_debug() {
    let server = Server::start_with(&["-o", "ringkeeper.traceSampleRate=1"]);
    let admin = (server.address().ip(), 8080).into();
    let mut client = Client::connect(server.address(), 30_000);
    let changed = request(admin, "POST", "/commands/log_level?level=debug", "Authorization: ip\r\n");
    assert_eq!(changed.status, 200);
    client.create("/after", b"", CreateMode::Persistent);
    let about = "operation=\"CREA\" path=\"/after\"";
    let line =
        wait_for("a line", || server.log().lines().find(|line| line.contains(about)).map(str::to_owned));
    assert!(line.contains("DEBUG") && line.contains("a request was sampled"), "{line}");
    assert_eq!(get(admin, "/commands/slow_requests").json()["slow_requests"], serde_json::json!([]));
}
