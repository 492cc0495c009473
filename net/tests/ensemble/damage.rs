//! Bits that flip in the files of one server of three: it is whole again, from the others, and says what it
//! repaired.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ringkeeper_wire::CreateMode;

use crate::cluster::Ensemble;
use crate::load::{change, create_hundred};
use crate::support::wait_for;

/// Set to damage every block in its turn; otherwise it is a sample of them.
const LONG: &str = "RINGKEEPER_LONG_TESTS";

/// Servers that are stopped and damaged one after the other, if not every block is.
const SAMPLE: usize = 24;

/// And in so many more rounds the block that is damaged lies behind every snapshot, so that the log has to be
/// cut: a snapshot may come in between in one of them, not in all.
const BEHIND: usize = 3;

const BLOCK: usize = 4096;

/// Segments of 64 KiB; a snapshot now and then.
const SMALL: &str = "snapCount=2000\npreAllocSize=64";

/// A block of one of a server's files that has something in it.
struct Block {
    file: PathBuf,
    offset: u64,
}

impl Block {
    /// Flips one bit, which one and in which byte `number` decides.
    fn rot(&self, number: usize) {
        let file = std::fs::File::options().read(true).write(true).open(&self.file).expect("a file");
        let at = self.offset + [9, 21, 40, 70, 900, 3000][number % 6];
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("read");
        file.write_all_at(&[byte[0] ^ 1 << (number % 8)], at).expect("written");
        file.sync_all().expect("synced");
    }

    fn name(&self) -> String {
        let name = self.file.file_name().expect("a name").to_string_lossy();
        format!("{name} at {:#x}", self.offset)
    }
}

/// The blocks in use of log and snapshots, or of files whose names begin so.
fn blocks(folder: &Path, kinds: &[&str]) -> Vec<Block> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().expect("a name").to_string_lossy();
            kinds.iter().any(|kind| name.starts_with(kind))
        })
        .collect();
    files.sort();
    let mut blocks = Vec::new();
    for file in files {
        // A running server may have removed it since.
        let Ok(bytes) = std::fs::read(&file) else { continue };
        let used = (0..).step_by(BLOCK).zip(bytes.chunks(BLOCK));
        let used = used.filter(|(_, block)| block.iter().any(|byte| *byte != 0));
        blocks.extend(used.map(|(offset, _)| Block { file: file.clone(), offset }));
    }
    blocks
}

/// The block of the log that has the only transaction with this text in it.
fn block_with(folder: &Path, text: &str) -> Block {
    let has_it = |block: &Block| {
        let file = std::fs::File::open(&block.file).expect("a file");
        let mut bytes = [0; BLOCK];
        file.read_exact_at(&mut bytes, block.offset).expect("read");
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    blocks(folder, &["log."]).into_iter().find(has_it).expect("it was logged")
}

fn prepare(ensemble: &Ensemble) {
    let mut client = ensemble.connect(ensemble.leader());
    create_hundred(&mut client);
    client.create("/large", b"", CreateMode::Persistent);
    (0..10).for_each(|number| {
        client.create(&format!("/large/{number}"), &[7; 10_000], CreateMode::Persistent);
    });
    wait_for("a snapshot on every server", || {
        change(&mut client, 500, 50);
        let written = |server| blocks(&ensemble.data(server), &["snapshot.0"]).len() > 10;
        ensemble.servers().all(written).then_some(())
    });
    change(&mut client, 40, 1);
}

/// What a server says when it finds damage at its start.
const FOUND: [&str; 4] = [
    "the log is damaged",
    "a snapshot cannot be used",
    "one of the two copies in meta is damaged",
    "all of it has to come from the other servers",
];

fn count(ensemble: &Ensemble, server: usize, texts: &[&str]) -> usize {
    texts.iter().map(|text| ensemble.count_in_log(server, text)).sum()
}

#[test]
fn a_flipped_bit_in_any_block_of_a_stopped_server_is_repaired_when_it_starts() {
    let ensemble = Ensemble::start_with(SMALL);
    prepare(&ensemble);
    let kinds = ["log.", "snapshot.0", "meta"];
    let all = blocks(&ensemble.data(0), &kinds).len();
    let rounds = if std::env::var_os(LONG).is_some() { all } else { SAMPLE };
    let (mut found, mut cut, mut snapshots) = (0, 0, 0);
    for round in 0..rounds + BEHIND {
        let server = round % 3;
        let block = if let Some(behind) = round.checked_sub(rounds) {
            let marker = format!("/behind-{behind}");
            let mut client = ensemble.connect(server);
            client.create(&marker, b"", CreateMode::Persistent);
            change(&mut client, 5, 1);
            ensemble.stop(server);
            let block = block_with(&ensemble.data(server), &marker);
            // In the header of its group.
            block.rot(behind);
            block
        } else {
            ensemble.stop(server);
            let mut blocks = blocks(&ensemble.data(server), &kinds);
            let block = blocks.swap_remove(round * blocks.len() / rounds);
            block.rot(round);
            block
        };
        let before = count(&ensemble, server, &FOUND);
        let mut client = ensemble.connect(ensemble.leader());
        change(&mut client, 10, 1);
        ensemble.run(server);
        change(&mut client, 10, 1);
        ensemble.leader();
        let zxid = change(&mut client, 140, 140);
        ensemble.assert_digests_agree(zxid - 140);
        let reported = count(&ensemble, server, &FOUND) > before;
        println!("{}: {}", block.name(), if reported { "found" } else { "not in use" });
        found += usize::from(reported);
        cut += usize::from(ensemble.count_in_log(server, "what it lacks has to come from") > 0);
        snapshots += usize::from(reported && block.name().starts_with("snapshot"));
        // Whoever has lost something says from whom it has it again.
        let lost = count(&ensemble, server, &["what it lacks has to come from", FOUND[3]]);
        if ensemble.count_in_log(server, "the log was repaired") > 0 {
            assert!(ensemble.count_in_log(server, "is kept for a while") > 0, "{}", block.name());
        }
        let again = ensemble.count_in_log(server, "what was damaged here is repaired from the leader");
        assert!(lost == 0 || again > 0, "{}: {lost} lost, {again} repaired", block.name());
    }
    println!(
        "{rounds} of {all} blocks damaged, {found} found at the start, {snapshots} of them in snapshots"
    );
    // The rest was void, or not in use yet, or in a snapshot that was not needed.
    assert!(found * 4 > rounds && cut > 0, "{found} of {rounds} found, {cut} logs cut");
}

/// Runs one of the tools on a stopped server's folder; its exit code, and what it said.
fn tool(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringkeeper"));
    command.args(arguments).arg("--data-dir").arg(folder).env("RUST_LOG", "off");
    let output = command.output().expect("the command runs");
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8"))
}

/// A and B have acknowledged what C has not seen. A's log is damaged, and repaired by an operator whose
/// command does not say that the folder is a member's. A and C are a quorum, and must not go on without what
/// only B has now.
#[test]
fn a_member_that_was_repaired_by_its_operator_leads_nobody_and_elects_nobody_without_what_was_cut() {
    let ensemble = Ensemble::start_with("preAllocSize=64");
    let mut client = ensemble.connect(ensemble.leader());
    create_hundred(&mut client);
    let absent = ensemble.others(ensemble.leader())[0];
    ensemble.stop(absent);
    let present = ensemble.others(absent);
    let mut client = ensemble.connect(ensemble.leader_among(&present));
    let zxid = change(&mut client, 200, 1);
    let last = client.get("/99", false);
    let [damaged, whole] = present[..] else { panic!("two of three") };
    ensemble.stop(damaged);
    ensemble.stop(whole);

    let mut blocks = blocks(&ensemble.data(damaged), &["log."]);
    // The damaged header of a file costs no transaction.
    blocks.retain(|block| block.offset > 0);
    // Behind what all three have, and before the end.
    blocks[blocks.len() * 3 / 4].rot(3);
    let folder = ensemble.data(damaged);
    let (code, said) = tool(&folder, &["log", "repair", "--cut", "--yes"]);
    assert!(code == Some(0) && said.contains("LOST: every transaction after zxid"), "{said}");
    ensemble.run(damaged);
    ensemble.run(absent);
    wait_for("both to see each other", || {
        [damaged, absent]
            .iter()
            .all(|&server| ensemble.count_in_log(server, "peer connected") > 0)
            .then_some(())
    });
    for _ in 0..30 {
        assert_eq!([damaged, absent].map(|server| ensemble.server(server).mode()), [None, None]);
        std::thread::sleep(Duration::from_millis(100));
    }
    ensemble.run(whole);
    assert_eq!(ensemble.leader(), whole, "it has everything");
    for server in ensemble.servers() {
        let mut client = ensemble.connect_synced(server);
        assert_eq!(client.get("/99", false), last, "server {}", server + 1);
    }
    assert!(ensemble.count_in_log(damaged, "what was damaged here is repaired from the leader") > 0);
    ensemble.assert_equal_trees(zxid);
}

#[test]
fn a_member_whose_log_is_gone_has_it_from_the_others_and_keeps_what_is_left_aside() {
    let ensemble = Ensemble::start_with(SMALL);
    prepare(&ensemble);
    for server in ensemble.servers() {
        ensemble.stop(server);
        for entry in std::fs::read_dir(ensemble.data(server)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log.")) {
                std::fs::remove_file(path).expect("removed");
            }
        }
        let zxid = change(&mut ensemble.connect(ensemble.leader()), 20, 1);
        ensemble.run(server);
        ensemble.assert_equal_trees(zxid);
        assert_eq!(ensemble.count_in_log(server, "the files of the log are gone"), 1);
        assert!(!blocks(&ensemble.data(server), &["salvaged.1.snapshot."]).is_empty());
    }
}

/// Everything is read once a second.
const SCRUBBED: &str =
    "snapCount=2000\npreAllocSize=64\nringkeeper.scrubIntervalSeconds=1\nringkeeper.scrubKbPerSecond=65536";

fn metric(ensemble: &Ensemble, server: usize, name: &str) -> Option<f64> {
    let answer = ensemble.server(server).ask("mntr").ok()?;
    let value = answer.lines().find_map(|line| line.strip_prefix(&format!("zk_{name}\t")).map(str::to_owned));
    value?.trim().parse().ok()
}

/// Waits until a server has read everything once more, and nothing of it is damaged.
fn wait_for_a_sound_pass(ensemble: &Ensemble, server: usize) {
    let passes = metric(ensemble, server, "scrub_passes").expect("a metric");
    wait_for("a pass that finds nothing", || {
        let sound = metric(ensemble, server, "repairs_pending")? == 0.0;
        (sound && metric(ensemble, server, "scrub_passes")? >= passes + 2.0).then_some(())
    });
}

#[test]
fn a_flipped_bit_in_the_files_of_a_running_server_is_found_by_the_scrub_and_repaired() {
    let ensemble = Ensemble::start_with(SCRUBBED);
    prepare(&ensemble);
    let mut client = ensemble.connect(ensemble.leader());
    for (round, kind) in ["log.", "snapshot.0", "log.", "snapshot.0", "log.", "log."].into_iter().enumerate()
    {
        let server = round % 3;
        wait_for_a_sound_pass(&ensemble, server);
        let found = metric(&ensemble, server, "damage_found").expect("a metric");
        let mut blocks = blocks(&ensemble.data(server), &[kind]);
        if kind == "log." {
            // The oldest segment is in use; a newer file may wait for its use, and is not read.
            let oldest = blocks[0].file.clone();
            blocks.retain(|block| block.file == oldest);
        }
        let offsets = (0..blocks.len()).map(|index| (index * 7 + round * 3) % blocks.len());
        let places: Vec<_> = offsets.take(if kind == "log." { 3 } else { 1 }).collect();
        places.iter().for_each(|&place| blocks[place].rot(round % 4));
        println!("{}: {} blocks damaged, first {}", server + 1, places.len(), blocks[places[0]].name());
        wait_for("damage found", || (metric(&ensemble, server, "damage_found")? > found).then_some(()));
        change(&mut client, 20, 1);
        wait_for_a_sound_pass(&ensemble, server);
        assert!(metric(&ensemble, server, "scrubbed_bytes").expect("a metric") > 0.0);
    }
    // What is on the media is sound: everyone starts again from it, and nothing has to be fetched.
    let zxid = change(&mut client, 300, 50);
    for server in ensemble.servers() {
        ensemble.stop(server);
        ensemble.run(server);
        ensemble.leader();
        assert_eq!(ensemble.count_in_log(server, "what it lacks has to come from"), 0);
    }
    let mut client = ensemble.connect(ensemble.leader());
    change(&mut client, 140, 140);
    ensemble.assert_digests_agree(zxid);
}
