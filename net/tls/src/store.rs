//! Files with keys and certificates, in the formats that ZooKeeper reads.

use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::{Error, Password};

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
    /// The files that it is read from.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.location.as_deref().into_iter().chain(self.password_path.as_deref())
    }

    /// Opens the store, which the setting `key` names.
    pub(crate) fn open(&self, key: &'static str) -> Result<Option<Store<'_>>, Error> {
        let Some(path) = self.location.as_deref() else { return Ok(None) };
        let fail = |reason: String| Err(Error::File { key, path: path.to_owned(), reason });
        match self.kind.or_else(|| StoreKind::of_extension(path)) {
            Some(StoreKind::Pem) => {}
            Some(kind) => return fail(kind.conversion(path)),
            None => {
                return fail("its name does not end with .pem: set the type beside the location".to_owned());
            }
        }
        match std::fs::read(path) {
            Ok(bytes) => Ok(Some(Store { key, path, bytes })),
            Err(error) => fail(format!("cannot be read: {error}")),
        }
    }
}

impl StoreKind {
    /// What to type to get a store that can be read.
    fn conversion(self, path: &Path) -> String {
        let path = path.display();
        match self {
            Self::Pem => String::new(),
            Self::Pkcs12 => format!(
                "PKCS12 cannot be read yet: `openssl pkcs12 -in {path} -nodes -out store.pem` makes it PEM"
            ),
            Self::Jks => format!(
                "JKS cannot be read yet: `keytool -importkeystore -srckeystore {path} -destkeystore \
                 store.p12 -deststoretype PKCS12`, then `openssl pkcs12 -in store.p12 -nodes -out \
                 store.pem` make it PEM"
            ),
            Self::Bcfks => format!(
                "BCFKS cannot be read: `keytool -importkeystore -srckeystore {path} -srcstoretype BCFKS \
                 -providerclass org.bouncycastle.jcajce.provider.BouncyCastleFipsProvider \
                 -destkeystore store.p12 -deststoretype PKCS12` converts it"
            ),
        }
    }
}

/// The contents of a store's file.
pub(crate) struct Store<'a> {
    key: &'static str,
    path: &'a Path,
    bytes: Vec<u8>,
}

impl Store<'_> {
    /// The private key and its certificates.
    pub(crate) fn identity(&self) -> Result<Identity, Error> {
        let key = PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|error| match error {
            pem::Error::NoItemsFound => self.unusable("holds no private key"),
            error => self.unusable(&format!("its private key cannot be read: {error}")),
        })?;
        let chain = self.certificates()?;
        Ok(Identity { key, chain })
    }

    /// All certificates, at least one.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        let certificates = CertificateDer::pem_slice_iter(&self.bytes).collect::<Result<Vec<_>, _>>();
        let certificates =
            certificates.map_err(|error| self.unusable(&format!("a certificate cannot be read: {error}")))?;
        if certificates.is_empty() {
            return Err(self.unusable("holds no certificate"));
        }
        Ok(certificates)
    }

    pub(crate) fn unusable(&self, reason: &str) -> Error {
        Error::File { key: self.key, path: self.path.to_owned(), reason: reason.to_owned() }
    }
}
