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
