//! Snapshots keep the log and a restart short, and damage to one is survived.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ringkeeper_wire::CreateMode;

use crate::support::{Client, Server, run_to_end, wait_for};

const TIMEOUT_MS: i32 = 30_000;

/// A snapshot every 50 to 100 transactions, segments of 64 KiB.
const SMALL: [&str; 4] = ["-o", "snapCount=100", "-o", "preAllocSize=64"];

fn files(folder: &Path, prefix: &str) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let has_prefix =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    entries.filter(has_prefix).collect()
}

fn newest_snapshot(server: &Server) -> PathBuf {
    files(&server.data_dir(), "snapshot.0").pop_last().expect("a snapshot")
}

fn contents(round: usize) -> Vec<u8> {
    vec![u8::try_from(round % 251).expect("less than 251"); 1000]
}

/// Something of everything, and so many changes of it that the log is purged.
fn write_much(server: &Server, client: &mut Client) {
    client.create("/n", b"", CreateMode::Persistent);
    client.create("/n/mine", b"", CreateMode::Ephemeral);
    client.create("/n/container", b"", CreateMode::Container);
    client.create("/n/data", b"", CreateMode::Persistent);
    let mut round = 0;
    wait_for("a purged log", || {
        for _ in 0..20 {
            client.set("/n/data", &contents(round));
            round += 1;
        }
        let purged =
            !files(&server.data_dir(), "log.").iter().any(|path| path.ends_with("log.0000000000000001"));
        (purged && server.metric("zk_cnt_snapshottime") >= 4.0).then_some(())
    });
    client.set("/n/data", b"the last");
}

fn assert_all_there(server: &Server, client: &Client) {
    let mut client = Client::resume(server.address(), TIMEOUT_MS, client.session).expect("still alive");
    let names: BTreeSet<_> = client.children("/n", false).into_iter().collect();
    assert_eq!(names, ["container", "data", "mine"].map(str::to_owned).into());
    assert_eq!(client.get("/n/data", false).as_deref(), Some(&b"the last"[..]));
}

/// The last line in the log of the server that has this text.
fn last_line(server: &Server, text: &str) -> String {
    let log = server.log();
    log.lines().rfind(|line| line.contains(text)).unwrap_or_else(|| panic!("no {text:?} in {log}")).to_owned()
}

#[test]
fn a_server_goes_on_from_its_newest_snapshot_and_keeps_three() {
    let mut server = Server::start_with(&SMALL);
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    write_much(&server, &mut client);
    assert!(files(&server.data_dir(), "snapshot.0").len() <= 3);
    // Old segments are removed behind the log's path, but for a few that are kept for reuse.
    wait_for("a short log", || (files(&server.data_dir(), "log.").len() <= 21).then_some(()));
    for _ in 0..2 {
        server.kill();
        server = server.restart();
        assert_all_there(&server, &client);
        let restored = last_line(&server, "state restored");
        assert!(!restored.contains("snapshot=0x0 "), "{restored}");
    }
}

#[test]
fn compressed_snapshots_are_shorter_and_read_whatever_the_setting_says_then() {
    let sizes = ["none", "lz4"].map(|compression| {
        let setting = format!("ringkeeper.snapshotCompression={compression}");
        let options = [&SMALL[..], &["-o", &setting]].concat();
        let server = Server::start_with(&options);
        let mut client = Client::connect(server.address(), TIMEOUT_MS);
        for index in 0..100 {
            client.create(&format!("/n{index}"), &[7; 1000], CreateMode::Persistent);
        }
        let snapshot = wait_for("a snapshot of all", || {
            client.set("/n0", &[7; 1000]);
            let newest = files(&server.data_dir(), "snapshot.0").pop_last()?;
            (server.metric("zk_cnt_snapshottime") >= 2.0).then_some(newest)
        });
        let size = fs::metadata(&snapshot).expect("is there").len();
        client.set("/n0", b"the last");
        server.kill();
        let server = server.restart();
        let mut client = Client::resume(server.address(), TIMEOUT_MS, client.session).expect("alive");
        assert_eq!(client.get("/n99", false).as_deref(), Some(&[7; 1000][..]));
        assert_eq!(client.get("/n0", false).as_deref(), Some(&b"the last"[..]));
        size
    });
    assert!(sizes[1] * 3 < sizes[0], "{sizes:?}");
}

#[test]
fn behind_a_long_snapshot_the_log_grows_first_unless_the_setting_says_otherwise() {
    static LONG: [u8; 1_000_000] = [7; 1_000_000];
    let taken = |server: &Server| server.metric("zk_cnt_snapshottime");
    let start = |setting: &'static str| {
        let server = Server::start_with(&["-o", "snapCount=100", "-o", setting]);
        let mut client = Client::connect(server.address(), TIMEOUT_MS);
        for index in 0..20 {
            client.create(&format!("/n{index}"), &LONG, CreateMode::Persistent);
        }
        wait_for("a first snapshot", || {
            client.set("/n0", &LONG[..10]);
            (taken(&server) >= 1.0).then_some(())
        });
        (server, client)
    };
    let (waiting, mut client) = start("ringkeeper.snapshotLogPercent=50");
    let (not_waiting, mut other) = start("ringkeeper.snapshotLogPercent=0");
    let before = taken(&waiting);
    wait_for("two more by the count", || {
        client.set("/n0", &LONG[..10]);
        other.set("/n0", &LONG[..10]);
        (taken(&not_waiting) >= 3.0).then_some(())
    });
    assert_eq!(taken(&waiting), before);
    for index in 0..12 {
        client.set(&format!("/n{index}"), &LONG);
    }
    wait_for("one behind so much log", || (taken(&waiting) > before).then_some(()));
}

#[test]
fn a_damaged_snapshot_is_told_of_and_the_one_before_it_does() {
    let mut server = Server::start_with(&SMALL);
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    write_much(&server, &mut client);
    server.kill();
    let newest = newest_snapshot(&server);
    let mut bytes = fs::read(&newest).expect("read");
    bytes[4096 + 100] ^= 1;
    fs::write(&newest, bytes).expect("written");
    server = server.restart();
    assert_all_there(&server, &client);
    let name = newest.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(last_line(&server, "cannot be used").contains(&name));
    assert!(!newest.exists(), "it is not tried again");
}

#[test]
fn without_any_sound_snapshot_a_purged_log_is_refused_with_the_reason() {
    let server = Server::start_with(&SMALL);
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    write_much(&server, &mut client);
    server.kill();
    files(&server.data_dir(), "snapshot.0").iter().for_each(|path| fs::remove_file(path).expect("removed"));
    let output = run_to_end(server.folder(), server.spec());
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the log begins after zxid"), "{said}");
}

#[test]
fn what_a_crash_left_of_a_snapshot_is_cleared_away() {
    let mut server = Server::start_with(&SMALL);
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    write_much(&server, &mut client);
    server.kill();
    for name in ["snapshot.new", "install.part.0000000100000001.0000000000000002", "install.0000000100000001"]
    {
        fs::copy(newest_snapshot(&server), server.data_dir().join(name)).expect("copied");
    }
    server = server.restart();
    assert_all_there(&server, &client);
    for name in ["snapshot.new", "install.part.0000000100000001.0000000000000002", "install.0000000100000001"]
    {
        assert!(!server.data_dir().join(name).exists(), "{name}");
    }
}
