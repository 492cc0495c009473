//! TLS, against a live server of ours.

mod support;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ringkeeper_client::{Acl, Builder, Call, Client, CreateMode, Error, SessionState, TlsSettings, Wait};
use ringkeeper_testkit::{Authority, Ensemble, ringkeeper_binary};
use support::proxy::Proxy;

/// How long a client tries whom no server takes.
const REFUSED_MAX: Duration = Duration::from_secs(2);

/// A server that takes TLS and the clear on one port, behind a proxy at 127.0.0.1.
struct Setup {
    authority: Authority,
    folder: tempfile::TempDir,
    proxy: Proxy,
    _server: Ensemble,
}

impl Setup {
    /// With a certificate for `name`. `None` if there is no server to start.
    fn start(name: &str) -> Option<Self> {
        let binary = ringkeeper_binary()?;
        let authority = Authority::new("ca").expect("a key");
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("ca.pem"), authority.certificate()).expect("written");
        let server = authority.issue("server", &[name]).expect("a key").store();
        fs::write(folder.path().join("server.pem"), server).expect("written");
        let config = format!(
            "client.portUnification=true\nssl.keyStore.location={0}/server.pem\n\
             ssl.trustStore.location={0}/ca.pem\n",
            folder.path().display()
        );
        let server = support::start(&binary, &config);
        Some(Self { authority, proxy: Proxy::new(&server.connect_string()), folder, _server: server })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A client that trusts the authority and shows a certificate for `subject`.
    fn settings(&self, subject: &str) -> TlsSettings {
        let store = self.file(&format!("{subject}.pem"));
        fs::write(&store, self.authority.issue(subject, &[]).expect("a key").store()).expect("written");
        TlsSettings::trusting(self.file("ca.pem")).with_key_store(store)
    }

    fn builder(&self, settings: TlsSettings) -> Builder {
        Client::builder(self.proxy.address()).tls(settings).connect_timeout(Duration::from_secs(20))
    }

    /// Why a client is not served.
    fn refusal(&self, settings: TlsSettings) -> String {
        let refused = self.builder(settings).connect_timeout(REFUSED_MAX).connect().wait();
        refused.expect_err("refused").to_string()
    }
}

#[test]
fn a_client_with_a_certificate_has_its_identity_and_keeps_its_session_when_it_reconnects() {
    let Some(setup) = Setup::start("127.0.0.1") else { return };
    let client = setup.builder(setup.settings("owner")).connect().wait().expect("a session");
    let (session, value) = (client.session_id(), vec![7; 900_000]);
    client.create("/a", &value, CreateMode::Ephemeral.with_acl(&Acl::creator())).wait().expect("created");
    let reads: Vec<_> = (0..20).map(|_| client.get_data("/a")).collect();
    for read in reads {
        assert!(read.wait().expect("read").0 == value);
    }
    let other = setup.builder(setup.settings("other")).connect().wait().expect("a session");
    let plain = Client::builder(setup.proxy.address()).connect().wait().expect("a session in the clear");
    for stranger in [&other, &plain] {
        assert_eq!(stranger.get_data("/a").wait().err(), Some(Error::NoAuth(Call::new("get_data", "/a"))));
    }
    // A new certificate is shown from the next connection on.
    setup.settings("owner");
    let mut states = client.state_changes();
    setup.proxy.cut();
    assert_eq!(states.next().wait(), Some(SessionState::Disconnected));
    client.connected().wait().expect("back");
    assert_eq!(client.session_id(), session);
    client.set_data("/a", b"x", None).wait().expect("set");
}

#[test]
fn a_server_that_cannot_be_trusted_and_a_client_that_is_not_are_told_apart() {
    let Some(setup) = Setup::start("localhost") else { return };
    let good = || setup.settings("client");
    let stranger = Authority::new("other").expect("a key");
    fs::write(setup.file("other-ca.pem"), stranger.certificate()).expect("written");
    fs::write(setup.file("other.pem"), stranger.issue("client", &[]).expect("a key").store())
        .expect("written");
    let refusal = setup.refusal(good());
    assert!(refusal.contains("connect by a name that the server's certificate has"), "{refusal}");
    let unknown = TlsSettings::trusting(setup.file("other-ca.pem"));
    let refusal = setup.refusal(unknown);
    assert!(refusal.contains("the trust store has no authority"), "{refusal}");
    let port = setup.proxy.address().trim_start_matches("127.0.0.1:");
    let by_name = |settings| Client::builder(&format!("localhost:{port}")).tls(settings);
    by_name(good()).connect().wait().expect("a session by the right name");
    for (settings, reason) in [
        (TlsSettings::trusting(setup.file("ca.pem")), "the server asks for a key store"),
        (good().with_key_store(setup.file("other.pem")), "does not trust the certificate in the key store"),
    ] {
        let refused = by_name(settings).connect_timeout(REFUSED_MAX).connect().wait();
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn files_that_cannot_be_used_are_named_before_anything_is_dialled() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.pem");
    fs::write(&empty, "").expect("written");
    for (settings, words) in [
        (TlsSettings::default(), "the trust store: is missing"),
        (TlsSettings::trusting("/none.pem"), "/none.pem: cannot be read"),
        (TlsSettings::trusting(&empty), "empty.pem: holds no certificate"),
    ] {
        match Client::builder("127.0.0.1:1").tls(settings).open().err() {
            Some(Error::Tls(reason)) => assert!(reason.contains(words), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}
