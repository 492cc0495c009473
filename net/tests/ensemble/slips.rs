//! Operators' slips: a folder that is started as something that it is not. Nothing acknowledged is lost in
//! silence.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use ringkeeper_wire::CreateMode;

use crate::cluster::{Ensemble, SESSION_MS};
use crate::support::{Server, ServerSpec, run_to_end, wait_for};
use crate::tls::wait_for_line;
use ringkeeper_testkit as testkit;

/// The words behind `ringkeeper` that start a server alone, on the folder of a member.
fn alone_on(ensemble: &Ensemble, server: usize) -> ServerSpec {
    ServerSpec::new().with(&["server", "-d", ensemble.data(server).to_str().expect("UTF-8")])
}

#[test]
fn a_member_started_alone_by_mistake_is_refused_and_loses_no_acknowledged_write() {
    let ensemble = Ensemble::start();
    ensemble.connect(0).create("/before", b"", CreateMode::Persistent);
    ensemble.stop(0);
    ensemble.leader();
    ensemble.connect(1).create("/acknowledged", b"", CreateMode::Persistent);

    let refused = run_to_end(&ensemble.data(0), &alone_on(&ensemble, 0));

    // Whoever starts next does not remember what was committed: the histories alone decide.
    [1, 2].into_iter().for_each(|server| ensemble.kill(server));
    ensemble.servers().for_each(|server| ensemble.run(server));
    ensemble.leader();
    for server in ensemble.servers() {
        assert!(
            ensemble.connect_synced(server).exists("/acknowledged", false),
            "server {} lost an acknowledged write",
            server + 1
        );
    }
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "it ran alone: {said}");
    assert!(said.contains("belongs to member 1 of an ensemble of the servers 1, 2 and 3"), "{said}");
    assert!(said.contains("ringkeeper folder adopt --data-dir "), "{said}");
}

#[test]
fn a_member_whose_file_has_other_weights_than_its_folder_is_refused_before_it_counts() {
    let ensemble = Ensemble::start_with("group.1=1:2:3\nweight.1=2\n");
    ensemble.connect(0).create("/before", b"", CreateMode::Persistent);
    ensemble.stop(0);
    ensemble.reconfigure(0, "weight.1=2", "weight.1=9");
    let refused = run_to_end(&ensemble.data(0), &ensemble.spec(0));
    assert!(!refused.status.success(), "it ran: {}", said(&refused));
    assert!(
        said(&refused).contains("an ensemble of the servers 1, 2 and 3 in groups with the"),
        "{}",
        said(&refused)
    );
    ensemble.reconfigure(0, "weight.1=9", "weight.1=2");
    ensemble.run(0);
    ensemble.leader();
    assert!(ensemble.connect(0).exists("/before", false));
}

/// `ringkeeper` with these words behind it.
fn tool(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringkeeper")).args(words).output().expect("it runs")
}

/// `ringkeeper folder adopt` with these words behind it.
fn adopt(words: &[&str]) -> Output {
    tool(&[&["folder", "adopt"], words].concat())
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_folder_that_was_taken_out_of_its_ensemble_on_purpose_is_refused_by_the_others() {
    let ensemble = Ensemble::start();
    ensemble.connect(0).create("/before", b"", CreateMode::Persistent);
    ensemble.stop(0);
    let data = ensemble.data(0);
    let folder = data.to_str().expect("UTF-8");
    let shown = adopt(&["-d", folder]);
    assert!(said(&shown).contains("it becomes that of server 1, alone"), "{}", said(&shown));
    assert!(!shown.status.success(), "nothing is done without --yes");
    let done = adopt(&["-d", folder, "--yes"]);
    assert!(done.status.success(), "{}", said(&done));
    let alone = Server::start_with(&["server", "-d", folder]);
    assert!(alone.word("srvr").contains("Mode: standalone"));
    drop(alone);

    let config = ensemble.config(0);
    let back = run_to_end(&data, &ensemble.spec(0));
    assert!(said(&back).contains("belongs to server 1, alone"), "{}", said(&back));
    let done = adopt(&["-c", config.to_str().expect("UTF-8"), "--yes"]);
    assert!(done.status.success(), "{}", said(&done));
    ensemble.run(0);
    wait_for("both sides to say it", || {
        let refused = |server| ensemble.count_in_log(server, "has another history than this one") > 0;
        (refused(0) && (refused(1) || refused(2))).then_some(())
    });
    ensemble.leader_among(&[1, 2]);
    assert_eq!(ensemble.server(0).mode(), None, "it stays out");
    assert!(ensemble.connect(1).exists("/before", false));
}

/// What the refusal, and the message of a server that waits, advise.
#[test]
fn a_server_that_was_alone_becomes_one_of_three_as_its_messages_advise() {
    let advice = "lines of that one and this one in the configurations of both; start both; when both serve";
    for adopts in [false, true] {
        let ensemble = Ensemble::prepare(3, "");
        let config = ensemble.config(0);
        let config = config.to_str().expect("UTF-8");
        let data = ensemble.data(0);
        let alone = Server::start_with(&["server", "-d", data.to_str().expect("UTF-8")]);
        let mut client = crate::support::Client::connect(alone.address(), SESSION_MS);
        client.create("/of-one", b"", CreateMode::Persistent);
        drop((client, alone));
        let refused = run_to_end(&data, &ensemble.spec(0));
        assert!(!refused.status.success() && said(&refused).contains(advice), "{}", said(&refused));
        if adopts {
            let done = adopt(&["-c", config, "--yes"]);
            assert!(done.status.success(), "{}", said(&done));
            ensemble.servers().for_each(|server| ensemble.run(server));
            wait_for("the advice", || (ensemble.count_in_log(0, advice) > 0).then_some(()));
            ensemble.servers().for_each(|server| ensemble.stop(server));
        }

        let third = format!("server.3={}:", ensemble.seats()[2].ip);
        for server in [0, 1] {
            ensemble.reconfigure(server, &third, &format!("#{third}"));
            ensemble.run(server);
        }
        ensemble.leader_among(&[0, 1]);
        for server in [0, 1] {
            ensemble.stop(server);
            ensemble.reconfigure(server, &format!("#{third}"), &third);
        }
        ensemble.servers().for_each(|server| ensemble.run(server));
        ensemble.leader();
        for server in ensemble.servers() {
            assert!(ensemble.connect_synced(server).exists("/of-one", false), "server {}", server + 1);
        }
    }
}

#[test]
fn two_of_three_new_servers_found_an_ensemble_and_the_third_joins_it() {
    let ensemble = Ensemble::prepare(3, "");
    // `initLimit` ticks would do as well; the operator's file saves the waiting.
    for server in [0, 1] {
        fs::write(ensemble.data(server).join("initialize"), "").expect("written");
    }
    ensemble.run(0);
    wait_for("a line that says what is missing", || {
        let line = "not serving clients yet: 2 of 3 voters have to agree; server 2 has not connected";
        (ensemble.count_in_log(0, line) > 0).then_some(())
    });
    assert_eq!(ensemble.count_in_log(0, "serving clients address"), 0);
    ensemble.run(1);
    ensemble.leader_among(&[0, 1]);
    ensemble.connect(0).create("/founded", b"", CreateMode::Persistent);
    wait_for("the files to be used up", || {
        let used_up = |server| !ensemble.data(server).join("initialize").exists();
        (used_up(0) && used_up(1)).then_some(())
    });
    ensemble.run(2);
    ensemble.leader();
    assert!(ensemble.connect_synced(2).exists("/founded", false));
}

#[test]
fn a_member_with_data_is_refused_by_an_ensemble_that_the_others_founded_on_new_disks() {
    let ensemble = Ensemble::start();
    ensemble.connect(0).create("/old", b"", CreateMode::Persistent);
    ensemble.leader();
    ensemble.servers().for_each(|server| ensemble.stop(server));
    for server in [1, 2] {
        ensemble.wipe(server);
        fs::write(ensemble.data(server).join("initialize"), "").expect("written");
        ensemble.run(server);
    }
    ensemble.leader_among(&[1, 2]);
    ensemble.run(0);
    wait_for("both sides to say it", || {
        let refused = |server| ensemble.count_in_log(server, "has another history than this one") > 0;
        (refused(0) && (refused(1) || refused(2))).then_some(())
    });
    ensemble.leader_among(&[1, 2]);
    assert_eq!(ensemble.server(0).mode(), None, "it stays out");
    // Its data is there still: the others have nothing that takes the place of it.
    ensemble.servers().for_each(|server| ensemble.stop(server));
    let (data, other) = (ensemble.data(0), ensemble.data(1));
    let compared = tool(&["log", "compare", data.to_str().expect("UTF-8"), other.to_str().expect("UTF-8")]);
    assert_eq!(compared.status.code(), Some(1), "{}", said(&compared));
    assert!(said(&compared).contains("their logs have no transaction in common"), "{}", said(&compared));
    assert!(said(&compared).contains("create /old"), "{}", said(&compared));
    assert!(adopt(&["-d", data.to_str().expect("UTF-8"), "--yes"]).status.success());
    let alone = Server::start_with(&["server", "-d", data.to_str().expect("UTF-8")]);
    let mut client = crate::support::Client::connect(alone.address(), SESSION_MS);
    assert!(client.exists("/old", false));
}

/// Copies a folder of files.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for file in fs::read_dir(from).expect("a folder") {
        let file = file.expect("listed");
        fs::copy(file.path(), to.join(file.file_name())).expect("copied");
    }
}

#[test]
fn an_old_copy_of_a_members_folder_has_no_vote_before_it_has_learned() {
    let ensemble = Ensemble::start();
    ensemble.connect(0).create("/before", b"", CreateMode::Persistent);
    ensemble.stop(0);
    let old = tempfile::tempdir().expect("a temporary folder");
    copy_folder(&ensemble.data(0), old.path());
    // All of them adopt another epoch, and know it of each other.
    ensemble.run(0);
    let leader = ensemble.leader();
    ensemble.kill(leader);
    ensemble.run(leader);
    ensemble.leader();
    for server in ensemble.servers() {
        wait_for("everyone to serve", || ensemble.server(server).mode());
        ensemble.connect(server).create("/acknowledged", b"", CreateMode::PersistentSequential);
    }
    std::thread::sleep(std::time::Duration::from_secs(1));

    ensemble.stop(0);
    ensemble.connect(1).create("/meanwhile", b"", CreateMode::Persistent);
    ensemble.wipe(0);
    copy_folder(old.path(), &ensemble.data(0));
    ensemble.run(0);

    wait_for("the server to be told", || {
        (ensemble.count_in_log(0, "this server's folder is an old copy") > 0).then_some(())
    });
    wait_for("it to learn", || ensemble.server(0).mode());
    ensemble.leader();
    for server in ensemble.servers() {
        let mut client = ensemble.connect_synced(server);
        assert!(client.exists("/acknowledged0000000002", false) && client.exists("/meanwhile", false));
    }
}

/// The two take each other's connection to a follower, which had nothing to say to either.
#[test]
fn two_machines_with_one_id_say_so_and_the_ensemble_goes_on() {
    let ensemble = Ensemble::start();
    ensemble.connect(0).create("/before", b"", CreateMode::Persistent);
    let server = if ensemble.leader() == 2 { 1 } else { 2 };
    ensemble.stop(server);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let twin = ensemble.twin(server, folder.path());
    copy_folder(&ensemble.data(server), &twin.data());
    ensemble.run(server);
    ensemble.leader();
    twin.launch().expect("it starts");

    let sentence = format!("two processes run as server {}", server + 1);
    wait_for("both to say it", || {
        let said = ensemble.count_in_log(server, &sentence) > 0 && twin.log().contains(&sentence);
        said.then_some(())
    });
    assert_eq!(testkit::metric(ensemble.address(server), "zk_id_conflict"), Some(1.0));
    assert!(ensemble.others(server).iter().any(|other| ensemble.count_in_log(*other, &sentence) > 0));
    ensemble.leader_among(&ensemble.others(server));
    ensemble.connect(0).create("/meanwhile", b"", CreateMode::Persistent);

    // The remedy that the sentence names.
    twin.kill();
    ensemble.stop(server);
    ensemble.run(server);
    ensemble.leader();
    assert!(ensemble.connect_synced(server).exists("/meanwhile", false));
}

#[test]
fn what_is_stored_is_for_nobody_else_on_the_machine() {
    let ensemble = Ensemble::start();
    for entry in fs::read_dir(ensemble.data(0)).expect("a folder") {
        let path = entry.expect("an entry").path();
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        let by_the_test = path.ends_with("myid");
        assert!(by_the_test || mode & 0o077 == 0, "{}: {mode:o}", path.display());
    }
    let alone = Server::start();
    let mode = fs::metadata(alone.data_dir()).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "a folder that the server has made");
}

#[test]
fn a_server_with_the_id_of_another_machine_is_told_of_its_myid() {
    let ensemble = Ensemble::prepare(3, "ringkeeper.trustedNetwork=yes");
    let spec = ensemble.spec(0);
    let own = format!("server.1={}:", ensemble.seats()[0].ip);
    // An address that is reserved for documentation.
    ensemble.reconfigure(0, &own, "server.1=192.0.2.1:");
    let refused = run_to_end(&ensemble.data(0), &spec);
    assert!(!refused.status.success());
    let words = "not an address of this machine; if this is not server 1, correct myid";
    assert!(said(&refused).contains(words), "{}", said(&refused));
}

#[test]
fn a_server_whose_file_exchanges_the_addresses_of_two_others_says_whom_it_has_reached() {
    let ensemble = Ensemble::prepare(3, "ringkeeper.trustedNetwork=yes");
    for (from, to) in [("server.1=", "server.0="), ("server.2=", "server.1="), ("server.0=", "server.2=")] {
        ensemble.reconfigure(2, from, to);
    }
    ensemble.servers().for_each(|server| ensemble.run(server));
    wait_for_line(&ensemble, 2, "server 2 answers in place of server 1");
    ensemble.leader_among(&[0, 1]);
}

#[test]
fn peers_that_prove_nothing_are_not_taken_from_a_network_that_nobody_has_called_trusted() {
    let ensemble = Ensemble::prepare(3, "quorumListenOnAllIPs=yes");
    let spec = ensemble.spec(0);
    let refused = run_to_end(&ensemble.data(0), &spec);
    assert!(!refused.status.success());
    assert!(said(&refused).contains("ringkeeper.trustedNetwork=yes"), "{}", said(&refused));

    let secret = ensemble.file("secret", "what all servers know");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).expect("ours");
    ensemble.configure(0, &format!("ringkeeper.peerSecretFile={}", secret.display()));
    let refused = run_to_end(&ensemble.data(0), &spec);
    assert!(!refused.status.success());
    assert!(
        said(&refused).contains("is open to other users of this machine: `chmod 600"),
        "{}",
        said(&refused)
    );
}
