//! Elliptic-curve keys as Java writes them: without the public key, which ring asks for.

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::der::{Element, OCTETS, SEQUENCE, encoded};
use crate::name::fields;

const EC_PUBLIC_KEY: &str = "1.2.840.10045.2.1";

/// The tag of the public key in an ECPrivateKey (RFC 5915).
const PUBLIC_KEY: u8 = 0xa1;

/// The key, with the public key of its certificate where that is missing.
pub(crate) fn completed(
    key: PrivateKeyDer<'static>,
    certificate: &CertificateDer<'_>,
) -> PrivateKeyDer<'static> {
    let info = match &key {
        PrivateKeyDer::Pkcs8(info) => with_public_key(info.secret_pkcs8_der(), certificate),
        _ => None,
    };
    info.map_or(key, |info| PrivatePkcs8KeyDer::from(info).into())
}

/// `None` if nothing is missing, or the key is of another kind.
fn with_public_key(info: &[u8], certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let mut parts = Element::first(info)?.inside();
    let (version, algorithm) = (parts.next()?, parts.next()?);
    let mut key = Element::first(parts.value_of(OCTETS)?)?.inside();
    let (key_version, secret) = (key.next()?, key.value_of(OCTETS)?);
    if algorithm.inside().next()?.identifier()? != EC_PUBLIC_KEY || key.any(|part| part.tag == PUBLIC_KEY) {
        return None;
    }
    // Behind serial number, algorithm, issuer, validity and subject.
    let public = fields(certificate)?.nth(5)?.inside().nth(1)?;
    // Of two coordinates as long as the secret, whose zeros in front Java 8 leaves out.
    let secret_len = public.value.len().saturating_sub(2) / 2;
    let zeros = vec![0; secret_len.saturating_sub(secret.len())];
    let secret = encoded(OCTETS, &[&zeros, secret]);
    let key = encoded(SEQUENCE, &[key_version.whole, &secret, &encoded(PUBLIC_KEY, &[public.whole])]);
    Some(encoded(SEQUENCE, &[version.whole, algorithm.whole, &encoded(OCTETS, &[&key])]))
}
