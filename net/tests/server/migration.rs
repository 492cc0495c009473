//! `ringkeeper import` and `ringkeeper export`, with folders of real servers of Apache ZooKeeper.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use ringkeeper_apache::{Folder, Loaded, load, session_password};
use ringkeeper_log::folder::FolderLock;
use ringkeeper_wire::{CreateMode, ErrorCode, PathRequest, Request, SessionId};
use tempfile::TempDir;

use crate::support::{Client, Server, Session};

const TIMEOUT_MS: i32 = 30_000;

/// A folder of Apache ZooKeeper, and room beside it.
struct Apache(TempDir);

impl Apache {
    fn unpack() -> Self {
        let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("apache/tests/fixtures/zookeeper-3.9.tar.gz");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let packed = fs::File::open(packed).expect("a fixture of net/apache");
        tar::Archive::new(GzDecoder::new(packed)).unpack(folder.path().join("apache")).expect("sound");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    /// The files of which the names begin so, in the order of their zxids, which have the same length.
    fn files(&self, prefix: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("apache/version-2")).expect("unpacked");
        let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
        files.retain(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
        files.sort();
        files
    }

    /// Runs a command among these folders.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringkeeper"));
        command
            .current_dir(self.0.path())
            .env("RUST_LOG", "off")
            .args(arguments)
            .output()
            .expect("the command runs")
    }

    fn run_ok(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.run(arguments);
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).expect("UTF-8")
    }

    /// The command ends with exit code 1 and one sentence that holds `words`.
    fn refuses(&self, arguments: &[&str], words: &str) {
        let Output { status, stderr, .. } = self.run(arguments);
        let said = String::from_utf8(stderr).expect("UTF-8");
        let code = if arguments[0] == "server" { 78 } else { 1 };
        assert_eq!(status.code(), Some(code), "{said}");
        assert!(said.starts_with("ringkeeper: ") && said.lines().count() == 1, "{said:?}");
        assert!(said.contains(words), "{words:?} is not in {said:?}");
    }
}

fn loaded(folder: &Path) -> Loaded {
    load(&Folder::open(folder, None).expect("a data folder")).expect("sound")
}

fn credentials(loaded: &Loaded, session: i64) -> Session {
    assert!(loaded.sessions.contains_key(&session));
    let session = SessionId(session);
    Session { id: session, password: session_password(session) }
}

#[test]
fn an_imported_folder_is_served_and_its_sessions_go_on() {
    let apache = Apache::unpack();
    let said = apache.run_ok(&["import", "--from", "apache", "--to", "new"]);
    assert!(said.starts_with("imported ") && said.contains("2 sessions with 7 ephemerals"), "{said}");
    let source = loaded(&apache.path("apache"));
    let server = Server::start_with(&["--data-dir", &apache.text("new")]);
    let owner = source.tree.get("/multi/ephemeral").expect("in the fixture").stat.owner;
    let credentials = credentials(&source, owner);
    let back = Client::try_attach(server.address(), TIMEOUT_MS, Some(credentials), source.zxid);
    let mut client = back.expect("the last zxid counts here").expect("the session goes on");
    assert_eq!(client.get("/multi", false).as_deref(), Some(&b"one"[..]));
    assert!(client.exists("/multi/ephemeral", false));
    let path = client.create("/queue/item-", b"", CreateMode::PersistentSequential);
    assert_eq!(path, "/queue/item-0000000010");
    let reply = client.call(&Request::GetAcl(PathRequest { path: "/secret".into() }));
    assert_eq!(reply.err, ErrorCode::NoAuth.to_wire(), "its ACL came along");
    assert!(reply.zxid > source.zxid);
    client.close();
    let mut other = Client::connect(server.address(), TIMEOUT_MS);
    assert!(!other.exists("/multi/ephemeral", false), "it ends with its session");
}

#[test]
fn logs_may_have_folders_of_their_own_on_both_sides() {
    let apache = Apache::unpack();
    fs::create_dir_all(apache.path("apache-log/version-2")).expect("made");
    for file in apache.files("log.") {
        let name = file.file_name().expect("a file");
        fs::rename(&file, apache.path("apache-log/version-2").join(name)).expect("moved");
    }
    let from = ["import", "--from", "apache", "--from-log", "apache-log"];
    apache.run_ok(&[&from[..], &["--to", "new", "--to-log", "new-log", "--myid", "1"]].concat());
    let folders = [apache.text("new"), apache.text("new-log")];
    let server = Server::start_with(&["--data-dir", &folders[0], "--data-log-dir", &folders[1]]);
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    assert!(client.exists("/app/last", false));
    server.kill();
    let export = ["export", "--zookeeper", "--from", "new", "--from-log", "new-log", "--to", "back"];
    let said = apache.run_ok(&export);
    assert!(said.contains("2 znodes have a time to live"), "{said}");
    assert_eq!(fs::read_to_string(apache.path("back/myid")).expect("copied"), "1\n");
}

#[test]
fn an_exported_folder_has_everything_that_the_server_had() {
    let apache = Apache::unpack();
    apache.run_ok(&["import", "--from", "apache", "--to", "new"]);
    let server = Server::start_with(&["--data-dir", &apache.text("new")]);
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    client.create("/ours", b"made here", CreateMode::Persistent);
    client.create("/ours/mine", b"", CreateMode::Ephemeral);
    let session = client.session.id.0;
    apache.refuses(&["export", "--zookeeper", "--from", "new", "--to", "back"], "in use by another server");
    server.kill();
    apache
        .refuses(&["export", "--zookeeper", "--from", "new", "--to", "new/back"], "is inside of new, which");
    apache.run_ok(&["export", "--zookeeper", "--from", "new", "--to", "back"]);
    let (before, after) = (loaded(&apache.path("apache")), loaded(&apache.path("back")));
    assert!(after.zxid > before.zxid && after.epochs.current > before.epochs.current);
    assert_eq!(after.tree.get("/ours").expect("created").data.as_deref(), Some(&b"made here"[..]));
    assert_eq!(after.tree.get("/ours/mine").expect("created").stat.owner, session);
    assert!(before.sessions.iter().all(|(id, timeout)| after.sessions.get(id) == Some(timeout)));
    for (path, znode) in before.tree.iter() {
        // The root has a child more; the use of quotas is counted when a state is made.
        if path != "/" && !path.starts_with("/zookeeper/quota/") {
            assert_eq!(after.tree.get(path), Some(znode), "{path}");
        }
    }
}

#[test]
fn a_damaged_snapshot_is_passed_over_and_named() {
    let apache = Apache::unpack();
    let newest = apache.files("snapshot.").pop().expect("there are two");
    let bytes = fs::read(&newest).expect("readable");
    fs::write(&newest, &bytes[..bytes.len() - 100]).expect("written");
    let said = apache.run_ok(&["import", "--from", "apache", "--to", "new"]);
    let name = newest.file_name().expect("a file").to_string_lossy();
    assert!(said.starts_with("note: ") && said.contains(&*name), "{said}");
    assert!(said.contains("an older snapshot and the log were used instead"), "{said}");
    let server = Server::start_with(&["--data-dir", &apache.text("new")]);
    assert!(Client::connect(server.address(), TIMEOUT_MS).exists("/app/last", false));
}

/// The tree without them was imported, and a note was all that said so.
#[test]
fn missing_transactions_are_imported_over_only_if_that_is_accepted() {
    let apache = Apache::unpack();
    fs::remove_file(apache.files("snapshot.").pop().expect("there are two")).expect("removed");
    let logs = apache.files("log.");
    fs::remove_file(&logs[logs.len() - 2]).expect("removed");
    let import = ["import", "--from", "apache", "--to", "new"];
    apache.refuses(&import, "transactions are missing: ");
    apache.refuses(&import, "(--accept-gap)");
    let said = apache.run_ok(&[&import[..], &["--accept-gap"]].concat());
    assert!(said.starts_with("note: transactions are missing: "), "{said}");
}

#[test]
fn a_folder_without_a_log_is_imported_with_a_note_on_where_it_may_be() {
    let apache = Apache::unpack();
    apache.files("log.").iter().for_each(|file| fs::remove_file(file).expect("removed"));
    let said = apache.run_ok(&["import", "--from", "apache", "--to", "new"]);
    assert!(said.starts_with("note: there is no transaction log in apache, "), "{said}");
}

#[test]
fn what_cannot_be_imported_or_exported_leaves_the_target_alone() {
    let apache = Apache::unpack();
    fs::create_dir(apache.path("empty")).expect("made");
    let import = |from, to| ["import", "--from", from, "--to", to];
    apache.refuses(&import("missing", "new"), "there is no such folder; --from wants the dataDir");
    apache.refuses(&import("empty", "new"), "not a data folder of Apache ZooKeeper");
    apache.refuses(&import("apache", "apache"), "apache is not empty");
    apache.refuses(&import("apache", "apache/a/b"), "apache/a/b is inside of apache, which is only read");
    let export = |from| ["export", "--zookeeper", "--from", from, "--to", "new"];
    apache.refuses(&export("missing"), "not a data folder of ringkeeper");
    apache.refuses(&export("apache"), "not a data folder of ringkeeper");
    fs::write(apache.path("apache/myid"), "seven").expect("written");
    apache.refuses(&import("apache", "new"), "name it with --myid");
    fs::remove_file(apache.path("apache/myid")).expect("removed");
    apache.files("snapshot.").iter().for_each(|file| fs::write(file, "").expect("written"));
    apache.refuses(&import("apache", "new"), "none of the 2 snapshots");
    assert!(!apache.path("new").exists());
}

/// Clients were served by an empty server there, and the import then moved its files over what was
/// acknowledged.
#[test]
fn no_server_starts_where_an_import_runs_or_was_interrupted() {
    let apache = Apache::unpack();
    let import = ["import", "--from", "apache", "--to", "new", "--to-log", "new-log"];
    let server = ["server", "--data-dir", "new", "--data-log-dir", "new-log", "-p", "34998"];
    fs::create_dir_all(apache.path("new/unfinished")).expect("made");
    let lock = FolderLock::take(apache.path("new")).expect("nobody else has it");
    let Output { status, stderr, .. } = apache.run(&server);
    let said = String::from_utf8(stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(1), "it is worth another try: {said}");
    assert!(said.contains("an import, restore or export fills the folder"), "{said}");
    apache.refuses(&import, "something else is being imported or restored into it");
    drop(lock);
    // The last moment: all is in its place but for the mark, in either folder.
    for (folder, again) in
        [("new", "interrupted here when some of the files"), ("new-log", "new is not empty")]
    {
        apache.run_ok(&import);
        fs::create_dir(apache.path(folder).join("unfinished")).expect("made");
        apache.refuses(&server, "was interrupted here (unfinished is there)");
        let export = ["export", "--zookeeper", "--from", "new", "--from-log", "new-log", "--to", "back"];
        apache.refuses(&export, "was interrupted here");
        let verify = ["log", "verify", "--data-dir", "new", "--data-log-dir", "new-log"];
        let said = String::from_utf8(apache.run(&verify).stderr).expect("UTF-8");
        assert!(said.contains("was interrupted here"), "{said}");
        apache.refuses(&import, again);
        for folder in ["new", "new-log"] {
            fs::remove_dir_all(apache.path(folder)).expect("emptied");
        }
    }
}

/// Sets the zxid of a log's last transaction.
fn set_last_zxid(log: &Path, zxid: u64) {
    const FIRST_RECORD_AT: usize = 16;
    const ZXID_AT: usize = 8 + 4;
    let mut bytes = fs::read(log).expect("a log");
    let (mut at, mut last) = (FIRST_RECORD_AT, None);
    while let Some(len) = bytes.get(at + 8..at + 12) {
        let len = usize::try_from(u32::from_be_bytes(len.try_into().expect("four"))).expect("short");
        if len == 0 {
            break;
        }
        last = Some((at, at + 12..at + 12 + len));
        at += 12 + len + 1;
    }
    let (checksum_at, payload) = last.expect("a transaction");
    let zxid_at = payload.start + ZXID_AT;
    bytes[zxid_at..zxid_at + 8].copy_from_slice(&zxid.to_be_bytes());
    let (mut a, mut b) = (1u32, 0u32);
    for byte in &bytes[payload] {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    bytes[checksum_at..checksum_at + 8].copy_from_slice(&u64::from(b << 16 | a).to_be_bytes());
    fs::write(log, bytes).expect("written");
}

/// A server that begins with such a zxid can soon elect nobody.
#[test]
fn a_folder_with_a_zxid_beyond_reason_is_not_imported() {
    let beyond = |words: &str, spoil: &dyn Fn(&Apache)| {
        let apache = Apache::unpack();
        spoil(&apache);
        apache.refuses(&["import", "--from", "apache", "--to", "new"], words);
        let left: Vec<_> = fs::read_dir(apache.path("new")).into_iter().flatten().collect();
        assert!(left.is_empty(), "{words}: {left:?}");
    };
    let last_log = |apache: &Apache| apache.files("log.").pop().expect("a log");
    let rename = |apache: &Apache, name: &str| {
        let newest = apache.files("snapshot.").pop().expect("a snapshot");
        fs::rename(&newest, newest.with_file_name(name)).expect("renamed");
    };
    beyond("epoch 2147483647", &|apache| rename(apache, "snapshot.7fffffff00000001"));
    beyond("2^63 or more", &|apache| rename(apache, "snapshot.8000000000000001"));
    beyond("epoch 2147483647", &|apache| set_last_zxid(&last_log(apache), i64::MAX.cast_unsigned()));
    beyond("epoch 2147483648", &|apache| set_last_zxid(&last_log(apache), 1 << 63 | 7));
    for epoch in ["2147483647", "2147483640", "4294967295"] {
        beyond(&format!("epoch {epoch}"), &|apache| {
            fs::write(apache.path("apache/version-2/acceptedEpoch"), epoch).expect("written");
        });
    }
}

/// They gave whoever had made them on Apache ZooKeeper the rights that they name.
#[test]
fn rules_are_imported_only_from_what_was_exported() {
    const PLACE: &str = "/zookeeper/authorisation";
    let apache = Apache::unpack();
    let server = Server::start_with(&["--data-dir", &apache.text("ours")]);
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    let limits = "/zookeeper/quota/app/ringkeeper_limits";
    for (path, data) in [("/zookeeper/quota/app", ""), (limits, "ops=1000")] {
        client.create(path, data.as_bytes(), CreateMode::Persistent);
    }
    client.create("/long", &vec![b'x'; 0xf_ffff - 100], CreateMode::Persistent);
    server.kill();
    let said = apache.run_ok(&["export", "--zookeeper", "--from", "ours", "--to", "back"]);
    assert!(
        said.contains("note: 1 tenants have limits, and Apache ZooKeeper enforces none of them"),
        "{said}"
    );
    assert!(said.contains("note: 1 sessions that began here cannot be continued"), "{said}");
    assert!(!said.contains("jute.maxbuffer") && !said.contains(PLACE), "{said}");
    let said = apache.run_ok(&["import", "--from", "back", "--to", "without"]);
    assert!(said.contains("1 znode at /zookeeper/quota/*/ringkeeper_limits was left out"), "{said}");
    let said = apache.run_ok(&["import", "--from", "back", "--to", "with", "--keep-rules"]);
    assert!(!said.contains("left out:"), "{said}");
    for (folder, is_there) in [("with", true), ("without", false)] {
        let server = Server::start_with(&["--data-dir", &apache.text(folder)]);
        let mut client = Client::connect(server.address(), TIMEOUT_MS);
        assert_eq!(client.exists(limits, false), is_there, "{folder}");
    }
}

/// A server was to choose another folder, and lose what it had.
#[test]
fn apache_started_by_mistake_has_its_folder_removed() {
    let apache = Apache::unpack();
    apache.run_ok(&["import", "--from", "apache", "--to", "new"]);
    fs::create_dir(apache.path("new/version-2")).expect("made");
    apache.refuses(
        &["server", "--data-dir", "new", "-p", "34997"],
        "started here by mistake: remove version-2",
    );
}

#[test]
fn a_folder_imported_for_one_server_is_refused_by_another() {
    let apache = Apache::unpack();
    fs::write(apache.path("apache/myid"), "3\n").expect("written");
    apache.run_ok(&["import", "--from", "apache", "--to", "new"]);
    assert_eq!(fs::read_to_string(apache.path("new/myid")).expect("copied"), "3\n");
    apache.refuses(&["server", "--data-dir", "new", "-p", "34999"], "belongs to server 3");
}
