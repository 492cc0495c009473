//! The configuration of links between servers: both ends show certificates, and both are verified.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::ClientCertVerifier;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

use crate::server::without_resumption;
use crate::{Error, Party, Settings, StoreSettings, Versions};

/// What links between servers are made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerSettings(pub Settings);

/// The configurations of both ends of a link.
pub struct PeerConfig {
    accepts: Arc<ServerConfig>,
    dials: Arc<ClientConfig>,
}

impl PeerSettings {
    /// A server that shows what the key store has, to those whom the trust store's authorities have
    /// certified. The extensions of the files name their formats.
    #[must_use]
    pub fn new(key_store: impl Into<PathBuf>, trust_store: impl Into<PathBuf>) -> Self {
        let [key_store, trust_store] = [key_store.into(), trust_store.into()].map(StoreSettings::at);
        Self(Settings { key_store, trust_store, ..Settings::default() })
    }

    /// The files whose changes ask for another [`Self::load`].
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.0.files()
    }

    /// Reads the stores.
    ///
    /// # Errors
    /// A store is missing, cannot be read, or holds something else; versions and cipher suites do not fit.
    pub fn load(&self) -> Result<PeerConfig, Error> {
        let Self(settings) = self;
        let provider = Arc::new(settings.cipher_suites.provider());
        let key = settings.own_key(Party::Peer, &provider)?;
        let roots = settings.roots(Party::Peer, "")?;
        let verifier =
            settings.client_verifier(Party::Peer, Arc::clone(&roots), Arc::clone(&provider), true)?;
        let revocation = settings.revocation_lists.is_some().then(|| Arc::clone(&verifier));
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let accepts = settings.offer(Party::Peer, builder, &Versions::all())?;
        let accepts = accepts.with_client_cert_verifier(verifier).with_cert_resolver(key.clone());
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(provider);
        let dials = settings.offer(Party::Peer, builder, &Versions::all())?;
        let issued = Issued { roots, revocation, algorithms };
        let dials = dials.dangerous().with_custom_certificate_verifier(Arc::new(issued));
        let mut dials = dials.with_client_cert_resolver(key);
        dials.resumption = Resumption::disabled();
        dials.enable_sni = false;
        Ok(PeerConfig { accepts: Arc::new(without_resumption(accepts)), dials: Arc::new(dials) })
    }
}

impl PeerConfig {
    /// Begins a handshake with a server that was dialed.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn dialed(&self) -> Result<Connection, rustls::Error> {
        // The name is neither sent nor checked.
        let name = ServerName::try_from("server").expect("a name");
        ClientConnection::new(Arc::clone(&self.dials), name).map(Connection::from)
    }

    /// Begins a handshake with whoever has connected.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn accepted(&self) -> Result<Connection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.accepts)).map(Connection::from)
    }
}

/// Whether a certificate bears the name of this host, or its address.
#[must_use]
pub fn bears_name(certificate: &CertificateDer<'_>, host: &str) -> bool {
    // The link of a link-local IPv6 address is this machine's own affair.
    let host = host.split('%').next().unwrap_or(host);
    let (Ok(parsed), Ok(name)) = (ParsedCertificate::try_from(certificate), ServerName::try_from(host))
    else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

/// Takes every certificate of a server that a trusted authority has issued. Whose name it bears is checked
/// by whoever knows the members, for the server that was dialed as for the one that dials.
#[derive(Debug)]
struct Issued {
    roots: Arc<RootCertStore>,
    /// Also asked where there are lists of revoked certificates: rustls has no verifier of servers'
    /// certificates that takes such lists and leaves the name to others. It verifies the chain as that of a
    /// client, which every server is, too.
    revocation: Option<Arc<dyn ClientCertVerifier>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Issued {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        if let Some(verifier) = &self.revocation {
            verifier.verify_client_cert(certificate, intermediates, now)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use ringkeeper_testkit::{Authority, Credentials};
    use rustls::CertificateError;

    use super::*;

    /// A server with these credentials that trusts this authority.
    fn server(credentials: &Credentials, trusted: &Authority) -> PeerConfig {
        server_with_list(credentials, trusted, None)
    }

    /// The same with a list of revoked certificates.
    fn server_with_list(credentials: &Credentials, trusted: &Authority, list: Option<&str>) -> PeerConfig {
        let folder = tempfile::tempdir().expect("a folder");
        let [key, trust, lists] = ["key.pem", "trust.pem", "crl.pem"].map(|name| folder.path().join(name));
        std::fs::write(&key, credentials.store()).expect("written");
        std::fs::write(&trust, trusted.certificate()).expect("written");
        let mut settings = PeerSettings::new(key, trust);
        if let Some(list) = list {
            std::fs::write(&lists, list).expect("written");
            settings.0.revocation_lists = Some(lists);
        }
        settings.load().expect("configurations")
    }

    fn pass(from: &mut Connection, to: &mut Connection) -> Result<(), rustls::Error> {
        let mut bytes = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut bytes).expect("room");
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            to.read_tls(&mut rest).expect("room");
            to.process_new_packets()?;
        }
        Ok(())
    }

    /// What the dialer and the listener see of each other when they are done.
    fn link(dials: &PeerConfig, accepts: &PeerConfig) -> Result<[CertificateDer<'static>; 2], rustls::Error> {
        let (mut dialer, mut listener) = (dials.dialed()?, accepts.accepted()?);
        while dialer.is_handshaking() || listener.is_handshaking() {
            pass(&mut dialer, &mut listener)?;
            pass(&mut listener, &mut dialer)?;
        }
        Ok([dialer, listener].map(|end| end.peer_certificates().expect("shown")[0].clone()))
    }

    #[test]
    fn a_revoked_certificate_is_refused_by_either_end() {
        let authority = Authority::new("ours").expect("a key");
        let [good, bad] = ["good", "bad"].map(|name| authority.issue(name, &["zoo"]).expect("a key"));
        let other = Authority::new("other").expect("a key");
        let list =
            |authority: &Authority, is_valid| authority.revocation_list(&[&bad], is_valid).expect("signed");
        let revoked = server(&bad, &authority);
        let refused_with = |list: &str, other: &PeerConfig| {
            let one = server_with_list(&good, &authority, Some(list));
            [link(&one, other), link(other, &one)]
                .map(|outcome| outcome.err().map(|error| Party::Peer.explain(&error)))
        };
        let valid = list(&authority, true);
        assert_eq!(refused_with(&valid, &server(&good, &authority)), [None, None]);
        for (list, reason) in [
            (valid, "ringkeeper.ssl.quorum.crlFile lists the peer's certificate"),
            (list(&authority, false), "replace the issuer's list in ringkeeper.ssl.quorum.crlFile"),
            (list(&other, true), "to ringkeeper.ssl.quorum.crlFile"),
        ] {
            for error in refused_with(&list, &revoked) {
                assert!(error.as_ref().is_some_and(|error| error.contains(reason)), "{reason}: {error:?}");
            }
        }
    }

    #[test]
    fn both_ends_verify_who_has_issued_a_certificate_and_leave_its_name_to_others() {
        let [ours, theirs] = ["ours", "theirs"].map(|name| Authority::new(name).expect("a key"));
        let one = server(&ours.issue("one", &["zoo1", "192.0.2.1"]).expect("a key"), &ours);
        let two = server(&ours.issue("two", &["*.example.com", "fe80::2"]).expect("a key"), &ours);
        let [seen_by_one, seen_by_two] = link(&one, &two).expect("a link");
        for (certificate, host, bears) in [
            (&seen_by_two, "zoo1", true),
            (&seen_by_two, "ZOO1", true),
            (&seen_by_two, "192.0.2.1", true),
            (&seen_by_two, "192.0.2.2", false),
            (&seen_by_two, "one", false),
            (&seen_by_two, "", false),
            (&seen_by_one, "zoo2.example.com", true),
            (&seen_by_one, "zoo2.east.example.com", false),
            (&seen_by_one, "fe80::2%eth0", true),
        ] {
            assert_eq!(bears_name(certificate, host), bears, "{host}");
        }
        let unknown = |outcome: Result<_, rustls::Error>| match outcome {
            Err(rustls::Error::InvalidCertificate(error)) => error == CertificateError::UnknownIssuer,
            _ => false,
        };
        // One that nobody has vouched for here, and one that is taken in but has no trust in the others.
        let stranger = server(&theirs.issue("two", &["zoo2"]).expect("a key"), &ours);
        let distrustful = server(&ours.issue("two", &["zoo2"]).expect("a key"), &theirs);
        for other in [&stranger, &distrustful] {
            assert!(unknown(link(&one, other)) && unknown(link(other, &one)));
        }
        let expired = server(&ours.issue_expired("two").expect("a key"), &ours);
        for refused in [link(&one, &expired), link(&expired, &one)] {
            let error = refused.expect_err("it has expired");
            assert!(Party::Peer.explain(&error).ends_with("the peer needs a new certificate"), "{error}");
        }
    }
}
