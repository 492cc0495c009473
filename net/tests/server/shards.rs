//! Several shards give the same results as one: who asks where makes no difference.

use ringkeeper_wire::{CreateMode, ErrorCode, EventType, Zxid};

use crate::support::{Client, Event, Server};

const TIMEOUT_MS: i32 = 30_000;

/// As many clients as there are shards: each gets one of its own.
fn clients(server: &Server, count: usize) -> Vec<Client> {
    (0..count).map(|_| Client::connect(server.address(), TIMEOUT_MS)).collect()
}

/// What clients see who write in turns, each on its own connection.
fn trace(shards: &str) -> Vec<String> {
    let server = Server::start_with(&["--shards", shards]);
    let mut clients = clients(&server, 3);
    let mut seen = Vec::new();
    for turn in 0..12 {
        let path = clients[turn % 3].create("/n-", b"", CreateMode::PersistentSequential);
        clients[(turn + 1) % 3].sync();
        seen.push(format!("{path} {:?}", clients[(turn + 1) % 3].children("/", false)));
        clients[(turn + 2) % 3].set(&path, &[u8::try_from(turn).expect("small")]);
        clients[turn % 3].sync();
        seen.push(format!("{:?}", clients[turn % 3].get(&path, false)));
    }
    seen
}

#[test]
fn three_shards_show_what_one_shows() {
    assert_eq!(trace("3"), trace("1"));
}

#[test]
fn a_watch_on_one_shard_sees_the_write_on_another_before_its_state() {
    let server = Server::start_with(&["--shards", "3"]);
    let mut clients = clients(&server, 3);
    clients[0].create("/a", b"0", CreateMode::Persistent);
    for round in 1..50_u8 {
        let [watcher, writer, other] = &mut clients[..] else { unreachable!("three clients") };
        watcher.sync();
        other.sync();
        assert_eq!(watcher.get("/a", true), Some(vec![if round == 1 { b'0' } else { round - 1 }]));
        assert_eq!(other.get("/a", true), watcher.get("/a", false));
        writer.set("/a", &[round]);
        for reader in [watcher, other] {
            // The first answer with the new state must have the event in front of it.
            while reader.get("/a", false) != Some(vec![round]) {
                assert_eq!(reader.events_so_far(), [], "an event without its state");
            }
            let changed = Event { event_type: EventType::NodeDataChanged.to_wire(), path: "/a".to_owned() };
            assert_eq!(reader.events_so_far(), [changed]);
        }
    }
}

#[test]
fn writes_of_many_connections_have_one_order_and_each_its_own() {
    const WRITES: usize = 200;
    let server = Server::start_with(&["--shards", "3"]);
    let mut clients = clients(&server, 6);
    clients[0].create("/q", b"", CreateMode::Persistent);
    for client in &mut clients {
        for _ in 0..WRITES {
            client.send_create("/q/n-", b"", CreateMode::PersistentSequential);
        }
    }
    let mut zxids = Vec::new();
    for client in &mut clients {
        let mut last = 0;
        for _ in 0..WRITES {
            let reply = client.reply().expect("a reply");
            assert_eq!(reply.err, ErrorCode::Ok.to_wire());
            assert!(reply.zxid > last, "{} after {last}", reply.zxid);
            last = reply.zxid;
            zxids.push(Zxid::from_wire(reply.zxid));
        }
    }
    zxids.sort_unstable();
    zxids.dedup();
    assert_eq!(zxids.len(), 6 * WRITES, "every write has a zxid of its own");
    clients[3].sync();
    let expected: Vec<String> = (0..6 * WRITES).map(|number| format!("n-{number:010}")).collect();
    assert_eq!(clients[3].children("/q", false), expected);
}
