//! ZooKeeper's throttles: who is refused, who waits, and who is answered with THROTTLEDOP.

use std::io::Write;

use ringkeeper_wire::{CreateMode, ErrorCode, Request, SetDataRequest, Xid};

use crate::support::{Client, Server, is_closed};

const TIMEOUT_MS: i32 = 40_000;

fn set_a(data: &[u8]) -> Request<'_> {
    Request::SetData(SetDataRequest { path: "/a".into(), data: Some(data), version: -1 })
}

#[test]
fn clients_beyond_the_tokens_are_closed_and_sessions_that_are_open_go_on() {
    let options = ["-o", "connectionMaxTokens=3", "-o", "connectionTokenFillCount=0"];
    let server = Server::start_with(&options);
    let mut open: Vec<Client> = (0..3).map(|_| Client::connect(server.address(), TIMEOUT_MS)).collect();
    for session in [None, Some(open[0].session)] {
        assert!(Client::try_attach(server.address(), TIMEOUT_MS, session, 0).is_err());
    }
    assert!(open.iter_mut().all(|client| client.exists("/", false)));
    assert_eq!(server.metric("zk_connection_rejected"), 2.0);
    assert_eq!(server.metric("zk_sum_connection_token_deficit"), 6.0);
    assert!(server.log().contains("connection_throttle_tokens"));
}

#[test]
fn requests_beyond_the_limit_wait_and_are_refused_if_they_wait_too_long() {
    let server = Server::start_with(&["-o", "requestThrottleLimit=1", "-o", "throttledOpWaitTime=1"]);
    let mut clients: Vec<Client> = (0..40).map(|_| Client::connect(server.address(), TIMEOUT_MS)).collect();
    clients[0].create("/a", b"", CreateMode::Persistent);
    let mut refused = 0;
    for _ in 0..5 {
        let sent: Vec<[Xid; 3]> = clients
            .iter_mut()
            .map(|client| [client.send(&set_a(b"x")), client.send(&Request::Ping), client.send(&set_a(b"y"))])
            .collect();
        for (client, xids) in clients.iter_mut().zip(sent) {
            for (xid, is_ping) in xids.into_iter().zip([false, true, false]) {
                let reply = client.reply().expect("a reply");
                assert!(is_ping || reply.xid == xid);
                match ErrorCode::from_wire(reply.err) {
                    Some(ErrorCode::Ok) => {}
                    Some(ErrorCode::ThrottledOp) if !is_ping => refused += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(refused > 0, "200 clients wrote one after the other");
    assert_eq!(server.metric("zk_throttled_ops"), f64::from(refused));
    assert!(server.metric("zk_request_throttle_wait_count") > 0.0);
}

#[test]
fn a_large_request_for_which_there_is_no_room_closes_its_connection_and_no_other() {
    let options = ["-o", "largeRequestThreshold=1000", "-o", "largeRequestMaxBytes=1500"];
    let server = Server::start_with(&options);
    let mut other = Client::connect(server.address(), TIMEOUT_MS);
    other.create("/a", b"", CreateMode::Persistent);
    for _ in 0..3 {
        other.set("/a", &[7; 1400]);
    }
    let mut greedy = Client::connect(server.address(), TIMEOUT_MS);
    greedy.stream().write_all(&1501_i32.to_be_bytes()).expect("sent");
    assert!(is_closed(greedy.stream()), "before its bytes come");
    assert_eq!(other.get("/a", false), Some(vec![7; 1400]));
    assert_eq!(server.metric("zk_large_requests_rejected"), 1.0);
}
