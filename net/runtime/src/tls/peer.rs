//! Connections between servers, with TLS or in the clear.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_lite::{AsyncRead, AsyncWrite, AsyncWriteExt, ready};
use ringkeeper_host::env::{Certificate, Connection, Stream, Writer};
use ringkeeper_tls::{Party, PeerConfig, PeerSettings, Stores, bears_name};

use super::connection::READ_ROOM_MIN;
use super::{
    HandshakeError, READ_BYTES, StartError, TlsConnection, Transport, begins_handshake, handshake, reload,
    reloaded,
};
use crate::helper::Helper;
use crate::runtime::Runtime;

/// How long a handshake between servers may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How the servers of an ensemble secure their links.
pub struct PeerTls {
    stores: Arc<Stores<PeerConfig>>,
    helper: Helper,
    /// Whether peers are dialed with TLS.
    pub(crate) dials: bool,
    /// How long the first byte of a peer is waited for, if those in the clear are accepted, too.
    clear_patience: Option<Duration>,
}

impl PeerTls {
    /// Reads the stores and starts a thread for handshakes. To be called before executors are pinned. Peers
    /// are dialed with TLS if it `dials`. Those that connect in the clear are refused, or accepted with
    /// `clear_patience`, which is how long their first byte may take.
    ///
    /// # Errors
    /// A store cannot be used, or the system refuses another thread.
    pub fn start(
        settings: PeerSettings,
        dials: bool,
        clear_patience: Option<Duration>,
    ) -> Result<Arc<Self>, StartError> {
        let files = settings.files().map(Path::to_owned).collect();
        let stores = Stores::open(files, move || settings.load())?;
        let helper = Helper::start("peer-handshake", 1)?;
        Ok(Arc::new(Self { stores: Arc::new(stores), helper, dials, clear_patience }))
    }

    /// Reads changed stores again, for as long as the server runs.
    pub fn reload<R: Runtime>(&self) -> impl Future<Output = ()> + use<R> {
        reload::<R, _, _>(Arc::clone(&self.stores), reloaded(Party::Peer), self.helper.clone())
    }

    async fn secure<T: Transport>(
        &self,
        tcp: T,
        is_dialed: bool,
    ) -> Result<TlsConnection<T>, HandshakeError> {
        let config = self.stores.config();
        let session = if is_dialed { config.dialed() } else { config.accepted() };
        let buffer = RefCell::new(vec![0; READ_BYTES].into());
        handshake(session, tcp, Party::Peer, &self.helper, &buffer, PATIENCE).await
    }
}

impl From<HandshakeError> for io::Error {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Io(error) => error,
            error => Self::other(error.to_string()),
        }
    }
}

/// A TCP connection to a peer.
pub struct PeerStream<T> {
    tcp: T,
    begins: Begins,
}

/// How a connection begins.
enum Begins {
    /// With the first message.
    Clear,
    /// With a handshake that this end begins.
    Dialed(Arc<PeerTls>),
    /// With a handshake that the other end begins, or in the clear where that is accepted.
    Accepted(Arc<PeerTls>),
}

impl<T: Transport> PeerStream<T> {
    /// A connection to a peer that was dialed.
    pub(crate) fn dialed(tcp: T, tls: Option<&Arc<PeerTls>>) -> Self {
        let tls = tls.filter(|tls| tls.dials);
        Self { tcp, begins: tls.map_or(Begins::Clear, |tls| Begins::Dialed(Arc::clone(tls))) }
    }

    /// A connection that was accepted.
    pub(crate) fn accepted(tcp: T, tls: Option<&Arc<PeerTls>>) -> Self {
        Self { tcp, begins: tls.map_or(Begins::Clear, |tls| Begins::Accepted(Arc::clone(tls))) }
    }
}

impl<T: Transport> Stream for PeerStream<T> {
    type Reader = PeerReader<T>;
    type Writer = PeerWriter<T>;

    async fn open(self) -> io::Result<Connection<Self>> {
        let Self { tcp, begins } = self;
        tcp.set_nodelay()?;
        let (tls, is_dialed) = match begins {
            Begins::Clear => return in_the_clear(tcp),
            Begins::Dialed(tls) => (tls, true),
            Begins::Accepted(tls) => (tls, false),
        };
        if let Some(patience) = tls.clear_patience.filter(|_| !is_dialed)
            && !begins_handshake(&tcp, Party::Peer, patience).await?
        {
            return in_the_clear(tcp);
        }
        match tls.secure(tcp, is_dialed).await {
            Ok(connection) => Ok(secured(connection)),
            Err(HandshakeError::Closed(_)) if is_dialed => Err(io::Error::other(
                "it closes the connection in the TLS handshake: it may speak in the clear alone (neither \
                 sslQuorum nor portUnification)",
            )),
            Err(error) => Err(error.into()),
        }
    }

    fn shutdown(writer: &mut PeerWriter<T>) {
        match writer {
            PeerWriter::Clear(tcp) => tcp.shut_down(),
            PeerWriter::Tls(connection) => connection.borrow().tcp().shut_down(),
        }
    }
}

fn in_the_clear<T: Transport>(tcp: T) -> io::Result<Connection<PeerStream<T>>> {
    let writer = PeerWriter::Clear(tcp.second()?);
    Ok(Connection { reader: PeerReader::Clear(tcp), writer, certificate: None })
}

fn secured<T: Transport>(connection: TlsConnection<T>) -> Connection<PeerStream<T>> {
    // The handshake demands one, and none names nobody.
    let certificate = connection.certificate().cloned();
    let names = move |host: &str| certificate.as_ref().is_some_and(|shown| bears_name(shown, host));
    let connection = Rc::new(RefCell::new(connection));
    let opened = Opened { connection: Rc::clone(&connection), bytes: Box::default(), waiting: 0..0 };
    Connection {
        reader: PeerReader::Tls(opened),
        writer: PeerWriter::Tls(connection),
        certificate: Some(Certificate::new(names)),
    }
}

/// The half that receives.
pub enum PeerReader<T> {
    /// From the socket.
    Clear(T),
    /// From records.
    Tls(Opened<T>),
}

/// The half that sends.
pub enum PeerWriter<T> {
    /// To the socket.
    Clear(T),
    /// In records.
    Tls(Rc<RefCell<TlsConnection<T>>>),
}

/// What is received with TLS.
pub struct Opened<T> {
    connection: Rc<RefCell<TlsConnection<T>>>,
    /// For readers with little room: what was opened, of which `waiting` has not been read.
    bytes: Box<[u8]>,
    waiting: Range<usize>,
}

impl<T: Transport> Opened<T> {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.waiting.is_empty() {
            let mut connection = self.connection.borrow_mut();
            if buffer.len() >= READ_ROOM_MIN {
                self.bytes = Box::default();
                return connection.poll_read(cx, buffer);
            }
            if self.bytes.is_empty() {
                self.bytes = vec![0; READ_ROOM_MIN].into();
            }
            self.waiting = 0..ready!(connection.poll_read(cx, &mut self.bytes))?;
        }
        let len = self.waiting.len().min(buffer.len());
        let begin = self.waiting.start;
        buffer[..len].copy_from_slice(&self.bytes[begin..begin + len]);
        self.waiting.start += len;
        Poll::Ready(Ok(len))
    }
}

impl<T: Transport> AsyncRead for PeerReader<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Clear(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Self::Tls(opened) => opened.poll_read(cx, buffer),
        }
    }
}

impl<T: Transport> Writer for PeerWriter<T> {
    async fn write_shared(&mut self, bytes: Bytes) -> io::Result<()> {
        match self {
            Self::Clear(tcp) => tcp.write_shared(bytes).await,
            Self::Tls(_) => self.write_all(&bytes).await,
        }
    }
}

impl<T: Transport> AsyncWrite for PeerWriter<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Clear(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(connection) => connection.borrow_mut().poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Clear(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(connection) => connection.borrow_mut().poll_send(cx),
        }
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Clear(tcp) => Pin::new(tcp).poll_close(cx),
            Self::Tls(connection) => connection.borrow_mut().poll_close(cx),
        }
    }
}
