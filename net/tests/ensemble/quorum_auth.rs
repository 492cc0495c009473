//! SASL between servers: who is taken for a peer, who is not and is told why, and the way there from links
//! that anybody can have.

use crate::cluster::Ensemble;
use crate::hostile::assert_serves;
use crate::load::{Load, assert_nothing_lost};
use crate::tls::wait_for_line;

const MODULE: &str = "org.apache.zookeeper.server.auth.DigestLoginModule required";

/// The lines that are added one after the other.
const LINES: [&str; 3] = [
    "quorum.auth.enableSasl=true",
    "quorum.auth.enableSasl=true\nquorum.auth.learnerRequireSasl=true",
    "quorum.auth.enableSasl=true\nquorum.auth.learnerRequireSasl=true\nquorum.auth.serverRequireSasl=true",
];

/// Gives a server the users of all, and its own with this password.
fn give_users(ensemble: &Ensemble, server: usize, password: &str) {
    let users: String = ensemble.servers().map(|server| format!(" user_zk{server}=pw{server}")).collect();
    let text = format!(
        "QuorumServer {{ {MODULE}{users}; }};
         QuorumLearner {{ {MODULE} username=zk{server} password={password}; }};"
    );
    let file = ensemble.file(&format!("jaas-{server}.conf"), &text);
    ensemble.configure(server, &format!("java.security.auth.login.config={}", file.display()));
}

#[test]
fn an_ensemble_goes_from_open_links_to_users_by_three_restarts_and_loses_no_write() {
    let ensemble = Ensemble::prepare(3, "# users").started();
    ensemble.servers().for_each(|server| give_users(&ensemble, server, &format!("pw{server}")));
    let load = Load::start(&ensemble.addresses());
    load.restart_in_rounds(&ensemble, &["# users", LINES[0], LINES[1], LINES[2]]);
    assert_nothing_lost(&ensemble, &load.stop());
}

#[test]
fn a_server_with_a_wrong_password_stays_out_and_both_ends_say_why() {
    let ensemble = Ensemble::prepare(3, LINES[2]);
    for (server, password) in [(0, "pw0"), (1, "pw1"), (2, "pw1")] {
        give_users(&ensemble, server, password);
    }
    ensemble.launch().expect("the servers start");
    for server in [0, 2] {
        wait_for_line(&ensemble, server, "nor a user with the same password");
        assert!(!ensemble.server(server).log().contains("password=pw1"), "server {}", server + 1);
    }
    assert_serves(&ensemble);
}
