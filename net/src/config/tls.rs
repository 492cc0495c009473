//! The keys of TLS on the client port and between servers (Apache ZooKeeper 3.9's administrator guide,
//! "Encryption, Authentication, Authorization Options").

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ringkeeper_engine::acl::is_spiffe_trust_domain;
use ringkeeper_tls::{
    CipherSuites, ClientAuth, Party, PeerSettings, ServerSettings, Settings, StoreKind, StoreSettings,
    Versions,
};

use super::keys::Treatment::{self, Honoured, NoEffect, Unprotected};
use super::keys::{I32_MAX, address, always, asks, flag, number, path};
use super::{Config, socket_address};

/// The ports that speak TLS, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TlsConfig {
    /// The port that speaks TLS alone.
    pub(crate) secure_port: Option<u16>,
    /// Its address, and the link that a link-local IPv6 address belongs to; by default every address.
    secure_address: Option<(IpAddr, u32)>,
    /// Whether the port for clients in the clear takes TLS, too.
    pub(crate) port_unification: bool,
    /// Handshakes under way at once, at most; more connections are closed.
    pub(crate) handshakes_max: Option<u32>,
    /// The trust domains whose SPIFFE ids are identities.
    pub(crate) spiffe_trust_domains: Vec<String>,
    /// The subject of the super user's certificate, as Java prints it, or the SPIFFE id.
    pub(crate) super_user: Option<String>,
    pub(crate) settings: ServerSettings,
}

impl TlsConfig {
    /// Where clients connect with TLS, if they can.
    pub(crate) fn secure_socket(&self) -> Option<std::net::SocketAddr> {
        let (address, scope_id) = self.secure_address.unwrap_or((IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));
        self.secure_port.map(|port| socket_address(address, port, scope_id))
    }

    /// Whether a port speaks TLS.
    pub(crate) fn is_served(&self) -> bool {
        self.secure_port.is_some() || self.port_unification
    }

    /// Whether who connects has to show a certificate.
    pub(crate) fn needs_client_certificates(&self) -> bool {
        self.settings.client_auth == ClientAuth::Need
    }

    /// Whether the keys contradict one another: the key and the reason.
    pub(super) fn contradiction(&self) -> Option<(&'static str, String)> {
        (self.secure_address.is_some() && self.secure_port.is_none())
            .then(|| ("secureClientPortAddress", "needs secureClientPort, too".to_owned()))
    }

    /// Whether what this key asks for is there, thanks to another key.
    pub(super) fn provides(&self, key: &str) -> bool {
        key == CRL && self.settings.common.revocation_lists.is_some()
    }

    /// What the operator should know.
    pub(super) fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        if !self.is_served() && self.settings != ServerSettings::default() {
            notices.push(
                "the ssl. keys have no effect: there is neither secureClientPort nor client.portUnification"
                    .to_owned(),
            );
        }
        notices.extend(left_out(&self.settings.common, Party::Client));
        notices
    }
}

/// Whether links between servers speak TLS, and how.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PeerTlsConfig {
    /// Whether peers are dialed with TLS; then those in the clear are refused, unless both are accepted.
    pub(crate) quorum: bool,
    /// Whether peers are accepted with TLS and in the clear.
    pub(crate) port_unification: bool,
    /// How long the first byte of a peer may take where both are accepted.
    pub(crate) detection: Duration,
    pub(crate) settings: PeerSettings,
}

impl Default for PeerTlsConfig {
    fn default() -> Self {
        let detection = Duration::from_secs(5);
        Self { quorum: false, port_unification: false, detection, settings: PeerSettings::default() }
    }
}

impl PeerTlsConfig {
    /// Whether links may speak TLS.
    pub(crate) fn is_spoken(&self) -> bool {
        self.quorum || self.port_unification
    }

    /// Whether what this key asks for is there, thanks to another key.
    pub(super) fn provides(&self, key: &str) -> bool {
        key == QUORUM_CRL && self.settings.0.revocation_lists.is_some()
    }

    /// Whether nobody is taken for a peer without a certificate.
    pub(crate) fn is_demanded(&self) -> bool {
        self.quorum && !self.port_unification
    }

    /// What the operator should know. The admin listener may use the keys, too.
    pub(super) fn notices(&self, is_for_admin: bool) -> Vec<String> {
        let mut notices = Vec::new();
        if !self.is_spoken() && !is_for_admin && self.settings != PeerSettings::default() {
            notices.push(
                "the ssl.quorum. keys have no effect: neither sslQuorum nor portUnification is on".to_owned(),
            );
        }
        notices.extend(left_out(&self.settings.0, Party::Peer));
        notices
    }
}

fn left_out(settings: &Settings, party: Party) -> Option<String> {
    let left_out = &settings.cipher_suites.left_out;
    let names =
        || format!("{}ciphersuites: not safe, so not offered: {}", party.prefix(), left_out.join(", "));
    (!left_out.is_empty()).then(names)
}

const JAVA_CLASS: &str = "it names a Java class, which cannot be run here";
const NAMES: &str = "a server's certificate always has to bear the name of its host in the server.N line";

/// Ask for lists of revoked certificates.
const CRL: &str = "ssl.crl";
const QUORUM_CRL: &str = "ssl.quorum.crl";

const LISTS: &str = "lists of revoked certificates are not fetched from the network: put them into a file and \
                     name it, ringkeeper.ssl.crlFile=FILE";
const QUORUM_LISTS: &str = "lists of revoked certificates are not fetched from the network: put them into a file \
                            and name it, ringkeeper.ssl.quorum.crlFile=FILE";
const QUORUM_OCSP: &str = "nobody is asked by OCSP, a revoked certificate would still be taken; lists of \
                           revoked certificates are checked (ringkeeper.ssl.quorum.crlFile=FILE)";
const OCSP: &str = "nobody is asked by OCSP, a revoked certificate would still be taken; lists of revoked \
                    certificates are checked (ringkeeper.ssl.crlFile=FILE)";

/// Keys by their name in the file, without the prefix `zookeeper.`.
pub(super) const KEYS: &[(&str, Treatment)] = &[
    ("secureClientPort", Honoured(|c, v| number(v, 1, 65535).map(|n| c.tls.secure_port = Some(n)))),
    ("secureClientPortAddress", Honoured(|c, v| address(v).map(|a| c.tls.secure_address = Some(a)))),
    ("client.portUnification", Honoured(|c, v| flag(v).map(|on| c.tls.port_unification = on))),
    ("sslQuorum", Honoured(|c, v| flag(v).map(|on| c.peer_tls.quorum = on))),
    ("portUnification", Honoured(|c, v| flag(v).map(|on| c.peer_tls.port_unification = on))),
    // Changed files are always read again.
    ("client.certReload", Honoured(|_, v| flag(v).map(drop))),
    ("sslQuorumReloadCertFiles", Honoured(|_, v| flag(v).map(drop))),
    ("ssl.clientAuth", Honoured(|c, v| ClientAuth::parse(v).map(|auth| c.tls.settings.client_auth = auth))),
    (
        "ssl.clientHostnameVerification",
        Honoured(|c, v| flag(v).map(|on| c.tls.settings.client_hostname_verification = on)),
    ),
    (
        "netty.server.outstandingHandshake.limit",
        Honoured(|c, v| {
            c.tls.handshakes_max = if v == "-1" { None } else { Some(number(v, 0, I32_MAX)?) };
            Ok(())
        }),
    ),
    (
        "netty.server.earlyDropSecureConnectionHandshakes",
        NoEffect("handshakes are done beside the shards, and cost those that are served nothing"),
    ),
    (
        "ssl.handshakeDetectionTimeoutMillis",
        NoEffect("a client's first byte and its handshake may take 10 s each"),
    ),
    ("ssl.hostnameVerification", NoEffect("this server opens no connections to clients")),
    (
        "ssl.allowReverseDnsLookup",
        Unprotected(
            asks,
            "a name that reverse DNS gives proves nothing, the name in the certificate would not count",
        ),
    ),
    (CRL, Unprotected(asks, LISTS)),
    (
        "ringkeeper.ssl.crlFile",
        Honoured(|c, v| path(v).map(|file| c.tls.settings.common.revocation_lists = file)),
    ),
    (
        "ringkeeper.ssl.quorum.crlFile",
        Honoured(|c, v| path(v).map(|file| c.peer_tls.settings.0.revocation_lists = file)),
    ),
    ("ssl.ocsp", Unprotected(asks, OCSP)),
    ("ssl.authProvider", Unprotected(|v| v != "x509", JAVA_CLASS)),
    (
        "X509AuthenticationProvider.superUser",
        Honoured(|c, v| {
            c.tls.super_user = Some(v.to_owned());
            Ok(())
        }),
    ),
    (
        "ringkeeper.ssl.spiffeTrustDomains",
        Honoured(|c, v| trust_domains(v).map(|domains| c.tls.spiffe_trust_domains = domains)),
    ),
    ("ssl.sslProvider", NoEffect("TLS is rustls's")),
    ("ssl.context.supplier.class", Unprotected(always, JAVA_CLASS)),
    (
        "ssl.quorum.handshakeDetectionTimeoutMillis",
        Honoured(|c, v| {
            let is_default = v.parse::<i64>().is_ok_and(|milliseconds| milliseconds < 1);
            if !is_default {
                c.peer_tls.detection = Duration::from_millis(number(v, 1, I32_MAX)?);
            }
            Ok(())
        }),
    ),
    ("ssl.quorum.clientAuth", NoEffect("every server has to show a certificate")),
    ("ssl.quorum.hostnameVerification", NoEffect(NAMES)),
    ("ssl.quorum.clientHostnameVerification", NoEffect(NAMES)),
    ("ssl.quorum.allowReverseDnsLookup", NoEffect(NAMES)),
    (QUORUM_CRL, Unprotected(asks, QUORUM_LISTS)),
    ("ssl.quorum.ocsp", Unprotected(asks, QUORUM_OCSP)),
    ("ssl.quorum.context.supplier.class", Unprotected(always, JAVA_CLASS)),
];

fn trust_domains(value: &str) -> Result<Vec<String>, String> {
    let mut domains = value.split(',').map(str::trim);
    match domains.clone().find(|domain| !is_spiffe_trust_domain(domain)) {
        Some(wrong) => {
            Err(format!("{wrong:?} is no trust domain: name one such as example.org, in lower case"))
        }
        None => Ok(domains.by_ref().map(str::to_owned).collect()),
    }
}

type ApplyCommon = fn(&mut Settings, &str) -> Result<(), String>;

/// Keys of both, behind `ssl.` for clients' ports and `ssl.quorum.` for links between servers.
const COMMON_KEYS: &[(&str, ApplyCommon)] = &[
    ("keyStore.location", |s, v| path(v).map(|file| s.key_store.location = file)),
    ("keyStore.password", |s, v| password(&mut s.key_store, v)),
    ("keyStore.passwordPath", |s, v| path(v).map(|file| s.key_store.password_path = file)),
    ("keyStore.type", |s, v| kind(&mut s.key_store, v)),
    ("trustStore.location", |s, v| path(v).map(|file| s.trust_store.location = file)),
    ("trustStore.password", |s, v| password(&mut s.trust_store, v)),
    ("trustStore.passwordPath", |s, v| path(v).map(|file| s.trust_store.password_path = file)),
    ("trustStore.type", |s, v| kind(&mut s.trust_store, v)),
    ("protocol", |s, v| Versions::parse(v).map(|versions| s.version = Some(versions))),
    ("enabledProtocols", |s, v| Versions::parse(v).map(|versions| s.enabled_versions = Some(versions))),
    ("ciphersuites", |s, v| CipherSuites::parse(v).map(|suites| s.cipher_suites = suites)),
];

/// Applies a key that clients' ports and links between servers have in common; `None` if it is another one.
pub(super) fn apply_common(config: &mut Config, key: &str, value: &str) -> Option<Result<(), String>> {
    let (settings, name) = match key.strip_prefix(Party::Peer.prefix()) {
        Some(name) => (&mut config.peer_tls.settings.0, name),
        None => (&mut config.tls.settings.common, key.strip_prefix(Party::Client.prefix())?),
    };
    let (_, set) = COMMON_KEYS.iter().find(|(common, _)| *common == name)?;
    Some(set(settings, value))
}

fn password(store: &mut StoreSettings, value: &str) -> Result<(), String> {
    store.password = value.to_owned().into();
    Ok(())
}

fn kind(store: &mut StoreSettings, value: &str) -> Result<(), String> {
    store.kind = if value.is_empty() { None } else { Some(StoreKind::parse(value)?) };
    Ok(())
}
