use std::sync::Arc;

use bytes::Bytes;
use ringkeeper_frame::Checksum;
use ringkeeper_wire::{
    AclEntry, AclList, CreateMode, CreateRequest, Epoch, ErrorCode, MultiOp, Perms, Record, Request,
    ServerId, SetDataRequest, Zxid,
};

use super::super::Effect;
use super::super::tests::{TIMEOUT_MS, ask, opening, reattaching, write};
use super::*;
use crate::application::Application;
use crate::limits::{Limit, Limits};
use crate::message::{ConnId, Published, Serving};
use crate::state::State;
use crate::txn::{Outcome, TxnOp};
use crate::zab::Status;

const SHARD: ShardId = ShardId(3);
const EPOCH: Epoch = Epoch(1);
const FOLLOWING: Status = Status::Following { leader: ServerId(1), epoch: EPOCH };

fn now(monotonic_ms: u64) -> Now {
    Now { monotonic_ms, wall_ms: 1_000_000 }
}

/// A leader without local sessions, and a server with them that follows it.
struct Pair {
    leader: Replica,
    learner: Replica,
    /// What the learner has sent to the leader and the leader has not been given.
    sent: Vec<Bytes>,
    /// What the learner has told its shards.
    told: Vec<ToShard>,
    next_xid: i32,
}

fn keeping(server: u64, upgrading: bool) -> Replica {
    let settings = ReplicaSettings {
        local_sessions: true,
        local_sessions_upgrading: upgrading,
        ..ReplicaSettings::new(ServerId(server), [7; 32])
    };
    Replica::new(settings, State::new(1))
}

impl Pair {
    fn new(learner: Replica) -> Self {
        let leader = Replica::new(ReplicaSettings::new(ServerId(1), [8; 32]), State::new(1));
        let mut pair = Self { leader, learner, sent: Vec::new(), told: Vec::new(), next_xid: 0 };
        pair.leader.status(now(0), Status::Leading { epoch: EPOCH });
        pair.learner.peer_speaks(ServerId(1), LOCAL_SESSIONS_SINCE);
        pair.learner.status(now(0), FOLLOWING);
        pair.exchange();
        pair.told.clear();
        pair
    }

    /// Collects what the learner wants done.
    fn collect(&mut self) {
        for effect in self.learner.take_effects() {
            match effect {
                Effect::ToLeader(bytes) => self.sent.push(bytes),
                Effect::Output(Output::Shard(_, message) | Output::AllShards(message)) => {
                    self.told.push(message)
                }
                _ => {}
            }
        }
    }

    /// The leader is given what was sent, and everything is committed on both.
    fn exchange(&mut self) {
        self.collect();
        for bytes in std::mem::take(&mut self.sent) {
            self.leader.forwarded(now(0), ServerId(2), &bytes).expect("of this version");
        }
        while let Some(batch) = self.leader.next_batch(Zxid::ZERO, Checksum::NONE) {
            self.learner.append(&batch).expect("a sound batch");
        }
        self.leader.commit(now(0), self.leader.last_executed());
        self.learner.commit(now(0), self.leader.last_executed());
        let mut answers = Vec::new();
        loop {
            let effects: Vec<_> = self.leader.take_effects().collect();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                match effect {
                    Effect::ConfirmLeadership(round) => self.leader.leadership_confirmed(round, Zxid::ZERO),
                    Effect::ToLearner(_, bytes) => answers.push(bytes),
                    _ => {}
                }
            }
        }
        answers.iter().for_each(|bytes| self.learner.directed(bytes).expect("of this version"));
        self.collect();
    }

    fn request(&mut self, batch: RequestBatch) {
        self.learner.requests(now(0), SHARD, batch);
        self.collect();
    }

    fn ask(&mut self, conn: u64, session: SessionId, what: Submitted) {
        self.request(ask(conn, session, what));
    }

    fn write(&mut self, conn: u64, session: SessionId, request: &Request<'_>) {
        self.next_xid += 1;
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.request(write(conn, session, self.next_xid, (request.op(), bytes), false));
    }

    fn open(&mut self, conn: u64) -> (SessionId, [u8; 16]) {
        self.request(opening(conn));
        match self.told.pop() {
            Some(ToShard::Attached { session, password, .. }) => (session, password),
            other => panic!("{other:?}"),
        }
    }

    fn reattach(&mut self, conn: u64, session: SessionId, password: [u8; 16]) {
        self.request(reattaching(conn, session, password));
    }

    /// The session comes back on another server than its own.
    fn reattach_elsewhere(&mut self, session: SessionId, password: [u8; 16]) {
        self.leader.requests(now(0), SHARD, reattaching(1, session, password));
    }

    /// The outcomes that were published on the learner, in order, and who they are for.
    fn outcomes(&mut self) -> Vec<(Outcome, Option<u64>)> {
        let published = std::mem::take(&mut self.told).into_iter().filter_map(|message| match message {
            ToShard::Published(published) => Some(published),
            _ => None,
        });
        let published: Vec<Arc<Published>> = published.collect();
        let groups = published.iter().flat_map(|published| &published.groups);
        let txns = groups.flat_map(|group| &group.txns);
        txns.map(|txn| (txn.outcome.clone(), txn.origin.map(|origin| origin.conn.0))).collect()
    }
}

fn create(path: &str, mode: CreateMode) -> CreateRequest<'_> {
    static OPEN: std::sync::OnceLock<[AclEntry; 1]> = std::sync::OnceLock::new();
    let open =
        OPEN.get_or_init(|| [AclEntry { perms: Perms::ALL, scheme: "world".into(), id: "anyone".into() }]);
    let acl = Some(AclList::from(&open[..]));
    CreateRequest { path: path.into(), data: Some(b"x"), acl, flags: mode.to_wire() }
}

fn set(path: &str) -> SetDataRequest<'_> {
    SetDataRequest { path: path.into(), data: Some(b"y"), version: -1 }
}

#[test]
fn opening_renewing_resuming_and_closing_a_local_session_is_no_business_of_the_leader() {
    let mut pair = Pair::new(keeping(2, true));
    let (session, password) = pair.open(1);
    assert_eq!(session.0 >> 56, 2, "the top byte is the server's");
    let touched = RequestBatch { touched: vec![session], ..RequestBatch::default() };
    pair.learner.requests(now(10), SHARD, touched);
    pair.ask(1, session, Submitted::Detach);
    pair.reattach(2, session, password);
    assert!(matches!(pair.told[..], [ToShard::Attached { conn: ConnId(2), .. }]), "{:?}", pair.told);
    assert_eq!(pair.learner.local_session_count(), 1);
    pair.write(2, session, &Request::CloseSession);
    assert!(matches!(pair.told[..], [_, ToShard::Closed { conn: ConnId(2) }]), "{:?}", pair.told);
    assert_eq!(pair.learner.local_session_count(), 0);
    assert!(pair.sent.is_empty(), "{} messages", pair.sent.len());
    assert_eq!(pair.leader.last_executed(), Zxid::ZERO, "and costs no transaction");
}

#[test]
fn each_local_session_has_an_id_and_a_password_of_its_own() {
    let mut pair = Pair::new(keeping(2, true));
    let opened: std::collections::BTreeSet<_> = (0..100).map(|conn| pair.open(conn)).collect();
    assert_eq!(opened.len(), 100);
}

#[test]
fn a_local_session_is_resumed_with_its_password_alone_and_leaves_its_old_connection() {
    let mut pair = Pair::new(keeping(2, true));
    let (session, password) = pair.open(1);
    pair.reattach(2, session, [0; 16]);
    assert!(matches!(pair.told[..], [ToShard::Rejected { conn: ConnId(2) }]), "{:?}", pair.told);
    pair.told.clear();
    pair.reattach(3, session, password);
    let told = std::mem::take(&mut pair.told);
    let evicts =
        matches!(told[..], [ToShard::Evict { conn: ConnId(1) }, ToShard::Attached { conn: ConnId(3), .. }]);
    assert!(evicts, "{told:?}");
    // What the old connection still sends is not the session's.
    pair.write(1, session, &Request::Create(create("/a", CreateMode::Persistent)));
    pair.exchange();
    assert!(matches!(pair.told[..], [ToShard::Evict { conn: ConnId(1) }]), "{:?}", pair.told);
}

#[test]
fn a_local_session_is_resumed_without_a_leader_in_read_only_mode_and_outlives_it() {
    let settings = ReplicaSettings { read_only_after_ms: Some(2000), ..keeping(2, true).settings().clone() };
    let mut pair = Pair::new(Replica::new(settings, State::new(1)));
    let ((session, password), (closed, its_password)) = (pair.open(1), pair.open(9));
    pair.learner.status(now(0), Status::Looking);
    [0, 2000].into_iter().for_each(|ms| pair.learner.tick(now(ms)));
    pair.collect();
    pair.told.clear();
    pair.reattach(2, session, [0; 16]);
    pair.reattach(3, session, password);
    pair.reattach(4, session, password);
    let told = std::mem::take(&mut pair.told);
    let resumes = matches!(
        told[..],
        [
            ToShard::Rejected { conn: ConnId(2) },
            ToShard::Attached { conn: ConnId(3), .. },
            ToShard::Evict { conn: ConnId(3) },
            ToShard::Attached { conn: ConnId(4), .. },
        ]
    );
    assert!(resumes, "{told:?}");
    pair.reattach(6, closed, its_password);
    // The first is of a connection that never had the session; the shard answers both.
    for (conn, left) in [(7, 2), (6, 1)] {
        pair.write(conn, closed, &Request::CloseSession);
        assert_eq!(pair.learner.local_session_count(), left);
    }
    pair.told.clear();
    pair.learner.status(now(3000), FOLLOWING);
    pair.collect();
    assert!(matches!(pair.told[0], ToShard::Serving(Serving::No)), "{:?}", pair.told);
    pair.told.clear();
    pair.ask(4, session, Submitted::Detach);
    pair.reattach(5, session, password);
    assert!(matches!(pair.told[..], [ToShard::Attached { conn: ConnId(5), .. }]), "{:?}", pair.told);
}

#[test]
fn a_local_session_writes_and_syncs_through_the_leader_who_does_not_know_it() {
    let mut pair = Pair::new(keeping(2, true));
    let (session, _) = pair.open(1);
    pair.write(1, session, &Request::Create(create("/a", CreateMode::Persistent)));
    pair.ask(1, session, Submitted::Sync);
    pair.exchange();
    assert!(pair.told.iter().any(|told| matches!(told, ToShard::Synced { conn: ConnId(1) })));
    let outcomes = pair.outcomes();
    assert!(matches!(outcomes[..], [(Outcome::Done(_), Some(1))]), "{outcomes:?}");
    assert_eq!(pair.leader.committed().sessions().len(), 0);
}

#[test]
fn the_leader_is_told_a_local_writers_identities_each_time() {
    let mut pair = Pair::new(keeping(2, true));
    let (session, _) = pair.open(1);
    for path in ["/a", "/b"] {
        pair.write(1, session, &Request::Create(create(path, CreateMode::Persistent)));
    }
    for bytes in &pair.sent {
        let heard = super::super::forward::decode(bytes).expect("of this version");
        let named = format!("{heard:?}").contains("identities: Some");
        assert!(named, "{heard:?}");
    }
    assert_eq!(pair.sent.len(), 2);
}

#[test]
fn a_local_session_owns_no_ephemeral_unless_it_is_upgraded() {
    let mut pair = Pair::new(keeping(2, false));
    let (session, _) = pair.open(1);
    let ephemeral = || create("/e", CreateMode::EphemeralSequential);
    pair.write(1, session, &Request::Create(ephemeral()));
    let ops = [MultiOp::Create(create("/a", CreateMode::Persistent)), MultiOp::Create2(ephemeral())];
    pair.write(1, session, &Request::Multi((&ops[..]).into()));
    pair.exchange();
    let outcomes = pair.outcomes();
    let code = ErrorCode::EphemeralOnLocalSession;
    assert_eq!(outcomes[0], (Outcome::Failed(code), Some(1)));
    let Outcome::MultiFailed(failed) = &outcomes[1].0 else { panic!("{outcomes:?}") };
    assert_eq!((failed.failed, failed.code), (1, code));
    assert_eq!(pair.learner.local_session_count(), 1);
    assert_eq!(pair.leader.committed().sessions().len(), 0);
}

#[test]
fn the_first_ephemeral_makes_a_local_session_one_of_the_ensemble() {
    let ephemeral = || create("/e", CreateMode::Ephemeral);
    let ops = [MultiOp::Create(create("/a", CreateMode::Persistent)), MultiOp::Create(ephemeral())];
    for request in
        [Request::Create(ephemeral()), Request::Create2(ephemeral()), Request::Multi((&ops[..]).into())]
    {
        let mut pair = Pair::new(keeping(2, true));
        let (session, password) = pair.open(1);
        pair.write(1, session, &request);
        pair.exchange();
        let outcomes = pair.outcomes();
        assert!(
            matches!(
                outcomes[..],
                [(Outcome::SessionCreated, None), (Outcome::Done(_) | Outcome::Multi(_), Some(1))]
            ),
            "{outcomes:?}"
        );
        let committed = pair.leader.committed();
        let known = committed.session(session).expect("of the ensemble");
        assert_eq!((known.password, known.timeout_ms), (password, TIMEOUT_MS));
        assert_eq!(committed.ephemerals(session).collect::<Vec<_>>(), ["/e"]);
        assert_eq!(pair.learner.local_session_count(), 0);
        // What follows is what any session of the ensemble may do.
        pair.write(1, session, &Request::SetData(set("/e")));
        pair.write(1, session, &Request::CloseSession);
        pair.exchange();
        let outcomes = pair.outcomes();
        assert!(matches!(outcomes[..], [(Outcome::Done(_), Some(1)), (Outcome::SessionClosed(_), Some(1))]));
        assert_eq!(pair.leader.committed().ephemeral_count(), 0);
    }
}

/// ZOOKEEPER-3471: the close was answered by the session's own server while the upgrade was under way, so
/// that the ephemeral stayed without a session.
#[test]
fn a_close_behind_an_upgrade_is_ordered_behind_it() {
    let mut pair = Pair::new(keeping(2, true));
    let (session, _) = pair.open(1);
    pair.write(1, session, &Request::Create(create("/e", CreateMode::Ephemeral)));
    pair.write(1, session, &Request::CloseSession);
    assert!(pair.told.is_empty(), "nothing is answered before the leader has ordered it");
    pair.exchange();
    let outcomes = pair.outcomes();
    assert!(
        matches!(outcomes[..], [_, (Outcome::Done(_), Some(1)), (Outcome::SessionClosed(_), Some(1))]),
        "{outcomes:?}"
    );
    assert_eq!(pair.leader.committed().ephemeral_count(), 0);
}

#[test]
fn a_session_expires_at_the_leader_once_its_upgrade_is_under_way() {
    let mut pair = Pair::new(keeping(2, true));
    let (session, _) = pair.open(1);
    pair.write(1, session, &Request::Create(create("/e", CreateMode::Ephemeral)));
    pair.ask(1, session, Submitted::Detach);
    (0..60).for_each(|tick| pair.learner.tick(now(tick * 200)));
    assert_eq!(pair.learner.expired_sessions(), 0);
    pair.exchange();
    assert_eq!(pair.leader.committed().ephemeral_count(), 1);
    (0..60).for_each(|tick| pair.leader.tick(now(tick * 200)));
    pair.exchange();
    assert_eq!((pair.leader.expired_sessions(), pair.leader.committed().ephemeral_count()), (1, 0));
}

#[test]
fn a_session_that_was_called_expired_elsewhere_is_not_upgraded() {
    let mut pair = Pair::new(keeping(2, true));
    let (session, password) = pair.open(1);
    let (other, _) = pair.open(2);
    pair.reattach_elsewhere(session, password);
    // Whoever does not know the password changes nothing for the session.
    pair.reattach_elsewhere(other, [0; 16]);
    pair.write(1, session, &Request::Create(create("/e", CreateMode::Ephemeral)));
    pair.write(2, other, &Request::Create(create("/f", CreateMode::Ephemeral)));
    pair.exchange();
    assert!(
        pair.told.iter().any(|told| matches!(told, ToShard::Evict { conn: ConnId(1) })),
        "{:?}",
        pair.told
    );
    let committed = pair.leader.committed();
    assert!(committed.znode("/e").is_none() && committed.session(session).is_none());
    assert!(committed.znode("/f").is_some());
}

#[test]
fn a_session_that_a_leader_has_called_expired_is_not_upgraded_by_its_successor() {
    let mut pair = Pair::new(keeping(2, true));
    let (session, password) = pair.open(1);
    pair.reattach_elsewhere(session, password);
    pair.exchange();
    let mut successor = Replica::new(ReplicaSettings::new(ServerId(3), [9; 32]), State::new(1));
    successor.status(now(0), FOLLOWING);
    pair.leader.peer_speaks(ServerId(3), LOCAL_SESSIONS_SINCE);
    pair.leader.handing_over(ServerId(3));
    for effect in pair.leader.take_effects() {
        let Effect::ToLearner(ServerId(3), bytes) = effect else { panic!("{effect:?}") };
        successor.directed(&bytes).expect("of this version");
    }
    let epoch = Epoch(2);
    successor.handed_over(now(0), Status::Leading { epoch });
    pair.leader = successor;
    pair.learner.peer_speaks(ServerId(3), LOCAL_SESSIONS_SINCE);
    pair.learner.handed_over(now(0), Status::Following { leader: ServerId(3), epoch });
    pair.write(1, session, &Request::Create(create("/e", CreateMode::Ephemeral)));
    pair.exchange();
    let evicted = pair.told.iter().any(|told| matches!(told, ToShard::Evict { conn: ConnId(1) }));
    assert!(evicted, "{:?}", pair.told);
    let committed = pair.leader.committed();
    assert!(committed.znode("/e").is_none() && committed.session(session).is_none());
}

#[test]
fn a_connection_is_given_its_session_once_no_write_of_the_one_before_is_under_way() {
    let mut pair = Pair::new(keeping(2, true));
    let (session, password) = pair.open(1);
    pair.write(1, session, &Request::Create(create("/a", CreateMode::Persistent)));
    pair.ask(1, session, Submitted::Detach);
    pair.reattach(2, session, password);
    assert!(pair.told.is_empty(), "{:?}", pair.told);
    pair.exchange();
    assert!(
        matches!(pair.told[..], [ToShard::Published(_), ToShard::Attached { conn: ConnId(2), .. }]),
        "{:?}",
        pair.told
    );
}

#[test]
fn a_close_waits_for_the_writes_before_it() {
    let mut pair = Pair::new(keeping(2, true));
    let (session, _) = pair.open(1);
    pair.write(1, session, &Request::Create(create("/a", CreateMode::Persistent)));
    pair.write(1, session, &Request::CloseSession);
    assert!(pair.told.is_empty(), "{:?}", pair.told);
    pair.exchange();
    assert!(
        matches!(pair.told[..], [ToShard::Published(_), ToShard::Closed { conn: ConnId(1) }]),
        "{:?}",
        pair.told
    );
}

#[test]
fn a_silent_local_session_expires_on_its_server() {
    let mut pair = Pair::new(keeping(2, true));
    let (silent, password) = pair.open(1);
    let (heard, _) = pair.open(2);
    for ms in (0..6000).step_by(50) {
        let batch = RequestBatch { touched: vec![heard], ..RequestBatch::default() };
        pair.learner.requests(now(ms), SHARD, batch);
        pair.learner.tick(now(ms));
    }
    pair.collect();
    assert!(matches!(pair.told[..], [ToShard::Evict { conn: ConnId(1) }]), "{:?}", pair.told);
    assert_eq!((pair.learner.expired_sessions(), pair.learner.local_session_count()), (1, 1));
    assert!(pair.sent.is_empty());
    pair.told.clear();
    pair.reattach(3, silent, password);
    pair.exchange();
    assert!(matches!(pair.told[..], [ToShard::Rejected { conn: ConnId(3) }]), "{:?}", pair.told);
}

#[test]
fn a_local_session_outlives_a_leader_and_the_time_without_one() {
    let mut pair = Pair::new(keeping(2, true));
    let (session, password) = pair.open(1);
    pair.learner.tick(now(100));
    pair.learner.status(now(100), Status::Looking);
    (0..60).for_each(|tick| pair.learner.tick(now(100 + tick * 200)));
    pair.learner.status(now(12_000), FOLLOWING);
    pair.learner.tick(now(12_000));
    pair.collect();
    pair.told.clear();
    pair.reattach(2, session, password);
    assert!(matches!(pair.told[..], [ToShard::Attached { conn: ConnId(2), .. }]), "{:?}", pair.told);
}

#[test]
fn what_was_said_of_local_sessions_in_an_epoch_before_is_not_believed() {
    let mut pair = Pair::new(keeping(2, true));
    let (session, _) = pair.open(1);
    pair.write(1, session, &Request::Create(create("/a", CreateMode::Persistent)));
    pair.write(1, session, &Request::Create(create("/b", CreateMode::Ephemeral)));
    assert!(pair.sent.len() >= 2, "a write of a local session, and an upgrade");
    // The leader goes on in place, without what it had been asked before these.
    pair.leader.status(now(0), Status::Leading { epoch: Epoch(2) });
    pair.exchange();
    assert_eq!(pair.leader.last_executed(), Zxid::ZERO);
    let evicted = |told: &&ToShard| matches!(told, ToShard::Evict { conn: ConnId(1) });
    assert_eq!(pair.told.iter().filter(evicted).count(), 2, "{:?}", pair.told);
}

#[test]
fn a_session_whose_upgrade_is_lost_with_the_leader_has_ended() {
    let mut pair = Pair::new(keeping(2, true));
    let (session, password) = pair.open(1);
    pair.write(1, session, &Request::Create(create("/e", CreateMode::Ephemeral)));
    pair.sent.clear();
    pair.learner.status(now(0), Status::Looking);
    pair.learner.status(now(0), FOLLOWING);
    pair.collect();
    pair.told.clear();
    pair.reattach(2, session, password);
    pair.exchange();
    assert!(matches!(pair.told[..], [ToShard::Rejected { conn: ConnId(2) }]), "{:?}", pair.told);
}

#[test]
fn a_leader_of_an_older_build_is_asked_for_sessions_of_the_ensemble() {
    let mut pair = Pair::new(keeping(2, true));
    pair.open(1);
    pair.learner.peer_speaks(ServerId(1), LOCAL_SESSIONS_SINCE - 1);
    pair.learner.status(now(0), FOLLOWING);
    assert_eq!(pair.learner.local_session_count(), 0, "their clients are told that they have expired");
    pair.request(opening(2));
    pair.exchange();
    assert_eq!(pair.leader.committed().sessions().len(), 1);
}

#[test]
fn a_leader_keeps_local_sessions_of_its_own_clients() {
    let mut leader = keeping(1, true);
    leader.status(now(0), Status::Leading { epoch: EPOCH });
    leader.take_effects();
    leader.requests(now(0), SHARD, opening(1));
    let attached = leader.take_effects().find_map(|effect| match effect {
        Effect::Output(Output::Shard(_, ToShard::Attached { session, .. })) => Some(session),
        _ => None,
    });
    let session = attached.expect("at once");
    let mut bytes = Vec::new();
    create("/e", CreateMode::Ephemeral).encode(&mut bytes);
    leader.requests(now(0), SHARD, write(1, session, 1, (OpCode::Create, bytes), false));
    let ops: Vec<_> = leader.uncommitted().map(|txn| (txn.session, txn.op.clone())).collect();
    assert!(
        matches!(&ops[..], [(a, TxnOp::CreateSession(_)), (b, TxnOp::Update(_))] if *a == session && *b == session),
        "{ops:?}"
    );
}

#[test]
fn local_sessions_count_for_the_limit_of_sessions() {
    let mut learner = keeping(2, true);
    learner.settings.requests.limits = Limits::default().with(Limit::Sessions, 2);
    let mut pair = Pair::new(learner);
    pair.open(1);
    pair.open(2);
    pair.request(opening(3));
    assert!(matches!(pair.told[..], [ToShard::Evict { conn: ConnId(3) }]), "{:?}", pair.told);
}

#[test]
fn a_new_leader_is_not_told_of_local_sessions() {
    let mut pair = Pair::new(keeping(2, true));
    pair.open(1);
    let (upgraded, _) = pair.open(2);
    pair.write(2, upgraded, &Request::Create(create("/e", CreateMode::Ephemeral)));
    pair.exchange();
    let origin = Origin { shard: SHARD, conn: ConnId(2) };
    assert_eq!(pair.learner.clients_of_ensemble(), [(upgraded, origin)]);
}

/// Otherwise it could take effect behind what the session writes on its next connection.
#[test]
fn a_multi_that_waits_for_its_turn_is_dropped_when_its_server_leaves() {
    let mut pair = Pair::new(keeping(2, true));
    pair.leader.settings.uncommitted_operations_max = 1;
    let epoch = Epoch(2);
    pair.leader.status(now(0), Status::Leading { epoch });
    pair.learner.status(now(0), Status::Following { leader: ServerId(1), epoch });
    let (session, _) = pair.open(1);
    for path in ["/a", "/b"] {
        let ops = [MultiOp::Create(create(path, CreateMode::Persistent))];
        pair.write(1, session, &Request::Multi((&ops[..]).into()));
    }
    for bytes in std::mem::take(&mut pair.sent) {
        pair.leader.forwarded(now(0), ServerId(2), &bytes).expect("of this version");
    }
    pair.leader.server_left(now(0), ServerId(2));
    while pair.leader.next_batch(Zxid::ZERO, Checksum::NONE).is_some() {}
    pair.leader.commit(now(0), pair.leader.last_executed());
    assert!(!pair.leader.has_due());
    assert!(pair.leader.committed().znode("/a").is_some() && pair.leader.committed().znode("/b").is_none());
}
