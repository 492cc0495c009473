//! What the settings of clients' ports and of links between servers have in common.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{ConfigBuilder, ConfigSide, RootCertStore, WantsVerifier, WantsVersions};

use crate::der::SEQUENCE;
use crate::store::{in_words, read};
use crate::{CipherSuites, Error, Party, StoreSettings, Versions};

/// The length of a file with lists of revoked certificates, at most: about a million entries.
const LISTS_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// What a server shows, whom it trusts, and what it offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The server's private key and certificates.
    pub key_store: StoreSettings,
    /// The certificates by which those at other ends are verified.
    pub trust_store: StoreSettings,
    /// A file with lists of revoked certificates, PEM or DER. With it, a valid list is needed for each
    /// certificate of a chain.
    pub revocation_lists: Option<PathBuf>,
    /// The newest version (`protocol`), which is the only one unless `enabled_versions` has others.
    pub version: Option<Versions>,
    /// The versions that are offered (`enabledProtocols`).
    pub enabled_versions: Option<Versions>,
    /// The cipher suites that are offered.
    pub cipher_suites: CipherSuites,
}

impl Settings {
    /// The files whose changes ask for reading them again.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let stores = self.key_store.files().chain(self.trust_store.files());
        stores.chain(self.revocation_lists.as_deref())
    }

    /// The server's key and certificates.
    pub(crate) fn own_key(
        &self,
        party: Party,
        provider: &CryptoProvider,
    ) -> Result<Arc<SingleCertAndKey>, Error> {
        let Some(mut store) = self.key_store.open(party.key_store())? else {
            let reason = "is missing: name a file with the server's private key and certificates";
            return Err(Error::setting(party.key_store(), reason));
        };
        let key = store.take_identity()?.certified(provider).map_err(|error| store.unusable(&error))?;
        Ok(Arc::new(key.into()))
    }

    /// The certificates by which the other end is verified, at least one; `without` says what else can be
    /// done.
    pub(crate) fn roots(&self, party: Party, without: &str) -> Result<Arc<RootCertStore>, Error> {
        let Some(mut store) = self.trust_store.open(party.trust_store())? else {
            let reason = format!(
                "is missing: name a file with the certificates by which {party}s are verified{without}"
            );
            return Err(Error::setting(party.trust_store(), reason));
        };
        Ok(Arc::new(store.take_roots()?))
    }

    /// Verifies the certificates of those who connect. One who shows none is refused if it is needed.
    pub(crate) fn client_verifier(
        &self,
        party: Party,
        roots: Arc<RootCertStore>,
        provider: Arc<CryptoProvider>,
        is_needed: bool,
    ) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
        let verifier = if is_needed { verifier } else { verifier.allow_unauthenticated() };
        let verifier = verifier.with_crls(self.read_revocation_lists(party)?).enforce_revocation_expiration();
        verifier.build().map_err(|error| match (error, &self.revocation_lists) {
            (VerifierBuilderError::InvalidCrl(error), Some(path)) => Error::file(
                party.revocation_lists(),
                path,
                format!("a list cannot be read ({error:?}): it has to be of version 2, with a number"),
            ),
            (error, _) => Error::setting(party.trust_store(), error.to_string()),
        })
    }

    pub(crate) fn read_revocation_lists(
        &self,
        party: Party,
    ) -> Result<Vec<CertificateRevocationListDer<'static>>, Error> {
        let Some(path) = &self.revocation_lists else { return Ok(Vec::new()) };
        let unusable = |reason: String| Error::file(party.revocation_lists(), path, reason);
        let bytes =
            read(path, LISTS_BYTES_MAX).map_err(|error| unusable(format!("cannot be read: {error}")))?;
        if bytes.first() == Some(&SEQUENCE) {
            return Ok(vec![bytes.into()]);
        }
        let lists = CertificateRevocationListDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
        let lists = lists.map_err(|error| unusable(in_words(&error)))?;
        if lists.is_empty() {
            return Err(unusable("holds no list of revoked certificates (X509 CRL)".to_owned()));
        }
        Ok(lists)
    }

    /// Begins the configuration of one side with the versions that are offered.
    pub(crate) fn offer<S: ConfigSide>(
        &self,
        party: Party,
        builder: ConfigBuilder<S, WantsVersions>,
        by_default: &Versions,
    ) -> Result<ConfigBuilder<S, WantsVerifier>, Error> {
        let versions = self.enabled_versions.as_ref().or(self.version.as_ref()).unwrap_or(by_default);
        builder.with_protocol_versions(versions.as_slice()).map_err(|_| {
            let reason = format!("has no suite of a version in {}enabledProtocols", party.prefix());
            Error::setting(party.cipher_suites(), reason)
        })
    }
}
