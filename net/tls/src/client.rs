//! The settings of a client that speaks TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::sign::SingleCertAndKey;

use crate::{Error, StoreSettings};

const KEY_STORE: &str = "the key store";
const TRUST_STORE: &str = "the trust store";

/// How a client speaks TLS: whom it trusts, and who it is. TLS 1.3 and 1.2 are offered.
///
/// A server's certificate has to name the host of the connection string that it is reached by: a name or an
/// address among its alternative names; a common name alone does not do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// The certificates by which servers are verified.
    pub trust_store: StoreSettings,
    /// The client's private key and certificates, for servers that ask for them.
    pub key_store: StoreSettings,
}

impl ClientSettings {
    /// A client that trusts the authorities in a file (`.pem`, `.p12` or `.jks`), without a certificate of
    /// its own.
    pub fn trusting(trust_store: impl Into<PathBuf>) -> Self {
        Self { trust_store: StoreSettings::at(trust_store), ..Self::default() }
    }

    /// With the private key and the certificates in a file (`.pem`, `.p12` or `.jks`).
    #[must_use]
    pub fn with_key_store(self, key_store: impl Into<PathBuf>) -> Self {
        Self { key_store: StoreSettings::at(key_store), ..self }
    }

    /// With a file that has the password of both stores. One line end after it does not belong to it.
    #[must_use]
    pub fn with_password_file(mut self, file: impl Into<PathBuf>) -> Self {
        let file = file.into();
        self.trust_store.password_path = Some(file.clone());
        self.key_store.password_path = Some(file);
        self
    }

    /// The files whose changes ask for another [`Self::load`].
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.key_store.files().chain(self.trust_store.files())
    }

    /// Reads the stores.
    ///
    /// # Errors
    /// There is no trust store, or a store cannot be read or holds something else.
    pub fn load(&self) -> Result<ClientConfig, Error> {
        let Some(mut trusted) = self.trust_store.open(TRUST_STORE)? else {
            let reason = "is missing: name a file with the certificates by which servers are verified";
            return Err(Error::setting(TRUST_STORE, reason));
        };
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("ring has suites of both versions")
            .with_root_certificates(trusted.take_roots()?);
        let mut config = match self.key_store.open(KEY_STORE)? {
            None => builder.with_no_client_auth(),
            Some(mut store) => {
                let identity = store.take_identity()?;
                let key = identity.certified(&provider).map_err(|reason| store.unusable(&reason))?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
            }
        };
        // Nobody would look at a certificate again.
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}
