//! Quotas (docs/protocol.md, 9): counted always, enforced on demand.

use ringkeeper_engine::prepare::Meter;
use ringkeeper_wire::{ErrorCode, Request, Stat};

use crate::fixture::*;

const STATS: &str = "/zookeeper/quota/a/zookeeper_stats";
const LIMITS: &str = "/zookeeper/quota/a/zookeeper_limits";

/// "/a" and "/a/b" exist before their quota.
fn server() -> Server {
    let mut server = Server::new();
    for path in ["/a", "/a/b", "/zookeeper/quota/a", LIMITS, STATS] {
        server.create(path, 0);
    }
    server
}

fn used(server: &Server) -> &str {
    std::str::from_utf8(server.data(STATS).expect("not null")).expect("text")
}

#[test]
fn the_use_is_counted_when_its_znode_is_created_and_kept_up_to_date() {
    let mut server = server();
    assert_eq!(used(&server), "count=2,bytes=8");
    server.create("/a/c", 0);
    assert_eq!(used(&server), "count=3,bytes=12");
    server.ask(&set_data("/a/c", b"", -1));
    assert_eq!(used(&server), "count=3,bytes=8");
    server.ask(&delete("/a/b", -1));
    assert_eq!(used(&server), "count=2,bytes=4");
    server.create("/ab", 0);
    assert_eq!(used(&server), "count=2,bytes=4");
}

#[test]
fn counting_leaves_no_trace_in_the_stat_but_the_length() {
    let mut server = server();
    let before = server.stat(STATS);
    server.create("/a/c", 0);
    assert_eq!(server.stat(STATS), Stat { data_length: 16, ..before });
}

#[test]
fn without_limits_nothing_is_counted_any_more() {
    let mut server = server();
    server.ask(&delete(LIMITS, -1));
    server.create("/a/c", 0);
    assert_eq!(used(&server), "count=2,bytes=8");
}

#[test]
fn a_use_that_is_no_such_text_is_left_alone() {
    let mut server = server();
    server.ask(&set_data(STATS, b"nonsense", -1));
    server.create("/a/c", 0);
    assert_eq!(used(&server), "nonsense");
}

#[test]
fn hard_limits_are_enforced_on_demand() {
    let mut server = server();
    server.ask(&set_data(LIMITS, b"count=1,bytes=1=;byteHardLimit=13;countHardLimit=3", -1));
    server.create("/a/c", 0);
    let mut enforced = server;
    enforced.settings.enforce_quota = true;
    assert_eq!(code(&enforced.ask(&create("/a/d", 0))), ErrorCode::QuotaExceeded);
    assert_eq!(code(&enforced.ask(&set_data("/a/c", b"sixsix", -1))), ErrorCode::QuotaExceeded);
    assert_eq!(code(&enforced.ask(&set_data("/a/c", b"five5", -1))), ErrorCode::Ok);
    assert_eq!(code(&enforced.ask(&create("/other", 0))), ErrorCode::Ok);
}

#[test]
fn limits_that_cannot_be_read_refuse_every_write_below_once_limits_are_enforced() {
    let mut server = server();
    server.ask(&set_data(LIMITS, b"count", -1));
    server.create("/a/c", 0);
    server.settings.enforce_quota = true;
    assert_eq!(code(&server.ask(&create("/a/d", 0))), ErrorCode::MarshallingError);
    assert_eq!(code(&server.ask(&set_data("/a/c", b"", -1))), ErrorCode::MarshallingError);
    assert_eq!(code(&server.ask(&delete("/a/c", -1))), ErrorCode::Ok);
    assert_eq!(code(&server.ask(&create("/other", 0))), ErrorCode::Ok);
    server.ask(&set_data(LIMITS, b"count=1", -1));
    assert_eq!(code(&server.ask(&create("/a/d", 0))), ErrorCode::Ok);
}

#[test]
fn only_so_many_znodes_are_visited_to_count_the_use_of_quotas() {
    let mut server = Server::new();
    for path in ["/zookeeper/quota/a", "/a", "/a/b", "/a/c", "/a/d"] {
        server.create(path, 0);
    }
    let stats = "/zookeeper/quota/a/zookeeper_stats";
    server.meter = Meter::new(3);
    assert_eq!(code(&server.ask(&create(stats, 0))), ErrorCode::QuotaExceeded);
    // Twice as many as are below, since the fixture prepares each request twice.
    server.meter = Meter::new(7);
    server.create(stats, 0);
    assert_eq!(server.meter.countable(), 1);
    assert_eq!(server.data(stats), Some(&b"count=4,bytes=16"[..]));
}

#[test]
fn a_server_short_of_memory_refuses_what_makes_the_tree_larger_and_nothing_else() {
    let mut server = Server::new();
    server.create("/a", 0);
    server.create("/b", 0);
    server.ask(&set_data("/a", b"four", -1));
    server.short_of_memory = true;
    assert_eq!(code(&server.ask(&create("/c", 0))), ErrorCode::QuotaExceeded);
    assert_eq!(code(&server.ask(&set_data("/a", b"fiver", -1))), ErrorCode::QuotaExceeded);
    assert_eq!(code(&server.ask(&set_data("/a", b"less", -1))), ErrorCode::Ok);
    assert_eq!(code(&server.ask(&delete("/b", -1))), ErrorCode::Ok);
    assert_eq!(code(&server.ask(&Request::CloseSession)), ErrorCode::Ok);
}
