//! Handshakes: their bytes go through the shard's executor, their cryptography through threads of its own,
//! since one signature takes longer than a shard may be held.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringkeeper_engine::acl::spiffe_trust_domain;
use ringkeeper_runtime::reactor::env::Reactor;
use ringkeeper_runtime::reactor::tcp::TcpStream;
use ringkeeper_runtime::tls::{self, StartError, TlsConnection};
use ringkeeper_tls::rustls::pki_types::CertificateDer;
use ringkeeper_tls::rustls::{Connection, ServerConfig, ServerConnection};
use ringkeeper_tls::{Party, Stores, bears_name};

use crate::config::TlsConfig;
use crate::server::helper::Helper;

/// How long a handshake may take, as in ZooKeeper.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// One thread for handshakes for so many cores.
const CORES_PER_THREAD: usize = 4;

/// Does the handshakes of the connections of all shards.
pub(crate) struct TlsAcceptor {
    stores: Arc<Stores<ServerConfig>>,
    /// Whether a client's certificate has to name the address that it comes from.
    verifies_address: bool,
    /// The trust domains whose SPIFFE ids are identities.
    spiffe_trust_domains: Vec<String>,
    /// Handshakes under way, at most.
    at_once_max: u64,
    helper: Helper,
    counters: Counters,
}

/// Figures for `mntr`.
#[derive(Debug, Default)]
struct Counters {
    under_way: AtomicU64,
    failed: AtomicU64,
    exceeded: AtomicU64,
}

/// Why a connection is closed at its handshake.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error(transparent)]
    Handshake(#[from] tls::HandshakeError),
    #[error("{0} handshakes are under way, netty.server.outstandingHandshake.limit allows no more")]
    Exceeded(u64),
    #[error(
        "the client's certificate does not name its address, which ssl.clientHostnameVerification asks for"
    )]
    WrongAddress,
    #[error("the subject of the client's certificate cannot be read")]
    Subject,
    #[error(
        "the client's certificate has to have no SPIFFE id, or one, of a trust domain in \
         ringkeeper.ssl.spiffeTrustDomains, and no other URI beside it: it has {0:?}"
    )]
    Spiffe(Vec<String>),
}

/// A handshake under way; counted until this is dropped.
struct UnderWay<'a>(&'a Counters);

impl TlsAcceptor {
    /// Reads the stores and starts the threads, if a port speaks TLS. To be called before executors are
    /// pinned.
    ///
    /// # Errors
    /// A store cannot be used, or the system refuses another thread.
    pub(crate) fn start(config: &TlsConfig, cores: usize) -> Result<Option<Arc<Self>>, StartError> {
        if !config.is_served() {
            return Ok(None);
        }
        let settings = config.settings.clone();
        let files = settings.files().map(Path::to_owned).collect();
        let acceptor = Self {
            stores: Arc::new(Stores::open(files, move || settings.load(Party::Client))?),
            verifies_address: config.settings.client_hostname_verification,
            spiffe_trust_domains: config.spiffe_trust_domains.clone(),
            at_once_max: config.handshakes_max.map_or(u64::MAX, u64::from),
            helper: Helper::start("tls-handshake", cores.div_ceil(CORES_PER_THREAD).max(1))?,
            counters: Counters::default(),
        };
        Ok(Some(Arc::new(acceptor)))
    }

    /// Handshakes under way, failed, and refused since too many were under way.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let Counters { under_way, failed, exceeded } = &self.counters;
        [under_way, failed, exceeded].map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Does the handshake of a connection from `peer`. Returns the connection, and the id of the
    /// client's certificate if it has shown one. Bytes are read through `buffer`, which is borrowed only
    /// while there are some.
    ///
    /// # Errors
    /// The client is refused, went away or was too slow. It has been told, as far as it can be.
    pub(crate) async fn accept(
        &self,
        tcp: TcpStream,
        peer: SocketAddr,
        buffer: &RefCell<Box<[u8]>>,
    ) -> Result<(TlsConnection<TcpStream>, Option<String>), HandshakeError> {
        let outcome = match self.begin() {
            Ok(_under_way) => self.handshake(tcp, peer, buffer).await,
            Err(error) => Err(error),
        };
        let counter = match &outcome {
            Ok(_) => return outcome,
            Err(HandshakeError::Exceeded(_)) => &self.counters.exceeded,
            Err(_) => &self.counters.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        outcome
    }

    /// Reads changed stores again, for as long as the server runs.
    pub(crate) fn reload(&self) -> impl Future<Output = ()> + use<> {
        tls::reload::<Reactor, _, _>(
            Arc::clone(&self.stores),
            tls::reloaded(Party::Client),
            self.helper.clone(),
        )
    }

    fn begin(&self) -> Result<UnderWay<'_>, HandshakeError> {
        let before = self.counters.under_way.fetch_add(1, Ordering::Relaxed);
        let under_way = UnderWay(&self.counters);
        if before < self.at_once_max { Ok(under_way) } else { Err(HandshakeError::Exceeded(before)) }
    }

    async fn handshake(
        &self,
        tcp: TcpStream,
        peer: SocketAddr,
        buffer: &RefCell<Box<[u8]>>,
    ) -> Result<(TlsConnection<TcpStream>, Option<String>), HandshakeError> {
        let session = ServerConnection::new(self.stores.config()).map(Connection::from);
        let connection = tls::handshake(session, tcp, Party::Client, &self.helper, buffer, PATIENCE).await?;
        // A client that shows no certificate, and need not, is not asked for its name either.
        let Some(certificate) = connection.certificate() else { return Ok((connection, None)) };
        if self.verifies_address && !bears_name(certificate, &peer.ip().to_canonical().to_string()) {
            return Err(HandshakeError::WrongAddress);
        }
        let id = self.id(certificate)?;
        Ok((connection, Some(id)))
    }

    /// The id of the scheme `x509`. A certificate with a SPIFFE id is not known by its subject, which
    /// platforms give to all programs alike.
    fn id(&self, certificate: &CertificateDer<'_>) -> Result<String, HandshakeError> {
        if !self.spiffe_trust_domains.is_empty() {
            let uris = ringkeeper_tls::uris(certificate).ok_or(HandshakeError::Subject)?;
            let is_known = |id: &str| {
                let domain = spiffe_trust_domain(id);
                domain.is_some_and(|domain| self.spiffe_trust_domains.iter().any(|known| known == domain))
            };
            match &*uris {
                [id] if is_known(id) => return Ok(id.clone()),
                uris if uris.iter().any(|uri| uri.to_ascii_lowercase().starts_with("spiffe:")) => {
                    return Err(HandshakeError::Spiffe(uris.to_vec()));
                }
                _ => {}
            }
        }
        ringkeeper_tls::subject(certificate).ok_or(HandshakeError::Subject)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
