//! Read-only mode: a server without a quorum, and the clients that read from it.

use std::net::SocketAddr;

use ringkeeper_testkit::{self as testkit, Connection, Session, connect_frame};
use ringkeeper_wire::{CreateMode, ErrorCode, OpCode, Request, SetDataRequest, SyncRequest};

use crate::cluster::{Ensemble, SESSION_MS};
use crate::support::{Client, wait_for};

/// A client that accepts a server which only reads. `None` if it is not let in.
fn reader(address: SocketAddr, session: Session) -> Option<testkit::Client> {
    let mut connection = Connection::open(address).ok()?;
    let mut request = session.connect_request(SESSION_MS, 0);
    request.read_only = Some(true);
    connection.send(&connect_frame(&request)).ok()?;
    testkit::Client::accepted(connection).ok()?
}

#[test]
fn a_server_without_a_quorum_serves_reads_to_those_who_accept_that_until_there_is_one() {
    let ensemble = Ensemble::start_with("readonlymode.enabled=true\n");
    let mut owner = ensemble.connect(0);
    owner.create("/mine", b"before", CreateMode::Ephemeral);
    [1, 2].into_iter().for_each(|server| ensemble.kill(server));
    let alone = ensemble.server(0);
    wait_for("read-only mode", || (alone.ask("isro").ok()? == "ro").then_some(()));
    assert!(alone.ask("srvr").expect("an answer").contains("Mode: read-only"));

    let address = ensemble.address(0);
    let mut reader_here = reader(address, Session::default()).expect("readers are let in");
    let read = reader_here.get("/mine", true).expect("an answer").expect("ephemerals of others stay");
    assert_eq!(read.0, b"before");
    let write = SetDataRequest { path: "/mine".into(), data: Some(b"after"), version: -1 };
    for refused in [Request::SetData(write), Request::Sync(SyncRequest { path: Some("/".into()) })] {
        let reply = reader_here.call(&refused).expect("an answer");
        assert_eq!(reply.err, ErrorCode::NotReadOnly.to_wire(), "{refused:?}");
    }
    assert!(Client::try_attach(address, SESSION_MS, None, 0).is_err(), "who has to write goes elsewhere");
    assert!(reader(address, owner.session).is_none(), "a session of the ensemble goes elsewhere");
    let closes = reader(address, Session::default()).expect("readers are let in");
    closes.close().expect("its session ends");

    ensemble.run(1);
    ensemble.leader_among(&[0, 1]);
    assert_eq!(alone.ask("isro").expect("an answer"), "rw");
    assert!(reader_here.request(OpCode::Ping, &[]).is_err(), "the mode's connections end with it");
    let mut owner = Client::resume(address, SESSION_MS, owner.session).expect("the session lives");
    owner.set("/mine", b"after");
    let mut reader_here = reader(address, Session::default()).expect("an ordinary session");
    reader_here.set("/mine", b"by a client that would be content to read").expect("written");
}

#[test]
fn without_the_setting_nobody_is_served_without_a_quorum() {
    let ensemble = Ensemble::start();
    [1, 2].into_iter().for_each(|server| ensemble.kill(server));
    let alone = ensemble.server(0);
    wait_for("the server to give up", || (alone.ask("isro").ok()? != "rw").then_some(()));
    // Longer than it takes with the setting.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert!(reader(ensemble.address(0), Session::default()).is_none());
}
