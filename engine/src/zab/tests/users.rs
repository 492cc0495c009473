//! Learners without users: when they hear of commits, and how the leader knows.

use super::*;

/// Server 3, which leads server 1, and has committed one batch since it last told of commits.
fn leader(has_users: bool) -> (Server, Epoch) {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    let log = LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, 4)] };
    server.hear(1, Message::AckEpoch(promise(epoch, epoch, log, 6)));
    server.input(Input::Propose(batch(epoch.0, 1)));
    server.input(Input::Durable { upto: zxid(epoch.0, 1) });
    let ack = Ack { epoch, upto: zxid(epoch.0, 1), adopted: true, has_users };
    assert_eq!(commits(&server.hear(1, Message::Ack(ack))), [zxid(epoch.0, 1)]);
    (server, epoch)
}

/// What server 1 is told to be committed, by a message of its own.
fn told(effects: &[Effect]) -> Option<Zxid> {
    messages(effects).find_map(|message| match message {
        Message::Commit { upto, .. } => Some(*upto),
        _ => None,
    })
}

/// Server 1, which follows server 3.
fn follower() -> Server {
    let mut server = Server::streaming(remembers(1, &[(1, 4)]), 2, zxid(1, 4));
    server.input(Input::EpochsDurable);
    server
}

fn says_users(effects: &[Effect]) -> Option<bool> {
    messages(effects).find_map(|message| match message {
        Message::Ack(ack) => Some(ack.has_users),
        _ => None,
    })
}

/// What the leader is told of users when so much more time has passed.
fn told_after(server: &mut Server, ms: u64) -> Option<bool> {
    let mut effects = server.tick_at(server.now_ms + ms);
    effects.extend(server.hear(3, ping(2, zxid(1, 4), zxid(1, 4))));
    effects.extend(server.input(Input::Flush));
    says_users(&effects)
}

#[test]
fn a_learner_without_users_hears_of_a_commit_at_the_next_tick_unless_a_proposal_carries_it() {
    let (mut server, epoch) = leader(true);
    assert_eq!(told(&server.input(Input::Flush)), Some(zxid(epoch.0, 1)));

    let (mut server, epoch) = leader(false);
    assert_eq!(told(&server.input(Input::Flush)), None);
    assert_eq!(told(&server.input(Input::Tick)), Some(zxid(epoch.0, 1)));

    let (mut server, epoch) = leader(false);
    server.input(Input::Propose(batch(epoch.0, 2)));
    assert_eq!(told(&server.input(Input::Tick)), None);
}

#[test]
fn an_answer_to_a_learner_without_users_comes_behind_all_commits() {
    let (mut server, epoch) = leader(false);
    let bytes = Bytes::from_static(b"an answer");
    let effects = server.input(Input::ToLearner { to: ServerId(1), bytes: bytes.clone() });
    let sent: Vec<_> = messages(&effects).cloned().collect();
    assert_eq!(sent, [Message::Commit { epoch, upto: zxid(epoch.0, 1) }, Message::ToLearner(bytes)]);
}

#[test]
fn a_successor_without_users_hears_of_all_commits_before_it_is_to_lead() {
    let (mut server, epoch) = leader(false);
    server.input(Input::HandOver(Some(ServerId(1))));
    server.hear(1, Message::HandOver { epoch, step: HandOverStep::Paused });
    let upto = zxid(epoch.0, 1);
    let lead = Message::HandOver { epoch, step: HandOverStep::Lead { upto } };
    let sent: Vec<_> = messages(&server.input(Input::Settled)).cloned().collect();
    assert_eq!(sent, [Message::Commit { epoch, upto }, lead]);
}

#[test]
fn a_learner_tells_its_leader_a_second_after_its_last_user_and_at_once_when_one_comes() {
    let mut server = follower();
    server.zab.note_users(server.now_ms);
    for _ in 0..9 {
        assert_eq!(told_after(&mut server, 100), None);
    }
    assert_eq!(told_after(&mut server, 100), Some(false));
    assert_eq!(told_after(&mut server, 100), None);
    server.zab.note_users(server.now_ms);
    assert_eq!(told_after(&mut server, 0), Some(true));
}

#[test]
fn a_leader_of_an_older_build_is_not_told() {
    let mut server = follower();
    server.zab.peer_speaks(ServerId(3), USERS_SINCE - 1);
    for _ in 0..20 {
        assert_eq!(told_after(&mut server, 100), None);
    }
}
