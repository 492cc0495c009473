//! Metrics of servers that work.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use ringkeeper_engine::metrics::{FAMILIES, Family, Kind};
use ringkeeper_testkit::Session;
use ringkeeper_wire::{CreateMode, SessionId};

use crate::cluster::{Ensemble, SESSION_MS};
use crate::support::{Client, PATIENCE};

/// Metrics that stay 0 while nothing goes wrong and nobody waits, and those of throttles, TLS and observers.
const QUIET: &[&str] = &[
    "traces_exported",
    "traces_dropped",
    "max_latency",
    "min_latency",
    "outstanding_requests",
    "stale_replies",
    "hand_overs",
    "local_sessions",
    "request_throttle_wait_count",
    "throttled_ops",
    "stale_requests",
    "stale_requests_dropped",
    "large_requests_rejected",
    "connection_drop_probability",
    "connection_token_deficit",
    "sessionless_connections_expired",
    "cnxn_closed_without_zk_server_running",
    "auth_failed_count",
    "outstanding_tls_handshake",
    "unsuccessful_handshake",
    "tls_handshake_exceeded",
    "certificates_expire_seconds",
    "revocation_lists_expire_seconds",
    "transactions_ahead_seconds",
    "slow_requests",
    "rule_refusals",
    "slow_reader_connections",
    "limit_exceeded",
    "output_queue_bytes",
    "digest_mismatches_count",
    "fsync_threshold_exceed_count",
    "disk_full",
    "scrubbed_bytes",
    "scrub_passes",
    "scrub_last_pass_seconds_ago",
    "damage_found",
    "repairs_pending",
    "synced_observers",
    "pending_syncs",
    "snap_count",
    "history_conflict",
    "id_conflict",
    "memory_limit_exceeded",
    "audit_records_lost",
];

/// The figure that shows whether a metric has moved, from the lines of `mntr`.
fn figure(family: &Family, mntr: &str) -> Option<f64> {
    let name = family.name.strip_prefix("process_").unwrap_or(family.name);
    let key = match (family.kind, name) {
        (_, "ack_latency") => return acknowledged(mntr),
        (Kind::Summary, _) => format!("zk_cnt_{name}"),
        (_, "limit_exceeded") => format!("zk_watches_{name}"),
        _ if name.ends_with("_per_namespace") => format!("zk_app_{name}"),
        _ => format!("zk_{name}"),
    };
    let value = mntr.lines().find_map(|line| line.strip_prefix(&key)?.strip_prefix('\t'))?;
    Some(value.parse().unwrap_or_else(|_| panic!("{key} is {value}")))
}

/// Of the learners together: their numbers stand before the name.
fn acknowledged(mntr: &str) -> Option<f64> {
    let counts = mntr.lines().filter_map(|line| {
        let (learner, count) = line.strip_prefix("zk_cnt_")?.split_once("_ack_latency\t")?;
        learner.parse::<u64>().ok()?;
        count.parse::<f64>().ok()
    });
    counts.reduce(|sum, count| sum + count)
}

/// Has a server do a little of everything.
fn load(ensemble: &Ensemble, server: usize) -> Client {
    let address = ensemble.address(server);
    let mut client = ensemble.connect(server);
    let path = format!("/at-{server}");
    client.children("/", true);
    client.exists(&path, true);
    client.create(&path, b"1", CreateMode::Persistent);
    client.get(&path, true);
    client.set(&path, b"2");
    client.get(&path, true);
    client.delete(&path);
    client.create(&path, b"3", CreateMode::Ephemeral);
    (0..130).for_each(|_| client.set("/", b""));
    client.sync();
    let session = client.session;
    drop(client);
    // The session expires, since its client is gone at once.
    drop(Client::connect(address, 1));
    let mut stranger = std::net::TcpStream::connect(address).expect("a connection");
    stranger.write_all(&[0xff; 8]).expect("sent");
    let unknown = Session { id: SessionId(1), ..Session::default() };
    assert!(Client::resume(address, SESSION_MS, unknown).is_none());
    let mut client = Client::resume(address, SESSION_MS, session).expect("still there");
    client.get(&path, true);
    client
}

#[test]
fn load_moves_every_metric_that_it_concerns() {
    let ensemble = Ensemble::start_with("audit.enable=true\nsnapCount=64\n");
    let leader = ensemble.leader();
    let servers = [leader, ensemble.others(leader)[0]];
    let mut client = ensemble.connect(leader);
    for (path, data) in [
        ("/app", "12345"),
        ("/zookeeper/quota/app", ""),
        ("/zookeeper/quota/app/zookeeper_limits", "count=5,bytes=100"),
        ("/zookeeper/quota/app/zookeeper_stats", ""),
    ] {
        client.create(path, data.as_bytes(), CreateMode::Persistent);
    }
    let _clients = servers.map(|server| load(&ensemble, server));
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = servers.map(|server| ensemble.server(server).ask("mntr").expect("an answer"));
        // `mntr` has neither histograms nor tenants.
        let shown_there =
            |family: &&Family| family.kind != Kind::Histogram && !family.name.starts_with("tenant_");
        let unmoved = FAMILIES.iter().filter(shown_there).filter(|family| {
            let figures: Vec<_> = shown.iter().filter_map(|mntr| figure(family, mntr)).collect();
            assert!(!figures.is_empty(), "{} is shown by nobody", family.name);
            !QUIET.contains(&family.name) && figures.iter().all(|figure| *figure <= 0.0)
        });
        let unmoved: Vec<_> = unmoved.map(|family| family.name).collect();
        if unmoved.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{unmoved:?} did not move: {}", shown[0]);
        thread::sleep(Duration::from_millis(100));
    }
}
