//! Sessions begin and end by transactions, and their ephemerals with them (docs/protocol.md, 5).

use ringkeeper_engine::txn::{ChangeKind, Outcome};
use ringkeeper_wire::{ErrorCode, Request};

use crate::fixture::*;

#[test]
fn closing_a_session_deletes_its_ephemerals_and_no_others() {
    let mut server = Server::new();
    server.create("/dir", 0);
    server.create("/dir/a", 1);
    server.create("/e", 1);
    server.session = BOB;
    server.create("/b", 1);
    let zxid = server.next_zxid().to_wire();
    let outcome = server.close(ALICE);
    let log = server.log.last().expect("logged");
    let changes = outcome.changes(log).map(|change| (change.kind, change.path)).collect::<Vec<_>>();
    assert_eq!(changes, [(ChangeKind::Deleted, "/dir/a"), (ChangeKind::Deleted, "/e")]);
    assert!(server.state.znode("/e").is_none() && server.state.znode("/b").is_some());
    assert_eq!((server.stat("/dir").pzxid, server.stat("/").pzxid), (zxid, zxid));
    assert!(server.state.session(ALICE).is_none() && server.state.session(BOB).is_some());
    assert_eq!(server.state.ephemeral_count(), 1);
}

#[test]
fn a_closed_session_can_do_nothing_more() {
    let mut server = Server::new();
    assert_eq!(server.ask(&Request::CloseSession), Outcome::SessionClosed(Box::new([])));
    assert_eq!(code(&server.ask(&create("/a", 0))), ErrorCode::SessionExpired);
    assert_eq!(code(&server.ask(&Request::CloseSession)), ErrorCode::SessionExpired);
}

#[test]
fn a_deleted_ephemeral_is_its_sessions_no_more() {
    let mut server = Server::new();
    server.create("/e", 1);
    server.session = BOB;
    server.ask(&delete("/e", -1));
    assert_eq!(server.state.ephemerals(ALICE).count(), 0);
    assert_eq!(server.close(ALICE), Outcome::SessionClosed(Box::new([])));
}

#[test]
fn a_session_keeps_its_password_and_timeout() {
    let server = Server::new();
    let session = server.state.session(ALICE).expect("open");
    assert_eq!((session.timeout_ms, session.password), (10_000, [7; 16]));
}
