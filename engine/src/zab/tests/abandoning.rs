//! Changes of the members that cannot finish, since the new voters are lost.

use super::*;

fn list(ids: &[u64]) -> ServerSet {
    ids.iter().copied().map(ServerId).collect()
}

/// The members of five voters are changed to servers 5, 1 and 2 by a transaction of server 5, which leads.
fn membership(since: Zxid) -> Membership {
    Membership {
        since,
        voters: QuorumSystem::majorities(list(&[5, 1, 2])),
        observers: ServerSet::EMPTY,
        before: None,
        several_addresses: false,
    }
}

fn abandonments(effects: &[Effect]) -> usize {
    let gives_up = |effect: &&Effect| matches!(effect, Effect::Departed(Departure::ChangeAbandoned { .. }));
    effects.iter().filter(gives_up).count()
}

/// Five servers of which the last leads, and what it has committed.
fn five() -> (Servers, Zxid) {
    let mut ensemble = Servers::new(5, (1..=5).map(|id| (id, remembers(1, &[(1, 9)]))));
    ensemble.start();
    assert_eq!(ensemble.leader(), Some(5));
    let next = ensemble.servers[&5].zab.next_zxid().unwrap();
    ensemble.run(vec![(5, Input::Propose(batch(next.epoch().0, next.counter())))]);
    assert_eq!(ensemble.servers[&5].zab.committed(), next);
    (ensemble, next)
}

fn ensemble_of(server: &Server) -> EnsembleId {
    server.zab.core.ensemble()
}

/// Server 5 changes the members, as the servers that run see it.
fn change(ensemble: &mut Servers) -> Zxid {
    let since = ensemble.servers[&5].zab.next_zxid().unwrap();
    ensemble.run(vec![(5, Input::Propose(batch(since.epoch().0, since.counter())))]);
    let known = Some(Some(membership(since)));
    ensemble.run(ensemble.servers.keys().map(|id| (*id, Input::Members(known.clone()))).collect());
    since
}

/// Servers 3 to 5, of which the last has proposed a change when servers 1 and 2 are lost; what was committed
/// before, and the change.
fn stuck() -> (Servers, Zxid, Zxid) {
    let (mut ensemble, committed) = five();
    ensemble.servers.remove(&1);
    ensemble.servers.remove(&2);
    // They learn of the change with its batch.
    let since = ensemble.servers[&5].zab.next_zxid().unwrap();
    let known = Some(Some(membership(since)));
    ensemble.run([3, 4, 5].map(|id| (id, Input::Members(known.clone()))).to_vec());
    ensemble.run(vec![(5, Input::Propose(batch(since.epoch().0, since.counter())))]);
    (ensemble, committed, since)
}

/// The same servers, after they have given the change up.
fn given_up() -> (Servers, Zxid, Zxid) {
    let (mut ensemble, committed, since) = stuck();
    let behind = ensemble.servers[&5].zab.next_zxid().unwrap();
    ensemble.run(vec![(5, Input::Propose(batch(behind.epoch().0, behind.counter())))]);
    assert_eq!(ensemble.servers[&5].zab.committed(), committed);
    let mut effects = Vec::new();
    for _ in 0..400 {
        effects.extend(ensemble.pass(1));
        if abandonments(&effects) > 0 {
            break;
        }
    }
    assert_eq!(abandonments(&effects), 3, "the leader and its followers give the change up");
    ensemble.run([3, 4, 5].map(|id| (id, Input::Members(Some(None)))).to_vec());
    (ensemble, committed, since)
}

#[test]
fn a_change_whose_new_voters_are_lost_is_given_up_and_the_old_ones_go_on() {
    let (mut ensemble, committed, _) = given_up();
    ensemble.pass(100);
    let leader = ensemble.leader().expect("three of the five voters elect a leader");
    let zab = &ensemble.servers[&leader].zab;
    assert_eq!(zab.last().zxid, committed);
    let next = zab.next_zxid().unwrap();
    ensemble.run(vec![(leader, Input::Propose(batch(next.epoch().0, next.counter())))]);
    for id in [3, 4, 5] {
        assert_eq!(ensemble.servers[&id].zab.committed(), next, "server {id}");
    }
}

/// Longer than the peer timeout.
const PAUSE_MS: u64 = 60_000;

/// Server 5, which stands still again and again while its change cannot finish; the change, and the round in
/// which it asks whether it still leads.
fn doubtful() -> (Server, Zxid, u64) {
    let (mut ensemble, _, since) = stuck();
    let mut leader = ensemble.servers.remove(&5).unwrap();
    let mut asked = 0;
    for _ in 0..400 {
        answers(&mut leader, since, 1, true);
        let effects = leader.stand_still_until(leader.now_ms + PAUSE_MS);
        assert_eq!(abandonments(&effects), 0, "what it has heard was sent before it stood still");
        let rounds = messages(&effects).map(|message| match message {
            Message::Ping(ping) => ping.round,
            _ => 0,
        });
        asked = rounds.fold(asked, u64::max);
    }
    (leader, since, asked)
}

/// Servers 3 and 4 answer this round. Server 3 may not have adopted the epoch.
fn answers(leader: &mut Server, since: Zxid, round: u64, adopted: bool) {
    leader.hear(3, pong(since.epoch(), round, since, adopted));
    leader.hear(4, pong(since.epoch(), round, since, true));
}

fn at_once(leader: &mut Server) -> usize {
    abandonments(&leader.stand_still_until(leader.now_ms + 1))
}

#[test]
fn a_leader_that_stood_still_gives_nothing_up_before_it_is_confirmed_once_more() {
    let (mut leader, since, asked) = doubtful();
    answers(&mut leader, since, asked, true);
    assert_eq!(at_once(&mut leader), 1);
}

#[test]
fn answers_that_a_leader_hears_late_confirm_nothing() {
    let (mut leader, since, asked) = doubtful();
    answers(&mut leader, since, asked, true);
    assert_eq!(abandonments(&leader.stand_still_until(leader.now_ms + PAUSE_MS)), 0);
    answers(&mut leader, since, asked + 1, true);
    assert_eq!(at_once(&mut leader), 1, "it has asked anew");
}

#[test]
fn a_server_with_a_new_disk_does_not_confirm_who_leads() {
    let (mut leader, since, asked) = doubtful();
    let new = Standing { initialized: false, ..standing(since.epoch(), Zxid::ZERO) };
    leader.hear(3, Message::FollowerInfo(new));
    answers(&mut leader, since, asked, false);
    assert_eq!(at_once(&mut leader), 0, "it may have forgotten a newer epoch");
    answers(&mut leader, since, asked, true);
    assert_eq!(at_once(&mut leader), 1);
}

#[test]
fn a_server_that_comes_back_with_what_was_given_up_is_told() {
    let (mut ensemble, committed, since) = given_up();
    let server = ensemble.servers.get_mut(&5).unwrap();
    let mut hear = |last| {
        let own = Standing {
            ensemble: EnsembleId { voters: list(&[1, 2, 3, 4, 5]), ..ensemble_of(server) },
            ..standing(since.epoch(), last)
        };
        let vote = Vote { epoch: since.epoch(), zxid: last, leader: ServerId(1) };
        server.hear(1, Message::Notification(says(PeerState::Looking, vote, own)))
    };
    let told = Message::Abandoned { epoch: since.epoch(), after: committed };
    assert!(messages(&hear(since)).any(|message| *message == told));
    assert!(!messages(&hear(committed)).any(|message| *message == told));
}

#[test]
fn a_server_that_has_cut_off_what_it_had_acknowledged_has_no_old_copy() {
    let (mut ensemble, committed, since) = given_up();
    let server = ensemble.servers.get_mut(&5).unwrap();
    let ensemble = EnsembleId { voters: list(&[1, 2, 3, 4, 5]), ..ensemble_of(server) };
    let own = Standing { ensemble, ..standing(since.epoch(), committed) };
    server.zab.core.note(ServerId(4), own);
    assert_eq!(server.zab.core.doubt(ServerId(4)), None);
    let less = Standing { last: Zxid(committed.0 - 1), ..own };
    server.zab.core.note(ServerId(4), less);
    assert!(matches!(server.zab.core.doubt(ServerId(4)), Some(Doubt::OldCopy(_))));
}

#[test]
fn a_change_whose_new_voters_are_there_is_not_given_up() {
    let (mut ensemble, _) = five();
    let since = change(&mut ensemble);
    let effects = ensemble.pass(800);
    assert_eq!(abandonments(&effects), 0);
    assert_eq!(ensemble.leader(), Some(5));
    assert!(ensemble.servers[&5].zab.committed() >= since);
}

#[test]
fn only_the_leader_of_an_epoch_can_give_up_a_part_of_it_and_only_what_is_not_committed() {
    let last = zxid(1, 6);
    let follower = || {
        let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
        server.input(Input::EpochsDurable);
        server.propose(2, mark(1, 4), zxid(1, 4), batch(2, 1));
        server.propose(2, mark(2, 1), zxid(2, 1), batch(2, 2));
        server
    };
    let given_up = |epoch: u32, after| Message::Abandoned { epoch: Epoch(epoch), after };
    let cut = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::Truncate { .. }));
    assert!(!cut(&follower().hear(2, given_up(2, zxid(2, 1)))), "server 2 does not lead");
    assert!(!cut(&follower().hear(3, given_up(1, zxid(2, 1)))), "another epoch");
    assert!(!cut(&follower().hear(3, given_up(2, last))), "a part is committed");
    assert!(!cut(&follower().hear(3, given_up(2, zxid(2, 2)))), "nothing is behind");
    let effects = follower().hear(3, given_up(2, zxid(2, 1)));
    assert!(cut(&effects), "{effects:?}");
}
