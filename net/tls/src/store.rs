//! Files with keys and certificates, in the formats that ZooKeeper reads.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};

use crate::decryption::Decryption;
use crate::der::Element;
use crate::{Error, Password, elliptic, jks, pkcs12};

/// The length of a store, at most: twenty times that of all authorities of the web.
const STORE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Where keys or certificates are (`ssl.keyStore.*`, `ssl.trustStore.*`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSettings {
    /// The file.
    pub location: Option<PathBuf>,
    /// What opens it, unless `password_path` names a file.
    pub password: Password,
    /// A file with the password.
    pub password_path: Option<PathBuf>,
    /// Its format; by default that of its extension.
    pub kind: Option<StoreKind>,
}

/// The format of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Text, with a private key, certificates, or both.
    Pem,
    /// Java's old format.
    Jks,
    /// Java's and OpenSSL's format.
    Pkcs12,
    /// Bouncy Castle's format.
    Bcfks,
}

/// A private key, and the certificates that prove it: its own first.
pub(crate) struct Identity {
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) chain: Vec<CertificateDer<'static>>,
}

impl Identity {
    /// What TLS signs with, if the certificate is the key's.
    pub(crate) fn certified(self, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
        let unusable = |error| format!("key and certificate cannot be used: {error}");
        let Self { key, chain } = self;
        let key = match chain.first() {
            Some(own) => elliptic::completed(key, own),
            None => key,
        };
        let key = CertifiedKey::new(chain, provider.key_provider.load_private_key(key).map_err(unusable)?);
        // Certificates of X.509 version 1 cannot be parsed; peers that take them are served all the same.
        match key.keys_match() {
            Err(error @ rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                Err(unusable(error))
            }
            _ => Ok(key),
        }
    }
}

impl StoreKind {
    /// Reads ZooKeeper's name for it.
    ///
    /// # Errors
    /// There is no such format.
    pub fn parse(name: &str) -> Result<Self, String> {
        match name.to_ascii_uppercase().as_str() {
            "PEM" => Ok(Self::Pem),
            "JKS" => Ok(Self::Jks),
            "PKCS12" => Ok(Self::Pkcs12),
            "BCFKS" => Ok(Self::Bcfks),
            _ => Err(format!("{name:?} is no format of a store: there are PEM, PKCS12 and JKS")),
        }
    }

    fn of_extension(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "pem" => Some(Self::Pem),
            "jks" => Some(Self::Jks),
            "p12" => Some(Self::Pkcs12),
            "bcfks" => Some(Self::Bcfks),
            _ => None,
        }
    }
}

impl StoreSettings {
    /// A store in this file, without a password.
    pub fn at(location: impl Into<PathBuf>) -> Self {
        Self { location: Some(location.into()), ..Self::default() }
    }

    /// The files that it is read from.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.location.as_deref().into_iter().chain(self.password_path.as_deref())
    }

    /// Opens the store, which the setting `key` names.
    pub(crate) fn open(&self, key: &'static str) -> Result<Option<Store<'_>>, Error> {
        let Some(path) = self.location.as_deref() else { return Ok(None) };
        let contents = self.contents(path);
        let contents = contents.map_err(|reason| Error::file(key, path, reason))?;
        Ok(Some(Store { key, path, contents }))
    }

    fn contents(&self, path: &Path) -> Result<Contents, String> {
        let kind = self
            .kind
            .or_else(|| StoreKind::of_extension(path))
            .ok_or("its name ends with none of .pem, .p12 and .jks: set the type beside the location")?;
        if kind == StoreKind::Bcfks {
            return Err(format!(
                "BCFKS cannot be read: `keytool -importkeystore -srckeystore {} -srcstoretype BCFKS \
                 -providerclass org.bouncycastle.jcajce.provider.BouncyCastleFipsProvider \
                 -destkeystore store.p12 -deststoretype PKCS12` converts it",
                path.display()
            ));
        }
        let bytes = read(path, STORE_BYTES_MAX).map_err(|error| format!("cannot be read: {error}"))?;
        let Some(path) = &self.password_path else { return Contents::read(kind, &bytes, &self.password) };
        let password = read_password(path)
            .map_err(|error| format!("its password in {} cannot be read: {error}", path.display()))?;
        Contents::read(kind, &bytes, &password).map_err(|reason| {
            match password.reveal().contains(['\n', '\r']) {
                true => format!(
                    "{reason}; {} has line ends in it: it is to hold the password alone",
                    path.display()
                ),
                false => reason,
            }
        })
    }
}

/// The contents of a store.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) identities: Vec<Identity>,
    /// Those by which others are verified.
    pub(crate) trusted: Vec<CertificateDer<'static>>,
}

impl Contents {
    /// Reads a store of a format other than BCFKS.
    pub(crate) fn read(kind: StoreKind, bytes: &[u8], password: &Password) -> Result<Self, String> {
        match kind {
            StoreKind::Pem => read_pem(bytes, password.reveal()),
            // Java reads either format by either name, and writes PKCS12 into files of both.
            _ if bytes.starts_with(&jks::MAGIC) => jks::read(bytes, password.reveal()),
            _ => pkcs12::read(bytes, password.reveal()),
        }
    }

    /// Adds a key. Its own certificate is trusted, as in Java; those of its issuers are not.
    pub(crate) fn add(&mut self, identity: Identity) {
        self.trusted.extend(identity.chain.first().cloned());
        self.identities.push(identity);
    }
}

/// A store that was opened.
pub(crate) struct Store<'a> {
    key: &'static str,
    path: &'a Path,
    contents: Contents,
}

impl Store<'_> {
    /// The private key and its certificates.
    pub(crate) fn take_identity(&mut self) -> Result<Identity, Error> {
        let mut identities = std::mem::take(&mut self.contents.identities).into_iter();
        match (identities.next(), identities.len()) {
            (None, _) => Err(self.unusable("holds no private key")),
            (Some(identity), 0) if identity.chain.is_empty() => {
                Err(self.unusable("holds no certificate for its private key"))
            }
            (Some(identity), 0) => Ok(identity),
            (Some(_), others) => Err(self.unusable(&format!(
                "holds {} private keys: leave one (`keytool -delete -alias NAME` removes one)",
                others + 1
            ))),
        }
    }

    /// The certificates by which others are verified, at least one.
    pub(crate) fn take_roots(&mut self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in self.take_trusted()? {
            let added = roots.add(certificate);
            added.map_err(|error| self.unusable(&format!("a certificate cannot be read: {error}")))?;
        }
        Ok(roots)
    }

    fn take_trusted(&mut self) -> Result<Vec<CertificateDer<'static>>, Error> {
        if self.contents.trusted.is_empty() {
            return Err(self.unusable(
                "holds no certificate to trust (`keytool -importcert` adds one to a store of Java's)",
            ));
        }
        Ok(std::mem::take(&mut self.contents.trusted))
    }

    pub(crate) fn unusable(&self, reason: &str) -> Error {
        Error::file(self.key, self.path, reason)
    }
}

/// Reads a file, unless it is too long.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it is longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// As in ZooKeeper, one line end does not belong to it. Here, that may be one of Windows, too.
fn read_password(path: &Path) -> io::Result<Password> {
    let text =
        String::from_utf8(read(path, STORE_BYTES_MAX)?).map_err(|_| io::Error::other("it is not UTF-8"))?;
    let line = text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n'));
    Ok(line.unwrap_or(&text).to_owned().into())
}

/// A key takes all certificates, and all are trusted.
fn read_pem(bytes: &[u8], password: &str) -> Result<Contents, String> {
    let certificates = CertificateDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>();
    // Finds what is wrong with other blocks, too.
    let certificates = certificates.map_err(|error| in_words(&error))?;
    let key = match PrivateKeyDer::from_pem_slice(bytes) {
        Ok(key) => Some(key),
        Err(pem::Error::NoItemsFound) => encrypted_key(bytes, password)?,
        Err(error) => return Err(format!("its private key cannot be read: {error}")),
    };
    let identities = key.map(|key| Identity { key, chain: certificates.clone() });
    Ok(Contents { identities: identities.into_iter().collect(), trusted: certificates })
}

/// What is wrong with a PEM file. The reader's own words have bytes as numbers, and may tell a key.
pub(crate) fn in_words(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            let block = String::from_utf8_lossy(end_marker);
            format!("ends in the middle of its {block}: copy the whole file, up to -----END {block}-----")
        }
        pem::Error::IllegalSectionStart { .. } => "has a line -----BEGIN without ----- at its end".to_owned(),
        pem::Error::Base64Decode(_) => "has a damaged block: copy the file anew".to_owned(),
        error => format!("is no PEM file: {error}"),
    }
}

/// The private key of a PEM file that needs a password.
fn encrypted_key(bytes: &[u8], password: &str) -> Result<Option<PrivateKeyDer<'static>>, String> {
    const LABEL: &str = "ENCRYPTED PRIVATE KEY";
    let text = String::from_utf8_lossy(bytes);
    if !text.contains(LABEL) {
        return Ok(None);
    }
    // The reader of PEM knows no label of encrypted keys, and does not look at what a section holds.
    let relabelled = text.replace(LABEL, "PRIVATE KEY");
    let unusable =
        |reason: &dyn std::fmt::Display| format!("its private key cannot be decrypted: it {reason}");
    let info = PrivatePkcs8KeyDer::from_pem_slice(relabelled.as_bytes())
        .map_err(|error| format!("its private key cannot be read: {error}"))?;
    let info = Element::first(info.secret_pkcs8_der()).ok_or_else(|| unusable(&"is damaged"))?;
    let key = Decryption::with(password).private_key(info).map_err(|reason| unusable(&reason))?;
    Ok(Some(PrivatePkcs8KeyDer::from(key).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(location: impl Into<PathBuf>, password: &str) -> StoreSettings {
        let password = password.to_owned().into();
        StoreSettings { location: Some(location.into()), password, ..StoreSettings::default() }
    }

    fn stored(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
    }

    fn opened(settings: &StoreSettings) -> Store<'_> {
        settings.open("ssl.keyStore.location").expect("opened").expect("a location")
    }

    fn reason(settings: &StoreSettings) -> String {
        settings.open("ssl.keyStore.location").err().expect("refused").to_string()
    }

    #[test]
    fn keys_are_opened_by_their_password_and_fit_their_certificate() {
        let folder = tempfile::tempdir().expect("a folder");
        let password = folder.path().join("password");
        std::fs::write(&password, "changeit\n").expect("written");
        for (name, subject) in [
            ("key.jks", "CN=server"),
            ("key.p12", "CN=server"),
            ("key-java8.p12", "CN=server"),
            ("key-openssl.p12", "CN=server"),
            ("key.pem", "CN=server"),
        ] {
            let settings = settings(stored(name), "wrong");
            assert!(reason(&settings).contains("has another password, or is damaged"), "{name}");
            let settings = StoreSettings { password_path: Some(password.clone()), ..settings };
            let identity = opened(&settings).take_identity().expect(name);
            assert_eq!(crate::subject(&identity.chain[0]).as_deref(), Some(subject), "{name}");
            let provider = rustls::crypto::ring::default_provider();
            assert!(identity.certified(&provider).expect(name).keys_match().is_ok(), "{name}");
        }
    }

    #[test]
    fn one_line_end_does_not_belong_to_a_password_and_several_are_told_of() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let password_path = Some(file.path().to_owned());
        for name in ["key.jks", "key.p12", "key.pem"] {
            let settings =
                StoreSettings { password_path: password_path.clone(), ..settings(stored(name), "") };
            for text in ["changeit", "changeit\n", "changeit\r\n"] {
                std::fs::write(file.path(), text).expect("written");
                assert!(opened(&settings).take_identity().is_ok(), "{name}: {text:?}");
            }
            for text in
                ["changeit\n\n", "changeit\r\n\r\n", "changeit\n\r\n", "changeit\r", "# of Java's\nchangeit"]
            {
                std::fs::write(file.path(), text).expect("written");
                let reason = reason(&settings);
                let hint = format!("{} has line ends in it", file.path().display());
                assert!(reason.contains("has another password") && reason.contains(&hint), "{reason}");
            }
            std::fs::write(file.path(), "wrong\n").expect("written");
            assert!(!reason(&settings).contains("line ends"), "{name}");
        }
    }

    #[test]
    fn what_is_trusted_is_marked_or_a_keys_own_certificate() {
        for (name, trusted) in [
            ("trust.jks", &["CN=server"][..]),
            ("trust.p12", &["CN=server"]),
            ("both.p12", &["CN=leaf", "CN=friend"]),
        ] {
            let settings = settings(stored(name), "changeit");
            let certificates = opened(&settings).take_trusted().expect(name);
            let subjects: Vec<_> = certificates.iter().filter_map(crate::subject).collect();
            assert_eq!(subjects, trusted, "{name}");
        }
        let settings = settings(stored("both.p12"), "changeit");
        let chain = opened(&settings).take_identity().expect("a key").chain;
        let subjects: Vec<_> = chain.iter().filter_map(crate::subject).collect();
        assert_eq!(subjects, ["CN=leaf", "CN=ca"]);
    }

    #[test]
    fn a_stores_format_is_that_of_its_type_or_its_extension() {
        let pem = StoreSettings { kind: Some(StoreKind::Pem), ..settings(stored("trust.p12"), "changeit") };
        assert!(opened(&pem).take_trusted().is_err());
        for (name, kind) in [("key.p12", StoreKind::Jks), ("key.jks", StoreKind::Pkcs12)] {
            let settings = StoreSettings { kind: Some(kind), ..settings(stored(name), "changeit") };
            assert!(opened(&settings).take_identity().is_ok(), "{name}");
        }
        for (path, remedy) in [
            ("store.bcfks", "keytool -importkeystore"),
            ("store.key", "set the type"),
            ("no.pem", "cannot be read"),
        ] {
            assert!(reason(&settings(path, "")).contains(remedy), "{path}");
        }
    }

    #[test]
    fn a_pem_file_that_was_cut_is_refused_with_the_block_that_has_no_end() {
        let bytes = std::fs::read(stored("key.pem")).expect("there");
        for (file, reason) in [
            (&bytes[..bytes.len() - 30], "ends in the middle of its CERTIFICATE: copy the whole file"),
            (b"-----BEGIN CERTIFICATE\n", "has a line -----BEGIN without -----"),
        ] {
            let said = read_pem(file, "changeit").err().expect("refused");
            assert!(said.starts_with(reason), "{said}");
        }
    }

    #[test]
    fn damaged_stores_are_refused() {
        let password = "changeit".to_owned().into();
        for name in ["key.jks", "key.p12", "both.p12", "trust.p12"] {
            let bytes = std::fs::read(stored(name)).expect(name);
            for at in (0..bytes.len()).step_by(13) {
                assert!(
                    Contents::read(StoreKind::Jks, &bytes[..at], &password).is_err(),
                    "{name} cut at {at}"
                );
                let mut flipped = bytes.clone();
                flipped[at] ^= 0x10;
                // Some bytes say nothing, such as the parameter of a hash.
                let _ = Contents::read(StoreKind::Jks, &flipped, &password);
            }
        }
    }
}
