//! multi: all operations or none, each on the effects of those before it (docs/protocol.md, 3.4).

use std::borrow::Cow;

use ringkeeper_engine::txn::{ChangeKind, Effect, FailedMulti, Outcome};
use ringkeeper_wire::{DeleteRequest, ErrorCode, MultiOp};

use crate::fixture::*;

fn create_op(path: &str, flags: i32) -> MultiOp<'_> {
    MultiOp::Create(create_request(path, flags))
}

fn delete_op(path: &str) -> MultiOp<'_> {
    MultiOp::Delete(DeleteRequest { path: Cow::Borrowed(path), version: -1 })
}

fn set_op(path: &str, version: i32) -> MultiOp<'_> {
    MultiOp::SetData(set_data_request(path, b"new", version))
}

#[test]
fn later_operations_see_earlier_ones() {
    let mut server = Server::new();
    let zxid = server.next_zxid();
    let outcome = server.multi(&[
        create_op("/a", 0),
        create_op("/a/b", 0),
        set_op("/a/b", 0),
        check("/a/b", 1),
        delete_op("/a/b"),
        create_op("/a/n", 2),
    ]);
    let Outcome::Multi(effects) = &outcome else { panic!("{outcome:?}") };
    assert!(matches!(
        **effects,
        [
            Effect::Created { .. },
            Effect::Created { .. },
            Effect::DataSet { .. },
            Effect::Checked,
            Effect::Deleted { .. },
            Effect::Created { .. }
        ]
    ));
    assert_eq!(server.state.last_zxid(), zxid);
    assert_eq!(server.stat("/a/n0000000001").czxid, zxid.to_wire());
    let changes = outcome.changes(server.log.last().expect("logged"));
    let seen: Vec<_> = changes.map(|change| (change.kind, change.path.to_owned())).collect();
    let expected = [
        (ChangeKind::Created, "/a"),
        (ChangeKind::Created, "/a/b"),
        (ChangeKind::DataChanged, "/a/b"),
        (ChangeKind::Deleted, "/a/b"),
        (ChangeKind::Created, "/a/n0000000001"),
    ];
    assert_eq!(seen, expected.map(|(kind, path)| (kind, path.to_owned())));
}

#[test]
fn a_failed_multi_changes_nothing_and_says_where() {
    let mut server = Server::new();
    server.create("/q", 0);
    let before = server.state.clone();
    let outcome = server.multi(&[
        create_op("/q/n-", 2),
        create_op("/e", 1),
        set_op("/q", 0),
        delete_op("/missing"),
        create_op("/never", 0),
    ]);
    let failed = FailedMulti { ops: 5, failed: 3, code: ErrorCode::NoNode };
    assert_eq!(outcome, Outcome::MultiFailed(failed));
    assert_eq!(outcome.changes(server.log.last().expect("logged")).count(), 0);
    assert_eq!(contents(&server.state), contents(&before));
    assert_eq!(server.state.digest(), before.digest());
    assert_eq!(server.state.ephemeral_count(), 0);
    assert!(server.state.last_zxid() > before.last_zxid());
    assert_eq!(server.create("/q/n-", 2), "/q/n-0000000000", "the counter is as before too");
}

#[test]
fn an_empty_multi_takes_a_zxid() {
    let mut server = Server::new();
    let zxid = server.next_zxid();
    assert_eq!(server.multi(&[]), Outcome::Multi(Box::new([])));
    assert_eq!(server.state.last_zxid(), zxid);
}

#[test]
fn a_multi_of_an_unknown_session_fails_at_its_first_operation() {
    let mut server = Server::new();
    server.session = UNKNOWN;
    let outcome = server.multi(&[create_op("/a", 0), create_op("/b", 0)]);
    let failed = FailedMulti { ops: 2, failed: 0, code: ErrorCode::SessionExpired };
    assert_eq!(outcome, Outcome::MultiFailed(failed));
}
