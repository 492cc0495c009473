//! TLS between the generator and servers that the harness starts: which of them speak it.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Result;
use ringkeeper_testkit::{SERVER_NAME, Socket, TlsFiles};
use ringkeeper_tls::rustls::ClientConfig;

/// What clients connect with to the servers that speak TLS.
static SECURED: RwLock<BTreeMap<SocketAddr, Arc<ClientConfig>>> = RwLock::new(BTreeMap::new());

/// Certificates for servers, and for the generator.
pub(crate) struct Tls {
    files: TlsFiles,
    config: Arc<ClientConfig>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let files = TlsFiles::new(&[])?;
        let config = files.client_config("generator")?;
        Ok(Arc::new(Self { files, config }))
    }

    /// Lines of the servers' configuration.
    pub(crate) fn server_settings(&self) -> String {
        self.files.server_settings()
    }
}

/// From now on the server at this address speaks TLS with the generator, or does not.
pub(crate) fn announce(server: SocketAddr, tls: Option<&Arc<Tls>>) {
    let mut secured = SECURED.write().unwrap_or_else(PoisonError::into_inner);
    match tls {
        Some(tls) => secured.insert(server, Arc::clone(&tls.config)),
        None => secured.remove(&server),
    };
}

/// The generator's end of a connection to a server.
pub(crate) fn on(tcp: TcpStream, server: SocketAddr) -> io::Result<Socket> {
    let secured = SECURED.read().unwrap_or_else(PoisonError::into_inner);
    match secured.get(&server) {
        Some(config) => Socket::secured(tcp, Arc::clone(config), SERVER_NAME),
        None => Ok(tcp.into()),
    }
}
