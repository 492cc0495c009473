//! Options for TLS, of every command that speaks it.

use std::path::PathBuf;

use ringkeeper_client::TlsSettings;

/// TLS, which a trust store asks for.
#[derive(Clone, Debug, clap::Args)]
pub struct TlsArgs {
    /// Speak TLS with servers whose certificates these authorities have signed (.pem, .p12, .jks)
    #[arg(long, value_name = "FILE", env = "RINGKEEPER_TLS_TRUST_STORE")]
    tls_trust_store: Option<PathBuf>,
    /// The private key and certificates to show to servers (.pem, .p12, .jks)
    #[arg(long, value_name = "FILE", env = "RINGKEEPER_TLS_KEY_STORE", requires = "tls_trust_store")]
    tls_key_store: Option<PathBuf>,
    /// A file with the password of both stores
    #[arg(long, value_name = "FILE", env = "RINGKEEPER_TLS_PASSWORD_FILE", requires = "tls_trust_store")]
    tls_password_file: Option<PathBuf>,
}

impl TlsArgs {
    /// The settings, if a trust store is named.
    #[must_use]
    pub fn settings(&self) -> Option<TlsSettings> {
        let mut settings = TlsSettings::trusting(self.tls_trust_store.clone()?);
        if let Some(file) = &self.tls_key_store {
            settings = settings.with_key_store(file);
        }
        if let Some(file) = &self.tls_password_file {
            settings = settings.with_password_file(file);
        }
        Some(settings)
    }
}
