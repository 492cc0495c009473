//! PKCS12 stores (RFC 7292), as Java's keytool and OpenSSL write them.
//!
//! ```text
//! PFX: version 3; ContentInfo: data: AuthenticatedSafe; MacData, over the bytes of AuthenticatedSafe
//! AuthenticatedSafe: ContentInfo, each of them data or encrypted data: SafeBags
//! SafeBag: kind; key, encrypted key or certificate; attributes, by which a key's certificate is found
//! ```

use ring::{digest, hmac};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use crate::decryption::{Decryption, Purpose, damaged, unknown, wrong};
use crate::der::{Element, Elements, OCTETS, SEQUENCE};
use crate::name::parties;
use crate::store::{Contents, Identity};

/// `[0]`, with elements inside, and with bytes inside.
const EXPLICIT: u8 = 0xa0;
const IMPLICIT: u8 = 0x80;

const DATA: &str = "1.2.840.113549.1.7.1";
const ENCRYPTED_DATA: &str = "1.2.840.113549.1.7.6";
const KEY_BAG: &str = "1.2.840.113549.1.12.10.1.1";
const ENCRYPTED_KEY_BAG: &str = "1.2.840.113549.1.12.10.1.2";
const CERTIFICATE_BAG: &str = "1.2.840.113549.1.12.10.1.3";
const X509: &str = "1.2.840.113549.1.9.22.1";
const LOCAL_KEY_ID: &str = "1.2.840.113549.1.9.21";
/// Java's mark of a certificate that is trusted, and is not there for a key's sake alone.
const TRUSTED_KEY_USAGE: &str = "2.16.840.1.113894.746875.1.1";

/// Keys in a store, and certificates in a chain, at most: a store with one key is asked for, and a chain has
/// three or four. They bound what a made-up store makes us copy.
const KEYS_MAX: usize = 16;
const CHAIN_MAX: usize = 32;

/// A private key, and the id by which its certificate is found.
type Key = (Option<Vec<u8>>, PrivatePkcs8KeyDer<'static>);

struct Certificate {
    der: CertificateDer<'static>,
    key_id: Option<Vec<u8>>,
    is_trusted: bool,
}

/// Keys and certificates in the order of the store.
#[derive(Default)]
struct Bags {
    keys: Vec<Key>,
    certificates: Vec<Certificate>,
}

/// Opens a store.
pub(crate) fn read(bytes: &[u8], password: &str) -> Result<Contents, String> {
    let mut decryption = Decryption::with(password);
    let store = Element::first(bytes).filter(|store| store.tag == SEQUENCE && store.whole == bytes);
    let mut parts = store.ok_or("is neither PKCS12 nor JKS, or is cut off")?.inside();
    if parts.next().and_then(Element::number) != Some(3) {
        return Err("is no PKCS12 store of version 3".to_owned());
    }
    let (kind, safes) = parts.next().and_then(content).ok_or_else(damaged)?;
    if kind != DATA {
        return Err(unknown("kind of contents", &kind));
    }
    // Without one, Java takes the store, too.
    if let Some(code) = parts.next() {
        authenticate(safes.value, code, &mut decryption)?;
    }
    let mut bags = Bags::default();
    for safe in elements(Element::first(safes.value).ok_or_else(damaged)?.value)? {
        let (kind, content) = content(safe).ok_or_else(damaged)?;
        match kind.as_str() {
            DATA => bags.read(content.value, &mut decryption)?,
            ENCRYPTED_DATA => {
                let mut parts = content.inside().nth(1).ok_or_else(damaged)?.inside().skip(1);
                let (algorithm, data) = parts.next().zip(parts.next()).ok_or_else(damaged)?;
                if data.tag != IMPLICIT {
                    return Err(damaged());
                }
                bags.read(&decryption.open(algorithm, data.value)?, &mut decryption)?;
            }
            _ => return Err(unknown("kind of contents", &kind)),
        }
    }
    Ok(bags.matched())
}

/// Checks the message authentication code over the contents.
fn authenticate(contents: &[u8], code: Element<'_>, decryption: &mut Decryption<'_>) -> Result<(), String> {
    let mut parts = code.inside();
    let (digest_info, salt) = parts.next().zip(parts.value_of(OCTETS)).ok_or_else(damaged)?;
    let rounds = parts.next().map_or(Some(1), Element::number).ok_or_else(damaged)?;
    let mut parts = digest_info.inside();
    let kind =
        parts.next().and_then(|algorithm| algorithm.inside().next()?.identifier()).ok_or_else(damaged)?;
    let tag = parts.value_of(OCTETS).ok_or_else(damaged)?;
    let (hash, mac) = match kind.as_str() {
        "1.3.14.3.2.26" => (&digest::SHA1_FOR_LEGACY_USE_ONLY, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        "2.16.840.1.101.3.4.2.1" => (&digest::SHA256, hmac::HMAC_SHA256),
        "2.16.840.1.101.3.4.2.2" => (&digest::SHA384, hmac::HMAC_SHA384),
        "2.16.840.1.101.3.4.2.3" => (&digest::SHA512, hmac::HMAC_SHA512),
        _ => return Err(unknown("authentication code", &kind)),
    };
    let key = decryption.pkcs12_key(hash, Purpose::Authentication, salt, rounds, hash.output_len())?;
    hmac::verify(&hmac::Key::new(mac, &key), contents, tag).map_err(|_| wrong())
}

impl Bags {
    /// Takes what `safe_contents` holds; kinds of bags that are not needed are passed over.
    fn read(&mut self, safe_contents: &[u8], decryption: &mut Decryption<'_>) -> Result<(), String> {
        let bags = Element::first(safe_contents).ok_or_else(damaged)?;
        for bag in elements(bags.value)? {
            let (kind, value) = content(bag).ok_or_else(damaged)?;
            let attribute = |id: &str| attribute(bag, id);
            let key_id = attribute(LOCAL_KEY_ID).map(|id| id.value.to_vec());
            if self.keys.len() > KEYS_MAX {
                return Err(format!("holds more than {KEYS_MAX} private keys"));
            }
            match kind.as_str() {
                KEY_BAG => self.keys.push((key_id, value.whole.to_vec().into())),
                ENCRYPTED_KEY_BAG => self.keys.push((key_id, decryption.private_key(value)?.into())),
                CERTIFICATE_BAG => {
                    let (kind, der) = content(value).ok_or_else(damaged)?;
                    if kind == X509 {
                        let is_trusted = attribute(TRUSTED_KEY_USAGE).is_some();
                        let der = der.value.to_vec().into();
                        self.certificates.push(Certificate { der, key_id, is_trusted });
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives each key its certificate and those of the issuers.
    fn matched(self) -> Contents {
        let mut contents = Contents::default();
        for (id, key) in &self.keys {
            let own = self.certificates.iter().find(|own| id.is_some() && own.key_id == *id);
            let chain = own.map(|own| self.chain(&own.der)).unwrap_or_default();
            contents.add(Identity { key: key.clone_key().into(), chain });
        }
        let trusted = self.certificates.into_iter().filter(|certificate| certificate.is_trusted);
        contents.trusted.extend(trusted.map(|certificate| certificate.der));
        contents
    }

    /// A certificate, its issuer's, and so on, each of them once.
    fn chain(&self, own: &CertificateDer<'static>) -> Vec<CertificateDer<'static>> {
        let mut chain = vec![own.clone()];
        while let Some(issuer) = chain.last().and_then(|last| self.issuer_of(last)) {
            if chain.contains(issuer) || chain.len() == CHAIN_MAX {
                break;
            }
            chain.push(issuer.clone());
        }
        chain
    }

    fn issuer_of(&self, certificate: &CertificateDer<'_>) -> Option<&CertificateDer<'static>> {
        let issuer = parties(certificate)?.issuer.value;
        let mut all = self.certificates.iter().map(|certificate| &certificate.der);
        all.find(|other| parties(other).is_some_and(|other| other.subject.value == issuer))
    }
}

/// What all containers of PKCS12 are: a kind, and `[0]` with one element in it.
fn content(container: Element<'_>) -> Option<(String, Element<'_>)> {
    let mut parts = container.inside();
    parts.next()?.identifier().zip(Element::first(parts.value_of(EXPLICIT)?))
}

/// The first value of a bag's attribute.
fn attribute<'a>(bag: Element<'a>, id: &str) -> Option<Element<'a>> {
    let mut attributes = bag.inside().nth(2)?.inside();
    attributes.find_map(|attribute| {
        let mut parts = attribute.inside();
        (parts.next()?.identifier()? == id).then(|| parts.next()?.inside().next())?
    })
}

/// The elements of `bytes`, in which nothing else may be.
fn elements(bytes: &[u8]) -> Result<Vec<Element<'_>>, String> {
    let mut elements = Elements(bytes);
    let all = elements.by_ref().collect();
    if elements.0.is_empty() { Ok(all) } else { Err(damaged()) }
}
