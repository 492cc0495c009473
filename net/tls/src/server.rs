//! The settings of a port that serves TLS.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};

use crate::{Error, Party, Settings, Versions};

/// What a port that serves TLS is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSettings {
    /// Stores, lists of revoked certificates, versions and cipher suites.
    pub common: Settings,
    /// Whether clients show certificates.
    pub client_auth: ClientAuth,
    /// Whether a client's certificate has to name the address that it comes from.
    pub client_hostname_verification: bool,
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
        self.common.files()
    }

    /// Reads the stores. They are named by the keys of `party`.
    ///
    /// # Errors
    /// A store is missing, cannot be read, or holds something else; versions and cipher suites do not fit.
    pub fn load(&self, party: Party) -> Result<ServerConfig, Error> {
        let provider = Arc::new(self.common.cipher_suites.provider());
        let key = self.common.own_key(party, &provider)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = self.common.offer(party, builder, &Versions::newest())?;
        let builder = builder.with_client_cert_verifier(self.client_verifier(party, provider)?);
        Ok(without_resumption(builder.with_cert_resolver(key)))
    }

    fn client_verifier(
        &self,
        party: Party,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        if self.client_auth == ClientAuth::None {
            return Ok(WebPkiClientVerifier::no_client_auth());
        }
        let without = match party {
            Party::Client => ", or let them come without any (ssl.clientAuth=none)",
            Party::Peer => "",
        };
        let roots = self.common.roots(party, without)?;
        self.common.client_verifier(party, roots, provider, self.client_auth == ClientAuth::Need)
    }
}

/// Sessions are not resumed: a resumed session would go on with a certificate that has expired or was revoked
/// meanwhile.
pub(crate) fn without_resumption(mut config: ServerConfig) -> ServerConfig {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}
