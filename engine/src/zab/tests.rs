//! Rules of the protocol, one at a time. Names in brackets are defects of other implementations that break
//! the rule. The simulator tests random combinations of faults.

mod abandoning;
mod damaged_logs;
mod founding;
mod full_disks;
mod handing_over;
mod joining;
mod leasing;
mod observer_masters;
mod old_copies;
mod silence;
mod users;

use std::collections::BTreeMap;

use bytes::Bytes;

use super::*;
use crate::mutation::Mutation;

/// How often a shell ticks.
const TICK_MS: u64 = 50;

fn zxid(epoch: u32, counter: u32) -> Zxid {
    Zxid::new(Epoch(epoch), counter)
}

fn mark(epoch: u32, counter: u32) -> LogPosition {
    LogPosition { zxid: zxid(epoch, counter), checksum: Checksum(epoch * 1000 + counter) }
}

fn batch(epoch: u32, counter: u32) -> Batch {
    let end = mark(epoch, counter);
    Batch::new(end.zxid, end.zxid, end.checksum, Bytes::from_static(&[7; 10])).unwrap()
}

fn log(ends: &[(u32, u32)]) -> LogSummary {
    let mut log = LogSummary::default();
    ends.iter().for_each(|(epoch, counter)| log.push(mark(*epoch, *counter)));
    log
}

fn log_to(last: Zxid) -> LogOutline {
    LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, last.counter())] }
}

/// The voters of most tests.
fn voters() -> ServerSet {
    (1..=3).map(ServerId).collect()
}

fn ensemble(cluster: u64) -> EnsembleId {
    EnsembleId { cluster, fork: 0, voters: voters(), groups: 0 }
}

/// What a server says of itself whose log ends at `last`, in the epoch that it has adopted.
fn standing(epoch: Epoch, last: Zxid) -> Standing {
    Standing {
        accepted: epoch,
        current: epoch,
        led_by: None,
        last,
        ensemble: ensemble(9),
        initialized: true,
        founds: false,
        process: 1,
    }
}

/// What a whole server says to a new leader's epoch.
fn promise(epoch: Epoch, current: Epoch, log: LogOutline, serial: u64) -> AckEpoch {
    AckEpoch { epoch, promise: true, current, end_before_damage: Zxid::ZERO, log, serial, snapshot: false }
}

fn remembers(epoch: u32, ends: &[(u32, u32)]) -> Durable {
    let epoch = Epoch(epoch);
    let epochs = Epochs {
        accepted: epoch,
        current: epoch,
        cluster: 9,
        voters: voters(),
        initialized: true,
        ..Epochs::default()
    };
    Durable { epochs, log: log(ends) }
}

/// What a server with this standing says in its first round. It serves nobody, and knows of nothing that is
/// committed.
fn says(state: PeerState, vote: Vote, own: Standing) -> Notification {
    Notification { state, round: 1, vote, own, serves: false, committed: Zxid::ZERO, doubt: None }
}

/// One server; the test plays its peers, disk and clock.
struct Server {
    zab: Zab,
    now_ms: u64,
}

impl Server {
    /// Server `id` of three voters and two observers, connected to the other voters.
    fn start(id: u64, durable: Durable) -> Self {
        Self::start_planted(id, durable, Mutation::None)
    }

    fn start_planted(id: u64, durable: Durable, mutation: Mutation) -> Self {
        let observers = (4..=5).map(ServerId).collect();
        let config = Config::new(ServerId(id), (1..=3).map(ServerId).collect(), observers);
        let config = Config { mutation, observer_masters: true, ..config };
        let mut server = Self { zab: Zab::new(config, durable, 1), now_ms: 0 };
        (1..=5).for_each(|peer| server.zab.peer_speaks(ServerId(peer), USERS_SINCE));
        server.input(Input::Start);
        for peer in (1..=3).filter(|peer| *peer != id) {
            server.input(Input::PeerConnected(ServerId(peer)));
        }
        server
    }

    fn input(&mut self, input: Input) -> Vec<Effect> {
        let mut out = Effects::new();
        self.zab.handle(self.now_ms, input, &mut out);
        out.drain().collect()
    }

    fn hear(&mut self, from: u64, message: Message) -> Vec<Effect> {
        self.input(Input::Message { from: ServerId(from), message })
    }

    /// Ticks until `now_ms`, as a shell that is never held up.
    fn tick_at(&mut self, now_ms: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        while self.now_ms + TICK_MS < now_ms {
            effects.extend(self.stand_still_until(self.now_ms + TICK_MS));
        }
        effects.extend(self.stand_still_until(now_ms));
        effects
    }

    /// The next tick, however late it is.
    fn stand_still_until(&mut self, now_ms: u64) -> Vec<Effect> {
        self.now_ms = now_ms;
        self.input(Input::Tick)
    }

    fn notification(state: PeerState, leader: u64, epoch: u32, last: Zxid) -> Message {
        let vote = Vote { epoch: Epoch(epoch), zxid: last, leader: ServerId(leader) };
        let own = standing(Epoch(epoch), last);
        Message::Notification(says(state, vote, own))
    }

    /// Server 1 with this log, which has promised itself to epoch `epoch` of leader 3 and asked for
    /// synchronization; returns what it asked.
    fn learner(durable: Durable, epoch: u32) -> (Self, AckEpoch) {
        Self::start(1, durable).promise_to_learn(epoch)
    }

    fn promise_to_learn(mut self, epoch: u32) -> (Self, AckEpoch) {
        let server = &mut self;
        server.hear(3, Self::notification(PeerState::Leading, 3, epoch - 1, Zxid::ZERO));
        let promised = server.hear(3, Message::NewEpoch(Epoch(epoch)));
        assert!(asked(&promised).is_none(), "the promise is not durable yet");
        assert!(matches!(promised[..], [Effect::PersistEpochs(_)]));
        let ask = asked(&server.input(Input::EpochsDurable)).unwrap();
        (self, ask)
    }

    /// The same, told to stream after its own end, with the leader's initial history ending at `history`.
    fn streaming(durable: Durable, epoch: u32, history: Zxid) -> Self {
        let (mut server, ask) = Self::learner(durable, epoch);
        server.sync(&ask, SyncPlan::Diff, history);
        server
    }

    fn sync(&mut self, ask: &AckEpoch, plan: SyncPlan, history: Zxid) -> Vec<Effect> {
        let sync = Sync { epoch: ask.epoch, serial: ask.serial, plan, history, ensemble: ensemble(9) };
        self.hear(3, Message::Sync(sync))
    }

    fn propose(&mut self, epoch: u32, prev: LogPosition, commit: Zxid, batch: Batch) -> Vec<Effect> {
        self.hear(3, Message::Propose(Propose { epoch: Epoch(epoch), prev, commit, batch }))
    }

    /// Server 3 with this log, leading an active epoch, adopted by itself and server 1.
    fn leader(durable: Durable) -> (Self, Epoch) {
        let last = durable.log.last();
        let (mut server, epoch) = Self::leader_elect(durable);
        server.input(Input::EpochsDurable);
        server.hear(1, ack(epoch, last.zxid, true));
        assert_eq!(server.zab.status(), Status::Leading { epoch });
        server.input(Input::EpochsDurable);
        server.input(Input::Flush);
        (server, epoch)
    }

    /// Server 3, whose epoch a quorum has accepted, before it has adopted that itself.
    fn leader_elect(durable: Durable) -> (Self, Epoch) {
        let accepted = durable.epochs.accepted;
        let (current, last) = (durable.epochs.current, durable.log.last());
        let mut server = Self::start(3, durable);
        let join = standing(accepted, last.zxid);
        let vote = Vote { epoch: current, zxid: last.zxid, leader: ServerId(3) };
        let own = Standing { accepted, ..standing(current, last.zxid) };
        let agrees = says(PeerState::Looking, vote, own);
        server.hear(1, Message::Notification(agrees));
        server.hear(2, Message::Notification(agrees));
        server.hear(1, Message::FollowerInfo(join));
        let epoch = Epoch(accepted.0 + 1);
        server.input(Input::EpochsDurable);
        let log = LogOutline { floor: Zxid::ZERO, ends: vec![last] };
        let ask = promise(epoch, current, log, 5);
        server.hear(1, Message::AckEpoch(ask));
        server.hear(1, pong(epoch, 1, Zxid::ZERO, false));
        (server, epoch)
    }
}

fn pong(epoch: Epoch, round: u64, upto: Zxid, adopted: bool) -> Message {
    Message::Pong(Pong { round, ack: Ack { epoch, upto, adopted, has_users: true }, lease_ms: 0 })
}

fn ack(epoch: Epoch, upto: Zxid, adopted: bool) -> Message {
    Message::Ack(Ack { epoch, upto, adopted, has_users: true })
}

fn ping(epoch: u32, commit: Zxid, sent: Zxid) -> Message {
    Message::Ping(Ping {
        epoch: Epoch(epoch),
        round: 1,
        commit,
        sent,
        active: true,
        members: ServerSet::EMPTY,
    })
}

fn messages(effects: &[Effect]) -> impl Iterator<Item = &Message> {
    effects.iter().filter_map(|effect| match effect {
        Effect::Send { message, .. } => Some(message),
        _ => None,
    })
}

fn asked(effects: &[Effect]) -> Option<AckEpoch> {
    messages(effects).find_map(|message| match message {
        Message::AckEpoch(ask) => Some(ask.clone()),
        _ => None,
    })
}

fn acks(effects: &[Effect]) -> Vec<(Zxid, bool)> {
    let acked = |message: &Message| match message {
        Message::Ack(ack) => Some((ack.upto, ack.adopted)),
        _ => None,
    };
    messages(effects).filter_map(acked).collect()
}

fn appended(effects: &[Effect]) -> Vec<Zxid> {
    let last = |effect: &Effect| match effect {
        Effect::Append(batch) => Some(batch.last()),
        _ => None,
    };
    effects.iter().filter_map(last).collect()
}

fn commits(effects: &[Effect]) -> Vec<Zxid> {
    let upto = |effect: &Effect| match effect {
        Effect::Commit { upto } => Some(*upto),
        _ => None,
    };
    effects.iter().filter_map(upto).collect()
}

fn persists(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::PersistEpochs(_)))
}

fn looks(effects: &[Effect]) -> bool {
    messages(effects).any(|message| {
        matches!(message, Message::Notification(Notification { state: PeerState::Looking, .. }))
    })
}

// One server alone.

#[test]
fn one_voter_leads_without_a_tick_and_commits_what_is_durable() {
    let config = Config::new(ServerId(1), [ServerId(1)].into_iter().collect(), ServerSet::EMPTY);
    let mut server = Server { zab: Zab::new(config, Durable::default(), 1), now_ms: 0 };
    assert!(persists(&server.input(Input::Start)), "the promise");
    assert!(persists(&server.input(Input::EpochsDurable)), "the adoption");
    let effects = server.input(Input::EpochsDurable);
    assert!(effects.contains(&Effect::Status(Status::Leading { epoch: Epoch(1) })));
    assert_eq!(server.zab.next_zxid(), Some(zxid(1, 1)));
    let effects = server.input(Input::Propose(batch(1, 1)));
    assert_eq!((appended(&effects), commits(&effects)), (vec![zxid(1, 1)], vec![]));
    assert_eq!(commits(&server.input(Input::Durable { upto: zxid(1, 1) })), [zxid(1, 1)]);
    let confirmed = Effect::LeadershipConfirmed { token: 4, commit: zxid(1, 1) };
    assert_eq!(server.input(Input::ConfirmLeadership { token: 4 }), [confirmed]);
}

// Discovery.

#[test]
fn a_promise_is_durable_before_it_is_answered_for() {
    // `Server::learner` asserts it on the way.
    let (_, ask) = Server::learner(remembers(1, &[(1, 4)]), 2);
    assert!(ask.promise);
    assert_eq!((ask.current, ask.log.last()), (Epoch(1), zxid(1, 4)));
}

#[test]
fn a_server_promises_itself_to_no_older_epoch() {
    let mut server = Server::start(1, remembers(5, &[(1, 4)]));
    server.hear(3, Server::notification(PeerState::Leading, 3, 3, Zxid::ZERO));
    let effects = server.hear(3, Message::NewEpoch(Epoch(4)));
    assert!(looks(&effects) && !persists(&effects));
}

#[test]
fn the_same_epoch_again_is_no_promise() {
    let mut server = Server::start(1, remembers(5, &[(1, 4)]));
    server.hear(3, Server::notification(PeerState::Leading, 3, 3, Zxid::ZERO));
    let ask = asked(&server.hear(3, Message::NewEpoch(Epoch(5)))).unwrap();
    assert!(!ask.promise);
}

#[test]
fn a_learner_with_a_newer_promise_moves_the_leader_to_a_newer_epoch() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    let join = standing(Epoch(40), zxid(1, 4));
    let effects = server.hear(2, Message::FollowerInfo(join));
    assert!(messages(&effects).any(|message| *message == Message::NewEpoch(Epoch(41))));
    assert_eq!(server.zab.status(), Status::Leading { epoch }, "in place");
    assert_eq!(server.zab.next_zxid(), None);
}

// Synchronization.

#[test]
fn an_epoch_is_adopted_after_its_history_is_durable_and_acked_after_the_adoption_is() {
    // [ZOOKEEPER-4643, 4646, 3911]
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 6));
    let early = server.propose(2, mark(1, 4), Zxid::ZERO, batch(1, 5));
    assert_eq!(appended(&early), [zxid(1, 5)]);
    server.propose(2, mark(1, 5), Zxid::ZERO, batch(1, 6));
    let effects = server.input(Input::Durable { upto: zxid(1, 5) });
    assert!(!persists(&effects));
    assert_eq!(acks(&effects), [(zxid(1, 5), false)]);
    let effects = server.input(Input::Durable { upto: zxid(1, 6) });
    assert!(persists(&effects));
    assert_eq!(acks(&effects), [(zxid(1, 6), false)]);
    assert_eq!(acks(&server.input(Input::EpochsDurable)), [(zxid(1, 6), true)]);
}

#[test]
fn a_proposal_acked_before_the_epoch_is_adopted_does_not_count() {
    // [ZOOKEEPER-4685]: there, such an ack killed the leader.
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    server.hear(1, Message::FollowerInfo(standing(epoch, zxid(1, 4))));
    server.input(Input::PeerDisconnected(ServerId(1)));
    server.input(Input::PeerConnected(ServerId(1)));
    server.hear(1, Message::FollowerInfo(standing(epoch, zxid(1, 4))));
    server.input(Input::Propose(batch(epoch.0, 1)));
    server.input(Input::Durable { upto: zxid(epoch.0, 1) });
    assert_eq!(commits(&server.hear(1, ack(epoch, zxid(epoch.0, 1), false))), []);
    assert_eq!(commits(&server.hear(1, ack(epoch, zxid(epoch.0, 1), true))), [zxid(epoch.0, 1)]);
}

#[test]
fn a_commit_ahead_of_its_proposal_waits_for_it() {
    // [ZOOKEEPER-3023, 4394]
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 5));
    let effects = server.hear(3, Message::Commit { epoch: Epoch(2), upto: zxid(1, 5) });
    assert_eq!(commits(&effects), [zxid(1, 4)]);
    assert_eq!(commits(&server.propose(2, mark(1, 4), Zxid::ZERO, batch(1, 5))), [zxid(1, 5)]);
}

#[test]
fn a_commit_that_comes_with_a_proposal_is_delivered_before_the_proposal_is_executed() {
    let mut server = Server::streaming(remembers(1, &[(1, 1)]), 2, zxid(1, 1));
    server.propose(2, mark(1, 1), Zxid::ZERO, batch(2, 1));
    let effects = server.propose(2, mark(2, 1), zxid(2, 1), batch(2, 2));
    let order = effects.iter().filter_map(|effect| match effect {
        Effect::Commit { upto } => Some(("commit", *upto)),
        Effect::Append(batch) => Some(("append", batch.last())),
        _ => None,
    });
    assert_eq!(order.collect::<Vec<_>>(), [("commit", zxid(2, 1)), ("append", zxid(2, 2))]);
}

#[test]
fn the_next_election_waits_for_a_truncation_under_way() {
    // [ZOOKEEPER-4712, 4541, 2845, 5094]: there, memory and disk went apart.
    let (mut server, ask) = Server::learner(remembers(1, &[(1, 4)]), 2);
    let effects = server.sync(&ask, SyncPlan::Truncate(zxid(1, 2)), zxid(1, 2));
    assert!(effects.contains(&Effect::Truncate { after: zxid(1, 2) }));
    let effects = server.input(Input::PeerDisconnected(ServerId(3)));
    assert!(!looks(&effects));
    server.input(Input::Durable { upto: zxid(1, 4) });
    let effects = server.input(Input::Truncated { last: mark(1, 2) });
    assert!(looks(&effects));
    assert_eq!(server.zab.last(), mark(1, 2));
}

#[test]
fn the_next_election_waits_for_a_snapshot_under_way() {
    let (mut server, ask) = Server::learner(remembers(1, &[(1, 4)]), 2);
    server.sync(&ask, SyncPlan::Snapshot(mark(1, 9)), zxid(1, 9));
    let effects = server.input(Input::PeerDisconnected(ServerId(3)));
    assert!(effects.contains(&Effect::AbortSnapshot) && !looks(&effects));
    assert!(looks(&server.input(Input::SnapshotAborted)));
    assert_eq!(server.zab.last(), mark(1, 4));
}

#[test]
fn what_is_appended_stays_in_the_log_across_an_election() {
    // [ZOOKEEPER-4785]: there, proposals in memory were forgotten, and later ones appended after the hole.
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 5));
    server.propose(2, mark(1, 4), Zxid::ZERO, batch(1, 5));
    server.input(Input::PeerDisconnected(ServerId(3)));
    server.input(Input::PeerConnected(ServerId(3)));
    server.hear(3, Server::notification(PeerState::Leading, 3, 2, Zxid::ZERO));
    server.hear(3, Message::NewEpoch(Epoch(3)));
    let ask = asked(&server.input(Input::EpochsDurable)).unwrap();
    assert_eq!(ask.log.last(), zxid(1, 5));
    server.sync(&ask, SyncPlan::Diff, zxid(1, 5));
    assert_eq!(acks(&server.input(Input::Durable { upto: zxid(1, 5) })), [(zxid(1, 5), false)]);
}

#[test]
fn a_proposal_reaches_a_learner_that_has_not_adopted_the_epoch_yet() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    server.hear(2, Message::FollowerInfo(standing(Epoch(1), zxid(1, 4))));
    let log = LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, 4)] };
    let ask = promise(epoch, Epoch(1), log, 8);
    server.hear(2, Message::AckEpoch(ask));
    let effects = server.input(Input::Propose(batch(epoch.0, 1)));
    let reached =
        |effect: &Effect| matches!(effect, Effect::Send { to: ServerId(2), message: Message::Propose(_) });
    assert!(effects.iter().any(reached));
}

#[test]
fn only_an_active_leader_gives_out_zxids() {
    // [ZOOKEEPER-3526]: there, a read-only server counted its own zxids in the shared log.
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    assert_eq!(server.zab.next_zxid(), None);
    assert!(server.input(Input::Propose(batch(2, 1))).is_empty());
    assert_eq!(server.zab.last(), mark(1, 4));
}

#[test]
fn a_repaired_log_is_shown_to_the_leader_again() {
    let (mut server, ask) = Server::learner(remembers(1, &[(1, 4)]), 2);
    server.sync(&ask, SyncPlan::Snapshot(mark(1, 9)), zxid(1, 9));
    let again = asked(&server.input(Input::SnapshotInstalled { last: mark(1, 9) })).unwrap();
    assert_eq!((again.log.last(), again.log.floor), (zxid(1, 9), zxid(1, 9)));
    assert_ne!(again.serial, ask.serial);
    assert_eq!(server.zab.committed(), zxid(1, 9), "a snapshot is committed state");
}

#[test]
fn a_gap_is_not_appended_but_asked_for() {
    // [ZOOKEEPER-4925]
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    let effects = server.propose(2, mark(1, 5), Zxid::ZERO, batch(1, 6));
    assert!(appended(&effects).is_empty());
    assert_eq!(asked(&effects).unwrap().log.last(), zxid(1, 4));
}

/// The simulator's connections are ordered, so a learner never meets a gap there. This test proves that the
/// check matters.
#[cfg(feature = "mutations")]
#[test]
fn without_the_contiguity_check_a_gap_is_appended() {
    let durable = remembers(1, &[(1, 4)]);
    let server = Server::start_planted(1, durable, Mutation::SkipContiguityCheck);
    let (mut server, ask) = server.promise_to_learn(2);
    server.sync(&ask, SyncPlan::Diff, zxid(1, 4));
    let effects = server.propose(2, mark(1, 5), Zxid::ZERO, batch(1, 6));
    assert_eq!(appended(&effects), [zxid(1, 6)]);
}

#[test]
fn a_hole_in_the_leaders_log_is_not_sent_on() {
    // [ZOOKEEPER-4925]
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 9)]));
    server.hear(2, Message::FollowerInfo(standing(Epoch(1), zxid(1, 4))));
    let log = LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, 4)] };
    let ask = promise(epoch, Epoch(1), log, 8);
    let effects = server.hear(2, Message::AckEpoch(ask));
    let read = |effect: &&Effect| matches!(effect, Effect::ReadLog { after, .. } if *after == zxid(1, 4));
    assert!(effects.iter().find(read).is_some());
    let batches = vec![batch(1, 5), batch(1, 7)];
    let effects = server.input(Input::LogRead { peer: ServerId(2), after: zxid(1, 4), batches });
    let sent = messages(&effects).filter(|message| matches!(message, Message::Propose(_))).count();
    assert_eq!(sent, 1);
}

#[test]
fn where_the_leaders_log_cannot_be_read_the_learner_needs_a_snapshot_that_ends_behind_what_it_has() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 9)]));
    server.hear(2, Message::FollowerInfo(standing(Epoch(1), zxid(1, 4))));
    let log = LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, 4)] };
    server.hear(2, Message::AckEpoch(promise(epoch, Epoch(1), log, 8)));
    let nothing = Input::LogRead { peer: ServerId(2), after: zxid(1, 4), batches: Vec::new() };
    assert!(server.input(nothing).contains(&Effect::SendSnapshot { to: ServerId(2), after: zxid(1, 4) }));
}

#[test]
fn a_redundant_proposal_is_ignored() {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    let effects = server.propose(2, mark(1, 2), zxid(1, 3), batch(1, 3));
    assert!(appended(&effects).is_empty() && asked(&effects).is_none());
    assert_eq!(commits(&effects), [zxid(1, 3)]);
}

#[test]
fn what_is_delivered_is_never_cut() {
    let (mut server, ask) = Server::learner(remembers(1, &[(1, 4)]), 2);
    server.sync(&ask, SyncPlan::Diff, zxid(1, 4));
    server.hear(3, Message::Commit { epoch: Epoch(2), upto: zxid(1, 4) });
    server.propose(2, mark(1, 6), Zxid::ZERO, batch(1, 7));
    let again = AckEpoch { serial: ask.serial.wrapping_add(1), ..ask };
    let effects = server.sync(&again, SyncPlan::Truncate(zxid(1, 3)), zxid(1, 3));
    assert!(effects.contains(&Effect::Alarm(Alarm::CommittedTruncation { after: zxid(1, 3) })));
    assert!(looks(&effects));
    assert_eq!(server.zab.last().zxid, zxid(1, 4));
}

#[test]
fn a_log_is_not_cut_before_its_snapshot() {
    // [ZOOKEEPER-4837]: there, a snapshot newer than the cut was loaded after it.
    let epochs = remembers(1, &[]).epochs;
    let mut summary = LogSummary::new(mark(1, 2), zxid(1, 4));
    summary.push(mark(1, 6));
    let (mut server, ask) = Server::learner(Durable { epochs, log: summary }, 2);
    assert_eq!(ask.log.floor, zxid(1, 4));
    let effects = server.sync(&ask, SyncPlan::Truncate(zxid(1, 3)), zxid(1, 3));
    assert!(effects.contains(&Effect::Alarm(Alarm::CommittedTruncation { after: zxid(1, 3) })));
}

#[test]
fn a_snapshot_holds_only_what_is_committed_and_durable() {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    let may_end = |server: &Server, zxid| (server.zab.committed_mark(zxid), server.zab.is_settled(zxid));
    assert_eq!(may_end(&server, zxid(1, 4)), (None, true), "the end of the log may still be cut off");
    server.hear(3, Message::Commit { epoch: Epoch(2), upto: zxid(1, 4) });
    assert_eq!(may_end(&server, zxid(1, 4)), (Some(mark(1, 4)), true));
    server.propose(2, mark(1, 4), zxid(2, 1), batch(2, 1));
    assert_eq!(may_end(&server, zxid(2, 1)), (Some(mark(2, 1)), false), "committed by others, not durable");
    server.input(Input::Durable { upto: zxid(2, 1) });
    assert_eq!(may_end(&server, zxid(2, 1)), (Some(mark(2, 1)), true));
    assert_eq!(server.zab.committed_mark(Zxid::ZERO), None);
}

#[test]
fn pieces_of_a_snapshot_are_taken_until_it_is_installed_whatever_the_epoch() {
    let (mut server, ask) = Server::learner(remembers(1, &[(1, 4)]), 2);
    let piece = || Message::SnapshotChunk(Bytes::from_static(&[1]));
    assert!(server.hear(3, piece()).is_empty(), "of one that was given up");
    server.sync(&ask, SyncPlan::Snapshot(mark(1, 9)), zxid(1, 9));
    let taken = [Effect::SnapshotChunk { from: ServerId(3), bytes: Bytes::from_static(&[1]) }];
    assert_eq!(server.hear(3, piece()), taken);
    server.hear(3, Message::NewEpoch(Epoch(3)));
    assert_eq!(server.hear(3, piece()), taken);
    server.input(Input::EpochsDurable);
    let effects = server.input(Input::SnapshotInstalled { last: mark(1, 9) });
    assert_eq!(asked(&effects).map(|ask| ask.log.last()), Some(zxid(1, 9)));
}

#[test]
fn a_follower_whose_state_is_about_to_be_replaced_does_not_serve() {
    let (mut server, ask) = Server::learner(remembers(1, &[(1, 4)]), 2);
    server.sync(&ask, SyncPlan::Diff, zxid(1, 4));
    server.input(Input::EpochsDurable);
    server.hear(3, ping(2, zxid(1, 4), zxid(1, 4)));
    let following = Status::Following { leader: ServerId(3), epoch: Epoch(2) };
    assert_eq!(server.zab.status(), following);
    let effects = server.sync(&ask, SyncPlan::Snapshot(mark(2, 9)), zxid(2, 9));
    assert!(effects.contains(&Effect::Status(Status::Looking)), "{effects:?}");
    let again = asked(&server.input(Input::SnapshotInstalled { last: mark(2, 9) })).unwrap();
    server.sync(&again, SyncPlan::Diff, zxid(2, 9));
    assert_eq!(server.zab.status(), following);
}

#[test]
fn a_leader_sends_a_snapshot_where_a_log_cannot_be_cut() {
    let (mut server, epoch) = Server::leader(remembers(2, &[(1, 4), (2, 1)]));
    let join = standing(Epoch(1), zxid(1, 9));
    server.hear(2, Message::FollowerInfo(join));
    let log = LogOutline { floor: zxid(1, 6), ends: vec![mark(1, 9)] };
    let ask = promise(epoch, Epoch(1), log, 8);
    let effects = server.hear(2, Message::AckEpoch(ask));
    assert!(effects.contains(&Effect::SendSnapshot { to: ServerId(2), after: Zxid::ZERO }));
}

#[test]
fn frames_that_differ_under_one_zxid_raise_the_alarm_and_a_snapshot_is_fetched() {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    let other = LogPosition { checksum: Checksum(77), ..mark(1, 4) };
    let effects = server.propose(2, other, Zxid::ZERO, batch(1, 5));
    assert!(effects.contains(&Effect::Alarm(Alarm::LogDiverged { at: zxid(1, 4) })));
    assert!(asked(&effects).unwrap().snapshot && appended(&effects).is_empty());
}

#[test]
fn a_learner_serves_once_it_has_what_was_committed_when_the_leader_began_to() {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    server.input(Input::EpochsDurable);
    server.hear(3, ping(2, zxid(2, 1), zxid(1, 4)));
    assert_eq!(server.zab.status(), Status::Looking);
    server.propose(2, mark(1, 4), zxid(2, 1), batch(2, 1));
    let following = Status::Following { leader: ServerId(3), epoch: Epoch(2) };
    assert_eq!(server.zab.status(), following);
}

/// A server that came back to its leader served a state with the end of its log in it, which may not have
/// been on any other server.
#[test]
fn a_learner_serves_nothing_of_its_log_that_is_not_committed() {
    let mut server = Server::streaming(remembers(1, &[(1, 5)]), 2, zxid(1, 5));
    server.input(Input::EpochsDurable);
    server.hear(3, ping(2, zxid(1, 4), zxid(1, 5)));
    assert_eq!(server.zab.status(), Status::Looking, "(1, 5) is in its state and not committed");
    server.hear(3, Message::Commit { epoch: Epoch(2), upto: zxid(1, 5) });
    assert_eq!(server.zab.status(), Status::Following { leader: ServerId(3), epoch: Epoch(2) });
}

// Broadcast.

#[test]
fn a_follower_acks_after_the_fsync() {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    server.input(Input::EpochsDurable);
    let effects = server.propose(2, mark(1, 4), Zxid::ZERO, batch(2, 1));
    assert!(acks(&effects).is_empty());
    assert_eq!(acks(&server.input(Input::Durable { upto: zxid(2, 1) })), [(zxid(2, 1), true)]);
}

#[test]
fn the_leaders_own_vote_counts_when_its_log_is_durable() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    let next = zxid(epoch.0, 1);
    server.input(Input::Propose(batch(epoch.0, 1)));
    assert_eq!(commits(&server.hear(1, ack(epoch, next, true))), []);
    assert_eq!(commits(&server.input(Input::Durable { upto: next })), [next]);
}

#[test]
fn a_commit_rides_on_the_next_proposal_and_leaves_alone_when_there_is_none() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    let lone = |effects: &[Effect]| messages(effects).any(|m| matches!(m, Message::Commit { .. }));
    let log = LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, 4)] };
    let ask = promise(epoch, epoch, log, 6);
    server.hear(1, Message::AckEpoch(ask));
    for counter in 1..=2 {
        let effects = server.input(Input::Propose(batch(epoch.0, counter)));
        let carried = messages(&effects).find_map(|message| match message {
            Message::Propose(propose) => Some(propose.commit),
            _ => None,
        });
        let before = if counter == 1 { zxid(1, 4) } else { zxid(epoch.0, 1) };
        assert_eq!(carried, Some(before));
        assert!(!lone(&server.input(Input::Flush)) || counter == 1);
        server.input(Input::Durable { upto: zxid(epoch.0, counter) });
        server.hear(1, ack(epoch, zxid(epoch.0, counter), true));
    }
    assert!(lone(&server.input(Input::Flush)));
    assert!(!lone(&server.input(Input::Flush)));
}

#[test]
fn leadership_is_confirmed_by_a_round_that_began_after_the_question() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    server.input(Input::ConfirmLeadership { token: 5 });
    let effects = server.input(Input::Flush);
    let round = messages(&effects).find_map(|message| match message {
        Message::Ping(ping) => Some(ping.round),
        _ => None,
    });
    let round = round.unwrap();
    let confirmed = Effect::LeadershipConfirmed { token: 5, commit: zxid(1, 4) };
    assert!(!server.hear(1, pong(epoch, round - 1, zxid(1, 4), true)).contains(&confirmed));
    assert!(server.hear(1, pong(epoch, round, zxid(1, 4), true)).contains(&confirmed));
}

#[test]
fn a_leader_whose_epoch_is_used_up_begins_the_next_in_place() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    server.zab.core.config.epoch_txns_max = 1;
    let effects = server.input(Input::Propose(batch(epoch.0, 1)));
    let next = Epoch(epoch.0 + 1);
    assert!(messages(&effects).any(|message| *message == Message::NewEpoch(next)));
    server.input(Input::Durable { upto: zxid(epoch.0, 1) });
    server.input(Input::EpochsDurable);
    let log = LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, 4), mark(epoch.0, 1)] };
    let ask = promise(next, epoch, log, 6);
    let effects = server.hear(1, Message::AckEpoch(ask));
    let round = messages(&effects).find_map(|message| match message {
        Message::Ping(ping) => Some(ping.round),
        _ => None,
    });
    server.hear(1, pong(next, round.unwrap(), Zxid::ZERO, false));
    server.input(Input::EpochsDurable);
    let effects = server.hear(1, ack(next, zxid(epoch.0, 1), true));
    assert!(effects.contains(&Effect::Status(Status::Leading { epoch: next })));
    assert_eq!(server.zab.next_zxid(), Some(Zxid::new(next, 1)));
    assert_eq!(server.zab.committed(), zxid(epoch.0, 1));
}

#[test]
fn opaque_messages_pass_in_order_between_learner_and_leader() {
    let bytes = Bytes::from_static(&[1, 2]);
    let mut learner = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    let effects = learner.input(Input::Forward(bytes.clone()));
    assert_eq!(messages(&effects).next(), Some(&Message::Forward(bytes.clone())));
    let effects = learner.hear(3, Message::ToLearner(bytes.clone()));
    assert!(effects.contains(&Effect::FromLeader { bytes: bytes.clone() }));
    let (mut leader, _) = Server::leader(remembers(1, &[(1, 4)]));
    let effects = leader.hear(1, Message::Forward(bytes.clone()));
    assert!(effects.contains(&Effect::Forwarded { from: ServerId(1), bytes }));
}

// Failure detection.

#[test]
fn a_broken_connection_to_the_leader_starts_an_election_at_once() {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    assert!(looks(&server.input(Input::PeerDisconnected(ServerId(3)))));
}

#[test]
fn a_silent_leader_is_left_after_the_peer_timeout() {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    assert!(!looks(&server.tick_at(500)));
    server.hear(3, ping(2, Zxid::ZERO, zxid(1, 4)));
    assert!(!looks(&server.tick_at(1000)));
    assert!(looks(&server.tick_at(1001)));
}

#[test]
fn a_follower_that_stood_still_listens_before_it_gives_its_leader_up() {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    assert!(!looks(&server.tick_at(300)));
    assert!(!looks(&server.stand_still_until(20_000)), "what the leader sent waits to be read");
    server.hear(3, ping(2, Zxid::ZERO, zxid(1, 4)));
    assert!(!looks(&server.tick_at(20_500)));
    assert!(looks(&server.tick_at(20_501)));
}

#[test]
fn a_leader_that_stood_still_listens_before_it_steps_down() {
    let (mut server, _) = Server::leader(remembers(1, &[(1, 4)]));
    assert!(!looks(&server.tick_at(300)));
    assert!(!looks(&server.stand_still_until(20_000)), "what the learners sent waits to be read");
    assert!(looks(&server.tick_at(20_100)), "they have sent nothing");
}

#[test]
fn a_leader_that_hears_no_quorum_steps_down_and_drops_its_speculation() {
    let (mut server, _) = Server::leader(remembers(1, &[(1, 4)]));
    assert!(!server.tick_at(500).contains(&Effect::Reset));
    let effects = server.tick_at(501);
    let reset = effects.iter().position(|effect| *effect == Effect::Reset);
    let status = effects.iter().position(|effect| *effect == Effect::Status(Status::Looking));
    assert!(reset.is_some() && reset < status);
    assert_eq!(server.zab.next_zxid(), None);
}

#[test]
fn a_clock_that_steps_back_is_no_silence() {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    server.tick_at(400);
    server.hear(3, ping(2, Zxid::ZERO, zxid(1, 4)));
    assert!(!looks(&server.tick_at(0)));
    assert!(!looks(&server.tick_at(500)));
}

#[test]
fn a_server_of_another_ensemble_is_refused() {
    let (mut server, _) = Server::leader(remembers(1, &[(1, 4)]));
    let join = Standing { ensemble: ensemble(10), ..standing(Epoch(1), zxid(1, 4)) };
    let effects = server.hear(2, Message::FollowerInfo(join));
    assert!(effects.contains(&Effect::Alarm(Alarm::ForeignCluster { peer: ServerId(2), cluster: 10 })));
    assert_eq!(messages(&effects).count(), 0);
}

// Whole ensembles whose network and disks do not fail.

struct Servers {
    servers: BTreeMap<u64, Server>,
    now_ms: u64,
}

impl Servers {
    fn new(voters: u64, disks: impl IntoIterator<Item = (u64, Durable)>) -> Self {
        let set: ServerSet = (1..=voters).map(ServerId).collect();
        let mut servers = BTreeMap::new();
        for (id, durable) in disks {
            let config = Config::new(ServerId(id), set, ServerSet::EMPTY);
            let zab = Zab::new(config, durable, id);
            servers.insert(id, Server { zab, now_ms: 0 });
        }
        Self { servers, now_ms: 0 }
    }

    /// Everything that follows from the inputs; the effects of all servers.
    fn run(&mut self, inputs: Vec<(u64, Input)>) -> Vec<Effect> {
        let mut queue: std::collections::VecDeque<(u64, Input)> = inputs.into();
        let mut all = Vec::new();
        for _ in 0..10_000 {
            let Some((id, input)) = queue.pop_front() else { return all };
            let Some(server) = self.servers.get_mut(&id) else { continue };
            server.now_ms = self.now_ms;
            let mut effects = server.input(input);
            effects.extend(server.input(Input::Flush));
            all.extend(effects.iter().cloned());
            for effect in effects {
                match effect {
                    Effect::Send { to, message } => {
                        queue.push_back((to.0, Input::Message { from: ServerId(id), message }));
                    }
                    Effect::Append(batch) => queue.push_back((id, Input::Durable { upto: batch.last() })),
                    Effect::PersistEpochs(_) => queue.push_back((id, Input::EpochsDurable)),
                    Effect::ReadLog { peer, after, .. } => {
                        let batches = vec![batch(after.epoch().0, after.counter() + 1)];
                        queue.push_back((id, Input::LogRead { peer, after, batches }));
                    }
                    Effect::Truncate { after } => {
                        let last = mark(after.epoch().0, after.counter());
                        queue.push_back((id, Input::Truncated { last }));
                    }
                    _ => {}
                }
            }
        }
        panic!("messages without end");
    }

    /// Starts and connects everyone.
    fn start(&mut self) {
        let ids: Vec<u64> = self.servers.keys().copied().collect();
        self.run(ids.iter().map(|id| (*id, Input::Start)).collect());
        let pairs = ids.iter().flat_map(|a| ids.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b);
        self.run(pairs.map(|(a, b)| (a, Input::PeerConnected(ServerId(b)))).collect());
        self.pass(40);
    }

    /// Ticks of 25 ms.
    fn pass(&mut self, ticks: usize) -> Vec<Effect> {
        let mut all = Vec::new();
        for _ in 0..ticks {
            self.now_ms += 25;
            all.extend(self.run(self.servers.keys().map(|id| (*id, Input::Tick)).collect()));
        }
        all
    }

    fn leader(&self) -> Option<u64> {
        let leads = |server: &Server| matches!(server.zab.status(), Status::Leading { .. });
        self.servers.iter().find(|(_, server)| leads(server)).map(|(id, _)| *id)
    }
}

#[test]
fn the_newest_epoch_then_the_longest_log_then_the_highest_id_leads() {
    let elect = |disks: [Durable; 3]| {
        let mut ensemble = Servers::new(3, (1..).zip(disks));
        ensemble.start();
        ensemble.leader()
    };
    let long = || remembers(1, &[(1, 9)]);
    assert_eq!(elect([long(), long(), long()]), Some(3));
    assert_eq!(elect([long(), remembers(1, &[(1, 10)]), long()]), Some(2));
    assert_eq!(elect([remembers(2, &[(1, 8)]), long(), long()]), Some(1));
}

#[test]
fn a_leader_that_dies_is_replaced_without_any_time_passing() {
    let mut ensemble = Servers::new(3, (1..=3).map(|id| (id, remembers(1, &[]))));
    ensemble.start();
    assert_eq!(ensemble.leader(), Some(3));
    ensemble.servers.remove(&3);
    ensemble.run([1, 2].map(|id| (id, Input::PeerDisconnected(ServerId(3)))).into());
    assert_eq!(ensemble.leader(), Some(2));
    assert!(ensemble.servers[&2].zab.next_zxid().is_some());
}

#[test]
fn thousands_of_proposals_are_outstanding_and_committed_by_one_ack() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    for counter in 1..=5000 {
        server.input(Input::Propose(batch(epoch.0, counter)));
    }
    server.input(Input::Durable { upto: zxid(epoch.0, 5000) });
    assert_eq!(commits(&server.hear(1, ack(epoch, zxid(epoch.0, 5000), true))), [zxid(epoch.0, 5000)]);
}
