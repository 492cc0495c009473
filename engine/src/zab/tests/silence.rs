//! What a leader says of learners that it hears, and of those that are silent: the application judges the
//! silence of their users by that.

use super::*;

const LAST: Zxid = Zxid::new(Epoch(1), 4);
const SILENT: Effect = Effect::LearnerSilent(ServerId(1));

/// Server 3, which leads servers 1 and 2.
fn leader() -> (Server, Epoch) {
    let (mut server, epoch) = Server::leader(remembers(1, &[(1, 4)]));
    joins(&mut server, 2, Epoch(1));
    let log = LogOutline { floor: Zxid::ZERO, ends: vec![mark(1, 4)] };
    server.hear(2, Message::AckEpoch(promise(epoch, Epoch(1), log, 1)));
    server.hear(2, ack(epoch, LAST, true));
    (server, epoch)
}

fn joins(server: &mut Server, learner: u64, adopted: Epoch) -> Vec<Effect> {
    server.hear(learner, Message::FollowerInfo(standing(adopted, LAST)))
}

/// Time passes until the leader sends server 1 a heartbeat. Returns its number.
fn asks(server: &mut Server) -> u64 {
    let ticks = std::iter::repeat_with(|| server.tick_at(server.now_ms + TICK_MS)).take(10);
    let asked = ticks.filter_map(|effects| {
        sent_to_1(&effects).find_map(|message| match message {
            Message::Ping(ping) => Some(ping.round),
            _ => None,
        })
    });
    asked.min().expect("no heartbeat")
}

fn sent_to_1(effects: &[Effect]) -> impl Iterator<Item = &Message> {
    effects.iter().filter_map(|effect| match effect {
        Effect::Send { to: ServerId(1), message } => Some(message),
        _ => None,
    })
}

/// Time passes in which server 2 alone says something.
fn hears_2_until(server: &mut Server, epoch: Epoch, now_ms: u64) -> Vec<Effect> {
    let mut effects = Vec::new();
    while server.now_ms < now_ms {
        effects.extend(server.tick_at(server.now_ms + TICK_MS));
        server.hear(2, ack(epoch, LAST, true));
    }
    effects
}

#[test]
fn a_learners_answer_says_when_it_was_asked() {
    let (mut server, epoch) = leader();
    let answered = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::LearnerAnswered { learner: ServerId(1), asked_ms } => Some(*asked_ms),
            _ => None,
        })
    };
    let first = asks(&mut server);
    server.hear(1, pong(epoch, first, LAST, true));
    let began_ms = server.now_ms;
    let round = asks(&mut server);
    let asked_ms = answered(&server.hear(1, pong(epoch, round, LAST, true))).expect("an answer");
    assert!(began_ms < asked_ms && asked_ms < server.now_ms, "{asked_ms}");
    assert_eq!(answered(&server.hear(1, pong(epoch, round, LAST, true))), None, "once");
    let later = asks(&mut server);
    assert_eq!(answered(&server.hear(1, pong(epoch, round, LAST, true))), None, "to the question before");
    assert!(answered(&server.hear(1, pong(epoch, later, LAST, true))) > Some(asked_ms));
}

#[test]
fn a_silent_learner_is_sent_nothing_until_it_leaves_and_then_its_users_are_told_of() {
    let (mut server, epoch) = leader();
    let began_ms = server.now_ms;
    let timeout_ms = server.zab.core.config.peer_timeout_ms;
    let heard = hears_2_until(&mut server, epoch, began_ms + 2 * timeout_ms);
    assert!(sent_to_1(&heard).next().is_some());
    server.input(Input::Propose(batch(epoch.0, 1)));
    let muted = hears_2_until(&mut server, epoch, began_ms + 3 * timeout_ms);
    assert_eq!(sent_to_1(&muted).next(), None);
    assert!(!muted.contains(&SILENT));
    let gone = hears_2_until(&mut server, epoch, began_ms + 4 * timeout_ms);
    assert_eq!(gone.iter().filter(|effect| **effect == SILENT).count(), 1);
    assert_eq!(server.zab.status(), Status::Leading { epoch });

    server.hear(1, ack(epoch, LAST, true));
    let again = hears_2_until(&mut server, epoch, began_ms + 5 * timeout_ms);
    assert!(sent_to_1(&again).next().is_some() && !again.contains(&SILENT));
}

#[test]
fn a_learner_that_joins_again_had_left_though_its_connection_lasts() {
    let (mut server, epoch) = leader();
    assert!(joins(&mut server, 1, epoch).contains(&Effect::LearnerLeft(ServerId(1))));
    let (mut server, _) = Server::leader(remembers(1, &[(1, 4)]));
    let joined = joins(&mut server, 2, Epoch(1));
    assert!(!joined.contains(&Effect::LearnerLeft(ServerId(2))), "it has not learned before");
}
