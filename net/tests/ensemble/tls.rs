//! Links between servers with TLS: who is taken for a peer, who is not and is told why, and the way there
//! from links in the clear.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use ringkeeper_testkit::{Authority, Credentials};
use ringkeeper_tls::rustls::crypto::ring::default_provider;
use ringkeeper_tls::rustls::pki_types::pem::PemObject;
use ringkeeper_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use ringkeeper_tls::rustls::version::TLS13;
use ringkeeper_tls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::cluster::Ensemble;
use crate::hostile::{HELLO_BYTES, MAGIC, assert_serves, hello};
use crate::load::{Load, assert_nothing_lost};
use crate::support::{PATIENCE, is_closed, run_to_end, wait_for};

/// The lines that all servers have in the end.
const TLS_ALONE: &str = "sslQuorum=true";

/// Has an authority, and gives each server a certificate for its address, and the lines that name it.
fn certify(ensemble: &Ensemble) -> Authority {
    let authority = Authority::new("ca").expect("a key");
    let trust = ensemble.file("trust.pem", &authority.certificate());
    for server in ensemble.servers() {
        issue(ensemble, &authority, server, &ensemble.seats()[server].ip.to_string());
        let key = ensemble.folder().join(key_file(server));
        ensemble.configure(server, &format!("ssl.quorum.keyStore.location={}", key.display()));
        ensemble.configure(server, &format!("ssl.quorum.trustStore.location={}", trust.display()));
    }
    authority
}

fn key_file(server: usize) -> String {
    format!("key-{server}.pem")
}

/// Gives a server, which may be running, a certificate for this name.
fn issue(ensemble: &Ensemble, authority: &Authority, server: usize, name: &str) {
    ensemble.file(&key_file(server), &authority.issue("server", &[name]).expect("a key").store());
}

/// Three servers with TLS between them that are not running yet.
fn prepare(settings: &str) -> (Ensemble, Authority) {
    let ensemble = Ensemble::prepare(3, &format!("{settings}\n{TLS_ALONE}"));
    let authority = certify(&ensemble);
    (ensemble, authority)
}

/// Three servers that serve, with TLS between them and further lines in each `zoo.cfg`.
pub(crate) fn start_with(settings: &str) -> Ensemble {
    prepare(settings).0.started()
}

pub(crate) fn wait_for_line(ensemble: &Ensemble, server: usize, text: &str) {
    wait_for(text, || ensemble.server(server).log().contains(text).then_some(()));
}

#[test]
fn an_ensemble_goes_from_clear_links_to_tls_by_three_restarts_and_loses_no_write() {
    let ensemble = Ensemble::prepare(3, "# security of links").started();
    let load = Load::start(&ensemble.addresses());
    let _authority = certify(&ensemble);
    assert_eq!(ensemble.count_in_log(1, "certified=true"), 0);
    let both = ["portUnification=true", "portUnification=true\nsslQuorum=true"];
    load.restart_in_rounds(&ensemble, &["# security of links", both[0], both[1], TLS_ALONE]);
    for server in ensemble.servers() {
        assert!(ensemble.count_in_log(server, "certified=true") > 0, "server {}", server + 1);
        assert_is_refused_in_the_clear(&ensemble, server);
    }
    assert_nothing_lost(&ensemble, &load.stop());
}

fn assert_is_refused_in_the_clear(ensemble: &Ensemble, server: usize) {
    let mut stream = TcpStream::connect(ensemble.quorum_address(server)).expect("the quorum port is open");
    stream.write_all(&hello(MAGIC, 3, 1)).expect("sent");
    assert!(is_closed(&mut stream));
    wait_for_line(ensemble, server, "the peer does not speak TLS: give it sslQuorum=true");
}

#[test]
fn a_server_whose_certificate_is_for_another_name_stays_out_until_it_has_the_right_one() {
    // The first one is dialed by all others, the last one dials them.
    for (server, other) in [(0, 2), (2, 0)] {
        let (ensemble, authority) = prepare("");
        issue(&ensemble, &authority, server, "zoo9.example.com");
        ensemble.launch().expect("they start");
        let others = ensemble.others(server);
        ensemble.leader_among(&others);
        let ip = ensemble.seats()[server].ip;
        let accused = format!("the certificate of server {} does not bear the name {ip}", server + 1);
        wait_for_line(&ensemble, other, &accused);
        wait_for_line(&ensemble, server, "refuses this server: its certificate does not bear the name");
        assert_eq!(ensemble.server(server).mode(), None);
        assert_serves(&ensemble);
        // Without a restart.
        issue(&ensemble, &authority, server, &ip.to_string());
        ensemble.server(server).wait_until_serving(PATIENCE).expect("it is let in");
        wait_for_line(&ensemble, server, "use the keys and certificates that were changed");
    }
}

#[test]
fn a_server_whose_certificate_is_revoked_stays_out_of_a_quorum() {
    let (ensemble, authority) = prepare("ssl.quorum.crl=true");
    let good = authority.issue("other", &["zoo9"]).expect("a key");
    let revoked = authority.issue("server", &[&ensemble.seats()[2].ip.to_string()]).expect("a key");
    let list = authority.revocation_list(&[&revoked], true).expect("signed");
    let list = ensemble.file("crl.pem", &list);
    for server in ensemble.servers() {
        ensemble.configure(server, &format!("ringkeeper.ssl.quorum.crlFile={}", list.display()));
    }
    ensemble.file(&key_file(2), &revoked.store());
    ensemble.launch().expect("they start");
    ensemble.leader_among(&[0, 1]);
    wait_for_line(&ensemble, 0, "ringkeeper.ssl.quorum.crlFile lists the peer's certificate");
    assert_eq!(ensemble.server(2).mode(), None);
    assert_serves(&ensemble);
    // Without a restart.
    ensemble.file("crl.pem", &authority.revocation_list(&[&good], true).expect("signed"));
    ensemble.server(2).wait_until_serving(PATIENCE).expect("it is let in");
}

#[test]
fn whoever_has_no_certificate_of_the_ensemble_is_refused_and_the_log_says_why() {
    let (ensemble, authority) = prepare("");
    ensemble.run(0);
    ensemble.run(1);
    ensemble.leader_among(&[0, 1]);
    let ip = ensemble.seats()[2].ip.to_string();
    let stranger = Authority::new("other").expect("a key").issue("server", &[&ip]).expect("a key");
    let expired = authority.issue_expired("server").expect("a key");
    for (shown, reason) in [
        (None, "a server needs a certificate (ssl.quorum.keyStore.location)"),
        (Some(stranger), "add the issuer of the peer's certificate to ssl.quorum.trustStore.location"),
        (Some(expired), "the peer needs a new certificate"),
    ] {
        let heard = converse(ensemble.quorum_address(0), &authority, shown.as_ref());
        assert!(heard.is_err(), "{reason}: {heard:?}");
        wait_for_line(&ensemble, 0, reason);
    }
    assert_is_refused_in_the_clear(&ensemble, 0);
    // One of the authority's, but not the one that it says: it gets a refusal, and nothing else.
    let fourth = authority.issue("server", &["zoo4.example.com"]).expect("a key");
    let heard = converse(ensemble.quorum_address(0), &authority, Some(&fourth)).expect("an answer");
    assert!(heard.len() == HELLO_BYTES && heard.starts_with(b"RKNAME"), "{heard:?}");
    // A server that has no certificates yet.
    ensemble.reconfigure(2, TLS_ALONE, "");
    ensemble.run(2);
    wait_for_line(&ensemble, 2, "it may take TLS alone (sslQuorum)");
    assert_eq!(ensemble.server(2).mode(), None);
    assert_serves(&ensemble);
}

/// Says a server's hello with TLS; all that it hears.
fn converse(address: SocketAddr, trusted: &Authority, shown: Option<&Credentials>) -> io::Result<Vec<u8>> {
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&trusted.certificate())).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .expect("a version")
        .with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some(shown) => {
            let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).expect("a key");
            config.with_client_auth_cert(vec![certificate(&shown.certificate)], key).expect("they fit")
        }
    };
    let session = ClientConnection::new(Arc::new(config), ServerName::IpAddress(address.ip().into()));
    let tcp = TcpStream::connect(address)?;
    tcp.set_read_timeout(Some(PATIENCE))?;
    let mut stream = StreamOwned::new(session.expect("a configuration"), tcp);
    stream.write_all(&hello(MAGIC, 3, 1))?;
    let mut heard = Vec::new();
    match stream.read_to_end(&mut heard) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(heard),
    }
}

#[test]
fn the_secret_is_asked_for_beside_the_certificates() {
    let (ensemble, _authority) = prepare("");
    for server in ensemble.servers() {
        let secret = if server == 2 { "what nobody knows" } else { "what all servers know" };
        let secret = ensemble.file(&format!("secret-{server}"), secret);
        ensemble.configure(server, &format!("ringkeeper.peerSecretFile={}", secret.display()));
    }
    ensemble.launch().expect("they start");
    ensemble.leader_among(&[0, 1]);
    wait_for_line(&ensemble, 2, "do not share a secret");
    assert_eq!(ensemble.server(2).mode(), None);
}

#[test]
fn certificates_of_all_peers_are_proof_enough_in_a_network_that_nobody_trusts() {
    let (ensemble, authority) = prepare("");
    let spec = ensemble.spec(0);
    let said = || {
        let ended = run_to_end(&ensemble.data(0), &spec);
        assert!(!ended.status.success());
        String::from_utf8_lossy(&ended.stderr).into_owned()
    };
    // An address that is reserved for documentation.
    let own = format!("server.1={}:", ensemble.seats()[0].ip);
    ensemble.reconfigure(0, &own, "server.1=192.0.2.1:");
    assert!(said().contains("not an address of this machine"), "{}", said());
    ensemble.configure(0, "portUnification=true");
    assert!(said().contains("sslQuorum=true without portUnification"), "{}", said());
    ensemble.reconfigure(0, &key_file(0), "none.pem");
    assert!(said().contains("ssl.quorum.keyStore.location: ") && said().contains("none.pem"), "{}", said());
    fs::write(ensemble.folder().join("none.pem"), authority.issue("a", &[]).expect("a key").key)
        .expect("written");
    assert!(said().contains("holds no certificate"), "{}", said());
}
