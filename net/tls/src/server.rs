//! The settings of a port that serves TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;

use crate::der::SEQUENCE;
use crate::store::read;
use crate::{CipherSuites, Error, StoreSettings, Versions};

const KEY_STORE: &str = "ssl.keyStore.location";
const TRUST_STORE: &str = "ssl.trustStore.location";
const REVOCATION_LISTS: &str = "ringkeeper.ssl.crlFile";

/// The length of a file with lists of revoked certificates, at most: about a million entries.
const LISTS_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// What a port that serves TLS is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSettings {
    /// The server's private key and certificates.
    pub key_store: StoreSettings,
    /// The certificates by which clients are verified.
    pub trust_store: StoreSettings,
    /// A file with lists of revoked certificates, PEM or DER. With it, a valid list is needed for each
    /// certificate of a client's chain.
    pub revocation_lists: Option<PathBuf>,
    /// Whether clients show certificates.
    pub client_auth: ClientAuth,
    /// Whether a client's certificate has to name the address that it comes from.
    pub client_hostname_verification: bool,
    /// The newest version (`ssl.protocol`), which is the only one unless `enabled_versions` has others.
    pub version: Option<Versions>,
    /// The versions that are offered (`ssl.enabledProtocols`).
    pub enabled_versions: Option<Versions>,
    /// The cipher suites that are offered.
    pub cipher_suites: CipherSuites,
}

/// Whether clients show certificates (`ssl.clientAuth`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked for one.
    None,
    /// One that is shown is verified; a client without one is served, too.
    Want,
    /// A client without one is refused.
    #[default]
    Need,
}

impl ClientAuth {
    /// Reads ZooKeeper's word for it.
    ///
    /// # Errors
    /// It is another word.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "none" => Ok(Self::None),
            "want" => Ok(Self::Want),
            "need" => Ok(Self::Need),
            _ => Err(format!("{text:?} is none of need, want and none")),
        }
    }
}

impl ServerSettings {
    /// The files whose changes ask for another [`Self::load`].
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let stores = self.key_store.files().chain(self.trust_store.files());
        stores.chain(self.revocation_lists.as_deref())
    }

    /// Reads the stores. Sessions are not resumed: a resumed session would go on with a certificate that has
    /// expired or was revoked meanwhile.
    ///
    /// # Errors
    /// A store is missing, cannot be read, or holds something else; versions and cipher suites do not fit.
    pub fn load(&self) -> Result<ServerConfig, Error> {
        let Some(mut store) = self.key_store.open(KEY_STORE)? else {
            let reason = "is missing: name a file with the server's private key and certificates";
            return Err(Error::setting(KEY_STORE, reason));
        };
        let identity = store.take_identity()?;
        let provider = Arc::new(self.cipher_suites.provider());
        let newest = Versions::newest();
        let versions = self.enabled_versions.as_ref().or(self.version.as_ref()).unwrap_or(&newest);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions.as_slice())
            .map_err(|_| {
                Error::setting("ssl.ciphersuites", "has no suite of a version in ssl.enabledProtocols")
            })?;
        let key = identity.certified(&provider).map_err(|error| store.unusable(&error))?;
        let mut config = builder
            .with_client_cert_verifier(self.client_verifier(provider)?)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn client_verifier(&self, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        if self.client_auth == ClientAuth::None {
            return Ok(WebPkiClientVerifier::no_client_auth());
        }
        let Some(mut store) = self.trust_store.open(TRUST_STORE)? else {
            let reason = "is missing: name a file with the certificates by which clients are verified, or \
                          let them come without any (ssl.clientAuth=none)";
            return Err(Error::setting(TRUST_STORE, reason));
        };
        let roots = Arc::new(store.take_roots()?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
        let verifier = match self.client_auth {
            ClientAuth::Want => verifier.allow_unauthenticated(),
            ClientAuth::Need | ClientAuth::None => verifier,
        };
        let verifier = verifier.with_crls(self.revocation_lists()?).enforce_revocation_expiration();
        verifier.build().map_err(|error| match (error, &self.revocation_lists) {
            (VerifierBuilderError::InvalidCrl(error), Some(path)) => Error::file(
                REVOCATION_LISTS,
                path,
                format!("a list cannot be read ({error:?}): it has to be of version 2, with a number"),
            ),
            (error, _) => store.unusable(&error.to_string()),
        })
    }

    fn revocation_lists(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, Error> {
        let Some(path) = &self.revocation_lists else { return Ok(Vec::new()) };
        let unusable = |reason: String| Error::file(REVOCATION_LISTS, path, reason);
        let bytes =
            read(path, LISTS_BYTES_MAX).map_err(|error| unusable(format!("cannot be read: {error}")))?;
        if bytes.first() == Some(&SEQUENCE) {
            return Ok(vec![bytes.into()]);
        }
        let lists = CertificateRevocationListDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
        let lists = lists.map_err(|error| unusable(format!("a list cannot be read: {error}")))?;
        if lists.is_empty() {
            return Err(unusable("holds no list of revoked certificates (X509 CRL)".to_owned()));
        }
        Ok(lists)
    }
}
