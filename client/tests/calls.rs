//! Every call of the client against a live server: see `support` for which.

mod support;

use std::time::Duration;

use ringkeeper_client::{
    Acl, AddWatchMode, Call, CreateMode, Error, EventKind, OpResult, Perms, ReadResult, Reconfiguration,
    SessionState, Wait, WatcherType,
};
use support::servers;

#[test]
fn a_znode_is_created_read_changed_and_deleted() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    let created = client.create("/a", b"one", CreateMode::Persistent).wait().expect("created");
    assert_eq!(created.path, "/a");
    let (data, stat) = client.get_data("/a").wait().expect("read");
    assert_eq!((data.as_slice(), stat), (&b"one"[..], created.stat));
    let changed = client.set_data("/a", b"two", stat.version).wait().expect("changed");
    assert_eq!((changed.version, changed.data_length, changed.czxid), (1, 3, stat.czxid));
    assert!(changed.mzxid > stat.mzxid);
    assert_eq!(client.set_data("/a", b"x", 0).wait(), Err(Error::BadVersion(Call::new("set_data", "/a"))));
    assert_eq!(client.exists("/a").wait(), Ok(Some(changed)));
    assert_eq!(client.delete("/a", None).wait(), Ok(()));
    assert_eq!(client.exists("/a").wait(), Ok(None));
    assert_eq!(client.get_data("/a").wait(), Err(Error::NoNode(Call::new("get_data", "/a"))));
}

#[test]
fn data_is_text_or_bytes_in_any_form() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    client.create("/d", "text", CreateMode::Persistent).wait().expect("created");
    client.set_data("/d", String::from("owned text"), 0).wait().expect("set");
    client.set_data("/d", b"bytes", 1).wait().expect("set");
    client.transaction().set_data("/d", vec![1, 2], 2).set_data("/d", [3], 3).commit().wait().expect("set");
    assert_eq!(client.get_data("/d").wait().expect("read").0, [3]);
}

#[test]
fn pipelined_calls_are_executed_and_answered_in_order() {
    let Some(servers) = servers() else { return };
    // A queue much shorter than the pipeline: the calls wait for room in their turn.
    let client = servers.builder().requests_max(16).connect().wait().expect("a session");
    client.create("/n", b"", CreateMode::Persistent).wait().expect("created");
    let writes: Vec<_> = (0..500).map(|n: i32| client.set_data("/n", n.to_be_bytes(), n)).collect();
    let last = client.get_data("/n");
    for (n, write) in (1..).zip(writes) {
        assert_eq!(write.wait().expect("set in its turn").version, n);
    }
    assert_eq!(last.wait().expect("read").0, 499_i32.to_be_bytes());
}

#[test]
fn linearizable_reads_see_what_other_clients_have_written() {
    let Some(servers) = servers() else { return };
    let writer = servers.client();
    let builder = servers.builder().linearizable_reads(true).connect_timeout(Duration::from_secs(5));
    let reader = match builder.connect().wait() {
        // Apache ZooKeeper has no such reads.
        Err(Error::Unreachable(why)) if std::env::var("RINGKEEPER_TEST_SERVERS").is_ok() => {
            return assert!(why.contains("no linearizable reads"), "{why}");
        }
        connected => connected.expect("connected"),
    };
    writer.create("/l", b"", CreateMode::Persistent).wait().expect("created");
    for n in 0..100_i32 {
        writer.set_data("/l", n.to_be_bytes(), None).wait().expect("set");
        let (data, stat) = reader.get_data("/l").wait().expect("read");
        assert_eq!((data.as_slice(), stat.version), (&n.to_be_bytes()[..], n + 1));
    }
    let all: Vec<_> = (0..100).map(|_| reader.exists("/l")).collect();
    let deleted = reader.delete("/l", None);
    for each in all {
        assert!(each.wait().expect("answered").is_some());
    }
    deleted.wait().expect("deleted");
    assert_eq!(reader.exists("/l").wait(), Ok(None));
}

#[test]
fn modes_give_sequences_ephemerals_and_containers() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    client.create("/dir", b"", CreateMode::Container).wait().expect("a container");
    let create = |mode| client.create("/dir/n-", b"", mode).wait().expect("created");
    assert_eq!(create(CreateMode::PersistentSequential).path, "/dir/n-0000000000");
    let ephemeral = create(CreateMode::EphemeralSequential);
    assert_eq!(ephemeral.path, "/dir/n-0000000001");
    assert_eq!(ephemeral.stat.ephemeral_owner, Some(client.session_id()));
    assert_eq!(client.get_ephemerals("/").wait(), Ok(vec![ephemeral.path]));
    let (mut children, stat) = client.get_children("/dir").wait().expect("children");
    children.sort();
    assert_eq!(children, ["n-0000000000", "n-0000000001"]);
    assert_eq!(stat.num_children, 2);
    assert_eq!(client.count_descendants("/dir").wait(), Ok(2));
    client.close().wait().expect("closed");
    assert_eq!(client.exists("/dir").wait(), Err(Error::Closed));
    assert_eq!(client.state(), SessionState::Closed);
    let other = servers.client();
    other.sync("/dir").wait().expect("synced");
    assert_eq!(other.get_children("/dir").wait().expect("children").0, ["n-0000000000"]);
}

#[test]
fn a_time_to_live_is_sent_in_milliseconds() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    let mode = CreateMode::PersistentSequentialWithTtl(Duration::from_secs(600));
    match client.create("/ttl-", b"", mode).wait() {
        Ok(created) => assert_eq!(created.path, "/ttl-0000000000"),
        // A server without extended types says so.
        Err(error) => assert_eq!(error, Error::Server(-6, Call::new("create", "/ttl-"))),
    }
    let too_long = CreateMode::PersistentWithTtl(Duration::MAX);
    assert!(client.create("/ttl", b"", too_long).wait().is_err());
}

#[test]
fn a_transaction_is_executed_as_a_whole_or_not_at_all() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    let results = client
        .transaction()
        .create("/t", b"", CreateMode::Persistent)
        .create("/t/n-", b"x", CreateMode::PersistentSequential)
        .set_data("/t", b"y", 0)
        .check("/t", 1)
        .delete("/t/n-0000000000", None)
        .commit()
        .wait()
        .expect("executed");
    assert!(matches!(&results[0], OpResult::Created { path, stat: Some(_) } if path == "/t"));
    assert!(matches!(&results[1], OpResult::Created { path, .. } if path == "/t/n-0000000000"));
    assert!(matches!(&results[2], OpResult::DataSet(stat) if stat.version == 1));
    assert_eq!(results[3..], [OpResult::Checked, OpResult::Deleted]);

    let failed =
        client.transaction().set_data("/t", b"z", None).check("/t", 7).delete("/t", None).commit().wait();
    assert_eq!(
        failed,
        Err(Error::Transaction { index: 1, error: Box::new(Error::BadVersion(Call::new("check", "/t"))) })
    );
    let (data, _) = client.get_data("/t").wait().expect("read");
    assert_eq!(data, b"y");
    assert_eq!(client.transaction().commit().wait(), Ok(vec![]));
}

#[test]
fn several_reads_are_answered_each_on_its_own() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    client.create("/r", b"data", CreateMode::Persistent).wait().expect("created");
    let results =
        client.reads().get_data("/r").get_children("/r").get_data("/missing").commit().wait().expect("read");
    assert!(matches!(&results[0], Ok(ReadResult::Data(data, _)) if data == b"data"));
    assert_eq!(results[1], Ok(ReadResult::Children(vec![])));
    assert_eq!(results[2], Err(Error::NoNode(Call::new("get_data", "/missing"))));
}

#[test]
fn one_shot_watches_fire_once_with_the_kind_of_change() {
    let Some(servers) = servers() else { return };
    let (client, other) = (servers.client(), servers.client());
    let (missing, created) = client.exists_and_watch("/w").wait().expect("watched");
    assert_eq!(missing, None);
    other.create("/w", b"", CreateMode::Persistent).wait().expect("created");
    let event = created.wait().expect("fired");
    assert_eq!((event.kind, event.path.as_str()), (EventKind::Created, "/w"));

    let (_, changed) = client.get_data_and_watch("/w").wait().expect("watched");
    let (_, children) = client.get_children_and_watch("/w").wait().expect("watched");
    let stat = other.set_data("/w", b"x", None).wait().expect("set");
    let event = changed.wait().expect("fired");
    assert_eq!(event.kind, EventKind::DataChanged);
    assert!(event.zxid.is_none_or(|zxid| zxid == stat.mzxid));
    other.create("/w/child", b"", CreateMode::Ephemeral).wait().expect("created");
    assert_eq!(children.wait().expect("fired").kind, EventKind::ChildrenChanged);

    assert!(client.get_data_and_watch("/missing").wait().is_err());
    let (_, waiting) = client.get_data_and_watch("/w").wait().expect("watched");
    client.close().wait().expect("closed");
    assert_eq!(waiting.wait(), Err(Error::Closed));
}

#[test]
fn persistent_watches_stream_until_they_are_dropped() {
    let Some(servers) = servers() else { return };
    let (client, other) = (servers.client(), servers.client());
    let mut one = client.watch("/p", AddWatchMode::Persistent).wait().expect("watched");
    let mut tree = client.watch("/p", AddWatchMode::PersistentRecursive).wait().expect("watched");
    other.create("/p", b"", CreateMode::Persistent).wait().expect("created");
    other.create("/p/c", b"", CreateMode::Persistent).wait().expect("created");
    other.set_data("/p/c", b"x", None).wait().expect("set");
    other.delete("/p/c", None).wait().expect("deleted");
    let next = |watch: &mut ringkeeper_client::PersistentWatch| {
        let event = watch.next().wait().expect("not over").expect("an event");
        (event.kind, event.path)
    };
    assert_eq!(next(&mut one), (EventKind::Created, "/p".to_owned()));
    assert_eq!(next(&mut one), (EventKind::ChildrenChanged, "/p".to_owned()));
    assert_eq!(next(&mut one), (EventKind::ChildrenChanged, "/p".to_owned()));
    assert_eq!(next(&mut tree), (EventKind::Created, "/p".to_owned()));
    for kind in [EventKind::Created, EventKind::DataChanged, EventKind::Deleted] {
        assert_eq!(next(&mut tree), (kind, "/p/c".to_owned()));
    }
    assert_eq!(client.check_watches("/p", WatcherType::Any).wait(), Ok(()));
    drop((one, tree));
    assert_eq!(
        client.check_watches("/p", WatcherType::Any).wait(),
        Err(Error::NoWatcher(Call::new("check_watches", "/p")))
    );
}

#[test]
fn removed_watches_tell_nothing_any_more() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    client.create("/r", b"", CreateMode::Persistent).wait().expect("created");
    let (_, data) = client.get_data_and_watch("/r").wait().expect("watched");
    let (_, children) = client.get_children_and_watch("/r").wait().expect("watched");
    let stream = client.watch("/r", AddWatchMode::Persistent).wait().expect("watched");
    for kind in [WatcherType::Data, WatcherType::Children, WatcherType::Persistent] {
        assert_eq!(client.check_watches("/r", kind).wait(), Ok(()), "{kind:?}");
        assert_eq!(client.remove_watches("/r", kind).wait(), Ok(()), "{kind:?}");
        assert_eq!(
            client.check_watches("/r", kind).wait(),
            Err(Error::NoWatcher(Call::new("check_watches", "/r"))),
            "{kind:?}"
        );
        assert_eq!(
            client.remove_watches("/r", kind).wait(),
            Err(Error::NoWatcher(Call::new("remove_watches", "/r"))),
            "{kind:?}"
        );
    }
    client.set_data("/r", b"x", None).wait().expect("set");
    client.create("/r/c", b"", CreateMode::Persistent).wait().expect("created");
    assert_eq!(data.wait_timeout(Duration::ZERO), None);
    assert_eq!(children.wait_timeout(Duration::ZERO), None);
    let mut stream = stream;
    assert_eq!(stream.next().wait_timeout(Duration::ZERO), None);
}

#[test]
fn events_that_are_not_read_in_time_are_counted() {
    let Some(servers) = servers() else { return };
    let client = servers.builder().watch_events_max(2).connect().wait().expect("a session");
    client.create("/s", b"", CreateMode::Persistent).wait().expect("created");
    let mut stream = client.watch("/s", AddWatchMode::Persistent).wait().expect("watched");
    for _ in 0..5 {
        client.set_data("/s", b"x", None).wait().expect("set");
    }
    let mut next = || stream.next().wait().expect("not over");
    assert_eq!(next().expect("an event").kind, EventKind::DataChanged);
    assert_eq!(next().expect("an event").kind, EventKind::DataChanged);
    assert_eq!(next(), Err(Error::EventsMissed(3)));
    client.set_data("/s", b"x", None).wait().expect("set");
    assert_eq!(next().expect("an event").kind, EventKind::DataChanged);
}

#[test]
fn a_session_tells_its_timeout_its_lease_its_newest_zxid_and_its_end() {
    let Some(servers) = servers() else { return };
    // At once, and requests wait for the connection.
    let client = servers.builder().open().expect("a client");
    let created = client.create("/z", b"", CreateMode::Persistent).wait().expect("created");
    assert!(client.last_zxid() >= created.stat.czxid);
    assert_eq!(client.session_timeout(), Duration::from_secs(4));
    assert!(client.lease() > Duration::ZERO && client.lease() <= client.session_timeout());
    assert_eq!((client.end_reason(), client.state()), (None, SessionState::Connected));
    client.close().wait().expect("closed");
    assert_eq!((client.end_reason(), client.lease()), (Some(Error::Closed), Duration::ZERO));
}

#[test]
fn members_are_changed_only_where_that_is_enabled() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    let change = Reconfiguration { leaving: Some("9"), ..Reconfiguration::default() };
    assert_eq!(client.reconfigure(&change).wait(), Err(Error::Server(-123, Call::new("reconfigure", ""))));
}

#[test]
fn credentials_open_what_an_acl_closes() {
    let Some(servers) = servers() else { return };
    let owner = servers.builder().credential("digest", "user:secret").connect().wait().expect("a session");
    owner.create("/mine", b"", CreateMode::Persistent.with_acl(&Acl::creator())).wait().expect("created");
    let (acl, stat) = owner.get_acl("/mine").wait().expect("read");
    assert!(acl.entries().any(|(perms, scheme, _)| (perms, scheme) == (Perms::ALL, "digest")));
    let client = servers.client();
    client.sync("/mine").wait().expect("synced");
    assert_eq!(client.get_data("/mine").wait(), Err(Error::NoAuth(Call::new("get_data", "/mine"))));
    client.add_credential("digest", "user:secret").wait().expect("accepted");
    assert!(client.get_data("/mine").wait().is_ok());
    assert!(client.who_am_i().wait().expect("identities").iter().any(|identity| identity.scheme == "digest"));
    let stat = client.set_acl("/mine", &Acl::open(), stat.aversion).wait().expect("set");
    assert_eq!(stat.aversion, 1);
    assert_eq!(
        client.set_acl("/mine", &Acl::new(), None).wait(),
        Err(Error::InvalidAcl(Call::new("set_acl", "/mine")))
    );
}

#[test]
fn a_refused_credential_ends_the_session() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    assert_eq!(client.add_credential("no-such-scheme", "x").wait(), Err(Error::AuthFailed));
    assert_eq!(client.state(), SessionState::AuthFailed);
    assert_eq!(client.exists("/").wait(), Err(Error::AuthFailed));
}

#[test]
fn a_session_is_taken_over_by_its_ticket() {
    let Some(servers) = servers() else { return };
    let proxy = servers.proxy();
    let first = servers.client_through(&proxy);
    first.create("/e", b"", CreateMode::Ephemeral).wait().expect("created");
    // Two clients with a connection would take the session from one another, again and again.
    proxy.set_down(true);
    proxy.cut();
    let second = servers.builder().resume(first.session_ticket()).connect().wait().expect("the session");
    assert_eq!(second.session_id(), first.session_id());
    assert_eq!(second.get_ephemerals("/").wait(), Ok(vec!["/e".to_owned()]));
}

#[test]
fn a_wrong_ticket_is_an_expired_session() {
    let Some(servers) = servers() else { return };
    let mut ticket = servers.client().session_ticket();
    ticket.password[0] ^= 1;
    let error = servers.builder().resume(ticket).connect().wait().err();
    assert_eq!(error, Some(Error::SessionExpired));
}

#[test]
fn paths_are_made_with_their_ancestors() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    client.ensure_path("/x/y/z").wait().expect("made");
    client.ensure_path("/x/y/z").wait().expect("made again");
    assert!(client.exists("/x/y/z").wait().expect("looked").is_some());
    client.sync("/x").wait().expect("synced");
    assert!(client.get_config().wait().is_ok());
}

#[test]
fn mistakes_are_told_before_anything_is_sent() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    for path in ["", "a", "/a/", "/a//b", "/../a"] {
        assert!(matches!(client.get_data(path).wait(), Err(Error::InvalidPath { .. })), "{path}");
        assert!(matches!(client.exists_and_watch(path).wait(), Err(Error::InvalidPath { .. })), "{path}");
        let failed = client.transaction().check("/", None).delete(path, None).commit().wait();
        assert!(matches!(failed, Err(Error::Transaction { index: 1, .. })), "{path}");
    }
    let too_long = client.create("/long", vec![0; 2 << 20], CreateMode::Persistent).wait();
    assert!(matches!(too_long, Err(Error::RequestTooLong { .. })));
    assert_eq!(client.exists("/long").wait(), Ok(None));
}
