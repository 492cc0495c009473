//! Handshakes: their bytes go through the shard's executor, their cryptography through threads of its own,
//! since one signature takes longer than a shard may be held.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_lite::future::or;
use futures_lite::{AsyncRead, AsyncWriteExt};
use glommio::net::TcpStream;
use ringkeeper_tls::rustls::client::verify_server_name;
use ringkeeper_tls::rustls::pki_types::ServerName;
use ringkeeper_tls::rustls::server::{ParsedCertificate, ServerConnection};
use ringkeeper_tls::rustls::{self, AlertDescription, CertificateError, InvalidMessage, ServerConfig};
use ringkeeper_tls::{Error, FileVersions, ServerSettings};

use super::connection::TlsConnection;
use crate::config::TlsConfig;
use crate::server::helper::Helper;

/// How long a handshake may take, as in ZooKeeper.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a handshake that are read at once.
const READ_BYTES: usize = 8 * 1024;

/// The first byte of a handshake's first record. As the first byte of a request's length it would announce
/// more than any request may have.
const HANDSHAKE_RECORD: u8 = 22;

/// How often the files of the stores are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One thread for handshakes for so many cores.
const CORES_PER_THREAD: usize = 4;

/// Does the handshakes of the connections of all shards.
pub(crate) struct TlsAcceptor {
    settings: ServerSettings,
    stores: Mutex<Stores>,
    /// Handshakes under way, at most.
    at_once_max: u64,
    helper: Helper,
    counters: Counters,
}

/// What was read from the stores, and the versions of their files.
struct Stores {
    config: Arc<ServerConfig>,
    versions: FileVersions,
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
    #[error("{0}")]
    Tls(String),
    #[error("the client closed the connection in the handshake")]
    Closed,
    #[error("the handshake took more than {} s", TIMEOUT.as_secs())]
    Timeout,
    #[error("{0} handshakes are under way, netty.server.outstandingHandshake.limit allows no more")]
    Exceeded(u64),
    #[error(
        "the client's certificate does not name its address, which ssl.clientHostnameVerification asks for"
    )]
    WrongAddress,
    #[error("the subject of the client's certificate cannot be read")]
    Subject,
    #[error(transparent)]
    Io(#[from] io::Error),
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
        let acceptor = Self {
            stores: Mutex::new(Stores::read(&config.settings)?),
            settings: config.settings.clone(),
            at_once_max: config.handshakes_max.map_or(u64::MAX, u64::from),
            helper: Helper::start("tls-handshake", cores.div_ceil(CORES_PER_THREAD).max(1))?,
            counters: Counters::default(),
        };
        Ok(Some(Arc::new(acceptor)))
    }

    /// Figures for `mntr`, by ZooKeeper's names.
    pub(crate) fn metrics(&self) -> [(&'static str, u64); 3] {
        let Counters { under_way, failed, exceeded } = &self.counters;
        [
            ("outstanding_tls_handshake", under_way.load(Ordering::Relaxed)),
            ("unsuccessful_handshake", failed.load(Ordering::Relaxed)),
            ("tls_handshake_exceeded", exceeded.load(Ordering::Relaxed)),
        ]
    }

    /// Does the handshake of a connection from `peer`. Returns the connection, and the subject of the
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
    ) -> Result<(TlsConnection, Option<String>), HandshakeError> {
        let outcome = match self.begin() {
            Ok(_under_way) => in_time(self.handshake(tcp, peer, buffer)).await,
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

    /// Reads the stores again whenever a file of theirs has changed, for the handshakes from then on, for as
    /// long as the server runs. Stores that cannot be used are logged, and the last ones stay.
    pub(crate) async fn reload(self: Arc<Self>) {
        loop {
            glommio::timer::sleep(LOOK_EVERY).await;
            let acceptor = Arc::clone(&self);
            self.helper.run(move || acceptor.reload_changed()).await;
        }
    }

    fn reload_changed(&self) {
        let versions = FileVersions::of(self.settings.files());
        if versions == self.stores().versions {
            return;
        }
        let read = Stores::read(&self.settings);
        let mut stores = self.stores();
        match read {
            Ok(read) => {
                *stores = read;
                tracing::info!("new TLS handshakes use the keys and certificates that were changed");
            }
            Err(error) => {
                stores.versions = versions;
                tracing::warn!(%error, "changed keys or certificates cannot be used, the last ones stay");
            }
        }
    }

    fn stores(&self) -> MutexGuard<'_, Stores> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> Result<UnderWay<'_>, HandshakeError> {
        let before = self.counters.under_way.fetch_add(1, Ordering::Relaxed);
        let under_way = UnderWay(&self.counters);
        if before < self.at_once_max { Ok(under_way) } else { Err(HandshakeError::Exceeded(before)) }
    }

    async fn handshake(
        &self,
        mut tcp: TcpStream,
        peer: SocketAddr,
        buffer: &RefCell<Box<[u8]>>,
    ) -> Result<(TlsConnection, Option<String>), HandshakeError> {
        let config = Arc::clone(&self.stores().config);
        let mut session = ServerConnection::new(config).map(Box::new).map_err(refused)?;
        while session.is_handshaking() {
            let received = poll_fn(|cx| {
                let mut buffer = buffer.borrow_mut();
                let read = Pin::new(&mut tcp).poll_read(cx, &mut buffer[..READ_BYTES]);
                read.map_ok(|bytes| buffer[..bytes].to_vec())
            });
            let received = received.await?;
            if received.is_empty() {
                return Err(HandshakeError::Closed);
            }
            let stepped = self.helper.run(move || step(session, &received)).await;
            let (outcome, reply);
            (session, outcome, reply) = stepped.ok_or(HandshakeError::Closed)?;
            let sent = tcp.write_all(&reply).await;
            if let Err(error) = outcome {
                // The client is told before the connection ends.
                let _ = tcp.close().await;
                return Err(refused(error));
            }
            sent?;
        }
        if self.settings.client_hostname_verification && !names_its_address(&session, peer) {
            return Err(HandshakeError::WrongAddress);
        }
        let certificate = session.peer_certificates().and_then(|chain| chain.first());
        let subject = certificate
            .map(|certificate| ringkeeper_tls::subject(certificate).ok_or(HandshakeError::Subject));
        let subject = subject.transpose()?;
        Ok((TlsConnection::new(tcp, session), subject))
    }
}

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Settings(#[from] Error),
    #[error("the threads for TLS handshakes cannot start: {0}")]
    Thread(#[from] io::Error),
}

impl Stores {
    /// The versions are those from before: a file that changes meanwhile is read again.
    fn read(settings: &ServerSettings) -> Result<Self, Error> {
        let versions = FileVersions::of(settings.files());
        Ok(Self { config: Arc::new(settings.load()?), versions })
    }
}

/// Whether a connection begins with a TLS handshake. Waits for its first byte, which stays to be read.
pub(super) async fn begins_handshake(tcp: &TcpStream) -> Result<bool, HandshakeError> {
    in_time(async {
        let mut first = [0];
        match tcp.peek(&mut first).await.map_err(io::Error::from)? {
            0 => Err(HandshakeError::Closed),
            _ => Ok(first == [HANDSHAKE_RECORD]),
        }
    })
    .await
}

async fn in_time<T>(step: impl Future<Output = Result<T, HandshakeError>>) -> Result<T, HandshakeError> {
    or(step, async {
        glommio::timer::sleep(TIMEOUT).await;
        Err(HandshakeError::Timeout)
    })
    .await
}

/// Lets the session have what was received. Returns it with the outcome, and the bytes to be sent.
fn step(
    mut session: Box<ServerConnection>,
    mut received: &[u8],
) -> (Box<ServerConnection>, Result<(), rustls::Error>, Vec<u8>) {
    let mut outcome = Ok(());
    while !received.is_empty() && outcome.is_ok() {
        outcome = match session.read_tls(&mut received) {
            Ok(_) => session.process_new_packets().map(drop),
            Err(error) => Err(rustls::Error::General(error.to_string())),
        };
    }
    let mut reply = Vec::new();
    while session.wants_write() && session.write_tls(&mut reply).is_ok() {}
    (session, outcome, reply)
}

/// Whether the client's certificate has the address that it comes from. One that shows no certificate, and
/// need not, passes.
fn names_its_address(session: &ServerConnection, peer: SocketAddr) -> bool {
    let Some(certificate) = session.peer_certificates().and_then(|chain| chain.first()) else { return true };
    let name = ServerName::IpAddress(peer.ip().to_canonical().into());
    ParsedCertificate::try_from(certificate).is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
}

/// What is wrong and, where the operator can do something about it, what.
fn refused(error: rustls::Error) -> HandshakeError {
    let remedy = match &error {
        rustls::Error::NoCertificatesPresented => {
            "give the client a certificate, or serve those without (ssl.clientAuth=want)"
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "add the issuer of the client's certificate to ssl.trustStore.location"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "the client needs a new certificate",
        rustls::Error::InvalidCertificate(CertificateError::Revoked) => {
            "ringkeeper.ssl.crlFile lists the client's certificate, or that of an issuer"
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownRevocationStatus) => {
            "add the list of the issuer, and those of the issuer's issuers, to ringkeeper.ssl.crlFile"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. },
        ) => "replace the issuer's list in ringkeeper.ssl.crlFile by a new one",
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the client does not speak TLS: have it connect with TLS, or to clientPort"
        }
        rustls::Error::PeerIncompatible(_) => {
            "the client offers no version or cipher suite of ssl.enabledProtocols and ssl.ciphersuites"
        }
        rustls::Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::BadCertificate) => {
            "the client does not trust the certificate in ssl.keyStore.location"
        }
        error => match unusual_certificate(error) {
            Some(remedy) => remedy,
            None => return HandshakeError::Tls(error.to_string()),
        },
    };
    HandshakeError::Tls(format!("{error}: {remedy}"))
}

/// What to do about a certificate that Java would take.
fn unusual_certificate(error: &rustls::Error) -> Option<&'static str> {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else { return None };
    match other.to_string().as_str() {
        "UnsupportedCertVersion" => Some(
            "the client needs a certificate of X.509 version 3 (`openssl x509 -req` makes one with -extfile)",
        ),
        "CaUsedAsEndEntity" => {
            Some("the client shows an authority's certificate: it needs its own (basicConstraints=CA:FALSE)")
        }
        _ => None,
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
