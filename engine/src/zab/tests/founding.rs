//! New ensembles: who founds one, who is refused, and new disks in an old one.

use super::*;

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
fn a_member_that_would_follow_a_server_left_over_is_neither_taken_nor_called_foreign() {
    let (mut server, _) = Server::leader_elect(left_over());
    let effects = server.hear(2, Message::FollowerInfo(standing(Epoch(4), zxid(4, 2))));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Alarm(_))), "{effects:?}");
    assert_eq!(messages(&effects).count(), 0);
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
fn a_server_with_another_list_of_voters_or_other_groups_learns_and_counts_for_nothing() {
    let longer = EnsembleId { voters: (1..=5).map(ServerId).collect(), ..ensemble(9) };
    for others in [longer, EnsembleId { groups: 7, ..ensemble(9) }] {
        let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
        server.input(Input::PeerDisconnected(ServerId(1)));
        let join = Standing { ensemble: others, ..standing(Epoch(1), zxid(1, 4)) };
        server.hear(2, Message::FollowerInfo(join));
        let effects = server.hear(2, Message::AckEpoch(promise(epoch, Epoch(1), log_to(zxid(1, 4)), 6)));
        assert!(messages(&effects).any(|message| matches!(message, Message::Sync(_))), "it is synchronized");
        server.hear(2, ack(epoch, zxid(1, 4), true));
        server.input(Input::Propose(batch(epoch.0, 1)));
        server.input(Input::Durable { upto: zxid(epoch.0, 1) });
        let effects = server.hear(2, ack(epoch, zxid(epoch.0, 1), true));
        assert_eq!(
            commits(&effects),
            [],
            "with server 1 it would be no quorum by the other list: {others:?}"
        );
    }
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
