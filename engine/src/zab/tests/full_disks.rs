//! Full disks: who resigns for want of room, and who stays.

use super::*;

/// A leader of three that has proposed what it cannot append for want of room; both others have the same log
/// as it.
fn leader_without_room() -> (Server, Epoch) {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    server.hear(2, Message::FollowerInfo(standing(Epoch(1), zxid(1, 4))));
    server.hear(2, Message::AckEpoch(promise(epoch, Epoch(1), log_to(zxid(1, 4)), 6)));
    server.hear(2, ack(epoch, zxid(1, 4), true));
    server.input(Input::Propose(batch(epoch.0, 1)));
    server.input(Input::DiskFull(true));
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
fn a_leader_whose_disk_has_no_room_for_its_epochs_resigns_when_a_quorum_of_others_has_adopted_them() {
    let last = zxid(1, 4);
    for others in [&[1, 2][..], &[1]] {
        let (mut server, epoch) = Server::leader_elect(remembers(1, &[(1, 4)]));
        server.hear(2, Message::FollowerInfo(standing(Epoch(1), last)));
        server.hear(2, Message::AckEpoch(promise(epoch, Epoch(1), log_to(last), 6)));
        server.input(Input::DiskFull(true));
        for now_ms in (0..=4).map(|quarter| quarter * 300) {
            server.tick_at(now_ms);
            for peer in [1, 2] {
                server.hear(peer, pong(epoch, 1, last, others.contains(&peer)));
            }
        }
        let resigns = server.zab.status() == Status::Looking && matches!(server.zab.role, Role::Looking(_));
        assert_eq!(resigns, others.len() == 2, "{:?}", server.zab.role);
    }
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
    server.input(Input::DiskFull(false));
    server.input(Input::DiskFull(true));
    assert_eq!(until(&mut server, timeout_ms * 3 / 2), Status::Leading { epoch }, "the time counts anew");
    assert_eq!(until(&mut server, timeout_ms * 2), Status::Looking, "and runs out");
}

#[test]
fn a_server_that_has_resigned_for_want_of_room_votes_for_whoever_has_some() {
    let mut server = full_leader(zxid(2, 1), zxid(2, 1));
    // Its own history is longer by what it could not append, and its id is the highest.
    let vote = Vote { epoch: Epoch(1), zxid: zxid(1, 4), leader: ServerId(1) };
    let own = standing(Epoch(2), zxid(2, 1));
    let looks = Notification { round: 2, ..says(PeerState::Looking, vote, own) };
    let voted = server.hear(1, Message::Notification(looks));
    assert!(messages(&voted).any(|message| {
        matches!(message, Message::Notification(Notification { vote, .. }) if vote.leader == ServerId(1))
    }));
}
