//! What is wrong is said before anything is started.

use ringkeeper_broadcast::{Broadcast, Config, ConfigError, FolderError, StartError, TlsSettings};

use crate::support::{Ensemble, Ledger, Server, own_host};

fn refused(config: Config) -> StartError {
    Broadcast::start(config, Ledger(std::sync::Arc::default())).expect_err("refused")
}

#[test]
fn a_server_that_is_no_member_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let error = refused(Config::ensemble(7, folder.path()).member(1, "127.0.0.1:33001"));
    assert!(matches!(error, StartError::Config(ConfigError::NotAMember { id: 7, .. })), "{error}");
}

#[test]
fn a_folder_serves_one_server_and_only_its_own() {
    let ensemble = Ensemble::new();
    let first = ensemble.start(1);
    let error = refused(ensemble.config(1));
    assert!(matches!(error, StartError::Folder(FolderError::Locked(_))), "{error}");
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    first.stop();
    let error = refused(Config::ensemble(2, ensemble.data(1)));
    assert!(matches!(error, StartError::Folder(FolderError::Identity { .. })), "{error}");
    assert!(error.to_string().contains("belongs to member 1 of an ensemble of the servers"), "{error}");
}

#[test]
fn a_members_folder_is_not_started_alone() {
    let ensemble = Ensemble::new();
    let members = ensemble.start_all();
    members[0].propose(b"by all of them");
    members.into_iter().for_each(Server::stop);
    let error = refused(Config::ensemble(1, ensemble.data(1)));
    assert!(error.to_string().contains("and is started as a server alone"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "in the way").expect("written");
    let error = refused(Config::single(file.join("data")));
    assert!(error.to_string().contains("file/data cannot be used"), "{error}");
}

#[test]
fn a_key_that_is_missing_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tls = TlsSettings::new(folder.path().join("key.pem"), folder.path().join("trust.pem"));
    let error = refused(Config::single(folder.path()).tls(tls));
    assert!(matches!(error, StartError::Tls(_)), "{error}");
    assert!(error.to_string().contains("key.pem: cannot be read"), "{error}");
}

#[test]
fn a_port_in_use_is_named() {
    let listener = std::net::TcpListener::bind(own_host()).expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let error = refused(Config::ensemble(1, folder.path()).member(1, &address));
    assert!(matches!(error, StartError::Port { .. }), "{error}");
    assert!(error.to_string().contains(&address), "{error}");
    // Nothing is left behind that would keep a corrected configuration from starting.
    Server::start(Config::ensemble(1, folder.path())).stop();
}

#[test]
fn the_data_of_another_service_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("version-2")).expect("made");
    let error = refused(Config::single(folder.path()));
    assert!(error.to_string().contains("Apache ZooKeeper"), "{error}");
}
