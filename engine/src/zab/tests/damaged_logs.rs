//! Damaged logs: what a server that has lost acknowledged transactions may still do.

use super::*;

/// Server 1, whose log was cut to `ends` and had gone up to `end_before_damage`.
fn damaged(epoch: u32, ends: &[(u32, u32)], end_before_damage: Zxid) -> Durable {
    let mut durable = remembers(epoch, ends);
    durable.epochs.end_before_damage = end_before_damage;
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
    assert_eq!((ask.end_before_damage, ask.log.last()), (zxid(1, 6), zxid(1, 4)));
    let history = zxid(1, 6);
    server.sync(&ask, SyncPlan::Diff, history);
    server.propose(2, mark(1, 4), Zxid::ZERO, batch(1, 5));
    let acked = server.input(Input::Durable { upto: zxid(1, 5) });
    assert!(messages(&acked).any(|message| *message == ack(Epoch(2), zxid(1, 5), false)));
    server.propose(2, mark(1, 5), Zxid::ZERO, batch(1, 6));
    let adopts = server.input(Input::Durable { upto: zxid(1, 6) });
    assert!(adopts.iter().any(|effect| {
        matches!(
            effect,
            Effect::PersistEpochs(Epochs { current: Epoch(2), end_before_damage: Zxid::ZERO, .. })
        )
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
        matches!(
            effect,
            Effect::PersistEpochs(Epochs { accepted: Epoch(2), end_before_damage: Zxid::ZERO, .. })
        )
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
        matches!(
            effect,
            Effect::PersistEpochs(Epochs { initialized: true, end_before_damage: Zxid::ZERO, .. })
        )
    }));
}

/// Server 3 with this log, which server 1 with that log joins after damage; whether the two are enough for an
/// epoch.
fn leads_with_damaged(last: Zxid, end_before_damage: Zxid) -> bool {
    let mut server = Server::start(3, remembers(1, &[(1, last.counter())]));
    let vote = Vote { epoch: Epoch(1), zxid: last, leader: ServerId(3) };
    let own = standing(Epoch(1), end_before_damage);
    let agrees = says(PeerState::Looking, vote, own);
    server.hear(1, Message::Notification(agrees));
    server.tick_at(200);
    server.hear(1, Message::FollowerInfo(standing(Epoch(1), end_before_damage)));
    server.input(Input::EpochsDurable);
    let log = LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, 1)] };
    let (epoch, current) = (Epoch(2), Epoch(1));
    let ask = AckEpoch { epoch, promise: true, current, end_before_damage, log, serial: 5, snapshot: false };
    server.hear(1, Message::AckEpoch(ask));
    let verified = server.hear(1, pong(Epoch(2), 99, Zxid::ZERO, false));
    messages(&verified).any(|message| matches!(message, Message::Sync(_)))
}

#[test]
fn the_promise_of_a_damaged_server_counts_for_a_history_that_reaches_its_claim_alone() {
    assert!(leads_with_damaged(zxid(1, 9), zxid(1, 9)));
    assert!(!leads_with_damaged(zxid(1, 8), zxid(1, 9)));
}
