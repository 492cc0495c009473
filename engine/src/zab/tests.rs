//! Rules of the protocol, one at a time. Names in brackets are defects of other implementations that break
//! the rule. The simulator tests random combinations of faults.

use bytes::Bytes;
use std::collections::BTreeMap;

use super::*;

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

/// The voters of most tests.
fn voters() -> ServerSet {
    (1..=3).map(ServerId).collect()
}

fn ensemble(cluster: u64) -> EnsembleId {
    EnsembleId { cluster, fork: 0, voters: voters() }
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
    AckEpoch { epoch, promise: true, current, claim: Zxid::ZERO, log, serial, snapshot: false }
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

/// One server; the test plays its peers, disk and clock.
struct Server {
    zab: Zab,
    now_ms: u64,
}

impl Server {
    /// Server `id` of three voters, connected to the two others.
    fn start(id: u64, durable: Durable) -> Self {
        Self::start_planted(id, durable, Mutation::None)
    }

    fn start_planted(id: u64, durable: Durable, mutation: Mutation) -> Self {
        let config = Config::new(ServerId(id), (1..=3).map(ServerId).collect(), ServerSet::EMPTY);
        let config = Config { mutation, ..config };
        let mut server = Self { zab: Zab::new(config, durable, 1), now_ms: 0 };
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
        Message::Notification(Notification { state, round: 1, vote, own, serves: false, doubt: None })
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
        let accepted = durable.epochs.accepted;
        let (current, last) = (durable.epochs.current, durable.log.last());
        let mut server = Self::start(3, durable);
        let join = standing(accepted, last.zxid);
        let vote = Vote { epoch: current, zxid: last.zxid, leader: ServerId(3) };
        let own = Standing { accepted, ..standing(current, last.zxid) };
        let agrees =
            Notification { state: PeerState::Looking, round: 1, vote, own, serves: false, doubt: None };
        server.hear(1, Message::Notification(agrees));
        server.hear(2, Message::Notification(agrees));
        server.hear(1, Message::FollowerInfo(join));
        let epoch = Epoch(accepted.0 + 1);
        server.input(Input::EpochsDurable);
        let log = LogOutline { floor: Zxid::ZERO, ends: vec![last] };
        let ask = promise(epoch, current, log, 5);
        server.hear(1, Message::AckEpoch(ask));
        server.hear(1, pong(epoch, 1, Zxid::ZERO, false));
        server.input(Input::EpochsDurable);
        server.hear(1, ack(epoch, last.zxid, true));
        assert_eq!(server.zab.status(), Status::Leading { epoch });
        server.input(Input::EpochsDurable);
        server.input(Input::Flush);
        (server, epoch)
    }
}

fn pong(epoch: Epoch, round: u64, upto: Zxid, adopted: bool) -> Message {
    Message::Pong(Pong { round, ack: Ack { epoch, upto, adopted } })
}

fn ack(epoch: Epoch, upto: Zxid, adopted: bool) -> Message {
    Message::Ack(Ack { epoch, upto, adopted })
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
    assert_eq!(server.zab.snapshot_mark(zxid(1, 4)), None, "the end of the log may still be cut off");
    server.hear(3, Message::Commit { epoch: Epoch(2), upto: zxid(1, 4) });
    assert_eq!(server.zab.snapshot_mark(zxid(1, 4)), Some(mark(1, 4)));
    server.propose(2, mark(1, 4), zxid(2, 1), batch(2, 1));
    assert_eq!(server.zab.snapshot_mark(zxid(2, 1)), None, "committed by others, not yet durable here");
    server.input(Input::Durable { upto: zxid(2, 1) });
    assert_eq!(server.zab.snapshot_mark(zxid(2, 1)), Some(mark(2, 1)));
    assert_eq!(server.zab.snapshot_mark(Zxid::ZERO), None);
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
    assert!(effects.contains(&Effect::SendSnapshot { to: ServerId(2) }));
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
fn a_new_ensemble_starts_by_itself_when_all_are_there() {
    let new = |ids: std::ops::RangeInclusive<u64>| ids.map(|id| (id, Durable::default()));
    let mut ensemble = Servers::new(3, new(1..=3));
    ensemble.start();
    assert_eq!(ensemble.leader(), Some(3));
    let epochs: Vec<Epochs> = ensemble.servers.values().map(|server| *server.zab.durable_epochs()).collect();
    assert!(epochs.iter().all(|own| own.initialized && own.cluster == epochs[0].cluster));
}

/// Servers of three whose voters wait for a second before they found an ensemble.
fn servers(founding: Founding, disks: impl IntoIterator<Item = (u64, Durable)>) -> Servers {
    let mut servers = Servers { servers: BTreeMap::new(), now_ms: 0 };
    for (id, durable) in disks {
        let own = Config::new(ServerId(id), voters(), ServerSet::EMPTY);
        let config = Config { founding, init_limit_ms: 1500, ..own };
        servers.servers.insert(id, Server { zab: Zab::new(config, durable, id), now_ms: 0 });
    }
    servers
}

fn new(id: u64) -> (u64, Durable) {
    (id, Durable::default())
}

#[test]
fn a_majority_of_new_servers_founds_an_ensemble_when_the_others_have_not_come_for_init_limit() {
    let mut founders = servers(Founding::WhenOthersAreSilent, [1, 2].map(new));
    founders.start();
    assert_eq!(founders.leader(), None, "the third has time to come");
    let effects = founders.pass(40);
    assert_eq!(founders.leader(), Some(2));
    let without = [ServerId(3)].into_iter().collect();
    assert!(effects.contains(&Effect::Alarm(Alarm::Founded { without })), "the operator is told");
}

#[test]
fn the_operators_word_that_an_ensemble_is_new_saves_the_waiting() {
    let mut founders = servers(Founding::AtOnce, [1, 2].map(new));
    founders.start();
    assert_eq!(founders.leader(), Some(2));
}

#[test]
fn servers_that_may_have_lost_their_disks_found_nothing_even_if_all_are_there() {
    let mut servers = servers(Founding::Never, [1, 2, 3].map(new));
    servers.start();
    servers.pass(200);
    assert_eq!(servers.leader(), None);
}

#[test]
fn two_new_servers_wait_for_ever_while_the_third_has_data() {
    let old = remembers(1, &[(1, 9)]);
    let mut servers = servers(Founding::AtOnce, [(1, old), new(2), new(3)]);
    servers.start();
    servers.pass(200);
    assert_eq!(servers.leader(), None, "the data would be lost");
    servers.servers.remove(&1);
    servers.run([2, 3].map(|id| (id, Input::PeerDisconnected(ServerId(1)))).into());
    servers.pass(200);
    assert_eq!(servers.leader(), None, "they know of it");
}

#[test]
fn a_server_with_data_that_returns_to_an_ensemble_founded_without_it_is_refused_and_keeps_its_data() {
    let mut servers = servers(Founding::AtOnce, [1, 2].map(new));
    servers.start();
    assert_eq!(servers.leader(), Some(2), "nothing is in the new ensemble yet");
    let config = Config::new(ServerId(3), voters(), ServerSet::EMPTY);
    let zab = Zab::new(config, remembers(5, &[(1, 9), (5, 2)]), 3);
    servers.servers.insert(3, Server { zab, now_ms: 0 });
    let mut effects = servers.run(vec![(3, Input::Start)]);
    for id in [1, 2] {
        let meet = [(id, Input::PeerConnected(ServerId(3))), (3, Input::PeerConnected(ServerId(id)))];
        effects.extend(servers.run(meet.into()));
    }
    effects.extend(servers.pass(100));
    assert_eq!(servers.leader(), Some(2), "undisturbed");
    assert_eq!(servers.servers[&3].zab.status(), Status::Looking);
    assert_eq!(servers.servers[&3].zab.last(), mark(5, 2));
    let refuses = |alarm: &Alarm| matches!(alarm, Alarm::ForeignCluster { peer, .. } if *peer == ServerId(3));
    let refused = effects.iter().any(|effect| matches!(effect, Effect::Alarm(alarm) if refuses(alarm)));
    assert!(refused, "said by those who founded");
    let absences = servers.servers[&3].zab.absences();
    assert!(absences.contains(&(ServerId(2), Absence::OtherHistory)), "and by the one that returned");
}

/// A server that alone has adopted the epoch of a founding that came to nothing.
fn left_over() -> Durable {
    let epochs = Epochs { cluster: 8, ..remembers(1, &[]).epochs };
    Durable { epochs, ..Durable::default() }
}

#[test]
fn a_server_left_over_from_a_founding_that_failed_waits_for_the_ensemble_that_began() {
    let mut server = Server::start(1, left_over());
    let effects = server.hear(2, Server::notification(PeerState::Looking, 2, 3, zxid(3, 5)));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Alarm(_))), "{effects:?}");
    let effects = server.hear(3, Server::notification(PeerState::Leading, 3, 3, zxid(3, 5)));
    assert!(messages(&effects).any(|message| matches!(message, Message::FollowerInfo(_))));
}

#[test]
fn a_server_left_over_takes_over_the_leaders_number_durably_before_it_logs_anything() {
    let (mut server, ask) = Server::learner(left_over(), 4);
    let effects = server.sync(&ask, SyncPlan::Diff, zxid(3, 1));
    let [Effect::PersistEpochs(taken)] = effects[..] else { panic!("{effects:?}") };
    let forgets = (taken.cluster, taken.current, taken.initialized, taken.accepted);
    assert_eq!(forgets, (9, Epoch(0), false, Epoch(4)), "it is new there, and keeps its promise");
    assert!(server.propose(4, LogPosition::START, Zxid::ZERO, batch(3, 1)).is_empty());
    let again = asked(&server.input(Input::EpochsDurable)).expect("it asks again");
    server.sync(&again, SyncPlan::Diff, zxid(3, 1));
    let effects = server.propose(4, LogPosition::START, Zxid::ZERO, batch(3, 1));
    assert_eq!(appended(&effects), [zxid(3, 1)]);
    let effects = server.input(Input::Durable { upto: zxid(3, 1) });
    let adopts = |effect: &Effect| matches!(effect, Effect::PersistEpochs(epochs) if epochs.initialized);
    assert!(effects.iter().any(adopts), "{effects:?}");
}

#[test]
fn a_server_with_data_takes_over_no_number() {
    let durable = Durable { epochs: left_over().epochs, log: log(&[(1, 4)]) };
    let mut server = Server::start(1, durable);
    let effects = server.hear(3, Server::notification(PeerState::Leading, 3, 3, zxid(3, 5)));
    assert!(effects.contains(&Effect::Alarm(Alarm::ForeignCluster { peer: ServerId(3), cluster: 9 })));
    assert!(!messages(&effects).any(|message| matches!(message, Message::FollowerInfo(_))));
}

#[test]
fn a_fork_of_the_history_is_refused_like_another_ensemble() {
    let (mut server, _) = Server::leader(remembers(1, &[(1, 4)]));
    let fork = EnsembleId { fork: 77, ..ensemble(9) };
    let last = zxid(8, 1);
    let join = Standing { ensemble: fork, ..standing(Epoch(8), last) };
    let effects = server.hear(2, Message::FollowerInfo(join));
    assert!(effects.contains(&Effect::Alarm(Alarm::ForeignCluster { peer: ServerId(2), cluster: 9 })));
    assert_eq!(messages(&effects).count(), 0);
}

#[test]
fn a_server_with_another_list_of_voters_learns_and_counts_for_nothing() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    server.input(Input::PeerDisconnected(ServerId(1)));
    let others = EnsembleId { voters: (1..=5).map(ServerId).collect(), ..ensemble(9) };
    let join = Standing { ensemble: others, ..standing(Epoch(1), zxid(1, 4)) };
    server.hear(2, Message::FollowerInfo(join));
    let effects = server.hear(2, Message::AckEpoch(promise(epoch, Epoch(1), log_to(zxid(1, 4)), 6)));
    assert!(messages(&effects).any(|message| matches!(message, Message::Sync(_))), "it is synchronized");
    server.hear(2, ack(epoch, zxid(1, 4), true));
    server.input(Input::Propose(batch(epoch.0, 1)));
    server.input(Input::Durable { upto: zxid(epoch.0, 1) });
    let effects = server.hear(2, ack(epoch, zxid(epoch.0, 1), true));
    assert_eq!(commits(&effects), [], "with server 1 it would be a majority of neither list");
}

#[test]
fn a_list_of_voters_is_remembered_when_the_server_serves_under_it() {
    let unsettled = Durable {
        epochs: Epochs { voters: ServerSet::EMPTY, ..remembers(1, &[]).epochs },
        ..Durable::default()
    };
    let mut servers = Servers::new(3, (1..=3).map(|id| (id, unsettled.clone())));
    servers.start();
    assert!(servers.leader().is_some());
    assert!(servers.servers.values().all(|server| server.zab.durable_epochs().voters == voters()));
}

#[test]
fn a_new_disk_makes_no_quorum_with_a_server_that_remembers() {
    // [ZOOKEEPER-2832, 1549]: there, what the third server had acked was lost.
    let mut ensemble = Servers::new(3, [(1, remembers(1, &[(1, 9)])), (2, Durable::default())]);
    ensemble.start();
    assert_eq!(ensemble.leader(), None);
}

#[test]
fn a_new_disk_is_filled_by_a_leader_that_others_confirm() {
    let old = || remembers(1, &[]);
    let mut ensemble = Servers::new(3, [(1, old()), (2, old()), (3, Durable::default())]);
    ensemble.start();
    assert_eq!(ensemble.leader(), Some(2));
    let third = &ensemble.servers[&3].zab;
    assert!(third.durable_epochs().initialized);
    assert!(matches!(third.status(), Status::Following { leader: ServerId(2), .. }));
}

#[test]
fn one_of_two_disks_may_be_lost_since_every_commit_is_on_both() {
    let mut ensemble = Servers::new(2, [(1, remembers(1, &[])), (2, Durable::default())]);
    ensemble.start();
    assert!(ensemble.leader().is_some());
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

// Full disks.

/// A leader of three that has proposed what it cannot append for want of room; both others have the same log
/// as it.
fn leader_without_room() -> (Server, Epoch) {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    server.hear(2, Message::FollowerInfo(standing(Epoch(1), zxid(1, 4))));
    server.hear(2, Message::AckEpoch(promise(epoch, Epoch(1), log_to(zxid(1, 4)), 6)));
    server.hear(2, ack(epoch, zxid(1, 4), true));
    server.input(Input::Propose(batch(epoch.0, 1)));
    server.input(Input::Room(false));
    (server, epoch)
}

/// The leader's disk is full for longer than the peer timeout, and server 1 has acknowledged `first`, server
/// 2 `second`.
fn full_leader(first: Zxid, second: Zxid) -> Server {
    let (mut server, epoch) = leader_without_room();
    for now_ms in (0..=4).map(|quarter| quarter * 300) {
        server.tick_at(now_ms);
        server.hear(1, pong(epoch, 1, first, true));
        server.hear(2, pong(epoch, 1, second, true));
    }
    server
}

fn log_to(last: Zxid) -> LogOutline {
    LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, last.counter())] }
}

#[test]
fn a_leader_without_room_resigns_when_a_quorum_of_others_has_what_it_cannot_append() {
    let server = full_leader(zxid(2, 1), zxid(2, 1));
    assert_eq!(server.zab.status(), Status::Looking);
    let Role::Looking(_) = server.zab.role else { panic!("{:?}", server.zab.role) };
}

#[test]
fn a_leader_without_room_stays_when_the_others_have_none_either() {
    let server = full_leader(zxid(2, 1), zxid(1, 4));
    assert_eq!(server.zab.status(), Status::Leading { epoch: Epoch(2) });
}

#[test]
fn a_leader_that_had_room_in_between_stays() {
    let (mut server, epoch) = leader_without_room();
    let timeout_ms = server.zab.core.config.peer_timeout_ms;
    let until = |server: &mut Server, now_ms| {
        server.tick_at(now_ms);
        server.hear(1, pong(epoch, 1, zxid(2, 1), true));
        server.hear(2, pong(epoch, 1, zxid(2, 1), true));
        server.zab.status()
    };
    assert_eq!(until(&mut server, timeout_ms * 3 / 4), Status::Leading { epoch });
    server.input(Input::Room(true));
    server.input(Input::Room(false));
    assert_eq!(until(&mut server, timeout_ms * 3 / 2), Status::Leading { epoch }, "the time counts anew");
    assert_eq!(until(&mut server, timeout_ms * 2), Status::Looking, "and runs out");
}

#[test]
fn a_server_that_has_resigned_for_want_of_room_votes_for_whoever_has_some() {
    let mut server = full_leader(zxid(2, 1), zxid(2, 1));
    // Its own history is longer by what it could not append, and its id is the highest.
    let vote = Vote { epoch: Epoch(1), zxid: zxid(1, 4), leader: ServerId(1) };
    let own = standing(Epoch(2), zxid(2, 1));
    let looks = Notification { state: PeerState::Looking, round: 2, vote, own, serves: false, doubt: None };
    let voted = server.hear(1, Message::Notification(looks));
    assert!(messages(&voted).any(|message| {
        matches!(message, Message::Notification(Notification { vote, .. }) if vote.leader == ServerId(1))
    }));
}

// Damaged logs.

/// Server 1, whose log was cut to `ends` and had gone up to `claim`.
fn damaged(epoch: u32, ends: &[(u32, u32)], claim: Zxid) -> Durable {
    let mut durable = remembers(epoch, ends);
    durable.epochs.claim = claim;
    durable
}

#[test]
fn a_damaged_server_stands_for_nothing_and_says_how_far_its_log_went() {
    let mut server = Server::start(1, damaged(1, &[(1, 4)], zxid(1, 9)));
    let said = server.tick_at(1000);
    let notified = messages(&said).find_map(|message| match message {
        Message::Notification(notification) => Some(*notification),
        _ => None,
    });
    let notified = notified.expect("it asks for a leader");
    assert_eq!(notified.own.last, zxid(1, 9));
    assert_eq!((notified.vote.epoch, notified.vote.zxid), (Epoch(0), Zxid::ZERO));
    // A peer with less than this server still has is a better candidate all the same.
    let less = Server::notification(PeerState::Looking, 2, 1, zxid(1, 2));
    let voted = server.hear(2, less);
    assert!(messages(&voted).any(|message| {
        matches!(message, Message::Notification(Notification { vote, .. }) if vote.leader == ServerId(2))
    }));
}

#[test]
fn a_damaged_server_acknowledges_but_adopts_nothing_until_its_claim_is_met() {
    let (mut server, ask) = Server::learner(damaged(1, &[(1, 4)], zxid(1, 6)), 2);
    assert_eq!((ask.claim, ask.log.last()), (zxid(1, 6), zxid(1, 4)));
    let history = zxid(1, 6);
    server.sync(&ask, SyncPlan::Diff, history);
    server.propose(2, mark(1, 4), Zxid::ZERO, batch(1, 5));
    let acked = server.input(Input::Durable { upto: zxid(1, 5) });
    assert!(messages(&acked).any(|message| *message == ack(Epoch(2), zxid(1, 5), false)));
    server.propose(2, mark(1, 5), Zxid::ZERO, batch(1, 6));
    let adopts = server.input(Input::Durable { upto: zxid(1, 6) });
    assert!(adopts.iter().any(|effect| {
        matches!(effect, Effect::PersistEpochs(Epochs { current: Epoch(2), claim: Zxid::ZERO, .. }))
    }));
    let adopted = server.input(Input::EpochsDurable);
    assert!(messages(&adopted).any(|message| *message == ack(Epoch(2), zxid(1, 6), true)));
}

#[test]
fn a_server_damaged_in_its_leaders_epoch_adopts_it_again_only_with_all_it_acknowledged() {
    let mut server = Server::start(1, damaged(2, &[(1, 4)], zxid(2, 2)));
    server.hear(3, Server::notification(PeerState::Leading, 3, 2, Zxid::ZERO));
    let ask = asked(&server.hear(3, Message::NewEpoch(Epoch(2)))).expect("nothing is to be promised");
    server.sync(&ask, SyncPlan::Diff, zxid(1, 4));
    server.propose(2, mark(1, 4), Zxid::ZERO, batch(2, 1));
    let acked = server.input(Input::Durable { upto: zxid(2, 1) });
    assert!(messages(&acked).any(|message| *message == ack(Epoch(2), zxid(2, 1), false)));
    server.propose(2, mark(2, 1), Zxid::ZERO, batch(2, 2));
    server.input(Input::Durable { upto: zxid(2, 2) });
    let whole = server.input(Input::EpochsDurable);
    assert!(messages(&whole).any(|message| *message == ack(Epoch(2), zxid(2, 2), true)));
}

#[test]
fn a_claim_does_not_keep_the_only_voter_from_leading() {
    let voters = [ServerId(1)].into_iter().collect();
    let config = Config::new(ServerId(1), voters, ServerSet::EMPTY);
    let durable = damaged(1, &[(1, 4)], zxid(1, 9));
    let mut server = Server { zab: Zab::new(config, durable, 1), now_ms: 0 };
    let started = server.input(Input::Start);
    assert!(started.iter().any(|effect| {
        matches!(effect, Effect::PersistEpochs(Epochs { accepted: Epoch(2), claim: Zxid::ZERO, .. }))
    }));
    server.input(Input::EpochsDurable);
    server.input(Input::EpochsDurable);
    assert_eq!(server.zab.status(), Status::Leading { epoch: Epoch(2) });
}

#[test]
fn a_server_whose_log_is_gone_remembers_again_when_it_has_all_of_its_leaders_log() {
    let mut durable = damaged(2, &[], Zxid(1));
    durable.epochs.initialized = false;
    let mut server = Server::start(1, durable);
    server.hear(3, Server::notification(PeerState::Leading, 3, 2, Zxid::ZERO));
    let ask = asked(&server.hear(3, Message::NewEpoch(Epoch(2)))).expect("nothing is to be promised");
    server.sync(&ask, SyncPlan::Diff, zxid(2, 1));
    server.propose(2, LogPosition::START, Zxid::ZERO, batch(2, 1));
    let whole = server.input(Input::Durable { upto: zxid(2, 1) });
    assert!(whole.iter().any(|effect| {
        matches!(effect, Effect::PersistEpochs(Epochs { initialized: true, claim: Zxid::ZERO, .. }))
    }));
}

/// Server 3 with this log, which server 1 with that log joins after damage; whether the two are enough for an
/// epoch.
fn leads_with_damaged(last: Zxid, claim: Zxid) -> bool {
    let mut server = Server::start(3, remembers(1, &[(1, last.counter())]));
    let vote = Vote { epoch: Epoch(1), zxid: last, leader: ServerId(3) };
    let own = standing(Epoch(1), claim);
    let agrees = Notification { state: PeerState::Looking, round: 1, vote, own, serves: false, doubt: None };
    server.hear(1, Message::Notification(agrees));
    server.tick_at(200);
    server.hear(1, Message::FollowerInfo(standing(Epoch(1), claim)));
    server.input(Input::EpochsDurable);
    let log = LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, 1)] };
    let (epoch, current) = (Epoch(2), Epoch(1));
    let ask = AckEpoch { epoch, promise: true, current, claim, log, serial: 5, snapshot: false };
    server.hear(1, Message::AckEpoch(ask));
    let verified = server.hear(1, pong(Epoch(2), 99, Zxid::ZERO, false));
    messages(&verified).any(|message| matches!(message, Message::Sync(_)))
}

#[test]
fn the_promise_of_a_damaged_server_counts_for_a_history_that_reaches_its_claim_alone() {
    assert!(leads_with_damaged(zxid(1, 9), zxid(1, 9)));
    assert!(!leads_with_damaged(zxid(1, 8), zxid(1, 9)));
}

// Old copies of folders.

/// Looks for a leader with this standing.
fn looking(own: Standing) -> Message {
    let vote = Vote { epoch: own.current, zxid: own.last, leader: ServerId(1) };
    Message::Notification(Notification {
        state: PeerState::Looking,
        round: 1,
        vote,
        own,
        serves: false,
        doubt: None,
    })
}

fn doubts(effects: &[Effect]) -> Option<Doubt> {
    messages(effects).find_map(|message| match message {
        Message::Notification(notification) => notification.doubt,
        _ => None,
    })
}

fn alarms(effects: &[Effect]) -> Vec<Alarm> {
    let alarm = |effect: &Effect| match effect {
        Effect::Alarm(alarm) => Some(*alarm),
        _ => None,
    };
    effects.iter().filter_map(alarm).collect()
}

#[test]
fn a_member_that_comes_back_without_an_epoch_that_it_had_adopted_is_told_and_has_no_vote() {
    let members = [ServerId(1), ServerId(2)].into_iter().collect();
    let epochs = Epochs { members, ..remembers(5, &[]).epochs };
    let mut server = Server::start(2, Durable { epochs, log: log(&[(4, 9)]) });
    let effects = server.hear(1, looking(standing(Epoch(4), zxid(4, 9))));
    let known = Known { epoch: Epoch(5), zxid: Zxid::ZERO };
    assert_eq!(doubts(&effects), Some(Doubt::OldCopy(known)));
    server.tick_at(400);
    assert!(matches!(server.zab.role, Role::Looking(_)), "the two are no quorum: {:?}", server.zab.role);
    assert!(server.zab.absences().contains(&(ServerId(1), Absence::OldCopy)));
    // The third server was never in that epoch: it has forgotten nothing.
    let effects = server.hear(3, looking(standing(Epoch(4), zxid(4, 9))));
    assert_eq!((alarms(&effects), doubts(&effects)), (vec![], None));
}

#[test]
fn a_learner_that_comes_back_with_less_than_it_acknowledged_is_told_while_its_leader_runs() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    server.input(Input::Propose(batch(epoch.0, 1)));
    server.input(Input::Durable { upto: zxid(epoch.0, 1) });
    server.hear(1, ack(epoch, zxid(epoch.0, 1), true));
    server.input(Input::PeerDisconnected(ServerId(1)));
    server.input(Input::PeerConnected(ServerId(1)));
    let known = Known { epoch, zxid: zxid(epoch.0, 1) };
    let old = standing(epoch, zxid(1, 4));
    let effects = server.hear(1, Message::FollowerInfo(old));
    assert_eq!(doubts(&effects), Some(Doubt::OldCopy(known)));
    assert_eq!(server.zab.learners().all, 0);
    // One that has promised itself to a newer epoch may have been told to cut its log.
    let cut = server.hear(1, Message::FollowerInfo(Standing { accepted: Epoch(epoch.0 + 1), ..old }));
    assert_eq!(doubts(&cut), None);
}

#[test]
fn a_leader_that_has_stepped_down_remembers_what_was_acknowledged() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    server.hear(1, ack(epoch, zxid(1, 4), true));
    assert!(looks(&server.tick_at(600)), "no quorum is heard");
    let effects = server.hear(1, looking(standing(epoch, zxid(1, 3))));
    assert_eq!(doubts(&effects), Some(Doubt::OldCopy(Known { epoch, zxid: zxid(1, 4) })));
}

#[test]
fn a_server_that_is_told_that_its_folder_is_an_old_copy_is_new_and_damaged_from_then_on() {
    let mut server = Server::start(1, remembers(1, &[(1, 4)]));
    let known = Known { epoch: Epoch(1), zxid: zxid(1, 9) };
    let Message::Notification(told) = Server::notification(PeerState::Leading, 3, 1, zxid(1, 9)) else {
        unreachable!("a notification")
    };
    let told = Notification { doubt: Some(Doubt::OldCopy(known)), ..told };
    let effects = server.hear(3, Message::Notification(told));
    assert_eq!(alarms(&effects), [Alarm::OldCopy { told_by: ServerId(3), known }]);
    let kept = |effect: &Effect| match effect {
        Effect::PersistEpochs(epochs) => Some((epochs.initialized, epochs.claim)),
        _ => None,
    };
    assert_eq!(effects.iter().find_map(kept), Some((false, zxid(1, 9))));
    server.input(Input::EpochsDurable);
    let again = server.hear(3, Message::Notification(told));
    assert!(alarms(&again).is_empty(), "once is enough");
}

#[test]
fn members_of_an_epoch_are_kept_with_it_and_told_to_learners() {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    server.input(Input::EpochsDurable);
    let Message::Ping(ping) = ping(2, Zxid::ZERO, zxid(1, 4)) else { unreachable!("a ping") };
    let effects = server.hear(3, Message::Ping(Ping { members: voters(), ..ping }));
    let keeps = |effect: &Effect| match effect {
        Effect::PersistEpochs(epochs) => Some((epochs.leader, epochs.members)),
        _ => None,
    };
    assert_eq!(effects.iter().find_map(keeps), Some((Some(ServerId(3)), voters())));
    let (mut leader, _) = Server::leader(remembers(1, &[(1, 4)]));
    let told = leader.tick_at(200);
    let members = messages(&told).find_map(|message| match message {
        Message::Ping(ping) => Some(ping.members),
        _ => None,
    });
    assert_eq!(members, Some([ServerId(1), ServerId(3)].into_iter().collect()));
}

#[test]
fn a_process_that_returns_after_another_one_with_its_id_is_refused() {
    let mut server = Server::start(2, remembers(1, &[(1, 4)]));
    let own = standing(Epoch(1), zxid(1, 4));
    let (first, second) = (Standing { process: 7, ..own }, Standing { process: 8, ..own });
    for process in [first, second] {
        assert!(alarms(&server.hear(1, looking(process))).is_empty(), "each start is a new process");
    }
    let effects = server.hear(1, looking(first));
    assert_eq!(alarms(&effects), [Alarm::SecondProcess { server: ServerId(1) }]);
    assert_eq!(doubts(&effects), Some(Doubt::Replaced));
    assert!(server.zab.absences().contains(&(ServerId(1), Absence::Replaced)));
}

#[test]
fn an_epoch_with_two_leaders_is_refused() {
    let epochs = Epochs { leader: Some(ServerId(2)), ..remembers(5, &[]).epochs };
    let mut server = Server::start(2, Durable { epochs, log: log(&[(5, 9)]) });
    let own = standing(Epoch(5), zxid(5, 3));
    let effects = server.hear(1, looking(Standing { led_by: Some(ServerId(1)), ..own }));
    assert_eq!(alarms(&effects), [Alarm::EpochLedTwice { peer: ServerId(1), epoch: Epoch(5) }]);
    let same = server.hear(1, looking(Standing { led_by: Some(ServerId(2)), ..own }));
    assert!(alarms(&same).is_empty());
}

#[test]
fn after_a_restart_no_leader_is_followed_that_lacks_what_was_committed() {
    let epochs = Epochs { committed: zxid(5, 7), ..remembers(5, &[]).epochs };
    let durable = Durable { epochs, log: log(&[(4, 2), (5, 9)]) };
    let (mut server, ask) = Server::learner(durable.clone(), 6);
    let effects = server.sync(&ask, SyncPlan::Truncate(zxid(4, 2)), zxid(4, 2));
    assert_eq!(alarms(&effects), [Alarm::CommittedTruncation { after: zxid(4, 2) }]);
    let (mut server, ask) = Server::learner(durable, 6);
    let effects = server.sync(&ask, SyncPlan::Truncate(zxid(5, 7)), zxid(5, 7));
    assert!(effects.contains(&Effect::Truncate { after: zxid(5, 7) }), "the rest was not");
}

#[test]
fn what_is_committed_is_kept_with_the_promises_and_after_some_time_by_itself() {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    server.input(Input::EpochsDurable);
    server.input(Input::EpochsDurable);
    server.zab.core.config.commit_record_ms = 300;
    server.propose(2, mark(1, 4), zxid(2, 1), batch(2, 1));
    server.input(Input::Durable { upto: zxid(2, 1) });
    server.hear(3, ping(2, zxid(2, 1), zxid(2, 1)));
    assert_eq!(server.zab.committed(), zxid(2, 1));
    let effects = server.tick_at(400);
    let recorded = |effect: &Effect| match effect {
        Effect::PersistEpochs(epochs) => Some(epochs.committed),
        _ => None,
    };
    assert_eq!(effects.iter().find_map(recorded), Some(zxid(2, 1)), "{effects:?}");
}

// Epochs beyond reason.

#[test]
fn an_epoch_that_no_number_of_elections_can_have_led_to_is_refused() {
    let beyond = Epoch(2 << 20);
    let mut server = Server::start(1, remembers(1, &[(1, 4)]));
    server.hear(3, Server::notification(PeerState::Leading, 3, 1, zxid(1, 4)));
    let effects = server.hear(3, Message::NewEpoch(beyond));
    assert_eq!(alarms(&effects), [Alarm::EpochBeyondReason { peer: ServerId(3), epoch: beyond }]);
    assert!(!persists(&effects) && looks(&effects));
    let (mut leader, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    let join = Standing { accepted: beyond, ..standing(Epoch(1), zxid(1, 4)) };
    let effects = leader.hear(2, Message::FollowerInfo(join));
    assert_eq!(alarms(&effects), [Alarm::EpochBeyondReason { peer: ServerId(2), epoch: beyond }]);
    assert_eq!(leader.zab.status(), Status::Leading { epoch }, "undisturbed");
}

#[test]
fn a_new_server_joins_an_ensemble_of_any_epoch_that_leaves_some() {
    let join = |epoch| {
        let mut server = Server::start(1, Durable::default());
        server.hear(3, Server::notification(PeerState::Leading, 3, 1, zxid(1, 4)));
        persists(&server.hear(3, Message::NewEpoch(Epoch(epoch))))
    };
    assert!(join(1 << 30));
    assert!(!join(i32::MAX.cast_unsigned()), "too near to the sign bit of a zxid");
}
