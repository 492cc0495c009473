//! Who is at the other end of a connection.

use std::fmt;

use jiff::Timestamp;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, InvalidMessage};

/// Whom a server speaks TLS with. Decides which keys the settings have, and what messages say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// A client: `ssl.*`.
    Client,
    /// Another server of the ensemble: `ssl.quorum.*`.
    Peer,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Peer => "peer",
        })
    }
}

impl Party {
    /// What the keys of its settings begin with.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Client => "ssl.",
            Self::Peer => "ssl.quorum.",
        }
    }

    /// The setting that names the key store.
    #[must_use]
    pub const fn key_store(self) -> &'static str {
        match self {
            Self::Client => "ssl.keyStore.location",
            Self::Peer => "ssl.quorum.keyStore.location",
        }
    }

    pub(crate) const fn trust_store(self) -> &'static str {
        match self {
            Self::Client => "ssl.trustStore.location",
            Self::Peer => "ssl.quorum.trustStore.location",
        }
    }

    /// Names the file with lists of revoked certificates, a setting that ZooKeeper does not have.
    #[must_use]
    pub const fn revocation_lists(self) -> &'static str {
        match self {
            Self::Client => "ringkeeper.ssl.crlFile",
            Self::Peer => "ringkeeper.ssl.quorum.crlFile",
        }
    }

    pub(crate) const fn cipher_suites(self) -> &'static str {
        match self {
            Self::Client => "ssl.ciphersuites",
            Self::Peer => "ssl.quorum.ciphersuites",
        }
    }

    /// Why a handshake with it failed and, where the operator can do something about it, what.
    #[must_use]
    pub fn explain(self, error: &rustls::Error) -> String {
        let what = self.outdated(error).unwrap_or_else(|| error.to_string());
        match self.remedy(error) {
            Some(remedy) => format!("{what}: {remedy}"),
            None => what,
        }
    }

    /// What is not valid at this time. In rustls' words that differs each second, and a log that says what
    /// has changed would say it each time.
    fn outdated(self, error: &rustls::Error) -> Option<String> {
        let rustls::Error::InvalidCertificate(error) = error else { return None };
        Some(match error {
            CertificateError::ExpiredContext { not_after, .. } => {
                format!("the {self}'s certificate, or that of an issuer, expired at {}", in_words(*not_after))
            }
            CertificateError::NotValidYetContext { not_before, .. } => {
                let from = in_words(*not_before);
                format!("the {self}'s certificate, or that of an issuer, is valid from {from} on")
            }
            CertificateError::ExpiredRevocationListContext { next_update, .. } => {
                format!("a list of revoked certificates expired at {}", in_words(*next_update))
            }
            _ => return None,
        })
    }

    fn remedy(self, error: &rustls::Error) -> Option<String> {
        let (prefix, lists) = (self.prefix(), self.revocation_lists());
        Some(match error {
            rustls::Error::NoCertificatesPresented => match self {
                Self::Client => {
                    "give the client a certificate, or serve those without (ssl.clientAuth=want)".to_owned()
                }
                Self::Peer => "a server needs a certificate (ssl.quorum.keyStore.location)".to_owned(),
            },
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                format!("add the issuer of the {self}'s certificate to {prefix}trustStore.location")
            }
            rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ) => format!("the {self} needs a new certificate"),
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            ) => "compare the clocks of both machines".to_owned(),
            rustls::Error::InvalidCertificate(CertificateError::Revoked) => {
                format!("{lists} lists the {self}'s certificate, or that of an issuer")
            }
            rustls::Error::InvalidCertificate(CertificateError::UnknownRevocationStatus) => {
                format!("add the list of the issuer, and those of the issuer's issuers, to {lists}")
            }
            rustls::Error::InvalidCertificate(
                CertificateError::ExpiredRevocationList
                | CertificateError::ExpiredRevocationListContext { .. },
            ) => format!("replace the issuer's list in {lists} by a new one"),
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => match self {
                Self::Client => {
                    "the client does not speak TLS: have it connect with TLS, or to clientPort".to_owned()
                }
                Self::Peer => {
                    "the peer does not speak TLS: give it sslQuorum=true, or take both for the time of \
                               an upgrade (portUnification=true)"
                        .to_owned()
                }
            },
            rustls::Error::PeerIncompatible(_) => format!(
                "the {self} offers no version or cipher suite of {prefix}enabledProtocols and \
                 {prefix}ciphersuites"
            ),
            rustls::Error::AlertReceived(AlertDescription::UnknownCA) => format!(
                "the {self} does not trust the certificate in {prefix}keyStore.location, or its list of revoked \
                 certificates has expired: its log says which"
            ),
            rustls::Error::AlertReceived(AlertDescription::BadCertificate) => {
                format!("the {self} does not trust the certificate in {prefix}keyStore.location")
            }
            rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
                format!("this server needs a new certificate in {prefix}keyStore.location")
            }
            error => self.unusual_certificate(error)?,
        })
    }

    /// What to do about a certificate that Java would take.
    fn unusual_certificate(self, error: &rustls::Error) -> Option<String> {
        let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else { return None };
        match other.to_string().as_str() {
            "UnsupportedCertVersion" => Some(format!(
                "the {self} needs a certificate of X.509 version 3 (`openssl x509 -req` makes one with -extfile)"
            )),
            "CaUsedAsEndEntity" => Some(format!(
                "the {self} shows an authority's certificate: it needs its own (basicConstraints=CA:FALSE)"
            )),
            _ => None,
        }
    }
}

fn in_words(time: UnixTime) -> String {
    let seconds = time.as_secs();
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| format!("{seconds} s after 1970"), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_not_valid_at_a_time_is_said_in_the_same_words_a_second_later() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let limit = at(1_795_960_800);
        for error in [
            |time, not_after| CertificateError::ExpiredContext { time, not_after },
            |time, not_before| CertificateError::NotValidYetContext { time, not_before },
            |time, next_update| CertificateError::ExpiredRevocationListContext { time, next_update },
        ] {
            let [said, later] = [1_795_961_125, 1_795_961_126]
                .map(|now| Party::Peer.explain(&rustls::Error::InvalidCertificate(error(at(now), limit))));
            assert!(said == later && said.contains("2026-11-29T14:00:00Z"), "{said}, {later}");
        }
    }
}
