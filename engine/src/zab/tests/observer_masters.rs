//! Observers that learn from a follower: whom they choose, what they are sent, and through whom they are
//! heard.

use super::*;

const EPOCH: Epoch = Epoch(2);
const FOLLOWING: Status = Status::Following { leader: ServerId(3), epoch: EPOCH };

/// Server 1, which follows server 3. Both have (1, 4), all of it committed.
fn follower() -> Server {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), EPOCH.0, zxid(1, 4));
    server.input(Input::EpochsDurable);
    server.hear(3, ping(EPOCH.0, zxid(1, 4), zxid(1, 4)));
    server.input(Input::EpochsDurable);
    assert_eq!(server.zab.status(), FOLLOWING);
    server
}

/// Server 4 asks for synchronization, and has a log that ends there.
fn join(server: &mut Server, end: LogPosition) -> Vec<Effect> {
    server.input(Input::PeerConnected(ServerId(4)));
    let told = server.hear(4, Message::FollowerInfo(standing(Epoch(1), end.zxid)));
    assert_eq!(says_state(&told, 4), Some(PeerState::ObserverMaster));
    assert_eq!(sent(&told, 4).last(), Some(&Message::NewEpoch(EPOCH)), "{told:?}");
    let log = LogOutline { floor: Zxid::ZERO, ends: vec![end] };
    server.hear(4, Message::AckEpoch(promise(EPOCH, Epoch(1), log, 7)))
}

/// The same, until it serves.
fn master() -> Server {
    let mut server = follower();
    join(&mut server, mark(1, 4));
    server.hear(4, ack(EPOCH, zxid(1, 4), true));
    server.hear(3, observer(EPOCH, ObserverStep::Joined { commit: zxid(1, 4) }));
    server
}

fn observer(epoch: Epoch, step: ObserverStep) -> Message {
    Message::Observer { epoch, observer: ServerId(4), step }
}

fn sent(effects: &[Effect], to: u64) -> impl Iterator<Item = &Message> {
    effects.iter().filter_map(move |effect| match effect {
        Effect::Send { to: peer, message } if peer.0 == to => Some(message),
        _ => None,
    })
}

fn says_state(effects: &[Effect], to: u64) -> Option<PeerState> {
    let state = |message: &Message| match message {
        Message::Notification(told) => Some(told.state),
        _ => None,
    };
    sent(effects, to).find_map(state)
}

fn proposed(effects: &[Effect], to: u64) -> Vec<(Zxid, Zxid)> {
    let proposal = |message: &Message| match message {
        Message::Propose(propose) => Some((propose.batch.last(), propose.commit)),
        _ => None,
    };
    sent(effects, to).filter_map(proposal).collect()
}

fn step(step: HandOverStep) -> Message {
    Message::HandOver { epoch: EPOCH, step }
}

#[test]
fn a_follower_offers_itself_to_observers_once_it_serves_unless_they_have_promised_a_newer_epoch() {
    let asks = |server: &mut Server, peer: u64, accepted: u32| {
        server.input(Input::PeerConnected(ServerId(peer)));
        let vote = Vote { epoch: Epoch(1), zxid: zxid(1, 4), leader: ServerId(peer) };
        let own = standing(Epoch(accepted), zxid(1, 4));
        says_state(&server.hear(peer, Message::Notification(says(PeerState::Looking, vote, own))), peer)
    };
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), EPOCH.0, zxid(1, 4));
    assert_eq!(asks(&mut server, 4, 1), Some(PeerState::Following));
    server.input(Input::EpochsDurable);
    let told = server.hear(3, ping(EPOCH.0, zxid(1, 4), zxid(1, 4)));
    assert_eq!(says_state(&told, 4), Some(PeerState::ObserverMaster), "it need not ask again");
    assert_eq!(asks(&mut server, 4, 1), Some(PeerState::ObserverMaster));
    assert_eq!(asks(&mut server, 4, 3), Some(PeerState::Following));
    assert_eq!(asks(&mut server, 2, 1), Some(PeerState::Following), "a voter learns from the leader");
    server.zab.peer_speaks(ServerId(3), OBSERVER_MASTERS_SINCE - 1);
    assert_eq!(asks(&mut server, 4, 1), Some(PeerState::Following), "the leader would not know of it");
}

#[test]
fn an_observer_is_sent_what_is_committed_and_nothing_else() {
    let mut server = follower();
    let told = join(&mut server, mark(1, 4));
    let diff = |message: &Message| matches!(message, Message::Sync(Sync { plan: SyncPlan::Diff, .. }));
    assert!(sent(&told, 4).any(diff), "{told:?}");
    let told = server.propose(EPOCH.0, mark(1, 4), zxid(1, 4), batch(2, 1));
    assert_eq!(proposed(&told, 4), []);
    let told = server.propose(EPOCH.0, mark(2, 1), zxid(2, 1), batch(2, 2));
    assert_eq!(proposed(&told, 4), [(zxid(2, 1), zxid(2, 1))]);
    let told = server.hear(3, Message::Commit { epoch: EPOCH, upto: zxid(2, 2) });
    assert_eq!(proposed(&told, 4), [(zxid(2, 2), zxid(2, 2))]);
}

#[test]
fn an_observer_with_a_longer_log_of_the_epoch_waits_until_its_master_has_as_much() {
    let mut server = follower();
    let told = join(&mut server, mark(2, 1));
    let syncs = |effects: &[Effect]| sent(effects, 4).any(|message| matches!(message, Message::Sync(_)));
    assert!(!syncs(&told), "{told:?}");
    let told = server.propose(EPOCH.0, mark(1, 4), zxid(1, 4), batch(2, 1));
    assert!(syncs(&told), "{told:?}");
    assert_eq!(proposed(&server.propose(EPOCH.0, mark(2, 1), zxid(2, 2), batch(2, 2)), 4).len(), 1);
}

#[test]
fn an_observer_serves_and_is_heard_once_the_leader_has_taken_it() {
    let mut server = follower();
    join(&mut server, mark(1, 4));
    let bytes = Bytes::from_static(b"a write");
    assert_eq!(server.hear(4, Message::Forward(bytes.clone())), []);
    let told = server.hear(4, ack(EPOCH, zxid(1, 4), true));
    assert!(sent(&told, 3).any(|message| *message == observer(EPOCH, ObserverStep::Join)), "{told:?}");
    assert_eq!((server.zab.learners().synced_observers, server.zab.synced().len()), (1, 1));

    let active = |effects: &[Effect]| {
        sent(effects, 4).any(|message| matches!(message, Message::Ping(Ping { active: true, .. })))
    };
    assert!(!active(&server.tick_at(200)));
    let told = server.hear(3, observer(EPOCH, ObserverStep::Joined { commit: zxid(2, 1) }));
    assert!(!active(&told), "it has not got what the leader had committed by then");
    assert!(active(&server.propose(EPOCH.0, mark(1, 4), zxid(2, 1), batch(2, 1))));
    let told = server.hear(4, Message::Forward(bytes.clone()));
    assert_eq!(sent(&told, 3).next(), Some(&observer(EPOCH, ObserverStep::Forward(bytes.clone()))));
    let told = server.hear(3, observer(EPOCH, ObserverStep::ToLearner(bytes.clone())));
    assert_eq!(sent(&told, 4).next(), Some(&Message::ToLearner(bytes)));
    assert_eq!(acks(&server.hear(4, ack(EPOCH, zxid(9, 9), true))), [], "its acks count nowhere");
}

#[test]
fn a_follower_parts_with_its_observers_when_it_loses_its_leader_or_they_become_voters() {
    let parts = Effect::Disconnect { peer: ServerId(4) };
    assert!(master().input(Input::PeerDisconnected(ServerId(3))).contains(&parts));
    assert!(master().hear(3, Message::NewEpoch(Epoch(5))).contains(&parts));
    assert!(master().hear(3, observer(EPOCH, ObserverStep::Left)).contains(&parts));
    let mut server = master();
    let voters = QuorumSystem::majorities((1..=4).map(ServerId).collect());
    let named = Membership {
        since: zxid(2, 1),
        voters,
        observers: ServerSet::EMPTY,
        before: None,
        several_addresses: false,
    };
    server.input(Input::Members(Some(Some(named))));
    assert!(server.tick_at(50).contains(&parts));
}

#[test]
fn observers_are_users_of_their_master() {
    let mut server = master();
    let without_users = |effects: &[Effect]| {
        sent(effects, 3).any(|message| matches!(message, Message::Ack(Ack { has_users: false, .. })))
    };
    for _ in 0..20 {
        assert!(!without_users(&server.tick_at(server.now_ms + 100)));
        server.hear(3, ping(EPOCH.0, zxid(1, 4), zxid(1, 4)));
    }
    assert!(without_users(&server.input(Input::PeerDisconnected(ServerId(4)))));
}

#[test]
fn the_leader_is_told_when_an_observer_has_left_its_master() {
    let left =
        |effects: &[Effect]| sent(effects, 3).any(|message| *message == observer(EPOCH, ObserverStep::Left));
    assert!(left(&master().input(Input::PeerDisconnected(ServerId(4)))));
    let looking = Server::notification(PeerState::Looking, 4, 1, zxid(1, 4));
    assert!(left(&master().hear(4, looking)));
    assert!(!left(&follower().input(Input::PeerDisconnected(ServerId(4)))), "it had not joined");
    let joined = observer(EPOCH, ObserverStep::Joined { commit: zxid(1, 4) });
    assert!(left(&follower().hear(3, joined)), "it is not there any more");
}

#[test]
fn a_leader_hears_an_observer_through_its_last_master_alone() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    server.hear(2, Message::FollowerInfo(standing(Epoch(1), zxid(1, 4))));
    let log = LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, 4)] };
    server.hear(2, Message::AckEpoch(promise(epoch, Epoch(1), log, 6)));
    server.hear(2, ack(epoch, zxid(1, 4), true));
    server.input(Input::Flush);
    let bytes = Bytes::from_static(b"a write");
    let forward = || observer(epoch, ObserverStep::Forward(bytes.clone()));
    let heard =
        |effects: &[Effect]| effects.contains(&Effect::Forwarded { from: ServerId(4), bytes: bytes.clone() });
    let gone = Effect::LearnerLeft(ServerId(4));
    let left = observer(epoch, ObserverStep::Left);
    assert!(!heard(&server.hear(1, forward())), "it has not joined");

    let joined = observer(epoch, ObserverStep::Joined { commit: zxid(1, 4) });
    let told = server.hear(1, observer(epoch, ObserverStep::Join));
    assert!(sent(&told, 1).eq([&joined]) && !told.contains(&gone), "{told:?}");
    assert!(heard(&server.hear(1, forward())));
    let told = server.hear(1, observer(epoch, ObserverStep::Join));
    assert!(sent(&told, 1).eq([&joined]) && told.contains(&gone), "it came back to its master: {told:?}");

    let told = server.hear(2, observer(epoch, ObserverStep::Join));
    assert!(sent(&told, 1).eq([&left]) && sent(&told, 2).eq([&joined]) && told.contains(&gone), "{told:?}");
    assert!(!heard(&server.hear(1, forward())), "it comes late");
    assert!(heard(&server.hear(2, forward())));
    let answer = server.input(Input::ToLearner { to: ServerId(4), bytes: bytes.clone() });
    assert!(sent(&answer, 2).eq([&observer(epoch, ObserverStep::ToLearner(bytes.clone()))]));

    assert!(!server.hear(1, left.clone()).contains(&gone), "server 1 has no say in it");
    assert!(server.input(Input::PeerDisconnected(ServerId(2))).contains(&gone));
    server.hear(1, observer(epoch, ObserverStep::Join));
    server.input(Input::PeerConnected(ServerId(4)));
    let told = server.hear(4, Message::FollowerInfo(standing(Epoch(1), zxid(1, 4))));
    assert!(sent(&told, 1).eq([&left]) && told.contains(&gone), "it learns from the leader: {told:?}");
    let told = server.hear(1, observer(Epoch(1), ObserverStep::Join));
    assert_eq!(told, [], "of an epoch before");
}

#[test]
fn a_follower_says_that_it_forwards_no_more_when_its_observers_do_and_takes_them_along() {
    let mut server = master();
    assert!(sent(&server.hear(3, step(HandOverStep::Pause)), 4).eq([&step(HandOverStep::Pause)]));
    let paused = step(HandOverStep::Paused);
    assert!(!messages(&server.input(Input::Flush)).any(|message| *message == paused));
    let last = server.hear(4, Message::Forward(Bytes::from_static(b"the last one")));
    assert_eq!(sent(&last, 3).count(), 1);
    server.hear(4, paused.clone());
    assert!(sent(&server.input(Input::Flush), 3).any(|message| *message == paused));
    assert_eq!(server.hear(4, Message::Forward(Bytes::from_static(b"too late"))), []);
    let told = server.hear(3, step(HandOverStep::Follow(ServerId(2))));
    assert!(sent(&told, 4).any(|message| *message == step(HandOverStep::Follow(ServerId(1)))), "{told:?}");
    assert!(!told.contains(&Effect::Disconnect { peer: ServerId(4) }));
}

#[test]
fn a_successor_takes_its_observers_along_once_the_leader_before_it_has_let_go() {
    let lead = |told: Option<Message>| {
        let mut server = master();
        server.hear(3, step(HandOverStep::Pause));
        server.hear(4, step(HandOverStep::Paused));
        server.input(Input::Flush);
        let mut effects = server.hear(3, step(HandOverStep::Lead { upto: zxid(1, 4) }));
        assert_eq!(says_state(&effects, 4), Some(PeerState::Leading), "{effects:?}");
        effects.extend(told.map(|told| server.hear(3, told)).unwrap_or_default());
        effects.extend(server.tick_at(5000));
        let goes_along = sent(&effects, 4).any(|message| *message == step(HandOverStep::Follow(ServerId(1))));
        (goes_along, effects.contains(&Effect::Disconnect { peer: ServerId(4) }))
    };
    assert_eq!(lead(Some(step(HandOverStep::Follow(ServerId(1))))), (true, false));
    assert_eq!(lead(None), (false, true), "it has not said so");
}

/// Observer `id`, after these voters have said what they are.
fn looks_for_master(id: u64, heard: &[(u64, PeerState)]) -> (Server, Vec<Effect>) {
    let mut server = Server::start(id, remembers(1, &[(1, 4)]));
    let told = |state, leader| {
        let vote = Vote { epoch: Epoch(1), zxid: zxid(1, 4), leader: ServerId(leader) };
        Notification { serves: true, ..says(state, vote, standing(EPOCH, zxid(1, 4))) }
    };
    let mut effects = Vec::new();
    for (from, state) in heard {
        effects.extend(server.hear(*from, Message::Notification(told(*state, 3))));
    }
    (server, effects)
}

fn asked_to_feed(effects: &[Effect]) -> Option<u64> {
    effects.iter().find_map(|effect| match effect {
        Effect::Send { to, message: Message::FollowerInfo(_) } => Some(to.0),
        _ => None,
    })
}

#[test]
fn observers_spread_over_the_followers_and_take_the_leader_last() {
    let (master, leader) = (PeerState::ObserverMaster, PeerState::Leading);
    let all = [(1, master), (2, master), (3, leader)];
    assert_eq!(asked_to_feed(&looks_for_master(4, &all).1), Some(1));
    assert_eq!(asked_to_feed(&looks_for_master(5, &all).1), Some(2));
    let others = [(1, PeerState::Following), (2, PeerState::Following), (3, leader)];
    assert_eq!(asked_to_feed(&looks_for_master(4, &others).1), Some(3), "nobody else may feed it");

    let (mut server, effects) = looks_for_master(4, &[(1, master), (3, leader)]);
    assert_eq!(asked_to_feed(&effects), None, "server 2 may be the one");
    assert_eq!(asked_to_feed(&server.tick_at(50)), Some(1));
    let (mut server, effects) = looks_for_master(4, &[(3, leader)]);
    assert_eq!(asked_to_feed(&effects), None);
    assert_eq!(asked_to_feed(&server.tick_at(500)), None, "a follower may need a moment");
    let gone = [1, 2].map(|peer| server.input(Input::PeerDisconnected(ServerId(peer))));
    assert_eq!(asked_to_feed(&gone.concat()), Some(3), "there is none");
}

#[test]
fn an_observer_goes_to_a_leader_that_needs_its_vote_by_a_change_that_it_does_not_know() {
    let mut server = Server::start(4, remembers(1, &[(1, 4)]));
    let vote = Vote { epoch: Epoch(1), zxid: zxid(1, 5), leader: ServerId(3) };
    let leads = |voters| {
        let mut own = standing(EPOCH, zxid(1, 5));
        own.ensemble.voters = voters;
        Message::Notification(says(PeerState::Leading, vote, own))
    };
    let told = server.hear(3, leads((1..=3).map(ServerId).collect()));
    assert_eq!(asked_to_feed(&told), None, "it does not serve, and does not need this server");
    let told = server.hear(3, leads((1..=4).map(ServerId).collect()));
    assert_eq!(asked_to_feed(&told), Some(3));
}

#[test]
fn an_observer_whose_master_fails_tries_the_others_in_turn() {
    let all = [(1, PeerState::ObserverMaster), (2, PeerState::ObserverMaster), (3, PeerState::Leading)];
    let (mut server, effects) = looks_for_master(4, &all);
    let mut tried: Vec<_> = asked_to_feed(&effects).into_iter().collect();
    for _ in 0..2 {
        let refuses = Notification {
            serves: true,
            ..says(
                PeerState::Following,
                Vote { epoch: EPOCH, zxid: zxid(1, 4), leader: ServerId(3) },
                standing(EPOCH, zxid(1, 4)),
            )
        };
        server.zab.core.round = 9;
        server.hear(tried[tried.len() - 1], Message::Notification(refuses));
        for (from, state) in all {
            let vote = Vote { epoch: Epoch(1), zxid: zxid(1, 4), leader: ServerId(3) };
            let told = Notification { serves: true, ..says(state, vote, standing(EPOCH, zxid(1, 4))) };
            tried.extend(asked_to_feed(&server.hear(from, Message::Notification(told))));
        }
    }
    assert_eq!(tried, [1, 2, 3]);
}

#[test]
fn an_observer_follows_the_leader_whom_its_master_names() {
    let all = [(1, PeerState::ObserverMaster), (2, PeerState::ObserverMaster), (3, PeerState::Leading)];
    let (mut server, _) = looks_for_master(4, &all);
    let told = |leader, state| {
        let vote = Vote { epoch: Epoch(1), zxid: zxid(1, 4), leader: ServerId(leader) };
        Message::Notification(says(state, vote, standing(EPOCH, zxid(1, 4))))
    };
    server.hear(1, told(3, PeerState::ObserverMaster));
    server.hear(1, Message::NewEpoch(EPOCH));
    let ask = asked(&server.input(Input::EpochsDurable)).unwrap();
    let sync = Sync {
        epoch: EPOCH,
        serial: ask.serial,
        plan: SyncPlan::Diff,
        history: zxid(1, 4),
        ensemble: ensemble(9),
    };
    server.hear(1, Message::Sync(sync));
    server.input(Input::EpochsDurable);
    server.hear(1, ping(EPOCH.0, zxid(1, 4), zxid(1, 4)));
    assert_eq!((server.zab.status(), server.zab.master()), (FOLLOWING, Some(ServerId(1))));
    assert_eq!(server.zab.durable_epochs().leader, Some(ServerId(3)));
    assert!(!looks(&server.hear(1, told(1, PeerState::Leading))), "it takes over from server 3");
    assert!(looks(&server.input(Input::PeerDisconnected(ServerId(1)))));
}

#[test]
fn an_observer_whose_leader_follows_another_one_meanwhile_asks_anew() {
    let others = [(1, PeerState::Following), (2, PeerState::Following), (3, PeerState::Leading)];
    let (mut server, effects) = looks_for_master(4, &others);
    assert_eq!(asked_to_feed(&effects), Some(3));
    let told = |leader, state| {
        let vote = Vote { epoch: Epoch(1), zxid: zxid(1, 4), leader: ServerId(leader) };
        Message::Notification(says(state, vote, standing(EPOCH, zxid(1, 4))))
    };
    server.hear(3, Message::NewEpoch(EPOCH));
    assert!(!looks(&server.hear(3, told(3, PeerState::Leading))));
    assert!(looks(&server.hear(3, told(1, PeerState::ObserverMaster))), "what it offers is led by server 1");
}
