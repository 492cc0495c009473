//! The keys of TLS on the client port (Apache ZooKeeper 3.9's administrator guide, "Encryption,
//! Authentication, Authorization Options").

use std::net::{IpAddr, Ipv4Addr};

use ringkeeper_tls::{CipherSuites, ClientAuth, ServerSettings, StoreKind, StoreSettings, Versions};

use super::keys::Treatment::{self, Honoured, NoEffect, Unprotected};
use super::keys::{I32_MAX, address, always, asks, flag, number};
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
    /// The subject of the super user's certificate, as Java prints it.
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

    /// Whether the keys contradict one another: the key and the reason.
    pub(super) fn contradiction(&self) -> Option<(&'static str, String)> {
        (self.secure_address.is_some() && self.secure_port.is_none())
            .then(|| ("secureClientPortAddress", "needs secureClientPort, too".to_owned()))
    }

    /// Whether what this key asks for is there, thanks to another key.
    pub(super) fn provides(&self, key: &str) -> bool {
        key == CRL && self.settings.revocation_lists.is_some()
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
        let left_out = &self.settings.cipher_suites.left_out;
        if !left_out.is_empty() {
            notices.push(format!("ssl.ciphersuites: not safe, so not offered: {}", left_out.join(", ")));
        }
        notices
    }
}

const JAVA_CLASS: &str = "it names a Java class, which cannot be run here";
/// Asks for lists of revoked certificates.
const CRL: &str = "ssl.crl";

const LISTS: &str = "lists of revoked certificates are not fetched from the network: put them into a file and \
                     name it, ringkeeper.ssl.crlFile=FILE";
const OCSP: &str = "nobody is asked by OCSP, a revoked certificate would still be taken; lists of revoked \
                    certificates are checked (ringkeeper.ssl.crlFile=FILE)";

/// Keys by their name in the file, without the prefix `zookeeper.`.
pub(super) const KEYS: &[(&str, Treatment)] = &[
    ("secureClientPort", Honoured(|c, v| number(v, 1, 65535).map(|n| c.tls.secure_port = Some(n)))),
    ("secureClientPortAddress", Honoured(|c, v| address(v).map(|a| c.tls.secure_address = Some(a)))),
    ("client.portUnification", Honoured(|c, v| flag(v).map(|on| c.tls.port_unification = on))),
    // Changed files are always read again.
    ("client.certReload", Honoured(|_, v| flag(v).map(drop))),
    ("ssl.keyStore.location", Honoured(|c, v| location(key_store(c), v))),
    ("ssl.keyStore.password", Honoured(|c, v| password(key_store(c), v))),
    ("ssl.keyStore.passwordPath", Honoured(|c, v| password_path(key_store(c), v))),
    ("ssl.keyStore.type", Honoured(|c, v| kind(key_store(c), v))),
    ("ssl.trustStore.location", Honoured(|c, v| location(trust_store(c), v))),
    ("ssl.trustStore.password", Honoured(|c, v| password(trust_store(c), v))),
    ("ssl.trustStore.passwordPath", Honoured(|c, v| password_path(trust_store(c), v))),
    ("ssl.trustStore.type", Honoured(|c, v| kind(trust_store(c), v))),
    ("ssl.protocol", Honoured(|c, v| Versions::parse(v).map(|v| c.tls.settings.version = Some(v)))),
    (
        "ssl.enabledProtocols",
        Honoured(|c, v| Versions::parse(v).map(|v| c.tls.settings.enabled_versions = Some(v))),
    ),
    (
        "ssl.ciphersuites",
        Honoured(|c, v| CipherSuites::parse(v).map(|suites| c.tls.settings.cipher_suites = suites)),
    ),
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
        Honoured(|c, v| {
            c.tls.settings.revocation_lists = (!v.is_empty()).then(|| v.into());
            Ok(())
        }),
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
    ("ssl.sslProvider", NoEffect("TLS is rustls's")),
    ("ssl.context.supplier.class", Unprotected(always, JAVA_CLASS)),
];

fn key_store(config: &mut Config) -> &mut StoreSettings {
    &mut config.tls.settings.key_store
}

fn trust_store(config: &mut Config) -> &mut StoreSettings {
    &mut config.tls.settings.trust_store
}

fn location(store: &mut StoreSettings, value: &str) -> Result<(), String> {
    store.location = (!value.is_empty()).then(|| value.into());
    Ok(())
}

fn password(store: &mut StoreSettings, value: &str) -> Result<(), String> {
    store.password = value.to_owned().into();
    Ok(())
}

fn password_path(store: &mut StoreSettings, value: &str) -> Result<(), String> {
    store.password_path = (!value.is_empty()).then(|| value.into());
    Ok(())
}

fn kind(store: &mut StoreSettings, value: &str) -> Result<(), String> {
    store.kind = if value.is_empty() { None } else { Some(StoreKind::parse(value)?) };
    Ok(())
}
