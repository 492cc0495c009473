//! What was acknowledged outlives the process, however it ends.

use std::io::{ErrorKind, Read};

use ringkeeper_wire::{CreateMode, ErrorCode};

use crate::support::{Client, PATIENCE, Server, is_closed};

const TIMEOUT_MS: i32 = 30_000;

/// Sends creates of `/n/0` and so on without waiting, and reads answers until `enough` have come.
fn create_until(client: &mut Client, sent: usize, enough: usize) -> Vec<String> {
    let paths: Vec<String> = (0..sent).map(|number| format!("/n/{number}")).collect();
    let xids: Vec<_> =
        paths.iter().map(|path| client.send_create(path, b"data", CreateMode::Persistent)).collect();
    for &xid in &xids[..enough] {
        let reply = client.reply().expect("a reply");
        assert_eq!((reply.xid, reply.err), (xid, ErrorCode::Ok.to_wire()));
    }
    paths[..enough].to_vec()
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    let server = Server::start();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    client.create("/n", b"", CreateMode::Persistent);
    let acknowledged = create_until(&mut client, 2000, 700);
    server.kill();
    let server = server.restart();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    let there = client.children("/n", false);
    for path in acknowledged {
        assert!(there.contains(&path["/n/".len()..].to_owned()), "{path} was acknowledged and is gone");
    }
    assert_eq!(client.get("/n/0", false).as_deref(), Some(&b"data"[..]));
}

#[test]
fn a_live_session_resumes_after_kill_9_and_finds_its_ephemerals() {
    let mut server = Server::start();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    client.create("/mine", b"", CreateMode::Ephemeral);
    let mut other = Client::connect(server.address(), TIMEOUT_MS);
    other.create("/theirs", b"", CreateMode::Ephemeral);
    other.close();
    for _ in 0..2 {
        server.kill();
        server = server.restart();
        let resumed = Client::resume(server.address(), TIMEOUT_MS, client.session).expect("still alive");
        assert_eq!(resumed.session, client.session);
        client = resumed;
        assert_eq!((client.exists("/mine", false), client.exists("/theirs", false)), (true, false));
    }
    client.close();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    assert!(!client.exists("/mine", false), "the session was closed");
}

#[test]
fn a_session_is_resumed_with_its_password_alone() {
    let server = Server::start();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    let mut wrong = client.session;
    wrong.password[0] ^= 1;
    assert!(Client::resume(server.address(), TIMEOUT_MS, wrong).is_none());
    assert!(client.exists("/", false), "the session itself goes on");
}

#[test]
fn sigterm_ends_with_exit_code_0_and_keeps_what_was_acknowledged() {
    let server = Server::start();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    client.create("/n", b"", CreateMode::Persistent);
    let acknowledged = create_until(&mut client, 300, 300);
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
    let server = server.restart();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    assert_eq!(client.children("/n", false).len(), acknowledged.len());
}

#[test]
fn a_stopping_server_closes_its_connections_and_its_port() {
    let server = Server::start();
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(server.address(), TIMEOUT_MS)).collect();
    server.terminate();
    assert!(clients.iter_mut().all(|client| is_closed(client.stream())));
    assert_eq!(server.wait().code(), Some(0));
    let refused = std::net::TcpStream::connect(server.address()).expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_stopping_server_acknowledges_nothing_that_it_has_not_written() {
    let server = Server::start();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    client.create("/n", b"", CreateMode::Persistent);
    create_until(&mut client, 2000, 100);
    server.terminate();
    // Whatever still comes is an acknowledgement; the rest is the end of the connection.
    let mut acknowledged = 100;
    while let Ok(reply) = client.reply() {
        assert_eq!(reply.err, ErrorCode::Ok.to_wire());
        acknowledged += 1;
    }
    client.stream().set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert!(matches!(client.stream().read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!(server.wait().code(), Some(0));
    let server = server.restart();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    let there = client.children("/n", false).len();
    assert!(there >= acknowledged, "{there} of {acknowledged} acknowledged writes are there");
}
