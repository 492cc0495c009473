//! Sessions: expiry, eviction, closing.

use ringkeeper_wire::{CreateMode, EventType, Request};

use crate::support::{Client, Event, Server, is_closed};

/// Sessions as short as they can be, and others that never end in these tests.
const FAST: &[&str] = &["-o", "tickTime=100", "-o", "maxSessionTimeout=600000"];
const SHORT_MS: i32 = 200;
const LONG_MS: i32 = 600_000;

fn event(event_type: EventType, path: &str) -> Event {
    Event { event_type: event_type.to_wire(), path: path.to_owned() }
}

#[test]
fn an_expired_session_loses_its_ephemerals_and_watchers_are_told() {
    let server = Server::start_with(FAST);
    let mut watcher = Client::connect(server.address(), LONG_MS);
    let mut silent = Client::connect(server.address(), SHORT_MS);
    assert_eq!(silent.timeout_ms, SHORT_MS);
    watcher.create("/group", b"", CreateMode::Persistent);
    let member = silent.create("/group/member-", b"", CreateMode::EphemeralSequential);
    // It may be gone already if this thread was held up: then the server has done what is asked below.
    if watcher.exists(&member, true) {
        assert_eq!(watcher.event(), event(EventType::NodeDeleted, &member));
    }
    assert_eq!(watcher.children("/group", false), Vec::<String>::new());
    assert!(is_closed(silent.stream()));
    assert!(Client::resume(server.address(), SHORT_MS, silent.session).is_none(), "the session is gone");
}

#[test]
fn a_session_that_is_heard_from_does_not_expire() {
    let server = Server::start_with(FAST);
    let mut speaking = Client::connect(server.address(), 4000);
    speaking.create("/mine", b"", CreateMode::Ephemeral);
    // Together the silent ones take longer to expire than the speaking one's timeout.
    for _ in 0..8 {
        let mut silent = Client::connect(server.address(), 600);
        while server.metric("zk_global_sessions") > 1.0 {
            assert!(speaking.exists("/mine", false));
        }
        assert!(is_closed(silent.stream()));
    }
    assert!(speaking.exists("/mine", false));
}

#[test]
fn a_closed_session_loses_its_ephemerals_at_once() {
    let server = Server::start();
    let mut watcher = Client::connect(server.address(), 30_000);
    let mut closing = Client::connect(server.address(), 30_000);
    closing.create("/mine", b"", CreateMode::Ephemeral);
    assert!(watcher.exists("/mine", true));
    closing.call_ok(&Request::CloseSession);
    assert!(is_closed(closing.stream()));
    assert_eq!(watcher.event(), event(EventType::NodeDeleted, "/mine"));
}

#[test]
fn a_session_that_comes_back_on_another_connection_evicts_the_first() {
    for shards in ["1", "3"] {
        let server = Server::start_with(&["--shards", shards]);
        let mut first = Client::connect(server.address(), 30_000);
        first.create("/mine", b"", CreateMode::Ephemeral);
        let mut second = Client::resume(server.address(), 30_000, first.session).expect("still alive");
        assert_eq!(second.session, first.session);
        assert!(is_closed(first.stream()));
        assert!(second.exists("/mine", false));
        second.set("/mine", b"still mine");
        let mut third = Client::connect(server.address(), 30_000);
        assert_eq!(third.get("/mine", false).as_deref(), Some(&b"still mine"[..]));
    }
}
