//! Sessions begin and end by transactions, and their ephemerals with them (docs/protocol.md, 5).

use ringkeeper_engine::limits::{Limit, Limits};
use ringkeeper_engine::txn::{ChangeKind, Outcome, TxnOp, encode_batch};
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
fn the_transaction_that_closes_a_session_is_as_short_whatever_the_session_owns() {
    let mut server = Server::new();
    for number in 0..40 {
        server.create(&format!("/{number:02}{}", "long".repeat(100_000)), 1);
    }
    let closed = server.close(ALICE);
    let log = server.log.last().expect("logged");
    let mut archive = rkyv::util::AlignedVec::new();
    encode_batch([log], &mut archive);
    assert!(archive.len() < 200, "{} bytes", archive.len());
    assert_eq!((closed.changes(log).count(), server.state.ephemeral_count()), (40, 0));
}

#[test]
fn a_session_owns_no_more_ephemerals_than_it_may() {
    let mut server = Server::new();
    server.settings.limits = Limits::default().with(Limit::Ephemerals, 2).with(Limit::EphemeralBytes, 6);
    server.create("/a", 1);
    server.create("/b", 1);
    assert_eq!(code(&server.ask(&create("/c", 1))), ErrorCode::QuotaExceeded);
    server.create("/persistent", 0);
    server.ask(&delete("/b", -1));
    assert_eq!(code(&server.ask(&create("/long", 1))), ErrorCode::QuotaExceeded);
    server.create("/d", 1);
    server.session = BOB;
    server.create("/c", 1);
}

#[test]
fn a_log_that_lists_the_ephemerals_of_a_closed_session_is_still_read() {
    let mut server = Server::new();
    server.create("/e", 1);
    let closed = server.commit(TxnOp::CloseSessionListed(vec!["/e".into()]));
    let changes = closed.changes(server.log.last().expect("logged")).map(|change| change.path);
    assert_eq!(changes.collect::<Vec<_>>(), ["/e"]);
    assert!(server.state.session(ALICE).is_none() && server.state.znode("/e").is_none());
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
