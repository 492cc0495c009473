//! Java's old key store (JKS), as `sun.security.provider.JavaKeyStore` writes it. Numbers are big-endian.
//!
//! ```text
//! feedfeed, version 2, number of entries: 4 bytes each
//! entry: kind (1 key, 2 certificate): 4; name: 2 + n; time: 8; then
//!   key: 4 + n, protected; number of certificates: 4; certificates
//!   certificate: type "X.509": 2 + n; DER: 4 + n
//! SHA-1 of password, "Mighty Aphrodite" and all bytes before
//! ```
//!
//! A protected key is an EncryptedPrivateKeyInfo, whose data is a salt, the key under a stream of SHA-1, and
//! a SHA-1 of password and key. The password is UTF-16 everywhere.

use ring::digest::{Context, Digest, SHA1_FOR_LEGACY_USE_ONLY, SHA1_OUTPUT_LEN};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use crate::der::Element;
use crate::store::{Contents, Identity};

pub(crate) const MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];

const VERSION: u32 = 2;
const KEY: u32 = 1;
const CERTIFICATE: u32 = 2;

/// Opens a store.
pub(crate) fn read(bytes: &[u8], password: &str) -> Result<Contents, String> {
    let password: Vec<u8> = password.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let damaged = || "is damaged".to_owned();
    let (body, digest) = bytes.split_last_chunk::<SHA1_OUTPUT_LEN>().ok_or_else(damaged)?;
    if sha1(&[&password, b"Mighty Aphrodite", body]).as_ref() != digest {
        return Err("has another password, or is damaged".to_owned());
    }
    let mut reader = Reader(body.strip_prefix(&MAGIC).ok_or_else(damaged)?);
    if reader.number().ok_or_else(damaged)? != VERSION {
        return Err("is of a version that Java has not written since 1.2".to_owned());
    }
    let mut contents = Contents::default();
    for _ in 0..reader.number().ok_or_else(damaged)? {
        let kind = reader.number().ok_or_else(damaged)?;
        reader.name().and_then(|_| reader.take(8)).ok_or_else(damaged)?;
        match kind {
            CERTIFICATE => contents.trusted.push(reader.certificate().ok_or_else(damaged)?),
            KEY => {
                let protected = reader.bytes().ok_or_else(damaged)?;
                let count = reader.number().ok_or_else(damaged)?;
                let chain = (0..count).map(|_| reader.certificate()).collect::<Option<_>>();
                let chain = chain.ok_or_else(damaged)?;
                let key = unprotected(protected, &password).ok_or("has a key with another password")?;
                contents.add(Identity { key: PrivatePkcs8KeyDer::from(key).into(), chain });
            }
            _ => return Err(damaged()),
        }
    }
    Ok(contents)
}

/// The key, in PKCS#8. `None` if it has another password.
fn unprotected(info: &[u8], password: &[u8]) -> Option<Vec<u8>> {
    let data = Element::first(info)?.inside().nth(1)?.value;
    let (salt, rest) = data.split_first_chunk::<SHA1_OUTPUT_LEN>()?;
    let (hidden, digest) = rest.split_last_chunk::<SHA1_OUTPUT_LEN>()?;
    let mut block = salt.to_vec();
    let mut key = hidden.to_vec();
    for part in key.chunks_mut(SHA1_OUTPUT_LEN) {
        block = sha1(&[password, &block]).as_ref().to_vec();
        part.iter_mut().zip(&block).for_each(|(byte, mask)| *byte ^= mask);
    }
    (sha1(&[password, &key]).as_ref() == digest).then_some(key)
}

fn sha1(parts: &[&[u8]]) -> Digest {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    parts.iter().for_each(|part| context.update(part));
    context.finish()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(len as usize)
    }

    fn name(&mut self) -> Option<&'a [u8]> {
        let len = u16::from_be_bytes(self.take(2)?.try_into().ok()?);
        self.take(len.into())
    }

    fn certificate(&mut self) -> Option<CertificateDer<'static>> {
        self.name()?;
        Some(self.bytes()?.to_vec().into())
    }
}
