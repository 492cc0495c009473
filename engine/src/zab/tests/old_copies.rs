//! Old copies of folders, two processes with one id, and epochs beyond reason.

use super::*;

/// Looks for a leader with this standing.
fn looking(own: Standing) -> Message {
    let vote = Vote { epoch: own.current, zxid: own.last, leader: ServerId(1) };
    Message::Notification(says(PeerState::Looking, vote, own))
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
        Effect::PersistEpochs(epochs) => Some((epochs.initialized, epochs.end_before_damage)),
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

/// Until it hears who has adopted the new epoch, it knows nothing of them by that epoch.
#[test]
fn members_of_the_former_epoch_are_remembered_with_the_new_one() {
    let members = [ServerId(1), ServerId(2)].into_iter().collect();
    let durable = remembers(1, &[(1, 4)]);
    let epochs = Epochs { members, ..durable.epochs };
    let mut server = Server::streaming(Durable { epochs, ..durable }, 2, zxid(1, 4));
    server.input(Input::EpochsDurable);
    assert_eq!(server.zab.core.epochs.current, Epoch(2));
    let effects = server.hear(2, looking(Standing { accepted: Epoch(0), ..standing(Epoch(0), zxid(0, 0)) }));
    assert_eq!(doubts(&effects), Some(Doubt::OldCopy(Known { epoch: Epoch(1), zxid: Zxid::ZERO })));
    // An epoch that nobody else is known to have adopted does not take the place of one that others have.
    server.zab.core.adopt(Epoch(3), ServerId(3), &EnsembleId::default());
    let Epochs { former, former_members, .. } = server.zab.core.epochs;
    assert_eq!((former, former_members), (Epoch(1), members));
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
    assert_eq!(doubts(&effects), Some(Doubt::Replaced));
    assert!(alarms(&effects).is_empty(), "it may have said so before it was replaced");
    server.tick_at(server.now_ms + server.zab.core.config.peer_timeout_ms + TICK_MS);
    let effects = server.hear(1, looking(first));
    assert_eq!(alarms(&effects), [Alarm::SecondProcess { server: ServerId(1) }]);
    assert_eq!(doubts(&effects), Some(Doubt::Replaced));
    assert!(server.zab.absences().contains(&(ServerId(1), Absence::Replaced)));
    // The later one is told when it comes back, and it counts.
    server.input(Input::PeerDisconnected(ServerId(1)));
    server.input(Input::PeerConnected(ServerId(1)));
    let effects = server.hear(1, looking(second));
    assert_eq!((alarms(&effects), doubts(&effects)), (vec![], Some(Doubt::Contested)));
    assert!(!server.zab.absences().iter().any(|(peer, _)| *peer == ServerId(1)));
}

#[test]
fn a_process_that_is_told_of_another_one_with_its_id_tells_its_operator() {
    for (doubt, listens) in [(Doubt::Replaced, false), (Doubt::Contested, true)] {
        let mut server = Server::start(1, remembers(1, &[(1, 4)]));
        let Message::Notification(told) = Server::notification(PeerState::Leading, 3, 1, zxid(1, 9)) else {
            unreachable!("a notification")
        };
        let effects = server.hear(3, Message::Notification(Notification { doubt: Some(doubt), ..told }));
        assert_eq!(alarms(&effects), [Alarm::SecondProcess { server: ServerId(1) }]);
        assert_eq!(matches!(server.zab.role, Role::Following(_)), listens, "{doubt:?}");
    }
}

/// Two processes with one id take turns on a connection to a follower, which has nothing else to say to them.
#[test]
fn followers_tell_each_other_who_they_are_whenever_they_are_connected() {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    server.input(Input::PeerDisconnected(ServerId(2)));
    let effects = server.input(Input::PeerConnected(ServerId(2)));
    let said = messages(&effects).find_map(|message| match message {
        Message::Notification(Notification { state, vote, .. }) => Some((*state, vote.leader)),
        _ => None,
    });
    assert_eq!(said, Some((PeerState::Following, ServerId(3))));
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

#[test]
fn what_a_learner_said_before_it_was_told_that_its_folder_is_an_old_copy_does_not_count() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    server.hear(1, ack(epoch, zxid(1, 4), true));
    assert_eq!(server.zab.learners().synced_followers, 1);
    let new = Standing { initialized: false, ..standing(epoch, zxid(1, 4)) };
    server.hear(1, Message::FollowerInfo(new));
    assert_eq!(server.zab.learners().synced_followers, 0);
}
