//! Protocol versions and cipher suites by the names that Java and OpenSSL have for them.

use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, SupportedProtocolVersion};

/// The versions that are offered (`ssl.protocol`, `ssl.enabledProtocols`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions(Vec<&'static SupportedProtocolVersion>);

impl Versions {
    /// TLS 1.3 alone: what ZooKeeper offers to clients unless it is told otherwise.
    #[must_use]
    pub fn newest() -> Self {
        Self(vec![&TLS13])
    }

    /// All that are safe.
    pub(crate) fn all() -> Self {
        Self(vec![&TLS13, &TLS12])
    }

    /// Reads Java's names, separated by commas; `TLS` stands for all that are safe.
    ///
    /// # Errors
    /// A name is unknown, or a version that is not safe.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut versions = Vec::new();
        for name in names(text) {
            let named: &[&SupportedProtocolVersion] = match name {
                "TLS" => &[&TLS13, &TLS12],
                "TLSv1.3" => &[&TLS13],
                "TLSv1.2" => &[&TLS12],
                "TLSv1.1" | "TLSv1" | "SSLv3" | "SSLv2" | "SSLv2Hello" | "SSL" => {
                    return Err(format!("{name} is broken and not offered: name TLSv1.2, TLSv1.3 or both"));
                }
                _ => return Err(format!("{name:?} is no version of TLS: there are TLSv1.2 and TLSv1.3")),
            };
            versions.extend(named.iter().filter(|version| !versions.contains(*version)).collect::<Vec<_>>());
        }
        if versions.is_empty() {
            return Err("no version is named: there are TLSv1.2 and TLSv1.3".to_owned());
        }
        Ok(Self(versions))
    }

    pub(crate) fn as_slice(&self) -> &[&'static SupportedProtocolVersion] {
        &self.0
    }
}

/// The cipher suites that are offered (`ssl.ciphersuites`); by default all that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CipherSuites {
    /// In the order of preference; empty for all.
    chosen: Vec<CipherSuite>,
    /// Suites that were asked for, are known and are not safe enough to be offered.
    pub left_out: Vec<String>,
}

/// Each suite with Java's name and OpenSSL's.
const SUITES: [(CipherSuite, &str, &str); 9] = [
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    (
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
    ),
];

impl CipherSuites {
    /// Reads names of Java or OpenSSL, separated by commas, the preferred one first.
    ///
    /// # Errors
    /// A name is unknown, or none of the suites is offered.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut suites = Self::default();
        for name in names(text) {
            match SUITES.iter().find(|(_, java, openssl)| *java == name || *openssl == name) {
                Some((suite, ..)) => suites.chosen.push(*suite),
                None if is_obsolete(name) => suites.left_out.push(name.to_owned()),
                None => return Err(format!("{name:?} is no cipher suite; there are {}", offered())),
            }
        }
        if suites.chosen.is_empty() {
            return Err(format!("none of these cipher suites is offered; there are {}", offered()));
        }
        Ok(suites)
    }

    /// The cryptography with these suites alone.
    pub(crate) fn provider(&self) -> CryptoProvider {
        let mut provider = ring::default_provider();
        if !self.chosen.is_empty() {
            let all = std::mem::take(&mut provider.cipher_suites);
            let chosen = self.chosen.iter();
            provider.cipher_suites = chosen
                .filter_map(|suite| all.iter().find(|known| known.suite() == *suite).copied())
                .collect();
        }
        provider
    }
}

/// Whether a suite that we do not offer is one of Java's or OpenSSL's: without forward secrecy, or encrypted
/// and authenticated apart.
fn is_obsolete(name: &str) -> bool {
    let java = ["TLS_RSA_WITH_", "TLS_DHE_", "TLS_DH_", "TLS_ECDH_", "SSL_"];
    let openssl = ["AES128-", "AES256-", "DHE-", "ECDH-", "CAMELLIA"];
    java.iter().chain(&openssl).any(|prefix| name.starts_with(prefix))
        || name.starts_with("TLS_") && name.contains("_CBC_")
        || name.starts_with("ECDHE-")
            && (name.ends_with("-SHA") || name.contains("AES") && !name.contains("GCM"))
}

fn offered() -> String {
    SUITES.map(|(_, java, _)| java).join(", ")
}

/// ZooKeeper does not trim the names, so that a blank makes its start fail; here it means nothing.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ':']).map(str::trim).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_javas_names_and_broken_ones_are_refused() {
        assert_eq!(Versions::parse("TLSv1.3"), Ok(Versions::newest()));
        assert_eq!(Versions::parse("TLSv1.2, TLSv1.3,TLSv1.2"), Ok(Versions(vec![&TLS12, &TLS13])));
        assert_eq!(Versions::parse("TLS"), Ok(Versions(vec![&TLS13, &TLS12])));
        for (text, word) in [("TLSv1.2,TLSv1.1", "TLSv1.1 is broken"), ("tls13", "no version"), ("", "named")]
        {
            assert!(Versions::parse(text).expect_err(text).contains(word), "{text}");
        }
    }

    #[test]
    fn cipher_suites_have_the_names_of_java_and_openssl() {
        for (suite, java, openssl) in SUITES {
            for name in [java, openssl] {
                let suites = CipherSuites::parse(name).expect(name);
                let offered = suites.provider().cipher_suites;
                assert_eq!(offered.iter().map(|suite| suite.suite()).collect::<Vec<_>>(), [suite], "{name}");
            }
        }
        assert_eq!(CipherSuites::default().provider().cipher_suites.len(), SUITES.len());
    }

    #[test]
    fn obsolete_suites_are_left_out_and_unknown_ones_refused() {
        let text = "TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256,AES128-SHA";
        let suites = CipherSuites::parse(text).expect("one is offered");
        assert_eq!(suites.left_out, ["TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA"]);
        for (text, word) in
            [("TLS_AES_128_GCM_SHA265", "no cipher suite"), ("AES128-SHA", "none of"), ("", "none of")]
        {
            assert!(CipherSuites::parse(text).expect_err(text).contains(word), "{text}");
        }
    }
}
