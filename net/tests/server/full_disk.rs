//! A disk that is full stops writes and nothing else, and having room again is all that it takes to go on.

use std::path::Path;

use ringkeeper_wire::{CreateMode, ErrorCode, Request, SetDataRequest};

use crate::support::{Client, Server, SmallDisk, wait_for};

const TIMEOUT_MS: i32 = 30_000;

fn has_input(client: &mut Client) -> bool {
    let stream = client.stream();
    stream.set_nonblocking(true).expect("set");
    let has_input = stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0);
    stream.set_nonblocking(false).expect("set");
    has_input
}

fn start(data_dir: &Path) -> Server {
    let data_dir = data_dir.to_str().expect("text");
    Server::start_with(&["-d", data_dir, "-o", "preAllocSize=1024", "-o", "jute.maxbuffer=200000"])
}

fn set(number: u64) -> Vec<u8> {
    let mut data = vec![7; 100_000];
    data[..8].copy_from_slice(&number.to_le_bytes());
    data
}

/// Writes until the disk has no room for the next one; how many were sent, and how many of them acknowledged.
fn write_until_full(server: &Server, client: &mut Client) -> (u64, u64) {
    let (mut sent, mut acknowledged) = (0, 0);
    loop {
        sent += 1;
        let data = set(sent);
        client.send(&Request::SetData(SetDataRequest { path: "/n".into(), data: Some(&data), version: -1 }));
        let full = wait_for("an answer or a full disk", || {
            if server.metric("zk_disk_full") != 0.0 {
                return Some(true);
            }
            has_input(client).then_some(false)
        });
        if full {
            return (sent, acknowledged);
        }
        assert_eq!(client.reply().expect("a reply").err, 0);
        acknowledged = sent;
    }
}

#[test]
fn a_full_disk_refuses_writes_keeps_reads_and_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(disk) = SmallDisk::mount(folder.path()) else { return };
    let server = start(&disk.path().join("data"));
    let mut writer = Client::connect(server.address(), TIMEOUT_MS);
    let mut other = Client::connect(server.address(), TIMEOUT_MS);
    writer.create("/n", b"", CreateMode::Persistent);
    disk.fill();
    let (sent, acknowledged) = write_until_full(&server, &mut writer);
    assert_eq!(sent, acknowledged + 1, "one is on its way");
    let refused =
        other.call(&Request::SetData(SetDataRequest { path: "/n".into(), data: Some(b"x"), version: -1 }));
    assert_eq!(refused.err, ErrorCode::NotReadOnly.to_wire());
    assert_eq!(other.get("/n", false), Some(if acknowledged == 0 { Vec::new() } else { set(acknowledged) }));
    assert!(server.log().contains("the disk is full"), "{}", server.log());

    disk.make_room();
    assert_eq!(writer.reply().expect("a reply").err, 0, "what was on its way arrives");
    wait_for("writes", || (server.metric("zk_disk_full") == 0.0).then_some(()));
    other.create("/after", b"", CreateMode::Persistent);
    server.kill();
    let server = server.restart();
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    assert_eq!(client.get("/n", false), Some(set(sent)));
    assert!(client.exists("/after", false));
}

#[test]
fn a_server_with_a_full_disk_stops_cleanly_starts_and_has_what_it_acknowledged() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(disk) = SmallDisk::mount(folder.path()) else { return };
    let server = start(&disk.path().join("data"));
    let mut writer = Client::connect(server.address(), TIMEOUT_MS);
    writer.create("/n", b"", CreateMode::Persistent);
    disk.fill();
    let (_, acknowledged) = write_until_full(&server, &mut writer);
    server.terminate();
    assert!(server.wait().success());
    let server = server.restart();
    let mut client = Client::resume(server.address(), TIMEOUT_MS, writer.session).expect("its session");
    assert_eq!(client.get("/n", false), Some(if acknowledged == 0 { Vec::new() } else { set(acknowledged) }));
    disk.make_room();
    wait_for("writes", || (server.metric("zk_disk_full") == 0.0).then_some(()));
    client.set("/n", b"room");
}
