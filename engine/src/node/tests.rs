use bytes::Bytes;
use ringkeeper_wire::{
    CheckRequest, Epoch, ErrorCode, MultiOp, MultiRequest, OpCode, Record, ServerId, SessionId, Xid,
};

use super::*;
use crate::message::{ConnId, Serving, Submission, Submitted};
use crate::message::{RequestBatch, ShardId, ToShard};
use crate::replica::{Output, Replica, ReplicaSettings};
use crate::state::State;
use crate::txn::{Txn, TxnOp, decode_batch, encode_batch};

fn zxid(epoch: u32, counter: u32) -> Zxid {
    Zxid::new(Epoch(epoch), counter)
}

/// A transaction that changes nothing but the zxid.
fn batch(zxid: Zxid) -> Batch {
    let op = TxnOp::Error(ErrorCode::NoNode);
    let txn = Txn { zxid, session: SessionId(1), xid: Xid(1), time_ms: 0, op };
    let mut frame = ringkeeper_frame::begin(0);
    encode_batch(vec![&txn], &mut frame);
    Batch::seal(zxid, zxid, zab::Checksum::NONE, frame)
}

/// The state that a log of these batches gives.
fn state(log: &[Batch]) -> State {
    let mut state = State::new(1);
    for batch in log {
        let mut aligned: rkyv::util::AlignedVec = rkyv::util::AlignedVec::new();
        aligned.extend_from_slice(batch.payload().expect("framed above"));
        for txn in decode_batch(&aligned).expect("a batch") {
            state.apply(&txn);
        }
    }
    state
}

fn node(log: &[Batch]) -> Node<Replica> {
    member(log, [1, 2, 3].into_iter().map(ServerId).collect(), 1 << 20)
}

fn member(log: &[Batch], voters: zab::ServerSet, batch_bytes_max: usize) -> Node<Replica> {
    let settings = ReplicaSettings { batch_bytes_max, ..ReplicaSettings::new(ServerId(1), [0; 32]) };
    let config = zab::Config::new(ServerId(1), voters, zab::ServerSet::EMPTY);
    Node::new(Replica::new(settings, state(log)), config, zab::Durable::default(), 1)
}

fn serves(node: &mut Node<Replica>) -> Option<Serving> {
    node.take_effects().into_iter().rev().find_map(|effect| match effect {
        Effect::Output(Output::AllShards(ToShard::Serving(serving))) => Some(serving),
        _ => None,
    })
}

/// What the new leader sent while the state was being rebuilt was executed on the state with the cut
/// transactions, and then lost when the rebuilt one took its place: the server went on, and served, without
/// it.
#[test]
fn what_comes_while_the_state_is_rebuilt_is_executed_on_the_rebuilt_state() {
    let (kept, cut, next) = (batch(zxid(1, 1)), batch(zxid(1, 2)), batch(zxid(2, 1)));
    let mut node = node(&[kept.clone(), cut]);
    let now = Now::default();
    node.on_zab_effect(now, zab::Effect::Truncate { after: kept.last() });
    node.on_zab_effect(now, zab::Effect::Append(next.clone()));
    node.on_zab_effect(now, zab::Effect::Commit { upto: next.last() });
    let status = Status::Following { leader: ServerId(2), epoch: Epoch(2) };
    node.on_zab_effect(now, zab::Effect::Status(status));
    assert_eq!(serves(&mut node), None, "there is nothing to serve from");
    node.restored(now, state(std::slice::from_ref(&kept)));
    assert_eq!(node.application().committed().last_zxid(), next.last());
    assert_eq!(serves(&mut node), Some(Serving::Yes));
}

#[test]
fn a_log_cut_twice_is_rebuilt_twice_and_the_second_state_counts() {
    let log = [batch(zxid(1, 1)), batch(zxid(1, 2)), batch(zxid(1, 3))];
    let mut node = node(&log);
    let now = Now::default();
    node.on_zab_effect(now, zab::Effect::Truncate { after: log[1].last() });
    node.on_zab_effect(now, zab::Effect::Append(batch(zxid(2, 1))));
    node.on_zab_effect(now, zab::Effect::Truncate { after: log[0].last() });
    let rebuilds = node.take_effects().iter().filter(|effect| matches!(effect, Effect::Rebuild)).count();
    assert_eq!(rebuilds, 2);
    node.restored(now, state(&log[..2]));
    node.restored(now, state(&log[..1]));
    assert_eq!(node.application().last_executed(), log[0].last());
}

/// A server alone that leads, whose log is idle, and a session of it.
fn leading_alone(batch_bytes_max: usize) -> (Node<Replica>, SessionId) {
    let mut node = member(&[], [ServerId(1)].into_iter().collect(), batch_bytes_max);
    let now = Now::default();
    node.input(now, Input::Start);
    loop {
        let effects = node.take_effects();
        assert!(!effects.is_empty(), "a server alone waits for nobody");
        for effect in effects {
            match effect {
                Effect::Zab(zab::Effect::PersistEpochs(_)) => node.input(now, Input::EpochsDurable),
                Effect::Zab(zab::Effect::Append(batch)) => {
                    node.input(now, Input::Durable { upto: batch.last() });
                }
                Effect::Zab(zab::Effect::Status(Status::Leading { .. })) => {
                    let open = Submitted::Open { timeout_ms: 4000 };
                    submit(&mut node, requests(SessionId(0), open, &[]));
                    node.propose(now);
                }
                Effect::Output(Output::Shard(_, ToShard::Attached { session, .. })) => {
                    return (node, session);
                }
                _ => {}
            }
        }
    }
}

fn submit(node: &mut Node<Replica>, batch: RequestBatch) {
    let now = Now::default();
    node.request(now, |replica| replica.requests(now, ShardId(0), batch));
}

fn requests(session: SessionId, what: Submitted, bytes: &[u8]) -> RequestBatch {
    RequestBatch {
        submissions: vec![Submission { conn: ConnId(1), session, local: false, what }],
        bytes: Bytes::copy_from_slice(bytes),
        ..RequestBatch::default()
    }
}

/// A batch with one write of 20 bytes.
fn write(session: SessionId) -> RequestBatch {
    write_of(session, OpCode::Delete, &[0; 20])
}

/// A batch with one multi of so many checks.
fn multi(session: SessionId, operations: usize) -> RequestBatch {
    let check = MultiOp::Check(CheckRequest { path: "/".into(), version: -1 });
    let mut body = Vec::new();
    MultiRequest::from(&vec![check; operations][..]).encode(&mut body);
    write_of(session, OpCode::Multi, &body)
}

fn write_of(session: SessionId, op: OpCode, body: &[u8]) -> RequestBatch {
    let (identities, read_barrier) = (Some([].into()), false);
    let what = Submitted::Write { xid: Xid(1), op, body: 0..body.len(), identities, read_barrier };
    requests(session, what, body)
}

fn appended(node: &mut Node<Replica>) -> Vec<Batch> {
    let effects = node.take_effects().into_iter();
    let batch =
        |effect| if let Effect::Zab(zab::Effect::Append(batch)) = effect { Some(batch) } else { None };
    effects.filter_map(batch).collect()
}

#[test]
fn what_fills_a_batch_is_proposed_while_the_log_is_busy_and_less_waits_for_the_log() {
    for (batch_bytes_max, proposed_at_once) in [(20, 1), (21, 0)] {
        let (mut node, session) = leading_alone(batch_bytes_max);
        let now = Now::default();
        submit(&mut node, write(session));
        assert_eq!(appended(&mut node).len(), proposed_at_once, "of {batch_bytes_max} bytes");
        node.propose(now);
        assert_eq!(appended(&mut node).len(), 1 - proposed_at_once, "of {batch_bytes_max} bytes");
    }
}

#[test]
fn a_leader_does_not_propose_without_end_what_its_own_log_has_not_taken() {
    let (mut node, session) = leading_alone(20);
    let now = Now::default();
    (0..100).for_each(|_| submit(&mut node, write(session)));
    let waiting = appended(&mut node);
    let (newest, older) = waiting.split_last().expect("full batches are proposed while the log is busy");
    let bytes = |batches: &[Batch]| batches.iter().map(|batch| batch.bytes().len()).sum::<usize>();
    assert!(bytes(older) < node.undurable_bytes_max() && node.undurable_bytes_max() <= bytes(&waiting));
    node.input(now, Input::Durable { upto: newest.last() });
    let [rest] = &appended(&mut node)[..] else { panic!("what has waited is one batch") };
    assert_eq!(rest.last().counter(), 101, "the session and its hundred writes");
}

#[test]
fn what_is_prepared_is_proposed_before_a_large_multi_that_waited_is_prepared() {
    let (mut node, session) = leading_alone(1 << 20);
    let now = Now::default();
    (0..2).for_each(|_| submit(&mut node, multi(session, 5_000)));
    node.propose(now);
    let [first] = &appended(&mut node)[..] else {
        panic!("the second one waits until the first is committed")
    };
    let mut small = requests(SessionId(0), Submitted::Open { timeout_ms: 4000 }, &[]);
    small.submissions[0].conn = ConnId(2);
    submit(&mut node, small);
    node.input(now, Input::Durable { upto: first.last() });
    assert!(node.has_due());
    node.lead_waiting(now);
    node.propose(now);
    let txns: Vec<u64> = appended(&mut node).iter().map(Batch::txns).collect();
    assert_eq!(txns, [1, 1], "the small one does not wait in the large one's batch");
}

/// A leader that had lost its office went on sending snapshots: the effect that says so was dropped here.
#[test]
fn the_host_hears_that_leadership_is_lost_and_of_every_piece_of_a_snapshot() {
    let mut node = node(&[]);
    let from = ServerId(2);
    for effect in [
        zab::Effect::Reset,
        zab::Effect::SnapshotChunk { from, bytes: vec![7; 3].into() },
        zab::Effect::AbortSnapshot,
    ] {
        node.on_zab_effect(Now::default(), effect.clone());
        let effects = node.take_effects();
        assert!(matches!(&effects[..], [Effect::Zab(passed)] if *passed == effect), "{effects:?}");
    }
}

#[test]
fn a_batch_that_the_application_does_not_know_stops_the_server_and_is_not_logged() {
    let mut node = node(&[]);
    let first = zxid(1, 1);
    let foreign = Batch::of(first, first, zab::Checksum::NONE, b"of something else");
    node.on_zab_effect(Now::default(), zab::Effect::Append(foreign));
    assert!(matches!(&node.take_effects()[..], [Effect::Broken(_)]));
}

/// Servers 1 and 2, the voters of a new ensemble, with disks that take no time.
struct Pair {
    nodes: [Node<Replica>; 2],
    now: Now,
    /// What the servers have told their shards.
    told: Vec<ToShard>,
    /// How many answers the leader has sent to the learner.
    answers: usize,
}

impl Pair {
    fn founded(lease_ms: u64) -> Self {
        let voters: zab::ServerSet = [1, 2].into_iter().map(ServerId).collect();
        let now = Now::default();
        let nodes = [1, 2].map(|id| {
            let config = zab::Config::new(ServerId(id), voters, zab::ServerSet::EMPTY);
            let replica = Replica::new(ReplicaSettings::new(ServerId(id), [0; 32]), State::new(1));
            let config = zab::Config { lease_ms, ..config };
            let mut node = Node::new(replica, config, zab::Durable::default(), id);
            let peer = ServerId(3 - id);
            node.input(now, Input::Start);
            node.peer_speaks(peer, zab::USERS_SINCE);
            node.input(now, Input::PeerConnected(peer));
            node
        });
        let mut pair = Self { nodes, now, told: Vec::new(), answers: 0 };
        while pair.nodes.iter().any(|node| node.status() == Status::Looking) {
            pair.pass(50);
            assert!(pair.now.monotonic_ms < 60_000, "they never serve");
        }
        pair
    }

    /// Which of the two leads, and which follows.
    fn roles(&self) -> (usize, usize) {
        let leader = usize::from(matches!(self.nodes[1].status(), Status::Leading { .. }));
        (leader, 1 - leader)
    }

    /// So much time passes, and everything that follows from it happens.
    fn pass(&mut self, ms: u64) {
        self.now.monotonic_ms += ms;
        self.nodes.iter_mut().for_each(|node| node.tick(self.now));
        while self.carry_out(0) | self.carry_out(1) {}
    }

    /// One pass of a server's host. Returns whether there was anything to do.
    fn carry_out(&mut self, index: usize) -> bool {
        let now = self.now;
        self.nodes[index].propose(now);
        self.nodes[index].flush(now);
        let mut effects = self.nodes[index].take_effects();
        let was_busy = !effects.is_empty();
        while !effects.is_empty() {
            for effect in effects {
                let [node, peer] = self.nodes.get_disjoint_mut([index, 1 - index]).expect("two servers");
                match effect {
                    Effect::Zab(zab::Effect::PersistEpochs(_)) => node.input(now, Input::EpochsDurable),
                    Effect::Zab(zab::Effect::Append(batch)) => {
                        node.input(now, Input::Durable { upto: batch.last() });
                    }
                    Effect::Zab(zab::Effect::Send { to: _, message }) => {
                        self.answers += usize::from(matches!(message, zab::Message::ToLearner(_)));
                        peer.input(now, Input::Message { from: ServerId(index as u64 + 1), message });
                    }
                    Effect::Output(Output::Shard(_, message)) => self.told.push(message),
                    _ => {}
                }
            }
            effects = self.nodes[index].take_effects();
        }
        was_busy
    }

    /// A request for each of the learner's connections 1 and 2.
    fn ask(&mut self, what: impl Fn(usize) -> (SessionId, Submitted)) {
        let asked = (0..2).map(|index| {
            let (session, what) = what(index);
            Submission { conn: ConnId(index as u64 + 1), session, local: false, what }
        });
        let batch = RequestBatch { submissions: asked.collect(), ..RequestBatch::default() };
        let (now, (_, learner)) = (self.now, self.roles());
        self.nodes[learner].request(now, |replica| replica.requests(now, ShardId(0), batch));
    }
}

/// Server 1 of three, which follows server 3 in epoch 2; its log is empty, its disk is played by the test.
fn following() -> Node<Replica> {
    let voters: zab::ServerSet = [1, 2, 3].into_iter().map(ServerId).collect();
    let ensemble = zab::EnsembleId { cluster: 9, fork: 0, voters, groups: 0 };
    let (old, epoch) = (Epoch(1), Epoch(2));
    let epochs = zab::Epochs {
        accepted: old,
        current: old,
        cluster: 9,
        voters,
        initialized: true,
        ..zab::Epochs::default()
    };
    let own = zab::Standing {
        accepted: old,
        current: old,
        led_by: None,
        last: Zxid::ZERO,
        ensemble,
        initialized: true,
        founds: false,
        process: 1,
    };
    let leads = zab::Notification {
        state: zab::PeerState::Leading,
        round: 1,
        vote: zab::Vote { epoch: old, zxid: Zxid::ZERO, leader: ServerId(3) },
        own,
        serves: false,
        committed: Zxid::ZERO,
        doubt: None,
    };
    let durable = zab::Durable { epochs, log: zab::LogSummary::default() };
    let config = zab::Config::new(ServerId(1), voters, zab::ServerSet::EMPTY);
    let replica = Replica::new(ReplicaSettings::new(ServerId(1), [0; 32]), State::new(1));
    let mut node = Node::new(replica, config, durable, 1);
    node.input(Now::default(), Input::Start);
    for peer in [2, 3].map(ServerId) {
        node.peer_speaks(peer, zab::USERS_SINCE);
        node.input(Now::default(), Input::PeerConnected(peer));
    }
    hear_leader(&mut node, zab::Message::Notification(leads));
    hear_leader(&mut node, zab::Message::NewEpoch(epoch));
    node.take_effects();
    node.input(Now::default(), Input::EpochsDurable);
    let serial = node.take_effects().into_iter().find_map(|effect| match effect {
        Effect::Zab(zab::Effect::Send { message: zab::Message::AckEpoch(ask), .. }) => Some(ask.serial),
        _ => None,
    });
    let (serial, plan) = (serial.expect("asks to be synchronized"), zab::SyncPlan::Diff);
    hear_leader(
        &mut node,
        zab::Message::Sync(zab::Sync { epoch, serial, plan, history: Zxid::ZERO, ensemble }),
    );
    node
}

fn hear_leader(node: &mut Node<Replica>, message: zab::Message) {
    node.input(Now::default(), Input::Message { from: ServerId(3), message });
}

/// Only the newest committed state was ever looked at, and the log of such a server is never durable so far
/// while writes go on. It took no snapshot, and so never removed any of its log.
#[test]
fn a_server_whose_disk_is_slower_than_the_quorums_takes_snapshots_while_writes_go_on() {
    let (mut node, now) = (following(), Now::default());
    let mut prev = LogPosition { zxid: Zxid::ZERO, checksum: zab::Checksum::NONE };
    let mut held = None;
    for counter in 1..10 {
        // The others have committed it before this server's disk has the one before.
        let batch = batch(zxid(2, counter));
        let propose = zab::Propose { epoch: Epoch(2), prev, commit: batch.last(), batch: batch.clone() };
        hear_leader(&mut node, zab::Message::Propose(propose));
        if prev.zxid != Zxid::ZERO {
            node.input(now, Input::Durable { upto: prev.zxid });
            assert_eq!(held, Some(prev));
            assert!(node.zab().is_settled(prev.zxid), "durable, and newer by now");
        }
        let (_, position) = node.hold().expect("committed");
        assert_eq!(position, batch.end());
        assert!(!node.zab().is_settled(position.zxid), "not durable here");
        (held, prev) = (Some(position), position);
    }
}

/// The second one waited for the leader's next tick: the flush that had asked for both went with the first
/// answer.
#[test]
fn by_a_lease_a_leader_answers_all_syncs_of_a_pass_in_that_pass() {
    let mut pair = Pair::founded(400);
    pair.ask(|_| (SessionId(0), Submitted::Open { timeout_ms: 4000 }));
    pair.pass(50);
    let attached = pair.told.iter().filter_map(|message| match message {
        ToShard::Attached { session, .. } => Some(*session),
        _ => None,
    });
    let sessions: Vec<_> = attached.collect();
    (0..10).for_each(|_| pair.pass(50));
    let (leader, learner) = pair.roles();
    pair.ask(|index| (sessions[index], Submitted::Sync));
    pair.carry_out(learner);
    pair.answers = 0;
    pair.carry_out(leader);
    assert_eq!(pair.answers, 2);
}
