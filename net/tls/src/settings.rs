//! What the settings of clients' ports and of links between servers have in common.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::sign::SingleCertAndKey;
use rustls::{ConfigBuilder, ConfigSide, RootCertStore, WantsVerifier, WantsVersions};

use crate::{CipherSuites, Error, Party, StoreSettings, Versions};

/// What a server shows, whom it trusts, and what it offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The server's private key and certificates.
    pub key_store: StoreSettings,
    /// The certificates by which those at other ends are verified.
    pub trust_store: StoreSettings,
    /// The newest version (`protocol`), which is the only one unless `enabled_versions` has others.
    pub version: Option<Versions>,
    /// The versions that are offered (`enabledProtocols`).
    pub enabled_versions: Option<Versions>,
    /// The cipher suites that are offered.
    pub cipher_suites: CipherSuites,
}

impl Settings {
    /// The files whose changes ask for reading them again.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.key_store.files().chain(self.trust_store.files())
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
