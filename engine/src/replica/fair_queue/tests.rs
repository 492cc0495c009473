use std::sync::Arc;

use ringkeeper_frame::Checksum;
use ringkeeper_wire::{
    CheckRequest, Epoch, Identity, MultiOp, MultiRequest, OpCode, Record, ServerId, SessionId, Xid, Zxid,
};

use crate::application::{Application, Effect};
use crate::message::{ConnId, RequestBatch, ShardId, Submission, Submitted, ToShard};
use crate::replica::{Now, Output, Replica, ReplicaSettings};
use crate::state::State;

const SHARD: ShardId = ShardId(0);

/// A leader that prepares multis of 10 operations ahead of their commit, and a session on each of the
/// connections 1 to 3.
fn leader() -> (Replica, [SessionId; 3]) {
    let settings =
        ReplicaSettings { uncommitted_operations_max: 10, ..ReplicaSettings::new(ServerId(1), [7; 32]) };
    let mut replica = Replica::new(settings, State::new(1));
    replica.lead(Now::default(), Epoch(1));
    for conn in 1..=3 {
        replica.requests(
            Now::default(),
            SHARD,
            ask(conn, SessionId(0), Submitted::Open { timeout_ms: 4000 }),
        );
    }
    executed(&mut replica);
    let sessions: Vec<_> = replica.committed().sessions().map(|(session, _)| session).collect();
    (replica, sessions.try_into().expect("one for each connection"))
}

fn ask(conn: u64, session: SessionId, what: Submitted) -> RequestBatch {
    RequestBatch {
        submissions: vec![Submission { conn: ConnId(conn), session, local: false, what }],
        ..RequestBatch::default()
    }
}

/// Request `xid` of the connection: a multi of so many checks.
fn multi(conn: u64, session: SessionId, xid: i32, operations: usize) -> RequestBatch {
    let check = MultiOp::Check(CheckRequest { path: "/".into(), version: -1 });
    let operations = vec![check; operations];
    let mut bytes = Vec::new();
    MultiRequest::from(&operations[..]).encode(&mut bytes);
    write(conn, session, xid, OpCode::Multi, bytes)
}

fn write(conn: u64, session: SessionId, xid: i32, op: OpCode, bytes: Vec<u8>) -> RequestBatch {
    let identities: Option<Arc<[Identity]>> = Some([].into());
    let what = Submitted::Write { xid: Xid(xid), op, body: 0..bytes.len(), identities, read_barrier: false };
    RequestBatch { bytes: bytes.into(), ..ask(conn, session, what) }
}

/// Commits what was executed since the last call: the requests, by connection and xid.
fn executed(replica: &mut Replica) -> Vec<(u64, i32)> {
    while replica.next_batch(Zxid::ZERO, Checksum::NONE).is_some() {}
    replica.commit(Now::default(), replica.last_executed());
    let published = replica.take_effects().filter_map(|effect| match effect {
        Effect::Output(Output::AllShards(ToShard::Published(published))) => Some(published),
        _ => None,
    });
    let mut requests = Vec::new();
    for published in published {
        let txns = published.groups.iter().flat_map(|group| &group.txns);
        requests.extend(txns.filter_map(|committed| Some((committed.origin?.conn.0, committed.txn.xid.0))));
    }
    requests
}

/// Everything that is executed, one commit after the other, the next one when it is due.
fn executed_in_turn(replica: &mut Replica) -> Vec<Vec<(u64, i32)>> {
    let mut commits = vec![executed(replica)];
    while replica.has_due() {
        replica.lead_waiting(Now::default());
        commits.push(executed(replica));
    }
    commits
}

#[test]
fn multis_beyond_the_bound_wait_for_a_commit_and_other_requests_do_not() {
    let (mut leader, [one, two, three]) = leader();
    leader.requests(Now::default(), SHARD, multi(1, one, 1, 1000));
    leader.requests(Now::default(), SHARD, multi(2, two, 1, 1));
    leader.requests(Now::default(), SHARD, write(3, three, 1, OpCode::CloseSession, Vec::new()));
    assert!(!leader.has_due(), "the first is not committed");
    assert_eq!(executed_in_turn(&mut leader), [[(1, 1), (3, 1)].to_vec(), [(2, 1)].to_vec()]);
}

#[test]
fn clients_with_many_large_multis_take_turns_with_one_that_has_few() {
    let (mut leader, [one, two, three]) = leader();
    for xid in 1..=3 {
        leader.requests(Now::default(), SHARD, multi(1, one, xid, 100));
        leader.requests(Now::default(), SHARD, multi(2, two, xid, 100));
    }
    leader.requests(Now::default(), SHARD, multi(3, three, 1, 100));
    let commits = executed_in_turn(&mut leader);
    assert!(commits.iter().all(|commit| commit.len() == 1), "one large multi at a time: {commits:?}");
    assert_eq!(commits.concat(), [(1, 1), (2, 1), (1, 2), (3, 1), (2, 2), (1, 3), (2, 3)]);
}

#[test]
fn requests_of_one_client_stay_in_order() {
    let (mut leader, [one, ..]) = leader();
    for xid in 1..=3 {
        leader.requests(Now::default(), SHARD, multi(1, one, xid, 100));
    }
    let missing = b"\0\0\0\x02/a\xff\xff\xff\xff".to_vec();
    leader.requests(Now::default(), SHARD, write(1, one, 4, OpCode::Delete, missing));
    leader.requests(Now::default(), SHARD, write(1, one, 5, OpCode::CloseSession, Vec::new()));
    assert_eq!(executed_in_turn(&mut leader).concat(), [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5)]);
}

#[test]
fn small_multis_share_a_commit() {
    let (mut leader, [one, ..]) = leader();
    for xid in 1..=12 {
        leader.requests(Now::default(), SHARD, multi(1, one, xid, 2));
    }
    let commits: Vec<_> = executed_in_turn(&mut leader).iter().map(Vec::len).collect();
    assert_eq!(commits, [5, 5, 2]);
}
