//! Clients that misbehave, and those beside them that must not notice.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use ringkeeper_testkit::{Connection, connect_frame};
use ringkeeper_wire::{CreateMode, ErrorCode, PathWatchRequest, Record, Request, RequestHeader, Xid};
use socket2::{Domain, Socket, Type};

use crate::support::{Client, Server, Session, is_closed, request_frame, wait_for};

const TIMEOUT_MS: i32 = 40_000;

/// The longest frame that a server with defaults takes, bytes.
const FRAME_LEN_MAX: usize = 0xf_ffff;

#[test]
fn a_client_that_does_not_read_costs_no_memory_and_gets_every_reply_in_the_end() {
    const REQUESTS: usize = 300;
    let server = Server::start();
    let data = vec![7; 512 * 1024];
    let mut lazy = Client::connect(server.address(), TIMEOUT_MS);
    lazy.create("/big", &data, CreateMode::Persistent);
    let before = server.metric("zk_resident_memory_bytes");
    let get = Request::GetData(PathWatchRequest { path: "/big".into(), watch: false });
    let xids: Vec<Xid> = (0..REQUESTS).map(|_| lazy.send(&get)).collect();

    let mut other = Client::connect(server.address(), TIMEOUT_MS);
    for number in 0..100 {
        other.create(&format!("/n{number}"), b"", CreateMode::Persistent);
    }
    let grown = server.metric("zk_resident_memory_bytes") - before;
    assert!(grown < 32e6, "150 MB of replies wait for a client, and the server grew by {grown} bytes");
    assert!(server.metric("zk_output_queue_bytes") < 8e6);

    for xid in xids {
        let reply = lazy.reply().expect("a reply");
        assert_eq!((reply.xid, reply.err), (xid, ErrorCode::Ok.to_wire()));
        assert!(reply.body.len() > data.len());
    }
    assert_eq!(server.metric("zk_output_queue_bytes"), 0.0);
}

#[test]
fn a_connection_counts_until_the_kernel_has_its_last_bytes() {
    const AT_ONCE: usize = 3;
    let server = Server::start_with(&["-o", "maxClientCnxns=3"]);
    let mut other = Client::connect(server.address(), TIMEOUT_MS);
    other.create("/big", &[7; 100_000], CreateMode::Persistent);
    let attach = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small buffer");
        socket.bind(&SocketAddr::from(([127, 0, 0, 9], 0)).into()).expect("a loopback address");
        socket.connect(&server.address().into()).expect("it listens");
        let mut stream = TcpStream::from(socket);
        stream.write_all(&connect_frame(&Session::default().connect_request(TIMEOUT_MS, 0)))?;
        ringkeeper_testkit::Client::accepted(Connection::of(stream)?)
    };
    let mut lazy = Vec::new();
    for _ in 0..AT_ONCE {
        let mut client = attach().expect("connected").expect("a session");
        // Until the kernel takes no more, and the server not either.
        while server.metric("zk_output_queue_bytes") == 0.0 {
            client
                .send(&Request::GetData(PathWatchRequest { path: "/big".into(), watch: false }))
                .expect("sent");
            assert!(other.exists("/big", false));
        }
        client.connection.stream().shutdown(Shutdown::Write).expect("connected");
        wait_for("the end", || (server.metric("zk_output_queue_bytes") == 0.0).then_some(()));
        lazy.push(client);
    }
    assert!(attach().is_err(), "the kernel has less than they were sent, so their connections stand");
    let reads = io::copy(lazy[0].connection.stream(), &mut io::sink());
    assert!(reads.is_ok_and(|bytes| bytes > 100_000), "what was sent comes");
    wait_for("room", || attach().is_ok().then_some(()));
}

#[test]
fn half_a_frame_holds_up_nobody_but_its_sender() {
    let server = Server::start();
    let mut other = Client::connect(server.address(), TIMEOUT_MS);
    let frame = connect_frame(&Session::default().connect_request(TIMEOUT_MS, 0));
    let (first, second) = frame.split_at(frame.len() / 2);
    let mut slow = TcpStream::connect(server.address()).expect("connected");
    slow.write_all(first).expect("sent");
    other.create("/a", b"", CreateMode::Persistent);
    slow.write_all(second).expect("sent");
    let mut slow = Client::accepted(slow).expect("a session");

    let request =
        request_frame(Xid(1), &Request::Exists(PathWatchRequest { path: "/a".into(), watch: false }));
    for byte in &request {
        slow.stream().write_all(&[*byte]).expect("sent");
        assert!(other.exists("/a", false));
    }
    assert_eq!(slow.reply().expect("a reply").err, ErrorCode::Ok.to_wire());
}

#[test]
fn clients_that_vanish_in_the_middle_of_a_frame_leave_nothing_behind() {
    let server = Server::start();
    let mut other = Client::connect(server.address(), TIMEOUT_MS);
    for cut in [1, 3, 4, 5, 20, 44] {
        let mut stream = TcpStream::connect(server.address()).expect("connected");
        stream
            .write_all(&connect_frame(&Session::default().connect_request(TIMEOUT_MS, 0))[..cut])
            .expect("sent");
        drop(stream);
        assert!(other.exists("/", false));
    }
    assert_eq!(server.metric("zk_global_sessions"), 1.0);
}

#[test]
fn a_frame_over_the_limit_closes_its_connection_and_no_other() {
    let server = Server::start();
    let mut other = Client::connect(server.address(), TIMEOUT_MS);
    for length in [1024 * 1024 + 1, FRAME_LEN_MAX + 1, i32::MAX as usize] {
        let mut greedy = Client::connect(server.address(), TIMEOUT_MS);
        let length = i32::try_from(length).expect("a length");
        greedy.stream().write_all(&length.to_be_bytes()).expect("sent");
        assert!(is_closed(greedy.stream()), "{length}");
        assert!(other.exists("/", false));
    }
    let mut negative = Client::connect(server.address(), TIMEOUT_MS);
    negative.stream().write_all(&(-1_i32).to_be_bytes()).expect("sent");
    assert!(is_closed(negative.stream()));
    assert!(other.exists("/", false));
    assert_eq!(server.metric("zk_malformed_connections"), 4.0);
}

#[test]
fn a_frame_at_the_limit_is_served() {
    let server = Server::start();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    client.create("/a", b"", CreateMode::Persistent);
    // Header 8, path 4 + 2, length of the data 4, version 4.
    let data = vec![1; FRAME_LEN_MAX - 22];
    client.set("/a", &data);
    assert_eq!(client.get("/a", false), Some(data));
}

#[test]
fn an_unknown_opcode_is_answered_with_unimplemented_and_closed() {
    let server = Server::start();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    let mut frame = 8_u32.to_be_bytes().to_vec();
    RequestHeader { xid: Xid(5), op: 9999 }.encode(&mut frame);
    client.stream().write_all(&frame).expect("sent");
    let reply = client.reply().expect("a reply");
    assert_eq!((reply.xid, reply.err), (Xid(5), ErrorCode::Unimplemented.to_wire()));
    assert!(is_closed(client.stream()));
}

#[test]
fn a_request_without_a_session_closes_the_connection() {
    let server = Server::start();
    let mut stream = TcpStream::connect(server.address()).expect("connected");
    stream.write_all(&request_frame(Xid(1), &Request::Ping)).expect("sent");
    assert!(is_closed(&mut stream), "too short for a ConnectRequest");
}

#[test]
fn an_address_gets_no_more_connections_than_it_may_have() {
    let server = Server::start_with(&["-o", "maxClientCnxns=3"]);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(server.address(), TIMEOUT_MS)).collect();
    let mut refused = TcpStream::connect(server.address()).expect("connected");
    assert!(is_closed(&mut refused));
    assert!(clients.iter_mut().all(|client| client.exists("/", false)));
    let mut closed = clients.pop().expect("three");
    closed.call_ok(&Request::CloseSession);
    assert!(is_closed(closed.stream()));
    drop(closed);
    assert!(server.metric("zk_connection_rejected") >= 1.0);
}

#[test]
fn more_connections_than_file_descriptors_stop_neither_the_log_nor_those_who_are_served() {
    const OPEN_FILES: u32 = 200;
    let small = ["-o", "maxClientCnxns=0", "-o", "snapCount=100", "-o", "preAllocSize=64"];
    let server = Server::start_with_open_files(OPEN_FILES, &small);
    assert_eq!(server.metric("zk_max_file_descriptor_count"), f64::from(OPEN_FILES));
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    let flood: Vec<_> = (0..2 * OPEN_FILES).map(|_| TcpStream::connect(server.address())).collect();
    wait_for("the refusal", || server.log().contains("the other files that the system allows").then_some(()));
    // Each 64 KiB is another file of the log, and a snapshot comes now and then.
    let data = vec![7; 8 * 1024];
    for number in 0..300 {
        client.create(&format!("/n{number}"), &data, CreateMode::Persistent);
    }
    drop(flood);
    let later =
        wait_for("a place", || ringkeeper_testkit::Client::connect(server.address(), TIMEOUT_MS).ok());
    later.close().expect("closed");
    assert!(client.exists("/n299", false));
}
