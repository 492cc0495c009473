//! Operators' slips: a folder that is started as something that it is not. Nothing acknowledged is lost in silence.

use ringkeeper_wire::CreateMode;

use crate::cluster::Ensemble;
use crate::support::{ServerSpec, run_to_end};

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
        let mut client = ensemble.connect(server);
        client.sync();
        assert!(client.exists("/acknowledged", false), "server {} lost an acknowledged write", server + 1);
    }
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "it ran alone: {said}");
    assert!(said.contains("belongs to member 1 of an ensemble of the servers 1, 2 and 3"), "{said}");
    assert!(said.contains("ringkeeper folder adopt --data-dir "), "{said}");
}
