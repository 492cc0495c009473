//! A damaged folder: what the server says, and what the tools do about it.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ringkeeper_wire::CreateMode;
use serde_json::Value;

use crate::support::{Client, Server, run_to_end, wait_for};

const TIMEOUT_MS: i32 = 30_000;
const BLOCK: u64 = 4096;

/// Segments of 1 MiB.
const SMALL: [&str; 2] = ["-o", "preAllocSize=1024"];

/// A shell's command, with the `ringkeeper` of this test.
fn shell(folder: &Path, command: &str) -> Output {
    let bin = Path::new(env!("CARGO_BIN_EXE_ringkeeper")).parent().expect("a folder");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.current_dir(folder).args(["-c", command]).env("PATH", path).env("RUST_LOG", "off");
    shell.output().expect("the command runs")
}

/// What it says, and its exit code.
fn says(folder: &Path, command: &str) -> (i32, String) {
    let Output { status, stdout, stderr } = shell(folder, command);
    let said = [stdout, stderr].concat();
    (status.code().expect("an exit code"), String::from_utf8(said).expect("UTF-8"))
}

/// What it says, `words` among it; it ends with this exit code.
fn ends(folder: &Path, command: &str, expected: i32, words: &str) -> String {
    let (code, said) = says(folder, command);
    assert!(code == expected && said.contains(words), "{command}: exit code {code}, {said}");
    said
}

fn json_lines(folder: &Path, command: &str) -> Vec<Value> {
    let output = shell(folder, command);
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

/// What stands between back-ticks.
fn quoted_command(said: &str) -> String {
    said.split('`').nth(1).unwrap_or_else(|| panic!("no command in {said}")).to_owned()
}

fn flip(file: &Path, offset: u64) {
    let mut file = OpenOptions::new().read(true).write(true).open(file).expect("opened");
    let mut byte = [0];
    file.seek(SeekFrom::Start(offset)).expect("sought");
    file.read_exact(&mut byte).expect("read");
    byte[0] ^= 1;
    file.seek(SeekFrom::Start(offset)).expect("sought");
    file.write_all(&byte).expect("written");
}

fn log_file(server: &Server) -> PathBuf {
    server.data_dir().join("log.0000000000000001")
}

/// `count` znodes of 3000 bytes below `/n`, each of them in a group of its own.
fn fill(server: &Server, count: usize) {
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    client.create("/n", b"", CreateMode::Persistent);
    for number in 0..count {
        client.create(&format!("/n/{number:03}"), &[b'x'; 3000], CreateMode::Persistent);
    }
    client.close();
}

fn stop(server: &mut Server) {
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
}

/// A server that has stopped with `count` znodes below `/n`.
fn filled(count: usize) -> Server {
    let mut server = Server::start_with(&SMALL);
    fill(&server, count);
    stop(&mut server);
    server
}

/// Where the log holds this znode's creation: the file and the offset of the frame.
fn place_of(server: &Server, path: &str) -> (PathBuf, u64, String) {
    let dump = json_lines(server.folder(), "ringkeeper log dump --json");
    let txn = dump.iter().find(|txn| txn["path"] == path).unwrap_or_else(|| panic!("no {path}"));
    let file = server.data_dir().join(txn["file"].as_str().expect("a name"));
    (file, txn["offset"].as_u64().expect("a number"), txn["zxid"].as_str().expect("a zxid").to_owned())
}

fn children(server: &Server) -> Vec<String> {
    Client::connect(server.address(), TIMEOUT_MS).children("/n", false)
}

#[test]
fn a_damaged_log_is_refused_by_its_place_and_the_command_that_is_named_repairs_it() {
    let server = filled(40);
    let (file, offset, zxid) = place_of(&server, "/n/025");
    flip(&file, offset + 700);
    let damaged = fs::read(&file).expect("read");

    let output = run_to_end(server.folder(), server.spec());
    assert_eq!(output.status.code(), Some(78));
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.contains("log.0000000000000001 is damaged at offset"), "{said}");
    assert!(said.contains("transactions after zxid 0x"), "{said}");

    let folder = server.folder().to_owned();
    let verified = ends(&folder, "ringkeeper log verify", 1, "");
    let place = format!("log.0000000000000001 at offset {offset}, after zxid");
    assert!(
        verified.contains(&place) && verified.contains(&format!("up to {zxid} are lost here")),
        "{verified}"
    );

    let offered = ends(&folder, &quoted_command(&said), 1, "LOST: every transaction after zxid");
    assert!(!offered.contains("--from-snapshot"), "there is no snapshot: {offered}");
    assert_eq!(fs::read(&file).expect("read"), damaged, "showing changes nothing");
    let command = offered.lines().find_map(|line| line.trim().strip_prefix("do it: ")).expect("a command");
    ends(&folder, &command.replace(" --yes", ""), 1, "LOST");
    assert_eq!(fs::read(&file).expect("read"), damaged, "without --yes nothing changes");
    ends(&folder, command, 0, "");
    let aside = server.data_dir().join("aside.1.log.0000000000000001");
    assert_eq!(fs::read(&aside).expect("set aside"), damaged);
    assert_eq!(says(&folder, "ringkeeper log verify").0, 0);

    let server = server.restart();
    let expected: Vec<_> = (0..25).map(|number| format!("{number:03}")).collect();
    assert_eq!(children(&server), expected, "everything before the damage");
    Client::connect(server.address(), TIMEOUT_MS).create("/n/new", b"", CreateMode::Persistent);
    server.kill();
    let server = server.restart();
    assert_eq!(children(&server).len(), 26, "it goes on from there");
}

#[test]
fn with_a_snapshot_behind_the_damage_nothing_is_lost() {
    let mut server = Server::start_with(&[SMALL[0], SMALL[1], "-o", "snapCount=40"]);
    fill(&server, 60);
    wait_for("a snapshot", || (server.metric("zk_cnt_snapshottime") >= 1.0).then_some(()));
    stop(&mut server);
    let (file, offset, _) = place_of(&server, "/n/003");
    flip(&file, offset + 700);
    let output = run_to_end(server.folder(), server.spec());
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    let folder = server.folder().to_owned();
    let (_, offered) = says(&folder, &quoted_command(&said));
    assert!(offered.contains("no transaction is lost"), "{offered}");
    let first = offered.lines().find_map(|line| line.trim().strip_prefix("do it: ")).expect("a command");
    assert!(first.contains("--from-snapshot"), "what loses least comes first: {offered}");
    ends(&folder, first, 0, "");
    let server = server.restart();
    assert_eq!(children(&server).len(), 60);
}

/// The first file of a log.
const LOG: &str = "log.0000000000000001";

fn remove_files(server: &Server, prefixes: &[&str]) {
    for entry in fs::read_dir(server.data_dir()).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            fs::remove_file(path).expect("removed");
        }
    }
}

#[test]
fn a_server_whose_log_is_gone_does_not_begin_anew() {
    goes_on_with_its_snapshot_once_that_is_chosen(&["log."], 2);
}

#[test]
fn a_server_whose_log_is_gone_with_its_disk_does_not_begin_anew() {
    goes_on_with_its_snapshot_once_that_is_chosen(&["log.", "meta", "reserve"], 1002);
}

#[test]
fn a_log_that_lies_in_the_folder_of_the_snapshots_is_not_said_to_be_gone() {
    let server = filled(3);
    fs::create_dir(server.folder().join("log")).expect("made");
    let repair = "ringkeeper log repair --data-dir ringkeeper-data --data-log-dir log";
    ends(server.folder(), repair, 2, "ringkeeper-data has one, from before");
}

fn goes_on_with_its_snapshot_once_that_is_chosen(gone: &[&str], next_epoch: u32) {
    let mut server = Server::start_with(&[SMALL[0], SMALL[1], "-o", "snapCount=40"]);
    fill(&server, 60);
    wait_for("a snapshot", || (server.metric("zk_cnt_snapshottime") >= 1.0).then_some(()));
    stop(&mut server);
    remove_files(&server, gone);
    assert_eq!(run_to_end(server.folder(), server.spec()).status.code(), Some(78));
    assert_ne!(says(server.folder(), "ringkeeper log verify").0, 0);
    let output = run_to_end(server.folder(), server.spec());
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.code() == Some(78) && said.contains("there is no file of its log"), "{said}");
    let (_, offered) = says(server.folder(), &quoted_command(&said));
    let command = offered.lines().find_map(|line| line.trim().strip_prefix("do it: ")).expect("a command");
    assert!(command.contains("--from-snapshot") && offered.contains("LOST"), "{offered}");
    fs::write(server.data_dir().join("myid"), "3\n").expect("written");
    ends(server.folder(), command, 0, "");
    let number = if gone.contains(&"meta") { 3 } else { 1 };
    ends(server.folder(), "ringkeeper folder show", 0, &format!("belongs to server {number}, alone"));
    // As if it had been interrupted when `meta` was out of the way.
    for (now, then) in [("meta", "repair.0000000000000001.meta"), (LOG, &format!("repair.{LOG}"))] {
        fs::rename(server.data_dir().join(now), server.data_dir().join(then)).expect("renamed");
    }
    ends(server.folder(), "ringkeeper log repair --yes", 0, "repaired");
    let server = server.restart();
    let log = server.log();
    assert!(log.contains(&format!("leading epoch={next_epoch}\n")), "later than all that is lost: {log}");
    let read = log.lines().rfind(|line| line.contains("snapshot read")).expect("it begins with a snapshot");
    let znodes = read.split_once("znodes=").expect("their number").1.split(' ').next();
    // Beside the system's four and `/n`; one is due after 21 transactions, of which all but the last are
    // committed.
    let kept = children(&server).len();
    assert!(kept >= 17 && znodes == Some(&*(kept + 5).to_string()), "what the snapshot has: {kept}, {read}");
}

#[test]
fn a_harmed_group_header_costs_no_transaction() {
    let server = filled(10);
    let (file, offset, _) = place_of(&server, "/n/004");
    flip(&file, offset / BLOCK * BLOCK + 20);
    assert!(!run_to_end(server.folder(), server.spec()).status.success());
    let (_, offered) = says(server.folder(), "ringkeeper log repair");
    assert!(offered.contains("no transaction is lost"), "{offered}");
    ends(server.folder(), "ringkeeper log repair --cut --yes", 0, "");
    let server = server.restart();
    assert_eq!(children(&server).len(), 10);
}

#[test]
fn flipped_bits_all_over_a_log_are_refused_repaired_and_keep_what_is_before_them() {
    let server = filled(12);
    let sound = fs::read(log_file(&server)).expect("read");
    let end =
        json_lines(server.folder(), "ringkeeper log ls --json")[0]["used_bytes"].as_u64().expect("bytes");
    for block in 0..end / BLOCK {
        fs::write(log_file(&server), &sound).expect("restored");
        flip(&log_file(&server), block * BLOCK + (block * 37) % 400);
        let (code, verified) = says(server.folder(), "ringkeeper log verify --json");
        let verdict: Value =
            serde_json::from_str(verified.lines().last().expect("a verdict")).expect("an object");
        assert_eq!(verdict["sound"], code == 0, "{verified}");
        if code == 0 {
            // The last block alone holds nothing but a seal, and much of a block nothing at all.
            assert_eq!(verdict["last_zxid"], verdict["last_known_zxid"], "{verified}");
            continue;
        }
        assert!(verified.contains("log.0000000000000001"), "{verified}");
        let (code, repaired) = says(server.folder(), "ringkeeper log repair --cut --yes --json");
        assert_eq!(code, 0, "block {block}: {repaired}");
        assert_eq!(says(server.folder(), "ringkeeper log verify").0, 0, "block {block}");
        remove_files(&server, &["log.", "aside."]);
    }
}

#[test]
fn the_tools_leave_a_running_server_alone_and_name_it() {
    let mut server = Server::start_with(&SMALL);
    fill(&server, 3);
    for tool in ["log ls", "log dump", "log verify", "log repair", "snapshot ls", "snapshot verify"] {
        let words = "is in use by another server (process ";
        let said = ends(server.folder(), &format!("ringkeeper {tool}"), 2, words);
        assert!(said.contains("stop it first"), "{tool}: {said}");
    }
    stop(&mut server);
    assert_eq!(says(server.folder(), "ringkeeper log ls").0, 0);
    ends(server.folder(), "ringkeeper log ls --data-dir nowhere", 2, "not a data folder of ringkeeper");
    assert!(!server.folder().join("nowhere").exists(), "nothing is made");
    fs::remove_file(server.data_dir().join("meta")).expect("removed");
    ends(server.folder(), "ringkeeper log ls", 2, "meta is missing beside log.");
}

#[test]
fn a_dump_shows_the_transactions_of_a_range() {
    let server = filled(5);
    let all = json_lines(server.folder(), "ringkeeper log dump --json");
    let ops: Vec<_> = all.iter().map(|txn| txn["op"].as_str().expect("an op")).collect();
    let creates = ["create"; 6];
    assert_eq!(ops, [&["createSession"][..], &creates, &["closeSession"]].concat());
    let created = all.iter().find(|txn| txn["path"] == "/n/002").expect("created");
    assert_eq!((created["bytes"].as_u64(), created["xid"].as_i64()), (Some(3000), Some(4)));
    let zxid = created["zxid"].as_str().expect("a zxid");
    for (tool, words) in [
        ("dump --from 0x2 --to 0x1", "--from 0x2 is behind --to 0x1: exchange them"),
        ("compare ringkeeper-data ./ringkeeper-data/", "are the same folder"),
    ] {
        ends(server.folder(), &format!("ringkeeper log {tool}"), 2, words);
    }
    let range = format!("ringkeeper log dump --from {zxid} --to {zxid}");
    let (code, text) = says(server.folder(), &range);
    assert_eq!((code, text.lines().count()), (0, 1), "{text}");
    assert!(text.contains("create /n/002 3000 bytes") && text.starts_with(zxid), "{text}");
}

#[test]
fn an_interrupted_repair_keeps_the_server_from_starting_until_it_is_finished() {
    let server = filled(3);
    // As a repair leaves it that was cut off before its last step.
    let guard = server.data_dir().join("repair.0000000000000001.meta");
    fs::rename(server.data_dir().join("meta"), &guard).expect("renamed");
    let output = run_to_end(server.folder(), server.spec());
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.contains("a repair of the log was interrupted"), "{said}");
    ends(server.folder(), "ringkeeper log verify", 2, "an earlier repair was interrupted");
    ends(server.folder(), &quoted_command(&said), 1, "");
    ends(server.folder(), &format!("{} --yes", quoted_command(&said)), 0, "repaired: a server starts");
    assert!(!guard.exists());
    assert_eq!(children(&server.restart()).len(), 3);
}

#[test]
fn a_member_of_an_ensemble_loses_nothing_by_a_tool() {
    let server = filled(10);
    let (file, offset, _) = place_of(&server, "/n/004");
    flip(&file, offset + 700);
    let folder = server.folder();
    fs::write(server.data_dir().join("myid"), "1\n").expect("written");
    let ensemble: String =
        (1..=3).map(|id| format!("server.{id}=127.0.0.1:{}:{}\n", 31_000 + id, 31_100 + id)).collect();
    fs::write(
        folder.join("zoo.cfg"),
        format!("dataDir=ringkeeper-data\nclientPort=31200\ninitLimit=10\nsyncLimit=5\n{ensemble}"),
    )
    .expect("written");
    let damaged = fs::read(&file).expect("read");
    ends(folder, "ringkeeper log repair --config zoo.cfg --cut --yes", 2, "this server has peers");
    assert_eq!(fs::read(&file).expect("read"), damaged);
}

#[test]
fn a_running_server_takes_a_snapshot_by_command() {
    let mut server = Server::start_with(&SMALL);
    fill(&server, 5);
    let (code, said) = says(server.folder(), "ringkeeper snapshot take");
    assert!(code == 0 && said.starts_with("snapshot.000000010000000"), "{said}");
    let taken = json_lines(server.folder(), "ringkeeper snapshot take --json");
    assert!(
        server.data_dir().join(taken[0]["file"].as_str().expect("a name")).exists(),
        "once more, the same"
    );
    assert_eq!(children(&server).len(), 5, "the server goes on");
    stop(&mut server);
    ends(server.folder(), "ringkeeper snapshot take", 2, "no server uses");
    assert_eq!(says(server.folder(), "ringkeeper snapshot verify").0, 0);
}

#[test]
fn a_snapshot_is_listed_checked_inspected_and_exported() {
    let server = Server::start_with(&[SMALL[0], SMALL[1], "-o", "snapCount=20"]);
    let mut client = Client::connect(server.address(), TIMEOUT_MS);
    client.create("/mine", &[0xff, 0xfe], CreateMode::Ephemeral);
    fill(&server, 30);
    wait_for("a snapshot", || (server.metric("zk_cnt_snapshottime") >= 1.0).then_some(()));
    server.kill();
    let folder = server.folder().to_owned();
    let listed = json_lines(&folder, "ringkeeper snapshot ls --json");
    let newest = &listed[0];
    ends(&folder, "ringkeeper snapshot verify", 0, ": sound, ");
    let inspected = json_lines(&folder, "ringkeeper snapshot inspect --json");
    assert_eq!((&inspected[0]["znodes"], &inspected[0]["zxid"]), (&newest["znodes"], &newest["zxid"]));
    assert!(inspected.iter().any(|line| line["subtree"] == "/n"));
    let mine = inspected.iter().find(|line| line["ephemerals"].is_array()).expect("a session");
    assert_eq!(mine["ephemerals"][0], "/mine");
    let exported = json_lines(&folder, "ringkeeper snapshot export");
    assert_eq!(Some(exported.len() as u64), newest["znodes"].as_u64());
    let mine = exported.iter().find(|znode| znode["path"] == "/mine").expect("exported");
    assert_eq!((&mine["data_base64"], &mine["stat"]["data_length"]), (&"//4=".into(), &2.into()));
    assert_eq!(mine["acl"][0]["perms"], "cdrwa");

    let file = server.data_dir().join(newest["file"].as_str().expect("a name"));
    flip(&file, BLOCK + 50);
    ends(&folder, "ringkeeper snapshot verify", 1, "is damaged at offset 4096");
    ends(&folder, "ringkeeper log repair", 1, "--set-aside-snapshots --yes");
    ends(&folder, "ringkeeper log repair --set-aside-snapshots --yes", 0, "");
    assert!(!file.exists());
    let server = server.restart();
    assert_eq!(children(&server).len(), 30);
}
