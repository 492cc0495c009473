//! Hand-overs: whose clients wait, and for how long.

use super::*;

#[test]
fn clients_do_not_wait_for_a_server_that_cannot_adopt_the_successors_epoch() {
    let last = zxid(1, 4);
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, last);
    server.input(Input::EpochsDurable);
    server.hear(3, ping(2, last, last));
    let follows = Status::Following { leader: ServerId(3), epoch: Epoch(2) };
    assert_eq!(server.zab.status(), follows);

    let step = |step| Message::HandOver { epoch: Epoch(2), step };
    server.hear(3, step(HandOverStep::Pause));
    server.hear(3, step(HandOverStep::Follow(ServerId(2))));
    server.hear(2, Message::NewEpoch(Epoch(3)));
    // Its disk has no room for the promise.
    let max_ms = server.zab.core.config.move_max_ms();
    for now_ms in [max_ms / 4, max_ms / 2, max_ms - 1, max_ms] {
        assert_eq!((server.zab.status(), server.zab.is_paused()), (follows, true), "{now_ms}");
        server.tick_at(now_ms);
        server.hear(2, ping(3, last, last));
    }
    assert_eq!((server.zab.status(), server.zab.is_paused()), (Status::Looking, false));
    let Role::Following(_) = server.zab.role else { panic!("{:?}", server.zab.role) };
}

#[test]
fn what_a_silent_learner_forwards_after_the_successor_was_told_to_lead_is_not_carried_out() {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    let last = zxid(1, 4);
    server.hear(2, Message::FollowerInfo(standing(Epoch(1), last)));
    let log = LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, 4)] };
    server.hear(2, Message::AckEpoch(promise(epoch, Epoch(1), log, 6)));
    server.hear(2, ack(epoch, last, true));
    let forward = || Message::Forward(Bytes::from_static(b"a session moves"));
    let carried_out = |effects: &[Effect]| effects.iter().any(|e| matches!(e, Effect::Forwarded { .. }));
    assert!(carried_out(&server.hear(2, forward())));
    // Server 2 is silent from now on.
    let silent_ms = server.zab.core.config.peer_timeout_ms / 2 + TICK_MS;
    server.tick_at(server.now_ms + silent_ms);
    server.hear(1, pong(epoch, 2, last, true));
    server.input(Input::HandOver(Some(ServerId(1))));
    server.hear(1, Message::HandOver { epoch, step: HandOverStep::Paused });
    let told = server.input(Input::Settled);
    let lead = Message::HandOver { epoch, step: HandOverStep::Lead { upto: last } };
    assert!(messages(&told).any(|message| *message == lead), "{told:?}");
    assert_eq!(server.hear(2, forward()), [Effect::Disconnect { peer: ServerId(2) }]);
    // A learner that has paused tells no more than how its state looks.
    assert!(carried_out(&server.hear(1, forward())));
}

#[test]
fn a_successor_keeps_its_clients_only_if_the_leader_before_it_let_go() {
    let last = zxid(1, 4);
    let step = |step| Message::HandOver { epoch: Epoch(2), step };
    let statuses = |told: Option<Message>| {
        let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, last);
        server.input(Input::EpochsDurable);
        server.hear(3, ping(2, last, last));
        server.hear(3, step(HandOverStep::Pause));
        server.hear(3, step(HandOverStep::Lead { upto: last }));
        told.map(|told| server.hear(3, told));
        // Server 2 has lost the leader, or was told whom to follow.
        server.hear(2, Message::FollowerInfo(standing(Epoch(2), last)));
        server.input(Input::EpochsDurable);
        let log = LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, 4)] };
        server.hear(2, Message::AckEpoch(promise(Epoch(3), Epoch(2), log, 6)));
        server.hear(2, pong(Epoch(3), 1, Zxid::ZERO, false));
        let mut effects = server.input(Input::EpochsDurable);
        effects.extend(server.hear(2, ack(Epoch(3), last, true)));
        let status = |effect: &Effect| match effect {
            Effect::Status(status) => Some(*status),
            _ => None,
        };
        effects.iter().filter_map(status).collect::<Vec<_>>()
    };
    let leads = Status::Leading { epoch: Epoch(3) };
    assert_eq!(statuses(Some(step(HandOverStep::Follow(ServerId(1))))), [leads]);
    for not_final in [None, Some(step(HandOverStep::Resume)), Some(step(HandOverStep::Follow(ServerId(2))))] {
        assert_eq!(statuses(not_final), [Status::Looking, leads], "its clients look for another server");
    }
}

#[test]
fn a_leader_gives_way_to_a_preferred_voter_that_has_kept_up_for_long_enough() {
    let last = zxid(1, 4);
    let leader = |preferred: &[u64]| {
        let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
        server.zab.core.config.preferred = preferred.iter().copied().map(ServerId).collect();
        (server, epoch)
    };
    // To whom it hands over meanwhile; server 1 answers pings if it is heard.
    let wait = |server: &mut Server, epoch, for_ms: u64, heard: bool| {
        let until_ms = server.now_ms + for_ms;
        let mut effects = Vec::new();
        while server.now_ms < until_ms {
            effects.extend(server.stand_still_until(server.now_ms + TICK_MS));
            if heard {
                effects.extend(server.hear(1, pong(epoch, 2, last, true)));
            }
        }
        effects.iter().find_map(|effect| match effect {
            Effect::HandingOver { to } => Some(to.0),
            _ => None,
        })
    };
    let (mut server, epoch) = leader(&[2, 1]);
    let wait_ms = server.zab.core.config.prefer_after_ms;
    assert_eq!(wait(&mut server, epoch, wait_ms / 2, true), None);
    let silent_ms = server.zab.core.config.peer_timeout_ms / 2 + TICK_MS;
    assert_eq!(wait(&mut server, epoch, silent_ms, false), None, "it has gone");
    assert_eq!(wait(&mut server, epoch, wait_ms, true), None, "it has come back");
    assert_eq!(wait(&mut server, epoch, 2 * TICK_MS, true), Some(1), "server 2 is not there");
    for preferred in [&[3, 1][..], &[2], &[]] {
        let (mut server, epoch) = leader(preferred);
        assert_eq!(wait(&mut server, epoch, 2 * wait_ms, true), None, "{preferred:?}");
    }
}

#[test]
fn a_leader_gives_no_way_to_a_preferred_voter_whose_disk_lags_and_tries_a_late_one_ever_more_seldom() {
    let last = zxid(1, 4);
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    server.zab.core.config.preferred = vec![ServerId(1)];
    let wait_ms = server.zab.core.config.prefer_after_ms;
    server.hear(2, Message::FollowerInfo(standing(Epoch(1), last)));
    let log = LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, 4)] };
    server.hear(2, Message::AckEpoch(promise(epoch, Epoch(1), log, 6)));
    server.hear(2, ack(epoch, last, true));
    let committed = zxid(epoch.0, 1);
    server.input(Input::Propose(batch(epoch.0, 1)));
    server.input(Input::Durable { upto: committed });
    server.hear(2, ack(epoch, committed, true));
    // When it begins to hand over, while server 1 says that its disk has everything up to `upto`.
    let begins = |server: &mut Server, for_ms: u64, upto: Zxid| {
        let until_ms = server.now_ms + for_ms;
        let mut begun = Vec::new();
        while server.now_ms < until_ms {
            let effects = server.stand_still_until(server.now_ms + TICK_MS);
            begun.extend(
                effects.iter().any(|it| matches!(it, Effect::HandingOver { .. })).then_some(server.now_ms),
            );
            server.hear(1, pong(epoch, 2, upto, true));
            server.hear(2, pong(epoch, 2, committed, true));
        }
        begun
    };
    assert!(begins(&mut server, 2 * wait_ms, last).is_empty(), "its disk lacks what is committed");
    // It does not take over in time.
    let from_ms = server.now_ms;
    let begun = begins(&mut server, 5 * wait_ms, committed);
    let near = |ms: u64, of_ms: u64| (of_ms..of_ms + 4 * TICK_MS).contains(&(ms - from_ms));
    assert!(
        begun.len() == 3 && [1, 2, 4].iter().zip(&begun).all(|(times, at_ms)| near(*at_ms, times * wait_ms)),
        "{begun:?} from {from_ms}"
    );
}
