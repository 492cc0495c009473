//! TLS between the core and the socket: one session a connection.

use std::path::Path;

pub(super) use ringkeeper_tls::ClientSession as Session;
pub(crate) use ringkeeper_tls::ClientSettings;
use ringkeeper_tls::Stores;
use ringkeeper_tls::rustls::ClientConfig;

use crate::core::Loss;
use crate::{Error, Result};

/// How a client speaks TLS: what was read from the files of its settings.
pub(crate) struct Security(Stores<ClientConfig>);

impl Security {
    pub(crate) fn load(settings: ClientSettings) -> Result<Self> {
        let files = settings.files().map(Path::to_owned).collect();
        let stores = Stores::open(files, move || settings.load());
        stores.map(Self).map_err(|error| Error::Tls(error.to_string()))
    }

    /// A session with the server that is reached by this name or address. Files that have changed are read
    /// first; if they cannot be used, the last ones stay.
    pub(super) fn session(&self, host: &str) -> Result<Session, Loss> {
        if let Err(error) = self.0.reload_changed() {
            tracing::warn!(%error, "the changed files cannot be used, the last ones stay");
        }
        Session::new(self.0.config(), host).map_err(|reason| Loss::Dial(format!("TLS with {host}: {reason}")))
    }
}
