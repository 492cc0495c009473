//! Leases: what a learner owes for one, and what a leader may rely on.

use super::*;

const LEASE_MS: u64 = 500;
const LAST: Zxid = Zxid::new(Epoch(1), 4);

fn granted(effects: &[Effect]) -> Option<u64> {
    messages(effects).find_map(|message| match message {
        Message::Pong(pong) => Some(pong.lease_ms),
        _ => None,
    })
}

/// Server 1, which follows server 3 and has granted it a lease at this moment.
fn lessor() -> Server {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, LAST);
    server.zab.core.config.lease_ms = LEASE_MS;
    server.input(Input::EpochsDurable);
    let effects = server.hear(3, ping(2, LAST, LAST));
    assert_eq!(granted(&effects), Some(0), "the disk does not know of it yet");
    assert!(persists(&effects));
    server.input(Input::EpochsDurable);
    assert_eq!(granted(&server.hear(3, ping(2, LAST, LAST))), Some(LEASE_MS));
    server
}

/// Server 3, which leads server 1 and has an answer to the heartbeat that it sent at this moment.
fn lessee(lease_ms: u64) -> (Server, Epoch) {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    server.zab.core.config.lease_ms = LEASE_MS;
    let ticks = std::iter::repeat_with(|| server.tick_at(server.now_ms + TICK_MS)).take(10);
    let round = ticks.filter_map(|effects| pinged(&effects)).next().unwrap();
    server.hear(1, pong_granting(epoch, round, lease_ms));
    (server, epoch)
}

fn pong_granting(epoch: Epoch, round: u64, lease_ms: u64) -> Message {
    Message::Pong(Pong { round, ack: Ack { epoch, upto: LAST, adopted: true, has_users: true }, lease_ms })
}

/// The last round that was sent.
fn pinged(effects: &[Effect]) -> Option<u64> {
    let round = |message: &Message| if let Message::Ping(ping) = message { Some(ping.round) } else { None };
    messages(effects).filter_map(round).last()
}

/// Whether the leader answers a reader without asking anyone when so much time has passed.
fn answers(server: &mut Server, passed_ms: u64) -> bool {
    server.now_ms += passed_ms;
    server.input(Input::ConfirmLeadership { token: 7 });
    let effects = server.input(Input::Flush);
    let confirmed = effects.contains(&Effect::LeadershipConfirmed { token: 7, commit: LAST });
    assert!(confirmed != pinged(&effects).is_some(), "it answers or asks: {effects:?}");
    confirmed
}

#[test]
fn a_server_that_has_granted_a_lease_takes_part_in_no_election_until_it_is_over() {
    let mut server = lessor();
    let began_ms = server.now_ms;
    assert!(!looks(&server.input(Input::PeerDisconnected(ServerId(3)))));
    assert!(!looks(&server.tick_at(began_ms + LEASE_MS - 1)));
    assert!(looks(&server.tick_at(began_ms + LEASE_MS)));
}

#[test]
fn a_leader_that_leads_no_more_has_given_its_lease_up() {
    let resigns = Server::notification(PeerState::Looking, 3, 2, LAST);
    assert!(looks(&lessor().hear(3, resigns)));

    let step = |step| Message::HandOver { epoch: Epoch(2), step };
    let mut server = lessor();
    server.hear(3, step(HandOverStep::Pause));
    server.hear(3, step(HandOverStep::Follow(ServerId(2))));
    assert!(looks(&server.input(Input::PeerDisconnected(ServerId(2)))), "of the successor");
}

#[test]
fn a_server_waits_after_a_start_for_as_long_as_it_may_have_granted() {
    let mut durable = remembers(1, &[(1, 4)]);
    durable.epochs.lease_ms = 700;
    let mut server = Server::start(1, durable);
    assert!(!looks(&server.tick_at(699)));
    let effects = server.tick_at(700);
    assert!(looks(&effects));
    // It grants none any more.
    let forgets = |effect: &Effect| matches!(effect, Effect::PersistEpochs(Epochs { lease_ms: 0, .. }));
    assert!(effects.iter().any(forgets), "{effects:?}");
}

#[test]
fn a_leader_relies_on_three_quarters_of_a_lease_from_when_it_asked() {
    let (mut server, _) = lessee(LEASE_MS);
    assert!(answers(&mut server, LEASE_MS * 3 / 4 - 1));
    assert!(!answers(&mut server, 1));
}

#[test]
fn a_lease_begins_with_the_heartbeat_however_late_the_answers_are() {
    const LATE_MS: u64 = 100;
    let (mut server, epoch) = lessee(0);
    let ticks = std::iter::repeat_with(|| server.tick_at(server.now_ms + TICK_MS)).take(10);
    let round = ticks.filter_map(|effects| pinged(&effects)).next().unwrap();
    server.now_ms += LATE_MS;
    server.hear(1, pong_granting(epoch, round, LEASE_MS));
    assert!(answers(&mut server, LEASE_MS * 3 / 4 - LATE_MS - 1));
    assert!(!answers(&mut server, 1));
}

#[test]
fn a_lease_goes_on_while_the_leader_stands_still() {
    let (mut server, _) = lessee(LEASE_MS);
    assert!(answers(&mut server, 1));
    server.stand_still_until(server.now_ms + LEASE_MS);
    assert!(!answers(&mut server, 0));
}

#[test]
fn a_shorter_lease_or_none_does_not_count() {
    for lease_ms in [0, LEASE_MS - 1] {
        let (mut server, _) = lessee(lease_ms);
        assert!(!answers(&mut server, 1), "{lease_ms}");
    }
}

#[test]
fn a_leader_uses_no_lease_while_it_hands_over_and_needs_a_new_one_when_it_leads_on() {
    let (mut server, epoch) = lessee(LEASE_MS);
    assert!(answers(&mut server, 1));
    server.input(Input::HandOver(Some(ServerId(1))));
    assert!(!answers(&mut server, 1));
    let limit_ms = server.zab.core.config.hand_over_limit_ms;
    let effects = server.tick_at(server.now_ms + limit_ms);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::HandOverFailed(_))), "{effects:?}");
    assert!(!answers(&mut server, 0));
    let effects = server.tick_at(server.now_ms + 200);
    server.hear(1, pong_granting(epoch, pinged(&effects).unwrap(), LEASE_MS));
    assert!(answers(&mut server, 0));
}

#[test]
fn another_quorum_has_not_granted_a_lease() {
    let (mut server, _) = lessee(LEASE_MS);
    let five: ServerSet = (1..=5).map(ServerId).collect();
    let members = Membership {
        since: LAST,
        voters: QuorumSystem::majorities(five),
        observers: ServerSet::EMPTY,
        before: None,
        several_addresses: false,
    };
    server.input(Input::Members(Some(Some(members))));
    assert!(!answers(&mut server, 1));
}

#[test]
fn who_asks_behind_an_answer_is_owed_one_until_the_next_flush_by_a_lease_or_a_round() {
    let (mut server, _) = lessee(LEASE_MS);
    assert!(!server.zab.owes_confirmation());
    server.input(Input::ConfirmLeadership { token: 8 });
    assert!(server.zab.owes_confirmation());
    let effects = server.input(Input::Flush);
    assert!(effects.contains(&Effect::LeadershipConfirmed { token: 8, commit: LAST }));
    assert!(!server.zab.owes_confirmation());

    let (mut server, _) = lessee(0);
    server.input(Input::ConfirmLeadership { token: 9 });
    assert!(server.zab.owes_confirmation());
    assert!(pinged(&server.input(Input::Flush)).is_some());
    assert!(!server.zab.owes_confirmation(), "the round answers");
}
