//! `ringkeeper backup` and `ringkeeper restore`, with a folder as the store.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ringkeeper_wire::CreateMode;
use tempfile::TempDir;

use crate::support::{Client, Server, request, wait_for};

const TIMEOUT_MS: i32 = 30_000;

/// A server, and room for a store and for restored folders.
struct Backup {
    server: Server,
    room: TempDir,
}

impl Backup {
    fn start() -> Self {
        let server = Server::start_with(&["-o", "admin.rateLimiterIntervalInMS=0"]);
        Self { server, room: tempfile::tempdir().expect("a temporary folder") }
    }

    fn connect(&self) -> Client {
        Client::connect(self.server.address(), TIMEOUT_MS)
    }

    fn path(&self, name: &str) -> String {
        self.room.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Runs `ringkeeper`; `STORE`, `DIR` and `SERVER` stand for what they say.
    fn run(&self, arguments: &[&str]) -> Output {
        let admin = SocketAddr::from((self.server.address().ip(), 8080)).to_string();
        let argument = |argument: &&str| match *argument {
            "STORE" => self.path("store"),
            "DIR" => self.path("restored"),
            "SERVER" => admin.clone(),
            other => other.to_owned(),
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringkeeper"));
        command.args(arguments.iter().map(argument)).current_dir(self.room.path()).stdin(Stdio::null());
        command.output().expect("it runs")
    }

    fn run_ok(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.run(arguments);
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).expect("UTF-8")
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.run(arguments);
        assert_eq!(status.code(), Some(1), "{}", String::from_utf8_lossy(&stdout));
        String::from_utf8(stderr).expect("UTF-8")
    }

    fn ship(&self) -> String {
        self.run_ok(&["backup", "--server", "SERVER", "--to", "STORE", "--once"])
    }
}

fn restored(folder: &Path) -> Server {
    Server::start_with(&["-d", folder.to_str().expect("UTF-8")])
}

#[test]
fn a_folder_is_restored_as_of_any_zxid_and_clients_of_the_past_are_served() {
    let backup = Backup::start();
    let mut client = backup.connect();
    client.create("/a", b"first", CreateMode::Persistent);
    client.create("/mine", b"", CreateMode::Ephemeral);
    assert!(backup.ship().contains("stored the state as of zxid 0x100000003"));
    client.set("/a", b"second");
    client.create("/b", b"", CreateMode::Persistent);
    let said = backup.ship();
    assert!(said.contains("shipped 2 transactions up to zxid 0x100000005"), "{said}");
    assert_eq!(backup.ship(), "", "there is nothing new");
    let verified = backup.run_ok(&["backup", "verify", "--from", "STORE"]);
    assert!(
        verified.contains("2 transactions replayed; every moment from zxid 0x100000003 to 0x100000005"),
        "{verified}"
    );
    // Somebody sees more than was shipped.
    client.set("/a", b"lost");
    backup.server.kill();
    let above = ["--above", "0x100000006"];
    let said = backup.run_ok(
        &[&["restore", "--from", "STORE", "--at", "0x100000004", "--to", "DIR"], &above[..]].concat(),
    );
    assert!(
        said.contains("as of zxid 0x100000004 of ")
            && said.contains("ended 1 sessions, deleted their 1 ephemerals"),
        "{said}"
    );
    let folder = backup.room.path().join("restored");
    let server = restored(&folder);
    let mut late = Client::try_attach(server.address(), TIMEOUT_MS, None, 0x1_0000_0006)
        .expect("an answer")
        .expect("no zxid is behind what a client has seen");
    assert_eq!(late.get("/a", false).as_deref(), Some(&b"second"[..]));
    assert!(!late.exists("/b", false) && !late.exists("/mine", false));
    late.create("/b", b"", CreateMode::Persistent);
    drop(server);
    let again = backup.refused(&["restore", "--from", "STORE", "--to", "DIR"]);
    assert!(again.contains("is not empty"), "{again}");
}

#[test]
fn a_file_for_prometheus_tells_how_old_the_backup_is_also_when_it_fails() {
    let backup = Backup::start();
    let mut client = backup.connect();
    let ship = ["backup", "--server", "SERVER", "--to", "STORE", "--once", "--metrics-file", "backup.prom"];
    backup.run_ok(&ship);
    client.create("/a", b"", CreateMode::Persistent);
    backup.run_ok(&ship);
    let metric = |file: &str, name: &str| {
        let text = fs::read_to_string(backup.room.path().join(file)).expect("there");
        let value =
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
        value.unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    let of_backup = |name: &str| metric("backup.prom", &format!("ringkeeper_backup_{name}"));
    let end = 0x1_0000_0002_u64.to_string();
    assert_eq!((of_backup("zxid"), of_backup("transactions_total")), (end.clone(), "1".to_owned()));
    let complete = of_backup("complete_timestamp_seconds");
    let [shipped, taken] =
        ["transaction", "state"].map(|what| of_backup(&format!("{what}_timestamp_seconds")));
    assert!(complete > shipped && shipped > taken, "{complete} {shipped} {taken}");
    backup.server.kill();
    backup.refused(&ship);
    assert_eq!(of_backup("failures_total"), "1");
    assert_eq!(of_backup("complete_timestamp_seconds"), complete, "its age goes on");
    backup.run_ok(&["backup", "verify", "--from", "STORE", "--metrics-file", "verified.prom"]);
    let of_verification = |name: &str| metric("verified.prom", &format!("ringkeeper_backup_{name}"));
    assert!(of_verification("verified_timestamp_seconds") > complete);
    assert_eq!((of_verification("zxid"), of_verification("gaps")), (end, "0".to_owned()));
    let nowhere =
        backup.refused(&["backup", "verify", "--from", "STORE", "--metrics-file", "nowhere/it.prom"]);
    assert!(nowhere.contains("nowhere/it.prom: "), "{nowhere}");
}

#[test]
fn sessions_go_on_with_their_ephemerals_if_the_operator_keeps_them() {
    let backup = Backup::start();
    let mut client = backup.connect();
    client.create("/mine", b"", CreateMode::Ephemeral);
    backup.ship();
    // A server that runs knows what clients may have seen: here, the second epoch of its.
    let Backup { server, room } = backup;
    server.kill();
    let backup = Backup { server: server.restart(), room };
    Client::resume(backup.server.address(), TIMEOUT_MS, client.session).expect("alive").set("/mine", b"");
    let said = backup.run_ok(&["restore", "--from", "STORE", "--to", "other", "--server", "SERVER"]);
    assert!(said.contains("the ensemble goes on behind zxid 0x30000000"), "{said}");
    backup.server.kill();
    let said = backup.run_ok(&["restore", "--from", "STORE", "--to", "DIR", "--sessions", "keep"]);
    assert!(said.contains("the ensemble goes on behind zxid 0x200000001"), "{said}");
    assert!(said.contains("kept 1 sessions with 1 ephemerals"), "{said}");
    let server = restored(&backup.room.path().join("restored"));
    let mut client = Client::resume(server.address(), TIMEOUT_MS, client.session).expect("it goes on");
    assert!(client.exists("/mine", false));
    client.close();
    assert!(!Client::connect(server.address(), TIMEOUT_MS).exists("/mine", false));
}

#[test]
fn moments_that_the_store_does_not_have_are_refused() {
    let backup = Backup::start();
    let mut client = backup.connect();
    let nothing = backup.refused(&["restore", "--from", ".", "--to", "DIR"]);
    assert!(nothing.contains("there is no complete backup"), "{nothing}");
    for name in ["/a", "/b", "/c"] {
        client.create(name, b"", CreateMode::Persistent);
        backup.ship();
    }
    for (at, reason) in [
        ("0x100000001", "the store begins with zxid 0x100000002"),
        ("2001-01-01T00:00:00Z", "the store begins with zxid 0x100000002"),
        ("0x100000005", "the store ends at zxid 0x100000004"),
        ("2101-01-01T00:00:00Z", "the store ends at zxid 0x100000004 of 20"),
    ] {
        let said = backup.refused(&["restore", "--from", "STORE", "--at", at, "--to", "DIR"]);
        assert!(said.contains(reason), "{at}: {said}");
    }
    let restore = ["restore", "--from"];
    for (options, reason) in [
        (&["nowhere", "--to", "DIR"][..], "nowhere: there is no backup store"),
        (&["STORE", "--to", "store/log/new"], "store/log/new is inside of "),
        (&["STORE", "--to", "DIR", "--members", "1,2,1"], "names server 1 twice"),
    ] {
        let said = backup.refused(&[&restore[..], options].concat());
        assert!(said.contains(reason), "{options:?}: {said}");
    }
    let log = backup.room.path().join("store/log");
    let mut files: Vec<_> =
        fs::read_dir(&log).expect("a folder").map(|file| file.expect("one").path()).collect();
    files.sort();
    fs::remove_file(&files[0]).expect("removed");
    let gap = backup.refused(&["restore", "--from", "STORE", "--to", "DIR"]);
    assert!(
        gap.contains("the store lacks the transactions behind zxid 0x100000002, before 0x100000004"),
        "{gap}"
    );
    assert!(!backup.room.path().join("restored").exists(), "nothing is made");
    backup.run_ok(&["restore", "--from", "STORE", "--at", "0x100000002", "--to", "DIR"]);
}

#[test]
fn what_the_log_no_longer_has_is_a_gap_that_is_told() {
    let options = ["-o", "admin.rateLimiterIntervalInMS=0", "-o", "snapCount=100", "-o", "preAllocSize=64"];
    let room = tempfile::tempdir().expect("a temporary folder");
    let backup = Backup { server: Server::start_with(&options), room };
    let mut client = backup.connect();
    client.create("/a", b"", CreateMode::Persistent);
    backup.ship();
    let admin = SocketAddr::from((backup.server.address().ip(), 8080));
    wait_for("a purged log", || {
        (0..50).for_each(|_| client.set("/a", &[7; 1000]));
        let feed = "/commands/feed?after=0x100000002";
        (request(admin, "GET", feed, "authorization: ip\r\n").status == 410).then_some(())
    });
    let said = backup.ship();
    assert!(
        said.contains("gap: the server's log begins after 0x1") && said.contains("stored the state"),
        "{said}"
    );
    let verified = backup.run_ok(&["backup", "verify", "--from", "STORE"]);
    assert!(verified.contains("gap: the transactions behind 0x100000002, before 0x1"), "{verified}");
    let gap = backup.refused(&["restore", "--from", "STORE", "--at", "0x100000003", "--to", "DIR"]);
    assert!(gap.contains("the store lacks the transactions behind zxid 0x100000002"), "{gap}");
    client.set("/a", b"last");
    backup.ship();
    backup.run_ok(&["restore", "--from", "STORE", "--to", "DIR"]);
    let server = restored(&backup.room.path().join("restored"));
    let data = Client::connect(server.address(), TIMEOUT_MS).get("/a", false);
    assert_eq!(data.as_deref(), Some(&b"last"[..]));
}

#[test]
fn a_store_takes_the_history_of_one_ensemble() {
    let backup = Backup::start();
    backup.connect().create("/a", b"", CreateMode::Persistent);
    backup.ship();
    let other = Backup::start();
    other.connect().create("/a", b"", CreateMode::Persistent);
    let store = backup.path("store");
    let said = other.refused(&["backup", "--server", "SERVER", "--to", &store, "--once"]);
    assert!(said.contains("give each a store of its own"), "{said}");
    // Nor does it take what was restored from itself, whose history is another one from there on.
    backup.run_ok(&["restore", "--from", "STORE", "--to", "DIR"]);
    let server = restored(&backup.room.path().join("restored"));
    let admin = SocketAddr::from((server.address().ip(), 8080)).to_string();
    let said = backup.refused(&["backup", "--server", &admin, "--to", "STORE", "--once"]);
    assert!(said.contains("give each a store of its own, also an ensemble that was restored"), "{said}");
}

#[test]
fn an_encrypted_store_is_read_with_its_key_alone() {
    let backup = Backup::start();
    backup.connect().create("/a", b"a secret of somebody", CreateMode::Persistent);
    let keys = ["5a", "5b"].map(|byte| {
        let file = backup.path(byte);
        fs::write(&file, byte.repeat(32)).expect("written");
        file
    });
    let ship = ["backup", "--server", "SERVER", "--to", "STORE", "--once", "--key-file"];
    backup.run_ok(&[&ship[..], &[&keys[0]]].concat());
    let verify = ["backup", "verify", "--from", "STORE"];
    let key = |file| ["--key-file", file];
    assert!(backup.refused(&verify).contains("it is encrypted: name the key's file"));
    assert!(backup.refused(&[&verify[..], &key(&keys[1])].concat()).contains("another key"));
    backup.run_ok(&[&verify[..], &key(&keys[0])].concat());
    let found = Command::new("grep").args(["-r", "a secret of somebody", &backup.path("store")]).output();
    assert_eq!(found.expect("grep").status.code(), Some(1), "it is in the clear");
    fs::write(&keys[0], "short").expect("written");
    assert!(backup.refused(&[&ship[..], &[&keys[0]]].concat()).contains("64 hexadecimal digits"));
}

#[test]
fn a_state_on_standard_output_is_a_store_in_a_tar_file() {
    let backup = Backup::start();
    backup.connect().create("/a", b"", CreateMode::Persistent);
    let Output { status, stdout, .. } = backup.run(&["backup", "--server", "SERVER", "--to", "-"]);
    assert!(status.success());
    tar::Archive::new(&stdout[..]).unpack(backup.room.path().join("store")).expect("a tar file");
    let said = backup.run_ok(&["restore", "--from", "STORE", "--to", "DIR"]);
    assert!(said.contains("restored 5 znodes as of zxid 0x100000002"), "{said}");
}
