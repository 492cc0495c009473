use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use ringkeeper_wire::{
    AclEntry, AclList, CreateRequest, Epoch, ErrorCode, Identity, OpCode, Perms, ReconfigRequest, Record,
    ServerId, SessionId, SetDataRequest, Xid,
};

use super::*;
use crate::limits::{Limit, Limits};
use crate::message::{ConnId, Published, Submission};
use crate::txn::Outcome;

const SHARD: ShardId = ShardId(0);
pub(super) const TIMEOUT_MS: u32 = 4000;

fn settings(server: u64) -> ReplicaSettings {
    ReplicaSettings::new(ServerId(server), [7; 32])
}

/// The leader's next batch: the payload and the last zxid.
fn sealed(leader: &mut Replica) -> (Bytes, Zxid) {
    let batch = next_batch(leader).expect("a transaction");
    (batch.bytes().slice_ref(payload(&batch)), batch.last())
}

fn next_batch(leader: &mut Replica) -> Option<Batch> {
    leader.next_batch(Zxid::ZERO, Checksum::NONE)
}

fn payload(batch: &Batch) -> &[u8] {
    batch.payload().expect("was just framed")
}

fn now(ms: u64) -> Now {
    Now { monotonic_ms: ms, wall_ms: 1_000_000 + i64::try_from(ms).expect("small") }
}

fn leader() -> Replica {
    let mut replica = Replica::new(settings(1), State::new(1));
    replica.lead(now(0), Epoch(1));
    replica.take_effects();
    replica
}

fn follower() -> Replica {
    let mut replica = Replica::new(settings(2), State::new(2));
    replica.follow();
    replica.take_effects();
    replica
}

fn create(path: &str, flags: i32) -> (OpCode, Vec<u8>) {
    let open = [AclEntry { perms: Perms::ALL, scheme: "world".into(), id: "anyone".into() }];
    let acl = AclList::from(&open[..]);
    let mut bytes = Vec::new();
    CreateRequest { path: path.into(), data: Some(b"x"), acl: Some(acl), flags }.encode(&mut bytes);
    (OpCode::Create, bytes)
}

fn set(path: &str, data: &[u8]) -> (OpCode, Vec<u8>) {
    let mut bytes = Vec::new();
    SetDataRequest { path: path.into(), data: Some(data), version: -1 }.encode(&mut bytes);
    (OpCode::SetData, bytes)
}

pub(super) fn write(
    conn: u64,
    session: SessionId,
    xid: i32,
    (op, bytes): (OpCode, Vec<u8>),
    read_barrier: bool,
) -> RequestBatch {
    let identities: Option<Arc<[Identity]>> = Some(Arc::from([]));
    let what = Submitted::Write { xid: Xid(xid), op, body: 0..bytes.len(), identities, read_barrier };
    RequestBatch { bytes: bytes.into(), ..ask(conn, session, what) }
}

pub(super) fn ask(conn: u64, session: SessionId, what: Submitted) -> RequestBatch {
    RequestBatch {
        submissions: vec![Submission { conn: ConnId(conn), session, local: false, what }],
        ..RequestBatch::default()
    }
}

pub(super) fn opening(conn: u64) -> RequestBatch {
    ask(conn, SessionId(0), Submitted::Open { timeout_ms: TIMEOUT_MS })
}

pub(super) fn reattaching(conn: u64, session: SessionId, password: [u8; 16]) -> RequestBatch {
    ask(conn, session, Submitted::Reattach { password, timeout_ms: TIMEOUT_MS })
}

/// Seals and commits everything, and gives what shards are told.
fn settle(replica: &mut Replica) -> Vec<ToShard> {
    while next_batch(replica).is_some() {}
    replica.commit(now(0), replica.last_executed());
    told(replica)
}

/// The rounds of confirmation that the replica asks for.
fn rounds(replica: &mut Replica) -> Vec<u64> {
    let rounds = replica.take_effects().filter_map(|effect| match effect {
        Effect::ConfirmLeadership(round) => Some(round),
        _ => None,
    });
    rounds.collect()
}

/// Confirms every round that the replica asks for, and gives what shards are told meanwhile.
fn confirm(replica: &mut Replica) -> Vec<ToShard> {
    let mut messages = Vec::new();
    loop {
        let effects: Vec<_> = replica.take_effects().collect();
        if effects.is_empty() {
            return messages;
        }
        for effect in effects {
            match effect {
                Effect::ConfirmLeadership(round) => replica.confirm_round(round),
                Effect::Output(Output::Shard(_, message) | Output::AllShards(message)) => {
                    messages.push(message)
                }
                Effect::ToLeader(_) | Effect::ToLearner(..) | Effect::Broken(_) => {}
                Effect::Output(
                    Output::DigestMismatch { .. }
                    | Output::Members(_)
                    | Output::Level { .. }
                    | Output::Refused { .. }
                    | Output::Forbidden { .. },
                ) => {}
            }
        }
    }
}

fn told(replica: &mut Replica) -> Vec<ToShard> {
    let effects = replica.take_effects();
    effects
        .filter_map(|effect| match effect {
            Effect::Output(Output::Shard(_, message) | Output::AllShards(message)) => Some(message),
            _ => None,
        })
        .collect()
}

fn published(messages: &[ToShard]) -> Vec<Arc<Published>> {
    let published = messages.iter().filter_map(|message| match message {
        ToShard::Published(published) => Some(Arc::clone(published)),
        _ => None,
    });
    published.collect()
}

fn open(replica: &mut Replica, conn: u64) -> (SessionId, [u8; 16]) {
    replica.requests(now(0), SHARD, opening(conn));
    attached(&settle(replica))
}

fn attached(messages: &[ToShard]) -> (SessionId, [u8; 16]) {
    let attached = messages.iter().find_map(|message| match message {
        ToShard::Attached { session, password, .. } => Some((*session, *password)),
        _ => None,
    });
    attached.expect("the session is attached once its transaction is committed")
}

#[test]
fn a_session_is_attached_after_its_transaction_is_published() {
    let mut replica = leader();
    replica.requests(now(0), SHARD, opening(1));
    assert!(told(&mut replica).is_empty(), "nothing is committed yet");
    let messages = settle(&mut replica);
    assert!(matches!(messages[..], [ToShard::Published(_), ToShard::Attached { .. }]), "{messages:?}");
}

#[test]
fn nothing_is_published_before_it_is_committed() {
    let mut replica = leader();
    let (session, _) = open(&mut replica, 1);
    replica.requests(now(0), SHARD, write(1, session, 1, create("/a", 0), false));
    assert!(next_batch(&mut replica).is_some());
    assert!(told(&mut replica).is_empty());
    assert!(replica.committed().znode("/a").is_none());
    replica.commit(now(0), replica.last_executed());
    assert!(replica.committed().znode("/a").is_some());
}

#[test]
fn reads_between_two_writes_of_a_session_get_a_state_without_the_second() {
    let mut replica = leader();
    let (session, _) = open(&mut replica, 1);
    replica.requests(now(0), SHARD, write(1, session, 1, create("/a", 0), false));
    replica.requests(now(0), SHARD, write(1, session, 2, set("/a", b"second"), true));
    let published = published(&settle(&mut replica));
    let groups = &published[0].groups;
    assert_eq!(groups.len(), 2);
    assert_eq!(groups[0].view.znode("/a").and_then(|znode| znode.data()), Some(&b"x"[..]));
    assert_eq!(groups[1].view.znode("/a").and_then(|znode| znode.data()), Some(&b"second"[..]));
}

#[test]
fn writes_without_reads_between_them_share_a_step() {
    let mut replica = leader();
    let (session, _) = open(&mut replica, 1);
    for xid in 1..=5 {
        replica.requests(now(0), SHARD, write(1, session, xid, create(&format!("/a{xid}"), 0), false));
    }
    assert_eq!(published(&settle(&mut replica))[0].groups.len(), 1);
}

#[test]
fn a_failed_write_takes_its_place_in_the_order() {
    let mut replica = leader();
    let (session, _) = open(&mut replica, 1);
    let before = replica.last_executed();
    replica.requests(now(0), SHARD, write(1, session, 1, set("/missing", b""), false));
    let published = published(&settle(&mut replica));
    let committed = &published[0].groups[0].txns[0];
    assert_eq!(Some(committed.zxid()), before.next());
    assert_eq!(committed.outcome, Outcome::Failed(ringkeeper_wire::ErrorCode::NoNode));
    assert_eq!(committed.origin, Some(Origin { shard: SHARD, conn: ConnId(1) }));
}

#[test]
fn a_session_that_comes_back_elsewhere_leaves_its_old_connection() {
    let mut replica = leader();
    let (session, password) = open(&mut replica, 1);
    replica.requests(now(0), SHARD, reattaching(2, session, password));
    let messages = confirm(&mut replica);
    assert!(
        matches!(
            messages[..],
            [ToShard::Evict { conn: ConnId(1) }, ToShard::Attached { conn: ConnId(2), .. }]
        ),
        "{messages:?}"
    );
    replica.requests(now(0), SHARD, write(1, session, 1, create("/late", 0), false));
    assert!(matches!(told(&mut replica)[..], [ToShard::Evict { conn: ConnId(1) }]));
    assert!(!replica.has_unsealed(), "a write on the old connection is not executed");
}

/// A deposed leader that did not know it gave a session to a new connection, while its successor went on to
/// commit what came from the old one (seed 86978 of the whole-server simulation).
#[test]
fn a_session_moves_only_when_a_quorum_has_confirmed_the_leader() {
    let mut replica = leader();
    let (session, password) = open(&mut replica, 1);
    replica.requests(now(0), SHARD, reattaching(2, session, password));
    replica.requests(now(0), SHARD, reattaching(3, session, [0; 16]));
    let effects: Vec<_> = replica.take_effects().collect();
    assert!(
        matches!(
            effects[..],
            [
                Effect::Output(Output::Shard(_, ToShard::Evict { conn: ConnId(1) })),
                Effect::ConfirmLeadership(_)
            ]
        ),
        "nobody is answered: {effects:?}"
    );
    let Effect::ConfirmLeadership(round) = effects[1] else { unreachable!() };
    replica.confirm_round(round);
    assert!(matches!(
        confirm(&mut replica)[..],
        [ToShard::Attached { conn: ConnId(2), .. }, ToShard::Rejected { conn: ConnId(3) }]
    ));
}

#[test]
fn a_session_comes_back_when_all_that_it_had_asked_for_is_published() {
    let mut replica = leader();
    let (session, password) = open(&mut replica, 1);
    replica.requests(now(0), SHARD, write(1, session, 1, create("/a", 0), false));
    replica.requests(now(0), SHARD, reattaching(2, session, password));
    let messages = confirm(&mut replica);
    assert!(!messages.iter().any(|message| matches!(message, ToShard::Attached { .. })), "{messages:?}");
    let messages = settle(&mut replica);
    assert!(matches!(messages[..], [ToShard::Published(_), ToShard::Attached { .. }]), "{messages:?}");
}

#[test]
fn a_session_that_ends_while_it_moves_is_rejected_once_its_end_is_committed() {
    let mut replica = leader();
    let (session, password) = open(&mut replica, 1);
    replica.requests(now(0), SHARD, reattaching(2, session, password));
    let rounds: Vec<_> = rounds(&mut replica);
    for ms in (0..=8000).step_by(50) {
        replica.tick(now(ms));
    }
    replica.confirm_round(rounds[0]);
    assert!(told(&mut replica).is_empty(), "its end is not committed yet");
    let messages = settle(&mut replica);
    assert!(matches!(messages.last(), Some(ToShard::Rejected { conn: ConnId(2) })), "{messages:?}");
}

#[test]
fn of_two_connections_that_ask_for_a_session_the_later_one_gets_it() {
    let mut replica = leader();
    let (session, password) = open(&mut replica, 1);
    for conn in [2, 3] {
        replica.requests(now(0), SHARD, reattaching(conn, session, password));
    }
    let messages = confirm(&mut replica);
    assert!(
        matches!(
            messages[..],
            [
                ToShard::Evict { conn: ConnId(1) },
                ToShard::Evict { conn: ConnId(2) },
                ToShard::Attached { conn: ConnId(3), .. }
            ]
        ),
        "{messages:?}"
    );
}

#[test]
fn a_wrong_password_is_rejected_and_the_session_stays_where_it_is() {
    let mut replica = leader();
    let (session, _) = open(&mut replica, 1);
    replica.requests(now(0), SHARD, reattaching(2, session, [0; 16]));
    assert!(matches!(confirm(&mut replica)[..], [ToShard::Rejected { conn: ConnId(2) }]));
    replica.requests(now(0), SHARD, write(1, session, 1, create("/a", 0), false));
    assert!(replica.has_unsealed());
}

#[test]
fn no_session_is_given_the_id_of_one_that_has_ended_though_the_clock_stands_still() {
    let mut replica = leader();
    let (ended, _) = open(&mut replica, 1);
    replica.requests(now(0), SHARD, write(1, ended, 1, (OpCode::CloseSession, Vec::new()), false));
    settle(&mut replica);
    assert!(replica.committed().session(ended).is_none());
    replica.look();
    replica.lead(now(0), Epoch(2));
    assert_ne!(open(&mut replica, 2).0, ended);
}

#[test]
fn a_silent_session_expires_with_its_ephemerals_and_a_touched_one_does_not() {
    let mut replica = leader();
    let (silent, _) = open(&mut replica, 1);
    let (touched, _) = open(&mut replica, 2);
    replica.requests(now(0), SHARD, write(1, silent, 1, create("/silent", 1), false));
    replica.requests(now(0), SHARD, write(2, touched, 1, create("/touched", 1), false));
    settle(&mut replica);
    for ms in (0..=8000).step_by(50) {
        replica.requests(now(ms), SHARD, RequestBatch { touched: vec![touched], ..RequestBatch::default() });
        replica.tick(now(ms));
    }
    let messages = settle(&mut replica);
    let evicted = messages.iter().any(|message| matches!(message, ToShard::Evict { conn: ConnId(1) }));
    assert!(evicted, "{messages:?}");
    assert!(replica.committed().session(silent).is_none() && replica.committed().znode("/silent").is_none());
    assert!(
        replica.committed().session(touched).is_some() && replica.committed().znode("/touched").is_some()
    );
}

/// A leader with a session on server 2.
fn leader_of_a_session_elsewhere() -> Replica {
    let mut replica = leader();
    replica.lead_requests(now(0), ServerId(2), SHARD, opening(1));
    settle(&mut replica);
    replica
}

/// Whether its session lives through that time.
fn lives(replica: &mut Replica, during_ms: RangeInclusive<u64>) -> bool {
    during_ms.step_by(50).for_each(|ms| replica.tick(now(ms)));
    settle(replica);
    replica.committed().sessions().count() == 1
}

#[test]
fn a_session_on_another_server_lives_until_all_is_known_that_the_server_had_heard() {
    let mut replica = leader_of_a_session_elsewhere();
    let over_ms = u64::from(TIMEOUT_MS);
    replica.server_answered(ServerId(2), over_ms - 1);
    assert!(lives(&mut replica, 0..=30_000));
    replica.server_answered(ServerId(2), over_ms);
    assert!(!lives(&mut replica, 30_050..=30_200));
}

#[test]
fn a_session_on_a_silent_server_has_its_whole_timeout_from_then_on() {
    for leaves in [Replica::server_silent, Replica::server_left] {
        let mut replica = leader_of_a_session_elsewhere();
        replica.server_answered(ServerId(2), 1000);
        assert!(lives(&mut replica, 0..=20_000));
        leaves(&mut replica, now(20_000), ServerId(2));
        assert!(lives(&mut replica, 20_050..=20_000 + u64::from(TIMEOUT_MS)));
        assert!(!lives(&mut replica, 24_050..=30_000));
    }
}

#[test]
fn time_that_the_process_lost_expires_nobody() {
    let mut replica = leader();
    let (session, _) = open(&mut replica, 1);
    replica.tick(now(100));
    replica.tick(now(60_000));
    settle(&mut replica);
    assert!(replica.committed().session(session).is_some());
}

#[test]
fn a_sync_waits_for_earlier_writes_and_for_a_quorum_asked_after_it() {
    let mut replica = leader();
    let (session, _) = open(&mut replica, 1);
    replica.requests(now(0), SHARD, write(1, session, 1, create("/a", 0), false));
    replica.requests(now(0), SHARD, ask(1, session, Submitted::Sync));
    let rounds: Vec<_> = replica.take_effects().collect();
    let [Effect::ConfirmLeadership(first)] = rounds[..] else { panic!("{rounds:?}") };
    replica.requests(now(0), SHARD, ask(1, session, Submitted::Sync));
    replica.confirm_round(first);
    let effects: Vec<_> = replica.take_effects().collect();
    let [Effect::ConfirmLeadership(second)] = effects[..] else {
        panic!("the write is not committed: {effects:?}")
    };
    let messages = settle(&mut replica);
    assert!(
        matches!(messages[..], [ToShard::Published(_), ToShard::Synced { .. }]),
        "the first one only: {messages:?}"
    );
    replica.confirm_round(second);
    assert!(matches!(told(&mut replica)[..], [ToShard::Synced { .. }]));
}

/// The broadcast keeps a question through a change of epoch under the same leader and answers it in the new
/// one. Taken for an answer to the new leadership's own question, it released syncs that nobody had
/// confirmed, and all later ones waited for ever.
#[test]
fn what_an_earlier_leadership_asked_confirms_no_sync() {
    let mut replica = leader();
    let (session, password) = open(&mut replica, 1);
    replica.requests(now(0), SHARD, ask(1, session, Submitted::Sync));
    let asked = rounds(&mut replica);
    replica.look();
    replica.lead(now(0), Epoch(2));
    replica.requests(now(0), SHARD, reattaching(2, session, password));
    assert_eq!(rounds(&mut replica).len(), 1, "it asks anew");
    replica.confirm_round(asked[0]);
    assert!(told(&mut replica).is_empty(), "and is not answered");
}

#[test]
fn a_followers_write_is_answered_where_it_came_from_when_the_log_brings_it() {
    let (mut leader, mut follower) = (leader(), follower());
    follower.requests(now(0), SHARD, opening(9));
    let (session, _) = attached(&pass_on(&mut leader, &mut follower).1);
    follower.requests(now(0), SHARD, write(9, session, 1, create("/from-follower", 0), false));
    let messages = pass_on(&mut leader, &mut follower).1;
    let origin = published(&messages)[0].groups[0].txns[0].origin;
    assert_eq!(origin, Some(Origin { shard: SHARD, conn: ConnId(9) }));
    assert_eq!(leader.committed().digest(), follower.committed().digest());
    assert!(follower.committed().znode("/from-follower").is_some());
}

/// A learner whose proposals the leader holds back, because it is slow, had its sync answered before them.
#[test]
fn what_the_leader_says_waits_until_the_learner_has_published_what_it_rests_on() {
    let (mut leader, mut follower) = (leader(), follower());
    let answer_of = |leader: &mut Replica| {
        let told = leader.take_effects().find_map(|effect| match effect {
            Effect::ToLearner(_, bytes) => Some(bytes),
            _ => None,
        });
        told.expect("an answer to the learner")
    };
    follower.requests(now(0), SHARD, opening(9));
    let Some(Effect::ToLeader(bytes)) = follower.take_effects().next_back() else {
        panic!("a batch to pass on")
    };
    leader.forwarded(now(0), ServerId(2), &bytes).expect("a batch of requests");
    let (payload, last) = sealed(&mut leader);
    leader.commit(now(0), last);
    let bytes = answer_of(&mut leader);
    follower.directed(&bytes).expect("an answer");
    assert!(told(&mut follower).is_empty(), "the session does not exist here yet");
    follower.execute(&payload).expect("a batch");
    follower.commit(now(0), last);
    let messages = told(&mut follower);
    assert!(matches!(messages[..], [ToShard::Published(_), ToShard::Attached { .. }]), "{messages:?}");
}

#[test]
fn losing_leadership_drops_what_was_never_proposed_and_keeps_what_was() {
    let mut replica = leader();
    let (session, _) = open(&mut replica, 1);
    replica.requests(now(0), SHARD, write(1, session, 1, create("/proposed", 0), false));
    let proposed = next_batch(&mut replica).expect("a batch").last();
    replica.requests(now(0), SHARD, write(1, session, 2, create("/never", 0), false));
    replica.look();
    assert_eq!(replica.last_executed(), proposed);
    replica.commit(now(0), proposed);
    assert!(
        replica.committed().znode("/proposed").is_some() && replica.committed().znode("/never").is_none()
    );
}

#[test]
fn a_truncated_batch_is_forgotten_and_one_that_recovery_took_for_committed_asks_for_a_rebuild() {
    let mut replica = leader();
    let (session, _) = open(&mut replica, 1);
    let kept = replica.last_executed();
    replica.requests(now(0), SHARD, write(1, session, 1, create("/cut", 0), false));
    next_batch(&mut replica);
    replica.look();
    assert!(replica.truncate(kept), "the committed state is still good");
    assert_eq!(replica.last_executed(), kept);
    assert!(!replica.truncate(Zxid::ZERO), "what is committed here reaches further");
}

#[test]
fn a_learner_tells_its_digests_and_the_leader_names_the_learner_that_differs() {
    let (mut leader, mut follower) = (leader(), follower());
    let mut told_digests = Vec::new();
    let mut both = |leader: &mut Replica, batch: RequestBatch| {
        leader.requests(now(0), SHARD, batch);
        let (payload, last) = sealed(leader);
        follower.execute(&payload).expect("a batch");
        leader.commit(now(0), last);
        follower.commit(now(0), last);
        told_digests.extend(follower.take_effects().filter_map(|effect| match effect {
            Effect::ToLeader(bytes) => Some(bytes),
            _ => None,
        }));
    };
    both(&mut leader, opening(1));
    let session = leader.committed().sessions().next().expect("a session").0;
    for xid in 1..300 {
        both(&mut leader, write(1, session, xid, create(&format!("/{xid}"), 0), false));
    }
    assert_eq!(told_digests.len(), 2, "at every 128th zxid");
    leader.take_effects();
    for bytes in &told_digests {
        leader.forwarded(now(0), ServerId(2), bytes).expect("a digest");
    }
    assert!(leader.take_effects().next().is_none(), "the trees are equal");
    let (zxid, digest) = leader.digests().last().expect("a digest");
    let wrong = forward::encode_digest(zxid, digest ^ 1);
    leader.forwarded(now(0), ServerId(3), &wrong).expect("a digest");
    let effects: Vec<_> = leader.take_effects().collect();
    assert!(
        matches!(effects[..], [Effect::Output(Output::DigestMismatch { peer: ServerId(3), zxid: at })] if at == zxid)
    );
}

#[test]
fn what_one_turn_asks_for_becomes_several_batches_if_it_is_too_much_for_one() {
    let mut leader = leader();
    let (session, _) = open(&mut leader, 1);
    let mut batch = write(1, session, 1, create("/a", 0), false);
    let (op, bytes) = set("/a", &[7; 1 << 20]);
    let mut bodies = batch.bytes.to_vec();
    for xid in 2..42 {
        let start = bodies.len();
        bodies.extend_from_slice(&bytes);
        let body = start..bodies.len();
        let what =
            Submitted::Write { xid: Xid(xid), op, body, identities: Some([].into()), read_barrier: false };
        batch.submissions.push(Submission { conn: ConnId(1), session, local: false, what });
    }
    batch.bytes = bodies.into();
    leader.requests(now(0), SHARD, batch);
    let (mut next, mut batches) = (leader.committed().last_zxid().0 + 1, 0);
    while let Some(batch) = next_batch(&mut leader) {
        assert_eq!(batch.first().0, next);
        assert!(payload(&batch).len() < SEALED_BYTES_MAX + (2 << 20), "{batch:?}");
        (next, batches) = (batch.last().0 + 1, batches + 1);
    }
    assert_eq!((batches, next), (3, leader.last_executed().0 + 1));
}

#[test]
fn a_follower_names_the_identities_of_a_connection_once() {
    let (mut leader, mut follower) = (leader(), follower());
    let identities: Arc<[Identity]> =
        Arc::new([Identity { scheme: "digest".into(), id: format!("{}:h", "long".repeat(10_000)) }]);
    let acl = [AclEntry { perms: Perms::ALL, scheme: "auth".into(), id: String::new() }];
    let mut bytes = Vec::new();
    let acl = Some(AclList::from(&acl[..]));
    CreateRequest { path: "/mine".into(), data: None, acl, flags: 0 }.encode(&mut bytes);
    follower.requests(now(0), SHARD, opening(9));
    let (session, _) = attached(&pass_on(&mut leader, &mut follower).1);
    for (xid, (op, bytes)) in (1..).zip([(OpCode::Create, bytes), set("/mine", b"1"), set("/mine", b"2")]) {
        let identities = Some(Arc::clone(&identities));
        let what =
            Submitted::Write { xid: Xid(xid), op, body: 0..bytes.len(), identities, read_barrier: false };
        follower.requests(now(0), SHARD, RequestBatch { bytes: bytes.into(), ..ask(9, session, what) });
        let (forwarded_bytes, _) = pass_on(&mut leader, &mut follower);
        assert_eq!(forwarded_bytes > 40_000, xid == 1, "{forwarded_bytes} bytes for write {xid}");
    }
    assert_eq!(leader.committed().znode("/mine").and_then(|znode| znode.data()), Some(&b"2"[..]));
}

/// Carries what the follower has for the leader there and the answers back; how many bytes it was, and what
/// the follower's shards are told.
fn pass_on(leader: &mut Replica, follower: &mut Replica) -> (usize, Vec<ToShard>) {
    let forwarded: Vec<_> = follower.take_effects().collect();
    let [Effect::ToLeader(bytes)] = &forwarded[..] else { panic!("{forwarded:?}") };
    leader.forwarded(now(0), ServerId(2), bytes).expect("a batch of requests");
    let (payload, last) = sealed(leader);
    follower.execute(&payload).expect("a batch");
    follower.commit(now(0), last);
    leader.commit(now(0), last);
    for effect in leader.take_effects().collect::<Vec<_>>() {
        if let Effect::ToLearner(to, bytes) = effect {
            assert_eq!(to, ServerId(2));
            follower.directed(&bytes).expect("an answer");
        }
    }
    (bytes.len(), told(follower))
}

#[test]
fn what_a_leader_refuses_is_counted_and_named() {
    let limits = Limits::default().with(Limit::Ephemerals, 1).with(Limit::Sessions, 1);
    let requests = Settings { limits, ..Settings::default() };
    let mut leader = Replica::new(ReplicaSettings { requests, ..settings(1) }, State::new(1));
    leader.lead(now(0), Epoch(1));
    leader.requests(now(0), SHARD, opening(1));
    settle(&mut leader);
    let session = leader.committed().sessions().next().expect("just opened").0;
    leader.requests(now(0), SHARD, opening(2));
    leader.requests(now(0), SHARD, write(1, session, 1, create("/a", 1), false));
    leader.requests(now(0), SHARD, write(1, session, 2, create("/b", 1), false));
    let short = RequestBatch { short_of_memory: Some(true), ..write(1, session, 3, create("/c", 0), false) };
    leader.requests(now(0), SHARD, short);
    let effects: Vec<_> = leader.take_effects().collect();
    let refused = effects.into_iter().filter_map(|effect| match effect {
        Effect::Output(Output::Refused { session, refusal }) => Some((session, refusal)),
        _ => None,
    });
    let expected = [
        (SessionId(0), Refusal::Limit(Limit::Sessions)),
        (session, Refusal::Limit(Limit::Ephemerals)),
        (session, Refusal::Memory),
    ];
    assert_eq!(refused.collect::<Vec<_>>(), expected);
    let Refusals { limits, memory } = leader.refusals();
    assert_eq!((limits.of(Limit::Sessions), limits.of(Limit::Ephemerals), *memory), (1, 1, 1));
}

#[test]
fn more_sessions_than_the_throttle_admits_are_refused_by_the_server_that_is_asked() {
    let connection_throttle = ConnectionThrottleSettings {
        tokens: 2,
        fill_time_ms: 1_000,
        ..ConnectionThrottleSettings::default()
    };
    for leads in [true, false] {
        let settings = ReplicaSettings { connection_throttle: connection_throttle.clone(), ..settings(1) };
        let mut replica = Replica::new(settings, State::new(1));
        if leads {
            replica.lead(now(0), Epoch(1))
        } else {
            replica.follow()
        }
        replica.take_effects();
        let mut batch = RequestBatch::default();
        for conn in 1..=4 {
            let asked = match conn % 2 {
                0 => reattaching(conn, SessionId(0), [0; 16]),
                _ => opening(conn),
            };
            batch.submissions.extend(asked.submissions);
        }
        replica.requests(now(0), SHARD, batch);
        let refused = told(&mut replica).into_iter().filter_map(|message| match message {
            ToShard::Throttled { conn } => Some(conn),
            _ => None,
        });
        assert_eq!(refused.collect::<Vec<_>>(), [ConnId(3), ConnId(4)], "leads: {leads}");
        assert_eq!(replica.connection_throttle().deficit.count, 2);
    }
}

/// What the shards are told to do for clients.
fn serving(messages: &[ToShard]) -> Vec<Serving> {
    let serving = messages.iter().filter_map(|message| match message {
        ToShard::Serving(serving) => Some(*serving),
        _ => None,
    });
    serving.collect()
}

/// A server of an ensemble with these lines, which takes no clients while it leads.
fn without_clients(ensemble: &str) -> Replica {
    let settings = ReplicaSettings { leader_serves: false, ensemble: ensemble.into(), ..settings(1) };
    Replica::new(settings, State::new(1))
}

#[test]
fn a_leader_without_clients_takes_them_when_it_follows_and_parts_from_them_when_it_leads() {
    let mut replica = without_clients("server.1=a:1:2\nserver.2=b:1:2");
    replica.lead(now(0), Epoch(1));
    assert_eq!(serving(&settle(&mut replica)), [Serving::Leads]);
    replica.handed_over(now(0), Status::Following { leader: ServerId(2), epoch: Epoch(2) });
    assert_eq!(serving(&told(&mut replica)), [Serving::Yes]);
    replica.handed_over(now(0), Status::Leading { epoch: Epoch(3) });
    assert_eq!(serving(&told(&mut replica)), [Serving::No, Serving::Leads]);
}

#[test]
fn a_leader_without_others_takes_clients_until_there_are_some() {
    for alone in ["", "server.1=a:1:2"] {
        let mut replica = without_clients(alone);
        replica.lead(now(0), Epoch(1));
        assert_eq!(serving(&settle(&mut replica)), [Serving::Yes], "{alone:?}");
    }
    let mut replica = without_clients("server.1=a:1:2");
    replica.settings.requests.reconfig_enabled = true;
    replica.lead(now(0), Epoch(1));
    assert_eq!(serving(&settle(&mut replica)), [Serving::Yes]);
    replica.up_to_date([ServerId(1), ServerId(2), ServerId(3)].into_iter().collect());
    let joining = ReconfigRequest {
        joining_servers: Some("server.2=b:1:2;3,server.3=c:1:2;3".into()),
        leaving_servers: None,
        new_members: None,
        cur_config_id: -1,
    };
    replica.reconfigure(now(0), &joining).expect("possible");
    assert_eq!(serving(&settle(&mut replica)), [Serving::Leads]);
}

#[test]
fn a_server_gets_several_addresses_only_where_they_are_enabled_and_keeps_those_that_it_has() {
    let mut replica = without_clients("server.1=a:1:2|b:1:2");
    replica.settings.requests.reconfig_enabled = true;
    replica.settings.requests.standalone_enabled = false;
    replica.lead(now(0), Epoch(1));
    settle(&mut replica);
    replica.up_to_date([ServerId(1), ServerId(2)].into_iter().collect());
    let change = |replica: &mut Replica, joining: &'static str| {
        let joining_servers = Some(joining.into());
        let request =
            ReconfigRequest { joining_servers, leaving_servers: None, new_members: None, cur_config_id: -1 };
        let changed = replica.reconfigure(now(0), &request);
        settle(replica);
        changed
    };
    assert_eq!(change(&mut replica, "server.2=c:1:2|d:1:2;3"), Err(ErrorCode::BadArguments));
    assert_eq!(change(&mut replica, "server.2=c:1:2;3"), Ok(()), "server 1 stays as it is");
    replica.settings.requests.multi_address_enabled = true;
    assert_eq!(change(&mut replica, "server.2=c:1:2|d:1:2;3"), Ok(()));
}
