//! Connections of the admin listener. What a connection may hold, and for how long, does not depend on its
//! client. When there are too many, the address that has most of them loses its oldest one without a request:
//! whoever floods the listener closes his own connections, and keeps no probe from another address out.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{self, IpAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ringkeeper_runtime::tls::HANDSHAKE_RECORD;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};

use super::service::{Body, Client, Offer, Service};
use super::tls::Acceptor;

/// Connections of a port, at most, and the share of the process's descriptors that they may take, one in so
/// many.
const CONNECTIONS_MAX: u64 = 64;
const DESCRIPTORS_SHARE: u64 = 32;

/// The length of a request's header.
const HEADER_BYTES_MAX: usize = 16 * 1024;

/// How long a TLS handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Age at which a connection is closed after its current answer, and how long that may take. A client with
/// more requests connects again.
const LIFETIME: Duration = Duration::from_secs(60);
const LAST_ANSWER_MAX: Duration = Duration::from_secs(30);

/// Time between two attempts when no file descriptor is free.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);

/// An open port.
pub(super) struct Port {
    pub(super) listener: net::TcpListener,
    /// Whether requests in the clear are answered.
    pub(super) clear: bool,
    pub(super) tls: Option<Acceptor>,
    pub(super) offer: Offer,
    /// When there are more, the oldest connection without a request is closed.
    pub(super) connections_max: u64,
}

/// Connections that a port may have in a process with so many descriptors.
pub(super) fn connections_max(open_files: u64) -> u64 {
    (open_files / DESCRIPTORS_SHARE).clamp(4, CONNECTIONS_MAX)
}

/// Serves the ports for as long as the server runs.
pub(super) async fn serve(ports: Vec<Port>, service: Arc<Service>) {
    let ports = ports.into_iter().map(|port| {
        if let Some(tls) = &port.tls {
            tokio::spawn(tls.clone().reload());
        }
        tokio::spawn(accept(port, Arc::clone(&service)))
    });
    for port in ports.collect::<Vec<_>>() {
        if let Ok(Err(error)) = port.await {
            tracing::error!(code = "RK0105", %error, "the admin listener has ended");
        }
    }
}

/// A connection that is served.
struct Seat {
    peer: IpAddr,
    task: AbortHandle,
    /// Requests that are being answered.
    busy: Arc<AtomicUsize>,
}

async fn accept(port: Port, service: Arc<Service>) -> io::Result<()> {
    let Port { listener, clear, tls, offer, connections_max } = port;
    let connections_max = usize::try_from(connections_max).unwrap_or(usize::MAX);
    let listener = TcpListener::from_std(listener)?;
    let mut seats = VecDeque::new();
    loop {
        let Ok((tcp, peer)) = listener.accept().await else {
            sleep(ACCEPT_AGAIN).await;
            continue;
        };
        if !make_room(&mut seats, connections_max) {
            continue;
        }
        let busy = Arc::<AtomicUsize>::default();
        let connection = Connection { service: Arc::clone(&service), busy: Arc::clone(&busy), offer };
        let task = tokio::spawn(connection.open(tcp, clear, tls.clone())).abort_handle();
        seats.push_back(Seat { peer: peer.ip(), task, busy });
        // A request that has come already is taken before its connection could be closed for the next one.
        yield_now().await;
    }
}

/// Makes room for one more; false if all are being answered.
fn make_room(seats: &mut VecDeque<Seat>, connections_max: usize) -> bool {
    seats.retain(|seat| !seat.task.is_finished());
    if seats.len() < connections_max {
        return true;
    }
    let of = |peer| seats.iter().filter(|seat| seat.peer == peer).count();
    let idle = seats.iter().enumerate().filter(|(_, seat)| seat.busy.load(Ordering::Relaxed) == 0);
    // Of equal ones the last is found, so the oldest has to come last.
    let closed = idle.rev().max_by_key(|(_, seat)| of(seat.peer)).map(|(place, _)| place);
    let closed = closed.and_then(|place| seats.remove(place));
    closed.inspect(|seat| seat.task.abort()).is_some()
}

struct Connection {
    service: Arc<Service>,
    busy: Arc<AtomicUsize>,
    offer: Offer,
}

impl Connection {
    async fn open(self, tcp: TcpStream, clear: bool, tls: Option<Acceptor>) {
        let Ok(peer) = tcp.peer_addr() else { return };
        // The system closes a connection whose client takes no answer. Without that, its lifetime ends it.
        let idle_ms = u32::try_from(self.service.idle_timeout().as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&tcp, idle_ms);
        let _ = tcp.set_nodelay(true);
        let secured = match tls {
            Some(tls) if !clear || self.begins_handshake(&tcp).await => Some(tls),
            _ => None,
        };
        let peer = peer.ip();
        match secured {
            None => self.serve(tcp, Client { peer, encrypted: false }).await,
            Some(tls) => match timeout(HANDSHAKE_MAX, tls.accept(tcp)).await {
                Ok(Ok(stream)) => self.serve(stream, Client { peer, encrypted: true }).await,
                Ok(Err(error)) => {
                    tracing::debug!(%peer, %error, "a TLS handshake failed at the admin listener")
                }
                Err(_) => {}
            },
        }
    }

    /// Whether a request is being answered. What bounds the time for that is the answer's maker.
    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    async fn begins_handshake(&self, tcp: &TcpStream) -> bool {
        let mut first = [0];
        let peeked = timeout(self.service.idle_timeout(), tcp.peek(&mut first)).await;
        matches!(peeked, Ok(Ok(1))) && first == [HANDSHAKE_RECORD]
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send, client: Client) {
        let answer = service_fn(|request| {
            let (service, offer) = (Arc::clone(&self.service), self.offer);
            let busy = Busy::begin(&self.busy);
            async move {
                let response = service.answer(request, offer, client).await;
                Ok::<_, Infallible>(response.map(|body| BusyBody { body, _busy: busy }))
            }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).max_buf_size(HEADER_BYTES_MAX);
        http.header_read_timeout(self.service.idle_timeout());
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), answer));
        // How a connection ends is its client's affair.
        if timeout(LIFETIME, connection.as_mut()).await.is_err() {
            connection.as_mut().graceful_shutdown();
            while timeout(LAST_ANSWER_MAX, connection.as_mut()).await.is_err() && self.is_busy() {}
        }
    }
}

/// A body, until whose last part is taken the connection is busy.
struct BusyBody {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for BusyBody {
    type Data = <Body as hyper::body::Body>::Data;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request that is being answered.
struct Busy(Arc<AtomicUsize>);

impl Busy {
    fn begin(requests: &Arc<AtomicUsize>) -> Self {
        requests.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(requests))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
