//! TLS of the admin listener, by the stores of the links between servers, as in ZooKeeper.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringkeeper_tls::rustls::ServerConfig;
use ringkeeper_tls::{ClientAuth, Error, Party, ServerSettings, Stores};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::Config;

/// How often the files of stores are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Does the handshakes of a port.
#[derive(Clone)]
pub(super) struct Acceptor(Arc<Stores<ServerConfig>>);

impl Acceptor {
    /// Reads the stores.
    ///
    /// # Errors
    /// They cannot be used.
    pub(super) fn open(config: &Config) -> Result<Self, Error> {
        let client_auth =
            if config.admin.needs_client_certificate { ClientAuth::Need } else { ClientAuth::None };
        let common = config.peer_tls.settings.0.clone();
        let settings = ServerSettings { common, client_auth, ..ServerSettings::default() };
        let files = settings.files().map(Path::to_owned).collect();
        Ok(Self(Arc::new(Stores::open(files, move || settings.load(Party::Peer))?)))
    }

    /// Does a handshake.
    ///
    /// # Errors
    /// One end refuses the other, or the connection ends.
    pub(super) async fn accept(&self, tcp: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.0.config()).accept(tcp).await
    }

    /// Reads changed stores again, for as long as the server runs.
    pub(super) async fn reload(self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.0.reload_changed() {
                Ok(true) => {
                    tracing::info!("the admin listener uses the keys and certificates that were changed")
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(
                        code = "RK0106",
                        %error,
                        "changed keys or certificates cannot be used, the last ones stay"
                    );
                }
            }
        }
    }
}
