//! What the client does when connections break, against a live server behind a proxy.

mod support;

use std::time::Duration;

use ringkeeper_client::{
    AddWatchMode, Call, Client, CreateMode, Error, EventKind, Outcome, SessionState, Wait,
};
use support::servers;

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_session_survives_its_connection_with_its_ephemerals_and_watches() {
    let Some(servers) = servers() else { return };
    let proxy = servers.proxy();
    let (client, other) = (servers.client_through(&proxy), servers.client());
    let session = client.session_id();
    client.create("/e", b"", CreateMode::Ephemeral).wait().expect("created");
    let (_, deleted) = client.exists_and_watch("/e").wait().expect("watched");
    let (_, created) = client.exists_and_watch("/later").wait().expect("watched");
    let (_, children) = client.get_children_and_watch("/").wait().expect("watched");
    let mut tree = client.watch("/", AddWatchMode::PersistentRecursive).wait().expect("watched");

    proxy.set_down(true);
    proxy.cut();
    other.create("/later", b"", CreateMode::Persistent).wait().expect("created");
    other.delete("/e", None).wait().expect("deleted");
    proxy.set_down(false);

    client.connected().wait().expect("back");
    assert_eq!(client.session_id(), session);
    assert_eq!(deleted.wait_timeout(PATIENCE).expect("in time").expect("fired").kind, EventKind::Deleted);
    assert_eq!(created.wait_timeout(PATIENCE).expect("in time").expect("fired").kind, EventKind::Created);
    let event = children.wait_timeout(PATIENCE).expect("in time").expect("fired");
    assert_eq!(event.kind, EventKind::ChildrenChanged);
    // What the one-shot watches found is told in between; the rest of what happened is not.
    let mut next = || tree.next().wait_timeout(PATIENCE).expect("in time").expect("open").expect("an event");
    assert_eq!(next().kind, EventKind::Restored, "the gap is told first");
    while next().kind != EventKind::Restored {}
    other.set_data("/later", b"x", None).wait().expect("set");
    let event = next();
    assert_eq!((event.kind, event.path.as_str()), (EventKind::DataChanged, "/later"));
}

#[test]
fn a_write_whose_reply_is_lost_is_uncertain_and_not_repeated() {
    let Some(servers) = servers() else { return };
    let proxy = servers.proxy();
    let client = servers.client_through(&proxy);
    client.create("/n", b"", CreateMode::Persistent).wait().expect("created");
    proxy.lose_replies();
    let lost = client.set_data("/n", b"x", None);
    // The server has executed it when another sees it.
    let other = servers.client();
    while other.get_data("/n").wait().expect("read").1.version == 0 {}
    proxy.cut();
    let error = lost.wait().expect_err("nobody knows");
    assert_eq!(
        (error.outcome(), error),
        (Outcome::Unknown, Error::ConnectionLoss(Call::new("set_data", "/n")))
    );
    client.connected().wait().expect("back");
    assert_eq!(client.get_data("/n").wait().expect("read").1.version, 1);
}

#[test]
fn requests_made_without_a_connection_wait_for_one() {
    let Some(servers) = servers() else { return };
    let proxy = servers.proxy();
    let client = servers.client_through(&proxy);
    let mut states = client.state_changes();
    proxy.set_down(true);
    proxy.cut();
    assert_eq!(states.next().wait_timeout(PATIENCE), Some(Some(SessionState::Disconnected)));
    let waiting = client.create("/n", b"", CreateMode::Persistent);
    proxy.set_down(false);
    assert_eq!(waiting.wait_timeout(PATIENCE).expect("in time").expect("created").path, "/n");
}

#[test]
fn without_servers_the_lease_lapses_and_then_the_session_expires() {
    let Some(servers) = servers() else { return };
    let proxy = servers.proxy();
    let client = servers.client_through(&proxy);
    let (_, watch) = client.exists_and_watch("/never").wait().expect("watched");
    let mut states = client.state_changes();
    assert!(!client.lease().is_zero());
    proxy.set_down(true);
    proxy.cut();
    assert_eq!(states.next().wait_timeout(PATIENCE), Some(Some(SessionState::Disconnected)));
    let unsent = client.set_data("/", b"", None);
    assert_eq!(states.next().wait_timeout(PATIENCE), Some(Some(SessionState::Lapsed)));
    assert!(client.lease().is_zero());
    assert_eq!(unsent.wait(), Err(Error::NotSent(Call::new("set_data", "/"))));
    assert_eq!(client.set_data("/", b"", None).wait(), Err(Error::NotSent(Call::new("set_data", "/"))));
    // Servers expire a session at a tick after its timeout.
    let observer = servers.client();
    let expired = || observer.get_ephemerals("/").wait().is_ok() && observer.lease() > Duration::ZERO;
    let until = std::time::Instant::now() + client.session_timeout();
    while expired() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    proxy.set_down(false);
    assert_eq!(states.next().wait_timeout(PATIENCE), Some(Some(SessionState::Expired)));
    assert_eq!(watch.wait(), Err(Error::SessionExpired));
    assert_eq!(client.exists("/").wait(), Err(Error::SessionExpired));
    assert_eq!(states.next().wait(), None);
}

#[test]
fn an_idle_client_keeps_its_session() {
    let Some(servers) = servers() else { return };
    let client =
        servers.builder().session_timeout(Duration::from_secs(1)).connect().wait().expect("a session");
    client.create("/e", b"", CreateMode::Ephemeral).wait().expect("created");
    let mut states = client.state_changes();
    assert_eq!(states.next().wait_timeout(client.session_timeout() * 3), None);
    assert!(client.exists("/e").wait().expect("alive").is_some());
}

#[test]
fn another_server_takes_over_when_one_is_silent() {
    let Some(servers) = servers() else { return };
    let (one, two) = (servers.proxy(), servers.proxy());
    let connect_string = format!("{},{}{}", one.address(), two.address(), servers.root());
    let client = Client::builder(&connect_string)
        .session_timeout(Duration::from_secs(2))
        .connect()
        .wait()
        .expect("a session");
    let mut states = client.state_changes();
    let session = client.session_id();
    // Whichever it is connected to says nothing more; a new connection is a good one.
    one.lose_replies();
    two.lose_replies();
    assert_eq!(states.next().wait_timeout(PATIENCE), Some(Some(SessionState::Disconnected)));
    one.cut();
    two.cut();
    assert_eq!(states.next().wait_timeout(PATIENCE), Some(Some(SessionState::Connected)));
    assert_eq!(client.session_id(), session);
}
