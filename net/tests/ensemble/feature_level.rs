//! The feature level of an ensemble, shown and changed by command.

use std::process::{Command, Output};

use crate::cluster::Ensemble;
use crate::support::wait_for;

/// `ringkeeper admin feature-level`, asked of a server.
fn feature_level(ensemble: &Ensemble, asked: usize, words: &[&str]) -> Output {
    let admin = format!("{}:8080", ensemble.address(asked).ip());
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringkeeper"));
    command.args(["admin", "feature-level", "--server", &admin]).args(words).output().expect("it runs")
}

fn shown(ensemble: &Ensemble, asked: usize) -> String {
    String::from_utf8(feature_level(ensemble, asked, &[]).stdout).expect("UTF-8")
}

/// Lowers the level, or with `--raise` has it raised, by whoever leads.
pub(crate) fn change(ensemble: &Ensemble, words: &[&str]) {
    wait_for("another level", || {
        feature_level(ensemble, ensemble.leader(), words).status.success().then_some(())
    });
}

/// Waits until all servers show this.
pub(crate) fn wait_for_level(ensemble: &Ensemble, line: &str) {
    wait_for("the level", || {
        let is_shown = |server| shown(ensemble, server).starts_with(&format!("{line}\n"));
        ensemble.servers().all(is_shown).then_some(())
    });
}

#[test]
fn the_level_rises_by_itself_and_stays_where_it_is_lowered_to() {
    let ensemble = Ensemble::start();
    wait_for_level(&ensemble, "feature level 2");
    let leader = ensemble.leader();
    let told = shown(&ensemble, leader);
    assert!(
        told.ends_with("server 1 can do level 2\nserver 2 can do level 2\nserver 3 can do level 2\n"),
        "{told}"
    );
    let refused = |asked, words: &[&str]| {
        let refused = feature_level(&ensemble, asked, words);
        assert!(!refused.status.success());
        String::from_utf8(refused.stderr).expect("UTF-8")
    };
    let said = refused(ensemble.others(leader)[0], &["--lower", "1"]);
    assert!(said.contains(&format!("ask server {}, which does", ensemble.seats()[leader].id)), "{said}");
    change(&ensemble, &["--lower", "1"]);
    wait_for_level(&ensemble, "feature level 1, held until --raise");
    let said = refused(leader, &["--lower", "2"]);
    assert!(said.contains("the feature level is 1, so it cannot be lowered to 2"), "{said}");
    assert_eq!(ensemble.connect(0).get("/zookeeper/feature_level", false).as_deref(), Some(&b"1 held"[..]));
    change(&ensemble, &["--raise"]);
    wait_for_level(&ensemble, "feature level 2");
}

#[test]
fn the_level_that_the_members_need_is_not_lowered() {
    let ensemble = Ensemble::start_with("group.1=1:2:3\n");
    wait_for_level(&ensemble, "feature level 2");
    change(&ensemble, &["--lower", "1"]);
    let refused = feature_level(&ensemble, ensemble.leader(), &["--lower", "0"]);
    let said = String::from_utf8(refused.stderr).expect("UTF-8");
    assert!(
        !refused.status.success() && said.contains("voters in groups, which need feature level 1"),
        "{said}"
    );
}
