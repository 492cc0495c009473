//! The build before this one: `just previous` makes its program and runs these tests with it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ringkeeper_testkit::WorkFolder;
use ringkeeper_wire::CreateMode;

use crate::cluster::{Ensemble, SESSION_MS};
use crate::feature_level;
use crate::load::{Load, assert_nothing_lost};
use crate::support::Client;

/// Names the program of the build before.
const PREVIOUS: &str = "RINGKEEPER_PREVIOUS";

/// A snapshot now and then, so that each build opens those of the other.
const SETTINGS: &str = "snapCount=400\n";

/// Runs the build that lies beside the configuration that it is given, as `ringkeeper server --config FILE`.
const STARTER: &str = "#!/bin/sh\nexec \"$(dirname \"$3\")/ringkeeper\" \"$@\"\n";

fn previous() -> PathBuf {
    let path = std::env::var_os(PREVIOUS)
        .unwrap_or_else(|| panic!("{PREVIOUS} names no program: run `just previous`"));
    Path::new(&path).canonicalize().unwrap_or_else(|error| panic!("{PREVIOUS}={}: {error}", path.display()))
}

fn this() -> PathBuf {
    env!("CARGO_BIN_EXE_ringkeeper").into()
}

/// Three servers that serve, of the build before.
fn of_the_previous_build() -> Ensemble {
    let build = previous();
    let folder = WorkFolder::new("test", &std::env::temp_dir()).expect("a temporary folder");
    let starter = folder.path().join("start");
    fs::write(&starter, STARTER).expect("written");
    fs::set_permissions(&starter, fs::Permissions::from_mode(0o700)).expect("ours");
    let ensemble = Ensemble::prepare_with(&starter, SETTINGS, folder);
    ensemble.servers().for_each(|server| install(&ensemble, server, &build));
    ensemble.started()
}

/// Replaces a server's program, for its next start.
fn install(ensemble: &Ensemble, server: usize, build: &Path) {
    let installed = ensemble.config(server).with_file_name("ringkeeper");
    let _ = fs::remove_file(&installed);
    symlink(build, installed).expect("a link");
}

/// Starts a server, and waits until it serves beside the others. It runs the build that is installed.
fn run(ensemble: &Ensemble, server: usize, build: &Path) {
    ensemble.run(server);
    ensemble.leader();
    let pid = ensemble.server(server).pid().expect("it runs");
    let runs = fs::read_link(format!("/proc/{pid}/exe")).expect("a process of ours");
    assert_eq!(runs, build.canonicalize().expect("a program"));
}

/// Replaces the program of one server after the other, while clients write. The session `owner` goes to
/// another server each time.
fn roll(ensemble: &Ensemble, load: &Load, mut owner: Client, build: &Path) -> Client {
    for server in ensemble.servers() {
        load.wait_for_writes(200);
        ensemble.stop(server);
        install(ensemble, server, build);
        let next = ensemble.address(ensemble.others(server)[0]);
        owner = Client::resume(next, SESSION_MS, owner.session).expect("the session lives");
        owner.set("/mine", b"still mine");
        run(ensemble, server, build);
    }
    load.wait_for_writes(200);
    owner
}

/// All servers are of this build, and the level has risen: lowers it to what the build before can do.
fn lower_level(ensemble: &Ensemble) {
    feature_level::wait_for_level(ensemble, "feature level 2");
    feature_level::change(ensemble, &["--lower", "0"]);
}

#[test]
#[ignore = "needs the build before this one: just previous"]
fn servers_are_upgraded_and_downgraded_one_by_one_while_clients_write() {
    let ensemble = of_the_previous_build();
    let mut owner = ensemble.connect(0);
    owner.create("/mine", b"", CreateMode::Ephemeral);
    let load = Load::start(&ensemble.addresses());
    owner = roll(&ensemble, &load, owner, &this());
    let upgraded = load.acknowledged();
    lower_level(&ensemble);
    owner = roll(&ensemble, &load, owner, &previous());
    assert!(load.acknowledged() > upgraded);
    owner.set("/mine", b"mine at the end");
    assert_nothing_lost(&ensemble, &load.stop());
}

#[test]
#[ignore = "needs the build before this one: just previous"]
fn either_build_leads_the_other() {
    let ensemble = of_the_previous_build();
    let load = Load::start(&ensemble.addresses());
    for next in [this(), previous()] {
        if next == previous() {
            lower_level(&ensemble);
        }
        let leader = ensemble.leader();
        for follower in ensemble.others(leader) {
            load.wait_for_writes(100);
            ensemble.kill(follower);
            install(&ensemble, follower, &next);
            run(&ensemble, follower, &next);
        }
        // The leader is of another build than its followers. Without it, they go on by themselves.
        load.wait_for_writes(1000);
        let leader = ensemble.leader();
        ensemble.kill(leader);
        load.wait_for_writes(100);
        install(&ensemble, leader, &next);
        run(&ensemble, leader, &next);
    }
    assert_nothing_lost(&ensemble, &load.stop());
}

/// It would take majorities for quorums.
#[test]
#[ignore = "needs the build before this one: just previous"]
fn a_folder_of_voters_in_groups_is_refused_by_the_previous_build() {
    let in_groups = "group.1=1:2:3\nweight.1=2\n";
    let ensemble = Ensemble::start_with(in_groups);
    ensemble.connect(0).create("/kept", b"", CreateMode::Persistent);
    ensemble.stop(0);
    in_groups.lines().for_each(|line| ensemble.reconfigure(0, line, "# without groups"));
    let config = ensemble.config(0);
    let mut words = vec!["20".into(), previous().into_os_string(), "server".into(), "-c".into()];
    words.push(config.into_os_string());
    let refused = Command::new("timeout").args(words).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr) + String::from_utf8_lossy(&refused.stdout);
    assert!(!refused.status.success() && said.contains("meta has format version 5"), "{said}");
}

#[test]
#[ignore = "needs the build before this one: just previous"]
fn folders_of_the_previous_build_are_opened_and_read_whole() {
    let ensemble = of_the_previous_build();
    let load = Load::start(&ensemble.addresses());
    load.wait_for_writes(1500);
    let acknowledged = load.stop();
    ensemble.kill_all();
    for server in ensemble.servers() {
        install(&ensemble, server, &this());
        ensemble.run(server);
    }
    assert_nothing_lost(&ensemble, &acknowledged);
}
