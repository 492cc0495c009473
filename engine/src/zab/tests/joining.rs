//! Servers that become voters by a change of the members that the log names.

use super::*;

/// A vote for server 3, by a member of an ensemble whose log names these voters.
fn votes_for_3(voters: impl IntoIterator<Item = u64>) -> Notification {
    let named: ServerSet = voters.into_iter().map(ServerId).chain([NAMED_BY_LOG]).collect();
    let own = standing(Epoch(2), zxid(2, 8));
    let own = Standing { ensemble: EnsembleId { voters: named, ..own.ensemble }, ..own };
    says(PeerState::Looking, Vote { epoch: Epoch(2), zxid: zxid(2, 8), leader: ServerId(3) }, own)
}

/// Whom server 5 votes for after it heard from server 3. It has an empty log, and a list of servers from
/// before it was made a voter.
fn vote_of_5(config: Config, heard: Notification) -> Option<ServerId> {
    let mut server = Server { zab: Zab::new(config, remembers(2, &[]), 1), now_ms: 0 };
    server.input(Input::Start);
    server.input(Input::PeerConnected(ServerId(3)));
    server.hear(3, Message::Notification(heard));
    let told = server.tick_at(server.zab.core.config.heartbeat_ms() + 1);
    messages(&told).find_map(|message| match message {
        Message::Notification(told) => Some(told.vote.leader),
        _ => None,
    })
}

/// The members may need that vote to commit the very change that it has yet to learn. [etcd: a learner that
/// was promoted, and does not know, left its group without a leader]
#[test]
fn a_server_votes_for_a_candidate_whose_log_makes_it_a_voter() {
    let config = || Config::new(ServerId(5), voters(), ServerSet::EMPTY).admitting_joiners();
    assert_eq!(vote_of_5(config(), votes_for_3([1, 5])), Some(ServerId(3)));
    let mut foreign = votes_for_3([1, 5]);
    foreign.own.ensemble.cluster = 10;
    assert_eq!(vote_of_5(config(), foreign), Some(ServerId(5)));
    let fixed = Config { admits_joiners: false, ..config() };
    assert_eq!(vote_of_5(fixed, votes_for_3([1, 5])), Some(ServerId(5)), "its members are those of its list");
}

#[test]
fn a_joiner_knows_that_a_listed_server_follows_one_that_its_list_lacks() {
    let absence = |leader, connected: &[u64]| {
        let listed = [ServerId(1), ServerId(4)].into_iter().collect();
        let config = Config::new(ServerId(4), listed, ServerSet::EMPTY).admitting_joiners();
        let mut server = Server { zab: Zab::new(config, Durable::default(), 1), now_ms: 0 };
        server.input(Input::Start);
        connected.iter().for_each(|peer| drop(server.input(Input::PeerConnected(ServerId(*peer)))));
        let own = Standing { led_by: Some(ServerId(leader)), ..votes_for_3([1, 2, 3]).own };
        let vote = Vote { epoch: Epoch(2), zxid: zxid(2, 8), leader: ServerId(leader) };
        server.hear(1, Message::Notification(says(PeerState::Following, vote, own)));
        server.zab.absences()
    };
    assert_eq!(absence(3, &[1]), [(ServerId(1), Absence::FollowsUnlisted(ServerId(3)))]);
    assert_eq!(absence(3, &[1, 3]), [(ServerId(1), Absence::OtherVoters)], "it is connected, listed or not");
    assert_eq!(absence(1, &[1]), [(ServerId(1), Absence::OtherVoters)]);
}

/// The transaction `since` makes servers 1 to 3 the voters, with the quorums of one group if `in_group`.
fn members(since: Zxid, in_group: bool) -> Input {
    let place = |server| Placed { server, group: 1, weight: server.0, participates: true };
    let system = |in_group| match in_group {
        true => QuorumSystem::Hierarchical(Hierarchical::new(voters().iter().map(place))),
        false => QuorumSystem::majorities(voters()),
    };
    let (now, before) = (system(in_group), system(!in_group));
    Input::Members(Some(Some(Membership {
        since,
        voters: now,
        observers: ServerSet::EMPTY,
        before: Some(before),
        several_addresses: false,
    })))
}

/// As for groups: a build that cannot read several addresses would take its configuration's members instead.
#[test]
fn a_folder_says_that_servers_have_several_addresses_until_that_is_over_for_good() {
    let epochs = Epochs { committed: zxid(2, 3), ..remembers(2, &[]).epochs };
    let durable = Durable { epochs, ..remembers(2, &[(2, 5)]) };
    let mut server =
        Server { zab: Zab::new(Config::new(ServerId(1), voters(), ServerSet::EMPTY), durable, 1), now_ms: 0 };
    server.input(Input::Start);
    let mut several_after = |since, several_addresses| {
        let Input::Members(Some(Some(plain))) = members(since, false) else { unreachable!() };
        server.input(Input::Members(Some(Some(Membership { several_addresses, ..plain }))));
        server.input(Input::EpochsDurable);
        server.zab.core.persisted.several_addresses
    };
    assert!(several_after(zxid(2, 4), true));
    assert!(several_after(zxid(2, 5), false), "a new leader may cut this off, and not what was before");
    assert!(!several_after(zxid(2, 3), false), "which is committed");
}

/// The leader of a new ensemble serves before the log names anyone.
#[test]
fn a_folder_says_that_the_log_names_the_members_as_soon_as_that_is_committed() {
    let (mut leader, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    leader.input(Input::EpochsDurable);
    let named_after = |leader: &mut Server, input| {
        leader.input(input);
        leader.input(Input::EpochsDurable);
        leader.zab.core.persisted.voters.contains(NAMED_BY_LOG)
    };
    let since = zxid(epoch.0, 1);
    let Input::Members(Some(Some(named))) = members(since, false) else { unreachable!() };
    let first = Input::Members(Some(Some(Membership { before: None, ..named })));
    leader.input(Input::Propose(batch(epoch.0, 1)));
    assert!(!named_after(&mut leader, first), "a new leader may cut this off");
    leader.input(Input::Durable { upto: since });
    let acked = Input::Message { from: ServerId(1), message: ack(epoch, since, true) };
    assert!(named_after(&mut leader, acked));
}

/// A build that knows no groups goes by majorities, and must not be started on the folder while groups may
/// decide.
#[test]
fn a_folder_says_that_voters_stand_in_groups_from_their_proposal_until_they_are_gone_for_good() {
    let epochs = Epochs { committed: zxid(2, 3), ..remembers(2, &[]).epochs };
    let durable = Durable { epochs, ..remembers(2, &[(2, 5)]) };
    let mut server =
        Server { zab: Zab::new(Config::new(ServerId(1), voters(), ServerSet::EMPTY), durable, 1), now_ms: 0 };
    server.input(Input::Start);
    let mut groups_after = |input| {
        let written = server.input(input).iter().find_map(|effect| match effect {
            Effect::PersistEpochs(epochs) => Some((epochs.groups > 0, epochs.voters.contains(NAMED_BY_LOG))),
            _ => None,
        });
        server.input(Input::EpochsDurable);
        written
    };
    assert_eq!(groups_after(members(zxid(2, 5), true)), Some((true, true)));
    assert_eq!(groups_after(members(zxid(2, 4), false)), None, "the groups before may still decide");
    assert_eq!(groups_after(members(zxid(2, 3), false)), Some((false, true)), "which is committed");
}
