//! TLS between the generator and servers: which of them speak it.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Result;
use ringkeeper_testkit::{SERVER_NAME, Socket, TlsFiles};
use ringkeeper_tls::rustls::ClientConfig;

/// What clients connect with to the servers that speak TLS.
static SECURED: RwLock<BTreeMap<SocketAddr, Secured>> = RwLock::new(BTreeMap::new());

struct Secured {
    config: Arc<ClientConfig>,
    /// The name or address that its certificate has to bear.
    host: String,
}

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

/// From now on the server at this address, which the harness starts, speaks TLS with the generator, or does
/// not.
pub(crate) fn announce(server: SocketAddr, tls: Option<&Arc<Tls>>) {
    match tls {
        Some(tls) => secure(server, SERVER_NAME, Arc::clone(&tls.config)),
        None => drop(SECURED.write().unwrap_or_else(PoisonError::into_inner).remove(&server)),
    }
}

/// From now on the server at this address speaks TLS with the generator, with a certificate for `host`.
pub(crate) fn secure(server: SocketAddr, host: &str, config: Arc<ClientConfig>) {
    let secured = Secured { config, host: host.to_owned() };
    SECURED.write().unwrap_or_else(PoisonError::into_inner).insert(server, secured);
}

/// The generator's end of a connection to a server.
pub(crate) fn on(tcp: TcpStream, server: SocketAddr) -> io::Result<Socket> {
    let secured = SECURED.read().unwrap_or_else(PoisonError::into_inner);
    match secured.get(&server) {
        Some(Secured { config, host }) => Socket::secured(tcp, Arc::clone(config), host),
        None => Ok(tcp.into()),
    }
}
